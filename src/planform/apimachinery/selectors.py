"""Label and field selectors: the texts of `labelSelector=` and `fieldSelector=`, and LabelSelector objects.

A selector is compiled once into a predicate, since a list or a watch asks it for every object. The grammar and the
messages are those of a Kubernetes API server, because clients show them to people.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, NamedTuple

from planform.apimachinery.names import invalid, label_value_problems, qualified_name_problems

Labels = Mapping[str, str]


class SelectorError(ValueError):
    """The text is not a selector; the message is what the API answers with code 400."""


class Operator(StrEnum):
    """How a requirement relates a label's value to its own; the values are the spellings of error messages."""

    IN = "in"
    NOT_IN = "notin"
    EQUALS = "="
    DOUBLE_EQUALS = "=="
    NOT_EQUALS = "!="
    GREATER_THAN = "gt"
    LESS_THAN = "lt"
    EXISTS = "exists"
    DOES_NOT_EXIST = "!"


@dataclass(frozen=True, slots=True)
class Requirement:
    """One term of a label selector; `values` are sorted and distinct."""

    key: str
    operator: Operator
    values: tuple[str, ...] = ()

    def __str__(self) -> str:
        match self.operator:
            case Operator.EXISTS:
                return self.key
            case Operator.DOES_NOT_EXIST:
                return f"!{self.key}"
            case Operator.IN | Operator.NOT_IN:
                # The empty value alone needs a comma: `()` would be no value at all.
                values = ",".join(self.values) or ","
                return f"{self.key} {self.operator} ({values})"
            case Operator.GREATER_THAN | Operator.LESS_THAN:
                return f"{self.key}{'>' if self.operator is Operator.GREATER_THAN else '<'}{self.values[0]}"
            case _:
                return f"{self.key}{self.operator}{self.values[0]}"


class LabelSelector:
    """Which labels are meant: all requirements must hold. `NOTHING` is the selector that was not given at all."""

    __slots__ = ("matches", "requirements")

    requirements: tuple[Requirement, ...]
    matches: Callable[[Labels], bool]

    def __init__(self, requirements: Sequence[Requirement]) -> None:
        self.requirements = tuple(sorted(requirements, key=lambda requirement: requirement.key))
        self.matches = _all_of([_predicate(requirement) for requirement in self.requirements])

    @classmethod
    def from_object(cls, selector: Mapping[str, Any] | None) -> LabelSelector:
        """A LabelSelector of the API: matchLabels and matchExpressions. Absent matches nothing, empty everything."""
        if selector is None:
            return NOTHING
        requirements = [
            _requirement(key, Operator.EQUALS, [value], "matchLabels")
            for key, value in (selector.get("matchLabels") or {}).items()
        ]
        for index, expression in enumerate(selector.get("matchExpressions") or ()):
            name = expression.get("operator")
            if name not in _EXPRESSION_OPERATORS:
                raise SelectorError(f'"{name}" is not a valid label selector operator')
            values = list(expression.get("values") or ())
            operator = _EXPRESSION_OPERATORS[name]
            requirements.append(
                _requirement(expression.get("key") or "", operator, values, f"matchExpressions[{index}]")
            )
        return cls(requirements)

    @property
    def empty(self) -> bool:
        """Whether it restricts nothing."""
        return not self.requirements and self is not NOTHING

    def exact(self, key: str) -> str | None:
        """The one value that `key` must have, if there is one: an index can then answer instead of a scan."""
        for requirement in self.requirements:
            if requirement.key == key and requirement.operator in _MEMBERSHIP and len(requirement.values) == 1:
                return requirement.values[0]
        return None

    def __str__(self) -> str:
        return ",".join(map(str, self.requirements))

    def __repr__(self) -> str:
        return f"LabelSelector({str(self)!r})"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, LabelSelector):
            return NotImplemented
        return self.requirements == other.requirements and (self is NOTHING) == (other is NOTHING)

    def __hash__(self) -> int:
        return hash(self.requirements)


class FieldTerm(NamedTuple):
    """One term of a field selector."""

    field: str
    equal: bool
    value: str

    def __str__(self) -> str:
        escaped = re.sub(r"([\\,=])", r"\\\1", self.value)
        return f"{self.field}{'=' if self.equal else '!='}{escaped}"


