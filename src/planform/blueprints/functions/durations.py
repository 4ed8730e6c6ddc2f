"""Times that arguments give: Go's durations (`1m30s`), or plain seconds."""

from __future__ import annotations

from planform.blueprints.arguments import Arguments
from planform.blueprints.errors import ArgumentInvalid
from planform.gotemplate.errors import CallFailed
from planform.gotemplate.gotime import parse_duration


def seconds_of(args: Arguments, name: str, default: float | None = None) -> float:
    """The argument in seconds; without a default it has to be there. Negative times are refused."""
    if default is not None and args.get(name) in (None, ""):
        return default
    text = args.text(name).strip()
    try:
        seconds = float(text) if text.replace(".", "", 1).isdecimal() else parse_duration(text) / 1e9
    except CallFailed:
        raise ArgumentInvalid(f'{args.of}: argument "{name}" is no duration such as 90s or 5m: {text!r}') from None
    if seconds < 0:
        raise ArgumentInvalid(f'{args.of}: argument "{name}" must not be negative: {text!r}')
    return seconds
