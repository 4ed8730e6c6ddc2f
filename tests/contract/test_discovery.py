"""Section 2: fixed endpoints, discovery, aggregated discovery and OpenAPI."""

from __future__ import annotations

import json
import re
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.contract.engines import Engine, case
from tests.contract.kinds import GROUP, at, config_map, widget

AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json"


@pytest.mark.parametrize("path", ["/healthz", "/livez", "/readyz"])
@case("2.1-health")
def test_health_is_public_text(engine: Engine, path: str) -> None:
    response = engine.get(path, token="")
    assert (response.status, response.text) == (200, "ok")
    assert response.header("Content-Type").startswith("text/plain")
    verbose = engine.get(path, query={"verbose": ""}, token="").text
    assert re.search(r"^\[\+\]\S+ ok$", verbose, re.MULTILINE)


@case("2.1-version")
def test_the_version_is_public_and_semver(engine: Engine) -> None:
    version = engine.get("/version", token="").ok()
    fields = {"major", "minor", "gitVersion", "gitCommit", "gitTreeState", "buildDate", "goVersion", "compiler"}
    assert fields | {"platform"} <= set(version)
    assert re.fullmatch(r"v\d+\.\d+\.\d+([-+][0-9A-Za-z.+-]+)?", version["gitVersion"])


@case("2.1-root")
def test_the_root_lists_paths(engine: Engine) -> None:
    paths = engine.get("/").ok()["paths"]
    assert {"/api", "/api/v1", "/apis", "/healthz", "/openapi/v3", "/version", f"/apis/{GROUP}/v1"} <= set(paths)


@case("2.1-api")
def test_the_core_group_lists_its_versions(engine: Engine) -> None:
    document = engine.get("/api").ok()
    assert (document["kind"], document["versions"]) == ("APIVersions", ["v1"])
    assert document["serverAddressByClientCIDRs"][0]["clientCIDR"] == "0.0.0.0/0"


@case("2.1-apis", "2.1-group")
def test_groups_list_their_versions(engine: Engine) -> None:
    document = engine.get("/apis").ok()
    assert document["kind"] == "APIGroupList"
    [group] = [group for group in document["groups"] if group["name"] == GROUP]
    single = engine.get(f"/apis/{GROUP}").ok()
    assert single["kind"] == "APIGroup"
    assert {name: single[name] for name in ("name", "versions", "preferredVersion")} == {
        name: group[name] for name in ("name", "versions", "preferredVersion")
    }


@case("2.1-version-order", "14-versions-order")
def test_versions_are_ordered_by_maturity(engine: Engine) -> None:
    group = engine.get(f"/apis/{GROUP}").ok()
    assert [version["version"] for version in group["versions"]] == ["v2", "v1", "v1alpha1"]
    assert group["preferredVersion"] == {"groupVersion": f"{GROUP}/v2", "version": "v2"}


def resources(engine: Engine, path: str) -> dict[str, Any]:
    document = engine.get(path).ok()
    assert document["kind"] == "APIResourceList"
    return {resource["name"]: resource for resource in document["resources"]}


@case("2.1-resources", "14-names")
def test_a_version_lists_its_resources(engine: Engine) -> None:
    widgets = resources(engine, f"/apis/{GROUP}/v1")["widgets"]
    assert (widgets["singularName"], widgets["namespaced"], widgets["kind"]) == ("widget", True, "Widget")
    verbs = {"get", "list", "watch", "create", "update", "patch", "delete", "deletecollection"}
    assert set(widgets["verbs"]) == verbs
    assert widgets["shortNames"] == ["wdg"] and widgets["categories"] == ["all", "goods"]
    maps = resources(engine, "/api/v1")["configmaps"]
    assert maps["shortNames"] == ["cm"] and maps["kind"] == "ConfigMap" and set(maps["verbs"]) == verbs
    assert engine.get("/api/v1").ok()["groupVersion"] == "v1"


@case("2.1-subresource-rows")
def test_subresources_have_rows_that_name_the_other_type(engine: Engine) -> None:
    custom = resources(engine, f"/apis/{GROUP}/v1")
    assert custom["widgets/status"]["singularName"] == "" and custom["widgets/status"]["kind"] == "Widget"
    assert set(custom["widgets/status"]["verbs"]) == {"get", "patch", "update"}
    scale = custom["widgets/scale"]
    assert (scale["group"], scale["version"], scale["kind"]) == ("autoscaling", "v1", "Scale")
    token = resources(engine, "/api/v1")["serviceaccounts/token"]
    assert (token["group"], token["version"], token["kind"]) == ("authentication.k8s.io", "v1", "TokenRequest")


