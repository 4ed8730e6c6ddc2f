"""How far history may be compacted: a pure account of when which resource version was reached."""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from planform.store.records import HistoryLimits

MARK_SECONDS = 1.0
MARK_EVENTS = 512


class Mark(NamedTuple):
    """At `time`, `revision` had been reached and `size` bytes written since the process started."""

    time: float
    revision: int
    size: int


class Retention:
    """Knows the lowest resource version that the limits still ask for, to within a mark."""

    def __init__(self, limits: HistoryLimits, *, now: float, revision: int, size: int) -> None:
        self._limits = limits
        self._size = size
        self._floor = 0
        self._marks: deque[Mark] = deque([Mark(now, revision, size)])

    def note(self, now: float, revision: int, size: int) -> None:
        """`revision` has been reached, with `size` more bytes."""
        self._size += size
        last = self._marks[-1]
        if revision - last.revision >= MARK_EVENTS or now - last.time >= MARK_SECONDS:
            self._marks.append(Mark(now, revision, self._size))

    def floor(self, now: float, revision: int) -> int:
        """History up to and including this resource version may go."""
        marks, limits = self._marks, self._limits
        old = now - limits.keep_for.total_seconds()
        spare = revision - limits.keep_events
        heavy = self._size - limits.max_bytes
        while marks and ((marks[0].time <= old and marks[0].revision <= spare) or marks[0].size <= heavy):
            self._floor = marks.popleft().revision
        if not marks:
            marks.append(Mark(now, revision, self._size))
        return self._floor
