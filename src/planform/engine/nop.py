"""The built-in provider of NopResources: managed resources that stand for nothing and behave as they are told.

Demos and tests compose them in place of databases and buckets. `spec.forProvider.conditionAfter` says which condition
is to appear how long after creation, so everything follows from the object and the clock: a restart forgets nothing,
all that is due is written at once, and when the last condition is set nothing is left to wait for.
"""

from __future__ import annotations

import base64
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Final, Literal

import msgspec

from planform.api.annotations import is_paused
from planform.api.conditions import XrCondition, set_conditions
from planform.api.kinds import GroupVersionKind, Object
from planform.api.metadata import created_at, is_deleted, namespace_of, resource_version_of
from planform.api.names import (
    CLUSTER_NOP_RESOURCE,
    CONNECTION_SECRET_TYPE,
    NOP_GROUP,
    NOP_RESOURCE,
    SECRET,
)
from planform.api.owners import controller_reference, is_controlled_by
from planform.client.informer import ObjectKey
from planform.clock import parse_timestamp
from planform.errors import NotFound, PlanformError
from planform.gotemplate.errors import CallFailed
from planform.gotemplate.gotime import parse_duration
from planform.reconcile.context import ControllerContext
from planform.reconcile.controller import Result
from planform.reconcile.sources import Source, to_owner, to_self
from planform.reconcile.writes import remove_finalizer

NAME: Final = "nop"
_IDENTITY: Final = ("name", "namespace", "uid", "resourceVersion")
MANAGER: Final = NOP_GROUP
MANAGED_FINALIZER: Final = "finalizer.managedresource.crossplane.io"
"""Other providers of this kind hold their resources with it; one that was taken over from them must be let go."""


class ConditionAfter(msgspec.Struct, frozen=True, rename="camel"):
    """A condition to set once the resource is `time` old, a Go duration."""

    time: str
    condition_type: str
    condition_status: Literal["True", "False", "Unknown"]
    condition_reason: str = ""


class ConnectionDetail(msgspec.Struct, frozen=True):
    """One entry of the connection secret."""

    name: str
    value: str


class Parameters(msgspec.Struct, frozen=True, rename="camel"):
    """`spec.forProvider`, as the user wrote it."""

    condition_after: tuple[ConditionAfter, ...] = ()
    connection_details: tuple[ConnectionDetail, ...] = ()
    fields: Any = msgspec.UNSET


class NopInvalid(PlanformError):
    """The resource asks for something that cannot be; the message begins with the path of the field."""

    reason = "NopInvalid"


class SecretNotOurs(PlanformError):
    """The connection secret exists and belongs to somebody else."""

    reason = "SecretNotOurs"

    def __init__(self, namespace: str, name: str) -> None:
        super().__init__(
            f'spec.writeConnectionSecretToRef: secret "{namespace}/{name}" is not controlled by this resource'
        )


@dataclass(frozen=True, slots=True)
class Outlook:
    """What holds of a resource at one age: its conditions, and in how many seconds the next one is due."""

    conditions: tuple[XrCondition, ...]
    next_in: float | None


def parse_parameters(obj: Mapping[str, Any]) -> Parameters:
    """`spec.forProvider` as a value; raises NopInvalid."""
    try:
        return msgspec.convert((obj.get("spec") or {}).get("forProvider") or {}, Parameters)
    except msgspec.ValidationError as error:
        text, _, path = str(error).partition(" - at `$")
        raise NopInvalid(f"spec.forProvider{path.rstrip('`')}: {text[:1].lower()}{text[1:]}") from error


def outlook(plan: Sequence[ConditionAfter], age: float) -> Outlook:
    """The latest condition of each type that is due at this age; of two due at once the one listed first."""
    due: dict[str, tuple[float, XrCondition]] = {}
    coming: list[float] = []
    for index, entry in enumerate(plan):
        after = _seconds(entry.time, index)
        if after > age:
            coming.append(after - age)
            continue
        known = due.get(entry.condition_type)
        if known is None or known[0] < after:
            condition = XrCondition(entry.condition_type, entry.condition_status, entry.condition_reason)
            due[entry.condition_type] = (after, condition)
    return Outlook(tuple(condition for _, condition in due.values()), min(coming, default=None))


def _seconds(text: str, index: int) -> float:
    try:
        return parse_duration(text) / 1e9
    except CallFailed as error:
        path = f"spec.forProvider.conditionAfter[{index}].time"
        raise NopInvalid(f'{path}: "{text}" is not a duration, such as "30s"') from error


