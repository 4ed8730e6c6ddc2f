"""Value validations: everything a schema says about a value that neither adds, drops nor replaces anything.

A `Rule` is a predicate and an explanation. The walk of a valid object only ever runs predicates; paths are printed and
errors built when one fails. The logical junctors (allOf, anyOf, oneOf, not) hold schemas made of such rules alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final, NamedTuple

import orjson
import re2

from planform.apimachinery import schema_findings as say
from planform.apimachinery.formats import format_check
from planform.apimachinery.schema_findings import NOWHERE, MapKey, Path, render
from planform.errors import FieldError, PlanformError

SchemaDict = Mapping[str, Any]
Explain = Callable[[Any, Path], list[FieldError]]

JSON_TYPES: dict[type, str] = {
    str: "string",
    bool: "boolean",
    int: "integer",
    float: "number",
    dict: "object",
    list: "array",
    type(None): "null",
}
_VALUE_FORMATS: dict[type, str] = {int: "int64", float: "float64"}
_QUIET = re2.Options()
_QUIET.log_errors = False
_WORD: Final = 64
_WORDS: Final = 256
"""So many texts of at most that length does a pattern remember."""


class InvalidSchema(PlanformError):
    """A schema that cannot be compiled; CRDs with such schemas are refused before they get here."""

    reason = "InvalidSchema"


class Rule(NamedTuple):
    """Something a value must satisfy, and how to say that it does not."""

    holds: Callable[[Any], bool]
    explain: Explain


@lru_cache(maxsize=4096)
def compile_pattern(pattern: str) -> Callable[[str], bool]:
    """A search for an RE2 pattern, linear in the text; raises InvalidSchema for a pattern RE2 does not accept.

    A set of one is RE2's fastest way to ask "does it match" from Python; faster still is to remember the answers, for
    the same few words come again and again.
    """
    try:
        re2.compile(pattern, _QUIET)
    except re2.error as error:
        detail = error.args[0].decode() if error.args and isinstance(error.args[0], bytes) else str(error)
        raise InvalidSchema(f"pattern {pattern!r} is not a valid regular expression: {detail}") from error
    matcher = re2.Set.SearchSet(_QUIET)
    matcher.Add(pattern)
    matcher.Compile()
    match = matcher.Match
    known: dict[str, bool] = {}

    def matches(text: str) -> bool:
        answer = known.get(text)
        if answer is None:
            answer = bool(match(text))
            if len(text) <= _WORD and len(known) < _WORDS:
                known[text] = answer
        return answer

    return matches


def identity(value: Any) -> Any:
    """A hashable stand-in: two JSON values have equal ones exactly if they are the same value (1 is 1.0, not true)."""
    kind = type(value)
    if kind is str:
        return value
    if kind is int or kind is float:
        return ("number", value)
    return orjson.dumps(value, option=orjson.OPT_SORT_KEYS)


def value_rules(schema: SchemaDict) -> dict[type, list[Rule]]:
    """The rules of one schema node by the Python type of the value they apply to.

    Those under `object` are for values of any type but null, which only an enum can refuse.
    """
    numbers = _number_rules(schema)
    return {
        str: _string_rules(schema),
        int: _integer_range(schema) + numbers,
        float: _integer_range(schema) + numbers,
        list: _list_rules(schema),
        dict: _object_rules(schema),
        type(None): _enum_rules(schema),
        object: _enum_rules(schema) + _junctor_rules(schema),
    }


def type_names(schema: SchemaDict) -> tuple[str, ...]:
    """The types a schema node allows; none means any."""
    if schema.get("x-kubernetes-int-or-string"):
        return ("integer", "string")
    declared = schema.get("type")
    return (declared,) if declared else ()


def type_error(schema: SchemaDict, value: Any, path: Path) -> FieldError:
    """The complaint about a value of a wrong type."""
    where, names, got = render(path), ",".join(type_names(schema)), JSON_TYPES[type(value)]
    if type(value) not in (str, list, type(None)) and _counts(schema):
        names, got = schema["format"], _VALUE_FORMATS.get(type(value), "")
    return say.type_invalid(where, got, f'{where} in body must be of type {names}: "{got}"')


def _counts(schema: SchemaDict) -> bool:
    """Whether Kubernetes knows this format for this type; it strips all others."""
    name, declared = schema.get("format"), schema.get("type")
    if not name:
        return False
    if declared == "integer":
        return name in ("int32", "int64")
    if declared == "number":
        return name in ("float", "double")
    return declared in ("string", None) and format_check(name) is not None


def is_type(value: Any, name: str) -> bool:
    """Whether a value has a JSON type; integral floats are integers, integers are numbers."""
    kind = type(value)
    return (
        JSON_TYPES[kind] == name
        or (name == "number" and kind is int)
        or (name == "integer" and kind is float and value.is_integer() and abs(value) < 2**53)
    )


def value_errors(schema: SchemaDict) -> Explain:
    """All that a schema made of value validations says about a value: what the junctors need."""
    rules, names = value_rules(schema), type_names(schema)
    properties = {name: value_errors(sub) for name, sub in (schema.get("properties") or {}).items()}
    items = value_errors(schema["items"]) if isinstance(schema.get("items"), Mapping) else None
    extra = schema.get("additionalProperties")
    others = value_errors(extra) if isinstance(extra, Mapping) else None
    nullable = bool(schema.get("nullable"))
    expected = {kind for kind, name in JSON_TYPES.items() if name in names}
    checks = {kind: (*rules.get(kind, ()), *(rules[object] if kind is not type(None) else ())) for kind in JSON_TYPES}

    def errors(value: Any, path: Path) -> list[FieldError]:
        found: list[FieldError] = []
        kind = type(value)
        if (
            names
            and kind not in expected
            and not any(is_type(value, name) for name in names)
            and not (value is None and nullable)
        ):
            found.append(type_error(schema, value, path))
        for holds, explain in checks.get(kind, rules[object]):
            if not holds(value):
                found.extend(explain(value, path))
        if kind is dict:
            for name, child in value.items():
                if name in properties:
                    found.extend(properties[name](child, (path, name)))
                elif others is not None:
                    found.extend(others(child, (path, MapKey(name))))
        elif kind is list and items is not None:
            for index, child in enumerate(value):
                found.extend(items(child, (path, index)))
        return found

    return errors


def _simple(holds: Callable[[Any], bool], make_error: Callable[[str, Any], FieldError]) -> Rule:
    return Rule(holds, lambda value, path: [make_error(render(path), value)])


def _string_rules(schema: SchemaDict) -> list[Rule]:
    rules: list[Rule] = []
    if (maximum := schema.get("maxLength")) is not None:
        rules.append(_simple(lambda text: len(text) <= maximum, lambda where, text: say.too_long(where, int(maximum))))
    if minimum := schema.get("minLength"):
        rules.append(
            _simple(
                lambda text: len(text) >= minimum,
                lambda where, text: say.invalid(
                    where, text, f"{where} in body should be at least {minimum} chars long"
                ),
            )
        )
    if pattern := schema.get("pattern"):
        rules.append(
            _simple(
                compile_pattern(pattern),
                lambda where, text: say.invalid(where, text, f"{where} in body should match '{pattern}'"),
            )
        )
    if (name := schema.get("format")) and schema.get("type") in ("string", None) and (check := format_check(name)):
        rules.append(
            _simple(
                check,
                lambda where, text: say.type_invalid(
                    where, text, f"{where} in body must be of type {name}: {say.show(text)}"
                ),
            )
        )
    return rules


def _integer_range(schema: SchemaDict) -> list[Rule]:
    """Integers fit 64 bits, or 32 if the format says so; fractions never do. The complaint names no field."""
    if type_names(schema) != ("integer",):
        return []
    width = schema.get("format") if schema.get("format") in ("int32", "int64") else ""
    limit = 2**31 if width == "int32" else 2**63
    meaning = f"with format {width}" if width else "(default format)"

    def explain(value: Any, path: Path) -> list[FieldError]:
        found = [say.invalid(NOWHERE, "", f"Checked value must be of type integer {meaning} in {render(path)}")]
        too_large = type(value) is int and not -(2**63) <= value < 2**63
        return [type_error(schema, float(value), path), *found] if too_large else found

    return [Rule(lambda value: -limit <= value < limit and (type(value) is int or value.is_integer()), explain)]


def _number_rules(schema: SchemaDict) -> list[Rule]:
    rules: list[Rule] = []

    def rule(holds: Callable[[Any], bool], claim: str, limit: float) -> None:
        whole = float(limit).is_integer()

        def make_error(where: str, value: Any) -> FieldError:
            shown = str(int(limit)) if whole and type(value) is int else say.go_number(limit)
            return say.invalid(where, value, f"{where} in body should be {claim} {shown}")

        rules.append(_simple(holds, make_error))

    if factor := schema.get("multipleOf"):
        rule(lambda value: (value / factor).is_integer(), "a multiple of", factor)
    if (maximum := schema.get("maximum")) is not None:
        if schema.get("exclusiveMaximum"):
            rule(lambda value: value < maximum, "less than", maximum)
        else:
            rule(lambda value: value <= maximum, "less than or equal to", maximum)
    if (minimum := schema.get("minimum")) is not None:
        if schema.get("exclusiveMinimum"):
            rule(lambda value: value > minimum, "greater than", minimum)
        else:
            rule(lambda value: value >= minimum, "greater than or equal to", minimum)
    return rules


def _list_rules(schema: SchemaDict) -> list[Rule]:
    rules: list[Rule] = []
    if minimum := schema.get("minItems"):
        rules.append(
            _simple(
                lambda items: len(items) >= minimum,
                lambda where, items: say.invalid(
                    where, len(items), f"{where} in body should have at least {minimum} items"
                ),
            )
        )
    if (maximum := schema.get("maxItems")) is not None:
        rules.append(
            _simple(
                lambda items: len(items) <= maximum, lambda where, items: say.too_many(where, len(items), int(maximum))
            )
        )
    if schema.get("uniqueItems"):
        rules.append(
            _simple(
                lambda items: len({identity(item) for item in items}) == len(items),
                lambda where, items: say.invalid(where, "", f"{where} in body shouldn't contain duplicates"),
            )
        )
    if schema.get("x-kubernetes-list-type") == "set":
        rules.append(_no_duplicates(lambda item: item, lambda item: item))
    if schema.get("x-kubernetes-list-type") == "map":
        keys = tuple(schema.get("x-kubernetes-list-map-keys") or ())
        only = keys[0] if len(keys) == 1 else None
        rules.append(
            _no_duplicates(
                lambda item: list_map_key(item, keys),
                (lambda item: item.get(only) if type(item) is dict else None)
                if only is not None
                else (lambda item: list_map_key(item, keys)),
            )
        )
    return rules


def list_map_key(item: Any, keys: Sequence[str]) -> dict[str, Any]:
    """The key fields of an item of a map list; absent ones are left out."""
    return {key: item[key] for key in keys if key in item} if isinstance(item, dict) else {}


def _no_duplicates(key: Callable[[Any], Any], token: Callable[[Any], Any]) -> Rule:
    """Items are distinct by `token`; `key` is what the complaint shows."""

    def explain(items: list[Any], path: Path) -> list[FieldError]:
        seen: dict[Any, int] = {}
        found = []
        for index, item in enumerate(items):
            same = identity(token(item))
            seen[same] = seen.get(same, 0) + 1
            if seen[same] == 2:
                found.append(say.duplicate(render((path, index), bracket_keys=True), key(item)))
        return found

    def distinct(items: list[Any]) -> bool:
        if len(items) < 2:
            return True
        tokens = [token(item) for item in items]
        if {*map(type, tokens)} != {str}:  # a text is its own identity
            tokens = [identity(each) for each in tokens]
        return len({*tokens}) == len(tokens)

    return Rule(distinct, explain)


def _object_rules(schema: SchemaDict) -> list[Rule]:
    rules: list[Rule] = []
    if minimum := schema.get("minProperties"):
        rules.append(
            _simple(
                lambda obj: len(obj) >= minimum,
                lambda where, obj: say.invalid(
                    where, len(obj), f"{where} in body should have at least {minimum} properties"
                ),
            )
        )
    if (maximum := schema.get("maxProperties")) is not None:
        rules.append(
            _simple(lambda obj: len(obj) <= maximum, lambda where, obj: say.too_many(where, len(obj), int(maximum)))
        )
    if names := tuple(schema.get("required") or ()):
        needed = frozenset(names)
        rules.append(
            Rule(
                lambda obj: obj.keys() >= needed,
                lambda obj, path: [say.required(render((path, name))) for name in names if name not in obj],
            )
        )
    return rules


def _enum_rules(schema: SchemaDict) -> list[Rule]:
    return [_enum(list(schema["enum"]))] if schema.get("enum") is not None else []


def _junctor_rules(schema: SchemaDict) -> list[Rule]:
    junctors: list[Explain] = []
    if (alternatives := schema.get("anyOf")) and not (
        schema.get("x-kubernetes-int-or-string") and _is_int_or_string(alternatives)
    ):
        junctors.append(_any_of([value_errors(sub) for sub in alternatives]))
    if alternatives := schema.get("oneOf"):
        junctors.append(_one_of([value_errors(sub) for sub in alternatives]))
    if parts := schema.get("allOf"):
        junctors.append(_all_of([value_errors(sub) for sub in parts]))
    if (negated := schema.get("not")) is not None:
        junctors.append(_not(value_errors(negated)))
    return [Rule(lambda value, explain=explain: not explain(value, None), explain) for explain in junctors]  # type: ignore[misc]


def _is_int_or_string(alternatives: Sequence[SchemaDict]) -> bool:
    return [dict(sub) for sub in alternatives] == [{"type": "integer"}, {"type": "string"}]


def _enum(allowed: list[Any]) -> Rule:
    if all(type(item) is str for item in allowed):
        words = frozenset(allowed)
        return _simple(
            lambda value: type(value) is str and value in words,
            lambda where, value: say.not_supported(where, value, allowed),
        )
    identities = {identity(item) for item in allowed}
    return _simple(
        lambda value: identity(value) in identities, lambda where, value: say.not_supported(where, value, allowed)
    )


def _claim(path: Path, text: str) -> FieldError:
    """A junctor's complaint; Kubernetes names the field in the text alone."""
    return say.invalid(NOWHERE, "", f'"{render(path)}" must {text}')


