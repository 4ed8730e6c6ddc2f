"""cel-filter: leaves composed resources out where an expression says so.

Reads `Filters` of `cel.fn.crossplane.io/v1beta1`. A desired resource stays if every filter whose name matches it is
true; those that no filter matches stay anyway.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from planform.apimachinery.cel import CelError, Expression, compile_expression
from planform.builtin.cel_state import VARIABLES, bindings, evaluate
from planform.builtin.compiled import CompiledFunction, Program, Refused
from planform.builtin.inputs import InputObject, Part, convert_input, given_object
from planform.builtin.patterns import compile_pattern
from planform.functions.values import FunctionRequest, FunctionResponse
from planform.gotemplate.quoting import quote


class Filter(Part, frozen=True, kw_only=True):
    name: str = ""
    expression: str = ""


class Input(InputObject, frozen=True, kw_only=True):
    filters: tuple[Filter, ...] = ()


@dataclass(frozen=True, slots=True)
class _CompiledFilter:
    """A filter, or why it is none, which is told in its turn: what an earlier one has to say comes first."""

    matches: Callable[[str], object] | None
    expression: Expression | None
    problem: str = ""

    def keeps(self, described: str, values: Mapping[str, Any]) -> bool:
        if self.expression is None:
            raise Refused(self.problem)
        try:  # even if nothing matches, so that a mistake shows before the resource does
            return bool(evaluate(self.expression, values))
        except CelError as error:
            raise Refused(f"{described}: cannot evaluate CEL program: {error}") from None


def _compile(value: Any) -> Program:
    spec = convert_input(given_object(value), Input)
    filters = [(_describe(index, each), _compile_filter(index, each)) for index, each in enumerate(spec.filters)]

    def run(request: FunctionRequest, response: FunctionResponse) -> None:
        values = bindings(request)
        kept = [(each, each.keeps(described, values)) for described, each in filters]
        for each, keeps in kept:
            if not keeps and each.matches is not None:
                for resource in [name for name in response.desired.resources if each.matches(name)]:
                    del response.desired.resources[resource]

    return run


def _describe(index: int, spec: Filter) -> str:
    return f"cannot evaluate CEL expression {quote(spec.expression)} for filter {index}"


def _compile_filter(index: int, spec: Filter) -> _CompiledFilter:
    try:
        compile_pattern(spec.name)
        matches = compile_pattern(f"^(?:{spec.name})$").search
    except ValueError as error:
        described = f"cannot compile regular expression {quote(f'^{spec.name}$')} for filter {index}"
        return _CompiledFilter(None, None, f"{described}: {error}")
    try:
        expression = compile_expression(spec.expression, VARIABLES)
    except CelError as error:
        return _CompiledFilter(matches, None, f"{_describe(index, spec)}: cannot parse expression: {error}")
    if str(expression.type) != "bool":
        hint = "; compare it with something, such as == true" if str(expression.type) == "dyn" else ""
        gives = f"must return a boolean, but will return {expression.type} instead{hint}"
        return _CompiledFilter(matches, None, f"{_describe(index, spec)}: expression {quote(spec.expression)} {gives}")
    return _CompiledFilter(matches, expression)


function: Final = CompiledFunction("cel-filter", _compile)
