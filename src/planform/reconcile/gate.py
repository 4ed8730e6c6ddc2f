"""The CPU gate: a few reconciles compute at a time, and the controllers take turns.

All of the process shares one event loop. If a commit wakes a thousand reconciles at once, the loop runs a step of each
before it looks at the network again, and every API request waits behind them. So a reconcile needs a turn for each
step it computes, from one wait to the next, and few turns are given out per round of the loop. A free turn goes to the
controller that has waited longest for one: ten thousand keys of one do not starve the single key of another.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import AsyncIterator, Coroutine, Generator
from contextlib import asynccontextmanager
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class Gate:
    """At most `turns` holders at a time. Waiting is first come, first served within a name, and in rotation across."""

    def __init__(self, turns: int = 4) -> None:
        if turns < 1:
            raise ValueError(f"a gate needs at least one turn, not {turns}")
        self._free = turns
        self._waiting: OrderedDict[str, deque[asyncio.Future[None]]] = OrderedDict()  # no empty lines; next name first

    @property
    def free(self) -> int:
        return self._free

    def waiting(self, name: str) -> int:
        return len(self._waiting.get(name, ()))

    async def run(self, name: str, work: Coroutine[Any, Any, T]) -> T:
        """Await the work, whose every step from one wait to the next takes a turn; while it waits, others have it.

        Tasks that the work starts are its own business: they take no turns unless they are run here too.
        """
        return await _InTurns(self, name, work)

    @asynccontextmanager
    async def turn(self, name: str) -> AsyncIterator[None]:
        """Hold a turn for the whole block, waits included; for work that computes elsewhere, such as in a thread."""
        await self._take(name)
        try:
            yield
        finally:
            self._give()

    def _try_take(self) -> bool:
        if self._free and not self._waiting:
            self._free -= 1
            return True
        return False

    async def _take(self, name: str) -> None:
        if self._try_take():
            return
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(name, deque()).append(waiter)
        try:
            await waiter
        except asyncio.CancelledError:
            if waiter.done() and not waiter.cancelled():
                self._give()  # the turn had come, and nobody is there to use it
            else:
                self._leave(name, waiter)
            raise

    def _give(self) -> None:
        """Hand the turn to the next name in rotation, or keep it free."""
        while self._waiting:
            name, line = self._waiting.popitem(last=False)
            waiter = line.popleft()
            if line:
                self._waiting[name] = line  # to the end of the rotation
            if not waiter.done():
                waiter.set_result(None)
                return
        self._free += 1

    def _leave(self, name: str, waiter: asyncio.Future[None]) -> None:
        line = self._waiting.get(name)
        if line is not None and waiter in line:
            line.remove(waiter)
            if not line:
                del self._waiting[name]


class _InTurns(Generic[T]):
    """Drives a coroutine step by step, each in a turn."""

    __slots__ = ("_gate", "_name", "_work")

    def __init__(self, gate: Gate, name: str, work: Coroutine[Any, Any, T]) -> None:
        self._gate = gate
        self._name = name
        self._work = work

    def __await__(self) -> Generator[Any, Any, T]:
        gate, work = self._gate, self._work
        # A turn comes back one round of the loop after its step: those who run in the same round need another one.
        next_round = asyncio.get_running_loop().call_soon
        error: BaseException | None = None
        try:
            while True:
                has_turn = gate._try_take()
                if not has_turn:
                    try:
                        yield from gate._take(self._name).__await__()
                        has_turn = True
                    except asyncio.CancelledError as cancelled:
                        error = cancelled  # the work hears of it without a turn, for it is on its way out
                try:
                    awaited = work.send(None) if error is None else work.throw(error)
                except StopIteration as end:
                    value: T = end.value
                    return value
                finally:
                    if has_turn:
                        next_round(gate._give)
                error = None
                try:
                    yield awaited
                except GeneratorExit:
                    raise
                except BaseException as thrown:
                    error = thrown
        finally:
            work.close()
