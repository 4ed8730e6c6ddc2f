"""Section 3: what is asked for and what is sent: JSON, YAML, protobuf, tables, metadata."""

from __future__ import annotations

import json

import pytest
import yaml

from tests.contract import protobuf
from tests.contract.engines import HERE, PROTOBUF, Engine, Object, case
from tests.contract.kinds import at, config_map, widget

PARTIAL = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io"
PARTIAL_LIST = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"


@pytest.fixture
def path(engine: Engine, ns: str) -> str:
    engine.post(at("configmaps", ns), config_map("c", {"a": "1"})).ok(201)
    return at("configmaps", ns, "c")


@pytest.mark.parametrize("accept", ["", "*/*", "application/json", "application/json, text/plain"])
@case("3-json")
def test_json_is_the_answer_to_anything_that_allows_it(engine: Engine, path: str, accept: str) -> None:
    response = engine.get(path, accept=accept)
    assert response.ok()["data"] == {"a": "1"} and response.header("Content-Type").startswith("application/json")


@case("3-yaml")
def test_yaml_is_answered_and_read(engine: Engine, ns: str, path: str) -> None:
    response = engine.get(path, accept="application/yaml")
    assert yaml.safe_load(response.text)["data"] == {"a": "1"}
    assert response.header("Content-Type").startswith("application/yaml")
    body = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: n1\ndata:\n  a: 'yes'\n"
    sent = engine.http("POST", at("configmaps", ns), body, headers={"Content-Type": "application/yaml"})
    assert sent.ok(201)["data"] == {"a": "yes"}


@pytest.mark.parametrize("version", ["v1", "v1beta1"])
@case("3-table")
def test_a_table_can_be_asked_for_in_both_versions(engine: Engine, path: str, version: str) -> None:
    table = engine.get(path, accept=f"application/json;as=Table;v={version};g=meta.k8s.io").ok()
    assert (table["kind"], table["apiVersion"]) == ("Table", f"meta.k8s.io/{version}")


@case("3-partial")
def test_metadata_alone_can_be_asked_for(engine: Engine, ns: str, path: str) -> None:
    one = engine.get(path, accept=PARTIAL).ok()
    assert (one["kind"], one["apiVersion"]) == ("PartialObjectMetadata", "meta.k8s.io/v1")
    assert "data" not in one and one["metadata"]["managedFields"]
    many = engine.get(at("configmaps", ns), query={"fieldSelector": "metadata.name=c"}, accept=PARTIAL_LIST).ok()
    assert many["kind"] == "PartialObjectMetadataList" and "data" not in many["items"][0]
    assert many["items"][0]["metadata"]["managedFields"] == one["metadata"]["managedFields"]


@case("3-accept-protobuf")
def test_json_serves_those_who_would_rather_have_protobuf(engine: Engine, ns: str) -> None:
    engine.post(at("widgets", ns), widget("w")).ok(201)
    response = engine.get(at("widgets", ns, "w"), accept=f"{PROTOBUF},application/json")
    assert response.ok()["kind"] == "Widget"


@case("3-not-acceptable", "13-406")
def test_nothing_acceptable_is_an_error(engine: Engine, path: str) -> None:
    assert engine.get(path, accept="text/html").status == 406
    status = engine.get(path, accept="application/xml").refused(406, "NotAcceptable")
    assert "application/json, application/yaml" in status["message"]


@case("3-unknown-body", "13-415")
def test_a_body_of_unknown_type_is_unsupported(engine: Engine, ns: str) -> None:
    response = engine.http("POST", at("configmaps", ns), "x", headers={"Content-Type": "text/plain"})
    status = response.refused(415, "UnsupportedMediaType")
    text = "the body of the request was in an unknown format - accepted media types include: "
    assert status["message"].startswith(
        text + "application/json, application/yaml, application/vnd.kubernetes.protobuf"
    )


@case("3-order")
def test_accept_is_tried_in_order_with_its_parameters(engine: Engine, path: str) -> None:
    assert engine.get(path, accept=f"{PARTIAL},application/yaml").ok()["kind"] == "PartialObjectMetadata"
    strange = "application/json;as=Nothing;v=v1;g=meta.k8s.io"
    assert engine.get(path, accept=f"{strange},application/json").ok()["kind"] == "ConfigMap"
    assert engine.get(path, accept=strange).status == 406


@case("3-pretty")
def test_answers_end_with_a_newline_and_can_be_indented(engine: Engine, path: str) -> None:
    assert engine.get(path).text.endswith("}\n")
    for value in ("true", "1"):
        assert '\n  "kind"' in engine.get(path, query={"pretty": value}).text


@case("3-too-large", "13-413")
def test_a_body_may_have_three_mebibytes(engine: Engine, ns: str) -> None:
    body = json.dumps(config_map("big", {"a": "x" * (3 * 1024 * 1024)}))
    response = engine.http("POST", at("configmaps", ns), body, headers={"Content-Type": "application/json"})
    status = response.refused(413, "RequestEntityTooLarge")
    assert status["message"] == "Request entity too large: limit is 3145728"


@case("1-3-no-content-type", "5-kubernetes")
def test_a_body_without_a_type_is_json(engine: Engine, ns: str) -> None:
    created = engine.http("POST", at("configmaps", ns), json.dumps(config_map("c", {"a": "1"}))).ok(201)
    created["data"] = {"a": "2"}
    assert engine.http("PUT", at("configmaps", ns, "c"), json.dumps(created)).ok()["data"] == {"a": "2"}


CONFIG_MAP = protobuf.message(f1=protobuf.metadata("pb"), f2=protobuf.pair("key", "value"), f4=1)


def as_protobuf(engine: Engine, method: str, path: str, body: bytes) -> Object:
    headers = {"Content-Type": PROTOBUF, "Accept": "application/json"}
    return dict(engine.http(method, path, body, headers=headers).ok())


