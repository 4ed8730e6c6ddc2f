"""The clocks, and the times that Kubernetes writes."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta, timezone

import pytest

from planform.clock import SystemClock, VirtualClock, micro_timestamp, parse_timestamp, timestamp


async def test_virtual_sleepers_wake_in_the_order_of_their_deadlines_at_their_own_moment() -> None:
    clock, woken = VirtualClock(), list[tuple[str, float]]()

    async def sleep(name: str, seconds: float) -> None:
        await clock.sleep(seconds)
        woken.append((name, clock.monotonic()))

    tasks = [asyncio.create_task(sleep(name, seconds)) for name, seconds in (("c", 30), ("a", 10), ("b", 20))]
    await asyncio.sleep(0)
    await clock.advance(25)
    assert [name for name, _ in woken] == ["a", "b"]
    deadlines = [clock.next_deadline]
    await clock.advance(5)
    await asyncio.gather(*tasks)
    deadlines.append(clock.next_deadline)
    assert dict(woken) == {"a": 10, "b": 20, "c": 30}
    assert deadlines == [5, None]


async def test_one_advance_carries_a_sleeper_through_many_sleeps() -> None:
    clock, ticks = VirtualClock(), 0

    async def tick() -> None:
        nonlocal ticks
        while True:
            await clock.sleep(60)
            ticks += 1

    task = asyncio.create_task(tick())
    await asyncio.sleep(0)
    await clock.advance(3600)
    assert ticks == 60
    task.cancel()


async def test_a_cancelled_sleeper_is_no_deadline() -> None:
    clock = VirtualClock()
    task = asyncio.create_task(clock.sleep(10))
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.sleep(0)
    assert clock.next_deadline is None
    await clock.advance(10)


async def test_virtual_wall_time_moves_with_the_clock() -> None:
    clock = VirtualClock(datetime(2030, 5, 1, tzinfo=UTC))
    await clock.advance(90)
    assert clock.now() == datetime(2030, 5, 1, 0, 1, 30, tzinfo=UTC)
    assert clock.monotonic() == 90


async def test_sleeping_for_nothing_or_less_ends() -> None:
    clock = VirtualClock()
    task = asyncio.create_task(clock.sleep(-5))
    await asyncio.sleep(0)
    await clock.advance(0)
    await task
    await SystemClock().sleep(-5)


async def test_the_system_clock_is_aware_and_does_not_go_back() -> None:
    clock = SystemClock()
    before = clock.monotonic()
    assert clock.now().utcoffset() == timedelta(0)
    assert clock.monotonic() >= before


def test_times_are_written_as_kubernetes_writes_them() -> None:
    moment = datetime(2026, 3, 4, 7, 6, 7, 890, tzinfo=timezone(timedelta(hours=2)))
    assert timestamp(moment) == "2026-03-04T05:06:07Z"
    assert micro_timestamp(moment) == "2026-03-04T05:06:07.000890Z"
    assert parse_timestamp(micro_timestamp(moment)) == moment
    assert parse_timestamp("2026-03-04T07:06:07+02:00") == parse_timestamp("2026-03-04T05:06:07Z")


@pytest.mark.parametrize("text", ["2026-03-04T05:06:07", "yesterday", ""])
def test_what_is_no_complete_time_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"offset|isoformat"):
        parse_timestamp(text)
