"""The CPU gate: a few reconciles compute at a time, and the controllers take turns.

With one event loop, a thousand reconciles at once only make each other, and every API request, late. A reconcile holds
a turn while it computes and puts it aside while it waits for something slow, such as a function. A free turn goes to
the controller that has waited longest for one, so ten thousand keys of one do not starve the single key of another.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from contextvars import ContextVar


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

    @asynccontextmanager
    async def turn(self, name: str) -> AsyncIterator[None]:
        """Wait for a turn and hold it; inside, `aside()` gives it to others for a while."""
        await self._take(name)
        held = _Held(self, name)
        token = _HELD.set(held)
        try:
            yield
        finally:
            _HELD.reset(token)
            if held.has_turn:
                self._give()

    async def _take(self, name: str) -> None:
        if self._free and not self._waiting:
            self._free -= 1
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


class _Held:
    """Whether the reconcile of this task has its turn just now."""

    __slots__ = ("gate", "has_turn", "name")

    def __init__(self, gate: Gate, name: str) -> None:
        self.gate = gate
        self.name = name
        self.has_turn = True

    async def retake(self) -> None:
        await self.gate._take(self.name)
        self.has_turn = True


_HELD: ContextVar[_Held | None] = ContextVar("held_turn", default=None)


@asynccontextmanager
async def aside() -> AsyncIterator[None]:
    """Let others compute while this reconcile, or a task it started, waits for something slow.

    Does nothing where no turn is held. A cancelled wait does not queue for its turn again: it is on its way out.
    """
    held = _HELD.get()
    if held is None or not held.has_turn:
        yield
        return
    held.has_turn = False
    held.gate._give()
    try:
        yield
    except asyncio.CancelledError:
        raise
    except BaseException:
        await held.retake()
        raise
    else:
        await held.retake()
