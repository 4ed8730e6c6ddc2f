"""CEL's own functions: operators, conversions, sizes, times. Importing the module enters them in the table."""

from __future__ import annotations

import math
import operator
from datetime import UTC, timedelta, timezone, tzinfo
from typing import Any
from zoneinfo import ZoneInfo

from planform.apimachinery import cel_functions as table
from planform.apimachinery.cel_functions import declare
from planform.apimachinery.cel_values import (
    MAX_INT,
    MIN_INT,
    NANO,
    NOTHING,
    Duration,
    EvaluationError,
    Optional,
    Timestamp,
    UInt,
    equal,
    kind_of,
    new_duration,
    new_int,
    new_timestamp,
    new_uint,
    parse_duration,
    parse_timestamp,
    to_json,
    type_value,
)
from planform.apimachinery.schema_findings import go_number
from planform.apimachinery.schema_values import InvalidSchema, compile_pattern


def _shorter(sizes: list[int]) -> float:
    return max(1.0, min(sizes) * table.STRING_COST)


def _total(sizes: list[int]) -> float:
    return sum(sizes)


# Equality and order

declare("_==_(A, A): bool", cost=_shorter)(equal)


@declare("_!=_(A, A): bool", cost=_shorter)
def unequal(one: Any, other: Any) -> bool:
    return not equal(one, other)


_COMPARABLE = ("bool", "int", "uint", "double", "string", "bytes", "timestamp", "duration")
_CROSS = tuple((one, other) for one in ("int", "uint", "double") for other in ("int", "uint", "double") if one != other)
for _symbol, _compare in (("<", operator.lt), ("<=", operator.le), (">", operator.gt), (">=", operator.ge)):
    declare(*(f"_{_symbol}_({kind}, {kind}): bool" for kind in _COMPARABLE), cost=_shorter)(_compare)
    declare(*(f"_{_symbol}_({one}, {other}): bool" for one, other in _CROSS))(_compare)


# Arithmetic


@declare("_+_(int, int): int")
def add(one: int, other: int) -> int:
    return new_int(one + other)


@declare("_-_(int, int): int")
def subtract(one: int, other: int) -> int:
    return new_int(one - other)


@declare("_*_(int, int): int")
def multiply(one: int, other: int) -> int:
    return new_int(one * other)


@declare("_/_(int, int): int")
def divide(one: int, other: int) -> int:
    if other == 0:
        raise EvaluationError("division by zero")
    quotient = abs(one) // abs(other)
    return new_int(quotient if (one < 0) == (other < 0) else -quotient)


@declare("_%_(int, int): int")
def remainder(one: int, other: int) -> int:
    if other == 0:
        raise EvaluationError("modulus by zero")
    rest = abs(one) % abs(other)
    return -rest if one < 0 else rest


@declare("-_(int): int")
def negate(value: int) -> int:
    return new_int(-value)


declare("_+_(uint, uint): uint")(lambda one, other: new_uint(int(one) + int(other)))
declare("_-_(uint, uint): uint")(lambda one, other: new_uint(int(one) - int(other)))
declare("_*_(uint, uint): uint")(lambda one, other: new_uint(int(one) * int(other)))
declare("_/_(uint, uint): uint")(lambda one, other: UInt(divide(int(one), int(other))))
declare("_%_(uint, uint): uint")(lambda one, other: UInt(remainder(int(one), int(other))))
declare("_+_(double, double): double")(operator.add)
declare("_-_(double, double): double")(operator.sub)
declare("_*_(double, double): double")(operator.mul)
declare("-_(double): double")(operator.neg)


@declare("_/_(double, double): double")
def divide_doubles(one: float, other: float) -> float:
    if other == 0:
        return math.nan if one == 0 or math.isnan(one) else math.copysign(math.inf, one) * math.copysign(1, other)
    return one / other


def _concatenates(sizes: list[int]) -> float:
    return max(1.0, sum(sizes) * table.STRING_COST)


declare("_+_(string, string): string", "_+_(bytes, bytes): bytes", cost=_concatenates, size=_total)(operator.add)
declare("_+_(list<A>, list<A>): list<A>", size=_total)(operator.add)
declare("_+_(timestamp, duration): timestamp")(lambda one, other: new_timestamp(one.nanos + other.nanos))
declare("_+_(duration, timestamp): timestamp")(lambda one, other: new_timestamp(one.nanos + other.nanos))
declare("_-_(timestamp, duration): timestamp")(lambda one, other: new_timestamp(one.nanos - other.nanos))
declare("_-_(timestamp, timestamp): duration")(lambda one, other: new_duration(one.nanos - other.nanos))
declare("_+_(duration, duration): duration")(lambda one, other: new_duration(one.nanos + other.nanos))
declare("_-_(duration, duration): duration")(lambda one, other: new_duration(one.nanos - other.nanos))
declare("!_(bool): bool")(operator.not_)


