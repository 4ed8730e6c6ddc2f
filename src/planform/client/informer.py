"""Lists once, then watches for ever: every object of a kind, told as changes, whatever happens to the connection.

An informer remembers of each object only its identity and version. That is enough to stay silent about what it has
told already, to notice a deletion that happened while it was not looking, and to say whether a change is an edit of
the object's spec. The watches of controllers are built on it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Mapping
from random import Random
from typing import Any, NamedTuple

from planform.api.kinds import GroupVersionKind, Object
from planform.api.metadata import name_of, namespace_of, resource_version_of
from planform.client.protocol import Client, EventType, ObjectList
from planform.client.waits import Backoff
from planform.clock import Clock
from planform.errors import Expired, NotFound, PlanformError

PAGE = 250
"""Objects asked for at a time, so that decoding a page does not hold the event loop."""

SLICE = 64
"""So many events may be told before others on the event loop run."""

HEALTHY_SECONDS = 1.0
"""A stream that lived this long, or told anything, was not refused: the next one may follow soon."""

_logger = logging.getLogger(__name__)


class ObjectKey(NamedTuple):
    """An object among those of its kind."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


class InformerEvent(NamedTuple):
    """Something an informer tells. A BOOKMARK says only how far it has come, in metadata.resourceVersion.

    The object of a DELETED that was noticed afterwards has nothing but its names, uid and a resource version.
    """

    type: EventType
    object: Object
    first_sight: bool = False  # it was there before anybody looked; nothing is known to have changed
    edited: bool = False  # somebody created it, or changed more than its status and metadata
    relisted: bool = False  # of a BOOKMARK: all was listed anew, so what came and went since the last one was not told

    @property
    def key(self) -> ObjectKey:
        return key_of(self.object)


class Seen(NamedTuple):
    """What is remembered of an object: enough to tell a change from a repetition, and it from its namesake."""

    uid: str
    resource_version: str
    generation: int | None


def key_of(obj: Mapping[str, Any]) -> ObjectKey:
    return ObjectKey(namespace_of(obj), name_of(obj))


def version_number(resource_version: str) -> int:
    """A resource version as the counter it is; 0 for none. Versions of one kind may be compared."""
    return int(resource_version) if resource_version.isdecimal() else 0


def tombstone(gvk: GroupVersionKind, key: ObjectKey, uid: str, resource_version: str) -> Object:
    """All that can still be said of an object that was found deleted."""
    metadata = {"name": key.name, "uid": uid, "resourceVersion": resource_version}
    if key.namespace:
        metadata["namespace"] = key.namespace
    return {"apiVersion": gvk.api_version, "kind": gvk.kind, "metadata": metadata}


async def list_pages(
    client: Client, gvk: GroupVersionKind, *, namespace: str = "", labels: str = "", fields: str = ""
) -> AsyncIterator[ObjectList]:
    """All objects, a page at a time; if a page token expires on the way, everything once more in one piece."""
    token = ""
    try:
        while True:
            page = await client.list(
                gvk, namespace=namespace, labels=labels, fields=fields, limit=PAGE, continue_token=token
            )
            yield page
            token = page.continue_token
            if not token:
                return
    except Expired:
        if not token:
            raise
    yield await client.list(gvk, namespace=namespace, labels=labels, fields=fields)


