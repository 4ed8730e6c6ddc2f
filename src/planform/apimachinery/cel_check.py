"""Types and costs of CEL expressions, found before anything runs.

`check` gives every node of a tree its type and every call the overloads that may serve it, or says where the expression
makes no sense. `estimate` then says what the expression can cost at most, given how large the schema lets values get.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from planform.apimachinery import cel_kubernetes, cel_library, cel_operators, cel_strings  # noqa: F401  (they fill the table)
from planform.apimachinery.cel_functions import FUNCTIONS, Overload
from planform.apimachinery.cel_syntax import (
    Bind,
    Call,
    CelError,
    Ident,
    ListNode,
    Literal,
    Macro,
    MapNode,
    Node,
    Select,
    locate,
)
from planform.apimachinery.cel_types import (
    BOOL,
    DYN,
    INT,
    MAX_REQUEST_BYTES,
    TYPE,
    Bindings,
    Type,
    map_of,
    optional_of,
    parse_type,
    substitute,
    unify,
)
from planform.apimachinery.cel_values import EvaluationError, parse_duration, parse_timestamp
from planform.apimachinery.schema_values import InvalidSchema, compile_pattern

Variables = Mapping[str, Type]

TYPE_NAMES = frozenset({"bool", "int", "uint", "double", "string", "bytes", "list", "map", "type", "null_type"})


def check(text: str, node: Node, variables: Variables, *, mixed_literals: bool = False) -> Type:
    """Type a tree in place and answer the type of the whole; raises CelError at the first place that is wrong.

    Kubernetes wants all elements of a list or map that is written out to have one type, except in the arguments of
    `format`; `mixed_literals` does not.
    """
    return _Checker(text, mixed_literals).check(node, variables)


class _Checker:
    def __init__(self, text: str, mixed_literals: bool) -> None:
        self._text = text
        self._mixed_literals = mixed_literals

    def _error(self, node: Node, message: str) -> CelError:
        return CelError(locate(self._text, node.offset, message))

    def check(self, node: Node, scope: Variables) -> Type:
        node.type = kind = self._type(node, scope)
        return kind

    def _type(self, node: Node, scope: Variables) -> Type:
        match node:
            case Literal():
                kind = parse_type(node.kind)
                return replace(kind, max_size=len(node.value)) if isinstance(node.value, str | bytes) else kind
            case Ident():
                if node.name in scope:
                    return scope[node.name]
                if node.name in TYPE_NAMES:
                    return TYPE
                raise self._error(node, f"undeclared reference to '{node.name}' (in container '')")
            case Select():
                return self._select(node, scope)
            case Call():
                return self._call(node, scope)
            case ListNode():
                return Type("list", (self._elements(node, scope),), max_size=len(node.items))
            case MapNode():
                keys, values = None, None
                for key, value, optional in node.entries:
                    keys = self._join(key, keys, self.check(key, scope))
                    values = self._join(value, values, self._element(value, scope, optional=optional))
                return Type("map", (keys or DYN, values or DYN), max_size=len(node.entries))
            case Macro():
                return self._macro(node, scope)
            case Bind():
                bound = self.check(node.value, scope)
                if node.form == "bind":
                    return self.check(node.body, {**scope, node.name: bound})
                if bound.name not in ("optional", "dyn"):
                    raise self._error(node, f"{node.form} needs an optional, not '{bound}'")
                inner = bound.args[0] if bound.args else DYN
                body = self.check(node.body, {**scope, node.name: inner})
                return body if node.form == "optFlatMap" else optional_of(body)
        raise self._error(node, "unsupported expression")

    def _elements(self, node: ListNode, scope: Variables) -> Type:
        joined = None
        for index, item in enumerate(node.items):
            joined = self._join(item, joined, self._element(item, scope, optional=index in node.optional))
        return joined or DYN

    def _element(self, node: Node, scope: Variables, *, optional: bool) -> Type:
        kind = self.check(node, scope)
        if not optional:
            return kind
        if kind.name not in ("optional", "dyn"):
            raise self._error(node, f"expected type 'optional_type' but found '{kind}'")
        return kind.args[0] if kind.args else DYN

    def _join(self, node: Node, known: Type | None, found: Type) -> Type:
        """The type of a literal's elements so far; one dynamic element makes all of them so."""
        if known is None:
            return found
        if "dyn" in (known.name, found.name):
            return DYN
        if unify(known, found, {}):
            return _larger(known, found)
        if self._mixed_literals:
            return DYN
        raise self._error(node, f"expected type '{known}' but found '{found}'")

    def _select(self, node: Select, scope: Variables) -> Type:
        operand = self.check(node.operand, scope)
        chained = operand.name == "optional"
        inner = operand.args[0] if chained else operand
        if inner.name == "object" or inner.fields:
            field = (inner.fields or {}).get(node.name)
            if field is None:
                raise self._error(node, f"undefined field '{node.name}'")
            found = field.type
        elif inner.name == "map":
            found = inner.args[1]
        elif inner.name == "dyn":
            found = DYN
        else:
            raise self._error(node, f"type '{inner}' does not support field selection")
        if node.presence:
            return BOOL
        return optional_of(found) if chained or node.optional else found

    def _call(self, node: Call, scope: Variables) -> Type:
        if node.name in ("_&&_", "_||_"):
            for arg in node.args:
                if not unify(BOOL, kind := self.check(arg, scope), {}):
                    raise self._error(arg, f"expected type 'bool' but found '{kind}'")
            return BOOL
        if node.name == "_?_:_":
            condition, yes, no = (self.check(arg, scope) for arg in node.args)
            if not unify(BOOL, condition, {}):
                raise self._error(node.args[0], f"expected type 'bool' but found '{condition}'")
            if not unify(yes, no, {}) and not unify(no, yes, {}):
                raise self._error(node, f"found no matching overload for '_?_:_' applied to '(bool, {yes}, {no})'")
            return DYN if "dyn" in (yes.name, no.name) else _larger(yes, no)
        overloads = self._overloads(node, scope)
        operands = ([node.target] if node.target is not None else []) + node.args
        given = [arg.type or self.check(arg, scope) for arg in operands]
        matching: list[tuple[Overload, Bindings]] = []
        for overload in overloads:
            bindings: Bindings = {}
            if len(overload.params) == len(given) and all(
                unify(wanted, kind, bindings) for wanted, kind in zip(overload.params, given, strict=True)
            ):
                matching.append((overload, bindings))
        if not matching:
            shown = ", ".join(map(str, given[1:] if node.target is not None else given))
            applied = f"{given[0]}.({shown})" if node.target is not None else f"({shown})"
            raise self._error(node, f"found no matching overload for '{node.name}' applied to '{applied}'")
        node.overloads = [overload for overload, _ in matching]
        self._check_literals(node)
        results = [substitute(overload.result, bindings) for overload, bindings in matching]
        if node.name == "_[_]" and given[0].name == "object":
            return DYN
        return results[0] if len({str(kind) for kind in results}) == 1 else DYN

    def _overloads(self, node: Call, scope: Variables) -> list[Overload]:
        target = node.target
        if isinstance(target, Ident) and target.name not in scope:
            spaced = f"{target.name}.{node.name}"
            if (spaced, False) in FUNCTIONS:
                node.name, node.target = spaced, None
                return FUNCTIONS[spaced, False]
        if target is not None:
            self.check(target, scope)
        mixed, self._mixed_literals = self._mixed_literals, self._mixed_literals or node.name == "format"
        for arg in node.args:
            self.check(arg, scope)
        self._mixed_literals = mixed
        found = FUNCTIONS.get((node.name, node.target is not None))
        if found is None:
            raise self._error(node, f"undeclared reference to '{node.name}' (in container '')")
        return found

    def _check_literals(self, node: Call) -> None:
        """Patterns, durations and timestamps that are written out are judged now rather than when the rule runs."""
        literal = node.args[-1] if node.args else None
        if not isinstance(literal, Literal) or not isinstance(literal.value, str):
            return
        try:
            if node.name in ("matches", "find", "findAll"):
                compile_pattern(literal.value)
            elif node.name == "duration":
                parse_duration(literal.value)
            elif node.name == "timestamp":
                parse_timestamp(literal.value)
        except (InvalidSchema, EvaluationError) as error:
            raise self._error(literal, f"invalid {node.name} argument: {error}") from error

    def _macro(self, node: Macro, scope: Variables) -> Type:
        target = self.check(node.target, scope)
        if target.name not in ("list", "map", "dyn"):
            shown = f"expression of type '{target}' cannot be range of a comprehension (must be list, map, or dynamic)"
            raise self._error(node.target, shown)
        if target.name == "list":
            kinds = [target.args[0]] if len(node.variables) == 1 else [INT, target.args[0]]
        elif target.name == "map":
            kinds = [target.args[0], target.args[1]][: len(node.variables)]
        else:
            kinds = [DYN] * len(node.variables)
        inner = {**scope, **dict(zip(node.variables, kinds, strict=True))}
        bodies = [self.check(body, inner) for body in node.bodies]
        predicates = (
            node.bodies[:-1] if node.name in ("map", "sortBy") or node.name.startswith("transform") else node.bodies
        )
        for body in predicates:
            if not unify(BOOL, body.type, {}):
                raise self._error(body, f"expected type 'bool' but found '{body.type}'")
        match node.name:
            case "filter":
                return target if target.name == "list" else Type("list", (kinds[0],), max_size=target.max_size)
            case "sortBy":
                return target
            case "map" | "transformList":
                return Type("list", (bodies[-1],), max_size=target.max_size)
            case "transformMap":
                keys = target.args[0] if target.name == "map" else INT if target.name == "list" else DYN
                return Type("map", (keys, bodies[-1]), max_size=target.max_size)
            case "transformMapEntry":
                if not unify(map_of(DYN, DYN), bodies[-1], {}):
                    raise self._error(node.bodies[-1], f"expected type 'map' but found '{bodies[-1]}'")
                return bodies[-1]
        return BOOL


