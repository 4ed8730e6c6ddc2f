"""From the text of a CEL expression to its tree, macros included."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from planform.apimachinery.cel_syntax import (
    RESERVED,
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
    children,
    locate,
)

MAX_DEPTH = 80
"""Deeper nesting than anybody writes by hand; it bounds the recursion of parser, checker and program."""

MAX_LENGTH = 100_000

_TOKEN = re.compile(
    r"""(?P<space>(?:\s|//[^\n]*)+)
      | (?P<float>\d+\.\d+(?:[eE][+-]?\d+)?|\.\d+(?:[eE][+-]?\d+)?|\d+[eE][+-]?\d+)
      | (?P<int>0[xX][0-9a-fA-F]+[uU]?|\d+[uU]?)
      | (?P<string>(?P<prefix>[rRbB]{0,2})(?P<quote>\"\"\"|'''|"|'))
      | (?P<name>[A-Za-z_]\w*)
      | (?P<symbol>&&|\|\||[<>=!]=|[-+*/%<>!?:.,()\[\]{}])
    """,
    re.VERBOSE | re.ASCII,
)
_ESCAPE = re.compile(r"\\(x[0-9a-fA-F]{2}|X[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|[0-3][0-7]{2}|.)", re.DOTALL)
_SIMPLE_ESCAPES = {
    "a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v",
    "\\": "\\", "'": "'", '"': '"', "`": "`", "?": "?",
}  # fmt: skip
_LEVELS = {
    operator: level
    for level, operators in enumerate(
        (["||"], ["&&"], ["==", "!=", "<", "<=", ">", ">=", "in"], ["+", "-"], ["*", "/", "%"])
    )
    for operator in operators
}
"""How tightly operators bind, loosest first."""
_ONE_VARIABLE = {"all": 1, "exists": 1, "exists_one": 1, "existsOne": 1, "filter": 1, "sortBy": 1}
_TWO_VARIABLES = {"all", "exists", "exists_one", "existsOne", "transformList", "transformMap", "transformMapEntry"}


@dataclass(frozen=True, slots=True)
class _Token:
    kind: str
    text: str
    offset: int
    value: Any = None


def parse(text: str) -> Node:
    """The tree of an expression; raises CelError naming the place where it stops making sense."""
    if len(text) > MAX_LENGTH:
        raise CelError(f"expression is longer than {MAX_LENGTH} characters")
    node = _Parser(text).parse()
    level, depth = [node], 0
    while level:
        depth += 1
        if depth > MAX_DEPTH:
            raise CelError(locate(text, level[0].offset, f"expression is nested deeper than {MAX_DEPTH} levels"))
        level = [child for parent in level for child in children(parent)]
    return node


def _balanced(name: str, operands: list[Node], offsets: list[int]) -> Node:
    """A chain of `&&` or `||` as a tree of little depth; the order of evaluation stays."""
    if len(operands) == 1:
        return operands[0]
    middle = len(operands) // 2
    left = _balanced(name, operands[:middle], offsets[: middle - 1])
    right = _balanced(name, operands[middle:], offsets[middle:])
    return Call(offsets[middle - 1], name, None, [left, right])


class _Parser:
    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = list(self._scan())
        self._at = 0
        self._depth = 0

    def parse(self) -> Node:
        node = self._expression()
        if self._token.kind != "end":
            raise self._error(self._token, f"unexpected {self._token.text!r}")
        return node

    # Tokens

    @property
    def _token(self) -> _Token:
        return self._tokens[self._at]

    def _error(self, at: _Token | int, message: str) -> CelError:
        offset = at if isinstance(at, int) else at.offset
        return CelError(locate(self._text, offset, f"Syntax error: {message}"))

    def _scan(self) -> Iterator[_Token]:
        position = 0
        while position < len(self._text):
            matched = _TOKEN.match(self._text, position)
            if matched is None:
                raise self._error(position, f"unexpected character {self._text[position]!r}")
            kind, token = str(matched.lastgroup), matched[0]
            if matched["quote"]:
                end = self._string_end(matched)
                raw = self._text[matched.end() : end - len(matched["quote"])]
                prefix = matched["prefix"].lower()
                if len(set(prefix)) != len(prefix):
                    raise self._error(position, f"unexpected prefix {prefix!r}")
                yield _Token("literal", self._text[position:end], position, self._string(raw, prefix, position))
                position = end
                continue
            if kind == "float":
                yield _Token("literal", token, position, Literal(position, float(token), "double"))
            elif kind == "int":
                yield _Token("literal", token, position, self._integer(token, position))
            elif kind != "space":
                yield _Token(kind, token, position)
            position = matched.end()
        yield _Token("end", "end of expression", len(self._text))

    def _string_end(self, opened: re.Match[str]) -> int:
        quote, raw = opened["quote"], "r" in opened["prefix"].lower()
        position = opened.end()
        while position < len(self._text):
            if self._text.startswith(quote, position):
                return position + len(quote)
            if self._text[position] == "\n" and len(quote) == 1:
                break
            position += 2 if self._text[position] == "\\" and not raw else 1
        raise self._error(opened.start(), "unterminated string")

    def _string(self, raw: str, prefix: str, offset: int) -> Literal:
        is_bytes = "b" in prefix

        def unescape(found: re.Match[str]) -> str:
            code = found[1]
            if code in _SIMPLE_ESCAPES:
                return _SIMPLE_ESCAPES[code]
            if code[0] in "uU" and is_bytes:
                raise self._error(offset, f"\\{code[0]} is not allowed in bytes")
            if len(code) == 1:
                raise self._error(offset, f"invalid escape \\{code}")
            number = int(code[1:], 16) if code[0] in "xXuU" else int(code, 8)
            if number > 0x10FFFF or 0xD800 <= number < 0xE000:
                raise self._error(offset, f"invalid code point in \\{code}")
            return chr(number)

        if not is_bytes:
            return Literal(offset, raw if "r" in prefix else _ESCAPE.sub(unescape, raw), "string")
        if "r" in prefix:
            return Literal(offset, raw.encode(), "bytes")
        pieces, position = [], 0
        for found in _ESCAPE.finditer(raw):
            pieces += [raw[position : found.start()].encode(), unescape(found).encode("latin-1")]
            position = found.end()
        return Literal(offset, b"".join([*pieces, raw[position:].encode()]), "bytes")

    def _integer(self, token: str, offset: int) -> Literal:
        digits = token.rstrip("uU")
        value = int(digits, 16) if digits[:2].lower() == "0x" else int(digits)
        if digits != token:
            if value >= 2**64:
                raise self._error(offset, "invalid uint literal")
            return Literal(offset, value, "uint")
        if value > 2**63:  # 2**63 itself is fine behind a minus sign; the parser of unary minus sees to it
            raise self._error(offset, "invalid int literal")
        return Literal(offset, value, "int")

    def _accept(self, *texts: str) -> _Token | None:
        token = self._token
        if token.kind in ("symbol", "name") and token.text in texts:
            self._at += 1
            return token
        return None

    def _expect(self, text: str) -> _Token:
        token = self._accept(text)
        if token is None:
            raise self._error(self._token, f"expected {text!r} but found {self._token.text!r}")
        return token

    def _name(self) -> _Token:
        token = self._token
        if token.kind != "name" or token.text in ("in", "true", "false", "null"):
            raise self._error(token, f"expected a name but found {token.text!r}")
        self._at += 1
        return token

    # Grammar, loosest binding first

    def _expression(self) -> Node:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise self._error(self._token, f"expression is nested deeper than {MAX_DEPTH} levels")
        condition = self._binary(0)
        if mark := self._accept("?"):
            yes = self._binary(0)
            self._expect(":")
            condition = Call(mark.offset, "_?_:_", None, [condition, yes, self._expression()])
        self._depth -= 1
        return condition

    def _binary(self, loosest: int) -> Node:
        """Operators that bind at least as tightly as level `loosest`."""
        left = self._unary()
        while (level := self._operator_level()) >= loosest:
            operator = self._token
            self._at += 1
            name = "@in" if operator.text == "in" else f"_{operator.text}_"
            if level > 1:
                left = Call(operator.offset, name, None, [left, self._binary(level + 1)])
                continue
            operands, offsets = [left, self._binary(level + 1)], [operator.offset]
            while more := self._accept(operator.text):
                offsets.append(more.offset)
                operands.append(self._binary(level + 1))
            left = _balanced(name, operands, offsets)
        return left

    def _operator_level(self) -> int:
        token = self._token
        return _LEVELS.get(token.text, -1) if token.kind in ("symbol", "name") else -1

    def _unary(self) -> Node:
        operators = []
        while operator := self._accept("!", "-"):
            operators.append(operator)
        if len(operators) > MAX_DEPTH:
            raise self._error(operators[0], "too many operators")
        token = self._token
        if (
            operators
            and operators[-1].text == "-"
            and isinstance(token.value, Literal)
            and token.value.kind in ("int", "double")
        ):
            self._at += 1
            node = self._postfix(Literal(operators.pop().offset, -token.value.value, token.value.kind))
        else:
            node = self._member()
        for operator in reversed(operators):
            node = Call(operator.offset, f"{operator.text}_", None, [node])
        return node

    def _member(self) -> Node:
        return self._postfix(self._primary())

    def _postfix(self, node: Node) -> Node:
        steps = 0
        while operator := self._accept(".", "[", "{"):
            steps += 1
            if steps > MAX_DEPTH:
                raise self._error(operator, f"expression is nested deeper than {MAX_DEPTH} levels")
            if operator.text == "{":
                raise self._error(operator, "construction of messages is not supported")
            optional = self._accept("?") is not None
            if operator.text == "[":
                index = self._expression()
                self._expect("]")
                node = Call(operator.offset, "_[?_]" if optional else "_[_]", None, [node, index])
                continue
            name = self._name()
            if not optional and self._accept("("):
                node = self._method(node, name, operator.offset)
            else:
                node = Select(operator.offset, node, name.text, optional)
        return node

    def _primary(self) -> Node:
        token = self._token
        self._at += 1
        if isinstance(token.value, Literal):
            if token.value.kind == "int" and token.value.value == 2**63:
                raise self._error(token, "invalid int literal")
            return token.value
        if token.kind == "name":
            if token.text in ("true", "false"):
                return Literal(token.offset, token.text == "true", "bool")
            if token.text == "null":
                return Literal(token.offset, None, "null")
            if token.text in RESERVED or token.text == "in":
                raise self._error(token, f"reserved identifier: {token.text}")
            return self._function(token) if self._accept("(") else Ident(token.offset, token.text)
        if token.text == "." and token.kind == "symbol":
            name = self._name()
            return self._function(name) if self._accept("(") else Ident(name.offset, name.text)
        if token.text == "(":
            node = self._expression()
            self._expect(")")
            return node
        if token.text == "[":
            return self._list(token)
        if token.text == "{":
            return self._map(token)
        raise self._error(
            token, f"unexpected {token.text!r}" if token.kind != "end" else "unexpected end of expression"
        )

    def _list(self, opened: _Token) -> Node:
        items: list[Node] = []
        optional = set()
        while not self._accept("]"):
            if self._accept("?"):
                optional.add(len(items))
            items.append(self._expression())
            if not self._accept(","):
                self._expect("]")
                break
        return ListNode(opened.offset, items, frozenset(optional))

    def _map(self, opened: _Token) -> Node:
        entries = []
        while not self._accept("}"):
            optional = self._accept("?") is not None
            key = self._expression()
            self._expect(":")
            entries.append((key, self._expression(), optional))
            if not self._accept(","):
                self._expect("}")
                break
        return MapNode(opened.offset, entries)

    def _arguments(self) -> list[Node]:
        args: list[Node] = []
        if self._accept(")"):
            return args
        args.append(self._expression())
        while self._accept(","):
            args.append(self._expression())
        self._expect(")")
        return args

    # Macros

    def _function(self, name: _Token) -> Node:
        args = self._arguments()
        if name.text == "has" and len(args) == 1:
            if not isinstance(args[0], Select):
                raise self._error(args[0].offset, "invalid argument to has() macro")
            return Select(args[0].offset, args[0].operand, args[0].name, presence=True)
        return Call(name.offset, name.text, None, args)

    def _method(self, target: Node, name: _Token, offset: int) -> Node:
        args = self._arguments()
        count = len(args)
        if isinstance(target, Ident) and target.name == "cel" and name.text == "bind" and count == 3:
            return Bind(offset, self._variable(args[0]), args[1], args[2], "bind")
        if name.text in ("optMap", "optFlatMap") and count == 2:
            return Bind(offset, self._variable(args[0]), target, args[1], name.text)
        if count == 2 and name.text in _ONE_VARIABLE:
            return Macro(offset, name.text, target, [self._variable(args[0])], args[1:])
        if name.text == "map" and count in (2, 3):
            return Macro(offset, "map", target, [self._variable(args[0])], args[1:])
        if name.text in _TWO_VARIABLES and (count == 3 or (count == 4 and name.text.startswith("transform"))):
            variables = [self._variable(args[0]), self._variable(args[1])]
            if variables[0] == variables[1]:
                raise self._error(args[1].offset, "duplicate variable name")
            return Macro(offset, name.text, target, variables, args[2:])
        return Call(offset, name.text, target, args)

    def _variable(self, node: Node) -> str:
        if not isinstance(node, Ident):
            raise self._error(node.offset, "argument must be a simple name")
        return node.name
