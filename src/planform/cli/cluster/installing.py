"""What `planform install`, `upgrade` and `uninstall` do to a cluster.

Objects are applied server-side under one field manager, so that a second time changes nothing and what others own stays
theirs. A ConfigMap keeps which objects there are and with which values, so that an upgrade takes away what is no longer
wanted, and asks nobody for the values again. CRDs are never taken away with objects in them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

import orjson

from planform.api.annotations import annotations_of
from planform.api.extensions import crds
from planform.api.kinds import GroupVersionKind, Object, gvk, gvk_of
from planform.api.metadata import finalizers_of, generation_of, name_of, namespace_of
from planform.api.names import (
    COMPOSITION,
    COMPOSITION_REVISION,
    CRD,
    IN_USE_FINALIZER,
    ROLLOUT,
    ROLLOUT_FINALIZER,
    XRD,
)
from planform.client.informer import list_pages
from planform.client.kubernetes import KubernetesClient
from planform.client.waits import time_limit
from planform.clock import Clock
from planform.definitions.crds import claim_kind, xr_kind
from planform.errors import ApiError, NotFound, PlanformError, UsageError
from planform.reconcile.writes import remove_finalizer

MANAGER: Final = "planform-install"
INVENTORY: Final = "planform-installed"
CONFIG_MAP: Final = GroupVersionKind("", "v1", "ConfigMap")
SERVICE: Final = GroupVersionKind("", "v1", "Service")
_HELM: Final = "meta.helm.sh/release-name"
_PAUSE: Final = 0.2

Outcome = Literal["created", "changed", "unchanged", "deleted"]


@dataclass(frozen=True)
class Step:
    """What was done, or would be, to one object."""

    object: Object
    outcome: Outcome

    def __str__(self) -> str:
        place = f" in {namespace_of(self.object)}" if namespace_of(self.object) else ""
        return f"{self.object['kind']} {name_of(self.object)}{place}: {self.outcome}"


@dataclass(frozen=True)
class Installation:
    """What the cluster remembers of the last installation."""

    version: str
    values: Mapping[str, Any]
    objects: tuple[Object, ...]
    """Only apiVersion, kind, name and namespace."""


class NotReadyInTime(PlanformError):
    """Everything is applied, and the controllers do not run yet."""

    reason = "WaitTimedOut"

    def __init__(self, namespace: str, seconds: float, problem: str) -> None:
        super().__init__(f"the controllers do not run after {seconds:g} s: {problem}")
        self.hint = f"kubectl -n {namespace} describe pods -l app.kubernetes.io/name=planform"


class StillInUse(PlanformError):
    """There are XRs or claims that nobody would reconcile any more."""

    reason = "StillInUse"

    def __init__(self, used: Mapping[str, int]) -> None:
        listed = ", ".join(f"{count}{'+' if count > 99 else ''} {name}" for name, count in sorted(used.items()))
        super().__init__(f"there are objects that only the control plane can take care of and delete: {listed}")
        self.hint = "delete them first, or leave them as they are with --leave-objects"


async def find_installation(client: KubernetesClient, namespace: str) -> Installation | None:
    """What was installed in a namespace, if anything was."""
    try:
        found = await client.get(CONFIG_MAP, INVENTORY, namespace=namespace)
    except NotFound:
        return None
    data = found.get("data") or {}
    return Installation(
        str(data.get("version") or ""),
        orjson.loads(data.get("values") or "{}"),
        tuple(orjson.loads(data.get("objects") or "[]")),
    )


async def refuse_helm_release(client: KubernetesClient, namespace: str) -> None:
    """What Helm installed is Helm's to change."""
    try:
        service = await client.get(SERVICE, "planform", namespace=namespace)
    except NotFound:
        return
    release = annotations_of(service).get(_HELM)
    if release:
        raise UsageError(
            f'Helm installed planform here, as release "{release}"',
            hint="use helm upgrade, or helm uninstall",
        )


async def apply_all(
    client: KubernetesClient, objects: Sequence[Object], *, dry_run: bool = False, force: bool = False
) -> list[Step]:
    """Apply in order. Raises ApplyConflict where somebody else owns a field, unless forced."""
    steps = []
    for obj in objects:
        before = await _stored(client, obj)
        try:
            after = await client.apply(obj, manager=MANAGER, force=force, dry_run=dry_run)
        except NotFound:
            if not dry_run:
                raise
            after = obj  # its namespace would be there by then
        steps.append(Step(after, _outcome(before, after)))
    return steps


async def delete_all(client: KubernetesClient, objects: Iterable[Object], *, dry_run: bool = False) -> list[Step]:
    """Delete what is there, in the given order."""
    steps = []
    for obj in objects:
        try:
            await client.delete(gvk_of(obj), name_of(obj), namespace=namespace_of(obj), dry_run=dry_run)
        except NotFound:
            continue
        steps.append(Step(obj, "deleted"))
    return steps


