"""What a program is given, and what becomes of the objects that it gives, by target.

`Default` sorts each object by what it is: the XR's own kind changes the XR's status, a kind of `meta.krm.kcl.dev` means
more than a resource, and everything else is composed. The other targets add to, or patch, one thing.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, Final

from planform.builtin.compiled import Refused
from planform.builtin.connection_details import add_connection_details
from planform.builtin.environment import merged
from planform.functions.values import (
    Condition,
    FunctionRequest,
    FunctionResponse,
    Object,
    Ready,
    Resource,
    ResourceSelector,
    Result,
    Severity,
    Status,
    Target,
)

DEFAULT: Final = "Default"
RESOURCES: Final = "Resources"
PATCH_DESIRED: Final = "PatchDesired"
PATCH_RESOURCES: Final = "PatchResources"
XR: Final = "XR"
TARGETS: Final = frozenset({DEFAULT, RESOURCES, PATCH_DESIRED, PATCH_RESOURCES, XR})
META: Final = "meta.krm.kcl.dev/v1alpha1"
NAME_ANNOTATION: Final = "krm.kcl.dev/composition-resource-name"
READY_ANNOTATION: Final = "krm.kcl.dev/ready"

_READY: Final = {"True": Ready.TRUE, "False": Ready.FALSE, "Unspecified": Ready.UNSPECIFIED}
_READY_WORDS: Final = {ready: word for word, ready in _READY.items()}
_STATUS: Final = {"True": Status.TRUE, "False": Status.FALSE}
_TARGETS: Final = {"Composite": Target.COMPOSITE, "CompositeAndClaim": Target.COMPOSITE_AND_CLAIM}
_SEVERITIES: Final = {"Normal": Severity.NORMAL, "Warning": Severity.WARNING}
_RESERVED: Final = frozenset({"Ready", "Synced", "Healthy"})
_IDENTITY: Final = frozenset({("apiVersion",), ("kind",), ("metadata", "name")})
"""What a patch of a desired resource never changes."""


@dataclass(frozen=True, slots=True)
class Base:
    """A resource of the input that the target PatchResources adds before it patches."""

    name: str
    resource: Object


def params_of(request: FunctionRequest, given: Mapping[str, Any]) -> dict[str, Any]:
    """What `option("params")` gives: the input's own parameters, and the request under the names of function-kcl."""
    oxr = request.observed.composite.resource
    return {
        **given,
        "oxr": oxr,
        "dxr": _typed_as(oxr, request.desired.composite.resource),
        "ocds": {
            name: {"Resource": one.resource, "ConnectionDetails": _encoded(one.connection_details)}
            for name, one in request.observed.resources.items()
        },
        "dcds": {
            name: {"Resource": one.resource, "Ready": _READY_WORDS[one.ready]}
            for name, one in request.desired.resources.items()
        },
        "ctx": request.context,
        "extraResources": _found(request.extra_resources),
        "requiredResources": _found(request.required_resources),
    }


def carry_out(
    objects: list[Any], target: str, bases: Iterable[Base], request: FunctionRequest, response: FunctionResponse
) -> None:
    """Put what the program gave into the response. Raises Refused."""
    for index, given in enumerate(objects):
        if not isinstance(given, dict):
            raise Refused(f"item {index} of what the KCL program gives is {_kind_of(given)}, not an object")
    composite = response.desired.composite
    composite.resource = _typed_as(request.observed.composite.resource, composite.resource)
    if target == XR:
        for given in objects:
            composite.resource = patched(composite.resource, given)
    elif target == RESOURCES:
        _add(objects, response)
    elif target in (PATCH_DESIRED, PATCH_RESOURCES):
        for base in bases if target == PATCH_RESOURCES else ():
            response.desired.resources[base.name] = Resource(deepcopy(base.resource))
        _patch(objects, response)
    else:
        _sort(objects, request, response)


