"""A workbench on either engine: our kinds are served, and a test starts the controllers it is about."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from random import Random
from typing import Any, TypeVar

from planform.api.kinds import GroupVersionKind, Object, gvk_of
from planform.api.names import (
    COMPOSITION,
    CRON_OPERATION,
    ENVIRONMENT_CONFIG,
    FUNCTION,
    FUNCTION_REVISION,
    OPERATION,
    WATCH_OPERATION,
    XRD,
)
from planform.apiserver.admission import AdmissionPlugin
from planform.apiserver.engine import open_engine
from planform.apiserver.local import LocalClient
from planform.assembly import Controllers, Parts, open_controllers
from planform.client.kubeconfig import find_connection
from planform.client.kubernetes import KubernetesClient
from planform.client.protocol import Client
from planform.client.recent import Recent
from planform.client.remembering import RememberingClient
from planform.clock import Clock, SystemClock
from planform.controllers.crds import ensure_crds
from planform.controllers.engine import start_chores
from planform.controllers.recording import open_events
from planform.controllers.workbench import Workbench
from planform.errors import NotFound
from planform.reconcile.gate import Gate
from planform.reconcile.plane import open_plane
from planform.reconcile.sources import Watches
from planform.store import open_store
from planform.telemetry.metrics import Registry
from tests.harness.kubernetes import RealKubernetes

T = TypeVar("T")
NAMESPACE = GroupVersionKind("", "v1", "Namespace")


@asynccontextmanager
async def embedded_bench(
    directory: Path | None = None, *, clock: Clock | None = None, admission: Iterable[AdmissionPlugin] = ()
) -> AsyncIterator[Workbench]:
    """The embedded engine with its chores, in this process."""
    clock, rng, metrics, gate = clock or SystemClock(), Random(7), Registry(), Gate(4)
    async with await open_store(directory, clock=clock) as store:
        core = open_engine(store, clock, rng=rng, admission=list(admission))
        client = LocalClient(core)
        async with (
            Watches(client, clock=clock, rng=rng) as watches,
            open_plane(watches, clock=clock) as plane,
            open_events(client, clock=clock, metrics=metrics) as events,
        ):
            chores = start_chores(core, plane, gate=gate, rng=rng, metrics=metrics)
            if not (await client.list(NAMESPACE)).items:
                await client.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "default"}})
            await ensure_crds(client, clock=clock)
            yield Workbench(client=client, plane=plane, events=events, clock=clock, rng=rng, gate=gate, metrics=metrics)
            chores.close()


@asynccontextmanager
async def kubernetes_bench(cluster: RealKubernetes, *, clock: Clock | None = None) -> AsyncIterator[Workbench]:
    """A real cluster, which other tests use as well: names and API groups must be a test's own."""
    clock, rng, metrics = clock or SystemClock(), Random(7), Registry()
    connection = find_connection(clock=clock, path=cluster.kubeconfig)
    async with KubernetesClient(connection, clock=clock, rng=rng) as client:
        await ensure_crds(client, clock=clock)
        recent = Recent()
        async with (
            Watches(client, clock=clock, rng=rng, recent=recent) as watches,
            open_plane(watches, clock=clock) as plane,
            open_events(client, clock=clock, metrics=metrics) as events,
        ):
            yield Workbench(
                client=client,
                plane=plane,
                events=events,
                clock=clock,
                rng=rng,
                gate=Gate(4),
                metrics=metrics,
                fleet_client=RememberingClient(client, recent),
            )


PATIENCE_SECONDS = 75.0
"""How long a state may take: a real cluster's collector looks for new kinds every 30 s, and stands still meanwhile."""


async def eventually(check: Callable[[], Awaitable[T | None]], what: str, *, seconds: float = PATIENCE_SECONDS) -> T:
    """The first true answer of `check`, asked again and again; fails with `what` when the time is up."""
    deadline = asyncio.get_running_loop().time() + seconds
    while True:
        found = await check()
        if found:
            return found
        assert asyncio.get_running_loop().time() < deadline, f"not within {seconds:g} s: {what}"
        await asyncio.sleep(0.02)


async def read(client: Client, gvk: GroupVersionKind, name: str, namespace: str = "") -> Object | None:
    """The object, or None if there is none."""
    try:
        return await client.get(gvk, name, namespace=namespace)
    except NotFound:
        return None


async def until_condition(client: Client, obj: Object, type_: str, status: str = "True", **more: str) -> Object:
    """Wait until the object says so of itself; gives it as it is then."""
    metadata = obj["metadata"]

    async def check() -> Object | None:
        found = await read(client, gvk_of(obj), metadata["name"], metadata.get("namespace") or "")
        condition = condition_of(found or {}, type_)
        wanted = {"status": status, **more}
        return found if condition and all(condition.get(key) == value for key, value in wanted.items()) else None

    return await eventually(check, f"{type_}={status} {more or ''} of {obj['kind']} {metadata['name']}")


def condition_of(obj: Object, type_: str) -> Object | None:
    """One condition of an object's status."""
    for condition in (obj.get("status") or {}).get("conditions") or ():
        if condition["type"] == type_:
            return dict(condition)
    return None


@asynccontextmanager
async def all_controllers(bench: Workbench, **more: Any) -> AsyncIterator[Controllers]:
    """Every controller of a control plane on a workbench's engine; what the test made is deleted at the end."""
    parts = Parts(
        client=bench.client,
        fleet_client=bench.fleet_client,
        plane=bench.plane,
        clock=bench.clock,
        rng=bench.rng,
        gate=bench.gate,
        metrics=bench.metrics,
        features=more.pop("features", bench.features),
        **more,
    )
    async with open_controllers(parts) as controllers:
        yield controllers
        if isinstance(bench.client, KubernetesClient):
            await _clean(bench.client)


async def _clean(client: Client) -> None:
    """Leave nothing on a shared cluster that the next test's controllers would begin to reconcile."""
    for kind in (WATCH_OPERATION, CRON_OPERATION, OPERATION, XRD, COMPOSITION, FUNCTION, ENVIRONMENT_CONFIG):
        for obj in (await client.list(kind)).items:
            with suppress(NotFound):
                await client.delete(kind, obj["metadata"]["name"])

    await client.delete_collection(FUNCTION_REVISION)  # or the collector would, when it has heard of the kind

    async def is_empty() -> bool:
        return not any([(await client.list(kind)).items for kind in (XRD, FUNCTION_REVISION)])

    await eventually(is_empty, "all XRDs and revisions of functions are gone", seconds=60)
