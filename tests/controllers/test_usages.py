"""Usages at work on both engines: what they mark, whom they wait for, and what is said of those that cannot be."""

from __future__ import annotations

import asyncio

import pytest

from planform.api.names import LEGACY_USAGE, USAGE, USAGE_FINALIZER
from planform.composition.usages import DETAILS_ANNOTATION, IN_USE_LABEL, UsageKey
from planform.composition.xr import COMPOSITE_LABEL
from planform.controllers.usages import UsageController
from planform.controllers.workbench import Workbench
from planform.errors import Invalid
from planform.reconcile.controller import Result
from tests.controllers.using import deleted, is_marked, merged, nop, pair, side, stored, until_gone, until_marked, usage
from tests.harness.planes import condition_of, eventually, until_condition


async def test_a_usage_marks_what_is_used_and_belongs_to_its_user(bench: Workbench, unique: str) -> None:
    UsageController(bench).start()
    used, using = await pair(bench, unique)
    created = await bench.client.create(usage(unique, of=side(f"{unique}-of"), by=side(f"{unique}-by")))
    found = await until_condition(bench.client, created, "Ready", reason="Available")
    metadata = found["metadata"]
    assert [(owner["kind"], owner["uid"]) for owner in metadata["ownerReferences"]] == [
        ("NopResource", using["metadata"]["uid"])
    ]
    assert USAGE_FINALIZER in metadata["finalizers"]
    assert metadata["annotations"][DETAILS_ANNOTATION] == f"NopResource/{unique}-by uses NopResource/{unique}-of"
    marked = await stored(bench, used)
    assert marked is not None and is_marked(marked)
    unmarked = await stored(bench, using)
    assert unmarked is not None and not is_marked(unmarked)
    await deleted(bench, created)
    await until_gone(bench, created)
    await until_marked(bench, used, False)


async def test_a_cluster_usage_marks_a_cluster_scoped_resource(bench: Workbench, unique: str) -> None:
    UsageController(bench).start()
    used, using = await pair(bench, unique, namespace="")
    wanted = usage(unique, cluster=True, of=side(f"{unique}-of", cluster=True), by=side(f"{unique}-by", cluster=True))
    created = await bench.client.create(wanted)
    found = await until_condition(bench.client, created, "Ready")
    assert [owner["uid"] for owner in found["metadata"]["ownerReferences"]] == [using["metadata"]["uid"]]
    await until_marked(bench, used)
    await deleted(bench, created)
    await until_gone(bench, created)
    await until_marked(bench, used, False)
    for obj in (used, using):
        await deleted(bench, obj)


@pytest.mark.parametrize("version", ["v1alpha1", "v1beta1"])
async def test_a_usage_as_it_was_called_before_protects_beside_a_cluster_usage_of_the_same_name(
    bench: Workbench, unique: str, version: str
) -> None:
    UsageController(bench).start()
    used, using = await pair(bench, unique, namespace="")
    sides = {"of": side(f"{unique}-of", cluster=True), "by": side(f"{unique}-by", cluster=True)}
    legacy = {**usage(unique, cluster=True, **sides), "apiVersion": f"{LEGACY_USAGE.group}/{version}", "kind": "Usage"}
    created = await bench.client.create(legacy)
    namesake = await bench.client.create(usage(unique, cluster=True, of=sides["of"], reason="data"))
    found = await until_condition(bench.client, created, "Ready", reason="Available")
    await until_condition(bench.client, namesake, "Ready")
    assert [owner["uid"] for owner in found["metadata"]["ownerReferences"]] == [using["metadata"]["uid"]]
    await until_marked(bench, used)
    await deleted(bench, namesake)
    await until_gone(bench, namesake)
    await until_marked(bench, used)
    await deleted(bench, created)
    await until_gone(bench, created)
    await until_marked(bench, used, False)
    for obj in (used, using):
        await deleted(bench, obj)


async def test_a_usage_with_a_reason_needs_no_user(bench: Workbench, unique: str) -> None:
    UsageController(bench).start()
    used = await bench.client.create(nop(unique))
    created = await bench.client.create(usage(unique, of=side(unique), reason="it holds the data"))
    found = await until_condition(bench.client, created, "Ready")
    assert found["metadata"]["annotations"][DETAILS_ANNOTATION] == "it holds the data"
    assert not found["metadata"].get("ownerReferences")
    await until_marked(bench, used)


