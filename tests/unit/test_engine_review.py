"""Odd but legal requests, races between verbs and built-in controllers, and what a shutdown leaves: each was wrong
once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from copy import deepcopy
from random import Random
from typing import Any

import pytest

from planform.api.kinds import Object, gvk
from planform.apiserver.crds.registry import ServedKind
from planform.apiserver.engine import open_engine
from planform.apiserver.local import LocalClient
from planform.apiserver.verbs import subresources
from planform.apiserver.verbs.requests import Request
from planform.client import Patch, PatchType
from planform.client.protocol import Propagation
from planform.clock import SystemClock
from planform.engine import garbage
from planform.engine.garbage import GarbageCollector
from planform.errors import ApiError, BadRequest, Conflict
from planform.reconcile.controller import Controller
from planform.reconcile.limiter import ConcurrencyLimiter
from planform.store import Change, Key, open_store
from tests.harness.embedded import (
    CONFIG_MAP,
    CRD,
    NAMESPACE,
    Embedded,
    embedded_engine,
    version,
    widget,
    widget_crd,
)

WIDGET = gvk("example.org/v1", "Widget")
SECRET = gvk("v1", "Secret")
SIZE = {"size": {"type": "integer"}}


def config_map(name: str, *owners: Object, block: bool = False, **metadata: Any) -> Object:
    references = [
        {"apiVersion": o["apiVersion"], "kind": o["kind"], "name": o["metadata"]["name"], "uid": o["metadata"]["uid"]}
        | ({"blockOwnerDeletion": True} if block else {})
        for o in owners
    ]
    if references:
        metadata["ownerReferences"] = references
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": "default", **metadata},
    }


# -- odd input


@pytest.mark.parametrize("flag", ["controller", "blockOwnerDeletion"])
async def test_an_owner_reference_with_a_flag_that_is_no_boolean_is_refused(flag: str) -> None:
    async with embedded_engine() as engine:
        owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": "o", "uid": "1", flag: "yes"}
        with pytest.raises(BadRequest, match=rf"metadata\.ownerReferences\[0\]\.{flag} must be a boolean, not string"):
            await engine.client.create(config_map("c", ownerReferences=[owner]))


@pytest.mark.parametrize(
    "entry",
    [
        {"manager": ["x"], "operation": "Update", "apiVersion": "v1", "fieldsType": "FieldsV1", "fieldsV1": {}},
        {"operation": "Update"},
        {"manager": "x", "operation": "Update", "apiVersion": "v1", "fieldsType": "FieldsV1", "fieldsV1": {"f:a": 5}},
    ],
    ids=["manager of a wrong type", "nearly empty", "fields that are no set"],
)
async def test_an_object_created_with_odd_managed_fields_can_still_be_changed(entry: Object) -> None:
    async with embedded_engine() as engine:
        await engine.client.create({**config_map("c", managedFields=[entry]), "data": {"a": "b"}})
        changed = await engine.client.patch(
            CONFIG_MAP, "c", Patch(PatchType.MERGE, {"data": {"a": "c"}}), namespace="default"
        )
        assert [item["manager"] for item in changed["metadata"]["managedFields"]] == ["planform"]


@pytest.mark.parametrize(
    "obj",
    [
        {"kind": "Namespace", "metadata": {"name": "n"}, "spec": "x"},
        {"kind": "Namespace", "metadata": {"name": "n"}, "spec": {"finalizers": 5}},
        {"kind": "Secret", "metadata": {"name": "s", "namespace": "default"}, "data": ["x"], "stringData": {"a": "b"}},
        {"kind": "Secret", "metadata": {"name": "s", "namespace": "default"}, "stringData": {"a": 5}},
        {"kind": "Secret", "metadata": {"name": "s", "namespace": "default"}, "stringData": ["a"]},
        {"kind": "Service", "metadata": {"name": "s", "namespace": "default"}, "spec": {"ports": 5}},
    ],
    ids=str,
)
async def test_a_built_in_object_with_a_wrong_type_is_a_bad_request(obj: Object) -> None:
    async with embedded_engine() as engine:
        with pytest.raises(BadRequest, match="cannot be handled as"):
            await engine.client.create({"apiVersion": "v1", **obj})


async def test_a_role_binding_whose_subjects_are_no_list_is_a_bad_request() -> None:
    async with embedded_engine() as engine:
        binding = {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "RoleBinding",
            "metadata": {"name": "b", "namespace": "default"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "r"},
            "subjects": 5,
        }
        with pytest.raises(BadRequest, match="subjects"):
            await engine.client.create(binding)


async def test_a_crd_cannot_lose_its_spec() -> None:
    async with embedded_engine() as engine:
        await engine.establish(widget_crd(version("v1", SIZE)))
        for change in ({"spec": None}, {"spec": {"names": None}}):
            with pytest.raises(ApiError, match="spec"):
                await engine.client.patch(CRD, "widgets.example.org", Patch(PatchType.MERGE, change))


async def test_finalize_refuses_a_spec_that_is_no_object_and_a_version_that_has_moved() -> None:
    async with embedded_engine() as engine:
        await engine.client.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "n"}})
        served = engine.core.registry.find(NAMESPACE)
        for body, error in (
            ({"spec": "x"}, BadRequest),
            ({"metadata": {"resourceVersion": "1"}, "spec": {"finalizers": []}}, Conflict),
        ):
            with pytest.raises(error):
                await subresources.update(engine.core, served, "", "n", "finalize", body, Request())


def scaled_crd() -> Object:
    nested = {"type": "object", "nullable": True, "properties": {"count": {"type": "integer"}}}
    paths = {"specReplicasPath": ".spec.nested.count", "statusReplicasPath": ".status.count"}
    scale = {**paths, "labelSelectorPath": ".status.selector"}
    return widget_crd(version("v1", {"nested": nested}, subresources={"status": {}, "scale": scale}))


async def test_scale_makes_the_parents_of_its_path_where_they_are_null() -> None:
    async with embedded_engine() as engine:
        await engine.establish(scaled_crd())
        await engine.client.create(widget(nested=None))
        patch = Patch(PatchType.MERGE, {"spec": {"replicas": 3}})
        served = engine.core.registry.find(WIDGET)
        body = {"metadata": {"name": "w"}, "spec": {"replicas": 3}}
        scale = await subresources.update(engine.core, served, "default", "w", "scale", body, Request())
        assert scale["spec"] == {"replicas": 3}
        assert (await engine.client.get(WIDGET, "w", namespace="default"))["spec"] == {"nested": {"count": 3}}
        again = await engine.client.patch(WIDGET, "w", patch, namespace="default", subresource="scale")
        assert again["metadata"]["resourceVersion"] == scale["metadata"]["resourceVersion"]


async def test_scale_leaves_out_a_selector_that_is_no_text() -> None:
    async with embedded_engine() as engine:
        await engine.establish(scaled_crd())
        await engine.client.create(widget(nested={"count": 1}))
        status = Patch(PatchType.MERGE, {"status": {"count": 1, "selector": ["a"]}})
        await engine.client.patch(WIDGET, "w", status, namespace="default", subresource="status")
        scale = await engine.client.get(WIDGET, "w", namespace="default", subresource="scale")
        assert scale["status"] == {"replicas": 1}


async def test_a_deletion_time_sent_back_with_an_offset_is_the_same_time() -> None:
    async with embedded_engine() as engine:
        await engine.client.create(config_map("c", finalizers=["example.org/hold"]))
        ending = await engine.client.delete(CONFIG_MAP, "c", namespace="default")
        assert ending is not None
        metadata = ending["metadata"]
        metadata["deletionTimestamp"] = metadata["deletionTimestamp"].replace("Z", "+00:00")
        del metadata["finalizers"]
        await engine.client.update(ending)
        await engine.gone(CONFIG_MAP, "c")


# -- garbage collection


def idle_controller(name: str, reconcile: Any) -> Controller[Any]:
    return Controller(name, reconcile, clock=SystemClock(), rng=Random(7), limiter=ConcurrencyLimiter(1))


@asynccontextmanager
async def idle_collector() -> AsyncIterator[tuple[Embedded, GarbageCollector]]:
    """An engine whose garbage collector follows every change but acts only when a test says so."""
    clock = SystemClock()
    async with await open_store(None, clock=clock) as store:
        core = open_engine(store, clock, rng=Random(7))
        engine = Embedded(core, LocalClient(core))
        await engine.client.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "default"}})

        collector = GarbageCollector(core, idle_controller)
        unsubscribe = store.subscribe(collector.changed)
        yield engine, collector
        unsubscribe()


async def test_owners_in_a_circle_do_not_wait_for_each_other_in_the_foreground() -> None:
    async with embedded_engine() as engine:
        first = await engine.client.create(config_map("c0"))
        last = first
        for name in ("c1", "c2"):
            last = await engine.client.create(config_map(name, last, block=True))
        closing = config_map("c0", last, block=True)["metadata"]["ownerReferences"]
        patch = Patch(PatchType.MERGE, {"metadata": {"ownerReferences": closing}})
        await engine.client.patch(CONFIG_MAP, "c0", patch, namespace="default")
        await engine.client.delete(CONFIG_MAP, "c0", namespace="default", propagation=Propagation.FOREGROUND)
        async with asyncio.timeout(10):
            for name in ("c0", "c1", "c2"):
                await engine.gone(CONFIG_MAP, name)


async def test_dependents_follow_an_owner_whose_kind_went_with_it() -> None:
    async with embedded_engine() as engine:
        await engine.establish(widget_crd(version("v1", SIZE)))
        owner = await engine.client.create(widget(size=1))
        names = [f"c{number}" for number in range(200)]
        await asyncio.gather(*(engine.client.create(config_map(name, owner)) for name in names))
        await engine.client.delete(CRD, "widgets.example.org")
        async with asyncio.timeout(10):
            for name in names:
                await engine.gone(CONFIG_MAP, name)


async def test_the_first_scan_learns_nothing_from_versions_that_were_replaced_meanwhile(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(garbage, "_SLICE", 1)
    dead = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "dead", "uid": "1"}}
    async with idle_collector() as (engine, _):
        for name in ("a", "freed", "removed"):
            await engine.client.create(config_map(name, dead))
        later = GarbageCollector(engine.core, idle_controller)
        engine.core.store.subscribe(later.changed)
        scan = later._scan_store()
        scan.send(None)
        free = Patch(PatchType.MERGE, {"metadata": {"ownerReferences": None}})
        await engine.client.patch(CONFIG_MAP, "freed", free, namespace="default")
        await engine.client.delete(CONFIG_MAP, "removed", namespace="default")
        with pytest.raises(StopIteration):
            while True:
                scan.send(None)
        assert {key.name for key in later._owners} == {"a"}


async def test_an_object_that_is_given_an_owner_while_it_is_collected_stays() -> None:
    dead = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "dead", "uid": "1"}}
    async with idle_collector() as (engine, collector):
        alive = await engine.client.create(config_map("alive"))
        await engine.client.create(config_map("c", dead))
        adopted = config_map("c", alive)["metadata"]["ownerReferences"]
        patch = Patch(PatchType.MERGE, {"metadata": {"ownerReferences": adopted}})
        adopting = asyncio.create_task(engine.client.patch(CONFIG_MAP, "c", patch, namespace="default"))
        key = Key("configmaps", "default", "c")
        await asyncio.sleep(0)
        assert engine.core.store.head(key) != engine.core.store.get(key)
        await collector._reconcile(key)
        await adopting
        await collector._reconcile(key)
        assert (await engine.client.get(CONFIG_MAP, "c", namespace="default"))["metadata"]["ownerReferences"] == adopted


async def test_a_scan_that_is_under_way_ends_with_the_chores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(garbage, "_SLICE", 1)
    async with idle_collector() as (engine, collector):
        await asyncio.gather(*(engine.client.create(config_map(f"c{number}")) for number in range(100)))
        collector.begin()
        await asyncio.sleep(0)
        [scan] = [task for task in asyncio.all_tasks() if task.get_name() == "garbage scan"]
        collector.close()
        await asyncio.wait([scan])
        assert scan.cancelled()


async def test_deleting_a_collection_shares_commits() -> None:
    async with embedded_engine() as engine:
        await asyncio.gather(*(engine.client.create(config_map(f"c{number}")) for number in range(100)))
        batches = 0

        def count(changes: Sequence[Change]) -> None:
            nonlocal batches
            batches += any(change.key.resource == "configmaps" for change in changes)

        engine.core.store.subscribe(count)
        deleted = await engine.client.delete_collection(CONFIG_MAP, namespace="default")
        assert (len(deleted), batches) == (100, 2)


# -- CRDs


async def until_crd(engine: Embedded, holds: Callable[[Object], bool]) -> Object:
    async with asyncio.timeout(10), engine.client.watch(CRD, fields="metadata.name=widgets.example.org") as changes:
        async for change in changes:
            if change.type != "DELETED" and holds(change.object):
                return change.object
    raise AssertionError("the watch ended")


def named(**names: object) -> Object:
    crd = widget_crd(version("v1", SIZE))
    crd["spec"]["names"] |= names
    return crd


async def test_a_short_name_that_comes_later_is_served() -> None:
    async with embedded_engine() as engine:
        await engine.establish(named())
        await engine.client.apply(named(shortNames=["wd"]), manager="test", force=True)
        await until_crd(engine, lambda crd: crd["status"]["acceptedNames"].get("shortNames") == ["wd"])
        assert (await engine.client.kind(WIDGET)).short_names == ("wd",)


async def test_an_established_kind_stays_served_when_it_asks_for_a_name_in_use() -> None:
    async with embedded_engine() as engine:
        rival = named(shortNames=["taken"])
        rival["metadata"]["name"] = "gadgets.example.org"
        rival["spec"]["names"] |= {"plural": "gadgets", "kind": "Gadget"}
        await engine.establish(rival)
        await engine.establish(named(shortNames=["wd"]))
        await engine.client.apply(named(shortNames=["taken"]), manager="test", force=True)
        refused = {"type": "NamesAccepted", "status": "False", "reason": "ShortNamesConflict"}
        await until_crd(engine, lambda crd: any(refused.items() <= c.items() for c in crd["status"]["conditions"]))
        assert (await engine.client.kind(WIDGET)).short_names == ("wd",)
        await engine.client.delete(CRD, "gadgets.example.org")
        await until_crd(engine, lambda crd: crd["status"]["acceptedNames"].get("shortNames") == ["taken"])


async def test_a_crd_without_a_served_version_takes_its_objects_with_it() -> None:
    async with embedded_engine() as engine:
        await engine.establish(widget_crd(version("v1", SIZE)))
        await engine.client.create(widget(size=1))
        await engine.client.apply(widget_crd(version("v1", SIZE, served=False)), manager="test", force=True)
        await engine.client.delete(CRD, "widgets.example.org")
        async with asyncio.timeout(10):
            await engine.gone(CRD, "widgets.example.org", "")
        assert engine.core.store.count("widgets.example.org") == 0


class CountingWebhook:
    """Renames versions, and counts how often it was asked."""

    def __init__(self) -> None:
        self.calls = 0

    async def convert(self, served: ServedKind, objects: Sequence[Object], api_version: str) -> Sequence[Object]:
        self.calls += 1
        return [{**obj, "apiVersion": api_version} for obj in objects]


def converted_crd() -> Object:
    config = {"clientConfig": {"url": "https://127.0.0.1:1/"}, "conversionReviewVersions": ["v1"]}
    conversion = {"strategy": "Webhook", "webhook": config}
    return widget_crd(version("v1", SIZE), version("v2", SIZE, storage=False), conversion=conversion)


async def test_a_watch_converts_what_is_there_with_one_call() -> None:
    webhook = CountingWebhook()
    async with embedded_engine(webhooks=webhook) as engine:
        await engine.establish(converted_crd())
        await asyncio.gather(*(engine.client.create(widget(f"w{number}", size=1)) for number in range(20)))
        async with engine.client.watch(gvk("example.org/v2", "Widget")) as changes:
            seen = [(await anext(changes)).object["apiVersion"] for _ in range(20)]
        assert (set(seen), webhook.calls) == ({"example.org/v2"}, 1)


async def test_a_crd_goes_without_its_webhook() -> None:
    async with embedded_engine() as engine:
        crd = converted_crd()
        crd["spec"]["versions"].reverse()
        await engine.establish(crd)
        await engine.client.create(widget(size=1))
        await engine.client.delete(CRD, "widgets.example.org")
        async with asyncio.timeout(10):
            await engine.gone(CRD, "widgets.example.org", "")


# -- callers and the loop


async def test_a_patch_is_the_callers_and_is_not_changed() -> None:
    async with embedded_engine() as engine:
        await engine.client.create(
            {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s", "namespace": "default"}}
        )
        body = {"metadata": {"labels": {"a": "b"}}, "stringData": {"a": "b", "c": "d"}, "unknown": {"x": [1]}}
        before = deepcopy(body)
        await engine.client.patch(SECRET, "s", Patch(PatchType.MERGE, body), namespace="default")
        owner = {"apiVersion": "v1", "kind": "Secret", "name": "s", "uid": "1", "surprise": True}
        owned = {"metadata": {"ownerReferences": [owner]}}
        await engine.client.patch(SECRET, "s", Patch(PatchType.MERGE, owned), namespace="default")
        assert body == before
        assert owned == {"metadata": {"ownerReferences": [{**owner, "surprise": True}]}}


async def test_a_long_list_is_decoded_in_slices_that_let_others_through() -> None:
    async with embedded_engine() as engine:
        await asyncio.gather(*(engine.client.create(config_map(f"c{number}")) for number in range(1000)))
        listing = asyncio.create_task(engine.client.list(CONFIG_MAP))
        turns = 0
        while not listing.done():
            await asyncio.sleep(0)
            turns += 1
        assert (len(listing.result().items), turns >= 5) == (1000, True)
