"""ChangeWindows as values: when they are open, in every zone and on the days when clocks change, and whom they hold."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planform.api.kinds import Object
from planform.api.rollout_gates import NOT_BEFORE_LABEL
from planform.rollouts.durations import parse_duration
from planform.rollouts.windows import (
    WindowInvalid,
    XrFacts,
    admits,
    explained,
    next_admission,
    parse_window,
    state,
    window_of,
)

ANYBODY = XrFacts()
GOLD = XrFacts({"app": "pay"}, {"tier": "gold"})
DAYS = ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"]
ZONES = ["UTC", "Europe/Zurich", "America/New_York", "Australia/Lord_Howe", "Asia/Kathmandu", "Pacific/Apia"]


def window(effect: str = "Allow", name: str = "w", *, about: Object | None = None, **spec: Any) -> Object:
    if about is not None:
        spec["for"] = about
    return {
        "apiVersion": "rollout.planform.dev/v1alpha1",
        "kind": "ChangeWindow",
        "metadata": {"name": name},
        "spec": {"effect": effect, **spec},
    }


def weekly(begin: str, end: str, *days: str) -> list[Object]:
    return [{"from": begin, "to": end, **({"days": list(days)} if days else {})}]


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


@pytest.mark.parametrize(
    ("spec", "now", "is_open", "changes"),
    [
        pytest.param({}, "2026-11-18 08:30", True, "2026-11-18 14:00", id="within, in the zone's time"),
        pytest.param({}, "2026-11-18 07:59", False, "2026-11-18 08:00", id="just before it opens"),
        pytest.param({}, "2026-11-18 08:00", True, "2026-11-18 14:00", id="the begin belongs to it"),
        pytest.param({}, "2026-11-18 14:00", False, "2026-11-19 08:00", id="the end does not"),
        pytest.param({}, "2026-11-19 14:00", False, "2026-11-23 08:00", id="over a week-end"),
        pytest.param(
            {"recurring": weekly("22:00", "04:00", "Fri")}, "2026-11-21 02:00", True, "2026-11-21 03:00", id="midnight"
        ),
        pytest.param(
            {"recurring": weekly("00:00", "24:00", "Sat", "Sun")},
            "2026-11-21 12:00",
            True,
            "2026-11-22 23:00",
            id="days that touch are one",
        ),
        pytest.param({"recurring": weekly("00:00", "24:00")}, "2026-11-21 12:00", True, None, id="never closes"),
        pytest.param(
            {"recurring": weekly("02:30", "03:30", "Sun")}, "2026-03-29 01:00", True, "2026-03-29 01:30", id="skipped"
        ),
        pytest.param(
            {"recurring": weekly("02:10", "02:40", "Sun")},
            "2026-03-29 00:30",
            False,
            "2026-04-05 00:10",
            id="a range that is skipped as a whole does not come that week",
        ),
        pytest.param(
            {"recurring": weekly("01:00", "02:30", "Sun")}, "2026-10-25 00:15", True, "2026-10-25 00:30", id="first end"
        ),
        pytest.param(
            {"effect": "Deny", "recurring": weekly("01:00", "02:30", "Sun")},
            "2026-10-25 00:45",
            True,
            "2026-10-25 01:30",
            id="a Deny lasts until the second time",
        ),
        pytest.param(
            {"recurring": None, "once": {"from": "2026-12-20T00:00:00Z", "to": "2027-01-04T00:00:00Z"}},
            "2026-11-18 12:00",
            False,
            "2026-12-20 00:00",
            id="once, to come",
        ),
        pytest.param(
            {"recurring": None, "once": {"to": "2027-01-04T00:00:00+01:00"}},
            "2026-11-18 12:00",
            True,
            "2027-01-03 23:00",
            id="once, since ever",
        ),
        pytest.param(
            {"recurring": None, "once": {"to": "2026-01-04T00:00:00Z"}}, "2026-11-18 12:00", False, None, id="over"
        ),
        pytest.param(
            {"once": {"from": "2026-11-18T12:00:00Z", "to": "2026-12-03T09:00:00Z"}},
            "2026-11-18 10:00",
            True,
            "2026-12-03 14:00",
            id="once in the middle of what recurs",
        ),
    ],
)
def test_a_window_is_open_when_its_clock_says_so(
    spec: dict[str, Any], now: str, is_open: bool, changes: str | None
) -> None:
    whole = {"timeZone": "Europe/Zurich", "recurring": weekly("09:00", "15:00", "Mon", "Tue", "Wed", "Thu"), **spec}
    effect = whole.pop("effect", "Allow")
    read = parse_window(window(effect, **{key: value for key, value in whole.items() if value is not None}))
    found = state(read, at(now))
    assert (found.open, found.changes) == (is_open, None if changes is None else at(changes))


times = st.tuples(st.integers(0, 23), st.sampled_from([0, 10, 30, 45])).map(lambda each: f"{each[0]:02}:{each[1]:02}")
ranges = st.lists(
    st.builds(
        lambda begin, end, days: {"from": begin, "to": end, "days": sorted(days)},
        times,
        times,
        st.sets(st.sampled_from(DAYS), min_size=1),
    ),
    min_size=1,
    max_size=3,
)
moments = st.datetimes(datetime(2026, 1, 1), datetime(2027, 12, 31)).map(lambda each: each.replace(tzinfo=UTC))
windows = st.builds(
    lambda effect, zone, recurring: parse_window(window(effect, timeZone=zone, recurring=recurring)),
    st.sampled_from(["Allow", "Deny"]),
    st.sampled_from(ZONES),
    ranges,
)


@given(windows, moments)
def test_nothing_changes_before_the_moment_that_is_foretold_and_there_it_does(read: Any, now: datetime) -> None:
    found = state(read, now)
    if found.changes is None:
        assert found.open
        assert all(state(read, now + timedelta(hours=6 * each)).open for each in range(4 * 15))
        return
    assert found.changes > now
    assert state(read, found.changes).open is not found.open
    step = (found.changes - now) / 7
    assert all(state(read, now + step * each).open is found.open for each in range(7))


@given(st.sampled_from(["Allow", "Deny"]), st.sampled_from(ZONES), times, times, moments)
def test_but_for_hours_that_come_twice_a_window_is_open_exactly_when_the_wall_clock_is_in_its_range(
    effect: str, zone: str, begin: str, end: str, now: datetime
) -> None:
    read = parse_window(window(effect, timeZone=zone, recurring=weekly(begin, end)))
    local = now.astimezone(ZoneInfo(zone))
    shown = f"{local:%H:%M}"
    within = begin <= shown < end if begin < end else shown >= begin or shown < end
    near = [local.replace(tzinfo=None) + timedelta(minutes=15 * step) for step in range(-12, 13)]
    if any(
        each.replace(tzinfo=local.tzinfo, fold=0).utcoffset() != each.replace(tzinfo=local.tzinfo, fold=1).utcoffset()
        for each in near
    ):
        if effect == "Deny" and within:
            assert state(read, now).open
        return
    assert state(read, now).open is within


def test_an_open_deny_beats_every_allow() -> None:
    now = at("2026-11-18 12:00")
    allow = parse_window(window("Allow", "always", recurring=weekly("00:00", "24:00")))
    deny = parse_window(window("Deny", "freeze", once={"to": "2027-01-04T00:00:00Z"}, reason="audit"))
    decision = admits([allow, deny], ANYBODY, now)
    assert (decision.admitted, decision.window, decision.look_again) == (False, "freeze", at("2027-01-04 00:00"))
    assert decision.message == 'ChangeWindow "freeze" forbids changes until 2027-01-04 00:00 UTC: audit'
    assert admits([allow, deny], ANYBODY, at("2027-01-04 00:00")).admitted


def test_one_of_the_allows_that_select_an_xr_must_be_open() -> None:
    morning = parse_window(window("Allow", "morning", recurring=weekly("08:00", "10:00")))
    evening = parse_window(window("Allow", "evening", recurring=weekly("18:00", "20:00")))
    assert admits([morning, evening], ANYBODY, at("2026-11-18 09:00")).admitted
    assert admits([morning, evening], ANYBODY, at("2026-11-18 19:00")).admitted
    held = admits([morning, evening], ANYBODY, at("2026-11-18 12:00"))
    assert (held.admitted, held.window, held.look_again) == (False, "evening", at("2026-11-18 18:00"))
    assert next_admission([morning, evening], ANYBODY, at("2026-11-18 12:00")) == at("2026-11-18 18:00")


def test_a_window_holds_only_those_it_is_about() -> None:
    now = at("2026-11-18 12:00")
    once = {"to": "2027-01-04T00:00:00Z"}
    gold = parse_window(window("Deny", once=once, about={"namespaces": {"matchLabels": {"tier": "gold"}}}))
    pay = parse_window(window("Deny", once=once, about={"xrs": {"matchLabels": {"app": "pay"}}}))
    both = parse_window(window("Deny", once=once, about={"namespaces": {"matchLabels": {"tier": "gold"}}, "xrs": {}}))
    outside = parse_window(
        window(
            "Deny",
            once=once,
            about={"namespaces": {"matchExpressions": [{"key": "tier", "operator": "DoesNotExist"}]}},
        )
    )
    assert [each.concerns(GOLD) for each in (gold, pay, both, outside)] == [True, True, True, False]
    assert not any(each.concerns(ANYBODY) for each in (gold, pay, both, outside)), "it is in no namespace"
    assert not gold.concerns(XrFacts({"app": "pay"}, {"tier": "silver"}))
    assert admits([gold], ANYBODY, now).admitted


def test_without_windows_everybody_may_be_moved() -> None:
    assert admits([], GOLD, at("2026-11-18 12:00")) == admits([], ANYBODY, at("2026-11-18 12:00"))
    assert admits([], GOLD, at("2026-11-18 12:00")).admitted


@pytest.mark.parametrize(
    ("label", "until"),
    [
        ("2026-11-20", "2026-11-20 00:00"),
        ("20261120T0800Z", "2026-11-20 08:00"),
        ("2027-06-01", "2026-12-02 12:00"),
        ("next-week", "2026-12-02 12:00"),
    ],
    ids=["a day", "a moment", "no longer than the policy allows", "an unreadable date holds as long as it may"],
)
def test_an_owner_may_put_their_xr_off(label: str, until: str) -> None:
    now, xr = at("2026-11-18 12:00"), XrFacts({NOT_BEFORE_LABEL: label})
    held = admits([], xr, now, held_since=now, max_hold=parse_duration("14d"))
    assert (held.admitted, held.look_again) == (False, at(until))
    assert label in held.message
    assert next_admission([], xr, now, held_since=now) == at(until)
    assert admits([], xr, at(until), held_since=now).admitted


def test_a_window_that_cannot_be_read_holds_those_it_is_about() -> None:
    gold = {"namespaces": {"matchLabels": {"tier": "gold"}}}
    broken = window("Allow", timeZone="Europe/Zürich", recurring=weekly("09:00", "15:00"), about=gold)
    with pytest.raises(WindowInvalid, match="no time zone"):
        parse_window(broken)
    read = window_of(broken)
    assert not admits([read], GOLD, at("2026-11-18 12:00")).admitted
    assert "mended" in explained(read, state(read, at("2026-11-18 12:00")))
    assert admits([read], ANYBODY, at("2026-11-18 12:00")).admitted
    assert not admits([window_of({"metadata": {"name": "w"}, "spec": "?"})], ANYBODY, at("2026-11-18 12:00")).admitted


@given(st.lists(windows, max_size=4), moments)
def test_a_decision_holds_until_the_moment_it_names(read: list[Any], now: datetime) -> None:
    decision = admits(read, ANYBODY, now)
    if decision.look_again is None:
        return
    step = (decision.look_again - now) / 5
    assert all(admits(read, ANYBODY, now + step * each).admitted is decision.admitted for each in range(5))


@given(st.lists(windows, max_size=3), moments)
def test_the_next_admission_is_one_and_none_comes_before_it(read: list[Any], now: datetime) -> None:
    found = next_admission(read, ANYBODY, now)
    moment = now
    for _ in range(40):  # from one change to the next, none of which may admit earlier
        decision = admits(read, ANYBODY, moment)
        if decision.admitted:
            assert found == moment
            return
        if decision.look_again is None:
            assert found is None
            return
        moment = decision.look_again
        if found is not None:
            assert moment <= found


def test_a_freeze_of_decades_is_looked_past_at_once() -> None:
    daily = parse_window(window("Allow", "daily", recurring=weekly("09:00", "15:00")))
    freeze = parse_window(window("Deny", "freeze", once={"to": "2100-01-04T00:00:00Z"}))
    assert next_admission([daily, freeze], ANYBODY, at("2026-11-18 12:00")) == at("2100-01-04 09:00")


@pytest.mark.parametrize(("text", "seconds"), [("30s", 30), ("1m30s", 90), ("14d", 1209600), ("1.5h", 5400)])
def test_durations_have_days(text: str, seconds: float) -> None:
    assert parse_duration(text).total_seconds() == seconds


@pytest.mark.parametrize("text", ["", "30", "m", "1m 30s", "-5s", "1y"])
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a duration"):
        parse_duration(text)
