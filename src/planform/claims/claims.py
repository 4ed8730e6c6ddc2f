"""What a claim and its XR mean for each other. Pure: the controller reads and writes, this module says what.

A claim is a namespaced face of a cluster-scoped legacy XR. What its user says goes to the XR by server-side apply, so
that what the user stops saying goes away there too; what the control plane decided comes back. The claim points at its
XR before that XR exists, and the XR's name follows from the claim's uid: naming it again after a crash names the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from planform.api.annotations import annotations_of
from planform.api.conditions import (
    SYSTEM_CONDITIONS,
    XrCondition,
    condition_message,
    condition_reason,
    condition_status,
    set_conditions,
)
from planform.api.kinds import GroupVersionKind, Object, gvk_of
from planform.api.metadata import finalizers_of, managed_fields_of, name_of, namespace_of, uid_of
from planform.api.names import CLAIM_FINALIZER, CLAIM_MANAGER, EXTERNAL_NAME_ANNOTATION
from planform.api.xr import (
    CLAIM_FIELDS,
    CLAIM_NAME_LABEL,
    CLAIM_NAMESPACE_LABEL,
    LEGACY_FIELDS,
    SELECTION_FIELDS,
    STATUS_FIELDS,
)
from planform.apimachinery.names import child_name
from planform.definitions.crds import InvalidDefinition
from planform.errors import PlanformError

UpdatePolicy = Literal["Automatic", "Manual"]

_NOT_SHARED: Final = frozenset({*CLAIM_FIELDS, *LEGACY_FIELDS}) - set(SELECTION_FIELDS)
"""What is a claim's alone, or an XR's alone, though the other may have a field of that name."""
_XR_STATUS: Final = frozenset({*STATUS_FIELDS, "conditions"}) - {"lastHandledReconcileAt"}
"""What the claim does not copy from its XR's status as it stands there."""
_RESERVED_DOMAINS: Final = ("kubernetes.io", "k8s.io")


class XrTaken(PlanformError):
    """The XR that a claim names, or would make, is not its own. Only a change of one of them helps."""

    reason = "XrTaken"


@dataclass(frozen=True, slots=True)
class Offer:
    """What an XRD offers to namespaces: the two kinds, and what it decides for their users."""

    claim: GroupVersionKind
    composite: GroupVersionKind
    enforces_composition: bool
    default_policy: UpdatePolicy
    enforced_policy: UpdatePolicy | None


def offer_of(xrd: Mapping[str, Any]) -> Offer:
    """The offer of an XRD with claim names, in its referenceable version; raises InvalidDefinition without either."""
    spec, name = xrd["spec"], name_of(xrd)
    if not spec.get("claimNames"):
        raise InvalidDefinition(f'XRD "{name}": spec.claimNames: it offers no claims')
    version = next((str(each["name"]) for each in spec["versions"] if each.get("referenceable")), None)
    if version is None:
        raise InvalidDefinition(f'XRD "{name}": spec.versions: none is referenceable')
    return Offer(
        claim=GroupVersionKind(spec["group"], version, spec["claimNames"]["kind"]),
        composite=GroupVersionKind(spec["group"], version, spec["names"]["kind"]),
        enforces_composition=bool(spec.get("enforcedCompositionRef")),
        default_policy=spec.get("defaultCompositionUpdatePolicy") or "Automatic",
        enforced_policy=spec.get("enforceCompositionUpdatePolicy") or None,
    )


# -- who belongs to whom


def xr_name(claim: Mapping[str, Any]) -> str:
    """The XR that the claim names, else the one it will make: always the same one, whatever happens in between."""
    reference = claim["spec"].get("resourceRef") or {}
    return str(reference.get("name") or child_name(name_of(claim), uid_of(claim)))


def is_bound_to(xr: Mapping[str, Any], claim: Mapping[str, Any]) -> bool:
    """Whether the XR says that it is this claim's. The version in which it says so does not matter."""
    found = (xr.get("spec") or {}).get("claimRef") or {}
    wanted = _claim_ref(claim)
    same_kind = gvk_of(found)._replace(version="") == gvk_of(wanted)._replace(version="")
    return same_kind and all(found.get(field) == wanted[field] for field in ("namespace", "name"))


