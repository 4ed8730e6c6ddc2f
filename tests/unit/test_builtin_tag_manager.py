"""tag-manager: which resources get which tags, labels and annotations."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest

from planform.builtin.tag_manager import function
from planform.functions.values import FunctionRequest, FunctionResponse, Object, Ready, Resource, SchemaSelector, State

AWS = "s3.aws.upbound.io/v1beta1"


def bucket(tags: Object | None = None, *, api_version: str = AWS, **metadata: Any) -> Object:
    provided: Object = {"region": "eu"} | ({"tags": tags} if tags is not None else {})
    return {"apiVersion": api_version, "kind": "Bucket", "metadata": metadata, "spec": {"forProvider": provided}}


def reported(tags: Object) -> Object:
    return {"status": {"atProvider": {"tags": tags}}}


def entered(**members: Any) -> Object:
    return {"apiVersion": "tag-manager.fn.crossplane.io/v1beta1", "kind": "ManagedTags", **members}


def run(spec: Object, *, observed: Object | None = None, **desired: Object) -> FunctionResponse:
    xr = {"spec": {"tags": {"team": "shop"}, "keys": ["external"], "number": 5}}
    request = FunctionRequest(
        observed=State(Resource(xr), {"a": Resource(observed)} if observed else {}),
        desired=State(resources={name: Resource(each, {"k": b"v"}, Ready.TRUE) for name, each in desired.items()}),
        context={"apiextensions.crossplane.io/environment": {"tags": {"cost": "7"}}},
        input=spec,
    )
    before = deepcopy(request)
    answer = function(request)
    assert request == before
    return answer


def tags(spec: Object, resource: Object, *, observed: Object | None = None) -> Any:
    answer = run(spec, observed=observed, a=resource)
    assert answer.fatal is None, answer.fatal
    assert (answer.desired.resources["a"].connection_details, answer.desired.resources["a"].ready) == (
        {"k": b"v"},
        Ready.TRUE,
    )
    return answer.desired.resources["a"].resource["spec"]["forProvider"].get("tags")


def test_tags_come_from_the_input_the_xr_and_the_environment() -> None:
    spec = entered(
        addTags=[
            {"type": "FromValue", "tags": {"a": "1"}},
            {"type": "FromCompositeFieldPath", "fromFieldPath": "spec.tags"},
            {"type": "FromEnvironmentFieldPath", "fromFieldPath": "tags"},
            {"type": "FromCompositeFieldPath", "fromFieldPath": "spec.nothing"},
        ]
    )
    assert tags(spec, bucket()) == {"a": "1", "team": "shop", "cost": "7"}


@pytest.mark.parametrize(("policy", "expected"), [("Replace", "new"), ("Retain", "old")])
def test_the_policy_decides_between_two_values(policy: str, expected: str) -> None:
    add = entered(addTags=[{"tags": {"a": "new", "b": "1"}, "policy": policy}])
    assert tags(add, bucket({"a": "old"})) == {"a": expected, "b": "1"}
    ignore = entered(ignoreTags=[{"keys": ["a"], "policy": policy}])
    assert tags(ignore, bucket({"a": "old"}), observed=reported({"a": "new", "b": "1"})) == {"a": expected}


def test_of_two_entries_with_one_policy_the_first_wins() -> None:
    add = entered(addTags=[{"tags": {"a": "1", "b": ""}}, {"tags": {"a": "2", "b": "3"}}])
    assert tags(add, bucket()) == {"a": "1", "b": "3"}


def test_tags_that_others_set_are_taken_over_as_the_provider_reports_them() -> None:
    spec = entered(ignoreTags=[{"type": "FromCompositeFieldPath", "fromFieldPath": "spec.keys"}])
    observed = {**bucket({"external": "stale"}), **reported({"external": "x", "other": "y"})}
    assert tags(spec, bucket({"mine": "1"}), observed=observed) == {"mine": "1", "external": "x"}
    assert tags(spec, bucket({"mine": "1"}), observed=bucket({"external": "asked"})) == {"mine": "1"}
    assert tags(spec, bucket()) is None


def test_tags_are_removed_last() -> None:
    spec = entered(addTags=[{"tags": {"a": "1", "b": "2"}}], removeTags=[{"keys": ["a", "c"]}])
    assert tags(spec, bucket({"c": "3"})) == {"b": "2"}


@pytest.mark.parametrize(
    ("resource", "tagged"),
    [
        (bucket(), True),
        ({**bucket(api_version="network.azure.m.upbound.io/v1beta1"), "kind": "VirtualNetwork"}, True),
        ({**bucket(api_version="azure.upbound.io/v1beta1"), "kind": "ResourceGroup"}, True),
        ({**bucket(api_version="ec2.aws.upbound.io/v1beta1"), "kind": "Route"}, False),
        (bucket(annotations={"tag-manager.fn.crossplane.io/ignore-resource": "false"}), True),
        (bucket(api_version="storage.gcp.upbound.io/v1beta1"), False),
        (bucket(annotations={"tag-manager.fn.crossplane.io/ignore-resource": "True"}), False),
        (bucket(labels={"tag-manager.fn.crossplane.io/ignore-resource": "true"}), False),
        ({"apiVersion": AWS, "kind": "ProviderConfig", "spec": {}}, False),
        ({"apiVersion": AWS, "kind": "Odd", "spec": {"forProvider": 1}}, False),
    ],
)
def test_without_a_schema_the_kinds_that_are_known_to_have_tags_get_them(resource: Object, tagged: bool) -> None:
    answer = run(entered(addTags=[{"tags": {"a": "1"}}]), a=resource)
    assert ("tags" in str(answer.desired.resources["a"].resource["spec"])) == tagged


def test_the_schema_that_is_served_decides_which_kinds_have_tags() -> None:
    def schema(members: Object) -> Object:
        for name in ("forProvider", "spec"):
            members = {name: {"type": "object", "properties": members}}
        return {"type": "object", "properties": members}

    own = bucket(api_version="own.example.org/v1")
    request = FunctionRequest(
        desired=State(resources={"known": Resource(bucket()), "own": Resource(own)}),
        input=entered(addTags=[{"tags": {"a": "1"}}]),
    )
    asked = function(request).requirements.schemas
    assert sorted(asked.values(), key=str) == [
        SchemaSelector("own.example.org/v1", "Bucket"),
        SchemaSelector(AWS, "Bucket"),
    ]
    request.required_schemas = {
        f"{AWS}/Bucket": schema({"region": {"type": "string"}}),
        "own.example.org/v1/Bucket": schema({"tags": {"type": "object"}}),
    }
    made = function(request)
    assert made.requirements.schemas == asked
    found = {name: each.resource["spec"]["forProvider"].get("tags") for name, each in made.desired.resources.items()}
    assert found == {"known": None, "own": {"a": "1"}}


@pytest.mark.parametrize(
    "entry",
    [
        {"type": "FromCompositeFieldPath", "fromFieldPath": "a["},
        {"type": "FromCompositeFieldPath", "fromFieldPath": "spec.number"},
        {"type": "FromNowhere"},
    ],
)
def test_tags_that_cannot_be_read_are_passed_over(entry: Object) -> None:
    spec = entered(addTags=[entry, {"tags": {"a": "1"}}], removeTags=[entry], ignoreTags=[entry])
    assert tags(spec, bucket(), observed=reported({"x": "1"})) == {"a": "1"}


def test_what_cannot_be_meant_is_a_warning_and_success_is_told() -> None:
    answer = run(entered(addTags=[{"policy": "Merge", "tags": {"a": "1"}}]), a=bucket())
    assert [each.message for each in answer.results] == [
        'addTags[0].policy: "Merge" is neither Replace nor Retain, and counts as Replace',
        "Successfully Processed tags",
    ]


def test_a_resource_that_the_input_names_is_tagged_whatever_its_cloud() -> None:
    answer = run(
        entered(addTags=[{"tags": {"a": "1"}}], resources=["a.*"]),
        ab=bucket(api_version="own.example.org/v1"),
        b=bucket(),
    )
    found = {name: each.resource["spec"]["forProvider"].get("tags") for name, each in answer.desired.resources.items()}
    assert found == {"ab": {"a": "1"}, "b": None}


def test_labels_and_annotations_go_on_every_resource() -> None:
    spec = entered(
        addTags=[
            {"field": "Labels", "tags": {"team": "shop"}},
            {"field": "Annotations", "type": "FromEnvironmentFieldPath", "fromFieldPath": "tags"},
        ],
        removeTags=[{"field": "Labels", "keys": ["old"]}],
    )
    note = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"labels": {"old": "1", "kept": "2"}}}
    assert run(spec, a=note).desired.resources["a"].resource["metadata"] == {
        "labels": {"kept": "2", "team": "shop"},
        "annotations": {"cost": "7"},
    }
    assert run(spec, a={"kind": "Bare"}).desired.resources["a"].resource["metadata"]["labels"] == {"team": "shop"}


@pytest.mark.parametrize(
    ("members", "problem"),
    [
        ({"addTags": [{"field": "Names"}]}, "addTags[0].field: Invalid value"),
        ({"removeTags": [{"type": "FromCompositeFieldPath"}]}, "removeTags[0].fromFieldPath: Required value"),
        ({"resources": ["("]}, "resources[0]: Invalid value"),
        ({"addTags": [{"tags": {"a": 1}}]}, "addTags[0].tags"),
        ({"add": []}, 'unknown field "add"'),
    ],
)
def test_an_input_that_makes_no_sense_is_refused(members: Object, problem: str) -> None:
    answer = run(entered(**members), a=bucket())
    assert answer.fatal is not None and problem in answer.fatal.message
