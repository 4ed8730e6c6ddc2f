"""Tokens to trees: one for the text itself and one for each `define` and `block` in it.

What a name means (is this a function? was this variable declared?) is checked here, as Go does, so that a template that
parses fails only for what its data makes of it.
"""

from __future__ import annotations

from collections.abc import Container
from typing import Final, NoReturn

from planform.gotemplate import nodes
from planform.gotemplate.errors import TemplateSyntaxError
from planform.gotemplate.lexer import Token, tokenize
from planform.gotemplate.literals import BadLiteral, parse_char, parse_complex, parse_number, unquote
from planform.gotemplate.nodes import Block, Branch, Command, Node, Pipe, Tree
from planform.gotemplate.quoting import quote

# Deeper templates are refused by name: they become nested Python, which has limits of its own.
MAX_BLOCKS: Final = 48
MAX_RANGES: Final = 20
MAX_PARENTHESES: Final = 24
MAX_STAGES: Final = 40

_OPERANDS: Final = frozenset(
    ("bool", "char", "complex", "dot", "field", "identifier", "number", "nil", "string", "variable", "(")
)
_CONSTANTS: Final = (nodes.Bool, nodes.Dot, nodes.Nil, nodes.Numeric, nodes.String)
_QUOTED_KINDS: Final = frozenset(
    ("block", "break", "continue", "define", "else", "end", "if", "range", "template", "with")
)


def parse(
    name: str,
    text: str,
    functions: Container[str],
    left: str = "{{",
    right: str = "}}",
) -> dict[str, Tree]:
    """Parse a text into its templates by name. Raises TemplateSyntaxError."""
    return _Parser(name, text, functions, left or "{{", right or "}}").parse()


class _End(Node):
    """What stopped a block: `{{end}}` or `{{else}}`; never part of a tree."""

    __slots__ = ("follows", "is_else")

    def __init__(self, pos: int, is_else: bool, follows: str = "") -> None:
        super().__init__(pos)
        self.is_else = is_else
        self.follows = follows

    def __str__(self) -> str:
        return "{{else}}" if self.is_else else "{{end}}"


