"""The types of CEL, and how a structural schema becomes one.

A type made from a schema also knows how big its values can get: that is what the cost estimate of a rule rests on, and
why Kubernetes asks for maxItems, maxProperties and maxLength.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from planform.apimachinery.cel_syntax import RESERVED
from planform.apimachinery.schema_values import SchemaDict

MAX_REQUEST_BYTES = 3 * 1024 * 1024


@dataclass(frozen=True, slots=True, eq=False)
class Type:
    """A CEL type. Two are the same if name and parameters are; objects are known by identity of their fields."""

    name: str
    args: tuple[Type, ...] = ()
    fields: Mapping[str, Field] | None = None
    max_size: int | None = None
    min_bytes: int = 1
    list_type: str = ""
    list_keys: tuple[str, ...] = ()
    keeps_null: bool = False
    """Of an object: whether a field that is null is there; in what a schema describes it is not."""

    def __str__(self) -> str:
        inner = ", ".join(map(str, self.args))
        return f"{_SHOWN.get(self.name, self.name)}({inner})" if self.args else _SHOWN.get(self.name, self.name)


@dataclass(frozen=True, slots=True)
class Field:
    """A property of an object: the key it has in JSON, and its type."""

    key: str
    type: Type = field(repr=False)


_SHOWN = {
    "optional": "optional_type",
    "timestamp": "google.protobuf.Timestamp",
    "duration": "google.protobuf.Duration",
    "quantity": "kubernetes.Quantity",
    "url": "kubernetes.URL",
    "ip": "net.IP",
    "cidr": "net.CIDR",
    "semver": "kubernetes.Semver",
    "format": "kubernetes.NamedFormat",
    "authorizer": "kubernetes.authorization.Authorizer",
    "pathcheck": "kubernetes.authorization.PathCheck",
    "groupcheck": "kubernetes.authorization.GroupCheck",
    "resourcecheck": "kubernetes.authorization.ResourceCheck",
    "decision": "kubernetes.authorization.Decision",
}

BOOL, INT, UINT, DOUBLE = Type("bool"), Type("int"), Type("uint"), Type("double")
STRING, BYTES, NULL, DYN = Type("string", min_bytes=2), Type("bytes", min_bytes=2), Type("null"), Type("dyn")
TIMESTAMP, DURATION = Type("timestamp"), Type("duration")
TYPE = Type("type")
_PLAIN = {kind.name: kind for kind in (BOOL, INT, UINT, DOUBLE, STRING, BYTES, NULL, DYN, TIMESTAMP, DURATION, TYPE)}
_PLAIN |= {name: Type(name) for name in ("quantity", "url", "ip", "cidr", "semver", "format")}
_AUTHORIZER = ("authorizer", "pathcheck", "groupcheck", "resourcecheck", "decision")
_PLAIN |= {name: Type(name) for name in _AUTHORIZER}


def list_of(element: Type) -> Type:
    return Type("list", (element,))


def map_of(key: Type, value: Type) -> Type:
    return Type("map", (key, value))


def optional_of(value: Type) -> Type:
    return Type("optional", (value,))


_SIGNATURE_TYPE = re.compile(r"\s*(\w+)(?:<(.*)>)?\s*")


def parse_type(text: str) -> Type:
    """`list<string>`, `map<string, dyn>`, `optional<T>`; a single capital letter is a type parameter."""
    matched = _SIGNATURE_TYPE.fullmatch(text)
    if matched is None:
        raise ValueError(f"not a type: {text!r}")
    name, inner = matched.groups()
    args = tuple(parse_type(part) for part in _split(inner)) if inner else ()
    wanted = {"list": 1, "map": 2, "optional": 1}.get(name, 0)
    if name in _PLAIN and not args:
        return _PLAIN[name]
    if len(name) == 1 and name.isupper() and not args:
        return Type(name)
    if wanted and not args:
        return Type(name, (DYN,) * wanted)
    if len(args) != wanted or not wanted:
        raise ValueError(f"not a type: {text!r}")
    return Type(name, args)


def _split(text: str) -> list[str]:
    parts, depth, start = [], 0, 0
    for position, char in enumerate(text):
        depth += (char == "<") - (char == ">")
        if char == "," and depth == 0:
            parts.append(text[start:position])
            start = position + 1
    return [*parts, text[start:]]


Bindings = dict[str, Type]


def is_parameter(kind: Type) -> bool:
    return len(kind.name) == 1


def substitute(kind: Type, bindings: Bindings) -> Type:
    """A signature's type with its parameters filled in; what nothing decided is dyn."""
    if is_parameter(kind):
        return bindings.get(kind.name, DYN)
    return replace(kind, args=tuple(substitute(arg, bindings) for arg in kind.args)) if kind.args else kind


