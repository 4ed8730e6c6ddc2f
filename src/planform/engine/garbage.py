"""Owner garbage collection: what nobody owns any more goes; what somebody waits for goes first.

An index from owners' UIDs to dependents follows every committed batch. A key enters the queue when its owners may be
gone, when it is deleted in the foreground or by orphaning, or when one of its own dependents is gone.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import msgspec
import orjson

from planform.api.kinds import Object, gvk
from planform.api.metadata import finalizers_of, resource_version_of, uid_of
from planform.api.owners import owners_of
from planform.apiserver.crds.registry import ServedKind
from planform.apiserver.verbs import deletes, writes
from planform.apiserver.verbs.core import Core, key_of
from planform.apiserver.verbs.deletes import FOREGROUND, ORPHAN
from planform.apiserver.verbs.metadata import is_terminating
from planform.apiserver.verbs.requests import Preconditions, Request
from planform.client.protocol import Propagation
from planform.errors import Conflict, NotFound
from planform.reconcile.controller import Controller, Result
from planform.store import Change, ChangeType, Key

log = logging.getLogger(__name__)

_MANAGER = "garbage-collector"
_SLICE = 2000
_AT_ONCE = 50  # writes that share a commit


class Owner(msgspec.Struct, frozen=True, rename="camel"):
    """One owner reference, as much of it as decides anything."""

    api_version: str
    kind: str
    name: str
    uid: str
    block_owner_deletion: bool | None = None


class _Metadata(msgspec.Struct, frozen=True, rename="camel"):
    uid: str
    owner_references: tuple[Owner, ...] = ()
    finalizers: tuple[str, ...] = ()
    deletion_timestamp: str = ""


class _Envelope(msgspec.Struct):
    metadata: _Metadata


_decode = msgspec.json.Decoder(_Envelope).decode


@lru_cache(maxsize=16)
def _metadata_of_owner(value: bytes) -> _Metadata:
    """What is created together has the same owner, whose bytes are then asked for again and again."""
    return _decode(value).metadata


@dataclass(slots=True)
class _OwnerState:
    """Which of an object's owners are there, which are gone, and which wait for it to go first."""

    solid: list[Owner]
    dangling: list[Owner]
    waiting: list[Owner]


