"""What expressions of a policy make no sense for the kinds that it is about, by their schemas; for its status.

An expression that a write is held against sees objects as they are, whatever their kind. A policy that names its kinds
can be checked beforehand: a field that none of them has is most likely a mistake. The findings are warnings, worded as
kube-apiserver words them, and change nothing in what the policy does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import product
from typing import Any, Final

from planform.api.builtin import resolve, schema_name
from planform.api.kinds import GroupVersionKind, Object
from planform.apimachinery.cel_syntax import CelError
from planform.apimachinery.cel_types import DYN, Type, schema_type
from planform.apiserver.admission.dynamic.expressions import compile_admission
from planform.apiserver.crds.registry import KindRegistry, ServedKind
from planform.errors import NotFound

MAX_KINDS: Final = 10
_UNKNOWN: Final = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
_REFERENCE: Final = "$ref"
_BEFORE: Final = "compilation failed: "
"""What refusals begin with, and warnings do not."""
_NESTED: Final = ("items", "additionalProperties")


def expression_warnings(policy: Object, registry: KindRegistry) -> list[Object]:
    """The `expressionWarnings` of a policy. May take some milliseconds for each kind and expression."""
    spec = policy.get("spec") or {}
    kinds = [(served, _type_of(served)) for served in _kinds(spec, registry)]
    params = _params_type(spec, registry)
    warnings: list[Object] = []
    for index, validation in enumerate(spec.get("validations") or ()):
        for member in ("expression", "messageExpression"):
            text = validation.get(member) or ""
            said = [_finding(spec, text, served, kind, params) for served, kind in kinds] if text else []
            if any(said):
                where = f"spec.validations[{index}].{member}"
                warnings.append({"fieldRef": where, "warning": "\n".join(filter(None, said))})
    return warnings


def _finding(spec: Object, text: str, served: ServedKind, kind: Type, params: Type | None) -> str:
    """What is wrong with an expression about a kind; empty if nothing is."""
    types = {"object": kind, "oldObject": kind} | ({"params": params} if params is not None else {})
    try:
        compile_admission(text, (), params=params is not None, variables=_variables(spec, types), types_of=types)
    except CelError as error:
        shown = served.kind
        return f"{shown.group}/{shown.version}, Kind={shown.kind}: {str(error).removeprefix(_BEFORE)}\n"
    return ""


def _variables(spec: Object, types: Mapping[str, Type]) -> dict[str, Type]:
    """The types of a policy's variables; of those that make no sense themselves, nothing is known."""
    found: dict[str, Type] = {}
    for variable in spec.get("variables") or ():
        try:
            made = compile_admission(
                variable["expression"], (), params="params" in types, variables=dict(found), types_of=types
            )
        except CelError:
            found[variable["name"]] = DYN
        else:
            found[variable["name"]] = made.type
    return found


def _kinds(spec: Object, registry: KindRegistry) -> Sequence[ServedKind]:
    """The kinds that the rules of a policy name one by one, in order; rules with a wildcard name none."""
    found: dict[GroupVersionKind, ServedKind] = {}
    for rule in (spec.get("matchConstraints") or {}).get("resourceRules") or ():
        groups, versions = rule.get("apiGroups") or (), rule.get("apiVersions") or ()
        if any("*" in each for each in (*groups, *versions)):
            continue
        resources = [each for each in rule.get("resources") or () if "*" not in each and "/" not in each]
        count = 0
        for path in product(sorted(groups), sorted(versions), sorted(resources)):
            served = registry.at_path(*path)
            if served is None:
                continue
            found[served.kind.gvk] = served
            count += 1
            if count == MAX_KINDS:
                return [found[gvk] for gvk in sorted(found)]
    return [found[gvk] for gvk in sorted(found)]


def _params_type(spec: Object, registry: KindRegistry) -> Type | None:
    """None for a policy without parameters; of a kind that is not served, nothing is known."""
    kind = spec.get("paramKind")
    if not isinstance(kind, dict):
        return None
    group, _, version = str(kind.get("apiVersion") or "").rpartition("/")
    try:
        return _type_of(registry.find(GroupVersionKind(group, version, str(kind.get("kind")))))
    except NotFound:
        return DYN


def _type_of(served: ServedKind) -> Type:
    if served.openapi is None:
        return DYN
    whole = _resolved(served.openapi, served.resolve, frozenset())
    if not served.builtin:  # what a CRD says of these is not all that its objects have
        every = {"apiVersion": {"type": "string"}, "kind": {"type": "string"}, "metadata": _metadata()}
        whole = {**whole, "properties": {**(whole.get("properties") or {}), **every}}
    return schema_type(whole) or DYN


def _metadata() -> dict[str, Any]:
    return _resolved(resolve(schema_name(GroupVersionKind("meta.k8s.io", "v1", "ObjectMeta"))), resolve, frozenset())


def _resolved(schema: Any, find: Callable[[str], Any] | None, above: frozenset[str]) -> dict[str, Any]:
    """A schema with those that it refers to in their places, except where one is part of itself."""
    if not isinstance(schema, Mapping):
        return {}
    reference = schema.get(_REFERENCE) or next(_references(schema), None)
    if reference is not None:
        if reference in above or find is None:
            return dict(_UNKNOWN)
        return _resolved(find(reference), find, above | {reference})
    found = dict(schema)
    if properties := schema.get("properties"):
        found["properties"] = {name: _resolved(value, find, above) for name, value in properties.items()}
    for member in _NESTED:
        if isinstance(schema.get(member), Mapping):
            found[member] = _resolved(schema[member], find, above)
    return found


def _references(schema: Mapping[str, Any]) -> Iterator[str]:
    """A reference with a default or a description beside it stands in `allOf`."""
    parts: Sequence[Any] = schema.get("allOf") or []
    if len(parts) == 1 and isinstance(parts[0], Mapping) and _REFERENCE in parts[0]:
        yield parts[0][_REFERENCE]