def must_be_free(claim: Mapping[str, Any], xr: Mapping[str, Any] | None) -> None:
    """Raise XrTaken unless the claim may have this XR: it is bound to it, or to nobody and the claim names it."""
    if xr is None or is_bound_to(xr, claim):
        return
    shown = f'{xr["kind"]} "{name_of(xr)}"'
    other = (xr.get("spec") or {}).get("claimRef")
    if other:
        whose = f"{other.get('kind')} {other.get('namespace')}/{other.get('name')}"
        raise XrTaken(f"{shown} is bound to another claim: {whose}")
    if not (claim["spec"].get("resourceRef") or {}).get("name"):
        raise XrTaken(f"{shown} exists and was not made for this claim; to bind it, name it in spec.resourceRef")


def before_the_xr(claim: Mapping[str, Any], xr: Mapping[str, Any] | None, offer: Offer, name: str) -> Object | None:
    """What must be merged into the claim before its XR is applied; None if it is so already.

    It points at the XR, and a finalizer keeps it until the XR has been seen to.
    """
    body: Object = {}
    finalizers = finalizers_of(claim)
    if CLAIM_FINALIZER not in finalizers:
        body["metadata"] = {"finalizers": [*finalizers, CLAIM_FINALIZER]}
    spec: Object = {}
    reference = {"apiVersion": offer.composite.api_version, "kind": offer.composite.kind, "name": name}
    if claim["spec"].get("resourceRef") != reference:
        spec["resourceRef"] = reference
    if xr is not None and _is_unpinned(claim["spec"], xr["spec"], offer):
        spec["compositionRevisionRef"] = None
    if spec:
        body["spec"] = spec
    return body or None


def _is_unpinned(ours: Mapping[str, Any], theirs: Mapping[str, Any], offer: Offer) -> bool:
    """Whether the user asks for another choice of revision: a new selector beside the pin that the last one gave."""
    manual = all((offer.enforced_policy or spec.get("compositionUpdatePolicy")) == "Manual" for spec in (ours, theirs))
    selector, pin = ours.get("compositionRevisionSelector"), ours.get("compositionRevisionRef")
    moved = bool(selector) and selector != theirs.get("compositionRevisionSelector")
    return manual and moved and bool(pin) and pin == theirs.get("compositionRevisionRef")


# -- claim to XR


def xr_from_claim(claim: Mapping[str, Any], xr: Mapping[str, Any] | None, offer: Offer, name: str) -> Object:
    """All that the claim wants of its XR, to be applied as the claim's manager; `xr` is how it is now, if it is."""
    metadata: Object = {"name": name, "labels": _xr_labels(claim)}
    annotations = _unreserved(claim["metadata"].get("annotations"))
    external_name = _external_name(xr) if xr is not None else None
    if external_name:  # it names something that exists out there; the XR knows better
        annotations[EXTERNAL_NAME_ANNOTATION] = external_name
    if annotations:
        metadata["annotations"] = annotations
    kept_back = _NOT_SHARED
    if offer.enforces_composition:
        kept_back |= {"compositionRef"}
    if offer.enforced_policy:
        kept_back |= {"compositionUpdatePolicy"}
    if update_policy(claim, xr, offer) != "Manual":
        kept_back |= {"compositionRevisionRef"}
    spec = {field: value for field, value in claim["spec"].items() if field not in kept_back}
    return {
        "apiVersion": offer.composite.api_version,
        "kind": offer.composite.kind,
        "metadata": metadata,
        "spec": {**spec, "claimRef": _claim_ref(claim)},
    }


def update_policy(claim: Mapping[str, Any], xr: Mapping[str, Any] | None, offer: Offer) -> UpdatePolicy:
    """The policy that the XR has, or will have once the claim is applied."""
    said: UpdatePolicy | None = claim["spec"].get("compositionUpdatePolicy")
    has: UpdatePolicy | None = ((xr or {}).get("spec") or {}).get("compositionUpdatePolicy")
    return offer.enforced_policy or said or has or offer.default_policy


def ownership_for_claim(xr: Mapping[str, Any]) -> list[Object] | None:
    """The managed fields with which the claim's word counts again; None if it does already.

    An XR that was bound by other means than apply (an older control plane, a restored backup) has its fields owned by
    whoever wrote them, and what leaves the claim would stay. Those who wrote without applying give up their fields;
    the claim's manager gets an entry, so that this happens once.
    """
    entries = managed_fields_of(xr)
    if any(entry.get("manager") == CLAIM_MANAGER and entry.get("operation") == "Apply" for entry in entries):
        return None
    kept = [dict(entry) for entry in entries if entry.get("operation") == "Apply" or entry.get("subresource")]
    claims: Object = {
        "manager": CLAIM_MANAGER,
        "operation": "Apply",
        "apiVersion": xr["apiVersion"],
        "fieldsType": "FieldsV1",
        "fieldsV1": {"f:spec": {"f:claimRef": {}}},
    }
    return [*kept, claims]


