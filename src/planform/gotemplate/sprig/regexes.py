"""Regular expressions, by RE2: Go's syntax, and time linear in the text whatever the pattern."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Any, Final

import re2

from planform.gotemplate.errors import CallFailed
from planform.gotemplate.functions import Library
from planform.gotemplate.runtime import State
from planform.gotemplate.values import NilStrings, Strings

regexes: Final = Library()

_REFERENCE: Final = re.compile(r"\$(?:(\$)|\{(\w+)\}|(\w+))", re.ASCII)
_NO_CHARACTER: Final = re.compile("[\ud800-\udfff]")
_META: Final = re.compile(r"[\\.+*?()|\[\]{}^$]")
_MAX_PATTERN: Final = 10_000
_MEMORY: Final = 8 << 20
_MATCH_STEPS: Final = 8


@lru_cache(maxsize=512)
def _compiled(pattern: str) -> Any:
    if len(pattern) > _MAX_PATTERN:
        raise CallFailed(f"regexp: pattern is longer than {_MAX_PATTERN} characters")
    options = re2.Options()
    options.max_mem = _MEMORY
    options.log_errors = False
    try:
        return re2.compile(pattern, options)
    except (re2.error, UnicodeEncodeError) as error:
        reason = error.args[0] if error.args else error
        text = reason.decode(errors="replace") if isinstance(reason, bytes) else str(reason)
        raise CallFailed(f"error parsing regexp: {text}") from None


def _matches(state: State, pattern: str, text: str, maximum: int = -1) -> Iterator[Any]:
    """Matches that do not overlap; an empty one next to the match before does not count."""
    compiled = _compiled(pattern)
    state.spend(len(text) >> 3)
    if maximum == 0:
        return
    previous_end, found = -1, 0
    for match in compiled.finditer(_searchable(text)):
        state.spend(_MATCH_STEPS)
        start, end = match.span()
        if end > start or start != previous_end:
            found += 1
            yield match
            if found == maximum:
                return
        previous_end = end


def _first(state: State, pattern: str, text: str) -> Any:
    state.spend(len(text) >> 3)
    return _compiled(pattern).search(_searchable(text))


def _searchable(text: str) -> str:
    """Bytes that are no characters match as U+FFFD does, as in Go."""
    return _NO_CHARACTER.sub("\ufffd", text) if not text.isascii() else text


@regexes.add("func(string, string) (bool, error)", "mustRegexMatch", stateful=True)
def must_regex_match(state: State, pattern: str, text: str) -> bool:
    return _first(state, pattern, text) is not None


@regexes.add("func(string, string) bool", "regexMatch", stateful=True)
def regex_match(state: State, pattern: str, text: str) -> bool:
    try:
        return must_regex_match(state, pattern, text)
    except CallFailed:
        return False


@regexes.add("func(string, string) string", "regexFind", stateful=True)
@regexes.add("func(string, string) (string, error)", "mustRegexFind", stateful=True)
def regex_find(state: State, pattern: str, text: str) -> str:
    match = _first(state, pattern, text)
    return "" if match is None else str(match.group())


@regexes.add("func(string, string, int) []string", "regexFindAll", stateful=True)
@regexes.add("func(string, string, int) ([]string, error)", "mustRegexFindAll", stateful=True)
def regex_find_all(state: State, pattern: str, text: str, maximum: int) -> Strings:
    return Strings(match.group() for match in _matches(state, pattern, text, maximum)) or NilStrings()


@regexes.add("func(string, string, string) string", "regexReplaceAll", stateful=True)
@regexes.add("func(string, string, string) (string, error)", "mustRegexReplaceAll", stateful=True)
def regex_replace_all(state: State, pattern: str, text: str, replacement: str) -> str:
    """`$1`, `${1}` and `${name}` in the replacement stand for groups."""
    return _replaced(state, pattern, text, replacement, expand="$" in replacement)


@regexes.add("func(string, string, string) string", "regexReplaceAllLiteral", stateful=True)
@regexes.add("func(string, string, string) (string, error)", "mustRegexReplaceAllLiteral", stateful=True)
def regex_replace_all_literal(state: State, pattern: str, text: str, replacement: str) -> str:
    return _replaced(state, pattern, text, replacement, expand=False)


def _replaced(state: State, pattern: str, text: str, replacement: str, *, expand: bool) -> str:
    out: list[str] = []
    at, size = 0, 0
    for match in _matches(state, pattern, text):
        new = _expanded(match, replacement) if expand else replacement
        out += (text[at : match.start()], new)
        at = match.end()
        size += len(new)
        if size > state.limits.output:
            state.reserve_text(size)
    state.reserve_text(size)
    return "".join(out) + text[at:]


def _expanded(match: Any, replacement: str) -> str:
    groups = match.re.groupindex

    def value(reference: re.Match[str]) -> str:
        if reference[1]:
            return "$"
        name = reference[2] or reference[3]
        if name.isdigit():
            number = int(name) if len(name) < 6 else 99999
            return (match.group(number) or "") if number <= match.re.groups else ""
        return (match.group(groups[name]) or "") if name in groups else ""

    return _REFERENCE.sub(value, replacement)


@regexes.add("func(string, string, int) []string", "regexSplit", stateful=True)
@regexes.add("func(string, string, int) ([]string, error)", "mustRegexSplit", stateful=True)
def regex_split(state: State, pattern: str, text: str, maximum: int) -> Strings:
    _compiled(pattern)
    if maximum == 0:
        return NilStrings()
    if pattern and not text:
        return Strings([""])
    parts = Strings()
    begin = end = 0
    for match in _matches(state, pattern, text, maximum):
        if 0 < maximum == len(parts) + 1:
            break
        end = match.start()
        if match.end() != 0:
            parts.append(text[begin:end])
        begin = match.end()
    if end != len(text):
        parts.append(text[begin:])
    return parts


@regexes.add("func(string) string", "regexQuoteMeta")
def regex_quote_meta(text: str) -> str:
    return _META.sub(lambda match: "\\" + match[0], text)
