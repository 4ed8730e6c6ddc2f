"""JSON values on their way from one object into another."""

from __future__ import annotations

import math
import re
from typing import Any, Final

_STRAY_BYTE: Final = re.compile("[\udc80-\udcff]")


class PatchFailed(Exception):
    """A patch cannot be applied, and not because its source is missing."""


def integral(number: float) -> int | float:
    """A number without a fraction is an integer, as it was in the JSON that somebody wrote."""
    if not math.isfinite(number):
        shown = "NaN" if number != number else "+Inf" if number > 0 else "-Inf"
        raise PatchFailed(f"cannot marshal value to JSON: json: unsupported value: {shown}")
    return int(number) if number.is_integer() and abs(number) < 2**53 else number


def fresh(value: Any) -> Any:
    """A copy that shares nothing changeable with `value`, with whole numbers as integers."""
    kind = type(value)
    if kind is dict:
        return {key: item if type(item) is str else fresh(item) for key, item in value.items()}
    if kind is list:
        return [item if type(item) is str else fresh(item) for item in value]
    return integral(value) if kind is float else value


def characters(text: str) -> str:
    """A text as an answer may hold it: Go's JSON writes one U+FFFD for each byte that is not part of a character."""
    return text if text.isascii() else _STRAY_BYTE.sub("\ufffd", text)