# Members and containers


@declare("@in(A, list<A>): bool", cost=lambda sizes: sizes[1])
def in_list(item: Any, items: list[Any]) -> bool:
    return any(equal(item, found) for found in items)


@declare("@in(A, map<A, B>): bool")
def in_map(key: Any, entries: dict[Any, Any]) -> bool:
    return _find(entries, key) is not NOTHING


def _find(entries: dict[Any, Any], key: Any) -> Any:
    """The value of a key, or NOTHING; true is not 1 here, though it is to Python."""
    if isinstance(key, float) and key.is_integer():
        key = int(key)
    try:
        value = entries.get(key, NOTHING)
    except TypeError as error:
        raise EvaluationError("unsupported key type") from error
    if value is not NOTHING and isinstance(key, bool | int) and not any(equal(found, key) for found in entries):
        return NOTHING
    return value


@declare("_[_](list<A>, int): A")
def item_at(items: list[Any], index: int) -> Any:
    if 0 <= index < len(items):
        return items[index]
    raise EvaluationError(f"index out of bounds: {index}")


@declare("_[_](map<A, B>, A): B")
def value_at(entries: dict[Any, Any], key: Any) -> Any:
    value = _find(entries, key)
    if value is NOTHING:
        raise EvaluationError(f"no such key: {to_json(key)}")
    return value


@declare("_[?_](list<A>, int): optional<A>")
def optional_item(items: list[Any], index: Any) -> Optional:
    return Optional(True, items[index]) if 0 <= index < len(items) else NOTHING


@declare("_[?_](map<A, B>, A): optional<B>")
def optional_value(entries: dict[Any, Any], key: Any) -> Optional:
    value = _find(entries, key)
    return NOTHING if value is NOTHING else Optional(True, value)


@declare("_[?_](optional<list<A>>, int): optional<A>", "_[?_](optional<map<A, B>>, A): optional<B>")
def optional_inside(outer: Optional, key: Any) -> Optional:
    if not outer.present:
        return NOTHING
    return optional_item(outer.value, key) if isinstance(outer.value, list) else optional_value(outer.value, key)


declare("size(list<A>): int", "size(map<A, B>): int", "list<A>.size(): int", "map<A, B>.size(): int")(len)
declare("size(string): int", "string.size(): int", "size(bytes): int", "bytes.size(): int")(len)


# Strings


declare("string.contains(string): bool", cost=lambda sizes: max(1.0, sizes[0] * 0.1) * max(1.0, sizes[1] * 0.1))(
    lambda text, part: part in text
)
declare("string.startsWith(string): bool", cost=lambda sizes: sizes[1] * table.STRING_COST)(str.startswith)
declare("string.endsWith(string): bool", cost=lambda sizes: sizes[1] * table.STRING_COST)(str.endswith)


@declare("string.matches(string): bool", "matches(string, string): bool", cost=table.searches)
def matches(text: str, pattern: str) -> bool:
    try:
        return compile_pattern(pattern)(text)
    except InvalidSchema as error:
        raise EvaluationError(str(error)) from error


# Conversions


@declare("int(int): int", "int(uint): int", "int(double): int", "int(string): int", "int(timestamp): int")
@declare("int(duration): int")
def to_int(value: Any) -> int:
    match value:
        case float():
            if not MIN_INT < value < MAX_INT or math.isnan(value):
                raise EvaluationError("integer overflow")
            return int(value)
        case str():
            try:
                return new_int(int(value) if value.strip() == value and "_" not in value else int("x"))
            except ValueError as error:
                raise EvaluationError(f'strconv.ParseInt: parsing "{value}": invalid syntax') from error
        case Timestamp():
            return value.nanos // NANO
        case Duration():
            return value.nanos
    return new_int(int(value))


@declare("uint(uint): uint", "uint(int): uint", "uint(double): uint", "uint(string): uint")
def to_uint(value: Any) -> UInt:
    if isinstance(value, float) and not 0 <= value < 2**64:
        raise EvaluationError("unsigned integer overflow")
    try:
        return new_uint(int(value))
    except ValueError as error:
        raise EvaluationError(f'strconv.ParseUint: parsing "{value}": invalid syntax') from error