def _xr_labels(claim: Mapping[str, Any]) -> dict[str, str]:
    metadata = claim["metadata"]
    binding = {CLAIM_NAME_LABEL: metadata["name"], CLAIM_NAMESPACE_LABEL: metadata["namespace"]}
    return {**_unreserved(metadata.get("labels")), **binding}


def _unreserved(texts: Mapping[str, str] | None) -> dict[str, str]:
    """Labels or annotations without those of Kubernetes and its tools, which speak of this one object."""
    return {key: value for key, value in (texts or {}).items() if not _is_reserved(key)}


def _is_reserved(key: str) -> bool:
    domain, slash, _ = key.partition("/")
    return bool(slash) and domain.endswith(_RESERVED_DOMAINS)


def _claim_ref(claim: Mapping[str, Any]) -> Object:
    return {
        "apiVersion": claim["apiVersion"],
        "kind": claim["kind"],
        "namespace": namespace_of(claim),
        "name": name_of(claim),
    }


def _external_name(obj: Mapping[str, Any]) -> str | None:
    return annotations_of(obj).get(EXTERNAL_NAME_ANNOTATION)


# -- XR to claim


def claim_from_xr(claim: Mapping[str, Any], xr: Mapping[str, Any], offer: Offer) -> Object | None:
    """What must be merged into the claim of what the XR has become; None if it says so already.

    `xr` is how the claim left it: of what the user has just taken back, nothing is there to be given again.
    """
    theirs, ours = xr["spec"], claim["spec"]
    spec: Object = {}
    if offer.enforces_composition or not ours.get("compositionRef"):
        spec["compositionRef"] = theirs.get("compositionRef")
    if not ours.get("compositionRevisionSelector"):
        spec["compositionRevisionSelector"] = theirs.get("compositionRevisionSelector")
    if update_policy(claim, xr, offer) == "Automatic":
        spec["compositionRevisionRef"] = theirs.get("compositionRevisionRef")
    body: Object = {}
    changed = {field: value for field, value in spec.items() if value and value != ours.get(field)}
    if changed:
        body["spec"] = changed
    external_name = _external_name(xr)
    if external_name and external_name != _external_name(claim):
        body["metadata"] = {"annotations": {EXTERNAL_NAME_ANNOTATION: external_name}}
    return body or None


def claim_status(claim: Mapping[str, Any], xr: Mapping[str, Any]) -> Object:
    """The XR's status as the claim shows it: beside its own conditions and those that functions meant for claims."""
    before, theirs = claim.get("status") or {}, xr.get("status") or {}
    status: Object = {field: value for field, value in theirs.items() if field not in _XR_STATUS}
    if before.get("connectionDetails"):
        status["connectionDetails"] = before["connectionDetails"]
    conditions: list[Object] = list(before.get("conditions") or [])
    meant = set(theirs.get("claimConditionTypes") or ()) - SYSTEM_CONDITIONS
    for condition in theirs.get("conditions") or ():
        if condition["type"] in meant:
            copy = XrCondition(
                condition["type"], condition["status"], condition["reason"], condition.get("message") or ""
            )
            generation = claim["metadata"].get("generation")
            conditions = set_conditions(conditions, [copy], now=condition["lastTransitionTime"], generation=generation)
    status["conditions"] = conditions
    return status


def readiness(xr: Mapping[str, Any]) -> XrCondition:
    """The claim's Ready condition, as far as the XR decides it; it says what the XR waits for."""
    if condition_status(xr, "Ready") == "True":
        return XrCondition("Ready", "True", "Available")
    detail = condition_message(xr, "Ready") or condition_reason(xr, "Ready")
    if condition_status(xr, "Synced") == "False":
        detail = condition_message(xr, "Synced") or detail
    return waiting(f'{xr["kind"]} "{name_of(xr)}" is not ready' + (f": {detail}" if detail else ""))


def waiting(message: str) -> XrCondition:
    return XrCondition("Ready", "False", "Waiting", message)
