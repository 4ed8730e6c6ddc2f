"""Randomness for templates that repeats itself: a seed always gives the same draws, and these do not give it away.

`SeededStream` expands a secret seed with SHAKE-256, so that whoever sees any number of values can tell neither those
before nor those after. `PublicStream` is Python's generator, for values that were made with it before.
"""

from __future__ import annotations

import hashlib
import random
from typing import Any, Final

_BLOCK: Final = 1024


class Stream(random.Random):
    """A generator that knows whether anything was drawn."""

    drawn = False


class PublicStream(Stream):
    """Python's generator as it is."""

    def random(self) -> float:
        self.drawn = True
        return super().random()

    def getrandbits(self, count: int, /) -> int:
        self.drawn = True
        return super().getrandbits(count)


class SeededStream(Stream):
    """The expansion of a secret seed."""

    def __init__(self, seed: bytes) -> None:
        super().__init__(0)
        self._secret = seed
        self._blocks = 0
        self._rest = b""

    def random(self) -> float:
        return (self.getrandbits(64) >> 11) * 2.0**-53

    def getrandbits(self, count: int, /) -> int:
        if count < 0:
            raise ValueError("number of bits must be non-negative")
        self.drawn = True
        return int.from_bytes(self._take((count + 7) // 8), "big") >> (-count % 8)

    def seed(self, *arguments: Any, **named: Any) -> None:
        """Its seed is given once; Python's own, which this is called for, does not matter."""

    def _take(self, count: int) -> bytes:
        while len(self._rest) < count:
            block = self._secret + self._blocks.to_bytes(8, "big")
            self._rest += hashlib.shake_256(block).digest(_BLOCK)
            self._blocks += 1
        taken, self._rest = self._rest[:count], self._rest[count:]
        return taken
