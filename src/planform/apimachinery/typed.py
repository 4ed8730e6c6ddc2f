"""The type tree: for each place in an object, whether it is one field or many, and how list items are told apart.

Server-side apply needs only this much of a schema. A place is a *leaf* (a scalar, an atomic list or an atomic map,
owned whole), a granular map (each key is a field), or an associative list (each item is a field, named by its keys or,
in a set, by its value). Where the schema says nothing the type is deduced from the value: maps granular, lists atomic.

`compile_type` is called once for each served kind; nodes fill themselves in when a walk first reaches them, so that a
large schema costs what is used of it and a recursive one ends.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from json.encoder import encode_basestring as _quoted
from typing import Any, Final

import orjson

Schema = Mapping[str, Any]
Resolve = Callable[[str], Schema]


class TypedError(ValueError):
    """An applied configuration does not fit its type: an undeclared field, a wrong shape or a repeated key."""


class TypeNode:
    """The type of one place. Every attribute below is computed from the schema on first use, then fixed.

    A value whose shape the node does not accept is a leaf to every walk but `type_errors`: stored objects may predate
    their schema, and must still be tracked and merged.
    """

    __slots__ = (
        *("associative", "descents", "element", "fields", "granular", "item", "keys", "others", "types"),
        *("_schema", "_scope"),
    )

    fields: dict[str, TypeNode]
    """Declared fields; they are structure, so applying something below one does not claim the field itself."""
    element: TypeNode | None
    """The type of undeclared keys; None where they are an error."""
    granular: bool
    """Maps found here are descended into."""
    associative: bool
    """Lists found here are descended into: `keys` tell items apart, or their values if there are no keys."""
    keys: tuple[tuple[str, Any], ...]
    """Names of the key fields, sorted, each with its default or ABSENT."""
    item: TypeNode
    """The type of list items, of atomic lists too."""
    types: frozenset[type]
    """What may stand here, as the Python types of decoded JSON; null always may."""
    descents: dict[str, TypeNode | None]
    """`fields`, made for the fastest walk: None where the type is always a leaf."""
    others: TypeNode | None
    """`element` in the same way, deduced where undeclared keys are an error."""

    def __init__(self, schema: Schema, scope: _Scope) -> None:
        self._schema, self._scope = schema, scope

    def __getattr__(self, name: str) -> Any:
        # Reached only while a slot is empty: fill it and the like, after which access costs nothing extra.
        if name not in TypeNode.__slots__:
            raise AttributeError(name)
        if name in ("descents", "others"):
            self.descents = {field: _unless_leaf(child) for field, child in self.fields.items()}
            self.others = _unless_leaf(self.element or DEDUCED)
        else:
            self._fill(self._schema)
        return object.__getattribute__(self, name)

    def _fill(self, schema: Schema) -> None:
        scope = self._scope.within(schema)
        types = _types(schema)
        properties: Mapping[str, Schema] = schema.get("properties") or {}
        embedded = bool(schema.get(EMBEDDED))
        self.types = types
        self.granular = dict in types and schema.get("x-kubernetes-map-type") != "atomic"
        self.fields = {name: scope.node(child) for name, child in properties.items()}
        if embedded:
            self.fields |= {"apiVersion": LEAF, "kind": LEAF, "metadata": _METADATA}
        self.element = scope.undeclared(schema) if dict in types else None
        list_type, keys = _list_type(schema)
        self.associative = list in types and list_type in ("map", "set")
        items: Schema = schema.get("items") or {}
        self.item = scope.node(items) if items else DEDUCED
        self.keys = ()
        if list_type == "map":
            declared = self.item._schema.get("properties") or {}
            self.keys = tuple((key, declared.get(key, {}).get("default", ABSENT)) for key in sorted(keys))

    def item_key(self, item: Any) -> str | None:
        """How FieldsV1 names an item of this associative list; None if the item has no identity.

        One of several keys is enough: the others are then part of the name only where they are given or defaulted.
        """
        keys = self.keys
        if not keys:
            return None if item is None or type(item) in (dict, list) else f"v:{orjson.dumps(item).decode()}"
        if type(item) is not dict:
            return None
        if len(keys) == 1 and type(only := item.get(keys[0][0])) is str:
            return f'k:{{"{keys[0][0]}":{_quoted(only)}}}'
        found = {name: value for name, default in keys if (value := item.get(name, default)) is not ABSENT}
        return f"k:{orjson.dumps(found).decode()}" if found else None

    def item_keys(self, items: list[Any]) -> list[str] | None:
        """The names of all items in order, repeats included; None if some item has no identity."""
        named: list[str] = []
        for item in items:
            name = self.item_key(item)
            if name is None:
                return None
            named.append(name)
        return named

    def child(self, name: str) -> TypeNode:
        """The type below a map key, deduced if the schema does not know the key."""
        return self.fields.get(name) or self.element or DEDUCED


def _unless_leaf(node: TypeNode) -> TypeNode | None:
    return node if node.granular or node.associative else None


ABSENT: Final = object()
EMBEDDED: Final = "x-kubernetes-embedded-resource"
PRESERVE: Final = "x-kubernetes-preserve-unknown-fields"
_NULL: Final = type(None)
_SCALARS: Final[frozenset[type]] = frozenset({str, int, float, bool, _NULL})
_CONTAINERS: Final[frozenset[type]] = frozenset({dict, list})
_ANY: Final[frozenset[type]] = _SCALARS | _CONTAINERS
_TYPES_OF: Final[Mapping[str, frozenset[type]]] = {
    "object": frozenset({dict, _NULL}),
    "array": frozenset({list, _NULL}),
    "string": frozenset({str, _NULL}),
    "integer": frozenset({int, float, _NULL}),
    "number": frozenset({int, float, _NULL}),
    "boolean": frozenset({bool, _NULL}),
}
_NAMES: Final[Mapping[type, str]] = {
    dict: "map",
    list: "list",
    str: "string",
    int: "numeric",
    float: "numeric",
    bool: "boolean",
}


def _types(schema: Schema) -> frozenset[type]:
    if schema.get("x-kubernetes-int-or-string") or schema.get("format") == "int-or-string":
        return _SCALARS
    return _TYPES_OF.get(schema.get("type") or "", _ANY)


def _list_type(schema: Schema) -> tuple[str, tuple[str, ...]]:
    """The list type and its keys; built-in kinds may give the older strategic-merge markers instead."""
    declared = schema.get("x-kubernetes-list-type")
    if declared is None and "merge" in str(schema.get("x-kubernetes-patch-strategy") or "").split(","):
        merge_key = schema.get("x-kubernetes-patch-merge-key")
        return ("map", (merge_key,)) if merge_key else ("set", ())
    return declared or "atomic", tuple(schema.get("x-kubernetes-list-map-keys") or ())


class _Scope:
    """What the nodes of one kind share: how a `$ref` is resolved and which have been, and whether an enclosing schema
    keeps unknown fields (that reaches inline schemas below it, not referenced ones)."""

    __slots__ = ("_preserve", "_refs", "_resolve", "_sibling")

    def __init__(self, resolve: Resolve | None, refs: dict[tuple[str, str], TypeNode], *, preserve: bool) -> None:
        self._resolve, self._refs, self._preserve = resolve, refs, preserve
        self._sibling: _Scope | None = None

    def within(self, schema: Schema) -> _Scope:
        return self._switched(preserve=True) if schema.get(PRESERVE) else self

    def _switched(self, *, preserve: bool) -> _Scope:
        if self._preserve == preserve:
            return self
        if self._sibling is None:
            self._sibling = _Scope(self._resolve, self._refs, preserve=preserve)
            self._sibling._sibling = self
        return self._sibling

    def node(self, schema: Schema) -> TypeNode:
        reference = _reference(schema)
        if reference is None:
            return TypeNode(schema, self)
        if reference.endswith("runtime.RawExtension"):
            return LEAF
        override = str(schema.get("x-kubernetes-map-type") or "")
        known = self._refs.get((reference, override))
        if known is None:
            target = self.follow(schema)
            if override:
                target = {**target, "x-kubernetes-map-type": override}
            known = self._refs[reference, override] = TypeNode(target, self._switched(preserve=False))
        return known

    def follow(self, schema: Schema) -> Schema:
        """The schema itself, past any number of references."""
        seen: set[str] = set()
        while (reference := _reference(schema)) is not None:
            if self._resolve is None or reference in seen:
                raise TypedError(f'cannot resolve schema reference "{reference}"')
            seen.add(reference)
            schema = self._resolve(reference)
        return schema

    def undeclared(self, schema: Schema) -> TypeNode | None:
        """The type of keys that `properties` does not name; an object that names none is free-form."""
        additional = schema.get("additionalProperties")
        if isinstance(additional, Mapping):
            return self.node(additional)
        if additional is None:
            additional = self._preserve or not (schema.get("properties") or schema.get(EMBEDDED))
        return DEDUCED if additional else None


def _reference(schema: Schema) -> str | None:
    """The `$ref` of a schema, also when it is wrapped in an `allOf` of one."""
    if "$ref" in schema:
        return str(schema["$ref"])
    all_of: Sequence[Schema] = schema.get("allOf") or ()
    return str(all_of[0]["$ref"]) if len(all_of) == 1 and "$ref" in all_of[0] else None


_ALONE: Final = _Scope(None, {}, preserve=False)
DEDUCED: Final = TypeNode({PRESERVE: True}, _ALONE)
"""What stands where the schema is silent."""
DEDUCED.fields, DEDUCED.element, DEDUCED.item, DEDUCED.keys = {}, DEDUCED, DEDUCED, ()
DEDUCED.types, DEDUCED.granular, DEDUCED.associative = _ANY, True, False
LEAF: Final = TypeNode({"x-kubernetes-map-type": "atomic"}, _ALONE)
"""Any value, owned as a whole."""

_STRING: Final = {"type": "string"}
_INTEGER: Final = {"type": "integer"}
_BOOLEAN: Final = {"type": "boolean"}
_OBJECT_META: Final[Schema] = {
    "type": "object",
    "properties": {
        **dict.fromkeys(("name", "generateName", "namespace", "selfLink", "uid", "resourceVersion"), _STRING),
        **dict.fromkeys(("creationTimestamp", "deletionTimestamp", "clusterName"), _STRING),
        **dict.fromkeys(("generation", "deletionGracePeriodSeconds"), _INTEGER),
        "labels": {"type": "object", "additionalProperties": _STRING},
        "annotations": {"type": "object", "additionalProperties": _STRING},
        "finalizers": {"type": "array", "items": _STRING, "x-kubernetes-list-type": "set"},
        "ownerReferences": {
            "type": "array",
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["uid"],
            "items": {
                "type": "object",
                "x-kubernetes-map-type": "atomic",
                "properties": {
                    **dict.fromkeys(("apiVersion", "kind", "name", "uid"), _STRING),
                    **dict.fromkeys(("controller", "blockOwnerDeletion"), _BOOLEAN),
                },
            },
        },
        "managedFields": {"type": "array", "items": {"type": "object"}},
    },
}
_METADATA: Final = TypeNode(_OBJECT_META, _ALONE)
_TRACKED: Final = ("generateName", "labels", "annotations", "finalizers", "ownerReferences")
UNTRACKED_METADATA: Final = frozenset(_METADATA.fields) - frozenset(_TRACKED)
"""Fields of metadata that no manager ever owns: the object's identity, and what the server sets."""
UNTRACKED_FIELDS: Final[dict[str, Any]] = {
    ".": {},
    "f:apiVersion": {},
    "f:kind": {},
    "f:metadata": {".": {}} | {f"f:{name}": {} for name in sorted(UNTRACKED_METADATA)},
}
"""All that is never tracked, as a set: labels and such have owners, the object and its metadata themselves have not."""