class GarbageCollector:
    """Keys are the store's."""

    def __init__(self, core: Core, controller: Callable[..., Controller[Any]], *, poll_interval: float = 60.0) -> None:
        self._core = core
        self._poll_interval = poll_interval
        self._dependents: dict[str, set[Key]] = {}
        self._owners: dict[Key, tuple[Owner, ...]] = {}
        self._waiting: dict[str, Key] = {}  # owners that are deleted in the foreground or by orphaning, by UID
        self._absent: set[str] = set()  # owners that went before their dependents: their kind may be gone as well
        self._scan: asyncio.Task[None] | None = None
        self.controller: Controller[Key] = controller("garbage-collector", self._reconcile)

    def begin(self) -> None:
        """Index what is there, in slices; a busy start is not held up."""
        self._scan = asyncio.get_running_loop().create_task(self._scan_store(), name="garbage scan")
        self._scan.add_done_callback(_report_failure)

    def close(self) -> None:
        """Stop looking, if a short run did not come to the end of it."""
        if self._scan is not None:
            self._scan.cancel()

    async def _scan_store(self) -> None:
        """Whatever changes meanwhile comes through `changed`: of a version that was replaced nothing may be learnt."""
        store = self._core.store
        for resource in store.resources():
            for rows in store.snapshot(resource).slices(_SLICE):
                for key, entry in rows:
                    if key not in self._owners and store.get(key) == entry:
                        self._index(key, entry.value)
                await asyncio.sleep(0)

    def changed(self, changes: Sequence[Change]) -> None:
        for change in changes:
            if change.type is ChangeType.DELETED:
                self._forget(change)
            else:
                self._index(change.key, change.value)

    def _index(self, key: Key, value: bytes) -> None:
        owned, ending = b'"ownerReferences"' in value, b'"deletionTimestamp"' in value
        before = self._owners.get(key, ())
        if not (owned or ending or before):
            return
        metadata = _decode(value).metadata
        if metadata.owner_references != before:
            self._set_owners(key, metadata.owner_references)
            if not self._is_held(key):
                self.controller.queue.add(key)
        if metadata.deletion_timestamp and (FOREGROUND in metadata.finalizers or ORPHAN in metadata.finalizers):
            self._waiting[metadata.uid] = key
            self.controller.queue.add(key)
        self._wake_owners(metadata.owner_references)

    def _is_held(self, key: Key) -> bool:
        """Whether all owners plainly stand, so that there is nothing to decide: the usual case of what is new."""
        served = self._served(key)
        owner_state = self._owner_state(served, key) if served is not None else None
        return (
            owner_state is not None and bool(owner_state.solid) and not owner_state.dangling and not owner_state.waiting
        )

    def _set_owners(self, key: Key, owners: tuple[Owner, ...]) -> None:
        for owner in self._owners.pop(key, ()):
            dependents = self._dependents.get(owner.uid)
            if dependents is not None:
                dependents.discard(key)
                if not dependents:
                    del self._dependents[owner.uid]
                    self._absent.discard(owner.uid)
        if owners:
            self._owners[key] = owners
            for owner in owners:
                self._dependents.setdefault(owner.uid, set()).add(key)

    def _forget(self, change: Change) -> None:
        owners = self._owners.get(change.key, ())
        self._set_owners(change.key, ())
        self._wake_owners(owners)
        if self._dependents or self._waiting:
            uid = _decode(change.value).metadata.uid
            self._waiting.pop(uid, None)
            for dependent in self._dependents.get(uid, ()):
                self._absent.add(uid)
                self.controller.queue.add(dependent)

    def _wake_owners(self, owners: Sequence[Owner]) -> None:
        if self._waiting:
            for owner in owners:
                waiting = self._waiting.get(owner.uid)
                if waiting is not None:
                    self.controller.queue.add(waiting)

    async def has_pending_garbage(self, group: str, kind: str) -> bool:
        """Whether something is still to be collected that objects of this kind owned, of which none is left.

        Once the kind is not served, only this process knows that those owners are gone: after a crash nobody would.
        """
        if not await self._knows_all():
            return True
        for done, (key, owners) in enumerate(list(self._owners.items())):
            if done % _SLICE == _SLICE - 1:
                await asyncio.sleep(0)
            if any(owner.kind == kind and gvk(owner.api_version, kind).group == group for owner in owners):
                entry, served = self._core.store.get(key), self._served(key)
                if entry is None or served is None or _decode(entry.value).metadata.deletion_timestamp:
                    continue
                owner_state = self._owner_state(served, key)
                if owner_state is not None and owner_state.dangling:
                    return True
        return False

    # -- the decision for one object

    async def _reconcile(self, key: Key) -> Result:
        entry = self._core.store.get(key)
        served = self._served(key)
        if entry is None or served is None:
            return Result()
        obj: Object = orjson.loads(entry.value)
        finalizers = finalizers_of(obj)
        try:
            if is_terminating(obj):
                if not await self._knows_all():
                    return Result()
                if ORPHAN in finalizers:
                    await self._orphan(served, key, obj)
                elif FOREGROUND in finalizers:
                    await self._delete_dependents_first(served, key, obj)
            elif key in self._owners:
                return await self._collect(served, key, obj)
        except NotFound:
            pass
        return Result()

    async def _knows_all(self) -> bool:
        """Wait for the scan; whether it came to its end. Before, dependents may be there that are not indexed yet: an
        owner would go without releasing them, and they would be collected although they were to be orphaned."""
        if self._scan is None:
            return False
        await asyncio.wait([self._scan])
        return not self._scan.cancelled() and self._scan.exception() is None

    async def _collect(self, served: ServedKind, key: Key, obj: Object) -> Result:
        owner_state = self._owner_state(served, key)
        if owner_state is None:  # no change will tell when an owner's kind comes to be served
            return Result(requeue_after=self._poll_interval)
        uid, seen = uid_of(obj), resource_version_of(obj)
        if owner_state.solid:
            gone = {owner.uid for owner in (*owner_state.dangling, *owner_state.waiting)}
            if gone:
                await self._drop_owners(served, key, gone)
            return Result()
        dependents = self._dependents.get(uid)
        if owner_state.waiting and dependents:
            if not dependents.isdisjoint(self._waiting.values()) and _blocks(self._owners[key]):
                await self._stop_blocking(served, key)  # owners in a circle would wait for each other for ever
                return Result()
            policy: Propagation | None = Propagation.FOREGROUND
        else:
            policy = None
        # Somebody may have given it an owner just now, which is staged and not yet seen here.
        options = deletes.DeleteOptions(policy, Preconditions(uid, seen))
        try:
            await deletes.delete(self._core, served, key.namespace, key.name, options, Request(manager=_MANAGER))
        except Conflict:
            self.controller.queue.add(key)
        return Result()

    def _owner_state(self, served: ServedKind, key: Key) -> _OwnerState | None:
        """Where the owners stand; None when one of them is of a kind that is not served and nothing can be known."""
        owner_state = _OwnerState([], [], [])
        for owner in self._owners.get(key, ()):
            if owner.uid in self._absent:
                owner_state.dangling.append(owner)
                continue
            kinds = self._core.registry.of_kind(gvk(owner.api_version, owner.kind).group, owner.kind)
            if not kinds:
                return None
            if kinds[0].kind.namespaced and not served.kind.namespaced:
                return None
            found = self._core.store.get(key_of(kinds[0], key.namespace, owner.name))
            metadata = _metadata_of_owner(found.value) if found is not None else None
            if metadata is None or metadata.uid != owner.uid:
                owner_state.dangling.append(owner)
            elif metadata.deletion_timestamp and FOREGROUND in metadata.finalizers:
                owner_state.waiting.append(owner)
            else:
                owner_state.solid.append(owner)
        return owner_state

    async def _orphan(self, served: ServedKind, key: Key, obj: Object) -> None:
        uid = uid_of(obj)
        dependents = sorted(self._dependents.get(uid, ()))
        for start in range(0, len(dependents), _AT_ONCE):
            await asyncio.gather(*(self._release(key, uid) for key in dependents[start : start + _AT_ONCE]))
        await self._remove_finalizer(served, key, ORPHAN)

    async def _release(self, dependent: Key, uid: str) -> None:
        served = self._served(dependent)
        if served is not None:
            try:
                await self._drop_owners(served, dependent, {uid})
            except NotFound:
                pass

    async def _delete_dependents_first(self, served: ServedKind, key: Key, obj: Object) -> None:
        uid = uid_of(obj)
        blocked = False
        for dependent in sorted(self._dependents.get(uid, ())):
            if any(owner.uid == uid and owner.block_owner_deletion for owner in self._owners.get(dependent, ())):
                blocked = True
            self.controller.queue.add(dependent)
        if not blocked:
            await self._remove_finalizer(served, key, FOREGROUND)

    async def _drop_owners(self, served: ServedKind, key: Key, gone: set[str]) -> None:
        def change(current: Object) -> Object:
            metadata = {**current["metadata"]}
            metadata["ownerReferences"] = [o for o in metadata.get("ownerReferences", ()) if o["uid"] not in gone]
            return {**current, "metadata": metadata}

        await writes.modify(self._core, served, key, change, Request(manager=_MANAGER))

    async def _stop_blocking(self, served: ServedKind, key: Key) -> None:
        def change(current: Object) -> Object:
            owners = owners_of(current)
            unblocked = [{name: o[name] for name in o if name != "blockOwnerDeletion"} for o in owners]
            return {**current, "metadata": {**current["metadata"], "ownerReferences": unblocked}}

        await writes.modify(self._core, served, key, change, Request(manager=_MANAGER))

    async def _remove_finalizer(self, served: ServedKind, key: Key, finalizer: str) -> None:
        def change(current: Object) -> Object:
            metadata = {**current["metadata"]}
            metadata["finalizers"] = [name for name in metadata.get("finalizers", ()) if name != finalizer]
            return {**current, "metadata": metadata}

        await writes.modify(self._core, served, key, change, Request(manager=_MANAGER))

    def _served(self, key: Key) -> ServedKind | None:
        plural, _, group = key.resource.partition(".")
        kinds = self._core.registry.of_resource(group, plural)
        return next((served for served in kinds if served.is_storage), kinds[0] if kinds else None)


def _blocks(owners: Sequence[Owner]) -> bool:
    return any(owner.block_owner_deletion for owner in owners)


def _report_failure(scan: asyncio.Task[None]) -> None:
    if not scan.cancelled() and (error := scan.exception()) is not None:
        log.error("the scan for garbage failed: what was there before is not collected", exc_info=error)
