"""At rest: when all XRs are ready, nothing is written, no function is called and no timer runs for any of them.

Virtual time makes a day of rest last as long as the few timers of the whole plane take.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest

import planform.app
from planform.api.names import POLL_INTERVAL_ANNOTATION
from planform.app import ControlPlane, Settings, open_control_plane
from planform.clock import Clock, SystemClock, VirtualClock
from planform.telemetry.looplag import LoopLag
from planform.telemetry.metrics import Registry
from tests.controllers.composing import NOP, Platform, auto_ready, config_map, from_xr, nop, templates
from tests.harness.planes import condition_of, eventually

HOUR = 3600.0
SIZES = [pytest.param(100), pytest.param(1000, marks=[pytest.mark.long, pytest.mark.timeout(1200)])]
CONTROLLER = "composite/apps.rest.example.org"


class CountingClock(VirtualClock):
    """Knows how many wait for it."""

    def __init__(self) -> None:
        super().__init__()
        self.sleeping = 0

    async def sleep(self, seconds: float) -> None:
        self.sleeping += 1
        try:
            await super().sleep(seconds)
        finally:
            self.sleeping -= 1


@asynccontextmanager
async def running(clock: VirtualClock) -> AsyncIterator[None]:
    """Time passes by itself, about twice as fast as outside."""

    async def run() -> None:
        while True:
            await clock.advance(0.01)
            await asyncio.sleep(0.005)

    task = asyncio.create_task(run(), name="virtual time")
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait([task])


@dataclass(frozen=True)
class Activity:
    """All that may not change at rest."""

    revision: int
    calls: float
    passes: float
    runs: float

    @classmethod
    def of(cls, plane: ControlPlane) -> Activity:
        return cls(
            plane.core.store.revision,
            total(plane.metrics, "function_run_builtin_total"),
            total(plane.metrics, "planform_reconcile_total", f'controller="{CONTROLLER}"'),
            total(plane.metrics, "planform_journal_runs_total"),
        )


def total(metrics: Registry, name: str, labels: str = "") -> float:
    """The sum over all series of a counter with these labels."""
    pattern = re.compile(rf"^{name}(?:\{{.*{re.escape(labels)}.*\}})? (\S+)$", re.MULTILINE)
    return sum(float(value) for value in pattern.findall(metrics.render()))


async def quiet(plane: ControlPlane) -> None:
    """Wait until nothing has happened for half a second."""

    async def check() -> bool:
        before = Activity.of(plane)
        await asyncio.sleep(0.5)
        return Activity.of(plane) == before

    await eventually(check, "nothing happens any more", seconds=120)


async def compose(plane: ControlPlane, count: int) -> None:
    """That many XRs with four resources each, all ready."""
    platform = Platform(plane.client, "rest")
    await platform.define()
    region = from_xr("spec.region", "data.region")
    await platform.compose(
        templates(config_map("a", region), config_map("b", x="1"), nop("c"), nop("d"), ready=False), auto_ready()
    )
    for start in range(0, count, 50):
        await asyncio.gather(
            *(platform.create(f"n{number}", spec={"region": "eu"}) for number in range(start, min(start + 50, count)))
        )

    async def all_ready() -> bool:
        found = (await plane.client.list(platform.kind)).items
        return all((condition_of(xr, "Ready") or {}).get("status") == "True" for xr in found)

    await eventually(all_ready, f"{count} XRs are ready", seconds=300)
    assert len((await plane.client.list(NOP)).items) == 2 * count
    await quiet(plane)


async def poll_one(plane: ControlPlane) -> None:
    """Have one XR looked at every hour."""
    platform = Platform(plane.client, "rest")
    await platform.merge(platform.xr("n0"), {"metadata": {"annotations": {POLL_INTERVAL_ANNOTATION: "1h"}}})
    await quiet(plane)


@asynccontextmanager
async def control_plane(data: Path, clock: Clock) -> AsyncIterator[ControlPlane]:
    async with open_control_plane(Settings(data=data, synchronous="OFF"), clock=clock) as plane:
        yield plane


@pytest.mark.parametrize("count", SIZES)
async def test_a_day_of_rest_writes_nothing_calls_nothing_and_has_no_timer_for_any_xr(
    tmp_path: Path, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The probe looks ten times a second, whatever there is: a day of that says nothing about XRs and takes minutes.
    monkeypatch.setattr(planform.app, "LoopLag", partial(LoopLag, interval=HOUR))
    clock = CountingClock()
    async with running(clock):
        stack = control_plane(tmp_path, clock)
        plane = await stack.__aenter__()
    try:
        async with running(clock):
            await quiet(plane)
            timers = clock.sleeping
            await compose(plane, count)
        await clock.advance(2 * HOUR)  # events of the beginning expire
        await quiet(plane)
        before = Activity.of(plane)
        assert before.calls >= 2 * count
        await clock.advance(24 * HOUR)
        await quiet(plane)
        assert Activity.of(plane) == before
        assert clock.sleeping == timers
        await poll_one(plane)
        assert clock.sleeping == timers + 1, "a timer of an XR would have been seen"
    finally:
        async with running(clock):
            await stack.__aexit__(None, None, None)


@pytest.mark.parametrize("count", SIZES)
async def test_a_restart_with_nothing_changed_writes_nothing_and_calls_nothing(tmp_path: Path, count: int) -> None:
    async with control_plane(tmp_path, SystemClock()) as plane:
        await compose(plane, count)
        revision = plane.core.store.revision
    async with control_plane(tmp_path, SystemClock()) as plane:

        async def all_looked_at() -> bool:
            return Activity.of(plane).passes >= count

        await eventually(all_looked_at, "every XR is looked at once", seconds=60)
        await quiet(plane)
        after = Activity.of(plane)
        assert (after.revision, after.calls, after.runs) == (revision, 0, 0)
