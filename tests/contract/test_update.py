"""Sections 6.2 and 6.3: replacing objects and their subresources, generations, resource versions."""

from __future__ import annotations

import pytest

from tests.contract.engines import Engine, Object, case
from tests.contract.kinds import at, config_map, plain, widget

MODIFIED = "the object has been modified; please apply your changes to the latest version and try again"


@case("6.2-stale-put", "1-6-no-op", "13-409")
def test_a_put_with_an_old_resource_version_is_a_conflict(engine: Engine, ns: str) -> None:
    for resource, body, shown in (
        ("configmaps", config_map("u", {"a": "1"}), "configmaps"),
        ("widgets", widget("u"), "widgets.shop.example.org"),
    ):
        path = at(resource, ns, "u")
        stale = engine.post(at(resource, ns), body).ok(201)
        engine.patch(path, {"metadata": {"labels": {"a": "b"}}}).ok()
        status = engine.put(path, stale).refused(409, "Conflict")
        assert status["message"] == f'Operation cannot be fulfilled on {shown} "u": {MODIFIED}'
        assert status["details"]["name"] == "u" and status["details"]["kind"] == resource


@pytest.mark.parametrize("kind", ["merge", "strategic", "apply"])
@case("6.2-version-in-patch")
def test_a_resource_version_inside_a_patch_is_checked(engine: Engine, ns: str, kind: str) -> None:
    stale = engine.post(at("configmaps", ns), config_map("c", {"a": "1"})).ok(201)["metadata"]["resourceVersion"]
    path = at("configmaps", ns, "c")
    current = engine.patch(path, {"data": {"a": "2"}}).ok()["metadata"]["resourceVersion"]
    query = {"fieldManager": "m"}
    body = config_map("c", {"b": "1"}, resourceVersion=stale)
    engine.patch(path, body, kind, query=query).refused(409, "Conflict", MODIFIED)
    body["metadata"]["resourceVersion"] = current
    assert engine.patch(path, body, kind, query=query).ok()["data"] == {"a": "2", "b": "1"}


@case("6.2-put-missing")
def test_a_put_never_creates(engine: Engine, ns: str) -> None:
    engine.put(at("configmaps", ns, "c"), config_map("c")).refused(404, "NotFound", 'configmaps "c" not found')
    engine.put(at("widgets", ns, "c"), widget("c", resourceVersion="1")).refused(
        404, "NotFound", 'widgets.shop.example.org "c" not found'
    )


@case("6.2-name-mismatch")
def test_a_put_under_another_name_is_refused(engine: Engine, ns: str) -> None:
    engine.post(at("configmaps", ns), config_map("u1")).ok(201)
    engine.put(at("configmaps", ns, "u1"), config_map("u2")).refused(
        400, "BadRequest", "the name of the object (u2) does not match the name on the URL (u1)"
    )


@case("6.2-name-missing")
def test_a_put_names_its_object(engine: Engine, ns: str) -> None:
    engine.post(at("configmaps", ns), config_map("c")).ok(201)
    engine.put(at("configmaps", ns, "c"), {"data": {"a": "1"}}).refused(
        400, "BadRequest", "the name of the object (c based on URL) was undeterminable: name must be provided"
    )


@case("6.2-uid-mismatch")
def test_another_uid_is_a_conflict_on_put_and_invalid_in_a_patch(engine: Engine, ns: str) -> None:
    path = at("configmaps", ns, "c")
    uid = engine.post(at("configmaps", ns), config_map("c")).ok(201)["metadata"]["uid"]
    status = engine.put(path, config_map("c", uid="other")).refused(409, "Conflict")
    assert f"UID in precondition: other, UID in object meta: {uid}" in status["message"]
    engine.patch(path, {"metadata": {"uid": "other"}}).refused(
        422, "Invalid", "metadata.uid: Invalid value", "immutable"
    )


@case("6.2-server-fields-ignored")
def test_what_the_server_sets_cannot_be_changed(engine: Engine, ns: str) -> None:
    created = engine.post(at("widgets", ns), widget("w")).ok(201)
    sent = created | {"metadata": created["metadata"] | {"generation": 9}}
    sent["metadata"] |= {"creationTimestamp": "2001-01-01T00:00:00Z", "selfLink": "/x"}
    kept = engine.put(at("widgets", ns, "w"), sent).ok()["metadata"]
    assert kept == created["metadata"]
    sent["metadata"]["deletionTimestamp"] = "2001-01-01T00:00:00Z"
    engine.put(at("widgets", ns, "w"), sent).refused(
        422, "Invalid", 'metadata.deletionTimestamp: Invalid value: "2001-01-01T00:00:00Z": field is immutable'
    )


