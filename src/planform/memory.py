"""When Python collects garbage: while there is nothing else to do, or when very much has piled up.

Much is counted in containers, as Python does, and in bytes: a handful of errors can hold a gigabyte of answers.

What planform does leaves few cycles behind, so a collection finds next to nothing. But in a burst, tens of thousands of
values come and go with every commit, and by its own measure Python would collect hundreds of times, each for several
milliseconds in which the loop stands: one part in fourteen of all the time that a thousand new XRs took.
"""

from __future__ import annotations

import ctypes
import gc
import os
from contextlib import suppress
from functools import cache
from typing import Any, Final

MAX_BEFORE_COLLECTION: Final = 100_000
"""New containers after which a collection does not wait until the loop is idle. A burst holds half of that at a
time."""
WORTH_COLLECTING: Final = 10_000
_COLLECTIONS_BEFORE_OLDER: Final = 3
"""After so many, those who survived them are looked at as well: soon, for it takes as long as there are many of
them."""
_COLLECTIONS_BEFORE_OLDEST: Final = 100
"""After so many collections among survivors, everything is looked at; when idle, after a tenth of that."""


GROWTH_WORTH_COLLECTING: Final = 32 << 20
"""Bytes by which the process has grown since the last collection, which when idle are reason enough for another."""
GROWTH_WORTH_GIVING_BACK: Final = 8 << 20
"""Bytes by which it has grown since memory was last given back, which at rest are reason enough to do that again."""
GROWTH_WHEN_BUSY: Final = 256 << 20
"""The same while there is work to do."""
MUCH_GROWTH: Final = 1 << 30
"""If a collection of the young leaves so much, everything is collected."""


_MMAP_THRESHOLD, _TRIM_THRESHOLD, _ARENA_MAX = -3, -1, -8  # of mallopt
_LARGE: Final = 1 << 20
_SPARE: Final = 4 << 20
_ARENAS: Final = 4


def keep_large_blocks_apart() -> None:
    """Have the C library take large blocks from the system and give them back when they are freed.

    It does so only until the first of them is freed, and then takes ever larger ones from its heaps: one answer of some
    megabytes, freed between others that live on, holds that much of a heap for good. And it has up to eight heaps for
    each processor, so that what one thread freed is of no use to another.
    """
    with suppress(OSError, AttributeError):  # only GNU's library has it
        mallopt = ctypes.CDLL(None).mallopt
        for what, value in ((_MMAP_THRESHOLD, _LARGE), (_TRIM_THRESHOLD, _SPARE), (_ARENA_MAX, _ARENAS)):
            mallopt(what, value)


def collect_seldom() -> None:
    """Leave out what start-up made, and collect by the measure of this module."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(MAX_BEFORE_COLLECTION, _COLLECTIONS_BEFORE_OLDER, _COLLECTIONS_BEFORE_OLDEST)


class IdleCollector:
    """Collects by how many containers, and how many bytes, have come since the last one."""

    def __init__(self) -> None:
        self._resident = resident_bytes()
        self._settled = self._resident  # after everything was searched
        self._given_back = self._resident  # after memory was given back

    def when_idle(self) -> bool:
        """To be called when there is nothing to do; whether it collected. After work, it does so once."""
        if self._grown_by(GROWTH_WORTH_COLLECTING):
            self._collect()
            return True
        if self._holds_on():
            self._search_everything()
            return True
        young, _, old = gc.get_count()
        if young < WORTH_COLLECTING:
            return self._gave_back()
        gc.collect(2 if 10 * old > _COLLECTIONS_BEFORE_OLDEST else 1)
        return True

    def when_busy(self) -> bool:
        """To be called now and then while there is much to do; whether it collected."""
        if not self._grown_by(GROWTH_WHEN_BUSY):
            return False
        self._collect()
        return True

    def _grown_by(self, size: int) -> bool:
        resident = resident_bytes()
        if resident < self._resident:
            self._resident = resident
        return resident - self._resident > size

    def _gave_back(self) -> bool:
        """Between collections, what was freed last: the end of a burst brings too little to collect, and stays."""
        resident = resident_bytes()
        if resident - self._given_back <= GROWTH_WORTH_GIVING_BACK:
            self._given_back = min(self._given_back, resident)
            return False
        _give_back()
        self._given_back = resident_bytes()
        return True

    def _holds_on(self) -> bool:
        """Whether collections of the young have left much: in a burst some of it grows old before it is freed."""
        self._settled = min(self._settled, self._resident)
        held = self._resident - self._settled
        return held > max(GROWTH_WORTH_COLLECTING, self._settled // 4)

    def _search_everything(self) -> None:
        gc.collect()
        _give_back()
        self._resident = self._settled = self._given_back = resident_bytes()

    def _collect(self) -> None:
        """Among the young first: a collection of everything takes as long as there is much, and what is held in bytes
        for too long is mostly new."""
        gc.collect(1)
        _give_back()
        if self._grown_by(MUCH_GROWTH):
            self._search_everything()
        self._resident = self._given_back = resident_bytes()


def resident_bytes() -> int:
    """How much memory this process holds; 0 where the system does not say."""
    try:
        with open("/proc/self/statm", "rb", buffering=0) as file:  # noqa: PTH123  # ten times a second
            return int(file.read(128).split()[1]) * _page_size()
    except (OSError, ValueError, IndexError):
        return 0


def _give_back() -> None:
    """Let the C library return what it holds free; it does so by itself only at the end of its heaps."""
    trim = _trim()
    if trim is not None:
        trim(0)


@cache
def _page_size() -> int:
    return os.sysconf("SC_PAGE_SIZE")


@cache
def _trim() -> Any:
    with suppress(OSError, AttributeError):  # only GNU's library has it
        return ctypes.CDLL(None).malloc_trim
    return None
