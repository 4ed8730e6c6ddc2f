"""Operations on both engines: run once, retried within limits, made by the clock and by changes, and never twice."""

from __future__ import annotations

import base64
import dataclasses
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from planform.api.kinds import GroupVersionKind, Object, gvk_of
from planform.api.names import (
    CRD,
    CRON_OPERATION,
    EVENT,
    FUNCTION_REVISION,
    OPERATION,
    PAUSED_ANNOTATION,
    WATCH_OPERATION,
)
from planform.builtin import find_builtin
from planform.client.informer import ObjectKey
from planform.client.protocol import Patch, PatchType
from planform.clock import VirtualClock, timestamp
from planform.composition.operations import WATCHED_RESOURCE
from planform.controllers.operation_schedules import CronOperationController
from planform.controllers.operation_watches import HANDLED_ANNOTATION, WatchOperationController
from planform.controllers.operations import OperationController
from planform.controllers.pipelines import ClientReader, Pipelines, SecretCredentials, resolver_of
from planform.controllers.workbench import Workbench
from planform.errors import NotFound
from planform.functions.cache import ResponseCache
from planform.functions.inprocess import InProcessRunner
from planform.functions.resolution import Catalogue, Version
from planform.functions.values import (
    FunctionRequest,
    FunctionResponse,
    Requirements,
    Resource,
    ResourceSelector,
    Result,
    SchemaSelector,
    Severity,
    respond,
)
from planform.reconcile.controller import Result as Reconciled
from tests.harness.planes import condition_of, embedded_bench, eventually, read, until_condition

CONFIG_MAP = GroupVersionKind("", "v1", "ConfigMap")
BOTH = frozenset({"composition", "operation"})
NOON = datetime(2026, 6, 1, 12, 0, 30, tzinfo=UTC)


class Calls:
    """A function whose answers a test decides, one after the other; the last one is repeated."""

    deterministic = True

    def __init__(self, name: str, *answers: Callable[[FunctionRequest], FunctionResponse]) -> None:
        self.name = name
        self.requests: list[FunctionRequest] = []
        self._answers = answers or (respond,)
        self.meanwhile: Callable[[], Awaitable[object]] | None = None

    async def run(self, request: FunctionRequest, /, *, timeout: float) -> FunctionResponse:
        self.requests.append(request)
        if self.meanwhile is not None:
            await self.meanwhile()
        return self._answers[min(len(self.requests), len(self._answers)) - 1](request)


def fatal(message: str) -> Callable[[FunctionRequest], FunctionResponse]:
    return lambda request: dataclasses.replace(respond(request), results=[Result(Severity.FATAL, message)])


def config_map(name: str, *, labels: dict[str, str] | None = None, **data: str) -> Object:
    metadata: Object = {"name": name, "namespace": "default", **({"labels": labels} if labels else {})}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}


def wanting(*objects: Object, **fields: Any) -> Callable[[FunctionRequest], FunctionResponse]:
    def answer(request: FunctionRequest) -> FunctionResponse:
        response = dataclasses.replace(respond(request), **fields)
        response.desired.resources.update({f"r{index}": Resource(obj) for index, obj in enumerate(objects)})
        return response

    return answer


def pipelines(bench: Workbench, *functions: Any, capabilities: frozenset[str] | None = BOTH) -> Pipelines:
    catalogue = Catalogue(
        Version(each.name, f"{each.name}-1", number=1, capabilities=capabilities, deterministic=each.deterministic)
        for each in functions
    )
    return Pipelines(
        resolver=resolver_of(lambda: catalogue, bench.features),
        runner=InProcessRunner(functions),
        reader=ClientReader(bench.client),
        credentials=SecretCredentials(bench.client),
        clock=bench.clock,
        cache=ResponseCache(bench.clock),
    )


def pipeline(function: str, **step: Any) -> Object:
    return {"mode": "Pipeline", "pipeline": [{"step": "only", "functionRef": {"name": function}, **step}]}


def operation(name: str, function: str, *, retry_limit: int | None = None, **step: Any) -> Object:
    spec = pipeline(function, **step) | ({} if retry_limit is None else {"retryLimit": retry_limit})
    return {"apiVersion": OPERATION.api_version, "kind": "Operation", "metadata": {"name": name}, "spec": spec}


