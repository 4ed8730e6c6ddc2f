"""Usages at work on both engines: what they mark, whom they wait for, and what is said of those that cannot be."""

from __future__ import annotations

import asyncio

import pytest

from planform.api.names import LEGACY_USAGE, USAGE, USAGE_FINALIZER
from planform.api.xr import COMPOSITE_LABEL
from planform.errors import Invalid
from planform.reconcile.context import ControllerContext
from planform.reconcile.controller import Result
from planform.usages.controller import UsageController
from planform.usages.usages import DETAILS_ANNOTATION, IN_USE_LABEL, UsageKey
from tests.controllers.using import deleted, is_marked, merged, nop, pair, side, stored, until_gone, until_marked, usage
from tests.harness.contexts import condition_of, eventually, until_condition


async def test_a_usage_marks_what_is_used_and_belongs_to_its_user(context: ControllerContext, unique: str) -> None:
    UsageController(context).start()
    used, using = await pair(context, unique)
    created = await context.client.create(usage(unique, of=side(f"{unique}-of"), by=side(f"{unique}-by")))
    found = await until_condition(context.client, created, "Ready", reason="Available")
    metadata = found["metadata"]
    assert [(owner["kind"], owner["uid"]) for owner in metadata["ownerReferences"]] == [
        ("NopResource", using["metadata"]["uid"])
    ]
    assert USAGE_FINALIZER in metadata["finalizers"]
    assert metadata["annotations"][DETAILS_ANNOTATION] == f"NopResource/{unique}-by uses NopResource/{unique}-of"
    marked = await stored(context, used)
    assert marked is not None and is_marked(marked)
    unmarked = await stored(context, using)
    assert unmarked is not None and not is_marked(unmarked)
    await deleted(context, created)
    await until_gone(context, created)
    await until_marked(context, used, False)


async def test_a_cluster_usage_marks_a_cluster_scoped_resource(context: ControllerContext, unique: str) -> None:
    UsageController(context).start()
    used, using = await pair(context, unique, namespace="")
    wanted = usage(unique, cluster=True, of=side(f"{unique}-of", cluster=True), by=side(f"{unique}-by", cluster=True))
    created = await context.client.create(wanted)
    found = await until_condition(context.client, created, "Ready")
    assert [owner["uid"] for owner in found["metadata"]["ownerReferences"]] == [using["metadata"]["uid"]]
    await until_marked(context, used)
    await deleted(context, created)
    await until_gone(context, created)
    await until_marked(context, used, False)
    for obj in (used, using):
        await deleted(context, obj)


@pytest.mark.parametrize("version", ["v1alpha1", "v1beta1"])
async def test_a_usage_as_it_was_called_before_protects_beside_a_cluster_usage_of_the_same_name(
    context: ControllerContext, unique: str, version: str
) -> None:
    UsageController(context).start()
    used, using = await pair(context, unique, namespace="")
    sides = {"of": side(f"{unique}-of", cluster=True), "by": side(f"{unique}-by", cluster=True)}
    legacy = {**usage(unique, cluster=True, **sides), "apiVersion": f"{LEGACY_USAGE.group}/{version}", "kind": "Usage"}
    created = await context.client.create(legacy)
    namesake = await context.client.create(usage(unique, cluster=True, of=sides["of"], reason="data"))
    found = await until_condition(context.client, created, "Ready", reason="Available")
    await until_condition(context.client, namesake, "Ready")
    assert [owner["uid"] for owner in found["metadata"]["ownerReferences"]] == [using["metadata"]["uid"]]
    await until_marked(context, used)
    await deleted(context, namesake)
    await until_gone(context, namesake)
    await until_marked(context, used)
    await deleted(context, created)
    await until_gone(context, created)
    await until_marked(context, used, False)
    for obj in (used, using):
        await deleted(context, obj)


async def test_a_usage_with_a_reason_needs_no_user(context: ControllerContext, unique: str) -> None:
    UsageController(context).start()
    used = await context.client.create(nop(unique))
    created = await context.client.create(usage(unique, of=side(unique), reason="it holds the data"))
    found = await until_condition(context.client, created, "Ready")
    assert found["metadata"]["annotations"][DETAILS_ANNOTATION] == "it holds the data"
    assert not found["metadata"].get("ownerReferences")
    await until_marked(context, used)