def unify(wanted: Type, given: Type, bindings: Bindings) -> bool:
    """Whether a value of type `given` may stand where `wanted` is asked for, deciding parameters on the way."""
    if is_parameter(wanted):
        known = bindings.get(wanted.name)
        if known is None or known.name == "dyn":
            if known is None or given.name != "dyn":
                bindings[wanted.name] = given
            return True
        if unify(known, given, bindings):
            return True
        if unify(given, known, bindings):
            bindings[wanted.name] = given
            return True
        return False
    if "dyn" in (wanted.name, given.name):
        return True
    if wanted.name != given.name:
        return NULL.name in (wanted.name, given.name) and bool(
            {wanted.name, given.name} & {"timestamp", "duration", "object", "optional"}
        )
    if wanted.name == "object":
        return wanted.fields is given.fields or _same_fields(wanted, given)
    return all(unify(one, other, bindings) for one, other in zip(wanted.args, given.args, strict=True))


def _same_fields(one: Type, other: Type) -> bool:
    mine, others = one.fields or {}, other.fields or {}
    return mine.keys() == others.keys() and all(unify(mine[name].type, others[name].type, {}) for name in mine)


_ESCAPED = re.compile(r"__|[-./]")
_ESCAPES = {"__": "__underscores__", ".": "__dot__", "-": "__dash__", "/": "__slash__"}
_IDENTIFIER = re.compile(r"[A-Za-z_.\-/][A-Za-z0-9_.\-/]*")


def escape_property(name: str) -> str | None:
    """The CEL name of a property, or None for one that rules cannot reach."""
    if name in RESERVED or name in ("true", "false", "null", "in"):
        return f"__{name}__"
    if _IDENTIFIER.fullmatch(name) is None:
        return None
    return _ESCAPED.sub(lambda found: _ESCAPES[found[0]], name)


_META: SchemaDict = {"type": "object", "properties": {"name": {"type": "string"}, "generateName": {"type": "string"}}}


def schema_type(schema: SchemaDict, *, root: bool = False) -> Type | None:
    """The CEL type of values of a structural schema; None for data without a type, which rules cannot see.

    At the root of a kind (and of embedded resources) rules see apiVersion, kind and metadata.name and generateName.
    """
    if schema.get("x-kubernetes-int-or-string"):
        return Type("dyn", max_size=_string_size(schema))
    declared = schema.get("type")
    if declared == "array":
        items = schema.get("items")
        element = schema_type(items, root=_embedded(items)) if isinstance(items, Mapping) else None
        if element is None:
            return None
        size = schema.get("maxItems", (MAX_REQUEST_BYTES - 2) // (element.min_bytes + 1))
        keys = tuple(schema.get("x-kubernetes-list-map-keys") or ())
        strategy = schema.get("x-kubernetes-list-type") or ""
        return Type("list", (element,), max_size=max(0, size), min_bytes=2, list_type=strategy, list_keys=keys)
    if declared == "object":
        return _object_type(schema, root=root)
    if declared == "string":
        return _string_type(schema)
    return {"boolean": replace(BOOL, min_bytes=4), "number": DOUBLE, "integer": INT}.get(declared or "")


def _embedded(schema: SchemaDict) -> bool:
    return bool(schema.get("x-kubernetes-embedded-resource"))


def _object_type(schema: SchemaDict, *, root: bool) -> Type | None:
    extra = schema.get("additionalProperties")
    if isinstance(extra, Mapping) and extra:
        value = schema_type(extra, root=_embedded(extra))
        if value is None:
            return None
        size = schema.get("maxProperties", (MAX_REQUEST_BYTES - 2) // (value.min_bytes + 6))
        return Type("map", (STRING, value), max_size=max(0, size), min_bytes=2)
    properties = dict(schema.get("properties") or {})
    if root:
        properties |= {"apiVersion": {"type": "string"}, "kind": {"type": "string"}, "metadata": _META}
    required = set(schema.get("required") or ())
    fields: dict[str, Field] = {}
    smallest = 2
    for name, sub in properties.items():
        kind = schema_type(sub, root=_embedded(sub))
        if kind is None:
            continue
        if (escaped := escape_property(name)) is not None:
            fields[escaped] = Field(name, kind)
        if name in required and sub.get("default") is None:
            smallest += len(name) + kind.min_bytes + 4
    return Type("object", fields=fields, min_bytes=smallest)


def _string_type(schema: SchemaDict) -> Type:
    size = _string_size(schema)
    match schema.get("format"):
        case "byte":
            return Type("bytes", max_size=size, min_bytes=2)
        case "duration":
            return Type("duration", max_size=32, min_bytes=3)
        case "date":
            return Type("timestamp", max_size=12, min_bytes=12)
        case "date-time":
            return Type("timestamp", max_size=32, min_bytes=21)
    return Type("string", max_size=size, min_bytes=2)


def _string_size(schema: SchemaDict) -> int:
    if schema.get("maxLength") is not None:
        return max(0, int(schema["maxLength"])) * (1 if schema.get("format") == "byte" else 4)
    if schema.get("enum") and schema.get("type") == "string":
        return max((len(item.encode()) for item in schema["enum"] if isinstance(item, str)), default=0)
    return MAX_REQUEST_BYTES - 2


def type_of_variable(declared: Any) -> Type:
    """A type given as text, as a schema, or as itself."""
    if isinstance(declared, Type):
        return declared
    if isinstance(declared, str):
        return parse_type(declared)
    return schema_type(declared) or DYN
