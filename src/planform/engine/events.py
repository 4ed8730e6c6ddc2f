"""Events go after an hour. One timer waits for the oldest; there is none for each event."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import orjson

from planform.api.metadata import created_at
from planform.apiserver.verbs.core import Core
from planform.clock import parse_timestamp
from planform.reconcile.controller import Controller, Result
from planform.store import Change, ChangeType, Key

_ALL = "expire"
_SLICE = 200


class EventExpiry:
    """Keeps events in the order of their last write; the queue holds one key, due when the oldest is."""

    def __init__(self, core: Core, controller: Callable[..., Controller[Any]], *, ttl: timedelta) -> None:
        self._core = core
        self._ttl = ttl.total_seconds()
        self._due: deque[tuple[float, Key, int]] = deque()
        self.controller: Controller[str] = controller("event-expiry", self._reconcile, 1)

    def begin(self) -> None:
        now, monotonic = self._core.clock.now(), self._core.clock.monotonic()
        found = []
        for key, entry in self._core.store.list("events"):
            written = _last_written(orjson.loads(entry.value))
            age = (now - written).total_seconds() if written is not None else 0.0
            found.append((monotonic + self._ttl - age, key, entry.rv))
        self._due.extend(sorted(found))
        self._wake()

    def changed(self, changes: Sequence[Change]) -> None:
        idle = not self._due
        for change in changes:
            if change.key.resource == "events" and change.type is not ChangeType.DELETED:
                self._due.append((self._core.clock.monotonic() + self._ttl, change.key, change.rv))
        if idle:
            self._wake()

    def _wake(self) -> None:
        if self._due:
            self.controller.queue.add_after(_ALL, max(0.0, self._due[0][0] - self._core.clock.monotonic()))

    async def _reconcile(self, key: str) -> Result:
        now, removed = self._core.clock.monotonic(), 0
        while self._due and self._due[0][0] <= now and removed < _SLICE:
            _, event, rv = self._due.popleft()
            head = self._core.store.head(event)
            if head is None or head.rv != rv:
                continue
            last = orjson.loads(head.value)
            last["metadata"]["resourceVersion"] = str(self._core.store.next_revision())
            await self._core.store.stage(event, None, last=orjson.dumps(last))
            removed += 1
        if not self._due:
            return Result()
        return Result(requeue_after=max(0.0, self._due[0][0] - self._core.clock.monotonic()))


def _last_written(event: dict[str, Any]) -> Any:
    for field in ("lastTimestamp", "eventTime", "firstTimestamp"):
        if isinstance(event.get(field), str):
            try:
                return parse_timestamp(event[field])
            except ValueError:
                continue
    return parse_timestamp(created_at(event))
