"""ManagedResourceDefinitions become CRDs once they are active, and activation policies make them so.

A definition that is not active costs an object and nothing else: its kind is not served, nobody watches it. Policies
name definitions by patterns; what one of them has activated stays active, also when the policy goes.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from planform.api.annotations import is_paused
from planform.api.conditions import XrCondition, is_true
from planform.api.kinds import GroupVersionKind, Object
from planform.api.metadata import generation_of, is_deleted, name_of, uid_of
from planform.api.names import ACTIVATION_POLICY, CRD, MANAGED_DEFINITION
from planform.api.owners import owners_of
from planform.client.informer import InformerEvent, ObjectKey, list_pages
from planform.client.protocol import Client, Patch, PatchType
from planform.errors import AlreadyExists, ApiError, BadRequest, Forbidden, Invalid, NotFound
from planform.packages.runtimes.deployments import covers
from planform.reconcile.context import ControllerContext
from planform.reconcile.controller import Result
from planform.reconcile.events import EventKind
from planform.reconcile.sources import Source, to_self
from planform.reconcile.writes import set_status, upon

DEFINITIONS: Final = "managed-definitions"
POLICIES: Final = "activation-policies"
MANAGER: Final = "apiextensions.crossplane.io/managed"
DEFAULT_POLICY: Final = "default"
ACTIVE: Final = "Active"

_INACTIVE: Final = XrCondition("Established", "False", "InactiveManagedResource")
_PENDING: Final = XrCondition("Established", "Unknown", "PendingManagedResource")
_ESTABLISHED: Final = XrCondition("Established", "True", "EstablishedManagedResource")
_TERMINATING: Final = XrCondition("Established", "False", "TerminatingManagedResource")
_HEALTHY: Final = XrCondition("Healthy", "True", "Running")


async def ensure_default_policy(client: Client, activations: Sequence[str]) -> None:
    """Create the policy that a new control plane has, unless it was told to have none or there is one."""
    if not activations:
        return
    policy = {
        "apiVersion": ACTIVATION_POLICY.api_version,
        "kind": ACTIVATION_POLICY.kind,
        "metadata": {"name": DEFAULT_POLICY},
        "spec": {"activate": list(activations)},
    }
    try:
        await client.get(ACTIVATION_POLICY, DEFAULT_POLICY)
    except NotFound:
        try:
            await client.create(policy, manager=MANAGER)
        except AlreadyExists:
            pass


def activates(patterns: Iterable[str], name: str) -> bool:
    """Whether one of the patterns means the definition; they are those of file names, with `[^...]` for a negation."""
    return any(fnmatch.fnmatchcase(name, pattern.replace("[^", "[!")) for pattern in patterns)


class ManagedDefinitionController:
    """Makes the CRD of each active definition, and keeps it as the definition says."""

    def __init__(self, context: ControllerContext) -> None:
        self._context = context
        self._client = context.client
        self._names: set[str] = set()
        self._applied: dict[str, int] = {}  # the generation of each definition, by uid, that its CRD was written from

    def start(self) -> None:
        """Run on the context's manager; starting twice is starting once."""
        controller = self._context.controller(DEFINITIONS, self.reconcile)
        self._context.manager.start(controller, [Source(MANAGED_DEFINITION, to_self), Source(CRD, self._waiting_for)])

    def _waiting_for(self, crd: InformerEvent) -> Iterable[ObjectKey]:
        return [crd.key] if crd.key.name in self._names else []

    async def reconcile(self, key: ObjectKey) -> Result:
        try:
            definition = await self._client.get(MANAGED_DEFINITION, key.name)
        except NotFound:
            self._names.discard(key.name)
            return Result()
        self._names.add(key.name)
        if is_deleted(definition):
            await self._report(definition, _TERMINATING)
        elif is_paused(definition):
            pass
        elif definition["spec"].get("state") != ACTIVE:
            await self._report(definition, _INACTIVE)
        else:
            await self._establish(definition)
        return Result()

    async def _establish(self, definition: Object) -> None:
        wanted = definition_crd(definition)
        uid, generation = uid_of(definition), generation_of(definition)
        try:
            found = await self._client.get(CRD, name_of(wanted))
        except NotFound:
            found = None
        try:
            if found is None or self._applied.get(uid) != generation or not _is_current(found, wanted):
                others = _other_owners(found, wanted)
                owners = [*owners_of(wanted), *others]
                wanted = {**wanted, "metadata": {**wanted["metadata"], "ownerReferences": owners}}
                found = await self._client.apply(upon(found, wanted), manager=MANAGER, force=True)
                self._applied[uid] = generation
        except (Invalid, BadRequest) as error:
            await self._report(definition, XrCondition("Established", "False", _PENDING.reason, error.message))
            return
        except Forbidden as error:  # nothing in the definition is wrong, so the loop has to look again
            await self._report(definition, XrCondition("Established", "False", _PENDING.reason, error.message))
            raise
        served = is_true(found, "Established")
        await self._report(definition, _ESTABLISHED if served else _PENDING)

    async def _report(self, definition: Object, condition: XrCondition) -> None:
        now = self._context.timestamp()
        written = await set_status(self._client, definition, [condition], now=now, manager=MANAGER)
        if written is not definition and (condition.message or condition is _ESTABLISHED):
            kind: EventKind = "Normal" if condition is _ESTABLISHED else "Warning"
            text = condition.message or "the kind is served"
            self._context.events.record(written, kind, condition.reason, text, by=DEFINITIONS)


