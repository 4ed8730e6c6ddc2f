"""Strings: cutting, joining, padding, quoting. Lengths and positions count bytes, as Go's do."""

from __future__ import annotations

from typing import Final

from planform.gotemplate.errors import CallFailed
from planform.gotemplate.functions import Library
from planform.gotemplate.printing import Meter, show
from planform.gotemplate.quoting import quote as quoted
from planform.gotemplate.runtime import State
from planform.gotemplate.values import Record, StringMap, Strings, Value, byte_length, from_bytes, to_bytes

strings: Final = Library()

WHITE_SPACE: Final = (
    "\t\n\v\f\r \x85\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u2028\u2029\u202f"
    "\u205f\u3000"
)


def string_value(value: Value, meter: Meter | None = None) -> str:
    """A value as sprig turns it into a string: bytes are text, everything else is as printed."""
    if type(value) is str:
        return value
    if isinstance(value, bytes):
        return from_bytes(value)
    return value.go_string() if isinstance(value, Record) else show(value, meter)


def string_list(value: Value, meter: Meter | None = None) -> list[str]:
    """Any list as strings, nils left out; what is no list becomes a list of one."""
    if value is None:
        return []
    if isinstance(value, (list, bytes)):
        return [string_value(item, meter) for item in value if item is not None]
    return [string_value(value, meter)]


# --- tests -----------------------------------------------------------------------------------------------------------


@strings.add("func() string")
def hello() -> str:
    return "Hello!"


@strings.add("func(string, string) bool")
def contains(part: str, text: str) -> bool:
    return part in text


@strings.add("func(string, string) bool", "hasPrefix")
def has_prefix(part: str, text: str) -> bool:
    return text.startswith(part)


@strings.add("func(string, string) bool", "hasSuffix")
def has_suffix(part: str, text: str) -> bool:
    return text.endswith(part)


# --- cutting ---------------------------------------------------------------------------------------------------------


@strings.add("func(string) string")
def trim(text: str) -> str:
    return text.strip(WHITE_SPACE)


@strings.add("func(string, string) string", "trimAll", "trimall")
def trim_all(characters: str, text: str) -> str:
    return text.strip(characters) if characters else text


@strings.add("func(string, string) string", "trimPrefix")
def trim_prefix(part: str, text: str) -> str:
    return text.removeprefix(part)


@strings.add("func(string, string) string", "trimSuffix")
def trim_suffix(part: str, text: str) -> str:
    return text.removesuffix(part)


@strings.add("func(int, string) string")
def trunc(length: int, text: str) -> str:
    """The first `length` bytes; of a negative length, the last ones."""
    data = to_bytes(text)
    if length < 0:
        return from_bytes(data[length:]) if len(data) + length > 0 else text
    return from_bytes(data[:length])


@strings.add("func(int, int, string) string")
def substr(start: int, end: int, text: str) -> str:
    data = to_bytes(text)
    if start < 0:
        return from_bytes(_sliced(data, 0, end))
    if end < 0 or end > len(data):
        return from_bytes(_sliced(data, start, len(data)))
    return from_bytes(_sliced(data, start, end))


def _sliced(data: bytes, start: int, end: int) -> bytes:
    if end < 0 or end > len(data):
        raise CallFailed(
            f"runtime error: slice bounds out of range [:{end}]" + (f" with length {len(data)}" if end >= 0 else "")
        )
    if start > end:
        raise CallFailed(f"runtime error: slice bounds out of range [{start}:{end}]")
    return data[start:end]


@strings.add("func(int, string) string")
def abbrev(width: int, text: str) -> str:
    return text if width < 4 else _abbreviated(text, 0, width)


@strings.add("func(int, int, string) string")
def abbrevboth(left: int, right: int, text: str) -> str:
    return text if right < 4 or (left > 0 and right < 7) else _abbreviated(text, left, right)


def _abbreviated(text: str, offset: int, width: int) -> str:
    """At most `width` bytes that include the one at `offset`, with dots for what is left out."""
    data = to_bytes(text)
    if len(data) <= width:
        return text
    offset = min(offset, len(data))
    if len(data) - offset < width - 3:
        offset = len(data) - (width - 3)
    if offset <= 4:
        return from_bytes(data[: width - 3]) + "..."
    if width < 7:
        return ""
    if offset + width - 3 < len(data):
        return "..." + abbrev(width - 3, from_bytes(data[offset:]))
    return "..." + from_bytes(data[len(data) - (width - 3) :])


# --- lists of strings ------------------------------------------------------------------------------------------------


def split_text(separator: str, text: str, maximum: int = -1) -> list[str]:
    """Go's strings.SplitN: an empty separator gives characters, `maximum` bounds the number of parts."""
    if maximum == 0:
        return []
    if separator:
        return text.split(separator) if maximum < 0 else text.split(separator, maximum - 1)
    if maximum < 0 or len(text) <= maximum:
        return list(text)
    return [*text[: maximum - 1], text[maximum - 1 :]]


def _numbered(parts: list[str]) -> StringMap:
    return StringMap((f"_{index}", part) for index, part in enumerate(parts))


@strings.add("func(string, string) map[string]string", stateful=True)
def split(state: State, separator: str, text: str) -> StringMap:
    return _numbered(_counted(state, split_text(separator, text)))