class Informer:
    """Tells `deliver` about every object and every change until `run` is cancelled.

    `deliver` is called on the event loop, in order, and does not wait. Each list is followed by a BOOKMARK.
    """

    def __init__(
        self,
        client: Client,
        gvk: GroupVersionKind,
        deliver: Callable[[InformerEvent], None],
        *,
        clock: Clock,
        rng: Random,
        namespace: str = "",
        labels: str = "",
        fields: str = "",
        backoff: Backoff = Backoff(first=0.2, maximum=30),  # noqa: B008  (frozen)
    ) -> None:
        self._client = client
        self._gvk = gvk
        self._deliver = deliver
        self._clock = clock
        self._rng = rng
        self._namespace = namespace
        self._labels = labels
        self._fields = fields
        self._backoff = backoff
        self._seen: dict[ObjectKey, Seen] = {}
        self._position = ""  # every change up to this resource version has been told; empty: list first
        self._delivered = 0  # events of the stream that is open, or was last
        self._synced = asyncio.Event()
        self._fully_synced = asyncio.Event()  # no list is half told
        self._disconnected_since: float | None = clock.monotonic()  # None while a stream is open
        self.restarts = 0  # lists and watches that failed or were refused

    @property
    def position(self) -> str:
        """The resource version up to which everything has been told; empty while it lists."""
        return self._position

    @property
    def disconnected_seconds(self) -> float:
        """For how long it has not been able to hear of changes; 0 while a watch is open.

        A kind that is not served has no changes: the server said so, which counts as hearing.
        """
        return 0.0 if self._disconnected_since is None else self._clock.monotonic() - self._disconnected_since

    @property
    def keys(self) -> tuple[ObjectKey, ...]:
        """The objects that there are, as far as it was told."""
        return tuple(self._seen)

    def uid_of(self, key: ObjectKey) -> str:
        """The uid of an object that was told last; empty if there is none."""
        seen = self._seen.get(key)
        return seen.uid if seen is not None else ""

    def seen(self, key: ObjectKey) -> Seen | None:
        """What was told of an object last; None if there is none."""
        return self._seen.get(key)

    @property
    def is_synced(self) -> bool:
        return self._synced.is_set()

    @property
    def is_hearing(self) -> bool:
        """Whether a watch is open, and all that was there before it has been told."""
        return self._disconnected_since is None

    def __len__(self) -> int:
        return len(self._seen)

    async def synced(self) -> None:
        """Wait until every object that existed at the start has been told."""
        await self._synced.wait()

    @property
    def is_fully_synced(self) -> bool:
        return self._fully_synced.is_set()

    async def fully_synced(self) -> None:
        """Wait until nothing older than what was told is still to come: a list comes in the order of names."""
        await self._fully_synced.wait()

    async def run(self) -> None:
        failures = 0
        while True:
            started, self._delivered = self._clock.monotonic(), 0
            try:
                if not self._position:
                    await self._list()
                await self._watch()
            except Expired:
                self._position = ""
            except NotFound:  # the kind is not served, or no longer: then nothing of it exists
                self._forget_all_but(frozenset(), self._position)
                self._position = ""
                self._disconnected_since = self._clock.monotonic()
            except PlanformError as error:
                if failures == 0:
                    _logger.warning("watching %s: %s; trying again", self._gvk, error)
            if self._disconnected_since is None:
                self._disconnected_since = self._clock.monotonic()
            if self._delivered or self._clock.monotonic() - started >= HEALTHY_SECONDS:
                failures = 0
            failures += 1
            self.restarts += 1
            await self._clock.sleep(self._backoff.delay(failures, self._rng))

    async def _list(self) -> None:
        found: set[ObjectKey] = set()
        version = ""
        relisted = self._synced.is_set()
        self._fully_synced.clear()
        async for page in list_pages(
            self._client, self._gvk, namespace=self._namespace, labels=self._labels, fields=self._fields
        ):
            if page.resource_version != version:  # a list that had to begin anew: what is gone since is not in it
                found.clear()
            version = page.resource_version
            for obj in page.items:
                found.add(self._observe(obj, listed=True))
            await asyncio.sleep(0)
        self._forget_all_but(found, version)
        self._position = version
        self._synced.set()
        self._fully_synced.set()
        self._deliver(InformerEvent("BOOKMARK", {"metadata": {"resourceVersion": version}}, relisted=relisted))

    async def _watch(self) -> None:
        stream = self._client.watch(
            self._gvk,
            namespace=self._namespace,
            labels=self._labels,
            fields=self._fields,
            resource_version=self._position,
            bookmarks=True,
        )
        async with stream as events:
            self._disconnected_since = None
            async for kind, obj in events:
                if version_number(resource_version_of(obj)) < version_number(self._position):
                    continue  # told before; to believe it would be to forget what happened since
                if kind == "DELETED":
                    if self._seen.pop(key_of(obj), None) is not None:
                        self._deliver(InformerEvent("DELETED", obj, edited=True))
                elif kind == "BOOKMARK":
                    self._deliver(InformerEvent("BOOKMARK", obj))
                else:
                    self._observe(obj, listed=False)
                self._position = resource_version_of(obj)
                self._delivered += 1
                if self._delivered % SLICE == 0:  # a stream with much to tell does not wait by itself
                    await asyncio.sleep(0)

    def _observe(self, obj: Object, *, listed: bool) -> ObjectKey:
        """Tell about an object unless it was told in this version; a namesake of one that is gone is told as two."""
        metadata = obj["metadata"]
        key = ObjectKey(metadata.get("namespace") or "", metadata["name"])
        uid, version, generation = (
            metadata.get("uid") or "",
            metadata.get("resourceVersion") or "",
            metadata.get("generation"),
        )
        before = self._seen.get(key)
        if before is not None and before.uid != uid:
            self._deliver(InformerEvent("DELETED", tombstone(self._gvk, key, before.uid, version), edited=True))
            before = None
        self._seen[key] = Seen(uid, version, generation)
        if before is None:
            first_sight = listed and not self._synced.is_set()
            self._deliver(InformerEvent("ADDED", obj, first_sight, not first_sight))
        elif before.resource_version != version:
            self._deliver(InformerEvent("MODIFIED", obj, False, generation is None or generation != before.generation))
        return key

    def _forget_all_but(self, found: set[ObjectKey] | frozenset[ObjectKey], version: str) -> None:
        for key in [key for key in self._seen if key not in found]:
            seen = self._seen.pop(key)
            obj = tombstone(self._gvk, key, seen.uid, version or seen.resource_version)
            self._deliver(InformerEvent("DELETED", obj, edited=True))
