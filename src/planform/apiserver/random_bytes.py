"""Randomness of the operating system, fetched in advance: each fetch lets go of the interpreter, which may be long."""

from __future__ import annotations

import os
from random import SystemRandom

_POOL = 4096


class PooledSystemRandom(SystemRandom):
    """As unpredictable as SystemRandom. No byte is used twice; for one process and thread."""

    def __init__(self) -> None:
        super().__init__()
        self._pool = b""
        self._used = 0

    def getrandbits(self, k: int, /) -> int:
        if k < 0:
            raise ValueError("number of bits must be non-negative")
        size = (k + 7) // 8
        if self._used + size > len(self._pool):
            self._pool, self._used = os.urandom(max(_POOL, size)), 0
        start, self._used = self._used, self._used + size
        return int.from_bytes(self._pool[start : self._used]) >> (8 * size - k)
