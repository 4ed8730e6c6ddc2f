"""One stream for the pages of a browser, over which all their watches come: server-sent events with ids to resume by.

An event's id is the instance of the mirror and a number that grows with every change it was told; behind it stand the
resource versions from which the mirror itself resumes. Changes of one object that come faster than four a second
become one. What a reader has not taken yet is kept as a set of names, so that a slow one costs little; one that falls
behind by more than `MAX_PENDING` objects is told to reload.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection
from typing import Final

import msgspec

from planform.client.protocol import Client
from planform.client.resource_tree import Looking, Target, changing_trees
from planform.errors import ApiError
from planform.web.answers import Changes, Live, StreamChange
from planform.web.mirror import Mirror
from planform.web.rows import xr_id

APART: Final = 0.25
"""Seconds between two events of one stream."""
BEAT: Final = 15.0
"""A silent stream says that it lives so often; proxies close what says nothing."""
MAX_PENDING: Final = 20_000
STREAMS_OF_SESSION: Final = 16
STREAMS: Final = 128

_encoder: Final = msgspec.json.Encoder()


class Subscription:
    """What one reader has not been told yet: all tabs of a browser, or a page alone."""

    def __init__(self, mirror: Mirror, topics: Collection[str]) -> None:
        self._mirror = mirror
        self._topics = frozenset(topics)
        self._pending: dict[tuple[str, str], None] = {}
        self._wake = asyncio.Event()
        self._overflowed = False

    def offer(self, topic: str, id_: str) -> None:
        if topic not in self._topics:
            return
        if len(self._pending) >= MAX_PENDING:
            self._overflowed = True
            self._pending.clear()
        if not self._overflowed:
            self._pending[topic, id_] = None
        self._wake.set()

    async def events(self, last: str, trees: Collection[Target] = ()) -> AsyncIterator[bytes]:
        """Server-sent events until the reader goes. `last` is the id of the last one it had."""
        mirror = self._mirror
        stop = mirror.listen(self.offer)
        watching = [asyncio.create_task(self._follow(tree), name="dashboard tree") for tree in trees]
        try:
            yield b"retry: 1000\n\n"
            if last:
                missed = _missed(mirror, last)
                if missed is None:
                    yield _event("reload", b'{"why":"expired"}', self._id())
                for topic, id_ in missed or ():
                    self.offer(topic, id_)
            live = mirror.is_live
            yield _event("live", _encoder.encode(_live(mirror)), self._id())
            silent = 0.0
            while True:
                try:
                    async with asyncio.timeout(1.0):
                        await self._wake.wait()
                except TimeoutError:
                    silent += 1.0
                if mirror.is_live is not live:
                    live = mirror.is_live
                    yield _event("live", _encoder.encode(_live(mirror)), self._id())
                if self._wake.is_set():
                    self._wake.clear()
                    silent = 0.0
                    if self._overflowed:
                        self._overflowed = False
                        yield _event("reload", b'{"why":"slow"}', self._id())
                    elif self._pending:
                        yield _event("changes", self._taken(), self._id())
                    await asyncio.sleep(APART)
                elif silent >= BEAT:
                    silent = 0.0
                    yield b": alive\n\n"
        finally:
            stop()
            for task in watching:
                task.cancel()

    def _id(self) -> str:
        return f"{self._mirror.epoch}.{self._mirror.sequence}"

    def _taken(self) -> bytes:
        """All that is pending, as one event's data."""
        pending, self._pending = self._pending, {}
        changes = []
        for topic, id_ in pending:
            row = self._mirror.row(id_) if topic == "xrs" else None
            changes.append(StreamChange(topic=topic, id=id_, gone=topic == "xrs" and row is None, row=row))
        return _encoder.encode(Changes(changes=tuple(changes), as_of=self._mirror.now().isoformat()))

    async def _follow(self, target: Target) -> None:
        """Tell of every change in the tree of an XR, whose parts are of kinds that nobody else watches."""
        client: Client = self._mirror.upstream.client
        while True:
            try:
                first = True
                async for _ in changing_trees(Looking(client, secrets=True), target):
                    if not first:
                        self.offer("tree", xr_id(target.gvk.group, target.gvk.kind, target.namespace, target.name))
                    first = False
            except ApiError:
                pass
            await asyncio.sleep(2.0)


def _missed(mirror: Mirror, last: str) -> list[tuple[str, str]] | None:
    epoch, _, number = last.partition(".")
    if epoch != mirror.epoch or not (number.isascii() and number.isdecimal() and len(number) < 16):
        return None
    found = mirror.since(int(number))
    return None if found is None else list(found)


def _live(mirror: Mirror) -> Live:
    if mirror.is_live:
        return Live(live=True)
    if mirror.is_refused:
        return Live(live=False, message=f"{mirror.upstream.server} does not let you read anything any more")
    return Live(live=False, message=f"{mirror.upstream.server} does not answer; trying again")


def _event(name: str, data: bytes, id_: str) -> bytes:
    return b"id: %s\nevent: %s\ndata: %b\n\n" % (id_.encode(), name.encode(), data)
