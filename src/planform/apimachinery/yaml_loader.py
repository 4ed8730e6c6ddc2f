"""YAML as kubectl reads it: YAML 1.1 with its own idea of numbers, where everything becomes JSON.

`yes` and `off` are booleans, `0777` and `0o777` are octal, `1_000` is a number, but dates and `12:30:45` are texts,
keys are always texts, and infinity cannot be said. The parser is libyaml's (or PyYAML's own where that is missing);
values are built here from its events, without recursion. Input may be hostile: size, depth and what aliases expand to
are bounded.
"""

from __future__ import annotations

import base64
import binascii
import math
import re
from collections.abc import Iterable, Sequence
from typing import Any, Final, NoReturn

import yaml
from yaml import events as ev

from planform.apimachinery.jsonbody import MAX_DEPTH, JsonBodyError, loads_reporting_duplicates
from planform.apimachinery.jsonbody import loads as loads_json

MAX_BYTES: Final = 16 * 1024 * 1024
MAX_EXPANSION: Final = 100_000
"""How much the aliases of one text may add: values, where a text counts once more for every 32 characters."""


class YamlError(ValueError):
    """The text is not YAML, or not YAML that becomes JSON; `line` and `column` count from 1, 0 if unknown."""

    def __init__(self, problem: str, line: int = 0, column: int = 0) -> None:
        super().__init__(f"line {line}, column {column}: {problem}" if line else problem)
        self.line = line
        self.column = column


def load(text: str | bytes, *, strict: bool = False, duplicates: list[str] | None = None) -> Any:
    """The one document in the text, None if there is none."""
    documents = load_all(text, strict=strict, duplicates=duplicates)
    if len(documents) > 1:
        raise YamlError(f"expected one document, found {len(documents)}")
    return documents[0] if documents else None


def load_all(
    text: str | bytes,
    *,
    strict: bool = False,
    duplicates: list[str] | None = None,
    max_bytes: int = MAX_BYTES,
    max_depth: int = MAX_DEPTH,
    max_expansion: int = MAX_EXPANSION,
) -> list[Any]:
    """All documents but the empty ones, which only separate.

    Of a key given twice the last value counts; with `strict` it is an error, and its path is added to `duplicates`
    where that is given.
    """
    if len(text) > max_bytes:
        raise YamlError(f"the text is longer than {max_bytes} bytes")
    if isinstance(text, bytes):
        try:
            text = text.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            raise YamlError(f"the text is not UTF-8: {error.reason} at byte {error.start}") from None
    if text.lstrip()[:1] in {"{", "["}:
        try:
            return [_load_json(text, strict=strict, duplicates=duplicates, max_depth=max_depth)]
        except JsonBodyError:
            pass  # YAML's flow style, perhaps.
    builder = _Builder(strict=strict, max_depth=max_depth, max_expansion=max_expansion)
    try:
        documents = builder.build(yaml.parse(text, Loader=_LOADER))
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        problem = error.problem or error.context or "not YAML"
        raise YamlError(problem, *((mark.line + 1, mark.column + 1) if mark else ())) from None
    except (yaml.YAMLError, UnicodeEncodeError) as error:
        raise YamlError(" ".join(str(error).split())) from None
    if duplicates is not None:
        duplicates += builder.duplicates
    return documents


def dump(value: Any) -> str:
    """A JSON value as one YAML document in block style, keys in the order given; `load` reads the same value back."""
    out: list[str] = []
    if isinstance(value, dict) and value:
        _dump_mapping(value, "", "", out)
    elif isinstance(value, list) and value:
        _dump_sequence(value, "", "", out)
    else:
        out.append(_dump_scalar(value, ""))
    return "\n".join(out) + "\n"


def dump_all(values: Iterable[Any]) -> str:
    """Several documents, separated by `---`."""
    return "---\n".join(dump(value) for value in values)


_LOADER: Final = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def _load_json(text: str, *, strict: bool, duplicates: list[str] | None, max_depth: int) -> Any:
    if not strict and duplicates is None:
        return loads_json(text, max_depth=max_depth)
    value, found = loads_reporting_duplicates(text, max_depth=max_depth)
    if duplicates is not None:
        duplicates += found
    if strict and found:
        raise YamlError(f'key "{found[0]}" already set in map')
    return value