class NopController:
    """Serves these kinds. A key without a namespace is a ClusterNopResource."""

    def __init__(
        self, context: ControllerContext, kinds: Collection[GroupVersionKind] = (NOP_RESOURCE, CLUSTER_NOP_RESOURCE)
    ) -> None:
        self._context = context
        self._kinds = tuple(kinds)
        self._client = context.client
        owners = (
            to_owner(NOP_GROUP, NOP_RESOURCE.kind),
            to_owner(NOP_GROUP, CLUSTER_NOP_RESOURCE.kind, cluster_scoped=True),
        )
        self._secrets: Source[ObjectKey] = Source(
            SECRET, lambda change: tuple(chain.from_iterable(keys(change) for keys in owners))
        )

    def start(self) -> None:
        """Run on the context's manager; starting twice is starting once."""
        controller = self._context.controller(NAME, self.reconcile)
        self._context.manager.start(controller, [Source(kind, to_self) for kind in self._kinds])

    async def reconcile(self, key: ObjectKey) -> Result:
        """Set what is due, in one write; come back when the next condition is."""
        try:
            obj = await self._client.get(
                NOP_RESOURCE if key.namespace else CLUSTER_NOP_RESOURCE, key.name, namespace=key.namespace
            )
        except NotFound:
            return Result()
        if is_deleted(obj):
            await remove_finalizer(self._client, obj, MANAGED_FINALIZER, manager=MANAGER)
            return Result()
        if is_paused(obj):
            await self._set_status(obj, [_synced("False", "ReconcilePaused", "reconciliation is paused by annotation")])
            return Result()
        try:
            parameters = parse_parameters(obj)
            outlooked = outlook(parameters.condition_after, self._age(obj))
            await self._publish_connection(obj, parameters.connection_details)
        except (NopInvalid, SecretNotOurs) as error:
            if await self._set_status(obj, [_synced("False", "ReconcileError", str(error))]):
                self._context.events.record(obj, "Warning", "CannotObserveExternalResource", str(error), by=NAME)
            return Result()
        conditions = [*outlooked.conditions, _synced("True", "ReconcileSuccess")]
        at_provider = {} if parameters.fields is msgspec.UNSET else {"fields": parameters.fields}
        version = await self._set_status(obj, conditions, at_provider=at_provider)
        return Result(requeue_after=outlooked.next_in, observed_resource_version=version)

    def _age(self, obj: Object) -> float:
        created = parse_timestamp(created_at(obj))
        return (self._context.clock.now() - created).total_seconds()

    async def _set_status(
        self, obj: Object, conditions: Sequence[XrCondition], *, at_provider: Object | None = None
    ) -> str:
        """Replace the status if it differs; the version that the object has then, if it did.

        It is no patch, which could not take away a field that the user no longer asks for.
        """
        before: Object = obj.get("status") or {}
        wanted = {**before}
        if at_provider is not None:
            wanted["atProvider"] = at_provider
            if not at_provider:
                del wanted["atProvider"]
        wanted["conditions"] = set_conditions(
            before.get("conditions") or (),
            conditions,
            now=self._context.timestamp(),
            generation=obj["metadata"].get("generation"),
        )
        if wanted == before:
            return ""
        identity = {name: obj["metadata"][name] for name in _IDENTITY if name in obj["metadata"]}
        stored = {"apiVersion": obj["apiVersion"], "kind": obj["kind"], "metadata": identity, "status": wanted}
        written = await self._client.update(stored, subresource="status", manager=MANAGER)
        return resource_version_of(written)

    # -- the connection secret

    async def _publish_connection(self, obj: Object, details: Sequence[ConnectionDetail]) -> None:
        ref = (obj.get("spec") or {}).get("writeConnectionSecretToRef")
        if not ref:
            return
        own = namespace_of(obj)
        namespace = ref.get("namespace") or own
        if not namespace:
            raise NopInvalid("spec.writeConnectionSecretToRef.namespace: required for a cluster-scoped resource")
        if own and namespace != own:
            raise NopInvalid(f'spec.writeConnectionSecretToRef.namespace: must be "{own}", the namespace of its owner')
        self._context.manager.watch(NAME, self._secrets)
        wanted = _secret(obj, namespace, ref["name"], details)
        try:
            found = await self._client.get(SECRET, ref["name"], namespace=namespace)
        except NotFound:
            await self._client.create(wanted, manager=MANAGER)
            return
        if not is_controlled_by(found, obj):
            raise SecretNotOurs(namespace, ref["name"])
        if (found.get("data") or {}) != wanted["data"]:
            await self._client.update({**found, "data": wanted["data"]}, manager=MANAGER)


def _synced(status: Literal["True", "False"], reason: str, message: str = "") -> XrCondition:
    return XrCondition("Synced", status, reason, message)


def _secret(obj: Object, namespace: str, name: str, details: Sequence[ConnectionDetail]) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": name, "namespace": namespace, "ownerReferences": [controller_reference(obj)]},
        "type": CONNECTION_SECRET_TYPE,
        "data": {detail.name: base64.b64encode(detail.value.encode()).decode() for detail in details},
    }
