"""Usages at work: a controller that marks what is in use, and a guard at the door that refuses to delete it.

The controller watches the kinds that usages are about, so it hears of a user that is gone and of a label that was
taken away; it never polls. Guard and controller share one index: the guard answers from it without waiting.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

from planform.api.annotations import annotations_of
from planform.api.conditions import XrCondition
from planform.api.kinds import GroupVersionKind, Object, gvk_of
from planform.api.metadata import finalizers_of, is_deleted, labels_of, name_of, namespace_of, uid_of
from planform.api.names import CLUSTER_USAGE, LEGACY_USAGE, USAGE, USAGE_FINALIZER
from planform.api.owners import owners_of
from planform.apiserver.admission.chain import Admission
from planform.client.informer import InformerEvent, list_pages
from planform.client.protocol import Patch, PatchType, Propagation
from planform.errors import NotFound, PlanformError, ServiceUnavailable
from planform.reconcile.context import ControllerContext
from planform.reconcile.controller import Result
from planform.reconcile.events import EventKind
from planform.reconcile.queue import Priority, WorkQueue
from planform.reconcile.sources import Source
from planform.reconcile.writes import merge, remove_finalizer, set_status
from planform.usages.usages import (
    ATTEMPT_ANNOTATION,
    DETAILS_ANNOTATION,
    IN_USE_LABEL,
    Side,
    Usage,
    UsageIndex,
    UsageInvalid,
    UsageKey,
    choose,
    details,
    in_use,
    label_selector,
    parse_usage,
    resolved_ref,
    unresolved_message,
)

NAME: Final = "usages"
MANAGER: Final = "protection.crossplane.io/usage"
KINDS: Final = (USAGE, CLUSTER_USAGE, LEGACY_USAGE)
_EVERYTHING: Final = UsageKey("", "")
"""A key of no usage: reconciling it waits until the index is complete, also where there are no usages at all."""


class Attempt(NamedTuple):
    """A deletion that was refused: of which object, how it would have been done, and one usage that forbids it."""

    uid: str
    policy: Propagation
    usage: UsageKey


class UsageGuard:
    """The admission plugin. It must exist before the engine does; the controller feeds it and listens to it.

    A plugin may not wait, so a refused deletion is told to `on_attempt`, and the controller records it on the object.
    Within an API server of ours it speaks as the webhook that it would be elsewhere (`webhook`).
    """

    def __init__(self, *, webhook: str = "") -> None:
        self.index = UsageIndex()
        self._webhook = webhook
        self.on_attempt: Callable[[Attempt], None] = lambda _: None

    def admit(self, admission: Admission, /) -> None:
        """Refuse to delete what a usage protects; raises InUse."""
        if admission.operation != "DELETE":
            return
        kind, name = admission.kind, admission.name
        if not self.index.is_complete:
            if is_marked(admission.old):
                raise ServiceUnavailable(
                    f'cannot delete {kind.resource} "{name}" yet: it is marked as in use and usages are being read',
                    details={"retryAfterSeconds": 1},
                )
            return
        protecting = self.index.protecting(kind.group, kind.kind, admission.namespace, name)
        if not protecting:
            return
        if admission.old is not None and not admission.request.dry_run:
            uid = uid_of(admission.old)
            policy = admission.propagation or Propagation.BACKGROUND
            self.on_attempt(Attempt(uid, policy, protecting[0].key))
        raise in_use(kind.group, kind.plural, name, protecting, webhook=self._webhook)


class _NotThere(PlanformError):
    """Something the usage names does not exist (yet); a change will tell."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class UsageController:
    """Serves all kinds of usages."""

    def __init__(self, context: ControllerContext, guard: UsageGuard | None = None) -> None:
        self._context = context
        self._client = context.client
        self._guard = guard if guard is not None else UsageGuard()
        self._index = self._guard.index
        self._watched: dict[GroupVersionKind, Source[UsageKey]] = {}
        self._attempts: dict[str, Propagation] = {}  # by uid of the object, until they are recorded on it

    def start(self) -> None:
        """Run on the context's manager; starting twice is starting once."""
        controller = self._context.controller(NAME, self.reconcile)
        sources = [Source(kind, self._usage_changed) for kind in KINDS]
        if self._context.manager.start(controller, sources):
            controller.queue.add(_EVERYTHING, priority=Priority.USER)
            self._guard.on_attempt = lambda attempt: self._attempted(attempt, controller.queue)

    # -- what wakes it

    def _usage_changed(self, change: InformerEvent) -> Iterable[UsageKey]:
        """Keep the index true, then have the usage looked at."""
        key = UsageKey.of(change.object)
        try:
            if change.type == "DELETED":
                self._index.drop(key)
            else:
                self._index.put(parse_usage(change.object))
        except UsageInvalid:  # it protects nothing; its reconcile says why
            self._index.drop(key)
        for kind in [kind for kind in self._watched if not self._index.mentions(kind)]:
            self._context.manager.unwatch(NAME, self._watched.pop(kind))
        return (key,)

    def _attempted(self, attempt: Attempt, queue: WorkQueue[UsageKey]) -> None:
        self._attempts[attempt.uid] = attempt.policy
        queue.add(attempt.usage)

    def _object_changed(self, change: InformerEvent) -> Iterator[UsageKey]:
        if change.type == "DELETED":
            self._attempts.pop(uid_of(change.object), None)
        yield from self._index.concerned(change.object, gone=change.type == "DELETED")

    def _watch(self, usage: Usage) -> bool:
        """Watch what the usage is about; whether that began just now."""
        begun = False
        for side in usage.sides:
            if side.gvk not in self._watched and self._index.mentions(side.gvk):
                source = self._watched[side.gvk] = Source(side.gvk, self._object_changed)
                begun = self._context.manager.watch(NAME, source) or begun
        return begun

    # -- the loop

    async def reconcile(self, key: UsageKey) -> Result:
        """Bring one usage, and the mark on what it protects, to what they should be."""
        if not self._index.is_complete:  # until then nothing but the usages themselves is watched
            await self._context.manager.synced(NAME)
            self._index.is_complete = True
        if key == _EVERYTHING:
            return Result()
        try:
            obj = await self._client.get(key.gvk, key.name, namespace=key.namespace)
        except NotFound:
            return Result()
        try:
            usage = parse_usage(obj)
        except UsageInvalid as error:
            await self._refuse(obj, error)
            return Result()
        begun = self._watch(usage)
        if usage.is_terminating:
            await self._end(obj, usage)
        else:
            await self._protect(obj, usage)
        # A deletion after what was read here and before the first list of a new watch is never told: look once more.
        return Result(requeue_after=self._context.poll_interval if begun else None)

    async def _refuse(self, obj: Object, error: UsageInvalid) -> None:
        """Say what is wrong with a usage that means nothing; if it is being deleted, nothing is held up by it."""
        if is_deleted(obj):
            await remove_finalizer(self._client, obj, USAGE_FINALIZER, manager=MANAGER)
            return
        await self._report(obj, XrCondition("Ready", "False", "InvalidUsage", str(error)))

    async def _report(self, obj: Object, condition: XrCondition, *, kind: EventKind | None = None) -> None:
        """Set the condition; an event follows only where that was news, so a restart tells nothing twice."""
        written = await set_status(self._client, obj, [condition], now=self._context.timestamp(), manager=MANAGER)
        if written is not obj:
            event_type = kind or ("Normal" if condition.status == "True" else "Warning")
            self._context.events.record(obj, event_type, condition.reason, condition.message or "in place", by=NAME)

    # -- a usage that holds

    async def _protect(self, obj: Object, usage: Usage) -> None:
        """Mark what is used as soon as it is known, even while its user is not.

        The finalizer comes first: whoever finds the mark finds a usage that will remove it.
        """
        obj, usage = await self._resolve(obj, usage)
        missing: _NotThere | None = None
        using: Object | None = None
        try:
            used = await self._read(usage, usage.of, "spec.of")
        except _NotThere as error:
            await self._report(obj, XrCondition("Ready", "False", error.reason, str(error)))
            return
        try:
            using = None if usage.by is None else await self._read(usage, usage.by, "spec.by")
        except _NotThere as error:
            missing = error
        obj = await self._bind(obj, usage, using)
        await self._mark(used)
        if missing is not None:
            await self._report(obj, XrCondition("Ready", "False", missing.reason, str(missing)))
        else:
            await self._report(obj, XrCondition("Ready", "True", "Available"))

    async def _resolve(self, obj: Object, usage: Usage) -> tuple[Object, Usage]:
        """Turn selectors into references, for good; one that matches nothing stays as it is."""
        refs: Object = {}
        for name, side in (("of", usage.of), ("by", usage.by)):
            if side is not None and not side.is_resolved:
                chosen = choose(usage, side, await self._candidates(usage, side))
                if chosen is not None:
                    refs[name] = {"resourceRef": resolved_ref(usage, chosen)}
        if refs:
            obj = await merge(self._client, obj, {"spec": refs}, manager=MANAGER)
            usage = parse_usage(obj)
            self._index.put(usage)  # it protects from now on, not only when the watch tells
        return obj, usage

    async def _candidates(self, usage: Usage, side: Side) -> list[Object]:
        found: list[Object] = []
        try:
            namespace = await self._namespace_of(usage, side, "")
        except _NotThere:
            return found
        async for page in list_pages(self._client, side.gvk, namespace=namespace, labels=label_selector(side)):
            found += page.items
        return found

    async def _read(self, usage: Usage, side: Side, path: str) -> Object:
        namespace = await self._namespace_of(usage, side, path)
        if not side.is_resolved:
            raise _NotThere("CannotResolveSelector", unresolved_message(side, path))
        try:
            return await self._client.get(side.gvk, side.name, namespace=namespace)
        except NotFound as error:
            raise _NotThere("ResourceNotFound", f"{path}: {error}") from error

    async def _namespace_of(self, usage: Usage, side: Side, path: str) -> str:
        """Where to look for an object. A ClusterUsage has no namespace to look in, and a Usage has only namespaces: who
        may write to one namespace shall not hold what belongs to all of them."""
        try:
            kind = await self._client.kind(side.gvk)
        except NotFound as error:
            raise _NotThere("KindNotServed", f"{path}: {error}") from error
        if kind.namespaced and not usage.key.namespace:
            raise _NotThere("InvalidUsage", f"{path}: {kind.kind} has a namespace; use a Usage, not a {usage.kind}")
        if usage.key.namespace and not kind.namespaced:
            raise _NotThere("InvalidUsage", f"{path}: {kind.kind} has no namespace; use a ClusterUsage, not a Usage")
        return side.namespace

    async def _bind(self, obj: Object, usage: Usage, using: Object | None) -> Object:
        """Finalizer, details and owner, in one write if any of them differs."""
        changes: Object = {}
        finalizers = finalizers_of(obj)
        if USAGE_FINALIZER not in finalizers:
            changes["finalizers"] = [*finalizers, USAGE_FINALIZER]
        text = details(usage)
        if text and annotations_of(obj).get(DETAILS_ANNOTATION) != text:
            changes["annotations"] = {DETAILS_ANNOTATION: text}
        owners = owners_of(obj)
        if using is not None and all(owner["uid"] != uid_of(using) for owner in owners):
            changes["ownerReferences"] = [*_without_namesakes(owners, using), _owner(using)]
        return await merge(self._client, obj, {"metadata": changes}, manager=MANAGER) if changes else obj

    async def _mark(self, used: Object) -> None:
        """Label the object as in use, and record on it that somebody tried to delete it."""
        changes: Object = {}
        if not is_marked(used):
            changes["labels"] = {IN_USE_LABEL: "true"}
        attempt = self._attempts.get(uid_of(used))
        if attempt is not None and annotations_of(used).get(ATTEMPT_ANNOTATION) != attempt:
            changes["annotations"] = {ATTEMPT_ANNOTATION: attempt.value}
        if changes:
            await self._amend(used, changes)
        if attempt is not None:
            self._attempts.pop(uid_of(used), None)

    async def _amend(self, obj: Object, metadata: Object) -> None:
        """Change metadata of this very object, whatever else was written to it meanwhile."""
        patch = Patch(PatchType.MERGE, {"metadata": {**metadata, "uid": uid_of(obj)}})
        where = namespace_of(obj)
        await self._client.patch(gvk_of(obj), name_of(obj), patch, namespace=where, manager=MANAGER)

    # -- a usage that ends

    async def _end(self, obj: Object, usage: Usage) -> None:
        """Let the object go, then the usage. Until its user is gone a composed usage stays, and protects."""
        if USAGE_FINALIZER not in finalizers_of(obj):
            self._index.release(usage)  # others may still hold it, but it has let go
            return
        using = await self._using(usage)
        if using is not None:
            message = f'waiting for {using["kind"]} "{name_of(using)}" to be deleted'
            await self._report(obj, XrCondition("Ready", "False", "WaitingUsingDeleted", message), kind="Normal")
            used = await self._try_read(usage, usage.of)
            if used is not None:
                await self._mark(used)
            return
        self._index.release(usage)
        used = await self._try_read(usage, usage.of)
        if used is not None:
            await self._finalize(usage, used)
        await remove_finalizer(self._client, obj, USAGE_FINALIZER, manager=MANAGER)

    async def _using(self, usage: Usage) -> Object | None:
        """The user that a composed usage waits for: both were deleted with their XR, in no particular order."""
        if usage.by is None or not usage.is_composed:
            return None
        using = await self._try_read(usage, usage.by)
        return using if using is not None and usage.is_user(uid_of(using)) else None

    async def _try_read(self, usage: Usage, side: Side) -> Object | None:
        try:
            return await self._read(usage, side, "spec") if side.is_resolved else None
        except _NotThere:
            return None

    async def _finalize(self, usage: Usage, used: Object) -> None:
        """Take the mark away with the last usage; before that, delete what somebody had tried to delete.

        A crash after the deletion finds an object that is gone or terminating, and does not delete a second time; one
        before it finds the attempt still recorded. An attempt that is not replayed is forgotten with the mark, or it
        would come back to life with the next usage of the object.
        """
        if self._index.protecting(*_identity(used)):
            return
        attempt = self._attempts.get(uid_of(used)) or annotations_of(used).get(ATTEMPT_ANNOTATION)
        marked = is_marked(used)
        if usage.replays_deletion and attempt and not is_deleted(used):
            if marked and not await self._unmark(used):
                return
            marked = False
            await self._replay(used, str(attempt))
        changes: Object = {}
        if marked:
            changes["labels"] = {IN_USE_LABEL: None}
        if ATTEMPT_ANNOTATION in annotations_of(used):
            changes["annotations"] = {ATTEMPT_ANNOTATION: None}
        if changes:
            try:
                await self._amend(used, changes)
            except NotFound:
                pass
        self._attempts.pop(uid_of(used), None)

    async def _unmark(self, used: Object) -> bool:
        """Whether the object is still there, without its mark: a webhook would refuse to delete what has it."""
        try:
            await self._amend(used, {"labels": {IN_USE_LABEL: None}})
        except NotFound:
            return False
        return True

    async def _replay(self, used: Object, policy: str) -> None:
        propagation = Propagation(policy) if policy in tuple(Propagation) else None
        try:
            await self._client.delete(
                gvk_of(used),
                name_of(used),
                namespace=namespace_of(used),
                propagation=propagation,
                uid=uid_of(used),
            )
        except NotFound:
            return
        self._context.events.record(used, "Normal", "ReplayDeletion", "deleted as asked for while in use", by=NAME)


def is_marked(obj: Mapping[str, Any] | None) -> bool:
    """Whether an object says that it is in use."""
    return obj is not None and labels_of(obj).get(IN_USE_LABEL) == "true"


def _identity(obj: Mapping[str, Any]) -> tuple[str, str, str, str]:
    """Group, kind, namespace and name: how the index knows an object, whatever the version it is read in."""
    kind = gvk_of(obj)
    return kind.group, kind.kind, namespace_of(obj), name_of(obj)


def _owner(by: Mapping[str, Any]) -> Object:
    return {"apiVersion": by["apiVersion"], "kind": by["kind"], "name": name_of(by), "uid": uid_of(by)}


def _without_namesakes(owners: Iterable[Object], by: Mapping[str, Any]) -> list[Object]:
    """Owners but for earlier objects of the same name, which are gone."""
    named = (gvk_of(by).group, by["kind"], name_of(by))
    return [owner for owner in owners if (gvk_of(owner).group, owner["kind"], owner["name"]) != named]
