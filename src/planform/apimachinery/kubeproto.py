"""Kubernetes' protobuf request bodies, decoded into the JSON-shaped object that the client meant.

kubectl and helm write built-in kinds this way and do not fall back to JSON, so a server has to read it; nobody needs
it to answer so. Field numbers are data, so the decoder is driven by a table of messages
(`planform.api.builtin.protobuf_table()`). What comes out is what the same Go client would have sent as JSON. Go writes
every non-pointer field on the wire, so the table says what a zero there means; a struct of which only such zeros are
known (a `status` nobody has set) is left out.

Bodies come from strangers. Every length is checked against what is left before anything is read, nesting and the
number of values are limited, fields that the table does not know are skipped, and anything else that is wrong raises
`KubeProtoError`.
"""

from __future__ import annotations

import base64
import json
import math
import struct
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final, NamedTuple

MAGIC: Final = b"k8s\x00"
MAX_DEPTH: Final = 64
MAX_VALUES: Final = 250_000
"""More than any real object of 3 MiB has, and few enough to be decoded in well under a second."""

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_ENVELOPE_TYPE, _ENVELOPE_RAW, _ENVELOPE_ENCODING, _ENVELOPE_CONTENT = 1, 2, 3, 4
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class KubeProtoError(ValueError):
    """The body is not a protobuf form of a known kind."""


class Field(NamedTuple):
    """One field of a message. `message` is empty for a scalar, `json` is empty if its fields belong to the parent.

    `zero` says what the zero value means: `*` a value like any other, `+` nothing, though JSON writes it, and nothing
    at all if it is empty. Lists and maps have no zero value: they are not on the wire when they are empty.
    """

    json: str
    shape: str  # "" one value, "[]" a list, "{}" a map with string keys
    zero: str
    scalar: str
    message: str


class Message(NamedTuple):
    """Fields by number, and the name of the form that JSON gives this message (empty: an object of its fields)."""

    fields: Mapping[int, Field]
    form: str


class MessageTable:
    """Messages by name, compiled when first used.

    `spelled` is the generated data: for each message its fields as `number: [JSON name, type]`, where a type is
    `string`, `[]string`, `{}bytes`, `*int32`, `+int32` (see Field) or the name of a message, plus the message's form
    under the empty key. `roots` names the message of each (apiVersion, kind); the apiVersion `*` stands for any.
    """

    def __init__(self, spelled: Mapping[str, Mapping[str, Any]], roots: Mapping[tuple[str, str], str]) -> None:
        self._spelled = spelled
        self._roots = roots
        self._messages: dict[str, Message] = {}

    def root(self, api_version: str, kind: str) -> Message:
        """The message of a kind; raises KubeProtoError if the table has none."""
        name = self._roots.get((api_version, kind)) or self._roots.get(("*", kind))
        if name is None:
            raise KubeProtoError(f'no protobuf form is known for kind "{kind}" in version "{api_version}"')
        return self.message(name)

    def message(self, name: str) -> Message:
        message = self._messages.get(name)
        if message is None:
            message = self._messages[name] = self._compile(self._spelled[name])
        return message

    def _compile(self, spelled: Mapping[str, Any]) -> Message:
        fields = {int(number): self._field(*spelling) for number, spelling in spelled.items() if number}
        return Message(fields, spelled.get("", ""))

    def _field(self, json_name: str, spelling: str) -> Field:
        shape = spelling[:2] if spelling[:2] in ("[]", "{}") else ""
        zero = spelling[:1] if spelling[:1] in ("*", "+") else ""
        type_name = spelling[len(shape or zero) :]
        scalar, message = ("", type_name) if type_name in self._spelled else (type_name, "")
        return Field(json_name, shape, zero, scalar, message)


def decode(body: bytes, table: MessageTable, *, default_kind: tuple[str, str] = ("", "")) -> dict[str, Any]:
    """The object in a `k8s\\0` body; `default_kind` (apiVersion, kind) is used where the envelope is silent."""
    if not body.startswith(MAGIC):
        raise KubeProtoError("the body does not start with the Kubernetes protobuf prefix")
    decoder = _Decoder(body, table)
    envelope = dict(decoder.pieces(len(MAGIC), len(body)))
    api_version, kind = decoder.type_meta(envelope.get(_ENVELOPE_TYPE))
    api_version, kind = api_version or default_kind[0], kind or default_kind[1]
    if not kind:
        raise KubeProtoError("the protobuf envelope does not name a kind")
    if decoder.text(envelope.get(_ENVELOPE_ENCODING)):
        raise KubeProtoError("an encoded protobuf envelope is not supported")
    content_type = decoder.text(envelope.get(_ENVELOPE_CONTENT))
    if content_type not in ("", "application/vnd.kubernetes.protobuf"):
        raise KubeProtoError(f'the protobuf envelope holds "{content_type}", not protobuf')
    start, end = decoder.span(envelope.get(_ENVELOPE_RAW, (_BYTES, len(body), len(body))))
    fields, _ = decoder.value(table.root(api_version, kind), start, end, depth=1)
    return {"apiVersion": api_version, "kind": kind, **fields}


