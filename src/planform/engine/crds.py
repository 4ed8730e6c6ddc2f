"""Accepts the names of CRDs, establishes them, and removes their objects when they go."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Any

import orjson

from planform.api.kinds import Object, gvk
from planform.api.metadata import finalizers_of, name_of, resource_version_of
from planform.apiserver.crds import definitions
from planform.apiserver.verbs import deletes, writes
from planform.apiserver.verbs.core import Core, key_of
from planform.apiserver.verbs.metadata import is_terminating
from planform.apiserver.verbs.requests import Request, Selection
from planform.clock import timestamp
from planform.errors import NotFound
from planform.reconcile.controller import Controller, Result
from planform.store import Change, ChangeType, Key

_CRD = gvk("apiextensions.k8s.io/v1", "CustomResourceDefinition")
_MANAGER = "planform-crds"
_LOOK_AGAIN = 0.1
_PATIENCE = 30.0  # seconds; what may not be deleted does not hold up a CRD for ever


class CrdController:
    """Keys are names of CRDs, which are also the store's names of their resources."""

    def __init__(
        self,
        core: Core,
        controller: Callable[..., Controller[Any]],
        has_pending_garbage: Callable[[str, str], Awaitable[bool]],
    ) -> None:
        """`has_pending_garbage` says of a kind, by group and name, that something its objects owned is still to be
        collected."""
        self._core = core
        self._has_pending_garbage = has_pending_garbage
        self._terminating: set[str] = set()
        self._empty_since: dict[str, float] = {}  # of CRDs without objects that wait for what those owned
        self.controller: Controller[str] = controller("crds", self._reconcile, 4)

    def begin(self) -> None:
        for key, entry in self._core.store.list(definitions.RESOURCE):
            crd = orjson.loads(entry.value)
            if is_terminating(crd) or not _has_its_names(crd):
                self._look(key.name, crd)

    def changed(self, changes: Sequence[Change]) -> None:
        for change in changes:
            key = change.key
            if key.resource == definitions.RESOURCE:
                if change.type is ChangeType.DELETED:
                    self._terminating.discard(key.name)
                    self._empty_since.pop(key.name, None)
                    self._reconsider(orjson.loads(change.value)["spec"]["group"])
                else:
                    self._look(key.name, orjson.loads(change.value))
            elif key.resource in self._terminating and change.type is ChangeType.DELETED:
                self.controller.queue.add(key.resource)

    def _look(self, name: str, crd: Object) -> None:
        if is_terminating(crd):
            self._terminating.add(name)
        self.controller.queue.add(name)

    def _reconsider(self, group: str) -> None:
        """Names became free: others of the group that wanted them may have them now."""
        for key, entry in self._core.store.list(definitions.RESOURCE):
            crd = orjson.loads(entry.value)
            if crd["spec"]["group"] == group and not _has_its_names(crd):
                self.controller.queue.add(key.name)

    async def _reconcile(self, name: str) -> Result:
        entry = self._core.store.get(Key(definitions.RESOURCE, "", name))
        if entry is None:
            return Result()
        crd: Object = orjson.loads(entry.value)
        if is_terminating(crd):
            return await self._empty(name, crd)
        await self._establish(name)
        return Result()

    async def _establish(self, name: str) -> None:
        now = timestamp(self._core.clock.now())

        def change(crd: Object) -> Object:
            status = {**(crd.get("status") or {})}
            clash = self._clash(crd)
            conditions = list(status.get("conditions") or ())
            if clash is None:
                conditions = definitions.with_condition(
                    conditions, "NamesAccepted", "True", "NoConflicts", "no conflicts found", now
                )
                conditions = definitions.with_condition(
                    conditions,
                    "Established",
                    "True",
                    "InitialNamesAccepted",
                    "the initial names have been accepted",
                    now,
                )
                status["acceptedNames"] = crd["spec"]["names"]
            else:
                reason, message = clash
                conditions = definitions.with_condition(conditions, "NamesAccepted", "False", reason, message, now)
                if not definitions.is_established(crd):
                    conditions = definitions.with_condition(
                        conditions, "Established", "False", "NotAccepted", "not all names are accepted", now
                    )
            status["conditions"] = conditions
            return {**crd, "status": status}

        await self._write_status(name, change)

    def _clash(self, crd: Object) -> tuple[str, str] | None:
        """A name that somebody else in the group has: the condition's reason and message, the last one's if several."""
        wanted, group = crd["spec"]["names"], crd["spec"]["group"]
        taken = list(self._names_in(group, name_of(crd)))
        resources = {name for names in taken for name in _resource_names(names)}
        kinds = {name for names in taken for name in (names["kind"], names.get("listKind", ""))}
        clash = None
        for reason, names, pool in (
            ("PluralConflict", [wanted["plural"]], resources),
            ("SingularConflict", [wanted.get("singular", "")], resources),
            ("ShortNamesConflict", wanted.get("shortNames") or [], resources),
            ("KindConflict", [wanted["kind"]], kinds),
            ("ListKindConflict", [wanted.get("listKind", "")], kinds),
        ):
            for name in names:
                if name and name in pool:
                    clash = reason, f'"{name}" is already in use'
        return clash

    def _names_in(self, group: str, but: str) -> Iterator[dict[str, Any]]:
        for key, entry in self._core.store.list(definitions.RESOURCE):
            if key.name != but:
                other = orjson.loads(entry.value)
                if other["spec"]["group"] == group and (definitions.is_established(other) or _has_its_names(other)):
                    yield other["status"]["acceptedNames"]
        for served in self._core.registry:
            if served.builtin and served.kind.group == group:
                kind = served.kind
                yield {
                    "plural": kind.plural,
                    "singular": kind.singular,
                    "kind": kind.kind,
                    "listKind": kind.list_kind,
                    "shortNames": list(kind.short_names),
                }

    async def _empty(self, name: str, crd: Object) -> Result:
        if definitions.CLEANUP_FINALIZER not in finalizers_of(crd):
            return Result()
        core = self._core
        if core.store.count(name):
            served = definitions.storage_kind(crd, int(resource_version_of(crd)))
            await deletes.delete_collection(core, served, Selection(), deletes.DeleteOptions(), Request())
        left = core.store.count(name)
        now = timestamp(core.clock.now())

        def change(current: Object) -> Object:
            status = {**(current.get("status") or {})}
            if left:
                reason, text = "InstanceDeletionInProgress", f"CustomResource deletion is in progress: {left} remain"
            else:
                reason, text = "InstanceDeletionCompleted", "removed all instances"
            status["conditions"] = definitions.with_condition(
                status.get("conditions") or (), "Terminating", "True" if left else "False", reason, text, now
            )
            return {**current, "status": status}

        await self._write_status(name, change)
        # What was created before the deletion could be seen is committed by now, since the status is.
        if core.store.count(name):
            if not left:
                self.controller.queue.add(name)
        elif await self._has_garbage_left(name, crd):
            return Result(requeue_after=_LOOK_AGAIN)
        else:
            await self._remove_finalizer(name)
        return Result()

    async def _has_garbage_left(self, name: str, crd: Object) -> bool:
        """Whether to wait for what the objects owned: who finds it later could not tell that its owner is gone."""
        now = self._core.clock.monotonic()
        if now - self._empty_since.setdefault(name, now) > _PATIENCE:
            return False
        return await self._has_pending_garbage(crd["spec"]["group"], crd["spec"]["names"]["kind"])

    async def _remove_finalizer(self, name: str) -> None:
        def change(current: Object) -> Object:
            metadata = {**current["metadata"]}
            metadata["finalizers"] = [f for f in metadata.get("finalizers", ()) if f != definitions.CLEANUP_FINALIZER]
            return {**current, "metadata": metadata}

        served = self._core.registry.find(_CRD)
        try:
            await writes.modify(self._core, served, key_of(served, "", name), change, Request(manager=_MANAGER))
        except NotFound:
            pass

    async def _write_status(self, name: str, change: Callable[[Object], Object]) -> None:
        served = self._core.registry.find(_CRD)
        try:
            await writes.modify(
                self._core, served, key_of(served, "", name), change, Request(manager=_MANAGER), subresource="status"
            )
        except NotFound:
            pass


def _has_its_names(crd: Object) -> bool:
    return definitions.condition(crd, "NamesAccepted") == "True"


def _resource_names(names: dict[str, Any]) -> Iterator[str]:
    yield names["plural"]
    yield names.get("singular", "")
    yield from names.get("shortNames") or ()
