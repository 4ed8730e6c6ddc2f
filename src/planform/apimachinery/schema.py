"""Structural schemas: what the API server does to every object it is sent, in one pass.

`compile_schema` turns an OpenAPI v3 schema (with `x-kubernetes-*`) into closures once per CRD; `Schema.admit` then
prunes unknown fields, fills in defaults and validates while it walks the object a single time. The embedded API server
calls it on every write, `Schema.default` on every read of an object stored before a default was added.

The walk is shaped by what is common: a value of the expected Python type costs one lookup and one comparison, and one
call if there are rules for it; nulls, floats that are integers and wrong types leave through `_settle`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import msgspec
import orjson

from planform.apimachinery import schema_findings as say
from planform.apimachinery.schema_embedded import IS_RESOURCE, RESOURCE_FIELDS
from planform.apimachinery.schema_findings import Findings, MapKey, Path, render, steps
from planform.apimachinery.schema_values import (
    InvalidSchema,
    Rule,
    SchemaDict,
    is_type,
    list_map_key,
    type_error,
    type_names,
    value_errors,
    value_rules,
)
from planform.errors import FieldError

__all__ = ["Findings", "InvalidSchema", "Schema", "compile_schema"]

Resolve = Callable[[str], SchemaDict]
Holds = Callable[[Any], bool]
Visit = Callable[[Any, Any, Path, "_Walk"], None]
"""Brings a value into shape. Next to it stands what was admitted at its place before, or anything else if that is not
known: a part of it that is the very same object needs no second look."""

_PYTHON_TYPES: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "boolean": (bool,),
    "integer": (int,),
    "number": (int, float),
    "object": (dict,),
    "array": (list,),
}
_ANY_TYPE: tuple[type, ...] = (str, bool, int, float, dict, list)
_NOTHING: Mapping[str, Any] = {}
_DROP: Any = object()
"""What `_settle` answers for a null that is to be dropped."""


class _Walk(msgspec.Struct, kw_only=True):
    """What one admission gathers on its way through the object."""

    collect_unknown: bool
    null_errors: bool
    unknown: list[str] = []
    errors: list[tuple[Path, FieldError]] = []


class _Node:
    """One compiled schema node.

    `expected` and `visit` are the fast way: a value of that type needs only this visit, or nothing if it is None.
    `holds` saves scalars even that: one for which it is true needs no visit, which would only look for complaints.
    `visits` has every allowed type. Nodes of recursive schemas refer to each other, so they are filled in after birth.
    """

    __slots__ = (
        "default", "expected", "extra", "has_default", "holds", "items", "keeps_unknown", "nullable", "properties",
        "rules", "schema", "settled_default", "visit", "visits",
    )  # fmt: skip

    def __init__(self, schema: SchemaDict) -> None:
        self.schema = schema
        self.expected: type = _Node
        self.visit: Visit | None = None
        self.holds: Holds | None = None
        self.visits: dict[type, Visit | None] = {}
        self.rules: dict[type, list[Rule]] = {}
        self.nullable = bool(schema.get("nullable"))
        self.has_default = schema.get("default") is not None
        self.default: bytes = orjson.dumps(schema["default"]) if self.has_default else b""
        self.settled_default: bytes | None = None  # the default as it was admitted, if it always will be
        self.keeps_unknown = bool(schema.get("x-kubernetes-preserve-unknown-fields"))
        self.properties: dict[str, _Node] = {}
        self.extra: _Node | None = None
        self.items: _Node | None = None

    def new_default(self) -> Any:
        return orjson.loads(self.default)

    def children(self) -> Iterator[_Node]:
        yield from self.properties.values()
        if self.extra is not None:
            yield self.extra
        if self.items is not None:
            yield self.items


class Schema:
    """A compiled schema. Objects are changed in place; nothing of them is kept."""

    def __init__(self, root: _Node) -> None:
        self._root = root
        self._with_defaults = _nodes_above_defaults(root)
        self.has_defaults = root in self._with_defaults

    def admit(
        self,
        obj: dict[str, Any],
        *,
        old: dict[str, Any] | None = None,
        collect_unknown: bool = True,
        null_errors: bool = False,
        admitted: dict[str, Any] | None = None,
    ) -> Findings:
        """Prune, default and validate in place.

        `admitted` is an object that passed this schema before. Maps and lists of it that `obj` has at the same place
        are not looked at again: they need no change, and what is wrong with them would be dropped like all complaints
        about what did not change.

        With `old` (an update), a complaint about a part that did not change is dropped, so that an object stored
        before a schema was tightened can still be edited elsewhere. `null_errors` is for server-side apply: a null
        that would have been dropped is an error.
        """
        walk = _Walk(collect_unknown=collect_unknown, null_errors=null_errors)
        try:
            _settle(self._root, obj, admitted, None, walk)
        except RecursionError:  # only a schema that refers to itself lets an object be that deep
            return Findings([], [say.invalid(say.NOWHERE, "", "object is nested too deeply")])
        errors = walk.errors
        walk.unknown.sort()
        if not errors:
            return Findings(walk.unknown, [])
        if old is not None:
            errors = [found for found in errors if not self._unchanged(steps(found[0]), obj, old)]
        return Findings(walk.unknown, list(dict.fromkeys(error for _, error in errors)))

    def default(self, obj: dict[str, Any]) -> bool:
        """Fill in defaults alone, as a read does; says whether anything changed."""
        return self.has_defaults and self._default(self._root, obj)

    def prune(self, obj: dict[str, Any]) -> list[str]:
        """Drop unknown fields alone; answers their paths, sorted."""
        unknown: list[str] = []
        _prune(self._root, obj, None, unknown)
        return sorted(unknown)

    def _default(self, node: _Node, value: Any) -> bool:
        changed = False
        if type(value) is dict:
            for name, child in node.properties.items():
                if child.has_default and value.get(name) is None and not (name in value and child.nullable):
                    value[name] = child.new_default()
                    changed = True
            for name, item in value.items():
                below = node.properties.get(name) or node.extra
                if below is not None and below in self._with_defaults:
                    if item is None and below.has_default and not below.nullable:
                        value[name] = item = below.new_default()
                        changed = True
                    changed |= self._default(below, item)
        elif type(value) is list and node.items is not None and node.items in self._with_defaults:
            for index, item in enumerate(value):
                if item is None and node.items.has_default and not node.items.nullable:
                    value[index] = item = node.items.new_default()
                    changed = True
                changed |= self._default(node.items, item)
        return changed

    def _unchanged(self, path: list[str | int | MapKey], new: Any, old: Any) -> bool:
        """Whether some part on the way to `path` is in `old` too, and the same there."""
        if _same(new, old):
            return True
        node: _Node | None = self._root
        for step in path:
            if isinstance(step, int):
                keys = node.schema.get("x-kubernetes-list-map-keys") if node is not None else None
                if not keys or not isinstance(new, list) or not isinstance(old, list) or step >= len(new):
                    return False
                new = new[step]
                wanted = list_map_key(new, keys)
                old = next((item for item in old if list_map_key(item, keys) == wanted), None)
                node = node.items if node is not None else None
            else:
                name = step.key if isinstance(step, MapKey) else step
                if not isinstance(new, dict) or not isinstance(old, dict) or (name in new) != (name in old):
                    return False
                if name not in new:
                    return False
                new, old = new[name], old[name]
                node = (node.properties.get(name) or node.extra) if node is not None else None
            if _same(new, old):
                return True
        return False


def compile_schema(schema: SchemaDict, *, resolve: Resolve | None = None, root: bool = False) -> Schema:
    """Compile a structural schema; raises InvalidSchema for one that no CRD could have.

    `resolve` answers a `$ref` (built-in kinds have them, recursive ones too). With `root`, `apiVersion`, `kind` and
    `metadata` are known and left alone, whatever the schema says, except that rules for metadata's name hold.
    """
    return Schema(_Compiler(resolve).node(schema, root=root))


class _Compiler:
    """Builds nodes; one per `$ref`, so that recursive schemas end."""

    def __init__(self, resolve: Resolve | None) -> None:
        self._resolve = resolve
        self._by_ref: dict[tuple[str, bytes], _Node] = {}

    def node(self, schema: SchemaDict, *, root: bool = False) -> _Node:
        reference, siblings = _reference(schema)
        if reference is None:
            return self._fill(_Node(schema), root=root)
        if self._resolve is None:
            raise InvalidSchema(f'schema has a $ref to "{reference}" and nothing to resolve it with')
        key = (reference, orjson.dumps(siblings, option=orjson.OPT_SORT_KEYS))
        if key not in self._by_ref:
            self._by_ref[key] = node = _Node({**self._resolve(reference), **siblings})
            self._fill(node, root=root)
        return self._by_ref[key]

    def _fill(self, node: _Node, *, root: bool) -> _Node:
        schema = node.schema
        for name, sub in (schema.get("properties") or {}).items():
            node.properties[name] = self.node(sub)
        if root:
            for name, sub in RESOURCE_FIELDS.items():
                node.properties[name] = _left_alone(node.properties.get(name), sub["type"])
        elif schema.get("x-kubernetes-embedded-resource"):
            node.properties |= {name: self.node(sub) for name, sub in RESOURCE_FIELDS.items()}
        extra = schema.get("additionalProperties")
        if extra is True or extra == {}:
            node.extra = _scalars_only()
        elif extra:
            node.extra = self.node(extra)
        if isinstance(schema.get("items"), Mapping):
            node.items = self.node(schema["items"])

        rules = value_rules(schema)
        node.rules = rules
        if schema.get("x-kubernetes-embedded-resource"):
            rules[dict].append(IS_RESOURCE)
        names = type_names(schema)
        for kind in dict.fromkeys(kind for name in names for kind in _PYTHON_TYPES[name]) if names else _ANY_TYPE:
            checks = (*rules.get(kind, ()), *rules[object])
            if kind is dict:
                node.visits[dict] = _visit_object(node, checks)
            elif kind is list and node.items is not None:
                node.visits[list] = _visit_list(node.items, checks)
            else:
                node.visits[kind] = _visit_scalar(checks)
        if len(names) == 1:
            node.expected = _PYTHON_TYPES[names[0]][0]
            node.visit = node.visits[node.expected]
            if node.visit is not None and node.expected not in (dict, list):
                node.holds = _all_hold((*rules.get(node.expected, ()), *rules[object]))
        return node


def _reference(schema: SchemaDict) -> tuple[str | None, dict[str, Any]]:
    """The `$ref` of a schema, also in the form `allOf: [$ref]` that lets it have siblings, and those siblings."""
    reference = schema.get("$ref")
    if reference is None and "type" not in schema and len(schema.get("allOf") or ()) == 1:
        reference = schema["allOf"][0].get("$ref")
    siblings = {key: value for key, value in schema.items() if key not in ("$ref", "allOf", "description")}
    return (reference, siblings) if reference is not None else (None, {})


def _left_alone(declared: _Node | None, usual: str) -> _Node:
    """A node that keeps whatever it is given and only complains as the declared schema's value rules do."""
    node = _Node({"x-kubernetes-preserve-unknown-fields": True, "nullable": True})
    visit: Visit | None = None
    if declared is not None:
        explain = value_errors(declared.schema)

        def visit(value: Any, admitted: Any, path: Path, walk: _Walk) -> None:
            if value is not admitted and (found := explain(value, path)):
                walk.errors.extend((path, error) for error in found)

    node.visits = dict.fromkeys(_ANY_TYPE, visit)
    node.expected = _PYTHON_TYPES[usual][0]
    asked: Mapping[str, Any] = {} if declared is None else declared.schema
    node.visit = None if asked.get("type") == usual and asked.keys() <= {"type", "description"} else visit
    return node


