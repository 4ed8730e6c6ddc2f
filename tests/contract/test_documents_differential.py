"""Tables, discovery and OpenAPI next to those of a real kube-apiserver.

Objects of every built-in kind that can be printed are created on the real server; its Table of each must be ours, cell
by cell, and its discovery rows must be ours as far as we serve the same subresources.
"""

from __future__ import annotations

import json
import ssl
import urllib.request
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest

from planform.api.builtin import BUILTIN_KINDS
from planform.api.kinds import Kind, gvk
from planform.apiserver.crds.registry import PrinterColumn
from planform.apiserver.wire import discovery, openapi, tables
from tests.harness.kubernetes import RealKubernetes

pytestmark = [pytest.mark.kubernetes, pytest.mark.xdist_group("kubernetes")]

Object = dict[str, Any]
NAMESPACE = "documents"
KINDS = {kind.gvk: kind for kind in BUILTIN_KINDS}
MOVING = {"Age", "Last Seen", "First Seen", "Last Schedule", "Duration"}
"""Columns that tell a time until now: compared by shape only, since the two sides look at different moments."""

POD_SPEC: Object = {
    "containers": [{"name": "a", "image": "i:1"}, {"name": "b", "image": "j:2"}],
    "nodeSelector": {"zone": "z"},
    "restartPolicy": "Always",
    "readinessGates": [{"conditionType": "example.org/gate"}],
}
TEMPLATE: Object = {"metadata": {"labels": {"app": "w", "b": "c"}}, "spec": POD_SPEC}
SELECTOR: Object = {
    "matchLabels": {"app": "w"},
    "matchExpressions": [{"key": "b", "operator": "In", "values": ["d", "c"]}],
}
JOB_SPEC: Object = {"parallelism": 2, "template": {"spec": {**POD_SPEC, "restartPolicy": "Never"}}}
RBAC = "rbac.authorization.k8s.io"
SUBJECTS: list[Object] = [
    {"kind": "User", "name": "ann", "apiGroup": RBAC},
    {"kind": "Group", "name": "g1", "apiGroup": RBAC},
    {"kind": "Group", "name": "g2", "apiGroup": RBAC},
    {"kind": "ServiceAccount", "name": "sa", "namespace": "n"},
]


def metric(type_name: str, source: str, **fields: Any) -> Object:
    return {"type": type_name, source: fields}


