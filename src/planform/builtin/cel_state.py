"""What CEL expressions of functions see: `observed` and `desired` as the protocol's messages, and the context."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from planform.apimachinery.cel_syntax import CelError
from planform.apimachinery.names import invalid
from planform.errors import FieldError
from planform.functions.values import FunctionRequest, Object, Resource, State

if TYPE_CHECKING:  # CEL takes as long to import as all of a plain render; who has an expression waits for it
    from planform.apimachinery.cel import Expression

VARIABLES: Final[Mapping[str, str]] = {"observed": "dyn", "desired": "dyn", "context": "dyn"}
BUDGET: Final = 10_000
"""What one evaluation may cost, about five milliseconds at most, since it happens on the loop."""


def bindings(request: FunctionRequest) -> dict[str, Any]:
    """The values of VARIABLES; members have the names of the protocol, and empty maps are there."""
    return {
        "observed": state_message(request.observed),
        "desired": state_message(request.desired),
        "context": request.context,
    }


def state_message(state: State) -> Object:
    return {
        "composite": resource_message(state.composite),
        "resources": {name: resource_message(each) for name, each in state.resources.items()},
    }


def resource_message(resource: Resource) -> Object:
    details = dict(resource.connection_details)
    return {"resource": resource.resource, "connection_details": details, "ready": int(resource.ready)}


def evaluate(expression: Expression, values: Mapping[str, Any]) -> Any:
    """Raises CelError."""
    return expression.evaluate(values, budget=BUDGET)


def expression_errors(
    path: str, text: str, variables: Mapping[str, str] = VARIABLES, *, gives: str = "bool"
) -> Iterator[FieldError]:
    """The error of an expression that does not compile, or is not known to give a value of this type."""
    from planform.apimachinery.cel import compile_expression

    try:
        kind = str(compile_expression(text, variables).type)
    except CelError as error:
        yield invalid(path, text, str(error))
        return
    if kind != gives:
        hint = "; compare it with something, such as == true" if (kind, gives) == ("dyn", "bool") else ""
        yield invalid(path, text, f"must give {gives}, but gives {kind}{hint}")
