"""What a fresh control plane holds: its namespaces, the default roles, and who is bound to them.

`admin`, `edit` and `view` gather the rules of every ClusterRole that carries their aggregation label, so that a new
API joins them by bringing a labelled role. A default role that lost a rule, or a later release's role that gained
one, is brought up to date at start, unless its owner annotated it with autoupdate "false".
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import Any, Final

from planform.api.kinds import Object, gvk_of
from planform.api.names import SYSTEM_NAMESPACE
from planform.apiserver.auth.rbac import GROUP
from planform.apiserver.verbs.requests import AUTHENTICATED, MASTERS, UNAUTHENTICATED
from planform.client.protocol import Client
from planform.errors import AlreadyExists, Conflict

NAMESPACES: Final = ("default", "kube-system", "kube-public", "kube-node-lease", SYSTEM_NAMESPACE)
AUTOUPDATE: Final = "rbac.authorization.kubernetes.io/autoupdate"
_BOOTSTRAPPING = {"kubernetes.io/bootstrapping": "rbac-defaults"}
_AGGREGATE = "rbac.authorization.k8s.io/aggregate-to-"
_READ = ("get", "list", "watch")
_WRITE = ("create", "delete", "deletecollection", "patch", "update")
_WORKLOADS: Mapping[str, tuple[str, ...]] = {
    "": (
        "configmaps",
        "endpoints",
        "persistentvolumeclaims",
        "pods",
        "podtemplates",
        "serviceaccounts",
        "services",
    ),
    "apps": (
        "daemonsets",
        "deployments",
        "deployments/scale",
        "replicasets",
        "replicasets/scale",
        "statefulsets",
        "statefulsets/scale",
    ),
    "autoscaling": ("horizontalpodautoscalers",),
    "batch": ("cronjobs", "jobs"),
    "networking.k8s.io": ("ingresses", "networkpolicies"),
    "policy": ("poddisruptionbudgets",),
}
"""What people who run applications may write."""
_READ_ONLY: Mapping[str, tuple[str, ...]] = {
    "": ("events", "limitranges", "namespaces", "namespaces/status", "resourcequotas", "resourcequotas/status"),
    "events.k8s.io": ("events",),
}
_HEALTH = ("/healthz", "/livez", "/readyz", "/version", "/version/")
_DISCOVERY = ("/api", "/api/*", "/apis", "/apis/*", "/openapi", "/openapi/*", *_HEALTH)


def bootstrap_objects() -> list[Object]:
    """Everything, in an order in which it can be created."""
    return [*(_namespace(name) for name in NAMESPACES), *_roles(), *_bindings()]


async def ensure_bootstrap(client: Client) -> int:
    """Create what is missing and restore what default roles lost; returns how many writes that took, 0 at rest."""
    wanted = bootstrap_objects()
    found: dict[tuple[str, str], Object] = {}
    for gvk in dict.fromkeys(gvk_of(obj) for obj in wanted):
        for obj in (await client.list(gvk)).items:
            found[gvk.kind, obj["metadata"]["name"]] = obj
    writing = []
    for obj in wanted:
        present = found.get((obj["kind"], obj["metadata"]["name"]))
        if present is None:
            writing.append(client.create(obj))
        elif (restored := _restored(present, obj)) is not None:
            writing.append(client.update(restored))
    # All at once: the embedded engine then commits them together.
    for outcome in await asyncio.gather(*writing, return_exceptions=True):
        # Whoever wrote at the same moment keeps what they wrote; the next start looks again.
        if isinstance(outcome, BaseException) and not isinstance(outcome, AlreadyExists | Conflict):
            raise outcome
    return len(writing)


def _restored(present: Object, wanted: Object) -> Object | None:
    """A role or binding with what it lacks added; None if it lacks nothing or is not to be touched."""
    if (present["metadata"].get("annotations") or {}).get(AUTOUPDATE) != "true":
        return None
    changes: Object = {}
    for field in ("rules", "subjects"):
        have = present.get(field) or []
        missing = [entry for entry in wanted.get(field) or () if entry not in have]
        if missing and not present.get("aggregationRule"):
            changes[field] = [*have, *missing]
    labels = {**(present["metadata"].get("labels") or {}), **wanted["metadata"].get("labels", {})}
    if labels != (present["metadata"].get("labels") or {}):
        changes["metadata"] = {**present["metadata"], "labels": labels}
    if wanted.get("aggregationRule") and not present.get("aggregationRule"):
        changes["aggregationRule"] = wanted["aggregationRule"]
    return {**present, **changes} if changes else None


def _namespace(name: str) -> Object:
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}


def _roles() -> list[Object]:
    everything = [_rule(("*",), ("*",), ("*",)), _paths(("*",), ("*",))]
    read = [*_rules(_WORKLOADS, _READ), *_rules(_READ_ONLY, _READ)]
    edit = [
        *_rules(_WORKLOADS, _WRITE),
        _rule(("",), ("secrets",), (*_READ, *_WRITE)),
        _rule(("",), ("serviceaccounts",), ("impersonate",)),
        _rule(("",), ("serviceaccounts/token",), ("create",)),
        _rule(("",), ("events",), ("create", "patch", "update")),
        _rule(("events.k8s.io",), ("events",), ("create", "patch", "update")),
        _rule(("coordination.k8s.io",), ("leases",), (*_READ, *_WRITE)),
    ]
    administer = [
        _rule((GROUP,), ("rolebindings", "roles"), (*_READ, *_WRITE)),
        _rule(("authorization.k8s.io",), ("localsubjectaccessreviews",), ("create",)),
    ]
    reviews = [
        _rule(("authorization.k8s.io",), ("selfsubjectaccessreviews", "selfsubjectrulesreviews"), ("create",)),
        _rule(("authentication.k8s.io",), ("selfsubjectreviews",), ("create",)),
    ]
    return [
        _role("cluster-admin", everything),
        _gathering("admin"),
        _gathering("edit", "admin"),
        _gathering("view", "edit"),
        _role("system:aggregate-to-admin", administer, "admin"),
        _role("system:aggregate-to-edit", edit, "edit"),
        _role("system:aggregate-to-view", read, "view"),
        _role("system:basic-user", reviews),
        _role("system:discovery", [_paths(_DISCOVERY, ("get",))]),
        _role("system:public-info-viewer", [_paths(_HEALTH, ("get",))]),
        _role("system:monitoring", [_paths((*_HEALTH, "/healthz/*", "/livez/*", "/metrics", "/readyz/*"), ("get",))]),
    ]


def _bindings() -> list[Object]:
    return [
        _binding("cluster-admin", MASTERS),
        _binding("system:basic-user", AUTHENTICATED),
        _binding("system:discovery", AUTHENTICATED),
        _binding("system:public-info-viewer", AUTHENTICATED, UNAUTHENTICATED),
        _binding("system:monitoring", "system:monitoring"),
    ]


def _role(name: str, rules: list[Object], *gathered_by: str) -> Object:
    labels = {_AGGREGATE + role: "true" for role in gathered_by}
    return {**_rbac("ClusterRole", name, labels), "rules": rules}


def _gathering(name: str, *gathered_by: str) -> Object:
    selector = {"matchLabels": {_AGGREGATE + name: "true"}}
    return {**_role(name, [], *gathered_by), "aggregationRule": {"clusterRoleSelectors": [selector]}}


def _binding(role: str, *groups: str) -> Object:
    return {
        **_rbac("ClusterRoleBinding", role, {}),
        "roleRef": {"apiGroup": GROUP, "kind": "ClusterRole", "name": role},
        "subjects": [{"apiGroup": GROUP, "kind": "Group", "name": group} for group in groups],
    }


def _rbac(kind: str, name: str, labels: Mapping[str, str]) -> Object:
    metadata = {"name": name, "labels": {**_BOOTSTRAPPING, **labels}, "annotations": {AUTOUPDATE: "true"}}
    return {"apiVersion": f"{GROUP}/v1", "kind": kind, "metadata": metadata}


def _rules(resources: Mapping[str, Iterable[str]], verbs: Iterable[str]) -> list[Object]:
    return [_rule((group,), plurals, verbs) for group, plurals in resources.items()]


def _rule(groups: Iterable[str], resources: Iterable[str], verbs: Iterable[str]) -> dict[str, Any]:
    return {"apiGroups": list(groups), "resources": list(resources), "verbs": sorted(verbs)}


def _paths(paths: Iterable[str], verbs: Iterable[str]) -> dict[str, Any]:
    return {"nonResourceURLs": list(paths), "verbs": list(verbs)}
