"""When Python looks for cycles: while there is nothing else to do, or when very much has piled up.

Much is counted in containers, as Python does, and in bytes: a handful of errors can hold a gigabyte of answers.

What planform does leaves few cycles behind, so a search finds next to nothing. But in a storm, tens of thousands of
values come and go with every commit, and by its own measure Python would search hundreds of times, each for several
milliseconds in which the loop stands: one part in fourteen of all the time that a thousand new XRs took.
"""

from __future__ import annotations

import ctypes
import gc
import os
from contextlib import suppress
from functools import cache
from typing import Any, Final

MOST_BEFORE_A_SEARCH: Final = 100_000
"""New containers after which a search does not wait for rest. A storm has half of that in its hands at a time."""
WORTH_A_SEARCH: Final = 10_000
_SEARCHES_BEFORE_OLDER: Final = 3
"""After so many, those who survived them are searched as well: soon, for it takes as long as there are many of them."""
_SEARCHES_BEFORE_OLDEST: Final = 100
"""After so many searches among survivors, everything is searched; at rest, after a tenth of that."""


GROWTH_WORTH_A_SEARCH: Final = 32 << 20
"""Bytes by which the process has grown since the last search, which at rest are reason enough for another."""
GROWTH_AT_WORK: Final = 256 << 20
"""The same while there is work to do."""
MUCH_GROWTH: Final = 1 << 30
"""If a search among the young leaves so much, everything is searched."""


def search_seldom() -> None:
    """Leave out what start-up made, and search for cycles by the measure of this module."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(MOST_BEFORE_A_SEARCH, _SEARCHES_BEFORE_OLDER, _SEARCHES_BEFORE_OLDEST)


class Searches:
    """Searches by how many containers, and how many bytes, have come since the last one."""

    def __init__(self) -> None:
        self._resident = resident_bytes()

    def at_rest(self) -> bool:
        """To be called when there is nothing to do; whether it searched. After work, it does so once."""
        if self._grown_by(GROWTH_WORTH_A_SEARCH):
            self._search()
            return True
        young, _, old = gc.get_count()
        if young < WORTH_A_SEARCH:
            return False
        gc.collect(2 if 10 * old > _SEARCHES_BEFORE_OLDEST else 1)
        return True

    def at_work(self) -> bool:
        """To be called now and then while there is much to do; whether it searched."""
        if not self._grown_by(GROWTH_AT_WORK):
            return False
        self._search()
        return True

    def _grown_by(self, size: int) -> bool:
        resident = resident_bytes()
        if resident < self._resident:
            self._resident = resident
        return resident - self._resident > size

    def _search(self) -> None:
        """Among the young first: a search of everything takes as long as there is much, and what is held in bytes for
        too long is mostly new."""
        gc.collect(1)
        _give_back()
        if self._grown_by(MUCH_GROWTH):
            gc.collect()
            _give_back()
        self._resident = resident_bytes()


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
