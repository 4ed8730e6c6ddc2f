"""The CEL rules of a schema (`x-kubernetes-validations`): compiled once per schema, checked on every write.

`cel_errors` is for the moment a CRD is created: does each rule compile, is it a bool, can it get too expensive.
`compile_rules` and `Rules.check` are for the objects: every level of the object meets the rules of its level, with the
old value beside it where old and new can be matched.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import orjson

from planform.apimachinery import schema_findings as say
from planform.apimachinery.cel_expression import CALL_BUDGET, Expression, compile_typed
from planform.apimachinery.cel_syntax import CelError
from planform.apimachinery.cel_types import MAX_REQUEST_BYTES, Type, optional_of, schema_type
from planform.apimachinery.cel_values import NOTHING, BudgetExceeded, EvaluationError, Optional, item_key
from planform.apimachinery.schema_findings import NOWHERE, MapKey, Path, render
from planform.apimachinery.schema_values import SchemaDict
from planform.apimachinery.structural import field_path
from planform.errors import FieldError

OBJECT_BUDGET = 10_000_000
RULE_COST_LIMIT = 10_000_000
SCHEMA_COST_LIMIT = 100_000_000
MAX_MESSAGE_LENGTH = 5 * 1024


@dataclass(frozen=True, slots=True)
class _Rule:
    """One rule of one level, ready to run."""

    text: str
    expression: Expression
    uses_old: bool
    optional_old: bool
    message: str
    message_expression: Expression | None
    reason: str
    field_path: str

    @property
    def label(self) -> str:
        return self.message or self.text


@dataclass(slots=True)
class _Level:
    """A schema node that has rules, or has them somewhere below."""

    kind: str
    rules: list[_Rule] = field(default_factory=list)
    properties: dict[str, _Level] = field(default_factory=dict)
    extra: _Level | None = None
    items: _Level | None = None
    correlates: bool = True
    keys: tuple[str, ...] = ()


class _OutOfBudget(Exception):
    """No further rules are run for this object."""


class Rules:
    """The compiled rules of a schema. `any` says whether there are some."""

    def __init__(self, root: _Level | None) -> None:
        self._root = root
        self.any = root is not None

    def check(self, obj: Any, old: Any = None, path: str = "", *, budget: float = OBJECT_BUDGET) -> list[FieldError]:
        """What the rules say against an object that is valid by its schema; `old` is None on create.

        A rule that does not look at the old value is not held against a part that did not change.
        """
        if self._root is None or obj is None:
            return []
        run = _Run(path, budget)
        try:
            run.level(self._root, obj, old, None)
        except _OutOfBudget:
            pass
        return run.errors


class _Run:
    """One check of one object."""

    def __init__(self, prefix: str, budget: float) -> None:
        self._prefix = prefix
        self._budget = budget
        self.errors: list[FieldError] = []

    def level(self, level: _Level, value: Any, old: Any, path: Path) -> None:
        for rule in level.rules:
            self._rule(rule, level, value, old, path)
        if type(value) is dict:
            olds = old if type(old) is dict and level.correlates else {}
            for name, child in level.properties.items():
                if value.get(name) is not None:
                    self.level(child, value[name], olds.get(name), (path, name))
            if level.extra is not None:
                for name, item in value.items():
                    if item is not None:
                        self.level(level.extra, item, olds.get(name), (path, MapKey(name)))
        elif type(value) is list and level.items is not None:
            by_key = {item_key(item, level.keys): item for item in old} if level.keys and type(old) is list else {}
            for index, item in enumerate(value):
                if item is not None:
                    before = by_key.get(item_key(item, level.keys)) if by_key else None
                    self.level(level.items, item, before, (path, index))

    def _where(self, path: Path, more: str = "") -> str:
        text = render(path, bracket_keys=True)
        joined = f"{self._prefix}.{text}" if self._prefix and text else self._prefix or text
        return (joined + more).removeprefix(".") or NOWHERE

    def _rule(self, rule: _Rule, level: _Level, value: Any, old: Any, path: Path) -> None:
        if rule.uses_old and old is None and not rule.optional_old:
            return
        bindings = {"self": value}
        if rule.uses_old:
            bindings["oldSelf"] = old
        try:
            holds = self._evaluate(rule.expression, bindings, optional_old=rule.optional_old)
        except EvaluationError as error:
            if str(error).startswith("no such overload"):
                detail = (
                    f"'{error}': call arguments did not match a supported operator, function or macro signature for "
                    f"rule: {rule.label}"
                )
            else:
                detail = f"{error} evaluating rule: {rule.label}"
            self.errors.append(say.invalid(self._where(path), level.kind, detail))
            return
        except BudgetExceeded:
            if self._budget < CALL_BUDGET:
                detail = "validation failed due to running out of cost budget, no further validation rules will be run"
            else:
                detail = (
                    "'operation cancelled: actual cost limit exceeded': no further validation rules will be run due to "
                    f"call cost exceeds limit for rule: {rule.label}"
                )
            self.errors.append(say.invalid(self._where(path), level.kind, detail))
            raise _OutOfBudget from None
        if holds is True or (not rule.uses_old and old is not None and _same(value, old)):
            return
        self.errors.append(self._failure(rule, level, bindings, path))

    def _evaluate(self, expression: Expression, bindings: Mapping[str, Any], *, optional_old: bool) -> Any:
        if optional_old and "oldSelf" in bindings:
            before = bindings["oldSelf"]
            bindings = {**bindings, "oldSelf": NOTHING if before is None else Optional(True, before)}
        allowed = min(CALL_BUDGET, self._budget)
        value, left = expression.run(bindings, allowed)
        self._budget -= allowed - left
        return value

    def _failure(self, rule: _Rule, level: _Level, bindings: Mapping[str, Any], path: Path) -> FieldError:
        where = self._where(path, rule.field_path)
        detail = self._message(rule, bindings) or rule.message or f"failed rule: {rule.text}"
        shown = "" if level.kind in ("object", "array") else f": {say.show(bindings['self'])}"
        match rule.reason:
            case "FieldValueForbidden":
                return say.forbidden(where, detail)
            case "FieldValueRequired":
                return say.required(where, detail)
            case "FieldValueDuplicate":
                return FieldError(where, "FieldValueDuplicate", f"Duplicate value{shown}")
        return FieldError(where, "FieldValueInvalid", f"Invalid value{shown}: {detail}")

    def _message(self, rule: _Rule, bindings: Mapping[str, Any]) -> str:
        """What messageExpression says; nothing if it fails, is empty or does not fit on a line."""
        if rule.message_expression is None:
            return ""
        try:
            made = self._evaluate(rule.message_expression, bindings, optional_old=rule.optional_old)
        except (EvaluationError, BudgetExceeded):
            return ""
        text = made.strip() if isinstance(made, str) else ""
        return text if len(text.encode()) <= MAX_MESSAGE_LENGTH and "\n" not in text else ""


def compile_rules(schema: SchemaDict, *, root: bool = True) -> Rules:
    """The rules of a schema and of everything below it; raises CelError for a schema that `cel_errors` would refuse.

    With `root`, rules of the top level also see apiVersion, kind and the name in metadata.
    """
    return _compile_rules(orjson.dumps(schema), root)


@lru_cache(maxsize=256)
def _compile_rules(schema: bytes, root: bool) -> Rules:
    return Rules(_level(orjson.loads(schema), root=root))


def _level(schema: SchemaDict, *, root: bool) -> _Level | None:
    level = _Level(schema.get("type") or "")
    if declared := schema.get("x-kubernetes-validations"):
        kind = schema_type(schema, root=root or bool(schema.get("x-kubernetes-embedded-resource")))
        if kind is None:
            raise CelError("rules need a schema with a type")
        level.rules = [_compile_rule(rule, kind, schema) for rule in declared]
    for name, sub in (schema.get("properties") or {}).items():
        if (child := _level(sub, root=False)) is not None:
            level.properties[name] = child
    if isinstance(extra := schema.get("additionalProperties"), Mapping):
        level.extra = _level(extra, root=False)
    if isinstance(items := schema.get("items"), Mapping):
        level.items = _level(items, root=False)
    level.correlates = schema.get("x-kubernetes-map-type") != "atomic"
    if schema.get("x-kubernetes-list-type") == "map":
        level.keys = tuple(schema.get("x-kubernetes-list-map-keys") or ())
    found = level.rules or level.properties or level.extra is not None or level.items is not None
    return level if found else None


def _compile_rule(rule: Mapping[str, Any], kind: Type, schema: SchemaDict) -> _Rule:
    optional_old = bool(rule.get("optionalOldSelf"))
    variables = {"self": kind, "oldSelf": optional_of(kind) if optional_old else kind}
    expression = compile_typed(rule["rule"], variables)
    if expression.type.name != "bool":
        raise CelError("cel expression must evaluate to a bool")
    message = None
    if text := (rule.get("messageExpression") or "").strip():
        message = compile_typed(text, variables)
        if message.type.name != "string":
            raise CelError("messageExpression must evaluate to a string")
    return _Rule(
        text=rule["rule"].strip(),
        expression=expression,
        uses_old="oldSelf" in expression.names,
        optional_old=optional_old,
        message=(rule.get("message") or "").strip(),
        message_expression=message,
        reason=rule.get("reason") or "",
        field_path=(field_path(schema, rule["fieldPath"]) or "") if rule.get("fieldPath") else "",
    )


def cel_errors(schema: SchemaDict, path: str, *, root: bool = True) -> list[FieldError]:
    """Everything wrong with the rules of a schema that passed `structural_errors`; `path` is where it stands."""
    total = 0.0
    costly: list[tuple[float, str]] = []
    errors: list[FieldError] = []
    for rule, place, where in _rules_of(schema, path, _Place(1, None), root=root):
        kind = schema_type(place.schema, root=place.root)
        if kind is None:
            continue
        found, cost = _rule_errors(rule, kind, place, where)
        errors.extend(found)
        total += cost
        costly.append((cost, f"{where}.rule"))
    if total > SCHEMA_COST_LIMIT:
        detail = "contributed to estimated rule cost total exceeding cost limit for entire OpenAPIv3 schema"
        maximum = sorted(costly, reverse=True)[:4]
        errors.extend(say.forbidden(at, detail) for _, at in maximum)
        name = "x-kubernetes-validations estimated rule cost total for entire OpenAPIv3 schema"
        errors.append(say.forbidden(path, _too_costly(name, total, SCHEMA_COST_LIMIT)))
    return errors


@dataclass(slots=True)
class _Place:
    """Where a rule stands: how often that place can occur in one object, and what keeps old and new from matching."""

    times: int | None
    uncorrelated: str | None
    schema: SchemaDict = field(default_factory=dict)
    root: bool = False


def _rules_of(
    schema: SchemaDict, path: str, place: _Place, *, root: bool
) -> Iterator[tuple[Mapping[str, Any], _Place, str]]:
    here = _Place(place.times, place.uncorrelated, schema, root or bool(schema.get("x-kubernetes-embedded-resource")))
    for index, rule in enumerate(schema.get("x-kubernetes-validations") or ()):
        yield rule, here, f"{path}.x-kubernetes-validations[{index}]"
    atomic = place.uncorrelated or (path if schema.get("x-kubernetes-map-type") == "atomic" else None)
    for name, sub in (schema.get("properties") or {}).items():
        yield from _rules_of(sub, f"{path}.properties[{name}]", _Place(place.times, atomic), root=False)
    if isinstance(extra := schema.get("additionalProperties"), Mapping):
        inner = _Place(_multiply(place.times, schema.get("maxProperties")), place.uncorrelated)
        yield from _rules_of(extra, f"{path}.additionalProperties", inner, root=False)
    if isinstance(items := schema.get("items"), Mapping):
        unmatched = place.uncorrelated or (None if schema.get("x-kubernetes-list-type") == "map" else path)
        inner = _Place(_multiply(place.times, schema.get("maxItems")), unmatched)
        yield from _rules_of(items, f"{path}.items", inner, root=False)


def _multiply(times: int | None, limit: int | None) -> int | None:
    return None if times is None or limit is None else times * limit


def _rule_errors(rule: Mapping[str, Any], kind: Type, place: _Place, where: str) -> tuple[list[FieldError], float]:
    shown = {
        "Rule": rule["rule"],
        "Message": rule.get("message") or "",
        "MessageExpression": rule.get("messageExpression") or "",
        "Reason": rule.get("reason"),
        "FieldPath": rule.get("fieldPath") or "",
        "OptionalOldSelf": rule.get("optionalOldSelf"),
    }
    variables = {"self": kind, "oldSelf": optional_of(kind) if rule.get("optionalOldSelf") else kind}
    try:
        expression = compile_typed(rule["rule"], variables)
    except CelError as error:
        return [_refused(f"{where}.rule", shown, f"compilation failed: {error}")], 0
    if expression.type.name != "bool":
        return [_refused(f"{where}.rule", shown, "cel expression must evaluate to a bool")], 0
    errors: list[FieldError] = []
    times = place.times if place.times is not None else MAX_REQUEST_BYTES // (kind.min_bytes + 1)
    cost = expression.max_cost * times
    if cost > RULE_COST_LIMIT:
        errors.append(say.forbidden(f"{where}.rule", _too_costly("estimated rule cost", cost, RULE_COST_LIMIT)))
    if text := (rule.get("messageExpression") or "").strip():
        try:
            message = compile_typed(text, variables)
        except CelError as error:
            detail = f"messageExpression compilation failed: {error}"
            errors.append(_refused(f"{where}.messageExpression", shown, detail))
        else:
            if message.type.name != "string":
                detail = "messageExpression must evaluate to a string"
                errors.append(_refused(f"{where}.messageExpression", shown, detail))
            elif message.max_cost > RULE_COST_LIMIT:
                detail = _too_costly("estimated messageExpression cost", message.max_cost, RULE_COST_LIMIT)
                errors.append(say.forbidden(f"{where}.messageExpression", detail))
    if "oldSelf" in expression.names:
        if place.uncorrelated is not None:
            detail = f"oldSelf cannot be used on the uncorrelatable portion of the schema within {place.uncorrelated}"
            errors.append(say.invalid(f"{where}.rule", rule["rule"], detail))
    elif rule.get("optionalOldSelf") is not None:
        detail = "may not be set if oldSelf is not used in rule"
        errors.append(say.invalid(f"{where}.optionalOldSelf", rule["optionalOldSelf"], detail))
    return errors, cost


def _refused(where: str, rule: Mapping[str, Any], detail: str) -> FieldError:
    """Unlike other values, a rule is shown with its fields in the order they are declared."""
    return FieldError(
        where, "FieldValueInvalid", f"Invalid value: {say.go_json(orjson.dumps(rule).decode())}: {detail}"
    )


def _too_costly(name: str, cost: float, limit: int) -> str:
    factor = cost / limit
    shown = "more than 100x" if factor > 100 else f"{factor:f}x" if factor < 1.5 else f"{factor:.1f}x"
    return (
        f"{name} exceeds budget by factor of {shown} (try simplifying the rule, or adding maxItems, maxProperties, and "
        "maxLength where arrays, maps, and strings are declared)"
    )


def _same(one: Any, other: Any) -> bool:
    return orjson.dumps(one, option=orjson.OPT_SORT_KEYS) == orjson.dumps(other, option=orjson.OPT_SORT_KEYS)