async def patched(bench: Workbench, obj: Object, body: Object, *, subresource: str = "") -> Object:
    metadata = obj["metadata"]
    return await bench.client.patch(
        gvk_of(obj),
        metadata["name"],
        Patch(PatchType.MERGE, body),
        namespace=metadata.get("namespace") or "",
        subresource=subresource,
    )


async def stored(bench: Workbench, obj: Object) -> Object:
    metadata = obj["metadata"]
    return await bench.client.get(gvk_of(obj), metadata["name"], namespace=metadata.get("namespace") or "")


def says(obj: Object, type_: str) -> tuple[str, str]:
    """Status and reason of a condition."""
    condition = condition_of(obj, type_) or {}
    return condition.get("status", ""), condition.get("reason", "")


async def operations(bench: Workbench) -> list[Object]:
    return (await bench.client.list(OPERATION)).items


async def said(bench: Workbench, about: Object) -> list[tuple[str, str, str]]:
    """Type, reason and message of the events about an object."""
    await bench.events.written()
    found = (await bench.client.list(EVENT, namespace="default")).items
    uid = about["metadata"]["uid"]
    return sorted(
        (event["type"], event["reason"], event["message"])
        for event in found
        if event["involvedObject"].get("uid") == uid
    )


@pytest.fixture
async def bench(bench: Workbench, unique: str) -> AsyncIterator[Workbench]:
    """Operations are cluster-scoped, and a test's functions are gone after it: nothing of it may stay."""
    yield bench
    for name in bench.plane.names:
        if name.partition("/")[0] in ("operations", "cronoperations", "watchoperations"):
            await bench.plane.stop(name)
    for kind in (CRON_OPERATION, WATCH_OPERATION, OPERATION):
        await bench.client.delete_collection(kind)
    for found in (await bench.client.list(CONFIG_MAP, namespace="default")).items:
        if found["metadata"]["name"].startswith(unique):
            await bench.client.delete(CONFIG_MAP, found["metadata"]["name"], namespace="default")


# -- one Operation


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


# -- reading for pipelines


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


# -- by the clock


def cron(name: str, function: str, schedule: str = "*/10 * * * *", **spec: Any) -> Object:
    return {
        "apiVersion": CRON_OPERATION.api_version,
        "kind": CRON_OPERATION.kind,
        "metadata": {"name": name},
        "spec": {"schedule": schedule, "operationTemplate": {"spec": pipeline(function)}, **spec},
    }


async def scheduled(bench: Workbench, obj: Object, last: datetime = NOON - timedelta(minutes=1)) -> Object:
    """A CronOperation that ran last at that time."""
    made = await bench.client.create(obj)
    return await patched(bench, made, {"status": {"lastScheduleTime": timestamp(last)}}, subresource="status")


async def finish(bench: Workbench, name: str, status: str = "True", *, at: datetime = NOON) -> None:
    condition = {
        "type": "Succeeded",
        "status": status,
        "reason": "PipelineSuccess" if status == "True" else "PipelineError",
        "lastTransitionTime": timestamp(at),
    }
    found = await bench.client.get(OPERATION, name)
    await patched(bench, found, {"status": {"conditions": [condition]}}, subresource="status")


def moment(name: str, when: datetime) -> str:
    return f"{name}-{int(when.timestamp())}"


async def test_an_operation_is_made_for_each_moment_of_the_schedule_and_once(bench: Workbench, unique: str) -> None:
    clock = VirtualClock(NOON)
    controller, key = CronOperationController(dataclasses.replace(bench, clock=clock)), ObjectKey("", unique)
    made = await scheduled(bench, cron(unique, unique))
    assert await controller.reconcile(key) == Reconciled(requeue_after=570.0), "it sleeps until 12:10"
    first = moment(unique, NOON.replace(second=0))
    assert [each["metadata"]["name"] for each in await operations(bench)] == [first]
    found = await stored(bench, made)
    assert found["status"]["lastScheduleTime"] == "2026-06-01T12:00:00Z"
    assert found["status"]["runningOperationRefs"] == [{"name": first}]
    assert says(found, "Scheduling") == ("True", "ScheduleActive")
    again = CronOperationController(dataclasses.replace(bench, clock=clock))
    assert await again.reconcile(key) == Reconciled(requeue_after=570.0)
    assert (await stored(bench, made))["metadata"]["resourceVersion"] == found["metadata"]["resourceVersion"]
    await clock.advance(570)
    await again.reconcile(key)
    assert len(await operations(bench)) == 2