def definition_crd(definition: Mapping[str, Any]) -> Object:
    """The CRD of a definition: what the definition has beside its state, owned by it and by what controls it."""
    metadata, spec = definition["metadata"], definition["spec"]
    owner = {**_reference(MANAGED_DEFINITION, metadata), "blockOwnerDeletion": True}
    controllers = [each for each in metadata.get("ownerReferences") or () if each.get("controller")]
    fields = ("group", "names", "scope", "conversion", "preserveUnknownFields")
    return {
        "apiVersion": CRD.api_version,
        "kind": CRD.kind,
        "metadata": {"name": metadata["name"], "ownerReferences": [owner, *controllers]},
        "spec": {
            **{field: spec[field] for field in fields if field in spec},
            "versions": sorted(spec["versions"], key=lambda each: str(each["name"])),
        },
    }


def _reference(kind: GroupVersionKind, metadata: Mapping[str, Any]) -> Object:
    return {"apiVersion": kind.api_version, "kind": kind.kind, "name": metadata["name"], "uid": metadata["uid"]}


def _is_current(found: Mapping[str, Any], wanted: Mapping[str, Any]) -> bool:
    """Whether the CRD has all that is wanted; API servers fill in the rest. It says nothing of what was left out."""
    owners = owners_of(found)
    return all(each in owners for each in owners_of(wanted)) and covers(found["spec"], wanted["spec"])


def _other_owners(found: Mapping[str, Any] | None, wanted: Mapping[str, Any]) -> list[Object]:
    """Owners that the CRD has beside ours; of two controllers, ours is the one."""
    ours = owners_of(wanted)
    present = owners_of(found or {"metadata": {}})
    is_controlled = any(each.get("controller") for each in ours)
    return [
        {**each, "controller": False} if is_controlled and each.get("controller") else each
        for each in present
        if each["uid"] not in {own["uid"] for own in ours}
    ]


class ActivationPolicyController:
    """Activates the definitions that policies name, and tells which these are."""

    def __init__(self, context: ControllerContext) -> None:
        self._context = context
        self._client = context.client
        self._patterns: dict[str, tuple[str, ...]] = {}

    def start(self) -> None:
        """Run on the context's manager; starting twice is starting once."""
        controller = self._context.controller(POLICIES, self.reconcile)
        sources = [Source(ACTIVATION_POLICY, self._policy_changed), Source(MANAGED_DEFINITION, self._to_policies)]
        self._context.manager.start(controller, sources)

    def _policy_changed(self, change: InformerEvent) -> Iterable[ObjectKey]:
        if change.type == "DELETED":
            self._patterns.pop(change.key.name, None)
        else:
            self._patterns[change.key.name] = tuple(change.object["spec"]["activate"])
        return (change.key,)

    def _to_policies(self, definition: InformerEvent) -> Iterable[ObjectKey]:
        name = definition.key.name
        return [ObjectKey("", policy) for policy, given in self._patterns.items() if activates(given, name)]

    async def reconcile(self, key: ObjectKey) -> Result:
        try:
            policy = await self._client.get(ACTIVATION_POLICY, key.name)
        except NotFound:
            return Result()
        if is_deleted(policy) or is_paused(policy):
            return Result()
        names: list[str] = []
        refused: list[ApiError] = []
        async for page in list_pages(self._client, MANAGED_DEFINITION):
            for definition in page.items:
                if activates(policy["spec"]["activate"], name_of(definition)):
                    try:
                        await self._activate(policy, definition)
                        names.append(name_of(definition))
                    except NotFound:
                        pass  # it went meanwhile
                    except (Invalid, Forbidden) as error:
                        refused.append(error)
        await self._report(policy, names, refused)
        if refused:
            raise refused[0]
        return Result()

    async def _activate(self, policy: Object, definition: Object) -> None:
        if definition["spec"].get("state") == ACTIVE:
            return
        name = name_of(definition)
        patch = Patch(PatchType.MERGE, {"spec": {"state": ACTIVE}, "metadata": {"uid": uid_of(definition)}})
        await self._client.patch(MANAGED_DEFINITION, name, patch, manager=MANAGER)
        self._context.events.record(policy, "Normal", "ActivatedDefinition", f"activated {name}", by=POLICIES)

    async def _report(self, policy: Object, names: Sequence[str], refused: Sequence[ApiError]) -> None:
        condition = _HEALTHY
        if refused:
            count = f"{len(refused)} of {len(refused) + len(names)}"
            message = f"{count} definitions could not be activated: {refused[0].message}"
            condition = XrCondition("Healthy", "Unknown", "EncounteredErrors", message)
        more = {"activated": sorted(names)} if names or (policy.get("status") or {}).get("activated") else {}
        now = self._context.timestamp()
        await set_status(self._client, policy, [condition], now=now, manager=MANAGER, **more)
