"""Literals as Go's scanner reads them: numbers, characters and quoted strings."""

from __future__ import annotations

import re
from dataclasses import dataclass

from planform.gotemplate.values import INT64_MAX, INT64_MIN, from_bytes, to_bytes

UINT64_MAX = (1 << 64) - 1
_SIMPLE = {"a": 7, "b": 8, "f": 12, "n": 10, "r": 13, "t": 9, "v": 11, "\\": 92}
_FIXED = {"x": 2, "u": 4, "U": 8}
_DECIMAL_FLOAT = re.compile(r"[+-]?(?:[0-9_]+\.?[0-9_]*|\.[0-9_]+)(?:[eE][+-]?[0-9_]+)?\Z")
_HEX_FLOAT = re.compile(r"[+-]?0[xX](?:[0-9a-fA-F_]+\.?[0-9a-fA-F_]*|\.[0-9a-fA-F_]+)[pP][+-]?[0-9]+\Z")
_INTEGER = re.compile(r"([+-]?)(?:0[xX]([0-9a-fA-F_]+)|0[oO]?([0-7_]+)|0[bB]([01_]+)|([1-9][0-9_]*|0))\Z")
_BASES = {2: 16, 3: 8, 4: 2, 5: 10}


class BadLiteral(ValueError):
    """The text is not a literal; the message is Go's."""


@dataclass(frozen=True, slots=True)
class Number:
    """A number and everything that its text can stand for; Go decides by where it is used."""

    text: str
    integer: int | None = None
    unsigned: int | None = None
    floating: float | None = None
    imaginary: complex | None = None


def parse_number(text: str) -> Number:
    if text.endswith("i") and text[:2].lower() != "0x":
        return _simplified(text, complex(0, _float_or_fail(text[:-1], text)))
    value = parse_int(text)
    if value is not None:
        signed = value if INT64_MIN <= value <= INT64_MAX else None
        unsigned = value if 0 <= value <= UINT64_MAX and (text[0] not in "+-" or value == 0) else None
        if signed is not None or unsigned is not None:
            return Number(text, signed, unsigned, float(value))
    number = parse_float(text)
    if number is None:
        raise BadLiteral(f'illegal number syntax: "{text}"')
    if not any(mark in text for mark in ".eEpP"):
        raise BadLiteral(f'integer overflow: "{text}"')
    whole = int(number) if number.is_integer() else None
    return Number(
        text,
        whole if whole is not None and INT64_MIN <= whole <= INT64_MAX else None,
        whole if whole is not None and 0 <= whole <= UINT64_MAX else None,
        number,
    )


def parse_complex(text: str) -> Number:
    """Read `1+2i`; the lexer has seen to its shape."""
    split = max(text.rfind("+", 1), text.rfind("-", 1))
    while split > 0 and text[split - 1] in "eEpP":
        split = max(text.rfind("+", 1, split), text.rfind("-", 1, split))
    return _simplified(text, complex(_float_or_fail(text[:split], text), _float_or_fail(text[split:-1], text)))


def _simplified(text: str, value: complex) -> Number:
    """A complex number without imaginary part counts as float and integer too."""
    if value.imag != 0:
        return Number(text, imaginary=value)
    whole = int(value.real) if value.real.is_integer() else None
    unsigned = whole if whole is not None and whole >= 0 else None
    return Number(text, whole, unsigned, value.real, value)


def _float_or_fail(text: str, whole: str) -> float:
    number = parse_float(text)
    if number is None:
        raise BadLiteral(f'illegal number syntax: "{whole}"')
    return number


def parse_int(text: str) -> int | None:
    """Read an integer in Go's syntax, of any size; None if it is not one."""
    match = _INTEGER.match(text)
    if match is None or not _underscores_separate_digits(text):
        return None
    group = match.lastindex or 0
    digits = match[group].replace("_", "")
    if not digits:
        return None
    number = int(digits, _BASES[group])
    return -number if match[1] == "-" else number


def parse_float(text: str) -> float | None:
    """Read a float in Go's syntax; None if it is not one or does not fit."""
    if not _underscores_separate_digits(text):
        return None
    if _DECIMAL_FLOAT.match(text):
        number = float(text.replace("_", ""))
    elif _HEX_FLOAT.match(text):
        number = float.fromhex(text.replace("_", ""))
    else:
        return None
    return None if number in (float("inf"), float("-inf")) else number


def _underscores_separate_digits(text: str) -> bool:
    if "_" not in text:
        return True
    body = text.lstrip("+-")
    hexadecimal = body[:2].lower() == "0x"
    if body[:2].lower() in ("0x", "0o", "0b"):
        body = "0" + body[2:]
    digit = "[0-9a-fA-F]" if hexadecimal else "[0-9]"
    return re.search(rf"(?<!{digit})_|_(?!{digit})", body) is None


def parse_char(text: str) -> Number:
    """Read `'x'`."""
    point, end = _read_char(text, 1, "'")
    if text[end:] != "'":
        raise BadLiteral(f"malformed character constant: {text}")
    return Number(text, point, point, float(point))


def unquote(text: str) -> str:
    """Read a quoted or raw string."""
    if text[0] == "`":
        return text[1:-1].replace("\r", "")
    if "\\" not in text:
        return text[1:-1]
    out = bytearray()
    at, end = 1, len(text) - 1
    while at < end:
        if text[at] != "\\":
            stop = text.find("\\", at, end)
            stop = end if stop < 0 else stop
            out += to_bytes(text[at:stop])
            at = stop
            continue
        is_byte = text[at + 1] == "x" or text[at + 1] in "01234567"
        point, at = _read_char(text, at, '"')
        out += bytes((point,)) if is_byte else chr(point).encode()
    return from_bytes(bytes(out))


def _read_char(text: str, at: int, quote: str) -> tuple[int, int]:
    """The code point of one character or escape, and where it ends."""
    first = text[at]
    if first != "\\":
        if first == quote:
            raise BadLiteral("invalid syntax")
        return ord(first), at + 1
    kind = text[at + 1 : at + 2]
    if kind in _SIMPLE:
        return _SIMPLE[kind], at + 2
    if kind and kind in "'\"" and kind == quote:
        return ord(kind), at + 2
    if kind in _FIXED:
        digits = text[at + 2 : at + 2 + _FIXED[kind]]
        if len(digits) < _FIXED[kind] or not re.fullmatch("[0-9a-fA-F]+", digits):
            raise BadLiteral("invalid syntax")
        point = int(digits, 16)
        if kind != "x" and (point > 0x10FFFF or 0xD800 <= point <= 0xDFFF):
            raise BadLiteral("invalid syntax")
        return point, at + 2 + len(digits)
    octal = re.compile("[0-7]{3}").match(text, at + 1)
    if octal and int(octal[0], 8) <= 255:
        return int(octal[0], 8), at + 4
    raise BadLiteral("invalid syntax")
