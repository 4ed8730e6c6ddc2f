"""Beside Crossplane: who serves the kinds that both know.

Both reconcile XRDs, Compositions, XRs and packages. Two controllers of one XR undo each other's work, so ours do not
start while a Crossplane lives in the cluster, unless told to take its place. Taking its place sends its workloads to
rest and writes down how many replicas they had; giving back wakes them as they were.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from planform.api.annotations import annotations_of
from planform.api.kinds import GroupVersionKind, Object
from planform.api.metadata import labels_of, name_of, namespace_of, resource_version_of
from planform.client.protocol import Client, Patch, PatchType
from planform.client.waits import time_limit
from planform.clock import Clock, SystemClock, parse_timestamp
from planform.errors import Conflict, NotFound, PlanformError
from planform.reconcile.election import LEASE

CROSSPLANE_LEASE: Final = "crossplane-leader-election-core"
CROSSPLANE_WORKLOADS: Final = ("crossplane", "crossplane-rbac-manager")
REPLICAS_ANNOTATION: Final = "planform.dev/replicas-before-take-over"
_DEPLOYMENT: Final = GroupVersionKind("apps", "v1", "Deployment")
_MANAGER: Final = "planform-coexistence"
_PATIENCE: Final = 60.0
_PAUSE: Final = 0.5
_FORGIVEN: Final = timedelta(seconds=30)  # clocks of two machines may differ that much


@dataclass(frozen=True)
class Crossplane:
    """A Crossplane that works, and how that is known."""

    namespace: str
    evidence: str

    def __str__(self) -> str:
        return f'Crossplane in namespace "{self.namespace}" ({self.evidence})'


class CrossplaneIsAlive(PlanformError):
    """A Crossplane reconciles the kinds that we would."""

    reason = "CrossplaneIsAlive"

    def __init__(self, found: Crossplane) -> None:
        super().__init__(f"{found} serves the same kinds: two controllers of one XR undo each other's work")
        self.crossplane = found
        self.hint = (
            "--take-over puts it to rest, and --give-back wakes it again; `planform doctor` says what would differ"
        )


class CrossplaneDoesNotRest(PlanformError):
    """Crossplane was told to rest and still works."""

    reason = "CrossplaneDoesNotRest"

    def __init__(self, found: Crossplane) -> None:
        super().__init__(f"{found} still works {_PATIENCE:g} s after it was scaled to nothing")
        self.hint = "does something scale it up again, such as a GitOps tool or an autoscaler?"


async def crossplane_alive(client: Client, *, clock: Clock | None = None) -> Crossplane | None:
    """The Crossplane that works in this cluster, if one does.

    A Lease that is held and was renewed lately says so; where leader election is off, a Deployment of its name with
    pods. Objects are asked for by name, so that a role needs the right to list no others.
    """
    now = (clock or SystemClock()).now()
    for lease in await _named(client, LEASE, CROSSPLANE_LEASE):
        if is_held(lease, now):
            holder = lease["spec"]["holderIdentity"]
            return Crossplane(namespace_of(lease), f'lease held by "{holder}"')
    for workload in await _workloads(client, CROSSPLANE_WORKLOADS[:1]):
        running = int((workload.get("status") or {}).get("readyReplicas") or 0)
        if running and _wanted(workload):
            return Crossplane(namespace_of(workload), f"Deployment with {running} ready pods")
    return None


async def require_sole_control(client: Client, *, take_over: bool = False, clock: Clock | None = None) -> None:
    """Raises CrossplaneIsAlive if another works here, or with `take_over` puts it to rest first."""
    clock = clock or SystemClock()
    found = await crossplane_alive(client, clock=clock)
    if found is None:
        return
    if not take_over:
        raise CrossplaneIsAlive(found)
    await take_place(client, clock=clock)


async def take_place(client: Client, *, clock: Clock | None = None) -> list[Object]:
    """Put Crossplane to rest and wait until it does not work any more; gives the workloads that were changed.

    Raises CrossplaneDoesNotRest. Doing it again changes nothing: the replicas written down are those of the first time.
    """
    clock = clock or SystemClock()

    def to_rest(workload: Object) -> tuple[int, str | None] | None:
        return (0, str(_wanted(workload))) if _wanted(workload) else None

    changed = await _scale(client, to_rest)
    try:
        async with time_limit(clock, _PATIENCE):
            while (found := await crossplane_alive(client, clock=clock)) is not None:
                await clock.sleep(_PAUSE)
    except TimeoutError as error:
        assert found is not None
        raise CrossplaneDoesNotRest(found) from error
    return changed


async def give_back(client: Client) -> list[Object]:
    """Wake what `take_place` put to rest; gives the workloads that were changed. Stop our controllers first."""

    def awake(workload: Object) -> tuple[int, str | None] | None:
        noted = annotations_of(workload).get(REPLICAS_ANNOTATION)
        return None if noted is None else (int(noted) if noted.isdigit() else 1, None)

    return await _scale(client, awake)


async def _named(client: Client, kind: GroupVersionKind, name: str) -> list[Object]:
    try:
        return (await client.list(kind, fields=f"metadata.name={name}")).items
    except NotFound:
        return []


async def _workloads(client: Client, names: Iterable[str]) -> list[Object]:
    """Crossplane's Deployments, which carry its name as their label; a namesake of somebody else's does not."""
    found = [each for name in names for each in await _named(client, _DEPLOYMENT, name)]
    return [each for each in found if labels_of(each).get("app") in CROSSPLANE_WORKLOADS]


def is_held(lease: Mapping[str, Any], now: datetime) -> bool:
    """Whether somebody has a Lease and renewed it lately, as far as two clocks agree."""
    spec = lease.get("spec") or {}
    try:
        renewed = parse_timestamp(str(spec.get("renewTime") or ""))
    except ValueError:
        return False
    lasts = timedelta(seconds=int(spec.get("leaseDurationSeconds") or 15))
    return bool(spec.get("holderIdentity")) and now < renewed + lasts + _FORGIVEN


def _wanted(workload: Object) -> int:
    replicas = (workload.get("spec") or {}).get("replicas")
    return 1 if replicas is None else int(replicas)


async def _scale(client: Client, decide: Callable[[Object], tuple[int, str | None] | None]) -> list[Object]:
    """Give each workload the replicas and the note that are decided for it, on the state that was decided on."""
    changed = []
    waiting = await _workloads(client, CROSSPLANE_WORKLOADS)
    while waiting:
        workload = waiting.pop()
        decision = decide(workload)
        if decision is None:
            continue
        replicas, note = decision
        noted = {"annotations": {REPLICAS_ANNOTATION: note}, "resourceVersion": resource_version_of(workload)}
        patch = Patch(PatchType.MERGE, {"metadata": noted, "spec": {"replicas": replicas}})
        name, namespace = name_of(workload), namespace_of(workload)
        try:
            changed.append(await client.patch(_DEPLOYMENT, name, patch, manager=_MANAGER, namespace=namespace))
        except Conflict:  # its own controller writes as well
            waiting.append(await client.get(_DEPLOYMENT, name, namespace=namespace))
    return changed
