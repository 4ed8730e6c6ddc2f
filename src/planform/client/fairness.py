"""A rate that callers share fairly: one controller with ten thousand keys does not make another with one key wait.

Requests belong to flows, which controllers name. While the rate suffices nobody waits; when it does not, the flows that
wait are served in turns, and within a flow whoever came first goes first.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from contextvars import ContextVar

from planform.clock import Clock

_FLOW: ContextVar[str] = ContextVar("request_flow", default="")


class flow:  # a function with a `yield` would do, but every reconcile enters one
    """Requests of this block, and of tasks started in it, belong to this flow."""

    __slots__ = ("_name", "_token")

    def __init__(self, name: str) -> None:
        self._name = name

    def __enter__(self) -> None:
        self._token = _FLOW.set(self._name)

    def __exit__(self, *_: object) -> None:
        _FLOW.reset(self._token)


class FairBucket:
    """At most `burst` at once and `per_second` in the long run."""

    def __init__(self, per_second: float, burst: int, *, clock: Clock) -> None:
        if per_second <= 0 or burst < 1:
            raise ValueError(f"a rate of {per_second} per second with a burst of {burst} lets nothing through")
        self._gap = 1.0 / per_second
        self._slack = self._gap * (burst - 1)
        self._clock = clock
        self._next = clock.monotonic()  # when the next one would go if there were no bursts
        self._waiting: OrderedDict[str, deque[asyncio.Future[None]]] = OrderedDict()  # the next flow to serve first
        self._serving: asyncio.Task[None] | None = None

    async def take(self) -> None:
        """Wait for one's turn; cancelling gives it to the next."""
        if not self._waiting and self._wait_seconds() <= 0:
            self._spend()
            return
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(_FLOW.get(), deque()).append(waiter)
        if self._serving is None or self._serving.done():
            self._serving = asyncio.create_task(self._serve(), name="request rate")
        await waiter

    async def _serve(self) -> None:
        """Give turns until nobody waits."""
        while self._waiting:
            wait = self._wait_seconds()
            if wait > 0:
                await self._clock.sleep(wait)
            waiter = self._pop()
            if waiter is not None:
                self._spend()
                waiter.set_result(None)

    def _pop(self) -> asyncio.Future[None] | None:
        """The next turn that somebody still waits for; its flow goes to the end of the line."""
        while self._waiting:
            name, waiters = self._waiting.popitem(last=False)
            waiter = waiters.popleft()
            if waiters:
                self._waiting[name] = waiters
            if not waiter.done():
                return waiter
        return None

    def _wait_seconds(self) -> float:
        return max(self._next, self._clock.monotonic()) - self._slack - self._clock.monotonic()

    def _spend(self) -> None:
        self._next = max(self._next, self._clock.monotonic()) + self._gap
