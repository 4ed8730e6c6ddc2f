"""Section 10: the patches and what each refuses."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.contract.engines import Engine, Object, case
from tests.contract.kinds import at, config_map, widget

REJECTED = "the server rejected our request due to an error in our request"


@case("10-merge")
def test_a_merge_patch_merges_and_null_deletes(engine: Engine, ns: str) -> None:
    engine.post(at("widgets", ns), widget("w", {"size": 1, "labels": {"a": "1", "b": "2"}, "atom": ["x", "y"]})).ok(201)
    patched = engine.patch(at("widgets", ns, "w"), {"spec": {"labels": {"a": None, "c": "3"}, "atom": ["z"]}}).ok()
    assert patched["spec"]["labels"] == {"b": "2", "c": "3"} and patched["spec"]["atom"] == ["z"]
    for body in ("[]", '"x"', "{"):
        engine.patch(at("widgets", ns, "w"), body).refused(400, "BadRequest")


JSON_PATCHES: dict[str, tuple[list[Object], Object]] = {
    "add": ([{"op": "add", "path": "/data/b", "value": "2"}], {"a": "1", "b": "2"}),
    "remove": ([{"op": "remove", "path": "/data/a"}], {}),
    "replace": ([{"op": "replace", "path": "/data/a", "value": "9"}], {"a": "9"}),
    "move": ([{"op": "move", "from": "/data/a", "path": "/data/b"}], {"b": "1"}),
    "copy": ([{"op": "copy", "from": "/data/a", "path": "/data/b"}], {"a": "1", "b": "1"}),
    "test": ([{"op": "test", "path": "/data/a", "value": "1"}], {"a": "1"}),
}


@pytest.mark.parametrize("name", JSON_PATCHES)
@case("10-json")
def test_a_json_patch_has_six_operations(engine: Engine, ns: str, name: str) -> None:
    operations, expected = JSON_PATCHES[name]
    engine.post(at("configmaps", ns), config_map("c", {"a": "1"})).ok(201)
    assert engine.patch(at("configmaps", ns, "c"), operations, "json").ok().get("data", {}) == expected


@pytest.mark.parametrize("resource", ["configmaps", "widgets"])
@case("10-json-failure")
def test_a_json_patch_that_fails_is_invalid_and_one_that_is_none_is_bad(engine: Engine, ns: str, resource: str) -> None:
    engine.post(at(resource, ns), config_map("c", {"a": "1"}) if resource == "configmaps" else widget("c")).ok(201)
    path = at(resource, ns, "c")
    failing: list[Object] = [
        {"op": "test", "path": "/metadata/resourceVersion", "value": "1"},
        {"op": "remove", "path": "/metadata/nothing"},
        {"op": "replace", "path": "/no/such", "value": 1},
    ]
    for operation in failing:
        engine.patch(path, [operation], "json").refused(422, "Invalid", REJECTED)
    engine.patch(path, {"op": "test"}, "json").refused(400, "BadRequest")


@case("10-strategic-on-custom", "1-14-strategic-on-custom", "13-415")
def test_a_strategic_patch_of_a_custom_kind_is_unsupported(engine: Engine, ns: str) -> None:
    engine.post(at("widgets", ns), widget("w")).ok(201)
    status = engine.patch(at("widgets", ns, "w"), {"spec": {}}, "strategic").refused(415, "UnsupportedMediaType")
    assert status["message"] == (
        "the body of the request was in an unknown format - accepted media types include: "
        "application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml"
    )


@case("10-other")
def test_any_other_patch_is_unsupported(engine: Engine, ns: str) -> None:
    engine.post(at("configmaps", ns), config_map("c")).ok(201)
    for kind in ("application/json", "text/plain"):
        engine.patch(at("configmaps", ns, "c"), {}, kind).refused(415, "UnsupportedMediaType")


@pytest.mark.parametrize("kind", ["merge", "strategic"])
@case("10-wrong-type")
def test_a_patch_to_a_wrong_type_is_invalid(engine: Engine, ns: str, kind: str) -> None:
    engine.post(at("configmaps", ns), config_map("c")).ok(201)
    status = engine.patch(at("configmaps", ns, "c"), {"data": {"a": 1}}, kind).refused(422, "Invalid")
    assert status["details"]["causes"][0]["field"] == "patch"


@case("10-missing-object")
def test_a_patch_of_nothing_is_not_found_unless_it_applies(engine: Engine, ns: str) -> None:
    for kind, body in (("merge", {}), ("strategic", {}), ("json", [])):
        engine.patch(at("configmaps", ns, "c"), body, kind).refused(404, "NotFound", 'configmaps "c" not found')
    engine.apply(at("configmaps", ns, "c"), config_map("c")).ok(201)


@case("10-retry")
def test_patches_without_a_version_never_conflict(engine: Engine, ns: str) -> None:
    engine.post(at("widgets", ns), widget("w", {"labels": {}})).ok(201)

    def write(number: int) -> int:
        return engine.patch(at("widgets", ns, "w"), {"spec": {"labels": {f"k{number}": "v"}}}).status

    with ThreadPoolExecutor(8) as pool:
        assert set(pool.map(write, range(24))) == {200}
    assert len(engine.get(at("widgets", ns, "w")).ok()["spec"]["labels"]) == 24


@case("10-strategic-metadata")
def test_a_strategic_patch_merges_finalizers_and_owners(engine: Engine, ns: str) -> None:
    path = at("configmaps", ns, "c")
    space = engine.get(f"/api/v1/namespaces/{ns}").ok()["metadata"]["uid"]
    a = {"apiVersion": "v1", "kind": "Namespace", "name": ns, "uid": space}
    engine.post(at("configmaps", ns), config_map("c", finalizers=["e.org/a"], ownerReferences=[a])).ok(201)
    patched = engine.patch(
        path, {"metadata": {"finalizers": ["e.org/b"], "ownerReferences": [a | {"controller": True}]}}, "strategic"
    ).ok()
    assert sorted(patched["metadata"]["finalizers"]) == ["e.org/a", "e.org/b"]
    assert patched["metadata"]["ownerReferences"] == [a | {"controller": True}]
    removal: Object = {
        "metadata": {
            "$deleteFromPrimitiveList/finalizers": ["e.org/a"],
            "ownerReferences": [{"$patch": "delete", "uid": space}],
        }
    }
    patched = engine.patch(path, removal, "strategic").ok()
    assert patched["metadata"]["finalizers"] == ["e.org/b"] and "ownerReferences" not in patched["metadata"]
    engine.patch(path, {"metadata": {"finalizers": None}}, "strategic").ok()


def deployment(name: str, **pod: Any) -> Object:
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name},
        "spec": {
            "replicas": 0,
            "selector": {"matchLabels": {"a": "b"}},
            "template": {
                "metadata": {"labels": {"a": "b"}},
                "spec": {"containers": [{"name": "one", "image": "i:1"}], **pod},
            },
        },
    }


@case("10-strategic-lists", "10-strategic-retain-keys")
def test_a_strategic_patch_knows_the_keys_of_lists(engine: Engine, ns: str) -> None:
    path = at("deployments", ns, "d")
    engine.post(at("deployments", ns), deployment("d", volumes=[{"name": "v", "emptyDir": {}}])).ok(201)

    def patch(**pod: Any) -> Any:
        return engine.patch(path, {"spec": {"template": {"spec": pod}}}, "strategic").ok()["spec"]["template"]["spec"]

    spec = patch(containers=[{"name": "two", "image": "i:2", "env": [{"name": "A", "value": "1"}]}])
    assert [container["name"] for container in spec["containers"]] == ["two", "one"], "new items go first"
    spec = patch(containers=[{"name": "two", "env": [{"name": "B", "value": "2"}]}])
    assert [item["name"] for item in spec["containers"][0]["env"]] == ["B", "A"]
    spec = patch(
        **{
            "containers": [{"name": "one", "image": "i:9"}],
            "$setElementOrder/containers": [{"name": "one"}, {"name": "two"}],
        }
    )
    assert [(container["name"], container["image"]) for container in spec["containers"]] == [
        ("one", "i:9"),
        ("two", "i:2"),
    ]
    spec = patch(containers=[{"name": "two", "$patch": "delete"}])
    assert [container["name"] for container in spec["containers"]] == ["one"]
    spec = patch(volumes=[{"name": "v", "$retainKeys": ["name", "hostPath"], "hostPath": {"path": "/x"}}])
    assert [sorted(volume) for volume in spec["volumes"]] == [["hostPath", "name"]]
    changed = engine.patch(
        path, {"spec": {"strategy": {"$retainKeys": ["type"], "type": "Recreate"}}}, "strategic"
    ).ok()
    assert changed["spec"]["strategy"] == {"type": "Recreate"}
    spec = patch(containers=[{"$patch": "replace"}, {"name": "three", "image": "i:3"}])
    assert [container["name"] for container in spec["containers"]] == ["three"]


@case("10-strategic-service-ports", "10-strategic-service-account")
def test_service_ports_merge_by_port_and_image_pull_secrets_are_replaced(engine: Engine, ns: str) -> None:
    ports = [{"port": 80, "name": "a"}, {"port": 81, "name": "b"}]
    engine.post(at("services", ns), {"metadata": {"name": "s"}, "spec": {"clusterIP": "None", "ports": ports}}).ok(201)
    patched = engine.patch(at("services", ns, "s"), {"spec": {"ports": [{"port": 80, "name": "c"}]}}, "strategic").ok()
    assert {(port["port"], port["name"]) for port in patched["spec"]["ports"]} == {(80, "c"), (81, "b")}
    account: Object = {"metadata": {"name": "sa"}, "secrets": [{"name": "x"}], "imagePullSecrets": [{"name": "y"}]}
    engine.post(at("serviceaccounts", ns), account).ok(201)
    change: Object = {"secrets": [{"name": "z"}], "imagePullSecrets": [{"name": "w"}]}
    patched = engine.patch(at("serviceaccounts", ns, "sa"), change, "strategic").ok()
    assert sorted(item["name"] for item in patched["secrets"]) == ["x", "z"]
    assert patched["imagePullSecrets"] == [{"name": "w"}]