BLIND = ["configmaps", "secrets", "serviceaccounts"]


@case("1-12-blind-put")
def test_a_put_without_a_version_overwrites_data_kinds_only(engine: Engine, ns: str) -> None:
    for resource in BLIND:
        engine.post(at(resource, ns), {"metadata": {"name": "b", "labels": {"old": "1"}}}).ok(201)
        replaced = engine.put(at(resource, ns, "b"), {"metadata": {"name": "b", "labels": {"new": "1"}}}).ok()
        assert replaced["metadata"]["labels"] == {"new": "1"}, resource
    namespace = f"/api/v1/namespaces/{ns}"
    engine.put(namespace, {"metadata": {"name": ns, "labels": {"new": "1"}}}).ok()
    engine.post(at("widgets", ns), widget("b")).ok(201)
    engine.put(at("widgets", ns, "b"), widget("b")).refused(
        422, "Invalid", 'widgets.shop.example.org "b" is invalid: metadata.resourceVersion: Invalid value: 0: must be'
    )
    lease: Object = {"metadata": {"name": "b"}, "spec": {"holderIdentity": "x"}}
    engine.post(at("leases", ns), lease).ok(201)
    engine.put(at("leases", ns, "b"), lease).refused(422, "Invalid", "metadata.resourceVersion: Invalid value")


@case("6.2-generation")
def test_generation_moves_with_the_spec_only(engine: Engine, ns: str) -> None:
    def generation(body: Object, subresource: str = "") -> int:
        return int(engine.patch(at("widgets", ns, "w", subresource), body).ok()["metadata"]["generation"])

    engine.post(at("widgets", ns), widget("w")).ok(201)
    assert generation({"metadata": {"labels": {"a": "b"}, "annotations": {"a": "b"}}}) == 1
    assert generation({"metadata": {"finalizers": ["e.org/f"]}}) == 1
    assert generation({"status": {"ready": True}}, "status") == 1
    assert generation({"spec": {"size": 1}}) == 1
    assert generation({"spec": {"size": 2}}) == 2
    assert engine.delete(at("widgets", ns, "w")).ok()["metadata"]["generation"] == 3
    assert generation({"metadata": {"labels": {"c": "d"}}}) == 3
    engine.patch(at("widgets", ns, "w"), {"metadata": {"finalizers": None}}).ok()

    engine.post(at("plains", ns), plain("p")).ok(201)
    bumped = engine.patch(at("plains", ns, "p"), {"status": {"ready": True}}).ok()
    assert bumped["metadata"]["generation"] == 2, "without the subresource a status is like any other field"


@case("6.2-status-through-main")
def test_the_main_path_cannot_touch_the_status(engine: Engine, ns: str) -> None:
    path = at("widgets", ns, "w")
    engine.post(at("widgets", ns), widget("w")).ok(201)
    before = engine.patch(f"{path}/status", {"status": {"ready": True}}).ok()
    after = engine.patch(path, {"status": {"ready": False}}).ok()
    assert after == before
    after = engine.put(path, before | {"status": {"ready": False}}).ok()
    assert after == before


@case("6.2-status-subresource")
def test_the_status_path_touches_nothing_else_and_validates_all(engine: Engine, ns: str) -> None:
    path = at("widgets", ns, "w")
    created = engine.post(at("widgets", ns), widget("w", labels={"a": "b"})).ok(201)
    sent = created | {"status": {"n": 1}, "spec": {"size": 50}}
    sent["metadata"] = created["metadata"] | {
        "labels": {"c": "d"},
        "annotations": {"e": "f"},
        "finalizers": ["e.org/f"],
    }
    written = engine.put(f"{path}/status", sent).ok()
    assert written["status"] == {"n": 1}
    assert written["spec"] == created["spec"]
    assert written["metadata"]["labels"] == {"a": "b"}
    assert not {"annotations", "finalizers"} & set(written["metadata"])
    assert engine.get(f"{path}/status").ok() == written
    [entry] = [entry for entry in written["metadata"]["managedFields"] if entry.get("subresource")]
    assert entry["subresource"] == "status" and entry["fieldsV1"] == {"f:status": {".": {}, "f:n": {}}}