async def test_selectors_are_resolved_once_and_in_the_order_of_names(bench: Workbench, unique: str) -> None:
    UsageController(bench).start()
    labels = {"app": unique}
    created = await bench.client.create(usage(unique, of=side(matchLabels=labels), reason="r"))
    waiting = await until_condition(bench.client, created, "Ready", "False", reason="CannotResolveSelector")
    condition = condition_of(waiting, "Ready")
    assert condition is not None and condition["message"].startswith("spec.of.resourceSelector: no ")
    later = await bench.client.create(nop(f"{unique}-b", labels=labels))
    found = await until_condition(bench.client, created, "Ready")
    assert found["spec"]["of"]["resourceRef"] == {"name": f"{unique}-b"}
    earlier = await bench.client.create(nop(f"{unique}-a", labels=labels))
    await merged(bench, created, {"metadata": {"annotations": {"touched": "yes"}}})
    await until_marked(bench, later)
    assert (await bench.client.get(USAGE, unique, namespace="default"))["spec"] == found["spec"]
    untouched = await stored(bench, earlier)
    assert untouched is not None and not is_marked(untouched)


async def test_a_selector_finds_what_has_the_same_controller(bench: Workbench, unique: str) -> None:
    UsageController(bench).start()
    owners = []
    for name in ("xr1", "xr2"):
        xr = await bench.client.create(nop(f"{unique}-{name}"))
        owner = {"apiVersion": xr["apiVersion"], "kind": xr["kind"], "name": xr["metadata"]["name"]}
        owners.append({**owner, "uid": xr["metadata"]["uid"], "controller": True})
    for name, owner in (("a", owners[1]), ("b", owners[0])):
        await bench.client.create(nop(f"{unique}-{name}", labels={"app": unique}, ownerReferences=[owner]))
    wanted = usage(unique, of=side(matchControllerRef=True, matchLabels={"app": unique}), reason="r")
    wanted["metadata"]["ownerReferences"] = [owners[0]]
    found = await until_condition(bench.client, await bench.client.create(wanted), "Ready")
    assert found["spec"]["of"]["resourceRef"] == {"name": f"{unique}-b"}


async def test_a_usage_of_what_has_no_namespace_protects_nothing_and_says_so(bench: Workbench, unique: str) -> None:
    UsageController(bench).start()
    used = await bench.client.create(nop(unique, ""))
    created = await bench.client.create(usage(unique, of=side(unique, cluster=True), reason="mine"))
    refused = await until_condition(bench.client, created, "Ready", "False", reason="InvalidUsage")
    condition = condition_of(refused, "Ready")
    assert condition is not None and condition["message"].endswith("has no namespace; use a ClusterUsage, not a Usage")
    found = await stored(bench, used)
    assert found is not None and not is_marked(found)
    await deleted(bench, used)
    await deleted(bench, created)


async def test_a_usage_of_another_namespace_needs_a_user_and_says_so(bench: Workbench, unique: str) -> None:
    UsageController(bench).start()
    space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": unique}}
    await bench.client.create(space)
    used = await bench.client.create(nop(f"{unique}-of", unique))
    using = await bench.client.create(nop(f"{unique}-by"))
    of = side(f"{unique}-of", namespace=unique)
    chosen = side(matchLabels={"app": unique}, namespace=unique)
    for elsewhere in (of, chosen):
        with pytest.raises(Invalid) as refused:
            await bench.client.create(usage(f"{unique}-1", of=elsewhere, reason="r"))
        assert "a resource of another namespace can only be protected with by" in refused.value.message
    created = await bench.client.create(usage(f"{unique}-2", of=of, by=side(f"{unique}-by")))
    found = await until_condition(bench.client, created, "Ready")
    assert found["metadata"]["annotations"][DETAILS_ANNOTATION].endswith(
        f"uses NopResource/{unique}-of in namespace {unique}"
    )
    assert [owner["uid"] for owner in found["metadata"]["ownerReferences"]] == [using["metadata"]["uid"]]
    await until_marked(bench, used)
    await deleted(bench, created)
    await until_gone(bench, created)
    await until_marked(bench, used, False)
    await deleted(bench, space)


async def test_a_cluster_usage_of_a_namespaced_kind_says_which_kind_to_use(bench: Workbench, unique: str) -> None:
    UsageController(bench).start()
    created = await bench.client.create(usage(unique, cluster=True, of=side("anything"), reason="r"))
    found = await until_condition(bench.client, created, "Ready", "False", reason="InvalidUsage")
    condition = condition_of(found, "Ready")
    assert condition is not None and "use a Usage, not a ClusterUsage" in condition["message"]
    await deleted(bench, created)
    await until_gone(bench, created)


async def test_what_is_not_there_yet_is_waited_for(bench: Workbench, unique: str) -> None:
    UsageController(bench).start()
    created = await bench.client.create(usage(unique, of=side(f"{unique}-of"), by=side(f"{unique}-by")))
    waiting = await until_condition(bench.client, created, "Ready", "False", reason="ResourceNotFound")
    condition = condition_of(waiting, "Ready")
    assert condition is not None and condition["message"].startswith("spec.of: ")
    used = await bench.client.create(nop(f"{unique}-of"))
    await until_marked(bench, used)  # it is protected before its user is known

    async def waits_for_the_user() -> bool:
        condition = condition_of(await stored(bench, created) or {}, "Ready")
        return condition is not None and condition.get("message", "").startswith("spec.by: ")

    await eventually(waits_for_the_user, "the usage says that its user is missing")
    await bench.client.create(nop(f"{unique}-by"))
    await until_condition(bench.client, created, "Ready")


