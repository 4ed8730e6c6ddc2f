"""When a CronOperation is due: cron schedules of five fields, in UTC, as pure values.

Fields are minute, hour, day of the month, month and day of the week, each a list of numbers, names, ranges and steps.
As every cron has it, a day must meet both day fields if one of them begins with a star, and either of them otherwise.
UTC knows no summer time, so no run is ever skipped or doubled.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from calendar import monthrange
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Final, Protocol

from planform.errors import PlanformError
from planform.gotemplate.errors import CallFailed
from planform.gotemplate.gotime import parse_duration

_YEARS_AHEAD: Final = 41
"""No schedule that runs at all waits longer: the rarest is a 29th of February on one day of the week, across 2100."""

_MACROS: Final = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
_MONTHS: Final = dict(
    zip(("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"), range(1, 13), strict=True)
)
_WEEKDAYS: Final = dict(zip(("sun", "mon", "tue", "wed", "thu", "fri", "sat"), range(7), strict=True))
_MAX_LENGTH: Final = {month: monthrange(2024, month)[1] for month in range(1, 13)}  # 2024 has a 29th of February
_PART: Final = re.compile(r"(?P<from>[*?]|\w+)(?:-(?P<to>\w+))?(?:/(?P<step>\d+))?")


class ScheduleInvalid(PlanformError):
    """The text is not a schedule, or one that never comes."""

    reason = "ScheduleInvalid"
    hint = 'write minute, hour, day, month and weekday, as in "30 2 * * mon-fri", or a word such as @daily'

    def __init__(self, text: str, problem: str) -> None:
        super().__init__(f'schedule "{text}": {problem}')


class Schedule(Protocol):
    """Moments in time, in whole seconds of UTC."""

    def next(self, after: datetime, /) -> datetime:
        """The first one later than `after`."""
        ...

    def latest(self, after: datetime, until: datetime, /) -> datetime | None:
        """The last one later than `after` and not later than `until`; None if there is none."""
        ...


def parse_schedule(text: str) -> Schedule:
    """Read a schedule. Raises ScheduleInvalid with the field that is wrong."""
    words = text.split()
    if words and words[0].lower().startswith(("tz=", "cron_tz=")):
        raise ScheduleInvalid(text, "a time zone cannot be given: schedules are in UTC")
    if words and words[0] == "@every":
        return _every(text, words[1:])
    if text.strip().startswith("@"):
        if text.strip() not in _MACROS:
            raise ScheduleInvalid(text, f"is none of {', '.join(_MACROS)} and @every")
        words = _MACROS[text.strip()].split()
    if len(words) != 5:
        raise ScheduleInvalid(text, f"has {len(words)} fields, not 5")
    minutes = _field(text, "minute", words[0], 0, 59)
    hours = _field(text, "hour", words[1], 0, 23)
    days = _field(text, "day of the month", words[2], 1, 31)
    months = _field(text, "month", words[3], 1, 12, _MONTHS)
    weekdays = frozenset(day % 7 for day in _field(text, "day of the week", words[4], 0, 7, _WEEKDAYS, end=6))
    either = not words[2].startswith(("*", "?")) and not words[4].startswith(("*", "?"))
    if not either and not any(day <= _MAX_LENGTH[month] for month in months for day in days):
        raise ScheduleInvalid(text, "never comes: no month of it has such a day")
    times = tuple(hour * 60 + minute for hour in sorted(hours) for minute in sorted(minutes))
    return _Cron(times, days, months, weekdays, either)


@dataclass(frozen=True, slots=True)
class _Cron:
    times: tuple[int, ...]
    """Minutes since midnight, in order; never empty."""
    days: frozenset[int]
    months: frozenset[int]
    weekdays: frozenset[int]
    either: bool

    def next(self, after: datetime, /) -> datetime:
        start = after.astimezone(UTC)
        today = start.date()
        for day in self._days(today, 1):
            index = bisect_right(self.times, start.hour * 60 + start.minute) if day == today else 0
            if index < len(self.times):
                return _moment(day, self.times[index])
        raise AssertionError("a schedule that can come was parsed")

    def latest(self, after: datetime, until: datetime, /) -> datetime | None:
        end = until.astimezone(UTC)
        today = end.date()
        for day in self._days(today, -1):
            index = bisect_right(self.times, end.hour * 60 + end.minute) if day == today else len(self.times)
            if index:
                found = _moment(day, self.times[index - 1])
                return found if found > after else None
        return None

    def _days(self, first: date, direction: int) -> Iterator[date]:
        """Days on which it runs, from `first` on into the future or the past."""
        year, month, day = first.year, first.month, first.day
        for _ in range(_YEARS_AHEAD * 12):
            if month in self.months:
                last = monthrange(year, month)[1]
                for number in range(day, last + 1) if direction > 0 else range(min(day, last), 0, -1):
                    if self._runs_on(found := date(year, month, number)):
                        yield found
            month += direction
            if not 1 <= month <= 12:
                year, month = year + direction, 1 if direction > 0 else 12
            day = 1 if direction > 0 else 31

    def _runs_on(self, day: date) -> bool:
        in_month, in_week = day.day in self.days, day.isoweekday() % 7 in self.weekdays
        return (in_month or in_week) if self.either else (in_month and in_week)


@dataclass(frozen=True, slots=True)
class _Every:
    """A fixed distance from the last run."""

    interval: timedelta

    def next(self, after: datetime, /) -> datetime:
        return after.astimezone(UTC).replace(microsecond=0) + self.interval

    def latest(self, after: datetime, until: datetime, /) -> datetime | None:
        start = after.astimezone(UTC).replace(microsecond=0)
        rounds = (until - start) // self.interval
        return start + rounds * self.interval if rounds > 0 else None


def _every(text: str, words: list[str]) -> _Every:
    try:
        seconds = parse_duration(words[0]) // 1_000_000_000 if len(words) == 1 else 0
    except CallFailed:
        seconds = 0
    if seconds < 1:
        raise ScheduleInvalid(text, 'needs a duration of a second or more, such as "@every 1h30m"')
    return _Every(timedelta(seconds=seconds))


def _field(
    text: str,
    name: str,
    field: str,
    minimum: int,
    maximum: int,
    names: Mapping[str, int] | None = None,
    *,
    end: int | None = None,
) -> frozenset[int]:
    """The numbers that one field means. `end` is where open ranges end, if not at `maximum`: Sunday is 0, and also
    7."""
    end = maximum if end is None else end
    found: set[int] = set()
    for part in field.split(","):
        match = _PART.fullmatch(part)
        if match is None:
            raise ScheduleInvalid(text, f'{name} "{part}" is not a number, a range or a step')
        first, last, step = match["from"], match["to"], match["step"]
        if first in ("*", "?"):
            if last is not None:
                raise ScheduleInvalid(text, f'{name} "{part}" is not a number, a range or a step')
            low, high = minimum, end
        else:
            low = _number(text, name, first, minimum, maximum, names or {})
            high = _number(text, name, last, minimum, maximum, names or {}) if last else (end if step else low)
        if low > high:
            raise ScheduleInvalid(text, f'{name} "{part}" goes backwards')
        if step is not None and int(step) < 1:
            raise ScheduleInvalid(text, f'{name} "{part}" has a step of 0')
        found.update(range(low, high + 1, int(step or 1)))
    return frozenset(found)


def _number(text: str, name: str, word: str, minimum: int, maximum: int, names: Mapping[str, int]) -> int:
    value = names.get(word.lower(), int(word) if word.isdecimal() else -1)
    if not minimum <= value <= maximum:
        raise ScheduleInvalid(text, f'{name} "{word}" is not between {minimum} and {maximum}')
    return value


def _moment(day: date, minutes: int) -> datetime:
    return datetime(day.year, day.month, day.day, minutes // 60, minutes % 60, tzinfo=UTC)
