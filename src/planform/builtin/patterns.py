"""Regular expressions in Go's syntax: no look-around, no back-references, and linear in time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import re2

from planform.errors import FieldError
from planform.machinery.names import invalid

_QUIET: Final = re2.Options()
_QUIET.log_errors = False


def compile_pattern(pattern: str) -> Any:
    """The compiled pattern, with the methods of `re`. Raises ValueError."""
    try:
        return re2.compile(pattern, _QUIET)
    except (re2.error, UnicodeEncodeError) as error:
        text = error.args[0] if error.args else error
        detail = text.decode(errors="replace") if isinstance(text, bytes) else str(text)
        raise ValueError(f"error parsing regexp: {detail}") from None


def pattern_errors(path: str, pattern: str) -> Iterator[FieldError]:
    """The error of a pattern that does not compile."""
    try:
        compile_pattern(pattern)
    except ValueError as error:
        yield invalid(path, pattern, str(error))
