"""Regular expressions in Go's syntax: no look-around, no back-references, and linear in time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import re2

from planform.apimachinery.names import invalid
from planform.errors import FieldError

_QUIET: Final = re2.Options()
_QUIET.log_errors = False
_WORDS: Final = {
    "missing )": "missing closing )",
    "missing ]": "missing closing ]",
    "invalid perl operator": "invalid or unsupported Perl syntax",
    "no argument for repetition operator": "missing argument to repetition operator",
    "bad repetition operator": "invalid nested repetition operator",
    "invalid repetition size": "invalid repeat count",
    "trailing \\": "trailing backslash at end of expression",
}
"""RE2's words where Go has others."""


def compile_pattern(pattern: str) -> Any:
    """The compiled pattern, with the methods of `re`. Raises ValueError."""
    try:
        return re2.compile(pattern, _QUIET)
    except (re2.error, UnicodeEncodeError) as error:
        text = error.args[0] if error.args else error
        detail = text.decode(errors="replace") if isinstance(text, bytes) else str(text)
        raise ValueError(f"error parsing regexp: {_in_words_of_go(detail)}") from None


def _in_words_of_go(detail: str) -> str:
    """What is wrong and the part of the pattern that is, as Go's regexp tells it, which upstream's functions repeat."""
    what, _, part = detail.partition(": ")
    return f"{_WORDS.get(what, what)}: `{part}`" if part else _WORDS.get(what, what)


def pattern_errors(path: str, pattern: str) -> Iterator[FieldError]:
    """The error of a pattern that does not compile."""
    try:
        compile_pattern(pattern)
    except ValueError as error:
        yield invalid(path, pattern, str(error))
