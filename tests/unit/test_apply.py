"""Server-side apply and update tracking, one claim for each row and bullet of what a Kubernetes API server does."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest

from planform.apimachinery import apply as ssa
from planform.apimachinery.typed import TypedError, TypeNode, compile_type
from planform.errors import ApplyConflict

Object = dict[str, Any]

VERSION = "example.org/v1"
T0, T1, T2 = "2026-01-01T00:00:00Z", "2026-01-01T00:00:01Z", "2026-01-01T00:00:02Z"
TEXT = {"type": "string"}
NUMBER = {"type": "integer"}
WIDGET = compile_type(
    {
        "type": "object",
        "properties": {
            "spec": {
                "type": "object",
                "properties": {
                    "a": TEXT,
                    "b": TEXT,
                    "replicas": NUMBER,
                    "struct": {"type": "object", "properties": {"x": TEXT, "y": TEXT}},
                    "labels": {"type": "object", "additionalProperties": TEXT},
                    "structs": {
                        "type": "object",
                        "additionalProperties": {"type": "object", "properties": {"x": TEXT}},
                    },
                    "atomMap": {"type": "object", "x-kubernetes-map-type": "atomic", "additionalProperties": TEXT},
                    "atom": {"type": "array", "items": TEXT},
                    "set": {"type": "array", "x-kubernetes-list-type": "set", "items": TEXT},
                    "map": {
                        "type": "array",
                        "x-kubernetes-list-type": "map",
                        "x-kubernetes-list-map-keys": ["name"],
                        "items": {"type": "object", "properties": {"name": TEXT, "v": TEXT, "w": TEXT}},
                    },
                    "ports": {
                        "type": "array",
                        "x-kubernetes-list-type": "map",
                        "x-kubernetes-list-map-keys": ["port", "protocol"],
                        "items": {
                            "type": "object",
                            "properties": {
                                "port": NUMBER,
                                "protocol": {"type": "string", "default": "TCP"},
                                "name": TEXT,
                            },
                        },
                    },
                    "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
                },
            },
            "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
        },
    }
)


def widget(spec: Object | None = None, **parts: Any) -> Object:
    obj: Object = {"apiVersion": VERSION, "kind": "Widget", "metadata": {"name": "w", "namespace": "ns"}}
    if spec is not None:
        obj["spec"] = spec
    obj["metadata"] |= parts.pop("metadata", {})
    return obj | parts


def applied(
    live: Object | None, config: Object, manager: str = "a", *, now: str = T0, node: TypeNode = WIDGET, **options: Any
) -> Object:
    inputs = copy.deepcopy((live, config))
    result = ssa.apply(live, config, node=node, manager=manager, api_version=VERSION, now=now, **options)
    assert (live, config) == inputs, "an input was changed"
    return result


def updated(
    live: Object | None, new: Object, manager: str = "u", *, now: str = T0, node: TypeNode = WIDGET, **options: Any
) -> Object:
    """The object as the server would store it after a write that is not an apply."""
    inputs = copy.deepcopy((live, new))
    options = {"api_version": VERSION} | options
    entries = ssa.track_update(live, new, node=node, manager=manager, now=now, **options)
    assert (live, new) == inputs, "an input was changed"
    result = copy.deepcopy(new)
    result["metadata"].pop("managedFields", None)
    if entries:
        result["metadata"]["managedFields"] = entries
    return result


def owned(obj: Object, manager: str, *, operation: str = "Apply", subresource: str = "") -> Any:
    found = [
        item["fieldsV1"]
        for item in obj["metadata"].get("managedFields", ())
        if (item["manager"], item["operation"], item.get("subresource", "")) == (manager, operation, subresource)
    ]
    assert len(found) <= 1
    return found[0] if found else None


def spec_owned(obj: Object, manager: str, *, operation: str = "Apply") -> Any:
    return (owned(obj, manager, operation=operation) or {}).get("f:spec")


# What an apply claims


@pytest.mark.parametrize(
    ("spec", "claimed"),
    [
        pytest.param({"a": "1"}, {"f:a": {}}, id="a scalar is a leaf and its struct is nobody's"),
        pytest.param({"struct": {"x": "1"}}, {"f:struct": {"f:x": {}}}, id="a nested struct has no dot"),
        pytest.param({"struct": {}}, {"f:struct": {}}, id="an empty struct is claimed itself"),
        pytest.param({"labels": {"k": "v"}}, {"f:labels": {"f:k": {}}}, id="a granular map has no dot"),
        pytest.param({"labels": {}}, {"f:labels": {}}, id="an empty map is claimed itself"),
        pytest.param({"structs": {"k": {"x": "1"}}}, {"f:structs": {"f:k": {".": {}, "f:x": {}}}}, id="a map's values"),
        pytest.param({"atomMap": {"k": "v"}}, {"f:atomMap": {}}, id="an atomic map is one leaf"),
        pytest.param({"atom": ["p", "q"]}, {"f:atom": {}}, id="an atomic list is one leaf"),
        pytest.param({"set": ["q", "p"]}, {"f:set": {'v:"p"': {}, 'v:"q"': {}}}, id="a set is claimed by value"),
        pytest.param(
            {"map": [{"name": "x", "v": "1"}]},
            {"f:map": {'k:{"name":"x"}': {".": {}, "f:name": {}, "f:v": {}}}},
            id="an item of a map list is claimed itself",
        ),
        pytest.param(
            {"ports": [{"port": 80}]},
            {"f:ports": {'k:{"port":80,"protocol":"TCP"}': {".": {}, "f:port": {}}}},
            id="a key left out has its default",
        ),
        pytest.param(
            {"free": {"m": {"n": 1}, "l": [{"name": "x"}]}},
            {"f:free": {"f:l": {}, "f:m": {".": {}, "f:n": {}}}},
            id="unknown fields: maps granular and claimed, lists atomic",
        ),
        pytest.param({"a": None}, {"f:a": {}}, id="null is a leaf"),
        pytest.param({"map": []}, None, id="an empty map list claims nothing"),
    ],
)
def test_applying_claims_leaves(spec: Object, claimed: Any) -> None:
    assert spec_owned(applied(None, widget(spec)), "a") == claimed


def test_an_entry_says_who_how_in_which_version_when_and_what() -> None:
    assert applied(None, widget({"a": "1"}))["metadata"]["managedFields"] == [
        {
            "manager": "a",
            "operation": "Apply",
            "apiVersion": VERSION,
            "time": T0,
            "fieldsType": "FieldsV1",
            "fieldsV1": {"f:spec": {"f:a": {}}},
        }
    ]


def test_identity_and_server_metadata_are_never_tracked_but_the_rest_of_metadata_is() -> None:
    metadata = {
        "uid": "u-1",
        "resourceVersion": "7",
        "generation": 2,
        "creationTimestamp": None,
        "deletionTimestamp": T0,
        "deletionGracePeriodSeconds": 0,
        "selfLink": "/x",
        "generateName": "w-",
        "labels": {"l": "1"},
        "annotations": {"n": "1"},
        "finalizers": ["example.org/f"],
        "ownerReferences": [{"apiVersion": "v1", "kind": "ConfigMap", "name": "o", "uid": "o-1"}],
    }
    tracked: Object = {
        "f:annotations": {"f:n": {}},
        "f:finalizers": {'v:"example.org/f"': {}},
        "f:generateName": {},
        "f:labels": {"f:l": {}},
        "f:ownerReferences": {'k:{"uid":"o-1"}': {}},
    }
    assert owned(applied(None, widget(metadata=metadata)), "a") == {"f:metadata": tracked}
    dotted = {name: {".": {}, **below} if below else below for name, below in tracked.items()}
    assert owned(updated(None, widget(metadata=metadata)), "u", operation="Update") == {"f:metadata": dotted}


def test_untracked_metadata_of_the_live_object_survives_what_the_configuration_says() -> None:
    live = applied(None, widget({"a": "1"})) | {}
    live["metadata"] |= {"uid": "u-1", "resourceVersion": "7", "creationTimestamp": T0}
    result = applied(live, widget({"a": "2"}, metadata={"creationTimestamp": None}))
    assert {name: result["metadata"][name] for name in ("uid", "resourceVersion", "creationTimestamp")} == {
        "uid": "u-1",
        "resourceVersion": "7",
        "creationTimestamp": T0,
    }


# Conflicts, sharing, force


def test_a_different_value_for_fields_of_another_applier_is_a_conflict_with_one_cause_a_field() -> None:
    live = applied(None, widget({"atom": ["p"], "a": "1", "map": [{"name": "x", "v": "1"}]}))
    with pytest.raises(ApplyConflict) as conflict:
        applied(live, widget({"atom": ["q"], "a": "2", "map": [{"name": "x", "v": "2"}]}), "b")
    assert str(conflict.value) == (
        'Apply failed with 3 conflicts: conflicts with "a":\n- .spec.a\n- .spec.atom\n- .spec.map[name="x"].v'
    )
    assert list(conflict.value.causes) == [
        {"reason": "FieldManagerConflict", "message": 'conflict with "a"', "field": field}
        for field in (".spec.a", ".spec.atom", '.spec.map[name="x"].v')
    ]


def test_a_single_conflict_is_told_in_one_line() -> None:
    live = applied(None, widget({"a": "1"}))
    with pytest.raises(ApplyConflict, match=r'^Apply failed with 1 conflict: conflict with "a": \.spec\.a$'):
        applied(live, widget({"a": "2"}), "b")


def test_conflicts_with_several_managers_are_grouped_by_manager() -> None:
    live = applied(applied(None, widget({"a": "1"})), widget({"b": "1"}), "b")
    with pytest.raises(ApplyConflict) as conflict:
        applied(live, widget({"a": "2", "b": "2"}), "c")
    assert str(conflict.value) == (
        'Apply failed with 2 conflicts: conflicts with "a":\n- .spec.a\nconflicts with "b":\n- .spec.b'
    )


def test_a_conflict_with_an_updater_names_its_version() -> None:
    with pytest.raises(ApplyConflict, match=r'conflict with "u" using example\.org/v1: \.spec\.a$'):
        applied(updated(None, widget({"a": "1"})), widget({"a": "2"}))


def test_a_conflict_with_a_subresource_writer_names_the_subresource() -> None:
    live = updated(None, widget({"replicas": 1}))
    scaled = updated(live, widget({"replicas": 2}), "hpa", subresource="scale", now=T1)
    with pytest.raises(ApplyConflict, match=r'conflict with "hpa" with subresource "scale" using example\.org/v1'):
        applied(scaled, widget({"replicas": 3}))


def test_a_set_value_is_printed_with_an_equals_sign_and_never_conflicts_with_itself() -> None:
    live = applied(None, widget({"set": ["p"]}))
    both = applied(live, widget({"set": ["p", "q"]}), "b")
    assert both["spec"]["set"] == ["p", "q"]
    assert spec_owned(both, "a") == {"f:set": {'v:"p"': {}}}


def test_the_same_value_is_no_conflict_and_both_own_it() -> None:
    live = applied(applied(None, widget({"a": "1"})), widget({"a": "1"}), "b")
    assert spec_owned(live, "a") == spec_owned(live, "b") == {"f:a": {}}


def test_force_sets_the_value_and_takes_the_field_from_the_others() -> None:
    live = applied(None, widget({"a": "1", "b": "1"}))
    forced = applied(live, widget({"a": "2"}), "b", force=True)
    assert forced["spec"] == {"a": "2", "b": "1"}
    assert (spec_owned(forced, "a"), spec_owned(forced, "b")) == ({"f:b": {}}, {"f:a": {}})


def test_an_owner_that_loses_its_last_field_disappears() -> None:
    forced = applied(applied(None, widget({"a": "1"})), widget({"a": "2"}), "b", force=True)
    assert [item["manager"] for item in forced["metadata"]["managedFields"]] == ["b"]


def test_update_and_apply_of_one_name_are_two_entries_that_conflict() -> None:
    live = updated(None, widget({"a": "1"}), "same")
    with pytest.raises(ApplyConflict, match='conflict with "same" using'):
        applied(live, widget({"a": "2"}), "same")
    shared = applied(live, widget({"a": "1"}), "same")
    assert [item["operation"] for item in shared["metadata"]["managedFields"]] == ["Apply", "Update"]


# Removal


@pytest.mark.parametrize(
    ("first", "second", "left"),
    [
        pytest.param({"a": "1", "b": "1"}, {"a": "1"}, {"a": "1"}, id="a scalar"),
        pytest.param({"a": "1", "struct": {"x": "1"}}, {"a": "1"}, {"a": "1"}, id="a struct with its last field"),
        pytest.param(
            {"struct": {"x": "1", "y": "1"}}, {"struct": {"x": "1"}}, {"struct": {"x": "1"}}, id="in a struct"
        ),
        pytest.param({"labels": {"k": "1", "l": "1"}}, {"labels": {"l": "1"}}, {"labels": {"l": "1"}}, id="a map key"),
        pytest.param({"set": ["p", "q"]}, {"set": ["q"]}, {"set": ["q"]}, id="a set value"),
        pytest.param(
            {"map": [{"name": "x", "v": "1"}, {"name": "y"}]},
            {"map": [{"name": "y"}]},
            {"map": [{"name": "y"}]},
            id="an item of a map list",
        ),
        pytest.param(
            {"map": [{"name": "x", "v": "1"}]}, {"map": [{"name": "x"}]}, {"map": [{"name": "x"}]}, id="in an item"
        ),
        pytest.param({"a": "1", "atom": ["p"]}, {"a": "1"}, {"a": "1"}, id="an atomic list"),
        pytest.param({"a": "1", "free": {"m": {"n": 1}}}, {"a": "1"}, {"a": "1"}, id="unknown fields"),
        pytest.param({"a": "1", "set": ["p"]}, {"a": "1"}, {"a": "1"}, id="a set with its last value"),
        pytest.param({"labels": {"k": "1"}}, {"labels": {}}, {"labels": {}}, id="the last key of a map still wanted"),
    ],
)
def test_what_its_only_owner_stops_applying_is_removed(first: Object, second: Object, left: Object) -> None:
    assert applied(applied(None, widget(first)), widget(second))["spec"] == left


def test_what_another_manager_owns_too_stays() -> None:
    live = applied(applied(None, widget({"a": "1", "b": "1"})), widget({"a": "1"}), "b")
    after = applied(live, widget({"b": "1"}))
    assert after["spec"] == {"a": "1", "b": "1"}
    assert (spec_owned(after, "a"), spec_owned(after, "b")) == ({"f:b": {}}, {"f:a": {}})


def test_an_item_that_others_own_a_field_of_stays_with_its_key_and_that_field() -> None:
    live = applied(None, widget({"map": [{"name": "x", "v": "1"}]}))
    live = applied(live, widget({"map": [{"name": "x", "w": "1"}]}), "b")
    assert applied(live, widget({}))["spec"] == {"map": [{"name": "x", "w": "1"}]}


def test_a_field_that_nobody_owns_stays_beside_what_was_removed() -> None:
    live = applied(None, widget({"a": "1", "labels": {"k": "1"}}))
    live["spec"]["b"] = "defaulted"
    assert applied(live, widget({"labels": {"k": "1"}}))["spec"] == {"b": "defaulted", "labels": {"k": "1"}}


def test_defaulted_fields_of_an_item_go_with_the_item() -> None:
    live = applied(None, widget({"a": "1", "map": [{"name": "x"}]}))
    live["spec"]["map"][0]["v"] = "defaulted"
    assert applied(live, widget({"a": "1"}))["spec"] == {"a": "1"}


def test_an_empty_apply_drops_the_entry_and_what_it_owned() -> None:
    live = applied(applied(None, widget({"a": "1"})), widget({"b": "1"}), "b")
    after = applied(live, widget())
    assert after["spec"] == {"b": "1"}
    assert [item["manager"] for item in after["metadata"]["managedFields"]] == ["b"]


def test_an_empty_map_that_is_sent_keeps_the_entry() -> None:
    node = compile_type({"type": "object", "properties": {"data": {"type": "object", "additionalProperties": TEXT}}})
    live = applied(None, widget(data={"k": "v"}), node=node)
    after = applied(live, widget(data={}), node=node)
    assert (after["data"], owned(after, "a")) == ({}, {"f:data": {}})


def test_the_last_label_goes_without_taking_metadata_along() -> None:
    live = applied(None, widget({"a": "1"}, metadata={"labels": {"l": "1"}}))
    after = applied(live, widget({"a": "1"}))
    assert after["metadata"] == widget()["metadata"] | {"managedFields": after["metadata"]["managedFields"]}


def test_a_structure_that_somebody_claims_stays_when_all_that_is_left_in_it_is_nobodys() -> None:
    live = applied(None, widget({}), "b")
    live = applied(live, widget({"labels": {}, "set": []}))
    after = applied(live, widget())
    assert after["spec"] == {"set": []}
    assert owned(after, "b") == {"f:spec": {}}


# Merging


@pytest.mark.parametrize(
    ("live", "config", "merged"),
    [
        pytest.param("abc", "b", "abc", id="shared items keep their place"),
        pytest.param("abc", "cb", "acb", id="the configuration decides the order of shared items"),
        pytest.param("abc", "d", "abcd", id="new items come last"),
        pytest.param("abc", "dc", "abdc", id="a new item comes before the shared one it precedes"),
        pytest.param("", "ab", "ab", id="nothing there"),
    ],
)
def test_a_set_merges_in_an_order_both_sides_agree_with(live: str, config: str, merged: str) -> None:
    first = applied(None, widget({"set": list(live)}))
    assert applied(first, widget({"set": list(config)}), "b")["spec"]["set"] == list(merged)


def test_items_of_a_map_list_merge_by_key_with_defaults() -> None:
    live = updated(None, widget({"ports": [{"port": 80, "protocol": "TCP"}, {"port": 80, "protocol": "UDP"}]}))
    after = applied(live, widget({"ports": [{"port": 80, "name": "web"}]}))
    assert after["spec"]["ports"] == [
        {"port": 80, "protocol": "TCP", "name": "web"},
        {"port": 80, "protocol": "UDP"},
    ]


def test_null_leaves_a_map_alone() -> None:
    live = updated(None, widget({"labels": {"k": "1"}}))
    assert applied(live, widget({"labels": None}))["spec"]["labels"] == {"k": "1"}


def test_items_of_a_live_list_that_share_a_key_are_replaced_by_the_applied_one() -> None:
    live = updated(None, widget({"map": [{"name": "x", "v": "1"}, {"name": "x", "v": "2"}, {"name": "y"}]}))
    assert owned(live, "u", operation="Update")["f:spec"]["f:map"]['k:{"name":"x"}'] == {}
    after = applied(live, widget({"map": [{"name": "x", "v": "3"}]}), force=True)
    assert after["spec"]["map"] == [{"name": "x", "v": "3"}, {"name": "y"}]


def test_a_live_list_whose_items_have_no_key_is_replaced_whole() -> None:
    live = updated(None, widget({"map": [{"v": "1"}]}))
    after = applied(live, widget({"map": [{"name": "x"}]}), force=True)
    assert after["spec"]["map"] == [{"name": "x"}]


# Type errors


@pytest.mark.parametrize(
    ("spec", "complaint"),
    [
        pytest.param({"zork": 1}, ".spec.zork: field not declared in schema", id="unknown field"),
        pytest.param(
            {"map": [{"name": "q"}, {"name": "q"}]},
            '.spec.map: duplicate entries for key [name="q"]',
            id="map key twice",
        ),
        pytest.param({"set": ["p", "p"]}, '.spec.set: duplicate entries for key [="p"]', id="set value twice"),
        pytest.param({"a": 1}, ".spec.a: expected string, got 1", id="wrong scalar"),
        pytest.param({"struct": []}, ".spec.struct: expected map, got []", id="wrong shape"),
        pytest.param(
            {"map": [{"name": "q", "z": 1}]}, '.spec.map[name="q"].z: field not declared in schema', id="in an item"
        ),
    ],
)
def test_a_configuration_that_does_not_fit_its_type_is_refused(spec: Object, complaint: str) -> None:
    with pytest.raises(TypedError) as error:
        applied(None, widget(spec))
    assert str(error.value) == (f"failed to create typed patch object (ns/w; example.org/v1, Kind=Widget): {complaint}")


def test_several_type_errors_are_told_together() -> None:
    with pytest.raises(TypedError, match=r"errors:\n  \.spec\.y: field not declared in schema\n  \.spec\.z: "):
        applied(None, widget({"y": 1, "z": 1}))


def test_the_core_group_is_told_with_its_empty_name() -> None:
    with pytest.raises(TypedError, match=r"\(ns/w; /v1, Kind=Widget\)"):
        ssa.apply(None, widget({"y": 1}), node=WIDGET, manager="a", api_version="v1", now=T0)


# No-ops and times


def test_an_apply_that_changes_nothing_keeps_the_old_time() -> None:
    live = applied(None, widget({"a": "1", "map": [{"name": "x"}]}))
    assert applied(live, widget({"a": "1", "map": [{"name": "x"}]}), now=T1) == live


def test_an_apply_that_only_adds_an_owner_is_a_change_of_that_owner() -> None:
    live = applied(applied(None, widget({"a": "1"})), widget({"a": "1"}), "b", now=T1)
    assert [(item["manager"], item["time"]) for item in live["metadata"]["managedFields"]] == [("a", T0), ("b", T1)]


def test_an_apply_in_another_version_is_the_same_applier() -> None:
    live = applied(None, widget({"a": "1", "b": "1"}))
    after = ssa.apply(live, widget({"a": "1"}), node=WIDGET, manager="a", api_version="example.org/v2", now=T1)
    assert after["spec"] == {"a": "1"}
    assert [(item["apiVersion"], item["time"]) for item in after["metadata"]["managedFields"]] == [
        ("example.org/v2", T1)
    ]


@pytest.mark.parametrize(
    ("change", "same"),
    [
        pytest.param({"metadata": {"resourceVersion": "9"}}, True, id="resourceVersion"),
        pytest.param({"metadata": {"labels": {"l": "1"}}}, False, id="labels"),
        pytest.param({"spec": {"free": {"n": True}}}, False, id="true is not 1"),
        pytest.param({"spec": {"free": {"n": 1.0}}}, True, id="1.0 is 1"),
    ],
)
def test_no_op_detection_looks_past_bookkeeping_only(change: Object, same: bool) -> None:
    old = updated(None, widget({"free": {"n": 1}}))
    new = copy.deepcopy(old)
    new["metadata"] |= change.get("metadata", {})
    new["spec"] = change.get("spec", new["spec"])
    new["metadata"]["managedFields"][0]["time"] = T2
    assert ssa.same_but_server_metadata(old, new) is same
    new["metadata"]["managedFields"][0]["manager"] = "other"
    assert not ssa.same_but_server_metadata(old, new)


# Updates


@pytest.mark.parametrize(
    ("spec", "claimed"),
    [
        pytest.param({"a": "1"}, {".": {}, "f:a": {}}, id="a struct that appears is claimed"),
        pytest.param({"labels": {"k": "v"}}, {".": {}, "f:labels": {".": {}, "f:k": {}}}, id="a map too"),
        pytest.param({"set": ["p"]}, {".": {}, "f:set": {".": {}, 'v:"p"': {}}}, id="a set too"),
        pytest.param(
            {"map": [{"name": "x"}]},
            {".": {}, "f:map": {".": {}, 'k:{"name":"x"}': {".": {}, "f:name": {}}}},
            id="a map list and its items too",
        ),
        pytest.param({"atom": ["p"], "atomMap": {"k": "v"}}, {".": {}, "f:atom": {}, "f:atomMap": {}}, id="atomic"),
        pytest.param({"map": [], "labels": {}}, {".": {}, "f:labels": {}, "f:map": {}}, id="empty"),
        pytest.param({"free": {"l": [1]}}, {".": {}, "f:free": {".": {}, "f:l": {}}}, id="unknown fields"),
    ],
)
def test_creating_claims_leaves_and_every_map_and_list(spec: Object, claimed: Any) -> None:
    assert spec_owned(updated(None, widget(spec)), "u", operation="Update") == claimed


def test_changed_and_added_fields_move_to_the_writer_and_resent_ones_do_not() -> None:
    live = updated(None, widget({"a": "1", "b": "1"}), "first")
    after = updated(live, widget({"a": "2", "b": "1", "replicas": 1}), "second", now=T1)
    assert spec_owned(after, "first", operation="Update") == {".": {}, "f:b": {}}
    assert spec_owned(after, "second", operation="Update") == {"f:a": {}, "f:replicas": {}}


def test_removed_fields_leave_everyone_without_making_the_writer_an_owner() -> None:
    live = applied(updated(None, widget({"a": "1", "b": "1"})), widget({"a": "1"}))
    after = updated(live, widget({"b": "1"}), "second", now=T1)
    assert [(item["manager"], item["fieldsV1"]) for item in after["metadata"]["managedFields"]] == [
        ("u", {"f:spec": {".": {}, "f:b": {}}})
    ]


def test_an_update_that_changes_nothing_keeps_the_entries_and_their_times() -> None:
    live = updated(None, widget({"a": "1", "map": [{"name": "x"}]}))
    again = widget({"a": "1", "map": [{"name": "x"}]})
    assert updated(live, again, "second", now=T1) == live
    assert updated(live, live, "second", now=T1) == live


def test_a_writer_that_writes_again_keeps_one_entry_with_the_new_time() -> None:
    live = updated(None, widget({"a": "1", "b": "1"}))
    after = updated(live, widget({"a": "2", "b": "1"}), now=T1)
    assert spec_owned(after, "u", operation="Update") == {".": {}, "f:a": {}, "f:b": {}}
    assert [item["time"] for item in after["metadata"]["managedFields"]] == [T1]


def test_writers_in_two_versions_are_two_owners() -> None:
    live = updated(None, widget({"a": "1", "b": "1"}))
    after = updated(live, widget({"a": "2", "b": "1"}), api_version="example.org/v2", now=T1)
    assert [(item["apiVersion"], item["fieldsV1"]["f:spec"]) for item in after["metadata"]["managedFields"]] == [
        (VERSION, {".": {}, "f:b": {}}),
        ("example.org/v2", {"f:a": {}}),
    ]


def test_an_update_takes_fields_from_appliers_too() -> None:
    live = applied(None, widget({"map": [{"name": "x", "v": "1", "w": "1"}]}))
    after = updated(live, widget({"map": [{"name": "x", "v": "2", "w": "1"}]}), now=T1)
    assert spec_owned(after, "a") == {"f:map": {'k:{"name":"x"}': {".": {}, "f:name": {}, "f:w": {}}}}
    assert spec_owned(after, "u", operation="Update") == {"f:map": {'k:{"name":"x"}': {"f:v": {}}}}


def test_a_value_that_changes_its_shape_keeps_its_place_and_loses_what_was_below() -> None:
    live = updated(None, widget({"free": {"m": {"n": 1}}}))
    after = updated(live, widget({"free": {"m": "text"}}), "second", now=T1)
    assert spec_owned(after, "u", operation="Update") == {".": {}, "f:free": {}}
    assert spec_owned(after, "second", operation="Update") == {"f:free": {"f:m": {}}}
    back = updated(after, widget({"free": {"m": {"n": 1}}}), "third", now=T2)
    assert spec_owned(back, "third", operation="Update") == {"f:free": {"f:m": {".": {}, "f:n": {}}}}
    assert spec_owned(back, "second", operation="Update") is None


def test_repeated_keys_are_one_field_that_comes_and_goes_with_the_repetition() -> None:
    twice = widget({"map": [{"name": "x", "v": "1"}, {"name": "x", "v": "2"}]})
    live = updated(None, twice)
    once = updated(live, widget({"map": [{"name": "x", "v": "1"}]}), "second", now=T1)
    item: Object = {".": {}, "f:name": {}, "f:v": {}}
    assert spec_owned(once, "second", operation="Update") == {"f:map": {'k:{"name":"x"}': item}}
    again = updated(once, twice, "third", now=T2)
    assert spec_owned(again, "third", operation="Update") == {"f:map": {'k:{"name":"x"}': {}}}
    assert spec_owned(again, "second", operation="Update") is None
    other = copy.deepcopy(twice)
    other["spec"]["map"][1]["v"] = "3"
    assert spec_owned(updated(again, other, "fourth"), "fourth", operation="Update") == {
        "f:map": {'k:{"name":"x"}': {}}
    }


# Status and scale


def test_the_main_path_neither_tracks_nor_touches_status_when_it_is_a_subresource() -> None:
    created = updated(None, widget({"a": "1"}, status={"s": 1}), status_subresource=True)
    assert "f:status" not in owned(created, "u", operation="Update")
    live = widget({"a": "1"}, status={"s": 1})
    result = applied(live, widget({"a": "1"}, status={"s": 2}), status_subresource=True)
    assert result["status"] == {"s": 1}
    assert owned(result, "a") == {"f:spec": {"f:a": {}}}
    changed = updated(result, widget({"a": "1"}, status={"s": 3}), now=T1, status_subresource=True)
    assert changed["metadata"]["managedFields"] == result["metadata"]["managedFields"]


def test_the_main_path_tracks_status_when_it_is_an_ordinary_field() -> None:
    assert owned(applied(None, widget(status={"s": 1})), "a") == {"f:status": {"f:s": {}}}


def test_the_status_path_tracks_and_touches_only_status() -> None:
    live = updated(None, widget({"a": "1"}, metadata={"labels": {"l": "1"}}), status_subresource=True)
    config = widget({"a": "2"}, metadata={"labels": {"l": "2"}}, status={"s": 1})
    after = applied(live, config, subresource="status", status_subresource=True, now=T1)
    assert (after["spec"], after["metadata"]["labels"], after["status"]) == ({"a": "1"}, {"l": "1"}, {"s": 1})
    assert owned(after, "a", subresource="status") == {"f:status": {"f:s": {}}}
    gone = applied(after, widget(), subresource="status", status_subresource=True, now=T1)
    assert "status" not in gone
    assert gone["spec"] == {"a": "1"}


def test_a_status_update_is_an_entry_of_its_own() -> None:
    live = updated(None, widget({"a": "1"}), status_subresource=True)
    new = copy.deepcopy(live) | {"spec": {"a": "2"}, "status": {"s": {"t": 1}}}
    after = updated(live, new, subresource="status", status_subresource=True, now=T1)
    assert owned(after, "u", operation="Update", subresource="status") == {
        "f:status": {".": {}, "f:s": {".": {}, "f:t": {}}}
    }
    assert owned(after, "u", operation="Update") == owned(live, "u", operation="Update")


def test_a_scale_update_is_an_entry_of_its_own() -> None:
    live = updated(None, widget({"a": "1", "replicas": 1}))
    after = updated(live, widget({"a": "1", "replicas": 2}), "hpa", subresource="scale", now=T1)
    assert after["metadata"]["managedFields"][1] == {
        "manager": "hpa",
        "operation": "Update",
        "apiVersion": VERSION,
        "time": T1,
        "fieldsType": "FieldsV1",
        "fieldsV1": {"f:spec": {"f:replicas": {}}},
        "subresource": "scale",
    }


def test_a_scale_apply_owns_only_the_replicas() -> None:
    live = updated(None, widget({"a": "1", "replicas": 1}), status_subresource=True)
    after = applied(
        live, widget({"replicas": 2}), "hpa", subresource="scale", force=True, status_subresource=True, now=T1
    )
    assert after["spec"] == {"a": "1", "replicas": 2}
    assert owned(after, "hpa", subresource="scale") == {"f:spec": {"f:replicas": {}}}


# The list itself


def test_an_untracked_object_stays_so_until_its_first_apply() -> None:
    live = widget({"a": "1", "b": "1"}, metadata={"labels": {"l": "1"}})
    assert "managedFields" not in updated(live, widget({"a": "2"}))["metadata"]
    after = applied(live, widget({"a": "1"}), now=T1)
    assert owned(after, "before-first-apply", operation="Update") == {
        "f:metadata": {"f:labels": {".": {}, "f:l": {}}},
        "f:spec": {".": {}, "f:a": {}, "f:b": {}},
    }
    assert owned(after, "a") == {"f:spec": {"f:a": {}}}
    with pytest.raises(ApplyConflict, match='conflict with "before-first-apply" using example'):
        applied(live, widget({"a": "2"}))


def test_even_an_empty_first_apply_records_what_was_there() -> None:
    after = applied(widget({"a": "1"}), widget())
    assert [item["manager"] for item in after["metadata"]["managedFields"]] == ["before-first-apply"]


@pytest.mark.parametrize("written", [[], [{}]], ids=["empty list", "one empty entry"])
def test_writing_an_empty_list_clears_tracking(written: list[Any]) -> None:
    live = updated(None, widget({"a": "1"}))
    new = widget({"a": "2"}, metadata={"managedFields": written})
    assert "managedFields" not in updated(live, new)["metadata"]
    assert spec_owned(updated(None, new), "u", operation="Update") == {".": {}, "f:a": {}}


def test_entries_that_a_client_writes_replace_the_live_ones() -> None:
    """What kubectl does when it moves from client-side to server-side apply."""
    live = updated(None, widget({"a": "1", "map": [{"name": "x"}]}), "kubectl-client-side-apply")
    [entry] = live["metadata"]["managedFields"]
    moved = entry | {"manager": "kubectl", "operation": "Apply", "time": "2026-01-01T00:00:00+00:00"}
    new = copy.deepcopy(live)
    new["metadata"]["managedFields"] = [moved]
    after = updated(live, new, "kubectl", now=T1)
    assert after["metadata"]["managedFields"] == [moved | {"time": T0}]
    assert applied(after, widget(), "kubectl").get("spec") is None


def test_written_entries_are_brought_to_one_spelling() -> None:
    live = updated(None, widget({"a": "1"}))
    new = copy.deepcopy(live)
    fields = {"f:spec": {"f:ports": {'k:{"protocol": "TCP", "port": 80}': {".": {}}}, "x:later": {}, "f:a": {".": {}}}}
    new["metadata"]["managedFields"][0]["fieldsV1"] = fields
    assert spec_owned(updated(live, new), "u", operation="Update") == {
        "f:a": {},
        "f:ports": {'k:{"port":80,"protocol":"TCP"}': {}},
    }


@pytest.mark.parametrize(
    "broken",
    [
        {"operation": "Delete"},
        {"apiVersion": ""},
        {"fieldsType": "FieldsV2"},
        {"fieldsV1": {"f:a": 1}},
        {"fieldsV1": {"a": {}}},
        {"fieldsV1": {"k:[]": {}}},
        {"manager": 1},
        {"time": "yesterday"},
    ],
    ids=str,
)
def test_written_entries_that_cannot_be_read_change_nothing(broken: Object) -> None:
    live = updated(None, widget({"a": "1"}))
    new = copy.deepcopy(live)
    new["metadata"]["managedFields"][0] |= broken
    assert updated(live, new) == live


@pytest.mark.parametrize("broken", [1, "x", {"a": 1}, [1]], ids=str)
def test_a_written_list_that_is_none_changes_nothing(broken: Any) -> None:
    live = updated(None, widget({"a": "1"}))
    new = copy.deepcopy(live)
    new["metadata"]["managedFields"] = broken
    assert updated(live, new) == live


def test_a_written_set_too_deep_to_read_changes_nothing() -> None:
    live = updated(None, widget({"a": "1"}))
    deep: Object = {}
    for _ in range(5000):
        deep = {"f:a": deep}
    entry = live["metadata"]["managedFields"][0] | {"fieldsV1": deep}
    new = widget({"a": "1"}, metadata={"managedFields": [entry]})
    entries = ssa.track_update(live, new, node=WIDGET, manager="u", api_version=VERSION, now=T1)
    assert entries == live["metadata"]["managedFields"]


def test_a_subresource_write_cannot_rewrite_ownership() -> None:
    live = updated(None, widget({"a": "1"}), status_subresource=True)
    new = copy.deepcopy(live)
    new["metadata"]["managedFields"] = [{}]
    assert updated(live, new, subresource="status", status_subresource=True) == live


def test_more_than_ten_updaters_fold_the_oldest_into_ancient_changes() -> None:
    live = updated(None, widget({"labels": {}}), "u00")
    for number in range(1, 14):
        new = copy.deepcopy(live)
        new["spec"]["labels"][f"k{number:02}"] = "v"
        live = updated(live, new, f"u{number:02}", now=f"2026-01-01T00:00:{number:02}Z")
    entries = live["metadata"]["managedFields"]
    assert [item["manager"] for item in entries] == ["ancient-changes", *(f"u{n:02}" for n in range(5, 14))]
    assert entries[0]["fieldsV1"] == {
        "f:spec": {".": {}, "f:labels": {".": {}, "f:k01": {}, "f:k02": {}, "f:k03": {}, "f:k04": {}}}
    }
    assert entries[0]["time"] == "2026-01-01T00:00:04Z"


def test_entries_are_ordered_by_operation_then_time_then_name() -> None:
    live = updated(None, widget({"a": "1"}), "z", now=T0)
    live = updated(live, widget({"a": "1", "b": "1"}), "y", now=T1)
    live = updated(live, widget({"a": "1", "b": "1", "replicas": 1}), "x", now=T1)
    live = applied(live, widget({"a": "1"}), "c", now=T2)
    live = applied(live, widget({"b": "1"}), "b", now=T2)
    live = applied(live, widget({"replicas": 1}), "d", now=T1)
    assert [(item["operation"], item["manager"]) for item in live["metadata"]["managedFields"]] == [
        ("Apply", "d"),
        ("Apply", "b"),
        ("Apply", "c"),
        ("Update", "z"),
        ("Update", "x"),
        ("Update", "y"),
    ]


def test_string_data_is_recorded_as_it_was_applied() -> None:
    """A Secret's stringData becomes data after the merge; its owner is known by what it sent."""
    node = compile_type(
        {
            "type": "object",
            "properties": {
                "data": {"type": "object", "additionalProperties": TEXT},
                "stringData": {"type": "object", "additionalProperties": TEXT},
            },
        }
    )
    secret = applied(None, widget(stringData={"k": "v"}), node=node)
    assert owned(secret, "a") == {"f:stringData": {"f:k": {}}}


