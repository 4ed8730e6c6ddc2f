"""Whether a schema is made of the right types: the first check of a CRD's schema, on which all others rely.

A real API server decodes a schema into a typed struct and so never sees another one. Here it arrives as plain JSON.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from planform.errors import FieldError

_TEXTS = (
    *("$ref", "$schema", "description", "format", "id", "pattern", "title", "type"),
    *("x-kubernetes-list-type", "x-kubernetes-map-type"),
)
_FLAGS = (
    *("exclusiveMaximum", "exclusiveMinimum", "nullable", "uniqueItems", "x-kubernetes-embedded-resource"),
    *("x-kubernetes-int-or-string", "x-kubernetes-preserve-unknown-fields"),
)
_COUNTS = ("maxItems", "maxLength", "maxProperties", "minItems", "minLength", "minProperties")
_NUMBERS = ("maximum", "minimum", "multipleOf")
_RULE_TEXTS = ("fieldPath", "message", "messageExpression", "reason", "rule")
_MAX_COUNT = 2**63


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_flag(value: Any) -> bool:
    return isinstance(value, bool)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _is_count(value: Any) -> bool:
    return type(value) is int and -_MAX_COUNT <= value < _MAX_COUNT


def _are_texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(text, str) for text in value)


def _is_schema(value: Any) -> bool:
    return isinstance(value, Mapping)


def _are_schemas(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(schema, Mapping) for schema in value)


def _are_named_schemas(value: Any) -> bool:
    return isinstance(value, Mapping) and all(isinstance(schema, Mapping) for schema in value.values())


def _are_rules(value: Any) -> bool:
    return isinstance(value, list) and all(
        isinstance(rule, Mapping)
        and all(isinstance(rule.get(name, ""), str) for name in _RULE_TEXTS)
        and isinstance(rule.get("optionalOldSelf") or False, bool)
        for rule in value
    )


_SHAPES: Mapping[str, tuple[Callable[[Any], bool], str]] = {
    **dict.fromkeys(_TEXTS, (_is_text, "a string")),
    **dict.fromkeys(_FLAGS, (_is_flag, "a boolean")),
    **dict.fromkeys(_COUNTS, (_is_count, "a 64-bit integer")),
    **dict.fromkeys(_NUMBERS, (_is_number, "a number")),
    **dict.fromkeys(("required", "x-kubernetes-list-map-keys"), (_are_texts, "a list of strings")),
    **dict.fromkeys(("allOf", "anyOf", "oneOf"), (_are_schemas, "a list of schemas")),
    **dict.fromkeys(("properties", "definitions", "patternProperties"), (_are_named_schemas, "a map of schemas")),
    "not": (_is_schema, "a schema"),
    "items": (lambda value: _is_schema(value) or _are_schemas(value), "a schema"),
    "additionalProperties": (lambda value: _is_schema(value) or _is_flag(value), "a schema or a boolean"),
    "enum": (lambda value: isinstance(value, list), "a list"),
    "x-kubernetes-validations": (_are_rules, "a list of rules"),
}


def shape_errors(schema: Any, path: str) -> Iterator[FieldError]:
    """Every keyword whose value has the wrong type, at any depth; does not recurse."""
    waiting = [(path, schema)]
    while waiting:
        path, schema = waiting.pop()
        if not isinstance(schema, Mapping):
            yield _wrong(path, schema, "a schema")
            continue
        for keyword, value in schema.items():
            shape = _SHAPES.get(keyword)
            if shape is None or value is None:
                continue
            fits, wanted = shape
            if not fits(value):
                yield _wrong(f"{path}.{keyword}", value, wanted)
                continue
            waiting += [(f"{path}.{keyword}{place}", sub) for place, sub in _schemas_in(keyword, value)]


def _schemas_in(keyword: str, value: Any) -> Iterator[tuple[str, Any]]:
    if keyword == "properties":
        yield from ((f"[{name}]", sub) for name, sub in value.items())
    elif keyword in ("allOf", "anyOf", "oneOf"):
        yield from ((f"[{index}]", sub) for index, sub in enumerate(value))
    elif keyword in ("not", "items", "additionalProperties") and isinstance(value, Mapping):
        yield "", value


def _wrong(path: str, value: Any, wanted: str) -> FieldError:
    found = type(value).__name__
    kinds = {
        "dict": "object",
        "list": "array",
        "str": "string",
        "bool": "boolean",
        "int": "integer",
        "NoneType": "null",
    }
    return FieldError(path, "FieldValueTypeInvalid", f'Invalid value: "{kinds.get(found, found)}": must be {wanted}')
