"""What an author sees: the decorator, the request and the response."""

from __future__ import annotations

import logging
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from planform_sdk import Capability, Fatal, Ready, Request, Resource, Response, Severity, Status, Target, function
from planform_sdk.types import (
    ENVIRONMENT,
    RequestMeta,
    ResourceMap,
    ResourceRef,
    ResourceSelector,
    RunFunctionRequest,
    Schema,
    SchemaSelector,
    State,
)


class Settings(msgspec.Struct, forbid_unknown_fields=True):
    size: int
    region: str = "eu"


def request(**fields: Any) -> RunFunctionRequest:
    earlier = State(Resource({"status": {"a": 1}}), ResourceMap({"old": Resource({"kind": "Old"}, ready=True)}))
    given: dict[str, Any] = {"meta": RequestMeta("the-tag"), "desired": earlier, "context": {"k": "v"}, **fields}
    return RunFunctionRequest(**given)


async def test_a_function_that_does_nothing_passes_everything_through() -> None:
    @function
    def nothing(req: Request[Any], rsp: Response) -> None: ...

    response = await nothing.run(request())
    assert response.desired == request().desired
    assert response.context == {"k": "v"}
    assert response.meta.tag == "the-tag"
    assert not response.results
    assert not response.requirements


async def test_async_functions_and_functions_in_threads_answer_too() -> None:
    @function
    async def waits(req: Request[Any], rsp: Response) -> None:
        rsp.xr.set("status.by", "async")

    @function(blocking=True)
    def blocks(req: Request[Any], rsp: Response) -> None:
        rsp.xr.set("status.by", "thread")

    assert (await waits.run(request())).desired.composite["status"] == {"a": 1, "by": "async"}
    assert (await blocks.run(request())).desired.composite["status"] == {"a": 1, "by": "thread"}


async def test_a_function_adds_changes_and_removes_without_touching_the_request() -> None:
    @function
    def edit(req: Request[Any], rsp: Response) -> None:
        rsp.desired.resources["bucket"] = {"kind": "Bucket"}
        rsp.desired.resources["bucket"].ready = True
        rsp.desired.resources["bucket"].external_name = "my-bucket"
        rsp.desired.resources["old"].set("spec.size", 3)
        rsp.context["mine"] = 1
        req.xr["spec"] = "scribble"
        req.context["scribble"] = True

    given = request(observed=State(Resource({"kind": "X"})))
    response = await edit.run(given)
    assert given == request(observed=State(Resource({"kind": "X"})))
    bucket = response.desired.resources["bucket"]
    assert bucket.get("metadata.annotations[crossplane.io/external-name]") == "my-bucket"
    assert bucket.ready is Ready.TRUE
    assert response.desired.resources["old"].resource == {"kind": "Old", "spec": {"size": 3}}
    assert response.desired.resources["old"].ready is Ready.TRUE
    assert response.context == {"k": "v", "mine": 1}


async def test_results_conditions_and_output_reach_the_response() -> None:
    @function
    def tell(req: Request[Any], rsp: Response) -> None:
        rsp.normal("created", reason="Created", target=Target.COMPOSITE_AND_CLAIM)
        rsp.warning("slow")
        rsp.condition("DatabaseReady", False, reason="Starting", message="wait")
        rsp.condition("Known", None, reason="Asking")
        rsp.output = {"x": 1}
        rsp.ttl = 300

    response = await tell.run(request())
    assert [(r.severity, r.message, r.reason, r.target) for r in response.results] == [
        (Severity.NORMAL, "created", "Created", Target.COMPOSITE_AND_CLAIM),
        (Severity.WARNING, "slow", None, None),
    ]
    assert [(c.type, c.status, c.reason, c.message) for c in response.conditions] == [
        ("DatabaseReady", Status.FALSE, "Starting", "wait"),
        ("Known", Status.UNKNOWN, "Asking", None),
    ]
    assert response.output == {"x": 1}
    assert response.meta.ttl == timedelta(minutes=5)


@pytest.mark.parametrize(
    ("arguments", "ttl"),
    [
        pytest.param({}, timedelta(seconds=60), id="a minute unless said otherwise"),
        pytest.param({"deterministic": True}, None, id="none if deterministic: good until the request changes"),
        pytest.param({"ttl": timedelta(seconds=5)}, timedelta(seconds=5), id="as said"),
    ],
)
async def test_the_time_to_live(arguments: dict[str, Any], ttl: timedelta | None) -> None:
    named = function(**arguments)(lambda req, rsp: None)
    assert (await named.run(request())).meta.ttl == ttl


