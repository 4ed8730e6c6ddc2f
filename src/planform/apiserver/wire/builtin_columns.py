"""What `kubectl get` shows of each built-in kind: headings, their order, and which of them only `-o wide` shows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from planform.api.kinds import GroupVersionKind, Object, gvk
from planform.apimachinery.age import UNKNOWN, age
from planform.apiserver.wire import builtin_cells as cells
from planform.apiserver.wire.builtin_cells import NONE, UNSET, at

Cell = Callable[[Object, datetime], Any]


@dataclass(frozen=True, slots=True)
class Column:
    """One column: its heading, and how an object's cell is made. Priority above 0 is shown only when wide."""

    name: str
    cell: Cell
    type: str = "string"
    format: str = ""
    description: str = ""
    priority: int = 0

    def definition(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "type": self.type,
            "format": self.format,
            "description": self.description,
            "priority": self.priority,
        }


def text(name: str, *path: str, absent: str = "", wide: bool = False) -> Column:
    return Column(name, lambda obj, _: at(obj, *path) or absent, priority=int(wide))


def number(name: str, *path: str) -> Column:
    return Column(name, lambda obj, _: at(obj, *path) or 0, type="integer")


def made(name: str, make: Callable[[Object], Any], *, type: str = "string", wide: bool = False) -> Column:
    return Column(name, lambda obj, _: make(obj), type=type, priority=int(wide))


def since(name: str, *paths: tuple[str, ...], absent: str = UNKNOWN, wide: bool = False) -> Column:
    """The time since the first of these moments that is there."""

    def cell(obj: Object, now: datetime) -> str:
        moment = next((found for path in paths if (found := at(obj, *path))), None)
        return age(moment, now) if moment else absent

    return Column(name, cell, priority=int(wide))


NAME: Final = Column("Name", lambda obj, _: at(obj, "metadata", "name"), format="name")
AGE: Final = since("Age", ("metadata", "creationTimestamp"))
CREATED_AT: Final = Column("Created At", lambda obj, _: at(obj, "metadata", "creationTimestamp"), type="date")
_CONTAINERS: Final = made("Containers", cells.containers("name"), wide=True)
_IMAGES: Final = made("Images", cells.containers("image"), wide=True)
_SELECTOR: Final = made("Selector", lambda obj: cells.label_selector(at(obj, "spec", "selector")), wide=True)
_WORKLOAD: Final = (AGE, _CONTAINERS, _IMAGES, _SELECTOR)
_WEBHOOKS: Final = (NAME, made("Webhooks", lambda obj: len(at(obj, "webhooks") or ()), type="integer"), AGE)
_BINDING: Final = (
    NAME,
    made("Role", cells.role_reference),
    AGE,
    made("Users", cells.subjects("User"), wide=True),
    made("Groups", cells.subjects("Group"), wide=True),
    made("ServiceAccounts", cells.subjects("ServiceAccount"), wide=True),
)


def _event(
    *, regarding: str, note: str, source: str, controller: str, first: str, last: str, count: str
) -> tuple[Column, ...]:
    """Both shapes of Event show the same columns; only the fields' names differ."""
    return (
        since("Last Seen", ("series", "lastObservedTime"), (last,), (first,), ("eventTime",)),
        text("Type", "type"),
        text("Reason", "reason"),
        made("Object", cells.event_object(regarding)),
        text("Subobject", regarding, "fieldPath", wide=True),
        made("Source", cells.event_source(source, controller), wide=True),
        made("Message", lambda obj: str(at(obj, note) or "").strip()),
        since("First Seen", (first,), ("eventTime",), wide=True),
        made("Count", lambda obj: at(obj, "series", "count") or at(obj, count) or 1, type="integer", wide=True),
        Column("Name", NAME.cell, format="name", priority=1),
    )


