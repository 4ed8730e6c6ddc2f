"""Valid requests of many sorts, and how they are spoilt."""

from __future__ import annotations

import copy
import random
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import quote

import orjson

from tests.faults.load import CONFIG_MAPS

WIDGETS = "/apis/fuzz.example.org/v1/namespaces/default/widgets"
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


def config_map(name: str) -> dict[str, Any]:
    metadata = {"name": name, "labels": {"app": "fuzz"}, "annotations": {"a": "b"}, "finalizers": ["example.org/f"]}
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": metadata,
        "data": {"k": "v"},
        "binaryData": {"b": "YQ=="},
    }


def widget(name: str) -> dict[str, Any]:
    spec = {"size": 3, "colour": "red", "parts": [{"name": "a", "weight": "1Gi"}], "free": {"x": [1, 2.5, None]}}
    return {"apiVersion": "fuzz.example.org/v1", "kind": "Widget", "metadata": {"name": name}, "spec": spec}


WIDGET_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "spec": {
            "type": "object",
            "required": ["size"],
            "x-kubernetes-validations": [{"rule": "self.size < 100 && !has(self.none)", "message": "too big"}],
            "properties": {
                "size": {"type": "integer", "minimum": 0, "default": 1},
                "none": {"type": "string", "format": "date-time"},
                "colour": {"type": "string", "enum": ["red", "blue"], "maxLength": 10, "pattern": "^[a-z]+$"},
                "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
                "parts": {
                    "type": "array",
                    "maxItems": 10,
                    "x-kubernetes-list-type": "map",
                    "x-kubernetes-list-map-keys": ["name"],
                    "items": {
                        "type": "object",
                        "required": ["name"],
                        "properties": {
                            "name": {"type": "string"},
                            "weight": {"x-kubernetes-int-or-string": True},
                        },
                    },
                },
            },
        },
        "status": {"type": "object", "properties": {"ready": {"type": "boolean", "nullable": True}}},
    },
}


def crd(plural: str, kind: str) -> dict[str, Any]:
    version = {
        "name": "v1",
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": WIDGET_SCHEMA},
        "subresources": {
            "status": {},
            "scale": {"specReplicasPath": ".spec.size", "statusReplicasPath": ".status.size"},
        },
        "additionalPrinterColumns": [{"name": "Size", "type": "integer", "jsonPath": ".spec.size"}],
    }
    names = {"plural": plural, "singular": kind.lower(), "kind": kind, "listKind": f"{kind}List", "shortNames": ["wd"]}
    spec = {"group": "fuzz.example.org", "scope": "Namespaced", "names": names, "versions": [version]}
    metadata = {"name": f"{plural}.fuzz.example.org"}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": metadata,
        "spec": spec,
    }


ROLE = {
    "apiVersion": "rbac.authorization.k8s.io/v1",
    "kind": "ClusterRole",
    "metadata": {"name": "fuzz"},
    "rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}],
    "aggregationRule": {"clusterRoleSelectors": [{"matchLabels": {"a": "b"}}]},
}
POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "p", "generateName": "p-"},
    "spec": {"containers": [{"name": "c", "image": "i", "ports": [{"containerPort": 80}], "env": [{"name": "A"}]}]},
}
ACCESS = {"spec": {"resourceAttributes": {"verb": "get", "resource": "pods", "group": "", "namespace": "default"}}}


@dataclass(frozen=True)
class Sent:
    """One request; its `repr` is what reproduces it."""

    method: str
    path: str
    body: object = None
    query: tuple[tuple[str, str], ...] = ()
    headers: dict[str, str] = field(default_factory=dict)

    @property
    def target(self) -> str:
        pairs = "&".join(f"{name}={quote(value, safe=',()!=/')}" for name, value in self.query)
        return f"{self.path}?{pairs}" if pairs else self.path

    def content(self) -> bytes:
        return self.body if isinstance(self.body, bytes) else b"" if self.body is None else orjson.dumps(self.body)


CONTINUE = "eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6MSwic3RhcnQiOiJhIn0"


YAML = {"content-type": "application/yaml"}
APPLY = {"content-type": "application/apply-patch+yaml"}
MERGE = {"content-type": "application/merge-patch+json"}
STRATEGIC = {"content-type": "application/strategic-merge-patch+json"}
JSON_PATCH = {"content-type": "application/json-patch+json"}
PROTOBUF = {"content-type": "application/vnd.kubernetes.protobuf"}