def compile_type(schema: Schema | None, *, resolve: Resolve | None = None) -> TypeNode:
    """The type of a kind from its OpenAPI schema; None means that everything but metadata is deduced.

    apiVersion, kind and metadata are known at the root of every kind, whatever the schema says about them. `resolve`
    maps the text of a `$ref` to a schema.
    """
    scope = _Scope(resolve, {}, preserve=False)
    root = TypeNode(scope.follow(schema) if schema is not None else {PRESERVE: True}, scope)
    root.fields = {**root.fields, "apiVersion": LEAF, "kind": LEAF, "metadata": _METADATA}
    return root


def type_errors(node: TypeNode, config: Any) -> list[str]:
    """Everything in a configuration that its type does not allow, as `path: complaint`."""
    errors: list[str] = []
    _check(node, config, None, errors)
    return errors


def fits(node: TypeNode, config: Any) -> bool:
    """Whether there are no type errors, for those who need no words for them."""
    if type(config) not in node.types:
        return False
    if type(config) is dict:
        fields, element = node.fields, node.element
        for name, below in config.items():
            child = fields.get(name, element)
            if child is None or type(below) not in child.types:
                return False
            if type(below) in _CONTAINERS and not fits(child, below):
                return False
    elif type(config) is list:
        if node.associative and ((keys := node.item_keys(config)) is None or len({*keys}) < len(keys)):
            return False
        for item in config:
            if not fits(node.item, item):
                return False
    return True


