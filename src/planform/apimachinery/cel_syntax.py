"""The tree of a CEL expression.

`cel_parser` makes it from text, `cel_check` gives it types and `cel_program` turns it into closures. Macros (`all`,
`map`, ...) are nodes of their own rather than expanded into folds: that keeps messages, costs and programs close to
what was written.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from planform.errors import PlanformError

RESERVED = frozenset(
    {
        *("as", "break", "const", "continue", "else", "for", "function", "if", "import", "let", "loop"),
        *("namespace", "package", "return", "var", "void", "while"),
    }
)


class CelError(PlanformError):
    """A CEL expression that does not parse, type-check or evaluate; the message says where and why."""

    reason = "CelError"


@dataclass(slots=True)
class Node:
    """A part of an expression; `offset` is where it starts in the text, `type` is filled in by the checker."""

    offset: int
    type: Any = field(default=None, init=False)


@dataclass(slots=True)
class Literal(Node):
    value: Any
    kind: str


@dataclass(slots=True)
class Ident(Node):
    name: str


@dataclass(slots=True)
class Select(Node):
    """`operand.name`, `operand.?name` (optional) or the inside of `has(operand.name)` (presence)."""

    operand: Node
    name: str
    optional: bool = False
    presence: bool = False


@dataclass(slots=True)
class Call(Node):
    """A function, method or operator; operators have names such as `_+_`."""

    name: str
    target: Node | None
    args: list[Node]
    overloads: Any = field(default=None, init=False)


@dataclass(slots=True)
class ListNode(Node):
    items: list[Node]
    optional: frozenset[int]


@dataclass(slots=True)
class MapNode(Node):
    entries: list[tuple[Node, Node, bool]]


@dataclass(slots=True)
class Macro(Node):
    """A comprehension over a list or map: `variables` has one name, or two for the two-variable forms."""

    name: str
    target: Node
    variables: list[str]
    bodies: list[Node]


@dataclass(slots=True)
class Bind(Node):
    """`cel.bind(name, value, body)`, and `target.optMap(name, body)` where the value is an optional's."""

    name: str
    value: Node
    body: Node
    form: str


def locate(text: str, offset: int, message: str) -> str:
    """A message with the place in the text, laid out as the Kubernetes API server shows it."""
    before = text[:offset]
    line, column = before.count("\n"), offset - (before.rfind("\n") + 1)
    shown = text.split("\n")[line]
    return f"ERROR: <input>:{line + 1}:{column + 1}: {message}\n | {shown}\n | {'.' * column}^"


def walk(node: Node) -> Iterator[Node]:
    """A node and everything below it."""
    yield node
    for child in children(node):
        yield from walk(child)


def children(node: Node) -> list[Node]:
    match node:
        case Select():
            return [node.operand]
        case Call():
            return ([node.target] if node.target is not None else []) + node.args
        case ListNode():
            return node.items
        case MapNode():
            return [part for key, value, _ in node.entries for part in (key, value)]
        case Macro():
            return [node.target, *node.bodies]
        case Bind():
            return [node.value, node.body]
    return []
