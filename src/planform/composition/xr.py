"""What an XR looks like: where its machinery fields live, and its conditions.

Modern XRs keep machinery under `spec.crossplane`, legacy ones (scope LegacyCluster) directly under `spec`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal

import msgspec

Object = dict[str, Any]
Style = Literal["modern", "legacy"]

COMPOSITE_LABEL: Final = "crossplane.io/composite"
CLAIM_NAME_LABEL: Final = "crossplane.io/claim-name"
CLAIM_NAMESPACE_LABEL: Final = "crossplane.io/claim-namespace"
RESOURCE_NAME_ANNOTATION: Final = "crossplane.io/composition-resource-name"
SYSTEM_CONDITIONS: Final = frozenset({"Ready", "Synced", "Healthy", "UpToDate", "Responsive"})
_LEGACY_FIELDS: Final = frozenset(
    {
        "claimRef",
        "compositionRef",
        "compositionSelector",
        "compositionRevisionRef",
        "compositionRevisionSelector",
        "compositionUpdatePolicy",
        "resourceRefs",
        "writeConnectionSecretToRef",
    }
)


def style_of(xr: Mapping[str, Any]) -> Style:
    """How an XR is shaped when no XRD says so: legacy if its spec shows machinery fields and it has no namespace."""
    spec = xr.get("spec") or {}
    if xr["metadata"].get("namespace") or "crossplane" in spec:
        return "modern"
    return "legacy" if _LEGACY_FIELDS & spec.keys() else "modern"


def machinery(xr: Mapping[str, Any], style: Style) -> Mapping[str, Any]:
    """The fields that belong to the control plane and not to the user's API."""
    spec = xr.get("spec") or {}
    found: Mapping[str, Any] = (spec.get("crossplane") or {}) if style == "modern" else spec
    return found


def name_prefix(xr: Mapping[str, Any]) -> str:
    """What composed resources are named after: the label if there is one, else the XR's own name."""
    labels = xr["metadata"].get("labels") or {}
    return str(labels.get(COMPOSITE_LABEL) or xr["metadata"]["name"])


class XrCondition(msgspec.Struct, frozen=True):
    """A condition to set; its transition time moves only when something else about it does."""

    type: str
    status: Literal["True", "False", "Unknown"]
    reason: str
    message: str = ""


def set_conditions(
    existing: Sequence[Mapping[str, Any]], wanted: Sequence[XrCondition], *, now: str, generation: int | None
) -> list[Object]:
    """The conditions with these set, in order of first appearance; an unchanged one keeps its time."""
    conditions: dict[str, Object] = {str(found["type"]): dict(found) for found in existing}
    for condition in wanted:
        fresh: Object = {
            "type": condition.type,
            "status": condition.status,
            "reason": condition.reason,
            "lastTransitionTime": now,
        }
        if condition.message:
            fresh["message"] = condition.message
        if generation is not None:
            fresh["observedGeneration"] = generation
        before = conditions.get(condition.type)
        if before is not None and _said(before) == _said(fresh):
            fresh["lastTransitionTime"] = before.get("lastTransitionTime", now)
        conditions[condition.type] = fresh
    return list(conditions.values())


def _said(condition: Mapping[str, Any]) -> tuple[Any, ...]:
    return condition.get("status"), condition.get("reason"), condition.get("message")


def listed(names: Sequence[str], *, most: int = 3) -> str:
    """`a, b, c, and N more`, in order."""
    ordered = sorted(names)
    shown = ", ".join(ordered[:most])
    return shown if len(ordered) <= most else f"{shown}, and {len(ordered) - most} more"
