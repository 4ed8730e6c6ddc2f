"""KubernetesClient over HTTPS against a real kube-apiserver and against the embedded server."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random

import pytest

from planform.api.kinds import GVK, Object
from planform.app import Settings, open_control_plane
from planform.client.informer import Informer, InformerEvent
from planform.client.kubeconfig import find_connection
from planform.client.kubernetes import KubernetesClient
from planform.client.protocol import Client, Patch, PatchType, WatchEvent
from planform.clock import SystemClock
from planform.errors import (
    AlreadyExists,
    ApplyConflict,
    BadRequest,
    Conflict,
    Forbidden,
    Invalid,
    NotFound,
    UnsupportedMediaType,
)
from planform.reconcile.election import LEASE, Election, Terms
from tests.harness.kubernetes import RealKubernetes

pytestmark = pytest.mark.timeout(120)

CONFIG_MAP = GVK("", "v1", "ConfigMap")
NAMESPACE = GVK("", "v1", "Namespace")
CRD = GVK("apiextensions.k8s.io", "v1", "CustomResourceDefinition")
DEPLOYMENT = GVK("apps", "v1", "Deployment")


@asynccontextmanager
async def connected(kubeconfig: Path) -> AsyncIterator[KubernetesClient]:
    connection = find_connection(clock=SystemClock(), path=kubeconfig)
    async with KubernetesClient(connection, clock=SystemClock(), rng=Random(1)) as client:
        yield client


@pytest.fixture(
    params=[
        pytest.param("kubernetes", marks=[pytest.mark.kubernetes, pytest.mark.xdist_group("kubernetes")]),
        "embedded",
    ]
)
async def client(request: pytest.FixtureRequest) -> AsyncIterator[KubernetesClient]:
    if request.param == "kubernetes":
        cluster: RealKubernetes = request.getfixturevalue("kubernetes_engine")
        async with connected(cluster.kubeconfig) as client:
            yield client
    else:
        async with open_control_plane(Settings(data=None)) as plane, connected(plane.kubeconfig) as client:
            yield client


@pytest.fixture
async def namespace(client: KubernetesClient) -> str:
    name = f"t-{uuid.uuid4().hex[:8]}"
    await client.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    return name


def config_map(name: str, namespace: str, **data: str) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": namespace},
        "data": data,
    }


def test_the_client_keeps_the_protocol(client: KubernetesClient) -> None:
    kept: Client = client
    assert kept is client


async def test_an_object_lives_through_every_verb(client: KubernetesClient, namespace: str) -> None:
    created = await client.create(config_map("a", namespace, k="1"), manager="tester")
    assert created["metadata"]["managedFields"][0]["manager"] == "tester"
    with pytest.raises(AlreadyExists, match='configmaps "a" already exists'):
        await client.create(config_map("a", namespace))
    created["data"]["k"] = "2"
    updated = await client.update(created)
    with pytest.raises(Conflict):
        await client.update(created)
    merged = await client.patch(CONFIG_MAP, "a", Patch(PatchType.MERGE, {"data": {"m": "3"}}), namespace=namespace)
    assert merged["data"] == {"k": "2", "m": "3"}
    operations = [{"op": "remove", "path": "/data/m"}]
    assert (await client.patch(CONFIG_MAP, "a", Patch(PatchType.JSON, operations), namespace=namespace))["data"] == {
        "k": "2"
    }
    with pytest.raises(Conflict, match="UID in the precondition"):
        await client.delete(CONFIG_MAP, "a", namespace=namespace, uid="another")
    assert await client.delete(CONFIG_MAP, "a", namespace=namespace, uid=updated["metadata"]["uid"]) is None
    with pytest.raises(NotFound, match='configmaps "a" not found'):
        await client.get(CONFIG_MAP, "a", namespace=namespace)


async def test_an_object_with_a_finalizer_outlives_its_deletion(client: KubernetesClient, namespace: str) -> None:
    held = config_map("held", namespace)
    held["metadata"]["finalizers"] = ["example.org/hold"]
    await client.create(held)
    deleted = await client.delete(CONFIG_MAP, "held", namespace=namespace)
    assert deleted is not None and deleted["metadata"]["deletionTimestamp"]
    await client.patch(
        CONFIG_MAP, "held", Patch(PatchType.MERGE, {"metadata": {"finalizers": None}}), namespace=namespace
    )


async def test_apply_owns_fields_and_conflicts_name_them(client: KubernetesClient, namespace: str) -> None:
    await client.apply(config_map("a", namespace, k="1"), manager="one")
    with pytest.raises(ApplyConflict) as caught:
        await client.apply(config_map("a", namespace, k="2"), manager="two")
    assert [(cause["field"], cause["reason"]) for cause in caught.value.causes] == [(".data.k", "FieldManagerConflict")]
    forced = await client.apply(config_map("a", namespace, k="2"), manager="two", force=True)
    again = await client.apply(config_map("a", namespace, k="2"), manager="two")
    assert again["metadata"]["resourceVersion"] == forced["metadata"]["resourceVersion"]


async def test_a_dry_run_writes_nothing(client: KubernetesClient, namespace: str) -> None:
    await client.create(config_map("a", namespace), dry_run=True)
    with pytest.raises(NotFound):
        await client.get(CONFIG_MAP, "a", namespace=namespace)
    await client.create(config_map("a", namespace))
    await client.delete(CONFIG_MAP, "a", namespace=namespace, dry_run=True)
    assert (await client.get(CONFIG_MAP, "a", namespace=namespace))["kind"] == "ConfigMap"


async def test_lists_are_paged_selected_and_name_their_items_kind(client: KubernetesClient, namespace: str) -> None:
    for number in range(5):
        obj = config_map(f"c{number}", namespace)
        obj["metadata"]["labels"] = {"parity": "even" if number % 2 == 0 else "odd"}
        await client.create(obj)
    first = await client.list(CONFIG_MAP, namespace=namespace, limit=2, fields="metadata.name!=kube-root-ca.crt")
    assert [item["metadata"]["name"] for item in first.items] == ["c0", "c1"]
    assert {(item["apiVersion"], item["kind"]) for item in first.items} == {("v1", "ConfigMap")}
    rest = await client.list(
        CONFIG_MAP,
        namespace=namespace,
        continue_token=first.continue_token,
        fields="metadata.name!=kube-root-ca.crt",
    )
    assert [item["metadata"]["name"] for item in rest.items] == ["c2", "c3", "c4"]
    odd = await client.list(CONFIG_MAP, namespace=namespace, labels="parity=odd")
    assert [item["metadata"]["name"] for item in odd.items] == ["c1", "c3"]
    deleted = await client.delete_collection(CONFIG_MAP, namespace=namespace, labels="parity=odd")
    assert [item["metadata"]["name"] for item in deleted] == ["c1", "c3"]


async def test_metadata_only_reads_bring_no_content(client: KubernetesClient, namespace: str) -> None:
    await client.create(config_map("a", namespace, k="1"))
    view = client.metadata_only()
    got = await view.get(CONFIG_MAP, "a", namespace=namespace)
    assert (got["apiVersion"], got["kind"]) == ("v1", "ConfigMap")
    assert "data" not in got
    listed = await view.list(CONFIG_MAP, namespace=namespace, fields="metadata.name=a")
    assert [(item["kind"], "data" in item) for item in listed.items] == [("ConfigMap", False)]
    async with view.watch(CONFIG_MAP, namespace=namespace, fields="metadata.name=a") as events:
        event = await anext(events)
    assert (event.type, event.object["kind"], "data" in event.object) == ("ADDED", "ConfigMap", False)


async def test_a_watch_tells_every_change_after_its_version(client: KubernetesClient, namespace: str) -> None:
    created = await client.create(config_map("a", namespace))
    version = created["metadata"]["resourceVersion"]
    only_a = "metadata.name=a"  # a real cluster puts a ConfigMap of its own into every namespace
    async with client.watch(CONFIG_MAP, namespace=namespace, fields=only_a, resource_version=version) as events:
        await client.apply(config_map("a", namespace, k="1"), manager="one")
        await client.delete(CONFIG_MAP, "a", namespace=namespace)
        async with asyncio.timeout(10):
            seen = [(event.type, event.object["metadata"]["name"]) async for event in _take(events, 2)]
    assert seen == [("MODIFIED", "a"), ("DELETED", "a")]


async def test_a_streaming_list_ends_with_its_bookmark(client: KubernetesClient, namespace: str) -> None:
    await client.create(config_map("a", namespace))
    seen = []
    async with client.watch(
        CONFIG_MAP, namespace=namespace, bookmarks=True, send_initial_events=True, fields="metadata.name=a"
    ) as events:
        async for event in events:
            seen.append((event.type, event.object["metadata"].get("name", "")))
            if event.type == "BOOKMARK":
                assert event.object["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}
                break
    assert seen == [("ADDED", "a"), ("BOOKMARK", "")]


async def test_a_watch_ends_when_its_time_is_over(client: KubernetesClient, namespace: str) -> None:
    async with asyncio.timeout(20), client.watch(CONFIG_MAP, namespace=namespace, timeout=1) as events:
        assert [event.object["metadata"]["name"] async for event in events] in ([], ["kube-root-ca.crt"])


async def test_a_new_kind_is_usable_at_once_and_gone_with_its_definition(
    client: KubernetesClient, namespace: str
) -> None:
    gadget = GVK("test.example.org", "v1", "Gadget")
    await client.kinds()
    with pytest.raises(NotFound, match='no matches for kind "Gadget"'):
        await client.kind(gadget)
    schema = {"type": "object", "properties": {"spec": {"type": "object", "properties": {"size": {"type": "integer"}}}}}
    version = {
        "name": "v1",
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": schema},
        "subresources": {"status": {}},
    }
    definition: Object = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "gadgets.test.example.org"},
        "spec": {
            "group": "test.example.org",
            "names": {"plural": "gadgets", "kind": "Gadget"},
            "scope": "Namespaced",
            "versions": [version],
        },
    }
    async with client.watch(CRD, fields="metadata.name=gadgets.test.example.org") as events:
        await client.create(definition)
        async with asyncio.timeout(20):
            async for event in events:
                conditions = event.object.get("status", {}).get("conditions") or []
                if {"Established"} <= {item["type"] for item in conditions if item["status"] == "True"}:
                    break
    obj: Object = {
        "apiVersion": "test.example.org/v1",
        "kind": "Gadget",
        "metadata": {"name": "g", "namespace": namespace},
        "spec": {"size": 1},
    }
    async with asyncio.timeout(20):
        while True:  # the path is served a moment after the condition says so
            try:
                created = await client.create(obj)
                break
            except NotFound:
                await asyncio.sleep(0.05)
    kind = await client.kind(gadget)
    assert (kind.plural, kind.namespaced, kind.subresources) == ("gadgets", True, ("status",))
    with pytest.raises(Invalid) as caught:
        await client.create({**obj, "metadata": {"name": "h", "namespace": namespace}, "spec": {"size": "big"}})
    assert caught.value.causes[0]["field"] == "spec.size"
    with pytest.raises(UnsupportedMediaType):
        await client.patch(gadget, "g", Patch(PatchType.STRATEGIC, {}), namespace=namespace)
    created["status"] = {"ready": True}
    await client.update(created, subresource="status")
    await client.delete(CRD, "gadgets.test.example.org")
    with pytest.raises(NotFound):
        async with asyncio.timeout(30):
            while True:
                await asyncio.sleep(0.05)
                await client.get(gadget, "g", namespace=namespace)


async def test_scale_is_read_and_written_as_a_subresource(client: KubernetesClient, namespace: str) -> None:
    template = {
        "metadata": {"labels": {"a": "b"}},
        "spec": {"containers": [{"name": "c", "image": "example.org/none"}]},
    }
    await client.create(
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": "d", "namespace": namespace},
            "spec": {"replicas": 0, "selector": {"matchLabels": {"a": "b"}}, "template": template},
        }
    )
    scale = await client.get(DEPLOYMENT, "d", namespace=namespace, subresource="scale")
    assert (scale["kind"], scale["spec"].get("replicas", 0)) == ("Scale", 0)
    wanted = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d", "namespace": namespace}}
    assert (await client.update({**wanted, "spec": {"replicas": 1}}, subresource="scale"))["spec"] == {"replicas": 1}
    await client.delete(DEPLOYMENT, "d", namespace=namespace)


@pytest.mark.kubernetes
async def test_what_one_may_not_do_is_forbidden(kubernetes_engine: RealKubernetes) -> None:
    async with connected(kubernetes_engine.user_kubeconfig) as user:
        with pytest.raises(Forbidden, match='cannot list resource "configmaps"'):
            await user.list(CONFIG_MAP, namespace="default")
        with pytest.raises(Forbidden):
            async with user.watch(CONFIG_MAP):
                pass


async def test_a_namespaced_object_without_a_namespace_is_refused_before_it_is_sent(client: KubernetesClient) -> None:
    with pytest.raises(BadRequest, match='configmaps "a": a namespaced object needs a namespace'):
        await client.get(CONFIG_MAP, "a")
    with pytest.raises(BadRequest, match="needs a namespace"):
        await client.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}})


async def test_an_informer_sees_what_is_there_and_what_changes(client: KubernetesClient, namespace: str) -> None:
    await client.create(config_map("a", namespace))
    changes: asyncio.Queue[InformerEvent] = asyncio.Queue()
    informer = Informer(
        client, CONFIG_MAP, changes.put_nowait, clock=SystemClock(), rng=Random(1), namespace=namespace, labels="!x"
    )
    task = asyncio.create_task(informer.run())
    async with asyncio.timeout(20):
        await informer.synced()
        await client.delete(CONFIG_MAP, "a", namespace=namespace)
        seen = []
        while ("DELETED", "a") not in seen:
            change = await changes.get()
            if change.type != "BOOKMARK":
                seen.append((change.type, change.key.name))
    assert [name for name in seen if name[1] == "a"] == [("ADDED", "a"), ("DELETED", "a")]
    task.cancel()


async def test_one_of_two_candidates_holds_the_lease(client: KubernetesClient, namespace: str) -> None:
    working: list[str] = []

    async def candidate(identity: str, ends: asyncio.Event) -> None:
        election = Election(
            client,
            name="plane",
            namespace=namespace,
            identity=identity,
            clock=SystemClock(),
            rng=Random(identity),
            terms=Terms(lease=3, renew=2, retry=0.05),
        )

        async def work() -> None:
            working.append(identity)
            await ends.wait()

        await election.lead(work)

    first_ends, second_ends = asyncio.Event(), asyncio.Event()
    async with asyncio.timeout(30), asyncio.TaskGroup() as tasks:
        first = tasks.create_task(candidate("first", first_ends))
        async with client.watch(LEASE, namespace=namespace) as events:
            await anext(events)
            second = tasks.create_task(candidate("second", second_ends))
            first_ends.set()
            second_ends.set()
            await first
            await second
    assert working == ["first", "second"]
    assert (await client.get(LEASE, "plane", namespace=namespace))["spec"]["leaseTransitions"] == 1


async def _take(events: AsyncIterator[WatchEvent], count: int) -> AsyncIterator[WatchEvent]:
    for _ in range(count):
        yield await anext(events)
