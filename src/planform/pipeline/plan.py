"""What to do about a pipeline's answer: a value, decided whole before anything is written. Reads nothing.

The reconciler carries a Plan out; `render`, `diff` and preview show it. Names are deterministic, so planning again
after a crash plans the same children.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from planform.api.conditions import XrCondition
from planform.api.kinds import Object
from planform.api.metadata import labels_of, name_of, namespace_of, uid_of
from planform.api.owners import controller_reference, is_controlled_by
from planform.api.xr import (
    CLAIM_NAME_LABEL,
    CLAIM_NAMESPACE_LABEL,
    COMPOSITE_LABEL,
    RESOURCE_NAME_ANNOTATION,
    Style,
    listed,
    name_prefix,
)
from planform.apimachinery.names import child_name, subdomain_problems
from planform.errors import PlanformError
from planform.functions.sending import canonical, digest_of
from planform.functions.values import Ready, Resource, State

_METADATA: Final = (
    *((name, str, "a text") for name in ("name", "generateName", "namespace")),
    *((name, dict, "an object") for name in ("labels", "annotations")),
    ("ownerReferences", list, "a list"),
)


class PlanError(PlanformError):
    """The pipeline asked for something that cannot be; the message names the resource."""

    reason = "InvalidDesiredState"


class Composed(msgspec.Struct, frozen=True):
    """One desired resource, complete with name, labels, owner. `key` is its name in the composition, `digest` that of
    the object: the same again asks for nothing new."""

    key: str
    object: Object
    ready: bool
    exists: bool
    digest: bytes


class Deletion(msgspec.Struct, frozen=True):
    """An observed resource that is no longer desired."""

    key: str
    object: Object


class Plan(msgspec.Struct, frozen=True):
    """Everything a reconcile will do. Deletions come after every apply has succeeded."""

    apply: tuple[Composed, ...]
    delete: tuple[Deletion, ...]
    references: tuple[Object, ...]
    status: Object
    warnings: tuple[str, ...] = ()

    @property
    def unready(self) -> list[str]:
        return [composed.key for composed in self.apply if not composed.ready]


def plan(
    xr: Object,
    observed: Mapping[str, Object],
    desired: State,
    *,
    style: Style,
    scope_of: Mapping[tuple[str, str], bool] | None = None,
    leftovers: Sequence[tuple[str, Object]] = (),
) -> Plan:
    """Decide. `observed` are the XR's composed resources by key; `scope_of` says of a known kind if it is namespaced.
    `leftovers` are further resources that exist under a key, as when its kind was changed and the old one is not gone.

    Raises PlanError for an object that cannot be applied: no kind, another controller, a bad name, malformed metadata,
    a value that JSON cannot express, a cluster-scoped resource under a namespaced XR, a namespaced one without a
    namespace under an XR that has none either.
    """
    warnings: list[str] = []
    there = [*sorted(observed.items()), *leftovers]
    existing = {key: _existing(key, one.resource, observed, leftovers) for key, one in desired.resources.items()}
    labels, owner = _labels(xr), controller_reference(xr)
    composed = [
        _composed(xr, key, resource, existing[key], labels, owner, scope_of or {}, warnings)
        for key, resource in sorted(desired.resources.items())
    ]
    deletions = _deletions(xr, there, composed, [obj for obj in existing.values() if obj is not None])
    references = [_reference(one.object, xr, style) for one in composed]
    references += [_reference(gone.object, xr, style) for gone in deletions]
    return Plan(
        apply=tuple(composed),
        delete=deletions,
        references=tuple(sorted(references, key=_reference_order)),
        status=_status(desired.composite.resource.get("status")),
        warnings=tuple(warnings),
    )


def readiness(plan: Plan, explicit: Ready) -> XrCondition:
    """The Ready condition: what the functions said of the XR itself, else what its resources say."""
    if explicit is Ready.TRUE:
        return XrCondition("Ready", "True", "Available")
    if explicit is Ready.FALSE:
        return XrCondition("Ready", "False", "Creating")
    if plan.unready:
        return XrCondition("Ready", "False", "Creating", f"Unready resources: {listed(plan.unready)}")
    return XrCondition("Ready", "True", "Available")


def _existing(
    key: str, wanted: Object, observed: Mapping[str, Object], leftovers: Sequence[tuple[str, Object]]
) -> Object | None:
    """What is there under this key and of this kind, whatever its version."""
    found = observed.get(key)
    if found is not None and _is_same_kind(found, wanted):
        return found
    return next((obj for name, obj in leftovers if name == key and _is_same_kind(obj, wanted)), None)


def _deletions(
    xr: Object, there: Sequence[tuple[str, Object]], composed: Sequence[Composed], existing: Sequence[Object]
) -> tuple[Deletion, ...]:
    """What of all that is there is neither desired nor taken over by something that is."""
    taken = {id(obj) for obj in existing}
    left = [(key, obj) for key, obj in there if id(obj) not in taken]
    if not left:
        return ()
    kept = {identity(one.object) for one in composed} | {identity(obj) for obj in existing}
    return tuple(Deletion(key, obj) for key, obj in left if identity(obj) not in kept and is_controlled_by(obj, xr))


def _composed(
    xr: Object,
    key: str,
    resource: Resource,
    existing: Object | None,
    labels: Mapping[str, str],
    owner: Object,
    scope_of: Mapping[tuple[str, str], bool],
    warnings: list[str],
) -> Composed:
    wanted = resource.resource
    api_version, kind = wanted.get("apiVersion"), wanted.get("kind")
    if not isinstance(api_version, str) or not isinstance(kind, str) or not api_version or not kind:
        raise PlanError(f'composed resource "{key}" has no apiVersion or kind')
    metadata: Object = dict(wanted.get("metadata") or {})
    _check_metadata(key, metadata)
    _place(xr, key, kind, metadata, scope_of.get((api_version, kind)), warnings)
    _name(xr, key, metadata, existing)
    if scope_of.get((api_version, kind)) and not metadata.get("namespace"):
        raise PlanError(
            f'composed resource "{key}" is a namespaced {kind} ({api_version}) without a namespace, and its XR is'
            " cluster-scoped and has none to give it: set metadata.namespace, or compose a cluster-scoped kind"
        )
    metadata["labels"] = {**(metadata.get("labels") or {}), **labels}
    metadata["annotations"] = {**(metadata.get("annotations") or {}), RESOURCE_NAME_ANNOTATION: key}
    metadata["ownerReferences"] = _owners(key, metadata.get("ownerReferences") or [], owner)
    obj: Object = {"apiVersion": api_version, "kind": kind, "metadata": metadata}
    for name, value in wanted.items():
        if name not in obj and name != "status":
            obj[name] = value
    try:
        digest = digest_of(obj)
    except TypeError as error:
        raise PlanError(f'composed resource "{key}" cannot be written as JSON: {error}') from error
    return Composed(key, obj, resource.ready is Ready.TRUE, existing is not None, digest)


def _status(wanted: Any) -> Object:
    if not wanted:
        return {}
    if not isinstance(wanted, dict):
        raise PlanError("the status that the functions want for the XR is not an object")
    try:
        canonical({"status": wanted})
    except TypeError as error:
        raise PlanError(f"the status that the functions want for the XR cannot be written as JSON: {error}") from error
    return dict(wanted)


def _check_metadata(key: str, metadata: Mapping[str, Any]) -> None:
    """A function may answer anything; what is looked at here has to be what it should be."""
    for name, kind, words in _METADATA:
        if name in metadata and not isinstance(metadata[name], kind) and metadata[name] is not None:
            raise PlanError(f'composed resource "{key}": metadata.{name} is not {words}')
    owners = metadata.get("ownerReferences")
    if owners and not all(isinstance(owner, dict) for owner in owners):
        raise PlanError(f'composed resource "{key}": metadata.ownerReferences has an item that is not an object')


def _place(xr: Object, key: str, kind: str, metadata: Object, namespaced: bool | None, warnings: list[str]) -> None:
    """A namespaced XR's resources live in its namespace, whatever the function said; what is cluster-scoped in none."""
    home = namespace_of(xr)
    if not home:
        if namespaced is False:
            metadata.pop("namespace", None)
        return
    if namespaced is False:
        raise PlanError(f'composed resource "{key}" is a cluster-scoped {kind}, which a namespaced XR cannot compose')
    asked = metadata.get("namespace")
    if asked and asked != home:
        warnings.append(f'resource "{key}" asked for namespace "{asked}"; it lives with its XR in "{home}"')
    metadata["namespace"] = home


