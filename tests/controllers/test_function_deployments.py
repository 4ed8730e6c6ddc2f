"""Functions that a cluster runs: real Deployments and EndpointSlices, and a test kubelet whose pods are processes."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from planform.api.kinds import Object, gvk
from planform.api.names import (
    CRD,
    FUNCTION,
    FUNCTION_REVISION,
    LOCK,
    PROVIDER,
    PROVIDER_REVISION,
    RUNTIME_CONFIG,
    SECRET,
)
from planform.apiserver.auth import certificates
from planform.client.informer import InformerEvent
from planform.client.kubeconfig import find_connection
from planform.client.kubernetes import KubernetesClient
from planform.client.protocol import Client, Patch, PatchType
from planform.packages.building import Source, assemble
from planform.packages.fetching import RegistryPackages
from planform.packages.runtimes.cluster_authority import CLIENT_SECRET, ROOT_SECRET, describe
from planform.packages.runtimes.deployments import DEPLOYMENT, NETWORK_POLICY, REVISION_LABEL, SERVICE
from planform.packages.runtimes.executables import NETWORK_ANNOTATION
from planform.packages.runtimes.host import Draining
from planform.packages.runtimes.kubernetes import ClusterRuntime
from planform.packages.xpkg import package_of
from planform.reconcile.context import ControllerContext
from planform.sandbox import Network
from planform.sandbox.isolation import policy as sandbox_policy
from tests.controllers.composing import a_process
from tests.controllers.test_function_rollout import FUNCTION_NAME, SOURCE, Rollout
from tests.harness.contexts import (
    all_controllers,
    condition_of,
    eventually,
    kubernetes_context,
    read,
    until_condition,
)
from tests.harness.kubelet import Kubelet, kubelet, reach
from tests.harness.kubernetes import RealKubernetes
from tests.harness.packaging import meta, server_program

pytestmark = [
    pytest.mark.kubernetes,
    pytest.mark.xdist_group("kubernetes"),
    pytest.mark.timeout(300),
]

POD = gvk("v1", "Pod")
WEBHOOKS = gvk("admissionregistration.k8s.io/v1", "ValidatingWebhookConfiguration")
SLOW = SOURCE.replace("def greet(", "async def greet(").replace("None:\n", "None:\n    await asyncio.sleep(0.3)\n", 1)
SLOW = SLOW.replace("from typing", "import asyncio\nfrom typing", 1)
"""The same function, which takes its time: there is always a call under way."""


class Cluster(Rollout):
    """A control plane whose functions run as pods of a node that is this machine."""

    def __init__(self, context: ControllerContext, data: Path, namespace: str, node: Kubelet) -> None:
        super().__init__(context, data, namespace)
        self.data = data
        self.namespace = namespace
        self.node = node
        self.runtime = ClusterRuntime(namespace, Draining(quiet=0.3, max_seconds=2.0), reach)

    async def configure(self, *, network: str = "", **runtime: Any) -> None:
        """Have pods of all functions run on the node, with this in their container."""
        annotations = {NETWORK_ANNOTATION: network} if network else {}
        pod = {"nodeName": self.node.node, "containers": [{"name": "package-runtime", **runtime}]}
        template = {"metadata": {"labels": {"team": "platform"}}, "spec": {"template": {"spec": pod}}}
        await self.client.apply(
            {
                "apiVersion": RUNTIME_CONFIG.api_version,
                "kind": RUNTIME_CONFIG.kind,
                "metadata": {"name": self.namespace, "annotations": annotations},
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

    async def at_rest(self) -> None:
        """Wait until nothing of what runs functions is written any more."""

        async def state() -> list[Any]:
            kinds = (DEPLOYMENT, SERVICE, SECRET)
            found = [await self.client.list(kind, namespace=self.namespace) for kind in kinds]
            found += [await self.client.list(kind) for kind in (LOCK, FUNCTION)]
            revisions = [each["metadata"]["resourceVersion"] for each in await self.revisions()]
            return [*revisions, *(each["metadata"]["resourceVersion"] for page in found for each in page.items)]

        async def quiet() -> bool:
            before = await state()
            await asyncio.sleep(0.5)
            return before == await state()

        await eventually(quiet, "nothing happens any more")

    def failed_calls(self) -> list[str]:
        """What callers were answered that was not an answer, as the metrics count it."""
        lines = self.context.metrics.render().splitlines()
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

    def watch(change: InformerEvent) -> None:
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

    subscription = cluster.context.manager.subscribe(platform.kind, watch)
    changing = asyncio.create_task(change())
    try:
        yield heard
    finally:
        changing.cancel()
        await asyncio.gather(changing, return_exceptions=True)
        subscription.close()


@pytest.fixture
async def machine(kubernetes_engine: RealKubernetes, unique: str, tmp_path: Path) -> AsyncIterator[Cluster]:
    async with open_machine(kubernetes_engine, unique, tmp_path) as machine:
        yield machine


@asynccontextmanager
async def open_machine(kubernetes_engine: RealKubernetes, unique: str, tmp_path: Path) -> AsyncIterator[Cluster]:
    """A namespace and a node of the cluster, without controllers."""
    data = tmp_path / "data"
    data.mkdir()
    async with kubernetes_context(kubernetes_engine) as context:
        await _forget_others(context.client)
        # The node unpacks images to a place of its own: elsewhere the control plane deletes what it does not know of.
        (tmp_path / "node").mkdir()
        (tmp_path / "node" / "blobs").symlink_to(data / "packages" / "blobs")
        registry = RegistryPackages(tmp_path / "node", context.client, clock=context.clock, rng=context.rng)

        async def image(name: str) -> tuple[Sequence[str], Mapping[str, str]]:
            fetched = await registry.fetch(await registry.locate(name))
            assert fetched.executable is not None
            return fetched.executable.command(), fetched.executable.variables()

        restricted = {"pod-security.kubernetes.io/enforce": "restricted"}
        await context.client.create(
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": unique, "labels": restricted}}
        )
        async with kubelet(
            kubernetes_engine, context.client, unique, image=image, volumes=tmp_path / "volumes"
        ) as node:
            cluster = Cluster(context, data, unique, node)
            await cluster.configure()
            yield cluster


@pytest.fixture
async def cluster(machine: Cluster) -> AsyncIterator[Cluster]:
    async with all_controllers(machine.context, data=machine.data, cluster=machine.runtime):
        await machine.platform.define()
        yield machine


async def test_revisions_take_over_and_drain_without_a_failed_call(cluster: Cluster, unique: str) -> None:
    platform, client = cluster.platform, cluster.client
    first, second = f"v1-{unique}", f"v2-{unique}"
    for version in (first, second):
        cluster.publish(version, SLOW)
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
        before = await _pod_names(client, unique)
        await cluster.configure(args=["--debug"])

        async def rolled() -> bool:
            found = await _pod_names(client, unique)
            return bool(found) and not found & before

        await eventually(rolled, "the pods run with other arguments")
        rounds = heard.rounds
        await eventually(lambda: _is(heard.rounds > rounds + 2), "the new pods were called")
    for xr in xrs:
        await platform.ready(xr)
    assert heard.failures == []
    assert cluster.failed_calls() == []
    assert await cluster.versions(xrs) == [second] * len(xrs)


async def test_a_restart_writes_nothing_and_what_others_change_is_put_right(
    machine: Cluster, kubernetes_engine: RealKubernetes, unique: str
) -> None:
    cluster, context = machine, machine.context
    cluster.publish(f"v1-{unique}")
    async with a_process(context, unique, cluster.data, cluster=cluster.runtime):
        await cluster.install(f"v1-{unique}")
        await cluster.at_rest()
    [before] = (await cluster.deployments()).values()
    writes: list[str] = []
    connection = find_connection(clock=context.clock, path=kubernetes_engine.kubeconfig)

    def note() -> None:
        writes.append("a write")

    async with KubernetesClient(connection, clock=context.clock, rng=context.rng, fence=note) as client:
        again = replace(context, client=client)
        async with a_process(again, unique, cluster.data, cluster=cluster.runtime) as platform:
            assert platform.controllers is not None
            live, runtimes = platform.controllers.functions, "runtimes"

            async def serves() -> bool:
                return any(each.ready for each in live.catalogue.versions(FUNCTION_NAME))

            await eventually(serves, "the function that ran before serves")
            await platform.controllers.context.manager.synced(runtimes)
            await cluster.at_rest()
            assert writes == []

            service = (await client.list(SERVICE, namespace=unique)).items[0]
            await cluster.platform.edit(SERVICE, service, {"spec": {"selector": {"extra": "theirs"}}})
            await cluster.platform.edit(DEPLOYMENT, before, {"spec": {"progressDeadlineSeconds": 77}})
            await cluster.client.delete(NETWORK_POLICY, before["metadata"]["name"], namespace=unique)

            async def is_back() -> bool:
                return await read(cluster.client, NETWORK_POLICY, before["metadata"]["name"], unique) is not None

            await eventually(is_back, "the policy that somebody deleted is there again")
            theirs = (await cluster.deployments())[before["metadata"]["labels"][REVISION_LABEL]]
            assert theirs["spec"]["progressDeadlineSeconds"] == 77, "what nobody here wants to be otherwise stays"
            image = {"spec": {"template": {"spec": {"containers": [{"name": "package-runtime", "image": "x"}]}}}}
            patch = Patch(PatchType.STRATEGIC, image)
            await cluster.client.patch(DEPLOYMENT, before["metadata"]["name"], patch, namespace=unique)

            async def is_ours() -> bool:
                [found] = (await cluster.deployments()).values()
                return _image(found) == _image(before)

            await eventually(is_ours, "the image that somebody changed is what it was")
    await cluster.client.delete(FUNCTION, FUNCTION_NAME)


async def test_a_policy_keeps_a_function_without_network_from_calling_anybody(
    cluster: Cluster, unique: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = cluster.client
    cluster.publish(f"v1-{unique}")
    monkeypatch.setattr(sandbox_policy, "function_network", Network.NONE)  # --function-network=none
    await cluster.install(f"v1-{unique}")

    async def is_deployed() -> bool:
        return bool(await cluster.deployments())

    await eventually(is_deployed, "the function is deployed")
    [revision] = await cluster.deployments()

    async def until(*types: str) -> None:
        async def is_for_these() -> bool:
            found = await read(client, NETWORK_POLICY, revision, unique)
            return (found["spec"]["policyTypes"] if found is not None else []) == list(types)

        await eventually(is_for_these, f"the policy is one for {types}")

    await until("Ingress", "Egress")
    spec = (await client.get(NETWORK_POLICY, revision, namespace=unique))["spec"]
    assert not spec.get("egress"), "no rule: nothing may be called"
    assert [each["ports"] for each in spec["ingress"]] == [[{"port": "grpc", "protocol": "TCP"}]]
    assert spec["ingress"][0]["from"] == [{"podSelector": {"matchLabels": {"app.kubernetes.io/name": "planform"}}}]

    await cluster.configure(network="host")
    await until("Ingress")
    await cluster.configure(network="none")
    await until("Ingress", "Egress")
    await client.delete(FUNCTION, FUNCTION_NAME)
    await until()


async def test_a_certificate_near_its_end_is_replaced_while_the_function_serves(cluster: Cluster, unique: str) -> None:
    cluster.publish(f"v1-{unique}")
    await cluster.install(f"v1-{unique}")
    platform, client = cluster.platform, cluster.client
    await platform.compose(cluster.step())
    xrs = [await platform.create("one")]
    await cluster.until_versions(xrs, [f"v1-{unique}"])
    [revision] = await cluster.deployments()
    root = await client.get(SECRET, ROOT_SECRET, namespace=unique)
    ca, key = (base64.b64decode(root["data"][name]) for name in ("tls.crt", "tls.key"))
    now = cluster.context.clock.now()
    names = [revision, f"{revision}.{unique}", f"{revision}.{unique}.svc"]
    old = certificates.server(ca, key, names, now, now + timedelta(days=10))
    data = {"tls.crt": old.certificate, "tls.key": old.key}
    secret = f"{revision}-tls-server"

    async with reconciling(cluster, xrs) as heard:
        before = await _pod_names(client, unique)
        encoded = {name: base64.b64encode(value).decode() for name, value in data.items()}
        patch = Patch(PatchType.MERGE, {"data": encoded})
        await client.patch(SECRET, secret, patch, namespace=unique)

        async def renewed() -> bool:
            found = describe((await client.get(SECRET, secret, namespace=unique))["data"])
            return found is not None and found.not_after > now + timedelta(days=300)

        await eventually(renewed, "the certificate is another")

        async def rolled() -> bool:
            found = await _pod_names(client, unique)
            return bool(found) and not found & before

        await eventually(rolled, "pods with the new certificate have taken over")
        shown = await client.get(SECRET, CLIENT_SECRET, namespace=unique)
        await client.delete(SECRET, CLIENT_SECRET, namespace=unique)

        async def shows_another() -> bool:
            found = await read(client, SECRET, CLIENT_SECRET, unique)
            return found is not None and found["data"] != shown["data"]

        await eventually(shows_another, "the control plane has another certificate")
        rounds = heard.rounds
        await eventually(lambda: _is(heard.rounds > rounds + 5), "the new pods were called")
    await platform.ready(xrs[0])
    assert heard.failures == []
    assert cluster.failed_calls() == []


async def test_what_the_cluster_refuses_is_told_of_the_revision_until_it_is_put_right(
    cluster: Cluster, unique: str
) -> None:
    cluster.publish(f"v1-{unique}")
    await cluster.configure(imagePullPolicy="Sometimes")
    installing = asyncio.create_task(cluster.install(f"v1-{unique}"))

    async def told() -> str | None:
        conditions = [condition_of(each, "RuntimeHealthy") or {} for each in await cluster.revisions()]
        said = [str(each.get("message")) for each in conditions if each.get("status") == "False"]
        return next((each for each in said if "imagePullPolicy" in each), None)

    await eventually(told, "the revision says what the cluster does not take")
    await cluster.configure()
    await installing


async def test_a_provider_runs_with_an_account_that_may_do_what_its_kinds_need(
    cluster: Cluster, kubernetes_engine: RealKubernetes, unique: str
) -> None:
    group = f"{unique}.example.net"
    crd = {
        "apiVersion": CRD.api_version,
        "kind": CRD.kind,
        "metadata": {"name": f"buckets.{group}"},
        "spec": {
            "group": group,
            "scope": "Cluster",
            "names": {"kind": "Bucket", "plural": "buckets"},
            "versions": [
                {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": {"type": "object"}}}
            ],
        },
    }
    placeholder = {"name": "webhook-service", "namespace": "system", "path": "/validate"}
    webhook = {
        "name": "buckets.example.org",
        "clientConfig": {"service": placeholder},
        "rules": [{"apiGroups": [group], "apiVersions": ["v1"], "resources": ["buckets"], "operations": ["CREATE"]}],
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
    }
    about = {"apiVersion": WEBHOOKS.api_version, "kind": WEBHOOKS.kind, "metadata": {"name": "generated"}}
    hooks = {**about, "webhooks": [webhook]}
    documents = [("meta", meta("Provider", "provider-bucket")), ("object", crd), ("hooks", hooks)]
    program = server_program("v1", "import time\nprint('working', flush=True)\ntime.sleep(600)\n")
    image = assemble(cluster.blobs, Source(package_of(documents)), program)
    reference = f"registry.example.org/acme/provider-bucket:v1-{unique}"
    cluster.blobs.remember(reference, image.descriptor)
    provider = await cluster.client.apply(
        {
            "apiVersion": PROVIDER.api_version,
            "kind": PROVIDER.kind,
            "metadata": {"name": f"provider-{unique}"},
            "spec": {"package": reference, "runtimeConfigRef": {"name": unique}},
        },
        manager="user",
        force=True,
    )
    await until_condition(cluster.client, provider, "Healthy")
    [account] = await cluster.deployments()
    who = f"--as=system:serviceaccount:{unique}:{account}"

    async def may(verb: str, resource: str) -> bool:
        answer = await asyncio.to_thread(kubernetes_engine.kubectl, "auth", "can-i", verb, resource, who, check=False)
        return answer.strip() == "yes"

    await eventually(lambda: may("delete", f"buckets.{group}"), "it may do everything with its kinds")
    assert not await may("get", "pods")
    await eventually(lambda: _is(b"working" in next(iter(cluster.node.logs.values()))), "its program runs")
    await _is_asked_at_its_service(cluster, f"crossplane-provider-provider-{unique}", account)
    await cluster.client.delete(PROVIDER, f"provider-{unique}")


async def _is_asked_at_its_service(cluster: Cluster, configuration: str, revision: str) -> None:
    """What a package says about webhooks leads to the Service of its revision, which an API server can call."""
    found = await cluster.client.get(WEBHOOKS, configuration)
    root = await cluster.client.get(SECRET, ROOT_SECRET, namespace=cluster.namespace)
    [webhook] = found["webhooks"]
    service = {"name": revision, "namespace": cluster.namespace, "port": 9443, "path": "/validate"}
    assert webhook["clientConfig"] == {"service": service, "caBundle": root["data"]["tls.crt"]}
    stored = await cluster.client.get(SERVICE, revision, namespace=cluster.namespace)
    assert stored["spec"]["clusterIP"] not in ("", "None")
    secret = await cluster.client.get(SECRET, f"{revision}-tls-server", namespace=cluster.namespace)
    shown = describe(secret["data"])
    assert shown is not None and f"{revision}.{cluster.namespace}.svc" in shown.names
    await cluster.client.delete(WEBHOOKS, configuration)


async def _forget_others(client: Client) -> None:
    """Take away what only a garbage collector would: revisions of packages that other tests have deleted."""
    kinds = (FUNCTION_REVISION, PROVIDER_REVISION)
    for kind in kinds:
        await client.delete_collection(kind)

    async def are_gone() -> bool:
        return not any([(await client.list(kind)).items for kind in kinds])

    await eventually(are_gone, "revisions of other tests are gone")


async def _pods(client: Client, namespace: str) -> list[Object]:
    return (await client.list(POD, namespace=namespace)).items


async def _pod_names(client: Client, namespace: str) -> set[str]:
    return {each["metadata"]["name"] for each in await _pods(client, namespace)}


async def _is(told: bool) -> bool:
    return told


def _image(deployment: Object) -> str:
    return str(deployment["spec"]["template"]["spec"]["containers"][0]["image"])
