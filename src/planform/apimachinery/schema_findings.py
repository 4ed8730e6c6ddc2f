"""How Kubernetes words a complaint about a field, and where in an object it is.

Everything that judges objects (schemas, CEL rules, checks of CRDs) builds its `FieldError`s here, so that a client sees
one wording. Paths are linked pairs while an object is walked, because nearly all of them are never printed.
"""

from __future__ import annotations

from collections.abc import Iterable
from decimal import Decimal
from typing import Any, NamedTuple, TypeAlias

import msgspec
import orjson

from planform.errors import FieldError

Path: TypeAlias = "tuple[Path, str | int | MapKey] | None"
"""A place in an object: the parent's path and a property, an index or a map key; None is the root."""

NOWHERE = "<nil>"
"""The field of a complaint that names no field."""


class MapKey(NamedTuple):
    """A key of a map with arbitrary keys: `.key` in schema errors, `[key]` where Kubernetes writes it so."""

    key: str


class Findings(msgspec.Struct):
    """What admitting an object found: paths of unknown fields (sorted) and errors (in order of the walk)."""

    unknown: list[str] = []
    errors: list[FieldError] = []

    @property
    def valid(self) -> bool:
        return not self.errors


def steps(path: Path) -> list[str | int | MapKey]:
    """The elements of a path, outermost first."""
    found: list[str | int | MapKey] = []
    while path is not None:
        path, step = path
        found.append(step)
    found.reverse()
    return found


def render(path: Path, *, bracket_keys: bool = False) -> str:
    """`spec.ports[0].name`; keys of maps are `[key]` if asked for, else `.key`."""
    text = ""
    for step in steps(path):
        if isinstance(step, int):
            text += f"[{step}]"
        elif isinstance(step, MapKey):
            text += f"[{step.key}]" if bracket_keys else f".{step.key}"
        else:
            text += f".{step}"
    return text.removeprefix(".")


def show(value: Any) -> str:
    """A value as Kubernetes prints it after `Invalid value:`."""
    if isinstance(value, float):
        return go_number(value)
    text = orjson.dumps(value, option=orjson.OPT_SORT_KEYS).decode()
    return go_json(text) if isinstance(value, dict | list) else text


def go_json(text: str) -> str:
    """JSON as Go writes it, safe inside HTML."""
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def go_number(value: float) -> str:
    """A float as Go's `%v` prints it: the shortest digits, with an exponent from 1e+06 upwards and below 1e-04."""
    if value != value or value in (float("inf"), float("-inf")):
        return "NaN" if value != value else ("+Inf" if value > 0 else "-Inf")
    _, digits, exponent = Decimal(repr(float(value))).normalize().as_tuple()
    power = len(digits) - 1 + int(exponent)
    if -4 <= power < 6:
        return f"{value:.{max(0, -int(exponent))}f}"
    mantissa = "".join(map(str, digits))
    fraction = f".{mantissa[1:]}" if len(digits) > 1 else ""
    return f"{'-' if value < 0 else ''}{mantissa[0]}{fraction}e{'-' if power < 0 else '+'}{abs(power):02d}"


def required(where: str, detail: str = "") -> FieldError:
    return FieldError(where, "FieldValueRequired", f"Required value: {detail}" if detail else "Required value")


def invalid(where: str, value: Any, detail: str) -> FieldError:
    return FieldError(where, "FieldValueInvalid", f"Invalid value: {show(value)}: {detail}")


def type_invalid(where: str, value: Any, detail: str) -> FieldError:
    return FieldError(where, "FieldValueTypeInvalid", f"Invalid value: {show(value)}: {detail}")


def not_supported(where: str, value: Any, allowed: Iterable[Any]) -> FieldError:
    texts = (item if isinstance(item, str) else show(item) for item in allowed)
    supported = ", ".join(show(text) for text in texts)
    return FieldError(
        where, "FieldValueNotSupported", f"Unsupported value: {show(value)}: supported values: {supported}"
    )


def duplicate(where: str, value: Any) -> FieldError:
    return FieldError(where, "FieldValueDuplicate", f"Duplicate value: {show(value)}")


def forbidden(where: str, detail: str) -> FieldError:
    return FieldError(where, "FieldValueForbidden", f"Forbidden: {detail}")


def too_long(where: str, limit: int) -> FieldError:
    unit = "byte" if limit == 1 else "bytes"
    return FieldError(where, "FieldValueTooLong", f"Too long: may not be more than {limit} {unit}")


def too_many(where: str, count: int, limit: int) -> FieldError:
    unit = "item" if limit == 1 else "items"
    return FieldError(where, "FieldValueTooMany", f"Too many: {count}: must have at most {limit} {unit}")
