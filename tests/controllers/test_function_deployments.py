"""Functions that a cluster runs: real Deployments and EndpointSlices, and a test kubelet whose pods are processes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from planform.api.kinds import Object, gvk
from planform.api.names import RUNTIME_CONFIG
from planform.client.informer import Change
from planform.client.protocol import Client
from planform.controllers.workbench import Workbench
from planform.packages.fetching import RegistryPackages
from planform.packages.runtimes.deployments import DEPLOYMENT, REVISION_LABEL
from planform.packages.runtimes.host import Draining
from planform.packages.runtimes.kubernetes import ClusterRuntime
from tests.controllers.composing import Platform
from tests.controllers.test_function_rollout import Rollout
from tests.harness.kubelet import Kubelet, kubelet, reach
from tests.harness.kubernetes import RealKubernetes
from tests.harness.planes import all_controllers, condition_of, eventually, kubernetes_bench

pytestmark = [
    pytest.mark.kubernetes,
    pytest.mark.xdist_group("kubernetes"),
    pytest.mark.timeout(300),
]

POD = gvk("v1", "Pod")


class Cluster(Rollout):
    """A control plane whose functions run as pods of a node that is this machine."""

    def __init__(self, bench: Workbench, data: Path, namespace: str, node: Kubelet) -> None:
        super().__init__(bench, data)
        self.platform = Platform(bench.client, namespace)
        self.namespace = namespace
        self.node = node

    async def configure(self, **runtime: Any) -> None:
        """Have pods of all functions run on the node, with this in their container."""
        pod = {"nodeName": self.node.node, "containers": [{"name": "package-runtime", **runtime}]}
        template = {"metadata": {"labels": {"team": "platform"}}, "spec": {"template": {"spec": pod}}}
        await self.client.apply(
            {
                "apiVersion": RUNTIME_CONFIG.api_version,
                "kind": RUNTIME_CONFIG.kind,
                "metadata": {"name": self.namespace},
                "spec": {"deploymentTemplate": template},
            },
            manager="user",
            force=True,
        )

    async def install(self, version: str, channel: str = "stable", **spec: Any) -> Object:
        return await super().install(version, channel, runtimeConfigRef={"name": self.namespace}, **spec)

    async def deployments(self) -> dict[str, Object]:
        """By revision."""
        listed = await self.client.list(DEPLOYMENT, namespace=self.namespace)
        return {each["metadata"]["labels"][REVISION_LABEL]: each for each in listed.items}

    def failed_calls(self) -> list[str]:
        """What callers were answered that was not an answer, as the metrics count it."""
        lines = self.bench.metrics.render().splitlines()
        return [
            line
            for line in lines
            if line.startswith("function_run_function_response_total{") and 'grpc_code="OK"' not in line
        ]


@dataclass
class Reconciling:
    """XRs that are changed again and again, and what was heard of them."""

    failures: list[str]
    rounds: int = 0


@asynccontextmanager
async def reconciling(cluster: Cluster, xrs: Sequence[Object]) -> AsyncIterator[Reconciling]:
    """Change all XRs all the time, so that each of them calls the function again."""
    heard, platform = Reconciling([]), cluster.platform

    def watch(change: Change) -> None:
        condition = condition_of(change.object, "Synced")
        if condition is not None and condition["status"] == "False":
            heard.failures.append(str(condition.get("message")))

    async def change() -> None:
        while True:
            heard.rounds += 1
            for xr in xrs:
                name = xr["metadata"]["name"].removesuffix(f"-{platform.unique}")
                wanted = platform.xr(name, spec={"number": heard.rounds})
                await cluster.client.apply(wanted, manager="user", force=True)
            await asyncio.sleep(0.05)

    subscription = cluster.bench.plane.subscribe(platform.kind, watch)
    changing = asyncio.create_task(change())
    try:
        yield heard
    finally:
        changing.cancel()
        await asyncio.gather(changing, return_exceptions=True)
        subscription.close()


@pytest.fixture
async def cluster(kubernetes_engine: RealKubernetes, unique: str, tmp_path: Path) -> AsyncIterator[Cluster]:
    data = tmp_path / "data"
    data.mkdir()
    async with kubernetes_bench(kubernetes_engine) as bench:
        registry = RegistryPackages(data / "packages", bench.client, clock=bench.clock, rng=bench.rng)

        async def image(name: str) -> tuple[Sequence[str], Mapping[str, str]]:
            fetched = await registry.fetch(await registry.locate(name))
            assert fetched.executable is not None
            return fetched.executable.command(), fetched.executable.variables()

        restricted = {"pod-security.kubernetes.io/enforce": "restricted"}
        await bench.client.create(
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": unique, "labels": restricted}}
        )
        runtime = ClusterRuntime(unique, Draining(quiet=0.3, longest=2.0), reach)
        async with (
            kubelet(kubernetes_engine, bench.client, unique, image=image, volumes=tmp_path / "volumes") as node,
            all_controllers(bench, data=data, cluster=runtime),
        ):
            cluster = Cluster(bench, data, unique, node)
            await cluster.platform.define()
            await cluster.configure()
            yield cluster


async def test_revisions_take_over_and_drain_without_a_failed_call(cluster: Cluster, unique: str) -> None:
    platform, client = cluster.platform, cluster.client
    first, second = f"v1-{unique}", f"v2-{unique}"
    for version in (first, second):
        cluster.publish(version)
    await cluster.install(first, activeRevisionLimit=1)
    await platform.compose(cluster.step())
    xrs = [await platform.create(f"xr{number}") for number in range(4)]
    await cluster.until_versions(xrs, [first] * len(xrs))
    [old] = await cluster.deployments()

    async with reconciling(cluster, xrs) as heard:
        await cluster.install(second, activeRevisionLimit=1)
        await cluster.until_versions(xrs, [second] * len(xrs))
        new = next(name for name in await cluster.deployments() if name != old)

        async def old_is_gone() -> bool:
            pods = await client.list(POD, namespace=unique, labels=f"{REVISION_LABEL}={old}")
            return set(await cluster.deployments()) == {new} and not pods.items

        await eventually(old_is_gone, "nothing of the old revision runs")
        before = {each["metadata"]["name"] for each in await _pods(client, unique)}
        await cluster.configure(args=["--debug"])

        async def rolled() -> bool:
            names = {each["metadata"]["name"] for each in await _pods(client, unique)}
            return bool(names) and not names & before

        await eventually(rolled, "the pods run with other arguments")
        rounds = heard.rounds

        async def called_since() -> bool:
            return heard.rounds > rounds + 2

        await eventually(called_since, "the new pods were called")
    for xr in xrs:
        await platform.ready(xr)
    assert heard.failures == []
    assert cluster.failed_calls() == []
    assert await cluster.versions(xrs) == [second] * len(xrs)


async def _pods(client: Client, namespace: str) -> list[Object]:
    return (await client.list(POD, namespace=namespace)).items