def _name(xr: Object, key: str, metadata: Object, existing: Object | None) -> None:
    """An existing resource keeps its name; a new one without a name gets one that follows from XR and key."""
    if existing is not None:
        for field_ in ("name", "namespace", "generateName"):
            if existing["metadata"].get(field_):
                metadata[field_] = existing["metadata"][field_]
        return
    if not metadata.get("name"):
        if not metadata.get("generateName"):
            metadata["generateName"] = f"{name_prefix(xr)}-"
        metadata["name"] = child_name(str(metadata["generateName"]), uid_of(xr), key)
    problems = [] if ":" in metadata["name"] else subdomain_problems(str(metadata["name"]))
    if problems:
        raise PlanError(f'composed resource "{key}" has the name "{metadata["name"]}": {problems[0]}')


def _labels(xr: Object) -> dict[str, str]:
    labels = {COMPOSITE_LABEL: name_prefix(xr)}
    own = labels_of(xr)
    if own.get(CLAIM_NAME_LABEL) and own.get(CLAIM_NAMESPACE_LABEL):
        labels |= {name: own[name] for name in (CLAIM_NAME_LABEL, CLAIM_NAMESPACE_LABEL)}
    return labels


def _owners(key: str, given: Sequence[Object], controller: Object) -> list[Object]:
    if not given:
        return [controller.copy()]
    uid = controller["uid"]
    for owner in given:
        if owner.get("controller") and owner.get("uid") != uid:
            raise PlanError(
                f'composed resource "{key}" names another controller: {owner.get("kind")}/{owner.get("name")}'
            )
    return [*(owner for owner in given if owner.get("uid") != uid), controller.copy()]


def identity(obj: Mapping[str, Any]) -> tuple[str, str, str, str]:
    """Which object this is, whatever the version it is written in."""
    return (*_kind(obj), namespace_of(obj), name_of(obj))


def _is_same_kind(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    if one.get("kind") == other.get("kind") and one.get("apiVersion") == other.get("apiVersion"):
        return True
    return _kind(one) == _kind(other)


def _kind(obj: Mapping[str, Any]) -> tuple[str, str]:
    """Group and kind: another version of the same kind is the same resource."""
    return str(obj.get("apiVersion", "")).rpartition("/")[0], str(obj.get("kind", ""))


def _reference(obj: Object, xr: Object, style: Style) -> Object:
    reference = {"apiVersion": obj["apiVersion"], "kind": obj["kind"], "name": name_of(obj)}
    namespace = namespace_of(obj)
    if namespace and not namespace_of(xr):
        reference["namespace"] = namespace
    return reference


def _reference_order(reference: Mapping[str, str]) -> tuple[str, ...]:
    return reference["apiVersion"], reference["kind"], reference["name"], reference.get("namespace", "")
