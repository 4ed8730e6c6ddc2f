"""Who may do what with the kinds of an XRD: four ClusterRoles that others gather by label. Pure.

Kubernetes' own admin, edit and view gather them too, so that whoever may edit a namespace may edit the XRs and claims
in it without a rule of their own. Claims are left out of browse, which is for looking at what a platform composes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from planform.api.kinds import Object
from planform.api.metadata import name_of
from planform.api.owners import controller_reference

_READ: Final = ("get", "list", "watch")
_EVERYTHING: Final = ("*",)
_OURS: Final = "rbac.crossplane.io/aggregate-to-"
_KUBERNETES: Final = "rbac.authorization.k8s.io/aggregate-to-"


def definition_roles(xrd: Mapping[str, Any]) -> Iterator[Object]:
    """The roles `crossplane:composite:<xrd>:aggregate-to-{crossplane,edit,view,browse}`, owned by the XRD."""
    spec = xrd["spec"]
    composites = str(spec["names"]["plural"])
    plurals = [composites, str(spec["claimNames"]["plural"])] if spec.get("claimNames") else [composites]

    def rule(resources: Sequence[str], verbs: Sequence[str]) -> Object:
        return {"apiGroups": [spec["group"]], "resources": list(resources), "verbs": list(verbs)}

    with_status = [f"{plural}{part}" for plural in plurals for part in ("", "/status")]
    finalizers = [f"{plural}/finalizers" for plural in plurals]
    crossplane = [rule(with_status, _EVERYTHING), rule(finalizers, ("update",))]
    yield _role(xrd, "crossplane", crossplane, [f"{_OURS}crossplane"])
    yield _role(xrd, "edit", [rule(plurals, _EVERYTHING)], _gathered_by("admin", "edit"))
    yield _role(xrd, "view", [rule(plurals, _READ)], _gathered_by("view"))
    yield _role(xrd, "browse", [rule([composites], _READ)], [f"{_OURS}browse"])


def _gathered_by(*roles: str) -> list[str]:
    labels = [f"{prefix}{role}" for role in roles for prefix in (_OURS, f"{_OURS}ns-", _KUBERNETES)]
    return sorted(labels)


def _role(xrd: Mapping[str, Any], purpose: str, rules: Sequence[Object], gathered_by: Sequence[str]) -> Object:
    name = name_of(xrd)
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": {
            "name": f"crossplane:composite:{name}:aggregate-to-{purpose}",
            "labels": dict.fromkeys(gathered_by, "true"),
            "ownerReferences": [controller_reference(xrd)],
        },
        "rules": list(rules),
    }
