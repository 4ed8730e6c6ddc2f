"""ScaleWorkload: give a workload another number of replicas, through its scale subresource.

v0.0.0 knows Deployments, StatefulSets and DeploymentConfigs, by default the one that the action is about. v0.1.0 takes
any kind that has such a subresource, and says how long to wait for it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from planform.api.kinds import GroupVersionKind, Object, gvk
from planform.api.metadata import generation_of
from planform.blueprints.arguments import Arguments
from planform.blueprints.contract import PhaseContext, phase_function
from planform.blueprints.errors import ArgumentInvalid
from planform.blueprints.functions.durations import seconds_of
from planform.blueprints.functions.observing import Reference, until
from planform.client.protocol import Patch, PatchType

READY_SECONDS: Final = 900.0
_WORKLOADS: Final = {
    "deployment": GroupVersionKind("apps", "v1", "Deployment"),
    "statefulset": GroupVersionKind("apps", "v1", "StatefulSet"),
    "deploymentconfig": GroupVersionKind("apps.openshift.io", "v1", "DeploymentConfig"),
}


@phase_function(
    "ScaleWorkload", stable=True, required=["replicas"], arguments=["namespace", "name", "kind", "waitForReady"]
)
async def scale_workload(context: PhaseContext, args: Arguments) -> dict[str, Any]:
    """Sets the replicas of a Deployment, StatefulSet or DeploymentConfig."""
    kind = args.text("kind", "").lower()
    if kind and kind not in _WORKLOADS:
        raise ArgumentInvalid(f'{args.of}: kind "{kind}" is not one of {", ".join(_WORKLOADS)}')
    return await _scale(context, args, _WORKLOADS.get(kind))


@phase_function(
    "ScaleWorkload",
    version="v0.1.0",
    required=["replicas"],
    arguments=["namespace", "name", "kind", "apiVersion", "waitForReady", "timeout"],
)
async def scale_workload_v010(context: PhaseContext, args: Arguments) -> dict[str, Any]:
    """Sets the replicas of anything that can be scaled."""
    kind = args.text("kind", "")
    known = _WORKLOADS.get(kind.lower())
    if known is None and kind and not args.text("apiVersion", ""):
        raise ArgumentInvalid(f'{args.of}: kind "{kind}" needs its apiVersion')
    return await _scale(context, args, gvk(args.text("apiVersion"), kind) if kind and args.get("apiVersion") else known)


async def _scale(context: PhaseContext, args: Arguments, kind: GroupVersionKind | None) -> dict[str, Any]:
    replicas = args.integer("replicas")
    if replicas < 0:
        raise ArgumentInvalid(f"{args.of}: replicas must not be negative")
    target = _target(context, args, kind)
    scale = await context.client.get(target.gvk, target.name, namespace=target.namespace, subresource="scale")
    original = int((scale.get("spec") or {}).get("replicas") or 0)
    if original != replicas:
        await context.client.patch(
            target.gvk,
            target.name,
            Patch(PatchType.MERGE, {"spec": {"replicas": replicas}}),
            namespace=target.namespace,
            subresource="scale",
        )
    if args.flag("waitForReady", True):
        await _ready(context, target, replicas, seconds_of(args, "timeout", READY_SECONDS))
    return {"originalReplicaCount": original}


def _target(context: PhaseContext, args: Arguments, kind: GroupVersionKind | None) -> Reference:
    """What the arguments name, else the workload that the action is about."""
    about: Mapping[str, Any] = {}
    for name, workload in _WORKLOADS.items():
        root = context.params.get(workload.kind)
        if isinstance(root, Mapping) and kind in (None, workload):
            about, kind = root, _WORKLOADS[name]
    name, namespace = args.text("name", str(about.get("Name") or "")), str(about.get("Namespace") or "")
    if kind is None or not name:
        raise ArgumentInvalid(f"{args.of}: name and kind are needed, since the action is about no workload")
    return Reference(kind, name, args.text("namespace", namespace or context.namespace))


async def _ready(context: PhaseContext, target: Reference, replicas: int, seconds: float) -> None:
    observed = ""

    async def holds() -> bool:
        nonlocal observed
        obj = await context.client.get(target.gvk, target.name, namespace=target.namespace)
        here, ready = _counted(obj)
        observed = f"{target} has {here} replicas, {ready} of them ready, instead of {replicas}"
        return here == ready == replicas and _seen(obj)

    await until(context, [target], holds, seconds=seconds, what=lambda: observed)


def _counted(obj: Object) -> tuple[int, int]:
    """Replicas, and those ready. Kinds that do not tell the latter are ready with the former."""
    status = obj.get("status") or {}
    here = int(status.get("replicas") or 0)
    reports = _reports_readiness(obj)
    return here, int(status.get("readyReplicas") or 0) if reports else here


def _reports_readiness(obj: Object) -> bool:
    return obj.get("kind") in {kind.kind for kind in _WORKLOADS.values()} or "readyReplicas" in (
        obj.get("status") or {}
    )


def _seen(obj: Object) -> bool:
    """Whether the status is about the object as it is now."""
    seen = (obj.get("status") or {}).get("observedGeneration")
    return seen is None or int(seen) >= generation_of(obj)