async def test_selectors_are_resolved_once_and_in_the_order_of_names(context: ControllerContext, unique: str) -> None:
    UsageController(context).start()
    labels = {"app": unique}
    created = await context.client.create(usage(unique, of=side(matchLabels=labels), reason="r"))
    waiting = await until_condition(context.client, created, "Ready", "False", reason="CannotResolveSelector")
    condition = condition_of(waiting, "Ready")
    assert condition is not None and condition["message"].startswith("spec.of.resourceSelector: no ")
    later = await context.client.create(nop(f"{unique}-b", labels=labels))
    found = await until_condition(context.client, created, "Ready")
    assert found["spec"]["of"]["resourceRef"] == {"name": f"{unique}-b"}
    earlier = await context.client.create(nop(f"{unique}-a", labels=labels))
    await merged(context, created, {"metadata": {"annotations": {"touched": "yes"}}})
    await until_marked(context, later)
    assert (await context.client.get(USAGE, unique, namespace="default"))["spec"] == found["spec"]
    untouched = await stored(context, earlier)
    assert untouched is not None and not is_marked(untouched)


async def test_a_selector_finds_what_has_the_same_controller(context: ControllerContext, unique: str) -> None:
    UsageController(context).start()
    owners = []
    for name in ("xr1", "xr2"):
        xr = await context.client.create(nop(f"{unique}-{name}"))
        owner = {"apiVersion": xr["apiVersion"], "kind": xr["kind"], "name": xr["metadata"]["name"]}
        owners.append({**owner, "uid": xr["metadata"]["uid"], "controller": True})
    for name, owner in (("a", owners[1]), ("b", owners[0])):
        await context.client.create(nop(f"{unique}-{name}", labels={"app": unique}, ownerReferences=[owner]))
    wanted = usage(unique, of=side(matchControllerRef=True, matchLabels={"app": unique}), reason="r")
    wanted["metadata"]["ownerReferences"] = [owners[0]]
    found = await until_condition(context.client, await context.client.create(wanted), "Ready")
    assert found["spec"]["of"]["resourceRef"] == {"name": f"{unique}-b"}


async def test_a_usage_of_what_has_no_namespace_protects_nothing_and_says_so(
    context: ControllerContext, unique: str
) -> None:
    UsageController(context).start()
    used = await context.client.create(nop(unique, ""))
    created = await context.client.create(usage(unique, of=side(unique, cluster=True), reason="mine"))
    refused = await until_condition(context.client, created, "Ready", "False", reason="InvalidUsage")
    condition = condition_of(refused, "Ready")
    assert condition is not None and condition["message"].endswith("has no namespace; use a ClusterUsage, not a Usage")
    found = await stored(context, used)
    assert found is not None and not is_marked(found)
    await deleted(context, used)
    await deleted(context, created)


async def test_a_usage_of_another_namespace_needs_a_user_and_says_so(context: ControllerContext, unique: str) -> None:
    UsageController(context).start()
    space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": unique}}
    await context.client.create(space)
    used = await context.client.create(nop(f"{unique}-of", unique))
    using = await context.client.create(nop(f"{unique}-by"))
    of = side(f"{unique}-of", namespace=unique)
    chosen = side(matchLabels={"app": unique}, namespace=unique)
    for elsewhere in (of, chosen):
        with pytest.raises(Invalid) as refused:
            await context.client.create(usage(f"{unique}-1", of=elsewhere, reason="r"))
        assert "a resource of another namespace can only be protected with by" in refused.value.message
    created = await context.client.create(usage(f"{unique}-2", of=of, by=side(f"{unique}-by")))
    found = await until_condition(context.client, created, "Ready")
    assert found["metadata"]["annotations"][DETAILS_ANNOTATION].endswith(
        f"uses NopResource/{unique}-of in namespace {unique}"
    )
    assert [owner["uid"] for owner in found["metadata"]["ownerReferences"]] == [using["metadata"]["uid"]]
    await until_marked(context, used)
    await deleted(context, created)
    await until_gone(context, created)
    await until_marked(context, used, False)
    await deleted(context, space)


async def test_a_cluster_usage_of_a_namespaced_kind_says_which_kind_to_use(
    context: ControllerContext, unique: str
) -> None:
    UsageController(context).start()
    created = await context.client.create(usage(unique, cluster=True, of=side("anything"), reason="r"))
    found = await until_condition(context.client, created, "Ready", "False", reason="InvalidUsage")
    condition = condition_of(found, "Ready")
    assert condition is not None and "use a Usage, not a ClusterUsage" in condition["message"]
    await deleted(context, created)
    await until_gone(context, created)


async def test_what_is_not_there_yet_is_waited_for(context: ControllerContext, unique: str) -> None:
    UsageController(context).start()
    created = await context.client.create(usage(unique, of=side(f"{unique}-of"), by=side(f"{unique}-by")))
    waiting = await until_condition(context.client, created, "Ready", "False", reason="ResourceNotFound")
    condition = condition_of(waiting, "Ready")
    assert condition is not None and condition["message"].startswith("spec.of: ")
    used = await context.client.create(nop(f"{unique}-of"))
    await until_marked(context, used)  # it is protected before its user is known

    async def waits_for_the_user() -> bool:
        condition = condition_of(await stored(context, created) or {}, "Ready")
        return condition is not None and condition.get("message", "").startswith("spec.by: ")

    await eventually(waits_for_the_user, "the usage says that its user is missing")
    await context.client.create(nop(f"{unique}-by"))
    await until_condition(context.client, created, "Ready")


