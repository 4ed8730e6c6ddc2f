"""Operations on both engines: run once, retried within limits, and never twice."""

from __future__ import annotations

import base64
import dataclasses
from collections.abc import AsyncIterator
from typing import Any

import pytest

from planform.api.kinds import Object
from planform.api.names import FUNCTION_REVISION, OPERATION, PAUSED_ANNOTATION
from planform.builtin import find_builtin
from planform.client.informer import ObjectKey
from planform.clock import VirtualClock
from planform.functions.resolution import Catalogue, Version
from planform.functions.values import (
    FunctionRequest,
    FunctionResponse,
    Requirements,
    ResourceSelector,
    Result,
    SchemaSelector,
    Severity,
    respond,
)
from planform.operations.controller import OperationController
from planform.pipeline.running import ClientReader, resolver_of
from planform.reconcile.context import ControllerContext
from planform.reconcile.controller import Result as Reconciled
from tests.controllers.operating import (
    BOTH,
    CONFIG_MAP,
    NOON,
    Calls,
    config_map,
    fatal,
    operation,
    patched,
    pipelines,
    said,
    says,
    stored,
    swept,
    wanting,
)
from tests.harness.contexts import condition_of, read, until_condition


@pytest.fixture
async def context(context: ControllerContext, unique: str) -> AsyncIterator[ControllerContext]:
    async with swept(context, unique):
        yield context


async def test_an_operation_runs_a_built_in_once_and_applies_what_it_wants(
    context: ControllerContext, unique: str
) -> None:
    template = f"""
apiVersion: v1
kind: ConfigMap
metadata:
  name: {unique}-made
  namespace: default
  annotations: {{gotemplating.fn.crossplane.io/composition-resource-name: made}}
data: {{hello: world}}
"""
    given = {
        "apiVersion": "gotemplating.fn.crossplane.io/v1beta1",
        "kind": "GoTemplate",
        "source": "Inline",
        "inline": {"template": template},
    }
    OperationController(context, pipelines(context, find_builtin("go-templating"))).start()
    made = await context.client.create(operation(unique, "go-templating", input=given))
    done = await until_condition(context.client, made, "Succeeded", reason="PipelineSuccess")
    applied = await context.client.get(CONFIG_MAP, f"{unique}-made", namespace="default")
    assert applied["data"] == {"hello": "world"}
    assert "ownerReferences" not in applied["metadata"]
    managers = {entry["manager"] for entry in applied["metadata"]["managedFields"]}
    assert managers == {f"ops.crossplane.io/operation/{made['metadata']['uid']}"}
    status = done["status"]
    assert status["appliedResourceRefs"] == [
        {"apiVersion": "v1", "kind": "ConfigMap", "name": f"{unique}-made", "namespace": "default"}
    ]
    assert status["functionRevisions"] == [{"step": "only", "function": "go-templating", "revision": "go-templating-1"}]
    assert says(done, "Synced") == ("True", "ReconcileSuccess")
    assert says(done, "ValidPipeline") == ("True", "ValidPipeline")


async def test_outputs_are_kept_and_results_are_told(context: ControllerContext, unique: str) -> None:
    results = [Result(Severity.NORMAL, "all good", "Checked"), Result(Severity.WARNING, "nearly full")]
    function = Calls(unique, wanting(output={"free": 7}, results=results))
    controller = OperationController(context, pipelines(context, function))
    made = await context.client.create(operation(unique, unique))
    await controller.reconcile(ObjectKey("", unique))
    done = await stored(context, made)
    assert done["status"]["pipeline"] == [{"step": "only", "output": {"free": 7}}]
    told = await said(context, made)
    assert ("Normal", "Checked", 'Pipeline step "only": all good') in told
    assert ("Warning", "RunPipelineStep", 'Pipeline step "only": nearly full') in told


async def test_an_operation_that_is_over_is_never_run_again_also_not_after_a_restart(
    context: ControllerContext, unique: str
) -> None:
    function = Calls(unique)
    key = ObjectKey("", unique)
    made = await context.client.create(operation(unique, unique))
    await OperationController(context, pipelines(context, function)).reconcile(key)
    before = await stored(context, made)
    restarted = OperationController(context, pipelines(context, function))
    assert await restarted.reconcile(key) == Reconciled()
    await patched(context, made, {"spec": {"retryLimit": 9}})
    await restarted.reconcile(key)
    assert len(function.requests) == 1
    assert (await stored(context, made))["status"] == before["status"]


