"""What each rendered object does: become a composed resource, the XR's status, or one of the kinds that mean more."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Sequence
from typing import Any, Final

import msgspec

from planform.builtin.compiled import Refused, warn
from planform.builtin.connection_details import add_connection_details
from planform.builtin.environment import EXTRA_RESOURCES_KEY, merged
from planform.builtin.go_templating.library import NAME_ANNOTATION
from planform.builtin.go_templating.manifests import Manifest, manifests
from planform.builtin.inputs import InputError, convert_input
from planform.functions.values import (
    Condition,
    FunctionRequest,
    FunctionResponse,
    Object,
    Ready,
    Resource,
    ResourceSelector,
    Status,
    Target,
)

READY_ANNOTATION: Final = "gotemplating.fn.crossplane.io/ready"
META: Final = "meta.gotemplating.fn.crossplane.io/v1alpha1"
_READY: Final = {"True": Ready.TRUE, "False": Ready.FALSE, "Unspecified": Ready.UNSPECIFIED}
_STATUS: Final = {"True": Status.TRUE, "False": Status.FALSE}
_TARGETS: Final = {"Composite": Target.COMPOSITE, "CompositeAndClaim": Target.COMPOSITE_AND_CLAIM}
_RESERVED: Final = frozenset({"Ready", "Synced", "Healthy", "UpToDate"})


class ClaimCondition(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""
    target: str = "Composite"


class Requirement(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    api_version: str = ""
    kind: str = ""
    match_name: str = ""
    match_labels: dict[str, str] | None = None
    namespace: str | None = None


def carry_out(text: str, request: FunctionRequest, response: FunctionResponse) -> Iterator[None]:
    """Put everything that was rendered into the response, pausing after each object. Raises Refused."""
    for manifest in manifests(text):
        _carry_out_one(manifest, request, response)
        yield
    found = {**request.extra_resources, **request.required_resources}
    if found:
        left = request.context.get(EXTRA_RESOURCES_KEY)
        shown = {name: _resources_message(some) for name, some in found.items()}
        response.context[EXTRA_RESOURCES_KEY] = {**(left if isinstance(left, dict) else {}), **shown}


def _resources_message(found: Sequence[Resource]) -> Object:
    """What was fetched under one name, as Go's JSON writes the protocol's message."""
    items = []
    for each in found:
        item: Object = {"resource": each.resource}
        if each.connection_details:
            details = {key: base64.b64encode(value).decode() for key, value in each.connection_details.items()}
            item["connection_details"] = details
        items.append(item)
    return {"items": items} if items else {}


def _carry_out_one(manifest: Manifest, request: FunctionRequest, response: FunctionResponse) -> None:
    rendered = manifest.object
    if rendered.get("apiVersion") == META:
        _META_KINDS.get(rendered["kind"], _refuse_kind)(manifest, response)
        return
    ready = _take_annotation(rendered, READY_ANNOTATION)
    if ready is not None and ready not in _READY:
        raise Refused(
            f'invalid function input: invalid "{READY_ANNOTATION}" annotation value "{ready}" in {manifest.where}:'
            " must be True, False, or Unspecified"
        )
    name = _take_annotation(rendered, NAME_ANNOTATION)
    xr = request.observed.composite.resource
    if name is None and all(rendered.get(member) == xr.get(member) for member in ("apiVersion", "kind")):
        _merge_status(rendered, ready, response)
        return
    if not name:
        raise Refused(
            f'"{rendered["kind"]}" template is missing required "{NAME_ANNOTATION}" annotation: {manifest.where}'
        )
    response.desired.resources[name] = Resource(rendered, ready=_READY[ready or "Unspecified"])


def _merge_status(rendered: Object, ready: str | None, response: FunctionResponse) -> None:
    """Of an object of the XR's own kind only the status counts, laid over what was said before."""
    composite = response.desired.composite
    status = rendered.get("status")
    if isinstance(status, dict):
        known = composite.resource
        composite.resource = {**known, "status": merged(known.get("status") or {}, status)}
    if ready is not None:
        composite.ready = _READY[ready]


def _connection_details(manifest: Manifest, response: FunctionResponse) -> None:
    add_connection_details(response, _member(manifest, "data", dict), where=manifest.where)


def _claim_conditions(manifest: Manifest, response: FunctionResponse) -> None:
    for index, entry in enumerate(_member(manifest, "conditions", list)):
        condition = _typed(manifest, f"conditions[{index}]", entry, ClaimCondition)
        if condition.type in _RESERVED:
            raise Refused(f'cannot set ClaimCondition type: "{condition.type}" is a reserved condition type')
        if condition.target not in _TARGETS:
            where = f"{manifest.where}: conditions[{index}].target"
            warn(response, f'{where} "{condition.target}" is not CompositeAndClaim, and counts as Composite')
        status = _STATUS.get(condition.status, Status.UNKNOWN)
        target = _TARGETS.get(condition.target, Target.COMPOSITE)
        response.conditions.append(Condition(condition.type, status, condition.reason, condition.message, target))


def _context(manifest: Manifest, response: FunctionResponse) -> None:
    response.context = merged(response.context, _member(manifest, "data", dict))


def _requirements(manifest: Manifest, response: FunctionResponse) -> None:
    wanted = response.requirements.resources
    for name, entry in _member(manifest, "requirements", dict).items():
        if name in wanted:
            raise Refused(f'{manifest.where}: duplicate extra resource key "{name}"')
        one = _typed(manifest, f"requirements.{name}", entry, Requirement)
        if not one.api_version or not one.kind:
            warn(response, f"{manifest.where}: requirements.{name}: apiVersion or kind is missing, so nothing is found")
        labels = None if one.match_name else one.match_labels or {}
        wanted[name] = ResourceSelector(one.api_version, one.kind, one.match_name, labels, one.namespace)


def _refuse_kind(manifest: Manifest, response: FunctionResponse) -> None:
    known = ", ".join(sorted(_META_KINDS))
    raise Refused(f'invalid kind "{manifest.object["kind"]}" for apiVersion "{META}" - must be one of {known}')


_META_KINDS: Final = {
    "CompositeConnectionDetails": _connection_details,
    "ClaimConditions": _claim_conditions,
    "Context": _context,
    "ExtraResources": _requirements,
}


def _member(manifest: Manifest, name: str, kind: type) -> Any:
    value = manifest.object.get(name)
    if value is None:
        return kind()
    if not isinstance(value, kind):
        raise Refused(f"{manifest.where}: {name} must be {'an object' if kind is dict else 'a list'}")
    return value


def _typed(manifest: Manifest, path: str, value: Any, part: type[Any]) -> Any:
    try:
        return convert_input(value, part)
    except InputError as error:
        problem = str(error).removeprefix("cannot get Function input: ")
        raise Refused(f"{manifest.where}: {path}: {problem}") from None


def _take_annotation(rendered: Object, key: str) -> str | None:
    """The annotation, which is then gone; and the annotations too if none is left."""
    metadata = rendered.get("metadata")
    annotations = metadata.get("annotations") if isinstance(metadata, dict) else None
    if not annotations or key not in annotations:
        return None
    value: str = annotations.pop(key)
    if not annotations:
        del rendered["metadata"]["annotations"]
    return value
