"""Running a pipeline of functions: what each step sees, what comes out, and how it fails."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

import pytest

from planform.clock import VirtualClock
from planform.errors import Forbidden
from planform.functions.cache import CacheOutcome, ResponseCache
from planform.functions.errors import (
    CredentialsUnavailable,
    FatalResult,
    FunctionAnswerInvalid,
    FunctionError,
    FunctionNotFound,
    FunctionTimedOut,
    InputUnavailable,
    RequirementDenied,
    RequirementUnreadable,
    UnstableRequirements,
)
from planform.functions.resolution import Catalogue, Version
from planform.functions.runner import FunctionRevision
from planform.functions.sending import observed_digest
from planform.functions.values import (
    Condition,
    FunctionRequest,
    FunctionResponse,
    Object,
    Requirements,
    Resource,
    ResourceSelector,
    Result,
    SchemaSelector,
    Severity,
    State,
    Status,
    WatchedResource,
    respond,
)
from planform.pipeline.pipeline import PipelineOutcome, ReadSettings, resolver_for, run_pipeline
from planform.pipeline.steps import Step, parse_pipeline

Function = Callable[[FunctionRequest], FunctionResponse | Awaitable[FunctionResponse]]


class World:
    """Objects that can be read, and what was read of them."""

    def __init__(self, *objects: Object) -> None:
        self.objects = list(objects)
        self.reads: list[ResourceSelector] = []
        self.fails: Exception | None = None

    async def read(self, selector: ResourceSelector, /) -> Sequence[Object]:
        self.reads.append(selector)
        if self.fails:
            raise self.fails
        return [
            each
            for each in self.objects
            if (each["apiVersion"], each["kind"]) == (selector.api_version, selector.kind)
            and (not selector.match_name or each["metadata"]["name"] == selector.match_name)
            and (selector.match_labels or {}).items() <= each["metadata"].get("labels", {}).items()
        ]

    async def schema(self, selector: SchemaSelector, /) -> Object | None:
        return {"type": "object"} if selector.kind == "ConfigMap" else None


class Secrets:
    async def read(self, namespace: str, name: str, /) -> Mapping[str, bytes] | None:
        return {"token": b"s3cret"} if (namespace, name) == ("system", "aws") else None


class Functions:
    """Runs Python functions by name and keeps what they were asked."""

    def __init__(self, **functions: Function) -> None:
        self._functions = functions
        self.requests: list[FunctionRequest] = []

    async def run(self, revision: FunctionRevision, request: FunctionRequest, /, *, timeout: float) -> FunctionResponse:
        self.requests.append(request)
        answer = self._functions[revision.function](request)
        return await answer if isinstance(answer, Awaitable) else answer


def step(name: str, function: str = "", **fields: Any) -> Step:
    return parse_pipeline({"pipeline": [{"step": name, "functionRef": {"name": function or name}, **fields}]})[0]


def config_map(name: str, **labels: str) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "labels": labels, "resourceVersion": "7", "managedFields": [{}]},
    }


CONFIG_MAP = ResourceSelector("v1", "ConfigMap", "settings")


async def run(
    functions: Functions,
    *steps: Step,
    world: World | None = None,
    deterministic: bool = False,
    quick: bool = False,
    clock: VirtualClock | None = None,
    **options: Any,
) -> PipelineOutcome:
    catalogue = Catalogue(
        Version(name, f"{name}-1", deterministic=deterministic, quick=quick, number=1) for name in functions._functions
    )
    return await run_pipeline(
        steps,
        observed=options.pop("observed", State(Resource({"kind": "XBucket", "metadata": {"name": "xr"}}))),
        resolver=resolver_for(catalogue),
        runner=functions,
        reader=world or World(),
        clock=clock or VirtualClock(),
        **options,
    )


def add(name: str, **spec: Any) -> Function:
    def function(request: FunctionRequest) -> FunctionResponse:
        response = respond(request)
        response.desired.resources[name] = Resource({"apiVersion": "v1", "kind": "Bucket", "spec": spec})
        response.context[name] = "was here"
        return response

    return function


def say(*results: Result, **fields: Any) -> Function:
    return lambda request: dataclasses.replace(respond(request), results=list(results), **fields)


def require(**selectors: ResourceSelector) -> Function:
    return lambda request: dataclasses.replace(respond(request), requirements=Requirements(resources=selectors))


def failure(outcome: PipelineOutcome, kind: type[FunctionError], step: str) -> str:
    assert type(outcome.failure) is kind
    assert outcome.failure.step == step
    assert outcome.steps[-1].error is outcome.failure
    return str(outcome.failure)


# -- state from step to step


async def test_desired_state_and_context_pass_from_step_to_step() -> None:
    functions = Functions(one=add("a"), two=add("b"))
    outcome = await run(functions, step("one"), step("two"))
    assert list(outcome.desired.resources) == ["a", "b"]
    assert functions.requests[1].context == {"a": "was here"}
    assert "a" in functions.requests[1].desired.resources
    assert outcome.failure is None


async def test_every_step_sees_the_same_observed_state_without_bookkeeping() -> None:
    functions = Functions(one=add("a"), two=add("b"))
    observed = State(Resource(config_map("xr")), {"x": Resource(config_map("x"), {"user": b"me"})})
    await run(functions, step("one"), step("two"), observed=observed)
    first, second = functions.requests
    assert first.observed is second.observed
    assert first.observed.resources["x"].connection_details == {"user": b"me"}
    assert first.observed.composite.resource["metadata"] == {"name": "xr", "labels": {}}
    assert "managedFields" in observed.composite.resource["metadata"], "what was handed in is not changed"


async def test_the_trace_tells_what_each_step_changed() -> None:
    def alter(request: FunctionRequest) -> FunctionResponse:
        response = respond(request)
        del response.desired.resources["a"]
        response.desired.resources["b"] = Resource({"apiVersion": "v1", "kind": "Bucket", "spec": {"size": 2}})
        response.desired.composite = Resource({"status": {"done": True}})
        response.context.pop("a")
        return response

    outcome = await run(
        Functions(one=add("a"), two=add("b"), same=respond, alter=alter),
        *(step(name) for name in ("one", "two", "same", "alter")),
    )
    one, _, same, changed = (trace.changes for trace in outcome.steps)
    assert (one.added, one.changed, one.removed, one.context) == (("a",), (), (), ("a",))
    assert not same
    assert (changed.added, changed.changed, changed.removed, changed.composite) == ((), ("b",), ("a",), True)
    assert changed.context == ("a",)
    assert outcome.steps[0].revision == FunctionRevision("one", "one-1", "one-1")


async def test_a_fatal_result_stops_with_the_name_of_its_step_and_keeps_what_came_before() -> None:
    condition = Condition("Checked", Status.FALSE, "Bad")
    functions = Functions(
        one=add("a"),
        two=say(
            Result(Severity.WARNING, "careful"),
            Result(Severity.FATAL, "no more"),
            Result(Severity.NORMAL, "unheard"),
            conditions=[condition],
        ),
        three=add("c"),
    )
    outcome = await run(functions, step("one"), step("check", "two"), step("three"))
    assert failure(outcome, FatalResult, "check") == 'step "check": function "two" (revision "two-1"): no more'
    assert [(each.step, each.result.message) for each in outcome.results] == [("check", "careful")]
    assert outcome.conditions[0].condition == condition
    assert list(outcome.desired.resources) == ["a"]
    assert [trace.step for trace in outcome.steps] == ["one", "check"]


async def test_a_function_that_is_not_there_fails_its_step() -> None:
    outcome = await run(Functions(one=add("a")), step("one"), step("next", "nobody"))
    assert "no such function is installed" in failure(outcome, FunctionNotFound, "next")


async def test_a_resource_without_a_kind_is_blamed_on_the_step_that_made_it() -> None:
    def nonsense(request: FunctionRequest) -> FunctionResponse:
        response = respond(request)
        response.desired.resources["odd"] = Resource({"apiVersion": "v1"})
        return response

    outcome = await run(Functions(one=add("a"), odd=nonsense, last=respond), step("one"), step("odd"), step("last"))
    assert isinstance(outcome.failure, FunctionAnswerInvalid)
    assert outcome.failure.step == "odd"
    assert 'desired resource "odd" has no kind' in str(outcome.failure)
    assert outcome.steps[1].error is outcome.failure


async def test_a_later_step_may_complete_what_an_earlier_began() -> None:
    def begin(request: FunctionRequest) -> FunctionResponse:
        response = respond(request)
        response.desired.resources["a"] = Resource({"spec": {}})
        return response

    outcome = await run(Functions(begin=begin, complete=add("a")), step("begin"), step("complete"))
    assert outcome.failure is None


async def test_the_shortest_ttl_of_functions_that_are_not_deterministic_counts() -> None:
    functions = Functions(one=say(ttl=60.0), two=say(ttl=20.0), three=say(ttl=0.0), four=say())
    steps = [step(name) for name in ("one", "two", "three", "four")]
    assert (await run(functions, *steps)).ttl == 20
    assert (await run(functions, *steps, deterministic=True)).ttl is None


# -- requirements


async def test_without_requirements_there_is_one_call() -> None:
    functions, world = Functions(one=add("a")), World()
    outcome = await run(functions, step("one"), world=world)
    assert (outcome.steps[0].iterations, world.reads) == (1, [])


async def test_what_a_function_requires_is_there_in_its_next_call_only_for_that_step() -> None:
    functions = Functions(ask=require(it=CONFIG_MAP), other=respond)
    outcome = await run(functions, step("ask"), step("other"), world=World(config_map("settings")))
    first, second, other = functions.requests
    assert first.required_resources == {}
    assert second.required_resources["it"][0].resource["metadata"] == {"name": "settings", "labels": {}}
    assert other.required_resources == {}
    assert outcome.requirements == {"ask": Requirements(resources={"it": CONFIG_MAP})}
    assert first.tag != second.tag


async def test_a_resource_that_is_not_there_gives_an_empty_entry() -> None:
    functions = Functions(ask=require(it=CONFIG_MAP))
    await run(functions, step("ask"))
    assert functions.requests[1].required_resources == {"it": []}


async def test_seeds_of_the_last_run_save_the_second_call() -> None:
    functions, world = Functions(ask=require(it=CONFIG_MAP)), World(config_map("settings"))
    outcome = await run(functions, step("ask"), world=world, seeds={"ask": Requirements(resources={"it": CONFIG_MAP})})
    assert outcome.steps[0].iterations == 1
    assert functions.requests[0].required_resources["it"]


async def test_a_seed_that_fits_no_more_costs_a_second_call() -> None:
    functions, world = Functions(ask=require(it=CONFIG_MAP)), World(config_map("settings"))
    old = Requirements(resources={"it": ResourceSelector("v1", "ConfigMap", "old")})
    outcome = await run(functions, step("ask"), world=world, seeds={"ask": old})
    assert outcome.steps[0].iterations == 2
    assert functions.requests[1].required_resources["it"]


async def test_bootstrap_requirements_are_there_from_the_first_call_and_survive_dynamic_ones() -> None:
    functions = Functions(ask=require(it=CONFIG_MAP))
    bootstrap = {
        "requiredResources": [
            {"requirementName": "boot", "apiVersion": "v1", "kind": "ConfigMap", "matchLabels": {"a": "b"}}
        ],
        "requiredSchemas": [{"requirementName": "schema", "apiVersion": "v1", "kind": "ConfigMap"}],
    }
    world = World(config_map("settings"), config_map("labelled", a="b"))
    await run(functions, step("ask", requirements=bootstrap, allowedExtraResources=[SETTINGS_ONLY]), world=world)
    first, second = functions.requests
    assert [each.resource["metadata"]["name"] for each in first.required_resources["boot"]] == ["labelled"]
    assert first.required_schemas == {"schema": {"type": "object"}}
    assert set(second.required_resources) == {"boot", "it"}


SETTINGS_ONLY = {"apiVersion": "v1", "kind": "ConfigMap", "name": "settings"}


async def test_deprecated_extra_resources_are_answered_in_their_own_map() -> None:
    def ask(request: FunctionRequest) -> FunctionResponse:
        both = Requirements(
            resources={"new": CONFIG_MAP},
            extra_resources={"old": CONFIG_MAP},
            schemas={"s": SchemaSelector("v1", "Nothing")},
        )
        return dataclasses.replace(respond(request), requirements=both)

    functions, world = Functions(ask=ask), World(config_map("settings"))
    await run(functions, step("ask"), world=world)
    last = functions.requests[-1]
    assert (list(last.required_resources), list(last.extra_resources)) == (["new"], ["old"])
    assert last.required_schemas == {"s": None}
    assert len(world.reads) == 1, "one selector is read once per run"


async def test_context_passes_to_the_next_iteration_and_desired_state_does_not() -> None:
    def ask(request: FunctionRequest) -> FunctionResponse:
        response = dataclasses.replace(respond(request), requirements=Requirements(resources={"it": CONFIG_MAP}))
        response.context["round"] = response.context.get("round", 0) + 1
        name = f"r{response.context['round']}"
        response.desired.resources[name] = Resource({"apiVersion": "v1", "kind": "Bucket"})
        return response

    outcome = await run(Functions(ask=ask), step("ask"))
    assert outcome.context == {"round": 2}
    assert list(outcome.desired.resources) == ["r2"]


def restless(request: FunctionRequest) -> FunctionResponse:
    wanted = ResourceSelector("v1", "ConfigMap", f"n{request.context.get('round', 0)}")
    response = dataclasses.replace(respond(request), requirements=Requirements(resources={"it": wanted}))
    response.context["round"] = request.context.get("round", 0) + 1
    return response


@pytest.mark.parametrize(("written", "calls"), [({}, 6), ({"maxIterations": 0}, 1), ({"maxIterations": 8}, 9)])
async def test_requirements_that_never_settle_are_an_error_after_the_allowed_calls(written: Object, calls: int) -> None:
    functions = Functions(restless=restless)
    outcome = await run(functions, step("s", "restless", **written))
    text = failure(outcome, UnstableRequirements, "s")
    assert len(functions.requests) == calls
    assert f'"it": ConfigMap (v1) "n{calls - 1}"' in text


async def test_without_a_limit_requirements_may_change_until_the_deadline() -> None:
    clock = VirtualClock()

    async def slow(request: FunctionRequest) -> FunctionResponse:
        await clock.advance(1.0)
        return restless(request)

    functions = Functions(slow=slow)
    outcome = await run(functions, step("s", "slow", maxIterations=-1, timeout="20s"), clock=clock)
    assert "until the step's deadline" in failure(outcome, UnstableRequirements, "s")
    assert len(functions.requests) == 20


async def test_a_fatal_answer_ends_the_loop_without_a_read() -> None:
    def ask(request: FunctionRequest) -> FunctionResponse:
        fatal = [Result(Severity.FATAL, "no")]
        return dataclasses.replace(respond(request), results=fatal, requirements=Requirements({"it": CONFIG_MAP}))

    world = World()
    outcome = await run(Functions(ask=ask), step("ask"), world=world)
    failure(outcome, FatalResult, "ask")
    assert world.reads == []


async def test_a_read_that_fails_fails_the_step() -> None:
    world = World()
    world.fails = Forbidden("not for you")
    outcome = await run(Functions(ask=require(it=CONFIG_MAP)), step("ask"), world=world)
    assert 'requirement "it" (ConfigMap (v1) "settings") could not be read: not for you' in failure(
        outcome, RequirementUnreadable, "ask"
    )


@pytest.mark.parametrize(
    ("watched", "allowed"),
    [
        (WatchedResource("v1", "ConfigMap", "settings"), True),
        (WatchedResource("v1", "ConfigMap", "labelled"), True),
        (WatchedResource("v1", "ConfigMap", "other"), False),
        (WatchedResource("v1", "Secret", "settings"), False),
    ],
)
async def test_a_function_may_watch_only_what_its_step_requested(watched: WatchedResource, allowed: bool) -> None:
    def ask(request: FunctionRequest) -> FunctionResponse:
        by_label = ResourceSelector("v1", "ConfigMap", "", {"a": "b"})
        wanted = Requirements({"one": CONFIG_MAP, "many": by_label}, watch_resources=[watched])
        return dataclasses.replace(respond(request), requirements=wanted)

    outcome = await run(Functions(ask=ask), step("ask"), world=World(config_map("labelled", a="b")))
    if allowed:
        assert outcome.watched == (watched,)
    else:
        assert "may not watch" in failure(outcome, RequirementDenied, "ask")


# -- read policy


async def test_a_denied_requirement_fails_the_step_before_anything_is_read() -> None:
    world = World(config_map("settings"))
    secret = ResourceSelector("v1", "Secret", "keys")
    outcome = await run(
        Functions(ask=require(a=CONFIG_MAP, b=secret)), step("ask", allowedExtraResources=[SETTINGS_ONLY]), world=world
    )
    text = failure(outcome, RequirementDenied, "ask")
    assert 'requirement "b" (Secret (v1) "keys") is denied' in text
    assert world.reads == []


@pytest.mark.parametrize(
    ("written", "reads", "passes"),
    [
        ({}, ReadSettings(), True),
        ({"allowedExtraResources": []}, ReadSettings(), False),
        ({}, ReadSettings(deny_by_default=True), False),
        ({"allowedExtraResources": [SETTINGS_ONLY]}, ReadSettings(deny_by_default=True), True),
        ({"allowedExtraResources": [SETTINGS_ONLY]}, ReadSettings(requirements_enabled=False), False),
    ],
    ids=["absent allows", "empty denies", "absent denies with the gate", "listed passes the gate", "switched off"],
)
async def test_the_list_and_the_gates_decide_what_may_be_read(
    written: Object, reads: ReadSettings, passes: bool
) -> None:
    outcome = await run(Functions(ask=require(it=CONFIG_MAP)), step("ask", **written), reads=reads)
    assert (outcome.failure is None) is passes


@pytest.mark.parametrize(
    ("selector", "passes"),
    [
        (ResourceSelector("v1", "ConfigMap", "a", namespace="team"), True),
        (ResourceSelector("v1", "ConfigMap", "a", namespace="other"), False),
        (ResourceSelector("v1", "ConfigMap", "", {"a": "b"}), False),
        (ResourceSelector("v1", "Node", "a"), True),
    ],
)
async def test_a_confined_xr_reads_its_namespace_and_cluster_scoped_kinds(
    selector: ResourceSelector, passes: bool
) -> None:
    async def is_namespaced(api_version: str, kind: str) -> bool:
        return kind != "Node"

    reads = ReadSettings(confined_to="team", is_namespaced=is_namespaced)
    outcome = await run(Functions(ask=require(it=selector)), step("ask"), reads=reads)
    assert (outcome.failure is None) is passes


# -- input, credentials, time, cache


async def test_an_input_ref_gives_the_object_as_input() -> None:
    shared = {
        "apiVersion": "x/v1",
        "kind": "In",
        "metadata": {"name": "in", "uid": "1"},
        "size": 3,
        "status": {},
    }
    functions = Functions(one=respond)
    ref = {"apiVersion": "x/v1", "kind": "In", "name": "in"}
    outcome = await run(functions, step("one", inputRef=ref), world=World(shared))
    assert outcome.failure is None
    assert functions.requests[0].input == {"apiVersion": "x/v1", "kind": "In", "metadata": {"name": "in"}, "size": 3}
    missing = await run(functions, step("one", inputRef=ref))
    assert 'input In (x/v1) "in" does not exist' in failure(missing, InputUnavailable, "one")


async def test_credentials_go_to_their_step_only() -> None:
    functions = Functions(one=respond, two=respond)
    aws = {"name": "aws", "source": "Secret", "secretRef": {"namespace": "system", "name": "aws"}}
    outcome = await run(functions, step("one", credentials=[aws]), step("two"), credentials=Secrets())
    assert outcome.failure is None
    assert [request.credentials for request in functions.requests] == [{"aws": {"token": b"s3cret"}}, {}]
    gone = aws | {"secretRef": {"namespace": "system", "name": "gone"}}
    outcome = await run(functions, step("one", credentials=[gone]), credentials=Secrets())
    assert "does not exist" in failure(outcome, CredentialsUnavailable, "one")


async def test_a_function_that_hangs_times_out_on_its_step() -> None:
    async def hang(request: FunctionRequest) -> FunctionResponse:
        await asyncio.Event().wait()
        raise AssertionError

    outcome = await run(Functions(one=respond, hang=hang), step("one"), step("h", "hang", timeout="20ms"))
    failure(outcome, FunctionTimedOut, "h")


async def test_a_second_run_with_nothing_changed_calls_no_deterministic_function() -> None:
    clock = VirtualClock()
    cache = ResponseCache(clock)
    functions, world = Functions(one=add("a"), ask=require(it=CONFIG_MAP)), World(config_map("settings"))
    steps = (step("one"), step("ask"))
    first = await run(functions, *steps, world=world, clock=clock, cache=cache, deterministic=True)
    calls = len(functions.requests)
    second = await run(functions, *steps, world=world, clock=clock, cache=cache, deterministic=True)
    assert len(functions.requests) == calls
    assert [trace.cache for trace in second.steps] == [CacheOutcome.HIT, CacheOutcome.HIT]
    assert second.desired == first.desired
    world.objects[0]["data"] = {"changed": "yes"}
    third = await run(functions, *steps, world=world, clock=clock, cache=cache, deterministic=True)
    assert third.steps[1].cache is CacheOutcome.NOT_CACHED, "a changed required resource misses"


async def test_only_functions_whose_answers_may_be_kept_need_the_digest_of_what_is_observed() -> None:
    observed, asked = State(Resource({"kind": "XBucket", "metadata": {"name": "xr"}})), []

    def digest() -> bytes:
        asked.append(observed)
        return observed_digest(observed)

    given = Functions(a=add("a"))
    await run(given, step("a"), observed=observed, digest=digest, quick=True)
    assert not asked and given.requests[0].tag == ""
    await run(given, step("a"), observed=observed, digest=digest)
    await run(given, step("a"), observed=observed)
    assert asked and given.requests[1].tag == given.requests[2].tag != ""


async def test_an_answer_with_another_tag_is_used_but_warned_about_and_not_cached() -> None:
    clock = VirtualClock()
    cache = ResponseCache(clock)
    functions = Functions(one=lambda request: dataclasses.replace(add("a")(request), tag="other"))  # type: ignore[type-var]
    for _ in range(2):
        outcome = await run(functions, step("one"), clock=clock, cache=cache, deterministic=True)
        assert list(outcome.desired.resources) == ["a"]
        assert "did not return the tag" in outcome.steps[0].warnings[0]
    assert len(functions.requests) == 2


async def test_two_steps_on_two_revisions_of_one_function_have_answers_of_their_own() -> None:
    clock = VirtualClock()

    class Echo:
        async def run(
            self, revision: FunctionRevision, request: FunctionRequest, /, *, timeout: float
        ) -> FunctionResponse:
            response = respond(request)
            response.context["by"] = [*request.context.get("by", []), revision.name]
            return response

    catalogue = Catalogue(Version("fn", f"fn-{n}", number=n, deterministic=True) for n in (1, 2))
    outcome = await run_pipeline(
        [step("a", "fn", functionRevisionRef={"name": "fn-1"}), step("b", "fn")],
        observed=State(),
        resolver=resolver_for(catalogue),
        runner=Echo(),
        reader=World(),
        clock=clock,
        cache=ResponseCache(clock),
    )
    assert outcome.context == {"by": ["fn-1", "fn-2"]}
