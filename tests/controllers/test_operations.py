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
from planform.controllers.operations import OperationController
from planform.controllers.pipelines import ClientReader, resolver_of
from planform.controllers.workbench import Workbench
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
from tests.harness.planes import condition_of, read, until_condition


@pytest.fixture
async def bench(bench: Workbench, unique: str) -> AsyncIterator[Workbench]:
    async with swept(bench, unique):
        yield bench


async def test_an_operation_runs_a_built_in_once_and_applies_what_it_wants(bench: Workbench, unique: str) -> None:
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
    OperationController(bench, pipelines(bench, find_builtin("go-templating"))).start()
    made = await bench.client.create(operation(unique, "go-templating", input=given))
    done = await until_condition(bench.client, made, "Succeeded", reason="PipelineSuccess")
    applied = await bench.client.get(CONFIG_MAP, f"{unique}-made", namespace="default")
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


async def test_outputs_are_kept_and_results_are_told(bench: Workbench, unique: str) -> None:
    results = [Result(Severity.NORMAL, "all good", "Checked"), Result(Severity.WARNING, "nearly full")]
    function = Calls(unique, wanting(output={"free": 7}, results=results))
    controller = OperationController(bench, pipelines(bench, function))
    made = await bench.client.create(operation(unique, unique))
    await controller.reconcile(ObjectKey("", unique))
    done = await stored(bench, made)
    assert done["status"]["pipeline"] == [{"step": "only", "output": {"free": 7}}]
    told = await said(bench, made)
    assert ("Normal", "Checked", 'Pipeline step "only": all good') in told
    assert ("Warning", "RunPipelineStep", 'Pipeline step "only": nearly full') in told


async def test_an_operation_that_is_over_is_never_run_again_also_not_after_a_restart(
    bench: Workbench, unique: str
) -> None:
    function = Calls(unique)
    key = ObjectKey("", unique)
    made = await bench.client.create(operation(unique, unique))
    await OperationController(bench, pipelines(bench, function)).reconcile(key)
    before = await stored(bench, made)
    restarted = OperationController(bench, pipelines(bench, function))
    assert await restarted.reconcile(key) == Reconciled()
    await patched(bench, made, {"spec": {"retryLimit": 9}})
    await restarted.reconcile(key)
    assert len(function.requests) == 1
    assert (await stored(bench, made))["status"] == before["status"]


async def test_a_failed_attempt_is_repeated_from_the_first_step_with_the_same_revision(
    bench: Workbench, unique: str
) -> None:
    function = Calls(unique, fatal("not yet"), respond)
    clock = VirtualClock(NOON)
    bench = dataclasses.replace(bench, clock=clock)
    made = await bench.client.create(operation(unique, unique))
    key, run = ObjectKey("", unique), pipelines(bench, function)
    assert await OperationController(bench, run).reconcile(key) == Reconciled(requeue_after=1.0)
    failed = await stored(bench, made)
    assert says(failed, "Succeeded") == ("Unknown", "PipelineError")
    assert says(failed, "Synced") == ("False", "ReconcileError")
    newer = Catalogue(Version(unique, f"{unique}-{number}", number=number, capabilities=BOTH) for number in (1, 2))
    chosen: list[str] = []

    def resolver(capability: Any) -> Any:
        resolve = resolver_of(lambda: newer, bench.features)(capability)

        def noting(step: Any) -> Any:
            resolution = resolve(step)
            chosen.append(resolution.revision.name)
            return resolution

        return noting

    again = OperationController(bench, dataclasses.replace(run, resolver=resolver))
    waiting = await again.reconcile(key)
    assert waiting.requeue_after is not None and 0 < waiting.requeue_after <= 1, "too early: it waits for its time"
    assert len(function.requests) == 1
    await clock.advance(1.0)
    await again.reconcile(key)
    done = await stored(bench, made)
    assert says(done, "Succeeded") == ("True", "PipelineSuccess")
    assert done["status"]["failures"] == 1
    assert says(done, "Synced") == ("True", "ReconcileSuccess")
    assert chosen == [f"{unique}-1"]


async def test_a_run_whose_revision_is_gone_is_given_up_instead_of_going_on_with_another(
    bench: Workbench, unique: str
) -> None:
    function = Calls(unique, fatal("not yet"), respond)
    clock = VirtualClock(NOON)
    bench = dataclasses.replace(bench, clock=clock)
    made = await bench.client.create(operation(unique, unique))
    key, run = ObjectKey("", unique), pipelines(bench, function)
    await OperationController(bench, run).reconcile(key)
    await clock.advance(1.0)
    newer = Catalogue([Version(unique, f"{unique}-2", number=2, capabilities=BOTH)])
    again = dataclasses.replace(run, resolver=resolver_of(lambda: newer, bench.features))
    assert await OperationController(bench, again).reconcile(key) == Reconciled()
    assert says(await stored(bench, made), "Succeeded") == ("False", "PipelineError")
    assert len(function.requests) == 1