def patched(under: Any, over: Any, path: tuple[str, ...] = (), keep: frozenset[tuple[str, ...]] = frozenset()) -> Any:
    """`under` with every value that `over` has, list items by their index; `keep` names paths that stay as they are."""
    if path in keep:
        return under
    if isinstance(over, dict):
        result = dict(under) if isinstance(under, dict) else {}
        for key, value in over.items():
            changed = patched(result.get(key), value, (*path, key), keep)
            if changed is not None or key in result or (*path, key) not in keep:
                result[key] = changed
        return result
    if isinstance(over, list):
        before = under if isinstance(under, list) else []
        both = [patched(old, new, (*path, "[]"), keep) for old, new in zip(before, over, strict=False)]
        return [*both, *before[len(over) :], *over[len(before) :]]
    return over


def _add(objects: list[Object], response: FunctionResponse) -> None:
    names: dict[str, str] = {}
    for given in objects:
        name = _take_name(given)
        _refuse_second(names, name, given)
        known = response.desired.resources.get(name)
        response.desired.resources[name] = _composed({**known.resource, **given} if known else given)


def _patch(objects: list[Object], response: FunctionResponse) -> None:
    desired = response.desired.resources
    named = [(_take_name(given), given) for given in objects]
    missing = [name for name, _ in named if name not in desired]
    if missing:
        raise Refused(
            f"failed to match all resources, found {len(named) - len(missing)} / {len(named)} patches;"
            f" no desired resource is named {', '.join(sorted(set(missing)))}"
        )
    for name, given in named:
        known = desired[name]
        desired[name] = _composed(patched(known.resource, given, keep=_IDENTITY), known)


def _sort(objects: list[Object], request: FunctionRequest, response: FunctionResponse) -> None:
    xr = request.observed.composite.resource
    names: dict[str, str] = {}
    for given in objects:
        if _is_like(given, xr):
            _merge_status(given, response)
        elif given.get("apiVersion") == META:
            _META_KINDS.get(str(given.get("kind")), _refuse_kind)(given, response)
        else:
            name = _take_name(given)
            _refuse_second(names, name, given)
            response.desired.resources[name] = _composed(given)


def _is_like(given: Object, xr: Object) -> bool:
    return all((given.get(member) or "") == (xr.get(member) or "") for member in ("apiVersion", "kind"))


def _merge_status(given: Object, response: FunctionResponse) -> None:
    status = given.get("status")
    composite = response.desired.composite
    known = composite.resource.get("status") or {}
    composite.resource = {
        **composite.resource,
        "status": merged(known, status) if isinstance(status, dict) else known,
    }


def _connection_details(given: Object, response: FunctionResponse) -> None:
    add_connection_details(response, _member(given, "data", dict))


def _extra_resources(given: Object, response: FunctionResponse) -> None:
    for name, entry in _member(given, "requirements", dict).items():
        selector = _selector(name, entry, entry_name="matchName", namespace="matchNamespace")
        _require(response.requirements.extra_resources, name, selector, "extra")


def _required_resources(given: Object, response: FunctionResponse) -> None:
    for name, entry in _member(given, "requirements", dict).items():
        selector = _selector(name, entry, entry_name="name", namespace="namespace")
        _require(response.requirements.resources, name, selector, "required")


def _selector(key: str, entry: Any, *, entry_name: str, namespace: str) -> ResourceSelector:
    if not isinstance(entry, dict):
        raise Refused(f'requirements "{key}" is {_kind_of(entry)}, not an object')
    name = str(entry.get(entry_name) or "")
    return ResourceSelector(
        str(entry.get("apiVersion") or ""),
        str(entry.get("kind") or ""),
        name,
        None if name else dict(entry.get("matchLabels") or {}),
        entry.get(namespace) or None,
    )


def _require(wanted: dict[str, ResourceSelector], key: str, selector: ResourceSelector, what: str) -> None:
    if key in wanted:
        raise Refused(f'duplicate {what} resource key "{key}"')
    wanted[key] = selector


def _conditions(given: Object, response: FunctionResponse) -> None:
    for entry in _member(given, "conditions", list):
        condition = _member(entry, "condition", dict)
        kind = str(condition.get("type") or "")
        if kind in _RESERVED:
            raise Refused(f"cannot set ClaimCondition type: {kind} is a reserved Crossplane Condition")
        if any(known.type == kind for known in response.conditions) and entry.get("force") is not True:
            continue
        response.conditions.append(
            Condition(
                kind,
                _STATUS.get(str(condition.get("status")), Status.UNKNOWN),
                str(condition.get("reason") or ""),
                str(condition.get("message") or ""),
                _target(entry),
            )
        )


