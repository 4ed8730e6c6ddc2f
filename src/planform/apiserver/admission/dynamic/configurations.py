"""The kinds of `admissionregistration.k8s.io`: what is filled in, and what is refused when one is written."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar, Final
from urllib.parse import urlsplit

from planform.api.kinds import Object
from planform.apimachinery import names
from planform.apimachinery.schema_findings import duplicate, forbidden, invalid, not_supported, required, too_many
from planform.apiserver.crds.strategies import Strategy
from planform.errors import FieldError

GROUP: Final = "admissionregistration.k8s.io"
MUTATING: Final = f"mutatingwebhookconfigurations.{GROUP}"
VALIDATING: Final = f"validatingwebhookconfigurations.{GROUP}"
POLICIES: Final = f"validatingadmissionpolicies.{GROUP}"
BINDINGS: Final = f"validatingadmissionpolicybindings.{GROUP}"

REVIEW_VERSIONS: Final = ("v1", "v1beta1")
_FAILURE_POLICIES: Final = ("Fail", "Ignore")
_MATCH_POLICIES: Final = ("Equivalent", "Exact")
_SIDE_EFFECTS: Final = ("None", "NoneOnDryRun")
_OPERATIONS: Final = ("*", "CONNECT", "CREATE", "DELETE", "UPDATE")
_SCOPES: Final = ("*", "Cluster", "Namespaced")
_ACTIONS: Final = ("Audit", "Deny", "Warn")
_REASONS: Final = ("Forbidden", "Invalid", "RequestEntityTooLarge")
_URL_FORM: Final = "; desired format: https://host[/path]"
_MAX_CONDITIONS: Final = 64
_MAX_ANNOTATIONS: Final = 20
_MAX_VALUE_EXPRESSION_LENGTH: Final = 5 * 1024
_IDENTIFIER: Final = re.compile(r"[_a-zA-Z][_a-zA-Z0-9]*$")

Errors = Iterator[FieldError]


class _Configuration(Strategy):
    allows_bare_finalizers: ClassVar[bool] = False


class WebhookConfigurations(_Configuration):
    """ValidatingWebhookConfiguration and MutatingWebhookConfiguration."""

    def __init__(self, *, mutating: bool) -> None:
        self._mutating = mutating

    def prepare(self, new: Object, old: Object | None, subresource: str) -> None:
        for hook in _objects(new.get("webhooks")):
            _fill(hook, failurePolicy="Fail", matchPolicy="Equivalent", timeoutSeconds=10)
            _fill_selectors(hook)
            if self._mutating:
                _fill(hook, reinvocationPolicy="Never")
            for rule in _objects(hook.get("rules")):
                _fill(rule, scope="*")
            config = hook.get("clientConfig")
            if isinstance(config, dict) and isinstance(config.get("service"), dict):
                _fill(config["service"], port=443)

    def validate(self, new: Object, old: Object | None, subresource: str) -> Sequence[FieldError]:
        errors: list[FieldError] = []
        seen: set[str] = set()
        known = _known_conditions((old or {}).get("webhooks"))
        for index, hook in enumerate(new.get("webhooks") or ()):
            where = f"webhooks[{index}]"
            errors += _webhook_errors(hook, where, known, mutating=self._mutating)
            name = hook.get("name") or ""
            if name and name in seen:
                errors.append(duplicate(f"{where}.name", name))
            seen.add(name)
        return errors


class Policies(_Configuration):
    """ValidatingAdmissionPolicy."""

    def prepare(self, new: Object, old: Object | None, subresource: str) -> None:
        spec = new.get("spec")
        if isinstance(spec, dict) and not subresource:
            _fill(spec, failurePolicy="Fail")
            _fill_match_resources(spec.get("matchConstraints"))

    def validate(self, new: Object, old: Object | None, subresource: str) -> Sequence[FieldError]:
        if subresource:
            return ()
        if old is not None and new.get("spec") == old.get("spec"):
            return ()
        return list(_policy_errors(str(new["metadata"].get("name") or ""), new.get("spec") or {}))


class Bindings(_Configuration):
    """ValidatingAdmissionPolicyBinding."""

    def prepare(self, new: Object, old: Object | None, subresource: str) -> None:
        spec = new.get("spec")
        if isinstance(spec, dict):
            _fill_match_resources(spec.get("matchResources"))

    def validate(self, new: Object, old: Object | None, subresource: str) -> Sequence[FieldError]:
        spec, where = new.get("spec") or {}, "spec"
        errors: list[FieldError] = []
        policy = spec.get("policyName") or ""
        if not policy:
            errors.append(required(f"{where}.policyName"))
        else:
            errors += [invalid(f"{where}.policyName", policy, text) for text in names.subdomain_problems(policy)]
        if spec.get("paramRef") is not None:
            errors += _param_ref_errors(spec["paramRef"], f"{where}.paramRef")
        if spec.get("matchResources") is not None:
            errors += _match_resources_errors(spec["matchResources"], f"{where}.matchResources")
        errors += _action_errors(spec.get("validationActions") or (), f"{where}.validationActions")
        return errors


# -- what is filled in


def _objects(value: object) -> Iterator[dict[str, Any]]:
    """The objects in a list; the schema refuses anything else."""
    return (item for item in value if isinstance(item, dict)) if isinstance(value, list) else iter(())


def _fill(obj: dict[str, Any], **defaults: Any) -> None:
    for name, value in defaults.items():
        if obj.get(name) is None:
            obj[name] = value


def _fill_selectors(obj: dict[str, Any]) -> None:
    for name in ("namespaceSelector", "objectSelector"):
        if obj.get(name) is None:
            obj[name] = {}


def _fill_match_resources(match: object) -> None:
    if isinstance(match, dict):
        _fill(match, matchPolicy="Equivalent")
        _fill_selectors(match)
        for field in ("resourceRules", "excludeResourceRules"):
            for rule in _objects(match.get(field)):
                _fill(rule, scope="*")


# -- what is refused


def _webhook_errors(hook: Object, where: str, known: frozenset[str], *, mutating: bool) -> Errors:
    name = hook.get("name") or ""
    if not name:
        yield required(f"{where}.name")
    elif problems := names.subdomain_problems(name):
        yield invalid(f"{where}.name", name, ",".join(problems))
    elif name.count(".") < 2:
        yield invalid(f"{where}.name", name, "should be a domain with at least three segments separated by dots")
    for index, rule in enumerate(hook.get("rules") or ()):
        yield from _rule_errors(rule, f"{where}.rules[{index}]")
    yield from _choice(hook, "failurePolicy", _FAILURE_POLICIES, where)
    yield from _choice(hook, "matchPolicy", _MATCH_POLICIES, where)
    if hook.get("sideEffects") is None:
        yield required(f"{where}.sideEffects", f"must specify one of {', '.join(_SIDE_EFFECTS)}")
    else:
        yield from _choice(hook, "sideEffects", _SIDE_EFFECTS, where)
    seconds = hook.get("timeoutSeconds")
    if isinstance(seconds, int) and not 1 <= seconds <= 30:
        yield invalid(f"{where}.timeoutSeconds", seconds, "the timeout value must be between 1 and 30 seconds")
    for field in ("namespaceSelector", "objectSelector"):
        yield from _selector_errors(hook.get(field), f"{where}.{field}")
    if mutating:
        yield from _choice(hook, "reinvocationPolicy", ("IfNeeded", "Never"), where)
    yield from _client_config_errors(hook.get("clientConfig") or {}, f"{where}.clientConfig")
    yield from _condition_errors(hook.get("matchConditions") or (), f"{where}.matchConditions", known, params=False)
    yield from _review_version_errors(hook.get("admissionReviewVersions") or (), f"{where}.admissionReviewVersions")


def _choice(obj: Mapping[str, Any], field: str, allowed: Sequence[str], where: str) -> Errors:
    value = obj.get(field)
    if value is not None and value not in allowed:
        yield not_supported(f"{where}.{field}", value, allowed)


def _review_version_errors(versions: Sequence[str], where: str) -> Errors:
    if not versions:
        yield required(where, f"must specify one of {', '.join(REVIEW_VERSIONS)}")
        return
    seen: set[str] = set()
    for index, version in enumerate(versions):
        if version in seen:
            yield invalid(f"{where}[{index}]", version, "duplicate version")
            continue
        seen.add(version)
        for text in names.label_1035_problems(version):
            yield invalid(f"{where}[{index}]", version, text)
    if not seen & set(REVIEW_VERSIONS):
        yield invalid(where, list(versions), f"must include at least one of {', '.join(REVIEW_VERSIONS)}")


def _client_config_errors(config: Mapping[str, Any], where: str) -> Errors:
    url, service = config.get("url"), config.get("service")
    if (url is None) == (service is None):
        yield required(where, "exactly one of url or service is required")
    elif url is not None:
        yield from _url_errors(url, f"{where}.url")
    else:
        yield from _service_errors(service or {}, f"{where}.service")
    bundle = config.get("caBundle")
    if bundle:
        try:
            base64.b64decode(bundle, validate=True)
        except (binascii.Error, ValueError) as error:
            yield invalid(f"{where}.caBundle", bundle, f"illegal base64 data: {error}")


def _url_errors(url: str, where: str) -> Errors:
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError as error:
        yield required(where, f"url must be a valid URL: {error}{_URL_FORM}")
        return
    if parts.scheme != "https":
        yield invalid(where, parts.scheme, f"'https' is the only allowed URL scheme{_URL_FORM}")
    if not parts.netloc:
        yield invalid(where, "", f"host must be specified{_URL_FORM}")
    if "@" in parts.netloc:
        yield invalid(where, parts.netloc.rpartition("@")[0], "user information is not permitted in the URL")
    if parts.fragment:
        yield invalid(where, parts.fragment, "fragments are not permitted in the URL")
    if parts.query:
        yield invalid(where, parts.query, "query parameters are not permitted in the URL")


def _service_errors(service: Mapping[str, Any], where: str) -> Errors:
    for field in ("name", "namespace"):
        if not service.get(field):
            yield required(f"{where}.{field}")
    port = service.get("port")
    if isinstance(port, int) and not 1 <= port <= 65535:
        yield invalid(f"{where}.port", port, "port is not valid: must be between 1 and 65535, inclusive")
    path = service.get("path")
    if not path or path == "/":
        return
    if not path.startswith("/"):
        yield invalid(f"{where}.path", path, "must start with a '/'")
    for index, step in enumerate(path[1:].removesuffix("/").split("/")):
        if not step:
            yield invalid(f"{where}.path", path, f"segment[{index}] may not be empty")
            continue
        for text in names.subdomain_problems(step):
            yield invalid(f"{where}.path", path, f"segment[{index}]: {text}")


def _rule_errors(rule: Mapping[str, Any], where: str) -> Errors:
    seen: set[str] = set()
    for index, name in enumerate(rule.get("resourceNames") or ()):
        for text in names.path_segment_problems(name):
            yield invalid(f"{where}.resourceNames[{index}]", name, text)
        if name in seen:
            yield duplicate(f"{where}.resourceNames[{index}]", name)
        seen.add(name)
    operations = rule.get("operations") or []
    if not operations:
        yield required(f"{where}.operations")
    yield from _lone_wildcard(operations, f"{where}.operations", "operations")
    for index, operation in enumerate(operations):
        if operation not in _OPERATIONS:
            yield not_supported(f"{where}.operations[{index}]", operation, _OPERATIONS)
    for field, word in (("apiGroups", "API groups"), ("apiVersions", "API versions")):
        values = rule.get(field) or []
        if not values:
            yield required(f"{where}.{field}")
        yield from _lone_wildcard(values, f"{where}.{field}", word)
    for index, version in enumerate(rule.get("apiVersions") or ()):
        if not version:
            yield required(f"{where}.apiVersions[{index}]")
    yield from _resource_errors(rule.get("resources") or [], f"{where}.resources")
    yield from _choice(rule, "scope", _SCOPES, where)


def _lone_wildcard(values: Sequence[str], where: str, word: str) -> Errors:
    if len(values) > 1 and "*" in values:
        yield invalid(where, list(values), f"if '*' is present, must not specify other {word}")


def _resource_errors(resources: Sequence[str], where: str) -> Errors:
    if not resources:
        yield required(where)
    whole: set[str] = set()  # resources of which every subresource is meant
    everywhere: set[str] = set()  # subresources that are meant of every resource
    plain = False
    for index, text in enumerate(resources):
        if not text:
            yield required(f"{where}[{index}]")
            continue
        resource, slash, sub = text.partition("/")
        if not slash:
            plain = text != "*"
            continue
        if resource in whole:
            yield invalid(f"{where}[{index}]", text, f"if '{resource}/*' is present, must not specify {text}")
        if sub in everywhere:
            yield invalid(f"{where}[{index}]", text, f"if '*/{sub}' is present, must not specify {text}")
        if sub == "*":
            whole.add(resource)
        if resource == "*":
            everywhere.add(sub)
    if len(resources) > 1 and "*/*" in resources:
        yield invalid(where, list(resources), "if '*/*' is present, must not specify other resources")
    if "*" in resources and plain:
        text = "if '*' is present, must not specify other resources without subresources"
        yield invalid(where, list(resources), text)


def _selector_errors(selector: Any, where: str) -> Errors:
    selector = selector or {}
    for key, value in (selector.get("matchLabels") or {}).items():
        for text in names.qualified_name_problems(key):
            yield invalid(f"{where}.matchLabels", key, text)
        for text in names.label_value_problems(value):
            yield invalid(f"{where}.matchLabels", value, text)
    for index, term in enumerate(selector.get("matchExpressions") or ()):
        at = f"{where}.matchExpressions[{index}]"
        operator, values = term.get("operator"), term.get("values") or ()
        if operator in ("In", "NotIn"):
            if not values:
                yield required(f"{at}.values", "must be specified when `operator` is 'In' or 'NotIn'")
        elif operator in ("Exists", "DoesNotExist"):
            if values:
                yield forbidden(f"{at}.values", "may not be specified when `operator` is 'Exists' or 'DoesNotExist'")
        else:
            yield invalid(f"{at}.operator", operator, "not a valid selector operator")
        for text in names.qualified_name_problems(term.get("key") or ""):
            yield invalid(f"{at}.key", term.get("key") or "", text)
        for number, value in enumerate(values):
            for text in names.label_value_problems(value):
                yield invalid(f"{at}.values[{number}]", value, text)


def _known_conditions(hooks: object) -> frozenset[str]:
    """The expressions that are stored already: they were good when they were, and are not validated again."""
    return frozenset(
        str(condition.get("expression"))
        for hook in _objects(hooks)
        for condition in _objects(hook.get("matchConditions"))
    )


def _condition_errors(
    conditions: Sequence[Mapping[str, Any]], where: str, known: frozenset[str], *, params: bool
) -> Errors:
    if len(conditions) > _MAX_CONDITIONS:
        yield too_many(where, len(conditions), _MAX_CONDITIONS)
    seen: set[str] = set()
    for index, condition in enumerate(conditions):
        expression, name = (condition.get("expression") or "").strip(), condition.get("name") or ""
        if not expression:
            yield required(f"{where}[{index}].expression")
        elif condition.get("expression") not in known:
            yield from _expression_errors(expression, f"{where}[{index}].expression", ("bool",), params=params)
        if not name:
            yield required(f"{where}[{index}].name")
        else:
            for text in names.qualified_name_problems(name):
                yield invalid(f"{where}[{index}].name", name, text)
            if name in seen:
                yield duplicate(f"{where}[{index}].name", name)
            seen.add(name)


def _expression_errors(
    text: str,
    where: str,
    types: tuple[str, ...],
    *,
    params: bool,
    authorizer: bool = True,
    variables: Mapping[str, Any] | None = None,
) -> Errors:
    from planform.apimachinery.cel_syntax import CelError
    from planform.apiserver.admission.dynamic.expressions import compile_admission

    try:
        compile_admission(text, types, params=params, authorizer=authorizer, variables=variables)
    except CelError as error:
        yield invalid(where, text, str(error))


def _policy_errors(name: str, spec: Mapping[str, Any]) -> Errors:
    where = "spec"
    yield from _choice(spec, "failurePolicy", _FAILURE_POLICIES, where)
    params = spec.get("paramKind") is not None
    if params:
        yield from _param_kind_errors(spec["paramKind"], f"{where}.paramKind")
    constraints = spec.get("matchConstraints")
    if constraints is None:
        yield required(f"{where}.matchConstraints")
    else:
        yield from _match_resources_errors(constraints, f"{where}.matchConstraints")
        if not constraints.get("resourceRules"):
            yield required(f"{where}.matchConstraints.resourceRules")
    yield from _condition_errors(
        spec.get("matchConditions") or (), f"{where}.matchConditions", frozenset(), params=params
    )
    variables: dict[str, Any] = {}
    yield from _variable_errors(spec.get("variables") or (), f"{where}.variables", variables, params=params)
    validations, annotations = spec.get("validations") or (), spec.get("auditAnnotations") or ()
    if not validations and not annotations:
        for field in ("validations", "auditAnnotations"):
            yield required(f"{where}.{field}", "validations or auditAnnotations must contain at least one item")
        return
    for index, validation in enumerate(validations):
        yield from _validation_errors(validation, f"{where}.validations[{index}]", variables, params=params)
    if len(annotations) > _MAX_ANNOTATIONS:
        text = f"must not have more than {_MAX_ANNOTATIONS} auditAnnotations"
        yield invalid(f"{where}.auditAnnotations", list(annotations), text)
    seen: set[str] = set()
    for index, annotation in enumerate(annotations):
        at = f"{where}.auditAnnotations[{index}]"
        yield from _annotation_errors(name, annotation, at, variables, params=params)
        key = annotation.get("key") or ""
        if key in seen:
            yield duplicate(f"{at}.key", key)
        seen.add(key)


def _variable_errors(
    declared: Sequence[Mapping[str, Any]], where: str, variables: dict[str, Any], *, params: bool
) -> Errors:
    from planform.apimachinery.cel_syntax import CelError
    from planform.apimachinery.cel_types import DYN
    from planform.apiserver.admission.dynamic.expressions import compile_admission

    for index, variable in enumerate(declared):
        name, text = variable.get("name") or "", variable.get("expression") or ""
        if not name.strip():
            yield required(f"{where}[{index}].name", "name is not specified")
        elif not _IDENTIFIER.match(name):
            yield invalid(f"{where}[{index}].name", name, "must be a valid CEL identifier")
        if not text.strip():
            yield required(f"{where}[{index}].expression", "expression is not specified")
            continue
        try:
            compiled = compile_admission(text, (), params=params, variables=dict(variables))
        except CelError as error:
            yield invalid(f"{where}[{index}].expression", text, str(error))
            variables[name] = DYN  # so that what uses it is not blamed for it
        else:
            variables[name] = compiled.type


def _validation_errors(
    validation: Mapping[str, Any], where: str, variables: Mapping[str, Any], *, params: bool
) -> Errors:
    text, message = validation.get("expression") or "", validation.get("message") or ""
    made = validation.get("messageExpression") or ""
    if not text.strip():
        yield required(f"{where}.expression", "expression is not specified")
    else:
        yield from _expression_errors(text, f"{where}.expression", ("bool",), params=params, variables=variables)
    if made and not made.strip():
        yield invalid(f"{where}.messageExpression", made, "must be non-empty if specified")
    elif made:
        yield from _expression_errors(
            made, f"{where}.messageExpression", ("string",), params=params, authorizer=False, variables=variables
        )
    if message and not message.strip():
        yield invalid(f"{where}.message", message, "must be non-empty if specified")
    elif "\n" in message.strip() or "\r" in message.strip():
        yield invalid(f"{where}.message", message, "must not contain line breaks")
    yield from _choice(validation, "reason", _REASONS, where)


def _annotation_errors(
    policy: str, annotation: Mapping[str, Any], where: str, variables: Mapping[str, Any], *, params: bool
) -> Errors:
    key, text = annotation.get("key") or "", (annotation.get("valueExpression") or "").strip()
    for problem in names.qualified_name_problems(f"{policy}/{key}"):
        yield invalid(f"{where}.key", f"{policy}/{key}", problem)
    if not text:
        yield required(f"{where}.valueExpression", "valueExpression is not specified")
    elif len(text) > _MAX_VALUE_EXPRESSION_LENGTH:
        yield required(f"{where}.valueExpression", f"must not exceed {_MAX_VALUE_EXPRESSION_LENGTH} bytes in length")
    else:
        types = ("string", "null")
        yield from _expression_errors(text, f"{where}.valueExpression", types, params=params, variables=variables)


def _param_kind_errors(kind: Mapping[str, Any], where: str) -> Errors:
    version, name = kind.get("apiVersion") or "", kind.get("kind") or ""
    group, _, short = version.rpartition("/")
    if not version:
        yield required(f"{where}.apiVersion")
    elif version.count("/") > 1:
        yield invalid(f"{where}.apiVersion", version, f"unexpected GroupVersion string: {version}")
    else:
        if group and (problems := names.subdomain_problems(group)):
            yield invalid(f"{where}.apiVersion", group, ",".join(problems))
        if not short:
            yield invalid(f"{where}.apiVersion", version, "version must be specified")
        elif problems := names.label_1035_problems(short):
            yield invalid(f"{where}.apiVersion", short, ",".join(problems))
    if not name:
        yield required(f"{where}.kind")
    elif problems := names.label_1035_problems(name.lower()):
        text = f"may have mixed case, but should otherwise match: {','.join(problems)}"
        yield invalid(f"{where}.kind", name, text)


def _match_resources_errors(match: Mapping[str, Any], where: str) -> Errors:
    yield from _choice(match, "matchPolicy", _MATCH_POLICIES, where)
    for field in ("namespaceSelector", "objectSelector"):
        yield from _selector_errors(match.get(field), f"{where}.{field}")
    for field in ("resourceRules", "excludeResourceRules"):
        for index, rule in enumerate(match.get(field) or ()):
            yield from _rule_errors(rule, f"{where}.{field}[{index}]")


def _param_ref_errors(reference: Mapping[str, Any], where: str) -> Errors:
    name, selector = reference.get("name") or "", reference.get("selector")
    for text in names.path_segment_problems(name) if name else ():
        yield invalid(f"{where}.name", name, text)
    if name and selector is not None:
        yield forbidden(f"{where}.name", "name and selector are mutually exclusive")
    yield from _selector_errors(selector, f"{where}.selector")
    if name and selector is not None:
        yield forbidden(f"{where}.selector", "name and selector are mutually exclusive")
    if not name and selector is None:
        yield required(where, "one of name or selector must be specified")
    action = reference.get("parameterNotFoundAction")
    if not action:
        yield required(f"{where}.parameterNotFoundAction")
    elif action not in ("Deny", "Allow"):
        yield not_supported(f"{where}.parameterNotFoundAction", action, ("Deny", "Allow"))


def _action_errors(actions: Sequence[str], where: str) -> Errors:
    seen: set[str] = set()
    for index, action in enumerate(actions):
        if action not in _ACTIONS:
            yield not_supported(f"{where}[{index}]", action, _ACTIONS)
        if action in seen:
            yield duplicate(f"{where}[{index}]", action)
        seen.add(action)
    if {"Deny", "Warn"} <= seen:
        yield invalid(
            where,
            list(actions),
            "must not contain both Deny and Warn (repeating the same validation failure information in the API "
            "response and headers serves no purpose)",
        )
    if not actions:
        yield required(where, "at least one validation action is required")


STRATEGIES: Final[Mapping[str, Strategy]] = {
    MUTATING: WebhookConfigurations(mutating=True),
    VALIDATING: WebhookConfigurations(mutating=False),
    POLICIES: Policies(),
    BINDINGS: Bindings(),
}
