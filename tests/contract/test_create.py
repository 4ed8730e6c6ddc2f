"""Section 6.1: what a create does, fills in and refuses."""

from __future__ import annotations

import re
from uuid import UUID

import pytest

from tests.contract.engines import Engine, Object, case
from tests.contract.kinds import GROUP, at, config_map, plain, widget

STAMP = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")


@case("6.1-server-sets")
def test_a_created_object_gets_identity_time_version_and_an_owner_of_its_fields(engine: Engine, ns: str) -> None:
    created = engine.post(at("widgets", ns), widget("w"), query={"fieldManager": "me"}).ok(201)
    metadata = created["metadata"]
    assert UUID(metadata["uid"]).version == 4
    assert STAMP.fullmatch(metadata["creationTimestamp"])
    assert metadata["resourceVersion"].isdecimal()
    assert metadata["generation"] == 1
    [entry] = metadata["managedFields"]
    assert (entry["manager"], entry["operation"], entry["apiVersion"]) == ("me", "Update", f"{GROUP}/v1")
    assert entry["fieldsV1"] == {"f:spec": {".": {}, "f:mode": {}, "f:size": {}}}


@case("6.1-generation-not-everywhere")
def test_kinds_of_configuration_have_no_generation(engine: Engine, ns: str) -> None:
    for resource in ("configmaps", "secrets", "serviceaccounts"):
        created = engine.post(at(resource, ns), {"metadata": {"name": "x"}}).ok(201)
        assert "generation" not in created["metadata"], resource
        assert not created["metadata"].get("managedFields") or resource == "secrets", "nothing was sent to own"
    assert "generation" not in engine.get(f"/api/v1/namespaces/{ns}").ok()["metadata"]


@pytest.mark.parametrize(("agent", "manager"), [("kubectl/v1.37 (linux)", "kubectl"), ("plain", "plain")])
@case("6.1-manager-from-user-agent")
def test_the_manager_is_the_user_agent_up_to_its_slash(engine: Engine, ns: str, agent: str, manager: str) -> None:
    headers = {"User-Agent": agent}
    created = engine.http("POST", at("configmaps", ns), config_map("c", {"a": "1"}), headers=headers).ok(201)
    assert created["metadata"]["managedFields"][0]["manager"] == manager


@case("6.1-client-sent-dropped")
def test_identity_that_a_client_sends_is_replaced(engine: Engine, ns: str) -> None:
    stamp = "2001-01-01T00:00:00Z"
    sent = config_map("c", uid="mine", creationTimestamp=stamp, deletionTimestamp=stamp, selfLink="/x", generation=9)
    metadata = engine.post(at("configmaps", ns), sent).ok(201)["metadata"]
    assert metadata["uid"] != "mine" and metadata["creationTimestamp"] != stamp
    assert not {"deletionTimestamp", "selfLink"} & set(metadata)


@case("6.1-kind-missing")
def test_a_missing_kind_is_filled_in_for_built_in_kinds_only(engine: Engine, ns: str) -> None:
    created = engine.post(at("configmaps", ns), {"metadata": {"name": "c"}}).ok(201)
    assert (created["apiVersion"], created["kind"]) == ("v1", "ConfigMap")
    body: Object = {"metadata": {"name": "w"}, "spec": {}}
    engine.post(at("widgets", ns), body).refused(400, "BadRequest", "Object 'Kind' is missing in")


@case("6.1-kind-wrong")
def test_another_kind_or_version_than_the_urls_is_refused(engine: Engine, ns: str) -> None:
    engine.post(at("configmaps", ns), config_map("c") | {"kind": "Secret"}).refused(400, "BadRequest")
    engine.post(at("widgets", ns), widget("w") | {"kind": "Other"}).refused(
        422, "Invalid", 'Other.shop.example.org "w" is invalid: kind: Invalid value: "Other": must be Widget'
    )
    engine.post(at("widgets", ns), widget("w") | {"apiVersion": f"{GROUP}/v9"}).refused(
        400,
        "BadRequest",
        f"the API version in the data ({GROUP}/v9) does not match the expected API version ({GROUP}/v1)",
    )


