"""Time as an argument: the system's, or a virtual one in which an hour of backoff takes a millisecond.

Everything that waits or stamps takes a `Clock`. Under `VirtualClock` time stands still until a test advances it, so
the same seed gives the same run and no test sleeps.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import time
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Protocol


class Clock(Protocol):
    """Wall time for stamps, monotonic time for waits."""

    def now(self) -> datetime:
        """The wall clock, aware, in UTC."""
        ...

    def monotonic(self) -> float:
        """Seconds that never go backwards; only differences mean anything."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Wait that long on this clock; cancelling leaves nothing behind."""
        ...


class SystemClock:
    """The real thing."""

    monotonic = staticmethod(time.monotonic)

    def now(self) -> datetime:
        return datetime.now(UTC)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(max(0.0, seconds))


class VirtualClock:
    """A clock that moves only when told to; sleepers wake in the order of their deadlines."""

    def __init__(self, start: datetime = datetime(2026, 1, 1, tzinfo=UTC)) -> None:
        self._start = start
        self._elapsed = 0.0
        self._order = itertools.count()
        self._sleepers: list[tuple[float, int, asyncio.Future[None]]] = []

    def now(self) -> datetime:
        return self._start + timedelta(seconds=self._elapsed)

    def monotonic(self) -> float:
        return self._elapsed

    async def sleep(self, seconds: float) -> None:
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._sleepers, (self._elapsed + max(0.0, seconds), next(self._order), waiter))
        await waiter

    @property
    def next_deadline(self) -> float | None:
        """Seconds from now to the first sleeper's deadline; None when nobody sleeps."""
        while self._sleepers and self._sleepers[0][2].done():
            heapq.heappop(self._sleepers)
        return self._sleepers[0][0] - self._elapsed if self._sleepers else None

    async def advance(self, seconds: float) -> None:
        """Let that much time pass, waking each sleeper at its own moment and letting it run before the next."""
        end = self._elapsed + seconds
        while self._sleepers and self._sleepers[0][0] <= end:
            deadline, _, waiter = heapq.heappop(self._sleepers)
            if waiter.done():
                continue
            self._elapsed = max(self._elapsed, deadline)
            waiter.set_result(None)
            for _ in range(10):
                await asyncio.sleep(0)
        self._elapsed = end
        for _ in range(10):
            await asyncio.sleep(0)


def timestamp(moment: datetime) -> str:
    """Kubernetes' Time: whole seconds, Z."""
    return _second(int(moment.timestamp()))


@lru_cache(maxsize=16)
def _second(seconds: int) -> str:
    """Busy servers stamp thousands of objects in the same second."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")[:19] + "Z"


def micro_timestamp(moment: datetime) -> str:
    """Kubernetes' MicroTime: exactly six decimals, Z."""
    return moment.astimezone(UTC).isoformat(timespec="microseconds")[:26] + "Z"


def parse_timestamp(text: str) -> datetime:
    """An RFC 3339 time, aware; raises ValueError for anything else."""
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        raise ValueError(f"time {text!r} has no offset")
    return moment
