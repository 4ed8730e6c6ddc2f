"""Field paths as Compositions write them: `spec.subnets[0].id`, `metadata.annotations[example.org/zone]`, `a[*].name`.

After a dot stands a field; in brackets stands an index if it is a number, else a field that may contain dots. Reading a
`*` reads the field of that name: only `expand` treats it as "each". Reading compiles to a few lookups, since every
patch of every composed resource does it; what went wrong is worked out only when something did.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache, reduce
from operator import getitem
from typing import Any, Final

Segment = str | int
"""A field or an index."""

WILDCARD: Final = "*"
MAX_INDEX: Final = 1024
"""The largest index that `set` makes room for."""


class FieldPathError(ValueError):
    """The path does not fit the value, or is no path."""


class FieldNotFound(FieldPathError):
    """There is nothing at the path, but there could be."""


class FieldPath:
    """A parsed path. `get` returns what is there or raises FieldPathError."""

    __slots__ = ("get", "segments")

    segments: tuple[Segment, ...]
    get: Callable[[Any], Any]

    def __init__(self, segments: Iterable[Segment]) -> None:
        self.segments = tuple(segments)
        self.get = _compile(self.segments)

    def set(self, doc: Any, value: Any) -> None:
        """Put the value there, in place, making the objects and lists on the way; the empty path does nothing.

        A list grows with nulls up to the index. What exists and is neither object nor list as needed is an error, even
        null; only a null element of a list gives way.
        """
        here = doc
        for depth, segment in enumerate(self.segments):
            _check_container(here, segment, self.segments[:depth])
            if depth == len(self.segments) - 1:
                _put(here, segment, value)
                return
            child = _lookup(here, segment)
            if child is _MISSING or (child is None and isinstance(segment, int)):
                child = [] if isinstance(self.segments[depth + 1], int) else {}
                _put(here, segment, child)
            here = child

    def delete(self, doc: Any) -> bool:
        """Take away what is there, in place, and say whether there was something; list elements behind it move up."""
        here = doc
        for depth, segment in enumerate(self.segments):
            if here is None:
                return False
            _check_container(here, segment, self.segments[:depth])
            child = _lookup(here, segment)
            if child is _MISSING:
                return False
            if depth == len(self.segments) - 1:
                del here[segment]
                return True
            here = child
        return False

    def expand(self, doc: Any) -> list[FieldPath]:
        """The paths without wildcards that this one stands for in `doc`; only those that exist, maps in key order."""
        return [FieldPath(segments) for segments in _expand(doc, self.segments, ())]

    def __str__(self) -> str:
        return format_path(self.segments)

    def __repr__(self) -> str:
        return f"FieldPath({str(self)!r})"

    def __eq__(self, other: object) -> bool:
        return self.segments == other.segments if isinstance(other, FieldPath) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.segments)


@lru_cache(maxsize=4096)
def parse_path(text: str) -> FieldPath:
    """The path that a text writes; raises FieldPathError naming the text and the byte where it stops making sense."""
    return FieldPath(_segments(text))


def format_path(segments: Iterable[Segment]) -> str:
    """Dots between fields; brackets around indexes, wildcards and fields with dots."""
    text = ""
    for segment in segments:
        if isinstance(segment, int) or segment == WILDCARD or "." in segment:
            text += f"[{segment}]"
        else:
            text += f".{segment}" if text else segment
    return text


_MISSING: Final = object()
_MAX_UINT32: Final = 2**32 - 1
_token = re.compile(r"[.\[\]]|[^.\[\]]+").finditer
_number = re.compile(r"[0-9]+").fullmatch


def _segments(text: str) -> Iterator[Segment]:
    def unexpected(token: re.Match[str]) -> FieldPathError:
        return _syntax_error(text, f"unexpected {token[0]!r}", token.start())

    tokens = list(_token(text))
    before = ""
    position = 0
    while position < len(tokens):
        token = tokens[position]
        match token[0]:
            case "[":
                if before == ".":
                    raise unexpected(token)
                inside = position + 1
                while inside < len(tokens) and tokens[inside][0] not in "[]":
                    inside += 1
                if inside == len(tokens):
                    raise _syntax_error(text, "unterminated '['", token.start())
                if tokens[inside][0] == "[" or inside == position + 1:
                    raise unexpected(tokens[inside])
                yield _bracketed(text[token.end() : tokens[inside].start()])
                before, position = "]", inside
            case ".":
                if before in {"", "."} or position == len(tokens) - 1:
                    raise unexpected(token)
                before = "."
            case "]":
                raise unexpected(token)
            case field:
                yield field.strip("'\"")
                before = "field"
        position += 1


def _bracketed(key: str) -> Segment:
    if _number(key) and len(key) <= 20 and int(key) <= _MAX_UINT32:
        return int(key)
    return key.strip("'\"")


def _syntax_error(text: str, problem: str, position: int) -> FieldPathError:
    offset = len(text[:position].encode("utf-8", "surrogatepass"))
    return FieldPathError(f'cannot parse path "{text}": {problem} at position {offset}')


def _compile(segments: tuple[Segment, ...]) -> Callable[[Any], Any]:
    if not segments:
        return lambda doc: None
    if any(isinstance(segment, int) for segment in segments):
        return lambda doc: _walk(doc, segments)

    def get_fields(doc: Any) -> Any:
        try:
            return reduce(getitem, segments, doc)
        except (KeyError, TypeError):
            return _walk(doc, segments)

    return get_fields


def _walk(doc: Any, segments: tuple[Segment, ...]) -> Any:
    here = doc
    for depth, segment in enumerate(segments):
        # The common case first: a text has elements too, but not ones that a path can name.
        if type(here) is dict if type(segment) is str else type(here) is list:
            try:
                here = here[segment]
                continue
            except (KeyError, IndexError):
                pass
        here = _step(here, segment, segments[:depth])
    return here


def _step(here: Any, segment: Segment, parent: tuple[Segment, ...]) -> Any:
    """What is under one segment, or the error that says why nothing can be."""
    if isinstance(segment, int):
        if not isinstance(here, list):
            raise FieldPathError(f"{format_path(parent)}: not an array")
        if segment >= len(here):
            raise FieldNotFound(f"{format_path((*parent, segment))}: no such element")
    elif here is None:
        raise FieldNotFound(f"{format_path(parent)}: expected map, got nil")
    elif not isinstance(here, dict):
        raise FieldPathError(f"{format_path(parent)}: not an object")
    elif segment not in here:
        raise FieldNotFound(f"{format_path((*parent, segment))}: no such field")
    return here[segment]


def _check_container(here: Any, segment: Segment, parent: tuple[Segment, ...]) -> None:
    if isinstance(segment, int):
        if not isinstance(here, list):
            raise FieldPathError(f"{format_path(parent)} is not an array")
    elif not isinstance(here, dict):
        raise FieldPathError(f"{format_path(parent)} is not an object")


def _lookup(here: Any, segment: Segment) -> Any:
    if isinstance(segment, int):
        return here[segment] if segment < len(here) else _MISSING
    return here.get(segment, _MISSING)


def _put(here: Any, segment: Segment, value: Any) -> None:
    if isinstance(segment, int):
        if segment > MAX_INDEX:
            raise FieldPathError(f"index {segment} is greater than max allowed index {MAX_INDEX}")
        here.extend([None] * (segment + 1 - len(here)))
    here[segment] = value


def _expand(here: Any, rest: tuple[Segment, ...], done: tuple[Segment, ...]) -> Iterator[tuple[Segment, ...]]:
    if not rest:
        yield done
        return
    segment, *others = rest
    remaining = tuple(others)
    if segment != WILDCARD:
        try:
            child = _step(here, segment, done)
        except FieldNotFound:
            return
        yield from _expand(child, remaining, (*done, segment))
    elif here is None:
        raise FieldNotFound(f"{format_path((*done, WILDCARD))}: no such field")
    elif isinstance(here, list):
        for index, item in enumerate(here):
            yield from _expand(item, remaining, (*done, index))
    elif isinstance(here, dict):
        for key in sorted(here):
            yield from _expand(here[key], remaining, (*done, key))
    else:
        raise FieldPathError(f"{format_path((*done, WILDCARD))}: unexpected wildcard usage")
