"""A `Client` that asks the server only for what it does not know: see `Recent` for what that is."""

from __future__ import annotations

from planform.api.kinds import GroupVersionKind, Object, gvk_of
from planform.client.protocol import Client, Patch, Propagation
from planform.client.recent import Recent


class RememberingClient:
    """Reads of one object are answered from `recent` where it can; what the server answers is kept there."""

    def __init__(self, client: Client, recent: Recent) -> None:
        self._client = client
        self._recent = recent
        self.kind = client.kind
        self.list = client.list
        self.watch = client.watch
        self.delete_collection = client.delete_collection

    def over(self, client: Client) -> RememberingClient:
        """Another client, that of another user, whose writes are remembered here too."""
        return RememberingClient(client, self._recent)

    async def get(self, gvk: GroupVersionKind, name: str, *, namespace: str = "", subresource: str = "") -> Object:
        if subresource:
            return await self._client.get(gvk, name, namespace=namespace, subresource=subresource)
        known = self._recent.get(gvk, name, namespace)
        return known if known is not None else self._keep(gvk, await self._client.get(gvk, name, namespace=namespace))

    async def create(self, obj: Object, *, manager: str = "", dry_run: bool = False) -> Object:
        written = await self._client.create(obj, manager=manager, dry_run=dry_run)
        return written if dry_run else self._keep(gvk_of(obj), written)

    async def update(self, obj: Object, *, subresource: str = "", manager: str = "", dry_run: bool = False) -> Object:
        written = await self._client.update(obj, subresource=subresource, manager=manager, dry_run=dry_run)
        return written if dry_run else self._keep(gvk_of(obj), written)

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
        return written if dry_run else self._keep(gvk, written)

    async def apply(
        self, obj: Object, *, manager: str, force: bool = False, subresource: str = "", dry_run: bool = False
    ) -> Object:
        written = await self._client.apply(obj, manager=manager, force=force, subresource=subresource, dry_run=dry_run)
        return written if dry_run else self._keep(gvk_of(obj), written)

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
        left = await self._client.delete(
            gvk,
            name,
            namespace=namespace,
            propagation=propagation,
            uid=uid,
            resource_version=resource_version,
            dry_run=dry_run,
        )
        if not dry_run:
            self._recent.forget(gvk, name, namespace)
        return left

    def _keep(self, gvk: GroupVersionKind, obj: Object) -> Object:
        if obj.get("kind") == gvk.kind:  # and not a Scale, or what else a subresource answers with
            self._recent.keep(gvk, obj)
        return obj
