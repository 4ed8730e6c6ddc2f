"""Sections 4 and 5: the requests that kubectl, helm and the Python clients send, in their order, and what they need."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.contract.engines import TABLE, Engine, Object, case
from tests.contract.kinds import GROUP, at, config_map, planet, widget

KUBECTL_TABLE = (
    "application/json;as=Table;v=v1;g=meta.k8s.io,application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json"
)
LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
STREAMED: dict[str, Any] = {
    "allowWatchBookmarks": "true",
    "resourceVersionMatch": "NotOlderThan",
    "sendInitialEvents": "true",
}


def strict(manager: str) -> dict[str, str]:
    return {"fieldManager": manager, "fieldValidation": "Strict"}


@case("4-version", "4-api-resources", "4-raw")
def test_version_and_discovery_are_plain_reads(engine: Engine) -> None:
    assert engine.get("/version", query={"timeout": "32s"}).ok()["major"]
    assert engine.get("/api", query={"timeout": "32s"}).ok()["kind"] == "APIVersions"
    assert engine.get("/healthz").text == "ok"


@case("4-get-name", "4-get-output", "4-get-subresource")
def test_get_reads_tables_or_objects(engine: Engine, ns: str) -> None:
    engine.post(at("widgets", ns), widget("w")).ok(201)
    for path in (at("widgets", ns, "w"), at("widgets", ns, "w", "status")):
        assert engine.get(path, accept=KUBECTL_TABLE).ok()["rows"][0]["cells"][0] == "w"
        assert engine.get(path, accept="application/json").ok()["kind"] == "Widget"


@case("4-get-watch")
def test_get_w_lists_then_watches_from_the_lists_version(engine: Engine, ns: str) -> None:
    engine.post(at("widgets", ns), widget("a")).ok(201)
    listed = engine.get(at("widgets", ns), query={"limit": 500}, accept=KUBECTL_TABLE).ok()
    version = listed["metadata"]["resourceVersion"]
    with engine.watch(at("widgets", ns), accept=KUBECTL_TABLE, resourceVersion=version) as events:
        engine.post(at("widgets", ns), widget("b")).ok(201)
        event = events.next()
        assert event["object"]["columnDefinitions"] and event["object"]["rows"][0]["cells"][0] == "b"


@case("4-get-name-watch")
def test_get_name_w_expects_the_object_first(engine: Engine, ns: str) -> None:
    engine.post(at("widgets", ns), widget("a")).ok(201)
    selector = "metadata.name=a"
    with engine.watch(at("widgets", ns), accept=TABLE, fieldSelector=selector, resourceVersion="0") as events:
        assert events.next()["type"] == "ADDED"


@case("4-get-all")
def test_categories_are_in_discovery(engine: Engine) -> None:
    resources = engine.get(f"/apis/{GROUP}/v1").ok()["resources"]
    assert "all" in next(found for found in resources if found["name"] == "widgets")["categories"]
    services = engine.get("/api/v1").ok()["resources"]
    assert next(found for found in services if found["name"] == "services")["categories"] == ["all"]


@case("4-create")
def test_create_is_a_strict_post(engine: Engine, ns: str) -> None:
    created = engine.post(at("widgets", ns), widget("w"), query=strict("kubectl-create")).ok(201)
    assert created["metadata"]["managedFields"][0]["manager"] == "kubectl-create"


@case("4-apply-new", "4-apply-changed", "4-apply-unchanged", "4-edit", "4-apply-dry-run", "4-diff")
def test_client_side_apply_creates_patches_and_leaves_alone(engine: Engine, ns: str) -> None:
    for resource, kind, body, changed in (
        ("configmaps", "strategic", config_map("x", {"a": "1"}), {"data": {"a": "2"}}),
        ("widgets", "merge", widget("x"), {"spec": {"size": 2}}),
    ):
        path = at(resource, ns, "x")
        engine.get(path).refused(404, "NotFound")
        query = strict("kubectl-client-side-apply")
        noted = body | {"metadata": body["metadata"] | {"annotations": {LAST_APPLIED: json.dumps(body)}}}
        created = engine.post(at(resource, ns), noted, query=query).ok(201)
        version = created["metadata"]["resourceVersion"]
        dry = engine.patch(
            path, changed | {"metadata": {"resourceVersion": version}}, kind, query=query | {"dryRun": "All"}
        )
        assert dry.ok()["metadata"]["resourceVersion"] == version
        patched = engine.patch(path, changed, kind, query=query).ok()
        assert patched["metadata"]["resourceVersion"] != version
        edited = engine.patch(path, {"metadata": {"labels": {"e": "1"}}}, kind, query=strict("kubectl-edit")).ok()
        assert edited["metadata"]["labels"] == {"e": "1"}


@case("4-apply-server-side", "5-lightkube")
def test_server_side_apply_sends_json_as_yaml(engine: Engine, ns: str) -> None:
    query = strict("kubectl") | {"force": "false"}
    text = json.dumps(config_map("c", {"a": "1"}))
    engine.patch(at("configmaps", ns, "c"), text, "apply", query=query).ok(201)
    engine.patch(at("configmaps", ns, "c"), text, "apply", query=query).ok(200)
    engine.patch(at("configmaps", ns, "c"), text, "apply", query=query | {"force": "true"}).ok(200)


@case("4-replace")
def test_replace_puts_with_the_version_it_read(engine: Engine, ns: str) -> None:
    engine.post(at("configmaps", ns), config_map("c")).ok(201)
    read = engine.get(at("configmaps", ns, "c")).ok()
    replaced = engine.put(at("configmaps", ns, "c"), read | {"data": {"a": "1"}}, query=strict("kubectl-replace")).ok()
    assert replaced["data"] == {"a": "1"}
    engine.delete(at("configmaps", ns, "c"), {"propagationPolicy": "Background"}).ok()
    engine.get(at("configmaps", ns, "c")).refused(404)
    engine.post(at("configmaps", ns), config_map("c"), query=strict("kubectl-replace")).ok(201)


@case("4-patch", "4-label")
def test_patch_and_label_send_small_patches(engine: Engine, ns: str) -> None:
    path = at("configmaps", ns, "c")
    engine.post(at("configmaps", ns), config_map("c", labels={"old": "1"})).ok(201)
    for kind in ("strategic", "merge"):
        engine.patch(path, {"data": {kind: "1"}}, kind, query={"fieldManager": "kubectl-patch"}).ok()
    labelled = engine.patch(
        path, {"metadata": {"labels": {"old": None, "new": "1"}}}, query={"fieldManager": "kubectl-label"}
    ).ok()
    assert labelled["metadata"]["labels"] == {"new": "1"}
    found = engine.get(at("configmaps", ns), query={"labelSelector": "new=1", "limit": 500}).ok()["items"]
    assert [item["metadata"]["name"] for item in found] == ["c"]


@pytest.mark.parametrize("options", [{"propagationPolicy": "Background"}, {"propagationPolicy": "Foreground"}, {}])
@case("4-delete", "4-delete-all", "5-kr8s-delete")
def test_delete_sends_options_and_waits_by_watching(engine: Engine, ns: str, options: Object) -> None:
    engine.post(at("configmaps", ns), config_map("c", finalizers=["e.org/f"])).ok(201)
    assert len(engine.get(at("configmaps", ns), query={"fieldSelector": "metadata.name=c"}).ok()["items"]) == 1
    engine.delete(at("configmaps", ns, "c"), options | {"gracePeriodSeconds": 0}).ok()
    engine.get(at("configmaps", ns, "c")).ok()
    with engine.watch(at("configmaps", ns), fieldSelector="metadata.name=c", **STREAMED) as events:
        assert [event["type"] for event in events.take(2)] == ["ADDED", "BOOKMARK"]
        engine.patch(at("configmaps", ns, "c"), [{"op": "remove", "path": "/metadata/finalizers/0"}], "json").ok()
        events.until(lambda event: event["type"] == "DELETED")


@case("4-wait", "4-wait-create")
def test_wait_watches_one_object_by_name(engine: Engine, ns: str) -> None:
    engine.get(at("widgets", ns, "w")).refused(404)
    engine.post(at("widgets", ns), widget("w")).ok(201)
    with engine.watch(at("widgets", ns), fieldSelector="metadata.name=w", **STREAMED) as events:
        assert [event["type"] for event in events.take(2)] == ["ADDED", "BOOKMARK"]
        condition = {"type": "Ready", "status": "True"}
        engine.patch(at("widgets", ns, "w", "status"), {"status": {"conditions": [condition]}}).ok()
        assert events.next()["object"]["status"]["conditions"] == [condition]


@case("4-describe-custom")
def test_describe_asks_for_events_by_uid(engine: Engine, ns: str) -> None:
    created = engine.post(at("widgets", ns), widget("w")).ok(201)
    uid = created["metadata"]["uid"]
    about = {"apiVersion": f"{GROUP}/v1", "kind": "Widget", "name": "w", "namespace": ns, "uid": uid}
    engine.post(at("events", ns), {"metadata": {"generateName": "e-"}, "involvedObject": about, "reason": "Made"}).ok(
        201
    )
    selector = (
        f"involvedObject.kind=Widget,involvedObject.uid={uid},involvedObject.name=w,involvedObject.namespace={ns}"
    )
    assert len(engine.get(at("events", ns), query={"fieldSelector": selector, "limit": 500}).ok()["items"]) == 1


@case("4-scale")
def test_scale_patches_the_subresource_and_gets_a_scale(engine: Engine, ns: str) -> None:
    engine.post(at("widgets", ns), widget("w", {"replicas": 1})).ok(201)
    scaled = engine.patch(at("widgets", ns, "w", "scale"), {"spec": {"replicas": 2}}).ok()
    assert (scaled["kind"], scaled["spec"]["replicas"]) == ("Scale", 2)


@case("4-rollout")
def test_rollout_restart_patches_the_template(engine: Engine, ns: str) -> None:
    pod: Object = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    spec: Object = {"replicas": 0, "selector": {"matchLabels": {"a": "b"}}, "template": pod}
    engine.post(at("deployments", ns), {"metadata": {"name": "d"}, "spec": spec}).ok(201)
    note = {"kubectl.kubernetes.io/restartedAt": "2026-01-01T00:00:00Z"}
    patch: Object = {"spec": {"template": {"metadata": {"annotations": note}}}}
    query = {"fieldManager": "kubectl-rollout"}
    restarted = engine.patch(at("deployments", ns, "d"), patch, "strategic", query=query).ok()
    assert restarted["spec"]["template"]["metadata"]["annotations"] == note
    assert restarted["metadata"]["generation"] == 2


@case("4-prune")
def test_the_kinds_that_prune_looks_for_are_in_discovery(engine: Engine) -> None:
    wanted = {
        "/api/v1": "configmaps endpoints namespaces persistentvolumeclaims persistentvolumes pods "
        "replicationcontrollers secrets services",
        "/apis/apps/v1": "daemonsets deployments replicasets statefulsets",
        "/apis/batch/v1": "cronjobs jobs",
        "/apis/networking.k8s.io/v1": "ingresses",
    }
    missing = []
    for path, resources in wanted.items():
        found = {resource["name"] for resource in engine.get(path).ok()["resources"]}
        missing += [name for name in resources.split() if name not in found]
    assert missing == engine.expected("4-prune")


@case("5-kubernetes-times")
def test_times_with_an_offset_are_normalised(engine: Engine, ns: str) -> None:
    created = engine.post(at("configmaps", ns), config_map("c")).ok(201)
    stamp = created["metadata"]["creationTimestamp"]
    created["metadata"]["creationTimestamp"] = stamp.replace("Z", "+00:00")
    again = engine.put(at("configmaps", ns, "c"), created).ok()
    assert again["metadata"]["creationTimestamp"] == stamp


@case("5-kubernetes-asyncio")
def test_a_content_type_on_a_read_and_watch_true_are_fine(engine: Engine, ns: str) -> None:
    headers = {"Content-Type": "application/json"}
    assert engine.http("GET", at("configmaps", ns), headers=headers).status == 200
    engine.post(at("configmaps", ns), config_map("c")).ok(201)
    with engine.watch(at("configmaps", ns), watch="True", fieldSelector="metadata.name=c") as events:
        assert events.next()["type"] == "ADDED"


@case("5-kr8s")
def test_kr8s_reads_by_repeated_selectors_and_slashes(engine: Engine, ns: str) -> None:
    engine.post(at("configmaps", ns), config_map("c")).ok(201)
    for path in ("/version/", "/api/", "/apis/", f"/apis/{GROUP}/v1"):
        engine.get(path).ok()
    query = {"fieldSelector": "metadata.name=c,metadata.name=c", "limit": "100"}
    assert len(engine.get(at("configmaps", ns), query=query).ok()["items"]) == 1
    engine.delete(at("configmaps", ns, "c"), {}).ok()


@case("5-lightkube-watch")
def test_a_watch_may_be_short(engine: Engine, ns: str) -> None:
    with engine.watch(at("widgets", ns), timeoutSeconds=1) as events:
        assert events.rest() == []


@case("5-kopf")
def test_kopf_guards_its_finalizer_with_a_json_patch(engine: Engine) -> None:
    name = engine.fresh("planet")
    path = f"/apis/{GROUP}/v1/planets"
    version = engine.get(path).ok()["metadata"]["resourceVersion"]
    with engine.watch(path, allowWatchBookmarks="true", resourceVersion=version) as events:
        created = engine.post(path, planet(name)).ok(201)
        events.until(lambda event: event["object"]["metadata"].get("name") == name)
    guard: Object = {"op": "test", "path": "/metadata/resourceVersion", "value": created["metadata"]["resourceVersion"]}
    add: Object = {"op": "add", "path": "/metadata/finalizers", "value": ["kopf.zalando.org/KopfFinalizerMarker"]}
    engine.patch(f"{path}/{name}", [guard, add], "json").ok()
    engine.patch(f"{path}/{name}", [guard, {"op": "remove", "path": "/metadata/finalizers"}], "json").refused(422)
    engine.patch(f"{path}/{name}", {"status": {"kopf": {"progress": 1}}}).ok()
    event: Object = {"metadata": {"generateName": "kopf-event-"}, "involvedObject": {"kind": "Planet", "name": name}}
    engine.post(at("events", "default"), event | {"type": "Normal", "reason": "Logging"}).ok(201)
    engine.patch(f"{path}/{name}", {"metadata": {"finalizers": None}}).ok()


@case("13-shape", "13-400")
def test_a_failure_is_a_status(engine: Engine, ns: str) -> None:
    status = engine.get(at("widgets", ns, "nope")).refused(404, "NotFound")
    assert status == {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": 'widgets.shop.example.org "nope" not found',
        "reason": "NotFound",
        "details": {"name": "nope", "group": GROUP, "kind": "widgets"},
        "code": 404,
    }
    headers = {"Content-Type": "application/json"}
    engine.http("POST", at("configmaps", ns), "{", headers=headers).refused(400, "BadRequest")
    engine.http("POST", at("configmaps", ns), '{"data":{"a":1},"metadata":{"name":"c"}}', headers=headers).refused(
        400, "BadRequest", 'ConfigMap in version "v1" cannot be handled as a ConfigMap'
    )
