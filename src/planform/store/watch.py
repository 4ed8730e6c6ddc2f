"""Watches: every change after a resource version, each once and in order, and no watcher ever delays a writer.

A watch begins behind: it takes slices of history at its reader's pace, from the log on disk while it is older than the
ring, then from the ring. Once it has reached the committed resource version it goes live, in the same step of the
event loop, so that no change can fall between history and future. From then on changes are pushed into its buffer;
a reader that lets the buffer overflow is closed and resumes from where it was.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from types import TracebackType
from typing import Protocol, Self

from planform.store.records import Change, Lagging

SLICE = 256

Bucket = tuple[str | None, str | None]


class History(Protocol):
    """Where a watch that is behind reads."""

    @property
    def revision(self) -> int: ...

    def recent(self, after: int, limit: int) -> Sequence[Change] | None:
        """Changes after a resource version from memory, or None if memory does not reach back that far."""
        ...

    async def recall(self, after: int, limit: int) -> Sequence[Change]:
        """The same from disk, at least one if there is one; raises Compacted if they are gone."""
        ...


class Watch:
    """An async context manager and iterator of batches: all changes that have gathered since the last one.

    For one reader. Iterating raises Lagging or Compacted, and ends when the watch or the store is closed. Cancelling
    a wait for the next batch loses nothing.
    """

    def __init__(self, history: History, watchers: Watchers, bucket: Bucket, since: int, *, buffer: int) -> None:
        self._history = history
        self._watchers = watchers
        self._bucket = bucket
        self._buffer = buffer
        self._position = since  # behind: read so far. Live: older changes are not for this watch
        self._live = False
        self._closed = False
        self._failure: Lagging | None = None
        self._queue: list[Change] = []
        self._waiter: asyncio.Future[None] | None = None

    @property
    def position(self) -> int:
        """Everything up to this resource version has been given to the reader: what a bookmark may say."""
        if self._live and not self._queue:
            return max(self._position, self._history.revision)
        return self._position

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> list[Change]:
        while True:
            if self._failure is not None:
                raise self._failure
            if self._closed or self._watchers.closed:
                raise StopAsyncIteration
            if not self._live:
                if batch := await self._catch_up():
                    return batch
            elif self._queue:
                batch, self._queue = self._queue, []
                self._position = batch[-1].rv
                return batch
            else:
                await self._wait()

    def close(self) -> None:
        """End the iteration, also for a reader that is waiting now. May be called again."""
        self._closed = True
        self._watchers.remove(self, self._bucket)
        self._queue = []
        self._wake()

    def offer(self, changes: Sequence[Change]) -> None:
        """Take changes of this watch's bucket as they are published. Never waits."""
        position = self._position
        if changes[0].rv <= position:
            changes = [change for change in changes if change.rv > position]
        if not changes:
            return
        if (
            self._queue and len(self._queue) + len(changes) > self._buffer
        ):  # one batch fits always: a reader may be idle
            failure = Lagging(self._buffer, position)
            self.close()
            self._failure = failure
            return
        self._queue += changes
        self._wake()

    async def _catch_up(self) -> list[Change]:
        """One slice of history, and live at its end. Between reading the ring and going live there is no await."""
        changes = self._history.recent(self._position, SLICE)
        if changes is None:
            changes = await self._history.recall(self._position, SLICE)
        if changes:
            self._position = changes[-1].rv
        if self._position >= self._history.revision and not (self._closed or self._watchers.closed):
            self._live = True
            self._watchers.add(self, self._bucket)
        resource, namespace = self._bucket
        return [
            change
            for change in changes
            if (resource is None or resource == change.key.resource)
            and (namespace is None or namespace == change.key.namespace)
        ]

    async def _wait(self) -> None:
        self._waiter = asyncio.get_running_loop().create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


class Watchers:
    """The live watches, by what they watch, so that a change costs only those who want it."""

    def __init__(self) -> None:
        self._buckets: dict[Bucket, dict[Watch, None]] = {}
        self.count = 0
        self.closed = False

    def add(self, watch: Watch, bucket: Bucket) -> None:
        self._buckets.setdefault(bucket, {})[watch] = None
        self.count += 1

    def remove(self, watch: Watch, bucket: Bucket) -> None:
        watches = self._buckets.get(bucket)
        if watches is None or watch not in watches:
            return
        del watches[watch]
        self.count -= 1
        if not watches:
            del self._buckets[bucket]

    def publish(self, changes: Sequence[Change]) -> None:
        """Offer each live watch what it asked for, in order."""
        buckets = self._buckets
        if not buckets:
            return
        wanted: dict[Bucket, list[Change]] = {}
        for change in changes:
            resource, namespace, _ = change.key
            interested: tuple[Bucket, ...] = (
                (resource, None),
                (resource, namespace),
                (None, None),
                (None, namespace),
            )
            for bucket in interested:
                if bucket in buckets:
                    wanted.setdefault(bucket, []).append(change)
        for bucket, matching in wanted.items():
            for watch in tuple(buckets[bucket]):
                watch.offer(matching)

    def close(self) -> None:
        """End every watch; those that are still behind find out when they go on."""
        self.closed = True
        for watches in tuple(self._buckets.values()):
            for watch in tuple(watches):
                watch.close()