def _scalars_only() -> _Node:
    """`additionalProperties: true` says nothing about what is inside: any key, but fields of objects are unknown."""
    node = _Node({"nullable": True})
    node.items = node
    node.visits = dict.fromkeys(_ANY_TYPE) | {dict: _visit_object(node, ()), list: _visit_list(node, ())}
    return node


def _visit_scalar(rules: tuple[Rule, ...]) -> Visit | None:
    if not rules:
        return None

    def visit(value: Any, admitted: Any, path: Path, walk: _Walk) -> None:
        for holds, explain in rules:
            if not holds(value):
                walk.errors.extend((path, error) for error in explain(value, path))

    return visit


def _all_hold(rules: tuple[Rule, ...]) -> Holds:
    if len(rules) == 1:
        return rules[0].holds

    def all_hold(value: Any) -> bool:
        for holds, _ in rules:  # noqa: SIM110 - the loop is measurably faster than all(...)
            if not holds(value):
                return False
        return True

    return all_hold


def _visit_object(node: _Node, rules: tuple[Rule, ...]) -> Visit | None:  # noqa: C901  (one closure, for every field of every write passes it)
    lookup, extra, keeps_unknown = node.properties.get, node.extra, node.keeps_unknown
    if keeps_unknown and extra is None and not node.properties and not rules:
        return None
    defaults = [(name, child) for name, child in node.properties.items() if child.has_default]
    # Most fields need nothing but a look at their type: they are done with one lookup.
    plain = {name: child.expected for name, child in node.properties.items() if child.visit is None}.get

    def visit(obj: dict[str, Any], admitted: Any, path: Path, walk: _Walk) -> None:  # noqa: C901  (same)
        before = admitted.get if type(admitted) is dict else _NOTHING.get
        dropped: list[str] | None = None
        for name, value in obj.items():
            if type(value) is plain(name):
                continue
            child = lookup(name)
            if child is None:
                if extra is None:
                    if not keeps_unknown:
                        if dropped is None:
                            dropped = []
                        dropped.append(name)
                        if walk.collect_unknown:
                            walk.unknown.append(render((path, name)))
                    continue
                child = extra
            if type(value) is child.expected:
                if (holds := child.holds) is not None and holds(value):
                    continue
                visit_child, former = child.visit, before(name)
                if visit_child is not None and former is not value:
                    visit_child(value, former, (path, MapKey(name) if child is extra else name), walk)
            else:
                settled = _settle(child, value, before(name), (path, MapKey(name) if child is extra else name), walk)
                if settled is _DROP:
                    if dropped is None:
                        dropped = []
                    dropped.append(name)
                elif settled is not value:
                    obj[name] = settled
        if dropped is not None:
            for name in dropped:
                del obj[name]
        for name, child in defaults:
            if name not in obj:
                obj[name] = _admitted_default(child, (path, name), walk)
        for holds, explain in rules:
            if not holds(obj):
                walk.errors.extend((path, error) for error in explain(obj, path))

    if extra is None or node.properties or rules:
        return visit
    values = extra

    def visit_map(obj: dict[str, Any], admitted: Any, path: Path, walk: _Walk) -> None:
        # A map whose values need nothing but a look at their type, all of it, is one look.
        if values.visit is not None or not {*map(type, obj.values())} <= {values.expected}:
            visit(obj, admitted, path, walk)

    return visit_map


