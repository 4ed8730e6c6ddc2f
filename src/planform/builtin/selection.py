"""Choosing other resources: by name, or by labels whose values may come from the XR.

environment-configs, extra-resources and the environment of patch-and-transform describe what they want in the same
words. A call first says what it needs; once the caller has fetched that, the same call chooses from what was found.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Annotated, Any, Final

import msgspec

from planform.apimachinery.fieldpath import FieldNotFound, FieldPathError, parse_path
from planform.apimachinery.names import invalid
from planform.builtin.compiled import Refused, warn
from planform.builtin.inputs import Part, required
from planform.errors import FieldError
from planform.functions.values import FunctionRequest, FunctionResponse, Object, ResourceSelector
from planform.gotemplate.quoting import quote

_LABEL_SOURCES: Final = {"FromCompositeFieldPath": "composite", "FromEnvironmentFieldPath": "environment"}


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
    min_match: Annotated[int, msgspec.Meta(ge=0)] = 0
    max_match: Annotated[int, msgspec.Meta(ge=0)] | None = None
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
    """What no XR could make right: a part is missing without which nothing can be asked for."""
    if entry.type == "Reference" and entry.ref is None:
        yield required(f"{path}.ref", "a Reference needs the name of a resource")
    if entry.type != "Selector":
        return
    if entry.selector is None:
        yield required(f"{path}.selector", "a Selector needs labels to select by")
        return
    for index, match in enumerate(entry.selector.match_labels):
        at = f"{path}.selector.matchLabels[{index}]"
        if match.type == "Value" and match.value is None:
            yield required(f"{at}.value")
        if match.type in _LABEL_SOURCES and match.value_from_field_path is None:
            yield required(f"{at}.valueFromFieldPath")


def mistakes(entry: Selected, path: str) -> Iterator[str]:
    """What is accepted and cannot be meant."""
    if entry.type not in ("Reference", "Selector"):
        yield f'{path}.type: "{entry.type}" is neither Reference nor Selector, so that the entry does nothing'
    elif entry.selector is not None and entry.selector.max_match == 0:
        yield f"{path}.selector.maxMatch: 0 selects nothing"
    elif entry.ref is not None and entry.type == "Reference" and not entry.ref.name:
        yield f"{path}.ref.name: is empty, and nothing has an empty name"


def warn_of_mistakes(response: FunctionResponse, found: Iterable[str]) -> None:
    for each in found:
        warn(response, each)


def path_errors(path: str, text: str) -> Iterator[FieldError]:
    """The error of a field path that does not parse."""
    try:
        parse_path(text)
    except FieldPathError as error:
        yield invalid(path, text, str(error))


def selector_for(
    entry: Selected, xr: Object, environment: Object, *, api_version: str, kind: str, namespace: str | None = None
) -> ResourceSelector | None:
    """What to ask for; None if a selector is left without labels, since that would select everything."""
    if entry.ref is not None and entry.type == "Reference":
        return ResourceSelector(api_version, kind, match_name=entry.ref.name, namespace=namespace)
    if entry.selector is None or entry.type != "Selector":
        return None
    labels = dict(_labels(entry.selector.match_labels, {"composite": xr, "environment": environment}))
    return ResourceSelector(api_version, kind, match_labels=labels, namespace=namespace) if labels else None


def fetched(
    request: FunctionRequest, response: FunctionResponse, wanted: Mapping[str, ResourceSelector]
) -> Mapping[str, Sequence[Object]] | None:
    """Ask for everything that is wanted; give all that was found, by name, or None while something that is wanted was
    not looked for."""
    response.requirements.resources.update(wanted)
    if any(name not in request.required_resources for name in wanted):
        return None
    return {name: [each.resource for each in found] for name, found in request.required_resources.items()}


def choose_by_labels(selector: LabelSelector, found: Sequence[Object], *, what: str, named: str = "") -> list[Object]:
    """Those of the found objects that a selector means, in its order. Raises Refused if it demands more."""
    if len(found) < selector.min_match:
        raise Refused(f"expected at least {selector.min_match} {what}s{named}, got {len(found)}")
    ordered = _sorted(found, selector.sort_by_field_path)
    return ordered if selector.max_match is None else ordered[: selector.max_match]


def _labels(matches: Sequence[LabelMatch], sources: Mapping[str, Object]) -> Iterator[tuple[str, str]]:
    for match in matches:
        if match.type == "Value":
            yield match.key, match.value or ""
        elif match.type in _LABEL_SOURCES:
            path = match.value_from_field_path or ""
            try:
                yield match.key, _text_at(path, sources[_LABEL_SOURCES[match.type]])
            except FieldPathError as error:
                if match.from_field_path_policy != "Optional":
                    raise Refused(f"cannot get value from field path {quote(path)}: {error}") from None


def _text_at(path: str, source: Object) -> str:
    value = parse_path(path).get(source)
    if not isinstance(value, str):
        raise FieldPathError(f"{path}: not a string")
    return value


def _sorted(found: Sequence[Object], path: str) -> list[Object]:
    """By the value at a path: numbers or texts, of one kind; what has no value sorts first."""
    if not path:
        raise Refused("cannot sort by empty field path")
    values: list[Any] = []
    for each in found:
        try:
            values.append(parse_path(path).get(each))
        except FieldNotFound:
            values.append(None)
        except FieldPathError as error:
            raise Refused(str(error)) from None
    present = [value for value in values if value is not None]
    if not present:
        return list(found)
    names = [_sort_type(value) for value in present]
    for name in names[1:]:
        if name != names[0]:
            raise Refused(f"cannot sort values of different types {quote(names[0])} and {quote(name)}")
    if names[0] not in _SORTABLE and len(found) > 1:
        raise Refused(f"unsupported type {quote(names[0])} for sorting")
    zero: Any = _SORTABLE.get(names[0])
    keyed = sorted(zip(values, found, strict=True), key=lambda pair: zero if pair[0] is None else pair[0])
    return [each for _, each in keyed]


_SORTABLE: Final[Mapping[str, Any]] = {"number": 0, "string": ""}


def _sort_type(value: Any) -> str:
    match value:
        case bool():
            return "bool"
        case int() | float():
            return "number"
        case str():
            return "string"
        case list():
            return "slice"
    return "map"
