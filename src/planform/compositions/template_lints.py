"""Which fields of the observed XR a Go template asks for that its schema does not have. Pure.

The template's syntax tree is walked with what `.`, `$` and each variable are known to be; whatever comes from a
function or another template is not known, and nothing is said about it.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec

from planform.builtin.go_templating.inputs import GoTemplate
from planform.compositions.typed_schema import UNKNOWN, Typed, at
from planform.gotemplate.errors import TemplateSyntaxError
from planform.gotemplate.nodes import Action, Block, Branch, Chain, Command, Dot, Field, Invoke, Node, Pipe, Variable
from planform.gotemplate.parser import parse

Place = Typed | Mapping[str, Any]
"""A schema, or names that lead to others: what the function gives to its templates."""
Missing = tuple[int, str, str]
"""The line, the field as it is written, and the one that was probably meant."""


class _AnyName:
    """Every name is that of a function: which there are is not asked here."""

    def __contains__(self, name: object) -> bool:
        return True


_ANY: Final = _AnyName()


def template_fields(given: Mapping[str, Any], root: Mapping[str, Any]) -> Iterator[Missing]:
    """The fields that are missing in the inline templates of an input; none of a template that does not parse."""
    try:
        template = msgspec.convert(given, GoTemplate, strict=False)
        text = template.inline_text
        trees = parse("inline", text, _ANY, *template.delimiters)
    except (msgspec.ValidationError, TemplateSyntaxError):
        return
    for name, tree in trees.items():
        start: Place = root if name == "inline" else UNKNOWN
        for pos, path, hint in _Walk().block(tree.root, start, {"$": start}):
            yield text.count("\n", 0, pos) + 1, path, hint


class _Walk:
    """Down one template, with what is known on the way."""

    def block(self, block: Block, dot: Place, variables: dict[str, Place]) -> Iterator[Missing]:
        for node in block.nodes:
            if isinstance(node, Action | Invoke):
                yield from self._pipe(node.pipe or Pipe(node.pos), dot, variables)
            elif isinstance(node, Block):
                yield from self.block(node, dot, variables)
            elif isinstance(node, Branch):
                yield from self._branch(node, dot, variables)

    def _branch(self, node: Branch, dot: Place, variables: dict[str, Place]) -> Iterator[Missing]:
        inner = dict(variables)
        if node.keyword == "range":
            yield from self._commands(node.pipe, dot, variables)
            items = _below(self._value(node.pipe, dot, variables), "*") or UNKNOWN
            for variable in node.pipe.variables:
                inner[variable.name] = UNKNOWN
            if node.pipe.variables:
                inner[node.pipe.variables[-1].name] = items
            yield from self.block(node.then, items, inner)
        else:
            yield from self._pipe(node.pipe, dot, inner)
            then = self._value(node.pipe, dot, variables) if node.keyword == "with" else dot
            yield from self.block(node.then, then, inner)
        if node.otherwise is not None:
            yield from self.block(node.otherwise, dot, dict(variables))

    def _pipe(self, pipe: Pipe, dot: Place, variables: dict[str, Place]) -> Iterator[Missing]:
        yield from self._commands(pipe, dot, variables)
        value = self._value(pipe, dot, variables)
        for variable in pipe.variables:
            # One that is given another value later may be either.
            variables[variable.name] = UNKNOWN if pipe.assigns or len(pipe.variables) > 1 else value

    def _commands(self, pipe: Pipe, dot: Place, variables: dict[str, Place]) -> Iterator[Missing]:
        for command in pipe.commands:
            for arg in command.args:
                yield from self._arg(arg, dot, variables)

    def _arg(self, node: Node, dot: Place, variables: dict[str, Place]) -> Iterator[Missing]:
        if isinstance(node, Pipe):
            yield from self._pipe(node, dot, variables)
        elif isinstance(node, Field):
            yield from _missing(node, dot, node.path)
        elif isinstance(node, Variable):
            yield from _missing(node, variables.get(node.name, UNKNOWN), node.path)
        elif isinstance(node, Chain):
            yield from self._arg(node.of, dot, variables)
            if isinstance(node.of, Pipe):
                yield from _missing(node, self._value(node.of, dot, variables), node.path)

    def _value(self, pipe: Pipe, dot: Place, variables: dict[str, Place]) -> Place:
        """What a pipe gives, if it only names a field."""
        if len(pipe.commands) != 1 or len(pipe.commands[0].args) != 1:
            return UNKNOWN
        return self._named(pipe.commands[0], dot, variables)

    def _named(self, command: Command, dot: Place, variables: dict[str, Place]) -> Place:
        node = command.args[0]
        if isinstance(node, Dot):
            return dot
        if isinstance(node, Field):
            return _walked(dot, node.path)
        if isinstance(node, Variable):
            return _walked(variables.get(node.name, UNKNOWN), node.path)
        return UNKNOWN


def _walked(place: Place, path: list[str]) -> Place:
    for name in path:
        place = _below(place, name) or UNKNOWN
    return place


def _below(place: Place, name: str) -> Place | None:
    if isinstance(place, Typed):
        return at(place, name)
    known: Place = place.get(name, UNKNOWN)
    return known


def _missing(node: Node, place: Place, path: list[str]) -> Iterator[Missing]:
    for index, name in enumerate(path):
        below = _below(place, name)
        if below is None:
            known = place.names() if isinstance(place, Typed) else []
            close = difflib.get_close_matches(name, known, n=1)
            hint = ".".join([*path[:index], close[0], *path[index + 1 :]]) if close else ""
            prefix = f"{node.name}." if isinstance(node, Variable) else "."
            yield node.pos, str(node), prefix + hint if hint else ""
            return
        place = below
