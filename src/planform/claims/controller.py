"""Claims: each keeps an XR of its own, and shows what becomes of it. One controller for each XRD that offers claims.

Nothing is polled: a claim is looked at when it changes or its XR does. An XR tells of new connection details by their
publishing time, so its Secret is not watched; those of claims are, in the namespaces that have any, because a user who
deletes one wants it back.
"""

from __future__ import annotations

from collections.abc import Iterable

from planform.api.annotations import is_paused
from planform.api.conditions import XrCondition, has_condition, set_conditions
from planform.api.kinds import GroupVersionKind, Object, gvk_of
from planform.api.metadata import (
    finalizers_of,
    generation_of,
    is_deleted,
    name_of,
    namespace_of,
    resource_version_of,
    uid_of,
)
from planform.api.names import CLAIM_FINALIZER, CLAIM_MANAGER, SECRET
from planform.claims.applied import is_applied
from planform.claims.claims import (
    Offer,
    XrTaken,
    before_the_xr,
    claim_from_xr,
    claim_status,
    is_bound_to,
    must_be_free,
    offer_of,
    ownership_for_claim,
    readiness,
    waiting,
    xr_from_claim,
    xr_name,
)
from planform.claims.secrets import SecretRefused, details_place, has_published, secret_for_claim
from planform.client.informer import InformerEvent, ObjectKey
from planform.client.protocol import Patch, PatchType, Propagation
from planform.errors import AlreadyExists, Conflict, NotFound, PlanformError
from planform.reconcile.context import ControllerContext
from planform.reconcile.controller import Result
from planform.reconcile.events import EventKind
from planform.reconcile.sources import Source, to_owner, to_self
from planform.reconcile.writes import merge, remove_finalizer, set_status

_SYNCED = XrCondition("Synced", "True", "ReconcileSuccess")
_PAUSED = XrCondition(
    "Synced", "False", "ReconcilePaused", "Reconciliation is paused by the annotation crossplane.io/paused"
)
_DELETING = XrCondition("Ready", "False", "Deleting")
_SECONDS = 60.0


class XrNotDeleted(PlanformError):
    """The API refused to delete the XR of a claim that goes; the message says why."""

    reason = "XrNotDeleted"
    retryable = True


class ClaimControllers:
    """The claim controllers of all XRDs. Starting what runs and stopping what does not are no errors."""

    def __init__(self, context: ControllerContext) -> None:
        self._context = context
        self._running: dict[str, tuple[str, int]] = {}  # of each controller, the XRD's uid and generation it serves

    async def start(self, xrd: Object) -> None:
        """Serve the claims of this XRD as it is now; a controller of another generation is stopped first."""
        name = controller_name(name_of(xrd))
        serving = (uid_of(xrd), generation_of(xrd))
        manager = self._context.manager
        if name in manager and self._running.get(name) == serving:
            return
        await manager.stop(name)
        claims = ClaimController(self._context, offer_of(xrd), name)
        manager.start(self._context.controller(name, claims.reconcile, timeout=_SECONDS), claims.sources())
        self._running[name] = serving

    async def stop(self, xrd_name: str) -> None:
        """End the controller of the XRD's claims; what it has begun is finished."""
        name = controller_name(xrd_name)
        self._running.pop(name, None)
        await self._context.manager.stop(name)


def controller_name(xrd_name: str) -> str:
    return f"claim/{xrd_name}"