async def test_a_crash_before_the_moment_is_on_record_does_not_run_it_twice(bench: Workbench, unique: str) -> None:
    clock = VirtualClock(NOON)
    controller, key = CronOperationController(dataclasses.replace(bench, clock=clock)), ObjectKey("", unique)
    made = await scheduled(bench, cron(unique, unique, concurrencyPolicy="Replace"))
    await controller.reconcile(key)
    (before,) = await operations(bench)
    last = timestamp(NOON - timedelta(minutes=1))
    await patched(bench, made, {"status": {"lastScheduleTime": last}}, subresource="status")
    await controller.reconcile(key)
    (after,) = await operations(bench)
    assert after["metadata"]["uid"] == before["metadata"]["uid"]


async def test_of_missed_moments_only_the_latest_is_made_up_for_unless_it_is_too_late(
    bench: Workbench, unique: str
) -> None:
    controller = CronOperationController(dataclasses.replace(bench, clock=VirtualClock(NOON)))
    await scheduled(bench, cron(f"{unique}-a", unique), NOON - timedelta(days=9))
    late = await scheduled(bench, cron(f"{unique}-b", unique, startingDeadlineSeconds=20), NOON - timedelta(days=9))
    for name in ("a", "b"):
        result = await controller.reconcile(ObjectKey("", f"{unique}-{name}"))
        assert result.requeue_after == 570.0
    assert [each["metadata"]["name"] for each in await operations(bench)] == [
        moment(f"{unique}-a", NOON.replace(second=0))
    ]
    assert "MissedSchedule" in {reason for _, reason, _ in await said(bench, late)}


async def test_forbid_waits_for_the_running_operation_and_replace_ends_it(bench: Workbench, unique: str) -> None:
    controller = CronOperationController(dataclasses.replace(bench, clock=VirtualClock(NOON)))
    due, earlier = NOON.replace(second=0), NOON - timedelta(hours=1)
    for policy in ("Forbid", "Replace", "Allow"):
        name = f"{unique}-{policy.lower()}"
        owner = await scheduled(bench, cron(name, unique, concurrencyPolicy=policy))
        running = operation(moment(name, earlier), unique)
        running["metadata"] |= {
            "labels": {"ops.crossplane.io/cronoperation": name},
            "ownerReferences": [
                {
                    "apiVersion": CRON_OPERATION.api_version,
                    "kind": CRON_OPERATION.kind,
                    "name": name,
                    "uid": owner["metadata"]["uid"],
                    "controller": True,
                }
            ],
        }
        await bench.client.create(running)
        await controller.reconcile(ObjectKey("", name))
    left = {each["metadata"]["name"] for each in await operations(bench)}
    assert left == {
        moment(f"{unique}-forbid", earlier),
        moment(f"{unique}-replace", due),
        moment(f"{unique}-allow", earlier),
        moment(f"{unique}-allow", due),
    }
    await finish(bench, moment(f"{unique}-forbid", earlier))
    await controller.reconcile(ObjectKey("", f"{unique}-forbid"))
    assert await read(bench.client, OPERATION, moment(f"{unique}-forbid", due)) is not None


async def test_old_operations_are_let_go_and_the_last_success_is_remembered(bench: Workbench, unique: str) -> None:
    clock = VirtualClock(NOON)
    controller, key = CronOperationController(dataclasses.replace(bench, clock=clock)), ObjectKey("", unique)
    made = await scheduled(bench, cron(unique, unique, successfulHistoryLimit=1, failedHistoryLimit=0))
    for status in ("True", "False", "True", "True"):
        await controller.reconcile(key)
        due = clock.now().replace(second=0)
        await finish(bench, moment(unique, due), status, at=clock.now())
        await controller.reconcile(key)
        await clock.advance(600)
    assert len(await operations(bench)) == 1
    found = await stored(bench, made)
    assert found["status"]["lastSuccessfulTime"] == "2026-06-01T12:30:30Z"
    assert found["status"]["runningOperationRefs"] == []