async def test_a_failed_attempt_is_repeated_from_the_first_step_with_the_same_revision(
    context: ControllerContext, unique: str
) -> None:
    function = Calls(unique, fatal("not yet"), respond)
    clock = VirtualClock(NOON)
    context = dataclasses.replace(context, clock=clock)
    made = await context.client.create(operation(unique, unique))
    key, run = ObjectKey("", unique), pipelines(context, function)
    assert await OperationController(context, run).reconcile(key) == Reconciled(requeue_after=1.0)
    failed = await stored(context, made)
    assert says(failed, "Succeeded") == ("Unknown", "PipelineError")
    assert says(failed, "Synced") == ("False", "ReconcileError")
    newer = Catalogue(Version(unique, f"{unique}-{number}", number=number, capabilities=BOTH) for number in (1, 2))
    chosen: list[str] = []

    def resolver(capability: Any) -> Any:
        resolve = resolver_of(lambda: newer, context.features)(capability)

        def noting(step: Any) -> Any:
            resolution = resolve(step)
            chosen.append(resolution.revision.name)
            return resolution

        return noting

    again = OperationController(context, dataclasses.replace(run, resolver=resolver))
    waiting = await again.reconcile(key)
    assert waiting.requeue_after is not None and 0 < waiting.requeue_after <= 1, "too early: it waits for its time"
    assert len(function.requests) == 1
    await clock.advance(1.0)
    await again.reconcile(key)
    done = await stored(context, made)
    assert says(done, "Succeeded") == ("True", "PipelineSuccess")
    assert done["status"]["failures"] == 1
    assert says(done, "Synced") == ("True", "ReconcileSuccess")
    assert chosen == [f"{unique}-1"]


async def test_a_run_whose_revision_is_gone_is_given_up_instead_of_going_on_with_another(
    context: ControllerContext, unique: str
) -> None:
    function = Calls(unique, fatal("not yet"), respond)
    clock = VirtualClock(NOON)
    context = dataclasses.replace(context, clock=clock)
    made = await context.client.create(operation(unique, unique))
    key, run = ObjectKey("", unique), pipelines(context, function)
    await OperationController(context, run).reconcile(key)
    await clock.advance(1.0)
    newer = Catalogue([Version(unique, f"{unique}-2", number=2, capabilities=BOTH)])
    again = dataclasses.replace(run, resolver=resolver_of(lambda: newer, context.features))
    assert await OperationController(context, again).reconcile(key) == Reconciled()
    assert says(await stored(context, made), "Succeeded") == ("False", "PipelineError")
    assert len(function.requests) == 1


async def test_an_operation_fails_for_good_when_it_has_failed_as_often_as_it_may(
    context: ControllerContext, unique: str
) -> None:
    function = Calls(unique, fatal("broken"))
    OperationController(context, pipelines(context, function)).start()
    made = await context.client.create(operation(unique, unique, retry_limit=2))
    done = await until_condition(context.client, made, "Succeeded", "False", reason="PipelineError")
    assert done["status"]["failures"] == 2
    assert len(function.requests) == 2
    assert ("Warning", "PipelineError") in {(kind, reason) for kind, reason, _ in await said(context, made)}


async def test_an_attempt_that_a_crash_cut_short_counts_and_is_repeated(
    context: ControllerContext, unique: str
) -> None:
    class Crash(BaseException):
        """The process ends in the middle of an attempt."""

    async def crash() -> None:
        raise Crash

    function = Calls(unique)
    function.meanwhile = crash
    made = await context.client.create(operation(unique, unique, retry_limit=2))
    key = ObjectKey("", unique)
    with pytest.raises(Crash):
        await OperationController(context, pipelines(context, function)).reconcile(key)
    function.meanwhile = None
    await OperationController(context, pipelines(context, function)).reconcile(key)
    done = await stored(context, made)
    assert done["status"]["failures"] == 1
    assert says(done, "Succeeded") == ("True", "PipelineSuccess")
    assert len(function.requests) == 2


async def test_an_operation_that_crashes_every_process_is_given_up(context: ControllerContext, unique: str) -> None:
    function = Calls(unique)
    made = await context.client.create(operation(unique, unique, retry_limit=1))
    running = {"type": "Succeeded", "status": "Unknown", "reason": "PipelineRunning"}
    running["lastTransitionTime"] = "2026-01-01T00:00:00Z"
    await patched(context, made, {"status": {"conditions": [running]}}, subresource="status")
    await OperationController(context, pipelines(context, function)).reconcile(ObjectKey("", unique))
    done = await stored(context, made)
    condition = condition_of(done, "Succeeded")
    assert condition is not None and condition["status"] == "False" and "interrupted" in condition["message"]
    assert not function.requests


