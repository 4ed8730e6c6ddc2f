"""Laws of server-side apply that hold for every object, configuration and order of writes."""

from __future__ import annotations

import copy
from typing import Any

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from planform.apimachinery import apply as ssa
from planform.apimachinery import managed_fields as mf
from planform.apimachinery.ownership import applied, changed, created
from planform.apimachinery.typed import UNTRACKED_FIELDS, TypeNode, compile_type
from planform.errors import ApplyConflict

Object = dict[str, Any]
VERSION = "example.org/v1"
TEXT = {"type": "string"}
ITEM = {
    "type": "object",
    "properties": {
        "name": TEXT,
        "v": TEXT,
        "tags": {"type": "array", "x-kubernetes-list-type": "set", "items": TEXT},
    },
}
MAP_LIST = {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"], "items": ITEM}
FIELDS: dict[str, Any] = {
    "text": TEXT,
    "struct": {"type": "object", "properties": {"x": TEXT, "y": TEXT}},
    "map": {"type": "object", "additionalProperties": {"type": "object", "properties": {"x": TEXT}}},
    "atomMap": {"type": "object", "x-kubernetes-map-type": "atomic"},
    "atom": {"type": "array", "items": TEXT},
    "set": {"type": "array", "x-kubernetes-list-type": "set", "items": TEXT},
    "list": MAP_LIST,
    "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
}
NODE = compile_type({"type": "object", "properties": {"spec": {"type": "object", "properties": FIELDS}}})

law = settings(deadline=None)  # a busy machine breaks no law

words = st.sampled_from(["1", "2", "3"])
names = st.sampled_from(["p", "q", "r"])
structs = st.fixed_dictionaries({}, optional={"x": words, "y": words})
sets = st.lists(names, unique=True, max_size=3)
items = st.fixed_dictionaries({"name": names}, optional={"v": words, "tags": sets})
anything = st.recursive(
    st.one_of(words, st.none(), st.booleans(), st.integers(0, 1), st.lists(words, max_size=2)),
    lambda below: st.dictionaries(names, below, max_size=2),
    max_leaves=4,
)
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "text": words,
    "struct": structs,
    "map": st.dictionaries(names, st.fixed_dictionaries({}, optional={"x": words}), max_size=2),
    "atomMap": st.dictionaries(names, words, max_size=2),
    "atom": st.lists(words, max_size=2),
    "set": sets,
    "list": st.lists(items, unique_by=lambda item: item["name"], max_size=3),
    "free": st.dictionaries(names, anything, max_size=2),
}


def widget(spec: Object, labels: Object | None = None) -> Object:
    metadata: Object = {"name": "w", "labels": labels} if labels else {"name": "w"}
    return {"apiVersion": VERSION, "kind": "Widget", "metadata": metadata, "spec": spec}


def widgets(*fields: str) -> st.SearchStrategy[Object]:
    specs = st.fixed_dictionaries({}, optional={name: VALUES[name] for name in fields or VALUES})
    return st.builds(widget, specs, st.dictionaries(names, words, max_size=2))


def claiming(*fields: str) -> st.SearchStrategy[Object]:
    """Configurations that claim something: an empty set or map list alone is nobody's, and leaves no owner behind."""
    return widgets(*fields).filter(lambda config: bool(tracked(applied(NODE, config))))


def apply(live: Object | None, config: Object, manager: str, *, now: str = "t0", force: bool = False) -> Object:
    before = copy.deepcopy((live, config))
    result = ssa.apply(live, config, node=NODE, manager=manager, api_version=VERSION, now=now, force=force)
    assert (live, config) == before, "an input was changed"
    return result


def update(live: Object | None, new: Object, manager: str, *, now: str = "t0") -> Object:
    before = copy.deepcopy((live, new))
    entries = ssa.track_update(live, new, node=NODE, manager=manager, api_version=VERSION, now=now)
    assert (live, new) == before, "an input was changed"
    return new | {"metadata": new["metadata"] | {"managedFields": entries}}


def entries(obj: Object) -> list[Object]:
    found: list[Object] = obj["metadata"].get("managedFields", [])
    return found


def owned(obj: Object, manager: str) -> mf.Fields:
    result: mf.Fields = {}
    for entry in entries(obj):
        if entry["manager"] == manager:
            result = mf.union(result, entry["fieldsV1"])
    return result


def bare(obj: Object) -> Object:
    return obj | {"metadata": {name: obj["metadata"][name] for name in obj["metadata"] if name != "managedFields"}}


def tracked(fields: mf.Fields | None) -> mf.Fields:
    return mf.difference(fields or {}, UNTRACKED_FIELDS)


