"""Calls under way, counted: nothing is stopped in the middle of one."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from planform.clock import Clock


class Tally:
    """How many calls of something are under way."""

    def __init__(self) -> None:
        self.begun = 0
        self.under_way = 0
        self._changed = asyncio.Event()

    @contextmanager
    def counting(self) -> Iterator[None]:
        """One more, while the block lasts."""
        self.begun += 1
        self.under_way += 1
        self._changed.set()
        try:
            yield
        finally:
            self.under_way -= 1
            self._changed.set()

    async def next_one(self) -> None:
        """Wait until one begins or ends."""
        self._changed.clear()
        await self._changed.wait()

    async def quiet(
        self, clock: Clock, *, seconds: float, max_seconds: float, interrupt: asyncio.Event | None = None
    ) -> bool:
        """Wait until none was under way for that long, but not longer than `max_seconds`; False if interrupted
        before."""
        deadline = clock.monotonic() + max_seconds
        while (left := deadline - clock.monotonic()) > 0:
            self._changed.clear()
            limit = left if self.under_way else min(left, seconds)
            heard = await first_of(clock, limit, self._changed, interrupt)
            if interrupt is not None and interrupt.is_set():
                return False
            if not heard and not self.under_way:
                return True
        return True


async def first_of(clock: Clock, seconds: float, *events: asyncio.Event | None) -> bool:
    """Whether one of the events came within that time."""
    present = [event for event in events if event is not None]
    waits = [asyncio.create_task(event.wait()) for event in present]
    timer = asyncio.create_task(clock.sleep(seconds))
    try:
        await asyncio.wait([*waits, timer], return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in (*waits, timer):
            task.cancel()
    return any(event.is_set() for event in present)
