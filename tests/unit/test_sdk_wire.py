"""Requests and responses to bytes and back, every field of the protocol."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from planform_sdk.proto import envelopes, message_class, v1
from planform_sdk.structs import EncodedStruct
from planform_sdk.types import (
    Capability,
    Condition,
    Ready,
    RequestMeta,
    Requirements,
    Resource,
    ResourceMap,
    ResourceRef,
    ResourceSelector,
    ResponseMeta,
    Result,
    RunFunctionRequest,
    RunFunctionResponse,
    Schema,
    SchemaSelector,
    Severity,
    State,
    Status,
    Target,
    undecoded,
)
from planform_sdk.wire import Codec, WireError


def full_request() -> RunFunctionRequest:
    return RunFunctionRequest(
        meta=RequestMeta("tag", [Capability.CAPABILITIES, Capability.CREDENTIALS]),
        observed=State(
            Resource({"kind": "XBucket", "spec": {"size": 3}}, connection_details={"user": b"\x00\xff"}),
            ResourceMap({"bucket": Resource({"kind": "Bucket"}, ready=Ready.FALSE)}),
        ),
        desired=State(Resource({"status": {"ok": True}}, ready=True), ResourceMap({"b": Resource({"kind": "B"})})),
        input={"kind": "Input", "list": [1, None, {}]},
        context={"a": {"b": "c"}},
        credentials={"aws": {"key": b"secret"}, "empty": {}},
        required_resources={"vpc": [Resource({"kind": "VPC"})], "none": []},
        required_schemas={"vpc": Schema({"type": "object"}), "absent": Schema()},
        extra_resources={"old": [Resource({"kind": "Old"})]},
    )


def full_response() -> RunFunctionResponse:
    return RunFunctionResponse(
        meta=ResponseMeta("tag", timedelta(seconds=90, milliseconds=5)),
        desired=State(Resource({"status": {"n": 1}}), ResourceMap({"b": Resource({"kind": "B"}, ready=True)})),
        results=[
            Result(Severity.WARNING, "careful", "Careful", Target.COMPOSITE_AND_CLAIM),
            Result(Severity.NORMAL, "fine"),
        ],
        context={"k": [1]},
        requirements=Requirements(
            resources={
                "one": ResourceSelector("v1", "ConfigMap", match_name="a", namespace="ns"),
                "some": ResourceSelector("v1", "ConfigMap", match_labels={"a": "b"}),
                "no labels": ResourceSelector("v1", "ConfigMap", match_labels={}),
                "all": ResourceSelector("v1", "ConfigMap"),
            },
            extra_resources={"old": ResourceSelector("v1", "Secret", match_name="s")},
            schemas={"s": SchemaSelector("v1", "Pod")},
            watch_resources=[ResourceRef("v1", "ConfigMap", "a")],
        ),
        conditions=[
            Condition("DatabaseReady", Status.TRUE, "Up", "all is well", Target.COMPOSITE),
            Condition("Other", Status.UNKNOWN, "Asking"),
        ],
        output={"answer": 42},
    )


def test_a_request_comes_back_as_it_was() -> None:
    codec = Codec()
    assert codec.decode_request(codec.encode_request(full_request())) == full_request()


def test_a_response_comes_back_as_it_was() -> None:
    codec = Codec()
    assert codec.decode_response(codec.encode_response(full_response())) == full_response()


def test_an_empty_message_is_an_empty_value() -> None:
    codec = Codec()
    assert codec.decode_request(b"") == RunFunctionRequest()
    assert codec.decode_response(b"") == RunFunctionResponse()


def test_a_function_that_wants_nothing_says_so_and_does_not_keep_silent() -> None:
    message = v1.RunFunctionResponse.FromString(Codec().encode_response(RunFunctionResponse()))
    assert message.HasField("desired")
    asked = v1.RunFunctionRequest.FromString(Codec().encode_request(RunFunctionRequest()))
    assert asked.HasField("observed")
    assert asked.HasField("desired")


def test_the_bytes_are_the_messages_of_the_proto_file() -> None:
    message = v1.RunFunctionRequest.FromString(Codec().encode_request(full_request()))
    assert message.observed.composite.resource.fields["spec"].struct_value.fields["size"].number_value == 3
    assert message.observed.composite.connection_details["user"] == b"\x00\xff"
    assert message.observed.resources["bucket"].ready == v1.READY_FALSE
    assert list(message.meta.capabilities) == [v1.CAPABILITY_CAPABILITIES, v1.CAPABILITY_CREDENTIALS]
    assert message.credentials["empty"].WhichOneof("source") == "credential_data"
    assert len(message.required_resources["none"].items) == 0
    assert not message.required_schemas["absent"].HasField("openapi_v3")
    answer = v1.RunFunctionResponse.FromString(Codec().encode_response(full_response()))
    assert (answer.meta.ttl.seconds, answer.meta.ttl.nanos) == (90, 5_000_000)
    assert answer.requirements.resources["no labels"].WhichOneof("match") == "match_labels"
    assert answer.requirements.resources["all"].WhichOneof("match") is None
    assert not answer.requirements.resources["all"].HasField("namespace")
    assert answer.requirements.watch_resources[0].name == "a"
    assert not answer.results[1].HasField("reason")


def test_a_message_that_carries_every_field_is_understood() -> None:
    message = v1.RunFunctionRequest(meta=v1.RequestMeta(tag="t"))
    message.observed.resources["a"].resource.update({"n": 1.0, "deep": {"x": [None]}})
    message.context.SetInParent()
    request = Codec().decode_request(message.SerializeToString())
    assert request.observed.resources["a"].resource == {"n": 1, "deep": {"x": [None]}}
    assert isinstance(request.observed.resources["a"].resource["n"], int)
    assert request.context == {}
    assert request.input is None


def test_what_nobody_looked_at_is_passed_on_as_it_came() -> None:
    codec = Codec()
    request = codec.decode_request(codec.encode_request(full_request()))
    state = undecoded(request, "desired")
    passed_on = codec.encode_response(RunFunctionResponse(desired=state))
    assert undecoded(request, "desired") is state
    assert codec.decode_response(passed_on).desired == full_request().desired
    copy = request.desired.copy()
    assert isinstance(copy.resources["b"].undecoded, EncodedStruct)
    passed_on = codec.encode_response(RunFunctionResponse(desired=copy))
    assert isinstance(copy.resources["b"].undecoded, EncodedStruct)
    assert codec.decode_response(passed_on).desired == full_request().desired


def test_an_object_in_an_answer_that_is_none_is_named() -> None:
    envelope = message_class(envelopes(), "apiextensions.fn.proto.v1.State")()
    envelope.resources["bucket"].resource = b"\xff\xff"
    answer = message_class(envelopes(), "apiextensions.fn.proto.v1.RunFunctionResponse")()
    answer.desired = envelope.SerializeToString()
    with pytest.raises(WireError, match='desired resource "bucket": not an encoded object'):
        Codec().decode_response(answer.SerializeToString())


def test_a_request_that_passes_on_what_a_peer_sent_has_the_bytes_of_an_equal_one() -> None:
    """A Go function writes the keys of an object in another order each time."""
    one, two = (
        Codec().decode_response(b"\x12" + bytes([len(state)]) + state)
        for state in (
            b"\x0a\x16\x0a\x14" + b"\x0a\x08\x0a\x01a\x12\x03\x1a\x01x" + b"\x0a\x08\x0a\x01b\x12\x03\x1a\x01y",
            b"\x0a\x16\x0a\x14" + b"\x0a\x08\x0a\x01b\x12\x03\x1a\x01y" + b"\x0a\x08\x0a\x01a\x12\x03\x1a\x01x",
        )
    )
    assert one.desired.composite.resource == {"a": "x", "b": "y"}
    as_sent = [Codec().encode_request(RunFunctionRequest(desired=each.desired)) for each in (one, two)]
    assert as_sent[0] == as_sent[1]


def test_equal_requests_have_equal_bytes_whatever_the_order_of_their_parts() -> None:
    one = RunFunctionRequest(observed=State(resources=ResourceMap({"a": {"x": 1, "y": 2}, "b": {"z": 3}})))
    two = RunFunctionRequest(observed=State(resources=ResourceMap({"b": {"z": 3}, "a": {"y": 2, "x": 1}})))
    assert Codec().encode_request(one) == Codec().encode_request(two)


def test_numbers_of_enums_that_we_do_not_know_survive() -> None:
    message = v1.RunFunctionResponse()
    message.results.add(message="?").severity = 77  # type: ignore[assignment]  # a newer peer's number
    codec = Codec()
    response = codec.decode_response(message.SerializeToString())
    assert response.results[0].severity == 77
    assert response.results[0].severity.name == "UNKNOWN_77"
    assert codec.decode_response(codec.encode_response(response)).results[0].severity == 77


@pytest.mark.parametrize("ttl", [timedelta(0), timedelta(seconds=-1.5), timedelta(days=400), None], ids=str)
def test_a_time_to_live_survives(ttl: timedelta | None) -> None:
    codec = Codec()
    response = RunFunctionResponse(meta=ResponseMeta("", ttl))
    assert codec.decode_response(codec.encode_response(response)).meta.ttl == ttl


def test_a_time_to_live_beyond_reason_is_the_longest_there_is() -> None:
    message = v1.RunFunctionResponse()
    message.meta.ttl.seconds = 2**60
    assert Codec().decode_response(message.SerializeToString()).meta.ttl == timedelta.max


def test_nonsense_is_refused_by_name() -> None:
    with pytest.raises(WireError, match="not a RunFunctionResponse"):
        Codec().decode_response(b"\xff\xff\xff")


def test_an_object_that_cannot_be_encoded_is_named() -> None:
    bad: dict[str, Any] = {"spec": object()}
    response = RunFunctionResponse(desired=State(resources=ResourceMap({"bucket": bad})))
    with pytest.raises(WireError, match='resource "bucket" cannot be encoded'):
        Codec().encode_response(response)


def test_an_observed_object_of_a_known_version_is_encoded_once() -> None:
    codec = Codec()
    first = RunFunctionRequest(observed=State(Resource({"a": 1}, version=("uid", "1"))))
    again = RunFunctionRequest(observed=State(Resource({"not": "read"}, version=("uid", "1"))))
    assert codec.encode_request(again) == codec.encode_request(first)


def test_a_copy_of_a_versioned_resource_has_no_version_since_it_may_change() -> None:
    resource = Resource({"a": 1}, version=("uid", "1"))
    copy = resource.copy()
    copy["a"] = 2
    codec = Codec()
    assert codec.encode_request(RunFunctionRequest(observed=State(resource))) != codec.encode_request(
        RunFunctionRequest(observed=State(copy))
    )
    assert resource["a"] == 1