@case("6.2-scale", "14-subresources")
def test_scale_is_a_view_of_the_paths_that_the_crd_names(engine: Engine, ns: str) -> None:
    path = at("widgets", ns, "w")
    engine.post(at("widgets", ns), widget("w")).ok(201)
    engine.get(f"{path}/scale").refused(500, "InternalError")
    engine.patch(path, {"spec": {"replicas": 3}}).ok()
    engine.patch(f"{path}/status", {"status": {"replicas": 2, "selector": "a=b"}}).ok()
    scale = engine.get(f"{path}/scale").ok()
    assert (scale["kind"], scale["apiVersion"]) == ("Scale", "autoscaling/v1")
    assert scale["spec"] == {"replicas": 3} and scale["status"] == {"replicas": 2, "selector": "a=b"}
    scale["spec"]["replicas"] = 4
    assert engine.put(f"{path}/scale", scale, query={"fieldManager": "hpa"}).ok()["spec"] == {"replicas": 4}
    patched = engine.patch(f"{path}/scale", {"spec": {"replicas": 5}}, query={"fieldManager": "hpa"}).ok()
    assert (patched["kind"], patched["spec"]) == ("Scale", {"replicas": 5})
    stored = engine.get(path).ok()
    assert stored["spec"]["replicas"] == 5 and stored["metadata"]["generation"] == 4
    [entry] = [entry for entry in stored["metadata"]["managedFields"] if entry["manager"] == "hpa"]
    assert entry["subresource"] == "scale" and entry["fieldsV1"] == {"f:spec": {"f:replicas": {}}}
    engine.patch(f"{path}/scale", {"spec": {"replicas": -1}}).refused(422, "Invalid", "spec.replicas: Invalid value")


@case("6.2-scale-creates")
def test_a_put_of_scale_sets_replicas_that_were_absent(engine: Engine, ns: str) -> None:
    engine.post(at("widgets", ns), widget("w")).ok(201)
    scale: Object = {"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": {"name": "w", "namespace": ns}}
    engine.put(at("widgets", ns, "w", "scale"), scale | {"spec": {"replicas": 2}}).ok()
    assert engine.get(at("widgets", ns, "w")).ok()["spec"]["replicas"] == 2


@pytest.mark.parametrize("how", ["put", "merge", "json", "strategic", "apply"])
@case("1-6-no-op")
def test_a_write_that_changes_nothing_keeps_the_version_and_sends_no_event(engine: Engine, ns: str, how: str) -> None:
    path = at("configmaps", ns, "c")
    if how == "apply":
        before = engine.apply(path, config_map("c", {"a": "1"})).ok(201)
    else:
        before = engine.post(at("configmaps", ns), config_map("c", {"a": "1"})).ok(201)
    version = before["metadata"]["resourceVersion"]
    with engine.watch(
        at("configmaps", ns), resourceVersion=version, fieldSelector="metadata.name!=kube-root-ca.crt"
    ) as events:
        if how == "put":
            again = engine.put(path, before).ok(200)
        elif how == "json":
            again = engine.patch(path, [{"op": "replace", "path": "/data/a", "value": "1"}], "json").ok(200)
        else:
            again = engine.patch(path, config_map("c", {"a": "1"}), how, query={"fieldManager": "a"}).ok(200)
        assert again == before
        engine.post(at("configmaps", ns), config_map("marker")).ok(201)
        assert events.next()["object"]["metadata"]["name"] == "marker"


@case("6.3-one-counter")
def test_one_counter_numbers_every_write_and_delete(engine: Engine, ns: str) -> None:
    versions = []
    first = engine.post(at("configmaps", ns), config_map("c")).ok(201)["metadata"]["resourceVersion"]
    versions.append(first)
    versions.append(engine.post(at("widgets", ns), widget("w")).ok(201)["metadata"]["resourceVersion"])
    versions.append(engine.patch(at("configmaps", ns, "c"), {"data": {"a": "1"}}).ok()["metadata"]["resourceVersion"])
    with engine.watch(at("configmaps", ns), resourceVersion=versions[-1], fieldSelector="metadata.name=c") as events:
        engine.delete(at("configmaps", ns, "c")).ok()
        event = events.next()
        assert event["type"] == "DELETED"
        versions.append(event["object"]["metadata"]["resourceVersion"])
    versions.append(engine.patch(at("widgets", ns, "w"), {"spec": {"size": 9}}).ok()["metadata"]["resourceVersion"])
    numbers = [int(version) for version in versions]
    assert numbers == sorted(set(numbers))
    assert int(engine.get(at("widgets", ns)).ok()["metadata"]["resourceVersion"]) >= numbers[-1]
