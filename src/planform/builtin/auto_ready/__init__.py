"""auto-ready: marks composed resources as ready that exist and say so, where no earlier step has decided.

A CEL rule for the resource's kind decides first, then what is known about the kinds of Kubernetes, then the condition
Ready. The input is optional: `Input` of `autoready.fn.crossplane.io/v1beta1`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

import msgspec

from planform.apimachinery.cel_syntax import CelError
from planform.apimachinery.fieldpath import FieldNotFound, FieldPathError, parse_path
from planform.builtin.auto_ready.checks import CHECKS, has_condition
from planform.builtin.compiled import CompiledFunction, Program, Refused, warn
from planform.builtin.durations import duration_errors, seconds
from planform.builtin.inputs import InputObject, convert_input, refuse_invalid
from planform.builtin.selection import path_errors
from planform.errors import FieldError
from planform.functions.values import FunctionRequest, FunctionResponse, Object, Ready, Resource

if TYPE_CHECKING:  # CEL takes as long to import as all of a plain render; who has an expression waits for it
    from planform.apimachinery.cel import Expression


class Input(InputObject, frozen=True, kw_only=True):
    ttl: str = ""
    cel_health_check_customization: dict[str, str] = msgspec.field(default_factory=dict)
    cel_health_check_customization_from: str = ""


def _compile(value: Any) -> Program:
    spec = Input()
    if value is not None:
        spec = convert_input(value, Input)
    refuse_invalid(_errors(spec))

    def run(request: FunctionRequest, response: FunctionResponse) -> None:
        response.ttl = seconds(spec.ttl)
        rules = {**_rules_of_context(request.context, spec), **spec.cel_health_check_customization}
        for name, desired in request.desired.resources.items():
            observed = request.observed.resources.get(name)
            if observed is None or desired.ready is not Ready.UNSPECIFIED:
                continue
            ready = _decide(name, observed.resource, rules, response)
            if ready is not Ready.UNSPECIFIED:
                response.desired.resources[name] = Resource(desired.resource, desired.connection_details, ready)

    return run


def _decide(name: str, observed: Object, rules: Mapping[str, Any], response: FunctionResponse) -> Ready:
    rule = rules.get(_rule_name(observed)) if rules else None
    if rule is not None:
        try:
            return Ready.TRUE if _compile_rule(rule).evaluate({"object": observed}) else Ready.FALSE
        except CelError as error:
            warn(response, f'cannot check readiness of composed resource "{name}" with {_rule_name(observed)}: {error}')
    metadata = observed.get("metadata")
    if isinstance(metadata, dict) and metadata.get("deletionTimestamp"):
        return Ready.UNSPECIFIED
    check = CHECKS.get((observed.get("apiVersion") or "", observed.get("kind") or ""))
    ready = (check is not None and check(observed)) or has_condition(observed, "Ready")
    return Ready.TRUE if ready else Ready.UNSPECIFIED


def _rule_name(resource: Object) -> str:
    """`apps_v1_Deployment`; the core group is empty and leaves the underscore."""
    group, _, version = str(resource.get("apiVersion") or "").rpartition("/")
    return f"{group}_{version}_{resource.get('kind') or ''}"


def _compile_rule(text: Any) -> Expression:
    if not isinstance(text, str):
        raise CelError("the rule is not a text")
    from planform.apimachinery.cel import compile_expression

    expression = compile_expression(text, {"object": "dyn"})
    if str(expression.type) != "bool":
        raise CelError(f"the rule gives {expression.type}, not bool: {text}")
    return expression


def _rules_of_context(context: Object, spec: Input) -> Mapping[str, Any]:
    path = spec.cel_health_check_customization_from
    if not path:
        return {}
    try:
        found = parse_path(path).get(context)
    except FieldNotFound:
        return {}
    except FieldPathError as error:
        raise Refused(f"cannot get celHealthCheckCustomizationFrom from the context: {error}") from None
    if found is None:
        return {}
    if not isinstance(found, dict):
        raise Refused(f"cannot get celHealthCheckCustomizationFrom from the context: {path}: not an object")
    return found


def _errors(spec: Input) -> Iterator[FieldError]:
    yield from duration_errors("ttl", spec.ttl)
    yield from path_errors("celHealthCheckCustomizationFrom", spec.cel_health_check_customization_from)


function: Final = CompiledFunction("auto-ready", _compile, reads_control_plane_fields=lambda _: False)
