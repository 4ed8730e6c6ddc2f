"""Amounts as resource limits write them: `500m`, `1Gi`, `2e3`. Exact, in whole billionths.

Kubernetes keeps a quantity in the notation it was written in, but in one canonical form of that notation: no fraction
and the largest suffix that still allows it. Anything finer than a billionth is rounded away from zero.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from decimal import Decimal
from enum import Enum
from functools import total_ordering
from typing import Final


class QuantityError(ValueError):
    """The text is not a quantity."""


class Notation(Enum):
    """How a quantity is written; it stays so through arithmetic."""

    DECIMAL = "k M G"
    BINARY = "Ki Mi Gi"
    EXPONENT = "e3 e6 e9"


_NANO: Final = 10**9
_LARGEST_BINARY: Final = (2**63 - 1) * _NANO
_MAX_LENGTH: Final = 512
_LARGEST_EXPONENT: Final = 300

_DECIMAL: Final = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY: Final = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
_DECIMAL_SUFFIX: Final = {exponent: suffix for suffix, exponent in _DECIMAL.items()}
_BINARY_SUFFIX: Final = {exponent: suffix for suffix, exponent in _BINARY.items()}

_shape = re.compile(r"([+-]?)([0-9]*)(\.?)([0-9]*)([eEinumkKMGTP]*[-+]?[0-9]*)").fullmatch
_exponent = re.compile(r"[eE]([-+]?[0-9]+)").fullmatch

_WRONG_SHAPE: Final = "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
_WRONG_NUMBER: Final = "unable to parse numeric part of quantity"
_WRONG_SUFFIX: Final = "unable to parse quantity's suffix"


@total_ordering
@dataclass(frozen=True, slots=True, eq=False)
class Quantity:
    """An exact amount and its notation. Equal amounts are equal, whatever their notation."""

    nanos: int
    notation: Notation = Notation.DECIMAL

    @property
    def value(self) -> int:
        """The amount in whole units, rounded away from zero."""
        return _divide_away_from_zero(self.nanos, _NANO)

    @property
    def milli_value(self) -> int:
        """The amount in whole thousandths, rounded away from zero."""
        return _divide_away_from_zero(self.nanos, _NANO // 1000)

    def as_decimal(self) -> Decimal:
        sign, digits, _ = Decimal(self.nanos).as_tuple()
        return Decimal((sign, digits, -9))

    def __float__(self) -> float:
        return self.nanos / _NANO

    def __str__(self) -> str:
        """The canonical form."""
        if self.nanos == 0:
            return "0"
        if self.notation is Notation.BINARY and abs(self.nanos) >= 1024 * _NANO:
            number, power = self.value, 0
            while number % 1024 == 0 and power < 60:
                number, power = number // 1024, power + 10
            return f"{number}{_BINARY_SUFFIX[power] if power else ''}"
        number, exponent = self.nanos, -9
        largest = 18 if self.notation is not Notation.EXPONENT else _LARGEST_EXPONENT
        while number % 1000 == 0 and exponent < largest:
            number, exponent = number // 1000, exponent + 3
        if self.notation is Notation.EXPONENT:
            return f"{number}e{exponent}" if exponent else f"{number}"
        return f"{number}{_DECIMAL_SUFFIX[exponent]}"

    def __eq__(self, other: object) -> bool:
        return self.nanos == other.nanos if isinstance(other, Quantity) else NotImplemented

    def __lt__(self, other: Quantity) -> bool:
        return self.nanos < other.nanos

    def __hash__(self) -> int:
        return hash(self.nanos)

    def __bool__(self) -> bool:
        return self.nanos != 0

    def __add__(self, other: Quantity) -> Quantity:
        """The sum, in the notation of the left side, or of the right one if the left is zero."""
        return Quantity(self.nanos + other.nanos, self.notation if self.nanos else other.notation)

    def __sub__(self, other: Quantity) -> Quantity:
        return Quantity(self.nanos - other.nanos, self.notation if self.nanos else other.notation)

    def __neg__(self) -> Quantity:
        return Quantity(-self.nanos, self.notation)

    def __mul__(self, factor: int) -> Quantity:
        return Quantity(self.nanos * factor, self.notation)

    __rmul__ = __mul__


def parse_quantity(text: str | int | float) -> Quantity:
    """A quantity as JSON carries it: a text, or a bare number. Raises QuantityError with Kubernetes' words."""
    text = str(text)
    match = _shape(text) if len(text) <= _MAX_LENGTH else None
    if match is None:
        raise QuantityError(_WRONG_SHAPE)
    sign, whole, dot, fraction, suffix = match.groups()
    if not whole and not fraction:
        raise QuantityError(_WRONG_NUMBER if dot else _WRONG_SHAPE)
    digits, decimals = int(whole + fraction), len(fraction)
    if suffix in _BINARY:
        notation, nanos = Notation.BINARY, _round_up(digits << _BINARY[suffix], 9 - decimals)
        nanos = min(nanos, _LARGEST_BINARY)
        if nanos < _NANO:
            notation = Notation.DECIMAL
    elif suffix in _DECIMAL:
        notation, nanos = Notation.DECIMAL, _round_up(digits, 9 - decimals + _DECIMAL[suffix])
    elif exponent := _exponent(suffix):
        power = int(exponent[1])
        if abs(power) > _LARGEST_EXPONENT:
            raise QuantityError(_WRONG_SUFFIX)
        notation, nanos = Notation.EXPONENT, _round_up(digits, 9 - decimals + power)
    else:
        raise QuantityError(_WRONG_SUFFIX)
    return Quantity(-nanos if sign == "-" else nanos, notation)


def _round_up(digits: int, power: int) -> int:
    """`digits` times ten to the `power`, the next whole number if it is none."""
    return digits * 10**power if power >= 0 else _divide_away_from_zero(digits, 10**-power)


def _divide_away_from_zero(number: int, divisor: int) -> int:
    return -(-number // divisor) if number >= 0 else number // divisor