async def test_a_usage_of_a_kind_that_is_not_served_says_so_and_can_be_deleted(
    context: ControllerContext, unique: str
) -> None:
    UsageController(context).start()
    of = {"apiVersion": f"{unique}.example.org/v1", "kind": "Nothing", "resourceRef": {"name": "x"}}
    created = await context.client.create(usage(unique, of=of, reason="r"))
    await until_condition(context.client, created, "Ready", "False", reason="KindNotServed")
    await deleted(context, created)
    await until_gone(context, created)


async def test_a_mark_that_somebody_took_away_is_put_back(context: ControllerContext, unique: str) -> None:
    UsageController(context).start()
    used = await context.client.create(nop(unique))
    created = await context.client.create(usage(unique, of=side(unique), reason="r"))
    await until_condition(context.client, created, "Ready")
    await merged(context, used, {"metadata": {"labels": {IN_USE_LABEL: None}}})
    await until_marked(context, used)


async def test_the_mark_goes_with_the_last_usage(context: ControllerContext, unique: str) -> None:
    UsageController(context).start()
    used = await context.client.create(nop(unique))
    usages = [await context.client.create(usage(f"{unique}-{n}", of=side(unique), reason="r")) for n in range(3)]
    for each in usages:
        await until_condition(context.client, each, "Ready")
    await deleted(context, usages[0])
    await until_gone(context, usages[0])
    still = await stored(context, used)
    assert still is not None and is_marked(still)
    await asyncio.gather(*(deleted(context, each) for each in usages[1:]))
    for each in usages[1:]:
        await until_gone(context, each)
    await until_marked(context, used, False)


async def test_a_composed_usage_that_is_deleted_waits_for_its_user(context: ControllerContext, unique: str) -> None:
    UsageController(context).start()
    used, using = await pair(context, unique)
    wanted = usage(unique, labels={COMPOSITE_LABEL: "xr"}, of=side(f"{unique}-of"), by=side(f"{unique}-by"))
    created = await context.client.create(wanted)
    await until_condition(context.client, created, "Ready")
    await deleted(context, created)
    waiting = await until_condition(context.client, created, "Ready", "False", reason="WaitingUsingDeleted")
    condition = condition_of(waiting, "Ready")
    assert condition is not None and f'"{unique}-by"' in condition["message"]
    still = await stored(context, used)
    assert still is not None and is_marked(still)
    await deleted(context, using)
    await until_gone(context, created)
    await until_marked(context, used, False)


async def test_a_usage_that_is_not_composed_does_not_wait_for_its_user(context: ControllerContext, unique: str) -> None:
    UsageController(context).start()
    used, using = await pair(context, unique)
    created = await context.client.create(usage(unique, of=side(f"{unique}-of"), by=side(f"{unique}-by")))
    await until_condition(context.client, created, "Ready")
    await deleted(context, created)
    await until_gone(context, created)
    assert await stored(context, using) is not None
    await until_marked(context, used, False)


async def test_a_user_that_was_replaced_is_the_owner_in_place_of_its_namesake(
    context: ControllerContext, unique: str
) -> None:
    UsageController(context).start()
    _, using = await pair(context, unique)
    keeper = await context.client.create(nop(f"{unique}-keeper"))
    wanted = usage(unique, of=side(f"{unique}-of"), by=side(f"{unique}-by"))
    owner = {key: keeper[key] for key in ("apiVersion", "kind")}
    wanted["metadata"]["ownerReferences"] = [{**owner, "name": f"{unique}-keeper", "uid": keeper["metadata"]["uid"]}]
    created = await context.client.create(wanted)
    await until_condition(context.client, created, "Ready")
    await deleted(context, using)
    fresh = await context.client.create(nop(f"{unique}-by"))
    expected = sorted([keeper["metadata"]["uid"], fresh["metadata"]["uid"]])

    async def replaced() -> bool:
        found = await stored(context, created)
        owners = (found or created)["metadata"].get("ownerReferences") or ()
        return sorted(owner["uid"] for owner in owners) == expected

    await eventually(replaced, "the new user is an owner, the old one is not")


async def test_a_usage_that_is_in_place_writes_nothing(context: ControllerContext, unique: str) -> None:
    controller = UsageController(context)
    controller.start()
    used, using = await pair(context, unique)
    created = await context.client.create(usage(unique, of=side(f"{unique}-of"), by=side(f"{unique}-by")))
    await until_condition(context.client, created, "Ready")
    before = [await stored(context, obj) for obj in (created, used, using)]
    assert await controller.reconcile(UsageKey("default", unique)) == Result()
    assert [await stored(context, obj) for obj in (created, used, using)] == before