@case("2.1-unknown", "13-404")
def test_unknown_paths_are_not_found(engine: Engine, ns: str) -> None:
    for path in ("/apis/no.such.group/v1/things", "/apis/no.such.group", f"/apis/{GROUP}/v9"):
        response = engine.get(path)
        assert (response.status, response.text.strip()) == (404, "404 page not found"), path
        assert response.header("Content-Type").startswith("text/plain")
    for path in ("/api/v1/things", f"/api/v1/namespaces/{ns}/things/x"):
        status = engine.get(path).refused(404, "NotFound")
        assert status["message"] == "the server could not find the requested resource"


@pytest.mark.parametrize("method", ["HEAD", "OPTIONS", "PUT", "PATCH"])
@case("2.1-wrong-method", "13-405")
def test_a_wrong_method_is_not_allowed(engine: Engine, ns: str, method: str) -> None:
    body: dict[str, Any] | None = None if method in ("HEAD", "OPTIONS") else {}
    response = engine.http(method, at("configmaps", ns), body)
    assert response.status == 405
    if method != "HEAD":
        response.refused(405, "MethodNotAllowed", "the server does not allow this method on the requested resource")


@case("2.1-wrong-method-on-subresource")
def test_subresources_have_methods_of_their_own(engine: Engine, ns: str) -> None:
    for method, path in (
        ("GET", at("serviceaccounts", ns, "default", "token")),
        ("PUT", at("serviceaccounts", ns, "default", "token")),
        ("GET", f"/api/v1/namespaces/{ns}/finalize"),
        ("DELETE", at("widgets", ns, "w", "status")),
        ("POST", at("widgets", ns, "w", "status")),
    ):
        engine.http(method, path, {} if method in ("PUT", "POST") else None).refused(405, "MethodNotAllowed")


@case("2.1-all-namespaces-read-only")
def test_across_namespaces_one_can_only_read(engine: Engine, ns: str) -> None:
    engine.post(at("configmaps", ns), config_map("kept", labels={"of": ns})).ok(201)
    query = {"labelSelector": f"of={ns}"}
    engine.http("DELETE", at("configmaps"), query=query).refused(405, "MethodNotAllowed")
    engine.post(at("configmaps"), config_map("c", namespace=ns)).refused(405, "MethodNotAllowed")
    assert engine.http("DELETE", at("widgets"), query=query).status == 404
    assert engine.post(at("widgets"), widget("w", namespace=ns)).status == 404
    assert len(engine.get(at("configmaps"), query=query).ok()["items"]) == 1


@case("1-5-trailing-slashes")
def test_a_trailing_slash_changes_nothing_but_on_health(engine: Engine, ns: str) -> None:
    for path in ("/api/", "/apis/", "/version/", f"/apis/{GROUP}/v1/", at("configmaps", ns) + "/"):
        assert engine.get(path).json()["kind" if path != "/version/" else "major"]
    assert engine.get(f"/api/v1/namespaces/{ns}/").ok()["metadata"]["name"] == ns
    assert engine.get("/healthz/").status == 404


@case("2.2-aggregated", "4-d")
def test_aggregated_discovery_tells_everything_at_once(engine: Engine) -> None:
    response = engine.get("/apis", accept=AGGREGATED)
    document = response.ok()
    assert "g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList" in response.header("Content-Type").replace(" ", "")
    assert (document["kind"], document["apiVersion"]) == ("APIGroupDiscoveryList", "apidiscovery.k8s.io/v2")
    [group] = [item for item in document["items"] if item["metadata"].get("name") == GROUP]
    [version] = [version for version in group["versions"] if version["version"] == "v1"]
    assert version["freshness"] == "Current"
    [widgets] = [resource for resource in version["resources"] if resource["resource"] == "widgets"]
    assert widgets["responseKind"] == {"group": GROUP, "version": "v1", "kind": "Widget"}
    assert (widgets["scope"], widgets["singularResource"]) == ("Namespaced", "widget")
    assert widgets["shortNames"] == ["wdg"] and widgets["categories"] == ["all", "goods"]
    subresources = {item["subresource"]: item for item in widgets["subresources"]}
    assert subresources["scale"]["responseKind"] == {"group": "autoscaling", "version": "v1", "kind": "Scale"}
    assert set(subresources["status"]["verbs"]) == {"get", "patch", "update"}
    [core] = engine.get("/api", accept=AGGREGATED).ok()["items"]
    assert not core["metadata"].get("name")


@case("2.2-unknown-version")
def test_an_unknown_discovery_version_falls_back_or_is_not_acceptable(engine: Engine) -> None:
    strange = "application/json;g=apidiscovery.k8s.io;v=v9;as=APIGroupDiscoveryList"
    assert engine.get("/apis", accept=strange).status == 406
    assert engine.get("/apis", accept=f"{strange},application/json").ok()["kind"] == "APIGroupList"


