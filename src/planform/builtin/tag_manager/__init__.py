"""tag-manager: tags, labels and annotations on all composed resources at once.

Reads `ManagedTags` of `tag-manager.fn.crossplane.io/v1beta1`. Tags go to `spec.forProvider.tags` of managed resources;
`field` says labels or annotations instead, which every resource can have.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from planform.apimachinery.fieldpath import FieldPathError, parse_path
from planform.apimachinery.names import invalid
from planform.builtin.compiled import CompiledFunction, Program, normal, warn
from planform.builtin.environment import environment_of
from planform.builtin.inputs import InputObject, Part, convert_input, given_object, refuse_invalid, required
from planform.builtin.patterns import compile_pattern, pattern_errors
from planform.builtin.tag_manager.kinds import is_known_to_take_tags
from planform.errors import FieldError
from planform.functions.values import FunctionRequest, FunctionResponse, Object, Resource, SchemaSelector

OPT_OUT: Final = "tag-manager.fn.crossplane.io/ignore-resource"
"""An annotation or label; True keeps a resource as it is."""
_FIELDS: Final = {
    "Tags": ("spec", "forProvider", "tags"),
    "Labels": ("metadata", "labels"),
    "Annotations": ("metadata", "annotations"),
}
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


Tags = dict[str, str]


@dataclass(frozen=True, slots=True)
class _Additions:
    """Tags to put on a resource: those that win over its own, and those that its own win over."""

    replacing: Tags = field(default_factory=dict)
    retaining: Tags = field(default_factory=dict)

    def take(self, policy: str, tags: Mapping[str, str]) -> None:
        """Of two entries with one policy the first wins, unless it has nothing but an empty text."""
        _fill_in(self.retaining if policy == "Retain" else self.replacing, tags)

    def put_on(self, desired: Object, place: tuple[str, ...]) -> None:
        if not self.replacing and not self.retaining:
            return
        *parents, last = place
        inner = desired
        for parent in parents:
            inner = _object_in(inner, parent)
        own = dict(_object_in(inner, last))
        _fill_in(own, self.retaining)
        inner[last] = own | self.replacing


def _fill_in(tags: Tags, more: Mapping[str, str]) -> None:
    for key, value in more.items():
        if not tags.get(key):
            tags[key] = value


def _compile(value: Any) -> Program:
    spec = convert_input(given_object(value), Input)
    refuse_invalid(_errors(spec))
    mistaken = list(_mistakes(spec))
    patterns = [compile_pattern(f"^(?:{each})$").search for each in spec.resources]
    fields = sorted({entry.field for listed in (spec.add_tags, spec.ignore_tags, spec.remove_tags) for entry in listed})

    def run(request: FunctionRequest, response: FunctionResponse) -> None:
        for mistake in mistaken:
            warn(response, mistake)
        for name, desired in request.desired.resources.items():
            named = any(matches(name) for matches in patterns)
            if (patterns and not named) or _opts_out(desired.resource):
                continue
            made = _copied(desired.resource)
            observed = request.observed.resources.get(name)
            for each in fields:
                if each != "Tags" or _takes_tags(made, request, response, named=named):
                    _change(spec, each, request, made, observed.resource if observed is not None else None)
            response.desired.resources[name] = Resource(made, desired.connection_details, desired.ready)
        normal(response, "Successfully Processed tags")

    return run


def _change(spec: Input, field: str, request: FunctionRequest, desired: Object, observed: Object | None) -> None:
    """Put one field of a resource, its own copy, as the input wants it."""
    place = _FIELDS[field]
    additions = _Additions()
    for add in spec.add_tags:
        if add.field == field:
            additions.take(add.policy, _texts_in(add.tags if add.type == "FromValue" else _found(add, request)))
    additions.put_on(desired, place)
    kept = _Additions()
    present = _observed_tags(observed, field)
    for ignore in spec.ignore_tags:
        # Tags that others have put on the resource are taken over, so that nobody takes them away.
        if ignore.field == field:
            kept.take(ignore.policy, {key: present[key] for key in _keys(ignore, request) if key in present})
    kept.put_on(desired, place)
    for remove in spec.remove_tags:
        if remove.field == field:
            _remove(desired, place, _keys(remove, request))


def _remove(desired: Object, place: tuple[str, ...], keys: Iterable[str]) -> None:
    *parents, last = place
    inner: Any = desired
    for parent in parents:
        inner = inner.get(parent) if isinstance(inner, dict) else None
    if isinstance(inner, dict) and isinstance(inner.get(last), dict):
        gone = set(keys)
        inner[last] = {key: value for key, value in inner[last].items() if key not in gone}


def _observed_tags(observed: Object | None, field: str) -> Tags:
    """As the provider reports them."""
    found: Any = observed
    for name in ("status", "atProvider", "tags") if field == "Tags" else _FIELDS[field]:
        found = found.get(name) if isinstance(found, dict) else None
    return _texts_in(found)


def _texts_in(value: Any) -> Tags:
    """What is no text, or is not even an object, is passed over."""
    return {key: text for key, text in value.items() if isinstance(text, str)} if isinstance(value, dict) else {}


def _keys(entry: Keys, request: FunctionRequest) -> Sequence[str]:
    found = entry.keys if entry.type == "FromValue" else _found(entry, request)
    return [key for key in found if isinstance(key, str)] if isinstance(found, list | tuple) else ()


def _found(entry: Entry, request: FunctionRequest) -> Any:
    """What is at the entry's path in the XR or the environment; None if nothing is, or the path is none."""
    if entry.type not in _TYPES:
        return None
    source = request.observed.composite.resource
    if entry.type == "FromEnvironmentFieldPath":
        source = environment_of(request.context)
    try:
        return parse_path(entry.from_field_path).get(source)
    except FieldPathError:
        return None


