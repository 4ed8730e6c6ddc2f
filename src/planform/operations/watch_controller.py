"""WatchOperations: an Operation for each change of a watched object, also for those that exist to begin with.

Each WatchOperation has a watch and a loop of its own. Changes wait in memory, the latest of each object, and are turned
into Operations in the order of their resource versions; how far that has come is noted on the WatchOperation, so that
a restart goes on from there instead of running everything again. While the watch has to list anew nothing is done: a
list comes in the order of names, and the note would pass over what comes later though it changed earlier. An Operation
is named after the object's uid and resource version: a crash between creating it and taking the note leads to the same
name again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from planform.api.annotations import annotations_of, is_paused
from planform.api.conditions import XrCondition
from planform.api.kinds import GroupVersionKind, Kind, Object, gvk
from planform.api.metadata import is_deleted, name_of, namespace_of, uid_of
from planform.api.names import CRD, OPERATION, WATCH_OPERATION
from planform.api.owners import owners_of
from planform.client.informer import InformerEvent, ObjectKey, version_number
from planform.client.waits import time_limit
from planform.clock import timestamp
from planform.errors import Invalid, NotFound
from planform.operations.controller import PAUSED, SYNCED
from planform.operations.families import OperationNameTaken, create_once, delete_all, find_family
from planform.operations.operations import (
    DELETED_VERSION,
    WATCH_LABEL,
    Concurrency,
    Family,
    concurrency_of,
    operation_from,
    watched_annotations,
    watched_name,
)
from planform.pipeline.steps import PipelineInvalid, parse_pipeline
from planform.reconcile.context import ControllerContext
from planform.reconcile.controller import Result
from planform.reconcile.events import EventKind
from planform.reconcile.sources import Source, to_self
from planform.reconcile.writes import merge, set_status

NAME: Final = "watchoperations"
MANAGER: Final = f"ops.crossplane.io/{NAME}"
HANDLED_ANNOTATION: Final = "planform.dev/watched-until"
"""Which changes have led to an Operation: a digest of what is watched, and the resource version it has come to."""

_AT_ONCE: Final = 50
_LISTING_SECONDS: Final = 10.0


@dataclass(frozen=True, slots=True)
class Selection:
    """What a WatchOperation watches."""

    kind: GroupVersionKind
    namespace: str
    labels: str

    @classmethod
    def of(cls, watch: Object, kind: Kind) -> Selection:
        written = watch["spec"]["watch"]
        labels = ",".join(f"{key}={value}" for key, value in sorted((written.get("matchLabels") or {}).items()))
        return cls(kind.gvk, (written.get("namespace") or "") if kind.namespaced else "", labels)


class WatchOperationController:
    """Keeps one `_Watched` for each WatchOperation whose kind is served and that is not paused."""

    def __init__(self, context: ControllerContext) -> None:
        self._context = context
        self._client = context.client
        self._kinds: dict[ObjectKey, GroupVersionKind] = {}
        self._watched: dict[ObjectKey, _Watched] = {}

    def start(self) -> None:
        self._context.manager.start(
            self._context.controller(NAME, self.reconcile),
            [Source(WATCH_OPERATION, to_self), Source(CRD, self._watching_kind)],
        )

    def _watching_kind(self, change: InformerEvent) -> Iterable[ObjectKey]:
        spec = change.object.get("spec")
        if not spec:  # found deleted: it says no more what it defined
            return tuple(self._kinds)
        defined = spec["group"], spec["names"]["kind"]
        return [key for key, kind in self._kinds.items() if (kind.group, kind.kind) == defined]

    async def reconcile(self, key: ObjectKey) -> Result:
        try:
            watch = await self._client.get(WATCH_OPERATION, key.name)
        except NotFound:
            self._kinds.pop(key, None)
            await self._end(key)
            return Result()
        if is_deleted(watch):
            await self._end(key)
            return Result()
        wanted = gvk(watch["spec"]["watch"]["apiVersion"], watch["spec"]["watch"]["kind"])
        self._kinds[key] = wanted
        if is_paused(watch):
            await self._end(key)
            await self._status(watch, [PAUSED, XrCondition("Watching", "False", "WatchPaused")])
            return Result()
        try:
            parse_pipeline(watch["spec"]["operationTemplate"]["spec"])
            selection = Selection.of(watch, await self._client.kind(wanted))
        except PipelineInvalid as error:
            return await self._refuse(key, watch, str(error))
        except NotFound:
            return await self._refuse(key, watch, f"the kind {wanted.kind} ({wanted.api_version}) is not served")
        running = self._watched.get(key)
        if running is not None and (running.selection, running.uid) != (selection, uid_of(watch)):
            await self._end(key)
            running = None
        if running is None:
            self._watched[key] = _Watched(self._context, key, selection, uid_of(watch))
            self._watched[key].start()
        return Result()

    async def _refuse(self, key: ObjectKey, watch: Object, problem: str) -> Result:
        """Watch nothing and say why; an edit, or the definition of the kind, leads back here."""
        await self._end(key)
        await self._status(
            watch,
            [
                XrCondition("Synced", "False", "ReconcileError", problem),
                XrCondition("Watching", "False", "WatchFailed", problem),
            ],
        )
        self._context.events.record(watch, "Warning", "EstablishWatched", problem, by=NAME)
        return Result()

    async def _end(self, key: ObjectKey) -> None:
        watched = self._watched.pop(key, None)
        if watched is not None:
            await watched.stop()

    async def _status(self, watch: Object, conditions: list[XrCondition]) -> None:
        await set_status(self._client, watch, conditions, now=self._context.timestamp(), manager=MANAGER)


@dataclass(frozen=True, slots=True)
class _News:
    """The latest change of one object."""

    object: Object
    uid: str
    version: str
    deleted: bool

    @property
    def number(self) -> int:
        return version_number(self.version)

    @property
    def order(self) -> tuple[int, bool, str]:
        """Its place among others. What was found deleted says no more when, and comes after the rest of its version."""
        return self.number, self.deleted, self.uid

    @property
    def cause(self) -> str:
        """What the name of its Operation follows from, beside the uid."""
        return DELETED_VERSION if self.deleted else self.version


class _Watched:
    """The watch of one WatchOperation and what it leads to."""

    def __init__(self, context: ControllerContext, key: ObjectKey, selection: Selection, uid: str) -> None:
        self.selection = selection
        self.uid = uid
        self._context = context
        self._client = context.client
        self._key = key
        self._name = f"{NAME}/{key.name}"
        self._present: set[str] = set()
        self._pending: dict[str, _News] = {}  # by uid; what has not led to an Operation yet
        self._source = Source(selection.kind, self._hear, namespace=selection.namespace, labels=selection.labels)

    def start(self) -> None:
        self._context.manager.start(
            self._context.controller(self._name, self.reconcile),
            [
                self._source,
                Source(WATCH_OPERATION, self._about_itself),
                Source(OPERATION, self._about_its_operations),
            ],
        )

    async def stop(self) -> None:
        await self._context.manager.stop(self._name)

    def _hear(self, change: InformerEvent) -> Iterable[ObjectKey]:
        metadata = change.object["metadata"]
        uid, deleted = metadata["uid"], change.type == "DELETED"
        (self._present.discard if deleted else self._present.add)(uid)
        names = {name: metadata[name] for name in ("name", "namespace") if metadata.get(name)}
        identity = {
            "apiVersion": self.selection.kind.api_version,
            "kind": self.selection.kind.kind,
            "metadata": names,
        }
        self._pending[uid] = _News(identity, uid, metadata.get("resourceVersion") or "", deleted)
        return (self._key,)

    def _about_itself(self, change: InformerEvent) -> Iterable[ObjectKey]:
        return (self._key,) if change.key == self._key else ()

    def _about_its_operations(self, change: InformerEvent) -> Iterable[ObjectKey]:
        owners = owners_of(change.object)
        return (self._key,) if any(owner["uid"] == self.uid for owner in owners) else ()

    async def reconcile(self, key: ObjectKey) -> Result:
        try:
            watch = await self._client.get(WATCH_OPERATION, key.name)
        except NotFound:
            return Result()
        if is_deleted(watch) or is_paused(watch) or uid_of(watch) != self.uid:
            return Result()  # the other loop is about to stop this one
        if not await self._listed():
            failing = f"{self.selection.kind.kind} ({self.selection.kind.api_version}) cannot be listed yet"
            await self._status(watch, [XrCondition("Watching", "False", "WatchFailed", failing)])
            return Result(requeue_after=_LISTING_SECONDS)
        floor = self._handled(watch)
        waiting = sorted(self._unhandled(floor), key=lambda news: news.order)
        family = await find_family(self._client, watch, WATCH_LABEL)
        chosen, passed_over = _choose(watch, waiting, family)
        status_fields: dict[str, Any] = {}
        try:
            if await self._spawn(watch, chosen, family):
                status_fields["lastScheduleTime"] = timestamp(self._context.clock.now())
                family = await find_family(self._client, watch, WATCH_LABEL)
        except (Invalid, OperationNameTaken) as error:
            await self._status(watch, [XrCondition("Synced", "False", "ReconcileError", str(error))])
            self._record_event(watch, "Warning", "CreateOperation", str(error))
            return Result()
        done = [*chosen, *passed_over]
        watch = await self._note(watch, max((news.number for news in done), default=floor))
        success = max((watch.get("status") or {}).get("lastSuccessfulTime") or "", family.last_success)
        if success:
            status_fields["lastSuccessfulTime"] = success
        await self._status(
            watch,
            [SYNCED, XrCondition("Watching", "True", "WatchActive")],
            runningOperationRefs=family.running_references,
            watchingResources=len(self._present),
            **status_fields,
        )
        for news in done:
            if self._pending.get(news.uid) is news:
                del self._pending[news.uid]
        await delete_all(self._client, family.expired(watch["spec"]))
        more = len(waiting) > len(done) and concurrency_of(watch["spec"]) is Concurrency.ALLOW
        return Result(requeue_after=0.0 if more else None)

    async def _listed(self) -> bool:
        """Whether everything that exists is known. Before that the order of changes is not, nor how far it has come."""
        try:
            async with time_limit(self._context.clock, _LISTING_SECONDS):
                await self._context.manager.fully_synced(self._name, self._source)
        except TimeoutError:
            return False
        return True

    def _unhandled(self, floor: int) -> list[_News]:
        """What came after the last note; the rest is dropped, for it has led to an Operation already.

        A deletion is heard once and never found again, so it is news whatever its version; many may share one.
        """
        for uid in [uid for uid, news in self._pending.items() if not news.deleted and 0 < news.number <= floor]:
            del self._pending[uid]
        return list(self._pending.values())

    async def _spawn(self, watch: Object, chosen: list[_News], family: Family) -> bool:
        """Create the Operations for these changes; gives whether there was one to create."""
        names = {watched_name(watch, news.uid, news.cause): news for news in chosen}
        if names and concurrency_of(watch["spec"]) is Concurrency.REPLACE:
            await delete_all(self._client, [each for each in family.unfinished if name_of(each) not in names])
        spawned = False
        for name, news in names.items():
            if news.deleted and await self._exists(news):
                continue  # it left the selection, and nothing else happened to it
            operation = operation_from(
                watch,
                name,
                WATCH_LABEL,
                annotations=watched_annotations(news.object, news.cause),
                watched=news.object,
            )
            await create_once(self._client, operation, manager=MANAGER)
            spawned = True
        return spawned

    async def _exists(self, news: _News) -> bool:
        try:
            found = await self._client.get(
                self.selection.kind, name_of(news.object), namespace=namespace_of(news.object)
            )
        except NotFound:
            return False
        return bool(uid_of(found) == news.uid)

    def _handled(self, watch: Object) -> int:
        """The resource version up to which every change has led to an Operation; 0 if something else was watched."""
        annotations = annotations_of(watch)
        digest, _, version = str(annotations.get(HANDLED_ANNOTATION, "")).partition(":")
        return version_number(version) if digest == self._digest else 0

    async def _note(self, watch: Object, version: int) -> Object:
        if version <= self._handled(watch):
            return watch
        note = {HANDLED_ANNOTATION: f"{self._digest}:{version}"}
        return await merge(self._client, watch, {"metadata": {"annotations": note}}, manager=MANAGER)

    @property
    def _digest(self) -> str:
        selection = self.selection
        text = "\n".join((self.uid, str(selection.kind), selection.namespace, selection.labels))
        return hashlib.sha256(text.encode()).hexdigest()[:12]

    async def _status(self, watch: Object, conditions: list[XrCondition], **more: Any) -> None:
        await set_status(self._client, watch, conditions, now=self._context.timestamp(), manager=MANAGER, **more)

    def _record_event(self, watch: Object, kind: EventKind, reason: str, message: str) -> None:
        self._context.events.record(watch, kind, reason, message, by=NAME)


def _choose(watch: Object, waiting: list[_News], family: Family) -> tuple[list[_News], list[_News]]:
    """The changes that lead to an Operation now, and those that never will; the others go on waiting."""
    match concurrency_of(watch["spec"]):
        case Concurrency.ALLOW:
            return waiting[:_AT_ONCE], []
        case Concurrency.REPLACE:
            return waiting[-1:], waiting[:-1]
        case Concurrency.FORBID:
            names = {name_of(each) for each in family.unfinished}
            return [
                news for news in waiting[:1] if not names or names == {watched_name(watch, news.uid, news.cause)}
            ], []
