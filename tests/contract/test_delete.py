"""Section 12: deleting, finalizers, preconditions, collections."""

from __future__ import annotations

import pytest

from tests.contract.engines import Engine, Object, case
from tests.contract.kinds import at, config_map, owner, widget

GROUP = "shop.example.org"


@case("12-no-finalizers", "1-13-delete-answers-status")
def test_deleting_answers_a_status_that_names_what_went(engine: Engine, ns: str) -> None:
    for resource, body, group in (("configmaps", config_map("c"), ""), ("widgets", widget("c"), GROUP)):
        uid = engine.post(at(resource, ns), body).ok(201)["metadata"]["uid"]
        status = engine.delete(at(resource, ns, "c")).ok(200)
        assert (status["kind"], status["status"]) == ("Status", "Success")
        expected = {"name": "c", "kind": resource, "uid": uid, **({"group": group} if group else {})}
        assert status["details"] == expected
        engine.get(at(resource, ns, "c")).refused(404, "NotFound")
        engine.delete(at(resource, ns, "c")).refused(404, "NotFound")


@case("12-finalizers", "1-13-delete-answers-object")
def test_deleting_what_is_held_answers_the_object_and_tells_watchers(engine: Engine, ns: str) -> None:
    created = engine.post(at("widgets", ns), widget("w", finalizers=["e.org/f"])).ok(201)
    path = at("widgets", ns, "w")
    with engine.watch(at("widgets", ns), resourceVersion=created["metadata"]["resourceVersion"]) as events:
        marked = engine.delete(path).ok(200)
        assert marked["kind"] == "Widget" and marked["metadata"]["deletionTimestamp"]
        assert marked["metadata"]["deletionGracePeriodSeconds"] == 0
        assert engine.delete(path).ok(200) == marked
        modified = events.next()
        assert (modified["type"], modified["object"]) == ("MODIFIED", marked)
    engine.patch(path, {"metadata": {"finalizers": None}}).ok()


@case("12-while-terminating")
def test_a_terminating_object_can_lose_finalizers_but_gain_none(engine: Engine, ns: str) -> None:
    path = at("configmaps", ns, "c")
    engine.post(at("configmaps", ns), config_map("c", finalizers=["e.org/a", "e.org/b"])).ok(201)
    marked = engine.delete(path).ok()
    engine.patch(path, {"metadata": {"finalizers": ["e.org/a", "e.org/b", "e.org/g"]}}).refused(
        422,
        "Invalid",
        "metadata.finalizers: Forbidden: no new finalizers can be added if the object is being deleted, "
        'found new finalizers []string{"e.org/g"}',
    )
    engine.patch(path, {"data": {"a": "1"}, "metadata": {"finalizers": ["e.org/a"]}}).ok()
    kept = engine.patch(path, {"metadata": {"deletionTimestamp": None}}).ok()
    assert kept["metadata"]["deletionTimestamp"] == marked["metadata"]["deletionTimestamp"]
    engine.patch(path, {"metadata": {"finalizers": None}}).ok()


@case("12-last-finalizer")
def test_removing_the_last_finalizer_removes_the_object(engine: Engine, ns: str) -> None:
    path = at("widgets", ns, "w")
    engine.post(at("widgets", ns), widget("w", finalizers=["e.org/f"])).ok(201)
    marked = engine.delete(path).ok()
    with engine.watch(at("widgets", ns), resourceVersion=marked["metadata"]["resourceVersion"]) as events:
        answer = engine.patch(path, {"metadata": {"finalizers": []}}).ok(200)
        assert answer["metadata"]["resourceVersion"] == marked["metadata"]["resourceVersion"]
        assert "finalizers" not in answer["metadata"]
        assert events.next()["type"] == "DELETED"
    engine.get(path).refused(404, "NotFound")


@case("12-preconditions")
def test_a_delete_can_name_what_it_means(engine: Engine, ns: str) -> None:
    path = at("configmaps", ns, "c")
    created = engine.post(at("configmaps", ns), config_map("c")).ok(201)["metadata"]
    status = engine.delete(path, {"preconditions": {"uid": "x"}}).refused(409, "Conflict")
    text = f"the UID in the precondition (x) does not match the UID in record ({created['uid']}). "
    assert text + "The object might have been deleted and then recreated" in status["message"]
    status = engine.delete(path, {"preconditions": {"resourceVersion": "1"}}).refused(409, "Conflict")
    assert (
        "the ResourceVersion in the precondition (1) does not match the ResourceVersion in record" in status["message"]
    )
    right = {"uid": created["uid"], "resourceVersion": created["resourceVersion"]}
    engine.delete(path, {"preconditions": right}).ok()


