"""ValidatingAdmissionPolicy: what its expressions say of a write, for each binding and each of its parameters."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final

import msgspec
import orjson

from planform.api.kinds import GroupVersionKind, Object
from planform.apiserver.admission.dynamic.attributes import Attributes, operation_options
from planform.apiserver.admission.dynamic.matching import Criteria, NamespaceLabels, Rule
from planform.apiserver.admission.dynamic.reviews import request_fields
from planform.apiserver.admission.dynamic.webhooks import shown_name
from planform.apiserver.crds.registry import KindRegistry, ServedKind
from planform.errors import ApiError, NotFound, naming, qualified

_CODES: Final = {"Forbidden": 403, "Unauthorized": 401, "RequestEntityTooLarge": 413, "Invalid": 422}
_MAX_ANNOTATION_LENGTH: Final = 10 * 1024
_MAX_MESSAGE_LENGTH: Final = 5 * 1024
_MAX_FAILURES: Final = 50
_FAILURES_KEY: Final = "validation.policy.admission.k8s.io/validation_failure"
_NO_PARAMS: Final = "no params found for policy binding with `Deny` parameterNotFoundAction"


class ConfigurationError(Exception):
    """A policy or binding cannot be applied to a write; what that means is for the failure policy to say."""


class _Match(msgspec.Struct, frozen=True, rename="camel"):
    resource_rules: tuple[Rule, ...] = ()
    exclude_resource_rules: tuple[Rule, ...] = ()
    match_policy: str = "Equivalent"
    namespace_selector: dict[str, Any] | None = None
    object_selector: dict[str, Any] | None = None


def _criteria(match: object) -> Criteria:
    known = msgspec.convert(match or {}, _Match)
    return Criteria(
        known.resource_rules,
        match_policy=known.match_policy,
        namespace_selector=known.namespace_selector,
        object_selector=known.object_selector,
        excluded=known.exclude_resource_rules,
        all_without_rules=True,
    )


class Binding:
    """One ValidatingAdmissionPolicyBinding."""

    def __init__(self, obj: Object) -> None:
        spec = obj.get("spec") or {}
        self.name = str(obj["metadata"]["name"])
        self.policy = str(spec.get("policyName") or "")
        self.param_ref: Mapping[str, Any] | None = spec.get("paramRef")
        self.actions: tuple[str, ...] = tuple(spec.get("validationActions") or ())
        self.criteria = _criteria(spec.get("matchResources"))


class Policy:
    """One ValidatingAdmissionPolicy with its bindings. What it says is compiled when it is first needed."""

    def __init__(self, obj: Object, bindings: Sequence[Binding]) -> None:
        self._spec: Object = obj.get("spec") or {}
        self.name = str(obj["metadata"]["name"])
        self.bindings = bindings
        self.ignores_failures = self._spec.get("failurePolicy") == "Ignore"
        self.criteria = _criteria(self._spec.get("matchConstraints"))
        kind = self._spec.get("paramKind")
        self.param_kind: Mapping[str, Any] | None = kind

    @cached_property
    def program(self) -> _Program:
        return _Program(self._spec)


@dataclass(frozen=True, slots=True)
class _Validation:
    expression: Any
    text: str
    message: str
    message_expression: Any
    reason: str


class _Program:
    """The compiled expressions of a policy; raises CelError."""

    def __init__(self, spec: Object) -> None:
        from planform.apiserver.admission.dynamic.expressions import compile_admission

        params = spec.get("paramKind") is not None
        types: dict[str, Any] = {}
        self.variables: dict[str, Any] = {}
        for variable in spec.get("variables") or ():
            made = compile_admission(variable["expression"], (), params=params, variables=dict(types))
            self.variables[variable["name"]] = made
            types[variable["name"]] = made.type
        self.conditions = [
            (each["name"], compile_admission(each["expression"].strip(), ("bool",), params=params))
            for each in spec.get("matchConditions") or ()
        ]
        self.validations = [
            _Validation(
                compile_admission(each["expression"], ("bool",), params=params, variables=types),
                each["expression"].strip(),
                (each.get("message") or "").strip(),
                compile_admission(
                    each["messageExpression"], ("string",), params=params, authorizer=False, variables=types
                )
                if (each.get("messageExpression") or "").strip()
                else None,
                each.get("reason") or "Invalid",
            )
            for each in spec.get("validations") or ()
        ]
        self.annotations = [
            (
                each["key"],
                compile_admission(each["valueExpression"].strip(), ("string", "null"), params=params, variables=types),
            )
            for each in spec.get("auditAnnotations") or ()
        ]


@dataclass(frozen=True, slots=True)
class EvaluationContext:
    """What evaluating needs beside the policies themselves."""

    registry: KindRegistry
    namespace_labels: NamespaceLabels
    namespace: Callable[[str], Object]
    """A Namespace; raises NotFound."""
    find_params: Callable[[ServedKind, str, str, Mapping[str, Any] | None], Awaitable[list[Object]]]
    """Objects of a kind, by namespace and by name or selector."""
    in_version: Callable[[Attributes, Object | None, ServedKind], Awaitable[Object | None]]
    authorizer: Callable[[Attributes, ServedKind], Any]


Matched = Sequence[tuple[Policy, ServedKind]]


@dataclass(frozen=True, slots=True)
class _Denial:
    policy: Policy
    binding: Binding | None
    message: str
    reason: str = ""


@dataclass(slots=True)
class _Findings:
    denials: list[_Denial] = field(default_factory=list)
    failures: list[Object] = field(default_factory=list)
    annotations: dict[str, list[str]] = field(default_factory=dict)

    def failed(self, policy: Policy, binding: Binding | None, message: str) -> None:
        if not policy.ignores_failures:
            self.denials.append(_Denial(policy, binding, message))


async def enforce(around: EvaluationContext, policies: Matched, attributes: Attributes) -> None:
    """Hold a write against policies; raises the first refusal. Warnings and annotations go to the request."""
    found = _Findings()
    for policy, _ in policies:
        served = _about(around, policy.criteria, attributes)
        if served is not None:
            for binding in policy.bindings:
                await _bind(around, policy, binding, served, attributes, found)
        for key, values in found.annotations.items():
            attributes.request.annotate(f"{policy.name}/{key}", ", ".join(values))
        found.annotations.clear()
    if found.failures:
        attributes.request.annotate(_FAILURES_KEY, orjson.dumps(found.failures[:_MAX_FAILURES]).decode())
    if found.denials:
        raise _refusal(attributes, found.denials[0])


def _about(around: EvaluationContext, criteria: Criteria, attributes: Attributes) -> ServedKind | None:
    """In which version a policy or binding is about a write; None if it is not."""
    served = criteria.matches_name(
        around.registry, attributes.served, attributes.operation, attributes.subresource, attributes.name
    )
    if served is None or not criteria.selects(attributes, around.namespace_labels):
        return None
    return served


async def _bind(
    around: EvaluationContext,
    policy: Policy,
    binding: Binding,
    served: ServedKind,
    attributes: Attributes,
    found: _Findings,
) -> None:
    if _about(around, binding.criteria, attributes) is None:
        return
    try:
        params = await _params(around, policy, binding, attributes)
    except ConfigurationError as error:
        found.failed(policy, binding, f"failed to configure binding: {error}")
        return
    for param in params:
        bindings = await _bindings(around, attributes, served, param)
        _evaluate(policy, binding, bindings, attributes, found)


async def _params(
    around: EvaluationContext, policy: Policy, binding: Binding, attributes: Attributes
) -> Sequence[Object | None]:
    """The parameters of a binding; one that is None where it has none. Raises ConfigurationError."""
    kind, reference = policy.param_kind, binding.param_ref
    if kind is None or reference is None:
        return [None]
    group, _, version = str(kind["apiVersion"]).rpartition("/")
    try:
        served = around.registry.find(GroupVersionKind(group, version, str(kind["kind"])))
    except NotFound:
        shown = f"{kind['apiVersion']}, Kind={kind['kind']}"
        raise ConfigurationError(f"paramKind kind `{shown}` not known") from None
    namespace = str(reference.get("namespace") or "")
    if served.kind.namespaced:
        namespace = namespace or attributes.shown_namespace
        if not namespace:
            raise ConfigurationError(
                "cannot use namespaced paramRef in policy binding that matches cluster-scoped resources"
            )
    elif namespace:
        raise ConfigurationError("paramRef.namespace must not be provided for a cluster-scoped `paramKind`")
    found = await around.find_params(served, namespace, str(reference.get("name") or ""), reference.get("selector"))
    if not found and reference.get("parameterNotFoundAction") == "Deny":
        raise ConfigurationError(_NO_PARAMS)
    return found


async def _bindings(
    around: EvaluationContext, attributes: Attributes, served: ServedKind, param: Object | None
) -> dict[str, Any]:
    namespace = None
    if attributes.namespace and not attributes.is_namespace:
        namespace = around.namespace(attributes.namespace)
    request = {
        **request_fields(attributes, served),
        "dryRun": attributes.request.dry_run,
        "options": operation_options(attributes.operation, attributes.request),
    }
    request.setdefault("name", "")
    return {
        "object": await around.in_version(attributes, attributes.object, served),
        "oldObject": await around.in_version(attributes, attributes.old_object, served),
        "namespaceObject": namespace,
        "request": request,
        "params": param,
        "authorizer": around.authorizer(attributes, served),
    }


def _evaluate(
    policy: Policy, binding: Binding, bindings: Mapping[str, Any], attributes: Attributes, found: _Findings
) -> None:
    """Without waiting: what expressions see is as it was when they were given it."""
    from planform.apimachinery.cel_syntax import CelError
    from planform.apiserver.admission.dynamic.expressions import Activation, OutOfBudget, Variables

    def decided(index: int, message: str, reason: str = "") -> None:
        for action in binding.actions:
            if action == "Deny":
                found.denials.append(_Denial(policy, binding, message, reason))
            elif action == "Audit":
                found.failures.append(
                    {
                        "message": message,
                        "policy": policy.name,
                        "binding": binding.name,
                        "expressionIndex": index,
                        "validationActions": list(binding.actions),
                    }
                )
            elif action == "Warn":
                attributes.request.warn(
                    f"Validation failed for ValidatingAdmissionPolicy '{policy.name}' with binding "
                    f"'{binding.name}': {message}"
                )

    def failed(index: int, message: str) -> None:
        if not policy.ignores_failures:
            decided(index, message)

    try:
        program = policy.program
    except CelError as error:
        failed(0, str(error))
        return
    activation = Activation(bindings)
    activation.bindings["variables"] = Variables(program.variables, activation)
    try:
        if not conditions_hold(program.conditions, activation):
            return
    except (CelError, OutOfBudget) as error:
        failed(0, str(error))
        return
    try:
        for index, validation in enumerate(program.validations):
            try:
                holds = activation.evaluate(validation.expression)
            except CelError as error:
                failed(index, str(error))
                continue
            if holds is not True:
                decided(index, _message(validation, activation), validation.reason)
        _annotate(policy, binding, program.annotations, activation, found)
    except OutOfBudget as error:
        failed(0, str(error))


def conditions_hold(conditions: Sequence[tuple[str, Any]], activation: Any) -> bool:
    """Whether all match conditions are true; one that is false decides, whatever others fail. Raises CelError."""
    from planform.apimachinery.cel_syntax import CelError

    errors: list[str] = []
    for _, expression in conditions:
        try:
            if activation.evaluate(expression) is False:
                return False
        except CelError as error:
            errors.append(str(error))
    if errors:
        raise CelError(errors[0] if len(errors) == 1 else f"[{', '.join(errors)}]")
    return True


def _message(validation: _Validation, activation: Any) -> str:
    from planform.apimachinery.cel_syntax import CelError

    if validation.message_expression is not None:
        try:
            made = activation.evaluate(validation.message_expression)
        except CelError:
            made = None  # then the message that was written down says it
        text = made.strip() if isinstance(made, str) else ""
        if text and len(text.encode()) <= _MAX_MESSAGE_LENGTH and "\n" not in text:
            return text
    return validation.message or f"failed expression: {validation.text}"


def _annotate(
    policy: Policy, binding: Binding, annotations: Sequence[tuple[str, Any]], activation: Any, found: _Findings
) -> None:
    from planform.apimachinery.cel_syntax import CelError

    for key, expression in annotations:
        try:
            value = activation.evaluate(expression)
        except CelError as error:
            found.failed(policy, binding, str(error))
            continue
        if isinstance(value, str) and (text := value.strip()[:_MAX_ANNOTATION_LENGTH]):
            values = found.annotations.setdefault(key, [])
            if text not in values:
                values.append(text)


def _refusal(attributes: Attributes, denial: _Denial) -> ApiError:
    kind = attributes.served.kind
    bound = f" with binding '{denial.binding.name}'" if denial.binding is not None else ""
    message = f"ValidatingAdmissionPolicy '{denial.policy.name}'{bound} denied request: {denial.message}"
    reason = denial.reason or "Invalid"
    name = shown_name(attributes)
    return ApiError.from_status(
        {
            "message": f'{qualified(kind.group, kind.plural)} "{name}" is forbidden: {message}',
            "reason": reason,
            "code": _CODES.get(reason, 422),
            "details": naming(kind.group, kind.plural, name) | {"causes": [{"message": message}]},
        }
    )
