"""`Client`, kept by both implementations: over HTTPS on each engine, and in-process on the embedded one.

Controllers are written against `Client` alone, so what a case shows here is all that they may rely on.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from random import Random
from uuid import uuid4

import pytest
import pytest_asyncio

from planform.api.kinds import GVK, Object
from planform.app import Settings, open_control_plane
from planform.client.kubeconfig import find_connection
from planform.client.kubernetes import KubernetesClient
from planform.client.protocol import Client, Patch, PatchType, Propagation, WatchEvent
from planform.clock import SystemClock
from planform.errors import (
    AlreadyExists,
    ApplyConflict,
    BadRequest,
    Conflict,
    Expired,
    Forbidden,
    Invalid,
    MethodNotAllowed,
    NotFound,
)
from tests.contract.engines import case
from tests.contract.kinds import GROUP, PLANETS, WIDGETS, config_map, widget

pytestmark = pytest.mark.asyncio(loop_scope="session")

CONFIG_MAP = GVK("", "v1", "ConfigMap")
NAMESPACE = GVK("", "v1", "Namespace")
WIDGET = GVK(GROUP, "v1", "Widget")
CRD = GVK("apiextensions.k8s.io", "v1", "CustomResourceDefinition")
CLIENTS = [
    pytest.param("local", marks=pytest.mark.xdist_group("embedded")),
    pytest.param("embedded", marks=pytest.mark.xdist_group("embedded")),
    pytest.param("kubernetes", marks=[pytest.mark.kubernetes, pytest.mark.xdist_group("kubernetes")]),
]
SECONDS = 15


@pytest_asyncio.fixture(scope="module", params=CLIENTS, loop_scope="session")
async def client(request: pytest.FixtureRequest) -> AsyncIterator[Client]:
    """A client of a plane of its own, or of the real cluster."""
    if request.param == "kubernetes":
        kubeconfig = request.getfixturevalue("kubernetes_engine").kubeconfig
        connection = find_connection(clock=SystemClock(), path=kubeconfig)
        async with KubernetesClient(connection, clock=SystemClock(), rng=Random(1)) as remote:
            yield await prepared(remote)
        return
    async with open_control_plane(Settings(data=None)) as plane:
        if request.param == "local":
            yield await prepared(plane.client)
            return
        connection = find_connection(clock=SystemClock(), path=plane.kubeconfig)
        async with KubernetesClient(connection, clock=SystemClock(), rng=Random(1)) as remote:
            yield await prepared(remote)


async def prepared(client: Client) -> Client:
    """The client, once the shared kinds are served."""
    for definition in (WIDGETS, PLANETS):
        name = definition["metadata"]["name"]
        async with asyncio.timeout(SECONDS), client.watch(CRD, fields=f"metadata.name={name}") as events:
            try:
                await client.create(definition)
            except AlreadyExists:
                pass
            async for event in events:
                conditions = (event.object.get("status") or {}).get("conditions") or ()
                if any(c["type"] == "Established" and c["status"] == "True" for c in conditions):
                    break
    async with asyncio.timeout(SECONDS):
        while True:  # an established kind is served a moment later
            try:
                await client.list(WIDGET)
            except NotFound:
                await asyncio.sleep(0.05)
            else:
                return client


@pytest_asyncio.fixture(loop_scope="session")
async def ns(client: Client) -> str:
    name = f"t-{uuid4().hex[:8]}"
    await client.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    return name


async def next_event(events: AsyncIterator[WatchEvent]) -> WatchEvent:
    async with asyncio.timeout(SECONDS):
        return await anext(events)


@case("client-kinds")
async def test_kinds_are_found_and_unknown_ones_are_not(client: Client) -> None:
    kind = await client.kind(WIDGET)
    assert (kind.plural, kind.namespaced) == ("widgets", True) and {"status", "scale"} <= set(kind.subresources)
    assert (await client.kind(NAMESPACE)).namespaced is False
    with pytest.raises(NotFound):
        await client.kind(GVK("no.such", "v1", "Thing"))


@case("client-namespace-needed")
async def test_a_namespaced_object_is_not_written_without_a_namespace(client: Client, ns: str) -> None:
    obj = config_map("nowhere", {"a": "1"})
    for write in (client.create(obj), client.update(obj), client.apply(obj, manager="m")):
        with pytest.raises(BadRequest, match='configmaps "nowhere": a namespaced object needs a namespace'):
            await write
    for lost in (client.get(CONFIG_MAP, "nowhere"), client.delete(CONFIG_MAP, "nowhere")):
        with pytest.raises((NotFound, BadRequest, MethodNotAllowed)):
            await lost


@case("client-round-trip")
async def test_an_object_lives_and_dies(client: Client, ns: str) -> None:
    created = await client.create(config_map("c", {"a": "1"}, namespace=ns), manager="m")
    assert (created["apiVersion"], created["kind"]) == ("v1", "ConfigMap")
    assert created["metadata"]["managedFields"][0]["manager"] == "m"
    assert await client.get(CONFIG_MAP, "c", namespace=ns) == created
    created["data"] = {"a": "2"}
    updated = await client.update(created)
    assert updated["data"] == {"a": "2"}
    assert await client.delete(CONFIG_MAP, "c", namespace=ns) is None
    with pytest.raises(NotFound):
        await client.get(CONFIG_MAP, "c", namespace=ns)
    with pytest.raises(NotFound):
        await client.delete(CONFIG_MAP, "c", namespace=ns)


@case("client-errors")
async def test_refusals_are_typed(client: Client, ns: str) -> None:
    stale = await client.create(widget("w", namespace=ns))
    with pytest.raises(AlreadyExists):
        await client.create(widget("w", namespace=ns))
    await client.patch(WIDGET, "w", Patch(PatchType.MERGE, {"spec": {"size": 2}}), namespace=ns)
    with pytest.raises(Conflict):
        await client.update(stale)
    with pytest.raises(Invalid) as caught:
        await client.create(widget("v", {"size": -1}, namespace=ns))
    assert caught.value.causes[0]["field"] == "spec.size"
    with pytest.raises(NotFound):
        await client.create(widget("v", namespace="no-such-namespace"))
    with pytest.raises(Forbidden):
        await client.delete(NAMESPACE, "kube-system")
    with pytest.raises(BadRequest):
        await client.list(WIDGET, namespace=ns, labels="a b")


@case("client-lists")
async def test_lists_are_paged_selected_and_sorted(client: Client, ns: str) -> None:
    for name in ("c", "a", "b"):
        await client.create(widget(name, {"color": "red" if name == "a" else "blue"}, namespace=ns, labels={"n": name}))
    first = await client.list(WIDGET, namespace=ns, limit=2)
    assert [obj["metadata"]["name"] for obj in first.items] == ["a", "b"] and first.remaining == 1
    rest = await client.list(WIDGET, namespace=ns, limit=2, continue_token=first.continue_token)
    assert [obj["metadata"]["name"] for obj in rest.items] == ["c"] and not rest.continue_token
    assert rest.resource_version == first.resource_version
    for selected in (
        await client.list(WIDGET, namespace=ns, labels="n in (a)"),
        await client.list(WIDGET, namespace=ns, fields="metadata.name=a"),
        await client.list(WIDGET, namespace=ns, fields="spec.color=red"),
    ):
        assert [obj["metadata"]["name"] for obj in selected.items] == ["a"]
    everywhere = await client.list(WIDGET, labels="n=a")
    assert all(obj["kind"] == "Widget" for obj in everywhere.items)


@case("client-watch")
async def test_a_watch_tells_what_is_and_what_becomes(client: Client, ns: str) -> None:
    created = await client.create(widget("a", namespace=ns, labels={"l": "1"}))
    async with client.watch(WIDGET, namespace=ns, bookmarks=True, send_initial_events=True) as events:
        assert (await next_event(events)).object["metadata"]["name"] == "a"
        bookmark = await next_event(events)
        assert bookmark.type == "BOOKMARK"
        assert bookmark.object["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}
        await client.create(widget("b", namespace=ns))
        event = await next_event(events)
        assert (event.type, event.object["metadata"]["name"], event.object["kind"]) == ("ADDED", "b", "Widget")
    start = created["metadata"]["resourceVersion"]
    async with client.watch(WIDGET, namespace=ns, resource_version=start, labels="l=1") as events:
        await client.patch(WIDGET, "a", Patch(PatchType.MERGE, {"metadata": {"labels": {"l": "2"}}}), namespace=ns)
        assert (await next_event(events)).type == "DELETED"


@case("client-watch-ends")
async def test_a_watch_ends_after_its_time_and_expires_when_too_old(client: Client, ns: str) -> None:
    async with asyncio.timeout(SECONDS), client.watch(WIDGET, namespace=ns, timeout=1) as events:
        assert [event async for event in events] == []
    try:
        async with asyncio.timeout(SECONDS), client.watch(NAMESPACE, resource_version="1", timeout=1) as events:
            seen = [event async for event in events]
    except Expired as error:
        assert error.code == 410
    else:
        assert seen, "a server that still knows its first version tells everything since"


@case("client-patches")
async def test_patches_change_what_they_say(client: Client, ns: str) -> None:
    await client.create(config_map("c", {"a": "1"}, namespace=ns))
    merged = await client.patch(CONFIG_MAP, "c", Patch(PatchType.MERGE, {"data": {"b": "2"}}), namespace=ns)
    assert merged["data"] == {"a": "1", "b": "2"}
    operations: list[Object] = [{"op": "remove", "path": "/data/a"}]
    assert (await client.patch(CONFIG_MAP, "c", Patch(PatchType.JSON, operations), namespace=ns))["data"] == {"b": "2"}
    strategic = Patch(PatchType.STRATEGIC, {"data": {"b": None, "c": "3"}})
    assert (await client.patch(CONFIG_MAP, "c", strategic, namespace=ns))["data"] == {"c": "3"}
    dry = await client.patch(CONFIG_MAP, "c", Patch(PatchType.MERGE, {"data": {"d": "4"}}), namespace=ns, dry_run=True)
    assert dry["data"] == {"c": "3", "d": "4"}
    assert (await client.get(CONFIG_MAP, "c", namespace=ns))["data"] == {"c": "3"}


@case("client-apply")
async def test_apply_owns_conflicts_and_forces(client: Client, ns: str) -> None:
    await client.apply(widget("w", {"size": 1, "color": "red"}, namespace=ns), manager="a")
    with pytest.raises(ApplyConflict) as caught:
        await client.apply(widget("w", {"size": 2}, namespace=ns), manager="b")
    assert [cause["field"] for cause in caught.value.causes] == [".spec.size"]
    forced = await client.apply(widget("w", {"size": 2}, namespace=ns), manager="b", force=True)
    assert forced["spec"] == {"size": 2, "color": "red", "mode": "auto"}
    left = await client.apply(widget("w", {"size": 2}, namespace=ns), manager="a")
    assert left["spec"] == {"size": 2, "mode": "auto"}
    again = await client.apply(widget("w", {"size": 2}, namespace=ns), manager="a")
    assert again["metadata"]["resourceVersion"] == left["metadata"]["resourceVersion"]


@case("client-subresources")
async def test_status_is_written_apart(client: Client, ns: str) -> None:
    created = await client.create(widget("w", {"replicas": 1}, namespace=ns))
    created["status"] = {"n": 1}
    written = await client.update(created, subresource="status")
    assert written["status"] == {"n": 1} and written["metadata"]["generation"] == 1
    assert (await client.get(WIDGET, "w", namespace=ns, subresource="scale"))["kind"] == "Scale"
    status = {name: created[name] for name in ("apiVersion", "kind")} | {"metadata": {"name": "w", "namespace": ns}}
    applied = await client.apply(status | {"status": {"m": 2}}, manager="s", subresource="status")
    assert applied["status"] == {"n": 1, "m": 2}


@case("client-deletes")
async def test_deletes_have_preconditions_finalizers_and_policies(client: Client, ns: str) -> None:
    created = await client.create(config_map("c", namespace=ns, finalizers=["e.org/f"]))
    with pytest.raises(Conflict):
        await client.delete(CONFIG_MAP, "c", namespace=ns, uid="other")
    with pytest.raises(Conflict):
        await client.delete(CONFIG_MAP, "c", namespace=ns, resource_version="1")
    uid = created["metadata"]["uid"]
    held = await client.delete(CONFIG_MAP, "c", namespace=ns, uid=uid, propagation=Propagation.BACKGROUND)
    assert held is not None and held["metadata"]["deletionTimestamp"]
    await client.patch(CONFIG_MAP, "c", Patch(PatchType.MERGE, {"metadata": {"finalizers": None}}), namespace=ns)
    with pytest.raises(NotFound):
        await client.get(CONFIG_MAP, "c", namespace=ns)


@case("client-delete-collection")
async def test_a_collection_is_deleted_by_selector(client: Client, ns: str) -> None:
    for name in ("a", "b", "c"):
        await client.create(widget(name, namespace=ns, labels={"x": "1" if name != "c" else "2"}))
    deleted = await client.delete_collection(WIDGET, namespace=ns, labels="x=1")
    assert sorted(obj["metadata"]["name"] for obj in deleted) == ["a", "b"]
    assert [obj["metadata"]["name"] for obj in (await client.list(WIDGET, namespace=ns)).items] == ["c"]


@case("client-own-objects")
async def test_what_a_client_gives_belongs_to_the_caller(client: Client, ns: str) -> None:
    sent = config_map("c", {"a": "1"}, namespace=ns)
    created = await client.create(sent)
    created["data"]["a"] = "changed"
    sent["data"]["a"] = "changed too"
    first = await client.get(CONFIG_MAP, "c", namespace=ns)
    first["data"]["a"] = "changed as well"
    assert (await client.get(CONFIG_MAP, "c", namespace=ns))["data"] == {"a": "1"}