VALID = (
    Sent("GET", CONFIG_MAPS),
    Sent("GET", CONFIG_MAPS, query=(("labelSelector", "app in (fuzz,x),!y"), ("limit", "2"))),
    Sent("GET", CONFIG_MAPS, query=(("fieldSelector", "metadata.name=a"), ("resourceVersion", "1"))),
    Sent("GET", CONFIG_MAPS, query=(("limit", "1"), ("continue", CONTINUE))),
    Sent("GET", CONFIG_MAPS, query=(("resourceVersion", "2"), ("resourceVersionMatch", "Exact"))),
    Sent("GET", CONFIG_MAPS, query=(("watch", "1"), ("timeoutSeconds", "1"), ("resourceVersion", "1"))),
    Sent("GET", CONFIG_MAPS, query=(("watch", "1"), ("timeoutSeconds", "1"), ("sendInitialEvents", "true"))),
    Sent("GET", CONFIG_MAPS, headers={"accept": "application/json;as=Table;v=v1;g=meta.k8s.io"}),
    Sent("GET", f"{WIDGETS}/w", headers={"accept": "application/yaml"}),
    Sent("GET", f"{WIDGETS}/w/scale"),
    Sent("GET", "/api"),
    Sent("GET", "/apis", headers={"accept": "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"}),
    Sent("GET", "/apis/fuzz.example.org/v1"),
    Sent("GET", "/openapi/v3/apis/fuzz.example.org/v1"),
    Sent("GET", "/readyz", query=(("verbose", ""),)),
    Sent("GET", "/version"),
    Sent("POST", CONFIG_MAPS, config_map("a"), query=(("fieldValidation", "Strict"), ("dryRun", "All"))),
    Sent("POST", CONFIG_MAPS, config_map("b"), query=(("fieldManager", "fuzz"),)),
    Sent("POST", CONFIG_MAPS, b"metadata: {name: &n c}\ndata: {x: *n, y: |\n  text\n}\n", headers=YAML),
    Sent("POST", CONFIG_MAPS, b"k8s\x00\n\x0f\n\x02v1\x12\tConfigMap\x12\x08\n\x06\n\x04prot", headers=PROTOBUF),
    Sent("PUT", f"{CONFIG_MAPS}/a", config_map("a")),
    Sent("PATCH", f"{CONFIG_MAPS}/a", {"data": {"k": None, "z": "1"}}, headers=MERGE),
    Sent(
        "PATCH",
        f"{CONFIG_MAPS}/a",
        [
            {"op": "add", "path": "/data/q", "value": "1"},
            {"op": "test", "path": "/data/k", "value": "v"},
            {"op": "move", "from": "/data/q", "path": "/data/r"},
        ],
        headers=JSON_PATCH,
    ),
    Sent(
        "PATCH",
        f"{CONFIG_MAPS}/a",
        {"metadata": {"finalizers": ["x.org/y"], "$deleteFromPrimitiveList/finalizers": ["x.org/y"]}},
        headers=STRATEGIC,
    ),
    Sent(
        "PATCH",
        "/api/v1/namespaces/default/pods/p",
        {"spec": {"containers": [{"name": "c", "$patch": "delete"}]}},
        headers=STRATEGIC,
    ),
    Sent("PATCH", f"{WIDGETS}/w", widget("w"), query=(("fieldManager", "fuzz"), ("force", "true")), headers=APPLY),
    Sent("PATCH", f"{WIDGETS}/w/status", {"status": {"ready": True}}, headers=MERGE),
    Sent(
        "PUT",
        f"{WIDGETS}/w/scale",
        {
            "kind": "Scale",
            "apiVersion": "autoscaling/v1",
            "metadata": {"name": "w", "namespace": "default"},
            "spec": {"replicas": 2},
        },
    ),
    Sent("POST", WIDGETS, widget("w")),
    Sent("PUT", f"{WIDGETS}/w", widget("w")),
    Sent(
        "DELETE",
        f"{CONFIG_MAPS}/a",
        {
            "kind": "DeleteOptions",
            "propagationPolicy": "Foreground",
            "gracePeriodSeconds": 0,
            "preconditions": {"uid": "x"},
        },
    ),
    Sent("DELETE", CONFIG_MAPS, query=(("labelSelector", "app=fuzz"), ("dryRun", "All"))),
    Sent("POST", CRDS, crd("gadgets", "Gadget")),
    Sent("PUT", f"{CRDS}/gadgets.fuzz.example.org", crd("gadgets", "Gadget")),
    Sent("POST", "/apis/rbac.authorization.k8s.io/v1/clusterroles", ROLE),
    Sent("POST", "/api/v1/namespaces/default/pods", POD),
    Sent("POST", "/api/v1/namespaces", {"metadata": {"generateName": "fuzz-"}}),
    Sent("POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", ACCESS),
    Sent("POST", "/apis/authentication.k8s.io/v1/tokenreviews", {"spec": {"token": "x", "audiences": ["a"]}}),
    Sent("POST", "/api/v1/namespaces/default/serviceaccounts/default/token", {"spec": {"expirationSeconds": 600}}),
    Sent(
        "GET",
        CONFIG_MAPS,
        headers={"impersonate-user": "someone", "impersonate-group": "g", "impersonate-extra-a": "b"},
    ),
)

