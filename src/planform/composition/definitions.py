"""The CRDs that an XRD means: one for its XRs and, for legacy XRDs with claim names, one for its claims. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal

from planform.errors import PlanformError

Object = dict[str, Any]
Scope = Literal["Namespaced", "Cluster", "LegacyCluster"]

_FROM_SPEC: Final = (
    "required",
    "properties",
    "description",
    "x-kubernetes-validations",
    "oneOf",
    "x-kubernetes-preserve-unknown-fields",
)
_FROM_STATUS: Final = tuple(name for name in _FROM_SPEC if name != "x-kubernetes-preserve-unknown-fields")
_NAME_LENGTH: Final = 63
_TEXT: Final = {"type": "string"}


class InvalidDefinition(PlanformError):
    """An XRD from which no CRD can be made; the message names the field."""

    reason = "InvalidDefinition"


def scope_of(xrd: Mapping[str, Any]) -> Scope:
    """Where XRs live; v1 XRDs say LegacyCluster when they say nothing, v2 ones Namespaced."""
    scope = xrd["spec"].get("scope")
    if scope is None:
        return "LegacyCluster" if str(xrd["apiVersion"]).endswith("/v1") else "Namespaced"
    if scope not in ("Namespaced", "Cluster", "LegacyCluster"):
        raise InvalidDefinition(f'{_shown(xrd)}: spec.scope: there is no scope "{scope}"')
    found: Scope = scope
    return found


def composite_crd(xrd: Mapping[str, Any]) -> Object:
    """The CRD of the XRs."""
    scope = scope_of(xrd)
    spec = xrd["spec"]
    properties = _legacy_properties(xrd) if scope == "LegacyCluster" else {"crossplane": _modern_machinery(xrd, scope)}
    status = _status_properties(legacy=scope == "LegacyCluster")
    columns = [
        _column("SYNCED", "string", ".status.conditions[?(@.type=='Synced')].status"),
        _column("READY", "string", ".status.conditions[?(@.type=='Ready')].status"),
        _column("COMPOSITION", "string", _machinery_path(scope, "compositionRef.name")),
        _column("COMPOSITIONREVISION", "string", _machinery_path(scope, "compositionRevisionRef.name"), priority=1),
        _column("AGE", "date", ".metadata.creationTimestamp"),
    ]
    names = dict(spec["names"])
    return _crd(
        xrd,
        name=xrd["metadata"]["name"],
        names={**names, "categories": [*(names.get("categories") or []), "composite"]},
        scope="Namespaced" if scope == "Namespaced" else "Cluster",
        properties=properties,
        status=status,
        columns=columns,
    )


def claim_crd(xrd: Mapping[str, Any]) -> Object | None:
    """The CRD of the claims; None if the XRD offers none."""
    names = xrd["spec"].get("claimNames")
    if not names:
        return None
    if scope_of(xrd) != "LegacyCluster":
        raise InvalidDefinition(f"{_shown(xrd)}: spec.claimNames: only LegacyCluster XRDs can offer claims")
    columns = [
        _column("SYNCED", "string", ".status.conditions[?(@.type=='Synced')].status"),
        _column("READY", "string", ".status.conditions[?(@.type=='Ready')].status"),
        _column("CONNECTION-SECRET", "string", ".spec.writeConnectionSecretToRef.name"),
        _column("AGE", "date", ".metadata.creationTimestamp"),
    ]
    return _crd(
        xrd,
        name=f"{names['plural']}.{xrd['spec']['group']}",
        names={**names, "categories": [*(names.get("categories") or []), "claim"]},
        scope="Namespaced",
        properties=_claim_properties(xrd),
        status=_status_properties(legacy=True),
        columns=columns,
    )


def _crd(
    xrd: Mapping[str, Any],
    *,
    name: str,
    names: Object,
    scope: str,
    properties: Object,
    status: Object,
    columns: list[Object],
) -> Object:
    spec, metadata = xrd["spec"], xrd["metadata"]
    extra = spec.get("metadata") or {}
    owner = {
        "apiVersion": xrd["apiVersion"],
        "kind": xrd["kind"],
        "name": metadata["name"],
        "uid": metadata.get("uid", ""),
        "controller": True,
        "blockOwnerDeletion": True,
    }
    crd_metadata: Object = {"name": name, "ownerReferences": [owner]}
    labels = {**(metadata.get("labels") or {}), **(extra.get("labels") or {})}
    if labels:
        crd_metadata["labels"] = labels
    if extra.get("annotations"):
        crd_metadata["annotations"] = dict(extra["annotations"])
    crd_spec: Object = {
        "group": spec["group"],
        "names": names,
        "scope": scope,
        "versions": [_version(xrd, version, properties, status, columns) for version in spec["versions"]],
    }
    if spec.get("conversion"):
        crd_spec["conversion"] = spec["conversion"]
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": crd_metadata,
        "spec": crd_spec,
    }


def _version(
    xrd: Mapping[str, Any], version: Mapping[str, Any], properties: Object, status: Object, columns: list[Object]
) -> Object:
    schema = (version.get("schema") or {}).get("openAPIV3Schema")
    if not isinstance(schema, Mapping):
        raise InvalidDefinition(f"{_shown(xrd)}: version {version.get('name')} has no schema.openAPIV3Schema")
    subresources: Object = {"status": {}}
    if (version.get("subresources") or {}).get("scale"):
        subresources["scale"] = version["subresources"]["scale"]
    made: Object = {
        "name": version["name"],
        "served": bool(version.get("served")),
        "storage": bool(version.get("referenceable")),
        "schema": {"openAPIV3Schema": _root(schema, properties, status)},
        "subresources": subresources,
        "additionalPrinterColumns": [*(version.get("additionalPrinterColumns") or []), *columns],
    }
    for field in ("deprecated", "deprecationWarning"):
        if version.get(field):
            made[field] = version[field]
    return made


def _root(schema: Mapping[str, Any], properties: Object, status: Object) -> Object:
    """The user's spec and status with the machinery's fields, which win over fields of the same name."""
    users = schema.get("properties") or {}
    root: Object = {
        "type": "object",
        "required": ["spec"],
        "properties": {
            "apiVersion": _TEXT,
            "kind": _TEXT,
            "metadata": {
                "type": "object",
                "properties": {"name": {"type": "string", "maxLength": _longest_name(users)}},
            },
            "spec": _part(users.get("spec") or {}, _FROM_SPEC, properties),
            "status": _part(users.get("status") or {}, _FROM_STATUS, status),
        },
    }
    for field in ("description", "x-kubernetes-validations"):
        if schema.get(field):
            root[field] = schema[field]
    return root


def _part(users: Mapping[str, Any], kept: tuple[str, ...], machinery: Object) -> Object:
    part: Object = {"type": "object", **{field: users[field] for field in kept if field in users}}
    part["properties"] = {**(users.get("properties") or {}), **machinery}
    return part


def _longest_name(users: Mapping[str, Any]) -> int:
    name = ((users.get("metadata") or {}).get("properties") or {}).get("name") or {}
    return min(_NAME_LENGTH, int(name.get("maxLength") or _NAME_LENGTH))


# -- the machinery's fields


def _named(*required: str, **more: Object) -> Object:
    properties = {**{field: dict(_TEXT) for field in required}, **more}
    return {"type": "object", "required": list(required), "properties": properties}


def _labels() -> Object:
    labels = {"type": "object", "additionalProperties": dict(_TEXT)}
    return {"type": "object", "required": ["matchLabels"], "properties": {"matchLabels": labels}}


def _selection(xrd: Mapping[str, Any], *, policy_default: bool) -> Object:
    policy: Object = {"type": "string", "enum": ["Automatic", "Manual"]}
    if policy_default:
        policy["default"] = xrd["spec"].get("defaultCompositionUpdatePolicy") or "Automatic"
    return {
        "compositionRef": _named("name"),
        "compositionSelector": _labels(),
        "compositionRevisionRef": _named("name"),
        "compositionRevisionSelector": _labels(),
        "compositionUpdatePolicy": policy,
    }


def _references(*, namespaced: bool) -> Object:
    more = {"name": dict(_TEXT)} | ({} if namespaced else {"namespace": dict(_TEXT)})
    return {"type": "array", "x-kubernetes-list-type": "atomic", "items": _named("apiVersion", "kind", **more)}


def _modern_machinery(xrd: Mapping[str, Any], scope: Scope) -> Object:
    properties = _selection(xrd, policy_default=True)
    properties["resourceRefs"] = _references(namespaced=scope == "Namespaced")
    return {"type": "object", "properties": properties}


def _legacy_properties(xrd: Mapping[str, Any]) -> Object:
    return {
        **_selection(xrd, policy_default=True),
        "resourceRefs": _references(namespaced=False),
        "claimRef": _named("apiVersion", "kind", "namespace", "name"),
        "writeConnectionSecretToRef": _named("name", "namespace"),
    }


def _claim_properties(xrd: Mapping[str, Any]) -> Object:
    delete: Object = {"type": "string", "enum": ["Background", "Foreground"]}
    delete["default"] = xrd["spec"].get("defaultCompositeDeletePolicy") or "Background"
    return {
        **_selection(xrd, policy_default=False),
        "compositeDeletePolicy": delete,
        "resourceRef": _named("apiVersion", "kind", "name"),
        "writeConnectionSecretToRef": _named("name"),
    }


def _status_properties(*, legacy: bool) -> Object:
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
    properties: Object = {"conditions": conditions}
    if legacy:
        published = {"lastPublishedTime": {"type": "string", "format": "date-time"}}
        properties["connectionDetails"] = {"type": "object", "properties": published}
        properties["claimConditionTypes"] = {
            "type": "array",
            "x-kubernetes-list-type": "set",
            "items": dict(_TEXT),
        }
    return properties


def _machinery_path(scope: Scope, field: str) -> str:
    return f".spec.{field}" if scope == "LegacyCluster" else f".spec.crossplane.{field}"


def _column(name: str, kind: str, path: str, *, priority: int = 0) -> Object:
    column: Object = {"name": name, "type": kind, "jsonPath": path}
    return {**column, "priority": priority} if priority else column


def _shown(xrd: Mapping[str, Any]) -> str:
    return f'XRD "{(xrd.get("metadata") or {}).get("name", "")}"'
