r"""JSONPath as kubectl and the printer columns of CRDs write it, compiled once into a function.

    .spec.size                                        .status.conditions[?(@.type=="Ready")].status
    .spec.ports[0,2].port  .items[-1:]  .items[*]     .metadata.annotations.example\.org/zone  ['a.b']  ..name

What is not there yields nothing: a column is then empty. Mistakes in the text are found when it is compiled.
"""

from __future__ import annotations

import json
import operator
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, NoReturn

import orjson

Values = list[Any]
Step = Callable[[Values], Values]

MAX_LENGTH: Final = 4096
MAX_FILTERS: Final = 16
"""How deep filters may stand in filters."""
MAX_RESULTS: Final = 100_000
"""How many values a path may yield on its way: `..` repeated grows without bound."""


class JsonPathError(ValueError):
    """The text is no JSONPath, or one that yields too much."""


def compile_jsonpath(text: str) -> Callable[[Any], Values]:
    """A function from a value to all that the path finds in it. Braces around the path, and `$`, may be left out."""
    _check_length(text)
    path = text.strip()
    if path.startswith("{") and path.endswith("}"):
        path = path[1:-1].strip()
    parser = _Parser(path)
    steps, names = parser.path(relaxed=True)
    parser.end()
    return _field_getter(names) if names is not None else _pipeline(steps)


Part = Callable[[Any], str]
"""What one part of a template writes, given the document or the item of the range that it stands in."""


class JsonPathTemplate:
    r"""Text with paths in braces, as `kubectl get -o jsonpath=` takes it: `{.metadata.name}{"\n"}`.

    `{range .items[*]}...{end}` writes what it encloses once for each value that its path finds.
    """

    def __init__(self, text: str) -> None:
        _check_length(text)
        pieces = list(_split_template(text))
        self._parts, rest = _parts(pieces, 0, "")
        assert rest == len(pieces)

    def render(self, doc: Any) -> str:
        """The text; several values of one path are separated by spaces."""
        return _render(self._parts, doc)


def _parts(pieces: Sequence[tuple[str, str]], position: int, opened: str) -> tuple[list[Part], int]:
    """The parts up to the end of the range that `opened`, or of the text; and the position after them."""
    parts: list[Part] = []
    while position < len(pieces):
        literal, inside = pieces[position]
        position += 1
        if literal:
            parts.append(_constant(literal))
        elif inside[:1] in {"'", '"'}:
            parser = _Parser(inside)
            parts.append(_constant(parser.quoted()))
            parser.end()
        elif inside == "end":
            if not opened:
                raise JsonPathError("{end} without {range}")
            return parts, position
        elif match := re.match(r"range\s+", inside):
            found = compile_jsonpath(inside[match.end() :])
            enclosed, position = _parts(pieces, position, inside)
            parts.append(_ranged(found, enclosed))
        else:
            parts.append(_values(compile_jsonpath(inside)))
    if opened:
        raise JsonPathError(f"{{{opened}}} has no {{end}}")
    return parts, position


def _constant(text: str) -> Part:
    return lambda _: text


def _values(path: Callable[[Any], Values]) -> Part:
    return lambda doc: " ".join(_as_text(value) for value in path(doc))


def _ranged(path: Callable[[Any], Values], enclosed: Sequence[Part]) -> Part:
    return lambda doc: "".join(_render(enclosed, value) for value in path(doc))


def _render(parts: Sequence[Part], doc: Any) -> str:
    return "".join(part(doc) for part in parts)


def _check_length(text: str) -> None:
    if len(text) > MAX_LENGTH:
        raise JsonPathError(f"a JSONPath may have {MAX_LENGTH} characters, this one has {len(text)}")


def _split_template(text: str) -> Iterable[tuple[str, str]]:
    """Literal texts and what stands in braces, alternately; the other one of the pair is empty."""
    position = 0
    for match in re.finditer(r"""\{((?:[^{}"']|"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')*)\}""", text, re.DOTALL):
        if match.start() > position:
            yield _literal(text[position : match.start()]), ""
        yield "", match[1].strip()
        position = match.end()
    if position < len(text):
        yield _literal(text[position:]), ""


def _literal(text: str) -> str:
    if "{" in text or "}" in text:
        raise JsonPathError(f"unclosed action in {text!r}")
    return text


