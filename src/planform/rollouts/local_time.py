"""From a wall clock somewhere to moments in time, also on the days when that clock is set forward or back."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import lru_cache
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

_MICROSECOND = timedelta(microseconds=1)


@lru_cache(maxsize=64)
def time_zone(name: str) -> ZoneInfo:
    """The zone of this name. Raises ValueError if there is none."""
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:  # OSError: the name of a directory
        raise ValueError(f'there is no time zone "{name}"') from error


def first_moment(wall: datetime, zone: ZoneInfo) -> datetime:
    """The first moment at which the clock shows this time or a later one of the same day.

    A time that is skipped is reached when the clock is set forward; of one that comes twice it is the first.
    """
    before, after = _readings(wall, zone)
    return _change(after, before, wall, zone) if after < before else before


def last_moment(wall: datetime, zone: ZoneInfo) -> datetime:
    """As `first_moment`, but of a time that comes twice the second."""
    before, after = _readings(wall, zone)
    return _change(after, before, wall, zone) if after < before else after


def _readings(wall: datetime, zone: ZoneInfo) -> tuple[datetime, datetime]:
    """The moment that is meant with the offset from before a change, and with that from after it: the same moment but
    for times that come twice (the second is later) or never (it is earlier)."""
    return wall.replace(tzinfo=zone, fold=0).astimezone(UTC), wall.replace(tzinfo=zone, fold=1).astimezone(UTC)


def _change(low: datetime, high: datetime, wall: datetime, zone: ZoneInfo) -> datetime:
    """When the clock was set forward over `wall`: before that it showed less, from then on more."""
    while high - low > _MICROSECOND:
        middle = low + (high - low) / 2
        if middle.astimezone(zone).replace(tzinfo=None) < wall:
            low = middle
        else:
            high = middle
    return high
