"""Sets of fields in their FieldsV1 form, and the managedFields list."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planform.apimachinery import managed_fields as mf
from planform.apimachinery.managed_fields import Fields, Holding, Owner, Owners
from planform.apimachinery.typed import compile_type

V1, V2 = "example.org/v1", "example.org/v2"

law = settings(deadline=None)  # a busy machine breaks no law

ELEMENTS = st.sampled_from(["f:a", "f:b", "f:c.d/e", 'k:{"name":"x"}', 'k:{"name":"y","port":80}', 'v:"p"', "v:1"])


def _place(below: Fields, itself: bool) -> Fields:
    return mf.with_own(below) if itself else below


def field_sets() -> st.SearchStrategy[Fields]:
    """Sets in normal form: no element without a member at or below it, `.` only beside others, keys sorted."""
    leaf: Fields = {}
    places: st.SearchStrategy[Fields] = st.recursive(
        st.just(leaf),
        lambda below: st.builds(_place, st.dictionaries(ELEMENTS, below, min_size=1, max_size=3), st.booleans()),
        max_leaves=8,
    )
    return st.dictionaries(ELEMENTS, places, max_size=3).map(mf.decode)


def members(fields: Fields, prefix: tuple[str, ...] = ()) -> set[tuple[str, ...]]:
    """The same set as plain paths, to check the algebra against Python's own."""
    found: set[tuple[str, ...]] = set()
    for element, below in fields.items():
        if element != ".":
            path = (*prefix, element)
            found |= ({path} if mf.owns_itself(below) else set()) | members(below, path)
    return found


def is_normal(fields: Fields, *, root: bool = True) -> bool:
    sound = list(fields) == sorted(fields) and not (root and "." in fields) and list(fields) != ["."]
    return sound and all(is_normal(below, root=False) for element, below in fields.items() if element != ".")


@law
@given(field_sets(), field_sets())
def test_the_algebra_is_that_of_sets_of_paths(left: Fields, right: Fields) -> None:
    for combine, plainly in (
        (mf.union, set.union),
        (mf.difference, set.difference),
        (mf.intersection, set.intersection),
    ):
        result = combine(left, right)
        assert members(result) == plainly(members(left), members(right))
        assert is_normal(result)


@law
@given(field_sets())
def test_a_set_is_told_by_its_members(fields: Fields) -> None:
    equal = copy.deepcopy(fields)
    assert mf.difference(fields, fields) == mf.difference(fields, equal) == {}
    assert mf.union(fields, fields) == mf.union(fields, equal) == fields
    assert mf.intersection(fields, fields) == mf.intersection(fields, equal) == fields


@law
@given(field_sets())
def test_decoding_undoes_encoding(fields: Fields) -> None:
    who = Owner("m", mf.UPDATE, V1, "")
    entries = mf.encode({who: Holding(fields, V1, "2026-01-01T00:00:00Z")})
    expected: Owners = {who: Holding(fields, V1, "2026-01-01T00:00:00Z")} if fields else {}
    assert mf.stored_owners(entries) == mf.written_owners(entries) == expected


@law
@given(field_sets())
def test_there_is_one_printed_path_for_each_member(fields: Fields) -> None:
    assert len(list(mf.paths(fields))) == len(members(fields))


@pytest.mark.parametrize(
    ("fields", "printed"),
    [
        ({"f:spec": {"f:a": {}, "f:m": {'k:{"name":"x"}': {"f:v": {}}}}}, [".spec.a", '.spec.m[name="x"].v']),
        ({"f:s": {'v:"p"': {}, "v:1": {}}}, ['.s[="p"]', ".s[=1]"]),
        ({"f:p": {'k:{"port":80,"protocol":"TCP"}': {}}}, ['.p[port=80,protocol="TCP"]']),
        ({"f:m": {".": {}, "f:k": {}}, "f:z": {}}, [".m", ".z", ".m.k"]),
        ({"f:l": {"i:2": {}}}, [".l[2]"]),
    ],
    ids=lambda value: str(value)[:40],
)
def test_paths_are_printed_as_conflicts_show_them(fields: Fields, printed: list[str]) -> None:
    assert list(mf.paths(fields)) == printed


@pytest.mark.parametrize(
    ("given_fields", "decoded"),
    [
        pytest.param({"f:b": {}, "f:a": {}}, {"f:a": {}, "f:b": {}}, id="sorted"),
        pytest.param({"f:a": {".": {}}}, {"f:a": {}}, id="a lone dot is the place itself"),
        pytest.param({'k:{"b": 1, "a": 2}': {}}, {'k:{"a":2,"b":1}': {}}, id="keys in one spelling"),
        pytest.param({'v: "p"': {}}, {'v:"p"': {}}, id="values in one spelling"),
        pytest.param({"z:what": {}, "f:a": {}}, {"f:a": {}}, id="unknown sorts are left out"),
    ],
)
def test_somebody_elses_set_is_brought_to_normal_form(given_fields: Any, decoded: Fields) -> None:
    result = mf.decode(given_fields)
    assert (result, list(result)) == (decoded, list(decoded))


