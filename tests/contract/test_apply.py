"""Section 11: server-side apply, and who owns which field."""

from __future__ import annotations

from typing import Any

from tests.contract.engines import Engine, Object, case
from tests.contract.kinds import GROUP, at, config_map, widget

V1 = f"{GROUP}/v1"


def entry(obj: Object, manager: str, operation: str = "Apply") -> Any:
    """The managedFields entry of a manager, or None."""
    found = [e for e in obj["metadata"]["managedFields"] if (e["manager"], e["operation"]) == (manager, operation)]
    return found[0] if found else None


def fields(obj: Object, manager: str, operation: str = "Apply") -> Any:
    found = entry(obj, manager, operation)
    return found["fieldsV1"] if found else None


@case("11-body")
def test_an_apply_needs_a_named_object_and_a_manager_and_no_managed_fields(engine: Engine, ns: str) -> None:
    path = at("widgets", ns, "w")
    text = f"apiVersion: {V1}\nkind: Widget\nmetadata:\n  name: w\nspec:\n  size: 1\n"
    engine.patch(path, text, "apply", query={"fieldManager": "a"}).ok(201)
    for body, shown in (
        ({"kind": "Widget"}, "/, Kind=Widget"),
        ({"apiVersion": V1}, f"{V1}, Kind="),
        ({"apiVersion": V1, "kind": "Other"}, f"{V1}, Kind=Other"),
    ):
        refusal = engine.apply(path, {"metadata": {"name": "w"}, **body})
        refusal.refused(400, "BadRequest", f"invalid object type: {shown}")
    engine.apply(at("configmaps", ns, "c"), {"metadata": {"name": "c"}}).refused(
        400, "BadRequest", "object type: /, Kind="
    )
    engine.apply(path, widget("other")).refused(400, "BadRequest", "name")
    engine.apply(path, widget("w", managedFields=[{"manager": "x"}])).refused(
        400, "BadRequest", "metadata.managedFields must be nil"
    )


@case("11-name-required")
def test_an_apply_without_a_name_is_refused(engine: Engine, ns: str) -> None:
    body = config_map("c")
    del body["metadata"]["name"]
    engine.apply(at("configmaps", ns, "c"), body).refused(400, "BadRequest", "name must be provided")


@case("11-absent-object", "10-apply")
def test_an_apply_creates_but_not_what_names_a_uid(engine: Engine, ns: str) -> None:
    engine.apply(at("configmaps", ns, "u"), config_map("u", uid="x")).refused(409, "Conflict", "uid mismatch")
    created = engine.apply(at("configmaps", ns, "u"), config_map("u", {"a": "1"})).ok(201)
    assert fields(created, "a") == {"f:data": {"f:a": {}}}


@case("11-conflict")
def test_a_field_of_another_manager_is_a_conflict(engine: Engine, ns: str) -> None:
    path = at("widgets", ns, "w")
    spec: Object = {"size": 1, "atom": ["x"], "map": [{"name": "x", "v": "1"}]}
    engine.apply(path, widget("w", spec), "a").ok(201)
    spec = {"size": 2, "atom": ["y"], "map": [{"name": "x", "v": "2"}]}
    status = engine.apply(path, widget("w", spec), "b").refused(409, "Conflict")
    assert status["message"] == (
        'Apply failed with 3 conflicts: conflicts with "a":\n- .spec.atom\n- .spec.size\n- .spec.map[name="x"].v'
    )
    assert sorted(cause["field"] for cause in status["details"]["causes"]) == [
        ".spec.atom",
        '.spec.map[name="x"].v',
        ".spec.size",
    ]
    assert {(cause["reason"], cause["message"]) for cause in status["details"]["causes"]} == {
        ("FieldManagerConflict", 'conflict with "a"')
    }


