"""Providers that manage something cannot be deleted: a ClusterUsage says so for each of their kinds that has objects.

Behind a feature gate. Names and labels of these usages are those that Crossplane gives them, so that its tools find
them, and whoever moves here keeps theirs.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from typing import Any, Final

from planform.api.kinds import GroupVersionKind, Object, gvk
from planform.api.metadata import is_deleted, labels_of, name_of, uid_of
from planform.api.names import CLUSTER_USAGE, CRD, PACKAGE_LABEL, PROVIDER, PROVIDER_REVISION
from planform.api.owners import controller_of
from planform.client.informer import InformerEvent, ObjectKey
from planform.errors import NotFound
from planform.packages.runtimes.deployments import covers
from planform.packages.safe_start import UNMANAGED_KINDS
from planform.reconcile.context import ControllerContext
from planform.reconcile.controller import Result
from planform.reconcile.sources import Source

NAME: Final = "provider-protection"
GATE: Final = "ProviderDeletionProtection"
MANAGER: Final = "apiextensions.crossplane.io/managed-protection"
PROTECTION_LABEL: Final = "crossplane.io/provider-protection"
DEFINITION_LABEL: Final = "apiextensions.crossplane.io/mrd"
_MAX_OWNERS: Final = 3
"""A definition is controlled by a ProviderRevision, or by something that one controls."""


class ProviderProtection:
    """Keeps one usage for each definition that came with a Provider and has objects."""

    def __init__(self, context: ControllerContext) -> None:
        self._context = context
        self._client = context.client
        self._watched: dict[str, Source[ObjectKey]] = {}  # by name of the definition
        self._protected: set[str] = set()  # definitions of which one object more changes nothing

    def start(self) -> None:
        """Run on the context's manager if the gate is on."""
        if not self._context.features.enabled(GATE):
            return
        controller = self._context.controller(NAME, self.reconcile)
        ours = f"{PROTECTION_LABEL}=true"
        sources = [Source(CRD, _to_definition), Source(CLUSTER_USAGE, self._on_usage, labels=ours)]
        self._context.manager.start(controller, sources)

    async def reconcile(self, key: ObjectKey) -> Result:
        """`key` is that of a definition."""
        provider, kind = "", None
        crd = await self._find(CRD, key.name)
        if crd is not None and crd["spec"]["names"]["kind"] not in UNMANAGED_KINDS:
            provider, kind = await self._provider_of(crd), _kind_of(crd)
        if not provider or kind is None:
            self._unwatch(key.name)
            await self._release(key.name)
        else:
            self._watch(key.name, kind)
            if await self._has_objects(kind):
                await self._protect(key.name, provider, kind)
            else:
                await self._release(key.name)
        return Result()

    def _on_usage(self, change: InformerEvent) -> Iterable[ObjectKey]:
        """Somebody may have changed or deleted one of ours."""
        name = labels_of(change.object).get(DEFINITION_LABEL)
        if not name:
            return ()
        self._protected.discard(name)
        return (ObjectKey("", name),)

    def _watch(self, definition: str, kind: GroupVersionKind) -> None:
        def to_definition(change: InformerEvent) -> Iterable[ObjectKey]:
            is_news = change.type == "DELETED" or definition not in self._protected
            return (ObjectKey("", definition),) if is_news else ()

        known = self._watched.get(definition)
        if known is not None and known.gvk == kind:
            return
        self._unwatch(definition)
        self._watched[definition] = Source(kind, to_definition)
        self._context.manager.watch(NAME, self._watched[definition])

    def _unwatch(self, definition: str) -> None:
        source = self._watched.pop(definition, None)
        if source is not None:
            self._context.manager.unwatch(NAME, source)

    async def _provider_of(self, crd: Object) -> str:
        """The name of the Provider that brought a definition; empty if none did."""
        obj: Object | None = crd
        for _ in range(_MAX_OWNERS):
            owner = controller_of(obj) if obj is not None else None
            if owner is None:
                return ""
            kind = gvk(str(owner["apiVersion"]), str(owner["kind"]))
            obj = await self._find(kind, str(owner["name"]))
            if obj is not None and (kind.group, kind.kind) == (PROVIDER_REVISION.group, PROVIDER_REVISION.kind):
                return str(labels_of(obj).get(PACKAGE_LABEL) or "")
        return ""

    async def _has_objects(self, kind: GroupVersionKind) -> bool:
        try:
            return bool((await self._client.list(kind, limit=1)).items)
        except NotFound:
            return False  # it is not served

    async def _protect(self, definition: str, provider: str, kind: GroupVersionKind) -> None:
        wanted = usage_of(definition, provider, kind)
        if not covers(await self._find(CLUSTER_USAGE, name_of(wanted)), wanted):
            await self._client.apply(wanted, manager=MANAGER, force=True)
        self._protected.add(definition)

    async def _release(self, definition: str) -> None:
        self._protected.discard(definition)
        found = await self._find(CLUSTER_USAGE, usage_name(definition))
        if found is None or is_deleted(found):
            return
        try:
            await self._client.delete(CLUSTER_USAGE, name_of(found), uid=uid_of(found))
        except NotFound:
            pass

    async def _find(self, kind: GroupVersionKind, name: str) -> Object | None:
        try:
            return await self._client.get(kind, name)
        except NotFound:
            return None


def usage_name(definition: str) -> str:
    return f"provider-protection-{hashlib.sha256(definition.encode()).hexdigest()[:52]}"


def usage_of(definition: str, provider: str, kind: GroupVersionKind) -> Object:
    """The usage that protects a Provider while there are objects of one of its kinds."""
    return {
        "apiVersion": CLUSTER_USAGE.api_version,
        "kind": CLUSTER_USAGE.kind,
        "metadata": {
            "name": usage_name(definition),
            "labels": {PROTECTION_LABEL: "true", PACKAGE_LABEL: provider, DEFINITION_LABEL: definition},
        },
        "spec": {
            "of": {"apiVersion": PROVIDER.api_version, "kind": PROVIDER.kind, "resourceRef": {"name": provider}},
            "reason": f"Provider has active managed resources of type {kind.kind}.{kind.group}",
        },
    }


def _to_definition(change: InformerEvent) -> Iterable[ObjectKey]:
    """Definitions that somebody controls, and those that are gone: others came without a package."""
    if change.type == "DELETED" or controller_of(change.object) is not None:
        return (change.key,)
    return ()


def _kind_of(crd: Mapping[str, Any]) -> GroupVersionKind:
    spec = crd["spec"]
    version = next(each["name"] for each in spec["versions"] if each["storage"])
    return GroupVersionKind(spec["group"], version, spec["names"]["kind"])