@declare("double(double): double", "double(int): double", "double(uint): double", "double(string): double")
def to_double(value: Any) -> float:
    try:
        return float(value)
    except ValueError as error:
        raise EvaluationError(f'strconv.ParseFloat: parsing "{value}": invalid syntax') from error


@declare("string(string): string", "string(int): string", "string(uint): string", "string(double): string")
@declare("string(bool): string", "string(bytes): string", "string(timestamp): string", "string(duration): string")
@declare("string(ip): string", "string(cidr): string", cost=table.traverses, size=lambda sizes: max(64, sizes[0]))
def to_string(value: Any) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case float():
            return go_number(value)
        case bytes():
            try:
                return value.decode()
            except UnicodeDecodeError as error:
                raise EvaluationError("invalid UTF-8 in bytes, cannot convert to string") from error
    return str(to_json(value))


declare("bytes(bytes): bytes")(lambda value: value)
declare("bytes(string): bytes", size=lambda sizes: sizes[0])(str.encode)
declare("timestamp(timestamp): timestamp", "duration(duration): duration")(lambda value: value)
declare("timestamp(string): timestamp")(parse_timestamp)
declare("timestamp(int): timestamp")(lambda seconds: new_timestamp(seconds * NANO))
declare("duration(string): duration")(parse_duration)
declare("type(A): type")(lambda value: type_value(kind_of(value)))
declare("dyn(A): dyn")(lambda value: value)


@declare("bool(bool): bool", "bool(string): bool")
def to_bool(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    if value in ("true", "True", "TRUE", "t", "1"):
        return True
    if value in ("false", "False", "FALSE", "f", "0"):
        return False
    raise EvaluationError(f'strconv.ParseBool: parsing "{value}": invalid syntax')


# Times


def _zone(name: str) -> tzinfo:
    if name in ("", "UTC"):
        return UTC
    hours, colon, minutes = name.removeprefix("-").removeprefix("+").partition(":")
    if colon and hours.isdigit() and minutes.isdigit() and int(hours) < 24:
        offset = timedelta(hours=int(hours), minutes=int(minutes))
        return timezone(-offset if name[0] == "-" else offset)
    try:
        return ZoneInfo(name)
    except (OSError, ValueError, KeyError) as error:
        raise EvaluationError(f"unknown time zone {name}") from error


_PARTS = {
    "getFullYear": lambda moment: moment.year,
    "getMonth": lambda moment: moment.month - 1,
    "getDate": lambda moment: moment.day,
    "getDayOfMonth": lambda moment: moment.day - 1,
    "getDayOfWeek": lambda moment: moment.isoweekday() % 7,
    "getDayOfYear": lambda moment: moment.timetuple().tm_yday - 1,
    "getHours": lambda moment: moment.hour,
    "getMinutes": lambda moment: moment.minute,
    "getSeconds": lambda moment: moment.second,
    "getMilliseconds": lambda moment: moment.microsecond // 1000,
}


def _enter_time_part(name: str, part: Any) -> None:
    def read(moment: Timestamp, zone: str = "") -> int:
        return int(part(moment.moment(_zone(zone))))

    declare(f"timestamp.{name}(): int", f"timestamp.{name}(string): int")(read)


for _name, _part in _PARTS.items():
    _enter_time_part(_name, _part)


def _truncate(amount: int, unit: int) -> int:
    return int(math.copysign(1, amount)) * (abs(amount) // unit)


declare("duration.getHours(): int")(lambda amount: _truncate(amount.nanos, 3600 * NANO))
declare("duration.getMinutes(): int")(lambda amount: _truncate(amount.nanos, 60 * NANO))
declare("duration.getSeconds(): int")(lambda amount: _truncate(amount.nanos, NANO))
declare("duration.getMilliseconds(): int")(lambda amount: _truncate(amount.nanos, 10**6) % 1000)


# Optionals


declare("optional::none(): optional<A>")(lambda: NOTHING)
declare("optional::of(A): optional<A>")(lambda value: Optional(True, value))
declare("optional::ofNonZeroValue(A): optional<A>")(lambda value: Optional(True, value) if value else NOTHING)
declare("optional<A>.hasValue(): bool")(lambda box: box.present)


@declare("optional<A>.value(): A")
def optional_content(box: Optional) -> Any:
    if box.present:
        return box.value
    raise EvaluationError("optional.none() dereference")


declare("optional<A>.orValue(A): A")(lambda box, other: box.value if box.present else other)
declare("optional<A>.or(optional<A>): optional<A>")(lambda box, other: box if box.present else other)
