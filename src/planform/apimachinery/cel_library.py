"""CEL's functions for lists, sets and numbers. Importing the module enters them in the table."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

from planform.apimachinery import cel_functions as table
from planform.apimachinery.cel_functions import declare
from planform.apimachinery.cel_values import (
    MAX_INT,
    NOTHING,
    Duration,
    EvaluationError,
    Optional,
    UInt,
    equal,
    new_duration,
    new_int,
    new_uint,
)


def _first(sizes: list[int]) -> float:
    return sizes[0]


# Lists

_ORDERED = ("int", "uint", "double", "bool", "string", "bytes", "timestamp", "duration")


def _for_each(template: str) -> tuple[str, ...]:
    return tuple(template.replace("T", kind) for kind in _ORDERED)


def _comparable(items: list[Any]) -> list[Any]:
    if len({type(item) for item in items}) > 1 or (items and type(items[0]) in (list, dict, type(None))):
        raise EvaluationError("no such overload: the items of the list cannot be compared")
    return items


@declare(*_for_each("list<T>.isSorted(): bool"), cost=table.visits)
def is_sorted(items: list[Any]) -> bool:
    _comparable(items)
    return all(one <= other for one, other in itertools.pairwise(items))


@declare(*_for_each("list<T>.min(): T"), cost=table.visits)
def smallest(items: list[Any]) -> Any:
    if not items:
        raise EvaluationError("min called on empty list")
    return min(_comparable(items))


@declare(*_for_each("list<T>.max(): T"), cost=table.visits)
def largest(items: list[Any]) -> Any:
    if not items:
        raise EvaluationError("max called on empty list")
    return max(_comparable(items))


@declare("list<int>.sum(): int", cost=table.visits)
def sum_ints(items: list[Any]) -> Any:
    """The sum; of an empty dynamic list, 0."""
    kind = type(items[0]) if items else int
    _comparable(items)
    if kind is float:
        return math.fsum(items)
    if kind is UInt:
        return new_uint(sum(map(int, items)))
    if kind is Duration:
        return new_duration(sum(item.nanos for item in items))
    if kind is not int:
        raise EvaluationError("no such overload: sum")
    return new_int(sum(items))


declare("list<double>.sum(): double", cost=table.visits)(lambda items: float(sum(items)))
declare("list<uint>.sum(): uint", cost=table.visits)(lambda items: new_uint(sum(map(int, items))))
declare("list<duration>.sum(): duration", cost=table.visits)(lambda items: new_duration(sum(i.nanos for i in items)))


@declare("list<A>.indexOf(A): int", cost=table.visits)
def list_index(items: list[Any], wanted: Any) -> int:
    return next((index for index, item in enumerate(items) if equal(item, wanted)), -1)


@declare("list<A>.lastIndexOf(A): int", cost=table.visits)
def last_list_index(items: list[Any], wanted: Any) -> int:
    return next((index for index in reversed(range(len(items))) if equal(items[index], wanted)), -1)


@declare("list<A>.includes(A): bool", cost=table.visits)
def includes(items: list[Any], wanted: Any) -> bool:
    return any(equal(item, wanted) for item in items)


@declare("list<A>.slice(int, int): list<A>", cost=table.visits, size=_first)
def slice_list(items: list[Any], start: int, end: int) -> list[Any]:
    if not 0 <= start <= end <= len(items):
        raise EvaluationError(f"cannot slice({start}, {end}), list is length {len(items)}")
    return items[start:end]


@declare("list<A>.distinct(): list<A>", cost=lambda sizes: sizes[0] ** 2, size=_first)
def distinct(items: list[Any]) -> list[Any]:
    kept: list[Any] = []
    for item in items:
        if not any(equal(item, seen) for seen in kept):
            kept.append(item)
    return kept


declare("list<A>.reverse(): list<A>", cost=table.visits, size=_first)(lambda items: items[::-1])
declare(*_for_each("list<T>.sort(): list<T>"), cost=table.visits, size=_first)(lambda items: sorted(_comparable(items)))
declare("list<A>.first(): optional<A>")(lambda items: Optional(True, items[0]) if items else NOTHING)
declare("list<A>.last(): optional<A>")(lambda items: Optional(True, items[-1]) if items else NOTHING)


@declare("list<list<A>>.flatten(): list<A>", "list<list<A>>.flatten(int): list<dyn>", cost=table.visits, size=_first)
def flatten(items: list[Any], depth: int = 1) -> list[Any]:
    if depth < 0:
        raise EvaluationError("level must be non-negative")
    flat: list[Any] = []
    for item in items:
        flat.extend(flatten(item, depth - 1) if isinstance(item, list) and depth > 0 else [item])
    return flat


@declare("lists::range(int): list<int>", cost=lambda sizes: 10_000, size=lambda sizes: 10_000)
def make_range(count: int) -> list[int]:
    if count > 10_000:
        raise EvaluationError("lists.range is limited to 10000 items")
    return list(range(max(0, count)))


# Sets


@declare("sets::contains(list<A>, list<A>): bool", cost=table.pairs)
def set_contains(items: list[Any], wanted: list[Any]) -> bool:
    return all(any(equal(item, one) for item in items) for one in wanted)


@declare("sets::equivalent(list<A>, list<A>): bool", cost=lambda sizes: 2 * table.pairs(sizes))
def set_equivalent(one: list[Any], other: list[Any]) -> bool:
    return set_contains(one, other) and set_contains(other, one)


@declare("sets::intersects(list<A>, list<A>): bool", cost=table.pairs)
def set_intersects(one: list[Any], other: list[Any]) -> bool:
    return any(equal(item, found) for item in one for found in other)


# Math

_NUMERIC = ("int", "uint", "double")


def _extreme(name: str, choose: Callable[..., Any]) -> None:
    def run(*args: Any) -> Any:
        values = args[0] if len(args) == 1 and isinstance(args[0], list) else args
        if not values:
            raise EvaluationError(f"math.{name}(list) argument must not be empty")
        if any(type(value) not in (int, UInt, float) for value in values):
            raise EvaluationError("no such overload: numbers are expected")
        return choose(values)

    for kind in _NUMERIC:
        declare(f"math::{name}(list<{kind}>): {kind}", cost=table.visits)(run)
        for count in range(1, 6):
            declare(f"math::{name}({', '.join([kind] * count)}): {kind}")(run)
    for count in range(2, 6):
        declare(f"math::{name}({', '.join(['dyn'] * count)}): dyn")(run)


_extreme("greatest", max)
_extreme("least", min)


def _rounded(name: str, change: Callable[[float], float]) -> None:
    declare(f"math::{name}(double): double")(lambda value: float(change(value)) if math.isfinite(value) else value)


def _half_away(value: float) -> float:
    return math.copysign(math.floor(abs(value) + 0.5), value)


for _name, _change in (("ceil", math.ceil), ("floor", math.floor), ("trunc", math.trunc), ("round", _half_away)):
    _rounded(_name, _change)
declare("math::sqrt(double): double", "math::sqrt(int): double", "math::sqrt(uint): double")(
    lambda value: math.sqrt(value) if value >= 0 else math.nan
)
declare("math::isNaN(double): bool")(math.isnan)
declare("math::isInf(double): bool")(math.isinf)
declare("math::isFinite(double): bool")(math.isfinite)
declare("math::abs(int): int")(lambda value: new_int(abs(value)))
declare("math::abs(double): double", "math::abs(uint): uint")(lambda value: type(value)(abs(value)))
declare("math::sign(int): int", "math::sign(uint): uint", "math::sign(double): double")(
    lambda value: type(value)((value > 0) - (value < 0))
)


def _signed(value: int) -> int:
    return value - 2**64 if value > MAX_INT else value


def _bits(name: str, change: Callable[..., int], count: int) -> None:
    for kind in ("int", "uint"):
        make: Callable[[int], int] = new_uint if kind == "uint" else lambda value: _signed(value % 2**64)
        declare(f"math::{name}({', '.join([kind] * count)}): {kind}")(
            lambda *args, make=make: make(change(*(int(arg) % 2**64 for arg in args)) % 2**64)
        )


_bits("bitAnd", lambda one, other: one & other, 2)
_bits("bitOr", lambda one, other: one | other, 2)
_bits("bitXor", lambda one, other: one ^ other, 2)
_bits("bitNot", lambda value: ~value, 1)


def _shift(name: str, change: Callable[[int, int], int]) -> None:
    def run(value: int, count: int) -> Any:
        if count < 0:
            raise EvaluationError(f"math.{name}() negative offset: {count}")
        moved = change(int(value) % 2**64, count) % 2**64 if count < 64 else 0
        return UInt(moved) if isinstance(value, UInt) else _signed(moved)

    declare(f"math::{name}(int, int): int", f"math::{name}(uint, int): uint")(run)


_shift("bitShiftLeft", lambda value, count: value << count)
_shift("bitShiftRight", lambda value, count: value >> count)
