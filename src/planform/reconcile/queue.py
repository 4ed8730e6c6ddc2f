"""A queue of keys: each waits at most once, is worked on by one worker at a time, and comes back later after a failure.

A key added while it is being worked on is handed out again afterwards, so no change is missed and no two workers meet
on one key. Memory is bounded by the number of distinct keys; there is one timer for all that waits, and none at rest.

Whoever works on a key may say which version of its object it has observed. An event about that version, or one before
it, is then no reason to look again.

Whoever works on a key also says what it wrote. Hearing of that brings the key back, for it may matter, but never sooner
than a failure lets it: or one that says something new about itself each time would never wait. The same holds for a key
that is only ever brought back by what was written for it.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import math
from collections import OrderedDict, deque
from collections.abc import Collection, Hashable
from enum import IntEnum
from random import Random
from types import TracebackType
from typing import Generic, NamedTuple, Self, TypeVar

from planform.client.waits import Backoff
from planform.clock import Clock

K = TypeVar("K", bound=Hashable)

PATIENCE = (math.inf, 8, 8, 64)
"""By priority: so many keys may overtake the keys of its line; then one of those is handed out. Nothing overtakes the
first. What only waits in the background is often made needless by what overtakes it."""

SLICE = 500
"""So many keys may become ready before others on the event loop run."""

MAX_PACE = 1.0
"""However slow the work has become, no change waits longer for others about its key."""

ANY_VERSION = math.inf
"""Of a wish that is not about one version of the key's own object."""

FED_BY_ITSELF = 8
"""So often in a row a key may come back at once because of nothing but what was written for it."""

_REMEMBERED_WRITES = 64


class Priority(IntEnum):
    """Who goes first. A key that waits rises when it is added again more urgently; it never sinks."""

    USER = 0  # somebody is looking: they created or changed the object
    NORMAL = 1  # something it depends on changed, or it asked to come back
    FOLLOW_UP = 2  # its controller created or changed it: whoever is looking looks at that one first
    BACKGROUND = 3  # nothing is known to have changed: first sight at start-up, a periodic look


IDLE = len(Priority)
"""Less urgent than anything."""


class _Wish(NamedTuple):
    """A change that arrived while its key is being worked on; whoever works on it may have made it."""

    moment: float
    priority: Priority
    version: float


class QueueClosed(Exception):
    """The queue is closed."""


