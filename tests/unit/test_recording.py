"""The record of a run: everything `explain-run` answers from."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime

from planform.clock import VirtualClock
from planform.functions.resolution import Catalogue, Version
from planform.functions.runner import FunctionRevision
from planform.functions.values import (
    Condition,
    FunctionRequest,
    FunctionResponse,
    Object,
    Ready,
    Requirements,
    Resource,
    ResourceSelector,
    Result,
    SchemaSelector,
    Severity,
    State,
    Status,
    respond,
)
from planform.journal import RunRecord
from planform.journal.records import Part, Planned, Read, StepResult
from planform.pipeline.pipeline import PipelineOutcome, resolver_for, run_pipeline
from planform.pipeline.plan import plan
from planform.pipeline.recording import run_record
from planform.pipeline.steps import parse_pipeline
from planform.xrs.last_run import RecordingCredentials

STARTED = datetime(2026, 1, 1, tzinfo=UTC)
XR: Object = {
    "apiVersion": "example.org/v1",
    "kind": "XBucket",
    "metadata": {"name": "logs", "uid": "u-1", "generation": 3, "resourceVersion": "9"},
    "spec": {"region": "eu"},
}
SETTINGS: Object = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "settings"}, "data": {"size": "2"}}


class Runner:
    def __init__(self, functions: Mapping[str, Callable[[FunctionRequest], FunctionResponse]]) -> None:
        self._functions = functions

    async def run(self, revision: FunctionRevision, request: FunctionRequest, /, *, timeout: float) -> FunctionResponse:
        return self._functions[revision.function](request)


class Reader:
    async def read(self, selector: ResourceSelector, /) -> Sequence[Object]:
        return [SETTINGS] if selector.match_name == "settings" else []

    async def schema(self, selector: SchemaSelector, /) -> Object | None:
        return None


class Vault:
    async def read(self, namespace: str, name: str, /) -> Mapping[str, bytes] | None:
        return {"token": b"hunter2-hunter2"}


def make_bucket(request: FunctionRequest) -> FunctionResponse:
    response = respond(request)
    response.requirements = Requirements(resources={"settings": ResourceSelector("v1", "ConfigMap", "settings")})
    response.desired.resources["bucket"] = Resource(
        {"apiVersion": "s3.example.org/v1", "kind": "Bucket", "spec": {"region": "eu"}}, {"password": b"pa55word"}
    )
    response.results.append(Result(Severity.NORMAL, "made a bucket", "Made"))
    response.conditions.append(Condition("Sized", Status.TRUE, "Fits"))
    return response


def encrypt(request: FunctionRequest) -> FunctionResponse:
    response = respond(request)
    bucket = request.desired.resources["bucket"].resource
    response.desired.resources["bucket"] = Resource(
        {**bucket, "spec": {**bucket["spec"], "encrypted": True}}, ready=Ready.TRUE
    )
    response.desired.composite = Resource({"status": {"encrypted": True}})
    response.context["seen"] = True
    return response


def refuse(request: FunctionRequest) -> FunctionResponse:
    response = respond(request)
    response.results += [Result(Severity.WARNING, "careful"), Result(Severity.FATAL, "no more")]
    return response


FUNCTIONS = {"make": make_bucket, "encrypt": encrypt, "refuse": refuse}


def input_of(function: str) -> Object:
    return {"apiVersion": "example.org/v1", "kind": "Input", "for": function}


async def outcome_of(*functions: str) -> PipelineOutcome:
    credentials = [{"name": "cloud", "source": "Secret", "secretRef": {"namespace": "system", "name": "aws"}}]
    steps = [
        {"step": f"{name}-it", "functionRef": {"name": name}, "input": input_of(name), "credentials": credentials}
        for name in functions
    ]
    clock = VirtualClock()
    return await run_pipeline(
        parse_pipeline({"pipeline": steps}),
        observed=State(Resource(XR), {"bucket": Resource({"kind": "Bucket", "metadata": {"name": "b"}})}),
        resolver=resolver_for(
            Catalogue(Version(name, f"{name}-{number}", number=number) for name in FUNCTIONS for number in (1, 2))
        ),
        runner=Runner(FUNCTIONS),
        reader=Reader(),
        credentials=Vault(),
        clock=clock,
    )


async def record_of(*functions: str) -> RunRecord:
    outcome = await outcome_of(*functions)
    decided = None if outcome.failure else plan(XR, {}, outcome.desired, style="modern")
    return run_record(
        XR, outcome, decided, started=STARTED, seconds=0.5, trigger="spec changed", composition_revision="buckets-abc"
    )


async def test_a_run_says_of_what_when_and_why_it_was() -> None:
    run = (await record_of("make", "encrypt")).run
    assert (run.uid, run.group_kind, run.name, run.generation) == ("u-1", "XBucket.example.org", "logs", 3)
    assert (run.started, run.seconds, run.trigger) == (STARTED, 0.5, "spec changed")
    assert run.composition_revision == "buckets-abc"
    assert run.failure == ""
    assert run.observed_composite is not None
    assert run.observed_composite.value["metadata"] == {"name": "logs", "uid": "u-1", "generation": 3}
    assert run.observed == {"bucket": Part({"kind": "Bucket", "metadata": {"name": "b"}})}


async def test_a_step_says_which_revision_it_called_and_why_not_the_others() -> None:
    step = (await record_of("make")).run.steps[0]
    assert (step.step, step.function, step.revision, step.rule) == ("make-it", "make", "make-2", "Latest")
    assert [each.id for each in step.rejected] == ["make-1"]
    assert step.input == Part(input_of("make"))
    assert step.iterations == 2
    assert step.cache == "Off"


async def test_a_step_says_what_it_added_changed_and_left_behind() -> None:
    make, encrypt = (await record_of("make", "encrypt")).run.steps
    assert make.added == ("bucket",)
    assert make.resources["bucket"].value["spec"] == {"region": "eu"}
    assert (encrypt.added, encrypt.changed, encrypt.changed_composite) == ((), ("bucket",), True)
    assert encrypt.resources["bucket"].value["spec"] == {"region": "eu", "encrypted": True}
    assert encrypt.changed_context == ("seen",)
    assert encrypt.composite == Part({"status": {"encrypted": True}})
    assert (make.ready, encrypt.ready) == ({}, {"bucket": True})


async def test_a_step_says_what_it_read_and_what_it_told() -> None:
    step = (await record_of("make")).run.steps[0]
    assert step.reads == {
        "settings": Read(api_version="v1", kind="ConfigMap", name="settings", found=(Part(SETTINGS),))
    }
    assert step.results == (StepResult(severity="Normal", message="made a bucket", reason="Made"),)
    assert [(each.type, each.status) for each in step.conditions] == [("Sized", "True")]


async def test_the_plan_says_what_becomes_of_each_resource() -> None:
    run = (await record_of("make", "encrypt")).run
    assert run.plan is not None
    (bucket,) = run.plan
    assert bucket == Planned(
        resource="bucket",
        action="create",
        api_version="s3.example.org/v1",
        kind="Bucket",
        name=bucket.name,
        ready=True,
    )
    assert bucket.name.startswith("logs-")


async def test_a_failed_step_leaves_its_error_and_results_and_no_state() -> None:
    run = (await record_of("make", "refuse", "encrypt")).run
    assert run.failure == 'step "refuse-it": function "refuse" (revision "refuse-2"): no more'
    assert run.plan is None
    failed = run.steps[-1]
    assert (failed.step, failed.error) == ("refuse-it", "no more")
    assert [each.severity for each in failed.results] == ["Warning", "Fatal"]
    assert failed.resources == {}
    assert failed.composite is None


async def test_a_step_whose_function_is_not_there_is_recorded_with_the_xr() -> None:
    run = (await record_of("nobody")).run
    assert "nobody" in run.failure
    assert run.steps[0].error
    assert run.steps[0].revision == ""
    assert run.observed_composite is not None
    assert "resourceVersion" not in run.observed_composite.value["metadata"]


async def test_credentials_and_connection_details_are_named_as_secrets() -> None:
    record = await record_of("make", "encrypt")
    assert record.secrets == {b"hunter2-hunter2", b"pa55word"}


async def test_credentials_of_a_call_that_failed_are_witnessed() -> None:
    credentials = RecordingCredentials(Vault(), on_read=lambda _named: None)
    assert await credentials.read("system", "aws") == {"token": b"hunter2-hunter2"}
    outcome = await outcome_of("nobody")
    record = run_record(
        XR, outcome, None, started=STARTED, seconds=0, trigger="spec changed", secrets=credentials.values
    )
    assert record.secrets == {b"hunter2-hunter2"}
