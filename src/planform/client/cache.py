"""A read cache of one kind, kept fresh by an informer, that never hides one's own writes.

Objects are kept as bytes and decoded for each reader, so what comes out belongs to the caller. After `wrote` or
`deleted`, reads wait until the cache has come that far, and no longer than a limit.
"""

from __future__ import annotations

import asyncio
import builtins
from collections.abc import Callable, Iterable, Mapping, Sequence
from random import Random
from types import TracebackType
from typing import Any, NamedTuple, Self

import orjson

from planform.api.kinds import GroupVersionKind, Object
from planform.client.informer import Change, Informer, ObjectKey, key_of, version_number
from planform.client.protocol import Client
from planform.client.waits import time_limit
from planform.clock import Clock
from planform.errors import NotFound, Timeout, qualified
from planform.machinery.selectors import LabelSelector, parse_labels

IndexFunction = Callable[[Object], Iterable[str]]
"""The values under which an object is found."""


def by_label(name: str) -> IndexFunction:
    """Objects by the value of a label."""

    def values(obj: Object) -> Iterable[str]:
        value = (obj["metadata"].get("labels") or {}).get(name)
        return () if value is None else (value,)

    return values


def by_owner_uid(obj: Object) -> Iterable[str]:
    """Objects by the uid of each of their owners."""
    return [reference["uid"] for reference in obj["metadata"].get("ownerReferences") or ()]


class _Entry(NamedTuple):
    value: bytes
    uid: str
    version: int
    labels: Mapping[str, str]
    indexed: tuple[tuple[str, str], ...]  # (index, value) pairs under which it can be found


class _Awaited(NamedTuple):
    """What a read of a key waits for: that a version was seen, that an object is gone, or both."""

    version: int = 0
    uid: str = ""  # of the object that was written
    gone_uid: str = ""