def inventory(namespace: str, version: str, values: Mapping[str, Any], objects: Iterable[Object]) -> Object:
    """The ConfigMap that remembers an installation."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": INVENTORY, "namespace": namespace, "labels": {"app.kubernetes.io/name": "planform"}},
        "data": {
            "version": version,
            "values": orjson.dumps(values, option=orjson.OPT_SORT_KEYS).decode(),
            "objects": orjson.dumps([reference(obj) for obj in objects]).decode(),
        },
    }


def reference(obj: Mapping[str, Any]) -> Object:
    """Which object it is, and no more."""
    place = {"namespace": namespace_of(obj)} if namespace_of(obj) else {}
    return {"apiVersion": obj["apiVersion"], "kind": obj["kind"], "metadata": {"name": name_of(obj), **place}}


def no_longer_wanted(before: Iterable[Object], wanted: Iterable[Object]) -> list[Object]:
    """Of what was installed before, what is not installed now; the last installed first. Never a namespace."""
    kept = {_identity(obj) for obj in wanted}
    return [obj for obj in reversed(list(before)) if _identity(obj) not in kept and obj["kind"] != "Namespace"]


async def objects_in_use(client: KubernetesClient) -> dict[str, int]:
    """How many XRs and claims there are of each kind, up to a hundred of each."""
    counts: dict[str, int] = {}
    try:
        xrds = (await client.list(XRD)).items
    except NotFound:
        return counts
    for xrd in xrds:
        for kind in (xr_kind(xrd), claim_kind(xrd)):
            if kind is None:
                continue
            try:
                found = len((await client.list(kind, limit=100)).items)
            except NotFound:
                continue
            if found:
                counts[f"{kind.kind}.{kind.group}"] = found
    return counts


async def remove_our_finalizers(client: KubernetesClient) -> None:
    """Take away the finalizers that only our controllers would, once these are gone: what has one could be deleted by
    nobody any more."""
    for kind in (ROLLOUT, COMPOSITION_REVISION, COMPOSITION):
        try:
            held = [each async for page in list_pages(client, kind) for each in page.items]
        except NotFound:
            continue  # it is not served here
        ours = ROLLOUT_FINALIZER if kind == ROLLOUT else IN_USE_FINALIZER
        for each in held:
            if ours in finalizers_of(each):
                await remove_finalizer(client, each, ours, manager=MANAGER)


def our_crds() -> list[Object]:
    """References to the CRDs that planform brings."""
    return [reference({**crd, "apiVersion": CRD.api_version, "kind": CRD.kind}) for crd in crds()]


async def until_running(client: KubernetesClient, workload: Object, *, clock: Clock, seconds: float) -> Object:
    """Wait until every replica of a workload is there and up to date; raises NotReadyInTime."""
    kind, name, namespace = gvk_of(workload), name_of(workload), namespace_of(workload)
    problem = "no API server answers"
    try:
        async with time_limit(clock, seconds):
            while True:
                deployed = await client.get(kind, name, namespace=namespace)
                problem = unavailability(deployed)
                if not problem:
                    return deployed
                await clock.sleep(_PAUSE)
    except TimeoutError as error:
        raise NotReadyInTime(namespace, seconds, problem) from error


def workload_of(objects: Iterable[Object]) -> Object:
    """What runs the controllers."""
    return next(obj for obj in objects if obj["kind"] in ("Deployment", "StatefulSet"))


def unavailability(workload: Mapping[str, Any]) -> str:
    """What is missing until a Deployment or StatefulSet is rolled out; empty if nothing is."""
    wanted = int((workload.get("spec") or {}).get("replicas", 1))
    status = workload.get("status") or {}
    if int(status.get("observedGeneration") or 0) < generation_of(workload):
        return f"the {workload['kind']} was not looked at yet"
    updated, available = (int(status.get(name) or 0) for name in ("updatedReplicas", "availableReplicas"))
    if updated < wanted:
        return f"{updated} of {wanted} replicas are up to date"
    if available < wanted:
        return f"{available} of {wanted} replicas are available"
    return ""


async def _stored(client: KubernetesClient, obj: Object) -> Object | None:
    kind = gvk(obj["apiVersion"], obj["kind"])
    try:
        return await client.get(kind, name_of(obj), namespace=namespace_of(obj))
    except NotFound:
        return None
    except ApiError as error:
        error.hint = error.hint or f"does the cluster serve {kind}, and may you read it?"
        raise


def _outcome(before: Object | None, after: Object) -> Outcome:
    if before is None:
        return "created"
    return "unchanged" if _content(before) == _content(after) else "changed"


def _content(obj: Object) -> Object:
    """What an object says, without the metadata of who wrote it when."""
    metadata = {
        key: value
        for key, value in obj["metadata"].items()
        if key not in ("managedFields", "resourceVersion", "generation")
    }
    return {**obj, "metadata": metadata}


def _identity(obj: Mapping[str, Any]) -> tuple[str, str, str, str]:
    group = gvk_of(obj).group
    return group, obj["kind"], namespace_of(obj), name_of(obj)
