"""One declaration per kind: a `msgspec.Struct` from which its CRD's schema, its parser and its accessors follow.

The convention, for every kind of ours:

    class Site(TypedObject, frozen=True, kw_only=True):
        \"""A web site, and where it is served.\"""                      # the description of the schema, on one line

        gvk: ClassVar = SITE
        spec: SiteSpec                                                    # no default: required
        status: SiteStatus | UnsetType = UNSET                            # absent is UNSET, which is falsy

    class SiteSpec(Declared, frozen=True, kw_only=True):
        \"""What to serve.\"""

        SCHEMA: ClassVar[Schema] = ruled(rule("has(self.host) || self.replicas > 0", "a site needs a host"))

        host: Annotated[str, described("Its DNS name.", max_length=253)] | UnsetType = UNSET
        replicas: Annotated[int, described("How many.", minimum=0, default=1, format="int32")] | UnsetType = UNSET
        pages: Annotated[list[Page], described("The pages.", by="path", max_items=64)]

- A Struct is for reading. It is never encoded as an object: writes are server-side applies or patches of the fields
  meant, so that what the Struct does not know survives.
- Descriptions, limits, defaults and rules are `described(...)`, for the API server. A reader does not check them again:
  an object that was stored before a limit must still be readable. `msgspec.Meta(max_length=...)` and the like are
  understood too, and do refuse on reading. `extra={...}` or `extra_json_schema` set any key of a schema; None removes.
- A field's description wins over the docstring of its Struct; a field's rules stand before its Struct's.
- A field with any Python default is optional. That default is never written into the schema: `default=` is.
- `SCHEMA` on a Struct adds keys to its schema, such as rules, or `required` in an order of its own; None takes one out.
- `list[T]` is atomic unless `by="key"` makes it a map, or `distinct=True` (or `set[T]`) a set. `dict[str, str]` is a
  map; `dict[str, Any]` an object of any shape, `Any` any value, `embedded=True` a whole object, `int | str` the
  int-or-string of Kubernetes, `Literal[...]` and StrEnums closed sets, `datetime` a point in time. Any of these may
  also be `| None`, for readers; `nullable=True` is what lets users write null.

`planform.api.crds` makes the CustomResourceDefinition of a declared kind.
"""

from __future__ import annotations

import enum
import types
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Annotated, Any, ClassVar, Final, Literal, Union, get_args, get_origin

import msgspec

Schema = dict[str, Any]
Rule = dict[str, Any]

RULES: Final = "x-kubernetes-validations"
PRESERVE: Final = "x-kubernetes-preserve-unknown-fields"

_ORDER: Final[tuple[str, ...]] = (
    "type",
    "format",
    "description",
    "enum",
    "minimum",
    "maximum",
    "default",
    "minLength",
    "maxLength",
    "pattern",
    "items",
    "additionalProperties",
    "properties",
    "required",
    "x-kubernetes-list-type",
    "x-kubernetes-list-map-keys",
    "minItems",
    "maxItems",
)
"""In which order people find the keys of a schema; what is not here follows, and rules stand last."""

_LIMITS: Final[Mapping[str, str]] = {"ge": "minimum", "le": "maximum", "pattern": "pattern"}
_LENGTHS: Final[Mapping[str, tuple[str, str]]] = {
    "string": ("minLength", "maxLength"),
    "array": ("minItems", "maxItems"),
    "object": ("minProperties", "maxProperties"),
}
_SCALARS: Final[Mapping[Any, Schema]] = {
    str: {"type": "string"},
    bool: {"type": "boolean"},
    int: {"type": "integer", "format": "int64"},
    float: {"type": "number"},
    bytes: {"type": "string", "format": "byte"},
    datetime: {"type": "string", "format": "date-time"},
    Any: {PRESERVE: True},
    object: {PRESERVE: True},
    msgspec.Raw: {PRESERVE: True},
}