async def test_an_operation_fails_for_good_when_it_has_failed_as_often_as_it_may(bench: Workbench, unique: str) -> None:
    function = Calls(unique, fatal("broken"))
    OperationController(bench, pipelines(bench, function)).start()
    made = await bench.client.create(operation(unique, unique, retry_limit=2))
    done = await until_condition(bench.client, made, "Succeeded", "False", reason="PipelineError")
    assert done["status"]["failures"] == 2
    assert len(function.requests) == 2
    assert ("Warning", "PipelineError") in {(kind, reason) for kind, reason, _ in await said(bench, made)}


async def test_an_attempt_that_a_crash_cut_short_counts_and_is_repeated(bench: Workbench, unique: str) -> None:
    class Crash(BaseException):
        """The process ends in the middle of an attempt."""

    async def crash() -> None:
        raise Crash

    function = Calls(unique)
    function.meanwhile = crash
    made = await bench.client.create(operation(unique, unique, retry_limit=2))
    key = ObjectKey("", unique)
    with pytest.raises(Crash):
        await OperationController(bench, pipelines(bench, function)).reconcile(key)
    function.meanwhile = None
    await OperationController(bench, pipelines(bench, function)).reconcile(key)
    done = await stored(bench, made)
    assert done["status"]["failures"] == 1
    assert says(done, "Succeeded") == ("True", "PipelineSuccess")
    assert len(function.requests) == 2


async def test_an_operation_that_crashes_every_process_is_given_up(bench: Workbench, unique: str) -> None:
    function = Calls(unique)
    made = await bench.client.create(operation(unique, unique, retry_limit=1))
    running = {"type": "Succeeded", "status": "Unknown", "reason": "PipelineRunning"}
    running["lastTransitionTime"] = "2026-01-01T00:00:00Z"
    await patched(bench, made, {"status": {"conditions": [running]}}, subresource="status")
    await OperationController(bench, pipelines(bench, function)).reconcile(ObjectKey("", unique))
    done = await stored(bench, made)
    condition = condition_of(done, "Succeeded")
    assert condition is not None and condition["status"] == "False" and "interrupted" in condition["message"]
    assert not function.requests


async def test_an_edit_during_the_run_does_not_make_it_run_twice(bench: Workbench, unique: str) -> None:
    function = Calls(unique)
    made = await bench.client.create(operation(unique, unique))

    async def edit() -> None:
        await patched(bench, made, {"metadata": {"labels": {"seen": "true"}}})

    function.meanwhile = edit
    OperationController(bench, pipelines(bench, function)).start()
    done = await until_condition(bench.client, made, "Succeeded")
    assert done["status"].get("failures", 0) == 0
    assert len(function.requests) == 1


async def test_an_operation_that_is_deleted_while_it_runs_applies_nothing(bench: Workbench, unique: str) -> None:
    function = Calls(unique, wanting(config_map(f"{unique}-made")))

    async def delete() -> None:
        await bench.client.delete(OPERATION, unique)

    function.meanwhile = delete
    await bench.client.create(operation(unique, unique))
    await OperationController(bench, pipelines(bench, function)).reconcile(ObjectKey("", unique))
    assert await read(bench.client, CONFIG_MAP, f"{unique}-made", "default") is None


async def test_applied_resources_take_over_fields_and_outlive_the_operation(bench: Workbench, unique: str) -> None:
    await bench.client.apply(config_map(f"{unique}-kept", mode="old", other="stays"), manager="somebody")
    function = Calls(unique, wanting(config_map(f"{unique}-kept", mode="new")))
    await bench.client.create(operation(unique, unique))
    await OperationController(bench, pipelines(bench, function)).reconcile(ObjectKey("", unique))
    await bench.client.delete(OPERATION, unique)
    found = await bench.client.get(CONFIG_MAP, f"{unique}-kept", namespace="default")
    assert found["data"] == {"mode": "new", "other": "stays"}


async def test_a_resource_that_many_operations_apply_remembers_only_a_few_of_them(
    bench: Workbench, unique: str
) -> None:
    function = Calls(unique, wanting(config_map(f"{unique}-often", mode="new")))
    controller = OperationController(bench, pipelines(bench, function))
    await bench.client.apply(config_map(f"{unique}-often", other="stays"), manager="somebody")
    most = 0
    for index in range(25):
        name = f"{unique}-{index}"
        made = await bench.client.create(operation(name, unique))
        await controller.reconcile(ObjectKey("", name))
        found = await bench.client.get(CONFIG_MAP, f"{unique}-often", namespace="default")
        managers = [entry["manager"] for entry in found["metadata"]["managedFields"]]
        assert {"somebody", f"ops.crossplane.io/operation/{made['metadata']['uid']}"} <= set(managers)
        most = max(most, len(managers))
    assert most == 11, "somebody, this Operation, and up to nine before it"
    assert found["data"] == {"mode": "new", "other": "stays"}