class ClaimController:
    """Reconciles the claims of one XRD."""

    def __init__(self, context: ControllerContext, offer: Offer, name: str) -> None:
        self._context = context
        self._client = context.client
        self._offer = offer
        self._name = name
        self._refused: dict[str, set[ObjectKey]] = {}  # by XR, the claims that could not have it
        self._owners = to_owner(offer.claim.group, offer.claim.kind)

    def sources(self) -> list[Source[ObjectKey]]:
        return [Source(self._offer.claim, to_self), Source(self._offer.composite, self._to_claims)]

    def _to_claims(self, change: InformerEvent) -> Iterable[ObjectKey]:
        """The claim that an XR is bound to, and those that would like to be."""
        reference = (change.object.get("spec") or {}).get("claimRef") or {}
        kind, ours = gvk_of(reference), self._offer.claim
        if (kind.group, kind.kind) == (ours.group, ours.kind):
            yield ObjectKey(reference["namespace"], reference["name"])
        yield from self._refused.pop(change.key.name, ())

    async def reconcile(self, key: ObjectKey) -> Result:
        """Bring the claim and its XR in line, or let both go."""
        claim = await self._read(self._offer.claim, key.name, key.namespace)
        if claim is None:
            return Result()
        if is_paused(claim):
            await self._set_condition(claim, _PAUSED, "Normal", "ReconciliationPaused")
            return Result()
        deleting = is_deleted(claim)
        try:
            await (self._finalize(claim) if deleting else self._keep(claim, key))
        except XrTaken as error:
            await self._set_condition(
                claim, _failure(error), "Warning", "BindCompositeResource"
            )  # and wait until that XR changes
        except (Conflict, SecretRefused):
            raise  # the one is no news, the other has been shown with the rest of the status
        except PlanformError as error:
            doing = "DeleteCompositeResource" if deleting else "ConfigureCompositeResource"
            await self._set_condition(claim, _failure(error), "Warning", doing)
            raise
        return Result()

    # -- while the claim lives

    async def _keep(self, claim: Object, key: ObjectKey) -> None:
        name = xr_name(claim)
        # Registered before the XR is read: if it becomes free in between, the claim hears of it.
        self._refused.setdefault(name, set()).add(key)
        xr = await self._read(self._offer.composite, name)
        must_be_free(claim, xr)
        self._forget(name, key)
        # The claim points at its XR, and is held back from going, before there is one: a crash leaves a reference to
        # nothing, which the next reconcile fills. The other order leaves an XR that nobody finds.
        claim = await self._write(claim, before_the_xr(claim, xr, self._offer, name))
        xr = await self._apply(claim, xr, name)
        claim = await self._write(claim, claim_from_xr(claim, xr, self._offer))
        await self._show(claim, xr)

    def _forget(self, name: str, key: ObjectKey) -> None:
        waiting = self._refused.get(name, set())
        waiting.discard(key)
        if not waiting:
            self._refused.pop(name, None)

    async def _apply(self, claim: Object, xr: Object | None, name: str) -> Object:
        wanted = xr_from_claim(claim, xr, self._offer, name)
        if xr is not None:
            if is_applied(xr, wanted, manager=CLAIM_MANAGER):
                return xr
            if is_bound_to(xr, claim):
                await self._take_over(xr)
            else:  # of several claims that want it, one gets it
                wanted["metadata"]["resourceVersion"] = resource_version_of(xr)
        applied = await self._client.apply(wanted, manager=CLAIM_MANAGER, force=True)
        if xr is None or not is_bound_to(xr, claim):
            self._record_event(claim, "Normal", "BindCompositeResource", f'bound to {applied["kind"]} "{name}"')
        return applied

    async def _take_over(self, xr: Object) -> None:
        entries = ownership_for_claim(xr)
        if entries is None:
            return
        replace = [
            {"op": "test", "path": "/metadata/uid", "value": uid_of(xr)},
            {"op": "replace", "path": "/metadata/resourceVersion", "value": resource_version_of(xr)},
            {"op": "add", "path": "/metadata/managedFields", "value": entries},
        ]
        await self._client.patch(gvk_of(xr), name_of(xr), Patch(PatchType.JSON, replace), manager=CLAIM_MANAGER)

    async def _show(self, claim: Object, xr: Object) -> None:
        """Write the claim's status, after its Secret: who reads Ready may read the Secret."""
        status, synced, ready = claim_status(claim, xr), _SYNCED, readiness(xr)
        refused: SecretRefused | None = None
        if ready.status == "True":
            try:
                published = await self._publish(claim, xr)
            except SecretRefused as error:
                refused = error
                synced = _failure(error)
                self._record_event_once(claim, synced, "Warning", "PropagateConnectionSecret")
                ready = waiting("connection details cannot be published")
            else:
                if published is not None and (published or "connectionDetails" not in status):
                    status["connectionDetails"] = {"lastPublishedTime": self._context.timestamp()}
        status["conditions"] = set_conditions(
            status["conditions"],
            [synced, ready],
            now=self._context.timestamp(),
            generation=claim["metadata"].get("generation"),
        )
        if status != (claim.get("status") or {}):
            await self._client.update({**claim, "status": status}, subresource="status", manager=CLAIM_MANAGER)
        if refused is not None:
            raise refused

    async def _publish(self, claim: Object, xr: Object) -> bool | None:
        """Copy the XR's connection details; whether that took a write, None if there is nothing to copy."""
        target, place = claim["spec"].get("writeConnectionSecretToRef"), details_place(xr)
        if not target or place is None:
            return None
        source = await self._read(SECRET, place[1], place[0])
        if source is None:
            if not has_published(xr):
                return None
            raise SecretRefused(f"Secret {place[0]}/{place[1]} with the connection details does not exist")
        namespace = namespace_of(claim)
        if self._name in self._context.manager:
            self._context.manager.watch(self._name, Source(SECRET, self._owners, namespace=namespace))
        existing = await self._read(SECRET, target["name"], namespace)
        secret = secret_for_claim(claim, xr, source, existing)
        if secret is None:
            return False
        if existing is not None:
            await self._client.update(secret, manager=CLAIM_MANAGER)
        else:
            try:
                await self._client.create(secret, manager=CLAIM_MANAGER)
            except AlreadyExists as error:
                raise Conflict(str(error)) from error
        self._record_event(
            claim, "Normal", "PropagateConnectionSecret", f'connection details are in Secret "{target["name"]}"'
        )
        return True

    # -- when the claim goes

    async def _finalize(self, claim: Object) -> None:
        """Delete the XR if it is the claim's own; with the Foreground policy the claim stays until the XR is gone."""
        if CLAIM_FINALIZER not in finalizers_of(claim):
            return
        xr = await self._read(self._offer.composite, xr_name(claim))
        foreground = claim["spec"].get("compositeDeletePolicy") == "Foreground"
        asked = not foreground or has_condition(claim, _DELETING)
        if xr is not None and is_bound_to(xr, claim) and await self._delete(xr, foreground, asked) and foreground:
            await set_status(
                self._client, claim, [_SYNCED, _DELETING], now=self._context.timestamp(), manager=CLAIM_MANAGER
            )
            return
        await remove_finalizer(self._client, claim, CLAIM_FINALIZER, manager=CLAIM_MANAGER)

    async def _delete(self, xr: Object, foreground: bool, asked: bool) -> bool:
        """Delete the XR unless it is going as it should; whether it is still there.

        A deletion in the foreground is asked for once, also of an XR that is going already. When all that the XR owned
        is gone, the garbage collector takes its finalizer off it, though another may still hold it: asking again would
        put that finalizer back, and so on for ever.
        """
        if is_deleted(xr) and (asked or "foregroundDeletion" in finalizers_of(xr)):
            return True
        propagation = Propagation.FOREGROUND if foreground else Propagation.BACKGROUND
        try:
            left = await self._client.delete(gvk_of(xr), name_of(xr), propagation=propagation, uid=uid_of(xr))
        except NotFound:
            return False
        except Conflict as error:  # a Usage protects it, say; retried, but not quietly
            raise XrNotDeleted(f'cannot delete {xr["kind"]} "{name_of(xr)}": {error}') from error
        return left is not None

    # -- reading, writing, telling

    async def _read(self, gvk: GroupVersionKind, name: str, namespace: str = "") -> Object | None:
        try:
            return await self._client.get(gvk, name, namespace=namespace)
        except NotFound:
            return None

    async def _write(self, claim: Object, body: Object | None) -> Object:
        return claim if body is None else await merge(self._client, claim, body, manager=CLAIM_MANAGER)

    async def _set_condition(self, claim: Object, condition: XrCondition, kind: EventKind, reason: str) -> None:
        self._record_event_once(claim, condition, kind, reason)
        await set_status(self._client, claim, [condition], now=self._context.timestamp(), manager=CLAIM_MANAGER)

    def _record_event_once(self, claim: Object, condition: XrCondition, kind: EventKind, reason: str) -> None:
        """The event that goes with a condition, unless the claim shows that condition already."""
        if not has_condition(claim, condition):
            self._record_event(claim, kind, reason, condition.message)

    def _record_event(self, claim: Object, kind: EventKind, reason: str, message: str) -> None:
        self._context.events.record(claim, kind, reason, message, by=self._name)


def _failure(error: PlanformError) -> XrCondition:
    return XrCondition("Synced", "False", "ReconcileError", str(error))
