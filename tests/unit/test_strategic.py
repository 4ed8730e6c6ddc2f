"""Strategic merge patches: keyed lists, plain lists, and every directive."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planform.apimachinery.patches import MalformedPatch, json_equal, merge_patch
from planform.apimachinery.strategic import strategic_merge

CONTAINER = {
    "properties": {
        "ports": {
            "x-kubernetes-patch-strategy": "merge",
            "x-kubernetes-patch-merge-key": "containerPort",
            "items": {"type": "object"},
        },
        "args": {"type": "array", "items": {"type": "string"}},
    }
}
SCHEMA: dict[str, Any] = {
    "properties": {
        "metadata": {"allOf": [{"$ref": "#/components/schemas/Meta"}]},
        "containers": {
            "type": "array",
            "x-kubernetes-patch-strategy": "merge",
            "x-kubernetes-patch-merge-key": "name",
            "items": {"$ref": "#/components/schemas/Container"},
        },
        "volumes": {
            "x-kubernetes-patch-strategy": "merge,retainKeys",
            "x-kubernetes-patch-merge-key": "name",
            "items": {"type": "object"},
        },
        "strategy": {"x-kubernetes-patch-strategy": "retainKeys", "type": "object"},
        "whole": {"x-kubernetes-patch-strategy": "replace", "type": "object"},
        "anonymous": {"x-kubernetes-patch-strategy": "merge", "items": {"type": "object"}},
        "byName": {"additionalProperties": {"$ref": "#/components/schemas/Container"}},
    }
}
REFERENCES: dict[str, dict[str, Any]] = {
    "#/components/schemas/Container": CONTAINER,
    "#/components/schemas/Meta": {
        "properties": {"finalizers": {"x-kubernetes-patch-strategy": "merge", "items": {"type": "string"}}}
    },
}


def merge(doc: dict[str, Any], patch: dict[str, Any]) -> dict[str, Any]:
    before = copy.deepcopy((doc, patch))
    result = strategic_merge(doc, patch, SCHEMA, REFERENCES.__getitem__)
    assert (doc, patch) == before
    return result


def named(*names: str) -> list[dict[str, Any]]:
    return [{"name": name} for name in names]


def finalizers(*names: str) -> dict[str, Any]:
    return {"metadata": {"finalizers": [*names]}}


Case = tuple[dict[str, Any], dict[str, Any], dict[str, Any]]
CASES: dict[str, Case] = {
    "objects merge and null deletes": ({"x": {"a": 1, "b": 2}}, {"x": {"a": None, "c": 3}}, {"x": {"b": 2, "c": 3}}),
    "null for what is absent does nothing": ({"a": 1}, {"b": None}, {"a": 1}),
    "nulls inside a new object vanish": ({}, {"x": {"a": None, "b": 1}}, {"x": {"b": 1}}),
    "lists without a strategy replace": ({"l": [1, 2]}, {"l": [3]}, {"l": [3]}),
    "an item merges by its key": (
        {"containers": [{"name": "a", "image": "1", "args": ["x"]}]},
        {"containers": [{"name": "a", "image": "2", "args": ["y"]}]},
        {"containers": [{"name": "a", "image": "2", "args": ["y"]}]},
    ),
    "keys nest through references": (
        {"containers": [{"name": "a", "ports": [{"containerPort": 80, "name": "http"}]}]},
        {"containers": [{"name": "a", "ports": [{"containerPort": 80, "protocol": "TCP"}]}]},
        {"containers": [{"name": "a", "ports": [{"containerPort": 80, "name": "http", "protocol": "TCP"}]}]},
    ),
    "values of a map have a schema too": (
        {"byName": {"x": {"ports": [{"containerPort": 1}]}}},
        {"byName": {"x": {"ports": [{"containerPort": 2}]}}},
        {"byName": {"x": {"ports": [{"containerPort": 2}, {"containerPort": 1}]}}},
    ),
    "new items go first": (
        {"containers": named("a", "b")},
        {"containers": named("c")},
        {"containers": named("c", "a", "b")},
    ),
    "known items stay where they were": (
        {"containers": named("a", "b", "c")},
        {"containers": [{"name": "b", "x": 1}]},
        {"containers": [{"name": "a"}, {"name": "b", "x": 1}, {"name": "c"}]},
    ),
    "an order moves the items it names": (
        {"containers": named("a", "b", "c")},
        {"$setElementOrder/containers": named("c", "a"), "containers": [{"name": "c", "x": 1}]},
        {"containers": [{"name": "b"}, {"name": "c", "x": 1}, {"name": "a"}]},
    ),
    "an order alone is enough": (
        {"containers": named("a", "b")},
        {"$setElementOrder/containers": named("b", "a")},
        {"containers": named("b", "a")},
    ),
    "an order of an absent list does nothing": ({}, {"$setElementOrder/containers": named("b", "a")}, {}),
    "an order decides where a new item goes": (
        {"containers": named("a", "b")},
        {"$setElementOrder/containers": named("a", "n", "b"), "containers": named("n")},
        {"containers": named("a", "n", "b")},
    ),
    "an item is deleted by its key": (
        {"containers": named("a", "b")},
        {"containers": [{"name": "a", "$patch": "delete"}], "$setElementOrder/containers": named("b")},
        {"containers": named("b")},
    ),
    "deleting an absent item does nothing": (
        {"containers": named("a")},
        {"containers": [{"name": "x", "$patch": "delete"}]},
        {"containers": named("a")},
    ),
    "a deletion never creates an item": ({}, {"containers": [{"name": "x", "$patch": "delete"}]}, {"containers": []}),
    "a list is replaced by a directive": (
        {"containers": named("a", "b")},
        {"containers": [{"$patch": "replace"}, {"name": "c"}]},
        {"containers": named("c")},
    ),
    "an object is replaced by a directive": ({"x": {"a": 1}}, {"x": {"$patch": "replace", "b": 2}}, {"x": {"b": 2}}),
    "an object is emptied by a directive": ({"x": {"a": 1}}, {"x": {"$patch": "delete"}}, {"x": {}}),
    "an object is merged by a directive": (
        {"x": {"a": 1}},
        {"x": {"$patch": "merge", "b": 2}},
        {"x": {"a": 1, "b": 2}},
    ),
    "the replace strategy replaces objects": ({"whole": {"a": 1}}, {"whole": {"b": 2}}, {"whole": {"b": 2}}),
    "retained keys drop the others": (
        {"strategy": {"type": "RollingUpdate", "rollingUpdate": {"x": 1}}},
        {"strategy": {"$retainKeys": ["type"], "type": "Recreate"}},
        {"strategy": {"type": "Recreate"}},
    ),
    "retained keys work in items": (
        {"volumes": [{"name": "v", "emptyDir": {}}]},
        {"volumes": [{"name": "v", "$retainKeys": ["name", "secret"], "secret": {"s": 1}}]},
        {"volumes": [{"name": "v", "secret": {"s": 1}}]},
    ),
    "plain values are added once, new ones first": (
        finalizers("a", "b"),
        finalizers("c", "b", "c"),
        finalizers("c", "a", "b"),
    ),
    "plain values are taken out": (
        finalizers("a", "b"),
        {"metadata": {"$deleteFromPrimitiveList/finalizers": ["a", "x"], "$setElementOrder/finalizers": ["b"]}},
        finalizers("b"),
    ),
    "taking out of an absent list does nothing": (
        {"metadata": {}},
        {"metadata": {"$deleteFromPrimitiveList/finalizers": ["a"]}},
        {"metadata": {}},
    ),
    "plain values are ordered": (
        finalizers("a", "b"),
        {"metadata": {"finalizers": ["c"], "$setElementOrder/finalizers": ["b", "c", "a"]}},
        finalizers("b", "c", "a"),
    ),
    "another kind of value replaces": (
        {"x": {"a": 1}, "containers": 3},
        {"x": 1, "containers": named("a")},
        {"x": 1, "containers": named("a")},
    ),
    "true is not 1": ({"a": 1}, {"a": True}, {"a": True}),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_strategic_merge(case: Case) -> None:
    doc, patch, expected = case
    assert json_equal(merge(doc, patch), expected)


@pytest.mark.parametrize(
    ("patch", "message"),
    [
        ({"x": {"$patch": "frob"}}, "unknown patch type 'frob'"),
        ({"containers": [{"name": "a", "$patch": "frob"}]}, "unknown patch type 'frob'"),
        ({"containers": [{"image": "a"}]}, "does not contain declared merge key: name"),
        ({"containers": [{"$patch": "delete"}]}, "does not contain declared merge key: name"),
        ({"containers": [{"name": {}}]}, "neither a text nor a number"),
        ({"containers": [{"name": "a"}, "b"]}, "list element types are not identical"),
        ({"containers": [["a"]]}, "lists of lists cannot be merged"),
        ({"anonymous": [{"a": 1}]}, "without a merge key"),
        ({"strategy": {"$retainKeys": ["a"], "b": 1}}, r"'b' is set by the patch but missing from its \$retainKeys"),
        ({"strategy": {"$retainKeys": "a"}}, r"\$retainKeys must be a list"),
        ({"$setElementOrder/containers": {}}, "must be a list"),
        ({"$setElementOrder/containers": named("a"), "containers": named("b")}, "does not match"),
        ({"$setElementOrder/containers": named("a", "b"), "containers": named("b", "a")}, "does not match"),
        ({"metadata": {"finalizers": ["a"], "$deleteFromPrimitiveList/finalizers": "a"}}, "must be a list"),
    ],
)
def test_a_patch_that_makes_no_sense_is_malformed(patch: dict[str, Any], message: str) -> None:
    with pytest.raises(MalformedPatch, match=message):
        merge({}, patch)


def test_the_patch_must_be_an_object() -> None:
    with pytest.raises(MalformedPatch):
        strategic_merge({}, [], SCHEMA)  # type: ignore[arg-type]  # the point of the test


def test_unchanged_parts_are_shared() -> None:
    doc: dict[str, Any] = {"a": {"b": 1}, "containers": [{"name": "a"}, {"name": "b"}]}
    result = merge(doc, {"containers": [{"name": "b", "x": 1}]})
    assert result["a"] is doc["a"]
    assert result["containers"][0] is doc["containers"][0]


VALUES = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.text(max_size=3)),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.sampled_from("abcd"), inner, max_size=4)),
    max_leaves=10,
)
OBJECTS = st.dictionaries(st.sampled_from("abcd"), VALUES)


@given(OBJECTS, OBJECTS)
def test_without_a_schema_it_is_a_merge_patch(doc: dict[str, Any], patch: dict[str, Any]) -> None:
    assert json_equal(strategic_merge(doc, patch, {}), merge_patch(doc, patch))


NAMES = st.lists(st.sampled_from("abcdef"), unique=True, max_size=6)


@given(NAMES, NAMES)
def test_merging_keyed_items_twice_is_merging_once_and_loses_none(old: list[str], new: list[str]) -> None:
    doc, patch = {"containers": named(*old)}, {"containers": named(*new)}
    once = merge(doc, patch)
    assert merge(once, patch) == once
    assert {item["name"] for item in once["containers"]} == {*old, *new}


@given(NAMES.flatmap(lambda names: st.tuples(st.just(names), st.permutations(names))))
def test_an_order_of_all_items_is_the_order(names: tuple[list[str], list[str]]) -> None:
    before, after = names
    result = merge({"containers": named(*before)}, {"$setElementOrder/containers": named(*after)})
    assert [item["name"] for item in result["containers"]] == after