async def test_what_cannot_be_scheduled_says_why_and_sets_no_timer(bench: Workbench, unique: str) -> None:
    controller = CronOperationController(bench)
    never = await bench.client.create(cron(f"{unique}-never", unique, "0 0 30 2 *"))
    paused = cron(f"{unique}-paused", unique)
    paused["metadata"]["annotations"] = {PAUSED_ANNOTATION: "true"}
    paused = await scheduled(bench, paused)
    for obj, reason in ((never, "ScheduleInvalid"), (paused, "SchedulePaused")):
        assert await controller.reconcile(ObjectKey("", obj["metadata"]["name"])) == Reconciled()
        assert says(await stored(bench, obj), "Scheduling") == ("False", reason)
    assert not await operations(bench)


async def test_time_alone_makes_an_operation_that_runs_at_each_moment() -> None:
    clock = VirtualClock(NOON)
    async with embedded_bench(clock=clock) as bench:
        function = Calls("hourly")
        OperationController(bench, pipelines(bench, function)).start()
        CronOperationController(bench).start()
        made = await bench.client.create(cron("hourly", "hourly", "0 * * * *"))
        await until_condition(bench.client, made, "Scheduling")
        for hour in (13, 14, 15):
            await clock.advance(3600)

            async def finished(hour: int = hour) -> bool:
                found = await read(bench.client, OPERATION, moment("hourly", NOON.replace(hour=hour, second=0)))
                return found is not None and says(found, "Succeeded") == ("True", "PipelineSuccess")

            await eventually(finished, f"the run of {hour}:00")
        assert len(function.requests) == 3


# -- by changes


def watching(name: str, function: str, kind: str = "ConfigMap", api: str = "v1", **spec: Any) -> Object:
    watch = {"apiVersion": api, "kind": kind, "matchLabels": {"watched": name}}
    return {
        "apiVersion": WATCH_OPERATION.api_version,
        "kind": WATCH_OPERATION.kind,
        "metadata": {"name": name},
        "spec": {"watch": watch, "operationTemplate": {"spec": pipeline(function)}, **spec},
    }


async def until_seen(bench: Workbench, watch: Object, count: int, **status: Any) -> Object:
    """Wait until the WatchOperation watches that many objects and nothing of it runs."""

    async def check() -> Object | None:
        found = await stored(bench, watch)
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
    bench: Workbench, unique: str
) -> None:
    function = Calls(unique)
    OperationController(bench, pipelines(bench, function)).start()
    one = await bench.client.create(config_map(f"{unique}-one", labels={"watched": unique}))
    await bench.client.create(config_map(f"{unique}-other"))
    WatchOperationController(bench).start()
    watch = await bench.client.create(watching(unique, unique, successfulHistoryLimit=10))
    await until_condition(bench.client, watch, "Watching", reason="WatchActive")

    async def calls(count: int) -> None:
        async def check() -> bool:
            return len(function.requests) >= count

        await eventually(check, f"{count} calls")

    await calls(1)
    await bench.client.create(config_map(f"{unique}-two", labels={"watched": unique}))
    await calls(2)
    await patched(bench, one, {"data": {"changed": "yes"}})
    await calls(3)
    await bench.client.delete(CONFIG_MAP, f"{unique}-one", namespace="default")
    await calls(4)
    assert seen_by(function) == [[f"{unique}-one"], [f"{unique}-two"], [f"{unique}-one"], []]
    found = await until_seen(bench, watch, 1)
    assert found["status"]["lastScheduleTime"] and found["status"]["lastSuccessfulTime"]
    made = await operations(bench)
    assert {each["metadata"]["labels"]["ops.crossplane.io/watchoperation"] for each in made} == {unique}
    versions = {each["metadata"]["annotations"]["ops.crossplane.io/watched-resource-resourceversion"] for each in made}
    assert one["metadata"]["resourceVersion"] in versions
    assert "ops.crossplane.io/synthetic-deleted" in versions


