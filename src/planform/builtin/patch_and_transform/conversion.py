"""The convert transform: values of one JSON type as another, by the rules of Go's strconv."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any, Final

import msgspec

from planform.apimachinery.quantity import QuantityError, parse_quantity
from planform.builtin.patch_and_transform.values import characters, fresh
from planform.gotemplate import gojson
from planform.gotemplate.errors import CallFailed, LimitReached
from planform.gotemplate.floats import format_float
from planform.gotemplate.literals import parse_float
from planform.gotemplate.printing import Meter
from planform.gotemplate.quoting import quote
from planform.gotemplate.values import INT64_MAX, INT64_MIN, type_name

TYPES: Final = ("string", "int", "int64", "bool", "float64", "object", "array")
FORMATS: Final = ("none", "quantity", "json")

_NAMES: Final = {str: "string", int: "int64", float: "float64", bool: "bool", dict: "object", list: "array"}
_JSON_NAMES: Final = _NAMES | {int: "number", float: "number"}
_TRUE: Final = frozenset({"1", "t", "T", "true", "TRUE", "True"})
_FALSE: Final = frozenset({"0", "f", "F", "false", "FALSE", "False"})
_integer = re.compile(r"[+-]?[0-9]+").fullmatch
_special = re.compile(r"[+-]?(?:inf|infinity|nan)", re.IGNORECASE).fullmatch


class TransformFailed(ValueError):
    """A transform does not fit the value it was given."""


def compile_convert(to_type: str, form: str) -> Callable[[Any], Any]:
    """The conversion to a type; what it converts from is known only when it sees a value."""
    wanted = "int64" if to_type == "int" else to_type

    def convert(value: Any) -> Any:
        found = _NAMES.get(type(value))
        if found is None:
            raise TransformFailed(f"invalid input type {type_name(value)}")
        # A number is a number, whatever its format: JSON does not say whether a whole one is a float.
        if found == wanted or (found == "int64" and wanted == "float64" and form == "quantity"):
            return float(value) if wanted == "float64" else value
        conversion = _CONVERSIONS.get((found, wanted, form))
        if conversion is None:
            if found in ("object", "array"):
                raise TransformFailed(f"invalid input type {type_name(value)}")
            raise TransformFailed(f"conversion from {found} to {wanted} is not supported with format {form}")
        return conversion(value)

    return convert


def go_json(value: Any) -> str:
    """A value as JSON text, as Go writes it."""
    try:
        return gojson.encode(value, Meter())
    except (CallFailed, LimitReached) as error:
        raise TransformFailed(str(error)) from None


def _parse_int(text: str) -> int:
    if not _integer(text):
        raise TransformFailed(f"strconv.ParseInt: parsing {quote(text)}: invalid syntax")
    number = int(text) if len(text) < 64 else INT64_MAX + 1
    if not INT64_MIN <= number <= INT64_MAX:
        raise TransformFailed(f"strconv.ParseInt: parsing {quote(text)}: value out of range")
    return number


def _parse_float(text: str) -> float:
    if _special(text):
        return float(text)
    number = parse_float(text)
    if number is None:
        problem = "value out of range" if _overflows(text) else "invalid syntax"
        raise TransformFailed(f"strconv.ParseFloat: parsing {quote(text)}: {problem}")
    return number


def _overflows(text: str) -> bool:
    try:
        return math.isinf(float(text))
    except ValueError:
        return False


def _parse_quantity(text: str) -> float:
    try:
        return float(parse_quantity(text))
    except QuantityError as error:
        raise TransformFailed(str(error)) from None


def _parse_bool(text: str) -> bool:
    if text in _TRUE:
        return True
    if text in _FALSE:
        return False
    raise TransformFailed(f"strconv.ParseBool: parsing {quote(text)}: invalid syntax")


def _truncate(number: float) -> int:
    whole = int(number)
    if not INT64_MIN <= whole <= INT64_MAX:
        raise TransformFailed(f"{format_float(number, 'g', None)} is out of range of int64")
    return whole


def _json_of(kind: type) -> Callable[[str], Any]:
    def parse(text: str) -> Any:
        try:
            value = msgspec.json.decode(characters(text))
        except (msgspec.DecodeError, RecursionError) as error:
            raise TransformFailed(f"the text is not JSON: {error}") from None
        if value is not None and type(value) is not kind:
            found, wanted = _JSON_NAMES[type(value)], type_name(kind())
            raise TransformFailed(f"json: cannot unmarshal {found} into Go value of type {wanted}")
        return fresh(value)

    return parse


_CONVERSIONS: Final[dict[tuple[str, str, str], Callable[[Any], Any]]] = {
    ("string", "int64", "none"): _parse_int,
    ("string", "float64", "none"): _parse_float,
    ("string", "float64", "quantity"): _parse_quantity,
    ("string", "bool", "none"): _parse_bool,
    ("string", "object", "json"): _json_of(dict),
    ("string", "array", "json"): _json_of(list),
    ("int64", "string", "none"): str,
    ("int64", "float64", "none"): float,
    ("int64", "bool", "none"): lambda number: number == 1,
    ("float64", "string", "none"): lambda number: format_float(number, "f", None),
    ("float64", "int64", "none"): _truncate,
    ("float64", "bool", "none"): lambda number: number == 1.0,
    ("bool", "string", "none"): lambda flag: "true" if flag else "false",
    ("bool", "int64", "none"): int,
    ("bool", "float64", "none"): float,
    ("object", "string", "json"): go_json,
    ("array", "string", "json"): go_json,
}
