"""XRDs become served kinds: a CRD for the XRs and one for the claims, with controllers for the objects of each.

A reconcile says what should be (finalizers, roles, CRDs, running controllers, conditions) and writes only what is not;
it waits by ending, and a watch of CRDs brings the key back. What served before a change that is refused goes on
serving, and the controllers of its objects go on running: a typing mistake in an XRD must not stop the XRs that live.

Deletion undoes it from the outside in, claims before XRs: all objects, then their controllers, then the CRD, then the
finalizer. Objects lose their own finalizers only while their controllers run, so these are started again when the
process was restarted in between. A CRD that this XRD does not control stays, with its objects.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, Protocol

from planform.api.annotations import is_paused
from planform.api.conditions import XrCondition, condition_message, condition_reason, condition_status
from planform.api.kinds import GroupVersionKind, Object
from planform.api.metadata import finalizers_of, is_deleted, labels_of, name_of, uid_of
from planform.api.names import (
    CLUSTER_ROLE,
    CRD,
    DEFINED_FINALIZER,
    EXTENSIONS_GROUP,
    OFFERED_FINALIZER,
    XRD,
)
from planform.api.owners import is_controlled_by, owners_of
from planform.client.informer import InformerEvent, ObjectKey
from planform.definitions.crds import (
    InvalidDefinition,
    check_replaceable,
    claim_crd,
    claim_crd_name,
    claim_kind,
    composite_crd,
    is_current,
    xr_kind,
)
from planform.definitions.deletion import DeleteAndWait
from planform.definitions.roles import definition_roles
from planform.errors import ApiError, BadRequest, Forbidden, Invalid, NotFound, PlanformError
from planform.reconcile.context import ControllerContext
from planform.reconcile.controller import Controller, Result
from planform.reconcile.sources import Source, to_owner, to_self
from planform.reconcile.writes import add_finalizer, merge, remove_finalizer, set_status, upon

NAME: Final = "definitions"
MANAGER: Final = "apiextensions.crossplane.io/definition"
NUDGE_SECONDS: Final = 2.0
RETRY_ANNOTATION: Final = "planform.dev/cleanup-retried-at"
"""On a CRD that does not go away: when the API server was last asked to try again."""


class InstanceControllers(Protocol):
    """Runs the controller of an XRD's XRs, or of its claims."""

    async def start(self, xrd: Object) -> None:
        """Run it for the XRD as it is now; nothing happens if it runs for this generation already."""
        ...

    async def stop(self, xrd_name: str) -> None:
        """End it once its reconciles in hand are done; nothing happens if it does not run."""
        ...


@dataclass(frozen=True)
class _Part:
    """One of the two kinds that an XRD may bring."""

    condition: Literal["Established", "Offered"]
    watching: str
    terminating: str
    finalizer: str
    controller_field: str
    crd_name: Callable[[Mapping[str, Any]], str | None]
    crd: Callable[[Mapping[str, Any]], Object | None]
    kind: Callable[[Mapping[str, Any]], GroupVersionKind | None]
    instances: InstanceControllers