@case("12-propagation-policy")
def test_propagation_has_three_words_in_the_body_or_the_query(engine: Engine, ns: str) -> None:
    for policy in ("Foreground", "Background", "Orphan"):
        engine.post(at("configmaps", ns), config_map("c")).ok(201)
        path = at("configmaps", ns, "c")
        engine.delete(path, {"propagationPolicy": policy, "dryRun": ["All"]}).ok()
        engine.delete(path, query={"propagationPolicy": policy}).ok()
        engine.gone(path)
    engine.post(at("configmaps", ns), config_map("c")).ok(201)
    path = at("configmaps", ns, "c")
    status = engine.delete(path, {"propagationPolicy": "Sideways"}).refused(422, "Invalid")
    assert status["details"]["causes"][0]["field"] == "propagationPolicy"
    engine.delete(path, {"propagationPolicy": "Sideways"}).refused(
        422, "Invalid", "propagationPolicy: Unsupported value"
    )
    engine.delete(path, {"propagationPolicy": "Orphan", "orphanDependents": True}).refused(
        422, "Invalid", "orphanDependents and deletionPropagation cannot be both set"
    )


@case("12-owner-references")
def test_owner_references_are_checked(engine: Engine, ns: str) -> None:
    root = owner(engine.post(at("configmaps", ns), config_map("root")).ok(201))
    for missing in ("apiVersion", "kind", "name", "uid"):
        broken = {name: value for name, value in root.items() if name != missing}
        engine.post(at("configmaps", ns), config_map("c", ownerReferences=[broken])).refused(
            422, "Invalid", f"metadata.ownerReferences[0].{missing}: Required value: must not be empty"
        )
    two = [root | {"controller": True}, root | {"uid": "other", "controller": True}]
    engine.post(at("configmaps", ns), config_map("c", ownerReferences=two)).refused(
        422, "Invalid", "Only one reference can have Controller set to true"
    )
    doubled = engine.post(at("configmaps", ns), config_map("c", ownerReferences=[root, root]))
    assert doubled.ok(201)["metadata"]["ownerReferences"] == [root]
    assert "duplicate" in doubled.warnings[0]


@case("12-delete-collection")
def test_a_collection_is_deleted_by_selector(engine: Engine, ns: str) -> None:
    for name, label in (("a", "x"), ("b", "x"), ("c", "y")):
        engine.post(at("widgets", ns), widget(name, labels={"l": label})).ok(201)
    deleted = engine.http("DELETE", at("widgets", ns), query={"labelSelector": "l=x"}).ok(200)
    assert deleted["kind"] == "WidgetList" and sorted(i["metadata"]["name"] for i in deleted["items"]) == ["a", "b"]
    assert [item["metadata"]["name"] for item in engine.get(at("widgets", ns)).ok()["items"]] == ["c"]


PROTECTED = ["default", "kube-system", "kube-public"]


@pytest.mark.parametrize("name", PROTECTED)
@case("12-protected-namespaces")
def test_some_namespaces_may_not_be_deleted(engine: Engine, name: str) -> None:
    status = engine.delete(f"/api/v1/namespaces/{name}").refused(403, "Forbidden")
    assert status["message"] == f'namespaces "{name}" is forbidden: this namespace may not be deleted'


@case("12-start-up-objects")
def test_a_new_server_has_its_namespaces_and_their_accounts(engine: Engine, ns: str) -> None:
    for name in (*PROTECTED, "kube-node-lease"):
        engine.eventually(f"/api/v1/namespaces/{name}", lambda response: response.status == 200)
    for name in (*PROTECTED, ns):
        engine.eventually(at("serviceaccounts", name, "default"), lambda response: response.status == 200)


@case("12-re-create")
def test_a_name_is_free_again_once_its_object_is_gone(engine: Engine, ns: str) -> None:
    path = at("configmaps", ns)
    first = engine.post(path, config_map("c", finalizers=["e.org/f"])).ok(201)
    engine.delete(f"{path}/c").ok()
    engine.post(path, config_map("c")).refused(409, "AlreadyExists", "object is being deleted")
    engine.patch(f"{path}/c", {"metadata": {"finalizers": None}}).ok()
    again: Object = engine.post(path, config_map("c")).ok(201)
    assert again["metadata"]["uid"] != first["metadata"]["uid"]
