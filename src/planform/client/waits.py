"""How long to wait before trying again, and when to give up. Both work on any clock, also a virtual one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from random import Random

from planform.clock import Clock, SystemClock


@dataclass(frozen=True, slots=True)
class Backoff:
    """Waits that double from `first` to `most` seconds, each shortened by up to `jitter` of itself.

    Without jitter, all who failed together try again together, and fail again.
    """

    first: float = 1.0
    most: float = 30.0
    jitter: float = 0.2

    def delay(self, failures: int, rng: Random) -> float:
        """Seconds to wait after that many failures in a row, the first of which is 1."""
        doublings = min(max(0, failures - 1), 60)
        return min(self.first * 2.0**doublings, self.most) * (1.0 - self.jitter * rng.random())


def time_limit(clock: Clock, seconds: float) -> AbstractAsyncContextManager[object]:
    """Cancel the block and raise TimeoutError once that much time has passed on this clock."""
    return asyncio.timeout(seconds) if isinstance(clock, SystemClock) else _limit_on(clock, seconds)


@asynccontextmanager
async def _limit_on(clock: Clock, seconds: float) -> AsyncIterator[None]:
    deadline = clock.monotonic() + seconds
    async with asyncio.timeout(None) as scope:

        async def expire() -> None:
            await clock.sleep(deadline - clock.monotonic())
            scope.reschedule(asyncio.get_running_loop().time())

        watchdog = asyncio.create_task(expire(), name="time-limit")
        try:
            yield
        finally:
            watchdog.cancel()
