"""Pipelines to Python expressions: constants, fields, variables, function calls, and the checks around them.

What can fail is a call, and each such call starts a line of its own that `Names.site` ties to the node to blame.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from planform.gotemplate import nodes, runtime
from planform.gotemplate.functions import ANY, VALUE, Function, can_be_nil
from planform.gotemplate.nodes import Chain, Command, Field, Identifier, Node, Pipe, Tree, Variable
from planform.gotemplate.runtime import BIG
from planform.gotemplate.values import INT64_MAX, INT64_MIN, MISSING, Int

MARK: Final = "#@"
_REFUSAL: Final = "refuse("
_COMPARISONS: Final = frozenset(("==", "!=", "<", "<=", ">", ">="))
# Types of which no value is nil, so that nothing has to look.
_NEVER_NIL: Final = frozenset(
    ("string", "int", "int64", "uint64", "float64", "bool", "complex128", "time.Time", "[]string", "[]int")
)


@dataclass(frozen=True, slots=True)
class Site:
    """What a line of generated source stands for: the node to blame, in which template, and the function called."""

    node: Node
    template: str
    function: str = ""


@dataclass(frozen=True, slots=True)
class Code:
    """A Python expression and what is known of its value.

    `last` is the node that Go has in hand once the value is there; errors about the value name it.
    """

    python: str
    last: Node
    go_type: str = ANY
    may_be_nil: bool = True
    inside: str = "False"  # what it was found in, if that is a map or list: see runtime.known_as


class Names:
    """What the generated source may refer to, and the sites of its lines."""

    def __init__(self, functions: Mapping[str, Function]) -> None:
        self.functions = functions
        self.sites: list[Site] = []
        self.namespace: dict[str, Any] = {
            "__builtins__": {"type": type, "dict": dict, "int": int, "len": len, "str": str},
            "MISSING": MISSING,
            "Int": Int,
            "argument": runtime.argument,
            "elements": runtime.elements,
            "lookup": runtime.lookup,
            "method": runtime.method,
            "pairs": runtime.pairs,
            "refuse": runtime.refuse,
            "text": runtime.text,
            "text_argument": runtime.text_argument,
            "wrong": runtime.wrong,
        }
        self.known: dict[tuple[str, Any], str] = {}

    def site(self, site: Site) -> str:
        """The start of a line of which `site` is to blame."""
        self.sites.append(site)
        return f"\n{MARK}{len(self.sites) - 1}\n"

    def constant(self, kind: str, key: Any, value: Any) -> str:
        """A name for a value that is no Python literal."""
        name = self.known.get((kind, key))
        if name is None:
            name = self.known[kind, key] = f"{kind}_{len(self.known)}"
            self.namespace[name] = value
        return name


class ExpressionCompiler:
    """Compiles the expressions of one template; `dot` and the variables in scope are names of Python locals."""

    def __init__(self, tree: Tree, names: Names) -> None:
        self.tree = tree
        self.names = names
        self.dot = Code("root", tree.root, may_be_nil=False)
        self.variables: list[tuple[str, str]] = [("$", "root")]
        self.locals = 0
        self.inside: dict[str, str] = {}  # locals that hold elements, and the local of the list or map

    def local(self, hint: str) -> str:
        self.locals += 1
        return f"{hint}_{self.locals}"

    def call(self, python: str, node: Node, function: str = "") -> str:
        """An expression that can raise, on a line that leads back to `node`."""
        return self.names.site(Site(node, self.tree.name, function)) + python

    def refusal(self, message: str, node: Node) -> Code:
        return Code(self.call(f"{_REFUSAL}{message!r})", node), node)

    def normal(self, code: Code) -> Code:
        """The value of a finished pipeline, where nil and missing are the same."""
        if not code.may_be_nil:
            return code
        return Code(f"(MISSING if (t := {code.python}) is None else t)", code.last, code.go_type, may_be_nil=False)

    def pipeline(self, pipe: Pipe) -> Code:
        """The value of a pipeline, kept in its variables if it has any."""
        value = self.commands(pipe)
        for variable in pipe.variables:
            value = self.normal(value)
            if pipe.assigns:
                name = self.resolve(variable)
                if name is None:
                    return self.refusal(f"undefined variable: {variable.name}", value.last)
                self.inside.pop(name, None)
            else:
                name = self.local("variable")
                self.variables.append((variable.name, name))
            value = Code(f"({name} := {value.python})", value.last, value.go_type, may_be_nil=False)
        return value

    def commands(self, pipe: Pipe) -> Code:
        value: Code | None = None
        for command in pipe.commands:
            value = self.command(pipe, command, value)
        assert value is not None  # the parser sees to that
        return Code(value.python, value.last, value.go_type, value.may_be_nil)

    def resolve(self, variable: Variable) -> str | None:
        return next((name for known, name in reversed(self.variables) if known == variable.name), None)

    def command(self, pipe: Pipe, command: Command, final: Code | None) -> Code:
        """One stage of a pipeline; `final` is the value of the stage before.

        Go has that value before it looks at the arguments. Python would have it after them, as it is the last one; so
        it is put into a local first, where the arguments could fail, be passed over, or see what that stage changes.
        """
        if final is None or final.python.isidentifier():
            return self.stage(pipe, command, final)
        if all(map(_is_settled, command.args[1:])) and not self.may_skip(command):
            code = self.stage(pipe, command, final)
            if _REFUSAL not in code.python:
                return code
        stage = self.local("stage")
        code = self.stage(pipe, command, replace(final, python=stage))
        return replace(code, python=f"({stage} := {final.python}, {code.python})[1]")

    def may_skip(self, command: Command) -> bool:
        first = command.args[0]
        return isinstance(first, Identifier) and self.names.functions[first.name].special in ("and", "or")

    def stage(self, pipe: Pipe, command: Command, final: Code | None) -> Code:
        first, arguments = command.args[0], command.args[1:]
        match first:
            case Identifier():
                return self.function(first, command, arguments, final)
            case Field() | Chain():
                return self.chain(first, arguments, final)
            case Variable() if first.path:
                return self.chain(first, arguments, final)
        if arguments or final is not None:
            looked_at = first if not isinstance(first, Pipe) else pipe if final is None else final.last
            return self.refusal(f"can't give argument to non-function {first}", looked_at)
        match first:
            case Pipe():
                return self.pipeline(first)
            case nodes.Nil():
                return self.refusal("nil is not a command", first)
        return self.operand(first)

    def operand(self, node: Node) -> Code:
        """A constant, dot, variable, field or parenthesised pipeline, where any type will do."""
        match node:
            case nodes.Bool():
                return Code(repr(node.value), node, "bool", may_be_nil=False)
            case nodes.String():
                return Code(repr(node.value), node, "string", may_be_nil=False)
            case nodes.Numeric():
                return self.constant(node)
            case nodes.Dot():
                dot = self.dot
                return Code(dot.python, node, dot.go_type, dot.may_be_nil, dot.inside)
            case Variable() if not node.path:
                return self.variable(node)
            case Field() | Chain() | Variable():
                return self.chain(node, [], None)
            case Identifier():
                return self.function(node, node, [], None)
            case Pipe():
                return self.pipeline(node)
        raise AssertionError(f"no operand: {node!r}")

    def variable(self, node: Variable) -> Code:
        name = self.resolve(node)
        if name is None:
            return self.refusal(f"undefined variable: {node.name}", node)
        return Code(name, node, may_be_nil=name in self.inside, inside=self.inside.get(name, "False"))

    def constant(self, node: nodes.Numeric) -> Code:
        """A number where any type will do: complex, float or int, by how it is written."""
        number = node.number
        if number.imaginary is not None:
            return Code(self.names.constant("complex", number.imaginary, number.imaginary), node, "complex128", False)
        hexadecimal = number.text[:2].lower() == "0x" and not any(mark in number.text for mark in "pP")
        written_as_float = any(mark in number.text for mark in ".eEpP")
        if number.floating is not None and written_as_float and not hexadecimal and number.text[0] != "'":
            return self.float_constant(number.floating, node)
        if number.integer is not None:
            return self.int_constant(number.integer, node)
        return self.refusal(f"{number.text} overflows int", node)

    def int_constant(self, value: int, node: Node) -> Code:
        return Code(self.names.constant("int", value, Int(value)), node, "int", may_be_nil=False)

    def float_constant(self, value: float, node: Node) -> Code:
        return Code(self.names.constant("float", repr(value), value), node, "float64", may_be_nil=False)

    # --- fields -------------------------------------------------------------------------------------------------------

    def chain(self, node: Field | Chain | Variable, arguments: Sequence[Node], final: Code | None) -> Code:
        """Fields of dot, of a variable or of a pipeline; the last may be a method with arguments."""
        match node:
            case Field():
                receiver = self.dot
            case Variable():
                receiver = self.variable(Variable(node.pos, node.name, []))
            case Chain():
                if isinstance(node.of, nodes.Nil):
                    return self.refusal(f"indirection through explicit nil in {node}", node)
                receiver = self.operand(node.of)
                if isinstance(node.of, Pipe):
                    receiver = self.normal(receiver)
        blame = self.last_of(node)
        python, inside = receiver.python, receiver.inside
        for name in node.path[:-1] if arguments or final is not None else node.path:
            slow = self.call(f"field(t, {name!r}, {inside})", blame)
            python = f"(t[{name!r}] if type(t := {python}) is dict and {name!r} in t else {slow})"
            inside = "True"
        if arguments or final is not None:
            values = [self.any_argument(argument).python for argument in arguments]
            values += [] if final is None else [self.passed(final).python]
            found = self.call(f"method({python}, {node.path[-1]!r}, {inside})", blame)
            python, inside = self.call(f"({found})({', '.join(values)})", blame, node.path[-1]), "False"
        return Code(python, blame, inside=inside)

    def last_of(self, node: Field | Chain | Variable) -> Node:
        """A chain evaluates its pipeline after Go has looked at the chain itself."""
        if isinstance(node, Chain):
            return self.operand_last(node.of)
        return node

    def operand_last(self, node: Node) -> Node:
        match node:
            case Pipe():
                return self.operand_last(node.commands[-1])
            case Command():
                first = node.args[0]
                if isinstance(first, Identifier) and len(node.args) > 1:
                    return self.operand_last(node.args[-1])
                return self.operand_last(first)
            case Chain():
                return self.operand_last(node.of)
        return node

    # --- functions ----------------------------------------------------------------------------------------------------

    def function(self, node: Identifier, command: Node, arguments: Sequence[Node], final: Code | None) -> Code:
        name = node.name
        function = self.names.functions[name]
        signature = function.signature
        given = len(arguments) + (final is not None)
        problem = signature.arity_error(name, len(arguments), given)
        if problem is not None:
            return self.refusal(problem, node)
        if function.special in ("and", "or", "not"):
            return self.logic(function.special, arguments, final)
        values: list[Code] = []
        for index, argument in enumerate(arguments):
            values.append(self.argument(argument, signature.parameter(index)))
        if final is not None:
            blamed = replace(self.normal(final), last=values[-1].last if values else node)
            values.append(self.checked(blamed, signature.parameter(given - 1)))
        called = self.names.constant("function", name, function.call)
        if function.special == "call":
            values.insert(0, Code(repr(str(arguments[0])) if arguments else repr("argument"), node, "string"))
        elif function.special and len(values) == 2 and values[1].go_type in ("int", "int64", "string"):
            inlined = self.operator(function.special, called, command, name, *values)
            if inlined is not None:
                return inlined
        python = ", ".join(["state"] * function.stateful + [value.python for value in values])
        last = values[-1].last if values else node
        result = signature.result
        return Code(self.call(f"{called}({python})", command, name), last, result, result not in _NEVER_NIL)

    def operator(self, operator: str, called: str, command: Node, name: str, first: Code, second: Code) -> Code | None:
        """Comparison and arithmetic with Python's own operator, where the second operand is of a known type.

        If the first turns out to be of another, or the result too large, the function itself is called.
        """
        left = self.local("left")
        general = self.call(f"{called}({left}, {second.python})", command, name)
        compares = operator in _COMPARISONS
        if second.go_type == "string":
            if operator not in ("==", "!="):
                return None
            quick = f"type({left} := {first.python}) is str"
        else:
            quick = f"(k := type({left} := {first.python})) is int or k is Int"
        result = f"{left} {operator} {second.python}"
        if not compares:
            if not isinstance(second.last, nodes.Numeric) or not second.python.isidentifier():
                return None  # an operand that may be evaluated twice has to be a constant
            total = self.local("total")
            quick, result = f"({quick}) and {INT64_MIN} <= ({total} := {result}) <= {INT64_MAX}", total
        python = f"({result} if {quick} else {general})"
        return Code(python, second.last, "bool" if compares else "int64", may_be_nil=False)

    def logic(self, kind: str, arguments: Sequence[Node], final: Code | None) -> Code:
        """`and`, `or` and `not`, which Python has too."""
        values = [self.any_argument(argument) for argument in arguments]
        if final is not None:
            values.append(self.passed(final))
        last = values[-1].last
        if kind == "not":
            return Code(f"(not {values[0].python})", last, "bool", may_be_nil=False)
        return Code("(" + f" {kind} ".join(value.python for value in values) + ")", last)

    def any_argument(self, node: Node) -> Code:
        return self.argument(node, VALUE)

    def passed(self, final: Code) -> Code:
        return self.checked(self.normal(final), VALUE)

    def argument(self, node: Node, go_type: str) -> Code:
        """A value for a parameter of this type."""
        match node:
            case nodes.Nil():
                if can_be_nil(go_type):
                    nil = "None" if go_type in (ANY, VALUE) else f"argument(MISSING, {go_type!r})"
                    return Code(nil, node)
                return self.refusal(f"cannot assign nil to {go_type}", node)
            case nodes.Bool() | nodes.String() | nodes.Numeric() if go_type not in (ANY, VALUE):
                return self.typed_constant(node, go_type)
        value = self.operand(node)
        if isinstance(node, Pipe) and go_type not in (ANY, VALUE):
            value = self.normal(value)
        return self.checked(value, go_type)

    def typed_constant(self, node: nodes.Bool | nodes.String | nodes.Numeric, go_type: str) -> Code:
        match go_type, node:
            case "string", nodes.String():
                return self.operand(node)
            case "bool", nodes.Bool():
                return self.operand(node)
            case "int", nodes.Numeric() if node.number.integer is not None:
                return self.int_constant(node.number.integer, node)
            case "int64", nodes.Numeric() if node.number.integer is not None:
                assert INT64_MIN <= node.number.integer <= INT64_MAX
                return Code(repr(node.number.integer), node, "int64", may_be_nil=False)
            case "uint32", nodes.Numeric() if node.number.unsigned is not None:
                return Code(repr(node.number.unsigned & 0xFFFFFFFF), node, "uint32", may_be_nil=False)
            case "float64", nodes.Numeric() if node.number.floating is not None:
                return self.float_constant(node.number.floating, node)
        wanted = {"int": "integer", "int64": "integer", "uint32": "unsigned integer", "float64": "float"}
        if go_type in wanted or go_type in ("string", "bool"):
            return self.refusal(f"expected {wanted.get(go_type, go_type)}; found {node}", node)
        return self.refusal(f"can't handle {node} for arg of type {go_type}", node)

    def checked(self, value: Code, go_type: str) -> Code:
        """The same value once it is known to suit the parameter."""
        python = value.python
        if go_type in (ANY, VALUE):
            is_element = value.inside not in ("True", "False")  # a list has nil in it, but nothing missing
            if value.go_type not in _NEVER_NIL and not is_element:
                python = f"(None if (t := {python}) is MISSING else t)"
            go_type = value.go_type
        elif go_type == value.go_type:
            pass
        elif go_type == "string":
            slow = self.call("text_argument(state, t)", value.last)
            python = f"(t if type(t := {python}) is str and len(t) < {BIG} else {slow})"
        elif go_type == "map[string]interface {}":
            slow = self.call(f"argument(t, {go_type!r})", value.last)
            python = f"(t if type(t := {python}) is dict else {slow})"
        elif go_type == "int":
            slow = self.call(f"wrong(t, {go_type!r})", value.last)
            python = f"(t if type(t := {python}) is Int else {slow})"
        else:
            python = self.call(f"argument({python}, {go_type!r})", value.last)
        return Code(python, value.last, go_type, value.may_be_nil, value.inside)


def _is_settled(argument: Node) -> bool:
    """Whether nothing can change what an argument is, nor make it fail: constants, variables and dot themselves."""
    if isinstance(argument, Variable):
        return not argument.path
    return isinstance(argument, nodes.Bool | nodes.String | nodes.Numeric | nodes.Nil | nodes.Dot)