WORDS = (
    "",
    "0",
    "-1",
    "1",
    "9" * 30,
    "1e400",
    "NaN",
    "true",
    "null",
    "a",
    "A_b",
    "..",
    "a/b",
    "%00",
    "%ff",
    "%2e%2e",
    "\u00b2",
    "\u00e9",
    "\U0001f600",
    "x" * 300,
    "metadata.name=",
    "a=b,",
    "in (",
    "v1",
    "All",
    "Strict",
    "Exact",
    "~1",
    "/-",
    "*",
    "Infinity",
    "2024-01-01T00:00:00Z",
    "1Gi",
    "status",
    "scale",
    "watch",
    "namespaces",
    "kube-system",
    "\x7f",
    "[",
    "{",
)
SCALARS: tuple[Any, ...] = (
    None,
    True,
    False,
    0,
    -1,
    2**31,
    2**53 + 1,
    2**63 - 1,
    1.5,
    -0.0,
    1e308,
    "",
    [],
    {},
    [[]],
    {"": {}},
)
METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS", "TRACE", "CONNECT")
MEDIA = (
    "application/json",
    "application/yaml",
    "application/apply-patch+yaml",
    "application/json-patch+json",
    "text/plain",
    "application/merge-patch+json",
    "application/strategic-merge-patch+json",
    "application/vnd.kubernetes.protobuf",
    ";",
    "",
)
PARAMETERS = (
    "watch",
    "limit",
    "continue",
    "labelSelector",
    "fieldSelector",
    "resourceVersion",
    "resourceVersionMatch",
    "pretty",
    "timeoutSeconds",
    "sendInitialEvents",
    "allowWatchBookmarks",
    "dryRun",
    "fieldManager",
    "fieldValidation",
    "force",
    "propagationPolicy",
    "orphanDependents",
    "gracePeriodSeconds",
    "includeObject",
    "timeout",
)


def places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Every container in a value with each key or index in it."""
    if isinstance(value, (dict, list)):
        for key in value if isinstance(value, dict) else range(len(value)):
            yield value, key
            yield from places(value[key])


def mutated_value(choose: random.Random, value: Any) -> Any:
    """A copy with one to three values replaced, removed, added or moved."""
    result = copy.deepcopy(value)
    for _ in range(choose.randint(1, 3)):
        spots = list(places(result))
        if not spots:
            return choose.choice(SCALARS)
        container, key = choose.choice(spots)
        what = choose.randrange(5)
        if what == 0:
            container[key] = copy.deepcopy(choose.choice(SCALARS))
        elif what == 1:
            container[key] = choose.choice(WORDS)
        elif what == 2:
            del container[key]
        elif what == 3:
            other, there = choose.choice(spots)
            with suppress(KeyError, IndexError):
                container[key] = copy.deepcopy(other[there])
        elif isinstance(container, dict):
            container[choose.choice(WORDS)] = copy.deepcopy(choose.choice(SCALARS))
        else:
            container.append(copy.deepcopy(container[key]))
    return result


def mutated_bytes(choose: random.Random, data: bytes) -> bytes:
    result = bytearray(data)
    for _ in range(choose.randint(1, 4)):
        at = choose.randrange(len(result) + 1)
        what = choose.randrange(4)
        if what == 0 and at < len(result):
            result[at] = choose.randrange(256)
        elif what == 1:
            result[at:at] = choose.choice(WORDS).encode()
        elif what == 2:
            del result[at : at + choose.randint(1, 20)]
        else:
            result[at:at] = result[at : at + 30] * choose.randint(1, 5)
    return bytes(result)


def mutated(choose: random.Random, sent: Sent) -> Sent:
    """One part of a request changed."""
    what = choose.randrange(8)
    if what == 0:
        return replace(sent, method=choose.choice(METHODS))
    if what == 1:
        parts = sent.path.split("/")
        parts[choose.randrange(1, len(parts))] = quote(choose.choice(WORDS), safe="%~*")
        if choose.random() < 0.3:
            parts.append(quote(choose.choice(WORDS), safe="%~*"))
        return replace(sent, path="/".join(parts))
    if what == 2:
        name = choose.choice(PARAMETERS)
        value = choose.choice(WORDS) if choose.random() < 0.7 else choose.choice(["true", "1", "All", "Foreground"])
        return replace(sent, query=(*sent.query, (name, value)))
    if what == 3:
        name = choose.choice(["content-type", "accept", "user-agent", "authorization", "impersonate-user", "x-y"])
        value = choose.choice(MEDIA) if choose.random() < 0.6 else quote(choose.choice(WORDS), safe=" /;=*{[")
        return replace(sent, headers=sent.headers | {name: value})
    if sent.body is None:
        return replace(sent, body=copy.deepcopy(choose.choice(SCALARS)))
    if what == 4 or isinstance(sent.body, bytes):
        return replace(sent, body=mutated_bytes(choose, sent.content()))
    return replace(sent, body=mutated_value(choose, sent.body))
