"""Our controllers do not start beside a Crossplane that works, unless they take its place, which can be undone."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import suppress
from datetime import timedelta

import pytest
from click.testing import CliRunner

from planform.api.kinds import GroupVersionKind, Object
from planform.cli.main import root
from planform.client.protocol import Client, Patch, PatchType
from planform.clock import SystemClock, micro_timestamp
from planform.cluster.takeover import (
    CROSSPLANE_LEASE,
    REPLICAS_ANNOTATION,
    CrossplaneDoesNotRest,
    CrossplaneIsAlive,
    crossplane_alive,
    give_back,
    require_sole_control,
    take_place,
)
from planform.errors import NotFound
from planform.reconcile.context import ControllerContext
from planform.reconcile.election import LEASE
from tests.harness.contexts import embedded_context
from tests.harness.kubernetes import RealKubernetes

DEPLOYMENT = GroupVersionKind("apps", "v1", "Deployment")


@pytest.fixture
async def home(context: ControllerContext, unique: str) -> AsyncIterator[str]:
    """A namespace for a Crossplane that is gone after the test: the cluster is shared."""
    await context.client.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": unique}})
    yield unique
    for kind, name in ((LEASE, CROSSPLANE_LEASE), (DEPLOYMENT, "crossplane"), (DEPLOYMENT, "crossplane-rbac-manager")):
        with suppress(NotFound):
            await context.client.delete(kind, name, namespace=unique)


async def hold_lease(client: Client, namespace: str, *, ago: timedelta = timedelta()) -> Object:
    return await client.create(
        {
            "apiVersion": LEASE.api_version,
            "kind": LEASE.kind,
            "metadata": {"name": CROSSPLANE_LEASE, "namespace": namespace},
            "spec": {
                "holderIdentity": "crossplane-7d9_1",
                "leaseDurationSeconds": 60,
                "renewTime": micro_timestamp(SystemClock().now() - ago),
            },
        }
    )


async def deploy(client: Client, namespace: str, name: str, *, replicas: int, app: str = "") -> Object:
    labels = {"app": app or name}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "it", "image": "it"}]}}
    return await client.create(
        {
            "apiVersion": DEPLOYMENT.api_version,
            "kind": DEPLOYMENT.kind,
            "metadata": {"name": name, "namespace": namespace, "labels": labels},
            "spec": {"replicas": replicas, "selector": {"matchLabels": labels}, "template": template},
        }
    )


async def say_ready(client: Client, namespace: str, name: str) -> None:
    """What a kubelet would find. Only the embedded engine lets it stand: a cluster's controllers know better."""
    patch = Patch(PatchType.MERGE, {"status": {"replicas": 1, "readyReplicas": 1}})
    await client.patch(DEPLOYMENT, name, patch, namespace=namespace, subresource="status")


async def test_a_held_lease_shows_a_crossplane_that_works(context: ControllerContext, home: str) -> None:
    assert await crossplane_alive(context.client) is None
    await hold_lease(context.client, home)
    found = await crossplane_alive(context.client)
    assert found is not None
    assert found.namespace == home
    with pytest.raises(CrossplaneIsAlive, match="crossplane-7d9_1"):
        await require_sole_control(context.client)


@pytest.mark.kubernetes
@pytest.mark.xdist_group("kubernetes")
@pytest.mark.parametrize("context", ["kubernetes"], indirect=True)
async def test_doctor_says_who_reconciles_on_a_cluster(
    context: ControllerContext, kubernetes_engine: RealKubernetes, home: str
) -> None:
    command = ["doctor", "--kubeconfig", str(kubernetes_engine.kubeconfig), "-n", home, "-o", "json"]

    async def checks() -> dict[str, str]:
        done = await asyncio.to_thread(CliRunner().invoke, root, command)
        return {each["check"]: each["level"] for each in json.loads(done.stdout)["findings"]}

    nobody = await checks()
    assert nobody.get("no-controllers") == "stuck" and "crossplane" not in nobody
    await hold_lease(context.client, home)
    somebody = await checks()
    assert somebody.get("crossplane") == "differs" and "no-controllers" not in somebody


async def test_a_lease_that_nobody_renews_shows_nothing(context: ControllerContext, home: str) -> None:
    await hold_lease(context.client, home, ago=timedelta(minutes=10))
    assert await crossplane_alive(context.client) is None
    await require_sole_control(context.client)


async def test_without_a_lease_a_deployment_of_its_name_and_label_with_pods_shows_it() -> None:
    async with embedded_context() as context:
        client = context.client
        await deploy(client, "default", "crossplane", replicas=1, app="somebody-elses")
        await say_ready(client, "default", "crossplane")
        assert await crossplane_alive(client) is None
        await client.delete(DEPLOYMENT, "crossplane", namespace="default")
        await deploy(client, "default", "crossplane", replicas=1)
        assert await crossplane_alive(client) is None, "it has no pods"
        await say_ready(client, "default", "crossplane")
        found = await crossplane_alive(client)
        assert found is not None
        assert found.namespace == "default"


async def test_taking_over_is_remembered_and_given_back(context: ControllerContext, home: str) -> None:
    client = context.client
    await deploy(client, home, "crossplane", replicas=3)
    await deploy(client, home, "crossplane-rbac-manager", replicas=1)
    assert len(await take_place(client)) == 2
    assert await take_place(client) == [], "the second time, there is nothing left to put to rest"

    rested = await client.get(DEPLOYMENT, "crossplane", namespace=home)
    assert rested["spec"]["replicas"] == 0
    assert rested["metadata"]["annotations"][REPLICAS_ANNOTATION] == "3"

    assert len(await give_back(client)) == 2
    assert await give_back(client) == []
    awake = await client.get(DEPLOYMENT, "crossplane", namespace=home)
    assert awake["spec"]["replicas"] == 3
    assert REPLICAS_ANNOTATION not in (awake["metadata"].get("annotations") or {})


async def test_a_crossplane_that_does_not_rest_is_not_replaced(
    context: ControllerContext, home: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("planform.cluster.takeover._PATIENCE", 0.2)
    await hold_lease(context.client, home)  # as if its pod could not be reached
    await deploy(context.client, home, "crossplane", replicas=1)
    with pytest.raises(CrossplaneDoesNotRest):
        await require_sole_control(context.client, take_over=True)