@case("6.1-namespace-mismatch")
def test_a_namespace_other_than_the_urls_is_refused(engine: Engine, ns: str) -> None:
    for body in (config_map("c", namespace="other"), widget("c", namespace="other")):
        path = at("configmaps" if body["kind"] == "ConfigMap" else "widgets", ns)
        engine.post(path, body).refused(
            400,
            "BadRequest",
            "the namespace of the provided object does not match the namespace sent on the request",
        )


@case("6.1-namespace-missing")
def test_a_missing_namespace_refuses_writes_and_reads_as_empty(engine: Engine) -> None:
    for resource, body in (("configmaps", config_map("c")), ("widgets", widget("c"))):
        status = engine.post(at(resource, "nope"), body).refused(404, "NotFound", 'namespaces "nope" not found')
        assert status["details"] == {"name": "nope", "kind": "namespaces"}
        assert engine.get(at(resource, "nope")).ok()["items"] == []
        with engine.watch(at(resource, "nope"), timeoutSeconds=1) as events:
            assert events.status == 200 and events.rest() == []


@case("6.1-resource-version-set")
def test_a_resource_version_on_create_is_refused(engine: Engine, ns: str) -> None:
    text = "resourceVersion should not be set on objects to be created"
    for resource, body in (("configmaps", config_map("c")), ("widgets", widget("c"))):
        body["metadata"]["resourceVersion"] = "5"
        engine.post(at(resource, ns), body).refused(engine.expected("6.1-resource-version-set"), "", text)


@case("6.1-exists")
def test_a_name_in_use_is_refused_and_a_terminating_one_says_so(engine: Engine, ns: str) -> None:
    for resource, body, shown in (
        ("configmaps", config_map("c", finalizers=["e.org/f"]), "configmaps"),
        ("widgets", widget("c", finalizers=["e.org/f"]), "widgets.shop.example.org"),
    ):
        path = at(resource, ns)
        engine.post(path, body).ok(201)
        status = engine.post(path, body).refused(409, "AlreadyExists", f'{shown} "c" already exists')
        assert status["message"] == f'{shown} "c" already exists'
        assert status["details"]["name"] == "c" and status["details"]["kind"] == resource
        engine.delete(f"{path}/c").ok()
        status = engine.post(path, body).refused(409, "AlreadyExists")
        assert status["message"] == f'object is being deleted: {shown} "c" already exists'
        engine.patch(f"{path}/c", {"metadata": {"finalizers": None}}).ok()


@case("6.1-no-name")
def test_an_object_needs_a_name_or_a_way_to_make_one(engine: Engine, ns: str) -> None:
    for resource, body in (("configmaps", config_map("")), ("widgets", widget(""))):
        status = engine.post(at(resource, ns), body).refused(422, "Invalid")
        assert "metadata.name: Required value: name or generateName is required" in status["message"]
        assert status["details"]["causes"][0] == {
            "reason": "FieldValueRequired",
            "message": "Required value: name or generateName is required",
            "field": "metadata.name",
        }


@case("6.1-generate-name")
def test_generated_names_add_five_letters_to_a_base_of_at_most_58(engine: Engine, ns: str) -> None:
    body = config_map("", generateName="base-")
    del body["metadata"]["name"]
    name = engine.post(at("configmaps", ns), body).ok(201)["metadata"]["name"]
    assert re.fullmatch(r"base-[bcdfghjklmnpqrstvwxz2456789]{5}", name)
    body["metadata"]["generateName"] = "x" * 70
    made = engine.post(at("configmaps", ns), body).ok(201)["metadata"]
    assert re.fullmatch("x{58}[bcdfghjklmnpqrstvwxz2456789]{5}", made["name"])
    both = engine.post(at("configmaps", ns), config_map("set", generateName="base-")).ok(201)["metadata"]
    assert (both["name"], both["generateName"]) == ("set", "base-")