async def test_a_usage_of_a_kind_that_is_not_served_says_so_and_can_be_deleted(bench: Workbench, unique: str) -> None:
    UsageController(bench).start()
    of = {"apiVersion": f"{unique}.example.org/v1", "kind": "Nothing", "resourceRef": {"name": "x"}}
    created = await bench.client.create(usage(unique, of=of, reason="r"))
    await until_condition(bench.client, created, "Ready", "False", reason="KindNotServed")
    await deleted(bench, created)
    await until_gone(bench, created)


async def test_a_mark_that_somebody_took_away_is_put_back(bench: Workbench, unique: str) -> None:
    UsageController(bench).start()
    used = await bench.client.create(nop(unique))
    created = await bench.client.create(usage(unique, of=side(unique), reason="r"))
    await until_condition(bench.client, created, "Ready")
    await merged(bench, used, {"metadata": {"labels": {IN_USE_LABEL: None}}})
    await until_marked(bench, used)


async def test_the_mark_goes_with_the_last_usage(bench: Workbench, unique: str) -> None:
    UsageController(bench).start()
    used = await bench.client.create(nop(unique))
    usages = [await bench.client.create(usage(f"{unique}-{n}", of=side(unique), reason="r")) for n in range(3)]
    for each in usages:
        await until_condition(bench.client, each, "Ready")
    await deleted(bench, usages[0])
    await until_gone(bench, usages[0])
    still = await stored(bench, used)
    assert still is not None and is_marked(still)
    await asyncio.gather(*(deleted(bench, each) for each in usages[1:]))
    for each in usages[1:]:
        await until_gone(bench, each)
    await until_marked(bench, used, False)


async def test_a_composed_usage_that_is_deleted_waits_for_its_user(bench: Workbench, unique: str) -> None:
    UsageController(bench).start()
    used, using = await pair(bench, unique)
    wanted = usage(unique, labels={COMPOSITE_LABEL: "xr"}, of=side(f"{unique}-of"), by=side(f"{unique}-by"))
    created = await bench.client.create(wanted)
    await until_condition(bench.client, created, "Ready")
    await deleted(bench, created)
    waiting = await until_condition(bench.client, created, "Ready", "False", reason="WaitingUsingDeleted")
    condition = condition_of(waiting, "Ready")
    assert condition is not None and f'"{unique}-by"' in condition["message"]
    still = await stored(bench, used)
    assert still is not None and is_marked(still)
    await deleted(bench, using)
    await until_gone(bench, created)
    await until_marked(bench, used, False)


async def test_a_usage_that_is_not_composed_does_not_wait_for_its_user(bench: Workbench, unique: str) -> None:
    UsageController(bench).start()
    used, using = await pair(bench, unique)
    created = await bench.client.create(usage(unique, of=side(f"{unique}-of"), by=side(f"{unique}-by")))
    await until_condition(bench.client, created, "Ready")
    await deleted(bench, created)
    await until_gone(bench, created)
    assert await stored(bench, using) is not None
    await until_marked(bench, used, False)


async def test_a_user_that_was_replaced_is_the_owner_in_place_of_its_namesake(bench: Workbench, unique: str) -> None:
    UsageController(bench).start()
    _, using = await pair(bench, unique)
    keeper = await bench.client.create(nop(f"{unique}-keeper"))
    wanted = usage(unique, of=side(f"{unique}-of"), by=side(f"{unique}-by"))
    owner = {key: keeper[key] for key in ("apiVersion", "kind")}
    wanted["metadata"]["ownerReferences"] = [{**owner, "name": f"{unique}-keeper", "uid": keeper["metadata"]["uid"]}]
    created = await bench.client.create(wanted)
    await until_condition(bench.client, created, "Ready")
    await deleted(bench, using)
    fresh = await bench.client.create(nop(f"{unique}-by"))
    expected = sorted([keeper["metadata"]["uid"], fresh["metadata"]["uid"]])

    async def replaced() -> bool:
        found = await stored(bench, created)
        owners = (found or created)["metadata"].get("ownerReferences") or ()
        return sorted(owner["uid"] for owner in owners) == expected

    await eventually(replaced, "the new user is an owner, the old one is not")


async def test_a_usage_that_is_in_place_writes_nothing(bench: Workbench, unique: str) -> None:
    controller = UsageController(bench)
    controller.start()
    used, using = await pair(bench, unique)
    created = await bench.client.create(usage(unique, of=side(f"{unique}-of"), by=side(f"{unique}-by")))
    await until_condition(bench.client, created, "Ready")
    before = [await stored(bench, obj) for obj in (created, used, using)]
    assert await controller.reconcile(UsageKey("default", unique)) == Result()
    assert [await stored(bench, obj) for obj in (created, used, using)] == before
