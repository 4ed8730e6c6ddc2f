"""The CRDs that an XRD means: one for its XRs and, for legacy XRDs with claim names, one for its claims. Pure.

The user's schema and the composition fields share `spec` and `status`. Where both name a field the control plane's
wins: the control plane could not work with anything else there. Of XRs these are, in the spec, `crossplane` (modern) or
the fields themselves (legacy); in the status `conditions`, `lastHandledReconcileAt`, `watchedResourceRefs` (what
functions asked to have watched), `planform` (what the last reconcile rested on, and what is wrong with which resource
or step), and in legacy XRs and claims also `connectionDetails` and `claimConditionTypes`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal

from planform.api.annotations import annotations_of
from planform.api.kinds import GroupVersionKind, Object, gvk_of
from planform.api.metadata import labels_of, name_of
from planform.api.owners import controller_of, controller_reference, owners_of
from planform.api.xr import Style
from planform.apimachinery.schema_shape import shape_errors
from planform.definitions.fields import (
    claim_fields,
    composite_status,
    legacy_fields,
    modern_fields,
    shared_status,
)
from planform.errors import PlanformError

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


class ForeignDefinition(InvalidDefinition):
    """A CRD of the name that an XRD needs exists and is somebody else's."""

    reason = "ForeignDefinition"


class StoredVersionRemoved(InvalidDefinition):
    """The XRD no longer has a version in which objects may still be stored."""

    reason = "StoredVersionRemoved"


def scope_of(xrd: Mapping[str, Any]) -> Scope:
    """Where XRs live; v1 XRDs say LegacyCluster when they say nothing, v2 ones Namespaced."""
    scope = xrd["spec"].get("scope")
    if scope is None:
        return "LegacyCluster" if str(xrd["apiVersion"]).endswith("/v1") else "Namespaced"
    if scope not in ("Namespaced", "Cluster", "LegacyCluster"):
        raise InvalidDefinition(f'{_shown(xrd)}: spec.scope: there is no scope "{scope}"')
    found: Scope = scope
    return found


def style(xrd: Mapping[str, Any]) -> Style:
    """Where the XRs of this definition keep their composition fields."""
    return "legacy" if scope_of(xrd) == "LegacyCluster" else "modern"


def xr_kind(xrd: Mapping[str, Any]) -> GroupVersionKind:
    """The XRs, in the version that compositions refer to and that is stored."""
    spec = xrd["spec"]
    return GroupVersionKind(spec["group"], _referenceable(xrd), spec["names"]["kind"])


def claim_kind(xrd: Mapping[str, Any]) -> GroupVersionKind | None:
    """The claims, in the referenceable version; None if the XRD offers none."""
    names = xrd["spec"].get("claimNames")
    return GroupVersionKind(xrd["spec"]["group"], _referenceable(xrd), names["kind"]) if names else None


def claim_crd_name(xrd: Mapping[str, Any]) -> str | None:
    """What the CRD of the claims is called, also if the rest of the XRD makes no sense; None if it offers none."""
    names = xrd["spec"].get("claimNames")
    return f"{names['plural']}.{xrd['spec']['group']}" if names else None


def composite_crd(xrd: Mapping[str, Any]) -> Object:
    """The CRD of the XRs."""
    scope = scope_of(xrd)
    spec = xrd["spec"]
    properties = (
        legacy_fields(xrd)
        if scope == "LegacyCluster"
        else {"crossplane": modern_fields(xrd, namespaced=scope == "Namespaced")}
    )
    status = {**shared_status(legacy=scope == "LegacyCluster"), **composite_status()}
    columns = [
        _column("SYNCED", "string", ".status.conditions[?(@.type=='Synced')].status"),
        _column("READY", "string", ".status.conditions[?(@.type=='Ready')].status"),
        _column("COMPOSITION", "string", _composition_field_path(scope, "compositionRef.name")),
        _column(
            "COMPOSITIONREVISION", "string", _composition_field_path(scope, "compositionRevisionRef.name"), priority=1
        ),
        _column("AGE", "date", ".metadata.creationTimestamp"),
    ]
    names = spec["names"]
    return _crd(
        xrd,
        name=name_of(xrd),
        names=_categorised(names, "composite"),
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
        name=str(claim_crd_name(xrd)),
        names=_categorised(names, "claim"),
        scope="Namespaced",
        properties=claim_fields(xrd),
        status=shared_status(legacy=True),
        columns=columns,
    )


def _categorised(names: Mapping[str, Any], category: str) -> Object:
    return {**names, "categories": list(dict.fromkeys([*(names.get("categories") or ()), category]))}


def check_replaceable(found: Mapping[str, Any], wanted: Mapping[str, Any]) -> None:
    """Refuse to replace a CRD that is not ours, or one whose stored objects could no longer be read.

    Ours is a CRD that is controlled by the XRD, or by an XRD of the same name: there is only one at a time, so the
    other is gone. A CRD that nobody controls (restored from a backup, released by hand) is adopted if an XRD made it:
    same group, kind and scope, and the category that XRDs give. Anything else belongs to whoever installed it.
    """
    name, owner = name_of(wanted), owners_of(wanted)[0]
    controller = controller_of(found)
    if controller is not None and _identity(controller) != _identity(owner):
        raise ForeignDefinition(
            f'CRD "{name}" is controlled by {controller.get("kind")} "{controller.get("name")}",'
            f' not by XRD "{owner["name"]}"'
        )
    if controller is None and _meaning(found) != _meaning(wanted):
        raise ForeignDefinition(f'CRD "{name}" exists, and it was not made by an XRD')
    versions = {version["name"] for version in wanted["spec"]["versions"]}
    lost = [each for each in (found.get("status") or {}).get("storedVersions") or () if each not in versions]
    if lost:
        raise StoredVersionRemoved(
            f'XRD "{owner["name"]}": spec.versions: objects may be stored as {", ".join(lost)}: keep the version, with'
            f' served: false if it is to vanish, until it has left status.storedVersions of CRD "{name}"'
        )