class DefinitionController:
    """Reconciles XRDs; `composites` and `claims` run what each of them brings."""

    def __init__(
        self, context: ControllerContext, composites: InstanceControllers, claims: InstanceControllers
    ) -> None:
        self._context = context
        self._client = context.client
        self._controller: Controller[ObjectKey] = context.controller(NAME, self.reconcile)
        self._composites = _Part(
            condition="Established",
            watching="WatchingCompositeResource",
            terminating="TerminatingCompositeResource",
            finalizer=DEFINED_FINALIZER,
            controller_field="compositeResourceType",
            crd_name=name_of,
            crd=composite_crd,
            kind=xr_kind,
            instances=composites,
        )
        self._claims = _Part(
            condition="Offered",
            watching="WatchingCompositeResourceClaim",
            terminating="TerminatingCompositeResourceClaim",
            finalizer=OFFERED_FINALIZER,
            controller_field="compositeResourceClaimType",
            crd_name=claim_crd_name,
            crd=claim_crd,
            kind=claim_kind,
            instances=claims,
        )
        self._xrds_of: dict[str, set[str]] = {}  # who wants the CRD of this name, also where another has it
        self._deletions: dict[tuple[str, str], DeleteAndWait] = {}  # by XRD and finalizer, while objects are deleted
        self._held_up: dict[str, float] = {}  # of XRDs whose CRD does not go away, in how many seconds to look again
        self._nudged: dict[str, float] = {}  # when a CRD that does not go away was last touched, by its name

    def start(self) -> None:
        """Run it on the manager, with its watches of XRDs, their CRDs and their roles."""
        owner = to_owner(EXTENSIONS_GROUP, XRD.kind, cluster_scoped=True)
        sources = [Source(XRD, to_self), Source(CRD, self._waiting_for), Source(CLUSTER_ROLE, owner)]
        self._context.manager.start(self._controller, sources)

    async def reconcile(self, key: ObjectKey) -> Result:
        xrd = await self._read(XRD, key.name)
        if xrd is None:
            await self._forget(key.name)
            return Result()
        for part in (self._composites, self._claims):
            if crd_name := part.crd_name(xrd):
                self._xrds_of.setdefault(crd_name, set()).add(key.name)
        if is_paused(xrd):
            await self._keep_running(xrd)
        elif is_deleted(xrd):
            await self._withdraw(xrd)
        else:
            await self._serve(xrd)
        return Result(requeue_after=self._held_up.pop(key.name, None))

    def _waiting_for(self, crd: InformerEvent) -> Iterable[ObjectKey]:
        return [ObjectKey("", name) for name in sorted(self._xrds_of.get(crd.key.name, ()))]

    # -- serving

    async def _serve(self, xrd: Object) -> None:
        parts = [self._composites, self._claims] if xrd["spec"].get("claimNames") else [self._composites]
        try:
            wanted = [(part, crd) for part in parts if (crd := part.crd(xrd))]
        except InvalidDefinition as error:
            await self._keep_running(xrd)
            await self._report(xrd, [_refused(part, error) for part in parts])
            return
        for part in parts:
            xrd = await add_finalizer(self._client, xrd, part.finalizer, manager=MANAGER)
        verdicts: list[XrCondition] = []
        types: Object = {}
        for part, crd in wanted:  # claims are of use only when their XRs are served
            verdict = await self._serve_part(xrd, part, crd)
            verdicts += [verdict] if verdict else []
            if verdict is None or verdict.status != "True":
                break
            kind = part.kind(xrd)
            if kind is not None:
                types[part.controller_field] = {"apiVersion": kind.api_version, "kind": kind.kind}
        xrd = await self._report(xrd, verdicts, types)
        await self._grant_roles(xrd)

    async def _serve_part(self, xrd: Object, part: _Part, wanted: Object) -> XrCondition | None:
        """The condition that tells how it went; None while there is nothing to tell but to wait for the CRD."""
        try:
            crd = await self._apply_crd(wanted)
        except (InvalidDefinition, Invalid, BadRequest) as error:
            await self._keep_running(xrd)
            return _refused(part, error)
        except Forbidden as error:  # nothing in the XRD is wrong, so the loop has to look again
            await self._report(xrd, [_refused(part, error)])
            raise
        await self._nudge(xrd, crd)
        if condition_status(crd, "Established") != "True":
            clash = condition_message(crd, "NamesAccepted") if condition_status(crd, "NamesAccepted") == "False" else ""
            return XrCondition(part.condition, "False", "NamesNotAccepted", clash) if clash else None
        await part.instances.start(xrd)
        return XrCondition(part.condition, "True", part.watching)

    async def _apply_crd(self, wanted: Object) -> Object:
        found = await self._read(CRD, name_of(wanted))
        if found is not None:
            check_replaceable(found, wanted)
            if is_current(found, wanted):
                return found
        return await self._client.apply(upon(found, wanted), manager=MANAGER, force=True)

    async def _grant_roles(self, xrd: Object) -> None:
        """Comes last, since XRs can be served without: a control plane that may not write roles says so and goes on."""
        for role in definition_roles(xrd):
            found = await self._read(CLUSTER_ROLE, name_of(role))
            if found is not None and _grants(found, role):
                continue
            try:
                await self._client.apply(upon(found, role), manager=MANAGER, force=True)
            except (Forbidden, Invalid) as error:
                self._context.events.record(xrd, "Warning", "RolesNotGranted", error.message, by=NAME)
                raise

    async def _keep_running(self, xrd: Object) -> None:
        """Have the controllers run of every kind that is served as this XRD's, whatever else holds the XRD up."""
        for part in (self._composites, self._claims):
            crd = await self._own_crd(xrd, part)
            if crd is None or condition_status(crd, "Established") != "True":
                continue
            try:
                kind = part.kind(xrd)
            except InvalidDefinition:
                continue
            if kind is not None and kind.version == _stored_version(crd):
                await part.instances.start(xrd)

    # -- withdrawing

    async def _withdraw(self, xrd: Object) -> None:
        """Take the next step of a deletion. Each step ends in a change that brings the key back for the one after."""
        finalizers = finalizers_of(xrd)
        held = [part for part in (self._claims, self._composites) if part.finalizer in finalizers]
        fresh = [part for part in held if condition_reason(xrd, part.condition) != part.terminating]
        xrd = await self._report(xrd, [_terminating(xrd, part) for part in fresh])
        if held and await self._is_withdrawn(xrd, held[0]):
            await remove_finalizer(self._client, xrd, held[0].finalizer, manager=MANAGER)

    async def _is_withdrawn(self, xrd: Object, part: _Part) -> bool:
        """Whether nothing of the part is left; if something is, what can be done about it now has been done."""
        crd = await self._own_crd(xrd, part)
        if crd is not None and await self._has_objects(xrd, part, crd):
            return False
        await part.instances.stop(name_of(xrd))
        self._stop_watching(name_of(xrd), part)
        if crd is None:
            return True
        await self._nudge(xrd, crd)
        if not is_deleted(crd):
            try:
                await self._client.delete(CRD, name_of(crd), uid=uid_of(crd))
            except NotFound:
                pass
        return False

    async def _has_objects(self, xrd: Object, part: _Part, crd: Object) -> bool:
        """Whether the kind still has objects; all of them are being deleted then, and their controllers run."""
        kind, name = _served_kind(crd), name_of(xrd)
        if kind is None:
            return False  # the API has no way to them; deleting the CRD does
        deletion = self._deletions.get((name, part.finalizer))
        if deletion is None:
            deletion = DeleteAndWait(self._context, kind, lambda: self._controller.queue.add(ObjectKey("", name)))
            self._deletions[name, part.finalizer] = deletion
        if not await deletion.any():
            return False
        await self._keep_running(xrd)
        try:
            found = await deletion.delete_all()
        except ApiError as error:
            await self._report(xrd, [_terminating(xrd, part, error.message)])
            raise
        if found:
            await self._report(xrd, [_terminating(xrd, part)])
        return found

    def _stop_watching(self, xrd_name: str, part: _Part) -> None:
        deletion = self._deletions.pop((xrd_name, part.finalizer), None)
        if deletion is not None:
            deletion.close()

    async def _forget(self, xrd_name: str) -> None:
        """The XRD is gone, perhaps by force: nothing that it brought may go on running."""
        for part in (self._claims, self._composites):
            await part.instances.stop(xrd_name)
            self._stop_watching(xrd_name, part)
        for crd_name, xrds in list(self._xrds_of.items()):
            xrds.discard(xrd_name)
            if not xrds:
                del self._xrds_of[crd_name]

    async def _nudge(self, xrd: Object, crd: Object) -> None:
        """Have the API server try again to finalize a CRD, if it could not delete the objects.

        That happens when the storage of a kind is not ready yet. kube-apiserver then tries again by itself, but ever
        more seldom: a few failures within a second make it wait for minutes. A change of the CRD makes it look at once.
        """
        if not is_deleted(crd) or condition_reason(crd, "Terminating") != "InstanceDeletionFailed":
            self._nudged.pop(name_of(crd), None)
            return
        now, name = self._context.clock.monotonic(), name_of(xrd)
        wait = self._nudged.setdefault(name_of(crd), now) + NUDGE_SECONDS - now
        if wait > 0:
            self._held_up[name] = wait
            return
        self._nudged[name_of(crd)] = now
        self._held_up[name] = NUDGE_SECONDS
        annotations = {RETRY_ANNOTATION: self._context.timestamp()}
        try:
            await merge(self._client, crd, {"metadata": {"annotations": annotations}}, manager=MANAGER)
        except NotFound:
            pass  # it went meanwhile

    # -- reading and telling

    async def _read(self, kind: GroupVersionKind, name: str) -> Object | None:
        try:
            return await self._client.get(kind, name)
        except NotFound:
            return None

    async def _own_crd(self, xrd: Object, part: _Part) -> Object | None:
        name = part.crd_name(xrd)
        crd = await self._read(CRD, name) if name else None
        return crd if crd is not None and is_controlled_by(crd, xrd) else None

    async def _report(self, xrd: Object, conditions: Sequence[XrCondition], types: Mapping[str, Any] = {}) -> Object:
        """Write what differs into the status, and tell of each condition that does."""
        if not conditions:
            return xrd
        before = (xrd.get("status") or {}).get("controllers") or {}
        more = {"controllers": {**before, **types}} if types else {}
        now = self._context.timestamp()
        updated = await set_status(self._client, xrd, conditions, now=now, manager=MANAGER, **more)
        for condition in conditions:
            if _state_of(xrd, condition.type) != _state_of(updated, condition.type):
                kind: Literal["Normal", "Warning"] = "Warning" if _is_refusal(condition) else "Normal"
                text = condition.message or "the kind is served and its objects are reconciled"
                self._context.events.record(updated, kind, condition.reason, text, by=NAME)
        return updated


