"""tag-manager: tags, labels and annotations on all composed resources at once.

Reads `ManagedTags` of `tag-manager.fn.crossplane.io/v1beta1`. Tags go to `spec.forProvider.tags` of managed resources;
`field` says labels or annotations instead, which every resource can have.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, Final

import msgspec

from planform.builtin.compiled import CompiledFunction, Program, Refused
from planform.builtin.environment import environment_of
from planform.builtin.inputs import InputObject, Part, check_kind, convert_input, refuse_invalid, required
from planform.builtin.patterns import compile_pattern, pattern_errors
from planform.builtin.selection import path_errors
from planform.errors import FieldError
from planform.functions.values import FunctionRequest, FunctionResponse, Object, Resource
from planform.machinery.fieldpath import FieldNotFound, FieldPathError, parse_path
from planform.machinery.names import invalid

OPT_OUT: Final = "tag-manager.fn.crossplane.io/ignore-resource"
"""An annotation or label; True keeps a resource as it is."""
_FIELDS: Final = {
    "Tags": ("spec", "forProvider", "tags"),
    "Labels": ("metadata", "labels"),
    "Annotations": ("metadata", "annotations"),
}
_TAGGED_CLOUDS: Final = ("aws.upbound.io", "aws.m.upbound.io", "azure.upbound.io", "azure.m.upbound.io")
_TYPES: Final = ("FromValue", "FromCompositeFieldPath", "FromEnvironmentFieldPath")
_POLICIES: Final = ("Replace", "Retain")


class Entry(Part, frozen=True, kw_only=True):
    """Where tags, or keys of tags, come from, and which field of a resource they are for."""

    type: str = "FromValue"
    from_field_path: str = ""
    policy: str = "Replace"
    field: str = "Tags"


class AddTags(Entry, frozen=True, kw_only=True):
    tags: dict[str, str] = msgspec.field(default_factory=dict)


class Keys(Entry, frozen=True, kw_only=True):
    keys: tuple[str, ...] = ()


class Input(InputObject, frozen=True, kw_only=True):
    add_tags: tuple[AddTags, ...] = ()
    ignore_tags: tuple[Keys, ...] = ()
    remove_tags: tuple[Keys, ...] = ()
    resources: tuple[str, ...] = ()


Change = Callable[[Object, Object], None]
"""Changes the desired object, its own copy, given the observed one, which is empty while there is none."""


def _compile(value: Any) -> Program:
    check_kind(value, ("tag-manager.fn.crossplane.io/v1beta1", "ManagedTags"))
    spec = convert_input(value, Input)
    refuse_invalid(_errors(spec))
    patterns = [compile_pattern(f"^(?:{each})$").search for each in spec.resources]

    def run(request: FunctionRequest, response: FunctionResponse) -> None:
        changes = list(_changes(spec, request))
        for name, desired in request.desired.resources.items():
            named = any(matches(name) for matches in patterns)
            if (patterns and not named) or _opts_out(desired.resource):
                continue
            made = _copied(desired.resource)
            observed = request.observed.resources.get(name)
            for field, change in changes:
                if field != "Tags" or _takes_tags(made, named=named):
                    change(made, observed.resource if observed is not None else {})
            response.desired.resources[name] = Resource(made, desired.connection_details, desired.ready)

    return run


def _changes(spec: Input, request: FunctionRequest) -> Iterator[tuple[str, Change]]:
    for add in spec.add_tags:
        tags = add.tags if add.type == "FromValue" else _found(add, request, _as_tags)
        yield add.field, partial(_add, add, tags)
    for ignore in spec.ignore_tags:
        keys = ignore.keys if ignore.type == "FromValue" else _found(ignore, request, _as_keys)
        yield ignore.field, partial(_keep_observed, ignore, keys)
    for remove in spec.remove_tags:
        keys = remove.keys if remove.type == "FromValue" else _found(remove, request, _as_keys)
        yield remove.field, partial(_remove, _FIELDS[remove.field], keys)


def _add(entry: Entry, tags: Mapping[str, str], desired: Object, observed: Object) -> None:
    if not tags:
        return
    *parents, last = _FIELDS[entry.field]
    inner = desired
    for parent in parents:
        inner = _object_in(inner, parent)
    present = _object_in(inner, last)
    inner[last] = {**present, **tags} if entry.policy == "Replace" else {**tags, **present}


def _keep_observed(entry: Entry, keys: tuple[str, ...], desired: Object, observed: Object) -> None:
    """Take over the tags that others have put on the resource, so that nobody takes them away."""
    _add(entry, _observed_tags(observed, keys, entry.field), desired, observed)


def _remove(path: tuple[str, ...], keys: tuple[str, ...], desired: Object, observed: Object) -> None:
    *parents, last = path
    inner: Any = desired
    for parent in parents:
        inner = inner.get(parent) if isinstance(inner, dict) else None
    if isinstance(inner, dict) and isinstance(inner.get(last), dict):
        inner[last] = {key: value for key, value in inner[last].items() if key not in keys}


def _observed_tags(observed: Object, keys: tuple[str, ...], field: str) -> Mapping[str, str]:
    """As the provider reports them, else as they were asked for."""
    places = [("status", "atProvider", "tags"), _FIELDS["Tags"]] if field == "Tags" else [_FIELDS[field]]
    for place in places:
        found: Any = observed
        for name in place:
            found = found.get(name) if isinstance(found, dict) else None
        if isinstance(found, dict):
            return {key: found[key] for key in keys if isinstance(found.get(key), str)}
    return {}


def _found(entry: Entry, request: FunctionRequest, read: Callable[[str, Any], Any]) -> Any:
    """What is at the entry's path in the XR or the environment; nothing there is no tags."""
    source = request.observed.composite.resource
    if entry.type == "FromEnvironmentFieldPath":
        source = environment_of(request.context)
    try:
        return read(entry.from_field_path, parse_path(entry.from_field_path).get(source))
    except FieldNotFound:
        return read(entry.from_field_path, None)
    except FieldPathError as error:
        raise Refused(f"cannot get tags: {error}") from None


