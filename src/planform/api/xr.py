"""What an XR looks like: where its composition fields are, and which they are.

Modern XRs keep composition fields under `spec.crossplane`, legacy ones (scope LegacyCluster) directly under `spec`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal

from planform.api.metadata import label, name_of, namespace_of

Style = Literal["modern", "legacy"]

COMPOSITE_LABEL: Final = "crossplane.io/composite"
CLAIM_NAME_LABEL: Final = "crossplane.io/claim-name"
CLAIM_NAMESPACE_LABEL: Final = "crossplane.io/claim-namespace"
RESOURCE_NAME_ANNOTATION: Final = "crossplane.io/composition-resource-name"
SELECTION_FIELDS: Final = (
    "compositionRef",
    "compositionSelector",
    "compositionRevisionRef",
    "compositionRevisionSelector",
    "compositionUpdatePolicy",
)
"""By what an XR or a claim says which Composition, and which revision of it, it runs."""
MODERN_FIELDS: Final = (*SELECTION_FIELDS, "resourceRefs")
"""Under `spec.crossplane`."""
LEGACY_FIELDS: Final = (*MODERN_FIELDS, "claimRef", "writeConnectionSecretToRef")
"""Directly under `spec`."""
CLAIM_FIELDS: Final = (*SELECTION_FIELDS, "compositeDeletePolicy", "resourceRef", "writeConnectionSecretToRef")
"""Of a claim, directly under `spec`."""
STATUS_FIELDS: Final = (
    "watchedResourceRefs",
    "lastHandledReconcileAt",
    "planform",
    "connectionDetails",
    "claimConditionTypes",
)
"""What the control plane writes in an XR's status, beside the conditions, which functions may add to."""


def style_of(xr: Mapping[str, Any]) -> Style:
    """How an XR is shaped when no XRD says so: legacy if its spec shows composition fields and it has no namespace."""
    spec = xr.get("spec") or {}
    if namespace_of(xr) or "crossplane" in spec:
        return "modern"
    return "legacy" if set(LEGACY_FIELDS) & spec.keys() else "modern"


def composition_fields(xr: Mapping[str, Any], style: Style) -> Mapping[str, Any]:
    """The fields that belong to the control plane and not to the user's API."""
    spec = xr.get("spec") or {}
    found: Mapping[str, Any] = (spec.get("crossplane") or {}) if style == "modern" else spec
    return found


def name_prefix(xr: Mapping[str, Any]) -> str:
    """What composed resources are named after: the label if there is one, else the XR's own name."""
    return label(xr, COMPOSITE_LABEL) or name_of(xr)


def listed(names: Sequence[str], *, maximum: int = 3) -> str:
    """`a, b, c, and N more`, in order."""
    ordered = sorted(names)
    shown = ", ".join(ordered[:maximum])
    return shown if len(ordered) <= maximum else f"{shown}, and {len(ordered) - maximum} more"
