"""extra-resources: what it asks for and what later steps find in the context."""

from __future__ import annotations

from typing import Any

import pytest

from planform.builtin.extra_resources import function
from planform.functions.values import FunctionRequest, FunctionResponse, Object, Resource, ResourceSelector, State

KEY = "apiextensions.crossplane.io/extra-resources"
XR: Object = {"metadata": {"name": "xr", "labels": {"stage": "prod"}}}
STAGE: Object = {"key": "stage", "valueFromFieldPath": "metadata.labels[stage]"}


def spec(*entries: Object, **more: Any) -> Object:
    return {
        "apiVersion": "extra-resources.fn.crossplane.io/v1beta1",
        "kind": "Input",
        "spec": {"extraResources": list(entries), **more},
    }


def entry(into: str, **more: Any) -> Object:
    return {"apiVersion": "v1", "kind": "ConfigMap", "into": into, **more}


def one(into: str = "one", **more: Any) -> Object:
    return entry(into, ref={"name": "cm"}, **more)


def many(into: str = "many", **selector: Any) -> Object:
    return entry(into, type="Selector", selector={"matchLabels": [STAGE], **selector})


def found(name: str) -> Resource:
    return Resource({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}})


def run(entered: Object | None, *, context: Object | None = None, **required: list[Resource]) -> FunctionResponse:
    return function(
        FunctionRequest(observed=State(Resource(XR)), input=entered, context=context or {}, required_resources=required)
    )


def names(response: FunctionResponse, key: str = KEY) -> dict[str, list[str]]:
    assert response.fatal is None, response.fatal
    return {into: [each["metadata"]["name"] for each in objects] for into, objects in response.context[key].items()}


def fatal(response: FunctionResponse) -> str:
    assert response.fatal is not None
    return response.fatal.message


def test_a_first_call_asks_and_leaves_the_context_alone() -> None:
    response = run(spec(one(namespace="ns"), many()), context={"other": 1})
    assert response.requirements.resources == {
        "one": ResourceSelector("v1", "ConfigMap", match_name="cm", namespace="ns"),
        "many": ResourceSelector("v1", "ConfigMap", match_labels={"stage": "prod"}),
    }
    assert response.context == {"other": 1}


def test_a_call_waits_until_everything_was_looked_for() -> None:
    assert KEY not in run(spec(one(), many()), one=[found("cm")]).context


def test_what_was_found_replaces_the_context_key() -> None:
    response = run(spec(one(), many()), context={KEY: {"old": []}}, one=[found("cm")], many=[found("b"), found("a")])
    assert names(response) == {"one": ["cm"], "many": ["a", "b"]}


def test_another_context_key_may_be_chosen_even_that_of_the_environment() -> None:
    environment = "apiextensions.crossplane.io/environment"
    response = run(spec(one(), context={"key": environment}), one=[found("cm")], context={environment: {"a": 1}})
    assert names(response, environment) == {"one": ["cm"]}
    assert KEY not in response.context


def test_a_resource_that_is_not_found_is_fatal_or_absent_if_optional() -> None:
    assert fatal(run(spec(one()), one=[])) == (
        'verifying and sorting extra resources: Required extra resource "one" not found'
    )
    assert names(run(spec(one(), policy={"resolution": "Optional"}), one=[])) == {}


def test_a_selector_that_finds_nothing_gives_an_empty_list() -> None:
    assert names(run(spec(many()), many=[])) == {"many": []}


def test_a_selector_without_labels_asks_for_nothing_and_gives_an_empty_list() -> None:
    response = run(spec(many(matchLabels=[])))
    assert response.requirements.resources == {}
    assert names(response) == {"many": []}


@pytest.mark.parametrize(
    ("bounds", "result"),
    [
        ({}, ["a", "b", "c"]),
        ({"maxMatch": 2}, ["a", "b"]),
        ({"minMatch": 3}, ["a", "b", "c"]),
        ({"minMatch": 4}, 'verifying and sorting extra resources: expected at least 4 extra resources "many", got 3'),
    ],
)
def test_bounds_of_a_selector(bounds: Object, result: Any) -> None:
    response = run(spec(many(**bounds)), many=[found("c"), found("a"), found("b")])
    assert (fatal(response) if response.fatal else names(response)["many"]) == result


@pytest.mark.parametrize(
    ("entered", "problem"),
    [
        (None, "the step has no input"),
        (spec(entry("x")), "spec.extraResources[0].ref: Required value"),
        (spec(one(toFieldPath="x")), 'unknown field "toFieldPath"'),
        (spec(many(mode="Single")), 'unknown field "mode"'),
    ],
)
def test_a_wrong_input_is_fatal(entered: Object | None, problem: str) -> None:
    assert problem in fatal(run(entered))


@pytest.mark.parametrize(
    ("entered", "mistake"),
    [
        (spec(one(), one()), 'spec.extraResources[1].into: "one" is used twice'),
        (spec({**one(), "kind": ""}), "spec.extraResources[0].kind: is missing"),
        (spec({**one(), "apiVersion": ""}), "spec.extraResources[0].apiVersion: is missing"),
        (spec(many(maxMatch=0)), "spec.extraResources[0].selector.maxMatch: 0 selects nothing"),
    ],
)
def test_what_upstream_accepts_and_nobody_can_mean_is_a_warning(entered: Object, mistake: str) -> None:
    response = run(entered)
    assert response.fatal is None
    assert [each.message.startswith(mistake) for each in response.results] == [True]


def test_nothing_asked_for_changes_nothing() -> None:
    assert run(spec(), context={KEY: {"old": []}}).context == {KEY: {"old": []}}


def test_the_context_key_may_be_empty() -> None:
    assert names(run(spec(one(), context={"key": ""}), one=[found("cm")]), "") == {"one": ["cm"]}
