"""Section 15: what is special about single built-in kinds."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from tests.contract.engines import Engine, Object, case
from tests.contract.kinds import RBAC, at, config_map


def secret(name: str, **fields: Any) -> Object:
    return {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, **fields}


@case("15-secret-string-data")
def test_string_data_is_merged_into_data(engine: Engine, ns: str) -> None:
    body = secret("s", data={"a": "MQ==", "b": "MQ=="}, stringData={"b": "2", "c": "3"})
    created = engine.post(at("secrets", ns), body).ok(201)
    assert created["data"] == {"a": "MQ==", "b": "Mg==", "c": "Mw=="}
    assert created["type"] == "Opaque" and "stringData" not in created


@case("15-secret-type")
def test_the_type_of_a_secret_is_immutable_and_has_keys(engine: Engine, ns: str) -> None:
    engine.post(at("secrets", ns), secret("s")).ok(201)
    engine.patch(at("secrets", ns, "s"), {"type": "other"}).refused(
        422, "Invalid", 'type: Invalid value: "other": field is immutable'
    )
    engine.post(at("secrets", ns), secret("t", type="kubernetes.io/tls")).refused(
        422, "Invalid", "data[tls.crt]: Required value", "data[tls.key]: Required value"
    )
    engine.post(at("secrets", ns), secret("b", type="kubernetes.io/basic-auth")).refused(
        422, "Invalid", "data[username]: Required value", "data[password]: Required value"
    )
    engine.post(at("secrets", ns), secret("d", type="kubernetes.io/dockerconfigjson")).refused(
        422, "Invalid", "data[.dockerconfigjson]: Required value"
    )


@pytest.mark.parametrize("resource", ["secrets", "configmaps"])
@case("15-immutable")
def test_immutable_data_is_frozen(engine: Engine, ns: str, resource: str) -> None:
    data = {"a": "MQ=="}
    engine.post(at(resource, ns), {"metadata": {"name": "x"}, "data": data, "immutable": True}).ok(201)
    path = at(resource, ns, "x")
    text = "field is immutable when `immutable` is set"
    engine.patch(path, {"data": {"a": "Mg=="}}).refused(422, "Invalid", f"data: Forbidden: {text}")
    engine.patch(path, {"immutable": False}).refused(422, "Invalid", f"immutable: Forbidden: {text}")
    engine.patch(path, {"metadata": {"labels": {"a": "b"}}}).ok()


@case("15-secret-base64")
def test_data_that_is_not_base64_is_a_bad_request(engine: Engine, ns: str) -> None:
    engine.post(at("secrets", ns), secret("s", data={"a": "!"})).refused(
        400, "BadRequest", "cannot be handled as a Secret"
    )


@case("15-config-map-keys")
def test_keys_of_data_and_binary_data_are_disjoint(engine: Engine, ns: str) -> None:
    binary = base64.b64encode(b"x").decode()
    engine.post(at("configmaps", ns), config_map("c", {"a": "1"}) | {"binaryData": {"a": binary}}).refused(
        422, "Invalid", "duplicate of key present in"
    )
    engine.post(at("configmaps", ns), config_map("c", {"a/b": "1"})).refused(422, "Invalid", "data[a/b]: Invalid value")


EVENT: Object = {
    "metadata": {"name": "e"},
    "reason": "Made",
    "message": "it was made",
    "type": "Normal",
    "source": {"component": "maker", "host": "h"},
    "count": 3,
    "firstTimestamp": "2026-01-01T00:00:00Z",
    "lastTimestamp": "2026-01-02T00:00:00Z",
    "reportingComponent": "example.org/maker",
    "reportingInstance": "one",
}


@case("15-event-two-shapes")
def test_an_event_has_two_shapes(engine: Engine, ns: str) -> None:
    about = {"kind": "ConfigMap", "name": "c", "namespace": ns, "apiVersion": "v1"}
    engine.post(at("events", ns), EVENT | {"involvedObject": about}).ok(201)
    shaped = engine.get(f"/apis/events.k8s.io/v1/namespaces/{ns}/events/e").ok()
    assert shaped["regarding"] == about and shaped["note"] == "it was made"
    assert shaped["deprecatedSource"] == {"component": "maker", "host": "h"} and shaped["deprecatedCount"] == 3
    assert shaped["deprecatedFirstTimestamp"] == "2026-01-01T00:00:00Z"
    assert shaped["deprecatedLastTimestamp"] == "2026-01-02T00:00:00Z"
    assert (shaped["reportingController"], shaped["reportingInstance"]) == ("example.org/maker", "one")
    newer: Object = {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"name": "n"},
        "eventTime": "2026-01-01T00:00:00.000000Z",
        "type": "Normal",
        "reason": "Made",
        "action": "Making",
        "note": "noted",
        "regarding": about,
        "reportingController": "example.org/maker",
        "reportingInstance": "one",
    }
    engine.post(f"/apis/events.k8s.io/v1/namespaces/{ns}/events", newer).ok(201)
    older = engine.get(at("events", ns, "n")).ok()
    assert (older["message"], older["involvedObject"]) == ("noted", about)


@case("15-event-checks")
def test_events_are_checked_by_their_own_api(engine: Engine, ns: str) -> None:
    about = {"kind": "ConfigMap", "name": "c", "namespace": "elsewhere"}
    engine.post(at("events", ns), EVENT | {"involvedObject": about}).refused(
        422, "Invalid", "involvedObject.namespace: Invalid value"
    )
    engine.post(at("events", "default"), {"metadata": {"generateName": "e-"}, "involvedObject": {}}).ok(201)
    body = {"metadata": {"name": "n"}, "regarding": {"namespace": ns}}
    path = f"/apis/events.k8s.io/v1/namespaces/{ns}/events"
    engine.post(path, body).refused(422, "Invalid", "eventTime: Required value")


@case("15-event-selectors", "4-describe", "4-events")
def test_events_are_found_by_what_they_are_about(engine: Engine, ns: str) -> None:
    about = {"kind": "ConfigMap", "name": "c", "namespace": ns, "apiVersion": "v1", "uid": "u-1"}
    engine.post(at("events", ns), EVENT | {"involvedObject": about}).ok(201)
    chosen = f"involvedObject.name=c,involvedObject.namespace={ns},involvedObject.kind=ConfigMap,involvedObject.uid=u-1"
    for selector in (chosen, "reason=Made", "type=Normal", "source=maker", "involvedObject.apiVersion=v1"):
        found = engine.get(at("events", ns), query={"fieldSelector": selector, "limit": "500"}).ok()
        assert len(found["items"]) == 1, selector
    assert engine.get(at("events", ns), query={"fieldSelector": "involvedObject.uid=u-2"}).ok()["items"] == []
    path = f"/apis/events.k8s.io/v1/namespaces/{ns}/events"
    assert len(engine.get(path, query={"fieldSelector": "regarding.name=c"}).ok()["items"]) == 1


@case("15-lease")
def test_a_lease_has_micro_times_and_a_positive_duration(engine: Engine, ns: str) -> None:
    spec = {"holderIdentity": "a", "leaseDurationSeconds": 15, "renewTime": "2026-01-01T00:00:00.000000Z"}
    created = engine.post(at("leases", ns), {"metadata": {"name": "l"}, "spec": spec}).ok(201)
    assert created["spec"] == spec
    wrong = spec | {"renewTime": "2026-01-01T00:00:00.5Z"}
    engine.post(at("leases", ns), {"metadata": {"name": "m"}, "spec": wrong}).refused(400, "BadRequest")
    wrong = spec | {"leaseDurationSeconds": 0}
    engine.post(at("leases", ns), {"metadata": {"name": "m"}, "spec": wrong}).refused(
        422, "Invalid", "spec.leaseDurationSeconds: Invalid value: 0: must be greater than 0"
    )


@case("5-informers")
def test_leader_election_loses_by_conflict(engine: Engine, ns: str) -> None:
    lease = engine.post(at("leases", ns), {"metadata": {"name": "l"}, "spec": {"holderIdentity": "a"}}).ok(201)
    engine.put(at("leases", ns, "l"), lease | {"spec": {"holderIdentity": "b"}}).ok()
    engine.put(at("leases", ns, "l"), lease | {"spec": {"holderIdentity": "c"}}).refused(409, "Conflict")


@case("15-role-ref")
def test_a_role_ref_is_immutable(engine: Engine, ns: str) -> None:
    ref = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "r"}
    engine.post(at("rolebindings", ns), {"metadata": {"name": "b"}, "roleRef": ref, "subjects": []}).ok(201)
    engine.patch(at("rolebindings", ns, "b"), {"roleRef": ref | {"name": "s"}}).refused(
        422, "Invalid", "roleRef: Invalid value", "field is immutable"
    )


@case("15-workloads", "15-service")
def test_services_and_deployments_are_completed(engine: Engine, ns: str) -> None:
    service = engine.post(at("services", ns), {"metadata": {"name": "s"}, "spec": {"ports": [{"port": 80}]}}).ok(201)
    assert service["spec"]["type"] == "ClusterIP"
    assert service["spec"]["ports"] == [{"protocol": "TCP", "port": 80, "targetPort": 80}]
    pod: Object = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    spec: Object = {"replicas": 0, "selector": {"matchLabels": {"a": "b"}}, "template": pod}
    created = engine.post(at("deployments", ns), {"metadata": {"name": "d"}, "spec": spec}).ok(201)["spec"]
    rolling = {"maxUnavailable": "25%", "maxSurge": "25%"}
    assert created["strategy"] == {"type": "RollingUpdate", "rollingUpdate": rolling}
    assert (created["revisionHistoryLimit"], created["progressDeadlineSeconds"]) == (10, 600)
    made = created["template"]["spec"]
    assert (made["restartPolicy"], made["dnsPolicy"], made["terminationGracePeriodSeconds"]) == (
        "Always",
        "ClusterFirst",
        30,
    )
    assert made["containers"][0]["imagePullPolicy"] == "Always"


@case("15-quota", "4-describe-ns")
def test_quotas_and_limits_can_be_listed(engine: Engine, ns: str) -> None:
    for resource in ("resourcequotas", "limitranges"):
        assert engine.get(f"/api/v1/namespaces/{ns}/{resource}", query={"limit": "500"}).status in (200, 404)


@case("15-cluster-info", "4-cluster-info")
def test_cluster_services_can_be_listed(engine: Engine) -> None:
    query = {"labelSelector": "kubernetes.io/cluster-service=true"}
    assert engine.get(at("services", "kube-system"), query=query).ok()["items"] == []


@case("15-namespaced-roles")
def test_roles_are_checked(engine: Engine, ns: str) -> None:
    def refused(path: str, body: Object, *texts: str) -> None:
        engine.post(f"{RBAC}/{path}", body | {"metadata": {"name": "r"}}).refused(422, "Invalid", *texts)

    roles, bindings = f"namespaces/{ns}/roles", f"namespaces/{ns}/rolebindings"
    refused(roles, {"rules": [{"verbs": []}]}, "rules[0].verbs: Required value")
    refused(roles, {"rules": [{"verbs": ["get"]}]}, "rules[0].apiGroups: Required", "rules[0].resources: Required")
    url = {"verbs": ["get"], "nonResourceURLs": ["/x"]}
    refused(roles, {"rules": [url]}, '["/x"]: namespaced rules cannot apply to non-resource URLs')
    both = url | {"apiGroups": [""], "resources": ["pods"]}
    refused("clusterroles", {"rules": [both]}, "rules cannot apply to both regular resources and non-resource URLs")
    strange = {"roleRef": {"kind": "Foo", "name": "x"}, "subjects": [{"kind": "Foo", "name": "x"}]}
    texts = 'roleRef.kind: Unsupported value: "Foo"', 'subjects[0].kind: Unsupported value: "Foo"'
    refused(bindings, strange, *texts)
    ref = {"kind": "Role", "name": "x"}
    bound = engine.post(f"{RBAC}/{bindings}", {"metadata": {"name": "b"}, "roleRef": ref}).ok(201)
    assert bound["roleRef"]["apiGroup"] == "rbac.authorization.k8s.io"