_Path = tuple["_Path", str] | None
"""The way back to the root, put into words only when there is a complaint."""


def _check(node: TypeNode, value: Any, path: _Path, errors: list[str]) -> None:
    sort = type(value)
    if sort not in node.types:
        wanted = " or ".join(sorted({_NAMES[kind] for kind in node.types if kind in _NAMES}))
        errors.append(_error_text(path, f"expected {wanted}, got {orjson.dumps(value).decode()}"))
    elif sort is dict:
        fields, element = node.fields, node.element
        for name in sorted(value):
            child = fields.get(name, element)
            if child is None:
                errors.append(_error_text((path, f".{name}"), "field not declared in schema"))
                continue
            below = value[name]
            if type(below) not in child.types or type(below) in (dict, list):
                _check(child, below, (path, f".{name}"), errors)
    elif sort is list:
        _check_list(node, value, path, errors)


def _check_list(node: TypeNode, items: list[Any], path: _Path, errors: list[str]) -> None:
    seen: set[str] = set()
    for index, item in enumerate(items):
        if not node.associative:
            _check(node.item, item, (path, f"[{index}]"), errors)
            continue
        element = node.item_key(item)
        if element is None:
            errors.append(_error_text(path, f"element {index}: {_no_identity(node, item)}"))
        elif element in seen:
            errors.append(_error_text(path, f"duplicate entries for key {element_text(element)}"))
        else:
            seen.add(element)
            _check(node.item, item, (path, element), errors)