_Piece = tuple[int, int, int]
"""A wire type, and either the start and end of its bytes or, for a varint, its value and 0."""


class _Decoder:
    """One body being read. Positions are checked offsets into it, so that nothing is copied before it is a value."""

    def __init__(self, body: bytes, table: MessageTable) -> None:
        self._body = body
        self._table = table
        self._values = 0

    def pieces(self, position: int, end: int) -> list[tuple[int, _Piece]]:
        """The (field number, piece) pairs between two offsets, in order."""
        found: list[tuple[int, _Piece]] = []
        while position < end:
            tag, position = self._varint(position, end)
            number, wire_type = tag >> 3, tag & 7
            if not 0 < number < 1 << 29:
                raise KubeProtoError(f"field number {number} at byte {position} is out of range")
            start, extra = position, 0
            if wire_type == _BYTES:
                length, start = self._varint(position, end)
                position = extra = start + length
            elif wire_type == _VARINT:
                start, position = self._varint(position, end)
            elif wire_type in (_FIXED64, _FIXED32):
                position = extra = start + (8 if wire_type == _FIXED64 else 4)
            else:
                raise KubeProtoError(f"wire type {wire_type} of field {number} at byte {position} is not supported")
            if position > end:
                raise KubeProtoError(f"field {number} runs {position - end} bytes past the end of its message")
            found.append((number, (wire_type, start, extra)))
            self._values += 1
            if self._values > MAX_VALUES:
                raise self._too_many()
        return found

    def _varint(self, position: int, end: int) -> tuple[int, int]:
        """A number and the offset after it."""
        if position < end and (value := self._body[position]) < 0x80:  # nearly all of them
            return value, position + 1
        value = shift = 0
        while position < end and shift < 70:
            byte = self._body[position]
            position += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value & 0xFFFF_FFFF_FFFF_FFFF, position
            shift += 7
        raise KubeProtoError(f"a number is cut off or too long at byte {position}")

    def _too_many(self) -> KubeProtoError:
        return KubeProtoError(f"the body has more than {MAX_VALUES} values")

    def span(self, piece: _Piece) -> tuple[int, int]:
        wire_type, start, end = piece
        if wire_type != _BYTES:
            raise KubeProtoError(f"wire type {wire_type} where bytes are expected")
        return start, end

    def text(self, piece: _Piece | None) -> str:
        return str(self._scalar("string", piece)) if piece else ""

    def type_meta(self, piece: _Piece | None) -> tuple[str, str]:
        parts = dict(self.pieces(*self.span(piece))) if piece else {}
        return self.text(parts.get(1)), self.text(parts.get(2))

    def value(self, message: Message, start: int, end: int, depth: int) -> tuple[Any, bool]:
        """A message as JSON has it, and whether it says anything: a struct of zeros does not."""
        if depth > MAX_DEPTH:
            raise KubeProtoError(f"the body nests deeper than {MAX_DEPTH} messages")
        fields: dict[str, Any] = {}
        is_set = False
        for number, piece in self.pieces(start, end):
            field = message.fields.get(number)
            if field is not None and self._add(fields, field, piece, depth):
                is_set = True
        if message.form:
            value = _FORMS[message.form](fields)
            return value, bool(value)
        return fields, is_set

    def _add(self, fields: dict[str, Any], field: Field, piece: _Piece, depth: int) -> bool:
        """Take one piece in; whether it says anything."""
        if field.shape == "[]":
            values = fields.setdefault(field.json, [])
            if piece[0] == _BYTES and field.scalar in _VARINTS:
                values += self._packed(field.scalar, piece)
            else:
                values.append(self._one(field, piece, depth)[0])
            return True
        if field.shape == "{}":
            entry = dict(self.pieces(*self.span(piece)))
            value = self._one(field, entry[2], depth)[0] if 2 in entry else self._absent(field, depth)
            fields.setdefault(field.json, {})[self.text(entry.get(1))] = value
            return True
        value, is_set = self._one(field, piece, depth)
        if not field.json:
            fields.update(value)
        elif value is not None and (is_set or field.zero):
            fields[field.json] = value
        else:
            fields.pop(field.json, None)
        return is_set or field.zero == "*"

    def _one(self, field: Field, piece: _Piece, depth: int) -> tuple[Any, bool]:
        if not field.message:
            value = self._scalar(field.scalar, piece)
            return value, bool(value)
        start, end = self.span(piece)
        return self.value(self._table.message(field.message), start, end, depth + 1)

    def _absent(self, field: Field, depth: int) -> Any:
        """A map entry that leaves out its value means the type's zero value."""
        if field.message:
            return self.value(self._table.message(field.message), 0, 0, depth + 1)[0]
        return _ZERO[field.scalar]

    def _packed(self, scalar: str, piece: _Piece) -> list[Any]:
        position, end = self.span(piece)
        values: list[Any] = []
        while position < end:
            value, position = self._varint(position, end)
            values.append(_VARINTS[scalar](value))
            if len(values) > MAX_VALUES:
                raise self._too_many()
        self._values += len(values)
        return values

    def _scalar(self, scalar: str, piece: _Piece) -> Any:
        wire_type, start, end = piece
        if wire_type != _WIRE_TYPES[scalar]:
            raise KubeProtoError(f"wire type {wire_type} where a {scalar} is expected")
        if wire_type == _VARINT:
            return _VARINTS[scalar](start)
        raw = self._body[start:end]
        if scalar == "string":
            try:
                return raw.decode()
            except UnicodeDecodeError as error:
                raise KubeProtoError(f"the string at byte {start} is not UTF-8") from error
        if scalar == "bytes":
            return base64.b64encode(raw).decode()
        return _number(raw)


