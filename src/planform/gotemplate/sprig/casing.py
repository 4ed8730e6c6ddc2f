"""Upper, lower and title case, and the styles in which programmers join words.

Go maps each character by itself; Python's own methods look around (final sigma) and may grow the text (sharp s).
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable
from typing import Final

from planform.gotemplate.functions import Library
from planform.gotemplate.sprig.strings import WHITE_SPACE

casing: Final = Library()

_LOWER_EXCEPTIONS: Final = {"\u0130": "i"}


def _simply(convert: Callable[[str], str]) -> Callable[[str], str]:
    def one(char: str) -> str:
        if "\ud800" <= char <= "\udfff":  # a byte that is no character becomes one
            return "\ufffd"
        changed = convert(char)
        return changed if len(changed) == 1 else char

    return one


to_upper_char: Final = _simply(str.upper)
to_title_char: Final = _simply(str.title)
_lower_char: Final = _simply(str.lower)


def to_lower_char(char: str) -> str:
    return _LOWER_EXCEPTIONS.get(char) or _lower_char(char)


@casing.add("func(string) string")
def upper(text: str) -> str:
    return text.upper() if text.isascii() else "".join(map(to_upper_char, text))


@casing.add("func(string) string")
def lower(text: str) -> str:
    return text.lower() if text.isascii() else "".join(map(to_lower_char, text))


@casing.add("func(string) string")
def title(text: str) -> str:
    out: list[str] = []
    previous = " "
    for char in text:
        out.append(to_title_char(char) if _separates(previous) else char)
        previous = char
    return "".join(out)


def _separates(char: str) -> bool:
    """Whether a word may begin after this character."""
    if char.isascii():
        return not (char.isalnum() or char == "_")
    category = unicodedata.category(char)
    if category[0] == "L" or category == "Nd":
        return False
    return char in WHITE_SPACE


@casing.add("func(string) string")
def untitle(text: str) -> str:
    return _at_word_starts(text, to_lower_char)


def _at_word_starts(text: str, convert: Callable[[str], str]) -> str:
    out: list[str] = []
    starts = True
    for char in text:
        if char in WHITE_SPACE:
            starts = True
        elif starts:
            char, starts = convert(char), False
        out.append(char)
    return "".join(out)


@casing.add("func(string) string")
def swapcase(text: str) -> str:
    out: list[str] = []
    at_start = True
    for char in text:
        category = unicodedata.category(char)
        if category in ("Lu", "Lt"):
            out.append(to_lower_char(char))
            at_start = False
        elif category == "Ll":
            out.append(to_title_char(char) if at_start else to_upper_char(char))
            at_start = False
        else:
            out.append(char)
            at_start = char in WHITE_SPACE
    return "".join(out)


def _is_upper(char: str) -> bool:
    return unicodedata.category(char) == "Lu"


def _connects(char: str) -> bool:
    return char in "-_" or char in WHITE_SPACE


@casing.add("func(string) string")
def camelcase(text: str) -> str:
    """`http_server` to `HttpServer`: connectors go, what follows them is upper case; `HTTP` becomes `Http`."""
    leading = 0
    while leading < len(text) and _connects(text[leading]):
        leading += 1
    out = list(text[:leading])
    if leading == len(text):
        return "".join(out) + text[-1:]
    after_upper = _is_upper(text[leading])
    current = to_upper_char(text[leading])
    for char in text[leading + 1 :]:
        previous, current = current, char
        if _connects(current) and _connects(previous):
            out.append(previous)
            continue
        if _connects(previous):
            after_upper = _is_upper(current)
            current = to_upper_char(current)
            continue
        if after_upper:
            if _is_upper(current):
                current = to_lower_char(current)
            else:
                after_upper = False
        out.append(previous)
    return "".join(out) + current


@casing.add("func(string) string")
def snakecase(text: str) -> str:
    return _joined_words(text, "_")


@casing.add("func(string) string")
def kebabcase(text: str) -> str:
    return _joined_words(text, "-")


def _joined_words(text: str, connector: str) -> str:  # noqa: C901  (a state machine)
    """Words in lower case with a connector between them.

    A number stays with the word after it if one follows in lower case, else with the word before it.
    """
    words = _words(text)
    out: list[str] = []
    at = 0

    def kind(index: int) -> str:
        return words[index][0] if index < len(words) else ""

    def write(index: int) -> None:
        if index < len(words):
            out.append(_lowered(words[index], connector))

    def write_run(start: int) -> int:
        """Letters and numbers that follow each other without a connector; where they end."""
        while kind(start) in ("letters", "number"):
            write(start)
            start += 1
        return start

    while at < len(words) - 1:
        if kind(at) != "connector":
            write(at)
        previous, at = at, at + 1
        match kind(previous):
            case "number":
                at = write_run(at)
                if kind(at) not in ("", "punctuation", "connector"):
                    out.append(connector)
            case "connector":
                write(previous)
            case "punctuation":
                pass
            case _ if kind(at) != "number":
                if kind(at) not in ("connector", "punctuation"):
                    out.append(connector)
            case _ if at + 1 < len(words):
                number, at = at, at + 1
                if kind(at) != "letters":
                    write(number)
                    if kind(at) not in ("connector", "punctuation"):
                        out.append(connector)
                    continue
                out.append(connector)
                write(number)
                at = write_run(at)
                if kind(at) not in ("", "connector", "punctuation"):
                    out.append(connector)
    write(at)
    return "".join(out)


def _lowered(word: tuple[str, str], connector: str) -> str:
    kind, text = word
    if kind not in ("upper", "connector"):
        return text
    return "".join(connector if _connects(char) else to_lower_char(char) if _is_upper(char) else char for char in text)


def _words(text: str) -> list[tuple[str, str]]:
    """The text in pieces of one kind: a capital takes its lower-case letters along, `HTTPServer` is `HTTP` `Server`."""
    words: list[tuple[str, str]] = []
    at = 0
    while at < len(text):
        kind, end = _word_kind(text[at]), at + 1
        if kind == "upper":
            end = _capitalised_end(text, at)
        else:
            while end < len(text) and _continues(kind, text[end]):
                end += 1
        words.append((kind, text[at:end]))
        at = end
    return words


def _word_kind(char: str) -> str:
    category = unicodedata.category(char)
    if _connects(char):
        return "connector"
    if category[0] == "P":
        return "punctuation"
    if category == "Lu":
        return "upper"
    if category[0] == "L" and not _is_ideograph(char):
        return "letters"
    return "number" if category[0] == "N" else "other"


def _is_ideograph(char: str) -> bool:
    """Scripts without upper and lower case do not count as letters here."""
    return char.upper() == char.lower()


def _continues(kind: str, char: str) -> bool:
    return _word_kind(char) == kind


def _capitalised_end(text: str, at: int) -> int:
    end = at + 1
    if end == len(text):
        return end
    if _word_kind(text[end]) == "upper":
        while end < len(text) and _word_kind(text[end]) == "upper":
            end += 1
        if end < len(text) and _word_kind(text[end]) == "letters":
            end -= 1
        return end
    while end < len(text) and _word_kind(text[end]) == "letters":
        end += 1
    return end