def _refused(part: _Part, error: PlanformError) -> XrCondition:
    reason = InvalidDefinition.reason if isinstance(error, Invalid | BadRequest) else error.reason
    return XrCondition(part.condition, "False", reason, error.message)


def _is_refusal(condition: XrCondition) -> bool:
    return condition.status == "False" and not condition.reason.startswith("Terminating")


def _terminating(xrd: Mapping[str, Any], part: _Part, problem: str = "") -> XrCondition:
    waits = f"all {part.crd_name(xrd) or 'objects'} are being deleted, then their CRD"
    return XrCondition(part.condition, "False", part.terminating, problem or waits)


def _grants(found: Mapping[str, Any], wanted: Mapping[str, Any]) -> bool:
    labels: Mapping[str, str] = labels_of(found)
    return (
        found.get("rules") == wanted["rules"]
        and owners_of(found) == owners_of(wanted)
        and all(labels.get(name) == value for name, value in labels_of(wanted).items())
    )


def _state_of(obj: Mapping[str, Any], type_: str) -> tuple[str, str, str]:
    return condition_status(obj, type_), condition_reason(obj, type_), condition_message(obj, type_)


def _stored_version(crd: Mapping[str, Any]) -> str:
    return next((str(version["name"]) for version in crd["spec"]["versions"] if version["storage"]), "")


def _served_kind(crd: Mapping[str, Any]) -> GroupVersionKind | None:
    """A kind by which the objects can be listed and deleted: as stored, if that version is served."""
    spec = crd["spec"]
    served = [str(version["name"]) for version in spec["versions"] if version["served"]]
    if not served:
        return None
    stored = _stored_version(crd)
    return GroupVersionKind(spec["group"], stored if stored in served else served[0], spec["names"]["kind"])
