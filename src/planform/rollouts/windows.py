"""When a ChangeWindow is open, and whether the windows of a control plane let an XR be moved now. Pure.

A window's recurring ranges are wall times of its zone. On a day on which the clock is set forward, a time that is
skipped stands for the moment of the change. Where a time comes twice, a range begins with the first; an Allow ends with
the first, a Deny with the last, so that what is frozen stays so.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, timedelta
from functools import lru_cache
from typing import Any, Final, Literal
from zoneinfo import ZoneInfo

import msgspec

from planform.api.rollout_gates import NOT_BEFORE_LABEL, ChangeWindow
from planform.apimachinery.selectors import LabelSelector, SelectorError
from planform.errors import PlanformError
from planform.rollouts.local_time import first_moment, last_moment, time_zone

_DAYS: Final = {name: index for index, name in enumerate(("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"))}
_DAY: Final = timedelta(days=1)
_WEEKS_AHEAD: Final = 3
"""Where the next range is looked for: one that comes every week may be skipped by a change of the clock."""
_STEPS: Final = 256
DEFAULT_MAX_HOLD: Final = timedelta(days=14)


class WindowInvalid(PlanformError):
    """A ChangeWindow says what cannot be. Whoever it is about is not moved until it is mended."""

    reason = "WindowInvalid"


@dataclass(frozen=True)
class Range:
    """A time of day on one day of the week, in minutes; it may end on the next day."""

    day: int
    begin: int
    end: int


@dataclass(frozen=True)
class Window:
    """A ChangeWindow, read."""

    name: str
    effect: Literal["Allow", "Deny"]
    zone: ZoneInfo
    ranges: tuple[Range, ...] = ()
    once: tuple[datetime | None, datetime] | None = None
    namespaces: LabelSelector | None = None
    xrs: LabelSelector | None = None
    why: str = ""
    invalid: str = ""
    """What is wrong with it; such a window is a Deny that never closes."""

    def concerns(self, xr: XrFacts) -> bool:
        """Whether the window is about this XR."""
        if self.namespaces is not None and (
            xr.namespace_labels is None or not self.namespaces.matches(xr.namespace_labels)
        ):
            return False
        return self.xrs is None or self.xrs.matches(xr.labels)


@dataclass(frozen=True)
class XrFacts:
    """What windows ask about an XR: its labels with those of its claim over them, and the labels of the namespace that
    the claim or the XR is in, None if it is in none."""

    labels: Mapping[str, str] = field(default_factory=dict)
    namespace_labels: Mapping[str, str] | None = None


@dataclass(frozen=True)
class WindowState:
    """Whether a window is open, and when that changes; None if it never does."""

    open: bool
    changes: datetime | None


@dataclass(frozen=True)
class Decision:
    """Whether an XR may be moved now. `look_again` is the earliest moment at which that may be otherwise, None if time
    alone changes nothing; `window` is the one that holds it, empty if none does."""

    admitted: bool
    message: str = ""
    window: str = ""
    look_again: datetime | None = None


def parse_window(obj: Mapping[str, Any]) -> Window:
    """Read a ChangeWindow. Raises WindowInvalid."""
    name = str((obj.get("metadata") or {}).get("name") or "")
    try:
        window = msgspec.convert(obj, ChangeWindow, strict=False)
        spec = window.spec
        subjects = spec.for_
        return Window(
            name=name,
            effect=spec.effect,
            zone=time_zone(spec.time_zone or "UTC"),
            ranges=tuple(_ranges(spec.recurring or ())),
            once=(spec.once.from_ or None, spec.once.to) if spec.once else None,
            namespaces=_selector(subjects.namespaces) if subjects else None,
            xrs=_selector(subjects.xrs) if subjects else None,
            why=spec.reason or "",
        )
    except (msgspec.ValidationError, SelectorError, ValueError) as error:
        raise WindowInvalid(f'ChangeWindow "{name}": {error}') from error


def window_of(obj: Mapping[str, Any]) -> Window:
    """Read a ChangeWindow; one that means nothing holds those it is about, and everybody if not even that is known."""
    try:
        return parse_window(obj)
    except WindowInvalid as error:
        name = str((obj.get("metadata") or {}).get("name") or "")
        held = Window(name=name, effect="Deny", zone=time_zone("UTC"), invalid=str(error))
    subjects = obj["spec"].get("for") or {} if isinstance(obj.get("spec"), dict) else {}
    try:
        namespaces, xrs = (
            LabelSelector.from_object(subjects[each]) if each in subjects else None for each in ("namespaces", "xrs")
        )
    except (SelectorError, AttributeError, TypeError):
        return held
    return replace(held, namespaces=namespaces, xrs=xrs)


@lru_cache(maxsize=1024)
def state(window: Window, now: datetime) -> WindowState:
    """Whether the window is open at this moment, and when it closes or opens next."""
    if window.invalid:
        return WindowState(True, None)
    if not any(begin <= now < end for begin, end in _around(window, now)):
        later = [begin for begin, _ in _spans(window, now - _DAY, now + _WEEKS_AHEAD * 7 * _DAY) if begin > now]
        if window.once is not None and window.once[0] is not None and window.once[0] > now:
            later.append(window.once[0])
        return WindowState(False, min(later, default=None))
    # Ranges that touch or overlap are one: it closes where none follows.
    end = now
    for _ in range(_STEPS):
        ends = [last for begin, last in _around(window, end) if begin <= end < last]
        if not ends:
            return WindowState(True, end)
        end = max(ends)
        once_is_over = window.once is None or window.once[1] <= end
        if once_is_over and end - max(now, window.once[1] if window.once else now) > 8 * _DAY:
            break
    return WindowState(True, None)


def admits(
    windows: Iterable[Window],
    xr: XrFacts,
    now: datetime,
    *,
    held_since: datetime | None = None,
    max_hold: timedelta = DEFAULT_MAX_HOLD,
) -> Decision:
    """Whether an XR may be moved at this moment: its owner does not hold it, no Deny that is about it is open, and one
    Allow is, if any is about it. `held_since` is when it could have been moved first: its owner may hold it that much
    longer, and no more."""
    concerned = [window for window in windows if window.concerns(xr)]
    states = [(window, state(window, now)) for window in concerned]
    changes = [each.changes for _, each in states if each.changes is not None]
    held = not_before(xr.labels, held_since or now, max_hold)
    if held is not None and held[0] > now:
        return Decision(False, held[1], look_again=min([*changes, held[0]]))
    look_again = min(changes, default=None)
    for window, found in states:
        if window.effect == "Deny" and found.open:
            return Decision(False, explained(window, found), window.name, look_again)
    allows = [(window, found) for window, found in states if window.effect == "Allow"]
    if allows and not any(found.open for _, found in allows):
        window, found = min(allows, key=lambda each: (each[1].changes is None, each[1].changes or now, each[0].name))
        return Decision(False, explained(window, found), window.name, look_again)
    return Decision(True, look_again=look_again)


def next_admission(
    windows: Sequence[Window],
    xr: XrFacts,
    now: datetime,
    *,
    held_since: datetime | None = None,
    max_hold: timedelta = DEFAULT_MAX_HOLD,
) -> datetime | None:
    """The first moment from now on at which `admits` says yes; None if there is none in sight."""
    concerned, moment = [window for window in windows if window.concerns(xr)], now
    held = not_before(xr.labels, held_since or now, max_hold)
    for _ in range(_STEPS):
        # Straight to the end of whatever holds it: windows that open and close meanwhile change nothing.
        if held is not None and held[0] > moment:
            moment = held[0]
            continue
        states = [(window, state(window, moment)) for window in concerned]
        denied = [found.changes for window, found in states if window.effect == "Deny" and found.open]
        allows = [found for window, found in states if window.effect == "Allow"]
        if not denied and (not allows or any(found.open for found in allows)):
            return moment
        ends = denied or [found.changes for found in allows]
        known = [each for each in ends if each is not None]
        if not known or (denied and None in denied):
            return None
        moment = max(known) if denied else min(known)
    return None


def not_before(labels: Mapping[str, str], since: datetime, max_hold: timedelta) -> tuple[datetime, str] | None:
    """Until when an owner holds their XR, and why, at most `max_hold` from `since`; None without the label."""
    text = labels.get(NOT_BEFORE_LABEL)
    if not text:
        return None
    latest = since + max_hold
    asked = _moment(text)
    if asked is None:  # an owner who mistypes a date wanted to be left alone all the same
        return latest, (
            f'label {NOT_BEFORE_LABEL} is "{text}", which is no date such as 2026-12-24 or 20261224T0800Z: '
            f"held until {_shown(latest)}"
        )
    if asked > latest:
        return latest, f"label {NOT_BEFORE_LABEL} is {text}: held until {_shown(latest)}, as long as the policy allows"
    return asked, f"label {NOT_BEFORE_LABEL} is {text}"


def explained(window: Window, found: WindowState) -> str:
    """In a sentence, what the state of a window means for those it is about."""
    if window.invalid:
        return f"{window.invalid}; nobody is moved until that is mended"
    until = f" until {_shown(found.changes)}" if found.changes is not None else ""
    why = f": {window.why}" if window.why else ""
    if window.effect == "Deny":
        return f'ChangeWindow "{window.name}" {"forbids" if found.open else "does not forbid"} changes{until}{why}'
    if found.open:
        return f'ChangeWindow "{window.name}" allows changes{until}{why}'
    never = "" if until else " and does not open again"
    return f'ChangeWindow "{window.name}" is closed{until}{never}{why}'


def _around(window: Window, moment: datetime) -> Iterator[tuple[datetime, datetime]]:
    """Every range that may hold this moment."""
    yield from _spans(window, moment - _DAY, moment)
    if window.once is not None:
        yield window.once[0] or datetime.min.replace(tzinfo=UTC), window.once[1]


def _spans(window: Window, first: datetime, last: datetime) -> Iterator[tuple[datetime, datetime]]:
    """Recurring ranges that begin on the local days from the one before `first` to the one after `last`."""
    if not window.ranges:
        return
    day = first.astimezone(window.zone).date() - _DAY
    end = last.astimezone(window.zone).date() + _DAY
    closing = last_moment if window.effect == "Deny" else first_moment
    while day <= end:
        for each in window.ranges:
            if each.day == day.weekday():
                opens = first_moment(_wall(day, each.begin), window.zone)
                closes = closing(_wall(day, each.end), window.zone)
                if opens < closes:
                    yield opens, closes
        day += _DAY


def _wall(day: date, minutes: int) -> datetime:
    return datetime(day.year, day.month, day.day) + timedelta(minutes=minutes)


def _ranges(recurring: Iterable[Any]) -> Iterator[Range]:
    for each in recurring:
        begin, end = _minutes(each.from_), _minutes(each.to)
        for day in each.days or _DAYS:
            yield Range(_DAYS[day], begin, end if end > begin else end + 24 * 60)


def _minutes(text: str) -> int:
    hour, _, minute = text.partition(":")
    return int(hour) * 60 + int(minute)


def _selector(declared: Any) -> LabelSelector | None:
    return LabelSelector.from_object(msgspec.to_builtins(declared)) if declared else None


def _moment(text: str) -> datetime | None:
    """What a label can hold of ISO 8601: a day, or a moment without colons."""
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        return None
    return found.astimezone(UTC) if found.tzinfo is not None else found.replace(tzinfo=UTC)


def _shown(moment: datetime) -> str:
    return moment.astimezone(UTC).strftime("%Y-%m-%d %H:%M UTC")
