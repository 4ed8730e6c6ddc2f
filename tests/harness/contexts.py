"""A ControllerContext on either engine: our kinds are served, and a test starts the controllers it is about."""

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
from planform.apiserver.admission.chain import AdmissionPlugin
from planform.apiserver.admission.dynamic.dispatch import DynamicAdmission
from planform.apiserver.admission.webhook_calls import WebhookCalls
from planform.apiserver.auth.rbac import Rbac
from planform.apiserver.engine import open_engine
from planform.apiserver.local import LocalClient
from planform.assembly import Controllers, Parts, open_controllers
from planform.client.kubeconfig import find_connection
from planform.client.kubernetes import KubernetesClient
from planform.client.protocol import Client
from planform.client.recent import Recent
from planform.client.remembering import RememberingClient
from planform.clock import Clock, SystemClock
from planform.definitions.own_crds import ensure_crds
from planform.engine.controllers import start_builtin_controllers
from planform.errors import NotFound
from planform.reconcile.context import ControllerContext
from planform.reconcile.events import open_events
from planform.reconcile.limiter import ConcurrencyLimiter
from planform.reconcile.manager import open_manager
from planform.reconcile.sources import Watches
from planform.store import open_store
from planform.telemetry.metrics import MetricsRegistry
from tests.harness.kubernetes import RealKubernetes

T = TypeVar("T")
NAMESPACE = GroupVersionKind("", "v1", "Namespace")


@asynccontextmanager
async def embedded_context(
    directory: Path | None = None,
    *,
    clock: Clock | None = None,
    admission: Iterable[AdmissionPlugin] = (),
    watched_by: Callable[[Client], Client] | None = None,
) -> AsyncIterator[ControllerContext]:
    """The embedded engine with its built-in controllers, in this process; `watched_by` gives the client that
    controllers watch by."""
    clock, rng, metrics, limiter = clock or SystemClock(), Random(7), MetricsRegistry(), ConcurrencyLimiter(4)
    async with await open_store(directory, clock=clock) as store:
        core = open_engine(store, clock, rng=rng, admission=list(admission))
        client, calls = LocalClient(core), WebhookCalls()
        core.dynamic_admission = DynamicAdmission(core, calls, Rbac(store), metrics)
        async with (
            Watches(watched_by(client) if watched_by else client, clock=clock, rng=rng) as watches,
            open_manager(watches, clock=clock) as manager,
            open_events(client, clock=clock, metrics=metrics) as events,
        ):
            builtin_controllers = start_builtin_controllers(core, manager, limiter=limiter, rng=rng, metrics=metrics)
            if not (await client.list(NAMESPACE)).items:
                await client.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "default"}})
            await ensure_crds(client, clock=clock)
            yield ControllerContext(
                client=client, manager=manager, events=events, clock=clock, rng=rng, limiter=limiter, metrics=metrics
            )
            builtin_controllers.close()
            await calls.close()


@asynccontextmanager
async def kubernetes_context(
    cluster: RealKubernetes, *, clock: Clock | None = None, watched_by: Callable[[Client], Client] | None = None
) -> AsyncIterator[ControllerContext]:
    """A real cluster, which other tests use as well: names and API groups must be a test's own."""
    clock, rng, metrics = clock or SystemClock(), Random(7), MetricsRegistry()
    connection = find_connection(clock=clock, path=cluster.kubeconfig)
    async with KubernetesClient(connection, clock=clock, rng=rng) as client:
        await ensure_crds(client, clock=clock)
        recent = Recent()
        async with (
            Watches(watched_by(client) if watched_by else client, clock=clock, rng=rng, recent=recent) as watches,
            open_manager(watches, clock=clock) as manager,
            open_events(client, clock=clock, metrics=metrics) as events,
        ):
            yield ControllerContext(
                client=client,
                manager=manager,
                events=events,
                clock=clock,
                rng=rng,
                limiter=ConcurrencyLimiter(4),
                metrics=metrics,
                xr_client=RememberingClient(client, recent),
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
async def all_controllers(context: ControllerContext, **more: Any) -> AsyncIterator[Controllers]:
    """Every controller of a control plane on a context's engine; what the test made is deleted at the end."""
    parts = Parts(
        client=context.client,
        xr_client=context.xr_client,
        manager=context.manager,
        clock=context.clock,
        rng=context.rng,
        limiter=context.limiter,
        metrics=context.metrics,
        features=more.pop("features", context.features),
        **more,
    )
    async with open_controllers(parts) as controllers:
        yield controllers
        if isinstance(context.client, KubernetesClient):
            await _clean(context.client)


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
