"""A shared rate of requests: bursts, the rate in the long run, turns between flows, and who gives up waiting."""

from __future__ import annotations

import asyncio

import pytest

from planform.client.fairness import FairBucket, flow
from planform.clock import VirtualClock
from tests.unit.memory_engine import settle


class Callers:
    """Starts requests of flows and notes who went when."""

    def __init__(self, per_second: float, burst: int) -> None:
        self.clock = VirtualClock()
        self.bucket = FairBucket(per_second, burst, clock=self.clock)
        self.gone: list[tuple[str, float]] = []

    def call(self, name: str) -> asyncio.Task[None]:
        async def go() -> None:
            await self.bucket.take()
            self.gone.append((name, round(self.clock.monotonic(), 1)))

        with flow(name):
            return asyncio.create_task(go())

    async def pass_time(self, seconds: float) -> None:
        """In steps no longer than those between two turns, each of which wakes the next."""
        await settle()
        for _ in range(round(seconds / 0.05)):
            await self.clock.advance(0.05)
            await settle()


async def test_a_burst_goes_at_once_and_then_the_rate_and_the_order_are_kept() -> None:
    callers = Callers(10, 3)
    tasks = [callers.call("a") for _ in range(6)]
    await callers.pass_time(1)
    await asyncio.gather(*tasks)
    assert [when for _, when in callers.gone] == [0, 0, 0, 0.1, 0.2, 0.3]


async def test_one_request_of_a_quiet_flow_does_not_wait_behind_a_hundred_of_a_busy_one() -> None:
    callers = Callers(10, 1)
    busy = [callers.call("busy") for _ in range(100)]
    await asyncio.sleep(0)
    quiet = callers.call("quiet")
    await callers.pass_time(1)
    await quiet
    assert dict(callers.gone)["quiet"] <= 0.3
    await callers.pass_time(10)
    await asyncio.gather(*busy)
    assert callers.gone[-1] == ("busy", 10.0)


async def test_who_stops_waiting_costs_the_others_nothing() -> None:
    callers = Callers(10, 1)
    tasks = [callers.call(f"{number}") for number in range(4)]
    await asyncio.sleep(0)
    tasks[1].cancel()
    await callers.pass_time(1)
    await asyncio.gather(*tasks, return_exceptions=True)
    assert callers.gone == [("0", 0), ("2", 0.1), ("3", 0.2)]


async def test_time_without_requests_does_not_pile_up_beyond_the_burst() -> None:
    callers = Callers(10, 2)
    await callers.clock.advance(100)
    tasks = [callers.call("a") for _ in range(4)]
    await callers.pass_time(1)
    await asyncio.gather(*tasks)
    assert [when for _, when in callers.gone] == [100, 100, 100.1, 100.2]


def test_a_rate_that_lets_nothing_through_is_refused() -> None:
    with pytest.raises(ValueError, match="lets nothing through"):
        FairBucket(0, 1, clock=VirtualClock())