class WorkQueue(Generic[K]):
    """Gives keys with `get`, takes them back with `done`. Use it as a context manager: leaving closes it."""

    def __init__(
        self,
        *,
        clock: Clock,
        rng: Random,
        backoff: Backoff = Backoff(),  # noqa: B008  (frozen)
        fed_by_itself: float = FED_BY_ITSELF,
    ) -> None:
        self._fed_by_itself = fed_by_itself
        self._clock = clock
        self._rng = rng
        self._backoff = backoff
        self._ready: tuple[OrderedDict[K, float], ...] = tuple(OrderedDict() for _ in Priority)
        self._priorities: dict[K, Priority] = {}  # of each key in _ready, the line it stands in
        self._processing: dict[K, float] = {}  # since when
        self._again: dict[K, Priority] = {}  # keys added while they are processed; a subset of _processing
        self._due: dict[K, tuple[float, Priority]] = {}  # the moment at which a delayed key becomes ready
        self._schedule: list[tuple[float, int, K]] = []  # a heap; entries that disagree with _due are void
        self._order = itertools.count()
        self._failures: dict[K, int] = {}
        self._newest: dict[K, float] = {}  # the newest version wished for since the key was handed out last
        self._observed_versions: dict[
            K, float
        ] = {}  # the version of a key's object that was observed, until an event about it came
        self._changes: dict[K, dict[float, _Wish]] = {}  # told while the key is processed, by the change's version
        self._own: dict[K, tuple[float, ...]] = {}  # versions that were written for the key lately
        self._held: dict[K, float] = {}  # the moment before which what was written for a key does not bring it back
        self._news: set[K] = set()  # keys that wait for more than what was written for them
        self._fed: dict[K, int] = {}  # how often in a row a key came back for nothing but that
        self._pace = 0.0
        self._alarm: asyncio.Task[None] | None = None
        self._getters: deque[asyncio.Future[None]] = deque()
        self._overtaken: dict[int, int] = {}  # by priority of the lines that wait: keys that went before since the last
        self._closed = False
        self.urgency: int = IDLE
        """The priority of the most urgent key that could be handed out; IDLE if there is none."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __len__(self) -> int:
        """Keys that could be handed out now."""
        return len(self._priorities)

    @property
    def is_closed(self) -> bool:
        return self._closed

    @property
    def delayed(self) -> int:
        """Keys that wait for their time."""
        return len(self._due)

    @property
    def processing(self) -> int:
        """Keys that are being worked on."""
        return len(self._processing)

    def oldest_wait(self) -> float:
        """Seconds that the first key of the slowest line has been ready."""
        heads = [next(iter(line.values())) for line in self._ready if line]
        return self._clock.monotonic() - min(heads) if heads else 0.0

    @property
    def pace(self) -> float:
        """Seconds that a key has lately been worked on: few when there is little to do."""
        return min(self._pace, MAX_PACE)

    def add(self, key: K, *, priority: Priority = Priority.NORMAL, version: float = ANY_VERSION) -> None:
        """Have the key handed out as soon as it is its turn. `version` is the one of its object that is told, if that
        is all there is to tell."""
        if self._closed or self._is_known(key, version):
            return
        self._news.add(key)
        self._add(key, priority)

    def _add(self, key: K, priority: Priority) -> None:
        if key in self._processing:
            self._again[key] = min(priority, self._again.get(key, priority))
            return
        current = self._priorities.get(key)
        if current is not None:
            if priority < current:
                since = self._ready[current].pop(key)
                self._stand(key, priority, since)
            return
        self._stand(key, priority, self._clock.monotonic())
        self._wake_one()

    def add_after(
        self,
        key: K,
        seconds: float,
        *,
        priority: Priority = Priority.NORMAL,
        version: float = ANY_VERSION,
        change: float = ANY_VERSION,
    ) -> None:
        """Add the key once that much time has passed; of several such wishes for a key the earliest counts.

        `change` is the version of whatever object changed, if that is the reason: who works on the key may have
        written it.
        """
        if self._closed or self._is_known(key, version):
            return
        if change != ANY_VERSION and key in self._processing:  # whose it is will be known when the key is done
            wish = _Wish(self._clock.monotonic() + seconds, priority, version)
            self._changes.setdefault(key, {})[change] = wish
            return
        if change in self._own.get(key, ()):
            seconds = max(seconds, self._held.get(key, 0.0) - self._clock.monotonic())
        else:
            self._news.add(key)
        if seconds <= 0:
            self._add(key, priority)
            return
        moment = self._clock.monotonic() + seconds
        known = self._due.get(key)
        if known is not None and known[0] <= moment:
            if priority < known[1]:
                self._due[key] = (known[0], priority)
            return
        self._due[key] = (moment, priority if known is None else min(priority, known[1]))
        heapq.heappush(self._schedule, (moment, next(self._order), key))
        if len(self._schedule) > 2 * len(self._due) + 64:
            self._schedule = [entry for entry in self._schedule if self._holds(entry)]
            heapq.heapify(self._schedule)
        if self._schedule[0][2] == key:
            self._set_alarm()

    def add_rate_limited(
        self, key: K, *, backoff: Backoff | None = None, priority: Priority = Priority.NORMAL
    ) -> float:
        """Add the key again after a failure; give the seconds it has to wait, longer with every failure in a row."""
        delay = self._fail(key, backoff or self._backoff)
        self.add_after(key, delay, priority=priority)
        return delay

    def give_up(self, key: K, seconds: float) -> None:
        """Add the key again after a failure that only a change will mend: after so long if none comes. What was written
        for it, such as why it failed, brings it back as after any failure."""
        self._fail(key, self._backoff)
        self.add_after(key, seconds)

    def _fail(self, key: K, backoff: Backoff) -> float:
        failures = self._failures[key] = self._failures.get(key, 0) + 1
        delay = backoff.delay(failures, self._rng)
        self._held[key] = self._clock.monotonic() + delay
        return delay

    def forget(self, key: K) -> None:
        """The key did not fail this time: count its failures from nothing."""
        self._failures.pop(key, None)

    def failures(self, key: K) -> int:
        return self._failures.get(key, 0)

    async def ready(self) -> None:
        """Wait until there is a key to hand out; raises QueueClosed once the queue is closed."""
        while not self._priorities:
            if self._closed:
                raise QueueClosed
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._getters.append(waiter)
            try:
                await waiter
            except asyncio.CancelledError:
                if waiter.done() and not waiter.cancelled():
                    self._wake_one()  # the wake-up was for us; pass it on
                raise
            finally:
                if waiter in self._getters:
                    self._getters.remove(waiter)
        if self._closed:
            raise QueueClosed

    def get_nowait(self) -> K:
        """The next key, the caller's until `done`; raises LookupError if none is ready.

        Handing a key out fulfils every wish for it, also those for later: what is still wanted is said afterwards.
        """
        if not self._priorities or self._closed:
            raise LookupError("no key is ready")
        line = self._next_line()
        key, _ = line.popitem(last=False)
        del self._priorities[key]
        if not line:
            self.urgency = next((priority for priority, keys in enumerate(self._ready) if keys), IDLE)
        self._due.pop(key, None)
        self._newest.pop(key, None)
        self._observed_versions.pop(key, None)
        self._held.pop(key, None)
        if key in self._news:
            self._news.discard(key)
            self._fed.pop(key, None)
        else:
            self._fed[key] = self._fed.get(key, 0) + 1
        self._processing[key] = self._clock.monotonic()
        if self._priorities:
            self._wake_one()
        return key

    async def get(self) -> K:
        """Wait for the next key; raises QueueClosed once the queue is closed. Call `done` afterwards, whatever came."""
        await self.ready()
        return self.get_nowait()

    def set_observed_version(self, key: K, version: float) -> None:
        """Whoever has the key in hand knows all that its object says up to this version: no need to come back for it.

        What else was wished meanwhile still holds.
        """
        if self._newest.get(key, ANY_VERSION) <= version:
            self._again.pop(key, None)
            self._due.pop(key, None)
            self._changes.pop(key, None)
        self._observed_versions[key] = version

    def done(self, key: K, *, own: Collection[float] = ()) -> None:
        """The caller has finished with the key; if it was added meanwhile, it is ready again. `own` are the versions of
        what was written for it."""
        now = self._clock.monotonic()
        took = now - self._processing.pop(key)
        self._pace += (took - self._pace) / 16
        self._note(key, own, now)
        priority = self._again.pop(key, None)
        if priority is not None:
            self.add(key, priority=priority, version=self._newest.get(key, ANY_VERSION))
        for change, wish in self._changes.pop(key, {}).items():
            self.add_after(key, wish.moment - now, priority=wish.priority, version=wish.version, change=change)

    def _note(self, key: K, own: Collection[float], now: float) -> None:
        """Remember what was written for the key, and hold it back if it keeps feeding itself."""
        if not own:
            self._own.pop(key, None)
            self._fed.pop(key, None)
            return
        self._own[key] = (*self._own.get(key, ()), *own)[-_REMEMBERED_WRITES:]
        rounds = self._fed.get(key, 0) - self._fed_by_itself
        if rounds > 0:
            held = now + self._backoff.delay(int(rounds), self._rng)
            self._held[key] = max(held, self._held.get(key, 0.0))

    def close(self) -> None:
        """Give out nothing more and forget what waits; keys that are being worked on may still be given back."""
        self._closed = True
        self.urgency = IDLE
        self._priorities.clear()
        self._due.clear()
        self._schedule.clear()
        self._again.clear()
        self._failures.clear()
        self._newest.clear()
        self._observed_versions.clear()
        self._changes.clear()
        self._own.clear()
        self._held.clear()
        self._news.clear()
        self._fed.clear()
        for line in self._ready:
            line.clear()
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
        for waiter in self._getters:
            if not waiter.done():
                waiter.set_result(None)

    def _is_known(self, key: K, version: float) -> bool:
        """Whether a request is only about versions that were observed; if not, the newest one is noted."""
        observed_version = self._observed_versions.get(key)
        if observed_version is not None:
            if version <= observed_version:
                return True
            del self._observed_versions[key]  # what comes now is newer
        if version > self._newest.get(key, 0.0):
            self._newest[key] = version
        return False

    def _stand(self, key: K, priority: Priority, since: float) -> None:
        self._priorities[key] = priority
        self._ready[priority][key] = since
        if priority < self.urgency:
            self.urgency = priority

    def _next_line(self) -> OrderedDict[K, float]:
        """The most urgent line, or one that was overtaken too often, so that none waits for ever."""
        waiting = [priority for priority, line in enumerate(self._ready) if line]
        chosen, *others = waiting
        overtaken = self._overtaken
        overdue = [each for each in others if overtaken.get(each, 0) >= PATIENCE[each]]
        if overdue:
            chosen = min(overdue, key=lambda each: next(iter(self._ready[each].values())))
        self._overtaken = {each: overtaken.get(each, 0) + (each > chosen) for each in others if each != chosen}
        return self._ready[chosen]

    def _wake_one(self) -> None:
        while self._getters:
            waiter = self._getters.popleft()
            if not waiter.done():
                waiter.set_result(None)
                return

    def _holds(self, entry: tuple[float, int, K]) -> bool:
        due = self._due.get(entry[2])
        return due is not None and due[0] == entry[0]

    def _set_alarm(self) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
        self._alarm = asyncio.create_task(self._wait_for_schedule(), name="queue-alarm")

    async def _wait_for_schedule(self) -> None:
        """Move keys to the ready lines as their time comes; ends when nothing is delayed."""
        moved = itertools.count(1)
        while self._schedule:
            moment, _, key = self._schedule[0]
            if not self._holds(self._schedule[0]):
                heapq.heappop(self._schedule)
            elif moment <= self._clock.monotonic():
                heapq.heappop(self._schedule)
                _, priority = self._due.pop(key)
                if not self._is_known(key, self._newest.get(key, ANY_VERSION)):
                    self._add(key, priority)
                if next(moved) % SLICE == 0:
                    await asyncio.sleep(0)
            else:
                await self._clock.sleep(moment - self._clock.monotonic())
        self._alarm = None
