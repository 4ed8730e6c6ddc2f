"""Quoted strings and characters, as Go's strconv writes them."""

from __future__ import annotations

import unicodedata
from typing import Final

_ESCAPES: Final = {7: "\\a", 8: "\\b", 12: "\\f", 10: "\\n", 13: "\\r", 9: "\\t", 11: "\\v", 92: "\\\\"}


def is_printable(char: str) -> bool:
    """Letters, marks, numbers, punctuation, symbols and the plain space."""
    if char.isascii():
        return " " <= char <= "~"
    return unicodedata.category(char)[0] in "LMNPS"


def quote(text: str, *, ascii_only: bool = False) -> str:
    """`text` as a Go string literal in double quotes."""
    if text.isascii() and text.isprintable() and '"' not in text and "\\" not in text:
        return f'"{text}"'
    if text.isascii():
        return f'"{text.translate(_ASCII)}"'
    return '"' + "".join(_escaped(char, '"', ascii_only) for char in text) + '"'


def quote_rune(point: int, *, ascii_only: bool = False) -> str:
    """A code point as a Go character literal; what is none becomes U+FFFD."""
    valid = 0 <= point <= 0x10FFFF and not 0xD800 <= point <= 0xDFFF
    return "'" + _escaped(chr(point) if valid else "\ufffd", "'", ascii_only) + "'"


def can_backquote(text: str) -> bool:
    """Whether a raw string literal can hold `text` unchanged."""
    return all(char == "\t" or (char >= " " and char not in "`\x7f\ufeff" and not _is_byte(char)) for char in text)


def _is_byte(char: str) -> bool:
    """Whether this stands for a byte that is not UTF-8."""
    return "\udc80" <= char <= "\udcff"


def _escaped(char: str, quotes: str, ascii_only: bool) -> str:
    point = ord(char)
    if char == quotes:
        return "\\" + char
    if point in _ESCAPES:
        return _ESCAPES[point]
    if _is_byte(char):
        return f"\\x{point - 0xDC00:02x}"
    if is_printable(char) and (point < 0x80 or not ascii_only):
        return char
    if point < 0x20 or point == 0x7F:
        return f"\\x{point:02x}"
    return f"\\u{point:04x}" if point < 0x10000 else f"\\U{point:08x}"


_ASCII: Final = {point: _escaped(chr(point), '"', True) for point in (*range(32), 34, 92, 127)}
