"""Base 64 and 32, checksums and JSON."""

from __future__ import annotations

import base64
import hashlib
import zlib
from collections.abc import Callable
from typing import Final

from planform.gotemplate.errors import CallFailed
from planform.gotemplate.functions import Library
from planform.gotemplate.gojson import decode, encode
from planform.gotemplate.runtime import State
from planform.gotemplate.values import Value, from_bytes, to_bytes

encoding: Final = Library()

Decoder = Callable[[bytes], bytes]

_BASE64: Final = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/")
_BASE32: Final = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZ234567")


@encoding.add("func(string) string")
def b64enc(text: str) -> str:
    return base64.b64encode(to_bytes(text)).decode()


@encoding.add("func(string) string")
def b32enc(text: str) -> str:
    return base64.b32encode(to_bytes(text)).decode()


@encoding.add("func(string) string")
def b64dec(text: str) -> str:
    """The decoded text, or the error: a template that decodes rubbish prints what is wrong with it."""
    return _decoded(text, "base64", _BASE64, 4, (2, 3), base64.b64decode)


@encoding.add("func(string) string")
def b32dec(text: str) -> str:
    return _decoded(text, "base32", _BASE32, 8, (2, 4, 5, 7), base64.b32decode)


def _decoded(
    text: str, name: str, alphabet: frozenset[str], group: int, partial: tuple[int, ...], decoder: Decoder
) -> str:
    data = text if text.isascii() else to_bytes(text).decode("latin-1")
    fault = _first_fault(data, alphabet, group, partial)
    if fault is not None:
        return f"illegal {name} data at input byte {fault}"
    clean = data.replace("\r", "").replace("\n", "")
    return from_bytes(decoder(clean.encode()))


def _first_fault(data: str, alphabet: frozenset[str], group: int, partial: tuple[int, ...]) -> int | None:
    """Where Go's decoder would stop; None if it would not."""
    filled, index, length = 0, 0, len(data)
    while index < length:
        char = data[index]
        if char in "\r\n":
            index += 1
            continue
        if char == "=":
            return _padding_fault(data, index, filled, group, partial)
        if char not in alphabet:
            return index
        filled = (filled + 1) % group
        index += 1
    return length - filled if filled else None


def _padding_fault(data: str, index: int, filled: int, group: int, partial: tuple[int, ...]) -> int | None:
    if filled not in partial:
        return index
    needed, at = group - filled, index
    while needed and at < len(data):
        if data[at] in "\r\n":
            at += 1
            continue
        if data[at] != "=":
            return at
        needed -= 1
        at += 1
    if needed:
        return len(data)
    while at < len(data) and data[at] in "\r\n":
        at += 1
    return None if at == len(data) else at


# --- checksums -------------------------------------------------------------------------------------------------------


@encoding.add("func(string) string")
def sha1sum(text: str) -> str:
    return hashlib.sha1(to_bytes(text), usedforsecurity=False).hexdigest()


@encoding.add("func(string) string")
def sha256sum(text: str) -> str:
    return hashlib.sha256(to_bytes(text)).hexdigest()


@encoding.add("func(string) string")
def sha512sum(text: str) -> str:
    return hashlib.sha512(to_bytes(text)).hexdigest()


@encoding.add("func(string) string")
def adler32sum(text: str) -> str:
    return str(zlib.adler32(to_bytes(text)))


# --- JSON ------------------------------------------------------------------------------------------------------------


@encoding.add("func(interface {}) (string, error)", "mustToJson", stateful=True)
def must_to_json(state: State, value: Value) -> str:
    return _paid(state, encode(value, state.meter()))


@encoding.add("func(interface {}) (string, error)", "mustToPrettyJson", stateful=True)
def must_to_pretty_json(state: State, value: Value) -> str:
    return _paid(state, encode(value, state.meter(), indent="  "))


@encoding.add("func(interface {}) string", "toRawJson", stateful=True)
@encoding.add("func(interface {}) (string, error)", "mustToRawJson", stateful=True)
def to_raw_json(state: State, value: Value) -> str:
    return _paid(state, encode(value, state.meter(), escape_html=False))


def _paid(state: State, text: str) -> str:
    state.reserve_text(len(text))
    return text


@encoding.add("func(interface {}) string", "toJson", stateful=True)
def to_json(state: State, value: Value) -> str:
    try:
        return must_to_json(state, value)
    except CallFailed:
        return ""


@encoding.add("func(interface {}) string", "toPrettyJson", stateful=True)
def to_pretty_json(state: State, value: Value) -> str:
    try:
        return must_to_pretty_json(state, value)
    except CallFailed:
        return ""


@encoding.add("func(string) (interface {}, error)", "mustFromJson")
def must_from_json(text: str) -> Value:
    return decode(text)


@encoding.add("func(string) interface {}", "fromJson")
def from_json(text: str) -> Value:
    try:
        return decode(text)
    except CallFailed:
        return None
