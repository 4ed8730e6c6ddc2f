"""The built-in provider: conditions appear when they are due, each reconcile writes at most once, and rest is rest."""

from __future__ import annotations

import asyncio
import base64
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from planform.api.kinds import GroupVersionKind, Object, gvk_of
from planform.api.names import CLUSTER_NOP_RESOURCE, EVENT, NOP_RESOURCE, PAUSED_ANNOTATION, SECRET
from planform.client.informer import ObjectKey
from planform.client.protocol import Patch, PatchType
from planform.clock import VirtualClock, parse_timestamp
from planform.engine.nop import ConditionAfter, NopController, NopInvalid, outlook, parse_parameters
from planform.errors import Invalid
from planform.reconcile.context import ControllerContext
from planform.reconcile.controller import Result
from tests.harness.contexts import condition_of, embedded_context, eventually, read, until_condition

READY_AT_ONCE = {"time": "0s", "conditionType": "Ready", "conditionStatus": "True", "conditionReason": "Available"}


def nop(name: str, *after: Object, namespace: str = "default", **spec: Any) -> Object:
    kind = NOP_RESOURCE if namespace else CLUSTER_NOP_RESOURCE
    metadata = {"name": name, "namespace": namespace} if namespace else {"name": name}
    provider = {"conditionAfter": list(after), **spec.pop("forProvider", {})}
    spec = {"forProvider": provider, **spec}
    return {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata, "spec": spec}


def after(seconds: float, type_: str = "Ready", status: str = "True", reason: str = "Available") -> Object:
    return {
        "time": f"{seconds:g}s",
        "conditionType": type_,
        "conditionStatus": status,
        "conditionReason": reason,
    }


async def stored(context: ControllerContext, obj: Object) -> Object:
    metadata = obj["metadata"]
    return await context.client.get(gvk_of(obj), metadata["name"], namespace=metadata.get("namespace") or "")


async def merged(context: ControllerContext, obj: Object, body: Object) -> Object:
    metadata = obj["metadata"]
    patch = Patch(PatchType.MERGE, body)
    return await context.client.patch(gvk_of(obj), metadata["name"], patch, namespace=metadata.get("namespace") or "")


# -- what is due when


def plan(*entries: tuple[str, str, str]) -> list[ConditionAfter]:
    return [ConditionAfter(time, type_, "True" if status == "T" else "False") for time, type_, status in entries]


@pytest.mark.parametrize(
    ("age", "expected", "next_in"),
    [
        (0, {}, 5),
        (5, {"Ready": "False"}, 5),
        (9.5, {"Ready": "False"}, 0.5),
        (10, {"Ready": "True", "Healthy": "True"}, None),
        (1e6, {"Ready": "True", "Healthy": "True"}, None),
    ],
)
def test_the_latest_condition_of_each_type_that_is_due_counts(
    age: float, expected: dict[str, str], next_in: float | None
) -> None:
    found = outlook(plan(("10s", "Ready", "T"), ("5s", "Ready", "F"), ("10s", "Healthy", "T")), age)
    assert {condition.type: condition.status for condition in found.conditions} == expected
    assert found.next_in == next_in


def test_of_two_conditions_due_at_the_same_time_the_one_listed_first_counts() -> None:
    [condition] = outlook(plan(("1s", "Ready", "T"), ("1000ms", "Ready", "F")), 2).conditions
    assert condition.status == "True"


def test_a_bad_duration_is_named_by_its_path() -> None:
    with pytest.raises(NopInvalid, match=r'^spec\.forProvider\.conditionAfter\[1\]\.time: "soon" is not a duration'):
        outlook(plan(("1s", "Ready", "T"), ("soon", "Ready", "F")), 2)


def test_a_bad_parameter_is_named_by_its_path() -> None:
    with pytest.raises(NopInvalid, match=r"^spec\.forProvider\.conditionAfter\[0\]\.conditionStatus: "):
        parse_parameters(nop("n", {"time": "1s", "conditionType": "Ready", "conditionStatus": "yes"}))


