"""Go's types over Python's values: what a template sees when it asks for the type or the kind of something.

Data is JSON: None, bool, str, int, float, list and dict with string keys. A Python `int` is Go's `int64`, as decoders
of Kubernetes objects produce it; a number written in a template is Go's `int` and so gets a class of its own. The
results of functions that Go types more narrowly (`[]string`, `map[string]string`) are subclasses of list and dict.

Go strings are bytes. A `str` stands for its UTF-8 form; bytes that are not UTF-8 are surrogate escapes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Final

Value = Any  # what templates compute with: the types below, and nothing else


class Missing:
    """The value of a key that is not there, and of a pipeline that yields nil: Go's invalid reflect.Value."""

    __slots__ = ()

    def __bool__(self) -> bool:
        return False

    def __repr__(self) -> str:
        return "MISSING"


MISSING: Final = Missing()


class Int(int):
    """Go's `int`: number literals, lengths, indexes."""

    __slots__ = ()


class Uint8(int):
    """Go's `uint8`: a byte of a string."""

    __slots__ = ()


class Uint64(int):
    """Go's `uint64`: a segment of a semantic version."""

    __slots__ = ()


class Strings(list[str]):
    """Go's `[]string`."""

    __slots__ = ()


class NilStrings(Strings):
    """A `[]string` that is nil."""

    __slots__ = ()


class Ints(list[int]):
    """Go's `[]int`."""

    __slots__ = ()


class Lists(list[list[Any]]):
    """Go's `[][]interface {}`."""

    __slots__ = ()


class StringMap(dict[str, str]):
    """Go's `map[string]string`."""

    __slots__ = ()


class NilMap(dict[str, Any]):
    """A `map[string]interface {}` that is nil: empty, false, and refusing to be written to."""

    __slots__ = ()


class NilList(list[Any]):
    """A `[]interface {}` that is nil: empty, false, and `null` in JSON."""

    __slots__ = ()


class Record:
    """A Go struct with exported fields and methods; templates reach exactly those named in the two tables.

    `methods` maps a Go name to a callable that takes the record and then the arguments, and the Go types of these.
    """

    go_type: ClassVar[str] = "struct"
    kind: ClassVar[str] = "struct"
    fields: ClassVar[Mapping[str, Callable[[Any], Value]]] = {}
    methods: ClassVar[Mapping[str, tuple[Callable[..., Value], tuple[str, ...]]]] = {}

    def go_copy(self) -> Record:
        """What a deep copy gives; records do not change, so the same will do."""
        return self

    def go_json(self) -> str:
        """The string that stands for it in JSON."""
        return self.go_string()

    def go_value(self) -> Value:
        """The value that stands for it in JSON, of which a record with members has an object."""
        return self.go_json()

    def go_string(self) -> str:
        """What Go's String method, or %v without one, gives."""
        raise NotImplementedError


TYPES: Final[Mapping[type, tuple[str, str]]] = {
    type(None): ("<nil>", "invalid"),
    Missing: ("<nil>", "invalid"),
    bool: ("bool", "bool"),
    int: ("int64", "int64"),
    Int: ("int", "int"),
    Uint8: ("uint8", "uint8"),
    Uint64: ("uint64", "uint64"),
    float: ("float64", "float64"),
    complex: ("complex128", "complex128"),
    str: ("string", "string"),
    bytes: ("[]uint8", "slice"),
    list: ("[]interface {}", "slice"),
    NilList: ("[]interface {}", "slice"),
    Strings: ("[]string", "slice"),
    NilStrings: ("[]string", "slice"),
    Ints: ("[]int", "slice"),
    Lists: ("[][]interface {}", "slice"),
    dict: ("map[string]interface {}", "map"),
    NilMap: ("map[string]interface {}", "map"),
    StringMap: ("map[string]string", "map"),
}


NIL_CONTAINERS: Final = (NilMap, NilList, NilStrings)


def type_name(value: Value) -> str:
    """The Go type, as `%T` prints it."""
    known = TYPES.get(type(value))
    if known is not None:
        return known[0]
    return value.go_type if isinstance(value, Record) else foreign(value)


def kind_name(value: Value) -> str:
    """The Go kind, as reflect names it."""
    known = TYPES.get(type(value))
    if known is not None:
        return known[1]
    return value.kind if isinstance(value, Record) else foreign(value)


def foreign(value: Value) -> str:
    """What a value of none of our types is called in messages; nothing of it is reachable."""
    return f"python {type(value).__name__}"


def is_integer(value: Value) -> bool:
    return isinstance(value, int) and type(value) is not bool


_NO_CHARACTER: Final = re.compile("[\ud800-\udc7f\udd00-\udfff]")


def to_bytes(text: str) -> bytes:
    """The UTF-8 form; surrogates that stand for no byte are as good as U+FFFD."""
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return _NO_CHARACTER.sub("\ufffd", text).encode("utf-8", "surrogateescape")


def from_bytes(data: bytes) -> str:
    return data.decode("utf-8", "surrogateescape")


def byte_length(text: str) -> int:
    return len(text) if text.isascii() else len(to_bytes(text))


INT64_MAX: Final = (1 << 63) - 1
INT64_MIN: Final = -(1 << 63)


def wrap_int64(number: int) -> int:
    """Two's complement, as Go's arithmetic overflows."""
    if INT64_MIN <= number <= INT64_MAX:
        return int(number)
    return (number + (1 << 63)) % (1 << 64) - (1 << 63)
