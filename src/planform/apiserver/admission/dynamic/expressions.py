"""The CEL of admission: match conditions of webhooks, and the variables and expressions of policies.

Objects are dynamic, as what a rule is about may be of any kind; what is known of the request is typed. Variables of a
policy are evaluated when one is first used, and once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any, Final

from planform.apimachinery import cel_authorizer  # noqa: F401  (it enters the functions of `authorizer`)
from planform.apimachinery.cel_expression import CALL_BUDGET, Expression, compile_typed
from planform.apimachinery.cel_syntax import CelError
from planform.apimachinery.cel_types import BOOL, DYN, INT, STRING, TIMESTAMP, Field, Type, list_of, map_of, parse_type
from planform.apimachinery.cel_values import BudgetExceeded, EvaluationError

BUDGET: Final = 200_000
"""Steps that the expressions of one policy, or the conditions of one webhook, may take: as those of a schema."""
OUT_OF_BUDGET: Final = "validation failed due to running out of cost budget, no further validation rules will be run"


def _object(**fields: Type) -> Type:
    return Type("object", fields={name: Field(name, kind) for name, kind in fields.items()})


_TEXTS = list_of(STRING)
_LABELS = map_of(STRING, STRING)
_KIND = _object(group=STRING, version=STRING, kind=STRING)
_RESOURCE = _object(group=STRING, version=STRING, resource=STRING)
_USER = _object(username=STRING, uid=STRING, groups=_TEXTS, extra=map_of(STRING, _TEXTS))
_REQUEST = _object(
    kind=_KIND,
    resource=_RESOURCE,
    subResource=STRING,
    requestKind=_KIND,
    requestResource=_RESOURCE,
    requestSubResource=STRING,
    name=STRING,
    namespace=STRING,
    operation=STRING,
    userInfo=_USER,
    dryRun=BOOL,
    options=DYN,
)
_CONDITION = _object(status=STRING, type=STRING, lastTransitionTime=TIMESTAMP, message=STRING, reason=STRING)
_NAMESPACE = _object(
    metadata=_object(
        name=STRING,
        generateName=STRING,
        namespace=STRING,
        labels=_LABELS,
        annotations=_LABELS,
        UID=STRING,
        creationTimestamp=TIMESTAMP,
        deletionGracePeriodSeconds=INT,
        deletionTimestamp=TIMESTAMP,
        generation=INT,
        resourceVersion=STRING,
        finalizers=_TEXTS,
    ),
    spec=_object(finalizers=_TEXTS),
    status=_object(conditions=list_of(_CONDITION), phase=STRING),
)
_ALWAYS: Final = {"object": DYN, "oldObject": DYN, "namespaceObject": _NAMESPACE, "request": _REQUEST}
_AUTHORIZER: Final = {
    "authorizer": replace(
        parse_type("authorizer"), fields={"requestResource": Field("requestResource", parse_type("resourcecheck"))}
    )
}


def compile_admission(
    text: str,
    types: tuple[str, ...],
    *,
    params: bool = False,
    authorizer: bool = True,
    variables: Mapping[str, Type] | None = None,
    types_of: Mapping[str, Type] | None = None,
) -> Expression:
    """An expression whose value is of one of these types, of any if none is named. Raises CelError.

    `types_of` says of what is dynamic otherwise, objects and parameters, what it is.
    """
    if variables or types_of:
        return _compiled(text, types, params, authorizer, variables or {}, types_of or {})
    return _cached(text, types, params, authorizer)


@lru_cache(maxsize=1024)
def _cached(text: str, types: tuple[str, ...], params: bool, authorizer: bool) -> Expression:
    return _compiled(text, types, params, authorizer, {}, {})


def _compiled(
    text: str,
    types: tuple[str, ...],
    params: bool,
    authorizer: bool,
    variables: Mapping[str, Type],
    types_of: Mapping[str, Type],
) -> Expression:
    known: dict[str, Type] = {**_ALWAYS}
    if params:
        known["params"] = DYN
    known |= types_of
    if authorizer:
        known |= _AUTHORIZER
    if variables:
        fields = {name: Field(name, kind) for name, kind in variables.items()}
        known["variables"] = Type("object", fields=fields, keeps_null=True)
    try:
        expression = compile_typed(text, known, mixed_literals=True)
    except CelError as error:
        raise CelError(f"compilation failed: {error}") from error
    found = expression.type.name
    if types and found not in types:
        shown = {"null": "null_type"}
        if len(types) == 1:
            raise CelError(f"must evaluate to {types[0]} but got {expression.type}")
        raise CelError(
            f"must evaluate to one of [{' '.join(shown.get(each, each) for each in types)}] but got {expression.type}"
        )
    return expression


class OutOfBudget(Exception):
    """No further expression is evaluated for this write."""


class Activation:
    """The variables of one evaluation, and what is left to spend on it."""

    def __init__(self, bindings: Mapping[str, Any], budget: float = BUDGET) -> None:
        self.bindings = dict(bindings)
        self.budget = budget

    def evaluate(self, expression: Expression) -> Any:
        """The value as CEL has it; raises CelError if it fails on these values, OutOfBudget."""
        allowed = min(self.budget, CALL_BUDGET)
        bindings = {name: value for name, value in self.bindings.items() if name in expression.variables}
        before = self.budget
        try:
            value, left = expression.run(bindings, allowed)
        except EvaluationError as error:
            raise CelError(f"expression '{expression.text}' resulted in error: {error}") from error
        except BudgetExceeded as error:
            self.budget = 0
            raise OutOfBudget(OUT_OF_BUDGET) from error
        spent_within = before - self.budget  # by variables, which pay from the same purse
        self.budget = before - (allowed - left) - spent_within
        if self.budget < 0:
            raise OutOfBudget(OUT_OF_BUDGET)
        return value


class Variables:
    """`variables` of a policy: each is evaluated when it is first asked for."""

    def __init__(self, declared: Mapping[str, Expression], activation: Activation) -> None:
        self._declared = declared
        self._activation = activation
        self._values: dict[str, Any] = {}

    def get(self, name: str) -> Any:
        if name not in self._values:
            try:
                self._values[name] = self._activation.evaluate(self._declared[name])
            except CelError as error:
                raise EvaluationError(f"composited variable {name!r} fails to evaluate: {error}") from error
            except OutOfBudget as error:
                raise BudgetExceeded from error
        return self._values[name]