@case("2.2-conditional")
def test_discovery_is_conditional(engine: Engine) -> None:
    first = engine.get("/apis", accept=AGGREGATED)
    etag = first.header("ETag")
    assert etag and "Accept" in first.header("Vary") and "public" in first.header("Cache-Control")
    again = engine.http("GET", "/apis", headers={"Accept": AGGREGATED, "If-None-Match": etag})
    assert (again.status, again.body) == (304, b"")


@case("2.2-new-kinds-at-once")
def test_no_kind_is_listed_that_is_not_served(engine: Engine) -> None:
    group = engine.get("/apis", accept=AGGREGATED).ok()
    [shop] = [item for item in group["items"] if item["metadata"].get("name") == GROUP]
    assert {version["version"] for version in shop["versions"]} == {"v2", "v1", "v1alpha1"}


@case("2.3-index", "4-v", "1-7-openapi")
def test_openapi_v3_has_an_index_of_documents(engine: Engine) -> None:
    paths = engine.get("/openapi/v3").ok()["paths"]
    assert {"api/v1", f"apis/{GROUP}/v1"} <= set(paths)
    assert re.fullmatch(r"/openapi/v3/api/v1\?hash=\w+", paths["api/v1"]["serverRelativeURL"])


def document(engine: Engine, name: str) -> Any:
    def served(response: Any) -> bool:
        return name in response.json()["paths"]

    index = engine.eventually("/openapi/v3", served, seconds=15)
    return engine.get(index["paths"][name]["serverRelativeURL"]).ok()


@case("2.3-hash")
def test_a_document_with_its_hash_is_cached_for_good(engine: Engine) -> None:
    url = engine.get("/openapi/v3").ok()["paths"]["api/v1"]["serverRelativeURL"]
    right = engine.get(url)
    assert right.ok()["openapi"].startswith("3.0")
    assert "immutable" in right.header("Cache-Control") and right.header("ETag") and right.header("Expires")
    wrong = engine.get("/openapi/v3/api/v1", query={"hash": "wrong"})
    assert wrong.status == 301
    location = urlsplit(wrong.header("Location"))
    assert f"{location.path}?{location.query}" == url
    assert engine.get("/openapi/v3/api/v1").status == 200


@case("2.3-v2")
def test_openapi_v2_is_json(engine: Engine) -> None:
    assert engine.get("/openapi/v2", accept="application/json").ok()["swagger"] == "2.0"


@case("2.3-patch-operation")
def test_a_documents_patch_operation_says_what_kubectl_needs(engine: Engine) -> None:
    def operation(name: str, path: str) -> Any:
        return document(engine, name)["paths"][path]["patch"]

    custom = operation(f"apis/{GROUP}/v1", f"/apis/{GROUP}/v1/namespaces/{{namespace}}/widgets/{{name}}")
    assert custom["x-kubernetes-group-version-kind"] == {"group": GROUP, "version": "v1", "kind": "Widget"}
    assert "fieldValidation" in {parameter.get("name") for parameter in custom["parameters"]}
    types = {"application/apply-patch+yaml", "application/json-patch+json", "application/merge-patch+json"}
    assert {kind for kind in custom["requestBody"]["content"] if "cbor" not in kind} == types
    builtin = operation("api/v1", "/api/v1/namespaces/{namespace}/configmaps/{name}")
    assert "application/strategic-merge-patch+json" in builtin["requestBody"]["content"]


@case("2.3-schemas", "4-explain")
def test_a_documents_schemas_explain_the_kind(engine: Engine) -> None:
    schemas = document(engine, f"apis/{GROUP}/v1")["components"]["schemas"]
    widget = schemas["org.example.shop.v1.Widget"]
    assert widget["x-kubernetes-group-version-kind"] == [{"group": GROUP, "kind": "Widget", "version": "v1"}]
    assert {"apiVersion", "kind", "metadata", "spec", "status"} <= set(widget["properties"])
    [reference] = widget["properties"]["metadata"]["allOf"]
    assert reference["$ref"].endswith("ObjectMeta")
    assert "org.example.shop.v1.WidgetList" in schemas
    assert json.dumps(schemas["io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"])


@case("15-not-served")
def test_what_is_not_served_is_not_listed(engine: Engine) -> None:
    groups = {group["name"] for group in engine.get("/apis").ok()["groups"]}
    named = ("admissionregistration.k8s.io", "apiregistration.k8s.io", "flowcontrol.apiserver.k8s.io")
    assert [name for name in named if name not in groups] == engine.expected("15-not-served")