def _takes_tags(resource: Object, request: FunctionRequest, response: FunctionResponse, *, named: bool) -> bool:
    """Whether a resource's kind has tags: as the schema says that the control plane serves, for which this asks; where
    none is served, as the input says by naming the resource, or as is known of its kind."""
    api_version, kind = str(resource.get("apiVersion") or ""), str(resource.get("kind") or "")
    group = api_version.rpartition("/")[0]
    known = is_known_to_take_tags(group, kind)
    spec = resource.get("spec")
    if not known and not (isinstance(spec, dict) and isinstance(spec.get("forProvider"), dict)):
        return False
    requirement = f"{api_version}/{kind}"
    response.requirements.schemas[requirement] = SchemaSelector(api_version, kind)
    schema: Any = request.required_schemas.get(requirement)
    if schema is None:
        return named or known
    for name in _FIELDS["Tags"]:
        members = schema.get("properties") if isinstance(schema, dict) else None
        schema = members.get(name) if isinstance(members, dict) else None
    return isinstance(schema, dict) and schema.get("type") == "object"


def _opts_out(resource: Object) -> bool:
    """The annotation decides where there is one, else the label."""
    metadata = resource.get("metadata")
    for member in ("annotations", "labels"):
        found = metadata.get(member) if isinstance(metadata, dict) else None
        if isinstance(found, dict) and isinstance(found.get(OPT_OUT), str):
            return bool(found[OPT_OUT].lower() == "true")
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


def _entries(spec: Input) -> Iterator[tuple[str, Entry]]:
    for member, listed in (
        ("addTags", spec.add_tags),
        ("ignoreTags", spec.ignore_tags),
        ("removeTags", spec.remove_tags),
    ):
        for index, entry in enumerate(listed):
            yield f"{member}[{index}]", entry


def _errors(spec: Input) -> Iterator[FieldError]:
    for path, entry in _entries(spec):
        if entry.field not in _FIELDS:
            yield invalid(f"{path}.field", entry.field, f"must be one of {', '.join(_FIELDS)}")
        if entry.type in _TYPES[1:] and not entry.from_field_path:
            yield required(f"{path}.fromFieldPath")
    for index, pattern in enumerate(spec.resources):
        yield from pattern_errors(f"resources[{index}]", pattern)


def _mistakes(spec: Input) -> Iterator[str]:
    for path, entry in _entries(spec):
        if entry.type not in _TYPES:
            yield f'{path}.type: "{entry.type}" is none of {", ".join(_TYPES)}, so that the entry does nothing'
        if entry.policy not in _POLICIES:
            yield f'{path}.policy: "{entry.policy}" is neither Replace nor Retain, and counts as Replace'


function: Final = CompiledFunction("tag-manager", _compile)
