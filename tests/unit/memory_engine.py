"""The smallest engine behind `Client`, in memory and without a thread, for tests on a virtual clock.

It keeps what the machinery above it relies on (one counter of resource versions, conflicts, ordered watches that
resume or expire) and can be told to misbehave the way a network does.
"""

from __future__ import annotations

import asyncio
import copy
import itertools
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from planform.api.kinds import GroupVersionKind, Kind, Object, gvk_of
from planform.apimachinery.selectors import parse_labels
from planform.client.protocol import ObjectList, Patch, Propagation, Watch, WatchEvent
from planform.errors import ApiError, Conflict, Expired, MethodNotAllowed, NotFound, qualified

Key = tuple[GroupVersionKind, str, str]


class MemoryEngine:
    """Every kind is served, unless it is in `unserved`. `failing` is raised by every call until it is reset."""

    def __init__(self) -> None:
        self.objects: dict[Key, Object] = {}
        self.history: list[tuple[int, GroupVersionKind, WatchEvent]] = []
        self.version = 0
        self.oldest = 0  # watches from before this version are expired
        self.unserved: set[GroupVersionKind] = set()
        self.failing: ApiError | None = None
        self.lists = 0
        self.watches = 0
        self.open_watches = 0
        self._uids = itertools.count(1)
        self._changed = asyncio.Event()
        self._streams_end: asyncio.Event = asyncio.Event()

    def end_streams(self, *, forget_history: bool = False) -> None:
        """Close every open watch, as a server does now and then; optionally without the means to resume."""
        self._streams_end.set()
        self._streams_end = asyncio.Event()
        if forget_history:
            self.version += 1
            self.oldest = self.version
        self._notify()

    async def kind(self, gvk: GroupVersionKind) -> Kind:
        self._check(gvk)
        return Kind(gvk.group, gvk.version, gvk.kind, gvk.kind.lower() + "s", True)

    async def get(self, gvk: GroupVersionKind, name: str, *, namespace: str = "", subresource: str = "") -> Object:
        self._check(gvk)
        return copy.deepcopy(self._find((gvk, namespace, name)))

    async def list(
        self,
        gvk: GroupVersionKind,
        *,
        namespace: str = "",
        labels: str = "",
        fields: str = "",
        limit: int = 0,
        continue_token: str = "",
        resource_version: str = "",
    ) -> ObjectList:
        self._check(gvk)
        self.lists += 1
        await asyncio.sleep(0)
        found = [
            copy.deepcopy(obj)
            for (kind, ns, _), obj in sorted(self.objects.items(), key=lambda item: item[0][1:])
            if kind == gvk and namespace in ("", ns) and _matches(obj, labels)
        ]
        start = int(continue_token or 0)
        end = start + limit if limit else len(found)
        return ObjectList(found[start:end], str(self.version), str(end) if end < len(found) else "")

    def watch(
        self,
        gvk: GroupVersionKind,
        *,
        namespace: str = "",
        labels: str = "",
        fields: str = "",
        resource_version: str = "",
        bookmarks: bool = False,
        send_initial_events: bool = False,
        timeout: float | None = None,
    ) -> Watch:
        return self._watch(gvk, namespace, labels, int(resource_version or 0))

    @asynccontextmanager
    async def _watch(
        self, gvk: GroupVersionKind, namespace: str, labels: str, after: int
    ) -> AsyncIterator[AsyncIterator[WatchEvent]]:
        self._check(gvk)
        if after < self.oldest:
            raise Expired(f"too old resource version: {after} ({self.oldest})")
        self.watches += 1
        self.open_watches += 1
        try:
            yield self._events(gvk, namespace, labels, after, self._streams_end)
        finally:
            self.open_watches -= 1

    async def _events(
        self, gvk: GroupVersionKind, namespace: str, labels: str, after: int, end: asyncio.Event
    ) -> AsyncIterator[WatchEvent]:
        while not end.is_set():
            changed = self._changed
            for version, kind, event in list(self.history):
                if version > after and kind == gvk and not end.is_set():
                    after = version
                    metadata = event.object["metadata"]
                    if namespace in ("", metadata.get("namespace", "")) and _matches(event.object, labels):
                        yield WatchEvent(event.type, copy.deepcopy(event.object))
            if changed is self._changed:
                await changed.wait()

    async def create(self, obj: Object, *, manager: str = "", dry_run: bool = False) -> Object:
        key = _key(obj)
        self._check(key[0])
        if key in self.objects:
            raise Conflict(f'"{key[2]}" already exists')
        obj = copy.deepcopy(obj)
        obj["metadata"]["uid"] = f"uid-{next(self._uids)}"
        obj["metadata"].setdefault("generation", 1)
        return self._write(key, "ADDED", obj)

    async def update(self, obj: Object, *, subresource: str = "", manager: str = "", dry_run: bool = False) -> Object:
        key = _key(obj)
        self._check(key[0])
        stored, obj = self._find(key), copy.deepcopy(obj)
        wanted = obj["metadata"].get("resourceVersion")
        if wanted and wanted != stored["metadata"]["resourceVersion"]:
            raise Conflict(f'Operation cannot be fulfilled on "{key[2]}": the object has been modified')
        obj["metadata"]["uid"] = stored["metadata"]["uid"]
        obj["metadata"]["generation"] = stored["metadata"]["generation"] + (obj.get("spec") != stored.get("spec"))
        return self._write(key, "MODIFIED", obj)

    async def patch(self, gvk: GroupVersionKind, name: str, patch: Patch, **_: Any) -> Object:
        raise MethodNotAllowed("patch")

    async def apply(self, obj: Object, **_: Any) -> Object:
        raise MethodNotAllowed("apply")

    async def delete(
        self,
        gvk: GroupVersionKind,
        name: str,
        *,
        namespace: str = "",
        propagation: Propagation | None = None,
        uid: str = "",
        resource_version: str = "",
        dry_run: bool = False,
    ) -> Object | None:
        key = (gvk, namespace, name)
        self._check(gvk)
        obj = copy.deepcopy(self._find(key))
        self._write(key, "DELETED", obj)
        return None

    async def delete_collection(self, gvk: GroupVersionKind, **_: Any) -> Sequence[Object]:
        raise MethodNotAllowed("deletecollection")

    def _check(self, gvk: GroupVersionKind) -> None:
        if self.failing is not None:
            raise self.failing
        if gvk in self.unserved:
            raise NotFound("the server could not find the requested resource")

    def _find(self, key: Key) -> Object:
        if key not in self.objects:
            raise NotFound(f'{qualified(key[0].group, key[0].kind.lower() + "s")} "{key[2]}" not found')
        return self.objects[key]

    def _write(self, key: Key, type: Any, obj: Object) -> Object:
        self.version += 1
        obj["metadata"]["resourceVersion"] = str(self.version)
        if type == "DELETED":
            del self.objects[key]
        else:
            self.objects[key] = obj
        self.history.append((self.version, key[0], WatchEvent(type, copy.deepcopy(obj))))
        self._notify()
        return copy.deepcopy(obj)

    def _notify(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()


def _key(obj: Object) -> Key:
    return gvk_of(obj), obj["metadata"].get("namespace", ""), obj["metadata"]["name"]


def _matches(obj: Object, labels: str) -> bool:
    return not labels or parse_labels(labels).matches(obj["metadata"].get("labels") or {})


async def settle() -> None:
    """Let everything on the event loop run until only time or input could move it."""
    for _ in range(60):
        await asyncio.sleep(0)
