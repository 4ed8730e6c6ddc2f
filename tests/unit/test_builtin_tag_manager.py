"""tag-manager: which resources get which tags, labels and annotations."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest

from planform.builtin.tag_manager import function
from planform.functions.values import FunctionRequest, FunctionResponse, Object, Ready, Resource, State

AWS = "s3.aws.upbound.io/v1beta1"


def bucket(tags: Object | None = None, *, api_version: str = AWS, **metadata: Any) -> Object:
    provided: Object = {"region": "eu"} | ({"tags": tags} if tags is not None else {})
    return {"apiVersion": api_version, "kind": "Bucket", "metadata": metadata, "spec": {"forProvider": provided}}


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
    assert tags(ignore, bucket({"a": "old"}), observed=bucket({"a": "new", "b": "1"})) == {"a": expected}


def test_tags_that_others_set_are_taken_over_as_the_provider_reports_them() -> None:
    spec = entered(ignoreTags=[{"type": "FromCompositeFieldPath", "fromFieldPath": "spec.keys"}])
    observed = {**bucket({"external": "stale"}), "status": {"atProvider": {"tags": {"external": "x", "other": "y"}}}}
    assert tags(spec, bucket({"mine": "1"}), observed=observed) == {"mine": "1", "external": "x"}
    assert tags(spec, bucket({"mine": "1"}), observed=bucket({"external": "asked"})) == {
        "mine": "1",
        "external": "asked",
    }
    assert tags(spec, bucket()) is None


def test_tags_are_removed_last() -> None:
    spec = entered(addTags=[{"tags": {"a": "1", "b": "2"}}], removeTags=[{"keys": ["a", "c"]}])
    assert tags(spec, bucket({"c": "3"})) == {"b": "2"}


@pytest.mark.parametrize(
    ("resource", "tagged"),
    [
        (bucket(), True),
        (bucket(api_version="network.azure.m.upbound.io/v1beta1"), True),
        (bucket(api_version="storage.gcp.upbound.io/v1beta1"), False),
        (bucket(annotations={"tag-manager.fn.crossplane.io/ignore-resource": "True"}), False),
        (bucket(labels={"tag-manager.fn.crossplane.io/ignore-resource": "true"}), False),
        ({"apiVersion": AWS, "kind": "ProviderConfig", "spec": {}}, False),
        ({"apiVersion": AWS, "kind": "Odd", "spec": {"forProvider": 1}}, False),
    ],
)
def test_only_managed_resources_of_clouds_with_tags_are_tagged(resource: Object, tagged: bool) -> None:
    answer = run(entered(addTags=[{"tags": {"a": "1"}}]), a=resource)
    assert ("tags" in str(answer.desired.resources["a"].resource["spec"])) == tagged


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
        ({"addTags": [{"type": "FromNowhere"}]}, "addTags[0].type: Invalid value"),
        ({"addTags": [{"policy": "Merge"}]}, "addTags[0].policy: Invalid value"),
        ({"addTags": [{"field": "Names"}]}, "addTags[0].field: Invalid value"),
        ({"removeTags": [{"type": "FromCompositeFieldPath"}]}, "removeTags[0].fromFieldPath: Required value"),
        ({"addTags": [{"type": "FromCompositeFieldPath", "fromFieldPath": "a["}]}, "addTags[0].fromFieldPath"),
        ({"addTags": [{"type": "FromCompositeFieldPath", "fromFieldPath": "spec.number"}]}, "an object of strings"),
        ({"ignoreTags": [{"type": "FromCompositeFieldPath", "fromFieldPath": "spec.tags"}]}, "a list of strings"),
        ({"resources": ["("]}, "resources[0]: Invalid value"),
        ({"addTags": [{"tags": {"a": 1}}]}, "addTags[0].tags"),
        ({"add": []}, 'unknown field "add"'),
    ],
)
def test_an_input_that_makes_no_sense_is_refused(members: Object, problem: str) -> None:
    answer = run(entered(**members), a=bucket())
    assert answer.fatal is not None and problem in answer.fatal.message