def test_a_list_made_atomic_by_a_new_schema_is_owned_whole() -> None:
    live = applied(None, widget({"set": ["p"]}))
    atomic = compile_type(
        {"type": "object", "properties": {"spec": {"type": "object", "properties": {"set": {"type": "array"}}}}}
    )
    with pytest.raises(ApplyConflict, match=r'conflict with "a": \.spec\.set$'):
        applied(live, widget({"set": ["q"]}), "b", node=atomic)


# kubectl between client-side and server-side apply

ANNOTATION = "kubectl.kubernetes.io/last-applied-configuration"


def client_side_applied(spec: Object, *, sent: str | None = None) -> Object:
    """What `kubectl apply` leaves behind."""
    text = json.dumps(widget(spec)) if sent is None else sent
    return updated(None, widget(spec, metadata={"annotations": {ANNOTATION: text}}), "kubectl-client-side-apply")


def test_kubectl_takes_over_what_it_applied_from_the_client_without_a_conflict() -> None:
    live = client_side_applied({"a": "1", "b": "1"})
    after = applied(live, widget({"a": "2", "b": "1"}), "kubectl", now=T1)
    assert spec_owned(after, "kubectl") == {"f:a": {}, "f:b": {}}
    assert spec_owned(after, "kubectl-client-side-apply", operation="Update") == {".": {}, "f:b": {}}
    with pytest.raises(ApplyConflict, match="kubectl-client-side-apply"):
        applied(live, widget({"a": "2"}), "somebody-else")


