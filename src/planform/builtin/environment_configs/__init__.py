"""environment-configs: fetches EnvironmentConfigs and merges them into the environment of the pipeline.

Reads `Input` of `environmentconfigs.fn.crossplane.io/v1beta1`, and the `ExtraResourceSelectors` of
`extra.fn.crossplane.io/v1beta1` that the design of extra resources sketched.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import msgspec

from planform.builtin.compiled import CompiledFunction, Program
from planform.builtin.environment import ENVIRONMENT_KEY
from planform.builtin.environment_configs.sources import EnvironmentSources
from planform.builtin.inputs import InputObject, Part, convert_input, given_object, refuse_invalid
from planform.builtin.selection import (
    SelectedConfig,
    SelectionPolicy,
    mistakes,
    selection_errors,
    warn_of_mistakes,
)
from planform.errors import FieldError
from planform.functions.values import FunctionRequest, FunctionResponse

_SKETCHED: Final = "extraResourceSelectors"
_FREE_FORM: Final = frozenset({"defaultData"})


class Spec(Part, frozen=True, kw_only=True):
    default_data: dict[str, Any] = msgspec.field(default_factory=dict)
    policy: SelectionPolicy = SelectionPolicy()
    environment_configs: tuple[SelectedConfig, ...] = ()


class Input(InputObject, frozen=True, kw_only=True):
    spec: Spec = Spec()


class Selectors(InputObject, frozen=True, kw_only=True):
    extra_resource_selectors: Spec = Spec()


def _compile(value: Any) -> Program:
    given = given_object(value)
    if _SKETCHED in given:
        path, spec = _SKETCHED, convert_input(given, Selectors, free_form=_FREE_FORM).extra_resource_selectors
    else:
        path, spec = "spec", convert_input(given, Input, free_form=_FREE_FORM).spec
    refuse_invalid(_errors(spec, path))
    sources = EnvironmentSources(spec.environment_configs, spec.default_data, spec.policy)
    mistaken = [
        text
        for index, entry in enumerate(spec.environment_configs)
        for text in mistakes(entry, f"{path}.environmentConfigs[{index}]")
    ]

    def run(request: FunctionRequest, response: FunctionResponse) -> None:
        warn_of_mistakes(response, mistaken)
        environment = None if sources.empty else sources.environment(request, response)
        if environment is not None:
            response.context[ENVIRONMENT_KEY] = environment

    return run


def _errors(spec: Spec, path: str) -> Iterator[FieldError]:
    for index, entry in enumerate(spec.environment_configs):
        yield from selection_errors(entry, f"{path}.environmentConfigs[{index}]")


function: Final = CompiledFunction("environment-configs", _compile)