def _any_of(alternatives: list[Explain]) -> Explain:
    def errors(value: Any, path: Path) -> list[FieldError]:
        closest: list[FieldError] | None = None
        for alternative in alternatives:
            found = alternative(value, path)
            if not found:
                return []
            if closest is None or len(found) < len(closest):
                closest = found
        return [_claim(path, "validate at least one schema (anyOf)"), *(closest or ())]

    return errors


def _one_of(alternatives: list[Explain]) -> Explain:
    def errors(value: Any, path: Path) -> list[FieldError]:
        outcomes = [alternative(value, path) for alternative in alternatives]
        valid = sum(not found for found in outcomes)
        if valid == 1:
            return []
        if valid:
            return [
                _claim(path, f"validate one and only one schema (oneOf). Found {valid} valid alternatives"),
            ]
        return [
            _claim(path, "validate one and only one schema (oneOf). Found none valid"),
            *min(outcomes, key=len),
        ]

    return errors


def _all_of(parts: list[Explain]) -> Explain:
    def errors(value: Any, path: Path) -> list[FieldError]:
        outcomes = [part(value, path) for part in parts]
        if not any(outcomes):
            return []
        none = ". None validated" if all(outcomes) else ""
        return [error for found in outcomes for error in found] + [
            _claim(path, f"validate all the schemas (allOf){none}")
        ]

    return errors


def _not(negated: Explain) -> Explain:
    return lambda value, path: [] if negated(value, path) else [_claim(path, "not validate the schema (not)")]
