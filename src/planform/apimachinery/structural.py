"""What makes a CRD's schema acceptable: structural, without what Kubernetes forbids, and with defaults that are valid.

Checked once, when a CRD is created or changed; `schema.compile_schema` may then trust what it is given. CEL rules have
their own check in `cel`, which is worth running only on a schema that passes this one.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator, Mapping
from typing import Any

from planform.apimachinery import schema_findings as say
from planform.apimachinery.schema import compile_schema
from planform.apimachinery.schema_values import InvalidSchema, SchemaDict, compile_pattern
from planform.errors import FieldError

TYPES = ("array", "boolean", "integer", "number", "object", "string")
RULE_REASONS = ("FieldValueDuplicate", "FieldValueForbidden", "FieldValueInvalid", "FieldValueRequired")
_INT_OR_STRING = [{"type": "integer"}, {"type": "string"}]
_META_FIELDS = ("apiVersion", "kind", "metadata")
_UNSUPPORTED = ("additionalItems", "definitions", "dependencies", "id", "patternProperties", "$ref")
_STRUCTURE_ONLY = {
    "type": "must be empty to be structural",
    "additionalProperties": "must be undefined to be structural",
    "default": "must be undefined to be structural",
    "title": "must be empty to be structural",
    "description": "must be empty to be structural",
    "nullable": "must be false to be structural",
    "x-kubernetes-preserve-unknown-fields": "must be false to be structural",
    "x-kubernetes-embedded-resource": "must be false to be structural",
    "x-kubernetes-int-or-string": "must be false to be structural",
    "x-kubernetes-list-map-keys": "must be empty to be structural",
    "x-kubernetes-list-type": "must be undefined to be structural",
    "x-kubernetes-map-type": "must be undefined to be structural",
    "x-kubernetes-validations": "must be empty to be structural",
}
"""What describes structure and so may not stand inside allOf, anyOf, oneOf or not, and the complaint if it does."""


MAX_DEPTH = 100
"""Deeper than any real schema; it bounds the recursion of all that works with schemas and their objects."""


def structural_errors(schema: SchemaDict, path: str) -> list[FieldError]:
    """Everything that keeps a CRD with this root schema from being created; `path` is where the schema stands.

    Defaults are tried against the schema only if the schema itself is in order.
    """
    if _is_too_deep(schema):
        return [say.forbidden(path, f"schema must not be nested deeper than {MAX_DEPTH} levels")]
    errors = sorted(
        [
            *_structure(schema, path, level="root"),
            *_completeness(schema, schema, path, path),
            *_keywords(schema, path, level="root"),
        ],
        key=str,
    )
    if schema.get("nullable"):
        errors.append(say.forbidden(f"{path}.nullable", "nullable cannot be true at the root"))
    return list(dict.fromkeys(errors)) or list(_defaults(schema, path))


def _is_too_deep(schema: SchemaDict) -> bool:
    level = [schema]
    for _ in range(MAX_DEPTH):
        level = [
            sub
            for parent in level
            for sub in (*(sub for _, sub, _ in _children(parent, "")), *(sub for sub, _ in _junctions(parent, "")))
        ]
        if not level:
            return False
    return True


def _children(schema: SchemaDict, path: str) -> Iterator[tuple[str, Any, str]]:
    """The schemas directly inside a schema, not through junctors: level, schema, path."""
    for name, sub in (schema.get("properties") or {}).items():
        yield "field", sub, f"{path}.properties[{name}]"
    if isinstance(schema.get("items"), Mapping):
        yield "item", schema["items"], f"{path}.items"
    if isinstance(schema.get("additionalProperties"), Mapping):
        yield "field", schema["additionalProperties"], f"{path}.additionalProperties"


def _junctions(schema: SchemaDict, path: str) -> Iterator[tuple[SchemaDict, str]]:
    for name in ("allOf", "anyOf", "oneOf"):
        for index, sub in enumerate(schema.get(name) or ()):
            yield sub, f"{path}.{name}[{index}]"
    if schema.get("not") is not None:
        yield schema["not"], f"{path}.not"


def _structure(schema: SchemaDict, path: str, *, level: str) -> Iterator[FieldError]:
    """Every field has a type, every array its items, and junctors restrict values only."""
    declared = schema.get("type") or ""
    embedded = bool(schema.get("x-kubernetes-embedded-resource"))
    free = bool(schema.get("x-kubernetes-preserve-unknown-fields"))
    either = bool(schema.get("x-kubernetes-int-or-string"))

    if declared == "array" and schema.get("items") is None:
        yield say.required(f"{path}.items", "must be specified")
    for below, sub, where in _children(schema, path):
        yield from _structure(sub, where, level=below)
    if schema.get("additionalProperties") is not None:
        if level == "root":
            yield say.forbidden(f"{path}.additionalProperties", "must not be used at the root")
        if embedded:
            detail = "must not be used if x-kubernetes-embedded-resource is set"
            yield say.forbidden(f"{path}.additionalProperties", detail)
    for name, active in (("preserve-unknown-fields", free), ("embedded-resource", embedded)):
        if either and active:
            detail = "must be false if x-kubernetes-int-or-string is true"
            yield say.invalid(f"{path}.x-kubernetes-{name}", True, detail)
    yield from _value_validations(schema, path)

    if embedded and declared != "object":
        detail = "must be object if x-kubernetes-embedded-resource is true"
        yield say.invalid(f"{path}.type", declared, detail) if declared else say.required(f"{path}.type", detail)
    elif not declared and not either and not free:
        place = {"root": "at the root", "item": "for specified array items", "field": "for specified object fields"}
        yield say.required(f"{path}.type", f"must not be empty {place[level]}")
    if level == "root" and declared not in ("", "object"):
        yield say.invalid(f"{path}.type", declared, "must be object at the root")
    if level == "root" or embedded:
        yield from _resource_fields(schema, path, level=level)
    if embedded and not free and not schema.get("properties"):
        detail = (
            "must not be empty if x-kubernetes-embedded-resource is true without x-kubernetes-preserve-unknown-fields"
        )
        yield say.required(f"{path}.properties", detail)


def _resource_fields(schema: SchemaDict, path: str, *, level: str) -> Iterator[FieldError]:
    properties = schema.get("properties") or {}
    for name in ("kind", "apiVersion"):
        if name in properties and properties[name].get("type") != "string":
            where = f"{path}.properties[{name}].type"
            yield say.invalid(where, properties[name].get("type") or "", "must be string")
    if "metadata" not in properties:
        return
    metadata, where = properties["metadata"], f"{path}.properties[metadata]"
    if metadata.get("type") != "object":
        yield say.invalid(f"{where}.type", metadata.get("type") or "", "must be object")
    others = {key for key, value in metadata.items() if value} - {"type", "properties", "default", "description"}
    if level == "root" and (others or not set(metadata.get("properties") or {}) <= {"name", "generateName"}):
        detail = "must not specify anything other than name and generateName, but metadata is implicitly specified"
        yield say.forbidden(where, detail)


def _value_validations(schema: SchemaDict, path: str) -> Iterator[FieldError]:
    exempt = set()
    if [dict(sub) for sub in schema.get("anyOf") or ()] == _INT_OR_STRING:
        exempt = {f"{path}.anyOf[0]", f"{path}.anyOf[1]"}
    parts = schema.get("allOf") or ()
    if parts and [dict(sub) for sub in parts[0].get("anyOf") or ()] == _INT_OR_STRING:
        exempt |= {f"{path}.allOf[0].anyOf[0]", f"{path}.allOf[0].anyOf[1]"}
    for sub, where in _junctions(schema, path):
        if where not in exempt:
            yield from _nested(sub, where, exempt)
    if pattern := schema.get("pattern"):
        try:
            compile_pattern(pattern)
        except InvalidSchema as error:
            detail = f"must be a valid regular expression, but isn't: {error}"
            yield say.invalid(f"{path}.pattern", pattern, detail)


def _nested(schema: SchemaDict, path: str, exempt: set[str]) -> Iterator[FieldError]:
    """A schema inside a junctor: values only."""
    for keyword, message in _STRUCTURE_ONLY.items():
        if schema.get(keyword) or (keyword in ("default", "additionalProperties") and keyword in schema):
            yield say.forbidden(f"{path}.{keyword}", message)
    properties = schema.get("properties") or {}
    if "metadata" in properties:
        yield say.forbidden(f"{path}.properties[metadata]", "must not be specified in a nested context")
    for name, sub in properties.items():
        yield from _nested(sub, f"{path}.properties[{name}]", set())
    if isinstance(schema.get("items"), Mapping):
        yield from _nested(schema["items"], f"{path}.items", set())
    for sub, where in _junctions(schema, path):
        if where not in exempt:
            yield from _nested(sub, where, set())
    if pattern := schema.get("pattern"):
        yield from _value_validations({"pattern": pattern}, path)


def _completeness(values: SchemaDict, structure: SchemaDict, where: str, path: str) -> Iterator[FieldError]:
    """Whatever the root's junctors speak about is also described outside of junctors.

    Kubernetes asks this of the root alone, so CRDs that break it further down exist and must be taken.
    """
    for sub, junction in _junctions(values, path):
        yield from _described(sub, structure, where, junction)


def _described(values: SchemaDict, structure: SchemaDict, where: str, path: str) -> Iterator[FieldError]:
    yield from _completeness(values, structure, where, path)
    known = structure.get("properties") or {}
    for name, sub in (values.get("properties") or {}).items():
        place, origin = f"{where}.properties[{name}]", f"{path}.properties[{name}]"
        if name in known:
            yield from _described(sub, known[name], place, origin)
        else:
            yield say.required(place, f"because it is defined in {origin}")
    if isinstance(values.get("items"), Mapping):
        if isinstance(structure.get("items"), Mapping):
            yield from _described(values["items"], structure["items"], f"{where}.items", f"{path}.items")
        else:
            yield say.required(f"{where}.items", f"because it is defined in {path}.items")


def _keywords(schema: SchemaDict, path: str, *, level: str, in_meta: bool = False) -> Iterator[FieldError]:
    """What single keywords may and may not say."""
    declared = schema.get("type") or ""
    if declared and declared not in TYPES:
        yield say.not_supported(f"{path}.type", declared, TYPES)
    if declared == "null":
        detail = "type cannot be set to null, use nullable as an alternative"
        yield say.forbidden(f"{path}.type", detail)
    for keyword in _UNSUPPORTED:
        if schema.get(keyword) is not None:
            yield say.forbidden(f"{path}.{keyword}", f"{keyword} is not supported")
    if isinstance(schema.get("items"), list):
        yield say.forbidden(f"{path}.items", "items must be a schema object and not an array")
    if schema.get("uniqueItems"):
        detail = "uniqueItems cannot be set to true since the runtime complexity becomes quadratic"
        yield say.forbidden(f"{path}.uniqueItems", detail)
    if schema.get("additionalProperties") not in (None, True) and schema.get("properties"):
        detail = "additionalProperties and properties are mutual exclusive"
        yield say.forbidden(f"{path}.additionalProperties", detail)
    if schema.get("x-kubernetes-preserve-unknown-fields") is False:
        yield say.invalid(f"{path}.x-kubernetes-preserve-unknown-fields", False, "must be true or undefined")
    yield from _merge_strategy(schema, path, declared)
    yield from _rule_texts(schema, path)
    resource = level == "root" or bool(schema.get("x-kubernetes-embedded-resource"))
    for below, sub, where in _children(schema, path):
        name = where.rpartition("[")[2].rstrip("]") if below == "field" else ""
        meta = in_meta or (resource and name in _META_FIELDS and where.startswith(f"{path}.properties"))
        if level == "root" and meta and not in_meta and sub.get("default") is not None:
            yield say.forbidden(f"{where}.default", f"must not be set in top-level {name}")
        if meta and sub.get("x-kubernetes-embedded-resource"):
            detail = "must not be used inside of resource meta"
            yield say.forbidden(f"{where}.x-kubernetes-embedded-resource", detail)
        yield from _keywords(sub, where, level=below, in_meta=meta)
    for sub, where in _junctions(schema, path):
        yield from _keywords(sub, where, level="nested")


def _merge_strategy(schema: SchemaDict, path: str, declared: str) -> Iterator[FieldError]:
    """x-kubernetes-map-type, -list-type and -list-map-keys: server-side apply depends on them."""
    for keyword, kind, allowed in (
        ("x-kubernetes-map-type", "object", ("atomic", "granular")),
        ("x-kubernetes-list-type", "array", ("atomic", "set", "map")),
    ):
        chosen = schema.get(keyword)
        if chosen is None:
            continue
        if declared != kind:
            detail = f"must be {kind} if {keyword} is specified"
            yield say.invalid(f"{path}.type", declared, detail) if declared else say.required(f"{path}.type", detail)
        if chosen not in allowed:
            yield say.not_supported(f"{path}.{keyword}", chosen, allowed)
    strategy, keys = schema.get("x-kubernetes-list-type"), schema.get("x-kubernetes-list-map-keys") or ()
    items = schema["items"] if isinstance(schema.get("items"), Mapping) else None
    if keys and strategy != "map":
        where, detail = f"{path}.x-kubernetes-list-type", "must be map if x-kubernetes-list-map-keys is non-empty"
        yield say.required(where, detail) if strategy is None else say.invalid(where, strategy, detail)
    if strategy in ("set", "map") and items is not None and items.get("nullable"):
        detail = f"cannot be nullable when x-kubernetes-list-type is {strategy}"
        yield say.forbidden(f"{path}.items.nullable", detail)
    if strategy == "set" and items is not None:
        detail = "must be atomic as item of a list with x-kubernetes-list-type=set"
        inner = items.get("x-kubernetes-list-type")
        if items.get("type") == "array" and inner not in (None, "atomic"):
            yield say.invalid(f"{path}.items.x-kubernetes-list-type", inner, detail)
        if items.get("type") == "object" and items.get("x-kubernetes-map-type") != "atomic":
            yield say.invalid(f"{path}.items.x-kubernetes-map-type", items.get("x-kubernetes-map-type"), detail)
    if strategy == "map":
        yield from _map_list(path, items, tuple(keys))


def _map_list(path: str, items: SchemaDict | None, keys: tuple[str, ...]) -> Iterator[FieldError]:
    where = f"{path}.x-kubernetes-list-map-keys"
    if not keys:
        yield say.required(where, "must not be empty if x-kubernetes-list-type is map")
    if items is None:
        yield say.required(f"{path}.items", "must have a schema if x-kubernetes-list-type is map")
        return
    if items.get("type") != "object":
        detail = "must be object if parent array's x-kubernetes-list-type is map"
        yield say.invalid(f"{path}.items.type", items.get("type") or "", detail)
        return
    if len(set(keys)) < len(keys):
        yield say.invalid(where, list(keys), "must not contain duplicate entries")
    for key in dict.fromkeys(keys):
        field = (items.get("properties") or {}).get(key)
        at = f"{path}.items.properties[{key}]"
        if field is None:
            yield say.invalid(where, list(keys), "entries must all be names of item properties")
            continue
        if field.get("type") in ("array", "object"):
            detail = "must be a scalar type if parent array's x-kubernetes-list-type is map"
            yield say.invalid(f"{at}.type", field["type"], detail)
        if key not in (items.get("required") or ()) and field.get("default") is None:
            detail = (
                "this property is in x-kubernetes-list-map-keys, so it must have a default or be a required property"
            )
            yield say.required(f"{at}.default", detail)
        if field.get("nullable"):
            detail = "this property is in x-kubernetes-list-map-keys, so it cannot be nullable"
            yield say.forbidden(f"{at}.nullable", detail)


def _rule_texts(schema: SchemaDict, path: str) -> Iterator[FieldError]:
    """The texts around CEL rules; whether a rule compiles is `cel`'s business."""
    for index, rule in enumerate(schema.get("x-kubernetes-validations") or ()):
        where = f"{path}.x-kubernetes-validations[{index}]"
        text, message = (rule.get("rule") or "").strip(), rule.get("message") or ""
        if not text:
            yield say.required(f"{where}.rule", "rule is not specified")
        elif message and not message.strip():
            yield say.invalid(f"{where}.message", message, "must be non-empty if specified")
        elif re.search(r"[\n\r]", message.strip()):
            yield say.invalid(f"{where}.message", message, "must not contain line breaks")
        elif re.search(r"[\n\r]", text) and not message.strip():
            yield say.required(f"{where}.message", "message must be specified if rule contains line breaks")
        if rule.get("messageExpression") and not rule["messageExpression"].strip():
            yield say.required(f"{where}.messageExpression", "messageExpression must be non-empty if specified")
        if rule.get("reason") is not None and rule["reason"] not in RULE_REASONS:
            yield say.not_supported(f"{where}.reason", rule["reason"], RULE_REASONS)
        if (target := rule.get("fieldPath")) and field_path(schema, target) is None:
            yield say.invalid(f"{where}.fieldPath", target, "must be a valid path")


