"""Events that tell users what happened, written beside the work and never in its way.

The same thing is told once: an event whose reason and text equal the last one of that object is not written again, so
a reconcile that finds nothing new writes nothing. Who finds something new to say about an object each time is held to a
rate, as in every Kubernetes client; functions cannot use up the part of it that the control plane needs itself. What
cannot be written, or is more than fits, is dropped and counted.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final, Literal

from planform.api.kinds import Object
from planform.api.metadata import name_of, namespace_of, uid_of
from planform.apimachinery.names import child_name
from planform.client.protocol import Client
from planform.clock import Clock, timestamp
from planform.errors import PlanformError
from planform.telemetry.metrics import MetricsRegistry

EventKind = Literal["Normal", "Warning"]

_WAITING: Final = 10_000
_REMEMBERED: Final = 50_000
_MESSAGE_LENGTH: Final = 1024
EVENT_BURST: Final = 20
"""So many events a controller tells of an object at once; functions' own words are the first to be dropped."""
EVENT_REFILL_SECONDS: Final = 300.0
_KEPT_FOR_CONTROL_PLANE: Final = 5
_AT_ONCE: Final = 32

_logger = logging.getLogger(__name__)


class Events:
    """Takes events from anybody; one task writes them. `record` never waits and never fails."""

    def __init__(self, client: Client, *, clock: Clock, metrics: MetricsRegistry) -> None:
        self._client = client
        self._clock = clock
        self._queue: asyncio.Queue[Object] = asyncio.Queue(_WAITING)
        self._last: OrderedDict[tuple[str, str], tuple[str, str]] = OrderedDict()
        self._buckets: OrderedDict[tuple[str, str], tuple[float, float]] = OrderedDict()  # events left, and since when
        self._count = 0
        self._dropped = metrics.counter(
            "planform_events_dropped_total", "Events that were not written, by why.", ["reason"]
        )

    def record(
        self, about: Mapping[str, Any], kind: EventKind, reason: str, message: str, *, by: str, slot: str = ""
    ) -> None:
        """Tell that something happened to an object; `by` is the controller that says so.

        What has the same reason but another `slot` is another matter: one does not make the other news again. What
        functions say has a slot.
        """
        uid = uid_of(about)
        if not self._is_news(uid, f"{reason}/{slot}", kind, message):
            return
        if not self._may_record(uid, by, spare=_KEPT_FOR_CONTROL_PLANE if slot else 0):
            self._dropped.labels("rate").inc()
            del self._last[uid, f"{reason}/{slot}"]  # nobody was told
            return
        try:
            self._queue.put_nowait(self._event(about, kind, reason, message[:_MESSAGE_LENGTH], by))
        except asyncio.QueueFull:
            self._dropped.labels("full").inc()

    async def written(self) -> None:
        """Wait until everything that was recorded has been written."""
        await self._queue.join()

    async def run(self) -> None:
        """Write until cancelled, several at once so that they share a commit."""
        while True:
            batch = [await self._queue.get()]
            while len(batch) < _AT_ONCE and not self._queue.empty():
                batch.append(self._queue.get_nowait())
            try:
                if len(batch) == 1:  # needs no task of its own
                    await self._write(batch[0])
                else:
                    await asyncio.gather(*map(self._write, batch))
            finally:
                for _ in batch:
                    self._queue.task_done()

    async def _write(self, event: Object) -> None:
        try:
            await self._client.create(event)
        except PlanformError as error:
            self._dropped.labels(error.reason).inc()
            _logger.debug("event %s was not written: %s", event["reason"], error)

    def _is_news(self, uid: str, matter: str, kind: str, message: str) -> bool:
        key, event = (uid, matter), (kind, message)
        if self._last.get(key) == event:
            self._last.move_to_end(key)
            return False
        self._last[key] = event
        self._last.move_to_end(key)
        if len(self._last) > _REMEMBERED:
            self._last.popitem(last=False)
        return True

    def _may_record(self, uid: str, by: str, *, spare: int) -> bool:
        """Whether the controller has an event left for this object beside those to spare; takes it then."""
        key, now = (uid, by), self._clock.monotonic()
        left, since = self._buckets.get(key, (float(EVENT_BURST), now))
        left = min(EVENT_BURST, left + (now - since) / EVENT_REFILL_SECONDS)
        allowed = left >= 1 + spare
        self._buckets[key] = (left - allowed, now)
        self._buckets.move_to_end(key)
        if len(self._buckets) > _REMEMBERED:
            self._buckets.popitem(last=False)
        return allowed

    def _event(self, about: Mapping[str, Any], kind: EventKind, reason: str, message: str, by: str) -> Object:
        now = self._clock.now()
        stamp = timestamp(now)
        self._count += 1
        name = child_name(f"{name_of(about)}.", uid_of(about), f"{now.isoformat()} {self._count}")
        namespace = namespace_of(about) or "default"
        reference = {
            "apiVersion": about["apiVersion"],
            "kind": about["kind"],
            "name": name_of(about),
            "uid": uid_of(about),
        }
        if namespace_of(about):
            reference["namespace"] = namespace_of(about)
        return {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": name, "namespace": namespace},
            "involvedObject": reference,
            "type": kind,
            "reason": reason,
            "message": message,
            "source": {"component": by},
            "reportingComponent": by,
            "reportingInstance": "planform",
            "firstTimestamp": stamp,
            "lastTimestamp": stamp,
            "count": 1,
        }


@asynccontextmanager
async def open_events(client: Client, *, clock: Clock, metrics: MetricsRegistry) -> AsyncIterator[Events]:
    """Events that are written while the block runs; leaving gives what waits a moment more."""
    events = Events(client, clock=clock, metrics=metrics)
    task = asyncio.create_task(events.run(), name="events")
    try:
        yield events
    finally:
        try:
            async with asyncio.timeout(1):
                await events.written()
        except TimeoutError:
            pass
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