def leaves(node: TypeNode, value: Any, path: str = "") -> list[str]:
    """Every place that holds a value of its own, as conflicts print it."""
    if type(value) is dict and node.granular and value:
        return [leaf for name in value for leaf in leaves(node.child(name), value[name], f"{path}.{name}")]
    if type(value) is list and node.associative and value:
        if not node.keys:
            return [f'{path}[="{item}"]' for item in value]
        return [leaf for item in value for leaf in leaves(node.item, item, f'{path}[name="{item["name"]}"]')]
    return [path]


@law
@given(st.one_of(st.none(), widgets()), claiming())
def test_applying_twice_is_applying_once(start: Object | None, config: Object) -> None:
    live = update(None, start, "u") if start is not None else None
    once = apply(live, config, "a", force=True)
    assert apply(once, config, "a", now="t1") == once
    assert apply(once, config, "a", now="t1", force=True) == once


@law
@given(claiming("text", "struct", "list", "free"), widgets("map", "atomMap", "atom", "set"))
def test_an_empty_apply_restores_what_was_there_before_its_only_manager_came(base: Object, config: Object) -> None:
    config["metadata"].pop("labels", None)
    assume(config["spec"].get("set") != [])  # nobody owns it, so nobody can take it back
    live = apply(None, base, "b")
    gone = apply(apply(live, config, "a"), widget({}), "a")
    without_claim = apply(live, widget({}), "a")  # the empty spec that was sent is still claimed
    assert gone == without_claim
    assert bare(gone) == bare(live)


@law
@given(widgets(), widgets())
def test_force_transfers_ownership(first: Object, second: Object) -> None:
    live = apply(None, first, "a")
    forced = apply(live, second, "b", force=True)
    written, _ = changed(NODE, live, forced)
    assert mf.intersection(owned(forced, "a"), tracked(written)) == {}
    assert owned(forced, "b") == tracked(applied(NODE, second))
    # What b wanted is what is there: applying it again over nothing of its own changes nothing.
    assert bare(apply(bare(forced), second, "c", force=True)) == bare(forced)


@law
@given(claiming("text", "struct", "list", "free"), claiming("map", "atomMap", "atom", "set"))
def test_disjoint_applies_commute(first: Object, second: Object) -> None:
    second["metadata"].pop("labels", None)
    assume(tracked(applied(NODE, second)))
    one_way = apply(apply(None, first, "a"), second, "b")
    other_way = apply(apply(None, second, "b"), first, "a")
    assert one_way == other_way


@law
@given(widgets(), widgets())
def test_an_unchanged_object_keeps_its_owners(start: Object, config: Object) -> None:
    live = apply(update(None, start, "u"), config, "a", force=True)
    assert entries(update(live, live, "v", now="t1")) == entries(live)
    assert entries(update(live, bare(live), "v", now="t1")) == entries(live)


@law
@given(widgets())
def test_every_leaf_of_a_created_object_has_an_owner(obj: Object) -> None:
    fields = owned(update(None, obj, "u"), "u")
    expected = {leaf for leaf in leaves(NODE, obj) if leaf not in (".apiVersion", ".kind", ".metadata.name")}
    assert expected <= set(mf.paths(fields))


@law
@given(st.lists(st.tuples(widgets(), st.sampled_from("uvw")), min_size=1, max_size=5))
def test_updates_share_out_exactly_what_is_there(writes: list[tuple[Object, str]]) -> None:
    live: Object | None = None
    for number, (new, manager) in enumerate(writes):
        live = update(live, new, manager, now=f"t{number}")
        everyone: mf.Fields = {}
        for entry in entries(live):
            assert mf.intersection(everyone, entry["fieldsV1"]) == {}, "two updaters own one field"
            everyone = mf.union(everyone, entry["fieldsV1"])
        assert everyone == tracked(created(NODE, bare(live)))
        if not entries(live):
            return  # an object without owners is untracked from then on


@law
@given(widgets(), widgets(), widgets())
def test_a_conflict_names_fields_that_force_would_take(first: Object, second: Object, third: Object) -> None:
    live = update(apply(None, first, "a"), bare(second), "u", now="t1")
    assume(live["metadata"].get("managedFields"))  # of an object that nobody owns anything of, nothing is tracked
    forced = apply(live, third, "b", force=True)
    lost = mf.difference(mf.union(owned(live, "a"), owned(live, "u")), mf.union(owned(forced, "a"), owned(forced, "u")))
    try:
        peaceful = apply(live, third, "b")
    except ApplyConflict as conflict:
        assert {cause["field"] for cause in conflict.causes} <= set(mf.paths(lost))
    else:
        assert peaceful == forced
