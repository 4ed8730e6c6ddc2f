"""How long: `30`, `30s`, `10m`, `12h` or `90d` on the command line and in a file of options."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import timedelta
from typing import Any, Final, TypeVar

import click

from planform.errors import UsageError

F = TypeVar("F", bound=Callable[..., Any])
_SECONDS: Final = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}


def parse_duration(text: str) -> timedelta:
    """Raises UsageError for anything that is no time above zero."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([smhd]?)", text)
    if match is None or not float(match[1]):
        raise UsageError(
            f'"{text}" is not a duration', hint="write seconds, minutes, hours or days: 30s, 10m, 12h, 90d"
        )
    try:
        return timedelta(seconds=float(match[1]) * _SECONDS[match[2]])
    except OverflowError as error:
        raise UsageError(f'"{text}" is longer than anybody can wait') from error


def duration_option(name: str, *, default: str, help: str) -> Callable[[F], F]:
    """An option that takes a duration and gives the command seconds."""
    return click.option(name, default=default, show_default=True, metavar="DURATION", callback=_seconds, help=help)


def _seconds(context: click.Context, parameter: click.Parameter, value: object) -> float:
    return parse_duration(str(value)).total_seconds()
