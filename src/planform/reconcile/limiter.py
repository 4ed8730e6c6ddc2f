"""The concurrency limiter: a few reconciles compute at a time, and the controllers share its slots in rotation.

All of the process shares one event loop. If a commit wakes a thousand reconciles at once, the loop runs a step of each
before it looks at the network again, and every API request waits behind them. So a reconcile acquires a slot for each
step it computes, from one wait to the next, and there are few slots per round of the loop. A free slot goes to the
controller that has waited longest for one: ten thousand keys of one do not starve the single key of another.

What has begun is finished before more begins: its result is near, and what would begin may be made needless by it. Who
has something more urgent to begin goes first: what it does may be what the others wait for.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import AsyncIterator, Callable, Coroutine, Generator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from math import inf
from typing import Any, Generic, Protocol, TypeVar

from planform.reconcile import queue

T = TypeVar("T")

PATIENCE = 32
"""So many slots in a row may go past those who would begin; then one of them gets a slot."""

STANDSTILL_SECONDS = 0.05
"""A controller whose worker slots are all taken, and which acquired no slot for so long, holds up nobody: its work
waits for something else."""


class Urgent(Protocol):
    """Says how urgent it is to begin: what has the lowest number goes first, and 0 waits for nobody.

    It is asked far more often than it changes, so it is not a function.
    """

    @property
    def urgency(self) -> int: ...


_Waiter = tuple["asyncio.Future[None]", Urgent | None]
"""With what it would begin; None if it has begun."""
_Queues = OrderedDict[str, "deque[_Waiter]"]
"""By name, the next in rotation first; none is empty."""


@dataclass(frozen=True, slots=True)
class _Member:
    """Somebody who begins work here."""

    name: str
    work: Urgent
    has_free_worker_slots: Callable[[], bool]


class ConcurrencyLimiter:
    """At most `slots` holders at a time. Waiting is first come, first served within a name, and in rotation across."""

    def __init__(self, slots: int = 4) -> None:
        if slots < 1:
            raise ValueError(f"a limiter needs at least one slot, not {slots}")
        self._free = slots
        self._begun: _Queues = OrderedDict()
        self._beginning: _Queues = OrderedDict()
        self._members: dict[object, _Member] = {}
        self._last_acquired: dict[str, float] = {}  # when a member's work last acquired a slot, in the loop's time
        self._alarm: asyncio.TimerHandle | None = None  # while some wait for members, who may come to a standstill
        self._kept_back = 0  # slots in a row that went past those who would begin
        self._passed_over: dict[
            int, int
        ] = {}  # by urgency of those who would begin: slots given to others since the last

    @property
    def free(self) -> int:
        return self._free

    def waiting(self, name: str) -> int:
        return len(self._begun.get(name, ())) + len(self._beginning.get(name, ()))

    @contextmanager
    def member(self, name: str, work: Urgent, has_free_worker_slots: Callable[[], bool]) -> Iterator[None]:
        """While this one has something to begin, those with less urgent things wait.

        They do so while its worker slots are all taken as well: what it has begun is going to end. Not if none of it
        has run for `STANDSTILL_SECONDS`.
        """
        token = object()
        self._members[token] = _Member(name, work, has_free_worker_slots)
        try:
            yield
        finally:
            del self._members[token]
            self._last_acquired.pop(name, None)
            self.reconsider()

    async def run(self, name: str, work: Coroutine[Any, Any, T], *, to_begin: Urgent | None = None) -> T:
        """Await the work, whose every step from one wait to the next takes a slot; while it waits, others have it.

        Tasks that the work starts are its own business: they take no slots unless they are run here too. Members with
        something more urgent begin first; what has begun, and so has nothing `to_begin`, is not held up.
        """
        return await _Limited(self, name, work, to_begin)

    @asynccontextmanager
    async def slot(self, name: str) -> AsyncIterator[None]:
        """Hold a slot for the whole block, waits included; for work that computes elsewhere, such as in a thread."""
        if not self._try_acquire():
            waiter = self._enqueue(name)
            try:
                await waiter
            except asyncio.CancelledError:
                self._withdraw(name, waiter)
                raise
        try:
            yield
        finally:
            self._release()

    def _try_acquire(self, to_begin: Urgent | None = None) -> bool:
        # Not past those who wait, even if a slot is free: it is on its way to one of them.
        if not self._free or self._begun:
            return False
        if to_begin is not None and (self._beginning or self._must_wait(to_begin.urgency)):
            return False
        self._free -= 1
        return True

    def _enqueue(self, name: str, to_begin: Urgent | None = None) -> asyncio.Future[None]:
        """What is to be awaited; whoever is cancelled meanwhile has to withdraw."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        lines = self._begun if to_begin is None else self._beginning
        line = lines.get(name)
        if line is None:
            line = lines[name] = deque()
        line.append((waiter, to_begin))
        if self._free:
            self.reconsider()  # those who wait may all wait for somebody who does not
        return waiter

    def _withdraw(self, name: str, waiter: asyncio.Future[None], to_begin: Urgent | None = None) -> None:
        if waiter.done() and not waiter.cancelled():
            self._release()  # the slot was given, and nobody is there to use it
        else:
            _remove(self._begun if to_begin is None else self._beginning, name, (waiter, to_begin))

    def _release(self) -> None:
        self._free += 1
        self.reconsider()

    def reconsider(self) -> None:
        """Give free slots to those who are next; to be called by who no longer has anything to begin."""
        while self._free:
            waiter = self._next()
            if waiter is None:
                if self._beginning and self._alarm is None:
                    self._alarm = asyncio.get_running_loop().call_later(STANDSTILL_SECONDS, self._look_again)
                return
            # A waiter that was cancelled stays in its queue until its task runs again; it gets no slot, or that slot
            # would be lost. One that is cancelled after this has its slot already, and gives it back in `_withdraw`.
            if not waiter.done():
                self._free -= 1
                waiter.set_result(None)

    def _look_again(self) -> None:
        self._alarm = None
        self.reconsider()

    def _next(self) -> asyncio.Future[None] | None:
        """Who gets the next slot, taken out of its queue; None if nobody waits, or all for others."""
        if self._begun and self._kept_back < PATIENCE:
            self._kept_back += bool(self._beginning)
            return _first(self._begun)
        self._kept_back = 0
        name = self._next_to_begin()
        if name is not None:
            return _first(self._beginning, name)
        return _first(self._begun) if self._begun else None

    def _next_to_begin(self) -> str | None:
        """The most urgent, or who was passed over too often; None if all that would begin must wait for others."""
        if not self._beginning:
            return None
        waiting: dict[int, str] = {}  # of those who are as urgent, the first in rotation
        for name, line in self._beginning.items():
            to_begin = line[0][1]
            waiting.setdefault(0 if to_begin is None else to_begin.urgency, name)
        passed_over = self._passed_over
        for each in waiting:
            times = passed_over.get(each)
            if times and times >= _patience(each):
                chosen = each
                break
        else:
            chosen = min(waiting)
            if self._must_wait(chosen):
                return None
        for each in waiting:
            passed_over[each] = passed_over.get(each, 0) + 1 if each > chosen else 0
        return waiting[chosen]

    def _must_wait(self, urgency: int) -> bool:
        """Whether a member has something to begin that is more urgent than this."""
        if urgency:
            for member in self._members.values():
                if member.work.urgency < urgency and self._is_working(member):
                    return True
        return False

    def _is_working(self, member: _Member) -> bool:
        if member.has_free_worker_slots():
            return True
        since = self._last_acquired.get(member.name, -inf)
        return asyncio.get_running_loop().time() - since < STANDSTILL_SECONDS