NAMES: dict[str, tuple[str, Object, str]] = {
    "upper case": ("configmaps", config_map("Upper"), "a lowercase RFC 1123 subdomain must consist of"),
    "too long": ("configmaps", config_map("a" * 254), "must be no more than 253 "),
    "custom kind": ("widgets", widget("under_score"), "a lowercase RFC 1123 subdomain must consist of"),
    "label key": ("configmaps", config_map("c", labels={"a b": "1"}), 'metadata.labels: Invalid value: "a b"'),
    "label value": ("widgets", widget("c", labels={"a": "-"}), 'metadata.labels: Invalid value: "-"'),
    "annotation key": ("configmaps", config_map("c", annotations={"a b": "1"}), "metadata.annotations: Invalid value"),
    "finalizer": ("configmaps", config_map("c", finalizers=["a b"]), 'metadata.finalizers[0]: Invalid value: "a b"'),
    "annotations in all": (
        "configmaps",
        config_map("c", annotations={"a": "x" * 262144}),
        "metadata.annotations: Too long: may not be more than 262144 bytes",
    ),
    "data in all": (
        "configmaps",
        config_map("c", {"a": "x" * 1048577}),
        "Too long: may not be more than 1048576 bytes",
    ),
}


@pytest.mark.parametrize("row", NAMES)
@case("6.1-names")
def test_names_labels_annotations_and_sizes_are_checked(engine: Engine, ns: str, row: str) -> None:
    resource, body, text = NAMES[row]
    engine.post(at(resource, ns), body).refused(422, "Invalid", text)


@case("6.1-namespace-names")
def test_a_namespace_is_named_by_a_label(engine: Engine) -> None:
    for name in ("a.b", "a" * 64):
        status = engine.post("/api/v1/namespaces", {"metadata": {"name": name}}).refused(422, "Invalid")
        assert "metadata.name: Invalid value" in status["message"]


@case("6.1-finalizer-without-domain")
def test_a_finalizer_without_a_domain_is_warned_about_or_on_built_in_kinds_refused(engine: Engine, ns: str) -> None:
    response = engine.post(at("plains", ns), plain("p", finalizers=["bare"]))
    assert response.ok(201)["metadata"]["finalizers"] == ["bare"]
    assert len(response.warnings) == 1
    assert response.warnings[0].startswith('metadata.finalizers: "bare": prefer a domain-qualified finalizer name')
    engine.patch(at("plains", ns, "p"), {"metadata": {"finalizers": None}}).ok()
    engine.post(at("configmaps", ns), config_map("c", finalizers=["bare"])).refused(
        422, "Invalid", 'metadata.finalizers[0]: Invalid value: "bare": name is neither a standard finalizer name nor'
    )


@case("6.1-dry-run")
def test_a_dry_run_create_answers_whole_and_stores_nothing(engine: Engine, ns: str) -> None:
    for resource, body in (("configmaps", config_map("c")), ("widgets", widget("c"))):
        created = engine.post(at(resource, ns), body, query={"dryRun": "All"}).ok(201)
        assert created["metadata"]["uid"] and "resourceVersion" not in created["metadata"]
        engine.get(at(resource, ns, "c")).refused(404, "NotFound")
    engine.post(at("widgets", ns), widget("c", {"size": -1}), query={"dryRun": "All"}).refused(422, "Invalid")


@case("6.1-status-dropped")
def test_a_status_on_create_is_dropped_where_status_is_a_subresource(engine: Engine, ns: str) -> None:
    created = engine.post(at("widgets", ns), widget("w") | {"status": {"ready": True}}).ok(201)
    assert "status" not in created
    created = engine.post(at("plains", ns), plain("p") | {"status": {"ready": True}}).ok(201)
    assert created["status"] == {"ready": True}