@case("1-1-protobuf", "1-2-protobuf-built-in-only", "3-protobuf-body")
def test_a_protobuf_body_is_read(engine: Engine, ns: str) -> None:
    body = protobuf.envelope("v1", "ConfigMap", CONFIG_MAP)
    created = as_protobuf(engine, "POST", at("configmaps", ns), body)
    assert created["data"] == {"key": "value"} and created["immutable"] is True
    assert not {"generateName", "selfLink", "generation"} & set(created["metadata"])


EXPECTED: dict[str, Object] = {
    "configmap": {"data": {"key": "value"}},
    "secret": {"data": {"key": "dmFsdWU="}, "type": "Opaque"},
    "namespace": {"status": {"phase": "Active"}},
    "service account": {"kind": "ServiceAccount"},
    "role": {"rules": [{"verbs": ["get", "list"], "apiGroups": [""], "resources": ["pods"]}]},
    "role binding": {"roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "pb"}},
    "cluster role": {"rules": [{"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]}]},
    "service": {"kind": "Service"},
    "deployment": {"kind": "Deployment"},
    "job": {"kind": "Job"},
    "quota": {"kind": "ResourceQuota"},
    "token": {"kind": "TokenRequest"},
    "can-i": {"status": {"allowed": True}},
    "can-i --list": {"kind": "SelfSubjectRulesReview"},
    "whoami": {"kind": "SelfSubjectReview"},
}


@case("3-protobuf-recorded", "4-create-protobuf", "4-auth")
def test_what_kubectl_sends_as_protobuf_is_read(engine: Engine) -> None:
    name = "r" + engine.fresh()[-7:]
    engine.post("/api/v1/namespaces", {"metadata": {"name": name}}).ok(201)
    recorded = yaml.safe_load((HERE / "recorded.yaml").read_text())
    assert [entry["command"] for entry in recorded] == list(EXPECTED)
    answers: dict[str, Object] = {}
    for entry in recorded:
        path = entry["path"].replace("recorded", name)
        body = bytes.fromhex(entry["body"].replace("\n", "")).replace(b"recorded", name.encode())
        answer = answers[entry["command"]] = as_protobuf(engine, "POST", path, body)
        expected = EXPECTED[entry["command"]]
        assert {field: answer[field] for field in expected} == expected, entry["command"]
    [container] = answers["deployment"]["spec"]["template"]["spec"]["containers"]
    assert (container["name"], container["image"]) == ("i", "i:1") and answers["deployment"]["spec"]["replicas"] == 0
    assert answers["service"]["spec"]["ports"] == [
        {"name": "80-8080", "protocol": "TCP", "port": 80, "targetPort": 8080}
    ]
    assert answers["whoami"]["status"]["userInfo"]["username"] == "admin"
    assert answers["token"]["status"]["token"]


@case("3-protobuf-secret", "5-helm-install")
def test_a_protobuf_secret_is_read_and_replaced(engine: Engine, ns: str) -> None:
    def secret(value: str) -> bytes:
        content = protobuf.message(
            f1=protobuf.metadata("s"), f2=protobuf.pair("release", value), f3="helm.sh/release.v1"
        )
        return protobuf.envelope("v1", "Secret", content)

    created = as_protobuf(engine, "POST", at("secrets", ns), secret("one"))
    assert (created["type"], created["data"]) == ("helm.sh/release.v1", {"release": "b25l"})
    replaced = as_protobuf(engine, "PUT", at("secrets", ns, "s"), secret("two"))
    assert replaced["data"] == {"release": "dHdv"}


@case("3-protobuf-delete-options", "5-helm-uninstall")
def test_protobuf_delete_options_are_read(engine: Engine, ns: str) -> None:
    engine.post(at("secrets", ns), {"metadata": {"name": "s"}}).ok(201)
    wrong = protobuf.envelope("v1", "DeleteOptions", protobuf.message(f2=protobuf.message(f1="other-uid")))
    headers = {"Content-Type": PROTOBUF, "Accept": "application/json"}
    engine.http("DELETE", at("secrets", ns, "s"), wrong, headers=headers).refused(409, "Conflict")
    dry = protobuf.envelope("v1", "DeleteOptions", protobuf.message(f4="Background", f5="All"))
    as_protobuf(engine, "DELETE", at("secrets", ns, "s"), dry)
    engine.get(at("secrets", ns, "s")).ok()
    background = protobuf.envelope("v1", "DeleteOptions", protobuf.message(f4="Background"))
    assert as_protobuf(engine, "DELETE", at("secrets", ns, "s"), background)["status"] == "Success"


@case("3-protobuf-nested")
def test_maps_times_and_references_of_protobuf_metadata_are_read(engine: Engine, ns: str) -> None:
    reference = protobuf.message(
        f1="Namespace", f3=ns, f4=engine.get(f"/api/v1/namespaces/{ns}").ok()["metadata"]["uid"], f5="v1"
    )
    head = protobuf.message(
        f1="n", f8=protobuf.message(f1=1, f2=0), f11=protobuf.pair("l", "1"), f12=protobuf.pair("a", "2")
    )
    head += protobuf.field(13, reference) + protobuf.field(14, "e.org/f")
    created = as_protobuf(
        engine, "POST", at("configmaps", ns), protobuf.envelope("v1", "ConfigMap", protobuf.message(f1=head))
    )
    found = created["metadata"]
    assert (found["labels"], found["annotations"]) == ({"l": "1"}, {"a": "2"})
    assert found["ownerReferences"][0]["name"] == ns and found["finalizers"] == ["e.org/f"]
    engine.patch(at("configmaps", ns, "n"), {"metadata": {"finalizers": None}}).ok()
