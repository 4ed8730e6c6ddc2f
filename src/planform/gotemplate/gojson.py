"""JSON as Go's encoding/json writes and reads it: keys sorted, HTML characters escaped, every number a float."""

from __future__ import annotations

import json
import math
import re
from base64 import b64encode
from collections.abc import Mapping
from typing import Any, Final

from planform.gotemplate.errors import CallFailed, LimitReached
from planform.gotemplate.floats import decompose, positional
from planform.gotemplate.printing import MAX_NESTING, NODE, Meter
from planform.gotemplate.values import NIL_CONTAINERS, Record, Value, type_name

_SPECIAL: Final = re.compile(r'[\x00-\x1f"\\<>&\u2028\u2029\ud800-\udfff]')
_SHORT: Final = {'"': '\\"', "\\": "\\\\", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t"}
_ESCAPES: Final = {
    **{point: f"\\u{point:04x}" for point in (*range(32), 0x2028, 0x2029)},
    **{ord(char): short for char, short in _SHORT.items()},
    **dict.fromkeys(range(0xD800, 0xE000), "\\ufffd"),
}
_WITH_HTML: Final = _ESCAPES | {ord(char): f"\\u{ord(char):04x}" for char in "<>&"}


def encode(value: Value, meter: Meter, *, indent: str = "", escape_html: bool = True) -> str:
    """One JSON text. Raises CallFailed for numbers that JSON does not have."""
    return _Encoder(meter, indent, _WITH_HTML if escape_html else _ESCAPES).encode(value, "\n", 0)


class _Encoder:
    def __init__(self, meter: Meter, indent: str, escapes: Mapping[int, str]) -> None:
        self.meter = meter
        self.indent = indent
        self.escapes = escapes

    def encode(self, value: Value, line: str, depth: int) -> str:
        """`line` is the line break and indentation of the value's own level."""
        if depth > MAX_NESTING:
            raise LimitReached(f"value is nested more than {MAX_NESTING} deep")
        if isinstance(value, Record) and isinstance(members := value.go_value(), dict):
            colon, inner = ": " if self.indent else ":", line + self.indent
            parts = [self.string(key) + colon + self.encode(item, inner, depth + 1) for key, item in members.items()]
            return self.enclosed("{", parts, "}", line, inner)
        if isinstance(value, (list, dict)):
            if isinstance(value, NIL_CONTAINERS):
                return "null"
            inner = line + self.indent
            self.meter.spend(NODE)
            if isinstance(value, dict):
                colon = ": " if self.indent else ":"
                parts = [self.string(key) + colon + self.encode(value[key], inner, depth + 1) for key in sorted(value)]
                return self.enclosed("{", parts, "}", line, inner)
            return self.enclosed("[", [self.encode(item, inner, depth + 1) for item in value], "]", line, inner)
        text = self.scalar(value)
        self.meter.spend(len(text) + NODE)
        return text

    def enclosed(self, opening: str, parts: list[str], closing: str, line: str, inner: str) -> str:
        if not parts:
            return opening + closing
        if not self.indent:
            return f"{opening}{','.join(parts)}{closing}"
        return f"{opening}{inner}{f',{inner}'.join(parts)}{line}{closing}"

    def scalar(self, value: Value) -> str:
        if isinstance(value, str):
            return self.string(value)
        if value is None:
            return "null"
        if isinstance(value, bool):
            return "true" if value else "false"
        if isinstance(value, int):
            return int.__repr__(value)
        if isinstance(value, float):
            return encode_float(value)
        if isinstance(value, bytes):
            return f'"{b64encode(value).decode()}"'
        if isinstance(value, Record):
            return self.string(value.go_json())
        raise CallFailed(f"json: unsupported type: {type_name(value)}")

    def string(self, text: str) -> str:
        return f'"{text.translate(self.escapes)}"' if _SPECIAL.search(text) else f'"{text}"'


def encode_float(number: float) -> str:
    if not math.isfinite(number):
        raise CallFailed(f"json: unsupported value: {'NaN' if number != number else '+Inf' if number > 0 else '-Inf'}")
    sign, digits, exponent = decompose(number)
    if number == 0 or -7 < exponent < 21:
        return sign + positional(digits, exponent)
    point = "." if len(digits) > 1 else ""
    return f"{sign}{digits[0]}{point}{digits[1:]}e{exponent:+03d}".replace("e-0", "e-")


def decode(text: str) -> Value:
    """The value of one JSON text. Raises CallFailed."""
    try:
        return _decoder.decode(text.strip(" \t\r\n"))
    except (ValueError, RecursionError) as error:
        raise CallFailed(f"invalid JSON: {error}") from None


def _number(text: str) -> float:
    number = float(text)
    if math.isinf(number):
        raise ValueError(f"cannot unmarshal number {text} into Go value of type float64")
    return number


def _no_constant(name: str) -> Any:
    raise ValueError(f"invalid character '{name[0]}' looking for beginning of value")


_decoder: Final = json.JSONDecoder(parse_int=_number, parse_float=_number, parse_constant=_no_constant)
