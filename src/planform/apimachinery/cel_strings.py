"""CEL's string and regular-expression functions. Importing the module enters them in the table."""

from __future__ import annotations

import base64
import binascii
import functools
import math
from collections.abc import Callable
from typing import Any

import re2

from planform.apimachinery import cel_functions as table
from planform.apimachinery.cel_functions import declare
from planform.apimachinery.cel_types import MAX_REQUEST_BYTES
from planform.apimachinery.cel_values import EvaluationError, TypeValue, UInt, to_json
from planform.apimachinery.schema_findings import go_number

_QUIET = re2.Options()
_QUIET.log_errors = False


def _twice(sizes: list[int]) -> float:
    return sizes[0] * 2 * table.STRING_COST


def _first(sizes: list[int]) -> float:
    return sizes[0]


# Strings


@declare("string.charAt(int): string", size=lambda sizes: 4)
def char_at(text: str, index: int) -> str:
    if not 0 <= index <= len(text):
        raise EvaluationError(f"index out of range: {index}")
    return text[index : index + 1]


@declare("string.indexOf(string): int", "string.indexOf(string, int): int", cost=table.traverses)
def index_of(text: str, part: str, start: int = 0) -> int:
    if not 0 <= start <= len(text):
        raise EvaluationError(f"index out of range: {start}")
    return text.find(part, start)


@declare("string.lastIndexOf(string): int", "string.lastIndexOf(string, int): int", cost=table.traverses)
def last_index_of(text: str, part: str, start: int | None = None) -> int:
    if start is None:
        return text.rfind(part)
    if not 0 <= start <= len(text):
        raise EvaluationError(f"index out of range: {start}")
    return text.rfind(part, 0, start + len(part))


@declare(
    "list<string>.join(): string", "list<string>.join(string): string", cost=_twice, size=lambda sizes: sizes[0] * 64
)
def join(parts: list[str], separator: str = "") -> str:
    if any(type(part) is not str for part in parts):
        raise EvaluationError("no such overload: join on a list that is not of strings")
    return separator.join(parts)


def _ascii_case(change: Callable[[str], str]) -> Callable[[str], str]:
    return lambda text: "".join(change(char) if char.isascii() else char for char in text)


declare("string.lowerAscii(): string", cost=table.traverses, size=_first)(_ascii_case(str.lower))
declare("string.upperAscii(): string", cost=table.traverses, size=_first)(_ascii_case(str.upper))
declare("string.trim(): string", cost=table.traverses, size=_first)(str.strip)
declare("string.reverse(): string", cost=table.traverses, size=_first)(lambda text: text[::-1])


def _replaced(sizes: list[int]) -> float:
    return sizes[0] * max(1, sizes[2])


@declare(
    "string.replace(string, string): string",
    "string.replace(string, string, int): string",
    cost=_twice,
    size=_replaced,
)
def replace(text: str, old: str, new: str, limit: int = -1) -> str:
    if (text.count(old) if limit < 0 else min(limit, text.count(old))) * len(new) > MAX_REQUEST_BYTES:
        raise EvaluationError("result of replace is too long")
    return text.replace(old, new, limit)


@declare("string.split(string): list<string>", "string.split(string, int): list<string>", cost=_twice, size=_first)
def split(text: str, separator: str, limit: int = -1) -> list[str]:
    if limit == 0:
        return []
    if not separator:
        pieces = list(text)
        return pieces if limit < 0 or len(pieces) <= limit else [*pieces[: limit - 1], text[limit - 1 :]]
    return text.split(separator, limit - 1 if limit > 0 else -1)


@declare("string.substring(int): string", "string.substring(int, int): string", cost=table.traverses, size=_first)
def substring(text: str, start: int, end: int | None = None) -> str:
    end = len(text) if end is None else end
    if not 0 <= start <= len(text) or not 0 <= end <= len(text):
        raise EvaluationError(f"index out of range: {start if not 0 <= start <= len(text) else end}")
    if start > end:
        raise EvaluationError(f"invalid substring range. start: {start}, end: {end}")
    return text[start:end]