def _events(given: Object, response: FunctionResponse) -> None:
    for entry in _member(given, "events", list):
        event = _member(entry, "event", dict)
        kind = str(event.get("type") or "Normal")
        if kind not in _SEVERITIES:
            raise Refused(f"invalid type {kind}, must be one of [Normal, Warning]")
        message, reason = str(event.get("message") or ""), str(event.get("reason") or "")
        response.results.append(Result(_SEVERITIES[kind], message, reason, _target(entry)))


def _context(given: Object, response: FunctionResponse) -> None:
    response.context = merged(response.context, _member(given, "data", dict))


def _refuse_kind(given: Object, response: FunctionResponse) -> None:
    known = ", ".join(sorted(_META_KINDS))
    raise Refused(f'invalid kind "{given.get("kind")}" for apiVersion "{META}" - must be one of {known}')


_META_KINDS: Final = {
    "CompositeConnectionDetails": _connection_details,
    "Conditions": _conditions,
    "Context": _context,
    "Events": _events,
    "ExtraResources": _extra_resources,
    "RequiredResources": _required_resources,
}


def _composed(given: Object, known: Resource | None = None) -> Resource:
    """A desired resource, with the readiness that its annotation says, which is then gone."""
    ready = _take_annotation(given, READY_ANNOTATION)
    if ready is None:
        return Resource(given, ready=known.ready if known else Ready.UNSPECIFIED)
    if ready not in _READY:
        raise Refused(
            f'invalid function input: invalid "{READY_ANNOTATION}" annotation value "{ready}":'
            " must be True, False, or Unspecified"
        )
    return Resource(given, ready=_READY[ready])


def _refuse_second(names: dict[str, str], name: str, given: Object) -> None:
    what = f"{given.get('kind') or ''}/{_metadata(given).get('name') or ''}"
    if name in names:
        raise Refused(
            f'multiple composed resources with name "{name}" returned: {names[name]} and {what}. Set different'
            f' metadata.name or metadata.annotations."{NAME_ANNOTATION}" to distinguish them.'
        )
    names[name] = what


def _take_name(given: Object) -> str:
    name = _take_annotation(given, NAME_ANNOTATION)
    return str(_metadata(given).get("name") or "") if name is None else name


def _take_annotation(given: Object, key: str) -> str | None:
    """The annotation, which is then gone. An empty map of annotations stays, as function-kcl leaves it."""
    annotations = _metadata(given).get("annotations")
    if not isinstance(annotations, dict) or key not in annotations:
        return None
    return str(annotations.pop(key))


def _metadata(given: Object) -> Mapping[str, Any]:
    metadata = given.get("metadata")
    return metadata if isinstance(metadata, dict) else {}


def _member(given: Any, name: str, kind: type) -> Any:
    if not isinstance(given, dict):
        raise Refused(f"{_kind_of(given)} where an object with {name} is expected")
    value = given.get(name)
    if value is None:
        return kind()
    if not isinstance(value, kind):
        raise Refused(f"{given.get('kind') or 'object'}: {name} must be {'an object' if kind is dict else 'a list'}")
    return value


def _target(entry: Object) -> Target:
    return _TARGETS.get(str(entry.get("target")), Target.COMPOSITE)


def _typed_as(xr: Object, other: Object) -> Object:
    return {**other, "apiVersion": xr.get("apiVersion") or "", "kind": xr.get("kind") or ""}


def _found(resources: Mapping[str, list[Resource]]) -> Object:
    return {name: [{"Resource": one.resource} for one in some] for name, some in resources.items()}


def _encoded(details: Mapping[str, bytes]) -> dict[str, str] | None:
    return {key: base64.b64encode(value).decode() for key, value in details.items()} or None


def _kind_of(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "a boolean"
    if isinstance(value, int | float):
        return "a number"
    return "a text" if isinstance(value, str) else "a list"