def _larger(one: Type, other: Type) -> Type:
    """The same type twice, with the greater of both sizes."""
    if one.name != other.name:
        return one
    size = None if one.max_size is None or other.max_size is None else max(one.max_size, other.max_size)
    return replace(one, max_size=size, args=tuple(map(_larger, one.args, other.args)))


_PER_ITEM = {"all": 3, "exists": 4, "exists_one": 3, "existsOne": 3, "filter": 12, "sortBy": 4}
"""What a turn of a comprehension costs besides its bodies: asking to go on, taking the result so far, extending it."""


def estimate(node: Node) -> float:
    """The most that evaluating an expression can cost, in Kubernetes' units: about one for each step."""
    match node:
        case Literal():
            return 0
        case Ident():
            return 1
        case Select():
            return estimate(node.operand) + (0 if node.presence else 1)
        case ListNode():
            return 10 + sum(map(estimate, node.items))
        case MapNode():
            return 30 + sum(estimate(key) + estimate(value) for key, value, _ in node.entries)
        case Bind():
            return estimate(node.value) + estimate(node.body) + 1
        case Macro():
            bodies = sum(map(estimate, node.bodies))
            iteration = _PER_ITEM.get(node.name, 12) + (2 if len(node.variables) == 2 else 0)
            return estimate(node.target) + size_of(node.target) * (iteration + bodies) + 1
        case Call():
            if node.name == "_?_:_":
                return estimate(node.args[0]) + max(estimate(node.args[1]), estimate(node.args[2]))
            operands = ([node.target] if node.target is not None else []) + node.args
            spent = sum(map(estimate, operands))
            if node.overloads is None:
                return spent
            sizes = [size_of(operand) for operand in operands]
            return spent + float(max(max(1.0, overload.cost(sizes)) for overload in node.overloads))
    return 1


def size_of(node: Node) -> int:
    """The greatest size of a node's value: characters, items or entries; 1 for what has none."""
    match node:
        case Literal():
            return len(node.value) if isinstance(node.value, str | bytes) else 1
        case ListNode():
            return len(node.items)
        case MapNode():
            return len(node.entries)
        case Call() if node.overloads is not None:
            operands = ([node.target] if node.target is not None else []) + node.args
            sizes = [size_of(operand) for operand in operands]
            known = [int(overload.size(sizes)) for overload in node.overloads if overload.size is not None]
            if known:
                return max(known)
    kind: Type = node.type
    if kind.max_size is not None:
        return kind.max_size
    if isinstance(node, Bind) or (isinstance(node, Call) and node.name == "_?_:_"):
        return max(size_of(child) for child in (node.args[1:] if isinstance(node, Call) else [node.body]))
    return MAX_REQUEST_BYTES if kind.name in ("string", "bytes", "list", "map", "dyn") else 1