def _admitted_default(node: _Node, path: Path, walk: _Walk) -> Any:
    """A default in the shape that any value gets. What is settled once without a finding is from then on a copy.

    A null inside is the schema's, and no mistake of who leaves the field out.
    """
    if node.settled_default is not None:
        return orjson.loads(node.settled_default)
    found, null_errors = len(walk.errors) + len(walk.unknown), walk.null_errors
    walk.null_errors = False
    value = _settle(node, node.new_default(), None, path, walk)
    walk.null_errors = null_errors
    if walk.collect_unknown and len(walk.errors) + len(walk.unknown) == found:
        node.settled_default = orjson.dumps(value)
    return value


def _visit_list(item: _Node, rules: tuple[Rule, ...]) -> Visit:
    def visit(items: list[Any], admitted: Any, path: Path, walk: _Walk) -> None:
        expected, holds, visit_item = item.expected, item.holds, item.visit
        for index, value in enumerate(items):
            if type(value) is expected:
                if visit_item is not None and (holds is None or not holds(value)):
                    visit_item(value, None, (path, index), walk)
            else:
                settled = _settle(item, value, None, (path, index), walk)
                if settled is _DROP:
                    _keep_null(item, (path, index), walk)
                elif settled is not value:
                    items[index] = settled
        for rule in rules:
            if not rule.holds(items):
                walk.errors.extend((path, error) for error in rule.explain(items, path))

    return visit


