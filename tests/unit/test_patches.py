"""JSON patches and merge patches: their laws, their errors, and that they leave their inputs alone."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planform.apimachinery.patches import (
    MAX_OPERATIONS,
    MalformedPatch,
    PatchError,
    PatchFailed,
    PatchTooLarge,
    json_equal,
    json_patch,
    merge_diff,
    merge_patch,
)

Case = tuple[Any, Any, Any]


@pytest.mark.parametrize(
    ("doc", "patch", "expected"),
    [
        # The examples of RFC 7386, appendix A.
        ({"a": "b"}, {"a": "c"}, {"a": "c"}),
        ({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}),
        ({"a": "b"}, {"a": None}, {}),
        ({"a": "b", "b": "c"}, {"a": None}, {"b": "c"}),
        ({"a": ["b"]}, {"a": "c"}, {"a": "c"}),
        ({"a": "c"}, {"a": ["b"]}, {"a": ["b"]}),
        ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
        ({"a": [{"b": "c"}]}, {"a": [1]}, {"a": [1]}),
        (["a", "b"], ["c", "d"], ["c", "d"]),
        ({"a": "b"}, ["c"], ["c"]),
        ({"a": "foo"}, None, None),
        ({"a": "foo"}, "bar", "bar"),
        ({"e": None}, {"a": 1}, {"e": None, "a": 1}),
        ([1, 2], {"a": "b", "c": None}, {"a": "b"}),
        ({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}),
        # And what Python would get wrong.
        ({"a": 1}, {"a": True}, {"a": True}),
        ({"a": None}, {"a": {}}, {"a": {}}),
    ],
)
def test_merge_patch_follows_the_rfc(doc: Any, patch: Any, expected: Any) -> None:
    result = merge_patch(doc, patch)
    assert json_equal(result, expected)


def test_a_merge_patch_that_changes_nothing_returns_the_document_itself() -> None:
    doc = {"a": {"b": [1, {"c": 2}]}, "d": 1}
    assert merge_patch(doc, {"a": {"b": [1, {"c": 2}], "x": None}, "d": 1}) is doc
    changed = merge_patch(doc, {"d": 2})
    assert changed["a"] is doc["a"]


@pytest.mark.parametrize(
    ("doc", "operations", "expected"),
    [
        ({"a": 1}, [{"op": "add", "path": "/b", "value": 2}], {"a": 1, "b": 2}),
        ({"a": [1, 3]}, [{"op": "add", "path": "/a/1", "value": 2}], {"a": [1, 2, 3]}),
        ({"a": [1]}, [{"op": "add", "path": "/a/-", "value": 2}], {"a": [1, 2]}),
        ({"a": [1]}, [{"op": "add", "path": "/a/1", "value": 2}], {"a": [1, 2]}),
        ({"a": 1}, [{"op": "add", "path": "", "value": [2]}], [2]),
        ({"a": 1, "b": 2}, [{"op": "remove", "path": "/a"}], {"b": 2}),
        ({"a": [1, 2]}, [{"op": "remove", "path": "/a/0"}], {"a": [2]}),
        ({"a": {"b": 1}}, [{"op": "replace", "path": "/a/b", "value": None}], {"a": {"b": None}}),
        ({"a": [1]}, [{"op": "replace", "path": "/a/0", "value": 2}], {"a": [2]}),
        ({"a": 1}, [{"op": "replace", "path": "", "value": {}}], {}),
        ({"a": {"b": 1}}, [{"op": "move", "from": "/a/b", "path": "/c"}], {"a": {}, "c": 1}),
        ({"a": [1, 2, 3]}, [{"op": "move", "from": "/a/0", "path": "/a/2"}], {"a": [2, 3, 1]}),
        ({"a": {"b": 1}}, [{"op": "copy", "from": "/a", "path": "/c"}], {"a": {"b": 1}, "c": {"b": 1}}),
        ({"a/b": {"m~n": 1}}, [{"op": "replace", "path": "/a~1b/m~0n", "value": 2}], {"a/b": {"m~n": 2}}),
        ({"~1": 1}, [{"op": "remove", "path": "/~01"}], {}),
        ({"": 1}, [{"op": "remove", "path": "/"}], {}),
        ({"0": 1}, [{"op": "replace", "path": "/0", "value": 2}], {"0": 2}),
        ({"a": 1.0}, [{"op": "test", "path": "/a", "value": 1}], {"a": 1.0}),
        ({"a": 1}, [{"op": "test", "path": "", "value": {"a": 1}}], {"a": 1}),
        ({}, [{"op": "test", "path": "/a", "value": None}], {}),
        ({}, [], {}),
    ],
)
def test_json_patch_operations(doc: Any, operations: list[Any], expected: Any) -> None:
    before = copy.deepcopy((doc, operations))
    assert json_equal(json_patch(doc, operations), expected)
    assert (doc, operations) == before


@pytest.mark.parametrize(
    ("doc", "operation", "message"),
    [
        ({}, {"op": "remove", "path": "/a"}, '"/a" does not exist'),
        ({}, {"op": "replace", "path": "/a", "value": 1}, '"/a" does not exist'),
        ({}, {"op": "add", "path": "/a/b", "value": 1}, '"/a" does not exist'),
        ({"a": 1}, {"op": "add", "path": "/a/b", "value": 1}, '"/a" is neither an object nor a list'),
        ({"a": [1]}, {"op": "add", "path": "/a/2", "value": 1}, '"/a/2" does not exist, the list has 1 elements'),
        ({"a": [1]}, {"op": "remove", "path": "/a/1"}, '"/a/1" does not exist, the list has 1 elements'),
        ({"a": [1]}, {"op": "remove", "path": "/a/-"}, "\"/a/-\": '-' is not an index"),
        ({"a": [1]}, {"op": "remove", "path": "/a/-1"}, "\"/a/-1\": '-1' is not an index"),
        ({"a": [1, 2]}, {"op": "remove", "path": "/a/01"}, "\"/a/01\": '01' is not an index"),
        ({"a": 1}, {"op": "test", "path": "/a", "value": 2}, 'test of "/a" failed'),
        ({"a": 1}, {"op": "test", "path": "/a", "value": True}, 'test of "/a" failed'),
        ({"a": {}}, {"op": "move", "from": "/a", "path": "/a/b"}, 'cannot move "/a" into itself'),
        ({}, {"op": "copy", "from": "/x", "path": "/a"}, '"/x" does not exist'),
        ({}, {"op": "remove", "path": ""}, "cannot remove the whole document"),
        ({}, {"op": "add", "path": "a", "value": 1}, "'a' is not a JSON pointer"),
        ({}, {"op": "add", "path": "/~2", "value": 1}, "'/~2' is not a JSON pointer"),
        ({}, {"op": "add", "path": "/a"}, "'value' is missing"),
        ({}, {"op": "add", "value": 1}, "'path' is missing or not a string"),
        ({}, {"op": "move", "path": "/a"}, "'from' is missing or not a string"),
        ({}, {"op": "frob", "path": "/a"}, "unknown operation 'frob'"),
    ],
)
def test_an_operation_that_cannot_be_done_fails_the_patch(doc: Any, operation: Any, message: str) -> None:
    with pytest.raises(PatchFailed) as caught:
        json_patch(doc, [{"op": "test", "path": "", "value": doc}, operation])
    assert str(caught.value) == f"operation 1: {message}"
    assert caught.value.code == 422


@pytest.mark.parametrize("patch", [{}, "x", None, [1], [{"op": "test", "path": "", "value": {}}, []]])
def test_what_is_no_json_patch_is_malformed(patch: Any) -> None:
    with pytest.raises(MalformedPatch) as caught:
        json_patch({}, patch)
    assert caught.value.code == 400


def test_a_chain_of_copies_cannot_blow_up_the_document() -> None:
    doubling = [{"op": "copy", "from": "", "path": f"/x{index}"} for index in range(60)]
    with pytest.raises(PatchTooLarge):
        json_patch({"a": "b"}, doubling)
    with pytest.raises(PatchTooLarge):
        json_patch({}, [{"op": "add", "path": "/a", "value": 1}] * (MAX_OPERATIONS + 1))


def test_a_copied_part_and_its_original_change_independently() -> None:
    operations = [
        {"op": "add", "path": "/a/x", "value": 1},
        {"op": "copy", "from": "/a", "path": "/b"},
        {"op": "add", "path": "/a/y", "value": 2},
        {"op": "add", "path": "/b/z", "value": 3},
    ]
    assert json_patch({"a": {}}, operations) == {"a": {"x": 1, "y": 2}, "b": {"x": 1, "z": 3}}


def test_a_value_added_twice_by_one_object_changes_in_one_place_only() -> None:
    value: dict[str, Any] = {}
    operations = [
        {"op": "add", "path": "/a", "value": value},
        {"op": "add", "path": "/b", "value": value},
        {"op": "add", "path": "/a/x", "value": 1},
    ]
    assert json_patch({}, operations) == {"a": {"x": 1}, "b": {}}
    assert value == {}


def test_a_json_patch_shares_what_it_does_not_change() -> None:
    doc: dict[str, Any] = {"a": {"deep": [1]}, "b": {}}
    result = json_patch(doc, [{"op": "add", "path": "/b/x", "value": 1}])
    assert result["a"] is doc["a"]
    assert doc["b"] == {}


SCALARS = st.one_of(st.booleans(), st.integers(), st.text(max_size=3), st.floats(allow_nan=False, allow_infinity=False))
KEYS = st.text(alphabet="abc~/", max_size=2)


def _values(leaves: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.recursive(
        leaves,
        lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(KEYS, inner, max_size=4)),
        max_leaves=12,
    )


JSON = _values(st.one_of(st.none(), SCALARS))
NULL_FREE = _values(SCALARS)


@given(NULL_FREE, NULL_FREE)
def test_the_diff_of_two_documents_leads_from_one_to_the_other(old: Any, new: Any) -> None:
    before = copy.deepcopy((old, new))
    assert json_equal(merge_patch(old, merge_diff(old, new)), new)
    assert (old, new) == before


@given(st.dictionaries(KEYS, JSON), st.dictionaries(KEYS, JSON))
def test_a_merge_patch_applied_twice_is_applied_once(doc: Any, patch: Any) -> None:
    before = copy.deepcopy((doc, patch))
    once = merge_patch(doc, patch)
    assert merge_patch(once, patch) is once
    assert (doc, patch) == before


@given(JSON)
def test_a_document_does_not_differ_from_itself(doc: Any) -> None:
    assert json_equal(merge_diff(doc, copy.deepcopy(doc)), {} if isinstance(doc, dict) else doc)


def _pointers(value: Any, prefix: str = "") -> list[str]:
    found = [prefix]
    if isinstance(value, dict):
        for key, child in value.items():
            found += _pointers(child, f"{prefix}/{key.replace('~', '~0').replace('/', '~1')}")
    elif isinstance(value, list):
        for index, child in enumerate(value):
            found += _pointers(child, f"{prefix}/{index}")
    return found


@given(st.data(), JSON, JSON)
def test_replacing_then_testing_holds_and_replacing_back_restores(data: st.DataObject, doc: Any, value: Any) -> None:
    path = data.draw(st.sampled_from(_pointers(doc)))
    before = copy.deepcopy(doc)
    changed = json_patch(
        doc, [{"op": "replace", "path": path, "value": value}, {"op": "test", "path": path, "value": value}]
    )
    assert json_equal(doc, before)
    restored = json_patch(changed, [{"op": "replace", "path": path, "value": _at(doc, path)}])
    assert json_equal(restored, before)


def _at(doc: Any, path: str) -> Any:
    for token in path.split("/")[1:]:
        key = token.replace("~1", "/").replace("~0", "~")
        doc = doc[int(key)] if isinstance(doc, list) else doc[key]
    return doc


OPERATIONS = st.fixed_dictionaries(
    {
        "op": st.sampled_from(["add", "remove", "replace", "move", "copy", "test"]),
        "path": st.sampled_from(["", "/a", "/b", "/a/b", "/a/0", "/a/-", "/b/a/c", "/c"]),
        "from": st.sampled_from(["", "/a", "/b", "/a/b", "/a/0", "/c"]),
        "value": JSON,
    }
)


@given(st.dictionaries(st.sampled_from("abc"), JSON), st.lists(OPERATIONS, max_size=8))
def test_no_patch_ever_changes_its_inputs(doc: Any, operations: list[Any]) -> None:
    before = copy.deepcopy((doc, operations))
    try:
        json_patch(doc, operations)
    except PatchError:
        pass
    assert (doc, operations) == before


@given(st.dictionaries(st.sampled_from("abc"), JSON), st.lists(OPERATIONS, max_size=8))
def test_applying_operations_together_is_applying_them_one_by_one(doc: Any, operations: list[Any]) -> None:
    def one_by_one() -> Any:
        here = doc
        for operation in operations:
            here = json_patch(copy.deepcopy(here), [operation])
        return here

    try:
        expected = one_by_one()
    except PatchError:
        with pytest.raises(PatchError):
            json_patch(doc, operations)
    else:
        assert json_equal(json_patch(doc, operations), expected)
