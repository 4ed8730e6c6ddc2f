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
from planform.builtin.inputs import InputObject, Part, check_kind, convert_input, refuse_invalid
from planform.builtin.selection import SelectedConfig, SelectionPolicy, policy_errors, selection_errors
from planform.errors import FieldError
from planform.functions.values import FunctionRequest, FunctionResponse

_CURRENT: Final = ("environmentconfigs.fn.crossplane.io/v1beta1", "Input")
_SKETCHED: Final = ("extra.fn.crossplane.io/v1beta1", "ExtraResourceSelectors")
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
    if check_kind(value, _CURRENT, _SKETCHED) == _CURRENT:
        path, spec = "spec", convert_input(value, Input, free_form=_FREE_FORM).spec
    else:
        path = "extraResourceSelectors"
        spec = convert_input(value, Selectors, free_form=_FREE_FORM).extra_resource_selectors
    refuse_invalid(_errors(spec, path))
    sources = EnvironmentSources(spec.environment_configs, spec.default_data, spec.policy)

    def run(request: FunctionRequest, response: FunctionResponse) -> None:
        environment = sources.environment(request, response)
        if environment is not None:
            response.context[ENVIRONMENT_KEY] = environment

    return run


def _errors(spec: Spec, path: str) -> Iterator[FieldError]:
    for index, entry in enumerate(spec.environment_configs):
        yield from selection_errors(entry, f"{path}.environmentConfigs[{index}]")
    yield from policy_errors(spec.policy, f"{path}.policy")


function: Final = CompiledFunction("environment-configs", _compile)