def _signed(bits: int) -> Callable[[int], int]:
    """Two's complement of that many bits; more bits than that are cut off, as Go does."""
    mask, sign = (1 << bits) - 1, 1 << (bits - 1)
    return lambda value: ((value & mask) ^ sign) - sign


_VARINTS: Final[Mapping[str, Callable[[int], Any]]] = {"bool": bool, "int32": _signed(32), "int64": _signed(64)}
_WIRE_TYPES: Final = {
    "bool": _VARINT,
    "int32": _VARINT,
    "int64": _VARINT,
    "string": _BYTES,
    "bytes": _BYTES,
    "double": _FIXED64,
}
_ZERO: Final[Mapping[str, Any]] = {"bool": False, "int32": 0, "int64": 0, "string": "", "bytes": "", "double": 0.0}


def _number(raw: bytes) -> int | float:
    """A double as JSON readers take it: whole ones are integers, and there is no infinity."""
    number: float = struct.unpack("<d", raw)[0]
    if not math.isfinite(number):
        raise KubeProtoError(f"{number} has no JSON form")
    return int(number) if number.is_integer() and abs(number) < 1 << 53 else number


def _moment(fields: Mapping[str, Any]) -> datetime | None:
    """No fields at all is Go's zero time, which JSON leaves out; seconds 0 is 1970."""
    if not fields:
        return None
    try:
        microseconds = fields.get("nanos", 0) // 1000
        return _EPOCH + timedelta(seconds=fields.get("seconds", 0), microseconds=microseconds)
    except OverflowError as error:
        raise KubeProtoError(f"time {fields.get('seconds', 0)} s is out of range") from error


def _time(fields: Mapping[str, Any]) -> str | None:
    moment = _moment(fields)
    return moment.replace(microsecond=0, tzinfo=None).isoformat() + "Z" if moment else None


def _micro_time(fields: Mapping[str, Any]) -> str | None:
    moment = _moment(fields)
    return moment.replace(tzinfo=None).isoformat(timespec="microseconds") + "Z" if moment else None


def _duration(fields: Mapping[str, Any]) -> str:
    """Go's spelling: 1h30m0s, 1.5s, 300ms, 0s."""
    nanoseconds = int(fields.get("duration", 0))
    sign, left = ("-" if nanoseconds < 0 else ""), abs(nanoseconds)
    if left == 0:
        return "0s"
    if left < 1_000_000_000:
        unit, size = next((u, s) for u, s in (("ms", 1_000_000), ("µs", 1_000), ("ns", 1)) if left >= s)
        return f"{sign}{_decimal(left, size)}{unit}"
    minutes, seconds = divmod(left, 60_000_000_000)
    hours, minutes = divmod(minutes, 60)
    text = f"{_decimal(seconds, 1_000_000_000)}s"
    if hours or minutes:
        text = f"{minutes}m{text}"
    return f"{sign}{hours}h{text}" if hours else f"{sign}{text}"


def _decimal(value: int, size: int) -> str:
    """value / size without rounding, without trailing zeros; size is a power of ten."""
    whole, rest = divmod(value, size)
    return f"{whole}.{str(rest).rjust(len(str(size)) - 1, '0').rstrip('0')}" if rest else str(whole)


def _quantity(fields: Mapping[str, Any]) -> str:
    return fields.get("string") or "0"


def _int_or_string(fields: Mapping[str, Any]) -> int | str:
    value: int | str = fields.get("strVal", "") if fields.get("type") else fields.get("intVal", 0)
    return value


def _json(fields: Mapping[str, Any]) -> Any:
    """JSON within protobuf; bytes have become base64 on their way here."""
    raw = base64.b64decode(next(iter(fields.values()), ""))
    if not raw:
        return None
    try:
        return json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise KubeProtoError(f"embedded JSON is not valid: {error}") from error


def _items(fields: Mapping[str, Any]) -> list[Any]:
    return list(fields.get("items", ()))


def _either(fields: Mapping[str, Any]) -> Any:
    """One of two alternatives; when both are written, the message or list (written last) is the one that is meant."""
    return list(fields.values())[-1] if fields else None


_FORMS: Final[Mapping[str, Callable[[Mapping[str, Any]], Any]]] = {
    "time": _time,
    "microTime": _micro_time,
    "duration": _duration,
    "quantity": _quantity,
    "intOrString": _int_or_string,
    "json": _json,
    "items": _items,
    "either": _either,
}