# Reading


class _Open:
    """A mapping or sequence that has begun and not ended."""

    __slots__ = ("anchor", "key", "merges", "value", "weight")

    def __init__(self, value: dict[str, Any] | list[Any], anchor: str | None, weight: int) -> None:
        self.value = value
        self.anchor = anchor
        self.weight = weight  # the builder's weight before it began
        self.key: Any = _NO_KEY
        self.merges: list[Any] = []


_NO_KEY: Final = object()
_MERGE: Final = object()


class _Builder:
    """Values from events, and the paths of keys given twice. The weight of what was built tells what an alias costs."""

    def __init__(self, *, strict: bool, max_depth: int, max_expansion: int) -> None:
        self._strict = strict
        self.duplicates: dict[str, None] = {}
        self._max_depth = max_depth
        self._room = max_expansion
        self._weight = 0
        self._open: list[_Open] = []
        self._anchors: dict[str, tuple[Any, int]] = {}

    def build(self, events: Iterable[Any]) -> list[Any]:
        documents: list[Any] = []
        stack = self._open
        for event in events:
            kind = type(event)
            if kind is ev.ScalarEvent:
                if stack and stack[-1].key is _NO_KEY and type(stack[-1].value) is dict and _is_merge(event):
                    stack[-1].key = _MERGE
                    continue
                value = _scalar(event)
                self._weight += 1 + (len(event.value) >> 5)
                if event.anchor:
                    self._anchors[event.anchor] = value, 1 + (len(event.value) >> 5)
            elif kind is ev.MappingStartEvent or kind is ev.SequenceStartEvent:
                self._begin(event, {} if kind is ev.MappingStartEvent else [])
                continue
            elif kind is ev.MappingEndEvent or kind is ev.SequenceEndEvent:
                value = self._end(event)
            elif kind is ev.AliasEvent:
                value = self._expand(event)
            elif kind is ev.DocumentStartEvent:
                self._anchors.clear()
                continue
            else:
                continue
            if not stack:
                if value is not None:
                    documents.append(value)
                continue
            top = stack[-1]
            if isinstance(top.value, list):
                top.value.append(value)
            elif top.key is _NO_KEY:
                top.key = self._key(event, value, top.value)
            else:
                if top.key is _MERGE:
                    top.merges.append((event, value))
                else:
                    top.value[top.key] = value
                top.key = _NO_KEY
        return documents

    def _begin(self, event: Any, value: dict[str, Any] | list[Any]) -> None:
        stack = self._open
        if stack and stack[-1].key is _NO_KEY and type(stack[-1].value) is dict:
            _fail(event, "a mapping or sequence cannot be a key")
        if len(stack) >= self._max_depth:
            _fail(event, f"mappings and sequences nest deeper than {self._max_depth} levels")
        if event.anchor:
            self._anchors.pop(event.anchor, None)
        stack.append(_Open(value, event.anchor, self._weight))
        self._weight += 1

    def _end(self, event: Any) -> Any:
        done = self._open.pop()
        if type(done.value) is dict:
            for source_event, merged in done.merges:
                for source in merged if isinstance(merged, list) else [merged]:
                    if not isinstance(source, dict):
                        _fail(source_event, "map merge requires map or sequence of maps as the value")
                    for key, value in source.items():
                        done.value.setdefault(key, value)
        if done.anchor:
            self._anchors[done.anchor] = done.value, self._weight - done.weight
        return done.value

    def _expand(self, event: Any) -> Any:
        """What the alias stands for, as a copy: documents hold no value twice."""
        found = self._anchors.get(event.anchor)
        if found is None:
            inside = any(opened.anchor == event.anchor for opened in self._open)
            problem = (
                f"anchor '{event.anchor}' value contains itself"
                if inside
                else f"unknown anchor '{event.anchor}' referenced"
            )
            _fail(event, problem)
        value, weight = found
        self._room -= weight
        if self._room < 0:
            _fail(event, "document contains excessive aliasing")
        self._weight += weight
        return self._copy(event, value, len(self._open))

    def _copy(self, event: Any, value: Any, depth: int) -> Any:
        if not isinstance(value, (dict, list)):
            return value
        if depth >= self._max_depth:
            _fail(event, f"mappings and sequences nest deeper than {self._max_depth} levels")
        if isinstance(value, dict):
            return {key: self._copy(event, child, depth + 1) for key, child in value.items()}
        return [self._copy(event, child, depth + 1) for child in value]

    def _key(self, event: Any, value: Any, members: dict[str, Any]) -> str:
        if isinstance(value, str):
            key = value
        elif isinstance(value, bool):
            key = "true" if value else "false"
        elif isinstance(value, int | float):
            key = repr(value)
        else:
            _fail(event, "null cannot be a key" if value is None else "a mapping or sequence cannot be a key")
        if key in members:
            self.duplicates[self._path(key)] = None
            if self._strict:
                _fail(event, f'key "{key}" already set in map')
        return key

    def _path(self, last: str) -> str:
        path = ""
        for opened in self._open[:-1]:
            step = f"[{len(opened.value)}]" if isinstance(opened.value, list) else f".{opened.key}"
            path += step if opened.key is not _MERGE else ".<<"
        return f"{path}.{last}".removeprefix(".")


