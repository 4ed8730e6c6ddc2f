"""What holds for every built-in, whatever it is asked: it answers, and it leaves the request alone."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from planform.builtin import find_builtin
from planform.functions.values import FunctionRequest, Object, Ready, Resource, State

# The functions whose folders this test speaks for; others bring limits and inputs of their own.
NAMES = ("auto-ready", "environment-configs", "extra-resources", "patch-and-transform", "sequencer")

WORDS = (
    *("a", "b", "spec", "status", "metadata", "name", "namespace", "labels", "conditions", "type", "Ready", "True"),
    *("replicas", "data", "from", "to", "crossplane", "writeConnectionSecretToRef", "deletionTimestamp"),
    *("loadBalancer", "ingress"),
)
words = st.sampled_from(WORDS)
scalars = st.none() | st.booleans() | st.integers(-3, 3) | st.floats(-3, 3) | words | st.text(max_size=3)
anything = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=4), max_leaves=10
)
kinds = st.sampled_from(
    [
        ("v1", "Pod"),
        ("v1", "Service"),
        ("apps/v1", "Deployment"),
        ("apps/v1", "ReplicaSet"),
        ("apps/v1", "DaemonSet"),
        ("batch/v1", "Job"),
        ("batch/v1", "CronJob"),
        ("example.org/v1", "Thing"),
    ]
)
objects = st.builds(
    lambda kind, members: {"apiVersion": kind[0], "kind": kind[1], **members},
    kinds,
    st.dictionaries(words, anything, max_size=4),
)
resources = st.builds(
    Resource, objects, st.dictionaries(words, st.binary(max_size=3), max_size=2), st.sampled_from(list(Ready))
)
paths = st.sampled_from(["a", "spec.a", "metadata.name", "status.conditions[0].type", "a[*].b", "spec.labels[a]", "a."])
patches = st.fixed_dictionaries(
    {"fromFieldPath": paths},
    optional={
        "type": st.sampled_from(
            ["FromCompositeFieldPath", "ToCompositeFieldPath", "FromEnvironmentFieldPath", "ToEnvironmentFieldPath"]
        ),
        "toFieldPath": paths,
        "policy": st.fixed_dictionaries(
            {},
            optional={
                "fromFieldPath": st.sampled_from(["Optional", "Required"]),
                "toFieldPath": st.sampled_from(["MergeObjects", "ForceMergeObjectsAppendArrays"]),
            },
        ),
        "transforms": st.lists(
            st.sampled_from(
                [
                    {"type": "string", "string": {"fmt": "%d-%s"}},
                    {"type": "math", "math": {"multiply": 2}},
                    {"type": "convert", "convert": {"toType": "float64"}},
                    {"type": "convert", "convert": {"toType": "string", "format": "json"}},
                ]
            ),
            max_size=2,
        ),
    },
)
names = st.sampled_from("abc")
inputs: dict[str, st.SearchStrategy[Object]] = {
    "patch-and-transform": st.fixed_dictionaries(
        {
            "apiVersion": st.just("pt.fn.crossplane.io/v1beta1"),
            "kind": st.just("Resources"),
            "resources": st.lists(
                st.fixed_dictionaries(
                    {"name": names, "patches": st.lists(patches, max_size=3)},
                    optional={
                        "base": objects,
                        "connectionDetails": st.just([{"name": "k", "fromFieldPath": "spec.a"}]),
                        "readinessChecks": st.just([{"type": "MatchString", "fieldPath": "a", "matchString": "x"}]),
                    },
                ),
                max_size=3,
            ),
        }
    ),
    "auto-ready": st.fixed_dictionaries(
        {"apiVersion": st.just("autoready.fn.crossplane.io/v1beta1"), "kind": st.just("Input")},
        optional={"celHealthCheckCustomizationFrom": paths},
    ),
    "environment-configs": st.fixed_dictionaries(
        {
            "apiVersion": st.just("environmentconfigs.fn.crossplane.io/v1beta1"),
            "kind": st.just("Input"),
            "spec": st.fixed_dictionaries(
                {
                    "environmentConfigs": st.just(
                        [
                            {"ref": {"name": "a"}},
                            {
                                "type": "Selector",
                                "selector": {
                                    "mode": "Multiple",
                                    "sortByFieldPath": "spec.a",
                                    "matchLabels": [{"key": "a", "type": "Value", "value": "b"}],
                                },
                            },
                        ]
                    )
                }
            ),
        }
    ),
    "extra-resources": st.fixed_dictionaries(
        {
            "apiVersion": st.just("extra-resources.fn.crossplane.io/v1beta1"),
            "kind": st.just("Input"),
            "spec": st.just({"extraResources": [{"apiVersion": "v1", "kind": "A", "into": "a", "ref": {"name": "a"}}]}),
        }
    ),
    "sequencer": st.fixed_dictionaries(
        {
            "apiVersion": st.just("sequencer.fn.crossplane.io/v1beta1"),
            "kind": st.just("Input"),
            "rules": st.lists(st.fixed_dictionaries({"sequence": st.lists(names, max_size=3)}), max_size=2),
            "enableDeletionSequencing": st.booleans(),
        }
    ),
}


def states(composites: st.SearchStrategy[Resource]) -> st.SearchStrategy[State]:
    return st.builds(State, composites, st.dictionaries(names, resources, max_size=3))


def requests(entered: st.SearchStrategy[Any]) -> st.SearchStrategy[FunctionRequest]:
    found = st.lists(resources, max_size=3)
    return st.builds(
        FunctionRequest,
        observed=states(resources),
        desired=states(resources),
        input=entered,
        context=st.dictionaries(st.just("apiextensions.crossplane.io/environment") | words, anything, max_size=2),
        required_resources=st.dictionaries(
            st.sampled_from(["a", "environment-config-0", "environment-config-1"]), found, max_size=3
        ),
        tag=st.just("tag"),
    )


def check(name: str, request: FunctionRequest) -> None:
    function = find_builtin(name)
    assert callable(function)
    before = deepcopy(request)
    response = function(request)
    assert request == before
    assert response.tag == "tag"
    if response.fatal is not None:
        assert response.desired == request.desired
        assert response.context == request.context
    again = function(deepcopy(request))
    assert again == response, "the same request has the same answer"


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_a_builtin_answers_whatever_the_objects_hold_and_changes_nothing(name: str, data: st.DataObject) -> None:
    check(name, data.draw(requests(inputs[name])))


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_a_builtin_answers_whatever_its_input_is(name: str, data: st.DataObject) -> None:
    good = data.draw(inputs[name])
    broken = {**good, data.draw(st.sampled_from(sorted(good))): data.draw(anything)}
    check(name, FunctionRequest(input=data.draw(st.none() | st.just(broken)), tag="tag"))
