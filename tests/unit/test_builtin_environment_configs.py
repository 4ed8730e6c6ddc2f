"""environment-configs: what it asks for, what it chooses, and which layer of the environment wins."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest

from planform.builtin.environment_configs import function
from planform.functions.values import FunctionRequest, FunctionResponse, Object, Resource, ResourceSelector, State

KEY = "apiextensions.crossplane.io/environment"
TYPE = {"apiVersion": "internal.crossplane.io/v1alpha1", "kind": "Environment"}
API_VERSION, KIND = "apiextensions.crossplane.io/v1beta1", "EnvironmentConfig"
XR: Object = {"metadata": {"name": "xr", "labels": {"stage": "prod"}}, "spec": {"size": 3}}


def spec(*entries: Object, **more: Any) -> Object:
    return {
        "apiVersion": "environmentconfigs.fn.crossplane.io/v1beta1",
        "kind": "Input",
        "spec": {"environmentConfigs": list(entries), **more},
    }


def ref(name: str, **more: Any) -> Object:
    return {"type": "Reference", "ref": {"name": name}, **more}


def select(*labels: Object, to: str | None = None, **more: Any) -> Object:
    entry: Object = {"type": "Selector", "selector": {"matchLabels": list(labels), **more}}
    return entry if to is None else {**entry, "toFieldPath": to}


def config(name: str, **data: Any) -> Resource:
    return Resource({"apiVersion": API_VERSION, "kind": KIND, "metadata": {"name": name}, "data": data})


STAGE: Object = {"key": "stage", "valueFromFieldPath": "metadata.labels[stage]"}
FIXED: Object = {"key": "tier", "type": "Value", "value": "gold"}


def run(
    entered: Object | None, *found: list[Resource], context: Object | None = None, asked: bool = True
) -> FunctionResponse:
    required = {f"environment-config-{index}": each for index, each in enumerate(found)}
    return function(
        FunctionRequest(
            observed=State(Resource(XR)),
            input=entered,
            context=context or {},
            required_resources=required if asked else {},
        )
    )


def environment(response: FunctionResponse) -> Object:
    assert response.fatal is None, response.fatal
    found: Object = response.context[KEY]
    return {key: value for key, value in found.items() if key not in TYPE}


def fatal(response: FunctionResponse) -> str:
    assert response.fatal is not None
    return response.fatal.message


def test_a_first_call_asks_and_changes_nothing() -> None:
    response = run(spec(ref("one"), select(STAGE, FIXED)), context={KEY: {"a": 1}})
    assert response.requirements.resources == {
        "environment-config-0": ResourceSelector(API_VERSION, KIND, match_name="one"),
        "environment-config-1": ResourceSelector(API_VERSION, KIND, match_labels={"stage": "prod", "tier": "gold"}),
    }
    assert response.context == {KEY: {"a": 1}}
    assert response.results == []


def test_requirements_are_repeated_when_they_are_met() -> None:
    entered = spec(ref("one"))
    assert run(entered, [config("one")]).requirements == run(entered).requirements


def test_configs_win_over_the_incoming_environment_and_that_over_default_data() -> None:
    defaults = {"x": "default", "y": "default", "z": "default", "deep": {"d": 1}}
    incoming = {"x": "incoming", "y": "incoming", "deep": {"i": 1}}
    entered = spec(ref("one"), ref("two"), defaultData=defaults)
    one, two = config("one", x="one", deep={"one": 1}, list=[1]), config("two", x="two", deep={"two": 2}, list=[2])
    response = run(entered, [one], [two], context={KEY: incoming})
    assert environment(response) == {
        "x": "two",
        "y": "incoming",
        "z": "default",
        "deep": {"d": 1, "i": 1, "one": 1, "two": 2},
        "list": [2],
    }


def test_default_data_applies_without_any_config() -> None:
    assert environment(run(spec(defaultData={"a": 1, "n": None}))) == {"a": 1, "n": None}


def test_the_environment_gets_a_type_only_if_it_has_none() -> None:
    assert run(spec(ref("one")), [config("one")]).context[KEY] == TYPE
    own = {"apiVersion": "acme.org/v1", "kind": "Mine"}
    assert run(spec(ref("one")), [config("one")], context={KEY: own}).context[KEY] == own


def test_data_goes_under_a_path_and_overlapping_paths_merge_in_the_order_of_the_list() -> None:
    entered = spec(ref("one", toFieldPath="a.b"), ref("two", toFieldPath="a"), ref("three", toFieldPath="a.b"))
    one, two, three = config("one", x=1, y=1), config("two", b={"x": 2}), config("three", z=3)
    assert environment(run(entered, [one], [two], [three])) == {"a": {"b": {"x": 2, "y": 1, "z": 3}}}


def test_nothing_that_was_received_is_changed() -> None:
    context, one = {KEY: {"deep": {"x": 1}}}, config("one", deep={"y": 2})
    before = deepcopy((context, one))
    assert environment(run(spec(ref("one")), [one], context=context)) == {"deep": {"x": 1, "y": 2}}
    assert (context, one) == before


def test_a_config_that_is_not_found_is_fatal_unless_it_is_optional() -> None:
    assert fatal(run(spec(ref("one")), [])) == (
        "cannot get selected environment configs: cannot process environment config "
        '"one" by reference, "environment-config-0": Required environment config "one" not found'
    )
    optional = spec(ref("one"), ref("two"), policy={"resolution": "Optional"})
    assert environment(run(optional, [], [config("two", a=1)])) == {"a": 1}


@pytest.mark.parametrize(("count", "ok"), [(0, False), (1, True), (2, False)])
def test_a_single_selector_needs_exactly_one_match(count: int, ok: bool) -> None:
    response = run(spec(select(STAGE)), [config(f"c{index}", a=index) for index in range(count)])
    if ok:
        assert environment(response) == {"a": 0}
    else:
        assert fatal(response).endswith(f"by selector: expected exactly one required resource, got {count}")


def merged_order(*found: Resource, **selector: Any) -> list[str]:
    """The names in the order in which they were merged, by what the last of several keys holds."""
    response = run(spec(select(STAGE, mode="Multiple", **selector)), list(found))
    return list(environment(response))


def test_many_matches_are_sorted_by_name_or_by_a_path_and_cut() -> None:
    found = [config("b", b=1, p=2), config("c", c=1), config("a", a=1, p=10)]
    assert merged_order(*found) == ["a", "p", "b", "c"]
    assert merged_order(*found, sortByFieldPath="data.p") == ["c", "b", "p", "a"]
    assert merged_order(*found, maxMatch=1) == ["a", "p"]
    assert merged_order(*found, minMatch=3, maxMatch=3) == ["a", "p", "b", "c"]


def test_values_to_sort_by_must_be_of_one_kind() -> None:
    mixed = [config("a", p=1), config("b", p="x")]
    response = run(spec(select(STAGE, mode="Multiple", sortByFieldPath="data.p")), mixed)
    assert fatal(response).endswith('cannot sort values of different types "number" and "string"')
    objects = [config("a", p={}), config("b", p={})]
    response = run(spec(select(STAGE, mode="Multiple", sortByFieldPath="data.p")), objects)
    assert fatal(response).endswith('unsupported type "map" for sorting')


def test_too_few_matches_are_fatal() -> None:
    response = run(spec(select(STAGE, mode="Multiple", minMatch=2)), [config("a")])
    assert fatal(response).endswith("expected at least 2 required resources, got 1")


def test_a_label_from_a_missing_field_is_dropped_if_optional_and_fatal_if_not() -> None:
    missing = {"key": "zone", "valueFromFieldPath": "spec.zone"}
    optional = {**missing, "fromFieldPathPolicy": "Optional"}
    assert run(spec(select(STAGE, optional))).requirements.resources["environment-config-0"].match_labels == {
        "stage": "prod"
    }
    assert fatal(run(spec(select(STAGE, missing)))) == (
        'cannot build requirements: cannot get value from field path "spec.zone": spec.zone: no such field'
    )


def test_a_label_may_come_from_the_environment() -> None:
    label = {"key": "zone", "type": "FromEnvironmentFieldPath", "valueFromFieldPath": "zone"}
    response = run(spec(select(label)), context={KEY: {"zone": "a"}})
    assert response.requirements.resources["environment-config-0"].match_labels == {"zone": "a"}


def test_a_selector_that_is_left_without_labels_is_dropped() -> None:
    optional = {"key": "zone", "valueFromFieldPath": "spec.zone", "fromFieldPathPolicy": "Optional"}
    response = run(spec(select(optional), defaultData={"a": 1}))
    assert response.requirements.resources == {}
    assert environment(response) == {"a": 1}


def test_a_label_needs_a_text() -> None:
    number = {"key": "size", "valueFromFieldPath": "spec.size"}
    assert fatal(run(spec(select(number)))).endswith("spec.size: not a string")


@pytest.mark.parametrize(
    ("entry", "problem"),
    [
        ({"type": "Reference"}, "spec.environmentConfigs[0].ref: Required value"),
        ({"type": "Selector"}, "spec.environmentConfigs[0].selector: Required value"),
        (select({"key": "a", "type": "Value"}), "selector.matchLabels[0].value: Required value"),
        (select({"key": "a"}), "selector.matchLabels[0].valueFromFieldPath: Required value"),
        (select(STAGE, minMatch=-1), "selector.minMatch: expected a whole number >= 0"),
        (ref("x", into="y"), 'object contains unknown field "into"'),
    ],
)
def test_a_wrong_entry_is_fatal(entry: Object, problem: str) -> None:
    assert problem in fatal(run(spec(entry)))


@pytest.mark.parametrize(
    ("entry", "problem"),
    [
        (select(STAGE, mode="Many"), 'unknown selector mode "Many"'),
        (select(STAGE, mode="Multiple", sortByFieldPath="a["), "cannot parse path"),
        (select(STAGE, mode="Multiple", sortByFieldPath=""), "cannot sort by empty field path"),
        (ref("x", toFieldPath="a["), 'cannot get data from environment config one into path "a["'),
    ],
)
def test_what_is_wrong_with_an_entry_counts_when_it_is_needed(entry: Object, problem: str) -> None:
    assert run(spec(entry), asked=False).fatal is None
    assert problem in fatal(run(spec(entry), [config("one")]))


def test_an_entry_that_cannot_be_meant_is_a_warning() -> None:
    assert [each.message for each in run(spec({"type": "Other"})).results] == [
        'spec.environmentConfigs[0].type: "Other" is neither Reference nor Selector, so that the entry does nothing'
    ]


def test_no_input_is_fatal_and_any_kind_of_input_is_read() -> None:
    assert "the step has no input" in fatal(run(None))
    other = {**spec(ref("one")), "apiVersion": "example.org/v1", "kind": "Other"}
    assert environment(run(other, [config("one", a=1)])) == {"a": 1}


def test_the_selectors_of_the_design_are_read_too() -> None:
    entered = {
        "apiVersion": "extra.fn.crossplane.io/v1beta1",
        "kind": "ExtraResourceSelectors",
        "extraResourceSelectors": {"environmentConfigs": [ref("one"), select(STAGE, mode="Multiple")]},
    }
    assert list(run(entered).requirements.resources) == ["environment-config-0", "environment-config-1"]
    assert environment(run(entered, [config("one", a=1)], [config("two", b=2)])) == {"a": 1, "b": 2}
    wrong = {**entered, "extraResourceSelectors": {"environmentConfigs": [{}]}}
    assert "extraResourceSelectors.environmentConfigs[0].ref: Required value" in fatal(run(wrong))
