"""A command in a pod of its own: made, followed to its end, and deleted.

The pod's name follows from the run of the phase, so that a phase which runs again finds what an earlier run left.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Final

from planform.api.kinds import GroupVersionKind, Object
from planform.api.metadata import name_of, uid_of
from planform.api.names import ACTION_SET
from planform.apimachinery.patches import merge_patch
from planform.blueprints.arguments import Arguments
from planform.blueprints.contract import PhaseContext
from planform.blueprints.errors import PhaseFailed
from planform.blueprints.functions.cluster import Cluster, LogBroken, open_cluster
from planform.blueprints.functions.observing import Reference, until
from planform.errors import AlreadyExists, ApiError, Conflict, NotFound

POD: Final = GroupVersionKind("", "v1", "Pod")
CONTAINER: Final = "container"
IDLE: Final = ("sh", "-c", "trap 'exit 0' TERM; sleep 86400 & wait")
"""The command of a container that others run commands in; it ends within a day, whatever becomes of us."""
POD_ARGUMENTS: Final = ("podOverride", "podAnnotations", "podLabels")
STUCK: Final = frozenset(
    {"ErrImagePull", "ImagePullBackOff", "InvalidImageName", "CreateContainerConfigError", "CreateContainerError"}
)
ACTION_SET_LABEL: Final = "planform.dev/actionset"
PHASE_LABEL: Final = "planform.dev/phase"
_DELETE_SECONDS: Final = 120.0
_LOOK_SECONDS: Final = 0.2


@dataclass(frozen=True, kw_only=True)
class PodTask:
    """What runs in the pod. `listen` is the container whose output counts."""

    namespace: str
    containers: Sequence[Mapping[str, Any]]
    listen: str
    volumes: Sequence[Mapping[str, Any]] = ()
    init_containers: Sequence[Mapping[str, Any]] = ()
    service_account: str = ""
    seconds: float = 3600.0
    extra: Mapping[str, Any] = field(default_factory=dict)


async def run_pod(context: PhaseContext, args: Arguments, task: PodTask, output: Callable[[bytes], None]) -> int:
    """The exit code of the container that counts. Raises PhaseFailed if the pod cannot run or takes too long.

    The pod is gone, or on its way out, when this returns or is cancelled.
    """
    async with open_cluster(context) as cluster, open_pod(context, args, task) as (target, uid):
        return await _followed(context, cluster, target, uid, task, output)


@asynccontextmanager
async def open_pod(context: PhaseContext, args: Arguments, task: PodTask) -> AsyncIterator[tuple[Reference, str]]:
    """A pod that has started, with its uid, for the length of the block. Raises PhaseFailed if it cannot start."""
    pod = pod_object(context, args, task)
    target = Reference(POD, name_of(pod), task.namespace)
    uid = await _made(context, pod, target)
    try:
        await _started(context, target, uid, task)
        yield target, uid
    finally:
        with suppress(NotFound, Conflict):
            await context.client.delete(POD, target.name, namespace=target.namespace, uid=uid)


def mounting(namespace: str, image: str, claims: Mapping[str, str], **more: Any) -> PodTask:
    """A pod with one container that sees volume claims at these paths."""
    names = {claim: f"vol-{index}" for index, claim in enumerate(claims)}
    container = {
        "name": CONTAINER,
        "image": image,
        "command": list(more.pop("command", IDLE)),
        "volumeMounts": [{"name": names[claim], "mountPath": path} for claim, path in claims.items()],
    }
    volumes = [{"name": name, "persistentVolumeClaim": {"claimName": claim}} for claim, name in names.items()]
    return PodTask(namespace=namespace, containers=[container], listen=CONTAINER, volumes=volumes, **more)


def pod_object(context: PhaseContext, args: Arguments, task: PodTask) -> Object:
    """The pod as it is created: labels of the blueprint win over the ActionSet's, its override does not."""
    labels = {**_texts(context.params.get("PodLabels")), **args.table("podLabels", {})}
    annotations = {**_texts(context.params.get("PodAnnotations")), **args.table("podAnnotations", {})}
    spec: dict[str, Any] = {
        "restartPolicy": "Never",
        "containers": [dict(each) for each in task.containers],
        **({"initContainers": [dict(each) for each in task.init_containers]} if task.init_containers else {}),
        **({"volumes": [dict(each) for each in task.volumes]} if task.volumes else {}),
        **({"serviceAccountName": task.service_account} if task.service_account else {}),
        **task.extra,
    }
    for override in (args.table("podOverride", {}), _map(context.params.get("PodOverride"))):
        spec = _overridden(spec, override)
    owner = {
        "apiVersion": ACTION_SET.api_version,
        "kind": ACTION_SET.kind,
        "name": context.actionset,
        "uid": context.uid,
    }
    owned = bool(context.uid) and task.namespace == context.namespace
    metadata: dict[str, Any] = {
        "name": pod_name(context),
        "namespace": task.namespace,
        "labels": {**labels, ACTION_SET_LABEL: _label(context.actionset), PHASE_LABEL: _label(context.phase)},
        **({"annotations": annotations} if annotations else {}),
        **({"ownerReferences": [owner]} if owned else {}),
    }
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def _label(name: str) -> str:
    """A name as the value of a label: phases may be called anything."""
    return re.sub(r"[^A-Za-z0-9_.-]", "-", name)[:63].strip("-_.")


