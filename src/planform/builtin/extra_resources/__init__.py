"""extra-resources: fetches any resources and puts them into the context, where later steps find them by name.

Reads `Input` of `extra-resources.fn.crossplane.io/v1beta1`. The context gets `{into: [object, ...]}` under one key.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from planform.builtin.compiled import CompiledFunction, Program, Refused
from planform.builtin.environment import ENVIRONMENT_KEY, EXTRA_RESOURCES_KEY
from planform.builtin.inputs import InputObject, Part, convert_input, given_object, refuse_invalid
from planform.builtin.selection import (
    SelectedResource,
    SelectionPolicy,
    choose_by_labels,
    fetched,
    mistakes,
    selection_errors,
    selector_for,
    warn_of_mistakes,
)
from planform.errors import FieldError
from planform.functions.values import FunctionRequest, FunctionResponse, Object, ResourceSelector
from planform.gotemplate.quoting import quote


class ContextKey(Part, frozen=True, kw_only=True):
    key: str = EXTRA_RESOURCES_KEY


class Spec(Part, frozen=True, kw_only=True):
    context: ContextKey = ContextKey()
    policy: SelectionPolicy = SelectionPolicy()
    extra_resources: tuple[SelectedResource, ...] = ()


class Input(InputObject, frozen=True, kw_only=True):
    spec: Spec = Spec()


def _compile(value: Any) -> Program:
    spec = convert_input(given_object(value), Input).spec
    refuse_invalid(_errors(spec))
    mistaken = list(_mistakes(spec))

    def run(request: FunctionRequest, response: FunctionResponse) -> None:
        warn_of_mistakes(response, mistaken)
        found = _fetched(spec, request, response)
        if found is None or not (spec.extra_resources or found):
            return
        chosen: dict[str, list[Object]] = {}
        for entry in spec.extra_resources:
            try:
                # A selector that is left without labels asks for nothing, and so finds nothing.
                objects = _choose(entry, found[entry.into], spec.policy) if entry.into in found else []
            except Refused as error:
                raise Refused(f"verifying and sorting extra resources: {error}") from None
            if objects is not None:
                chosen.setdefault(entry.into, []).extend(objects)
        response.context[spec.context.key] = chosen

    return run


def _fetched(spec: Spec, request: FunctionRequest, response: FunctionResponse) -> Mapping[str, Sequence[Object]] | None:
    wanted: dict[str, ResourceSelector] = {}
    given = request.context.get(ENVIRONMENT_KEY)
    for entry in spec.extra_resources:
        try:
            selector = selector_for(
                entry,
                request.observed.composite.resource,
                given if isinstance(given, dict) else {},
                api_version=entry.api_version,
                kind=entry.kind,
                namespace=entry.namespace,
            )
        except Refused as error:
            raise Refused(f"could not build extra resource requirements: {error}") from None
        if selector is not None:
            wanted[entry.into] = selector
    return fetched(request, response, wanted)


def _choose(entry: SelectedResource, found: Sequence[Object], policy: SelectionPolicy) -> Sequence[Object] | None:
    """What goes into the context; None if not even the entry's name does."""
    if entry.ref is not None and entry.type == "Reference":
        if not found:
            if policy.optional:
                return None
            raise Refused(f"Required extra resource {quote(entry.into)} not found")
        if len(found) > 1:
            raise Refused(f"expected exactly one extra resource {quote(entry.into)}, got {len(found)}")
        return found
    if entry.selector is None or entry.type != "Selector":
        return None
    return choose_by_labels(entry.selector, found, what="extra resource", named=f" {quote(entry.into)}")


def _errors(spec: Spec) -> Iterator[FieldError]:
    for index, entry in enumerate(spec.extra_resources):
        yield from selection_errors(entry, f"spec.extraResources[{index}]")


def _mistakes(spec: Spec) -> Iterator[str]:
    seen: set[str] = set()
    for index, entry in enumerate(spec.extra_resources):
        path = f"spec.extraResources[{index}]"
        for member, value in (("apiVersion", entry.api_version), ("kind", entry.kind)):
            if not value:
                yield f"{path}.{member}: is missing, so that nothing can be found"
        if entry.into in seen:
            yield f'{path}.into: "{entry.into}" is used twice, and both find what the last one asks for'
        seen.add(entry.into)
        yield from mistakes(entry, path)


function: Final = CompiledFunction("extra-resources", _compile)