@case("11-conflict-with-update")
def test_a_conflict_with_an_update_names_the_version_and_the_subresource(engine: Engine, ns: str) -> None:
    path = at("widgets", ns, "w")
    engine.post(at("widgets", ns), widget("w", {"replicas": 1, "size": 1}), query={"fieldManager": "u"}).ok(201)
    status = engine.apply(path, widget("w", {"size": 2}), "a").refused(409, "Conflict")
    assert status["message"] == f'Apply failed with 1 conflict: conflict with "u" using {V1}: .spec.size'
    assert status["details"]["causes"][0]["message"] == f'conflict with "u" using {V1}'
    engine.patch(f"{path}/scale", {"spec": {"replicas": 5}}, query={"fieldManager": "hpa"}).ok()
    status = engine.apply(path, widget("w", {"replicas": 9}), "a").refused(409, "Conflict")
    assert f'conflict with "hpa" with subresource "scale" using {V1}' in status["message"]


@case("11-shared")
def test_the_same_value_is_owned_together(engine: Engine, ns: str) -> None:
    path = at("configmaps", ns, "c")
    engine.apply(path, config_map("c", {"x": "1"}), "a").ok(201)
    both = engine.apply(path, config_map("c", {"x": "1"}), "b").ok(200)
    assert fields(both, "a") == fields(both, "b") == {"f:data": {"f:x": {}}}
    left = engine.apply(path, config_map("c"), "a").ok()
    assert left["data"] == {"x": "1"} and entry(left, "a") is None


@case("11-force")
def test_force_takes_a_field_away_from_the_others(engine: Engine, ns: str) -> None:
    path = at("configmaps", ns, "c")
    engine.apply(path, config_map("c", {"x": "1", "y": "1"}), "a").ok(201)
    forced = engine.apply(path, config_map("c", {"x": "2"}), "b", force=True).ok()
    assert forced["data"] == {"x": "2", "y": "1"}
    assert fields(forced, "a") == {"f:data": {"f:y": {}}} and fields(forced, "b") == {"f:data": {"f:x": {}}}


@case("11-removal")
def test_a_field_left_out_is_removed_and_defaults_return(engine: Engine, ns: str) -> None:
    path = at("widgets", ns, "w")
    engine.apply(path, widget("w", {"size": 1, "color": "red", "mode": "manual"}), "a").ok(201)
    less = engine.apply(path, widget("w", {"size": 1}), "a").ok()
    assert less["spec"] == {"size": 1, "mode": "auto"}
    assert fields(less, "a") == {"f:spec": {"f:size": {}}}, "defaults belong to nobody under apply"


@case("11-empty-body")
def test_a_manager_that_wants_nothing_leaves_no_entry(engine: Engine, ns: str) -> None:
    path = at("configmaps", ns, "c")
    engine.apply(path, config_map("c", {"x": "1"}), "a").ok(201)
    emptied = engine.apply(path, config_map("c", {}), "a").ok()
    assert fields(emptied, "a") == {"f:data": {}}
    gone = engine.apply(path, config_map("c"), "a").ok()
    assert not gone["metadata"].get("managedFields")


@case("11-unknown-field")
def test_an_unknown_field_cannot_be_applied(engine: Engine, ns: str) -> None:
    response = engine.apply(at("widgets", ns, "w"), widget("w", {"zork": 1}))
    code = engine.expected("11-unknown-field")
    response.refused(code, "", "failed to create typed patch object", ".spec.zork: field not declared in schema")


@case("11-duplicates")
def test_duplicate_keys_and_values_cannot_be_applied(engine: Engine, ns: str) -> None:
    code = engine.expected("11-duplicates")
    doubled: Object = {"map": [{"name": "q"}, {"name": "q"}]}
    engine.apply(at("widgets", ns, "w"), widget("w", doubled)).refused(
        code, "", '.spec.map: duplicate entries for key [name="q"]'
    )
    engine.apply(at("widgets", ns, "w"), widget("w", {"set": ["p", "p"]})).refused(
        code, "", '.spec.set: duplicate entries for key [="p"]'
    )