class _Parser:
    def __init__(self, name: str, text: str, functions: Container[str], left: str, right: str) -> None:
        self.name = name
        self.text = text
        self.functions = functions
        self.tokens = tokenize(text, left, right)
        self.at = 0
        self.furthest = 0  # errors carry the line of the last token looked at
        self.variables = ["$"]
        self.ranges = 0  # how many {{range}} bodies we are in
        self.blocks = 0
        self.parentheses = 0
        self.action_line = 0
        self.trees: dict[str, Tree] = {}

    # --- tokens -------------------------------------------------------------------------------------------------------

    def peek(self) -> Token:
        at = min(self.at, len(self.tokens) - 1)
        if at > self.furthest:
            self.furthest = at
        return self.tokens[at]

    def next(self) -> Token:
        token = self.peek()
        self.at += 1
        return token

    def peek_past_space(self) -> Token:
        while self.peek().kind == "space":
            self.at += 1
        return self.peek()

    def next_past_space(self) -> Token:
        self.peek_past_space()
        return self.next()

    def line(self, pos: int) -> int:
        return 1 + self.text.count("\n", 0, pos)

    def fail(self, message: str) -> NoReturn:
        line = self.line(self.tokens[self.furthest].pos)
        raise TemplateSyntaxError(f"template: {self.name}:{line}: {message}", name=self.name, line=line)

    def unexpected(self, token: Token, context: str) -> NoReturn:
        if token.kind == "error":
            extra = ""
            if self.action_line not in (0, self.line(token.pos)):
                extra = f" in action started at {self.name}:{self.action_line}"
                if token.text.endswith(" action"):
                    extra = extra.removeprefix(" in action")
            self.fail(token.text + extra)
        self.fail(f"unexpected {_describe(token)} in {context}")

    def expect(self, kind: str, context: str) -> Token:
        token = self.next_past_space()
        if token.kind != kind:
            self.unexpected(token, context)
        return token

    # --- templates ----------------------------------------------------------------------------------------------------

    def parse(self) -> dict[str, Tree]:
        root = Block(self.peek().pos)
        while self.peek().kind != "eof":
            if self.peek().kind == "left":
                before = self.at
                self.next()
                if self.next_past_space().kind == "define":
                    self.definition()
                    continue
                self.at = before
            node = self.text_or_action()
            if isinstance(node, _End):
                self.fail(f"unexpected {node}")
            root.nodes.append(node)
        self.add(self.name, root)
        return self.trees

    def add(self, name: str, root: Block) -> None:
        known = self.trees.get(name)
        if known is None or nodes.is_blank(known.root):
            self.trees[name] = Tree(name, root)
        elif not nodes.is_blank(root):
            self.fail(f"template: multiple definition of template {quote(name)}")

    def definition(self) -> None:
        name = self.string(self.next_past_space(), "define clause")
        self.expect("right", "define clause")
        self.add(name, self.own_scope("define clause"))

    def own_scope(self, context: str) -> Block:
        """The body of a template: variables and loops outside are not visible in it."""
        outside = self.variables, self.ranges, self.action_line
        self.variables, self.ranges, self.action_line = ["$"], 0, 0
        body, end = self.block()
        if end.is_else:
            self.fail(f"unexpected {end} in {context}")
        self.variables, self.ranges, self.action_line = outside
        return body

    def block(self) -> tuple[Block, _End]:
        """Everything up to the `end` or `else` that closes it."""
        self.blocks += 1
        if self.blocks > MAX_BLOCKS:
            self.fail(f"blocks nested more than {MAX_BLOCKS} deep")
        block = Block(self.peek_past_space().pos)
        while True:
            if self.peek_past_space().kind == "eof":
                self.fail("unexpected EOF")
            node = self.text_or_action()
            if isinstance(node, _End):
                self.blocks -= 1
                return block, node
            block.nodes.append(node)

    # --- actions ------------------------------------------------------------------------------------------------------

    def text_or_action(self) -> Node:
        token = self.next_past_space()
        if token.kind == "text":
            return nodes.Text(token.pos, token.text)
        if token.kind != "left":
            self.unexpected(token, "input")
        self.action_line = self.line(token.pos)
        node = self.action()
        self.action_line = 0
        return node

    def action(self) -> Node:
        token = self.peek_past_space()
        match token.kind:
            case "if" | "with" | "range":
                self.next()
                return self.branch(token.kind)
            case "else":
                self.next()
                follows = self.peek_past_space()
                if follows.kind in ("if", "with"):
                    return _End(follows.pos, True, follows.kind)
                return _End(self.expect("right", "else").pos, True)
            case "end":
                self.next()
                return _End(self.expect("right", "end").pos, False)
            case "template":
                self.next()
                return self.invoke()
            case "block":
                self.next()
                return self.block_and_invoke()
            case "break" | "continue":
                self.next()
                closing = self.next_past_space()
                if closing.kind != "right":
                    self.unexpected(closing, f"{{{{{token.kind}}}}}")
                if self.ranges == 0:
                    self.fail(f"{{{{{token.kind}}}}} outside {{{{range}}}}")
                return nodes.Break(token.pos) if token.kind == "break" else nodes.Continue(token.pos)
        return nodes.Action(token.pos, self.pipeline("command", "right"))

    def branch(self, keyword: str) -> Branch:
        """`if`, `with` or `range` with its `else`; a chain of `else if` is read in a loop and nested afterwards."""
        declared = len(self.variables)
        parts: list[tuple[Pipe, Block, int]] = []
        otherwise: Block | None = None
        while True:
            pipe = self.pipeline(keyword, "right")
            self.ranges += keyword == "range"
            if self.ranges > MAX_RANGES:
                self.fail(f"ranges nested more than {MAX_RANGES} deep")
            then, end = self.block()
            self.ranges -= keyword == "range"
            parts.append((pipe, then, end.pos))
            if end.is_else and end.follows == keyword != "range":
                self.next_past_space()
                continue
            if end.is_else:
                otherwise, end = self.block()
                if end.is_else:
                    self.fail(f"expected end; found {end}")
            break
        del self.variables[declared:]
        for pipe, then, _ in reversed(parts[1:]):
            otherwise = Block(pipe.pos, [Branch(pipe.pos, keyword, pipe, then, otherwise)])
        pipe, then, _ = parts[0]
        return Branch(pipe.pos, keyword, pipe, then, otherwise)

    def invoke(self) -> nodes.Invoke:
        token = self.next_past_space()
        name = self.string(token, "template clause")
        pipe: Pipe | None = None
        if self.peek_past_space().kind == "right":
            self.next()
        else:
            pipe = self.pipeline("template clause", "right")
        return nodes.Invoke(token.pos, quote(name), name, pipe)

    def block_and_invoke(self) -> nodes.Invoke:
        token = self.next_past_space()
        name = self.string(token, "block clause")
        pipe = self.pipeline("block clause", "right")
        self.add(name, self.own_scope("block clause"))
        return nodes.Invoke(token.pos, quote(name), name, pipe)

    def string(self, token: Token, context: str) -> str:
        if token.kind != "string":
            self.unexpected(token, context)
        try:
            return unquote(token.text)
        except BadLiteral as error:
            self.fail(str(error))

    # --- pipelines ----------------------------------------------------------------------------------------------------

    def pipeline(self, context: str, end: str) -> Pipe:
        pipe = Pipe(self.peek_past_space().pos)
        self.declarations(pipe, context)
        while True:
            token = self.peek_past_space()
            if token.kind == end:
                self.next()
                break
            if token.kind not in _OPERANDS:
                self.next()
                self.unexpected(token, context)
            pipe.commands.append(self.command())
            if len(pipe.commands) > MAX_STAGES:
                self.fail(f"pipeline of more than {MAX_STAGES} stages")
        if not pipe.commands:
            self.fail(f"missing value for {context}")
        for stage, command in enumerate(pipe.commands[1:], start=2):
            if isinstance(command.args[0], _CONSTANTS):
                self.fail(f"non executable command in pipeline stage {stage}")
        return pipe

    def declarations(self, pipe: Pipe, context: str) -> None:
        """`$x :=`, `$x =`, or in a range `$i, $x :=`; anything else is left to the commands."""
        while self.peek_past_space().kind == "variable":
            start = self.at
            variable = self.next()
            following = self.peek_past_space()
            if following.kind in ("assign", "declare"):
                self.next()
                pipe.assigns = following.kind == "assign"
                self.declare(pipe, variable)
                return
            if following.kind == "char-itself" and following.text == ",":
                self.next()
                self.declare(pipe, variable)
                if context != "range" or len(pipe.variables) >= 2:
                    self.fail(f"too many declarations in {context}")
                if self.peek_past_space().kind not in ("variable", "right", ")"):
                    self.fail("range can only initialize variables")
                continue
            self.at = start
            return

    def declare(self, pipe: Pipe, token: Token) -> None:
        pipe.variables.append(nodes.Variable(token.pos, token.text, []))
        self.variables.append(token.text)

    def command(self) -> Command:
        command = Command(self.peek_past_space().pos)
        while True:
            self.peek_past_space()
            operand = self.operand()
            if operand is not None:
                command.args.append(operand)
            token = self.next()
            if token.kind == "space":
                continue
            if token.kind in ("right", ")"):
                self.at -= 1
            elif token.kind != "pipe":
                self.unexpected(token, "operand")
            break
        if not command.args:
            self.fail("empty command")
        return command

    def operand(self) -> Node | None:
        """A term and the fields asked of it."""
        node = self.term()
        if node is None or self.peek().kind != "field":
            return node
        pos, path = self.peek().pos, []
        while self.peek().kind == "field":
            path.append(self.next().text[1:])
        match node:
            case nodes.Field():
                return nodes.Field(pos, node.path + path)
            case nodes.Variable():
                return nodes.Variable(pos, node.name, node.path + path)
            case nodes.Bool() | nodes.String() | nodes.Numeric() | nodes.Nil() | nodes.Dot():
                self.fail(f"unexpected . after term {quote(str(node))}")
        return nodes.Chain(pos, node, path)

    def term(self) -> Node | None:
        token = self.peek_past_space()
        pos = token.pos
        match token.kind:
            case "identifier":
                self.next()
                if token.text not in self.functions:
                    self.fail(f"function {quote(token.text)} not defined")
                return nodes.Identifier(pos, token.text)
            case "dot":
                self.next()
                return nodes.Dot(pos)
            case "nil":
                self.next()
                return nodes.Nil(pos)
            case "variable":
                self.next()
                if token.text not in self.variables:
                    self.fail(f"undefined variable {quote(token.text)}")
                return nodes.Variable(pos, token.text, [])
            case "field":
                self.next()
                return nodes.Field(pos, [token.text[1:]])
            case "bool":
                self.next()
                return nodes.Bool(pos, token.text == "true")
            case "number" | "char" | "complex":
                self.next()
                return self.number(token)
            case "string":
                self.next()
                return nodes.String(pos, token.text, self.string(token, ""))
            case "(":
                self.next()
                self.parentheses += 1
                if self.parentheses > MAX_PARENTHESES:
                    self.fail("max expression depth exceeded")
                pipe = self.pipeline("parenthesized pipeline", ")")
                self.parentheses -= 1
                return pipe
        return None

    def number(self, token: Token) -> nodes.Numeric:
        read = {"number": parse_number, "char": parse_char, "complex": parse_complex}[token.kind]
        try:
            return nodes.Numeric(token.pos, read(token.text))
        except BadLiteral as error:
            self.fail(str(error))


def _describe(token: Token) -> str:
    """A token as error messages show it."""
    if token.kind == "eof":
        return "EOF"
    if token.kind in _QUOTED_KINDS or token.kind in ("nil", "dot"):
        return f"<{token.text}>"
    if len(token.text) > 10:
        return f"{quote(token.text[:10])}..."
    return quote(token.text)
