"""How old something is, as kubectl prints it: short, coarse, and coarser the older it gets."""

from __future__ import annotations

from datetime import UTC, datetime

UNKNOWN = "<unknown>"
INVALID = "<invalid>"

_MINUTE, _HOUR, _DAY, _YEAR = 60, 3600, 86_400, 31_536_000


def human_duration(seconds: float) -> str:
    """`95s`, `4m10s`, `3h5m`, `2d4h`, `400d`, `3y12d`: two units while the second one still says something.

    A clock may be a second ahead of ours, so up to a second in the future is `0s`; beyond that it is `<invalid>`.
    """
    whole = int(seconds)
    if whole < -1:
        return INVALID
    if whole < 2 * _MINUTE:
        return f"{max(whole, 0)}s"
    if whole < 10 * _MINUTE:
        return _two(whole, _MINUTE, "m", 1, "s")
    if whole < 3 * _HOUR:
        return f"{whole // _MINUTE}m"
    if whole < 8 * _HOUR:
        return _two(whole, _HOUR, "h", _MINUTE, "m")
    if whole < 2 * _DAY:
        return f"{whole // _HOUR}h"
    if whole < 8 * _DAY:
        return _two(whole, _DAY, "d", _HOUR, "h")
    if whole < 2 * _YEAR:
        return f"{whole // _DAY}d"
    if whole < 8 * _YEAR:
        return _two(whole, _YEAR, "y", _DAY, "d")
    return f"{whole // _YEAR}y"


def age(timestamp: object, now: datetime) -> str:
    """The cell of a date column: the time since `timestamp`, `<unknown>` without one, `<invalid>` if it is no time."""
    if timestamp is None or timestamp == "":
        return UNKNOWN
    try:
        moment = datetime.fromisoformat(str(timestamp))
    except ValueError:
        return INVALID
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return human_duration((now - moment).total_seconds())


def _two(seconds: int, unit: int, name: str, part: int, part_name: str) -> str:
    rest = seconds % unit // part
    return f"{seconds // unit}{name}{rest}{part_name}" if rest else f"{seconds // unit}{name}"
