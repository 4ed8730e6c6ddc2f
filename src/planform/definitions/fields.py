"""The fields that the control plane adds to the schemas of XRs and claims. Pure.

Objects of these kinds are written by users and by the control plane at once; what is not named here is the user's.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from planform.api.kinds import Object

_NUMBER: Final = {"type": "integer", "format": "int64"}
_TEXT: Final = {"type": "string"}


def _named(*required: str, **more: Object) -> Object:
    properties = {**{field: dict(_TEXT) for field in required}, **more}
    return {"type": "object", "required": list(required), "properties": properties}


def _labels() -> Object:
    labels = {"type": "object", "additionalProperties": dict(_TEXT)}
    return {"type": "object", "required": ["matchLabels"], "properties": {"matchLabels": labels}}


def _label_selector() -> Object:
    """A selector of revisions: Crossplane's XRs have matchLabels alone, which an XRD's default may go beyond."""
    values = {"type": "array", "x-kubernetes-list-type": "atomic", "items": dict(_TEXT)}
    expressions = {
        "type": "array",
        "x-kubernetes-list-type": "atomic",
        "items": _named("key", "operator", values=values),
    }
    labels = {"type": "object", "additionalProperties": dict(_TEXT)}
    return {"type": "object", "properties": {"matchLabels": labels, "matchExpressions": expressions}}


def _selection(xrd: Mapping[str, Any], *, policy_default: bool) -> Object:
    policy: Object = {"type": "string", "enum": ["Automatic", "Manual"]}
    if policy_default:
        spec = xrd["spec"]
        enforced, default = spec.get("enforceCompositionUpdatePolicy"), spec.get("defaultCompositionUpdatePolicy")
        policy["default"] = enforced or default or "Automatic"
    return {
        "compositionRef": _named("name"),
        "compositionSelector": _labels(),
        "compositionRevisionRef": _named("name"),
        "compositionRevisionSelector": _label_selector(),
        "compositionUpdatePolicy": policy,
    }


def _references(*, namespaced: bool) -> Object:
    more = {"name": dict(_TEXT)} | ({} if namespaced else {"namespace": dict(_TEXT)})
    return {"type": "array", "x-kubernetes-list-type": "atomic", "items": _named("apiVersion", "kind", **more)}


def modern_fields(xrd: Mapping[str, Any], *, namespaced: bool) -> Object:
    """Fields of an XR under `spec.crossplane`, which is always there: defaults within an absent object do not apply."""
    properties = _selection(xrd, policy_default=True)
    properties["resourceRefs"] = _references(namespaced=namespaced)
    return {"type": "object", "default": {}, "properties": properties}


def legacy_fields(xrd: Mapping[str, Any]) -> Object:
    """Fields of a legacy XR, directly under `spec`."""
    return {
        **_selection(xrd, policy_default=True),
        "resourceRefs": _references(namespaced=False),
        "claimRef": _named("apiVersion", "kind", "namespace", "name"),
        "writeConnectionSecretToRef": _named("name", "namespace"),
    }


def claim_fields(xrd: Mapping[str, Any]) -> Object:
    """Fields of a claim, directly under `spec`."""
    delete: Object = {"type": "string", "enum": ["Background", "Foreground"]}
    delete["default"] = xrd["spec"].get("defaultCompositeDeletePolicy") or "Background"
    return {
        **_selection(xrd, policy_default=False),
        "compositeDeletePolicy": delete,
        "resourceRef": _named("apiVersion", "kind", "name"),
        "writeConnectionSecretToRef": _named("name"),
    }


def shared_status(*, legacy: bool) -> Object:
    """What XRs and claims report alike; the legacy ones also about connection details."""
    condition = {
        "type": "object",
        "required": ["lastTransitionTime", "reason", "status", "type"],
        "properties": {
            "lastTransitionTime": {"type": "string", "format": "date-time"},
            "message": dict(_TEXT),
            "observedGeneration": {"type": "integer", "format": "int64"},
            "reason": dict(_TEXT),
            "status": dict(_TEXT),
            "type": dict(_TEXT),
        },
    }
    conditions = {
        "type": "array",
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["type"],
        "items": condition,
    }
    properties: Object = {"conditions": conditions, "lastHandledReconcileAt": dict(_TEXT)}
    if legacy:
        published = {"lastPublishedTime": {"type": "string", "format": "date-time"}}
        properties["connectionDetails"] = {"type": "object", "properties": published}
        properties["claimConditionTypes"] = {
            "type": "array",
            "x-kubernetes-list-type": "set",
            "items": dict(_TEXT),
        }
    return properties


def composite_status() -> Object:
    """What only XRs report: dependencies that must survive a restart, and what the last reconcile rests on."""
    problem = _named("message", resource=dict(_TEXT), step=dict(_TEXT))
    moment = {"type": "string", "format": "date-time"}
    call = _named("step", "function", "since", revision=dict(_TEXT), deadline=dict(moment))
    call["properties"]["since"] = dict(moment)
    return {
        "watchedResourceRefs": {
            "type": "array",
            "x-kubernetes-list-type": "atomic",
            "items": _named("apiVersion", "kind", "name", namespace=dict(_TEXT)),
        },
        "planform": {
            "type": "object",
            "properties": {
                "revisionSelector": _label_selector(),
                "generation": dict(_NUMBER),
                "composedBy": _composed_by(),
                "problems": {"type": "array", "x-kubernetes-list-type": "atomic", "items": problem},
                "runningCall": call,
            },
        },
    }


def _composed_by() -> Object:
    """Under a RolloutPolicy: which revision was carried out for which generation, and how that went."""
    flag = {"type": "boolean"}
    fields = {"generation": dict(_NUMBER), "observed": dict(flag), "failures": dict(_NUMBER)}
    fields |= {"deviates": dict(flag), "held": dict(flag)}  # from its preview; and whether it is kept from it
    return {"type": "object", "properties": {"revision": dict(_TEXT), **fields}}