OBJECTS: list[Object] = [
    {"apiVersion": "v1", "kind": "ConfigMap", "data": {"a": "1"}, "binaryData": {"b": "Yg=="}},
    {"apiVersion": "v1", "kind": "Secret", "stringData": {"a": "1"}},
    {"apiVersion": "v1", "kind": "ServiceAccount"},
    {
        "apiVersion": "v1",
        "kind": "LimitRange",
        "spec": {"limits": [{"type": "PersistentVolumeClaim", "max": {"storage": "9Gi"}}]},
    },
    {"apiVersion": "v1", "kind": "PodTemplate", "template": {**TEMPLATE, "spec": POD_SPEC}},
    {"apiVersion": "v1", "kind": "Pod", "spec": POD_SPEC},
    {
        "apiVersion": "v1",
        "kind": "Endpoints",
        "subsets": [{"addresses": [{"ip": f"10.0.0.{n}"} for n in range(1, 6)], "ports": [{"port": 80}]}],
    },
    {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": "fast",
            "resources": {"requests": {"storage": "1Gi"}},
        },
    },
    {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "headless"},
        "spec": {"clusterIP": "None", "selector": {"b": "2", "a": "1"}, "ports": [{"port": 80}]},
    },
    {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "balanced"},
        "spec": {
            "type": "LoadBalancer",
            "ports": [{"name": "a", "port": 80, "nodePort": 30080}, {"name": "b", "port": 53, "protocol": "UDP"}],
        },
    },
    {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "named"},
        "spec": {"type": "ExternalName", "externalName": "example.org"},
    },
    {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "outside"},
        "spec": {"externalIPs": ["192.0.2.1", "192.0.2.2"], "ports": [{"port": 80}]},
    },
    {
        "apiVersion": "v1",
        "kind": "Event",
        "involvedObject": {"kind": "Pod", "name": "p", "namespace": NAMESPACE, "fieldPath": "spec.x"},
        "reason": "Failed",
        "message": " no \n",
        "type": "Warning",
        "firstTimestamp": "2026-01-01T10:00:00Z",
        "lastTimestamp": "2026-01-01T11:00:00Z",
        "count": 4,
        "source": {"component": "kubelet", "host": "n1"},
    },
    {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"name": "newer"},
        "regarding": {"kind": "Pod", "name": "p", "namespace": NAMESPACE},
        "reason": "Done",
        "note": "all is well",
        "type": "Normal",
        "action": "Look",
        "eventTime": "2026-01-01T10:00:00.000000Z",
        "reportingController": "example.org/c",
        "reportingInstance": "c-1",
    },
    {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "spec": {"holderIdentity": "me"}},
    {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "spec": {"replicas": 3, "selector": SELECTOR, "template": TEMPLATE},
    },
    {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "spec": {"replicas": 0, "selector": SELECTOR, "template": TEMPLATE},
    },
    {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "spec": {"replicas": 2, "serviceName": "s", "selector": SELECTOR, "template": TEMPLATE},
    },
    {"apiVersion": "apps/v1", "kind": "DaemonSet", "spec": {"selector": SELECTOR, "template": TEMPLATE}},
    {"apiVersion": "batch/v1", "kind": "Job", "spec": JOB_SPEC},
    {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "counted"}, "spec": {**JOB_SPEC, "completions": 4}},
    {"apiVersion": "batch/v1", "kind": "CronJob", "spec": {"schedule": "0 0 1 1 *", "jobTemplate": {"spec": JOB_SPEC}}},
    {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "Ingress",
        "spec": {
            "ingressClassName": "c",
            "tls": [{"hosts": ["a.org"]}],
            "rules": [{"host": f"{name}.org"} for name in "abcde"],
        },
    },
    {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "spec": {
            "podSelector": {
                "matchLabels": {"x": "y", "a": "b"},
                "matchExpressions": [
                    {"key": "k", "operator": "NotIn", "values": ["2", "1"]},
                    {"key": "l", "operator": "DoesNotExist"},
                    {"key": "m", "operator": "Exists"},
                ],
            }
        },
    },
    {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": {"name": "every"},
        "spec": {"podSelector": {}},
    },
    {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "spec": {"minAvailable": "50%", "selector": {"matchLabels": {"a": "b"}}},
    },
    {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"},
            "minReplicas": 2,
            "maxReplicas": 5,
            "metrics": [
                metric("Resource", "resource", name="cpu", target={"type": "Utilization", "averageUtilization": 80}),
                metric("Pods", "pods", metric={"name": "m"}, target={"type": "AverageValue", "averageValue": "10"}),
                metric("External", "external", metric={"name": "m"}, target={"type": "Value", "value": "3"}),
            ],
        },
    },
    {
        "apiVersion": f"{RBAC}/v1",
        "kind": "Role",
        "rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}],
    },
    {
        "apiVersion": f"{RBAC}/v1",
        "kind": "RoleBinding",
        "roleRef": {"apiGroup": RBAC, "kind": "Role", "name": "r"},
        "subjects": SUBJECTS,
    },
    {
        "apiVersion": f"{RBAC}/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": "documents"},
        "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": "view"},
        "subjects": SUBJECTS,
    },
    {
        "apiVersion": f"{RBAC}/v1",
        "kind": "ClusterRole",
        "metadata": {"name": "documents"},
        "rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}],
    },
    {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "documents-two"}},
]
CRD: Object = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "widgets.documents.planform.test"},
    "spec": {
        "group": "documents.planform.test",
        "scope": "Namespaced",
        "names": {"plural": "widgets", "kind": "Widget", "shortNames": ["wd"], "categories": ["all"]},
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "subresources": {
                    "status": {},
                    "scale": {"specReplicasPath": ".spec.n", "statusReplicasPath": ".status.n"},
                },
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object",
                        "properties": {
                            "spec": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
                            "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
                        },
                    }
                },
                "additionalPrinterColumns": [
                    {"name": "Text", "type": "string", "jsonPath": ".spec.text"},
                    {"name": "Number as text", "type": "string", "jsonPath": ".spec.n"},
                    {"name": "Boolean as text", "type": "string", "jsonPath": ".spec.on"},
                    {"name": "List as text", "type": "string", "jsonPath": ".spec.list"},
                    {"name": "Object as text", "type": "string", "jsonPath": ".spec.nested"},
                    {"name": "First of list", "type": "string", "jsonPath": ".spec.list[*]"},
                    {"name": "Filtered", "type": "string", "jsonPath": '.spec.conditions[?(@.type=="Ready")].status'},
                    {"name": "Absent", "type": "string", "jsonPath": ".spec.absent"},
                    {"name": "N", "type": "integer", "jsonPath": ".spec.n", "format": "int32", "priority": 1},
                    {"name": "Text as integer", "type": "integer", "jsonPath": ".spec.text"},
                    {"name": "Fraction", "type": "number", "jsonPath": ".spec.fraction"},
                    {"name": "Fraction as integer", "type": "integer", "jsonPath": ".spec.fraction"},
                    {"name": "On", "type": "boolean", "jsonPath": ".spec.on", "description": "Whether."},
                    {"name": "Not a date", "type": "date", "jsonPath": ".spec.text"},
                    {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
                ],
            }
        ],
    },
}
WIDGET: Object = {
    "apiVersion": "documents.planform.test/v1",
    "kind": "Widget",
    "spec": {
        "text": "t",
        "n": 3,
        "on": True,
        "list": ["a", "b"],
        "nested": {"b": [1, "x"], "a": None},
        "fraction": 1.5,
        "conditions": [{"type": "Synced", "status": "False"}, {"type": "Ready", "status": "True"}],
    },
}
WIDGET_KIND = Kind(
    "documents.planform.test",
    "v1",
    "Widget",
    "widgets",
    True,
    short_names=("wd",),
    categories=("all",),
    subresources=("scale", "status"),
)