def _settle(node: _Node, value: Any, admitted: Any, path: Path, walk: _Walk) -> Any:
    """The value to keep in place of one that is not simply of the expected type; `_DROP` for a null nobody wants."""
    if value is None and (node.nullable or not node.has_default):
        if not node.nullable and not walk.null_errors:
            return _DROP
        return _keep_null(node, path, walk)
    if value is None:
        value = node.new_default()
    kind = type(value)
    if kind is float and int in node.visits and is_type(value, "integer"):
        value, kind = int(value), int
    if kind in node.visits:
        visit = node.visits[kind]
        if visit is not None:
            visit(value, admitted, path, walk)
        return value
    if kind is dict or kind is list:
        _prune(_NOTHING_KNOWN, value, path, walk.unknown if walk.collect_unknown else [])
    walk.errors.append((path, type_error(node.schema, value, path)))
    for rule in (*node.rules.get(kind, ()), *node.rules[object]):
        if not rule.holds(value):
            walk.errors.extend((path, error) for error in rule.explain(value, path))
    return value


def _keep_null(node: _Node, path: Path, walk: _Walk) -> None:
    """A null that stays: an error unless nullable, and an enum may still refuse it."""
    if not node.nullable and type_names(node.schema):
        walk.errors.append((path, type_error(node.schema, None, path)))
    for rule in node.rules.get(type(None), ()):
        if not rule.holds(None):
            walk.errors.extend((path, error) for error in rule.explain(None, path))