def _as_tags(path: str, value: Any) -> Mapping[str, str]:
    if value is None:
        return {}
    if not isinstance(value, dict) or not all(isinstance(tag, str) for tag in value.values()):
        raise Refused(f"cannot get tags: {path}: must be an object of strings")
    return value


def _as_keys(path: str, value: Any) -> tuple[str, ...]:
    if value is None:
        return ()
    if not isinstance(value, list) or not all(isinstance(key, str) for key in value):
        raise Refused(f"cannot get tags: {path}: must be a list of strings")
    return tuple(value)


def _takes_tags(resource: Object, *, named: bool) -> bool:
    """Managed resources of clouds that have tags; one that the input names is taken at its word."""
    spec = resource.get("spec")
    if not isinstance(spec, dict) or not isinstance(spec.get("forProvider"), dict):
        return False
    group = str(resource.get("apiVersion") or "").rpartition("/")[0]
    return named or group.endswith(_TAGGED_CLOUDS)


def _opts_out(resource: Object) -> bool:
    metadata = resource.get("metadata")
    for field in ("annotations", "labels"):
        found = metadata.get(field) if isinstance(metadata, dict) else None
        if isinstance(found, dict) and str(found.get(OPT_OUT)) in ("True", "true"):
            return True
    return False


def _copied(resource: Object) -> Object:
    """A copy down to where tags are; the rest is shared, and stays as it is."""
    copy = dict(resource)
    for name in ("metadata", "spec"):
        if isinstance(copy.get(name), dict):
            copy[name] = dict(copy[name])
    spec = copy.get("spec")
    if isinstance(spec, dict) and isinstance(spec.get("forProvider"), dict):
        spec["forProvider"] = dict(spec["forProvider"])
    return copy


def _object_in(value: Object, name: str) -> Object:
    if not isinstance(value.get(name), dict):
        value[name] = {}
    inner: Object = value[name]
    return inner


def _errors(spec: Input) -> Iterator[FieldError]:
    entries: Mapping[str, tuple[Entry, ...]] = {
        "addTags": spec.add_tags,
        "ignoreTags": spec.ignore_tags,
        "removeTags": spec.remove_tags,
    }
    for member, listed in entries.items():
        for index, entry in enumerate(listed):
            yield from _entry_errors(f"{member}[{index}]", entry)
    for index, pattern in enumerate(spec.resources):
        yield from pattern_errors(f"resources[{index}]", pattern)


def _entry_errors(path: str, entry: Entry) -> Iterator[FieldError]:
    for member, value, known in (
        ("type", entry.type, _TYPES),
        ("policy", entry.policy, _POLICIES),
        ("field", entry.field, tuple(_FIELDS)),
    ):
        if value not in known:
            yield invalid(f"{path}.{member}", value, f"must be one of {', '.join(known)}")
    if entry.type != "FromValue":
        if not entry.from_field_path:
            yield required(f"{path}.fromFieldPath")
        yield from path_errors(f"{path}.fromFieldPath", entry.from_field_path)


function: Final = CompiledFunction("tag-manager", _compile)