def _fail(event: Any, problem: str) -> NoReturn:
    raise YamlError(problem, event.start_mark.line + 1, event.start_mark.column + 1)


_TAG: Final = "tag:yaml.org,2002:"
_WORDS: Final[dict[str, Any]] = {
    **{word: True for text in ("y", "yes", "true", "on") for word in (text, text.capitalize(), text.upper())},
    **{word: False for text in ("n", "no", "false", "off") for word in (text, text.capitalize(), text.upper())},
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
}
_NOT_JSON: Final = frozenset(
    {sign + dot for sign in ("", "+", "-") for dot in (".inf", ".Inf", ".INF")} | {".nan", ".NaN", ".NAN"}
)
_based = re.compile(r"[-+]?0(?:[xX][0-9a-fA-F]+|[oO]?[0-7]+|[bB][01]+)").fullmatch
_decimal = re.compile(r"[-+]?[0-9]+").fullmatch
_float = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?").fullmatch


def _is_merge(event: Any) -> bool:
    return bool(event.value == "<<" and (event.implicit[0] or event.tag == f"{_TAG}merge"))


def _scalar(event: Any) -> Any:
    text: str = event.value
    if event.tag is None:
        return _plain(event, text) if event.implicit[0] else text
    match event.tag.removeprefix(_TAG) if event.tag.startswith(_TAG) else "":
        case "binary":
            try:
                return base64.b64decode("".join(text.split()), validate=True).decode("utf-8", "replace")
            except binascii.Error:
                _fail(event, "!!binary value contains invalid base64 data")
        case "int" | "float" | "bool" | "null" as name:
            value = _plain(event, text)
            expected = {"int": (int,), "float": (int, float), "bool": (bool,), "null": (type(None),)}[name]
            if type(value) not in expected:
                _fail(event, f"cannot read {text!r} as !!{name}")
            return value
        case _:
            return text


def _plain(event: Any, text: str) -> Any:
    """What a scalar without quotes means."""
    if text in _WORDS:
        return _WORDS[text]
    if text[0] not in "+-.0123456789":
        return text
    if text in _NOT_JSON:
        _fail(event, f"{text} cannot be said in JSON")
    return _number(text)


def _number(text: str) -> Any:
    """A number, or the text if it only begins like one. Whole numbers of 64 bits are ints, however they are written."""
    plain = text.replace("_", "")
    if len(plain) <= 80 and _based(plain):
        digits = plain.lstrip("+-")
        whole = int(digits, 8 if digits.isdigit() else 0) * (-1 if plain[0] == "-" else 1)
        if not _fits(whole):
            return float(whole) if 0 < whole < 2**64 else text
        return whole
    if len(plain) <= 20 and _decimal(plain) and _fits(whole := int(plain)):
        return whole
    if not _float(plain):
        return text
    number = float(plain)
    if math.isinf(number):
        return text
    return int(number) if number.is_integer() and _fits(int(number)) else number


def _fits(whole: int) -> bool:
    return -(2**63) <= whole < 2**63


# Writing

