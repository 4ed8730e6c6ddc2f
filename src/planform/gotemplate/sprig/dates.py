"""Dates and durations. Now is what the render's clock says; local time is that of the render's zone."""

from __future__ import annotations

import re
from datetime import UTC, tzinfo
from typing import Final

from planform.gotemplate.errors import CallFailed
from planform.gotemplate.functions import Library
from planform.gotemplate.gotime import (
    SECOND,
    ZERO_NANOSECONDS,
    Time,
    format_duration,
    format_time,
    load_zone,
    parse_duration,
    parse_time,
)
from planform.gotemplate.runtime import State
from planform.gotemplate.values import INT64_MAX, INT64_MIN, Int, Value, wrap_int64

dates: Final = Library()

_ROUNDED: Final = (
    ("y", 365 * 86400 * SECOND),
    ("mo", 30 * 86400 * SECOND),
    ("d", 86400 * SECOND),
    ("h", 3600 * SECOND),
    ("m", 60 * SECOND),
    ("s", SECOND),
)


def _local_zone(state: State) -> tzinfo:
    return load_zone(state.zone) or UTC


@dates.add("func() time.Time", stateful=True)
def now(state: State) -> Time:
    return Time(int(state.clock() * SECOND), _local_zone(state))


def _as_time(state: State, value: Value) -> Time:
    """A time as it is, seconds since 1970, and for everything else the present."""
    if isinstance(value, Time):
        return value
    if type(value) in (int, Int):
        return Time(value * SECOND, _local_zone(state))
    return now(state)


@dates.add("func(string, interface {}) string", stateful=True)
def date(state: State, layout: str, value: Value) -> str:
    return format_time(_as_time(state, value).shown_in(_local_zone(state)), layout)


@dates.add("func(string, interface {}, string) string", "dateInZone", "date_in_zone", stateful=True)
def date_in_zone(state: State, layout: str, value: Value, zone: str) -> str:
    chosen = _local_zone(state) if zone == "Local" else load_zone(zone) or UTC
    return format_time(_as_time(state, value).shown_in(chosen), layout)


@dates.add("func(interface {}) string", "htmlDate", stateful=True)
def html_date(state: State, value: Value) -> str:
    return date(state, "2006-01-02", value)


@dates.add("func(interface {}, string) string", "htmlDateInZone", stateful=True)
def html_date_in_zone(state: State, value: Value, zone: str) -> str:
    return date_in_zone(state, "2006-01-02", value, zone)


@dates.add("func(string, time.Time) (time.Time, error)", "mustDateModify", "must_date_modify")
def must_date_modify(duration_text: str, time: Time) -> Time:
    return Time(time.nanoseconds + parse_duration(duration_text), time.zone)


@dates.add("func(string, time.Time) time.Time", "dateModify", "date_modify")
def date_modify(duration_text: str, time: Time) -> Time:
    try:
        return must_date_modify(duration_text, time)
    except CallFailed:
        return time


@dates.add("func(string, string) (time.Time, error)", "mustToDate", stateful=True)
def must_to_date(state: State, layout: str, text: str) -> Time:
    return parse_time(layout, text, _local_zone(state))


@dates.add("func(string, string) time.Time", "toDate", stateful=True)
def to_date(state: State, layout: str, text: str) -> Time:
    try:
        return must_to_date(state, layout, text)
    except CallFailed:
        return Time(ZERO_NANOSECONDS)


@dates.add("func(time.Time) string", "unixEpoch")
def unix_epoch(time: Time) -> str:
    return str(time.unix)


@dates.add("func(interface {}) string", stateful=True)
def ago(state: State, value: Value) -> str:
    passed = now(state).nanoseconds - _as_time(state, value).nanoseconds
    whole = (abs(passed) + SECOND // 2) // SECOND * SECOND
    return format_duration(whole if passed >= 0 else -whole)


@dates.add("func(interface {}) string")
def duration(value: Value) -> str:
    """Seconds, as a number or a string of digits, in hours, minutes and seconds."""
    seconds = 0
    if isinstance(value, str):
        seconds = max(INT64_MIN, min(INT64_MAX, int(value[:40]))) if re.fullmatch("[+-]?[0-9]+", value) else 0
    elif type(value) is int:
        seconds = value
    return format_duration(wrap_int64(seconds * SECOND))


@dates.add("func(interface {}) string", "durationRound", stateful=True)
def duration_round(state: State, value: Value) -> str:
    """The largest unit that fits."""
    nanoseconds = 0
    if isinstance(value, str):
        try:
            nanoseconds = parse_duration(value)
        except CallFailed:
            nanoseconds = 0
    elif type(value) is int:
        nanoseconds = value
    elif isinstance(value, Time):
        nanoseconds = now(state).nanoseconds - value.nanoseconds
    size = abs(nanoseconds)
    return next((f"{size // unit}{name}" for name, unit in _ROUNDED if size > unit), "0s")
