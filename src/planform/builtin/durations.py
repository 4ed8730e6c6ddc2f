"""Durations as inputs write them: `90s`, `1h30m`."""

from __future__ import annotations

from collections.abc import Iterator

from planform.apimachinery.names import invalid
from planform.errors import FieldError
from planform.gotemplate.errors import CallFailed
from planform.gotemplate.gotime import parse_duration


def seconds(text: str) -> float | None:
    """The length in seconds; None if the text is empty. The text must have passed `duration_errors`."""
    return parse_duration(text) / 1e9 if text else None


def duration_errors(path: str, text: str) -> Iterator[FieldError]:
    """The error of a text that is no duration, or a negative one."""
    try:
        if text and parse_duration(text) < 0:
            yield invalid(path, text, "must not be negative")
    except (CallFailed, ValueError) as error:
        yield invalid(path, text, str(error))
