"""The kinds that cases are written with: paths, small objects, and the CRDs that every session creates once."""

from __future__ import annotations

import copy
from typing import Any

from tests.contract.engines import Engine, Object, Response

GROUP = "shop.example.org"
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
RBAC = "/apis/rbac.authorization.k8s.io/v1"
BASES = {
    "configmaps": "/api/v1",
    "secrets": "/api/v1",
    "serviceaccounts": "/api/v1",
    "services": "/api/v1",
    "pods": "/api/v1",
    "events": "/api/v1",
    "leases": "/apis/coordination.k8s.io/v1",
    "deployments": "/apis/apps/v1",
    "replicasets": "/apis/apps/v1",
    "roles": RBAC,
    "rolebindings": RBAC,
    "widgets": f"/apis/{GROUP}/v1",
    "multis": f"/apis/{GROUP}/v1",
    "plains": f"/apis/{GROUP}/v1",
}

TEXT: Object = {"type": "string"}
NUMBER: Object = {"type": "integer"}


def at(resource: str, namespace: str = "", name: str = "", subresource: str = "", *, version: str = "") -> str:
    """The path of a collection, an object or a subresource."""
    base = BASES[resource].replace("/v1", f"/{version}") if version else BASES[resource]
    parts = [base, *(["namespaces", namespace] if namespace else []), resource, name, subresource]
    return "/".join(part for part in parts if part)


def config_map(name: str, data: dict[str, str] | None = None, **metadata: Any) -> Object:
    obj: Object = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, **metadata}}
    return obj if data is None else obj | {"data": data}


def widget(name: str, spec: Object | None = None, **metadata: Any) -> Object:
    return {
        "apiVersion": f"{GROUP}/v1",
        "kind": "Widget",
        "metadata": {"name": name, **metadata},
        "spec": {"size": 1} if spec is None else spec,
    }


def plain(name: str, spec: Object | None = None, **metadata: Any) -> Object:
    return widget(name, spec, **metadata) | {"kind": "Plain"}


def planet(name: str, spec: Object | None = None, **metadata: Any) -> Object:
    return widget(name, spec or {}, **metadata) | {"kind": "Planet"}


def owner(obj: Object, **more: Any) -> Object:
    """An owner reference to an object that a server answered."""
    return {
        "apiVersion": obj["apiVersion"],
        "kind": obj["kind"],
        "name": obj["metadata"]["name"],
        "uid": obj["metadata"]["uid"],
        **more,
    }


def crd(
    plural: str,
    kind: str,
    *,
    group: str = GROUP,
    scope: str = "Namespaced",
    spec: Object | None = None,
    versions: list[Object] | None = None,
    names: Object | None = None,
) -> Object:
    """A CRD; `spec` is the schema of its one version's spec."""
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {
            "group": group,
            "scope": scope,
            "names": {"plural": plural, "kind": kind, **(names or {})},
            "versions": versions or [version("v1", spec=spec)],
        },
    }