async def test_a_restart_runs_nothing_again_even_for_operations_that_were_let_go(bench: Workbench, unique: str) -> None:
    function = Calls(unique)
    OperationController(bench, pipelines(bench, function)).start()
    for index in range(3):
        await bench.client.create(config_map(f"{unique}-{index}", labels={"watched": unique}))
    watch = await bench.client.create(watching(unique, unique, successfulHistoryLimit=0))
    WatchOperationController(bench).start()

    async def tidy() -> bool:
        return len(function.requests) == 3 and not await operations(bench)

    await eventually(tidy, "three operations came and went")
    await until_seen(bench, watch, 3)

    async def restart() -> None:
        for name in (f"watchoperations/{unique}", "watchoperations"):
            await bench.plane.stop(name)
        done = reconciles()
        WatchOperationController(bench).start()
        await eventually(lambda: more_than(done), "the watch has been looked at")

    def reconciles() -> int:
        line = f'planform_reconcile_total{{controller="watchoperations/{unique}",outcome="success"}} '
        return sum(int(each.removeprefix(line)) for each in bench.metrics.render().splitlines() if line in each)

    async def more_than(count: int) -> bool:
        return reconciles() > count

    before = await stored(bench, watch)
    await restart()
    after = await stored(bench, watch)
    assert after["metadata"]["resourceVersion"] == before["metadata"]["resourceVersion"], "rest is rest"
    await bench.client.create(config_map(f"{unique}-new", labels={"watched": unique}))
    await until_seen(bench, watch, 4)

    async def fourth() -> bool:
        return len(function.requests) >= 4

    await eventually(fourth, "the new object is seen")
    assert sorted(seen_by(function)[3:]) == [[f"{unique}-new"]]


async def test_a_crash_before_the_note_is_taken_leads_to_the_same_operation_again(
    bench: Workbench, unique: str
) -> None:
    function = Calls(unique)
    OperationController(bench, pipelines(bench, function)).start()
    await bench.client.create(config_map(f"{unique}-one", labels={"watched": unique}))
    watch = await bench.client.create(watching(unique, unique))
    WatchOperationController(bench).start()
    await until_seen(bench, watch, 1)
    (before,) = await operations(bench)
    for name in (f"watchoperations/{unique}", "watchoperations"):
        await bench.plane.stop(name)
    await patched(bench, watch, {"metadata": {"annotations": {HANDLED_ANNOTATION: None}}})
    WatchOperationController(bench).start()

    async def noted() -> bool:
        return HANDLED_ANNOTATION in ((await stored(bench, watch))["metadata"].get("annotations") or {})

    await eventually(noted, "the note is taken again")
    (after,) = await operations(bench)
    assert after["metadata"]["uid"] == before["metadata"]["uid"]
    assert len(function.requests) == 1


async def test_two_watch_operations_of_the_same_objects_each_have_their_own(bench: Workbench, unique: str) -> None:
    function = Calls(unique)
    OperationController(bench, pipelines(bench, function)).start()
    WatchOperationController(bench).start()
    await bench.client.create(config_map(f"{unique}-one", labels={"watched": unique}))
    first = await bench.client.create(watching(unique, unique))
    await until_seen(bench, first, 1)
    late = watching(unique, unique)
    late["metadata"]["name"] = f"{unique}-late"
    await until_seen(bench, await bench.client.create(late), 1)
    assert seen_by(function) == [[f"{unique}-one"]] * 2


async def test_a_namespace_means_nothing_for_a_kind_without_namespaces(bench: Workbench, unique: str) -> None:
    function = Calls(unique)
    OperationController(bench, pipelines(bench, function)).start()
    WatchOperationController(bench).start()
    watch = watching(unique, unique, "CustomResourceDefinition", "apiextensions.k8s.io/v1")
    watch["spec"]["watch"] |= {"namespace": "default", "matchLabels": {"watched": "none"}}
    await until_seen(bench, await bench.client.create(watch), 0)