def _patience(urgency: int) -> float:
    """So many of the slots to begin may go to what is more urgent, as keys of a queue may be overtaken."""
    return queue.PATIENCE[min(urgency, len(queue.PATIENCE) - 1)]


def _first(lines: _Queues, name: str | None = None) -> asyncio.Future[None]:
    """Take the first of this line, or of the next one, out of it, and send the rest to the end of the rotation."""
    name = next(iter(lines)) if name is None else name
    line = lines.pop(name)
    waiter, _ = line.popleft()
    if line:
        lines[name] = line
    return waiter


def _remove(lines: _Queues, name: str, entry: _Waiter) -> None:
    line = lines.get(name)
    if line is not None and entry in line:
        line.remove(entry)
        if not line:
            del lines[name]


class _Limited(Generic[T]):
    """Drives a coroutine step by step, each in a slot."""

    __slots__ = ("_limiter", "_name", "_to_begin", "_work")

    def __init__(
        self, limiter: ConcurrencyLimiter, name: str, work: Coroutine[Any, Any, T], to_begin: Urgent | None
    ) -> None:
        self._limiter = limiter
        self._name = name
        self._work = work
        self._to_begin = to_begin

    def __await__(self) -> Generator[Any, Any, T]:
        limiter, name, work, to_begin = self._limiter, self._name, self._work, self._to_begin
        loop = asyncio.get_running_loop()
        # A slot comes back one round of the loop after its step: those who run in the same round need another one.
        next_round = loop.call_soon
        error: BaseException | None = None
        try:
            while True:
                has_slot = limiter._try_acquire(to_begin)
                if not has_slot:
                    waiter = limiter._enqueue(name, to_begin)
                    try:
                        yield from waiter
                        has_slot = True
                    except asyncio.CancelledError as cancelled:
                        limiter._withdraw(name, waiter, to_begin)
                        error = cancelled  # the work hears of it without a slot, for it is on its way out
                try:
                    awaited = work.send(None) if error is None else work.throw(error)
                except StopIteration as end:
                    value: T = end.value
                    return value
                finally:
                    if has_slot:
                        limiter._last_acquired[name] = loop.time()
                        next_round(limiter._release)
                error = to_begin = None
                try:
                    yield awaited
                except GeneratorExit:
                    raise
                except BaseException as thrown:
                    error = thrown
        finally:
            work.close()
