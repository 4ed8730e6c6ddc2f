"""cel-validation: fails a pipeline, or warns, where a rule over observed and desired state does not hold.

Reads `Validations` of `cel.fn.planform.dev/v1`. A rule is checked once, or with `resources` for each desired resource
whose name matches; all rules are checked before the step fails, so that everything that is wrong is told at once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from planform.apimachinery.cel import CelError, Expression, compile_expression
from planform.apimachinery.names import invalid
from planform.builtin.cel_state import VARIABLES, bindings, evaluate, expression_errors
from planform.builtin.compiled import CompiledFunction, Program, Refused, normal, warn
from planform.builtin.inputs import InputObject, Part, convert_input, given_object, refuse_invalid, required
from planform.builtin.patterns import compile_pattern, pattern_errors
from planform.errors import FieldError
from planform.functions.values import FunctionRequest, FunctionResponse

_SEVERITIES: Final = ("Fatal", "Warning")
_OF_RESOURCES: Final[Mapping[str, str]] = {**VARIABLES, "name": "string", "resource": "dyn", "existing": "dyn"}
"""`existing` is the observed resource, null while there is none."""


class Rule(Part, frozen=True, kw_only=True):
    name: str = ""
    expression: str = ""
    when: str = ""
    resources: str = ""
    message: str = ""
    message_expression: str = ""
    severity: str = "Fatal"

    @property
    def variables(self) -> Mapping[str, str]:
        return _OF_RESOURCES if self.resources else VARIABLES


class Input(InputObject, frozen=True, kw_only=True):
    rules: tuple[Rule, ...] = ()


@dataclass(frozen=True, slots=True)
class _CompiledRule:
    spec: Rule
    expression: Expression
    when: Expression | None
    message: Expression | None
    matches: Any

    def violations(self, request: FunctionRequest, state: Mapping[str, Any]) -> Iterator[str]:
        """A text for each time that the rule does not hold, or cannot be told to."""
        if not self.spec.resources:
            yield from self._check(state, self.spec.name)
            return
        for name, desired in sorted(request.desired.resources.items()):
            if self.matches(name):
                observed = request.observed.resources.get(name)
                existing = observed.resource if observed is not None else None
                values = {**state, "name": name, "resource": desired.resource, "existing": existing}
                yield from self._check(values, f'{self.spec.name}, resource "{name}"')

    def _check(self, values: Mapping[str, Any], what: str) -> Iterator[str]:
        try:
            if self.when is not None and not evaluate(self.when, values):
                return
            if not evaluate(self.expression, values):
                yield f"{what}: {self._message_for(values)}"
        except CelError as error:
            yield f"{what}: {error}"

    def _message_for(self, values: Mapping[str, Any]) -> str:
        if self.message is not None:
            return str(evaluate(self.message, values))
        return self.spec.message or f"failed rule: {self.spec.expression}"


def _compile(value: Any) -> Program:
    if value is None:
        return lambda request, response: normal(response, "cel-validation has no input, so it checks nothing")
    spec = convert_input(given_object(value), Input)
    refuse_invalid(_errors(spec))
    rules = [_compile_rule(rule) for rule in spec.rules]

    def run(request: FunctionRequest, response: FunctionResponse) -> None:
        state = bindings(request)
        fatal = []
        for rule in rules:
            for violation in rule.violations(request, state):
                if rule.spec.severity == "Fatal":
                    fatal.append(violation)
                else:
                    warn(response, violation)
        if fatal:
            raise Refused("; ".join(fatal))

    return run


def _compile_rule(rule: Rule) -> _CompiledRule:
    def compiled(text: str) -> Expression | None:
        return compile_expression(text, rule.variables) if text else None

    expression = compile_expression(rule.expression, rule.variables)
    matches = compile_pattern(f"^(?:{rule.resources})$").search
    return _CompiledRule(rule, expression, compiled(rule.when), compiled(rule.message_expression), matches)


def _errors(spec: Input) -> Iterator[FieldError]:
    if not spec.rules:
        yield required("rules", "at least one")
    for index, rule in enumerate(spec.rules):
        path = f"rules[{index}]"
        if not rule.name:
            yield required(f"{path}.name", "what the rule is called in messages")
        yield from pattern_errors(f"{path}.resources", rule.resources)
        if rule.expression:
            yield from expression_errors(f"{path}.expression", rule.expression, rule.variables)
        else:
            yield required(f"{path}.expression")
        if rule.when:
            yield from expression_errors(f"{path}.when", rule.when, rule.variables)
        if rule.message_expression:
            text = rule.message_expression
            yield from expression_errors(f"{path}.messageExpression", text, rule.variables, gives="string")
        if rule.severity not in _SEVERITIES:
            yield invalid(f"{path}.severity", rule.severity, f"must be {' or '.join(_SEVERITIES)}")


function: Final = CompiledFunction("cel-validation", _compile)