# -- on both engines


@pytest.mark.parametrize("namespace", ["default", ""], ids=["namespaced", "cluster"])
async def test_what_is_due_at_once_is_set_in_one_write_and_then_nothing_is_written(
    context: ControllerContext, unique: str, namespace: str
) -> None:
    controller = NopController(context)
    wanted = nop(unique, READY_AT_ONCE, after(0, "Healthy", "False", "Sick"), namespace=namespace)
    wanted["spec"]["forProvider"]["fields"] = {"deep": {"value": [1, "two"]}}
    created = await context.client.create(wanted)
    key = ObjectKey(namespace, unique)
    assert (await controller.reconcile(key)).requeue_after is None
    first = await stored(context, created)
    assert {c["type"]: (c["status"], c["reason"]) for c in first["status"]["conditions"]} == {
        "Ready": ("True", "Available"),
        "Healthy": ("False", "Sick"),
        "Synced": ("True", "ReconcileSuccess"),
    }
    assert first["status"]["atProvider"]["fields"] == {"deep": {"value": [1, "two"]}}
    assert await controller.reconcile(key) == Result()
    assert (await stored(context, created))["metadata"]["resourceVersion"] == first["metadata"]["resourceVersion"]
    await context.client.delete(gvk_of(created), unique, namespace=namespace)


async def test_a_resource_that_is_told_nothing_is_synced_and_never_ready(
    context: ControllerContext, unique: str
) -> None:
    NopController(context).start()
    found = await until_condition(context.client, await context.client.create(nop(unique)), "Synced")
    assert [condition["type"] for condition in found["status"]["conditions"]] == ["Synced"]


async def test_a_condition_appears_after_its_time(context: ControllerContext, unique: str) -> None:
    NopController(context).start()
    created = await context.client.create(nop(unique, after(2)))
    found = await until_condition(context.client, created, "Ready")
    condition = condition_of(found, "Ready")
    assert condition is not None
    waited = parse_timestamp(condition["lastTransitionTime"]) - parse_timestamp(found["metadata"]["creationTimestamp"])
    assert waited >= timedelta(seconds=2)


async def test_fields_that_are_taken_back_leave_the_status(context: ControllerContext, unique: str) -> None:
    NopController(context).start()
    created = await context.client.create(nop(unique, forProvider={"fields": {"a": 1, "b": 2}}))
    await until_condition(context.client, created, "Synced")

    async def fields() -> Any:
        return ((await stored(context, created)).get("status") or {}).get("atProvider", {}).get("fields")

    assert await fields() == {"a": 1, "b": 2}
    await merged(context, created, {"spec": {"forProvider": {"fields": {"a": None}}}})

    async def changed() -> bool:
        return bool(await fields() == {"b": 2})

    await eventually(changed, "the status follows the fields")


async def test_connection_details_become_a_secret_that_the_resource_owns(
    context: ControllerContext, unique: str
) -> None:
    NopController(context).start()
    details = [{"name": "username", "value": "admin"}, {"name": "password", "value": "s3cret"}]
    wanted = nop(unique, forProvider={"connectionDetails": details}, writeConnectionSecretToRef={"name": f"{unique}-c"})
    created = await context.client.create(wanted)
    await until_condition(context.client, created, "Synced")
    secret = await context.client.get(SECRET, f"{unique}-c", namespace="default")
    assert secret["type"] == "connection.crossplane.io/v1alpha1"
    assert {key: base64.b64decode(value).decode() for key, value in secret["data"].items()} == {
        "username": "admin",
        "password": "s3cret",
    }
    [owner] = secret["metadata"]["ownerReferences"]
    assert (owner["uid"], owner["controller"]) == (created["metadata"]["uid"], True)

    await merged(context, created, {"spec": {"forProvider": {"connectionDetails": details[:1]}}})

    async def followed() -> bool:
        found = await context.client.get(SECRET, f"{unique}-c", namespace="default")
        return list(found["data"]) == ["username"]

    await eventually(followed, "the secret follows the details")
    await context.client.delete(SECRET, f"{unique}-c", namespace="default")

    async def restored() -> bool:
        return await read(context.client, SECRET, f"{unique}-c", "default") is not None

    await eventually(restored, "a secret that somebody deleted is written again")


