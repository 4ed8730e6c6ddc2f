"""What an archive holds, and what of an object can be carried elsewhere. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal, NamedTuple

from planform.api.kinds import Object, gvk_of
from planform.api.metadata import is_deleted, labels_of, name_of, namespace_of
from planform.packages.runtimes.deployments import REVISION_LABEL

Engine = Literal["embedded", "kubernetes"]


class Identity(NamedTuple):
    """Which object it is, whatever version it is read in."""

    group: str
    kind: str
    namespace: str
    name: str

    def __str__(self) -> str:
        place = f"{self.namespace}/" if self.namespace else ""
        return f"{self.kind}{f'.{self.group}' if self.group else ''} {place}{self.name}"


@dataclass(frozen=True, slots=True)
class LeftOut:
    """An object that stays behind, and why."""

    identity: Identity
    why: str


@dataclass(frozen=True)
class Contents:
    """A control plane at rest. Objects carry the uid and generation that they had, and nothing of when they were."""

    engine: Engine
    objects: tuple[Object, ...]
    left_out: tuple[LeftOut, ...] = field(default=())


def identity_of(obj: Mapping[str, Any]) -> Identity:
    kind = gvk_of(obj)
    return Identity(kind.group, kind.kind, namespace_of(obj), name_of(obj))


_EPHEMERAL: Final = frozenset(
    {
        ("", "Event"),
        ("events.k8s.io", "Event"),
        ("coordination.k8s.io", "Lease"),
        ("", "Endpoints"),
        ("discovery.k8s.io", "EndpointSlice"),
        ("", "Node"),
        ("", "Pod"),
        ("", "Binding"),
        ("apps", "ReplicaSet"),
        ("apps", "ControllerRevision"),
        ("apiregistration.k8s.io", "APIService"),
        ("flowcontrol.apiserver.k8s.io", "FlowSchema"),
        ("flowcontrol.apiserver.k8s.io", "PriorityLevelConfiguration"),
    }
)
"""Kinds that an engine, or a machine of it, makes for itself."""

RANDOM_KEY_CONFIG: Final = "planform-random-key"
"""Which random key is a control plane's own stays with it; the keys themselves go with the XRs."""
_BOOTSTRAP_NAMESPACES: Final = frozenset({"default", "kube-system", "kube-public", "kube-node-lease"})
_TOKEN_TYPES: Final = frozenset({"kubernetes.io/service-account-token", "bootstrap.kubernetes.io/token"})


def is_ephemeral(group: str, kind: str) -> bool:
    """Whether objects of a kind mean nothing elsewhere."""
    return (group, kind) in _EPHEMERAL


def is_furniture(obj: Mapping[str, Any]) -> bool:
    """Whether every engine has such an object of its own: it needs no mention."""
    group, kind, _, name = identity_of(obj)
    labels: Mapping[str, str] = labels_of(obj)
    if group == "rbac.authorization.k8s.io":
        return "kubernetes.io/bootstrapping" in labels or name.startswith("system:")
    if group == "admissionregistration.k8s.io":
        return name.endswith(".planform.dev")
    if (group, kind) == ("apps", "Deployment") and REVISION_LABEL in labels:
        return True  # of a package, which an engine runs, or shows that it runs, in its own way
    return (kind == "Namespace" and name in _BOOTSTRAP_NAMESPACES) or (group, kind, name) in {
        ("", "ServiceAccount", "default"),
        ("", "ConfigMap", "kube-root-ca.crt"),
        ("", "ConfigMap", RANDOM_KEY_CONFIG),
        ("", "Service", "kubernetes"),
    }


def why_left_out(obj: Mapping[str, Any]) -> str:
    """Why an object cannot be carried elsewhere; empty if it can."""
    if is_deleted(obj):
        return "it is being deleted"
    if obj["kind"] == "Secret" and obj.get("type") in _TOKEN_TYPES:
        return "it holds a token of this engine"
    if obj["kind"] == "Secret" and str(obj.get("type") or "").startswith("helm.sh/"):
        return "it is Helm's memory of a release in this cluster"
    return ""


_KEPT: Final = (
    "name",
    "generateName",
    "namespace",
    "labels",
    "annotations",
    "finalizers",
    "ownerReferences",
    "uid",
    "generation",
    "managedFields",
)
_ASSIGNED: Final[Mapping[tuple[str, str], tuple[str, ...]]] = {
    ("", "Service"): ("clusterIP", "clusterIPs", "healthCheckNodePort"),
    ("", "PersistentVolumeClaim"): ("volumeName",),
    ("", "Namespace"): ("finalizers",),
}
"""Fields of a spec that a cluster fills in from what only it has."""


def portable(obj: Mapping[str, Any]) -> Object:
    """The object without what an engine knows of it alone."""
    kind = gvk_of(obj)
    metadata = {name: obj["metadata"][name] for name in _KEPT if obj["metadata"].get(name)}
    carried: Object = {"apiVersion": obj["apiVersion"], "kind": obj["kind"], "metadata": metadata}
    for name, value in obj.items():
        if name not in carried:
            carried[name] = value
    if (assigned := _ASSIGNED.get((kind.group, kind.kind))) and isinstance(carried.get("spec"), Mapping):
        carried["spec"] = {name: value for name, value in carried["spec"].items() if name not in assigned}
    if not has_kept_status(kind.group, kind.kind):
        carried.pop("status", None)
    return carried


def has_kept_status(group: str, kind: str) -> bool:
    """Whether the status of a kind is what controllers of the control plane said, and not the engine itself."""
    builtin = "." not in group or group.endswith(".k8s.io")
    return not builtin
