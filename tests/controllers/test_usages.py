"""Usages at work, controller and guard, on both engines."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from planform.api.kinds import GroupVersionKind, Object, gvk_of
from planform.api.names import CLUSTER_NOP_RESOURCE, CLUSTER_USAGE, EVENT, NOP_RESOURCE, USAGE, USAGE_FINALIZER
from planform.client.informer import ObjectKey
from planform.client.protocol import Patch, PatchType, Propagation
from planform.clock import Clock, VirtualClock
from planform.composition.usages import ATTEMPT_ANNOTATION, DETAILS_ANNOTATION, IN_USE_LABEL, InUse
from planform.composition.xr import COMPOSITE_LABEL
from planform.controllers.usages import UsageController, UsageGuard
from planform.controllers.workbench import Workbench
from planform.errors import Conflict, NotFound, ServiceUnavailable
from planform.reconcile.controller import Result
from tests.controllers.conftest import ENGINES
from tests.harness.asking import asking_webhook
from tests.harness.kubernetes import RealKubernetes
from tests.harness.planes import (
    condition_of,
    embedded_bench,
    eventually,
    kubernetes_bench,
    read,
    until_condition,
)

HOLD = "test.planform.dev/hold"


def nop(name: str, namespace: str = "default", **metadata: Any) -> Object:
    kind = NOP_RESOURCE if namespace else CLUSTER_NOP_RESOURCE
    place = {"namespace": namespace} if namespace else {}
    return {
        "apiVersion": kind.api_version,
        "kind": kind.kind,
        "metadata": {"name": name, **place, **metadata},
        "spec": {"forProvider": {}},
    }


def side(name: str = "", *, cluster: bool = False, namespace: str = "", **selector: Any) -> Object:
    kind = CLUSTER_NOP_RESOURCE if cluster else NOP_RESOURCE
    found: Object = {"apiVersion": kind.api_version, "kind": kind.kind}
    elsewhere = {"namespace": namespace} if namespace else {}
    if name:
        found["resourceRef"] = {"name": name, **elsewhere}
    if selector:
        found["resourceSelector"] = {**selector, **elsewhere}
    return found


def usage(name: str, *, cluster: bool = False, labels: Object | None = None, **spec: Any) -> Object:
    kind = CLUSTER_USAGE if cluster else USAGE
    place = {} if cluster else {"namespace": "default"}
    return {
        "apiVersion": kind.api_version,
        "kind": kind.kind,
        "metadata": {"name": name, "labels": labels or {}, **place},
        "spec": spec,
    }


async def pair(bench: Workbench, unique: str, namespace: str = "default") -> tuple[Object, Object]:
    """Something to use and its user: `<unique>-of` and `<unique>-by`."""
    used = await bench.client.create(nop(f"{unique}-of", namespace))
    return used, await bench.client.create(nop(f"{unique}-by", namespace))


async def stored(bench: Workbench, obj: Object) -> Object | None:
    metadata = obj["metadata"]
    return await read(bench.client, gvk_of(obj), metadata["name"], metadata.get("namespace") or "")


async def merged(bench: Workbench, obj: Object, body: Object) -> Object:
    metadata = obj["metadata"]
    return await bench.client.patch(
        gvk_of(obj), metadata["name"], Patch(PatchType.MERGE, body), namespace=metadata.get("namespace") or ""
    )


async def deleted(bench: Workbench, obj: Object, propagation: Propagation | None = None) -> None:
    metadata = obj["metadata"]
    await bench.client.delete(
        gvk_of(obj), metadata["name"], namespace=metadata.get("namespace") or "", propagation=propagation
    )


async def until_gone(bench: Workbench, obj: Object) -> None:
    async def gone() -> bool:
        return await stored(bench, obj) is None

    await eventually(gone, f"{obj['kind']} {obj['metadata']['name']} is gone")


async def until_marked(bench: Workbench, obj: Object, marked: bool = True) -> Object:
    async def check() -> Object | None:
        found = await stored(bench, obj)
        return found if found and is_marked(found) is marked else None

    return await eventually(check, f"{obj['metadata']['name']} is {'' if marked else 'not '}marked as in use")


def is_marked(obj: Object) -> bool:
    return (obj["metadata"].get("labels") or {}).get(IN_USE_LABEL) == "true"


def attempt(obj: Object | None) -> str | None:
    assert obj is not None
    found: str | None = (obj["metadata"].get("annotations") or {}).get(ATTEMPT_ANNOTATION)
    return found


async def idle(rounds: int = 100) -> None:
    """Let everything that can happen without time passing happen."""
    for _ in range(rounds):
        await asyncio.sleep(0.001)


# -- the controller, on both engines


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


async def test_a_usage_of_another_namespace_needs_a_user_and_says_so(bench: Workbench, unique: str) -> None:
    UsageController(bench).start()
    space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": unique}}
    await bench.client.create(space)
    used = await bench.client.create(nop(f"{unique}-of", unique))
    using = await bench.client.create(nop(f"{unique}-by"))
    of = side(f"{unique}-of", namespace=unique)
    alone = await bench.client.create(usage(f"{unique}-1", of=of, reason="r"))
    refused = await until_condition(bench.client, alone, "Ready", "False", reason="InvalidUsage")
    condition = condition_of(refused, "Ready")
    assert condition is not None and condition["message"].startswith("spec.of: a resource of another namespace")
    created = await bench.client.create(usage(f"{unique}-2", of=of, by=side(f"{unique}-by")))
    found = await until_condition(bench.client, created, "Ready")
    assert found["metadata"]["annotations"][DETAILS_ANNOTATION].endswith(
        f"uses NopResource/{unique}-of in namespace {unique}"
    )
    assert [owner["uid"] for owner in found["metadata"]["ownerReferences"]] == [using["metadata"]["uid"]]
    await until_marked(bench, used)
    for each in (alone, created):
        await deleted(bench, each)
        await until_gone(bench, each)
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
    assert await controller.reconcile(ObjectKey("default", unique)) == Result()
    assert [await stored(bench, obj) for obj in (created, used, using)] == before


# -- the guard: in the admission chain of the embedded engine, and behind the webhook of a real API server

REFUSED = (InUse, Conflict)
"""A real API server keeps reason and words of a refusal, not its class."""


@pytest.fixture(params=ENGINES)
async def guarded_bench(request: pytest.FixtureRequest) -> AsyncIterator[Workbench]:
    if request.param == "kubernetes":
        cluster: RealKubernetes = request.getfixturevalue("kubernetes_engine")
        async with kubernetes_bench(cluster) as bench, asking_webhook(bench, cluster):
            UsageController(bench).start()
            yield bench
    else:
        async with guarded() as bench:
            yield bench


@asynccontextmanager
async def guarded(directory: Path | None = None, *, clock: Clock | None = None) -> AsyncIterator[Workbench]:
    guard = UsageGuard()
    async with embedded_bench(directory, clock=clock, admission=[guard]) as bench:
        UsageController(bench, guard).start()
        yield bench


async def test_what_is_in_use_cannot_be_deleted_until_the_usage_is(guarded_bench: Workbench, unique: str) -> None:
    bench = guarded_bench
    used, _ = await pair(bench, unique)
    created = await bench.client.create(usage(unique, of=side(f"{unique}-of"), by=side(f"{unique}-by"), reason="data"))
    await until_condition(bench.client, created, "Ready")
    with pytest.raises(REFUSED) as refused:
        await deleted(bench, used)
    assert refused.value.message.endswith(
        f'This resource is in-use by 1 usage(s), including the Usage "{unique}" (in namespace "default") '
        f'by resource NopResource/{unique}-by with reason: "data".'
    )
    assert (refused.value.code, refused.value.reason) == (409, "Conflict")
    assert await stored(bench, used) is not None
    await deleted(bench, created)
    await until_gone(bench, created)
    await deleted(bench, used)
    assert await stored(bench, used) is None


async def test_a_collection_with_something_in_use_is_not_deleted_and_no_controller_tries_again_at_once() -> None:
    async with guarded() as bench:
        used = await bench.client.create(nop("n"))
        await until_condition(bench.client, await bench.client.create(usage("u", of=side("n"), reason="r")), "Ready")
        with pytest.raises(InUse) as refused:
            await bench.client.delete_collection(NOP_RESOURCE, namespace="default")
        assert not isinstance(refused.value, Conflict)
        assert await stored(bench, used) is not None


async def test_the_user_can_be_deleted_and_takes_the_protection_with_it() -> None:
    async with guarded() as bench:
        used, using = await pair(bench, "n", namespace="")
        wanted = usage("u", cluster=True, of=side("n-of", cluster=True), by=side("n-by", cluster=True))
        created = await bench.client.create(wanted)
        await until_condition(bench.client, created, "Ready")
        with pytest.raises(InUse, match=r'the ClusterUsage "u" by resource ClusterNopResource/n-by\.$'):
            await deleted(bench, used)
        await deleted(bench, using)
        await until_gone(bench, created)
        await deleted(bench, used)


async def test_a_refused_deletion_is_recorded_and_a_dry_run_is_not(guarded_bench: Workbench, unique: str) -> None:
    bench = guarded_bench
    used = await bench.client.create(nop(unique))
    await until_condition(bench.client, await bench.client.create(usage(unique, of=side(unique), reason="r")), "Ready")
    with pytest.raises(REFUSED):
        await bench.client.delete(NOP_RESOURCE, unique, namespace="default", dry_run=True)
    await idle()
    assert attempt(await stored(bench, used)) is None
    with pytest.raises(REFUSED):
        await deleted(bench, used)

    async def recorded() -> bool:
        return attempt(await stored(bench, used)) == "Background"

    await eventually(recorded, "the attempt is recorded on the object")


async def test_a_recorded_deletion_is_replayed_when_the_last_usage_ends(guarded_bench: Workbench, unique: str) -> None:
    bench = guarded_bench
    used = await bench.client.create(nop(unique))
    usages = [
        await bench.client.create(usage(f"{unique}{n}", of=side(unique), reason="r", replayDeletion=True))
        for n in range(2)
    ]
    for each in usages:
        await until_condition(bench.client, each, "Ready")
    with pytest.raises(REFUSED):
        await deleted(bench, used)
    await deleted(bench, usages[0])
    await until_gone(bench, usages[0])
    await idle()
    assert await stored(bench, used) is not None
    await deleted(bench, usages[1])
    await until_gone(bench, usages[1])
    assert await stored(bench, used) is None


async def test_without_an_attempt_or_without_the_wish_nothing_is_replayed_and_the_attempt_is_forgotten(
    guarded_bench: Workbench, unique: str
) -> None:
    bench = guarded_bench
    first, second = await bench.client.create(nop(f"{unique}a")), await bench.client.create(nop(f"{unique}b"))
    untried = await bench.client.create(usage(f"{unique}a", of=side(f"{unique}a"), reason="r", replayDeletion=True))
    unwished = await bench.client.create(usage(f"{unique}b", of=side(f"{unique}b"), reason="r"))
    for each in (untried, unwished):
        await until_condition(bench.client, each, "Ready")
    with pytest.raises(REFUSED):
        await deleted(bench, second)
    for each in (untried, unwished):
        await deleted(bench, each)
        await until_gone(bench, each)
    assert await stored(bench, first) is not None
    left = await stored(bench, second)
    assert attempt(left) is None and not is_marked(left or {})


async def test_a_composed_usage_protects_while_it_waits_and_then_replays(guarded_bench: Workbench, unique: str) -> None:
    bench = guarded_bench
    used, using = await pair(bench, unique)
    created = await bench.client.create(
        usage(
            unique,
            labels={COMPOSITE_LABEL: "xr"},
            of=side(f"{unique}-of"),
            by=side(f"{unique}-by"),
            replayDeletion=True,
        )
    )
    await until_condition(bench.client, created, "Ready")
    await deleted(bench, created)
    await until_condition(bench.client, created, "Ready", "False", reason="WaitingUsingDeleted")
    with pytest.raises(REFUSED):
        await deleted(bench, used)
    await deleted(bench, using)
    await until_gone(bench, created)
    await until_gone(bench, used)


async def test_the_garbage_collector_does_not_take_what_is_in_use_and_takes_it_afterwards() -> None:
    async with guarded() as bench:
        xr = await bench.client.create(nop("xr"))
        owner = {"apiVersion": xr["apiVersion"], "kind": xr["kind"], "name": "xr", "uid": xr["metadata"]["uid"]}
        used = await bench.client.create(nop("n", ownerReferences=[owner]))
        created = await bench.client.create(usage("u", of=side("n"), reason="r", replayDeletion=True))
        await until_condition(bench.client, created, "Ready")
        await deleted(bench, xr)

        async def refused() -> bool:
            return attempt(await stored(bench, used)) == "Background"

        await eventually(refused, "the collector was refused")
        assert await stored(bench, used) is not None
        await deleted(bench, created)
        await until_gone(bench, used)


async def test_a_deletion_in_the_foreground_waits_for_what_is_in_use() -> None:
    async with guarded() as bench:
        xr = await bench.client.create(nop("xr"))
        owner = {"apiVersion": xr["apiVersion"], "kind": xr["kind"], "name": "xr", "uid": xr["metadata"]["uid"]}
        used = await bench.client.create(nop("n", ownerReferences=[{**owner, "blockOwnerDeletion": True}]))
        created = await bench.client.create(usage("u", of=side("n"), reason="r", replayDeletion=True))
        await until_condition(bench.client, created, "Ready")
        await deleted(bench, xr, Propagation.FOREGROUND)

        async def refused() -> bool:
            return attempt(await stored(bench, used)) is not None

        await eventually(refused, "the collector was refused")
        assert await stored(bench, used) is not None and await stored(bench, xr) is not None
        await deleted(bench, created)
        await until_gone(bench, used)
        await until_gone(bench, xr)


# -- restarts and rest


async def test_until_all_usages_are_read_nothing_that_is_marked_can_be_deleted(tmp_path: Path) -> None:
    async with guarded(tmp_path) as bench:
        used, unused = await bench.client.create(nop("used")), await bench.client.create(nop("unused"))
        created = await bench.client.create(usage("u", of=side("used"), reason="r"))
        await until_condition(bench.client, created, "Ready")
    guard = UsageGuard()
    async with embedded_bench(tmp_path, admission=[guard]) as bench:
        with pytest.raises(ServiceUnavailable, match="marked as in use"):
            await deleted(bench, used)
        await deleted(bench, unused)
        UsageController(bench, guard).start()

        async def refused() -> bool:
            try:
                await deleted(bench, used)
            except ServiceUnavailable:
                return False
            except InUse:
                return True
            pytest.fail("it was deleted")

        await eventually(refused, "the usage protects again")


async def test_a_mark_that_outlived_its_usage_holds_nobody_up(tmp_path: Path) -> None:
    async with guarded(tmp_path) as bench:
        stale = await bench.client.create(nop("n", labels={IN_USE_LABEL: "true"}))

        async def let_go() -> bool:
            try:
                await deleted(bench, stale)
            except ServiceUnavailable:
                return False
            return True

        await eventually(let_go, "without usages the index is complete too")
        with pytest.raises(NotFound):
            await deleted(bench, stale)


async def test_a_restart_writes_nothing(tmp_path: Path) -> None:
    clock = VirtualClock()

    async def versions(bench: Workbench) -> dict[tuple[str, str], str]:
        await idle(300)
        await bench.events.written()
        kinds: tuple[GroupVersionKind, ...] = (USAGE, CLUSTER_USAGE, NOP_RESOURCE, EVENT)
        return {
            (kind.kind, obj["metadata"]["name"]): obj["metadata"]["resourceVersion"]
            for kind in kinds
            for obj in (await bench.client.list(kind)).items
        }

    async with guarded(tmp_path, clock=clock) as bench:
        await pair(bench, "n")
        composed = usage("waiting", labels={COMPOSITE_LABEL: "xr"}, of=side("n-of"), by=side("n-by"))
        for wanted, status in (
            (usage("ready", of=side("n-of"), by=side("n-by")), "True"),
            (usage("missing", of=side("nothing"), reason="r"), "False"),
            (usage("unresolved", of=side(matchLabels={"a": "b"}), reason="r"), "False"),
            (composed, "True"),
        ):
            await until_condition(bench.client, await bench.client.create(wanted), "Ready", status)
        await deleted(bench, composed)
        await until_condition(bench.client, composed, "Ready", "False", reason="WaitingUsingDeleted")
        before = await versions(bench)
        assert {name for kind, name in before if kind == "Usage"} == {"ready", "missing", "unresolved", "waiting"}
    async with guarded(tmp_path, clock=clock) as bench:
        assert await versions(bench) == before
        await clock.advance(24 * 3600)  # in which events come to their end
        after = await versions(bench)
        assert after == {key: version for key, version in before.items() if key[0] != "Event"}


async def test_a_user_that_went_while_nobody_looked_is_noticed(tmp_path: Path) -> None:
    async with guarded(tmp_path) as bench:
        used, using = await pair(bench, "n")
        created = await bench.client.create(
            usage("u", labels={COMPOSITE_LABEL: "xr"}, of=side("n-of"), by=side("n-by"), replayDeletion=True)
        )
        await until_condition(bench.client, created, "Ready")
        await deleted(bench, created)
        await until_condition(bench.client, created, "Ready", "False", reason="WaitingUsingDeleted")
        with pytest.raises(InUse):
            await deleted(bench, used)

        async def recorded() -> bool:
            return attempt(await stored(bench, used)) is not None

        await eventually(recorded, "the attempt is recorded")
    async with embedded_bench(tmp_path) as bench:  # neither guard nor controller
        await deleted(bench, using)
    async with guarded(tmp_path) as bench:
        await until_gone(bench, created)
        await until_gone(bench, used)


async def test_a_crash_between_replaying_and_letting_go_converges(tmp_path: Path) -> None:
    """The used object is terminating already when the controller comes back to the usage that ends."""
    async with guarded(tmp_path) as bench:
        used = await bench.client.create(nop("n", finalizers=[HOLD]))
        created = await bench.client.create(usage("u", of=side("n"), reason="r", replayDeletion=True))
        await until_condition(bench.client, created, "Ready")
        with pytest.raises(InUse):
            await deleted(bench, used)

        async def recorded() -> bool:
            return attempt(await stored(bench, used)) is not None

        await eventually(recorded, "the attempt is recorded")
    async with embedded_bench(tmp_path) as bench:  # as the replay left it
        await deleted(bench, created)
        await deleted(bench, used)
    async with guarded(tmp_path) as bench:
        await until_gone(bench, created)
        left = await until_marked(bench, used, False)
        assert "deletionTimestamp" in left["metadata"] and attempt(left) is None
        await merged(bench, used, {"metadata": {"finalizers": None}})
        await until_gone(bench, used)


async def test_a_usage_that_others_still_hold_protects_no_more_once_it_has_let_go(tmp_path: Path) -> None:
    async with guarded(tmp_path) as bench:
        used = [await bench.client.create(nop(name)) for name in ("a", "b")]
        for obj in used:
            held = usage(obj["metadata"]["name"], of=side(obj["metadata"]["name"]), reason="r")
            held["metadata"]["finalizers"] = [HOLD]
            await until_condition(bench.client, await bench.client.create(held), "Ready")
            await deleted(bench, held)
            await until_marked(bench, obj, False)
        await deleted(bench, used[0])
        assert await stored(bench, used[0]) is None
    async with guarded(tmp_path) as bench:

        async def let_go() -> bool:
            try:
                await deleted(bench, used[1])
            except InUse:
                return False
            return True

        await eventually(let_go, "after a restart too")


async def test_changes_of_what_is_in_use_do_not_reconcile_its_usages() -> None:
    async with guarded() as bench:
        used = await bench.client.create(nop("n"))
        created = await bench.client.create(usage("u", of=side("n"), reason="r"))
        await until_condition(bench.client, created, "Ready")
        await idle()
        reconciles = bench.metrics.counter(
            "planform_reconcile_total", "Reconciles, by controller and how they ended.", ["controller", "outcome"]
        ).labels("usages", "success")
        before = reconciles.value
        for number in range(20):
            await merged(bench, used, {"metadata": {"annotations": {"n": str(number)}}})
        await idle()
        assert reconciles.value == before


async def test_the_watch_of_a_kind_ends_with_the_last_usage_that_names_it() -> None:
    async with guarded() as bench:
        await bench.client.create(nop("n"))
        created = await bench.client.create(usage("u", of=side("n"), reason="r"))
        await until_condition(bench.client, created, "Ready")
        assert len(bench.plane.sources("usages")) == 3
        await deleted(bench, created)
        await until_gone(bench, created)

        async def unwatched() -> bool:
            return len(bench.plane.sources("usages")) == 2

        await eventually(unwatched, "only usages are watched")