_FIELD_PATH = re.compile(r"\.(?P<name>[^.\[\]']+)|\['(?P<quoted>(?:[^'\\]|\\.)*)'\]")


def field_path(schema: SchemaDict, text: str) -> str | None:
    """A rule's fieldPath as it is appended to an error's path, or None if it leads nowhere in this schema."""
    position, rendered = 0, ""
    node: Any = schema
    while position < len(text):
        matched = _FIELD_PATH.match(text, position)
        if matched is None or not isinstance(node, Mapping):
            return None
        name = matched["name"] or re.sub(r"\\(.)", r"\1", matched["quoted"] or "")
        if node.get("properties"):
            if name not in node["properties"]:
                return None
            rendered, node = f"{rendered}.{name}", node["properties"][name]
        elif isinstance(node.get("additionalProperties"), Mapping):
            rendered, node = f"{rendered}[{name}]", node["additionalProperties"]
        else:
            return None
        position = matched.end()
    return rendered or None


def _defaults(schema: SchemaDict, path: str) -> Iterator[FieldError]:
    """Each default is valid where it stands, with nothing that would be pruned."""
    if schema.get("default") is not None:
        found = compile_schema(_without_defaults(schema)).admit(copy.deepcopy(schema["default"]), null_errors=True)
        if found.unknown:
            yield say.invalid(f"{path}.default", schema["default"], "must not have unknown fields")
        for error in found.errors:
            inner = "" if error.field in ("", say.NOWHERE) else f".{error.field}"
            yield FieldError(f"{path}.default{inner}", error.reason, error.detail)
    for _, sub, where in _children(schema, path):
        yield from _defaults(sub, where)


def _without_defaults(schema: SchemaDict) -> SchemaDict:
    """A default is judged as it is written, before the defaults inside of it are filled in."""
    bare = {key: value for key, value in schema.items() if key != "default"}
    if schema.get("properties"):
        bare["properties"] = {name: _without_defaults(sub) for name, sub in schema["properties"].items()}
    for key in ("items", "additionalProperties"):
        if isinstance(schema.get(key), Mapping):
            bare[key] = _without_defaults(schema[key])
    return bare
