"""The syntax tree. Every node knows where it starts, and prints as Go prints it, which error messages quote."""

from __future__ import annotations

from dataclasses import dataclass, field

from planform.gotemplate.literals import Number


@dataclass(slots=True)
class Node:
    pos: int


@dataclass(slots=True)
class Text(Node):
    text: str

    def __str__(self) -> str:
        return self.text


@dataclass(slots=True)
class Block(Node):
    """A sequence of text and actions."""

    nodes: list[Node] = field(default_factory=list)

    def __str__(self) -> str:
        return "".join(map(str, self.nodes))


@dataclass(slots=True)
class Dot(Node):
    def __str__(self) -> str:
        return "."


@dataclass(slots=True)
class Nil(Node):
    def __str__(self) -> str:
        return "nil"


@dataclass(slots=True)
class Bool(Node):
    value: bool

    def __str__(self) -> str:
        return "true" if self.value else "false"


@dataclass(slots=True)
class String(Node):
    quoted: str
    value: str

    def __str__(self) -> str:
        return self.quoted


@dataclass(slots=True)
class Numeric(Node):
    number: Number

    def __str__(self) -> str:
        return self.number.text


@dataclass(slots=True)
class Identifier(Node):
    """The name of a function."""

    name: str

    def __str__(self) -> str:
        return self.name


@dataclass(slots=True)
class Field(Node):
    """`.a.b`"""

    path: list[str]

    def __str__(self) -> str:
        return "".join(f".{name}" for name in self.path)


@dataclass(slots=True)
class Variable(Node):
    """`$x.a.b`"""

    name: str
    path: list[str]

    def __str__(self) -> str:
        return ".".join([self.name, *self.path])


@dataclass(slots=True)
class Chain(Node):
    """`(pipeline).a.b`, or a function without arguments before the fields."""

    of: Node
    path: list[str]

    def __str__(self) -> str:
        inner = f"({self.of})" if isinstance(self.of, Pipe) else str(self.of)
        return inner + "".join(f".{name}" for name in self.path)


@dataclass(slots=True)
class Command(Node):
    args: list[Node] = field(default_factory=list)

    def __str__(self) -> str:
        return " ".join(f"({arg})" if isinstance(arg, Pipe) else str(arg) for arg in self.args)


@dataclass(slots=True)
class Pipe(Node):
    """Commands, each given the value of the one before; perhaps kept in variables."""

    commands: list[Command] = field(default_factory=list)
    variables: list[Variable] = field(default_factory=list)
    assigns: bool = False

    def __str__(self) -> str:
        commands = " | ".join(map(str, self.commands))
        if not self.variables:
            return commands
        return f"{', '.join(map(str, self.variables))} {'=' if self.assigns else ':='} {commands}"


@dataclass(slots=True)
class Action(Node):
    pipe: Pipe

    def __str__(self) -> str:
        return f"{{{{{self.pipe}}}}}"


@dataclass(slots=True)
class Break(Node):
    def __str__(self) -> str:
        return "{{break}}"


@dataclass(slots=True)
class Continue(Node):
    def __str__(self) -> str:
        return "{{continue}}"


@dataclass(slots=True)
class Branch(Node):
    """`if`, `with` and `range`."""

    keyword: str
    pipe: Pipe
    then: Block
    otherwise: Block | None

    def __str__(self) -> str:
        otherwise = "" if self.otherwise is None else f"{{{{else}}}}{self.otherwise}"
        return f"{{{{{self.keyword} {self.pipe}}}}}{self.then}{otherwise}{{{{end}}}}"


@dataclass(slots=True)
class Invoke(Node):
    """`{{template "name" pipeline}}`"""

    quoted: str
    name: str
    pipe: Pipe | None

    def __str__(self) -> str:
        pipe = "" if self.pipe is None else f" {self.pipe}"
        return f"{{{{template {self.quoted}{pipe}}}}}"


@dataclass(frozen=True, slots=True)
class Tree:
    """One named template of a text."""

    name: str
    root: Block


def is_blank(block: Block) -> bool:
    """Whether a template consists of white space, so that another definition may replace it."""
    return all(
        (isinstance(node, Text) and not node.text.strip()) or (isinstance(node, Block) and is_blank(node))
        for node in block.nodes
    )