def pod_name(context: PhaseContext) -> str:
    identity = "\0".join([context.uid, str(context.action_index), context.phase, str(context.deferred)])
    return f"kanister-job-{hashlib.sha256(identity.encode()).hexdigest()[:16]}"


def _overridden(spec: dict[str, Any], override: Mapping[str, Any]) -> dict[str, Any]:
    """Merge an override; its containers are merged by name, or by position where they have none."""
    merged: dict[str, Any] = merge_patch(spec, {key: each for key, each in override.items() if key != "containers"})
    for index, given in enumerate(override.get("containers") or ()):
        containers = merged["containers"]
        names = [each["name"] for each in containers]
        name = given.get("name", names[index] if index < len(names) else "")
        if name in names:
            position = names.index(name)
            containers[position] = merge_patch(containers[position], dict(given))
        else:
            containers.append(dict(given))
    return merged


async def _made(context: PhaseContext, pod: Object, target: Reference) -> str:
    """Create the pod; gives its uid."""
    try:
        made = await context.client.create(pod)
    except AlreadyExists:
        # An earlier attempt, or the control plane before it stopped, left it; it may have done half of the work.
        with suppress(NotFound):
            await context.client.delete(POD, target.name, namespace=target.namespace)

        async def gone() -> bool:
            try:
                await context.client.get(POD, target.name, namespace=target.namespace)
            except NotFound:
                return True
            return False

        await until(context, [target], gone, seconds=_DELETE_SECONDS, what=lambda: f"{target} of before is gone")
        made = await context.client.create(pod)
    return uid_of(made)


async def _status(context: PhaseContext, target: Reference, uid: str) -> Mapping[str, Any]:
    """How the pod is. Raises PhaseFailed if it is not the one that was made."""
    try:
        pod = await context.client.get(POD, target.name, namespace=target.namespace)
    except NotFound as error:
        raise PhaseFailed(f"{target} was deleted while it ran") from error
    if uid_of(pod) != uid:
        raise PhaseFailed(f"{target} was replaced while it ran")
    return pod.get("status") or {}


async def _started(context: PhaseContext, target: Reference, uid: str, task: PodTask) -> None:
    observed = f"{target} was not looked at"

    async def holds() -> bool:
        nonlocal observed
        status = await _status(context, target, uid)
        observed = f"{target} is {status.get('phase', 'Pending')} {status.get('message') or ''}".strip()
        for each in (*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())):
            waiting = (each.get("state") or {}).get("waiting") or {}
            if waiting.get("reason") in STUCK:
                raise PhaseFailed(f"{target} cannot start: {waiting['reason']}: {waiting.get('message') or ''}")
            if waiting and each.get("name") == task.listen:
                return False  # others may run already, but the log that counts cannot be read yet
        return status.get("phase") in ("Running", "Succeeded", "Failed")

    await until(context, [target], holds, seconds=task.seconds, what=lambda: f"it has started: {observed}")


async def _followed(
    context: PhaseContext, cluster: Cluster, target: Reference, uid: str, task: PodTask, output: Callable[[bytes], None]
) -> int:
    """Pass on all that the container prints until it has ended; gives its exit code.

    A log that breaks off is read again from its start, and what was passed on already is left out.
    """
    heard = _Once(output)
    code: int | None = None
    try:
        async with asyncio.timeout(task.seconds):
            while True:
                heard.again()
                try:
                    await cluster.follow_log(target.namespace, target.name, task.listen, heard)
                except LogBroken as error:
                    context.log(str(error))
                except ApiError as error:
                    if code is not None:
                        return code  # it has ended, and somebody was quick to clean up
                    raise PhaseFailed(f"cannot read the log of {target}: {error}") from error
                code = _exit_code(await _status(context, target, uid), task.listen)
                if code is not None and heard.is_complete:
                    return code
                # Output may have come after the log was cut off, so only a log that was begun after the container ended
                # counts.
                heard.is_complete = code is not None
                if code is None:
                    await context.clock.sleep(_LOOK_SECONDS)
    except TimeoutError as error:
        raise PhaseFailed(f"{target} took longer than {task.seconds:g} s") from error


class _Once:
    """Passes on what it did not pass on before, of a stream that may be read several times from its start."""

    def __init__(self, output: Callable[[bytes], None]) -> None:
        self._output = output
        self._passed_on = self._at = 0
        self.is_complete = False

    def again(self) -> None:
        self._at = 0

    def __call__(self, chunk: bytes) -> None:
        known = max(0, self._passed_on - self._at)
        self._at += len(chunk)
        if known < len(chunk):
            self._passed_on = self._at
            self._output(chunk[known:])


def _exit_code(status: Mapping[str, Any], container: str) -> int | None:
    """None while the container runs."""
    for each in status.get("containerStatuses") or ():
        terminated = (each.get("state") or {}).get("terminated")
        if each.get("name") == container and terminated:
            return int(terminated.get("exitCode") or 0)
    if status.get("phase") in ("Succeeded", "Failed"):
        return 0 if status["phase"] == "Succeeded" else 1
    return None


def _map(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _texts(value: Any) -> dict[str, str]:
    return {str(key): str(each) for key, each in _map(value).items()}