async def test_an_exception_is_a_fatal_result_that_names_its_line_without_half_a_change(
    caplog: pytest.LogCaptureFixture,
) -> None:
    @function(name="buckets")
    def fails(req: Request[Any], rsp: Response) -> None:
        rsp.desired.resources["half"] = {"kind": "Half"}
        rsp.normal("was here")
        req.require("x", api_version="v1", kind="Pod", name="x")
        raise KeyError("region\nsecond line")

    with caplog.at_level(logging.ERROR, "planform_sdk"):
        response = await fails.run(request())
    said, fatal, traceback = response.results
    assert (said.severity, said.message) == (Severity.NORMAL, "was here")
    assert fatal.severity is Severity.FATAL
    assert "\"buckets\" failed: KeyError: 'region\\nsecond line' (test_sdk_function.py, line" in fatal.message
    assert (traceback.severity, traceback.reason) == (Severity.NORMAL, "Traceback"), "after the one that ends it all"
    assert 'raise KeyError("region\\nsecond line")' in traceback.message
    assert response.desired == request().desired
    assert not response.requirements
    assert "Traceback" in caplog.text
    assert "Traceback" not in fatal.message


async def test_raising_fatal_stops_with_its_own_message_and_logs_nothing(caplog: pytest.LogCaptureFixture) -> None:
    @function
    def gives_up(req: Request[Any], rsp: Response) -> None:
        raise Fatal("no such region", reason="BadRegion")

    response = await gives_up.run(request())
    assert [(r.message, r.reason) for r in response.results] == [("no such region", "BadRegion")]
    assert not caplog.records


async def test_input_is_read_as_the_model() -> None:
    @function(input=Settings)
    def sized(req: Request[Settings], rsp: Response) -> None:
        rsp.xr.set("status.size", req.input.size * 2)

    given = {"apiVersion": "example.org/v1", "kind": "Settings", "metadata": {}, "size": 21}
    assert (await sized.run(request(input=given))).desired.composite.get("status.size") == 42


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"size": "big"}, 'function "sized": invalid input: size: expected `int`, got `str`'),
        ({"size": 1, "colour": "red"}, 'function "sized": invalid input: object contains unknown field `colour`'),
        ({}, 'function "sized": invalid input: object missing required field `size`'),
        (None, 'function "sized": invalid input: object missing required field `size` (the step has no input)'),
    ],
    ids=["wrong type", "unknown field", "missing field", "no input"],
)
async def test_input_that_does_not_fit_is_a_fatal_result_that_names_the_field(given: Any, message: str) -> None:
    @function(input=Settings)
    def sized(req: Request[Settings], rsp: Response) -> None: ...

    response = await sized.run(request(input=given))
    assert [(r.severity, r.message, r.reason) for r in response.results] == [(Severity.FATAL, message, "InvalidInput")]


async def test_a_requirement_is_asked_for_and_then_found() -> None:
    found: list[Any] = []

    @function
    def asks(req: Request[Any], rsp: Response) -> None:
        vpc = req.require("vpc", api_version="ec2/v1", kind="VPC", name="main", namespace="net")
        subnets = req.require_all("subnets", api_version="ec2/v1", kind="Subnet", labels={"a": "b"})
        schema = req.require_schema("schema", api_version="v1", kind="Pod")
        req.watch(api_version="v1", kind="ConfigMap", name="c")
        found.append((vpc and vpc.name, len(subnets), schema, req.looked_up("vpc")))

    new = RequestMeta("", [Capability.CAPABILITIES, Capability.REQUIRED_RESOURCES])
    response = await asks.run(request(meta=new))
    wanted = {
        "vpc": ResourceSelector("ec2/v1", "VPC", match_name="main", namespace="net"),
        "subnets": ResourceSelector("ec2/v1", "Subnet", match_labels={"a": "b"}),
    }
    assert response.requirements.resources == wanted
    assert response.requirements.extra_resources == {}
    assert response.requirements.schemas == {"schema": SchemaSelector("v1", "Pod")}
    assert response.requirements.watch_resources == [ResourceRef("v1", "ConfigMap", "c")]
    vpc = [Resource({"metadata": {"name": "main"}})]
    answered = {"vpc": vpc, "subnets": [Resource({}), Resource({})]}
    await asks.run(
        request(meta=new, required_resources=answered, required_schemas={"schema": Schema({"type": "object"})})
    )
    await asks.run(request(meta=new, required_resources={"vpc": []}))
    assert found == [
        (None, 0, None, False),
        ("main", 2, {"type": "object"}, True),
        (None, 0, None, True),
    ]


