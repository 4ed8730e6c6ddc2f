"""A client whose watches are disturbed as those of a busy cluster are, from a seed.

Events come late, come twice, or get lost together with their stream: it is closed, fails, or has expired, as an API
server closes, fails and expires it. A stream that is resumed may begin earlier than it was asked to. Never is an event
lost from a stream that goes on: no server does that, and nobody could notice.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random
from typing import Any

from planform.api.kinds import GroupVersionKind
from planform.client.protocol import Client, Watch, WatchEvent
from planform.clock import Clock
from planform.errors import Expired, ServiceUnavailable

CLOSED, FAILED, EXPIRED = 0.06, 0.03, 0.05
"""How likely an event is lost with its stream, and how the stream ends then."""
LATE, TWICE, EARLIER = 0.3, 0.25, 0.5
MAX_SECONDS_LATE = 0.6
KEPT = 16


class DisturbedWatches:
    """A `Client` with such watches; `counted` says how often each kind of disturbance happened."""

    def __init__(self, client: Client, *, clock: Clock, seed: int) -> None:
        self._client = client
        self._clock = clock
        self._rng = Random(seed)
        self._told: dict[GroupVersionKind, deque[str]] = {}
        self.counted: Counter[str] = Counter()
        self.kind = client.kind
        self.get = client.get
        self.list = client.list
        self.create = client.create
        self.update = client.update
        self.patch = client.patch
        self.apply = client.apply
        self.delete = client.delete
        self.delete_collection = client.delete_collection

    def watch(self, gvk: GroupVersionKind, *, resource_version: str = "", **asked: Any) -> Watch:
        return self._watch(gvk, self._start(gvk, resource_version), asked)

    def _start(self, gvk: GroupVersionKind, resource_version: str) -> str:
        """Where the stream begins: what was told since is told once more, in its order."""
        told = self._told.setdefault(gvk, deque(maxlen=KEPT))
        if resource_version in told and self._happens("earlier", EARLIER):
            return self._rng.choice(list(told))
        return resource_version

    @asynccontextmanager
    async def _watch(
        self, gvk: GroupVersionKind, start: str, asked: dict[str, Any]
    ) -> AsyncIterator[AsyncIterator[WatchEvent]]:
        async with self._client.watch(gvk, resource_version=start, **asked) as events:
            yield self._disturbed(gvk, events)

    async def _disturbed(self, gvk: GroupVersionKind, events: AsyncIterator[WatchEvent]) -> AsyncIterator[WatchEvent]:
        told = self._told[gvk]
        async for event in events:
            if self._happens("late", LATE):
                await self._clock.sleep(self._rng.uniform(0, MAX_SECONDS_LATE))
            if self._happens("closed", CLOSED):
                return
            if self._happens("failed", FAILED):
                raise ServiceUnavailable("the connection was reset")
            if self._happens("expired", EXPIRED):
                told.clear()
                raise Expired("too old resource version")
            told.append(event.object["metadata"]["resourceVersion"])
            yield event
            if self._happens("twice", TWICE):
                yield event

    def _happens(self, what: str, likelihood: float) -> bool:
        happens = self._rng.random() < likelihood
        self.counted[what] += happens
        return happens