@case("11-update-then-apply")
def test_one_name_has_two_entries_that_conflict(engine: Engine, ns: str) -> None:
    path = at("configmaps", ns, "c")
    engine.post(at("configmaps", ns), config_map("c", {"x": "1"}), query={"fieldManager": "m"}).ok(201)
    engine.apply(path, config_map("c", {"x": "2"}), "m").refused(409, "Conflict", 'conflict with "m" using v1')
    both = engine.apply(path, config_map("c", {"x": "1"}), "m").ok()
    assert entry(both, "m") and entry(both, "m", "Update")


@case("11-no-op")
def test_an_apply_that_changes_nothing_keeps_version_and_time(engine: Engine, ns: str) -> None:
    path = at("widgets", ns, "w")
    before = engine.apply(path, widget("w"), "a").ok(201)
    assert engine.apply(path, widget("w"), "a").ok(200) == before


@case("11-entry", "11-path-elements", "11-apply-sets")
def test_an_entry_names_leaves_keys_and_values(engine: Engine, ns: str) -> None:
    spec: Object = {
        "set": ["p"],
        "map": [{"name": "x", "v": "1"}],
        "ports": [{"port": 80}],
        "atom": ["a"],
        "struct": {"x": "1"},
        "free": {"m": {"n": 1}, "list": [1]},
    }
    created = engine.apply(at("widgets", ns, "w"), widget("w", spec, labels={"l": "1"}), "a").ok(201)
    found = entry(created, "a")
    assert {name for name in found if name != "time"} == {
        "manager",
        "operation",
        "apiVersion",
        "fieldsType",
        "fieldsV1",
    }
    assert (found["apiVersion"], found["fieldsType"]) == (V1, "FieldsV1")
    assert found["fieldsV1"] == {
        "f:metadata": {"f:labels": {"f:l": {}}},
        "f:spec": {
            "f:set": {'v:"p"': {}},
            "f:map": {'k:{"name":"x"}': {".": {}, "f:name": {}, "f:v": {}}},
            "f:ports": {'k:{"port":80,"protocol":"TCP"}': {".": {}, "f:port": {}}},
            "f:atom": {},
            "f:struct": {"f:x": {}},
            "f:free": {"f:list": {}, "f:m": {".": {}, "f:n": {}}},
        },
    }


@case("11-update-sets", "11-defaults-owner")
def test_an_update_owns_every_leaf_and_map_it_makes(engine: Engine, ns: str) -> None:
    body = widget("w", {"struct": {"x": "1"}, "set": ["p"]}, labels={"l": "1"})
    created = engine.post(at("widgets", ns), body, query={"fieldManager": "u"}).ok(201)
    assert fields(created, "u", "Update") == {
        "f:metadata": {"f:labels": {".": {}, "f:l": {}}},
        "f:spec": {
            ".": {},
            "f:mode": {},
            "f:set": {".": {}, 'v:"p"': {}},
            "f:struct": {".": {}, "f:x": {}, "f:y": {}},
        },
    }


@case("11-never-tracked")
def test_bookkeeping_belongs_to_nobody_but_metadata_of_clients_does(engine: Engine, ns: str) -> None:
    root = engine.post(at("configmaps", ns), config_map("owner")).ok(201)
    uid = root["metadata"]["uid"]
    reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": uid}
    body = widget("w", {}, finalizers=["e.org/f"], ownerReferences=[reference], annotations={"a": "b"})
    created = engine.apply(at("widgets", ns, "w"), body | {"status": {"x": 1}}, "a").ok(201)
    assert fields(created, "a") == {
        "f:metadata": {
            "f:annotations": {"f:a": {}},
            "f:finalizers": {'v:"e.org/f"': {}},
            "f:ownerReferences": {f'k:{{"uid":"{uid}"}}': {}},
        },
        "f:spec": {},
    }
    engine.patch(at("widgets", ns, "w"), {"metadata": {"finalizers": None}}).ok()
    made = config_map("", generateName="g-")
    del made["metadata"]["name"]
    created = engine.post(at("configmaps", ns), made).ok(201)
    assert fields(created, "contract", "Update") == {"f:metadata": {"f:generateName": {}}}