_ORDINARY: Final = re.compile(r"[A-Za-z_/](?:[-\w./@+=,]|[: ](?=\w))*").fullmatch
"""A text that starts with a letter is no number, and this one has nothing that YAML could trip over."""
_UNPRINTABLE: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]")
_SURROGATE: Final = re.compile(r"[\ud800-\udfff]")
_AMBIGUOUS_LINES: Final = re.compile(r"\A[\n \t]|^[ \t]+$|\r", re.MULTILINE)
_BARE: Final = re.compile(r"[\w./$(][-\w./$()@+=,;:#<>~^%*&!|?{}\[\]'\"\\ ]*").fullmatch
_NOT_BARE: Final = re.compile(r": |:$| #| $|\A\.\.\.").search
_NOT_TEXT_TO_OTHERS: Final = re.compile(
    r"[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}.*|[-+]?[0-9][0-9_]*(?::[0-5]?[0-9])+(?:\.[0-9_]*)?"
).fullmatch
"""Texts that other YAML readers take for dates and sexagesimal numbers."""
_MAX_KEY_LENGTH: Final = 120


def _dump_mapping(mapping: dict[str, Any], pad: str, first: str, out: list[str]) -> None:
    _check_depth(pad)
    head = first or pad
    for key, value in mapping.items():
        if not isinstance(key, str):
            raise YamlError(f"the key {key!r} is not a text")
        name = _dump_text(key, None)
        # The parser looks for the colon only so far; a longer key must say that it is one.
        entry = f"{head}{name}:" if len(name) <= _MAX_KEY_LENGTH else f"{head}? {name}\n{pad}:"
        if isinstance(value, dict) and value:
            out.append(entry)
            _dump_mapping(value, pad + "  ", "", out)
        elif isinstance(value, list) and value:
            out.append(entry)
            _dump_sequence(value, pad, "", out)
        else:
            out.append(f"{entry} {_dump_scalar(value, pad)}")
        head = pad


def _dump_sequence(items: Sequence[Any], pad: str, first: str, out: list[str]) -> None:
    _check_depth(pad)
    head = f"{first or pad}- "
    for item in items:
        if isinstance(item, dict) and item:
            _dump_mapping(item, pad + "  ", head, out)
        elif isinstance(item, list) and item:
            _dump_sequence(item, pad + "  ", head, out)
        else:
            out.append(head + _dump_scalar(item, pad))
        head = f"{pad}- "


def _check_depth(pad: str) -> None:
    if len(pad) > 4 * MAX_DEPTH:
        raise YamlError("the value nests too deep to be written")


def _dump_scalar(value: Any, pad: str) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return _dump_text(value, pad)
    if isinstance(value, int) or (isinstance(value, float) and math.isfinite(value)):
        return repr(value)
    if isinstance(value, (dict, list)):
        return "{}" if isinstance(value, dict) else "[]"
    raise YamlError(f"{value!r} cannot be said in JSON")


def _dump_text(text: str, pad: str | None) -> str:
    """Bare where that reads back as the same text, in lines where it has some, else in quotes; keys have no `pad`."""
    if _ORDINARY(text) and text not in _WORDS:
        return text
    if _SURROGATE.search(text):
        raise YamlError(f"{text!r} is not Unicode")
    if "\n" in text and pad is not None and not _AMBIGUOUS_LINES.search(text) and not _UNPRINTABLE.search(text):
        chomp = "-" if not text.endswith("\n") else "+" if text.endswith("\n\n") else ""
        lines = text.removesuffix("\n").split("\n")
        return "\n".join([f"|{chomp}", *(f"{pad}  {line}" if line else "" for line in lines)])
    if _BARE(text) and not _NOT_BARE(text) and not _NOT_TEXT_TO_OTHERS(text) and _reads_as_text(text):
        return text
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\t", "\\t")
    escaped = _UNPRINTABLE.sub(lambda match: f"\\u{ord(match[0]):04x}", escaped)
    return f'"{escaped}"'


def _reads_as_text(text: str) -> bool:
    """Whether no reader takes the bare text for a word or a number, however large."""
    if text in _WORDS or text in _NOT_JSON:
        return False
    plain = text.replace("_", "")
    return not (_based(plain) or _float(plain))
