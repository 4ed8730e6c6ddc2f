"""WatchOperations on both engines: an Operation for each change, also of what changed while nobody looked."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from planform.api.kinds import Object
from planform.api.names import CRD, PAUSED_ANNOTATION, WATCH_OPERATION
from planform.errors import NotFound
from planform.operations.controller import OperationController
from planform.operations.operations import WATCHED_RESOURCE
from planform.operations.watch_controller import HANDLED_ANNOTATION, WatchOperationController
from planform.reconcile.context import ControllerContext
from tests.controllers.operating import (
    CONFIG_MAP,
    Calls,
    config_map,
    finish,
    operations,
    patched,
    pipeline,
    pipelines,
    stored,
    swept,
)
from tests.harness.contexts import condition_of, eventually, until_condition


@pytest.fixture
async def context(context: ControllerContext, unique: str) -> AsyncIterator[ControllerContext]:
    async with swept(context, unique):
        yield context


def watching(name: str, function: str, kind: str = "ConfigMap", api: str = "v1", **spec: Any) -> Object:
    watch = {"apiVersion": api, "kind": kind, "matchLabels": {"watched": name}}
    return {
        "apiVersion": WATCH_OPERATION.api_version,
        "kind": WATCH_OPERATION.kind,
        "metadata": {"name": name},
        "spec": {"watch": watch, "operationTemplate": {"spec": pipeline(function)}, **spec},
    }


async def until_seen(context: ControllerContext, watch: Object, count: int, **status: Any) -> Object:
    """Wait until the WatchOperation watches that many objects and nothing of it runs."""

    async def check() -> Object | None:
        found = await stored(context, watch)
        wanted = {"watchingResources": count, "runningOperationRefs": [], **status}
        now = found.get("status") or {}
        return found if all(now.get(key) == value for key, value in wanted.items()) else None

    return await eventually(check, f"{watch['metadata']['name']} watches {count} at rest")


def seen_by(function: Calls) -> list[list[str]]:
    return [
        [each.resource["metadata"]["name"] for each in request.required_resources[WATCHED_RESOURCE]]
        for request in function.requests
    ]


async def test_each_object_and_each_change_of_one_leads_to_an_operation_that_is_sent_it(
    context: ControllerContext, unique: str
) -> None:
    function = Calls(unique)
    OperationController(context, pipelines(context, function)).start()
    one = await context.client.create(config_map(f"{unique}-one", labels={"watched": unique}))
    await context.client.create(config_map(f"{unique}-other"))
    WatchOperationController(context).start()
    watch = await context.client.create(watching(unique, unique, successfulHistoryLimit=10))
    await until_condition(context.client, watch, "Watching", reason="WatchActive")

    async def calls(count: int) -> None:
        async def check() -> bool:
            return len(function.requests) >= count

        await eventually(check, f"{count} calls")

    await calls(1)
    await context.client.create(config_map(f"{unique}-two", labels={"watched": unique}))
    await calls(2)
    await patched(context, one, {"data": {"changed": "yes"}})
    await calls(3)
    await context.client.delete(CONFIG_MAP, f"{unique}-one", namespace="default")
    await calls(4)
    assert seen_by(function) == [[f"{unique}-one"], [f"{unique}-two"], [f"{unique}-one"], []]
    found = await until_seen(context, watch, 1)
    assert found["status"]["lastScheduleTime"] and found["status"]["lastSuccessfulTime"]
    made = await operations(context)
    assert {each["metadata"]["labels"]["ops.crossplane.io/watchoperation"] for each in made} == {unique}
    versions = {each["metadata"]["annotations"]["ops.crossplane.io/watched-resource-resourceversion"] for each in made}
    assert one["metadata"]["resourceVersion"] in versions
    assert "ops.crossplane.io/synthetic-deleted" in versions


async def test_a_restart_runs_nothing_again_even_for_operations_that_were_let_go(
    context: ControllerContext, unique: str
) -> None:
    function = Calls(unique)
    OperationController(context, pipelines(context, function)).start()
    for index in range(3):
        await context.client.create(config_map(f"{unique}-{index}", labels={"watched": unique}))
    watch = await context.client.create(watching(unique, unique, successfulHistoryLimit=0))
    WatchOperationController(context).start()

    async def tidy() -> bool:
        return len(function.requests) == 3 and not await operations(context)

    await eventually(tidy, "three operations came and went")
    await until_seen(context, watch, 3)

    async def restart() -> None:
        for name in (f"watchoperations/{unique}", "watchoperations"):
            await context.manager.stop(name)
        done = reconciles()
        WatchOperationController(context).start()
        await eventually(lambda: more_than(done), "the watch has been looked at")

    def reconciles() -> int:
        line = f'planform_reconcile_total{{controller="watchoperations/{unique}",outcome="success"}} '
        return sum(int(each.removeprefix(line)) for each in context.metrics.render().splitlines() if line in each)

    async def more_than(count: int) -> bool:
        return reconciles() > count

    before = await stored(context, watch)
    await restart()
    after = await stored(context, watch)
    assert after["metadata"]["resourceVersion"] == before["metadata"]["resourceVersion"], "rest is rest"
    await context.client.create(config_map(f"{unique}-new", labels={"watched": unique}))
    await until_seen(context, watch, 4)

    async def fourth() -> bool:
        return len(function.requests) >= 4

    await eventually(fourth, "the new object is seen")
    assert sorted(seen_by(function)[3:]) == [[f"{unique}-new"]]


async def test_a_crash_before_the_note_is_taken_leads_to_the_same_operation_again(
    context: ControllerContext, unique: str
) -> None:
    function = Calls(unique)
    OperationController(context, pipelines(context, function)).start()
    await context.client.create(config_map(f"{unique}-one", labels={"watched": unique}))
    watch = await context.client.create(watching(unique, unique))
    WatchOperationController(context).start()
    await until_seen(context, watch, 1)
    (before,) = await operations(context)
    for name in (f"watchoperations/{unique}", "watchoperations"):
        await context.manager.stop(name)
    await patched(context, watch, {"metadata": {"annotations": {HANDLED_ANNOTATION: None}}})
    WatchOperationController(context).start()

    async def noted() -> bool:
        return HANDLED_ANNOTATION in ((await stored(context, watch))["metadata"].get("annotations") or {})

    await eventually(noted, "the note is taken again")
    (after,) = await operations(context)
    assert after["metadata"]["uid"] == before["metadata"]["uid"]
    assert len(function.requests) == 1


async def test_two_watch_operations_of_the_same_objects_each_have_their_own(
    context: ControllerContext, unique: str
) -> None:
    function = Calls(unique)
    OperationController(context, pipelines(context, function)).start()
    WatchOperationController(context).start()
    await context.client.create(config_map(f"{unique}-one", labels={"watched": unique}))
    first = await context.client.create(watching(unique, unique))
    await until_seen(context, first, 1)
    late = watching(unique, unique)
    late["metadata"]["name"] = f"{unique}-late"
    await until_seen(context, await context.client.create(late), 1)
    assert seen_by(function) == [[f"{unique}-one"]] * 2


async def test_a_namespace_means_nothing_for_a_kind_without_namespaces(context: ControllerContext, unique: str) -> None:
    function = Calls(unique)
    OperationController(context, pipelines(context, function)).start()
    WatchOperationController(context).start()
    watch = watching(unique, unique, "CustomResourceDefinition", "apiextensions.k8s.io/v1")
    watch["spec"]["watch"] |= {"namespace": "default", "matchLabels": {"watched": "none"}}
    await until_seen(context, await context.client.create(watch), 0)


async def test_an_object_that_leaves_the_selection_is_not_taken_for_deleted(
    context: ControllerContext, unique: str
) -> None:
    function = Calls(unique)
    OperationController(context, pipelines(context, function)).start()
    one = await context.client.create(config_map(f"{unique}-one", labels={"watched": unique}))
    watch = await context.client.create(watching(unique, unique))
    WatchOperationController(context).start()
    await until_seen(context, watch, 1)
    await patched(context, one, {"metadata": {"labels": {"watched": None}}})
    await until_seen(context, watch, 0)
    assert seen_by(function) == [[f"{unique}-one"]]


async def test_under_forbid_changes_wait_their_turn(context: ControllerContext, unique: str) -> None:
    for index in range(3):
        await context.client.create(config_map(f"{unique}-{index}", labels={"watched": unique}))
    watch = await context.client.create(watching(unique, unique, concurrencyPolicy="Forbid", successfulHistoryLimit=9))
    WatchOperationController(context).start()
    for count in (1, 2, 3):

        async def made(count: int = count) -> list[Object] | None:
            found = await operations(context)
            return found if len(found) == count else None

        found = await eventually(made, f"{count} operations")
        await until_condition(context.client, watch, "Watching")
        running = [each for each in found if condition_of(each, "Succeeded") is None]
        assert len(running) == 1
        await finish(context, running[0]["metadata"]["name"])


async def test_under_replace_only_the_latest_change_is_worked_on(context: ControllerContext, unique: str) -> None:
    for index in range(3):
        last = await context.client.create(config_map(f"{unique}-{index}", labels={"watched": unique}))
    watch = await context.client.create(watching(unique, unique, concurrencyPolicy="Replace"))
    WatchOperationController(context).start()

    async def only(version: str) -> bool:
        noted = "ops.crossplane.io/watched-resource-resourceversion"
        return [each["metadata"]["annotations"][noted] for each in await operations(context)] == [version]

    await eventually(lambda: only(last["metadata"]["resourceVersion"]), "the last object's operation")
    await until_condition(context.client, watch, "Watching")
    changed = await patched(context, last, {"data": {"a": "b"}})
    await eventually(lambda: only(changed["metadata"]["resourceVersion"]), "its newer version's operation")


async def test_a_kind_that_is_not_served_is_watched_once_it_is(context: ControllerContext, unique: str) -> None:
    group = f"{unique}.example.org"
    watch = await context.client.create(watching(unique, unique, "Thing", f"{group}/v1"))
    WatchOperationController(context).start()
    failed = await until_condition(context.client, watch, "Watching", "False", reason="WatchFailed")
    condition = condition_of(failed, "Watching")
    assert condition is not None and condition["message"] == f"the kind Thing ({group}/v1) is not served"
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    await context.client.create(
        {
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {"name": f"things.{group}"},
            "spec": {
                "group": group,
                "scope": "Cluster",
                "names": {"kind": "Thing", "plural": "things", "singular": "thing", "listKind": "ThingList"},
                "versions": [{"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}],
            },
        }
    )
    try:
        await until_condition(context.client, watch, "Watching", reason="WatchActive")
        thing = {"apiVersion": f"{group}/v1", "kind": "Thing", "metadata": {"name": "a", "labels": {"watched": unique}}}
        await context.client.create(thing)

        async def made() -> bool:
            return len(await operations(context)) == 1

        await eventually(made, "an operation for the thing")
    finally:
        await context.client.delete(CRD, f"things.{group}")


async def test_a_paused_or_deleted_watch_operation_watches_nothing(context: ControllerContext, unique: str) -> None:
    watch = await context.client.create(watching(unique, unique))
    WatchOperationController(context).start()
    await until_condition(context.client, watch, "Watching", reason="WatchActive")
    await patched(context, watch, {"metadata": {"annotations": {PAUSED_ANNOTATION: "true"}}})
    await until_condition(context.client, watch, "Watching", "False", reason="WatchPaused")
    assert f"watchoperations/{unique}" not in context.manager
    await patched(context, watch, {"metadata": {"annotations": {PAUSED_ANNOTATION: None}}})
    await until_condition(context.client, watch, "Watching", reason="WatchActive")
    await context.client.delete(WATCH_OPERATION, unique)

    async def stopped() -> bool:
        return f"watchoperations/{unique}" not in context.manager

    await eventually(stopped, "its watch ends")
    with pytest.raises(NotFound):
        await stored(context, watch)
