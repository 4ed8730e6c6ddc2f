"""A `Client` that reads the kinds it has caches for from them, and everything else from the server.

Writes go to the server and are visible to the next read: the cache waits for them. Where a cache is too far behind,
the server is asked instead, so a broken watch makes reads slow and never wrong.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

from planform.api.kinds import GroupVersionKind, Kind, Object, gvk_of
from planform.client.cache import Cache
from planform.client.protocol import Client, ObjectList, Patch, Propagation, Watch
from planform.errors import Timeout

_logger = logging.getLogger(__name__)


class CachedClient:
    """`caches` hold whole objects, in every namespace and whatever their labels; a kind without one is read live."""

    def __init__(self, client: Client, caches: Mapping[GroupVersionKind, Cache]) -> None:
        for gvk, cache in caches.items():
            if cache.namespace or not cache.selector.empty:
                raise ValueError(f"the cache of {gvk} does not hold all objects of its kind")
        self._client = client
        self._caches = caches

    async def kind(self, gvk: GroupVersionKind) -> Kind:
        return await self._client.kind(gvk)

    async def get(self, gvk: GroupVersionKind, name: str, *, namespace: str = "", subresource: str = "") -> Object:
        cache = self._caches.get(gvk)
        if cache is not None and subresource in ("", "status"):
            try:
                return await cache.get(name, namespace=namespace)
            except Timeout as error:
                _logger.warning("%s; asking the server", error)
        return await self._client.get(gvk, name, namespace=namespace, subresource=subresource)

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
        cache = self._caches.get(gvk)
        if cache is not None and not (fields or limit or continue_token or resource_version):
            try:
                return ObjectList(await cache.list(namespace=namespace, labels=labels), cache.resource_version)
            except Timeout as error:
                _logger.warning("%s; asking the server", error)
        return await self._client.list(
            gvk,
            namespace=namespace,
            labels=labels,
            fields=fields,
            limit=limit,
            continue_token=continue_token,
            resource_version=resource_version,
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
        return self._client.watch(
            gvk,
            namespace=namespace,
            labels=labels,
            fields=fields,
            resource_version=resource_version,
            bookmarks=bookmarks,
            send_initial_events=send_initial_events,
            timeout=timeout,
        )

    async def create(self, obj: Object, *, manager: str = "", dry_run: bool = False) -> Object:
        return self._note(gvk_of(obj), await self._client.create(obj, manager=manager, dry_run=dry_run), dry_run)

    async def update(self, obj: Object, *, subresource: str = "", manager: str = "", dry_run: bool = False) -> Object:
        written = await self._client.update(obj, subresource=subresource, manager=manager, dry_run=dry_run)
        return self._note(gvk_of(obj), written, dry_run)

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
        written = await self._client.patch(
            gvk, name, patch, namespace=namespace, subresource=subresource, manager=manager, dry_run=dry_run
        )
        return self._note(gvk, written, dry_run)

    async def apply(
        self, obj: Object, *, manager: str, force: bool = False, subresource: str = "", dry_run: bool = False
    ) -> Object:
        written = await self._client.apply(obj, manager=manager, force=force, subresource=subresource, dry_run=dry_run)
        return self._note(gvk_of(obj), written, dry_run)

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
        cache = self._caches.get(gvk)
        known = cache.uid_of(name, namespace=namespace) if cache is not None else ""
        left = await self._client.delete(
            gvk,
            name,
            namespace=namespace,
            propagation=propagation,
            uid=uid,
            resource_version=resource_version,
            dry_run=dry_run,
        )
        if left is not None:
            return self._note(gvk, left, dry_run)
        if cache is not None and not dry_run and (uid or known):
            cache.deleted(name, uid or known, namespace=namespace)
        return None

    async def delete_collection(
        self, gvk: GroupVersionKind, *, namespace: str = "", labels: str = "", fields: str = ""
    ) -> Sequence[Object]:
        return await self._client.delete_collection(gvk, namespace=namespace, labels=labels, fields=fields)

    def _note(self, gvk: GroupVersionKind, written: Object, dry_run: bool) -> Object:
        cache = self._caches.get(gvk)
        if cache is None or dry_run or written.get("kind") != gvk.kind:
            return written
        metadata = written["metadata"]
        if _is_gone(metadata):
            cache.deleted(metadata["name"], metadata["uid"], namespace=metadata.get("namespace") or "")
        else:
            cache.wrote(written)
        return written


def _is_gone(metadata: Mapping[str, Any]) -> bool:
    """Whether the write was the last one: it took the last finalizer from an object that was being deleted."""
    waits = metadata.get("finalizers") or metadata.get("deletionGracePeriodSeconds")
    return bool(metadata.get("deletionTimestamp")) and not waits
