"""`google.protobuf.Struct` to plain values and back, fast, and once per content.

Walking a Struct message through protobuf's Python layer costs forty times what parsing the same object as JSON does.
Two things avoid that here. The walkers read and write the wire format directly and remember small entries (`"kind":
"Bucket"` comes again in every object). And a `StructCodec` remembers the fields of objects: what it has decoded before
it keeps as JSON text, from which a fresh, mutable copy is made in a few microseconds; what it has encoded before it
finds by JSON text, or by a name that the caller gives.

Plain values are what JSON knows. Integral numbers come out as `int`. Going in, everything msgspec can express in JSON
is taken as it would be there: bytes become base64, datetimes RFC 3339, NaN and infinities null.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator
from struct import Struct as Packer
from typing import Any, Final, Generic, TypeVar

import msgspec

K = TypeVar("K", bound=Hashable)

_DOUBLE: Final = Packer("<d")
_INT_LIMIT: Final = 2.0**63
_MAX_REMEMBERED_LENGTH: Final = 96
_MAX_REMEMBERED: Final = 16384

# First bytes of the fields of a google.protobuf.Value, and of a map or list entry: (number << 3) | wire type.
_NULL, _NUMBER, _STRING, _BOOL, _STRUCT, _LIST, _ENTRY = 0x08, 0x11, 0x1A, 0x20, 0x2A, 0x32, 0x0A
_KEY, _VALUE = 0x0A, 0x12
_SCALARS: Final = frozenset((str, int, float, bool, type(None)))


class RecentlyUsed(Generic[K]):
    """A bounded map to bytes that forgets what was not asked for lately.

    Two generations: what is found in the old one moves to the young one, and when the young one is full it becomes
    the old one. So no more than `limit` bytes of values are kept, and a hit costs one or two dictionary lookups.
    """

    __slots__ = ("_limit", "_old", "_size", "_young")

    def __init__(self, limit: int) -> None:
        self._limit = limit // 2
        self._young: dict[K, bytes] = {}
        self._old: dict[K, bytes] = {}
        self._size = 0

    def get(self, key: K) -> bytes | None:
        value = self._young.get(key)
        if value is None and (value := self._old.get(key)) is not None:
            self.put(key, value)
        return value

    def put(self, key: K, value: bytes) -> None:
        self._size += len(value)
        if self._size > self._limit:
            self._old, self._young, self._size = self._young, {}, len(value)
        self._young[key] = value


class EncodedStruct:
    """An object as the bytes of a Struct, decoded when somebody asks. Immutable, so it may be shared."""

    __slots__ = ("_codec", "data")

    def __init__(self, data: bytes, codec: StructCodec) -> None:
        self.data = data
        self._codec = codec

    def decode(self) -> dict[str, Any]:
        """Give a fresh copy; raises ValueError if the bytes are no Struct."""
        return self._codec.decode(self.data)


class StructCodec:
    """Encodes and decodes objects and remembers what it did, within about so many bytes of memory.

    What it remembers are the top-level fields of objects, one by one: of an object whose status changes, metadata and
    spec are still known. Threads may share it: at worst one forgets what another remembered.
    """

    def __init__(self, *, remember: int = 16 << 20) -> None:
        # Keys are about as large as values, hence a quarter of the memory for the values of each.
        self._encoded: RecentlyUsed[Hashable] = RecentlyUsed(remember // 4)
        self._decoded: RecentlyUsed[bytes] = RecentlyUsed(remember // 4)
        self._writer = _Writer()
        self._reader = _Reader()

    def encode(self, value: dict[str, Any], *, version: Hashable = None) -> bytes:
        """Give the bytes of a Struct with this content.

        `version` names exactly this content, for instance (uid, resource version): an object seen before under the
        same one is not even looked at. Raises TypeError, ValueError or OverflowError for what JSON or a double cannot
        express.
        """
        if version is not None and (data := self._encoded.get(version)) is not None:
            return data
        try:
            data = b"".join([self._entry(key, value[key]) for key in _sorted(value)])
        except RecursionError as error:
            raise ValueError("nested too deeply") from error
        if version is not None:
            self._encoded.put(version, data)
        return data

    def _entry(self, key: str, item: Any) -> bytes:
        try:
            name = key, msgspec.json.encode(item)
        except (OverflowError, TypeError, ValueError):  # an integer beyond 64 bits, or an error that the walker words
            return self._writer.entry(key, item)
        entry = self._encoded.get(name)
        if entry is None:
            entry = self._writer.entry(key, item)
            self._encoded.put(name, entry)
        return entry

    def decode(self, data: bytes) -> dict[str, Any]:
        """Give the content of a Struct as a fresh dictionary. Raises ValueError if the bytes are no Struct."""
        texts = []
        try:
            for entry in entries_of(data):
                text = self._decoded.get(entry)
                if text is None:
                    text = msgspec.json.encode(self._reader.struct(entry))[1:-1]
                    self._decoded.put(entry, text)
                texts.append(text)
        except (_Unusual, IndexError, RecursionError):
            return _by_protobuf(data)
        value: dict[str, Any] = msgspec.json.decode(b"{" + b",".join(texts) + b"}")
        return value

    def lazy(self, data: bytes) -> EncodedStruct:
        """Keep the bytes until somebody asks for the content."""
        return EncodedStruct(data, self)


class _Writer:
    """Writes plain values in the wire format, keys sorted, so that equal objects have equal bytes."""

    def __init__(self) -> None:
        # By (key, value, type), since 1, 1.0 and True are equal keys of a dictionary. Emptied when full.
        self._entries: dict[tuple[str, object, type], bytes] = {}
        self._keys: dict[str, bytes] = {}

    def struct(self, value: dict[str, Any]) -> bytes:
        parts = []
        entries = self._entries
        for key in _sorted(value):
            item = value[key]
            kind = type(item)
            if kind in _SCALARS:
                entry = entries.get((key, item, kind))
                if entry is None:
                    entry = self.entry(key, item)
                    if len(entry) <= _MAX_REMEMBERED_LENGTH:
                        if len(entries) >= _MAX_REMEMBERED:
                            entries.clear()
                        entries[key, item, kind] = entry
                parts.append(entry)
            else:
                parts.append(self.entry(key, item))
        return b"".join(parts)

    def entry(self, key: str, item: Any) -> bytes:
        value = self._value(item)
        body = self._key(key) + _varint(len(value)) + value
        return b"\x0a" + _varint(len(body)) + body

    def _key(self, key: str) -> bytes:
        """The key of an entry and the first byte of its value."""
        data = self._keys.get(key)
        if data is None:
            name = key.encode() if type(key) is str else str(key).encode()
            data = b"\x0a" + _varint(len(name)) + name + b"\x12"
            if len(self._keys) >= _MAX_REMEMBERED:
                self._keys.clear()
            self._keys[key] = data
        return data

    def _value(self, value: Any) -> bytes:
        kind = type(value)
        if kind is str:
            data: bytes = value.encode()
            return b"\x1a" + _varint(len(data)) + data
        if kind is dict:
            data = self.struct(value)
            return b"\x2a" + _varint(len(data)) + data
        if kind is list:
            parts = []
            for item in value:
                data = self._value(item)
                parts.append(b"\x0a" + _varint(len(data)) + data)
            data = b"".join(parts)
            return b"\x32" + _varint(len(data)) + data
        if value is None:
            return b"\x08\x00"
        if kind is bool:
            return b"\x20\x01" if value else b"\x20\x00"
        if kind is int or kind is float:
            return b"\x11" + _DOUBLE.pack(value) if math.isfinite(value) else b"\x08\x00"
        return self._value(_plain(value))


class _Reader:
    """Reads the wire format as every known encoder writes it; anything else valid is left to protobuf."""

    def __init__(self) -> None:
        self._entries: dict[bytes, tuple[str, Any]] = {}  # emptied when full

    def struct(self, data: bytes) -> dict[str, Any]:
        """Raises _Unusual, IndexError or RecursionError for what it does not know."""
        return self._struct(data, 0, len(data))

    def _struct(self, data: bytes, at: int, end: int) -> dict[str, Any]:
        result: dict[str, Any] = {}
        entries = self._entries
        while at < end:
            if data[at] != _ENTRY:
                raise _Unusual
            size = data[at + 1]
            at += 2
            if size > 127:
                size, at = _read_varint(data, at - 1)
            stop = at + size
            if stop > end:
                raise _Unusual
            entry = data[at:stop] if size <= _MAX_REMEMBERED_LENGTH else None
            if entry is not None and (known := entries.get(entry)) is not None:
                result[known[0]] = known[1]
                at = stop
                continue
            if data[at] != _KEY:
                raise _Unusual
            length, start = _read_varint(data, at + 1)
            middle = start + length
            if middle >= stop or data[middle] != _VALUE:
                raise _Unusual
            key = data[start:middle].decode()
            length, start = _read_varint(data, middle + 1)
            if start + length != stop:
                raise _Unusual
            value = self._value(data, start, stop)
            result[key] = value
            if entry is not None and type(value) in _SCALARS:
                if len(entries) >= _MAX_REMEMBERED:
                    entries.clear()
                entries[entry] = key, value
            at = stop
        return result

    def _value(self, data: bytes, at: int, end: int) -> Any:
        if at == end:
            raise _Unusual
        kind = data[at]
        if kind in (_STRING, _STRUCT, _LIST):
            size, start = _read_varint(data, at + 1)
            if start + size != end:
                raise _Unusual
            if kind == _STRING:
                return data[start:end].decode()
            return self._struct(data, start, end) if kind == _STRUCT else self._list(data, start, end)
        if kind == _NUMBER and end - at == 9:
            return _number(_DOUBLE.unpack_from(data, at + 1)[0])
        if kind == _BOOL and end - at == 2 and data[at + 1] <= 1:
            return data[at + 1] == 1
        if kind == _NULL and end - at == 2 and data[at + 1] == 0:
            return None
        raise _Unusual

    def _list(self, data: bytes, at: int, end: int) -> list[Any]:
        result = []
        while at < end:
            if data[at] != _ENTRY:
                raise _Unusual
            size, at = _read_varint(data, at + 1)
            if at + size > end:
                raise _Unusual
            result.append(self._value(data, at, at + size))
            at += size
        return result


def entries_of(data: bytes) -> Iterator[bytes]:
    """Split a Struct into its entries, each of which is a Struct too. Raises _Unusual or IndexError."""
    at, end = 0, len(data)
    while at < end:
        if data[at] != _ENTRY:
            raise _Unusual
        size, start = _read_varint(data, at + 1)
        if start + size > end:
            raise _Unusual
        yield data[at : start + size]
        at = start + size


class _Unusual(Exception):
    """These bytes are laid out in a way that the fast reader does not know; they may be valid all the same."""


def _sorted(value: dict[str, Any]) -> list[str]:
    try:
        return sorted(value)
    except TypeError:  # YAML's keys need not be strings
        return sorted(value, key=str)


def _varint(number: int) -> bytes:
    if number < _VARINTS:
        return _VARINT[number]
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    out.append(number)
    return bytes(out)


_VARINTS: Final = 4096
_VARINT: Final = [bytes([n] if n < 128 else [n & 127 | 128, n >> 7]) for n in range(_VARINTS)]


def _read_varint(data: bytes, at: int) -> tuple[int, int]:
    """Read a length; give it and where it ends. Longer than four bytes is no length of ours."""
    byte = data[at]
    if byte < 128:
        return byte, at + 1
    number, shift = byte & 127, 7
    while shift <= 21:
        at += 1
        byte = data[at]
        number |= (byte & 127) << shift
        if byte < 128:
            return number, at + 1
        shift += 7
    raise _Unusual


def _number(number: float) -> int | float | None:
    if number.is_integer() and -_INT_LIMIT <= number < _INT_LIMIT:
        return int(number)
    return number if math.isfinite(number) else None


def _plain(value: Any) -> Any:
    """What JSON would make of a value that is not plain. Raises TypeError if it can make nothing."""
    if isinstance(value, dict):
        return {str(key) if not isinstance(key, str) else key: item for key, item in value.items()}
    plain = msgspec.to_builtins(value, str_keys=True)
    return list(plain) if isinstance(plain, tuple) else plain


def _by_protobuf(data: bytes) -> dict[str, Any]:
    from google.protobuf.message import DecodeError

    from planform_sdk.proto import message_class, messages

    try:
        message = message_class(messages(), "google.protobuf.Struct").FromString(data)
    except DecodeError as error:
        raise ValueError("not an encoded object: " + str(error)) from error
    return {key: _walk(value) for key, value in message.fields.items()}


def _walk(value: Any) -> Any:
    kind = value.WhichOneof("kind")
    if kind == "struct_value":
        return {key: _walk(item) for key, item in value.struct_value.fields.items()}
    if kind == "list_value":
        return [_walk(item) for item in value.list_value.values]
    if kind == "number_value":
        return _number(value.number_value)
    return None if kind is None or kind == "null_value" else getattr(value, kind)
