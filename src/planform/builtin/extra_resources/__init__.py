"""extra-resources: fetches any resources and puts them into the context, where later steps find them by name.

Reads `Input` of `extra-resources.fn.crossplane.io/v1beta1`. The context gets `{into: [object, ...]}` under one key.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from planform.builtin.compiled import CompiledFunction, Program
from planform.builtin.environment import EXTRA_RESOURCES_KEY
from planform.builtin.inputs import InputObject, Part, check_kind, convert_input, duplicate, refuse_invalid, required
from planform.builtin.selection import (
    SelectedResource,
    SelectionPolicy,
    choose,
    fetched,
    policy_errors,
    selection_errors,
    selector_for,
)
from planform.errors import FieldError
from planform.functions.values import FunctionRequest, FunctionResponse, Object


class ContextKey(Part, frozen=True, kw_only=True):
    key: str = EXTRA_RESOURCES_KEY


class Spec(Part, frozen=True, kw_only=True):
    context: ContextKey = ContextKey()
    policy: SelectionPolicy = SelectionPolicy()
    extra_resources: tuple[SelectedResource, ...] = ()


class Input(InputObject, frozen=True, kw_only=True):
    spec: Spec = Spec()


def _compile(value: Any) -> Program:
    check_kind(value, ("extra-resources.fn.crossplane.io/v1beta1", "Input"))
    spec = convert_input(value, Input).spec
    refuse_invalid(_errors(spec))

    def run(request: FunctionRequest, response: FunctionResponse) -> None:
        xr = request.observed.composite.resource
        selectors = {
            entry.into: selector_for(
                entry, xr, api_version=entry.api_version, kind=entry.kind, namespace=entry.namespace
            )
            for entry in spec.extra_resources
        }
        found = fetched(request, response, {name: each for name, each in selectors.items() if each is not None})
        if found is None:
            return
        chosen: dict[str, list[Object]] = {}
        for entry in spec.extra_resources:
            # A selector that is left without labels asks for nothing, and so finds nothing.
            objects = choose(entry, found.get(entry.into, ()), optional=spec.policy.optional, what=entry.kind)
            if objects or entry.type == "Selector":
                chosen[entry.into] = list(objects)
        response.context[spec.context.key] = chosen

    return run


def _errors(spec: Spec) -> Iterator[FieldError]:
    if not spec.extra_resources:
        yield required("spec.extraResources", "at least one entry is required")
    if not spec.context.key:
        yield required("spec.context.key")
    seen: set[str] = set()
    for index, entry in enumerate(spec.extra_resources):
        path = f"spec.extraResources[{index}]"
        for member, value in (("apiVersion", entry.api_version), ("kind", entry.kind), ("into", entry.into)):
            if not value:
                yield required(f"{path}.{member}")
        if entry.into in seen:
            yield duplicate(f"{path}.into", entry.into)
        seen.add(entry.into)
        yield from selection_errors(entry, path)
    yield from policy_errors(spec.policy, "spec.policy")


function: Final = CompiledFunction("extra-resources", _compile)