async def test_an_object_that_leaves_the_selection_is_not_taken_for_deleted(bench: Workbench, unique: str) -> None:
    function = Calls(unique)
    OperationController(bench, pipelines(bench, function)).start()
    one = await bench.client.create(config_map(f"{unique}-one", labels={"watched": unique}))
    watch = await bench.client.create(watching(unique, unique))
    WatchOperationController(bench).start()
    await until_seen(bench, watch, 1)
    await patched(bench, one, {"metadata": {"labels": {"watched": None}}})
    await until_seen(bench, watch, 0)
    assert seen_by(function) == [[f"{unique}-one"]]


async def test_under_forbid_changes_wait_their_turn(bench: Workbench, unique: str) -> None:
    for index in range(3):
        await bench.client.create(config_map(f"{unique}-{index}", labels={"watched": unique}))
    watch = await bench.client.create(watching(unique, unique, concurrencyPolicy="Forbid", successfulHistoryLimit=9))
    WatchOperationController(bench).start()
    for count in (1, 2, 3):

        async def made(count: int = count) -> list[Object] | None:
            found = await operations(bench)
            return found if len(found) == count else None

        found = await eventually(made, f"{count} operations")
        await until_condition(bench.client, watch, "Watching")
        running = [each for each in found if condition_of(each, "Succeeded") is None]
        assert len(running) == 1
        await finish(bench, running[0]["metadata"]["name"])


async def test_under_replace_only_the_latest_change_is_worked_on(bench: Workbench, unique: str) -> None:
    for index in range(3):
        last = await bench.client.create(config_map(f"{unique}-{index}", labels={"watched": unique}))
    watch = await bench.client.create(watching(unique, unique, concurrencyPolicy="Replace"))
    WatchOperationController(bench).start()

    async def only(version: str) -> bool:
        noted = "ops.crossplane.io/watched-resource-resourceversion"
        return [each["metadata"]["annotations"][noted] for each in await operations(bench)] == [version]

    await eventually(lambda: only(last["metadata"]["resourceVersion"]), "the last object's operation")
    await until_condition(bench.client, watch, "Watching")
    changed = await patched(bench, last, {"data": {"a": "b"}})
    await eventually(lambda: only(changed["metadata"]["resourceVersion"]), "its newer version's operation")


async def test_a_kind_that_is_not_served_is_watched_once_it_is(bench: Workbench, unique: str) -> None:
    group = f"{unique}.example.org"
    watch = await bench.client.create(watching(unique, unique, "Thing", f"{group}/v1"))
    WatchOperationController(bench).start()
    failed = await until_condition(bench.client, watch, "Watching", "False", reason="WatchFailed")
    condition = condition_of(failed, "Watching")
    assert condition is not None and condition["message"] == f"the kind Thing ({group}/v1) is not served"
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    await bench.client.create(
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
        await until_condition(bench.client, watch, "Watching", reason="WatchActive")
        thing = {"apiVersion": f"{group}/v1", "kind": "Thing", "metadata": {"name": "a", "labels": {"watched": unique}}}
        await bench.client.create(thing)

        async def made() -> bool:
            return len(await operations(bench)) == 1

        await eventually(made, "an operation for the thing")
    finally:
        await bench.client.delete(CRD, f"things.{group}")


async def test_a_paused_or_deleted_watch_operation_watches_nothing(bench: Workbench, unique: str) -> None:
    watch = await bench.client.create(watching(unique, unique))
    WatchOperationController(bench).start()
    await until_condition(bench.client, watch, "Watching", reason="WatchActive")
    await patched(bench, watch, {"metadata": {"annotations": {PAUSED_ANNOTATION: "true"}}})
    await until_condition(bench.client, watch, "Watching", "False", reason="WatchPaused")
    assert f"watchoperations/{unique}" not in bench.plane
    await patched(bench, watch, {"metadata": {"annotations": {PAUSED_ANNOTATION: None}}})
    await until_condition(bench.client, watch, "Watching", reason="WatchActive")
    await bench.client.delete(WATCH_OPERATION, unique)

    async def stopped() -> bool:
        return f"watchoperations/{unique}" not in bench.plane

    await eventually(stopped, "its watch ends")
    with pytest.raises(NotFound):
        await stored(bench, watch)