BUILTIN_COLUMNS: Final[Mapping[GroupVersionKind, tuple[Column, ...]]] = {
    gvk("v1", "ConfigMap"): (NAME, made("Data", cells.counted("data", "binaryData"), type="integer"), AGE),
    gvk("v1", "Endpoints"): (NAME, made("Endpoints", cells.endpoints), AGE),
    gvk("v1", "Event"): _event(
        regarding="involvedObject",
        note="message",
        source="source",
        controller="reportingComponent",
        first="firstTimestamp",
        last="lastTimestamp",
        count="count",
    ),
    gvk("v1", "LimitRange"): (NAME, CREATED_AT),
    gvk("v1", "Namespace"): (NAME, text("Status", "status", "phase"), AGE),
    gvk("v1", "PersistentVolumeClaim"): (
        NAME,
        made("Status", cells.claim_status),
        text("Volume", "spec", "volumeName"),
        text("Capacity", "status", "capacity", "storage"),
        made("Access Modes", cells.access_modes),
        text("StorageClass", "spec", "storageClassName"),
        text("VolumeAttributesClass", "spec", "volumeAttributesClassName", absent=UNSET),
        AGE,
        text("VolumeMode", "spec", "volumeMode", absent=UNSET, wide=True),
    ),
    gvk("v1", "Pod"): (
        NAME,
        made("Ready", cells.pod_ready),
        made("Status", cells.pod_status),
        made("Restarts", cells.pod_restarts),
        AGE,
        text("IP", "status", "podIP", absent=NONE, wide=True),
        text("Node", "spec", "nodeName", absent=NONE, wide=True),
        text("Nominated Node", "status", "nominatedNodeName", absent=NONE, wide=True),
        made("Readiness Gates", cells.readiness_gates, wide=True),
    ),
    gvk("v1", "PodTemplate"): (
        NAME,
        made("Containers", cells.containers("name")),
        made("Images", cells.containers("image")),
        made("Pod Labels", lambda obj: cells.labels(at(obj, "template", "metadata", "labels"))),
    ),
    gvk("v1", "ResourceQuota"): (
        NAME,
        made("Request", cells.quota(limits=False)),
        made("Limit", cells.quota(limits=True)),
        AGE,
    ),
    gvk("v1", "Secret"): (NAME, text("Type", "type"), made("Data", cells.counted("data"), type="integer"), AGE),
    gvk("v1", "Service"): (
        NAME,
        text("Type", "spec", "type"),
        text("Cluster-IP", "spec", "clusterIP", absent=NONE),
        made("External-IP", cells.external_ip),
        made("Port(s)", cells.service_ports),
        AGE,
        made("Selector", lambda obj: cells.labels(at(obj, "spec", "selector")), wide=True),
    ),
    gvk("v1", "ServiceAccount"): (NAME, AGE),
    gvk("admissionregistration.k8s.io/v1", "MutatingWebhookConfiguration"): _WEBHOOKS,
    gvk("admissionregistration.k8s.io/v1", "ValidatingWebhookConfiguration"): _WEBHOOKS,
    gvk("admissionregistration.k8s.io/v1", "ValidatingAdmissionPolicy"): (
        NAME,
        made("Validations", lambda obj: len(at(obj, "spec", "validations") or ()), type="integer"),
        made("ParamKind", cells.param_kind),
        AGE,
    ),
    gvk("admissionregistration.k8s.io/v1", "ValidatingAdmissionPolicyBinding"): (
        NAME,
        text("PolicyName", "spec", "policyName"),
        made("ParamRef", cells.param_ref),
        AGE,
    ),
    gvk("apiextensions.k8s.io/v1", "CustomResourceDefinition"): (
        NAME,
        text("Scope", "spec", "scope"),
        made("Versions", cells.served_versions),
        CREATED_AT,
        text("Group", "spec", "group", wide=True),
        text("Kind", "spec", "names", "kind", wide=True),
        made("ShortNames", lambda obj: cells.joined(at(obj, "spec", "names", "shortNames") or ()), wide=True),
        made("Established", cells.established, type="boolean", wide=True),
    ),
    gvk("apps/v1", "DaemonSet"): (
        NAME,
        number("Desired", "status", "desiredNumberScheduled"),
        number("Current", "status", "currentNumberScheduled"),
        number("Ready", "status", "numberReady"),
        number("Up-to-date", "status", "updatedNumberScheduled"),
        number("Available", "status", "numberAvailable"),
        made("Node Selector", lambda obj: cells.labels(at(cells.pod_spec(obj), "nodeSelector"))),
        *_WORKLOAD,
    ),
    gvk("apps/v1", "Deployment"): (
        NAME,
        made("Ready", cells.ready_of_wanted),
        number("Up-to-date", "status", "updatedReplicas"),
        number("Available", "status", "availableReplicas"),
        *_WORKLOAD,
    ),
    gvk("apps/v1", "ReplicaSet"): (
        NAME,
        number("Desired", "spec", "replicas"),
        number("Current", "status", "replicas"),
        number("Ready", "status", "readyReplicas"),
        *_WORKLOAD,
    ),
    gvk("apps/v1", "StatefulSet"): (NAME, made("Ready", cells.ready_of_wanted), AGE, _CONTAINERS, _IMAGES),
    gvk("autoscaling/v2", "HorizontalPodAutoscaler"): (
        NAME,
        made("Reference", cells.scale_target),
        made("Targets", cells.scale_metrics),
        made("MinPods", cells.spelled(UNSET, "spec", "minReplicas")),
        number("MaxPods", "spec", "maxReplicas"),
        number("Replicas", "status", "currentReplicas"),
        AGE,
    ),
    gvk("batch/v1", "CronJob"): (
        NAME,
        text("Schedule", "spec", "schedule"),
        text("Timezone", "spec", "timeZone", absent=NONE),
        made("Suspend", cells.suspended),
        made("Active", lambda obj: len(at(obj, "status", "active") or ()), type="integer"),
        since("Last Schedule", ("status", "lastScheduleTime"), absent=NONE),
        AGE,
        _CONTAINERS,
        _IMAGES,
        made(
            "Selector", lambda obj: cells.label_selector(at(obj, "spec", "jobTemplate", "spec", "selector")), wide=True
        ),
    ),
    gvk("batch/v1", "Job"): (
        NAME,
        made("Status", cells.job_status),
        made("Completions", cells.job_completions),
        Column("Duration", cells.job_duration),
        *_WORKLOAD,
    ),
    gvk("coordination.k8s.io/v1", "Lease"): (NAME, text("Holder", "spec", "holderIdentity"), AGE),
    gvk("events.k8s.io/v1", "Event"): _event(
        regarding="regarding",
        note="note",
        source="deprecatedSource",
        controller="reportingController",
        first="deprecatedFirstTimestamp",
        last="deprecatedLastTimestamp",
        count="deprecatedCount",
    ),
    gvk("networking.k8s.io/v1", "Ingress"): (
        NAME,
        text("Class", "spec", "ingressClassName", absent=NONE),
        made("Hosts", cells.ingress_hosts),
        made("Address", cells.ingress_address),
        made("Ports", cells.ingress_ports),
        AGE,
    ),
    gvk("networking.k8s.io/v1", "NetworkPolicy"): (
        NAME,
        made("Pod-Selector", lambda obj: cells.label_selector(at(obj, "spec", "podSelector"))),
        AGE,
    ),
    gvk("policy/v1", "PodDisruptionBudget"): (
        NAME,
        made("Min Available", cells.spelled("N/A", "spec", "minAvailable")),
        made("Max Unavailable", cells.spelled("N/A", "spec", "maxUnavailable")),
        number("Allowed Disruptions", "status", "disruptionsAllowed"),
        AGE,
    ),
    gvk("rbac.authorization.k8s.io/v1", "ClusterRole"): (NAME, CREATED_AT),
    gvk("rbac.authorization.k8s.io/v1", "ClusterRoleBinding"): _BINDING,
    gvk("rbac.authorization.k8s.io/v1", "Role"): (NAME, CREATED_AT),
    gvk("rbac.authorization.k8s.io/v1", "RoleBinding"): _BINDING,
}
"""A kind that is not here shows its name and age."""
