"""Patches: where they read and write, what they do with what is there, and what happens when something is missing."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planform.builtin.patch_and_transform.merging import POLICIES
from planform.functions.values import Object, Ready, Resource
from tests.unit.composing import (
    BASE,
    fatal,
    patched,
    rendered,
    resources,
    run,
    template,
    warnings,
)

ENVIRONMENT = "apiextensions.crossplane.io/environment"
OBSERVED = {**BASE, "metadata": {"name": "thing-1"}, "status": {"a": "composed", "b": 2}}


def combine(kind: str, *paths: str, fmt: str = "%v-%v", to: str = "spec.to", **more: Any) -> Object:
    variables = [{"fromFieldPath": path} for path in paths]
    spec = {"variables": variables, "strategy": "string", "string": {"fmt": fmt}}
    return {"type": kind, "combine": spec, "toFieldPath": to, **more}


def copy(kind: str, source: str, to: str | None = "spec.to", **more: Any) -> Object:
    return {"type": kind, "fromFieldPath": source, **({} if to is None else {"toFieldPath": to}), **more}


# --- where patches read and write -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("patch", "value"),
    [
        (copy("FromCompositeFieldPath", "status.a"), "composite"),
        (combine("CombineFromComposite", "status.a", "status.b"), "composite-1"),
        (copy("FromEnvironmentFieldPath", "a"), "environment"),
        (combine("CombineFromEnvironment", "a", "b"), "environment-3"),
    ],
)
@pytest.mark.parametrize("exists", [True, False])
def test_from_patches_write_the_desired_resource_whether_or_not_it_exists(
    patch: Object, value: Any, exists: bool
) -> None:
    response = run(
        resources(template(patch)),
        xr={"status": {"a": "composite", "b": 1}},
        context={ENVIRONMENT: {"a": "environment", "b": 3}},
        observed={"thing": OBSERVED} if exists else {},
    )
    assert rendered(response)["spec"] == {"to": value}


@pytest.mark.parametrize(
    ("patch", "value"),
    [
        (copy("ToCompositeFieldPath", "status.a"), "composed"),
        (combine("CombineToComposite", "status.a", "status.b"), "composed-2"),
    ],
)
def test_to_composite_patches_write_the_desired_xr_once_the_resource_exists(patch: Object, value: Any) -> None:
    spec = resources(template({**patch, "toFieldPath": "status.to"}))
    identity = {"apiVersion": "example.org/v1", "kind": "XR"}
    assert run(spec, observed={"thing": OBSERVED}).desired.composite.resource == {**identity, "status": {"to": value}}
    before = run(spec)
    assert before.desired.composite.resource == identity
    assert before.results == []


@pytest.mark.parametrize(
    ("patch", "value"),
    [
        (copy("ToEnvironmentFieldPath", "status.a", "to"), "composed"),
        (combine("CombineToEnvironment", "status.a", "status.b", to="to"), "composed-2"),
    ],
)
def test_to_environment_patches_write_the_environment_once_the_resource_exists(patch: Object, value: Any) -> None:
    spec = resources(template(patch))
    assert run(spec, observed={"thing": OBSERVED}).context[ENVIRONMENT]["to"] == value
    assert "to" not in run(spec).context[ENVIRONMENT]


@pytest.mark.parametrize(
    ("patch", "to_environment"),
    [
        (copy("FromCompositeFieldPath", "status.a", "to"), True),
        (copy("ToEnvironmentFieldPath", "status.a", "to"), True),
        (combine("CombineFromComposite", "status.a", fmt="%v", to="to"), True),
        (copy("ToCompositeFieldPath", "a", "to"), False),
        (copy("FromEnvironmentFieldPath", "a", "to"), False),
        (combine("CombineToComposite", "a", fmt="%v", to="to"), False),
    ],
)
def test_environment_patches_go_between_the_observed_xr_the_environment_and_the_desired_xr(
    patch: Object, to_environment: bool
) -> None:
    response = run(
        resources(environment={"patches": [patch]}),
        xr={"status": {"a": "composite"}},
        context={ENVIRONMENT: {"a": "environment"}},
    )
    assert response.fatal is None
    written = response.context[ENVIRONMENT] if to_environment else response.desired.composite.resource
    untouched = response.desired.composite.resource if to_environment else response.context[ENVIRONMENT]
    assert written["to"] == ("composite" if to_environment else "environment")
    assert "to" not in untouched


@pytest.mark.parametrize("kind", ["CombineFromEnvironment", "CombineToEnvironment", "PatchSet", "Nonsense"])
def test_other_patches_have_no_place_in_the_environment(kind: str) -> None:
    patch = combine(kind, "a")
    assert fatal(run(resources(environment={"patches": [patch]}))) == (
        f'invalid Function input: environment.patches[0].type: Invalid value: "{kind}": invalid environment patch type'
    )


def test_only_environment_patches_leave_composed_resources_alone() -> None:
    earlier = {"other": Resource({**BASE, "spec": {"x": 1}}, ready=Ready.TRUE)}
    spec = resources(environment={"patches": [copy("FromCompositeFieldPath", "metadata.name", "name")]})
    response = run(spec, desired=earlier)
    assert response.desired.resources == earlier
    assert response.context[ENVIRONMENT]["name"] == "xr"


def test_what_a_template_writes_to_the_environment_later_templates_read_but_not_what_it_writes_to_the_xr() -> None:
    first = template(
        copy("ToEnvironmentFieldPath", "status.a", "fromFirst"),
        copy("ToCompositeFieldPath", "status.a", "status.fromFirst"),
        name="first",
    )
    second = template(
        copy("FromEnvironmentFieldPath", "fromFirst", "spec.environment"),
        copy("FromCompositeFieldPath", "status.fromFirst", "spec.composite"),
        name="second",
    )
    response = run(resources(first, second), observed={"first": OBSERVED})
    assert rendered(response, "second") == {**BASE, "spec": {"environment": "composed"}}
    assert response.desired.composite.resource["status"] == {"fromFirst": "composed"}


def test_the_environment_is_always_passed_on_and_gets_a_type_only_if_it_has_none() -> None:
    typed = {"apiVersion": "internal.crossplane.io/v1alpha1", "kind": "Environment"}
    spec = resources(template())
    assert run(spec).context == {ENVIRONMENT: typed}
    assert run(spec, context={ENVIRONMENT: {"a": 1}, "other": 2}).context == {
        ENVIRONMENT: {"a": 1, **typed},
        "other": 2,
    }
    own = {"apiVersion": "acme.org/v1", "kind": "Mine", "a": 1}
    assert run(spec, context={ENVIRONMENT: own}).context == {ENVIRONMENT: own}
    assert run(spec, context={ENVIRONMENT: "text"}).context == {ENVIRONMENT: typed}


def test_a_path_defaults_to_where_the_value_came_from() -> None:
    response = run(resources(template(copy("FromCompositeFieldPath", "spec.x", None))), xr={"spec": {"x": 1}})
    assert rendered(response)["spec"] == {"x": 1}


def test_a_patch_set_stands_for_its_patches_in_their_place_and_order() -> None:
    sets = [
        {"name": "s", "patches": [copy("FromCompositeFieldPath", "spec.b"), copy("FromCompositeFieldPath", "spec.c")]}
    ]
    use = {"type": "PatchSet", "patchSetName": "s"}
    xr = {"spec": {"a": "a", "b": "b", "c": "c"}}
    first = copy("FromCompositeFieldPath", "spec.a")
    for patches, last in (([first, use], "c"), ([use, first], "a"), ([use, first, use], "c")):
        assert rendered(run(resources(template(*patches), patchSets=sets), xr=xr))["spec"] == {"to": last}
    failing = copy("FromCompositeFieldPath", "spec.a.x")
    assert '"FromCompositeFieldPath" patch at index 2: spec.a: not an object' in fatal(
        run(resources(template(use, failing), patchSets=sets), xr=xr)
    )


# --- what is there already --------------------------------------------------------------------------------------------

MERGES: list[tuple[Any, ...]] = [
    # existing, new, MergeObjects, MergeObjectsAppendArrays, ForceMergeObjects, ForceMergeObjectsAppendArrays
    ({"a": 1, "k": "x"}, {"a": 2, "b": 3}, *([{"a": 1, "k": "x", "b": 3}] * 2), *([{"a": 2, "k": "x", "b": 3}] * 2)),
    (
        {"a": {"x": 1, "y": 1}},
        {"a": {"x": 9, "z": 9}},
        *([{"a": {"x": 1, "y": 1, "z": 9}}] * 2),
        *([{"a": {"x": 9, "y": 1, "z": 9}}] * 2),
    ),
    ([1, 2], [2, 3], [1, 2], [1, 2, 3], [2, 3], [1, 2, 3]),
    ({"a": [1, 2]}, {"a": [2, 3]}, {"a": [1, 2]}, {"a": [1, 2, 2, 3]}, {"a": [2, 3]}, {"a": [1, 2, 2, 3]}),
    ({"a": 0, "b": False, "c": ""}, {"a": 5, "b": True, "c": "x"}, *([{"a": 5, "b": True, "c": "x"}] * 4)),
    ({"a": 5}, {"a": 0}, {"a": 5}, {"a": 5}, {"a": 0}, {"a": 0}),
    ({"a": 5}, {"a": None}, {"a": 5}, {"a": 5}, {"a": None}, {"a": None}),
    ({"a": 1}, {"a": {"b": 2}}, {"a": 1}, {"a": 1}, {"a": {"b": 2}}, {"a": {"b": 2}}),
    ({"a": "s"}, {"a": [1]}, {"a": "s"}, "error", {"a": [1]}, "error"),
    ({"a": [1]}, {"a": "s"}, {"a": [1]}, {"a": [1]}, {"a": "s"}, {"a": "s"}),
    ([1], [], [1], [1], [], [1]),
    ("old", "new", "old", "old", "new", "new"),
    ("old", None, None, None, None, None),
    ({"a": []}, {"a": [1]}, *([{"a": [1]}] * 4)),
    ([{"x": 1}], [{"x": 1}, {"x": 2}], [{"x": 1}], [{"x": 1}, {"x": 2}], [{"x": 1}, {"x": 2}], [{"x": 1}, {"x": 2}]),
    ([1], [True], [1], [1, True], [True], [1, True]),
]
COLUMNS = ["MergeObjects", "MergeObjectsAppendArrays", "ForceMergeObjects", "ForceMergeObjectsAppendArrays"]
ALIASES = {"MergeObject": "MergeObjects", "AppendArray": "ForceMergeObjectsAppendArrays"}
CELLS = [
    pytest.param(policy, row[0], row[1], row[2 + column], id=f"{policy}-{number}")
    for number, row in enumerate(MERGES)
    for column, policy in enumerate(COLUMNS)
] + [
    pytest.param(alias, row[0], row[1], row[2 + COLUMNS.index(policy)], id=f"{alias}-{number}")
    for number, row in enumerate(MERGES)
    for alias, policy in ALIASES.items()
]


@pytest.mark.parametrize(("policy", "existing", "new", "result"), CELLS)
def test_a_policy_says_which_side_wins(policy: str, existing: Any, new: Any, result: Any) -> None:
    patch: Object = {"policy": {"toFieldPath": policy}}
    if result == "error":
        full = copy("FromCompositeFieldPath", "spec.from", **patch)
        failure = fatal(
            run(resources(template(full, base={**BASE, "spec": {"to": existing}})), xr={"spec": {"from": new}})
        )
        assert failure == (
            'cannot render composed resource "thing" "FromCompositeFieldPath" patch at index 0: cannot patch to '
            "object: failed to merge values: cannot append two slices with different type ([]interface {}, string)"
        )
    else:
        assert patched(new, patch, existing) == result
        assert patched(new, patch, existing) == result, "a compiled template must not remember what it merged"


@pytest.mark.parametrize(("policy", "existing", "new", "result"), CELLS)
def test_a_policy_holds_for_each_path_that_a_wildcard_stands_for(
    policy: str, existing: Any, new: Any, result: Any
) -> None:
    patch = copy("FromCompositeFieldPath", "spec.from", "spec.all[*].to", policy={"toFieldPath": policy})
    base = {**BASE, "spec": {"all": [{"to": existing}, {"other": 1}, {"to": existing}]}}
    response = run(resources(template(patch, base=base)), xr={"spec": {"from": new}})
    if result == "error":
        assert "cannot append two slices with different type" in fatal(response)
    else:
        assert rendered(response)["spec"]["all"] == [{"to": result}, {"other": 1}, {"to": result}]


@pytest.mark.parametrize("policy", [*COLUMNS, "Replace"])
@pytest.mark.parametrize("new", [1, "x", [1], {"a": [1]}])
def test_where_nothing_is_the_new_value_is_written(policy: str, new: Any) -> None:
    assert patched(new, {"policy": {"toFieldPath": policy}}) == new


@pytest.mark.parametrize(("existing", "new"), [(row[0], row[1]) for row in MERGES])
def test_replace_replaces(existing: Any, new: Any) -> None:
    assert patched(new, {}, existing) == new
    assert patched(new, {"policy": {"toFieldPath": "Replace"}}, existing) == new


def test_nested_lists_append_what_they_have_already_so_merging_twice_is_not_merging_once() -> None:
    patch = copy("FromCompositeFieldPath", "spec.from", policy={"toFieldPath": "MergeObjectsAppendArrays"})
    xr = {"spec": {"from": {"a": [2]}}}
    base = {**BASE, "spec": {"to": {"a": [1]}}}
    assert rendered(run(resources(template(patch, patch, base=base)), xr=xr))["spec"]["to"] == {"a": [1, 2, 2]}


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=6,
)


@given(json_values, json_values, st.sampled_from(["MergeObjects", "ForceMergeObjects"]))
def test_merging_changes_neither_side_and_twice_is_once(existing: Any, new: Any, policy: str) -> None:
    merge = POLICIES[policy]
    assert merge is not None
    before = deepcopy((existing, new))
    once = merge(existing, new)
    assert (existing, new) == before
    assert merge(once, new) == once


# --- wildcards --------------------------------------------------------------------------------------------------------


def expand(target: Any, path: str = "spec.a[*].b") -> Any:
    patch = copy("FromCompositeFieldPath", "spec.from", path)
    response = run(resources(template(patch, base={**BASE, "spec": target})), xr={"spec": {"from": "new"}})
    return response.fatal.message if response.fatal else rendered(response)["spec"]


@pytest.mark.parametrize(
    ("target", "path", "result"),
    [
        ({"a": [{"b": 1}, {"c": 2}]}, "spec.a[*].b", {"a": [{"b": "new"}, {"c": 2}]}),
        (
            {"a": {"x": {"b": 1}, "y.z": {"b": 2}}},
            "spec.a[*].b",
            {"a": {"x": {"b": "new"}, "y.z": {"b": "new"}}},
        ),
        ({"a": [[1, 2], [3]]}, "spec.a[*][*]", {"a": [["new", "new"], ["new"]]}),
        ({"a": [{"b": {"c": 1}}]}, "spec.a[*].*.c", {"a": [{"b": {"c": "new"}}]}),
        ({"a": {}}, "spec.a.*", {"a": {"*": "new"}}),
        ({"a": None}, "spec.a[*].b", {"a": None}),
    ],
)
def test_a_wildcard_writes_every_path_that_exists(target: Any, path: str, result: Any) -> None:
    assert expand(target, path) == result


@pytest.mark.parametrize("target", [{"a": []}, {}, {"a": [{"c": 1}]}, {"a": {}}])
def test_a_wildcard_that_stands_for_nothing_is_fatal(target: Any) -> None:
    assert expand(target).endswith("cannot expand ToFieldPath spec.a[*].b")


def test_a_wildcard_over_a_text_is_fatal() -> None:
    assert "unexpected wildcard usage" in expand({"a": "s"})


def test_a_wildcard_over_null_counts_as_a_missing_source() -> None:
    patch = copy("FromCompositeFieldPath", "spec.from", "spec.a[*]", policy={"fromFieldPath": "Required"})
    response = run(resources(template(patch, base={**BASE, "spec": {"a": None}})), xr={"spec": {"from": 1}})
    assert response.fatal is None
    assert "not adding new composed resource" in warnings(response)[0]


def test_a_source_path_and_a_combine_patch_know_no_wildcard() -> None:
    xr = {"spec": {"l": [{"x": 1}], "*": "star"}}
    assert rendered(run(resources(template(copy("FromCompositeFieldPath", "spec.*"))), xr=xr))["spec"]["to"] == "star"
    assert "not an object" in fatal(run(resources(template(copy("FromCompositeFieldPath", "spec.l[*].x"))), xr=xr))
    patch = combine("CombineFromComposite", "spec.l[0].x", fmt="%d", to="spec.l[*]")
    failure = fatal(run(resources(template(patch, base={**BASE, "spec": {"l": [1]}})), xr=xr))
    assert failure.endswith("cannot patch to object: spec.l is not an object")


# --- paths ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "result"),
    [
        ("spec.b[2].c", {"spec": {"b": [None, None, {"c": 1}]}}),
        ("metadata.annotations[x.io/y]", {"metadata": {"annotations": {"x.io/y": 1}}}),
        ("spec.a['0']", {"spec": {"a": {"0": 1}}}),
        ("spec.a[0]b", {"spec": {"a": [{"b": 1}]}}),
    ],
)
def test_parents_are_made_on_the_way(path: str, result: Object) -> None:
    response = run(resources(template(copy("FromCompositeFieldPath", "spec.x", path))), xr={"spec": {"x": 1}})
    assert rendered(response) == {**BASE, **result}


@pytest.mark.parametrize(
    ("spec", "path", "problem"),
    [
        ({"a": None}, "spec.a.b", "spec.a is not an object"),
        ({"a": "s"}, "spec.a.b", "spec.a is not an object"),
        ({"a": {}}, "spec.a[0]", "spec.a is not an array"),
        ({}, "spec.a[1025]", "index 1025 is greater than max allowed index 1024"),
    ],
)
def test_what_is_in_the_way_is_fatal(spec: Any, path: str, problem: str) -> None:
    patch = copy("FromCompositeFieldPath", "spec.x", path)
    response = run(resources(template(patch, base={**BASE, "spec": spec})), xr={"spec": {"x": 1}})
    assert fatal(response) == (
        'cannot render composed resource "thing" "FromCompositeFieldPath" patch at index 0: cannot patch to object: '
        + problem
    )


def test_the_largest_index_is_1024() -> None:
    response = run(resources(template(copy("FromCompositeFieldPath", "spec.x", "spec.a[1024]"))), xr={"spec": {"x": 1}})
    assert rendered(response)["spec"]["a"] == [None] * 1024 + [1]


# --- missing sources --------------------------------------------------------------------------------------------------

REQUIRED = {"fromFieldPath": "Required"}
MISSING = copy("FromCompositeFieldPath", "spec.nope", policy=REQUIRED)


@pytest.mark.parametrize("patch", [copy("FromCompositeFieldPath", "spec.nope.x"), combine("CombineFromComposite", "n")])
def test_an_optional_source_that_is_missing_is_skipped(patch: Object) -> None:
    response = run(resources(template(patch)))
    assert rendered(response) == BASE
    assert response.results == []


def test_a_new_resource_that_lacks_what_it_requires_waits_and_holds_the_xr_back() -> None:
    later = copy("FromCompositeFieldPath", "metadata.name", "spec.later")
    response = run(resources(template(MISSING, later), template(name="other")))
    assert list(response.desired.resources) == ["other"]
    assert response.desired.composite.ready is Ready.FALSE
    assert warnings(response) == [
        'not adding new composed resource "thing" to desired state because "FromCompositeFieldPath" patch at index 0 '
        "has 'policy.fromFieldPath: Required': spec: no such field"
    ]


def test_a_combine_patch_requires_all_of_its_variables() -> None:
    patch = combine("CombineFromComposite", "metadata.name", "spec.nope", policy=REQUIRED)
    assert "not adding new composed resource" in warnings(run(resources(template(patch))))[0]


def test_a_resource_that_exists_is_kept_with_a_warning() -> None:
    later = copy("FromCompositeFieldPath", "metadata.name", "spec.later")
    response = run(resources(template(MISSING, later)), observed={"thing": OBSERVED})
    assert rendered(response)["spec"] == {"later": "xr"}
    assert response.desired.composite.ready is Ready.UNSPECIFIED
    assert warnings(response) == [
        'cannot render composed resource "thing" "FromCompositeFieldPath" patch at index 0: ignoring '
        "'policy.fromFieldPath: Required' because 'to' resource already exists: spec: no such field"
    ]


def test_a_required_patch_from_a_resource_that_does_not_exist_says_nothing() -> None:
    patch = copy("ToCompositeFieldPath", "status.nope", policy=REQUIRED)
    response = run(resources(template(patch)))
    assert response.results == []
    assert "thing" in response.desired.resources


def test_a_required_patch_from_a_resource_that_exists_warns() -> None:
    patch = copy("ToCompositeFieldPath", "status.nope", policy=REQUIRED)
    response = run(resources(template(patch)), observed={"thing": OBSERVED})
    assert warnings(response) == [
        'cannot render composed resource "thing" "ToCompositeFieldPath" patch at index 0: ignoring '
        "'policy.fromFieldPath: Required' because 'to' resource already exists: status.nope: no such field"
    ]


def test_an_earlier_entry_stays_when_a_template_without_base_has_to_wait() -> None:
    earlier = {"thing": Resource({**BASE, "spec": {"earlier": True}}, ready=Ready.TRUE)}
    response = run(resources(template(MISSING, base=None)), desired=earlier)
    assert response.desired.resources == earlier
    assert response.desired.composite.ready is Ready.FALSE


def test_a_required_environment_patch_is_fatal_and_an_optional_one_is_not() -> None:
    patch = copy("FromCompositeFieldPath", "spec.nope", "to")
    assert run(resources(environment={"patches": [patch]})).fatal is None
    assert fatal(run(resources(environment={"patches": [patch, {**patch, "policy": REQUIRED}]}))) == (
        'cannot apply the "FromCompositeFieldPath" environment patch at index 1: spec: no such field'
    )


def test_any_other_error_of_an_environment_patch_is_fatal() -> None:
    patch = copy("FromCompositeFieldPath", "metadata.name.x", "to")
    assert fatal(run(resources(environment={"patches": [patch]}))) == (
        'cannot apply the "FromCompositeFieldPath" environment patch at index 0: metadata.name: not an object'
    )


# --- null and numbers -------------------------------------------------------------------------------------------------


def test_a_source_that_is_null_is_written_as_null() -> None:
    assert rendered(run(resources(template(copy("FromCompositeFieldPath", "spec.x"))), xr={"spec": {"x": None}})) == {
        **BASE,
        "spec": {"to": None},
    }


def test_an_index_into_null_is_fatal_even_where_the_source_is_optional() -> None:
    response = run(resources(template(copy("FromCompositeFieldPath", "spec.x[0]"))), xr={"spec": {"x": None}})
    assert fatal(response).endswith("spec.x: not an array")


def test_a_field_of_null_counts_as_missing() -> None:
    response = run(resources(template(copy("FromCompositeFieldPath", "spec.x.y"))), xr={"spec": {"x": None}})
    assert rendered(response) == BASE


@pytest.mark.parametrize("number", [2**53 + 1, 2**63 - 1, -(2**63), 10**18])
def test_large_integers_arrive_unchanged(number: int) -> None:
    assert patched(number, {}) == number


def test_whole_numbers_arrive_as_integers_at_any_depth() -> None:
    value = patched({"a": [1.0, 1.5, {"b": 2.0}]}, {})
    assert repr(value) == "{'a': [1, 1.5, {'b': 2}]}"
    assert repr(patched(3.0, {})) == "3"


def test_a_request_is_never_changed() -> None:
    xr = {"spec": {"from": {"deep": {"list": [1]}}}}
    environment = {"env": {"list": [1]}}
    observed = {"thing": deepcopy(OBSERVED)}
    earlier = {"base": {**BASE, "spec": {"deep": {"x": 1}}}}
    desired_xr = Resource({"status": {"old": {"x": 1}}})
    before = deepcopy((xr, environment, observed, earlier, desired_xr))
    spec = resources(
        template(
            copy("FromCompositeFieldPath", "spec.from", "spec.to"),
            copy("FromCompositeFieldPath", "metadata.name", "spec.to.deep.list[1]"),
            copy("ToCompositeFieldPath", "status.a", "status.old.x"),
            copy("ToEnvironmentFieldPath", "status.a", "env.list[3]"),
        ),
        template(copy("FromCompositeFieldPath", "metadata.name", "spec.deep.x"), name="base", base=None),
    )
    response = run(
        spec,
        xr=xr,
        observed=observed,
        desired=earlier,
        desired_xr=desired_xr,
        context={ENVIRONMENT: environment},
    )
    assert response.fatal is None
    assert response.context[ENVIRONMENT]["env"] == {"list": [1, None, None, "composed"]}
    assert response.desired.composite.resource["status"] == {"old": {"x": "composed"}}
    assert rendered(response)["spec"]["to"] == {"deep": {"list": [1, "xr"]}}
    assert rendered(response, "base")["spec"] == {"deep": {"x": "xr"}}
    assert (xr, environment, observed, earlier, desired_xr) == before
