"""A namespace that is deleted takes its content with it, and says what it still waits for."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import orjson

from planform.api.kinds import Object, gvk
from planform.api.metadata import finalizers_of
from planform.apiserver.crds.definitions import with_condition
from planform.apiserver.crds.registry import ServedKind
from planform.apiserver.verbs import deletes, subresources, writes
from planform.apiserver.verbs.core import Core, key_of
from planform.apiserver.verbs.metadata import is_terminating
from planform.apiserver.verbs.requests import Request, Selection
from planform.clock import timestamp
from planform.errors import ApiError, NotFound, PlanformError
from planform.reconcile.controller import Controller, Result
from planform.store import Change, ChangeType, Key

_NAMESPACE = gvk("v1", "Namespace")


class ContentRefused(PlanformError):
    """Something in a namespace that is being deleted may not be deleted (yet); the namespace's status says so."""

    reason = "NamespaceContentRefused"
    retryable = True

    def __init__(self, namespace: str, refusals: Sequence[ApiError]) -> None:
        super().__init__(f'namespace "{namespace}" cannot be emptied: {refusals[0]}')


class NamespaceController:
    """Empties terminating namespaces; keys are their names. Wakes again whenever something in one goes."""

    def __init__(self, core: Core, controller: Callable[..., Controller[Any]]) -> None:
        self._core = core
        self._terminating: set[str] = set()
        self.controller: Controller[str] = controller("namespaces", self._reconcile, 4)

    def begin(self) -> None:
        for key, entry in self._core.store.list("namespaces"):
            self._look(key, entry.value)

    def changed(self, changes: Sequence[Change]) -> None:
        for change in changes:
            key = change.key
            if key.resource == "namespaces":
                if change.type is ChangeType.DELETED:
                    self._terminating.discard(key.name)
                else:
                    self._look(key, change.value)
            elif key.namespace in self._terminating:
                self.controller.queue.add(key.namespace)

    def _look(self, key: Key, value: bytes) -> None:
        if b'"deletionTimestamp"' in value and is_terminating(orjson.loads(value)):
            self._terminating.add(key.name)
            self.controller.queue.add(key.name)

    async def _reconcile(self, name: str) -> Result:
        core = self._core
        entry = core.store.get(Key("namespaces", "", name))
        if entry is None:
            return Result()
        namespace: Object = orjson.loads(entry.value)
        if not is_terminating(namespace):
            return Result()
        refusals = await self._empty(name)
        remaining = list(_remaining(core, name))
        served = core.registry.find(_NAMESPACE)
        try:
            await self._report(served, name, remaining, refusals)
            if not remaining:
                await subresources.update(
                    core, served, "", name, "finalize", {"spec": {"finalizers": []}}, Request(manager="namespaces")
                )
        except NotFound:
            pass
        if refusals:
            raise ContentRefused(name, refusals)
        return Result()

    async def _empty(self, name: str) -> list[ApiError]:
        """Delete all content. One kind that refuses does not keep the others: what refuses may hang on what follows."""
        core = self._core
        refusals: list[ApiError] = []
        for served in core.registry.storage_kinds():
            if served.kind.namespaced and core.store.count(served.resource, name):
                try:
                    await deletes.delete_collection(core, served, Selection(name), deletes.DeleteOptions(), Request())
                except ApiError as error:
                    refusals.append(error)
        return refusals

    async def _report(
        self,
        served: ServedKind,
        name: str,
        remaining: Sequence[tuple[ServedKind, int, list[Object]]],
        refusals: Sequence[ApiError],
    ) -> None:
        now = timestamp(self._core.clock.now())

        def change(namespace: Object) -> Object:
            status = {**namespace.get("status", {})}
            conditions = status.get("conditions") or []
            for condition in _conditions(remaining, refusals):
                conditions = with_condition(conditions, *condition, now)
            return {**namespace, "status": {**status, "phase": "Terminating", "conditions": conditions}}

        await writes.modify(
            self._core, served, key_of(served, "", name), change, Request(manager="namespaces"), subresource="status"
        )


def _remaining(core: Core, namespace: str) -> Iterator[tuple[ServedKind, int, list[Object]]]:
    for served in core.registry.storage_kinds():
        if served.kind.namespaced:
            rows = core.store.list(served.resource, namespace)
            if rows:
                yield served, len(rows), [orjson.loads(entry.value) for _, entry in rows[:100]]


def _conditions(
    remaining: Sequence[tuple[ServedKind, int, list[Object]]], refusals: Sequence[ApiError]
) -> Iterator[tuple[str, str, str, str]]:
    """The five conditions of a terminating namespace: type, status, reason, message."""
    yield (
        "NamespaceDeletionDiscoveryFailure",
        "False",
        "ResourcesDiscovered",
        "All resources successfully discovered",
    )
    yield (
        "NamespaceDeletionGroupVersionParsingFailure",
        "False",
        "ParsedGroupVersions",
        "All legacy kube types successfully parsed",
    )
    if refusals:
        listed = "; ".join(sorted({str(each) for each in refusals}))
        yield (
            "NamespaceDeletionContentFailure",
            "True",
            "ContentDeletionFailed",
            f"Failed to delete all resource types, {len(refusals)} remaining: {listed}",
        )
    else:
        yield (
            "NamespaceDeletionContentFailure",
            "False",
            "ContentDeleted",
            "All content successfully deleted, may be waiting on finalization",
        )
    if remaining:
        listed = ", ".join(
            f"{served.kind.plural}.{served.kind.group} has {count} resource instances" for served, count, _ in remaining
        )
        yield (
            "NamespaceContentRemaining",
            "True",
            "SomeResourcesRemain",
            f"Some resources are remaining: {listed}",
        )
    else:
        yield ("NamespaceContentRemaining", "False", "ContentRemoved", "All content successfully removed")
    waiting: dict[str, int] = {}
    for _, _, objects in remaining:
        for obj in objects:
            for finalizer in finalizers_of(obj):
                waiting[finalizer] = waiting.get(finalizer, 0) + 1
    if waiting:
        listed = ", ".join(f"{finalizer} in {count} resource instances" for finalizer, count in sorted(waiting.items()))
        yield (
            "NamespaceFinalizersRemaining",
            "True",
            "SomeFinalizersRemain",
            f"Some content in the namespace has finalizers remaining: {listed}",
        )
    else:
        yield (
            "NamespaceFinalizersRemaining",
            "False",
            "ContentHasNoFinalizers",
            "All content-preserving finalizers finished",
        )