class FieldSelector:
    """Which fields must have which values: all terms must hold. Which fields there are is the kind's business."""

    __slots__ = ("terms",)

    def __init__(self, terms: Sequence[FieldTerm]) -> None:
        self.terms = tuple(terms)

    @property
    def empty(self) -> bool:
        """Whether it restricts nothing."""
        return not self.terms

    def matches(self, lookup: Callable[[str], str]) -> bool:
        """Whether an object matches; `lookup` gives the text of a field, empty when it is absent."""
        for field, equal, value in self.terms:  # noqa: SIM110 - the loop is measurably faster than all(...)
            if (lookup(field) == value) is not equal:
                return False
        return True

    def exact(self, field: str) -> str | None:
        """The one value that `field` must have, if there is one."""
        return next((term.value for term in self.terms if term.field == field and term.equal), None)

    def __str__(self) -> str:
        return ",".join(map(str, self.terms))

    def __repr__(self) -> str:
        return f"FieldSelector({str(self)!r})"

    def __eq__(self, other: object) -> bool:
        return self.terms == other.terms if isinstance(other, FieldSelector) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.terms)


def parse_labels(text: str) -> LabelSelector:
    """`a=b,c!=d,e in (x,y),!f,g>1`; raises SelectorError. An empty text selects everything."""
    return LabelSelector(_Parser(text).parse()) if text else EVERYTHING


def parse_fields(text: str) -> FieldSelector:
    """`metadata.name=x,spec.type!=y`; commas, equal signs and backslashes in values are escaped by a backslash."""
    terms = []
    for part in sorted(re.findall(r"(?:\\.|[^,\\]|\\$)+", text, re.DOTALL)):
        match = re.search(r"!=|==|=", part)
        if match is None:
            raise SelectorError(f"invalid selector: '{text}'; can't understand '{part}'")
        terms.append(FieldTerm(part[: match.start()], match[0] != "!=", _unescape(part[match.end() :])))
    return FieldSelector(terms)


def _unescape(value: str) -> str:
    def literal(match: re.Match[str]) -> str:
        sequence = match[0]
        if sequence in {",", "="}:
            raise SelectorError(f"invalid field selector: unescaped character in value: {sequence}")
        if sequence not in {"\\\\", "\\,", "\\="}:
            raise SelectorError(f"invalid field selector: invalid escape sequence: {sequence}")
        return sequence[1]

    return re.sub(r"\\.|\\$|[,=]", literal, value, flags=re.DOTALL) if re.search(r"[\\,=]", value) else value


_MEMBERSHIP: Final = frozenset({Operator.IN, Operator.EQUALS, Operator.DOUBLE_EQUALS})
_BINARY: Final = "in, notin, =, ==, !=, gt, lt"
_EXPRESSION_OPERATORS: Final = {
    "In": Operator.IN,
    "NotIn": Operator.NOT_IN,
    "Exists": Operator.EXISTS,
    "DoesNotExist": Operator.DOES_NOT_EXIST,
}
_OPERATORS: Final = {
    "in": Operator.IN,
    "notin": Operator.NOT_IN,
    "=": Operator.EQUALS,
    "==": Operator.DOUBLE_EQUALS,
    "!=": Operator.NOT_EQUALS,
    ">": Operator.GREATER_THAN,
    "<": Operator.LESS_THAN,
}
_SYMBOLS: Final = frozenset({"==", "=", "!=", "!", "(", ")", ",", "<", ">", ""})
_tokens = re.compile(r"==|!=|[=!(),<>]|[^=!(),<> \t\r\n]+").findall