def version(name: str, *, spec: Object | None = None, storage: bool = True, served: bool = True, **more: Any) -> Object:
    properties: Object = {"spec": spec or {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    properties["status"] = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    schema = {"openAPIV3Schema": {"type": "object", "properties": properties}}
    return {"name": name, "served": served, "storage": storage, "schema": schema, **copy.deepcopy(more)}


ITEM: Object = {
    "type": "object",
    "required": ["name"],
    "properties": {
        "name": TEXT,
        "v": TEXT,
        "n": {"type": "integer", "default": 7},
    },
}
WIDGET_SPEC: Object = {
    "type": "object",
    "properties": {
        "size": {"type": "integer", "minimum": 0, "maximum": 100},
        "color": {"type": "string", "enum": ["red", "green", "blue"]},
        "mode": {"type": "string", "default": "auto"},
        "replicas": NUMBER,
        "nullable": {"type": "string", "nullable": True},
        "when": {"type": "string", "format": "date-time"},
        "port": {"x-kubernetes-int-or-string": True},
        "odd": {"type": "string", "format": "no-such-format"},
        "struct": {"type": "object", "properties": {"x": TEXT, "y": {"type": "string", "default": "why"}}},
        "labels": {"type": "object", "additionalProperties": TEXT},
        "atom": {"type": "array", "items": TEXT},
        "plain": {"type": "array", "items": ITEM},
        "set": {"type": "array", "x-kubernetes-list-type": "set", "items": TEXT},
        "map": {
            "type": "array",
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["name"],
            "items": ITEM,
        },
        "ports": {
            "type": "array",
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["port", "protocol"],
            "items": {
                "type": "object",
                "required": ["port"],
                "properties": {"port": NUMBER, "protocol": {"type": "string", "default": "TCP"}, "name": TEXT},
            },
        },
        "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
        "embedded": {"type": "object", "x-kubernetes-embedded-resource": True, "properties": {"spec": TEXT}},
        "fixed": {
            "type": "string",
            "x-kubernetes-validations": [{"rule": "self == oldSelf", "message": "fixed is fixed"}],
        },
        "low": NUMBER,
        "high": NUMBER,
        "url": {"type": "string", "x-kubernetes-validations": [{"rule": "isURL(self)", "message": "no URL"}]},
    },
    "x-kubernetes-validations": [
        {
            "rule": "!has(self.low) || !has(self.high) || self.low <= self.high",
            "messageExpression": "self.low > 50 ? 'low is far above high' : 'low is above high'",
            "reason": "FieldValueForbidden",
            "fieldPath": ".low",
        }
    ],
}
COLUMNS = [
    {"name": "Size", "type": "integer", "jsonPath": ".spec.size"},
    {"name": "Ready", "type": "string", "jsonPath": '.status.conditions[?(@.type=="Ready")].status'},
    {"name": "Mode", "type": "string", "jsonPath": ".spec.mode", "priority": 1, "description": "How it runs"},
    {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
]
SCALE = {
    "specReplicasPath": ".spec.replicas",
    "statusReplicasPath": ".status.replicas",
    "labelSelectorPath": ".status.selector",
}
WIDGETS = crd(
    "widgets",
    "Widget",
    names={"shortNames": ["wdg"], "categories": ["all", "goods"]},
    versions=[
        version(
            "v1",
            spec=WIDGET_SPEC,
            subresources={"status": {}, "scale": SCALE},
            additionalPrinterColumns=COLUMNS,
            selectableFields=[{"jsonPath": ".spec.color"}],
        )
    ],
)
MULTI_V2: Object = {"type": "object", "properties": {"a": TEXT, "b": {"type": "string", "default": "only-v2"}}}
MULTIS = crd(
    "multis",
    "Multi",
    versions=[
        version("v1", spec={"type": "object", "properties": {"a": TEXT}}),
        version("v2", spec=MULTI_V2, storage=False),
        version("v1alpha1", spec={"type": "object", "properties": {"a": TEXT}}, storage=False, deprecated=True),
        version("v1beta1", spec={"type": "object", "properties": {"a": TEXT}}, storage=False, served=False),
    ],
)
PLAINS = crd("plains", "Plain")
PLANETS = crd("planets", "Planet", scope="Cluster")


def establish(engine: Engine, *definitions: Object) -> None:
    """Create CRDs unless they are there, all at once, and wait until they are established and served."""
    for definition in definitions:
        created = engine.post(CRDS, definition)
        assert created.status in (201, 409), created.text
    for definition in definitions:
        spec = definition["spec"]
        engine.eventually(f"{CRDS}/{definition['metadata']['name']}", _is_established, seconds=15)
        for served in spec["versions"]:
            if served["served"]:
                path = f"/apis/{spec['group']}/{served['name']}/{spec['names']['plural']}"
                engine.eventually(path, lambda response: response.status == 200, seconds=15)


def _is_established(response: Response) -> bool:
    conditions = response.json().get("status", {}).get("conditions") or ()
    return any(found["type"] == "Established" and found["status"] == "True" for found in conditions)