@strings.add("func(string, int, string) map[string]string", stateful=True)
def splitn(state: State, separator: str, maximum: int, text: str) -> StringMap:
    return _numbered(_counted(state, split_text(separator, text, maximum)))


@strings.add("func(string, string) []string", "splitList", stateful=True)
def split_list(state: State, separator: str, text: str) -> Strings:
    return Strings(_counted(state, split_text(separator, text)))


def _counted(state: State, parts: list[str]) -> list[str]:
    state.reserve_items(len(parts))
    return parts


@strings.add("func(string, interface {}) string", stateful=True)
def join(state: State, separator: str, value: Value) -> str:
    if isinstance(value, list) and all(type(item) is str for item in value):
        parts: list[str] = value
    else:
        state.weigh(value)
        parts = string_list(value, state.meter())
    state.reserve_text(sum(map(len, parts)) + len(separator) * len(parts))
    return separator.join(parts)


@strings.add("func(interface {}) []string", "toStrings", stateful=True)
def to_strings(state: State, value: Value) -> Strings:
    state.weigh(value)
    return Strings(string_list(value, state.meter()))


@strings.add("func(interface {}) []string", "sortAlpha", stateful=True)
def sort_alpha(state: State, value: Value) -> Strings:
    state.weigh(value)
    if isinstance(value, (list, bytes)):
        return Strings(sorted(string_list(value, state.meter()), key=to_bytes))
    return Strings([string_value(value, state.meter())])


# --- building --------------------------------------------------------------------------------------------------------


@strings.add("func(interface {}) string", "toString", stateful=True)
def to_string(state: State, value: Value) -> str:
    return _paid(state, string_value(value, state.meter()))


def _paid(state: State, text: str) -> str:
    state.reserve_text(len(text))
    return text


@strings.add("func(...interface {}) string", stateful=True)
def quote(state: State, *values: Value) -> str:
    meter = state.meter()
    return _paid(state, " ".join(quoted(string_value(value, meter)) for value in values if value is not None))


@strings.add("func(...interface {}) string", stateful=True)
def squote(state: State, *values: Value) -> str:
    meter = state.meter()
    return _paid(state, " ".join(f"'{show(value, meter)}'" for value in values if value is not None))


@strings.add("func(...interface {}) string", stateful=True)
def cat(state: State, *values: Value) -> str:
    meter = state.meter()
    return _paid(state, " ".join(show(value, meter) for value in values if value is not None))


@strings.add("func(int, string) string", stateful=True)
def repeat(state: State, count: int, text: str) -> str:
    _refuse_negative(count)
    state.reserve_text(count * len(text))
    return text * count


def _refuse_negative(count: int) -> None:
    if count < 0:
        raise CallFailed("strings: negative Repeat count")


@strings.add("func(string, string, string) string", stateful=True)
def replace(state: State, old: str, new: str, text: str) -> str:
    count = text.count(old)
    state.reserve_text(len(text) + count * len(new))
    return text.replace(old, new)


@strings.add("func(int, string) string", stateful=True)
def indent(state: State, spaces: int, text: str) -> str:
    _refuse_negative(spaces)
    state.reserve_text(len(text) + spaces * (text.count("\n") + 1))
    pad = " " * spaces
    return pad + text.replace("\n", "\n" + pad)


@strings.add("func(int, string) string", stateful=True)
def nindent(state: State, spaces: int, text: str) -> str:
    return "\n" + indent(state, spaces, text)


@strings.add("func(string, string, int) string")
def plural(one: str, many: str, count: int) -> str:
    return one if count == 1 else many


@strings.add("func(int, string) string", stateful=True)
def wrap(state: State, width: int, text: str) -> str:
    return _wrapped(state, text, width, b"\n", cut_words=False)


@strings.add("func(int, string, string) string", "wrapWith", stateful=True)
def wrap_with(state: State, width: int, separator: str, text: str) -> str:
    return _wrapped(state, text, width, to_bytes(separator) or b"\n", cut_words=True)


def _wrapped(state: State, text: str, width: int, separator: bytes, *, cut_words: bool) -> str:
    """Break lines at spaces so that none is longer than `width`, if words allow it or may be cut."""
    data, width = to_bytes(text), max(width, 1)
    state.reserve_text(len(data) + len(separator) * (len(data) // width + 1))
    out = bytearray()
    at = 0
    while len(data) - at > width:
        if data[at] == 0x20:
            at += 1
            continue
        space = data.rfind(b" ", at, at + width + 1)
        if space < 0 and cut_words:
            out += data[at : at + width] + separator
            at += width
            continue
        if space < 0:
            space = data.find(b" ", at + width)
        if space < 0:
            break
        out += data[at:space] + separator
        at = space + 1
    return from_bytes(bytes(out + data[at:]))


def latin_1(text: str) -> str:
    """Each byte as a character of its own, which is how two of sprig's functions see their text."""
    return text if text.isascii() else to_bytes(text).decode("latin-1")


@strings.add("func(string) string")
def nospace(text: str) -> str:
    kept = "".join(char for char in latin_1(text) if char not in WHITE_SPACE)
    return text if len(kept) == byte_length(text) else kept


@strings.add("func(string) string")
def initials(text: str) -> str:
    letters: list[str] = []
    after_gap = True
    for char in latin_1(text):
        if char in WHITE_SPACE:
            after_gap = True
        elif after_gap:
            letters.append(char)
            after_gap = False
    return "".join(letters)
