"""The built-in kinds that the embedded server serves, with their schemas and protobuf numbers as data.

The list of kinds is code, because everyone reads it. Schemas and field numbers are facts of Kubernetes, written by
`tools/builtin_kinds.py` into `data/kubernetes.json`; that file is read when the first schema is asked for, not when
this module is imported. `data/descriptions.json` holds our own words for the kinds and fields that people look up
with `kubectl explain`.

Schemas refer to each other by `$ref: "#/components/schemas/NAME"`; a field that has a reference and something else
says so as `allOf: [{$ref}]`. Two extensions are ours, so that generic schema code treats these types right:
`x-kubernetes-int-or-string` on IntOrString and `x-kubernetes-preserve-unknown-fields` on free-form JSON.
The mappings that come out of here are shared by all callers: read them, never write.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib import resources
from typing import Any, Final

import orjson

from planform.api.kinds import GroupVersionKind, Kind
from planform.apimachinery.kubeproto import MessageTable

Schema = Mapping[str, Any]

_REF_PREFIX: Final = "#/components/schemas/"
_META: Final = "io.k8s.apimachinery.pkg.apis.meta.v1."
_SPELLED_IN_FULL: Final = {
    "apiextensions.k8s.io": "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions",
}


def _core(kind: str, plural: str, **names: Any) -> Kind:
    return _kind("", "v1", kind, plural, **names)


def _kind(group: str, version: str, kind: str, plural: str, *, namespaced: bool = True, **names: Any) -> Kind:
    return Kind(group, version, kind, plural, namespaced, kind.lower(), f"{kind}List", **names)


def _review(group: str, kind: str, *, namespaced: bool = False) -> Kind:
    """A question put as a POST: answered at once, never stored."""
    return Kind(group, "v1", kind, f"{kind.lower()}s", namespaced, kind.lower(), verbs=("create",))


_ALL: Final = ("all",)
_STATUS: Final = ("status",)
_STATUS_SCALE: Final = ("scale", "status")
_RBAC: Final = "rbac.authorization.k8s.io"
_AUTHORIZATION: Final = "authorization.k8s.io"
_AUTHENTICATION: Final = "authentication.k8s.io"
_NETWORKING: Final = "networking.k8s.io"
_ADMISSION: Final = "admissionregistration.k8s.io"

BUILTIN_KINDS: Final[tuple[Kind, ...]] = (
    _core("ConfigMap", "configmaps", short_names=("cm",)),
    _core("Endpoints", "endpoints", short_names=("ep",)),
    _core("Event", "events", short_names=("ev",)),
    _core("LimitRange", "limitranges", short_names=("limits",)),
    _core(
        "Namespace",
        "namespaces",
        namespaced=False,
        short_names=("ns",),
        verbs=("create", "delete", "get", "list", "patch", "update", "watch"),
        subresources=("finalize", "status"),
    ),
    _core("PersistentVolumeClaim", "persistentvolumeclaims", short_names=("pvc",), subresources=_STATUS),
    _core("Pod", "pods", short_names=("po",), categories=_ALL, subresources=_STATUS),
    _core("PodTemplate", "podtemplates"),
    _core("ResourceQuota", "resourcequotas", short_names=("quota",), subresources=_STATUS),
    _core("Secret", "secrets"),
    _core("Service", "services", short_names=("svc",), categories=_ALL, subresources=_STATUS),
    _core("ServiceAccount", "serviceaccounts", short_names=("sa",), subresources=("token",)),
    _kind(
        _ADMISSION,
        "v1",
        "MutatingWebhookConfiguration",
        "mutatingwebhookconfigurations",
        namespaced=False,
        categories=("api-extensions",),
    ),
    _kind(
        _ADMISSION,
        "v1",
        "ValidatingAdmissionPolicy",
        "validatingadmissionpolicies",
        namespaced=False,
        categories=("api-extensions",),
        subresources=_STATUS,
    ),
    _kind(
        _ADMISSION,
        "v1",
        "ValidatingAdmissionPolicyBinding",
        "validatingadmissionpolicybindings",
        namespaced=False,
        categories=("api-extensions",),
    ),
    _kind(
        _ADMISSION,
        "v1",
        "ValidatingWebhookConfiguration",
        "validatingwebhookconfigurations",
        namespaced=False,
        categories=("api-extensions",),
    ),
    _kind(
        "apiextensions.k8s.io",
        "v1",
        "CustomResourceDefinition",
        "customresourcedefinitions",
        namespaced=False,
        short_names=("crd", "crds"),
        categories=("api-extensions",),
        subresources=_STATUS,
    ),
    _kind("apps", "v1", "DaemonSet", "daemonsets", short_names=("ds",), categories=_ALL, subresources=_STATUS),
    _kind(
        "apps", "v1", "Deployment", "deployments", short_names=("deploy",), categories=_ALL, subresources=_STATUS_SCALE
    ),
    _kind("apps", "v1", "ReplicaSet", "replicasets", short_names=("rs",), categories=_ALL, subresources=_STATUS_SCALE),
    _kind(
        "apps", "v1", "StatefulSet", "statefulsets", short_names=("sts",), categories=_ALL, subresources=_STATUS_SCALE
    ),
    _review(_AUTHENTICATION, "SelfSubjectReview"),
    _review(_AUTHENTICATION, "TokenReview"),
    _review(_AUTHORIZATION, "LocalSubjectAccessReview", namespaced=True),
    _review(_AUTHORIZATION, "SelfSubjectAccessReview"),
    _review(_AUTHORIZATION, "SelfSubjectRulesReview"),
    _review(_AUTHORIZATION, "SubjectAccessReview"),
    _kind(
        "autoscaling",
        "v2",
        "HorizontalPodAutoscaler",
        "horizontalpodautoscalers",
        short_names=("hpa",),
        categories=_ALL,
        subresources=_STATUS,
    ),
    _kind("batch", "v1", "CronJob", "cronjobs", short_names=("cj",), categories=_ALL, subresources=_STATUS),
    _kind("batch", "v1", "Job", "jobs", categories=_ALL, subresources=_STATUS),
    _kind("coordination.k8s.io", "v1", "Lease", "leases"),
    _kind("events.k8s.io", "v1", "Event", "events", short_names=("ev",)),
    _kind(_NETWORKING, "v1", "Ingress", "ingresses", short_names=("ing",), subresources=_STATUS),
    _kind(_NETWORKING, "v1", "NetworkPolicy", "networkpolicies", short_names=("netpol",)),
    _kind("policy", "v1", "PodDisruptionBudget", "poddisruptionbudgets", short_names=("pdb",), subresources=_STATUS),
    _kind(_RBAC, "v1", "ClusterRole", "clusterroles", namespaced=False),
    _kind(_RBAC, "v1", "ClusterRoleBinding", "clusterrolebindings", namespaced=False),
    _kind(_RBAC, "v1", "Role", "roles"),
    _kind(_RBAC, "v1", "RoleBinding", "rolebindings"),
)

SCALE: Final = GroupVersionKind("autoscaling", "v1", "Scale")
TOKEN_REQUEST: Final = GroupVersionKind(_AUTHENTICATION, "v1", "TokenRequest")
OTHER_TYPES: Final[tuple[GroupVersionKind, ...]] = (
    SCALE,
    TOKEN_REQUEST,
    *(GroupVersionKind("meta.k8s.io", "v1", kind) for kind in ("DeleteOptions", "ListMeta", "ObjectMeta", "Status")),
)
"""Types with a schema that are not resources of their own: subresources' bodies, options, metadata, answers."""


