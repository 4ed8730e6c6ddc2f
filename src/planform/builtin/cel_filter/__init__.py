"""cel-filter: leaves composed resources out where an expression says so.

Reads `Filters` of `cel.fn.crossplane.io/v1beta1`. A desired resource stays if every filter whose name matches it is
true; those that no filter matches stay anyway.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from planform.builtin.cel_state import VARIABLES, bindings, evaluate, expression_errors
from planform.builtin.compiled import CompiledFunction, Program, Refused
from planform.builtin.inputs import InputObject, Part, convert_input, given_object, refuse_invalid, required
from planform.builtin.patterns import compile_pattern, pattern_errors
from planform.errors import FieldError
from planform.functions.values import FunctionRequest, FunctionResponse
from planform.machinery.cel import CelError, compile_expression


class Filter(Part, frozen=True, kw_only=True):
    name: str = ""
    expression: str = ""


class Input(InputObject, frozen=True, kw_only=True):
    filters: tuple[Filter, ...] = ()


def _compile(value: Any) -> Program:
    spec = convert_input(given_object(value), Input)
    refuse_invalid(_errors(spec))
    filters = [
        (each.name, compile_pattern(f"^(?:{each.name})$").search, compile_expression(each.expression, VARIABLES))
        for each in spec.filters
    ]

    def run(request: FunctionRequest, response: FunctionResponse) -> None:
        values = bindings(request)
        for name, matches, expression in filters:
            try:  # even if nothing matches, so that a mistake shows before the resource does
                keep = evaluate(expression, values)
            except CelError as error:
                raise Refused(f'cannot evaluate the filter "{name}": {error}') from None
            if not keep:
                for resource in [each for each in response.desired.resources if matches(each)]:
                    del response.desired.resources[resource]

    return run


def _errors(spec: Input) -> Iterator[FieldError]:
    for index, each in enumerate(spec.filters):
        path = f"filters[{index}]"
        if not each.name:
            yield required(f"{path}.name", "the name of a resource, or a pattern for several")
        yield from pattern_errors(f"{path}.name", each.name)
        if each.expression:
            yield from expression_errors(f"{path}.expression", each.expression)
        else:
            yield required(f"{path}.expression")


function: Final = CompiledFunction("cel-filter", _compile)