@case("11-update-moves")
def test_an_update_takes_what_it_changes_and_nothing_it_repeats(engine: Engine, ns: str) -> None:
    path = at("configmaps", ns, "c")
    applied = engine.apply(path, config_map("c", {"x": "1", "y": "1", "z": "1"}), "a").ok(201)
    applied["data"] = {"x": "1", "y": "2"}
    updated = engine.put(path, applied, query={"fieldManager": "u"}).ok()
    assert fields(updated, "a") == {"f:data": {"f:x": {}}}
    assert fields(updated, "u", "Update") == {"f:data": {"f:y": {}}}


@case("11-lists")
def test_lists_merge_by_key_by_value_or_not_at_all(engine: Engine, ns: str) -> None:
    path = at("widgets", ns, "w")
    a: Object = {"map": [{"name": "x", "v": "1"}], "set": ["p"], "ports": [{"port": 80, "name": "a"}], "atom": ["a"]}
    b: Object = {"map": [{"name": "y", "v": "2"}], "set": ["q"], "ports": [{"port": 80, "protocol": "UDP"}]}
    engine.apply(path, widget("w", a), "a").ok(201)
    merged = engine.apply(path, widget("w", b), "b").ok()["spec"]
    assert [item["name"] for item in merged["map"]] == ["x", "y"]
    assert merged["set"] == ["p", "q"]
    assert [(port["port"], port["protocol"]) for port in merged["ports"]] == [(80, "TCP"), (80, "UDP")]
    engine.apply(path, widget("w", {"atom": ["b"]}), "b").refused(409, "Conflict", ".spec.atom")
    less = engine.apply(path, widget("w", {"set": ["q"]}), "b").ok()["spec"]
    assert [item["name"] for item in less["map"]] == ["x"] and [port["protocol"] for port in less["ports"]] == ["TCP"]


@case("11-before-first-apply")
def test_an_untracked_object_is_tracked_from_its_first_apply(engine: Engine, ns: str) -> None:
    path = at("configmaps", ns, "c")
    engine.post(at("configmaps", ns), config_map("c", {"x": "1"})).ok(201)
    cleared = engine.patch(path, {"metadata": {"managedFields": [{}]}}).ok()
    assert not cleared["metadata"].get("managedFields")
    untracked = engine.patch(path, {"data": {"y": "1"}}).ok()
    assert not untracked["metadata"].get("managedFields")
    applied = engine.apply(path, config_map("c", {"x": "1"}), "a").ok()
    assert fields(applied, "before-first-apply", "Update") == {"f:data": {".": {}, "f:x": {}, "f:y": {}}}
    assert fields(applied, "a") == {"f:data": {"f:x": {}}}


@case("11-clear-tracking")
def test_one_empty_entry_clears_tracking_and_an_empty_list_does_not(engine: Engine, ns: str) -> None:
    created = engine.post(at("widgets", ns), widget("w")).ok(201)
    path = at("widgets", ns, "w")
    assert engine.patch(path, {"metadata": {"managedFields": []}}).ok() == created
    cleared = engine.patch(path, {"metadata": {"managedFields": [{}]}}).ok()
    assert not cleared["metadata"].get("managedFields")


@case("11-ancient-changes")
def test_more_than_ten_updaters_fold_into_ancient_changes(engine: Engine, ns: str) -> None:
    path = at("configmaps", ns, "c")
    engine.post(at("configmaps", ns), config_map("c", {"first": "1"}), query={"fieldManager": "m00"}).ok(201)
    for number in range(1, 12):
        engine.patch(path, {"data": {f"k{number}": "1"}}, query={"fieldManager": f"m{number:02}"}).ok()
    entries = engine.get(path).ok()["metadata"]["managedFields"]
    managers = [found["manager"] for found in entries]
    assert "ancient-changes" in managers and len(entries) == 10 + 1 - 1, managers
    assert "m11" in managers and "m00" not in managers


