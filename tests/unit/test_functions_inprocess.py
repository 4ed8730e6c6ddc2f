"""Built-in functions in this process: none of them holds the loop for long."""

from __future__ import annotations

import asyncio
import time

from planform.functions.inprocess import InProcessRunner
from planform.functions.runner import FunctionRevision
from planform.functions.values import FunctionRequest, FunctionResponse, respond

REVISION = FunctionRevision("busy", "busy-1", "d")


class Busy:
    """Computes for that many seconds."""

    name = "busy"
    deterministic = True

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds

    def __call__(self, request: FunctionRequest, /) -> FunctionResponse:
        end = time.perf_counter() + self._seconds
        while time.perf_counter() < end:
            pass
        return respond(request)


async def longest_hold(runner: InProcessRunner, calls: int) -> float:
    """The longest time for which nobody else ran while the calls followed each other."""

    async def call_all() -> None:
        for _ in range(calls):
            await runner.run(REVISION, FunctionRequest(), timeout=5)

    calling = asyncio.create_task(call_all())
    longest, last = 0.0, time.perf_counter()
    while not calling.done():
        await asyncio.sleep(0)
        now = time.perf_counter()
        longest, last = max(longest, now - last), now
    return longest


async def test_a_long_pipeline_holds_the_loop_no_longer_than_one_step_and_a_moment() -> None:
    step, calls = 0.01, 20
    holds = [await longest_hold(InProcessRunner([Busy(step)]), calls) for _ in range(3)]
    assert min(holds) < 3 * step  # of a pipeline of twenty of them


async def test_quick_calls_follow_each_other() -> None:
    runner, turns = InProcessRunner([Busy(0.0)]), 0

    async def call_all() -> None:
        for _ in range(100):
            await runner.run(REVISION, FunctionRequest(), timeout=5)

    calling = asyncio.create_task(call_all())
    while not calling.done():
        await asyncio.sleep(0)
        turns += 1
    assert turns < 100
