"""Choosing other resources: by name, or by labels whose values may come from the XR.

environment-configs, extra-resources and the environment of patch-and-transform describe what they want in the same
words. A call first says what it needs; once the caller has fetched that, the same call chooses from what was found.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from planform.builtin.compiled import Refused
from planform.builtin.inputs import Part, required
from planform.errors import FieldError
from planform.functions.values import FunctionRequest, FunctionResponse, Object, Resource, ResourceSelector
from planform.machinery.fieldpath import FieldNotFound, FieldPathError, parse_path
from planform.machinery.names import invalid

_RESOLUTIONS: Final = ("Required", "Optional")


class SelectionPolicy(Part, frozen=True, kw_only=True):
    """`resolve` is read for the sake of Compositions that carry it: a selection is made anew on every run."""

    resolution: str = "Required"
    resolve: str = "Always"

    @property
    def optional(self) -> bool:
        return self.resolution == "Optional"


class Reference(Part, frozen=True, kw_only=True):
    name: str = ""


class LabelMatch(Part, frozen=True, kw_only=True):
    key: str = ""
    type: str = "FromCompositeFieldPath"
    value: str | None = None
    value_from_field_path: str | None = None
    from_field_path_policy: str = "Required"


class LabelSelector(Part, frozen=True, kw_only=True):
    min_match: int = 0
    max_match: int | None = None
    sort_by_field_path: str = "metadata.name"
    match_labels: tuple[LabelMatch, ...] = ()


class ModalSelector(LabelSelector, frozen=True, kw_only=True):
    mode: str = "Single"


class SelectedConfig(Part, frozen=True, kw_only=True):
    """One entry of `environmentConfigs`."""

    type: str = "Reference"
    ref: Reference | None = None
    selector: ModalSelector | None = None
    to_field_path: str = ""


class SelectedResource(Part, frozen=True, kw_only=True):
    """One entry of `extraResources`."""

    type: str = "Reference"
    ref: Reference | None = None
    selector: LabelSelector | None = None
    api_version: str = ""
    kind: str = ""
    namespace: str | None = None
    into: str = ""


Selected = SelectedConfig | SelectedResource


def selection_errors(entry: Selected, path: str) -> Iterator[FieldError]:
    """What is wrong with one entry, whatever the XR."""
    match entry.type:
        case "Reference":
            if entry.ref is None or not entry.ref.name:
                yield required(f"{path}.ref.name", "a Reference needs the name of a resource")
        case "Selector":
            if entry.selector is None:
                yield required(f"{path}.selector", "a Selector needs labels to select by")
            else:
                yield from _selector_errors(entry.selector, f"{path}.selector")
        case other:
            yield invalid(f"{path}.type", other, "must be Reference or Selector")
    if isinstance(entry, SelectedConfig) and entry.to_field_path:
        yield from path_errors(f"{path}.toFieldPath", entry.to_field_path)


def policy_errors(policy: SelectionPolicy, path: str) -> Iterator[FieldError]:
    if policy.resolution not in _RESOLUTIONS:
        yield invalid(f"{path}.resolution", policy.resolution, "must be Required or Optional")
    if policy.resolve not in ("Always", "IfNotPresent"):
        yield invalid(f"{path}.resolve", policy.resolve, "must be Always or IfNotPresent")


def path_errors(path: str, text: str) -> Iterator[FieldError]:
    """The error of a field path that does not parse."""
    try:
        parse_path(text)
    except FieldPathError as error:
        yield invalid(path, text, str(error))


def selector_for(
    entry: Selected, xr: Object, *, api_version: str, kind: str, namespace: str | None = None
) -> ResourceSelector | None:
    """What to ask for; None if a selector is left without labels, since that would select everything."""
    if entry.ref is not None and entry.type == "Reference":
        return ResourceSelector(api_version, kind, match_name=entry.ref.name, namespace=namespace)
    assert entry.selector is not None, "checked by selection_errors"
    labels = dict(_labels(entry.selector.match_labels, xr))
    return ResourceSelector(api_version, kind, match_labels=labels, namespace=namespace) if labels else None


def fetched(
    request: FunctionRequest, response: FunctionResponse, wanted: Mapping[str, ResourceSelector]
) -> Mapping[str, Sequence[Object]] | None:
    """Ask for everything that is wanted; give what was found, by name, or None while something was not looked for."""
    response.requirements.resources.update(wanted)
    if any(name not in request.required_resources for name in wanted):
        return None
    return {name: _objects(request.required_resources[name]) for name in wanted}


def choose(entry: Selected, found: Sequence[Object], *, optional: bool, what: str) -> Sequence[Object]:
    """Those of the found objects that the entry means, in its order. Raises Refused if they are not as it demands."""
    if entry.ref is not None and entry.type == "Reference":
        if not found and not optional:
            raise Refused(f'cannot find {what} "{entry.ref.name}"')
        return found[:1]
    selector = entry.selector
    assert selector is not None, "checked by selection_errors"
    if isinstance(selector, ModalSelector) and selector.mode == "Single":
        if len(found) != 1:
            raise Refused(f"expected exactly one {what} to match the selector, found {len(found)}")
        return found
    if len(found) < selector.min_match:
        raise Refused(f"expected at least {selector.min_match} of {what} to match the selector, found {len(found)}")
    ordered = _sorted(found, selector.sort_by_field_path, what)
    return ordered if selector.max_match is None else ordered[: selector.max_match]


def _selector_errors(selector: LabelSelector, path: str) -> Iterator[FieldError]:
    if isinstance(selector, ModalSelector) and selector.mode not in ("Single", "Multiple"):
        yield invalid(f"{path}.mode", selector.mode, "must be Single or Multiple")
    if selector.min_match < 0:
        yield invalid(f"{path}.minMatch", selector.min_match, "must not be negative")
    if selector.max_match is not None and selector.max_match < max(selector.min_match, 1):
        yield invalid(f"{path}.maxMatch", selector.max_match, "must be at least 1, and at least minMatch")
    yield from path_errors(f"{path}.sortByFieldPath", selector.sort_by_field_path)
    for index, match in enumerate(selector.match_labels):
        yield from _label_errors(match, f"{path}.matchLabels[{index}]")


def _label_errors(match: LabelMatch, path: str) -> Iterator[FieldError]:
    if not match.key:
        yield required(f"{path}.key")
    match match.type:
        case "Value":
            if match.value is None:
                yield required(f"{path}.value")
        case "FromCompositeFieldPath":
            if not match.value_from_field_path:
                yield required(f"{path}.valueFromFieldPath")
            else:
                yield from path_errors(f"{path}.valueFromFieldPath", match.value_from_field_path)
        case other:
            yield invalid(f"{path}.type", other, "must be FromCompositeFieldPath or Value")
    if match.from_field_path_policy not in _RESOLUTIONS:
        yield invalid(f"{path}.fromFieldPathPolicy", match.from_field_path_policy, "must be Required or Optional")


def _labels(matches: Sequence[LabelMatch], xr: Object) -> Iterator[tuple[str, str]]:
    for match in matches:
        if match.type == "Value":
            yield match.key, match.value or ""
            continue
        path = match.value_from_field_path or ""
        try:
            value = parse_path(path).get(xr)
        except FieldPathError as error:
            if isinstance(error, FieldNotFound) and match.from_field_path_policy == "Optional":
                continue
            raise Refused(f'cannot get the value of label "{match.key}" from the composite resource: {error}') from None
        if not isinstance(value, str):
            raise Refused(
                f'cannot get the value of label "{match.key}" from the composite resource: {path}: not a string'
            )
        yield match.key, value


def _objects(found: Sequence[Resource]) -> Sequence[Object]:
    return [each.resource for each in found]


def _sorted(found: Sequence[Object], path: str, what: str) -> Sequence[Object]:
    """By the value at a path: numbers or texts, of one kind; what has no value sorts first."""
    get = parse_path(path).get
    values: list[Any] = []
    for each in found:
        try:
            values.append(get(each))
        except FieldNotFound:
            values.append(None)
        except FieldPathError as error:
            raise Refused(f"cannot sort {what}: {error}") from None
    present = [value for value in values if value is not None]
    if present and not all(type(value) is str for value in present):
        if not all(type(value) in (int, float) for value in present):
            raise Refused(f'cannot sort {what} by "{path}": the values must all be numbers or all be strings')
        zero: Any = 0
    else:
        zero = ""
    keyed = sorted(zip(values, found, strict=True), key=lambda pair: zero if pair[0] is None else pair[0])
    return [each for _, each in keyed]
