"""Trees to Python: each named template becomes one Python function, compiled once and run many times.

A template's constructs have Python counterparts that mean the same: truth is truth, `and` and `or` return an operand,
`break` and `continue` concern the innermost loop, variables are scoped lexically and so become locals. What can fail is
a call, and every such call starts a line of its own in the generated source: when something raises, the line in the
traceback says which node it was, and a render that succeeds pays nothing for that.

No text of the template reaches the source but as the repr of a string; every name in it is made here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import CodeType

from planform.gotemplate import nodes, runtime
from planform.gotemplate.errors import TemplateSyntaxError
from planform.gotemplate.expressions import MARK, Code, ExpressionCompiler, Names, Site
from planform.gotemplate.functions import Function
from planform.gotemplate.nodes import Block, Branch, Chain, Command, Field, Node, Pipe, Tree, Variable
from planform.gotemplate.runtime import Body


@dataclass(slots=True)
class Unit:
    """A text, compiled: its templates, and the way back from a line of Python to a node."""

    name: str
    text: str
    bodies: dict[str, Body] = field(default_factory=dict)
    sites: dict[int, Site] = field(default_factory=dict)
    blank: frozenset[str] = frozenset()  # templates that consist of white space


def compile_unit(
    name: str, text: str, trees: Mapping[str, Tree], functions: Mapping[str, Function], missing_key: str
) -> Unit:
    """Compile the templates of one text. Raises TemplateSyntaxError if Python cannot nest as deeply as it does."""
    unit = Unit(name, text)
    scope = Names(functions)
    lines: list[str] = []
    for index, tree in enumerate(trees.values()):
        lines += _TemplateCompiler(tree, scope, f"template_{index}").compile()
    source = "\n".join(lines) + "\n"
    numbered: list[str] = source.split("\n")
    for number, line in enumerate(numbered, start=1):
        if line.startswith(MARK):
            unit.sites[number + 1] = scope.sites[int(line[len(MARK) :])]
    try:
        code: CodeType = compile(source, f"<template {name}>", "exec", dont_inherit=True)
    except (SyntaxError, RecursionError, MemoryError) as error:
        raise TemplateSyntaxError(f"template: {name}: nested too deeply: {error}", name=name) from None
    namespace = scope.namespace | {"__unit__": unit, "field": runtime.field_reader(missing_key)}
    exec(code, namespace)
    unit.bodies = {tree.name: namespace[f"template_{index}"] for index, tree in enumerate(trees.values())}
    return unit


class _TemplateCompiler(ExpressionCompiler):
    """Compiles one template to the lines of one Python function."""

    def __init__(self, tree: Tree, names: Names, python_name: str) -> None:
        super().__init__(tree, names)
        self.python_name = python_name
        self.lines: list[str] = []
        self.depth = 1
        self.pending: list[str] = []  # printed expressions that follow each other

    def compile(self) -> list[str]:
        self.emit("append = out.append; extend = out.extend")
        self.emit(self.call(f"state.enter({_weight(self.tree.root)})", self.tree.root))
        self.block(self.tree.root)
        self.emit("state.depth -= 1")
        return [f"def {self.python_name}(state, out, root):", *self.lines]

    # --- statements ---------------------------------------------------------------------------------------------------

    def emit(self, statement: str) -> None:
        self.flush()
        if statement.startswith("\n"):  # a call on a line of its own needs parentheses around it
            statement = f"({statement})"
        self.lines += (" " * self.depth + statement).split("\n")

    def flush(self) -> None:
        if not self.pending:
            return
        parts, self.pending = self.pending, []
        if len(parts) == 1:
            self.emit(f"append({parts[0]})")
        else:
            self.emit(f"extend(({', '.join(parts)}))")

    @contextmanager
    def indented(self, dot: Code | None = None) -> Iterator[None]:
        """A nested block: its variables end with it, and perhaps it has a dot of its own."""
        outer, declared = self.dot, len(self.variables)
        self.dot = dot or outer
        self.depth += 1
        before = len(self.lines)
        yield
        self.flush()
        if len(self.lines) == before:
            self.emit("pass")
        self.depth -= 1
        self.dot = outer
        del self.variables[declared:]

    def block(self, block: Block) -> None:
        for node in block.nodes:
            self.statement(node)

    def statement(self, node: Node) -> None:
        match node:
            case nodes.Text():
                self.pending.append(repr(node.text))
            case nodes.Action():
                self.action(node)
            case nodes.Branch(keyword="range"):
                self.range(node)
            case nodes.Branch():
                self.branch(node)
            case nodes.Invoke():
                self.invoke(node)
            case nodes.Break():
                self.emit("break")
            case nodes.Continue():
                self.emit("continue")
            case _:
                raise AssertionError(f"no statement: {node!r}")

    def action(self, node: nodes.Action) -> None:
        value = self.pipeline(node.pipe)
        if node.pipe.variables:
            self.emit(f"({value.python})")
        else:
            self.pending.append(self.printed(value, node))

    def printed(self, value: Code, node: Node) -> str:
        """The text of a value; strings and whole numbers, which most are, without a call of ours."""
        if value.go_type == "string":
            return value.python
        if value.go_type in ("int", "int64"):
            return f"str({value.python})"
        slow = self.call("text(state, t)", node)
        return f"(t if (k := type(t := {value.python})) is str else str(t) if k is int else {slow})"

    def branch(self, node: Branch) -> None:
        """`if` and `with`; a chain of `else if` stays flat."""
        declared, keyword = len(self.variables), "if"
        while True:
            value = self.pipeline(node.pipe)
            if node.keyword == "with":
                dot = self.local("dot")
                self.emit(f"{keyword} ({dot} := {value.python}):")
                body_dot: Code | None = Code(dot, node, value.go_type, may_be_nil=False)
            else:
                self.emit(f"{keyword} ({value.python}):")
                body_dot = None
            with self.indented(body_dot):
                self.block(node.then)
            otherwise = node.otherwise
            if otherwise is None:
                break
            match otherwise.nodes:
                case [Branch(keyword="if" | "with") as nested]:
                    node, keyword = nested, "elif"
                case _:
                    self.emit("else:")
                    with self.indented():
                        self.block(otherwise)
                    break
        del self.variables[declared:]

    def range(self, node: Branch) -> None:
        declared = len(self.variables)
        variables, pipe = node.pipe.variables, node.pipe
        value = self.commands(pipe)
        targets: list[str] = []
        for variable in variables:
            if pipe.assigns:
                targets.append(self.resolve(variable) or self.local("unknown"))
            else:
                targets.append(self.local("variable"))
        source = self.local("source")
        self.emit(f"{source} = ({(self.normal(value) if variables else value).python})")
        for variable, target in zip(variables, targets, strict=True):
            self.emit(f"{target} = {source}")  # what they hold in the else branch
            if not pipe.assigns:
                self.variables.append((variable.name, target))
        dot = self.local("dot")
        if targets:
            self.inside[targets[-1]] = source
        weight = _weight(node.then)
        helper = "pairs" if len(variables) == 2 else "elements"
        items = self.call(f"{helper}(state, {source}, {weight})", value.last)
        if node.otherwise is not None:
            found = self.local("found")
            self.emit(f"{found} = ({items})")
            self.emit(f"if {found}:")
            self.depth += 1
            items = found
        self.emit(f"for {self.targets(dot, targets)} in ({items}):")
        with self.indented(Code(dot, node, inside=source)):
            if targets:
                self.emit(f"{targets[-1]} = {dot}")
            self.block(node.then)
        if node.otherwise is not None:
            self.depth -= 1
            self.emit("else:")
            with self.indented():
                self.block(node.otherwise)
        del self.variables[declared:]

    @staticmethod
    def targets(dot: str, variables: Sequence[str]) -> str:
        return f"{variables[0]}, {dot}" if len(variables) == 2 else dot

    def invoke(self, node: nodes.Invoke) -> None:
        data = "MISSING" if node.pipe is None else self.normal(self.pipeline(node.pipe)).python
        found = self.call(f"lookup(state, {node.name!r})", node)
        self.emit(self.call(f"({found})(state, out, {data})", node))


def _weight(node: Node | None) -> int:
    """How many nodes one pass over `node` evaluates, bodies of ranges left out: these are paid for round by round."""
    match node:
        case None | nodes.Text():
            return 1
        case Block():
            return 1 + sum(map(_weight, node.nodes))
        case nodes.Action():
            return _weight(node.pipe)
        case Branch(keyword="range"):
            return 2 + _weight(node.pipe) + _weight(node.otherwise)
        case Branch():
            return 1 + _weight(node.pipe) + _weight(node.then) + _weight(node.otherwise)
        case nodes.Invoke():
            return 2 + _weight(node.pipe)
        case Pipe():
            return sum(map(_weight, node.commands))
        case Command():
            return sum(map(_weight, node.args))
        case Field() | Variable():
            return 1 + len(node.path)
        case Chain():
            return len(node.path) + _weight(node.of)
    return 1