async def test_the_secret_of_a_cluster_resource_needs_a_namespace(context: ControllerContext, unique: str) -> None:
    NopController(context).start()
    lost = await context.client.create(
        nop(f"{unique}-a", namespace="", writeConnectionSecretToRef={"name": f"{unique}-a"})
    )
    found = await until_condition(context.client, lost, "Synced", "False")
    condition = condition_of(found, "Synced")
    assert condition is not None
    assert condition["message"].startswith("spec.writeConnectionSecretToRef.namespace: required")
    placed = await context.client.create(
        nop(f"{unique}-b", namespace="", writeConnectionSecretToRef={"name": f"{unique}-b", "namespace": "default"})
    )
    await until_condition(context.client, placed, "Synced")
    assert await read(context.client, SECRET, f"{unique}-b", "default")
    for obj in (lost, placed):
        await context.client.delete(CLUSTER_NOP_RESOURCE, obj["metadata"]["name"])


async def test_a_secret_of_somebody_else_is_left_alone(context: ControllerContext, unique: str) -> None:
    NopController(context).start()
    theirs = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": unique, "namespace": "default"}}
    before = await context.client.create(theirs)
    created = await context.client.create(nop(unique, writeConnectionSecretToRef={"name": unique}))
    found = await until_condition(context.client, created, "Synced", "False", reason="ReconcileError")
    condition = condition_of(found, "Synced")
    assert condition is not None and f'secret "default/{unique}" is not controlled by' in condition["message"]
    after_ = await context.client.get(SECRET, unique, namespace="default")
    assert after_["metadata"]["resourceVersion"] == before["metadata"]["resourceVersion"]


async def test_a_paused_resource_waits_until_it_is_released(context: ControllerContext, unique: str) -> None:
    NopController(context).start()
    paused = nop(unique, READY_AT_ONCE)
    paused["metadata"]["annotations"] = {PAUSED_ANNOTATION: "true"}
    created = await context.client.create(paused)
    found = await until_condition(context.client, created, "Synced", "False", reason="ReconcilePaused")
    assert condition_of(found, "Ready") is None
    await merged(context, created, {"metadata": {"annotations": {PAUSED_ANNOTATION: None}}})
    await until_condition(context.client, created, "Ready")
    await until_condition(context.client, created, "Synced")


async def test_a_duration_beyond_all_measure_is_reported_with_its_path(context: ControllerContext, unique: str) -> None:
    NopController(context).start()
    endless = {**READY_AT_ONCE, "time": "99999999999999h"}
    created = await context.client.create(nop(unique, READY_AT_ONCE, endless))
    found = await until_condition(context.client, created, "Synced", "False", reason="ReconcileError")
    condition = condition_of(found, "Synced")
    assert condition is not None
    assert condition["message"].startswith("spec.forProvider.conditionAfter[1].time: ")

    async def told() -> bool:
        fields = f"involvedObject.name={unique}"
        events = (await context.client.list(EVENT, namespace="default", fields=fields)).items
        return [event["type"] for event in events] == ["Warning"]

    await eventually(told, "an event tells of it")


async def test_a_duration_without_a_unit_is_refused_at_the_door(context: ControllerContext, unique: str) -> None:
    with pytest.raises(Invalid, match=r"spec\.forProvider\.conditionAfter\[0\]\.time"):
        await context.client.create(nop(unique, {**READY_AT_ONCE, "time": "10"}))


