"""Points in time and durations as Go has them: layouts by example, nanoseconds, zones by name."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from functools import lru_cache
from typing import ClassVar, Final, NoReturn
from zoneinfo import ZoneInfo

from planform.gotemplate.errors import CallFailed
from planform.gotemplate.quoting import quote
from planform.gotemplate.values import Int, Record, Value

SECOND: Final = 1_000_000_000
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MONTHS: Final = (
    *("January", "February", "March", "April", "May", "June"),
    *("July", "August", "September", "October", "November", "December"),
)
_DAYS: Final = ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"]
_ELEMENT: Final = re.compile(
    r"January|Jan(?![a-z])|Monday|Mon(?![a-z])|MST|002|0[1-6]|15|1|2006|__2|_2(?!006)|2|3|4|5|PM|pm"
    r"|-070000|-07:00:00|-0700|-07:00|-07|Z070000|Z07:00:00|Z0700|Z07:00|Z07|[.,](?:0+|9+)(?![0-9])"
)
_CYCLE: Final = 146_097 * 86_400  # seconds of 400 years
_FIRST_SAFE: Final = int((datetime(2, 1, 1, tzinfo=UTC) - _EPOCH).total_seconds())
_LAST_SAFE: Final = int((datetime(9998, 1, 1, tzinfo=UTC) - _EPOCH).total_seconds())
ZERO_NANOSECONDS: Final = int((datetime(1, 1, 1, tzinfo=UTC) - _EPOCH).total_seconds()) * SECOND


class Time(Record):
    """Go's time.Time: nanoseconds since 1970 and the zone in which it is shown."""

    go_type: ClassVar[str] = "time.Time"
    __slots__ = ("nanoseconds", "zone")

    def __init__(self, nanoseconds: int, zone: tzinfo = UTC) -> None:
        self.nanoseconds = nanoseconds
        self.zone = zone

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Time) and (self.nanoseconds, self.zone) == (other.nanoseconds, other.zone)

    def __hash__(self) -> int:
        return hash(self.nanoseconds)

    @property
    def unix(self) -> int:
        return self.nanoseconds // SECOND

    def local(self) -> datetime:
        """The calendar date and time, whole seconds, in its zone; in another year if Python does not have this one."""
        return (_EPOCH + timedelta(seconds=self.unix - self.cycles * _CYCLE)).astimezone(self.zone)

    @property
    def cycles(self) -> int:
        """How many times 400 years, after which the calendar repeats, `local` is off."""
        if _FIRST_SAFE <= self.unix < _LAST_SAFE:
            return 0
        return (self.unix - _FIRST_SAFE) // _CYCLE

    @property
    def year(self) -> int:
        return self.local().year + 400 * self.cycles

    def shown_in(self, zone: tzinfo) -> Time:
        return Time(self.nanoseconds, zone)

    def go_string(self) -> str:
        return format_time(self, "2006-01-02 15:04:05.999999999 -0700 MST")

    def go_json(self) -> str:
        return format_time(self, "2006-01-02T15:04:05.999999999Z07:00")

    methods: ClassVar[Mapping[str, tuple[Callable[..., Value], tuple[str, ...]]]] = {
        "Format": (lambda self, layout: format_time(self, layout), ("string",)),
        "String": (lambda self: self.go_string(), ()),
        "Unix": (lambda self: self.unix, ()),
        "UnixMilli": (lambda self: self.nanoseconds // 1_000_000, ()),
        "UnixNano": (lambda self: self.nanoseconds, ()),
        "Year": (lambda self: Int(self.year), ()),
        "Day": (lambda self: Int(self.local().day), ()),
        "YearDay": (lambda self: Int(self.local().timetuple().tm_yday), ()),
        "Hour": (lambda self: Int(self.local().hour), ()),
        "Minute": (lambda self: Int(self.local().minute), ()),
        "Second": (lambda self: Int(self.local().second), ()),
        "Nanosecond": (lambda self: Int(self.nanoseconds % SECOND), ()),
        "IsZero": (lambda self: self.nanoseconds == ZERO_NANOSECONDS, ()),
        "UTC": (lambda self: self.shown_in(UTC), ()),
        "Before": (lambda self, other: self.nanoseconds < other.nanoseconds, ("time.Time",)),
        "After": (lambda self, other: self.nanoseconds > other.nanoseconds, ("time.Time",)),
        "Equal": (lambda self, other: self.nanoseconds == other.nanoseconds, ("time.Time",)),
    }


@lru_cache(maxsize=256)
def load_zone(name: str) -> tzinfo | None:
    """A zone by its name in the time zone database; None if there is none."""
    if name in ("", "UTC"):
        return UTC
    try:
        return ZoneInfo(name)
    except (ValueError, OSError, KeyError):
        return None


# --- layouts ---------------------------------------------------------------------------------------------------------


def format_time(time: Time, layout: str) -> str:
    """The time written as the layout writes Mon Jan 2 15:04:05 2006."""
    local, nanosecond, year = time.local(), time.nanoseconds % SECOND, time.year
    return _ELEMENT.sub(lambda match: _format_element(match[0], local, nanosecond, year), layout)


def _format_element(element: str, local: datetime, nanosecond: int, year: int) -> str:
    if element == "2006":
        return f"{year:04d}" if year >= 0 else f"-{-year:04d}"
    simple = _FORMATS.get(element)
    if simple is not None:
        return simple(local)
    if element[0] in ".,":
        digits = f"{nanosecond:09d}"[: len(element) - 1].ljust(len(element) - 1, "0")
        if element[1] == "0":
            return element[0] + digits
        digits = digits.rstrip("0")
        return element[0] + digits if digits else ""
    return _format_offset(element, local)


def _format_offset(element: str, local: datetime) -> str:
    offset = int((local.utcoffset() or timedelta()).total_seconds())
    if element[0] == "Z" and offset == 0:
        return "Z"
    seconds = abs(offset)
    parts = [f"{seconds // 3600:02d}", f"{seconds // 60 % 60:02d}", f"{seconds % 60:02d}"]
    shape = element[1:]
    separator = ":" if ":" in shape else ""
    return ("-" if offset < 0 else "+") + separator.join(parts[: len(shape.replace(":", "")) // 2])


_FORMATS: Final[Mapping[str, Callable[[datetime], str]]] = {
    "January": lambda t: _MONTHS[t.month - 1],
    "Jan": lambda t: _MONTHS[t.month - 1][:3],
    "1": lambda t: str(t.month),
    "01": lambda t: f"{t.month:02d}",
    "Monday": lambda t: _DAYS[t.weekday()],
    "Mon": lambda t: _DAYS[t.weekday()][:3],
    "2": lambda t: str(t.day),
    "_2": lambda t: f"{t.day:2d}",
    "02": lambda t: f"{t.day:02d}",
    "__2": lambda t: f"{t.timetuple().tm_yday:3d}",
    "002": lambda t: f"{t.timetuple().tm_yday:03d}",
    "15": lambda t: f"{t.hour:02d}",
    "3": lambda t: str((t.hour + 11) % 12 + 1),
    "03": lambda t: f"{(t.hour + 11) % 12 + 1:02d}",
    "4": lambda t: str(t.minute),
    "04": lambda t: f"{t.minute:02d}",
    "5": lambda t: str(t.second),
    "05": lambda t: f"{t.second:02d}",
    "06": lambda t: f"{t.year % 100:02d}",
    "PM": lambda t: "PM" if t.hour >= 12 else "AM",
    "pm": lambda t: "pm" if t.hour >= 12 else "am",
    "MST": lambda t: _abbreviation(t),
}


def _abbreviation(local: datetime) -> str:
    name = local.tzname() or ""
    if name and not name.startswith("UTC"):
        return name
    return _format_offset("-0700", local) if local.utcoffset() else "UTC"


# --- parsing ---------------------------------------------------------------------------------------------------------

_PATTERNS: Final[Mapping[str, str]] = {
    "2006": r"\d{4}",
    "06": r"\d{2}",
    "01": r"\d{2}",
    "1": r"\d{1,2}",
    "02": r"\d{2}",
    "2": r" ?\d{1,2}",
    "_2": r" ?\d{1,2}",
    "002": r"\d{3}",
    "__2": r" {0,2}\d{1,3}",
    "15": r"\d{1,2}",
    "03": r"\d{2}",
    "3": r"\d{1,2}",
    "04": r"\d{2}",
    "4": r"\d{1,2}",
    "05": r"\d{2}",
    "5": r"\d{1,2}",
    "January": "|".join(_MONTHS),
    "Jan": "|".join(month[:3] for month in _MONTHS),
    "Monday": "|".join(_DAYS),
    "Mon": "|".join(day[:3] for day in _DAYS),
    "PM": "AM|PM",
    "pm": "am|pm",
    "MST": r"UTC|[A-Z]{3,4}|GMT[+-]\d{1,2}|[+-]\d{2}",
    "-0700": r"[+-]\d{4}",
    "-07:00": r"[+-]\d{2}:\d{2}",
    "-07": r"[+-]\d{2}",
    "-070000": r"[+-]\d{6}",
    "-07:00:00": r"[+-]\d{2}:\d{2}:\d{2}",
    "Z0700": r"Z|[+-]\d{4}",
    "Z07:00": r"Z|[+-]\d{2}:\d{2}",
    "Z07": r"Z|[+-]\d{2}",
    "Z070000": r"Z|[+-]\d{6}",
    "Z07:00:00": r"Z|[+-]\d{2}:\d{2}:\d{2}",
}


def parse_time(layout: str, text: str, zone: tzinfo) -> Time:
    """The time that `text` writes in the way of the layout. Raises CallFailed, worded as Go words it."""
    found, rest = {}, text
    at = 0
    for match in _ELEMENT.finditer(layout):
        rest = _skip_literal(layout, text, layout[at : match.start()], rest)
        element, at = match[0], match.end()
        pattern = rf"[.,]\d{{{len(element) - 1}}}" if element[0] in ".," else _PATTERNS[element]
        if element[1:2] == "9" and element[0] in ".,":
            pattern = r"(?:[.,]\d+)?"
        piece = re.match(pattern, rest, re.IGNORECASE if element in ("January", "Jan", "Monday", "Mon") else 0)
        if piece is None:
            _cannot_parse(layout, text, rest, element)
        found[element] = piece[0]
        rest = rest[piece.end() :]
        if element in ("5", "05") and not re.match(r"[.,][09]", layout[at:]) and (extra := re.match(r"[.,]\d+", rest)):
            found[".9"] = extra[0]  # fractional seconds are accepted where the layout has none
            rest = rest[extra.end() :]
    rest = _skip_literal(layout, text, layout[at:], rest)
    if rest:
        raise CallFailed(f"parsing time {quote(text)}: extra text: {quote(rest)}")
    return _assemble(found, text, zone)


def _skip_literal(layout: str, text: str, literal: str, rest: str) -> str:
    """Go lets a space in the layout stand for any number of spaces."""
    for index, char in enumerate(literal):
        if char == " ":
            if rest and rest[0] != " ":
                _cannot_parse(layout, text, rest, literal[index:])
            rest = rest.lstrip(" ")
        elif rest[:1] == char:
            rest = rest[1:]
        else:
            _cannot_parse(layout, text, rest, literal[index:])
    return rest


def _cannot_parse(layout: str, text: str, rest: str, element: str) -> NoReturn:
    raise CallFailed(f"parsing time {quote(text)} as {quote(layout)}: cannot parse {quote(rest)} as {quote(element)}")


def _assemble(found: Mapping[str, str], text: str, zone: tzinfo) -> Time:
    def number(*elements: str, fallback: int = 0) -> int:
        return next((int(found[element]) for element in elements if element in found), fallback)

    year = number("2006", fallback=0)
    if "06" in found:
        year = int(found["06"]) + (1900 if int(found["06"]) >= 69 else 2000)
    month = number("01", "1", fallback=1)
    for element, width in (("January", 99), ("Jan", 3)):
        if element in found:
            month = [name[:width].lower() for name in _MONTHS].index(found[element].lower()) + 1
    day = number("02", "2", "_2", fallback=1)
    hour = number("15", "03", "3")
    half = found.get("PM") or found.get("pm", "")
    if half.upper() == "PM" and hour < 12:
        hour += 12
    elif half.upper() == "AM" and hour == 12:
        hour = 0
    minute, second = number("04", "4"), number("05", "5")
    for name, value, maximum in (
        ("month", month, 12),
        ("hour", hour, 23),
        ("minute", minute, 59),
        ("second", second, 59),
    ):
        if value > maximum or (name == "month" and value < 1):
            raise CallFailed(f"parsing time {quote(text)}: {name} out of range")
    fraction = next((value[1:] for key, value in found.items() if key[0] in ".," and value), "")
    nanosecond = int(fraction[:9].ljust(9, "0")) if fraction else 0
    try:
        local = datetime(max(year, 1), month, day, hour, minute, second, tzinfo=_zone_of(found, zone))
    except ValueError:
        raise CallFailed(f"parsing time {quote(text)}: day out of range") from None
    seconds = int((local - _EPOCH).total_seconds())
    if year == 0:  # Go's year 0 is a leap year before the first that Python has
        seconds -= 366 * 86400
    return Time(seconds * SECOND + nanosecond, local.tzinfo or UTC)


def _zone_of(found: Mapping[str, str], zone: tzinfo) -> tzinfo:
    for element, value in found.items():
        if element[0] in "-Z":
            if value == "Z":
                return UTC
            digits = value[1:].replace(":", "").ljust(6, "0")
            seconds = int(digits[:2]) * 3600 + int(digits[2:4]) * 60 + int(digits[4:6])
            return UTC if seconds == 0 else timezone(timedelta(seconds=-seconds if value[0] == "-" else seconds), "")
    name = found.get("MST", "")
    if name == "UTC":
        return UTC
    return timezone(timedelta(0), name) if name else zone


# --- durations -------------------------------------------------------------------------------------------------------

_UNITS: Final = {"ns": 1, "us": 1_000, "µs": 1_000, "μs": 1_000, "ms": 1_000_000, "s": SECOND, "m": 60 * SECOND}
_UNITS["h"] = 3600 * SECOND
_PART: Final = re.compile(r"(\d*)(\.(\d*))?([^\d.]*)")


def parse_duration(text: str) -> int:
    """Nanoseconds of `1h30m`. Raises CallFailed."""
    body = text.lstrip("+-") if text[:1] in ("+", "-") and text[1:2] not in ("+", "-") else text
    if body == "0":
        return 0
    total, at = 0, 0
    while at < len(body) or not body:
        match = _PART.match(body, at)
        if match is None or not (match[1] or match[3]):
            raise CallFailed(f"time: invalid duration {quote(text)}")
        if not match[4]:
            raise CallFailed(f"time: missing unit in duration {quote(text)}")
        unit = _UNITS.get(match[4])
        if unit is None:
            raise CallFailed(f"time: unknown unit {quote(match[4])} in duration {quote(text)}")
        total += int(match[1] or 0) * unit
        if match[3]:
            total += int(match[3]) * unit // 10 ** len(match[3])
        if total > 1 << 63:
            raise CallFailed(f"time: invalid duration {quote(text)}")
        at = match.end()
    return -total if text[:1] == "-" else total


def format_duration(nanoseconds: int) -> str:
    """`1h30m0s`, or one unit if it is below a second."""
    if nanoseconds == 0:
        return "0s"
    sign, rest = ("-" if nanoseconds < 0 else ""), abs(nanoseconds)
    if rest < SECOND:
        unit, size = next((u, s) for u, s in (("ms", 1_000_000), ("µs", 1_000), ("ns", 1)) if rest >= s)
        return f"{sign}{_decimal(rest, size)}{unit}"
    minutes, rest = divmod(rest, 60 * SECOND)
    hours, minutes = divmod(minutes, 60)
    text = f"{_decimal(rest, SECOND)}s"
    if hours or minutes:
        text = f"{minutes}m{text}"
    return f"{sign}{hours}h{text}" if hours else sign + text


def _decimal(value: int, size: int) -> str:
    whole, fraction = divmod(value, size)
    digits = f"{fraction:0{len(str(size)) - 1}d}".rstrip("0") if size > 1 else ""
    return f"{whole}.{digits}" if digits else str(whole)
