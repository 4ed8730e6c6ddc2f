"""KubernetesClient: the `Client` of a real API server, over HTTP.

It has no cache: a read asks the server. `planform.client.remembering` knows what a watch told already.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from random import Random
from types import TracebackType
from typing import Any, Self

import orjson

from planform.api.kinds import GroupVersionKind, Kind, Object, gvk_of
from planform.api.metadata import name_of, namespace_of
from planform.client.discovery import Discovery, path_of
from planform.client.kubeconfig import Connection
from planform.client.protocol import ObjectList, Patch, Propagation, Watch, WatchEvent
from planform.client.transport import Answer, Fence, Transport
from planform.client.wire import Limits
from planform.client.written_versions import note_written_version
from planform.clock import Clock
from planform.errors import ApiError, BadRequest, InternalError, NotFound

APPLY = "application/apply-patch+yaml"
JSON = "application/json"
METADATA = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json"
METADATA_LIST = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json"

WATCH_SECONDS = (300.0, 600.0)
"""A watch whose caller names no limit is ended by the server after a time between these, and resumed."""

GRACE_SECONDS = 30.0
"""A watch that the server should have ended so long ago is dead: nothing comes from it any more."""


class KubernetesClient:
    """Speaks to one server as one identity. Use it as a context manager: leaving closes every connection.

    `fence` is asked before each write is sent, and may refuse it by raising. `transport` is for what is no object.
    """

    def __init__(
        self,
        connection: Connection,
        *,
        clock: Clock,
        rng: Random,
        manager: str = "planform",
        user_agent: str = "planform",
        limits: Limits | None = None,
        fence: Fence | None = None,
        short_lived: bool = False,
    ) -> None:
        self.transport = Transport(
            connection,
            clock=clock,
            rng=rng,
            user_agent=user_agent,
            limits=limits,
            fence=fence,
            short_lived=short_lived,
        )
        self._discovery = Discovery(self.transport)
        self._rng = rng
        self._manager = manager
        self._only_metadata = False
        self._headers: Sequence[tuple[str, str]] = ()

    async def __aenter__(self) -> Self:
        await self.transport.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.transport.__aexit__(kind, error, trace)

    def metadata_only(self) -> KubernetesClient:
        """The same client, whose reads bring only apiVersion, kind and metadata; it closes with this one."""
        view = object.__new__(KubernetesClient)
        view.__dict__.update(self.__dict__)
        view._only_metadata = True
        return view

    def with_headers(self, headers: Sequence[tuple[str, str]]) -> KubernetesClient:
        """The same client, which says more with each request, as for whom it asks; it closes with this one."""
        view = object.__new__(KubernetesClient)
        view.__dict__.update(self.__dict__)
        view._headers = tuple(headers)
        return view

    async def kind(self, gvk: GroupVersionKind) -> Kind:
        return await self._discovery.kind(gvk)

    async def kinds(self, *, refresh: bool = False) -> Iterable[Kind]:
        """Every kind the server has."""
        return await self._discovery.kinds(refresh=refresh)

    async def get(self, gvk: GroupVersionKind, name: str, *, namespace: str = "", subresource: str = "") -> Object:
        kind = await self._discovery.kind(gvk)
        accept = METADATA if self._only_metadata and not subresource else JSON
        path = path_of(kind, namespace, _required(name), subresource)
        answer = await self._send(kind, "GET", path, accept=accept, repeatable=True)
        return _object(answer.json(), None if subresource not in ("", "status") else kind)

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
        kind = await self._discovery.kind(gvk)
        query = _present(
            labelSelector=labels,
            fieldSelector=fields,
            limit=str(limit) if limit > 0 else "",
            resourceVersion=resource_version,
        )
        query |= {"continue": continue_token} if continue_token else {}
        accept = METADATA_LIST if self._only_metadata else JSON
        path = path_of(kind, namespace)
        document = (await self._send(kind, "GET", path, query=query, accept=accept, repeatable=True)).json()
        metadata = document.get("metadata") or {}
        return ObjectList(
            items=[_object(item, kind) for item in document.get("items") or ()],
            resource_version=metadata.get("resourceVersion") or "",
            continue_token=metadata.get("continue") or "",
            remaining=metadata.get("remainingItemCount"),
        )

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
        seconds = self._rng.uniform(*WATCH_SECONDS) if timeout is None else timeout
        query = {"watch": "true", "timeoutSeconds": str(max(1, round(seconds)))}
        query |= _present(
            labelSelector=labels,
            fieldSelector=fields,
            resourceVersion=resource_version,
            allowWatchBookmarks="true" if bookmarks else "",
        )
        if send_initial_events:
            query |= {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan"}
        return self._watch(gvk, namespace, query, seconds + GRACE_SECONDS)

    @asynccontextmanager
    async def _watch(
        self, gvk: GroupVersionKind, namespace: str, query: Mapping[str, str], seconds: float
    ) -> AsyncIterator[AsyncIterator[WatchEvent]]:
        kind = await self._discovery.kind(gvk)
        accept = METADATA if self._only_metadata else JSON
        try:
            path = path_of(kind, namespace)
            async with (
                self.transport.lines(path, query, accept=accept, seconds=seconds, headers=self._headers) as lines,
                aclosing(_events(lines, kind)) as events,
            ):
                yield events
        except NotFound:
            self._discovery.forget(gvk)
            raise

    async def create(self, obj: Object, *, manager: str = "", dry_run: bool = False) -> Object:
        kind, namespace, _ = await self._place(obj)
        path = path_of(kind, _needed(kind, namespace, obj))
        answer = await self._send(kind, "POST", path, query=self._write_query(manager, dry_run), body=obj)
        return _noted(_object(answer.json(), kind), dry_run)

    async def update(self, obj: Object, *, subresource: str = "", manager: str = "", dry_run: bool = False) -> Object:
        kind, namespace, name = await self._place(obj)
        path = path_of(kind, _needed(kind, namespace, obj), _required(name), subresource)
        body = {**obj, "apiVersion": "autoscaling/v1", "kind": "Scale"} if subresource == "scale" else obj
        answer = await self._send(kind, "PUT", path, query=self._write_query(manager, dry_run), body=body)
        return _noted(_object(answer.json(), kind), dry_run)

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
        kind = await self._discovery.kind(gvk)
        path = path_of(kind, namespace, _required(name), subresource)
        query = self._write_query(manager, dry_run)
        answer = await self._send(kind, "PATCH", path, query=query, body=patch.body, content_type=patch.type.value)
        return _noted(_object(answer.json(), kind), dry_run)

    async def apply(
        self, obj: Object, *, manager: str, force: bool = False, subresource: str = "", dry_run: bool = False
    ) -> Object:
        kind, namespace, name = await self._place(obj)
        path = path_of(kind, _needed(kind, namespace, obj), _required(name), subresource)
        query = self._write_query(manager, dry_run) | ({"force": "true"} if force else {})
        answer = await self._send(
            kind, "PATCH", path, query=query, body=obj, content_type=APPLY, repeatable=True
        )  # applying twice is applying once
        return _noted(_object(answer.json(), kind), dry_run)

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
        kind = await self._discovery.kind(gvk)
        options: dict[str, Any] = {"apiVersion": "v1", "kind": "DeleteOptions"}
        if propagation is not None:
            options["propagationPolicy"] = propagation.value
        if preconditions := _present(uid=uid, resourceVersion=resource_version):
            options["preconditions"] = preconditions
        if dry_run:
            options["dryRun"] = ["All"]
        path = path_of(kind, namespace, _required(name))
        document = (await self._send(kind, "DELETE", path, body=options)).json()
        return None if document.get("kind") == "Status" else _noted(_object(document, kind), dry_run)

    async def delete_collection(
        self, gvk: GroupVersionKind, *, namespace: str = "", labels: str = "", fields: str = ""
    ) -> Sequence[Object]:
        kind = await self._discovery.kind(gvk)
        query = _present(labelSelector=labels, fieldSelector=fields)
        document = (await self._send(kind, "DELETE", path_of(kind, namespace), query=query)).json()
        return [_object(item, kind) for item in document.get("items") or ()]

    async def _place(self, obj: Mapping[str, Any]) -> tuple[Kind, str, str]:
        kind = await self._discovery.kind(gvk_of(obj))
        return kind, namespace_of(obj), name_of(obj)

    def _write_query(self, manager: str, dry_run: bool) -> dict[str, str]:
        return _present(fieldManager=manager or self._manager, dryRun="All" if dry_run else "")

    async def _send(
        self,
        kind: Kind,
        method: str,
        path: str,
        *,
        body: Any = None,
        query: Mapping[str, str] | None = None,
        **how: Any,
    ) -> Answer:
        try:
            content = None if body is None else orjson.dumps(body)
        except orjson.JSONEncodeError as error:
            raise BadRequest(f"the object is not JSON: {error}") from error
        try:
            return await self.transport.request(method, path, query=query, body=content, headers=self._headers, **how)
        except NotFound as error:
            if not error.details.get("name"):  # not an object is missing, but the path: the kind may have changed
                self._discovery.forget(kind.gvk)
            raise


async def _events(lines: AsyncIterator[bytes], kind: Kind) -> AsyncGenerator[WatchEvent, None]:
    async for line in lines:
        try:
            event = orjson.loads(line)
            type, obj = event["type"], event["object"]
        except (orjson.JSONDecodeError, KeyError, TypeError) as error:
            raise InternalError(f"not a watch event of {kind.resource}: {line[:80]!r}") from error
        if type == "ERROR":
            raise ApiError.from_status(obj)
        yield WatchEvent(type, _object(obj, kind))


def _object(document: Any, kind: Kind | None) -> Object:
    """The object as its kind names it: items of built-in lists come without a kind, metadata under another's."""
    if not isinstance(document, dict):
        raise InternalError(f"the server's answer is not an object: {str(document)[:80]}")
    if kind is None or (document.get("kind") == kind.kind and document.get("apiVersion") == kind.api_version):
        return document
    if document.get("kind") in (None, "PartialObjectMetadata"):
        named = {"apiVersion": kind.api_version, "kind": kind.kind}
        return {**named, **document, **named}
    return document


def _noted(written: Object, dry_run: bool) -> Object:
    if not dry_run:
        note_written_version(written)
    return written


def _present(**parameters: str) -> dict[str, str]:
    return {name: value for name, value in parameters.items() if value}


def _required(name: str) -> str:
    if not name:
        raise BadRequest("metadata.name: Required value")
    return name


def _needed(kind: Kind, namespace: str, obj: Mapping[str, Any]) -> str:
    if kind.namespaced and not namespace:
        name = name_of(obj) or (obj.get("metadata") or {}).get("generateName") or ""
        raise BadRequest(f'{kind.resource} "{name}": a namespaced object needs a namespace')
    return namespace