def schema_name(gvk: GroupVersionKind) -> str:
    """The component name of a built-in type, as `io.k8s.api.apps.v1.Deployment`; says nothing about existence."""
    if gvk.group == "meta.k8s.io":
        return _META + gvk.kind
    package = _SPELLED_IN_FULL.get(gvk.group) or f"io.k8s.api.{gvk.group.partition('.')[0] or 'core'}"
    return f"{package}.{gvk.version}.{gvk.kind}"


def schema_of(gvk: GroupVersionKind) -> Schema:
    """The schema of a built-in type; raises KeyError for any other."""
    return resolve(schema_name(gvk))


def resolve(ref: str) -> Schema:
    """The schema a `$ref` (or a bare component name) means; raises KeyError if there is none."""
    schema: Schema = _facts()["schemas"][ref.removeprefix(_REF_PREFIX)]
    return schema


def descriptions_of(name: str) -> Mapping[str, str]:
    """Our words for a component: its own under the empty key, its fields' under theirs; empty if there are none."""
    return _descriptions().get(name, {})


@cache
def protobuf_table() -> MessageTable:
    """The protobuf messages of the built-in types, for `kubeproto.decode`."""
    roots = {(kind.api_version, kind.kind): schema_name(kind.gvk) for kind in BUILTIN_KINDS}
    roots |= {(gvk.api_version, gvk.kind): schema_name(gvk) for gvk in (SCALE, TOKEN_REQUEST)}
    # Clients label options with the version of the resource they act on, so any apiVersion will do.
    roots["*", "DeleteOptions"] = _META + "DeleteOptions"
    return MessageTable(_facts()["messages"], roots)


def kubernetes_version() -> str:
    """The Kubernetes release whose facts these are, as `v1.37.1`."""
    return str(_facts()["kubernetes"])


@cache
def _facts() -> dict[str, Any]:
    return _read("kubernetes.json")


@cache
def _descriptions() -> dict[str, dict[str, str]]:
    return _read("descriptions.json")


def _read(name: str) -> dict[str, Any]:
    data: dict[str, Any] = orjson.loads(resources.files("planform.api").joinpath("data", name).read_bytes())
    return data
