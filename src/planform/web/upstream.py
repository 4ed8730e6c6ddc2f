"""The control plane as one user sees it: their client, what is served, and what is no object.

Secrets are asked for by their metadata only, whoever asks: their data never comes into this process.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from planform.api.kinds import GroupVersionKind, Kind, Object
from planform.api.names import SECRET
from planform.apimachinery import last_applied
from planform.client.kubernetes import KubernetesClient
from planform.client.protocol import ObjectList, Patch, Propagation, Watch
from planform.client.transport import Transport
from planform.errors import ApiError, PlanformError
from planform.journal.serving import PATH as RUNS


class SecretsByMetadata:
    """A client that asks for Secrets by metadata, and leaves out what repeats other fields."""

    def __init__(self, client: KubernetesClient) -> None:
        self._client = client
        self._metadata = client.metadata_only()
        self.failures: dict[GroupVersionKind, PlanformError] = {}
        """Kinds whose last list in all namespaces was refused, and why."""

    def _for(self, gvk: GroupVersionKind) -> KubernetesClient:
        return self._metadata if (gvk.group, gvk.kind) == (SECRET.group, SECRET.kind) else self._client

    async def kind(self, gvk: GroupVersionKind) -> Kind:
        return await self._client.kind(gvk)

    async def get(self, gvk: GroupVersionKind, name: str, *, namespace: str = "", subresource: str = "") -> Object:
        return _bare(await self._for(gvk).get(gvk, name, namespace=namespace, subresource=subresource))

    async def list(self, gvk: GroupVersionKind, **how: Any) -> ObjectList:
        everywhere = not how.get("namespace")
        try:
            page = await self._for(gvk).list(gvk, **how)
        except ApiError as error:
            if everywhere:
                self.failures[gvk] = error
            raise
        if everywhere:
            self.failures.pop(gvk, None)
        return ObjectList([_bare(each) for each in page.items], page.resource_version, page.continue_token)

    def watch(self, gvk: GroupVersionKind, **how: Any) -> Watch:
        return self._for(gvk).watch(gvk, **how)

    async def create(self, obj: Object, *, manager: str = "", dry_run: bool = False) -> Object:
        return await self._client.create(obj, manager=manager, dry_run=dry_run)

    async def patch(self, gvk: GroupVersionKind, name: str, patch: Patch, **how: Any) -> Object:
        return await self._client.patch(gvk, name, patch, **how)

    async def update(self, obj: Object, *, subresource: str = "", manager: str = "", dry_run: bool = False) -> Object:
        return await self._client.update(obj, subresource=subresource, manager=manager, dry_run=dry_run)

    async def apply(
        self, obj: Object, *, manager: str, force: bool = False, subresource: str = "", dry_run: bool = False
    ) -> Object:
        return await self._client.apply(obj, manager=manager, force=force, subresource=subresource, dry_run=dry_run)

    async def delete(
        self,
        gvk: GroupVersionKind,
        name: str,
        *,
        namespace: str = "",
        propagation: Propagation | None = None,
        **how: Any,
    ) -> Object | None:
        return await self._client.delete(gvk, name, namespace=namespace, propagation=propagation, **how)

    async def delete_collection(self, gvk: GroupVersionKind, **how: Any) -> Sequence[Object]:
        return await self._client.delete_collection(gvk, **how)


@dataclass(frozen=True, slots=True)
class Upstream:
    """One user's way to one control plane."""

    kubernetes: KubernetesClient
    transport: Transport
    server: str
    named: tuple[str, ...]
    """Namespaces that the user named: the kubeconfig's own first."""
    headers: Sequence[tuple[str, str]] = ()
    directory: KubernetesClient | None = None
    """Lists the names of namespaces, where it is not the user who has to; nothing else is asked of it."""
    client: SecretsByMetadata = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "client", SecretsByMetadata(self.kubernetes))

    async def kinds(self, *, refresh: bool = False) -> Iterable[Kind]:
        return await self.kubernetes.kinds(refresh=refresh)

    async def serves(self, gvk: GroupVersionKind) -> bool:
        return any((kind.group, kind.kind) == (gvk.group, gvk.kind) for kind in await self.kinds())

    async def raw(self, path: str, query: dict[str, str] | None = None) -> bytes:
        """What is no object: runs, metrics, version."""
        answer = await self.transport.request(
            "GET", path, query=query, accept="*/*", repeatable=True, headers=self.headers
        )
        return answer.body

    async def runs(self, uid: str, rest: str = "", **query: str) -> bytes:
        return await self.raw(f"{RUNS}/{uid}{rest}", query)


def _bare(obj: Object) -> Object:
    """Without what repeats the rest of it, and may repeat what is masked elsewhere."""
    metadata = obj.get("metadata")
    if isinstance(metadata, dict):
        metadata.pop("managedFields", None)
        annotations = metadata.get("annotations")
        if isinstance(annotations, dict):
            annotations.pop(last_applied.ANNOTATION, None)
    return obj