@case("11-order")
def test_applies_come_before_updates(engine: Engine, ns: str) -> None:
    path = at("configmaps", ns, "c")
    engine.post(at("configmaps", ns), config_map("c", {"x": "1"}), query={"fieldManager": "u"}).ok(201)
    engine.apply(path, config_map("c", {"z": "1"}), "z").ok()
    applied = engine.apply(path, config_map("c", {"b": "1"}), "b").ok()
    found = [(e["operation"], e["manager"]) for e in applied["metadata"]["managedFields"]]
    assert found[-1] == ("Update", "u") and {name for _, name in found[:-1]} == {"b", "z"}


@case("11-secret-string-data")
def test_applied_string_data_is_owned_as_sent_and_stored_as_data(engine: Engine, ns: str) -> None:
    body: Object = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}, "stringData": {"a": "b"}}
    created = engine.apply(at("secrets", ns, "s"), body, "a").ok(201)
    assert created["data"] == {"a": "Yg=="} and "stringData" not in created
    assert fields(created, "a") == {"f:stringData": {"f:a": {}}}


@case("11-status-subresource")
def test_subresources_are_applied_by_entries_of_their_own(engine: Engine, ns: str) -> None:
    path = at("widgets", ns, "w")
    engine.apply(path, widget("w", {"replicas": 1}), "a").ok(201)
    status = {"apiVersion": V1, "kind": "Widget", "metadata": {"name": "w"}, "status": {"ready": True}}
    applied = engine.apply(f"{path}/status", status, "s").ok()
    assert entry(applied, "s")["subresource"] == "status"
    assert fields(applied, "s") == {"f:status": {"f:ready": {}}}


@case("11-scale")
def test_scale_is_applied_by_an_entry_of_its_own(engine: Engine, ns: str) -> None:
    pod: Object = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    spec: Object = {"replicas": 0, "selector": {"matchLabels": {"a": "b"}}, "template": pod}
    body: Object = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"}, "spec": spec}
    path = at("deployments", ns, "d")
    engine.apply(path, body, "a").ok(201)
    scale: Object = {
        "apiVersion": "autoscaling/v1",
        "kind": "Scale",
        "metadata": {"name": "d"},
        "spec": {"replicas": 1},
    }
    engine.apply(f"{path}/scale", scale, "h").refused(409, "Conflict", 'conflict with "a"')
    assert engine.apply(f"{path}/scale", scale, "h", force=True).ok()["spec"]["replicas"] == 1
    stored = engine.get(path).ok()
    assert entry(stored, "h")["subresource"] == "scale" and stored["spec"]["replicas"] == 1
    engine.apply(path, body, "a").refused(409, "Conflict", 'with "h" with subresource "scale"', ".spec.replicas")


@case("1-15-migration", "4-apply-server-side-migration")
def test_kubectl_moves_from_client_side_to_server_side_apply(engine: Engine, ns: str) -> None:
    path = at("configmaps", ns, "c")
    note = "kubectl.kubernetes.io/last-applied-configuration"
    body = config_map("c", {"x": "1"}, annotations={note: '{"apiVersion":"v1","data":{"x":"1"},"kind":"ConfigMap"}\n'})
    query = {"fieldManager": "kubectl-client-side-apply"}
    engine.post(at("configmaps", ns), body, query=query).ok(201)
    desired = config_map("c", {"x": "1"})
    engine.apply(path, desired, "kubectl", query={"force": "false", "fieldValidation": "Strict"}).ok()
    note_only = config_map("c", annotations=body["metadata"]["annotations"])
    current = engine.apply(path, note_only, "kubectl-last-applied", force=True).ok()
    kept = [e for e in current["metadata"]["managedFields"] if e["operation"] == "Apply"]
    replaced: list[Object] = [
        {"op": "replace", "path": "/metadata/managedFields", "value": kept},
        {"op": "replace", "path": "/metadata/resourceVersion", "value": current["metadata"]["resourceVersion"]},
    ]
    migrated = engine.patch(path, replaced, "json").ok()
    assert {e["manager"] for e in migrated["metadata"]["managedFields"]} == {"kubectl", "kubectl-last-applied"}
    final = engine.apply(path, config_map("c", {"y": "2"}), "kubectl").ok()
    assert final["data"] == {"y": "2"}, "what only client-side apply wanted is gone"