def named(obj: Object) -> Object:
    metadata = {"name": "thing", **obj.get("metadata", {})}
    kind = KINDS.get(gvk(obj["apiVersion"], obj["kind"]), WIDGET_KIND)
    return {**obj, "metadata": metadata | ({"namespace": NAMESPACE} if kind.namespaced else {})}


def get(cluster: RealKubernetes, path: str, accept: str = "application/json") -> Object:
    request = urllib.request.Request(
        cluster.url + path, headers={"Authorization": f"Bearer {cluster.token}", "Accept": accept}
    )
    context = ssl.create_default_context(cafile=str(cluster.ca_file))
    with urllib.request.urlopen(request, timeout=30, context=context) as answer:
        document: Object = json.loads(answer.read())
    return document


@pytest.fixture(scope="module")
def cluster(kubernetes_engine: RealKubernetes) -> Iterator[RealKubernetes]:
    kubernetes_engine.kubectl("create", "namespace", NAMESPACE)
    kubernetes_engine.kubectl("apply", "--server-side", "-f", "-", stdin=json.dumps(CRD))
    kubernetes_engine.kubectl("wait", "--for=condition=Established", f"crd/{CRD['metadata']['name']}")
    kubernetes_engine.kubectl("wait", "--for=create", "--timeout=60s", "-n", NAMESPACE, "serviceaccount/default")
    items = [named(obj) for obj in (*OBJECTS, WIDGET)]
    everything = {"apiVersion": "v1", "kind": "List", "items": items}
    kubernetes_engine.kubectl("create", "-f", "-", stdin=json.dumps(everything))
    yield kubernetes_engine
    kubernetes_engine.kubectl("delete", "-f", "-", "--wait=false", stdin=json.dumps(everything), check=False)
    kubernetes_engine.kubectl("delete", "namespace", NAMESPACE, "--wait=false")
    kubernetes_engine.kubectl("delete", "crd", CRD["metadata"]["name"], "--wait=false")


def path_of(kind: Kind, obj: Object) -> str:
    metadata = obj["metadata"]
    inside = f"namespaces/{metadata['namespace']}/" if kind.namespaced else ""
    return f"/{openapi.path_of(kind.group, kind.version)}/{inside}{kind.plural}/{metadata['name']}"