def _as_text(value: Any) -> str:
    if isinstance(value, str):
        return value
    return "<nil>" if value is None else orjson.dumps(value).decode()


_name = re.compile(r"(?:\\.|[^\s\\.,\[\]$@{}()=!<>|&])+").match
_space = re.compile(r"\s*").match
_integer = re.compile(r"-?[0-9]{1,9}").match
_literal_number = re.compile(r"[-+]?[0-9]+(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?(?![\w.])").match
_string = re.compile(r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*\"""", re.DOTALL).match
_COMPARISONS: Final[dict[str, Callable[[Any, Any], bool]]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<=": operator.le,
    ">=": operator.ge,
    "<": operator.lt,
    ">": operator.gt,
}
_ESCAPES: Final = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", "a": "\a", "v": "\v"}


class _Parser:
    """One path, from left to right."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._position = 0
        self._filters = 0

    def path(self, *, relaxed: bool = False) -> tuple[list[Step], list[str] | None]:
        """The steps of a path; also its fields, if it has nothing else. A relaxed path may begin with a bare name."""
        steps: list[Step] = []
        names: list[str] | None = []
        if not self._take("$"):
            self._take("@")
        if relaxed and self._position == 0 and self._peek() not in {"", ".", "["}:
            names = [self._field_name()]
            steps = [_field(names[0])]
        while True:
            if self._take(".."):
                steps.append(_descend)
                names = None
                if self._peek() not in {"[", ""}:
                    steps.append(self._name_or_star())
            elif self._take("."):
                if self._peek() == "[":
                    continue
                if self._at_end() and not steps:
                    break
                if self._peek() == "*":
                    names = None
                    steps.append(self._name_or_star())
                else:
                    name = self._field_name()
                    steps.append(_field(name))
                    if names is not None:
                        names.append(name)
            elif self._take("["):
                steps.append(self._bracket())
                names = None
            else:
                break
        return steps, names

    def end(self) -> None:
        self._skip_space()
        if not self._at_end():
            self._fail(f"unexpected {self._peek()!r}")

    def quoted(self) -> str:
        match = _string(self._text, self._position)
        if match is None:
            self._fail("unterminated text")
        self._position = match.end()
        return re.sub(r"\\(u[0-9a-fA-F]{4}|.)", _unescape, match[0][1:-1], flags=re.DOTALL)

    def _name_or_star(self) -> Step:
        return _children if self._take("*") else _field(self._field_name())

    def _field_name(self) -> str:
        match = _name(self._text, self._position)
        if match is None:
            self._fail("a field name is missing")
        self._position = match.end()
        return re.sub(r"\\(.)", r"\1", match[0])

    def _bracket(self) -> Step:
        """What stands in brackets, up to and with the closing one."""
        self._skip_space()
        if self._take("?"):
            self._skip_space()
            if not self._take("("):
                self._fail("a filter needs parentheses")
            step = self._filter()
            self._filters -= 1
            if not self._take(")"):
                self._fail("unterminated filter")
        else:
            selections = [self._selection()]
            while self._skip_space() and self._take(","):
                self._skip_space()
                selections.append(self._selection())
            step = selections[0] if len(selections) == 1 else _union(selections)
        self._skip_space()
        if not self._take("]"):
            self._fail("unterminated array")
        return step

    def _selection(self) -> Step:
        if self._take("*"):
            return _children
        if self._peek() in {"'", '"'}:
            return _field(self.quoted())
        bounds = [self._bound()]
        while len(bounds) < 3 and self._take(":"):
            bounds.append(self._bound())
        if len(bounds) == 1:
            if bounds[0] is None:
                self._fail("an index, a slice, a quoted name or '*' is missing")
            return _index(bounds[0])
        if len(bounds) == 3 and bounds[2] is not None and bounds[2] <= 0:
            self._fail("the step of a slice must be positive")
        return _slice(slice(*bounds))

    def _bound(self) -> int | None:
        match = _integer(self._text, self._position)
        if match is None:
            return None
        self._position = match.end()
        return int(match[0])

    def _filter(self) -> Step:
        self._filters += 1
        if self._filters > MAX_FILTERS:
            self._fail(f"filters nest deeper than {MAX_FILTERS} levels")
        left = self._operand()
        self._skip_space()
        symbol = next((symbol for symbol in _COMPARISONS if self._take(symbol)), None)
        if symbol is None:
            return _where(lambda item: bool(left(item)))
        right = self._operand()
        self._skip_space()
        compare = _COMPARISONS[symbol]
        return _where(lambda item: _compares(compare, left(item), right(item)))

    def _operand(self) -> Callable[[Any], Values]:
        """A side of a comparison: a path from the item, or a literal."""
        self._skip_space()
        if self._peek() == "@":
            steps, names = self.path()
            return _field_getter(names) if names is not None else _pipeline(steps)
        constant: Values
        if self._peek() in {"'", '"'}:
            constant = [self.quoted()]
        elif match := _literal_number(self._text, self._position):
            self._position = match.end()
            constant = [json.loads(match[0].removeprefix("+"))]
        elif word := next((word for word in ("true", "false", "null") if self._take(word)), None):
            constant = [{"true": True, "false": False, "null": None}[word]]
        else:
            self._fail("a filter compares '@' paths, texts, numbers, true, false and null")
        return lambda item: constant

    def _peek(self) -> str:
        return self._text[self._position : self._position + 1]

    def _take(self, symbol: str) -> bool:
        if self._text.startswith(symbol, self._position):
            self._position += len(symbol)
            return True
        return False

    def _skip_space(self) -> bool:
        match = _space(self._text, self._position)
        self._position = match.end() if match else self._position
        return True

    def _at_end(self) -> bool:
        return self._position == len(self._text)

    def _fail(self, problem: str) -> NoReturn:
        raise JsonPathError(f"cannot parse JSONPath {self._text!r}: {problem} at position {self._position}")


def _unescape(match: re.Match[str]) -> str:
    code = match[1]
    return chr(int(code[1:], 16)) if len(code) == 5 else _ESCAPES.get(code, code)


def _pipeline(steps: Sequence[Step]) -> Callable[[Any], Values]:
    def find(value: Any) -> Values:
        values = [value]
        for step in steps:
            values = step(values)
            if not values:
                break
            if len(values) > MAX_RESULTS:
                raise JsonPathError(f"the JSONPath yields more than {MAX_RESULTS} values")
        return values

    return find


def _field_getter(names: Sequence[str]) -> Callable[[Any], Values]:
    """The most common path by far: only fields."""

    def find(value: Any) -> Values:
        for name in names:
            if type(value) is not dict or name not in value:
                return []
            value = value[name]
        return [value]

    return find


def _field(name: str) -> Step:
    return lambda values: [value[name] for value in values if isinstance(value, dict) and name in value]


def _index(index: int) -> Step:
    return lambda values: [
        value[index] for value in values if isinstance(value, list) and -len(value) <= index < len(value)
    ]


def _slice(bounds: slice[Any, Any, Any]) -> Step:
    return lambda values: [item for value in values if isinstance(value, list) for item in value[bounds]]


def _children(values: Values) -> Values:
    return [child for value in values for child in _members(value)]


def _descend(values: Values) -> Values:
    """Each object and list in the values, outer before inner."""
    found: Values = []
    todo = values[::-1]
    while todo:
        value = todo.pop()
        if isinstance(value, (dict, list)):
            found.append(value)
            if len(found) > MAX_RESULTS:
                raise JsonPathError(f"the JSONPath yields more than {MAX_RESULTS} values")
            todo.extend(reversed(list(_members(value))))
    return found


def _union(selections: Sequence[Step]) -> Step:
    return lambda values: [item for value in values for select in selections for item in select([value])]


def _where(holds: Callable[[Any], bool]) -> Step:
    return lambda values: [item for value in values if isinstance(value, list) for item in value if holds(item)]


def _members(value: Any) -> Iterable[Any]:
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list) else ()


def _compares(compare: Callable[[Any, Any], bool], left: Values, right: Values) -> bool:
    """A side that found nothing makes no comparison true; values of two kinds are different and have no order."""
    if not left or not right:
        return False
    one, other = left[0], right[0]
    if _kind(one) is not _kind(other):
        return compare is operator.ne
    if compare in {operator.eq, operator.ne} or _kind(one) in {float, str}:
        return compare(one, other)
    return False


def _kind(value: Any) -> type:
    return float if type(value) is int else type(value)