async def test_an_edit_during_the_run_does_not_make_it_run_twice(context: ControllerContext, unique: str) -> None:
    function = Calls(unique)
    made = await context.client.create(operation(unique, unique))

    async def edit() -> None:
        await patched(context, made, {"metadata": {"labels": {"seen": "true"}}})

    function.meanwhile = edit
    OperationController(context, pipelines(context, function)).start()
    done = await until_condition(context.client, made, "Succeeded")
    assert done["status"].get("failures", 0) == 0
    assert len(function.requests) == 1


async def test_an_operation_that_is_deleted_while_it_runs_applies_nothing(
    context: ControllerContext, unique: str
) -> None:
    function = Calls(unique, wanting(config_map(f"{unique}-made")))

    async def delete() -> None:
        await context.client.delete(OPERATION, unique)

    function.meanwhile = delete
    await context.client.create(operation(unique, unique))
    await OperationController(context, pipelines(context, function)).reconcile(ObjectKey("", unique))
    assert await read(context.client, CONFIG_MAP, f"{unique}-made", "default") is None


async def test_applied_resources_take_over_fields_and_outlive_the_operation(
    context: ControllerContext, unique: str
) -> None:
    await context.client.apply(config_map(f"{unique}-kept", mode="old", other="stays"), manager="somebody")
    function = Calls(unique, wanting(config_map(f"{unique}-kept", mode="new")))
    await context.client.create(operation(unique, unique))
    await OperationController(context, pipelines(context, function)).reconcile(ObjectKey("", unique))
    await context.client.delete(OPERATION, unique)
    found = await context.client.get(CONFIG_MAP, f"{unique}-kept", namespace="default")
    assert found["data"] == {"mode": "new", "other": "stays"}


async def test_a_resource_that_many_operations_apply_remembers_only_a_few_of_them(
    context: ControllerContext, unique: str
) -> None:
    function = Calls(unique, wanting(config_map(f"{unique}-often", mode="new")))
    controller = OperationController(context, pipelines(context, function))
    await context.client.apply(config_map(f"{unique}-often", other="stays"), manager="somebody")
    maximum = 0
    for index in range(25):
        name = f"{unique}-{index}"
        made = await context.client.create(operation(name, unique))
        await controller.reconcile(ObjectKey("", name))
        found = await context.client.get(CONFIG_MAP, f"{unique}-often", namespace="default")
        managers = [entry["manager"] for entry in found["metadata"]["managedFields"]]
        assert {"somebody", f"ops.crossplane.io/operation/{made['metadata']['uid']}"} <= set(managers)
        maximum = max(maximum, len(managers))
    assert maximum == 11, "somebody, this Operation, and up to nine before it"
    assert found["data"] == {"mode": "new", "other": "stays"}


async def test_what_cannot_be_applied_is_a_failure_that_names_it(context: ControllerContext, unique: str) -> None:
    good, bad = config_map(f"{unique}-good"), config_map(f"{unique}-bad")
    bad["data"] = {"not a key!": "x"}
    nameless: Object = {"apiVersion": "v1", "kind": "ConfigMap"}
    for name, answer, message in (
        (f"{unique}-a", wanting(good, bad), f'cannot apply ConfigMap "{unique}-bad"'),
        (f"{unique}-b", wanting(nameless), 'desired resource "r0" (ConfigMap) has no metadata.name'),
    ):
        made = await context.client.create(operation(name, name, retry_limit=1))
        controller = OperationController(context, pipelines(context, Calls(name, answer)))
        await controller.reconcile(ObjectKey("", name))
        condition = condition_of(await stored(context, made), "Succeeded")
        assert condition is not None and condition["status"] == "False"
        assert message in condition["message"]
    first = await context.client.get(OPERATION, f"{unique}-a")
    assert [each["name"] for each in first["status"]["appliedResourceRefs"]] == [f"{unique}-good"]


async def test_an_operation_waits_for_its_functions_without_using_up_attempts(
    context: ControllerContext, unique: str
) -> None:
    function = Calls(unique)
    there: list[Version] = []
    run = dataclasses.replace(
        pipelines(context, function), resolver=resolver_of(lambda: Catalogue(there), context.features)
    )
    OperationController(context, run).start()
    made = await context.client.create(operation(unique, unique, retry_limit=1))
    await until_condition(context.client, made, "ValidPipeline", "False", reason="FunctionNotFound")
    there.append(Version(unique, f"{unique}-1", capabilities=BOTH))
    revision = await context.client.create(
        {
            "apiVersion": FUNCTION_REVISION.api_version,
            "kind": FUNCTION_REVISION.kind,
            "metadata": {"name": f"{unique}-1"},
            "spec": {"image": unique, "revision": 1, "desiredState": "Inactive"},
        }
    )
    try:
        done = await until_condition(context.client, made, "Succeeded")
        assert done["status"]["failures"] == 0
    finally:
        await context.client.delete(FUNCTION_REVISION, revision["metadata"]["name"])


