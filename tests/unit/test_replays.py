"""What a recorded step saw, put together again: the record where it says all, Secrets as they are now."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import pytest

from planform.clock import VirtualClock
from planform.functions.resolution import Version
from planform.functions.runner import FunctionRevision
from planform.functions.values import (
    FunctionRequest,
    FunctionResponse,
    Object,
    Ready,
    Resource,
    ResourceSelector,
    SchemaSelector,
    respond,
)
from planform.journal.records import Part, Read, Run, StepRun
from planform.pipeline.steps import Step, parse_pipeline
from planform.preview.replays import NotReplayable, ReplayContext, replay, runs_of_function, scene_of

XR: Object = {"apiVersion": "example.org/v1", "kind": "App", "metadata": {"name": "one", "namespace": "team"}}
PASSWORD = b64encode(b"live-password").decode()
SECRET: Object = {
    "apiVersion": "v1",
    "kind": "Secret",
    "metadata": {"name": "login", "namespace": "team", "resourceVersion": "7"},
    "data": {"password": PASSWORD},
}
MASKED: Object = {**SECRET, "metadata": {"name": "login", "namespace": "team"}, "data": {"password": "******"}}
STEPS = parse_pipeline(
    {
        "pipeline": [
            {"step": "first", "functionRef": {"name": "other"}},
            {"step": "it", "functionRef": {"name": "fn"}, "input": {"apiVersion": "v1", "kind": "Input", "now": True}},
            {"step": "last", "functionRef": {"name": "other"}},
        ]
    }
)


class Secrets:
    """The Secrets there are."""

    def __init__(self, *found: Object, details: Mapping[str, bytes] | None = None) -> None:
        self._found = {(each["metadata"]["namespace"], each["metadata"]["name"]): each for each in found}
        self._details = details or {}

    async def secret(self, namespace: str, name: str, /) -> Object | None:
        return self._found.get((namespace, name))

    async def details(self, obj: Object, home: str, /) -> Mapping[str, bytes]:
        return self._details if obj["kind"] == "Database" else {}


class World:
    """Notes what it is asked for and sent; answers with what it was sent, or as told."""

    def __init__(self, *asks: ResourceSelector, adds: Mapping[str, Object] | None = None) -> None:
        self.asks = {f"ask-{number}": each for number, each in enumerate(asks)}
        self.adds = adds or {}
        self.read_live: list[ResourceSelector] = []
        self.requests: list[FunctionRequest] = []

    async def run(self, revision: FunctionRevision, request: FunctionRequest, /, *, timeout: float) -> FunctionResponse:
        self.requests.append(request)
        response = respond(request)
        response.requirements.resources = dict(self.asks)
        for name, obj in self.adds.items():
            response.desired.resources[name] = Resource(obj)
        return response

    async def read(self, selector: Any, /, *_: Any) -> Any:
        self.read_live.append(selector)
        return [{"apiVersion": "v1", "kind": selector.kind, "metadata": {"name": "live"}}]

    async def schema(self, selector: SchemaSelector, /) -> Object | None:
        return None

    def around(self) -> ReplayContext:
        return ReplayContext(self, self, self, VirtualClock())


def run_of(*steps: StepRun, observed: Mapping[str, Object] | None = None, xr: Object = XR) -> Run:
    return Run(
        uid="u",
        api_version="example.org/v1",
        kind="App",
        name="one",
        namespace="team",
        started=datetime(2026, 1, 1, tzinfo=UTC),
        composition_revision="apps-1",
        observed_composite=Part(xr),
        observed={key: Part(value) for key, value in (observed or {}).items()},
        steps=steps,
    )


def first(**resources: Object) -> StepRun:
    return StepRun(
        step="first",
        function="other",
        iterations=1,
        composite=Part({"status": {"a": 1}}),
        resources={key: Part(value) for key, value in resources.items()},
        ready=dict.fromkeys(resources, True),
        context=Part({"environment": "x"}),
    )


def it(**more: Any) -> StepRun:
    return StepRun(step="it", function="fn", iterations=1, input=Part({"kind": "Input", "now": False}), **more)


async def test_a_step_is_sent_what_it_was_sent_then() -> None:
    config: Object = {"apiVersion": "v1", "kind": "ConfigMap", "data": {"a": "b"}}
    database: Object = {"apiVersion": "example.org/v1", "kind": "Database", "metadata": {"name": "db"}}
    run = run_of(first(config=config), it(), observed={"db": database})
    scene = await scene_of(run, 1, STEPS, Secrets(details={"host": b"db.example.org"}))
    world = World()
    outcome = await replay(scene, Version("fn", "fn-2", number=2), world.around())
    assert outcome.failure is None
    [request] = world.requests
    assert request.observed.composite.resource == XR
    assert request.observed.resources["db"] == Resource(database, {"host": b"db.example.org"})
    assert request.desired.composite.resource == {"status": {"a": 1}}
    assert request.desired.resources == {"config": Resource(config, ready=Ready.TRUE)}
    assert request.context == {"environment": "x"}
    assert request.input == {"kind": "Input", "now": False}, "the input of the run, not what the step says today"
    assert scene.secrets == {b"db.example.org"}


async def test_what_was_read_then_is_not_read_again_and_everything_else_is() -> None:
    then: Object = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "then"}}
    read = Read(api_version="v1", kind="ConfigMap", labels={"a": "b"}, found=(Part(then),))
    scene = await scene_of(run_of(first(), it(reads={"configs": read})), 1, STEPS, Secrets())
    known = ResourceSelector("v1", "ConfigMap", match_labels={"a": "b"})
    news = ResourceSelector("v1", "Namespace", "team")
    world = World(known, news)
    await replay(scene, Version("fn", "fn-2", number=2), world.around())
    assert world.read_live == [news]
    shown = world.requests[-1].required_resources
    assert [each.resource for each in shown["ask-0"]] == [then]
    assert [each.resource["metadata"]["name"] for each in shown["ask-1"]] == ["live"]


async def test_secrets_are_those_of_now() -> None:
    read = Read(api_version="v1", kind="Secret", name="login", namespace="team", found=(Part(MASKED),))
    run = run_of(first(login=MASKED), it(reads={"login": read}), observed={"login": MASKED})
    scene = await scene_of(run, 1, STEPS, Secrets(SECRET))
    assert scene.observed.resources["login"].resource["data"] == {"password": PASSWORD}
    assert "resourceVersion" not in scene.observed.resources["login"].resource["metadata"]
    assert scene.desired.resources["login"].resource["data"] == {"password": PASSWORD}
    assert scene.reads["login"][1][0]["data"] == {"password": PASSWORD}
    assert scene.secrets == {b"live-password"}


@pytest.mark.parametrize(
    ("run", "why"),
    [
        (run_of(first(), it(), observed={"login": MASKED}), 'Secret "login" is gone'),
        (run_of(first(login=MASKED), it()), 'secret values are masked in desired resource "login"'),
        (
            run_of(first(), it(), observed={"c": {"kind": "ConfigMap", "data": {"p": "is ******!"}}}),
            'secret values are masked in resource "c"',
        ),
        (run_of(first(), it(), xr={**XR, "spec": {"p": "******"}}), "secret values are masked in the XR"),
        (
            run_of(StepRun(step="first", function="other", context=Part({"p": "******"})), it()),
            "secret values are masked in the context",
        ),
        (
            run_of(first(), StepRun(step="it", function="fn", iterations=1, input=Part({"p": "******"}))),
            'secret values are masked in the input of step "it"',
        ),
        (
            run_of(first(), StepRun(step="renamed", function="fn")),
            'composition revision "apps-1" has no step "renamed"',
        ),
    ],
    ids=["gone Secret", "desired Secret", "resource", "XR", "context", "input", "other step"],
)
async def test_what_cannot_be_put_together_again_says_why(run: Run, why: str) -> None:
    with pytest.raises(NotReplayable) as caught:
        await scene_of(run, 1, STEPS, Secrets())
    assert caught.value.message == why


def test_a_run_that_did_not_come_to_the_function_says_so() -> None:
    assert runs_of_function(run_of(first(), it(), it()), "fn") == [1, 2]
    with pytest.raises(NotReplayable, match="did not come to the function"):
        runs_of_function(run_of(first()), "fn")
    with pytest.raises(NotReplayable, match="no function answered"):
        runs_of_function(run_of(StepRun(step="it", function="fn", error="it crashed")), "fn")


async def test_a_step_that_failed_before_it_was_called_takes_its_input_as_it_is_today() -> None:
    failed = StepRun(step="it", function="fn", error="no active revision")
    scene = await scene_of(run_of(first(), failed), 1, STEPS, Secrets())
    assert scene.step.input == {"apiVersion": "v1", "kind": "Input", "now": True}


@pytest.mark.parametrize(("steps", "fails"), [(STEPS, False), (STEPS[:2], True)], ids=["in between", "last"])
async def test_what_later_steps_may_complete_is_a_failure_only_of_the_last(steps: Sequence[Step], fails: bool) -> None:
    scene = await scene_of(run_of(first(), it()), 1, steps, Secrets())
    outcome = await replay(scene, Version("fn", "fn-2", number=2), World(adds={"half": {"kind": "App"}}).around())
    assert (outcome.failure is not None) is fails
    assert "half" in outcome.desired.resources
