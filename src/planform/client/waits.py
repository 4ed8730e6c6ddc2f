"""How long to wait before trying again, and when to give up. Both work on any clock, also a virtual one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from random import Random
from types import TracebackType

from planform.clock import Clock, SystemClock


@dataclass(frozen=True, slots=True)
class Backoff:
    """Waits that double from `first` to `maximum` seconds, each shortened by up to `jitter` of itself.

    Without jitter, all who failed together try again together, and fail again.
    """

    first: float = 1.0
    maximum: float = 30.0
    jitter: float = 0.2

    def delay(self, failures: int, rng: Random) -> float:
        """Seconds to wait after that many failures in a row, the first of which is 1."""
        doublings = min(max(0, failures - 1), 60)
        return min(self.first * 2.0**doublings, self.maximum) * (1.0 - self.jitter * rng.random())


def time_limit(clock: Clock, seconds: float) -> AbstractAsyncContextManager[object]:
    """Cancel the block and raise TimeoutError once that much time has passed on this clock."""
    return asyncio.timeout(seconds) if isinstance(clock, SystemClock) else _limit_on(clock, seconds)


class TimeLimits:
    """The same time limit for many blocks, each of them for itself, with one timer for all."""

    def __init__(self, clock: Clock, seconds: float) -> None:
        self._clock = clock
        self._seconds = seconds
        self._open: dict[_Block, float] = {}  # when each ends; the first to end is the first here
        self._timer: asyncio.TimerHandle | None = None

    def one(self) -> AbstractAsyncContextManager[object]:
        """Cancel the block and raise TimeoutError once its time has passed, as `time_limit` does."""
        if not isinstance(self._clock, SystemClock):
            return _limit_on(self._clock, self._seconds)
        return _Block(self)

    def begin(self, block: _Block) -> None:
        self._open[block] = self._clock.monotonic() + self._seconds
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(self._seconds, self._expire)

    def end(self, block: _Block) -> None:
        self._open.pop(block, None)

    def _expire(self) -> None:
        """Cancel what is due; then wait for the next, if there is one."""
        self._timer, now = None, self._clock.monotonic()
        for block, end in list(self._open.items()):
            if end > now:  # uvloop counts in milliseconds from when its round began, and so may be early
                self._timer = asyncio.get_running_loop().call_later(max(end - now, 0.001), self._expire)
                return
            del self._open[block]
            block.expire()


class _Block:
    """One block of several that have the same limit; ends as one of asyncio.timeout does."""

    __slots__ = ("_cancelling", "_expired", "_limits", "_task")

    def __init__(self, limits: TimeLimits) -> None:
        self._limits = limits
        self._expired = False

    async def __aenter__(self) -> None:
        task = asyncio.current_task()
        if task is None:
            raise RuntimeError("a time limit is for a task")
        self._task: asyncio.Task[object] = task
        self._cancelling = task.cancelling()
        self._limits.begin(self)

    def expire(self) -> None:
        self._expired = True
        self._task.cancel()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._limits.end(self)
        # If somebody else wants the task to end as well, it is their cancellation that goes on.
        if self._expired and self._task.uncancel() <= self._cancelling and kind is asyncio.CancelledError:
            raise TimeoutError from error


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