def test_kubectl_does_not_take_what_changed_since_it_was_applied() -> None:
    live = client_side_applied({"a": "1", "b": "1"})
    live = updated(live, live | {"spec": {"a": "3", "b": "1"}}, "other", now=T1)
    with pytest.raises(
        ApplyConflict, match=r'^Apply failed with 1 conflict: conflict with "other" using .*: \.spec\.a$'
    ):
        applied(live, widget({"a": "2", "b": "2"}), "kubectl")


@pytest.mark.parametrize("sent", ["{", "[]", '{"apiVersion":"example.org/v0","spec":{"a":"1"}}'], ids=str)
def test_an_annotation_that_says_nothing_about_this_version_allows_nothing(sent: str) -> None:
    with pytest.raises(ApplyConflict):
        applied(client_side_applied({"a": "1"}, sent=sent), widget({"a": "2"}), "kubectl")


def test_the_annotation_follows_what_kubectl_applies_and_nobody_else() -> None:
    live = client_side_applied({"a": "1"})
    after = applied(live, widget({"a": "2"}), "kubectl", now=T1)
    assert json.loads(after["metadata"]["annotations"][ANNOTATION]) == widget({"a": "2"})
    other = applied(live, widget({"b": "2"}), "other", now=T1)
    assert json.loads(other["metadata"]["annotations"][ANNOTATION]) == widget({"a": "1"})
    assert "annotations" not in applied(None, widget({"a": "1"}), "kubectl")["metadata"]


def test_an_annotation_for_which_there_is_no_room_is_dropped() -> None:
    live = client_side_applied({"a": "1"})
    after = applied(live, widget({"a": "x" * 2**18}), "kubectl", now=T1)
    assert ANNOTATION not in after["metadata"]["annotations"]