@pytest.mark.parametrize(
    "broken", [1, None, [], {"a": {}}, {"f:a": 1}, {"k:1": {}}, {"k:{": {}}, {'i:"x"': {}}], ids=str
)
def test_what_is_not_a_set_is_refused(broken: Any) -> None:
    with pytest.raises(ValueError):
        mf.decode(broken)


def test_a_broken_entry_is_named() -> None:
    with pytest.raises(ValueError, match=r"metadata\.managedFields\[1\]: operation must be `Apply` or `Update`"):
        mf.written_owners(
            [
                {"manager": "a", "operation": "Apply", "apiVersion": V1, "fieldsType": "FieldsV1"},
                {"manager": "b", "operation": "Delete", "apiVersion": V1, "fieldsType": "FieldsV1"},
            ]
        )
    with pytest.raises(ValueError, match="must be an object"):
        mf.written_owners(["a"])


def test_a_time_without_a_value_is_left_out() -> None:
    [entry] = mf.encode({Owner("a", mf.APPLY, "", ""): Holding({"f:a": {}}, V1, "")})
    assert "time" not in entry


def updaters(count: int, version: str = V1, first: int = 0) -> Owners:
    return {
        Owner(f"u{number:02}", mf.UPDATE, version, ""): Holding({f"f:k{number:02}": {}}, version, f"t{number:02}")
        for number in range(first, first + count)
    }


def test_ten_updaters_are_left_alone_and_appliers_do_not_count() -> None:
    appliers: Owners = {
        Owner(f"a{number}", mf.APPLY, "", ""): Holding({"f:a": {}}, V1, f"t{number}") for number in range(20)
    }
    owners = updaters(10) | appliers
    assert mf.fold_oldest_updaters(owners) == owners


def test_each_version_has_its_own_ancient_changes() -> None:
    folded = mf.fold_oldest_updaters(updaters(3, V1) | updaters(3, V2, first=3) | updaters(7, V1, first=6))
    ancient = {who.api_version: what for who, what in folded.items() if who.manager == mf.ANCIENT_CHANGES}
    assert ancient == {
        V1: Holding({"f:k00": {}, "f:k01": {}, "f:k02": {}}, V1, "t02"),
        V2: Holding({"f:k03": {}, "f:k04": {}}, V2, "t04"),
    }
    assert len(folded) == mf.MAX_UPDATERS


@law
@given(st.integers(0, 30), st.integers(0, 30))
def test_folding_loses_no_field_and_stops_at_the_limit(first: int, second: int) -> None:
    owners = updaters(first, V1) | updaters(second, V2, first=first)
    folded = mf.fold_oldest_updaters(owners)
    assert set().union(*(members(what.fields) for what in owners.values())) == set().union(
        *(members(what.fields) for what in folded.values())
    )
    assert len(folded) <= mf.MAX_UPDATERS


def test_declared_fields_on_the_way_are_added_and_others_are_not() -> None:
    node = compile_type(
        {
            "type": "object",
            "properties": {
                "spec": {
                    "type": "object",
                    "properties": {
                        "m": {
                            "type": "object",
                            "additionalProperties": {"type": "object", "properties": {"x": {"type": "string"}}},
                        }
                    },
                }
            },
        }
    )
    assert mf.with_declared({"f:spec": {"f:m": {"f:k": {"f:x": {}}}}}, node) == {
        "f:spec": {".": {}, "f:m": {".": {}, "f:k": {"f:x": {}}}}
    }


def test_what_became_atomic_is_owned_whole_and_the_rest_is_the_same_object() -> None:
    node = compile_type(
        {
            "type": "object",
            "properties": {
                "a": {"type": "array"},
                "m": {"type": "object", "x-kubernetes-map-type": "atomic"},
                "g": {"type": "object", "additionalProperties": {"type": "string"}},
            },
        }
    )
    fields: Fields = {"f:a": {'v:"p"': {}}, "f:g": {"f:k": {}}, "f:m": {".": {}, "f:k": {}}}
    assert mf.settled(fields, node) == {"f:a": {}, "f:g": {"f:k": {}}, "f:m": {}}
    kept: Fields = {"f:g": {".": {}, "f:k": {}}}
    assert mf.settled(kept, node) is kept