class Declared(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What is part of a declared kind."""

    SCHEMA: ClassVar[Schema] = {}


def rule(cel: str, message: str, *, whether_new: bool = False) -> Rule:
    """A condition on the value. `whether_new`: oldSelf is an optional, and the rule also holds for what is new."""
    made: Rule = {"rule": cel, "message": message}
    return {**made, "optionalOldSelf": True} if whether_new else made


def immutable(what: str) -> Rule:
    """What is set once and then stays as it is."""
    return rule("self == oldSelf", f"{what} is immutable")


def ruled(*rules: Rule, required: Sequence[str] = (), **more: Any) -> Schema:
    """For `SCHEMA`: the rules of a Struct, and what is required if that is not in the order of its fields."""
    return {**({"required": list(required)} if required else {}), **more, **({RULES: list(rules)} if rules else {})}


def described(
    description: str,
    *,
    min_length: int | None = None,
    max_length: int | None = None,
    pattern: str | None = None,
    minimum: int | None = None,
    maximum: int | None = None,
    min_items: int | None = None,
    max_items: int | None = None,
    default: Any = None,
    format: str | None = None,
    by: str | Sequence[str] = (),
    distinct: bool = False,
    nullable: bool = False,
    embedded: bool = False,
    rules: Iterable[Rule] = (),
    extra: Mapping[str, Any] | None = None,
) -> msgspec.Meta:
    """What a field means, and the limits to which the API server holds it; reading does not check them."""
    keys = [by] if isinstance(by, str) else list(by)
    given = {
        "minimum": minimum,
        "maximum": maximum,
        "default": default,
        "minLength": min_length,
        "maxLength": max_length,
        "pattern": pattern,
        "minItems": min_items,
        "maxItems": max_items,
        "format": format,
        "x-kubernetes-list-type": "map" if keys else "set" if distinct else None,
        "x-kubernetes-list-map-keys": keys or None,
        PRESERVE: embedded or None,
        "x-kubernetes-embedded-resource": embedded or None,
        "nullable": nullable or None,
        RULES: list(rules) or None,
    }
    said = {key: value for key, value in given.items() if value is not None}
    return msgspec.Meta(description=description, extra_json_schema={**said, **(extra or {})})


def schema_of(declared: Any) -> Schema:
    """The structural schema of a Struct, or of any type that a field of one may have.

    Raises TypeError for what no structural schema can say: unions, references of a Struct to itself.
    """
    return _schema(declared, ())


def _schema(declared: Any, within: tuple[type, ...]) -> Schema:
    declared, metas = _unwrapped(declared)
    schema = _bare(declared, within)
    for meta in metas:  # the innermost first, so that the one nearest to the field has the last word
        schema = _with(schema, meta)
    return _ordered(schema)


def _unwrapped(declared: Any) -> tuple[Any, list[msgspec.Meta]]:
    """The type without what makes it optional, and what is said about it."""
    metas: list[msgspec.Meta] = []
    while True:
        origin = get_origin(declared)
        if origin is Annotated:
            declared, *said = get_args(declared)
            metas[:0] = [each for each in said if isinstance(each, msgspec.Meta)]
        elif origin in (Union, types.UnionType):
            members = [each for each in get_args(declared) if each not in (msgspec.UnsetType, types.NoneType)]
            if len(members) != 1:
                return tuple(members), metas
            [declared] = members
        else:
            return declared, metas


def _bare(declared: Any, within: tuple[type, ...]) -> Schema:
    if isinstance(declared, tuple):
        if {_unwrapped(each)[0] for each in declared} == {int, str}:
            return {"x-kubernetes-int-or-string": True}
        raise TypeError(f"no structural schema has alternatives: {declared}")
    if declared in _SCALARS:
        return dict(_SCALARS[declared])
    origin, arguments = get_origin(declared) or declared, get_args(declared)
    if origin is Literal:
        return {"type": "string", "enum": list(arguments)}
    if not isinstance(origin, type):
        raise TypeError(f"no structural schema is known for {declared}")
    if issubclass(origin, enum.Enum):
        return {"type": "string", "enum": [each.value for each in origin]}
    if issubclass(origin, msgspec.Struct):
        return _record(origin, within)
    if issubclass(origin, (list, tuple, set, frozenset, Sequence)):
        distinct = issubclass(origin, (set, frozenset))
        items = _schema(arguments[0], within)
        return {"type": "array", "items": items, "x-kubernetes-list-type": "set" if distinct else "atomic"}
    if issubclass(origin, (dict, Mapping)):
        value = arguments[1] if arguments else Any
        return {"type": "object", **({PRESERVE: True} if value is Any else _values(value, within))}
    raise TypeError(f"no structural schema is known for {declared}")


def _values(declared: Any, within: tuple[type, ...]) -> Schema:
    return {"additionalProperties": _schema(declared, within)}


def _record(struct: type[msgspec.Struct], within: tuple[type, ...]) -> Schema:
    if struct in within:
        raise TypeError(f"{struct.__name__} contains itself, which a structural schema cannot say")
    fields = msgspec.structs.fields(struct)
    schema: Schema = {"type": "object"}
    if said := struct.__dict__.get("__doc__"):
        schema["description"] = " ".join(said.split("\n\n")[0].split())
    schema["properties"] = {each.encode_name: _schema(each.type, (*within, struct)) for each in fields}
    if required := [each.encode_name for each in fields if each.required]:
        schema["required"] = required
    schema |= getattr(struct, "SCHEMA", {})
    return {key: value for key, value in schema.items() if value is not None}


def _with(schema: Schema, meta: msgspec.Meta) -> Schema:
    made = dict(schema)
    if meta.description is not None:
        made["description"] = meta.description
    for name, key in _LIMITS.items():
        if (value := getattr(meta, name)) is not None:
            made[key] = value
    shortest, longest = _LENGTHS.get(schema.get("type", ""), ("minLength", "maxLength"))
    if meta.min_length is not None:
        made[shortest] = meta.min_length
    if meta.max_length is not None:
        made[longest] = meta.max_length
    extra = dict(meta.extra_json_schema or {})
    rules = [*extra.pop(RULES, ()), *schema.get(RULES, ())]
    made = {key: value for key, value in (made | extra).items() if value is not None}
    return {**made, RULES: rules} if rules else made


def _ordered(schema: Schema) -> Schema:
    first = {key: schema[key] for key in _ORDER if key in schema}
    last = {RULES: schema[RULES]} if RULES in schema else {}
    return {**first, **{key: value for key, value in schema.items() if key not in first and key != RULES}, **last}