def _prune(node: _Node, value: Any, path: Path, unknown: list[str]) -> None:
    if type(value) is dict:
        for name in list(value):
            child = node.properties.get(name) or node.extra
            if child is not None:
                _prune(child, value[name], (path, name), unknown)
            elif not node.keeps_unknown:
                unknown.append(render((path, name)))
                del value[name]
    elif type(value) is list and not (node.keeps_unknown and node.items is None):
        for index, item in enumerate(value):
            _prune(node.items or _NOTHING_KNOWN, item, (path, index), unknown)


_NOTHING_KNOWN = _Node({})
"""What stands where a schema has no place for objects: all their fields are unknown."""


def _nodes_above_defaults(root: _Node) -> set[_Node]:
    """Every node that has a default somewhere below it, so that reads skip all others."""
    parents: dict[_Node, list[_Node]] = {}
    pending, seen = [root], {root}
    reached: list[_Node] = []
    while pending:
        node = pending.pop()
        for child in node.children():
            parents.setdefault(child, []).append(node)
            if child.has_default:
                reached.append(node)
            if child not in seen:
                seen.add(child)
                pending.append(child)
    above: set[_Node] = set()
    while reached:
        node = reached.pop()
        if node not in above:
            above.add(node)
            reached.extend(parents.get(node, ()))
    return above


def _same(one: Any, other: Any) -> bool:
    """Equal as JSON: Python's `True == 1` must not make a change look like none."""
    return orjson.dumps(one, option=orjson.OPT_SORT_KEYS) == orjson.dumps(other, option=orjson.OPT_SORT_KEYS)