def _no_identity(node: TypeNode, item: Any) -> str:
    if not node.keys:
        what = "an explicit null" if item is None else f"a {_NAMES[type(item)]}"
        return f"associative list without keys has an element that's {what}"
    if type(item) is not dict:
        return f"associative list with keys may not have {'a null element' if item is None else 'non-map elements'}"
    keys = " ".join(f'"{name}"' for name, _ in node.keys)
    message = f"associative list with keys has an element that omits all key fields [{keys}]"
    return f"{message} (and doesn't have default values for any key fields)"


def element_text(element: str) -> str:
    """A FieldsV1 path element as messages show it: `.spec`, `[name="x"]`, `[="p"]`, `[2]`."""
    sort, _, text = element.partition(":")
    if sort == "k":
        keys: dict[str, Any] = orjson.loads(text)
        return f"[{','.join(f'{name}={orjson.dumps(value).decode()}' for name, value in keys.items())}]"
    return {"f": f".{text}", "v": f"[={text}]", "i": f"[{text}]"}[sort]


def _error_text(path: _Path, text: str) -> str:
    steps: list[str] = []
    while path is not None:
        path, step = path
        steps.append(step if step[0] in ".[" else element_text(step))
    return f"{''.join(reversed(steps))}: {text}" if steps else text
