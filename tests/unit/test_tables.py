"""Tables: the cells that people read, and the frame that kubectl needs around them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import orjson
import pytest

from planform.api.builtin import BUILTIN_KINDS
from planform.api.kinds import Kind, gvk
from planform.apiserver.crds.registry import PrinterColumn
from planform.apiserver.wire import tables
from planform.errors import BadRequest

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
HOUR_AGO = "2026-01-01T11:00:00Z"
KINDS = {kind.gvk: kind for kind in BUILTIN_KINDS}
WIDGET = Kind("example.org", "v1", "Widget", "widgets", True)


def an_object(**fields: Any) -> dict[str, Any]:
    return {"metadata": {"name": "x", "creationTimestamp": HOUR_AGO}, **fields}


def table(kind: Kind, *objects: dict[str, Any], columns: tuple[PrinterColumn, ...] = (), **options: Any) -> Any:
    return tables.table_for(kind, columns, objects, now=NOW, **options)


def shown(api_version: str, kind: str, obj: dict[str, Any], *, wide: bool = False) -> dict[str, Any]:
    """The cells of one object by heading, with those that only -o wide shows or without them."""
    built = table(KINDS[gvk(api_version, kind)], obj)
    pairs = zip(built["columnDefinitions"], built["rows"][0]["cells"], strict=True)
    return {column["name"]: cell for column, cell in pairs if wide or not column["priority"]}


@pytest.mark.parametrize("kind", BUILTIN_KINDS, ids=lambda kind: str(kind.gvk))
def test_every_kind_has_a_row_even_for_an_object_with_nothing_in_it(kind: Kind) -> None:
    built = table(kind, an_object())
    cells = built["rows"][0]["cells"]
    assert len(cells) == len(built["columnDefinitions"])
    assert None not in cells
    assert orjson.dumps(built)
    assert [column["name"] for column in built["columnDefinitions"] if column["format"] == "name"] == ["Name"]


@pytest.mark.parametrize(
    ("api_version", "kind", "headings"),
    [
        ("v1", "ConfigMap", "Name,Data,Age"),
        ("v1", "Secret", "Name,Type,Data,Age"),
        ("v1", "Namespace", "Name,Status,Age"),
        ("v1", "ServiceAccount", "Name,Age"),
        ("v1", "Service", "Name,Type,Cluster-IP,External-IP,Port(s),Age"),
        ("v1", "Event", "Last Seen,Type,Reason,Object,Message"),
        ("events.k8s.io/v1", "Event", "Last Seen,Type,Reason,Object,Message"),
        ("coordination.k8s.io/v1", "Lease", "Name,Holder,Age"),
        ("apps/v1", "Deployment", "Name,Ready,Up-to-date,Available,Age"),
        ("apps/v1", "ReplicaSet", "Name,Desired,Current,Ready,Age"),
        ("v1", "Pod", "Name,Ready,Status,Restarts,Age"),
        ("apiextensions.k8s.io/v1", "CustomResourceDefinition", "Name,Scope,Versions,Created At"),
        ("rbac.authorization.k8s.io/v1", "Role", "Name,Created At"),
        ("rbac.authorization.k8s.io/v1", "ClusterRoleBinding", "Name,Role,Age"),
    ],
)
def test_headings_are_those_people_know(api_version: str, kind: str, headings: str) -> None:
    assert list(shown(api_version, kind, an_object())) == headings.split(",")


POD_SPEC = {"containers": [{"name": "a", "image": "i:1"}, {"name": "b", "image": "j:2"}], "nodeSelector": {"d": "e"}}
WORKLOAD_SPEC = {"replicas": 3, "selector": {"matchLabels": {"app": "w"}}, "template": {"spec": POD_SPEC}}


@pytest.mark.parametrize(
    ("api_version", "kind", "fields", "expected"),
    [
        ("v1", "ConfigMap", {"data": {"a": "1"}, "binaryData": {"b": "Yg=="}}, {"Name": "x", "Data": 2, "Age": "60m"}),
        ("v1", "Secret", {"type": "Opaque", "data": {"a": "Yg=="}}, {"Type": "Opaque", "Data": 1}),
        ("v1", "Namespace", {"status": {"phase": "Terminating"}}, {"Status": "Terminating"}),
        (
            "v1",
            "Service",
            {
                "spec": {
                    "type": "ClusterIP",
                    "clusterIP": "10.0.0.1",
                    "ports": [{"port": 80, "protocol": "TCP"}, {"port": 53, "nodePort": 30053, "protocol": "UDP"}],
                    "selector": {"b": "2", "a": "1"},
                }
            },
            {
                "Type": "ClusterIP",
                "Cluster-IP": "10.0.0.1",
                "External-IP": "<none>",
                "Port(s)": "80/TCP,53:30053/UDP",
                "Selector": "a=1,b=2",
            },
        ),
        ("v1", "Service", {"spec": {"type": "LoadBalancer"}}, {"External-IP": "<pending>", "Port(s)": "<none>"}),
        ("v1", "Service", {"spec": {"type": "ExternalName", "externalName": "e.org"}}, {"External-IP": "e.org"}),
        (
            "v1",
            "Event",
            {
                "involvedObject": {"kind": "Pod", "name": "p", "fieldPath": "spec"},
                "type": "Warning",
                "reason": "Failed",
                "message": " no \n",
                "firstTimestamp": "2026-01-01T10:00:00Z",
                "lastTimestamp": "2026-01-01T11:59:00Z",
                "count": 4,
                "source": {"component": "kubelet", "host": "n1"},
            },
            {
                "Last Seen": "60s",
                "Type": "Warning",
                "Object": "pod/p",
                "Subobject": "spec",
                "Source": "kubelet, n1",
                "Message": "no",
                "First Seen": "120m",
                "Count": 4,
                "Name": "x",
            },
        ),
        (
            "events.k8s.io/v1",
            "Event",
            {
                "regarding": {"kind": "Widget", "name": "w"},
                "note": "done",
                "eventTime": "2026-01-01T11:59:30.000000Z",
                "reportingController": "c",
            },
            {"Last Seen": "30s", "Object": "widget/w", "Message": "done", "Source": "c", "Count": 1},
        ),
        ("coordination.k8s.io/v1", "Lease", {"spec": {"holderIdentity": "me"}}, {"Holder": "me"}),
        (
            "apps/v1",
            "Deployment",
            {"spec": WORKLOAD_SPEC, "status": {"readyReplicas": 1, "updatedReplicas": 2, "availableReplicas": 1}},
            {
                "Ready": "1/3",
                "Up-to-date": 2,
                "Available": 1,
                "Containers": "a,b",
                "Images": "i:1,j:2",
                "Selector": "app=w",
            },
        ),
        ("apps/v1", "ReplicaSet", {"spec": WORKLOAD_SPEC}, {"Desired": 3, "Current": 0, "Ready": 0}),
        ("apps/v1", "DaemonSet", {"spec": WORKLOAD_SPEC}, {"Desired": 0, "Node Selector": "d=e"}),
        ("apps/v1", "StatefulSet", {"spec": WORKLOAD_SPEC}, {"Ready": "0/3", "Images": "i:1,j:2"}),
        (
            "v1",
            "Pod",
            {
                "spec": POD_SPEC | {"readinessGates": [{"conditionType": "g"}]},
                "status": {
                    "phase": "Running",
                    "podIP": "10.1.1.1",
                    "containerStatuses": [{"ready": True, "restartCount": 2}, {"ready": False, "restartCount": 1}],
                    "conditions": [{"type": "g", "status": "True"}],
                },
            },
            {
                "Ready": "1/2",
                "Status": "Running",
                "Restarts": "3",
                "IP": "10.1.1.1",
                "Node": "<none>",
                "Readiness Gates": "1/1",
            },
        ),
        (
            "v1",
            "Pod",
            {
                "status": {
                    "phase": "Running",
                    "containerStatuses": [{"state": {"waiting": {"reason": "CrashLoopBackOff"}}}],
                }
            },
            {"Status": "CrashLoopBackOff"},
        ),
        (
            "apiextensions.k8s.io/v1",
            "CustomResourceDefinition",
            {
                "spec": {
                    "scope": "Namespaced",
                    "group": "e.org",
                    "names": {"kind": "W", "shortNames": ["w", "ww"]},
                    "versions": [
                        {"name": "v2", "served": False},
                        {"name": "v1beta1", "served": True},
                        {"name": "v1", "served": True, "storage": True},
                    ],
                },
                "status": {"conditions": [{"type": "Established", "status": "True"}]},
            },
            {
                "Scope": "Namespaced",
                "Versions": "v1(storage),v1beta1",
                "Created At": HOUR_AGO,
                "ShortNames": "w,ww",
                "Established": True,
            },
        ),
        (
            "rbac.authorization.k8s.io/v1",
            "RoleBinding",
            {
                "roleRef": {"kind": "ClusterRole", "name": "view"},
                "subjects": [
                    {"kind": "User", "name": "ann"},
                    {"kind": "ServiceAccount", "name": "sa", "namespace": "n"},
                    {"kind": "Group", "name": "g1"},
                    {"kind": "Group", "name": "g2"},
                ],
            },
            {"Role": "ClusterRole/view", "Users": "ann", "Groups": "g1, g2", "ServiceAccounts": "n/sa"},
        ),
        (
            "batch/v1",
            "Job",
            {
                "spec": {"completions": 2, "template": {"spec": POD_SPEC}},
                "status": {
                    "succeeded": 2,
                    "startTime": HOUR_AGO,
                    "completionTime": "2026-01-01T11:05:30Z",
                    "conditions": [{"type": "Complete", "status": "True"}],
                },
            },
            {"Status": "Complete", "Completions": "2/2", "Duration": "5m30s", "Images": "i:1,j:2"},
        ),
        (
            "batch/v1",
            "Job",
            {"spec": {"parallelism": 3}},
            {"Status": "Running", "Completions": "0/1 of 3", "Duration": ""},
        ),
        (
            "batch/v1",
            "CronJob",
            {
                "spec": {"schedule": "* * * * *", "suspend": False},
                "status": {"active": [{}], "lastScheduleTime": HOUR_AGO},
            },
            {"Schedule": "* * * * *", "Timezone": "<none>", "Suspend": "False", "Active": 1, "Last Schedule": "60m"},
        ),
        (
            "v1",
            "Endpoints",
            {"subsets": [{"addresses": [{"ip": f"10.0.0.{n}"} for n in range(5)], "ports": [{"port": 80}]}]},
            {"Endpoints": "10.0.0.0:80,10.0.0.1:80,10.0.0.2:80 + 2 more..."},
        ),
        (
            "v1",
            "ResourceQuota",
            {"status": {"hard": {"pods": "5", "limits.cpu": "2"}, "used": {"pods": "1"}}},
            {"Request": "pods: 1/5", "Limit": "limits.cpu: 0/2"},
        ),
        (
            "v1",
            "PersistentVolumeClaim",
            {
                "spec": {"volumeName": "v", "storageClassName": "fast"},
                "status": {
                    "phase": "Bound",
                    "capacity": {"storage": "1Gi"},
                    "accessModes": ["ReadWriteMany", "ReadWriteOnce"],
                },
            },
            {"Status": "Bound", "Volume": "v", "Capacity": "1Gi", "Access Modes": "RWO,RWX", "StorageClass": "fast"},
        ),
        (
            "networking.k8s.io/v1",
            "Ingress",
            {"spec": {"rules": [{"host": "a"}, {"host": "b"}], "tls": [{}]}, "status": {}},
            {"Class": "<none>", "Hosts": "a,b", "Address": "", "Ports": "80, 443"},
        ),
        (
            "networking.k8s.io/v1",
            "NetworkPolicy",
            {
                "spec": {
                    "podSelector": {
                        "matchLabels": {"a": "b"},
                        "matchExpressions": [
                            {"key": "k", "operator": "In", "values": ["y", "x"]},
                            {"key": "l", "operator": "DoesNotExist"},
                        ],
                    }
                }
            },
            {"Pod-Selector": "a=b,k in (x,y),!l"},
        ),
        (
            "policy/v1",
            "PodDisruptionBudget",
            {"spec": {"minAvailable": "50%"}, "status": {"disruptionsAllowed": 1}},
            {"Min Available": "50%", "Max Unavailable": "N/A", "Allowed Disruptions": 1},
        ),
        (
            "autoscaling/v2",
            "HorizontalPodAutoscaler",
            {
                "spec": {
                    "scaleTargetRef": {"kind": "Deployment", "name": "d"},
                    "maxReplicas": 5,
                    "metrics": [
                        {"type": "Resource", "resource": {"name": "cpu", "target": {"averageUtilization": 80}}},
                        {"type": "Pods", "pods": {"target": {"averageValue": "10"}}},
                        {"type": "Odd"},
                    ],
                },
                "status": {
                    "currentMetrics": [{"type": "Resource", "resource": {"current": {"averageUtilization": 40}}}]
                },
            },
            {
                "Reference": "Deployment/d",
                "Targets": "cpu: 40%/80%, <unknown>/10 + 1 more...",
                "MinPods": "<unset>",
                "MaxPods": 5,
            },
        ),
    ],
)
def test_cells_say_what_a_cluster_would_say(
    api_version: str, kind: str, fields: dict[str, Any], expected: dict[str, Any]
) -> None:
    cells = shown(api_version, kind, an_object(**fields), wide=True)
    assert {name: cells[name] for name in expected} == expected


def test_what_is_going_away_says_so() -> None:
    going = {"metadata": {"name": "x", "deletionTimestamp": HOUR_AGO}, "status": {"phase": "Running"}}
    assert shown("v1", "Pod", going)["Status"] == "Terminating"
    assert shown("v1", "PersistentVolumeClaim", going)["Status"] == "Terminating"
    assert shown("v1", "Pod", going)["Age"] == "<unknown>"


def test_a_custom_kind_without_columns_shows_name_and_age() -> None:
    built = table(WIDGET, an_object())
    assert [column["name"] for column in built["columnDefinitions"]] == ["Name", "Age"]
    assert built["rows"][0]["cells"] == ["x", "60m"]


def test_columns_of_a_custom_kind_are_the_definition_s_own() -> None:
    size = PrinterColumn("Size", "integer", ".spec.size", format="int32", description="How big.", priority=1)
    built = table(WIDGET, an_object(spec={"size": 3}), columns=(size,))
    assert built["columnDefinitions"][1] == {
        "name": "Size",
        "type": "integer",
        "format": "int32",
        "description": "How big.",
        "priority": 1,
    }
    assert built["rows"][0]["cells"] == ["x", 3]


CONDITIONS = [{"type": "Ready", "status": "True"}, {"type": "Synced", "status": "False"}]


@pytest.mark.parametrize(
    ("type_name", "path", "cell"),
    [
        pytest.param("string", ".spec.text", "t", id="text"),
        pytest.param("string", ".spec.size", "3", id="a number in a column of text"),
        pytest.param("string", ".spec.on", "true", id="a boolean in a column of text"),
        pytest.param("string", ".spec.list", '["a","b"]', id="a list in a column of text"),
        pytest.param("string", ".spec.nested", '{"a":1}', id="an object in a column of text"),
        pytest.param("string", ".spec.absent", None, id="nothing there"),
        pytest.param("string", ".spec.null", None, id="null"),
        pytest.param("integer", ".spec.size", 3, id="integer"),
        pytest.param("integer", ".spec.ratio", 1, id="a fraction in a column of integers"),
        pytest.param("integer", ".spec.text", None, id="text in a column of integers"),
        pytest.param("integer", ".spec.on", None, id="a boolean in a column of integers"),
        pytest.param("number", ".spec.ratio", 1.5, id="number"),
        pytest.param("boolean", ".spec.on", True, id="boolean"),
        pytest.param("boolean", ".spec.text", None, id="text in a column of booleans"),
        pytest.param("date", ".metadata.creationTimestamp", "60m", id="date"),
        pytest.param("date", ".spec.text", "<invalid>", id="text in a column of dates"),
        pytest.param("string", '.status.conditions[?(@.type=="Ready")].status', "True", id="filter"),
        pytest.param("string", '.status.conditions[?(@.type=="Gone")].status', None, id="filter without a match"),
        pytest.param("string", ".status.conditions[*].type", "Ready", id="the first of many"),
        pytest.param("string", ".spec[", None, id="a path that is wrong"),
    ],
)
def test_a_custom_cell_is_converted_to_its_column_s_type(type_name: str, path: str, cell: Any) -> None:
    spec = {"text": "t", "size": 3, "on": True, "list": ["a", "b"], "nested": {"a": 1}, "null": None, "ratio": 1.5}
    obj = an_object(spec=spec, status={"conditions": CONDITIONS})
    assert table(WIDGET, obj, columns=(PrinterColumn("C", type_name, path),))["rows"][0]["cells"][1] == cell


def test_the_frame_carries_the_list_s_metadata_and_one_row_for_each_object() -> None:
    metadata = {"resourceVersion": "5", "continue": "c", "remainingItemCount": 2}
    built = table(KINDS[gvk("v1", "ConfigMap")], an_object(), an_object(), metadata=metadata)
    assert (built["kind"], built["apiVersion"], built["metadata"]) == ("Table", "meta.k8s.io/v1", metadata)
    assert len(built["rows"]) == 2


def test_a_bookmark_has_columns_and_a_version_but_no_rows() -> None:
    built = table(KINDS[gvk("v1", "Pod")], metadata={"resourceVersion": "7"})
    assert built["rows"] == [] and built["columnDefinitions"] and built["metadata"] == {"resourceVersion": "7"}


@pytest.mark.parametrize("include", ["", "Metadata"])
def test_rows_carry_metadata_by_default(include: str) -> None:
    obj = an_object(data={"a": "b"}, kind="ConfigMap", apiVersion="v1")
    [row] = table(KINDS[gvk("v1", "ConfigMap")], obj, include_object=include)["rows"]
    assert row["object"] == {
        "kind": "PartialObjectMetadata",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": obj["metadata"],
    }


def test_rows_carry_the_whole_object_or_nothing_if_asked_to() -> None:
    obj = an_object(data={"a": "b"})
    kind = KINDS[gvk("v1", "ConfigMap")]
    assert table(kind, obj, include_object="Object")["rows"][0]["object"] == obj
    assert table(kind, obj, include_object="None")["rows"][0]["object"] is None


def test_any_other_choice_is_a_bad_request() -> None:
    with pytest.raises(BadRequest, match='unrecognized includeObject value: "All"'):
        table(WIDGET, include_object="All")


def test_metadata_only_objects_keep_all_metadata_and_nothing_else() -> None:
    obj = an_object(spec={}, kind="Widget", apiVersion="example.org/v1")
    obj["metadata"]["managedFields"] = [{"manager": "m"}]
    assert tables.partial_list([obj], {"resourceVersion": "5"}) == {
        "kind": "PartialObjectMetadataList",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": {"resourceVersion": "5"},
        "items": [{"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": obj["metadata"]}],
    }