def both_tables(cluster: RealKubernetes, kind: Kind, obj: Object, columns: tuple[PrinterColumn, ...]) -> list[Any]:
    """The real Table and ours, each as {(heading, format, priority): cell}; asked for until the object stood still.

    Types are left out: the real server calls some columns of numbers strings.
    """
    path = path_of(kind, named(obj))
    for _ in range(10):
        before = get(cluster, path)
        theirs = get(cluster, path, "application/json;as=Table;v=v1;g=meta.k8s.io")
        if before["metadata"]["resourceVersion"] == theirs["metadata"]["resourceVersion"]:
            break
    ours = tables.table_for(kind, columns, [before], now=datetime.now(UTC))
    return [
        {
            (column["name"], column["format"], column["priority"]): "…" if column["name"] in MOVING and cell else cell
            for column, cell in zip(table["columnDefinitions"], table["rows"][0]["cells"], strict=True)
        }
        for table in (theirs, ours)
    ]


@pytest.mark.parametrize(
    "obj", [*OBJECTS, CRD], ids=lambda obj: f"{obj['kind']}-{obj.get('metadata', {}).get('name', 'thing')}"
)
def test_a_built_in_object_is_printed_as_the_real_server_prints_it(cluster: RealKubernetes, obj: Object) -> None:
    theirs, ours = both_tables(cluster, KINDS[gvk(obj["apiVersion"], obj["kind"])], obj, ())
    assert ours == theirs


def test_a_custom_object_is_printed_as_the_real_server_prints_it(cluster: RealKubernetes) -> None:
    columns = tuple(
        PrinterColumn(
            column["name"],
            column["type"],
            column["jsonPath"],
            column.get("format", ""),
            column.get("description", ""),
            column.get("priority", 0),
        )
        for column in CRD["spec"]["versions"][0]["additionalPrinterColumns"]
    )
    theirs, ours = both_tables(cluster, WIDGET_KIND, WIDGET, columns)
    assert ours == theirs


def rows_by_name(document: Object) -> dict[str, Object]:
    return {
        row["name"]: {key: value for key, value in row.items() if key != "storageVersionHash"}
        | {"verbs": set(row["verbs"])}
        for row in document["resources"]
    }


@pytest.mark.parametrize(
    "group_version",
    sorted({(kind.group, kind.version) for kind in (*BUILTIN_KINDS, WIDGET_KIND)}),
    ids=lambda group_version: "-".join(group_version),
)
def test_discovery_says_of_each_resource_what_the_real_server_says(
    cluster: RealKubernetes, group_version: tuple[str, str]
) -> None:
    ours = discovery.resource_list((*BUILTIN_KINDS, WIDGET_KIND), *group_version)
    assert ours is not None
    theirs = rows_by_name(get(cluster, f"/{openapi.path_of(*group_version)}"))
    for name, row in rows_by_name(ours).items():
        assert row == theirs[name]


def test_the_schema_of_a_custom_kind_is_published_under_the_same_name_with_the_same_operations(
    cluster: RealKubernetes,
) -> None:
    schema = CRD["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    ours = openapi.document([openapi.Described(WIDGET_KIND, schema)])
    theirs = get(cluster, "/openapi/v3/apis/documents.planform.test/v1")
    assert set(ours["paths"]) == {path for path in theirs["paths"] if path.count("/") > 3}
    for path, item in ours["paths"].items():
        assert set(item) == set(theirs["paths"][path])
        if "patch" in item:
            offered = set(item["patch"]["requestBody"]["content"])
            assert offered == {
                media for media in theirs["paths"][path]["patch"]["requestBody"]["content"] if "cbor" not in media
            }
    name = "test.planform.documents.v1.Widget"
    for published in (name, f"{name}List"):
        mine, real = ours["components"]["schemas"][published], theirs["components"]["schemas"][published]
        assert set(mine["properties"]) == set(real["properties"])
        assert mine["x-kubernetes-group-version-kind"] == real["x-kubernetes-group-version-kind"]
