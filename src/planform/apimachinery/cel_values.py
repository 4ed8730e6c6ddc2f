"""The values of CEL that JSON does not have, and the way between the two.

Within a program a value is a plain Python one: int, float, bool, str, bytes, None, list, dict. Objects of the API are
not copied: what a schema calls a date or a duration becomes one when a rule reads it.
"""

from __future__ import annotations

import base64
import binascii
import ipaddress
import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import SplitResult

from planform.apimachinery.cel_types import Type
from planform.apimachinery.quantity import Quantity

NANO = 10**9
MIN_INT, MAX_INT = -(2**63), 2**63 - 1
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MIN_TIME = -62135596800 * NANO
_MAX_TIME = 253402300800 * NANO - 1


class EvaluationError(Exception):
    """An expression met values it cannot work with. Logical operators may absorb it."""


class BudgetExceeded(Exception):
    """The program cost more than it was allowed to; nothing absorbs this."""


class UInt(int):
    """An unsigned integer: another type than int, though the same numbers compare equal."""

    __slots__ = ()


@dataclass(frozen=True, slots=True, order=True)
class Timestamp:
    """A moment in nanoseconds since 1970, within the years 1 to 9999."""

    nanos: int

    def moment(self, zone: Any = UTC) -> datetime:
        return (_EPOCH + timedelta(microseconds=self.nanos // 1000)).astimezone(zone)

    def __str__(self) -> str:
        whole, fraction = divmod(self.nanos, NANO)
        digits = f".{fraction:09d}".rstrip("0") if fraction else ""
        return f"{(_EPOCH + timedelta(seconds=whole)).strftime('%Y-%m-%dT%H:%M:%S')}{digits}Z"


@dataclass(frozen=True, slots=True, order=True)
class Duration:
    nanos: int

    def __str__(self) -> str:
        whole, fraction = divmod(abs(self.nanos), NANO)
        digits = f".{fraction:09d}".rstrip("0") if fraction else ""
        return f"{'-' if self.nanos < 0 else ''}{whole}{digits}s"


@dataclass(frozen=True, slots=True)
class Optional:
    """`optional.of(value)`, or `optional.none()` if not present."""

    present: bool
    value: Any = None


NOTHING = Optional(False)


@dataclass(frozen=True, slots=True)
class Url:
    text: str
    parts: SplitResult


@dataclass(frozen=True, slots=True, order=True)
class Semver:
    """A semantic version; `order` compares as semver.org says, build metadata does not count."""

    order: tuple[Any, ...]
    text: str = ""


@dataclass(frozen=True, slots=True)
class NamedFormat:
    name: str
    problems: Callable[[str], list[str]]


@dataclass(frozen=True, slots=True)
class Cidr:
    """An address with a prefix length; the address may have bits beyond the prefix."""

    address: ipaddress.IPv4Address | ipaddress.IPv6Address
    network: ipaddress.IPv4Network | ipaddress.IPv6Network


@dataclass(frozen=True, slots=True)
class TypeValue:
    """A type as a value: what `type(x)` gives and what `int`, `string`, ... stand for."""

    name: str


_RUNTIME: dict[type, str] = {
    bool: "bool",
    int: "int",
    UInt: "uint",
    float: "double",
    str: "string",
    bytes: "bytes",
    type(None): "null",
    list: "list",
    dict: "map",
    Timestamp: "timestamp",
    Duration: "duration",
    Optional: "optional",
    Quantity: "quantity",
    Url: "url",
    ipaddress.IPv4Address: "ip",
    ipaddress.IPv6Address: "ip",
    Cidr: "cidr",
    Semver: "semver",
    NamedFormat: "format",
    TypeValue: "type",
}
_TYPE_NAMES = {
    "null": "null_type",
    "timestamp": "google.protobuf.Timestamp",
    "duration": "google.protobuf.Duration",
    "optional": "optional_type",
    "quantity": "kubernetes.Quantity",
    "url": "kubernetes.URL",
    "ip": "net.IP",
    "cidr": "net.CIDR",
    "semver": "kubernetes.Semver",
    "format": "kubernetes.NamedFormat",
}


def enter_type(kind: type, name: str) -> None:
    """Have values of a Python type be values of a CEL type."""
    _RUNTIME[kind] = name


def kind_of(value: Any) -> str:
    return _RUNTIME[type(value)]


def type_value(kind: str) -> TypeValue:
    return TypeValue(_TYPE_NAMES.get(kind, kind))


def fits(value: Any, kind: Type) -> bool:
    """Whether a value met at run time may stand where a signature asks for this type."""
    name = kind.name
    if name == "dyn" or len(name) == 1:
        return True
    found = _RUNTIME[type(value)]
    return found == name or (name == "object" and found == "map")


def equal(one: Any, other: Any) -> bool:
    """CEL's equality: numbers by value, everything else only within its type."""
    kind, others = type(one), type(other)
    if kind is others:
        if kind is list:
            return len(one) == len(other) and all(map(equal, one, other))
        if kind is dict:
            return one.keys() == other.keys() and all(equal(value, other[key]) for key, value in one.items())
        return bool(one == other)
    if kind in _NUMBERS and others in _NUMBERS:
        return bool(one == other)
    return False


_NUMBERS = frozenset({int, UInt, float})


def equality(kind: Type) -> Callable[[Any, Any], bool]:
    """Equality for a static type: lists that are sets or maps of the API do not depend on order."""
    if kind.name == "list":
        inner = equality(kind.args[0])
        if kind.list_type == "set":
            return lambda one, other: len(one) == len(other) and _all_within(one, other, inner)
        if kind.list_type == "map":
            keys = kind.list_keys

            def same_items(one: list[Any], other: list[Any]) -> bool:
                found = {item_key(item, keys): item for item in other}
                return len(one) == len(other) and all(
                    item_key(item, keys) in found and inner(item, found[item_key(item, keys)]) for item in one
                )

            return same_items
        if inner is not equal:
            return lambda one, other: len(one) == len(other) and all(map(inner, one, other))
    elif kind.name == "object":
        special = {
            field.key: test for field in (kind.fields or {}).values() if (test := equality(field.type)) is not equal
        }
        if special:
            return lambda one, other: (
                type(one) is type(other) is dict
                and one.keys() == other.keys()
                and all(special.get(key, equal)(value, other[key]) for key, value in one.items())
            )
    return equal


def _all_within(some: list[Any], others: list[Any], same: Callable[[Any, Any], bool]) -> bool:
    """Whether each of `some` equals one of `others`; items of sets are nearly always plain, and then it is linear."""
    try:
        known = {(type(item) is bool, item) for item in others}
        return all((type(item) is bool, item) in known for item in some)
    except TypeError:  # a list or map among them
        return all(any(same(one, other) for other in others) for one in some)


def weight(value: Any) -> int:
    """How many values a value holds, itself included: what it costs to look at all of them."""
    total, waiting = 1, [value]
    while waiting:
        container = waiting.pop()
        if type(container) is dict:
            total += len(container)
            waiting += [item for item in container.values() if type(item) in (dict, list)]
        elif type(container) is list:
            total += len(container)
            waiting += [item for item in container if type(item) in (dict, list)]
    return total


def item_key(item: Any, keys: tuple[str, ...]) -> Any:
    """What identifies an item of a map list."""
    return tuple((type(item.get(key)) is bool, item.get(key)) for key in keys) if isinstance(item, dict) else ()


_RFC3339 = re.compile(
    r"(\d{4})-(\d{2})-(\d{2})[Tt](\d{2}):(\d{2}):(\d{2})(?:\.(\d{1,9})\d*)?(?:[Zz]|([+-])(\d{2}):(\d{2}))"
)
_DURATION_PART = re.compile(r"(\d+(?:\.\d*)?|\.\d+)(ns|us|µs|μs|ms|s|m|h)")
_UNITS = {"ns": 1, "us": 10**3, "µs": 10**3, "μs": 10**3, "ms": 10**6, "s": NANO, "m": 60 * NANO, "h": 3600 * NANO}


def parse_timestamp(text: str) -> Timestamp:
    matched = _RFC3339.fullmatch(text)
    if matched is None:
        raise EvaluationError(f'invalid timestamp "{text}"')
    year, month, day, hour, minute, second = (int(part) for part in matched.groups()[:6])
    try:
        moment = datetime(year, month, day, hour, minute, second, tzinfo=UTC)
    except ValueError as error:
        raise EvaluationError(f'invalid timestamp "{text}"') from error
    seconds = (moment - _EPOCH) // timedelta(seconds=1)
    if matched[8]:
        offset = int(matched[9]) * 3600 + int(matched[10]) * 60
        seconds -= offset if matched[8] == "+" else -offset
    return new_timestamp(seconds * NANO + int((matched[7] or "").ljust(9, "0")))


def parse_duration(text: str) -> Duration:
    """Go's notation: `1h30m`, `-1.5s`."""
    sign, rest = (-1, text[1:]) if text[:1] == "-" else (1, text.removeprefix("+"))
    if rest == "0":
        return Duration(0)
    position, total = 0, 0
    while position < len(rest):
        matched = _DURATION_PART.match(rest, position)
        if matched is None:
            break
        whole, _, fraction = matched[1].partition(".")
        unit = _UNITS[matched[2]]
        total += int(whole or 0) * unit + (int(fraction) * unit // 10 ** len(fraction) if fraction else 0)
        position = matched.end()
    if not rest or position < len(rest):
        raise EvaluationError(f'invalid duration "{text}"')
    return new_duration(sign * total)


def new_timestamp(nanos: int) -> Timestamp:
    if not _MIN_TIME <= nanos <= _MAX_TIME:
        raise EvaluationError("timestamp overflow")
    return Timestamp(nanos)


def new_duration(nanos: int) -> Duration:
    if not MIN_INT <= nanos <= MAX_INT:
        raise EvaluationError("duration overflow")
    return Duration(nanos)


def new_int(value: int) -> int:
    if not MIN_INT <= value <= MAX_INT:
        raise EvaluationError("integer overflow")
    return value


def new_uint(value: int) -> UInt:
    if not 0 <= value < 2**64:
        raise EvaluationError("unsigned integer overflow")
    return UInt(value)


def _date(text: str) -> Timestamp:
    return parse_timestamp(text if "T" in text.upper() else f"{text}T00:00:00Z")


def _bytes(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise EvaluationError("invalid base64") from error


def reader(kind: Type) -> Callable[[Any], Any] | None:
    """What turns the JSON of a schema's type into the value that rules see; None if they are the same thing.

    Lists and maps of such leaves are converted whole; objects stay as they are, their fields are read one by one.
    """
    match kind.name:
        case "timestamp":
            return _date
        case "duration":
            return parse_duration
        case "bytes":
            return _bytes
        case "double":
            return float
        case "list":
            if (inner := reader(kind.args[0])) is not None:
                return _each_item(inner)
        case "map":
            if (inner := reader(kind.args[1])) is not None:
                return _each_value(inner)
        case "optional":
            if (inner := reader(kind.args[0])) is not None:
                return _in_box(inner)
    return None


def _each_item(read: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda items: [None if item is None else read(item) for item in items]


def _each_value(read: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda items: {key: None if item is None else read(item) for key, item in items.items()}


def _in_box(read: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda box: Optional(True, read(box.value)) if box.present else box


def to_json(value: Any) -> Any:
    """A program's result as JSON."""
    match value:
        case bool() | str() | float() | None:
            return value
        case int():
            return int(value)
        case list():
            return [to_json(item) for item in value]
        case dict():
            return {key if isinstance(key, str) else _key(key): to_json(item) for key, item in value.items()}
        case bytes():
            return base64.b64encode(value).decode()
        case Optional():
            return to_json(value.value)
        case Url() | Semver():
            return value.text
        case Cidr():
            return f"{value.address}/{value.network.prefixlen}"
        case NamedFormat() | TypeValue():
            return value.name
    return str(value)


def _key(key: Any) -> str:
    return ("true" if key else "false") if isinstance(key, bool) else str(key)
