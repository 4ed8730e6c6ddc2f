"""RolloutPolicies, and ChangeWindows with when they are open in the two weeks to come."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, time, timedelta, tzinfo
from typing import Any, Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from planform.api.kinds import Object
from planform.web import rows
from planform.web.answers import Policies, PolicyRow, WindowRow, WindowSpan
from planform.web.context import Looker
from planform.web.mirror import ROLLOUT_POLICY

DAYS: Final = 14
_NAMES: Final = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")


async def policies(looker: Looker) -> Policies:
    mirror = looker.mirror
    now = mirror.now().astimezone(UTC)
    begin = now.replace(hour=0, minute=0, second=0, microsecond=0)
    end = begin + timedelta(days=DAYS)
    return Policies(
        policies=tuple(_policy(each) for _, each in sorted(mirror.objects["policies"].items())),
        windows=tuple(_window(each, now, begin, end) for _, each in sorted(mirror.objects["windows"].items())),
        served=await looker.upstream.serves(ROLLOUT_POLICY),
        begin=begin.isoformat(),
        end=end.isoformat(),
    )


def _policy(policy: Object) -> PolicyRow:
    spec = rows.mapping(policy.get("spec"))
    waves = [rows.mapping(each) for each in rows.sequence(spec.get("waves"))]
    return PolicyRow(
        name=rows.text(policy["metadata"].get("name")),
        selects=selects(rows.mapping(spec.get("for"))),
        start=rows.text(spec.get("start")) or "Automatic",
        waves=tuple(_wave(each) for each in waves) or ("rest",),
        gates=tuple(rows.text(rows.mapping(each).get("name")) for each in rows.sequence(spec.get("gates"))),
        conditions=rows.conditions_of(policy),
    )


def _wave(wave: Mapping[str, Any]) -> str:
    percent = ", ".join(f"{rows.number(each)} %" for each in rows.sequence(wave.get("percent")))
    notes = [part for part in (percent, f"soak {wave['soak']}" if wave.get("soak") else "") if part]
    return rows.text(wave.get("name")) + (f" ({'; '.join(notes)})" if notes else "")


def selects(chosen: Mapping[str, Any]) -> str:
    """A selector in words: `compositions tier=prod; functions function-kcl`."""
    parts = []
    for what, how in chosen.items():
        names = ", ".join(rows.text(each) for each in rows.sequence(rows.mapping(how).get("names")))
        labels = ", ".join(
            f"{key}={value}" for key, value in rows.mapping(rows.mapping(how).get("matchLabels")).items()
        )
        parts.append(f"{what} {names or labels or 'all'}")
    return "; ".join(parts) or "everything"


def _window(window: Object, now: datetime, begin: datetime, end: datetime) -> WindowRow:
    spec, status = rows.mapping(window.get("spec")), rows.mapping(window.get("status"))
    spans = list(spans_of(spec, begin, end))
    is_open = status.get("open") if isinstance(status.get("open"), bool) else any(a <= now < b for a, b in spans)
    edges = [edge for span in spans for edge in span if edge > now]
    told = rows.text(status.get("nextClose") or status.get("nextOpen"))
    return WindowRow(
        name=rows.text(window["metadata"].get("name")),
        effect=rows.text(spec.get("effect")) or "Allow",
        selects=selects(rows.mapping(spec.get("for"))),
        time_zone=rows.text(spec.get("timeZone")) or "UTC",
        open=bool(is_open),
        reason=rows.text(status.get("reason")),
        next=told or (min(edges).isoformat() if edges else ""),
        spans=tuple(WindowSpan(begin=a.isoformat(), end=b.isoformat()) for a, b in spans),
    )


def spans_of(spec: Mapping[str, Any], begin: datetime, end: datetime) -> Iterator[tuple[datetime, datetime]]:
    """When a window is open between two moments: wall-clock times of its zone, whatever the clocks there do."""
    zone = _zone(rows.text(spec.get("timeZone")) or "UTC")
    once = rows.mapping(spec.get("once"))
    if once:
        yield from _clipped(_moment(once.get("from")) or begin, _moment(once.get("to")) or end, begin, end)
    for rule in map(rows.mapping, rows.sequence(spec.get("recurring"))):
        days = {rows.text(each)[:3] for each in rows.sequence(rule.get("days"))} or set(_NAMES)
        first, last = _clock(rule.get("from"), time.min), _clock(rule.get("to"), time.max)
        day = begin.astimezone(zone).date() - timedelta(days=1)
        while day <= end.astimezone(zone).date():
            if _NAMES[day.weekday()] in days:
                a = datetime.combine(day, first, zone)
                b = datetime.combine(day + timedelta(days=1) if last <= first else day, last, zone)
                yield from _clipped(a.astimezone(UTC), b.astimezone(UTC), begin, end)
            day += timedelta(days=1)


def _clipped(a: datetime, b: datetime, begin: datetime, end: datetime) -> Iterator[tuple[datetime, datetime]]:
    a, b = max(a, begin), min(b, end)
    if a < b:
        yield a, b


def _zone(name: str) -> tzinfo:
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return UTC


def _clock(value: object, default: time) -> time:
    try:
        return time.fromisoformat(rows.text(value))
    except ValueError:
        return default


def _moment(value: object) -> datetime | None:
    try:
        found = datetime.fromisoformat(rows.text(value))
    except ValueError:
        return None
    return found if found.tzinfo is not None else found.replace(tzinfo=UTC)
