"""Arithmetic. Whole numbers wrap at 64 bits; fractions are computed as decimals and so have no binary noise."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from fractions import Fraction
from typing import Final

from planform.gotemplate.errors import CallFailed
from planform.gotemplate.functions import Library
from planform.gotemplate.literals import parse_float, parse_int
from planform.gotemplate.printing import show
from planform.gotemplate.runtime import State
from planform.gotemplate.values import INT64_MAX, INT64_MIN, Int, Ints, Value, wrap_int64

numbers: Final = Library()

_NAMED_FLOAT: Final = re.compile(r"([+-]?)(?:inf|infinity)\Z", re.IGNORECASE)
_TRAILING_ZEROS: Final = re.compile(r"\.0+\Z")


def to_int64(value: Value) -> int:
    """Any value as a whole number; what is none is 0."""
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return int(value) if -9.3e18 < value < 9.3e18 and INT64_MIN <= int(value) <= INT64_MAX else INT64_MIN
    if isinstance(value, str):
        number = parse_int(_TRAILING_ZEROS.sub("", value))
        return number if number is not None and INT64_MIN <= number <= INT64_MAX else 0
    return 0


def to_int(value: Value) -> Int:
    return Int(to_int64(value))


def to_float(value: Value) -> float:
    """Any value as a float; what is none is 0."""
    if isinstance(value, (int, float)):
        return float(value)
    if isinstance(value, str):
        if value.lower() == "nan":
            return math.nan
        if named := _NAMED_FLOAT.match(value):
            return -math.inf if named[1] == "-" else math.inf
        return parse_float(value) or 0.0
    return 0.0


numbers.add("func(interface {}) int64", "int64")(to_int64)
numbers.add("func(interface {}) int", "int")(to_int)
numbers.add("func(interface {}) float64", "float64")(to_float)


@numbers.add("func(string) int")
def atoi(text: str) -> Int:
    if not re.fullmatch("[+-]?[0-9]+", text):
        return Int(0)
    return Int(max(INT64_MIN, min(INT64_MAX, int(text[:40]))))


@numbers.add("func(interface {}) int64", "toDecimal")
def to_decimal(value: Value) -> int:
    """Octal digits as a number."""
    text = show(value)
    if len(text) > 25 or not re.fullmatch("[+-]?[0-7]+", text):
        return 0
    number = int(text, 8)
    return number if INT64_MIN <= number <= INT64_MAX else 0


# --- whole numbers ---------------------------------------------------------------------------------------------------


@numbers.add("func(...interface {}) int64", special="+")
def add(*values: Value) -> int:
    total = 0
    for value in values:
        total += value if isinstance(value, int) else to_int64(value)
    return total if INT64_MIN <= total <= INT64_MAX else wrap_int64(total)


@numbers.add("func(interface {}) int64")
def add1(value: Value) -> int:
    return wrap_int64(to_int64(value) + 1)


@numbers.add("func(interface {}, interface {}) int64", special="-")
def sub(first: Value, second: Value) -> int:
    return wrap_int64(to_int64(first) - to_int64(second))


@numbers.add("func(interface {}, ...interface {}) int64", special="*")
def mul(first: Value, *others: Value) -> int:
    product = to_int64(first)
    for other in others:
        product = wrap_int64(product * to_int64(other))
    return product


@numbers.add("func(interface {}, interface {}) int64")
def div(first: Value, second: Value) -> int:
    """Towards zero."""
    dividend, divisor = to_int64(first), to_int64(second)
    if divisor == 0:
        raise CallFailed("runtime error: integer divide by zero")
    quotient = abs(dividend) // abs(divisor)
    return wrap_int64(quotient if (dividend < 0) == (divisor < 0) else -quotient)


@numbers.add("func(interface {}, interface {}) int64")
def mod(first: Value, second: Value) -> int:
    """With the sign of the first."""
    dividend, divisor = to_int64(first), to_int64(second)
    if divisor == 0:
        raise CallFailed("runtime error: integer divide by zero")
    remainder = abs(dividend) % abs(divisor)
    return -remainder if dividend < 0 else remainder


@numbers.add("func(interface {}, ...interface {}) int64", "max", "biggest")
def max_(*values: Value) -> int:
    return max(map(to_int64, values))


@numbers.add("func(interface {}, ...interface {}) int64", "min")
def min_(*values: Value) -> int:
    return min(map(to_int64, values))


# --- fractions -------------------------------------------------------------------------------------------------------


def _exact(value: Value) -> Fraction:
    number = to_float(value)
    if not math.isfinite(number):
        raise CallFailed(f"Cannot create a Decimal from {show(number)}")
    return Fraction(repr(number))


def _rounded(value: Fraction) -> float:
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


@numbers.add("func(interface {}) float64")
def add1f(value: Value) -> float:
    return _rounded(_exact(value) + 1)


@numbers.add("func(...interface {}) float64")
def addf(*values: Value) -> float:
    return _rounded(sum(map(_exact, values), Fraction(0)))


@numbers.add("func(interface {}, ...interface {}) float64")
def subf(first: Value, *others: Value) -> float:
    return _rounded(_exact(first) - sum(map(_exact, others), Fraction(0)))


@numbers.add("func(interface {}, ...interface {}) float64")
def mulf(first: Value, *others: Value) -> float:
    product = _exact(first)
    for other in others:
        product *= _exact(other)
    return _rounded(product)


@numbers.add("func(interface {}, ...interface {}) float64")
def divf(first: Value, *others: Value) -> float:
    """Each quotient is rounded to 16 places, halves away from zero."""
    quotient = _exact(first)
    for other in others:
        divisor = _exact(other)
        if divisor == 0:
            raise CallFailed("decimal division by 0")
        scaled = abs(quotient / divisor) * 10**16
        whole = math.floor(scaled + Fraction(1, 2))
        quotient = Fraction(whole if (quotient < 0) == (divisor < 0) else -whole, 10**16)
    return _rounded(quotient)


@numbers.add("func(interface {}, ...interface {}) float64")
def maxf(first: Value, *others: Value) -> float:
    return _extreme(max, first, others)


@numbers.add("func(interface {}, ...interface {}) float64")
def minf(first: Value, *others: Value) -> float:
    return _extreme(min, first, others)


def _extreme(choose: Callable[..., float], first: Value, others: tuple[Value, ...]) -> float:
    """Nothing is comparable with NaN, and -0 is less than 0."""
    numbers_given = [to_float(first), *map(to_float, others)]
    if any(map(math.isnan, numbers_given)):
        return math.nan
    return choose(numbers_given, key=lambda number: (number, math.copysign(1, number)))


@numbers.add("func(interface {}) float64")
def floor(value: Value) -> float:
    return _integral(math.floor, to_float(value))


@numbers.add("func(interface {}) float64")
def ceil(value: Value) -> float:
    return _integral(math.ceil, to_float(value))


def _integral(convert: Callable[[float], int], number: float) -> float:
    """Keeps infinities, and the sign of zero."""
    return math.copysign(float(convert(number)), number) if math.isfinite(number) else number


@numbers.add("func(interface {}, int, ...float64) float64", "round")
def round_(value: Value, places: int, *threshold: float) -> float:
    """Up where the digit after the last place reaches the threshold (0.5), else down."""
    power = _power_of_ten(places)
    digit = power * to_float(value)
    fraction = math.modf(digit)[0] if math.isfinite(digit) else math.nan
    up = fraction >= (threshold[0] if threshold else 0.5)
    rounded = _integral(math.ceil if up else math.floor, digit)
    return rounded / power if power else math.copysign(math.inf, rounded) if rounded else math.nan


def _power_of_ten(exponent: int) -> float:
    """By repeated squaring of the fraction, as Go computes it; beyond 22 this is not always the nearest float."""
    fraction, shift = math.frexp(10.0)
    result, result_shift = 1.0, 0
    rest = min(abs(exponent), 1024)
    while rest:
        if rest & 1:
            result *= fraction
            result_shift += shift
        fraction *= fraction
        shift <<= 1
        if fraction < 0.5:
            fraction += fraction
            shift -= 1
        rest >>= 1
    if exponent < 0:
        result, result_shift = 1 / result, -result_shift
    try:
        return math.ldexp(result, result_shift)
    except OverflowError:
        return math.inf


# --- sequences -------------------------------------------------------------------------------------------------------


def _steps(state: State, start: int, stop: int, step: int) -> Ints:
    if (stop < start and step >= 0) or (stop >= start and step <= 0):
        return Ints()
    numbers_between = range(start, stop, step)
    state.reserve_items(len(numbers_between) if abs(stop - start) < 1 << 62 else 1 << 62)
    return Ints(map(Int, numbers_between))


@numbers.add("func(int) []int", stateful=True)
def until(state: State, count: int) -> Ints:
    return _steps(state, 0, count, -1 if count < 0 else 1)


@numbers.add("func(int, int, int) []int", "untilStep", stateful=True)
def until_step(state: State, start: int, stop: int, step: int) -> Ints:
    return _steps(state, start, stop, step)


@numbers.add("func(...int) string", stateful=True)
def seq(state: State, *parameters: int) -> str:
    """The numbers that the command of that name prints, on one line."""
    match parameters:
        case (end,):
            start, step = 1, -1 if end < 1 else 1
            last = end + step
        case (start, end):
            step = -1 if end < start else 1
            last = end + step
        case (start, step, end):
            if end < start and step > 0:
                return ""
            last = end + (-1 if end < start else 1)
        case _:
            return ""
    return " ".join(map(str, _steps(state, start, last, step)))