def is_current(found: Mapping[str, Any], wanted: Mapping[str, Any]) -> bool:
    """Whether the CRD is known to be as wanted, but for what API servers fill in; a False may err, a True does not.

    An API server checks a whole schema before it finds that nothing changed, which takes long enough to be worth this.
    """
    for field in ("ownerReferences", "labels", "annotations"):
        if (found["metadata"].get(field) or None) != wanted["metadata"].get(field):
            return False
    named = {"singular": wanted["spec"]["names"]["kind"].lower(), "listKind": f"{wanted['spec']['names']['kind']}List"}
    filled = {"conversion": {"strategy": "None"}, **wanted["spec"], "names": {**named, **wanted["spec"]["names"]}}
    return bool(found["spec"] == filled)


def _identity(reference: Mapping[str, Any]) -> tuple[str, ...]:
    owner = gvk_of(reference)
    return (owner.group, owner.kind, str(reference.get("name")))


def _meaning(crd: Mapping[str, Any]) -> tuple[Any, ...]:
    spec = crd["spec"]
    marks = {"composite", "claim"} & set(spec["names"].get("categories") or ())
    return (spec["group"], spec["names"]["kind"], spec["scope"], frozenset(marks))


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
    _referenceable(xrd)
    spec = xrd["spec"]
    crd_metadata: Object = {"name": name, "ownerReferences": [controller_reference(xrd)]}
    labels = {**labels_of(xrd), **labels_of(spec)}
    if labels:
        crd_metadata["labels"] = labels
    if annotations_of(spec):
        crd_metadata["annotations"] = dict(annotations_of(spec))
    crd_spec: Object = {
        "group": spec["group"],
        "names": names,
        "scope": scope,
        "versions": [_version(xrd, index, properties, status, columns) for index in range(len(spec["versions"]))],
    }
    if spec.get("conversion"):
        crd_spec["conversion"] = spec["conversion"]
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": crd_metadata,
        "spec": crd_spec,
    }


def _referenceable(xrd: Mapping[str, Any]) -> str:
    found = [str(version["name"]) for version in xrd["spec"]["versions"] if version.get("referenceable")]
    if len(found) != 1:
        shown = ", ".join(found) or "none is"
        raise InvalidDefinition(f"{_shown(xrd)}: spec.versions: exactly one must be referenceable ({shown})")
    return found[0]


def _version(xrd: Mapping[str, Any], index: int, properties: Object, status: Object, columns: list[Object]) -> Object:
    version, where = xrd["spec"]["versions"][index], f"spec.versions[{index}].schema.openAPIV3Schema"
    schema = (version.get("schema") or {}).get("openAPIV3Schema")
    if not isinstance(schema, Mapping):
        raise InvalidDefinition(f"{_shown(xrd)}: {where}: version {version['name']} has no schema")
    if wrong := next(shape_errors(schema, where), None):
        raise InvalidDefinition(f"{_shown(xrd)}: {wrong}")
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
    """The user's spec and status with the composition fields, which win over fields of the same name."""
    users = schema.get("properties") or {}
    root: Object = {
        "type": "object",
        "required": ["spec"],
        "properties": {
            "apiVersion": _TEXT,
            "kind": _TEXT,
            "metadata": {
                "type": "object",
                "properties": {"name": {"type": "string", "maxLength": _max_name_length(users)}},
            },
            "spec": _part(users.get("spec") or {}, _FROM_SPEC, properties),
            "status": _part(users.get("status") or {}, _FROM_STATUS, status),
        },
    }
    for field in ("description", "x-kubernetes-validations"):
        if schema.get(field):
            root[field] = schema[field]
    return root


def _part(users: Mapping[str, Any], kept: tuple[str, ...], composition_fields: Object) -> Object:
    part: Object = {"type": "object", **{field: users[field] for field in kept if field in users}}
    part["properties"] = {**(users.get("properties") or {}), **composition_fields}
    return part


def _max_name_length(users: Mapping[str, Any]) -> int:
    name = ((users.get("metadata") or {}).get("properties") or {}).get("name") or {}
    return min(_NAME_LENGTH, int(name.get("maxLength", _NAME_LENGTH)))


def _composition_field_path(scope: Scope, field: str) -> str:
    return f".spec.{field}" if scope == "LegacyCluster" else f".spec.crossplane.{field}"


def _column(name: str, kind: str, path: str, *, priority: int = 0) -> Object:
    column: Object = {"name": name, "type": kind, "jsonPath": path}
    return {**column, "priority": priority} if priority else column


def _shown(xrd: Mapping[str, Any]) -> str:
    return f'XRD "{name_of(xrd)}"'
