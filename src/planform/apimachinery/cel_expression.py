"""One CEL expression, compiled once and evaluated many times, for anybody who has a text and variables."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from planform.apimachinery.cel_check import check, estimate
from planform.apimachinery.cel_parser import parse
from planform.apimachinery.cel_program import Program
from planform.apimachinery.cel_syntax import CelError, Ident, Node, walk
from planform.apimachinery.cel_types import Type, type_of_variable
from planform.apimachinery.cel_values import BudgetExceeded, EvaluationError, to_json

CALL_BUDGET = 1_000_000
"""What one evaluation may cost, as in Kubernetes; some tenths of a second at most."""


class Expression:
    """A compiled expression. It keeps no state between evaluations."""

    def __init__(self, text: str, node: Node, kind: Type, variables: Mapping[str, Type]) -> None:
        self.text = text
        self.type = kind
        self.variables = variables
        self.max_cost = estimate(node)
        self.names = frozenset(part.name for part in walk(node) if isinstance(part, Ident))
        self._program = Program(node, variables)

    def evaluate(self, bindings: Mapping[str, Any], *, budget: float = CALL_BUDGET) -> Any:
        """The value as JSON; raises CelError if the expression fails on these values or costs more than `budget`."""
        missing = sorted((self.variables.keys() & self.names) - bindings.keys())
        if missing:
            raise CelError(f"no value for {', '.join(missing)} in expression: {self.text}")
        try:
            value, _ = self.run({name: value for name, value in bindings.items() if name in self.variables}, budget)
        except EvaluationError as error:
            raise CelError(f"{error} evaluating expression: {self.text}") from error
        except BudgetExceeded as error:
            raise CelError(f"actual cost limit exceeded evaluating expression: {self.text}") from error
        return to_json(value)

    def run(self, bindings: Mapping[str, Any], budget: float) -> tuple[Any, float]:
        """The value as CEL has it, and the budget that is left; raises EvaluationError or BudgetExceeded."""
        try:
            return self._program.evaluate(bindings, budget)
        except (TypeError, AttributeError, KeyError, OverflowError, ValueError) as error:
            # A value that is not what its variable was declared as; checked values never get here.
            raise EvaluationError(f"a value does not have its declared type ({error})") from error
        except RecursionError as error:
            raise EvaluationError("a value is nested too deeply") from error


def compile_expression(text: str, variables: Mapping[str, Any]) -> Expression:
    """Compile for variables given as types: text such as `list<string>` or `dyn`, or a schema. Raises CelError."""
    if all(isinstance(declared, str) for declared in variables.values()):
        return _compile_cached(text, tuple(sorted(variables.items())))
    types = {name: type_of_variable(declared) for name, declared in variables.items()}
    return compile_typed(text, types, mixed_literals=True)


def compile_typed(text: str, variables: Mapping[str, Type], *, mixed_literals: bool = False) -> Expression:
    """Compile for variables of these types, without the cache."""
    try:
        node = parse(text)
        kind = check(text, node, variables, mixed_literals=mixed_literals)
        return Expression(text, node, kind, variables)
    except RecursionError as error:
        raise CelError("expression is nested too deeply") from error


@lru_cache(maxsize=1024)
def _compile_cached(text: str, variables: tuple[tuple[str, str], ...]) -> Expression:
    try:
        types = {name: type_of_variable(declared) for name, declared in variables}
    except ValueError as error:
        raise CelError(str(error)) from error
    return compile_typed(text, types, mixed_literals=True)