@pytest.mark.parametrize(
    "capabilities", [[], [Capability.CAPABILITIES]], ids=["too old to say", "says it has only the older field"]
)
async def test_a_caller_that_may_know_only_the_older_field_is_asked_through_both(
    capabilities: list[Capability],
) -> None:
    @function
    def asks(req: Request[Any], rsp: Response) -> None:
        vpc = req.require("vpc", api_version="ec2/v1", kind="VPC", name="main")
        rsp.xr.set("status.found", vpc is not None)

    old = RequestMeta("", capabilities)
    response = await asks.run(request(meta=old))
    assert response.requirements.resources == response.requirements.extra_resources
    response = await asks.run(request(meta=old, extra_resources={"vpc": [Resource({"kind": "VPC"})]}))
    assert response.desired.composite.get("status.found") is True


async def test_name_and_labels_together_are_a_mistake() -> None:
    @function
    def asks(req: Request[Any], rsp: Response) -> None:
        req.require("vpc", api_version="v1", kind="VPC", name="a", labels={"b": "c"})

    response = await asks.run(request())
    assert "give a name or labels, not both" in response.results[0].message


async def test_credentials_environment_and_connection_details_are_at_hand() -> None:
    @function
    def reads(req: Request[Any], rsp: Response) -> None:
        assert req.credentials("aws") == {"key": b"s"}
        assert req.credentials("none") == {}
        assert req.environment == {"zone": "a"}
        rsp.xr.connection_details["user"] = req.xr.connection_details["user"]
        assert req.observed.resources["db"].is_true("Ready")
        assert req.observed.resources["db"].condition("Synced") is None

    db = Resource({"status": {"conditions": [{"type": "Ready", "status": "True"}]}})
    observed = State(Resource({}, connection_details={"user": b"me"}), ResourceMap({"db": db}))
    response = await reads.run(
        request(observed=observed, credentials={"aws": {"key": b"s"}}, context={ENVIRONMENT: {"zone": "a"}})
    )
    assert not response.results
    assert response.desired.composite.connection_details == {"user": b"me"}


async def test_models_may_be_assigned_and_read() -> None:
    class Bucket(msgspec.Struct, rename="camel"):
        kind: str
        api_version: str = "s3/v1"
        labels: dict[str, str] | msgspec.UnsetType = msgspec.UNSET

    @function
    def typed(req: Request[Any], rsp: Response) -> None:
        observed = req.observed.resources["b"].as_model(Bucket)
        rsp.desired.resources["b"] = Bucket(kind=observed.kind + "2")

    given = request(observed=State(resources=ResourceMap({"b": Resource({"kind": "Bucket", "apiVersion": "s3/v1"})})))
    response = await typed.run(given)
    assert response.desired.resources["b"].resource == {"kind": "Bucket2", "apiVersion": "s3/v1"}


async def test_a_sync_function_that_takes_long_is_warned_about(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("planform_sdk.functions._SLOW_SECONDS", -1)
    await function(lambda req, rsp: None).run(request())
    assert "blocking=True" in caplog.text


def test_a_decorated_function_is_still_callable_and_documented() -> None:
    @function
    def my_function(req: Request[Any], rsp: Response) -> None:
        """Says what it does."""
        rsp.normal("called")

    given = request()
    rsp = Response(given, ttl=None)
    my_function(Request(given, {}, rsp.requirements), rsp)
    assert rsp.results[0].message == "called"
    assert my_function.__doc__ == "Says what it does."
    assert my_function.name == "my-function"


async def test_resources_may_be_put_in_by_every_way_a_dictionary_has() -> None:
    @function
    def puts(req: Request[Any], rsp: Response) -> None:
        resources = rsp.desired.resources
        resources.update({"a": {"kind": "A"}})
        resources.setdefault("b", {"kind": "B"}).ready = True
        resources.setdefault("old", {"kind": "New"})

    resources = (await puts.run(request())).desired.resources
    assert [resources[name].kind for name in ("a", "b", "old")] == ["A", "B", "Old"]
    assert resources["b"].ready is Ready.TRUE