async def test_what_cannot_be_applied_is_a_failure_that_names_it(bench: Workbench, unique: str) -> None:
    good, bad = config_map(f"{unique}-good"), config_map(f"{unique}-bad")
    bad["data"] = {"not a key!": "x"}
    nameless: Object = {"apiVersion": "v1", "kind": "ConfigMap"}
    for name, answer, message in (
        (f"{unique}-a", wanting(good, bad), f'cannot apply ConfigMap "{unique}-bad"'),
        (f"{unique}-b", wanting(nameless), 'desired resource "r0" (ConfigMap) has no metadata.name'),
    ):
        made = await bench.client.create(operation(name, name, retry_limit=1))
        controller = OperationController(bench, pipelines(bench, Calls(name, answer)))
        await controller.reconcile(ObjectKey("", name))
        condition = condition_of(await stored(bench, made), "Succeeded")
        assert condition is not None and condition["status"] == "False"
        assert message in condition["message"]
    first = await bench.client.get(OPERATION, f"{unique}-a")
    assert [each["name"] for each in first["status"]["appliedResourceRefs"]] == [f"{unique}-good"]


async def test_an_operation_waits_for_its_functions_without_using_up_attempts(bench: Workbench, unique: str) -> None:
    function = Calls(unique)
    there: list[Version] = []
    run = dataclasses.replace(
        pipelines(bench, function), resolver=resolver_of(lambda: Catalogue(there), bench.features)
    )
    OperationController(bench, run).start()
    made = await bench.client.create(operation(unique, unique, retry_limit=1))
    await until_condition(bench.client, made, "ValidPipeline", "False", reason="FunctionNotFound")
    there.append(Version(unique, f"{unique}-1", capabilities=BOTH))
    revision = await bench.client.create(
        {
            "apiVersion": FUNCTION_REVISION.api_version,
            "kind": FUNCTION_REVISION.kind,
            "metadata": {"name": f"{unique}-1"},
            "spec": {"image": unique, "revision": 1, "desiredState": "Inactive"},
        }
    )
    try:
        done = await until_condition(bench.client, made, "Succeeded")
        assert done["status"]["failures"] == 0
    finally:
        await bench.client.delete(FUNCTION_REVISION, revision["metadata"]["name"])


async def test_a_function_without_the_capability_is_not_called(bench: Workbench, unique: str) -> None:
    function = Calls(unique)
    run = pipelines(bench, function, capabilities=frozenset({"composition"}))
    made = await bench.client.create(operation(unique, unique))
    await OperationController(bench, run).reconcile(ObjectKey("", unique))
    assert says(await stored(bench, made), "ValidPipeline") == ("False", "MissingCapabilities")
    assert not function.requests


async def test_a_step_gets_its_requirements_credentials_and_shared_input(bench: Workbench, unique: str) -> None:
    def asking(request: FunctionRequest) -> FunctionResponse:
        wanted = ResourceSelector("v1", "ConfigMap", f"{unique}-asked", namespace="default")
        return dataclasses.replace(respond(request), requirements=Requirements(resources={"asked": wanted}))

    for name in ("asked", "given", "input"):
        await bench.client.create(config_map(f"{unique}-{name}", role=name))
    data = {"token": base64.b64encode(b"secret").decode()}
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": unique, "namespace": "default"}, "data": data}
    await bench.client.create(secret)
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
    made = await bench.client.create(operation(unique, unique, **step))
    await OperationController(bench, pipelines(bench, function)).reconcile(ObjectKey("", unique))
    assert says(await stored(bench, made), "Succeeded") == ("True", "PipelineSuccess")
    last = function.requests[-1]
    assert last.input is not None and last.input["data"] == {"role": "input"}
    assert last.credentials == {"login": {"token": b"secret"}}
    found = {name: [each.resource["data"]["role"] for each in got] for name, got in last.required_resources.items()}
    assert found == {"given": ["given"], "asked": ["asked"]}


async def test_a_paused_operation_does_nothing_until_it_is_resumed(bench: Workbench, unique: str) -> None:
    function = Calls(unique)
    paused = operation(unique, unique)
    paused["metadata"]["annotations"] = {PAUSED_ANNOTATION: "true"}
    OperationController(bench, pipelines(bench, function)).start()
    made = await bench.client.create(paused)
    await until_condition(bench.client, made, "Synced", "False", reason="ReconcilePaused")
    assert not function.requests
    await patched(bench, made, {"metadata": {"annotations": {PAUSED_ANNOTATION: None}}})
    await until_condition(bench.client, made, "Succeeded")


async def test_a_reader_finds_by_name_and_labels_and_knows_schemas(bench: Workbench, unique: str) -> None:
    reader = ClientReader(bench.client)
    for name in ("b", "a"):
        await bench.client.create(config_map(f"{unique}-{name}", labels={"set": unique}))

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