class Cache:
    """All objects of a kind in a namespace (or all) that match a selector. Entering it starts its informer.

    `metadata_only` keeps no more than apiVersion, kind and metadata; with a client whose reads bring no more, nothing
    else is even transferred. managedFields are dropped: they are half of an object and of use only to its server.
    """

    def __init__(
        self,
        client: Client,
        gvk: GroupVersionKind,
        *,
        clock: Clock,
        rng: Random,
        namespace: str = "",
        labels: str = "",
        metadata_only: bool = False,
        indexes: Mapping[str, IndexFunction] | None = None,
        wait_seconds: float = 10.0,
    ) -> None:
        self.gvk = gvk
        self.namespace = namespace
        self.selector: LabelSelector = parse_labels(labels)
        self._clock = clock
        self._metadata_only = metadata_only
        self._wait_seconds = wait_seconds
        self._index_functions = dict(indexes or {})
        self._entries: dict[ObjectKey, _Entry] = {}
        self._indexes: dict[str, dict[str, dict[ObjectKey, None]]] = {name: {} for name in self._index_functions}
        self._awaited: dict[ObjectKey, _Awaited] = {}
        self._position = 0  # every change up to this version is in the cache
        self._moved = asyncio.Event()
        self._informer = Informer(client, gvk, self._take_in, clock=clock, rng=rng, namespace=namespace, labels=labels)
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self._informer.run(), name=f"cache {self.gvk}")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def resource_version(self) -> str:
        """The version up to which the cache holds everything."""
        return str(self._position)

    def uid_of(self, name: str, *, namespace: str = "") -> str:
        """The uid of an object that is in the cache or on its way there, without waiting; empty if there is none."""
        key = ObjectKey(namespace, name)
        if key in self._awaited and self._awaited[key].uid:
            return self._awaited[key].uid
        return self._entries[key].uid if key in self._entries else ""

    async def synced(self) -> None:
        """Wait until everything that existed at the start is in the cache."""
        await self._informer.synced()

    async def get(self, name: str, *, namespace: str = "") -> Object:
        """The object as the cache knows it, one's own writes included; raises NotFound or Timeout."""
        key = ObjectKey(namespace, name)
        await self._wait_until_visible([key] if key in self._awaited else [])
        entry = self._entries.get(key)
        if entry is None:
            raise NotFound(f'{qualified(self.gvk.group, self.gvk.kind)} "{name}" not found', details={"name": name})
        return _decoded(entry)

    async def list(self, *, namespace: str = "", labels: str = "") -> builtins.list[Object]:
        """Objects in order of namespace, then name."""
        await self._wait_until_visible(list(self._awaited))
        selector = parse_labels(labels)
        return [
            _decoded(entry)
            for key, entry in sorted(self._entries.items())
            if namespace in ("", key.namespace) and (selector.empty or selector.matches(entry.labels))
        ]

    async def find(self, index: str, value: str) -> Sequence[Object]:
        """Objects that the named index has under this value, in order of namespace, then name."""
        await self._wait_until_visible(list(self._awaited))
        return [_decoded(self._entries[key]) for key in sorted(self._indexes[index].get(value, ()))]

    def wrote(self, obj: Object) -> None:
        """Reads from now on wait for this version, which a write of ours returned; nothing if it is not covered."""
        key, metadata = key_of(obj), obj["metadata"]
        if self.covers(obj):
            version = version_number(metadata.get("resourceVersion") or "")
            self._await(key, _Awaited(version=version, uid=metadata.get("uid") or ""))

    def deleted(self, name: str, uid: str, *, namespace: str = "") -> None:
        """Reads from now on wait until this object, which we deleted, is gone."""
        self._await(ObjectKey(namespace, name), _Awaited(gone_uid=uid))

    def covers(self, obj: Object) -> bool:
        """Whether the object belongs into this cache, or is in it and leaves it now."""
        key, metadata = key_of(obj), obj["metadata"]
        if self.namespace not in ("", key.namespace):
            return False
        return key in self._entries or self.selector.matches(metadata.get("labels") or {})

    async def wait_for(self, key: ObjectKey, resource_version: str) -> None:
        """Wait until the cache has seen this version of the object or its deletion; raises Timeout."""
        awaited = _Awaited(version=version_number(resource_version))
        await self._wait_while(lambda: not self._reached(key, awaited), f"{key} at version {resource_version}")

    async def _wait_until_visible(self, keys: Sequence[ObjectKey]) -> None:
        if keys:
            names = ", ".join(map(str, keys[:3]))
            await self._wait_while(lambda: any(key in self._awaited for key in keys), names)

    async def _wait_while(self, pending: Callable[[], bool], what: str) -> None:
        if not pending():
            return
        try:
            async with time_limit(self._clock, self._wait_seconds):
                while pending():
                    moved = self._moved
                    await moved.wait()
        except TimeoutError as error:
            raise Timeout(
                f"the cache of {self.gvk} did not see {what} within {self._wait_seconds:g} s of the write"
            ) from error

    def _await(self, key: ObjectKey, awaited: _Awaited) -> None:
        before = self._awaited.get(key, _Awaited())
        awaited = _Awaited(max(before.version, awaited.version), awaited.uid, awaited.gone_uid)
        if not self._reached(key, awaited):
            self._awaited[key] = awaited

    def _reached(self, key: ObjectKey, awaited: _Awaited) -> bool:
        """Whether the cache has come as far. Events come in order: one past a version means all up to it were told."""
        entry = self._entries.get(key)
        if awaited.gone_uid and (entry.uid == awaited.gone_uid if entry is not None else not self._position):
            return False
        return self._position >= awaited.version or (entry is not None and entry.version >= awaited.version)

    def _take_in(self, change: Change) -> None:
        version = version_number(change.object["metadata"].get("resourceVersion") or "")
        if change.type == "BOOKMARK":
            self._position = max(self._position, version)
        else:
            self._remove(change.key)
            if change.type != "DELETED":
                self._insert(change.key, change.object, version)
            if self._informer.position:  # it watches; while it lists, objects come in the order of their names
                self._position = max(self._position, version)
        if self._awaited:
            for key in [key for key, awaited in self._awaited.items() if self._reached(key, awaited)]:
                del self._awaited[key]
        moved, self._moved = self._moved, asyncio.Event()
        moved.set()

    def _insert(self, key: ObjectKey, obj: Object, version: int) -> None:
        metadata = {name: value for name, value in obj["metadata"].items() if name != "managedFields"}
        if self._metadata_only:
            obj = {"apiVersion": obj["apiVersion"], "kind": obj["kind"], "metadata": metadata}
        else:
            obj = {**obj, "metadata": metadata}
        indexed = tuple((name, value) for name, values in self._index_functions.items() for value in set(values(obj)))
        for name, value in indexed:
            self._indexes[name].setdefault(value, {})[key] = None
        self._entries[key] = _Entry(
            orjson.dumps(obj), metadata.get("uid") or "", version, metadata.get("labels") or {}, indexed
        )

    def _remove(self, key: ObjectKey) -> None:
        entry = self._entries.pop(key, None)
        for name, value in entry.indexed if entry is not None else ():
            keys = self._indexes[name][value]
            del keys[key]
            if not keys:
                del self._indexes[name][value]


def _decoded(entry: _Entry) -> Object:
    obj: dict[str, Any] = orjson.loads(entry.value)
    return obj