_QUOTED = str.maketrans(
    {
        "\a": "\\a",
        "\b": "\\b",
        "\f": "\\f",
        "\n": "\\n",
        "\r": "\\r",
        "\t": "\\t",
        "\v": "\\v",
        "\\": "\\\\",
        '"': '\\"',
    }
)


@declare("strings::quote(string): string", cost=table.traverses, size=lambda sizes: 2 * sizes[0] + 2)
def quote(text: str) -> str:
    return f'"{text.translate(_QUOTED)}"'


@declare(
    "string.format(list<dyn>): string", cost=lambda sizes: _twice(sizes), size=lambda sizes: sizes[0] + 64 * sizes[1]
)
def format_text(template: str, args: list[Any]) -> str:
    """%s, %d, %f, %e, %b, %o, %x, %X and %%, with a precision for %f and %e."""
    out, position, used = [], 0, 0
    while position < len(template):
        char = template[position]
        position += 1
        if char != "%":
            out.append(char)
            continue
        precision = ""
        if template[position : position + 1] == ".":
            position += 1
            while template[position : position + 1].isdigit():
                precision += template[position]
                position += 1
        verb = template[position : position + 1]
        position += 1
        if verb == "%":
            out.append("%")
            continue
        if not verb:
            raise EvaluationError("unexpected end of string")
        if used >= len(args):
            raise EvaluationError(f"index {used} out of range")
        out.append(_formatted(verb, args[used], precision))
        used += 1
    return "".join(out)


def _formatted(verb: str, value: Any, precision: str) -> str:
    number = type(value) in (int, UInt)
    if verb == "s":
        return _shown(value)
    if verb == "d" and (number or type(value) is float):
        return str(int(value)) if number else go_number(value)
    if verb in "fe" and (number or type(value) is float):
        digits = int(precision) if precision else 6
        if digits > 1000:
            raise EvaluationError("precision is too large")
        return f"{float(value):.{digits}{verb}}"
    if verb in "bo" and (number or (verb == "b" and type(value) is bool)):
        return f"{int(value):{verb}}"
    if verb in "xX" and (number or type(value) in (str, bytes)):
        text = f"{value:x}" if number else (value.encode() if isinstance(value, str) else value).hex()
        return text.upper() if verb == "X" else text
    if verb in "sdfebosxX":
        raise EvaluationError(f"error during formatting: %{verb} does not take this type of argument")
    raise EvaluationError(f'could not parse formatting clause: unrecognized formatting clause "{verb}"')


def _shown(value: Any) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case None:
            return "null"
        case str():
            return value
        case float():
            return "Infinity" if value == math.inf else "-Infinity" if value == -math.inf else go_number(value)
        case bytes():
            return value.decode(errors="replace")
        case list():
            return f"[{', '.join(map(_shown, value))}]"
        case dict():
            pairs = sorted((_shown(key), _shown(item)) for key, item in value.items())
            return "{" + ", ".join(f"{key}: {item}" for key, item in pairs) + "}"
        case TypeValue():
            return value.name
    return str(to_json(value))


declare("base64::encode(bytes): string", cost=table.traverses, size=lambda sizes: sizes[0] * 2)(
    lambda data: base64.b64encode(data).decode()
)


@declare("base64::decode(string): bytes", cost=table.traverses, size=_first)
def decode_base64(text: str) -> bytes:
    try:
        return base64.b64decode(text + "=" * (-len(text) % 4), validate=True)
    except (binascii.Error, ValueError) as error:
        raise EvaluationError("illegal base64 data") from error


# Regular expressions


@functools.lru_cache(maxsize=1024)
def _regex(pattern: str) -> Any:
    try:
        return re2.compile(pattern, _QUIET)
    except re2.error as error:
        raise EvaluationError(f"Illegal regex: {pattern}") from error


@declare("string.find(string): string", cost=table.searches, size=_first)
def find(text: str, pattern: str) -> str:
    found = _regex(pattern).search(text)
    return found.group(0) if found else ""


@declare(
    "string.findAll(string): list<string>",
    "string.findAll(string, int): list<string>",
    cost=table.searches,
    size=_first,
)
def find_all(text: str, pattern: str, limit: int = -1) -> list[str]:
    found: list[str] = []
    for match in _regex(pattern).finditer(text):
        if len(found) == limit:
            break
        found.append(match.group(0))
    return found