async def test_a_function_without_the_capability_is_not_called(context: ControllerContext, unique: str) -> None:
    function = Calls(unique)
    run = pipelines(context, function, capabilities=frozenset({"composition"}))
    made = await context.client.create(operation(unique, unique))
    await OperationController(context, run).reconcile(ObjectKey("", unique))
    assert says(await stored(context, made), "ValidPipeline") == ("False", "MissingCapabilities")
    assert not function.requests


async def test_a_step_gets_its_requirements_credentials_and_shared_input(
    context: ControllerContext, unique: str
) -> None:
    def asking(request: FunctionRequest) -> FunctionResponse:
        wanted = ResourceSelector("v1", "ConfigMap", f"{unique}-asked", namespace="default")
        return dataclasses.replace(respond(request), requirements=Requirements(resources={"asked": wanted}))

    for name in ("asked", "given", "input"):
        await context.client.create(config_map(f"{unique}-{name}", role=name))
    data = {"token": base64.b64encode(b"secret").decode()}
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": unique, "namespace": "default"}, "data": data}
    await context.client.create(secret)
    function = Calls(unique, asking)
    step: dict[str, Any] = {
        "inputRef": {"apiVersion": "v1", "kind": "ConfigMap", "name": f"{unique}-input", "namespace": "default"},
        "credentials": [{"name": "login", "source": "Secret", "secretRef": {"namespace": "default", "name": unique}}],
        "requirements": {
            "requiredResources": [
                {
                    "requirementName": "given",
                    "apiVersion": "v1",
                    "kind": "ConfigMap",
                    "name": f"{unique}-given",
                    "namespace": "default",
                }
            ]
        },
    }
    made = await context.client.create(operation(unique, unique, **step))
    await OperationController(context, pipelines(context, function)).reconcile(ObjectKey("", unique))
    assert says(await stored(context, made), "Succeeded") == ("True", "PipelineSuccess")
    last = function.requests[-1]
    assert last.input is not None and last.input["data"] == {"role": "input"}
    assert last.credentials == {"login": {"token": b"secret"}}
    found = {name: [each.resource["data"]["role"] for each in got] for name, got in last.required_resources.items()}
    assert found == {"given": ["given"], "asked": ["asked"]}


async def test_a_paused_operation_does_nothing_until_it_is_resumed(context: ControllerContext, unique: str) -> None:
    function = Calls(unique)
    paused = operation(unique, unique)
    paused["metadata"]["annotations"] = {PAUSED_ANNOTATION: "true"}
    OperationController(context, pipelines(context, function)).start()
    made = await context.client.create(paused)
    await until_condition(context.client, made, "Synced", "False", reason="ReconcilePaused")
    assert not function.requests
    await patched(context, made, {"metadata": {"annotations": {PAUSED_ANNOTATION: None}}})
    await until_condition(context.client, made, "Succeeded")


async def test_a_reader_finds_by_name_and_labels_and_knows_schemas(context: ControllerContext, unique: str) -> None:
    reader = ClientReader(context.client)
    for name in ("b", "a"):
        await context.client.create(config_map(f"{unique}-{name}", labels={"set": unique}))

    async def names(**selector: Any) -> list[str]:
        found = await reader.read(ResourceSelector("v1", selector.pop("kind", "ConfigMap"), **selector))
        return [each["metadata"]["name"] for each in found]

    assert await names(match_labels={"set": unique}) == [f"{unique}-a", f"{unique}-b"]
    assert await names(match_name=f"{unique}-a", namespace="default") == [f"{unique}-a"]
    assert await names(match_name=f"{unique}-a") == [], "a name alone is not enough for a kind in namespaces"
    assert await names(kind="Nonsense") == []
    assert await names(kind="Namespace", match_name="default", namespace="ignored") == ["default"]
    custom = await reader.schema(SchemaSelector(OPERATION.api_version, "Operation"))
    assert custom is not None and "retryLimit" in custom["properties"]["spec"]["properties"]
    builtin = await reader.schema(SchemaSelector("apps/v1", "Deployment"))
    assert builtin is not None
    assert builtin["properties"]["spec"]["properties"]["replicas"]["type"] == "integer"
    assert await reader.schema(SchemaSelector("v9", "Nonsense")) is None
