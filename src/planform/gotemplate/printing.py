"""Values as text: `%v` of Go's fmt package, and what prints with it.

Whoever prints pays: `Meter` bounds how much one call may print, since lists that share parts can be exponentially
longer on paper than in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from planform.gotemplate.errors import LimitReached
from planform.gotemplate.floats import format_float
from planform.gotemplate.values import (
    Missing,
    Record,
    Value,
    foreign,
)

MAX_NESTING: Final = 200
DEFAULT_ROOM: Final = 16 << 20
NODE: Final = 16  # characters' worth of work that any value takes, however short


class Meter:
    """How many more characters may be printed."""

    __slots__ = ("room",)

    def __init__(self, room: int = DEFAULT_ROOM) -> None:
        self.room = room

    def spend(self, characters: int) -> None:
        self.room -= characters
        if self.room < 0:
            raise LimitReached("value is too long to print")


def show(value: Value, meter: Meter | None = None) -> str:
    """`%v`, the way an action prints; nil and missing values are left to the caller."""
    simple = _SIMPLE.get(type(value))
    if simple is not None:
        return simple(value)
    return _show_nested(value, meter or Meter(), 0)


def show_bool(value: bool) -> str:
    return "true" if value else "false"


def _show_complex(value: complex) -> str:
    imaginary = _general(value.imag)
    return f"({_general(value.real)}{'' if imaginary[0] in '+-' else '+'}{imaginary}i)"


_SIMPLE: Final[dict[type, Callable[[Any], str]]] = {
    str: lambda value: value,
    int: str,
    float: lambda value: _general(value),
    bool: show_bool,
    type(None): lambda value: "<nil>",
    Missing: lambda value: "<no value>",
    complex: _show_complex,
}


def _general(number: float) -> str:
    if number.is_integer() and -1e6 < number < 1e6 and number:
        return f"{int(number)}"
    return format_float(number, "g", None)


def _show_nested(value: Value, meter: Meter, depth: int) -> str:
    simple = _SIMPLE.get(type(value))
    if simple is not None:
        text = simple(value)
        meter.spend(len(text) + NODE)
        return text
    meter.spend(NODE)
    if depth > MAX_NESTING:
        raise LimitReached(f"value is nested more than {MAX_NESTING} deep")
    if isinstance(value, dict):
        inside = (f"{key}:{_show_nested(value[key], meter, depth + 1)}" for key in sorted(value))
        return f"map[{' '.join(inside)}]"
    if isinstance(value, list):
        return f"[{' '.join([_show_nested(item, meter, depth + 1) for item in value])}]"
    if isinstance(value, int):
        return int.__repr__(value)
    if isinstance(value, bytes):
        return f"[{' '.join(map(str, value))}]"
    text = value.go_string() if isinstance(value, Record) else f"<{foreign(value)}>"
    meter.spend(len(text))
    return text


def sprint(values: Sequence[Value], meter: Meter | None = None) -> str:
    """fmt.Sprint: a space between operands when neither is a string."""
    meter = meter or Meter()
    if len(values) == 1:
        return show(values[0], meter)
    parts: list[str] = []
    previous_is_string = True
    for value in values:
        is_string = type(value) is str
        if parts and not is_string and not previous_is_string:
            parts.append(" ")
        parts.append(show(value, meter))
        previous_is_string = is_string
    return "".join(parts)


def sprintln(values: Sequence[Value], meter: Meter | None = None) -> str:
    meter = meter or Meter()
    return " ".join([show(value, meter) for value in values]) + "\n"