async def test_deletion_is_immediate_even_of_a_resource_that_another_provider_held(
    context: ControllerContext, unique: str
) -> None:
    NopController(context).start()
    plain, held = nop(f"{unique}-plain", READY_AT_ONCE), nop(f"{unique}-held", READY_AT_ONCE)
    held["metadata"]["finalizers"] = ["finalizer.managedresource.crossplane.io"]
    for obj in (plain, held):
        created = await context.client.create(obj)
        await until_condition(context.client, created, "Ready")
        await context.client.delete(NOP_RESOURCE, obj["metadata"]["name"], namespace="default")
    assert await read(context.client, NOP_RESOURCE, f"{unique}-plain", "default") is None

    async def gone() -> bool:
        return await read(context.client, NOP_RESOURCE, f"{unique}-held", "default") is None

    await eventually(gone, "the finalizer of another provider is removed")


# -- time, restarts and size, on the embedded engine


async def idle(context: ControllerContext) -> None:
    """Let everything that can happen without time passing happen."""
    for _ in range(300):
        await asyncio.sleep(0.001)


async def test_under_a_virtual_clock_each_condition_comes_at_its_moment_and_no_timer_is_left() -> None:
    clock = VirtualClock()
    async with embedded_context(clock=clock) as context:
        NopController(context).start()
        created = await context.client.create(nop("n", after(30, status="False", reason="Creating"), after(3600)))

        async def ready() -> str | None:
            await idle(context)
            condition = condition_of(await stored(context, created), "Ready")
            return condition["status"] if condition else None

        assert await ready() is None
        await clock.advance(29)
        assert await ready() is None
        await clock.advance(1)
        await until_condition(context.client, created, "Ready", "False", reason="Creating")
        await clock.advance(3569)
        assert await ready() == "False"
        await clock.advance(1)
        await until_condition(context.client, created, "Ready")
        at_rest = (await stored(context, created))["metadata"]["resourceVersion"]
        assert await NopController(context).reconcile(ObjectKey("default", "n")) == Result()
        await clock.advance(timedelta(days=1).total_seconds())
        await idle(context)
        assert (await stored(context, created))["metadata"]["resourceVersion"] == at_rest


async def test_a_restart_writes_nothing_and_remembers_what_is_to_come(tmp_path: Path) -> None:
    clock = VirtualClock()
    kinds: tuple[GroupVersionKind, ...] = (NOP_RESOURCE, SECRET, EVENT)

    async def versions(context: ControllerContext) -> dict[str, str]:
        await idle(context)
        await context.events.written()
        return {
            f"{kind.kind} {obj['metadata']['name']}": obj["metadata"]["resourceVersion"]
            for kind in kinds
            for obj in (await context.client.list(kind)).items
        }

    async with embedded_context(tmp_path, clock=clock) as context:
        NopController(context).start()
        done = await context.client.create(nop("done", READY_AT_ONCE, writeConnectionSecretToRef={"name": "done"}))
        wrong = await context.client.create(nop("wrong", {**READY_AT_ONCE, "time": "99999999999999h"}))
        later = await context.client.create(nop("later", after(60)))
        for obj, status in ((done, "True"), (wrong, "False"), (later, "True")):
            await until_condition(context.client, obj, "Synced", status)
        before = await versions(context)
        assert len(before) == 5
    await clock.advance(30)
    async with embedded_context(tmp_path, clock=clock) as context:
        NopController(context).start()
        assert await versions(context) == before
        await clock.advance(29)
        assert await versions(context) == before
        await clock.advance(1)
        await until_condition(context.client, later, "Ready")


async def test_many_that_are_due_at_once_become_ready_with_one_write_each() -> None:
    count = 300
    async with embedded_context() as context:
        NopController(context).start()

        async def version() -> int:
            return int((await context.client.list(NOP_RESOURCE, limit=1)).resource_version)

        await idle(context)
        before = await version()
        await asyncio.gather(*(context.client.create(nop(f"n{index}", READY_AT_ONCE)) for index in range(count)))

        async def all_written() -> bool:
            return await version() >= before + 2 * count  # the creation and the status of each

        await eventually(all_written, "as many writes as expected")
        await idle(context)
        assert await version() == before + 2 * count
        assert all(condition_of(obj, "Ready") for obj in (await context.client.list(NOP_RESOURCE)).items)
