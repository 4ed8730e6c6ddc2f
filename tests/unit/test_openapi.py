"""OpenAPI documents: what kubectl looks for in them, and that every reference leads somewhere."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from functools import cache
from typing import Any

import orjson
import pytest

from planform.api.builtin import BUILTIN_KINDS
from planform.api.kinds import GroupVersionKind, Kind
from planform.apiserver.wire import openapi
from planform.apiserver.wire.openapi import Described

STRATEGIC = "application/strategic-merge-patch+json"
METHODS = ("get", "post", "put", "patch", "delete")

WIDGET = Kind("example.org", "v1", "Widget", "widgets", True, "widget", "WidgetList", subresources=("scale", "status"))
GADGET = Kind("example.org", "v1", "Gadget", "gadgets", False)
SCHEMA = {
    "type": "object",
    "description": "Something small.",
    "required": ["spec"],
    "properties": {
        "metadata": {"type": "object"},
        "spec": {"type": "object", "properties": {"size": {"type": "integer", "nullable": True}}},
        "port": {"x-kubernetes-int-or-string": True, "anyOf": [{"type": "integer"}, {"type": "string"}]},
    },
}
WIDGETS = (Described(WIDGET, SCHEMA), Described(GADGET, {"type": "object"}))
GROUP_VERSIONS = sorted({(kind.group, kind.version) for kind in BUILTIN_KINDS})


@cache
def built_in(group: str, version: str) -> dict[str, Any]:
    kinds = (kind for kind in BUILTIN_KINDS if (kind.group, kind.version) == (group, version))
    return openapi.document([Described(kind) for kind in kinds])


@cache
def custom() -> dict[str, Any]:
    return openapi.document(WIDGETS)


def references(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        if isinstance(value.get("$ref"), str):
            assert set(value) == {"$ref"}, "a reference has no siblings"
            yield value["$ref"]
        for nested in value.values():
            yield from references(nested)
    elif isinstance(value, list):
        for nested in value:
            yield from references(nested)


def operations(document: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, item in document["paths"].items():
        for method in METHODS:
            if method in item:
                yield path, method, item[method]


def patches(document: dict[str, Any], gvk: GroupVersionKind) -> list[dict[str, Any]]:
    """How kubectl finds out what may be done to a kind."""
    return [
        operation
        for _, method, operation in operations(document)
        if method == "patch" and operation["x-kubernetes-group-version-kind"] == gvk._asdict()
    ]


@pytest.mark.parametrize("group_version", GROUP_VERSIONS, ids="/".join)
def test_every_reference_in_a_document_is_defined_in_it(group_version: tuple[str, str]) -> None:
    document = built_in(*group_version)
    defined = {f"#/components/schemas/{name}" for name in document["components"]["schemas"]}
    assert set(references(document)) <= defined


def test_references_of_custom_kinds_are_defined_beside_them() -> None:
    defined = {f"#/components/schemas/{name}" for name in custom()["components"]["schemas"]}
    assert set(references(custom())) <= defined


@pytest.mark.parametrize(
    "kind", [kind for kind in BUILTIN_KINDS if "patch" in kind.verbs], ids=lambda kind: str(kind.gvk)
)
def test_kubectl_finds_field_validation_and_strategic_patches_for_every_built_in_kind(kind: Kind) -> None:
    found = patches(built_in(kind.group, kind.version), kind.gvk)
    assert found
    for operation in found:
        assert "fieldValidation" in {parameter["name"] for parameter in operation["parameters"]}
        assert STRATEGIC in operation["requestBody"]["content"]


def test_kubectl_finds_field_validation_but_no_strategic_patch_for_custom_kinds() -> None:
    found = patches(custom(), WIDGET.gvk)
    assert len(found) == 2  # the object and its status
    for operation in found:
        assert "fieldValidation" in {parameter["name"] for parameter in operation["parameters"]}
        assert sorted(operation["requestBody"]["content"]) == [
            "application/apply-patch+yaml",
            "application/json-patch+json",
            "application/merge-patch+json",
        ]


@pytest.mark.parametrize("group_version", [*GROUP_VERSIONS, ("example.org", "v1")], ids="/".join)
def test_operation_names_are_unique(group_version: tuple[str, str]) -> None:
    document = custom() if group_version[0] == "example.org" else built_in(*group_version)
    names = Counter(operation["operationId"] for _, _, operation in operations(document))
    assert names.most_common(1)[0][1] == 1


def test_path_parameters_are_declared_exactly_where_the_path_has_them() -> None:
    for document in (custom(), built_in("", "v1")):
        for path, item in document["paths"].items():
            declared = {parameter["name"] for parameter in item["parameters"]}
            assert declared == {part.strip("{}") for part in path.split("/") if part.startswith("{")}


def test_a_custom_kind_has_the_paths_of_its_scope_and_subresources() -> None:
    base = "/apis/example.org/v1"
    one = f"{base}/namespaces/{{namespace}}/widgets/{{name}}"
    assert {path: sorted(set(item) - {"parameters"}) for path, item in custom()["paths"].items()} == {
        f"{base}/gadgets": ["delete", "get", "post"],
        f"{base}/gadgets/{{name}}": ["delete", "get", "patch", "put"],
        f"{base}/widgets": ["get"],
        f"{base}/namespaces/{{namespace}}/widgets": ["delete", "get", "post"],
        one: ["delete", "get", "patch", "put"],
        f"{one}/scale": ["get", "patch", "put"],
        f"{one}/status": ["get", "patch", "put"],
    }


def test_what_every_object_has_is_injected_into_a_custom_schema() -> None:
    schema = custom()["components"]["schemas"]["org.example.v1.Widget"]
    assert schema["description"] == "Something small."
    assert schema["required"] == ["spec"]
    assert schema["x-kubernetes-group-version-kind"] == [{"group": "example.org", "version": "v1", "kind": "Widget"}]
    properties = schema["properties"]
    assert set(properties) == {"apiVersion", "kind", "metadata", "port", "spec"}
    assert properties["metadata"]["allOf"] == [
        {"$ref": "#/components/schemas/io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"}
    ]
    assert properties["spec"] == SCHEMA["properties"]["spec"]  # type: ignore[index]  # a dict of mixed values
    assert SCHEMA["properties"]["metadata"] == {"type": "object"}, "the caller's schema is left alone"  # type: ignore[index]


def test_lists_have_a_schema_of_their_own_kind() -> None:
    schemas = custom()["components"]["schemas"]
    assert schemas["org.example.v1.WidgetList"]["properties"]["items"]["items"] == {
        "$ref": "#/components/schemas/org.example.v1.Widget"
    }
    assert [gvk["kind"] for gvk in schemas["org.example.v1.GadgetList"]["x-kubernetes-group-version-kind"]] == (
        ["GadgetList"]
    )
    assert "io.k8s.api.core.v1.ConfigMapList" in built_in("", "v1")["components"]["schemas"]


def test_a_scale_is_described_as_the_kind_it_is() -> None:
    scale = custom()["paths"]["/apis/example.org/v1/namespaces/{namespace}/widgets/{name}/scale"]
    assert scale["patch"]["x-kubernetes-group-version-kind"] == {
        "group": "autoscaling",
        "version": "v1",
        "kind": "Scale",
    }
    assert "io.k8s.api.autoscaling.v1.Scale" in custom()["components"]["schemas"]


def test_tokens_are_posted_and_reviews_have_nothing_but_a_post() -> None:
    token = built_in("", "v1")["paths"]["/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token"]
    assert set(token) == {"parameters", "post"}
    for path, item in built_in("authorization.k8s.io", "v1")["paths"].items():
        assert set(item) == {"parameters", "post"}, path


def test_merge_keys_are_where_kubectl_computes_strategic_patches_from() -> None:
    schemas = built_in("", "v1")["components"]["schemas"]
    ports = schemas["io.k8s.api.core.v1.ServiceSpec"]["properties"]["ports"]
    assert (ports["x-kubernetes-patch-merge-key"], ports["x-kubernetes-patch-strategy"]) == ("port", "merge")


def test_built_in_kinds_and_their_fields_are_explained() -> None:
    schemas = built_in("apps", "v1")["components"]["schemas"]
    deployment = schemas["io.k8s.api.apps.v1.Deployment"]
    assert deployment["description"]
    assert all(field.get("description") for field in deployment["properties"].values())
    strategy = schemas["io.k8s.api.apps.v1.DeploymentSpec"]["properties"]["strategy"]
    assert strategy["description"] and strategy["allOf"] and strategy["x-kubernetes-patch-strategy"] == "retainKeys"


def test_a_document_is_json() -> None:
    assert orjson.loads(orjson.dumps(custom())) == custom()


def test_the_index_names_each_document_by_its_fingerprint() -> None:
    paths = {openapi.path_of("", "v1"): "A1", openapi.path_of("example.org", "v1"): "B2"}
    assert openapi.index(paths) == {
        "paths": {
            "api/v1": {"serverRelativeURL": "/openapi/v3/api/v1?hash=A1"},
            "apis/example.org/v1": {"serverRelativeURL": "/openapi/v3/apis/example.org/v1?hash=B2"},
        }
    }


def test_a_fingerprint_changes_with_schema_names_and_set_but_not_with_order() -> None:
    before = openapi.fingerprint(WIDGETS)
    assert openapi.fingerprint(reversed(WIDGETS)) == before
    others = (
        (WIDGETS[0],),
        (Described(WIDGET, {**SCHEMA, "description": "Something big."}), WIDGETS[1]),
        (WIDGETS[0], Described(Kind("example.org", "v1", "Gadget", "gizmos", False), {"type": "object"})),
    )
    assert len({before, *(openapi.fingerprint(other) for other in others)}) == 4


def test_swagger_has_every_path_and_only_references_of_its_own_kind() -> None:
    documents = [custom(), *(built_in(*group_version) for group_version in GROUP_VERSIONS)]
    swagger = openapi.swagger(documents)
    assert swagger["swagger"] == "2.0"
    assert set(swagger["paths"]) == {path for document in documents for path in document["paths"]}
    assert set(references(swagger)) <= {f"#/definitions/{name}" for name in swagger["definitions"]}
    assert b"#/components/" not in orjson.dumps(swagger)


def test_swagger_leaves_out_what_it_cannot_say() -> None:
    swagger = openapi.swagger([custom(), built_in("", "v1")])
    widget = swagger["definitions"]["org.example.v1.Widget"]
    assert widget["properties"]["port"] == {"x-kubernetes-int-or-string": True}
    assert widget["properties"]["spec"]["properties"]["size"] == {"type": "integer"}
    int_or_string = swagger["definitions"]["io.k8s.apimachinery.pkg.util.intstr.IntOrString"]
    assert int_or_string["type"] == "string" and "oneOf" not in int_or_string


def test_swagger_operations_take_a_body_and_say_what_they_consume() -> None:
    path = "/apis/example.org/v1/namespaces/{namespace}/widgets/{name}"
    patch = openapi.swagger([custom()])["paths"][path]["patch"]
    assert patch["consumes"] == list(custom()["paths"][path]["patch"]["requestBody"]["content"])
    assert patch["parameters"][-1] == {
        "name": "body",
        "in": "body",
        "required": True,
        "schema": {"$ref": "#/definitions/io.k8s.apimachinery.pkg.apis.meta.v1.Patch"},
    }
    assert {"name": "force", "in": "query", "type": "boolean", "uniqueItems": True} in patch["parameters"]
    assert patch["responses"]["200"]["schema"] == {"$ref": "#/definitions/org.example.v1.Widget"}