class _Parser:
    """A label selector's tokens, taken one by one; the empty token is the end."""

    def __init__(self, text: str) -> None:
        self._tokens: list[str] = [*_tokens(text), ""]
        self._next = 0

    def parse(self) -> list[Requirement]:
        requirements: list[Requirement] = []
        while (token := self._peek()) != "":
            if token in _SYMBOLS and token != "!":
                raise _unexpected(token, "!, identifier, or 'end of string'")
            try:
                requirements.append(self._requirement())
            except SelectorError as error:
                raise SelectorError(f"unable to parse requirement: {error}") from None
            if (token := self._take()) == "":
                break
            if token != ",":
                raise _unexpected(token, "',' or 'end of string'")
            if (token := self._peek()) in _SYMBOLS and token != "!":
                raise _unexpected(token, "identifier after ','")
        return requirements

    def _requirement(self) -> Requirement:
        absent = self._peek() == "!"
        if absent:
            self._take()
        key = self._identifier()
        if problems := qualified_name_problems(key):
            raise SelectorError(str(invalid("<nil>", key, "; ".join(problems))))
        if absent:
            return Requirement(key, Operator.DOES_NOT_EXIST)
        if self._peek() in {"", ","}:
            return Requirement(key, Operator.EXISTS)
        token = self._take()
        operator = _OPERATORS.get(token)
        if operator is None:
            raise _unexpected(token, _BINARY)
        values = self._values() if operator in {Operator.IN, Operator.NOT_IN} else [self._value()]
        return _requirement(key, operator, values)

    def _value(self) -> str:
        return "" if self._peek() in {"", ","} else self._identifier()

    def _values(self) -> list[str]:
        """What stands in parentheses; nothing before, after or between commas is the empty value."""
        if (token := self._take()) != "(":
            raise SelectorError(f"found '{token}' expected: '('")
        if self._peek() == ")":
            self._take()
            return []
        values: list[str] = []
        while True:
            values.append("" if self._peek() in {",", ")"} else self._identifier("',', or identifier"))
            token = self._take()
            if token == ")":
                return values
            if token != ",":
                raise _unexpected(token, "',' or ')'")

    def _identifier(self, expected: str = "identifier") -> str:
        if (token := self._take()) in _SYMBOLS:
            raise _unexpected(token, expected)
        return token

    def _peek(self) -> str:
        return self._tokens[self._next]

    def _take(self) -> str:
        token = self._tokens[self._next]
        self._next = min(self._next + 1, len(self._tokens) - 1)
        return token


def _unexpected(token: str, expected: str) -> SelectorError:
    return SelectorError(f"found '{token}', expected: {expected}")


def _requirement(key: str, operator: Operator, values: Sequence[Any], field: str = "") -> Requirement:
    """A requirement that makes sense, or SelectorError with everything that does not."""
    prefix = f"{field}." if field else ""
    errors = [invalid(f"{prefix}key", key, "; ".join(problems))] if (problems := qualified_name_problems(key)) else []
    if operator in {Operator.IN, Operator.NOT_IN} and not values:
        errors.append(invalid(f"{prefix}values", values, "for 'in', 'notin' operators, values set can't be empty"))
    if operator in {Operator.EXISTS, Operator.DOES_NOT_EXIST} and values:
        errors.append(invalid(f"{prefix}values", values, "values set must be empty for exists and does not exist"))
    for index, value in enumerate(values):
        if operator in {Operator.GREATER_THAN, Operator.LESS_THAN} and _integer(value) is None:
            problem = "for 'Gt', 'Lt' operators, the value must be an integer"
            errors.append(invalid(f"{prefix}values[{index}]", value, problem))
        if problems := label_value_problems(value) if isinstance(value, str) else ["must be a string"]:
            errors.append(invalid(f"{prefix}values[{index}][{key}]", value, "; ".join(problems)))
    if errors:
        texts = [str(error) for error in errors]
        raise SelectorError(texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]")
    return Requirement(key, operator, tuple(sorted(set(values))))


def _integer(text: str) -> int | None:
    """A decimal of 64 bits, or None."""
    if not re.fullmatch(r"[-+]?[0-9]{1,19}", text):
        return None
    number = int(text)
    return number if -(2**63) <= number < 2**63 else None


def _predicate(requirement: Requirement) -> Callable[[Labels], bool]:
    key, values = requirement.key, frozenset(requirement.values)
    match requirement.operator:
        case Operator.IN | Operator.EQUALS | Operator.DOUBLE_EQUALS:
            if len(values) == 1:
                (value,) = values
                return lambda labels: labels.get(key) == value
            return lambda labels: labels.get(key) in values
        case Operator.NOT_IN | Operator.NOT_EQUALS:
            return lambda labels: labels.get(key) not in values
        case Operator.EXISTS:
            return lambda labels: key in labels
        case Operator.DOES_NOT_EXIST:
            return lambda labels: key not in labels
        case Operator.GREATER_THAN | Operator.LESS_THAN:
            greater, bound = requirement.operator is Operator.GREATER_THAN, int(requirement.values[0])

            def compares(labels: Labels) -> bool:
                number = _integer(labels.get(key, ""))
                return number is not None and (number > bound if greater else number < bound)

            return compares


def _all_of(predicates: list[Callable[[Labels], bool]]) -> Callable[[Labels], bool]:
    if not predicates:
        return lambda labels: True
    if len(predicates) == 1:
        return predicates[0]
    return lambda labels: all(predicate(labels) for predicate in predicates)


EVERYTHING: Final = LabelSelector(())
NOTHING: Final = LabelSelector(())
NOTHING.matches = lambda labels: False
