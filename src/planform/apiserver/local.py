"""LocalClient: the embedded engine as a `Client`, without a wire in between.

It has no cache, since the store is one; an object that comes out is a private copy. A write has been committed and
published before it returns, so a read after it sees it.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import orjson

from planform.api.kinds import GroupVersionKind, Kind, Object, gvk_of
from planform.apiserver.crds.registry import ServedKind
from planform.apiserver.verbs import applies, deletes, reads, staging, subresources, writes
from planform.apiserver.verbs.core import Core, decode_any
from planform.apiserver.verbs.requests import CONTROL_PLANE, Preconditions, Request, Selection, User
from planform.client.protocol import ObjectList, Patch, Propagation, Watch, WatchEvent
from planform.client.written_versions import note_written_version
from planform.errors import BadRequest


class LocalClient:
    """Calls the verbs directly, as one user; admission and validation apply, RBAC is for the wire."""

    def __init__(self, core: Core, *, user: User = CONTROL_PLANE, manager: str = "planform") -> None:
        self._core = core
        self._user = user
        self._manager = manager

    async def kind(self, gvk: GroupVersionKind) -> Kind:
        return self._core.registry.find(gvk).kind

    async def get(self, gvk: GroupVersionKind, name: str, *, namespace: str = "", subresource: str = "") -> Object:
        served = self._core.registry.find(gvk)
        if subresource not in ("", "status"):
            return await subresources.get(self._core, served, namespace, name, subresource)
        return await reads.get_object(self._core, served, namespace, name)

    async def get_bytes(self, gvk: GroupVersionKind, name: str, *, namespace: str = "") -> bytes:
        """The object as it is stored, in the version asked for."""
        return await reads.get(self._core, self._core.registry.find(gvk), namespace, name)

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
        served = self._core.registry.find(gvk)
        page = await reads.list_entries(
            self._core,
            served,
            Selection(namespace, labels, fields),
            reads.Options(limit, continue_token, resource_version),
        )
        items = await decode_any(self._core, served, [entry for _, entry in page.entries])
        return ObjectList(items, str(page.rv), page.continue_token, page.remaining)

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
        served = self._core.registry.find(gvk)
        options = reads.WatchOptions(
            resource_version=resource_version,
            send_initial_events=True if send_initial_events else None,
            bookmarks=bookmarks,
            timeout=timeout,
            buffer=100_000,
        )
        return _events(self._core, served, Selection(namespace, labels, fields), options)

    async def create(self, obj: Object, *, manager: str = "", dry_run: bool = False) -> Object:
        served = self._core.registry.find(gvk_of(obj))
        written = await writes.create(self._core, served, _copy(obj), self._request(manager, dry_run))
        return _answer(written, dry_run=dry_run)

    async def update(self, obj: Object, *, subresource: str = "", manager: str = "", dry_run: bool = False) -> Object:
        served = self._core.registry.find(gvk_of(obj))
        request = self._request(manager, dry_run)
        if subresource in ("", "status"):
            written = await writes.update(self._core, served, _copy(obj), request, subresource=subresource)
            return _answer(written, dry_run=dry_run)
        metadata = obj.get("metadata") or {}
        namespace, name = str(metadata.get("namespace", "")), str(metadata.get("name", ""))
        return await subresources.update(self._core, served, namespace, name, subresource, _copy(obj), request)

    async def patch(
        self,
        gvk: GroupVersionKind,
        name: str,
        patch: Patch,
        *,
        namespace: str = "",
        subresource: str = "",
        manager: str = "",
        dry_run: bool = False,
    ) -> Object:
        served = self._core.registry.find(gvk)
        request = self._request(manager, dry_run)
        body = _copy(patch.body)
        if subresource in ("", "status"):
            written = await writes.patch(
                self._core, served, namespace, name, patch.type, body, request, subresource=subresource
            )
            return _answer(written, dry_run=dry_run)
        return await subresources.patch(self._core, served, namespace, name, subresource, patch.type, body, request)

    async def apply(
        self, obj: Object, *, manager: str, force: bool = False, subresource: str = "", dry_run: bool = False
    ) -> Object:
        served = self._core.registry.find(gvk_of(obj))
        metadata = obj.get("metadata") or {}
        if not metadata.get("name"):
            raise BadRequest("metadata.name: an applied object needs a name")
        try:
            written = await applies.apply(
                self._core,
                served,
                str(metadata.get("namespace", "")),
                str(metadata["name"]),
                {**obj, "metadata": _copy(metadata)},  # the rest is copied when it is merged
                self._request(manager, dry_run),
                force=force,
                subresource=subresource,
            )
        except orjson.JSONEncodeError as error:
            raise BadRequest(f"the object is not JSON: {error}") from error
        return _answer(written, dry_run=dry_run)

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
        served = self._core.registry.find(gvk)
        options = deletes.DeleteOptions(propagation, Preconditions(uid, resource_version))
        deleted = await deletes.delete(self._core, served, namespace, name, options, self._request("", dry_run))
        if deleted.gone:
            return None
        left = _decoded(deleted.value)
        if not dry_run:
            note_written_version(left)
        return left

    async def delete_collection(
        self, gvk: GroupVersionKind, *, namespace: str = "", labels: str = "", fields: str = ""
    ) -> Sequence[Object]:
        served = self._core.registry.find(gvk)
        deleted = await deletes.delete_collection(
            self._core, served, Selection(namespace, labels, fields), deletes.DeleteOptions(), self._request("", False)
        )
        return [_decoded(value) for value in deleted]

    def _request(self, manager: str, dry_run: bool) -> Request:
        manager = manager or self._manager
        options: dict[str, Any] = {"dryRun": ["All"]} if dry_run else {}
        return Request(user=self._user, manager=manager, dry_run=dry_run, options=options)


@asynccontextmanager
async def _events(
    core: Core, served: ServedKind, selection: Selection, options: reads.WatchOptions
) -> AsyncIterator[AsyncIterator[WatchEvent]]:
    batches = reads.watch(core, served, selection, options)

    async def events() -> AsyncGenerator[WatchEvent, None]:
        async for batch in batches:
            for emission in batch:
                yield WatchEvent(emission.type, orjson.loads(emission.value))  # type: ignore[arg-type]  # a str of EventType

    stream = events()
    try:
        yield stream
    finally:
        await stream.aclose()
        await batches.aclose()


def _copy(value: Any) -> Any:
    """A private copy, since admission changes what it is given; also proves early that the value is JSON."""
    try:
        return orjson.loads(orjson.dumps(value))
    except (TypeError, orjson.JSONEncodeError) as error:
        raise BadRequest(f"the object is not JSON: {error}") from error


def _answer(written: staging.Written, *, dry_run: bool) -> Object:
    obj = _decoded(written.value) if written.object is None else written.object
    if not dry_run:
        note_written_version(obj)
    return obj


def _decoded(value: bytes) -> Object:
    obj: Object = orjson.loads(value)
    return obj
