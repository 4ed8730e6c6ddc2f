"""At rest: when all XRs are ready, nothing is written, no function is called and no timer runs for any of them.

Virtual time makes a day of rest last as long as the few timers of the whole plane take.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from planform.api.names import POLL_INTERVAL_ANNOTATION
from planform.app import ControlPlane, Settings, open_control_plane
from planform.clock import Clock, SystemClock, VirtualClock
from planform.telemetry import looplag
from planform.telemetry.metrics import MetricsRegistry
from tests.controllers.composing import NOP, Platform, auto_ready, config_map, from_xr, nop, templates
from tests.faults.composition_cycle import GROUP, Cycle
from tests.harness.contexts import condition_of, eventually

HOUR = 3600.0
SIZES = [pytest.param(100), pytest.param(1000, marks=[pytest.mark.long, pytest.mark.timeout(1200)])]


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
            total(plane.metrics, "planform_reconcile_total", 'controller="composite/'),
            total(plane.metrics, "planform_journal_runs_total"),
        )


def total(metrics: MetricsRegistry, name: str, labels: str = "") -> float:
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


async def compose_claim(plane: ControlPlane) -> None:
    """A claim that is ready, with connection details."""
    cycle = Cycle(plane, claimed=True)
    await cycle.define()
    await cycle.act("create")
    await cycle.settle("create")
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


@asynccontextmanager
async def virtual_plane(data: Path, clock: VirtualClock) -> AsyncIterator[ControlPlane]:
    """A plane on a clock that stands still, except while it opens and closes."""
    opening = control_plane(data, clock)
    async with running(clock):
        plane = await opening.__aenter__()
    try:
        yield plane
    finally:
        async with running(clock):
            await opening.__aexit__(None, None, None)


@pytest.fixture
def hourly_probe(monkeypatch: pytest.MonkeyPatch) -> None:
    """The probe of the loop looks ten times a second, whatever there is: a day of that takes minutes and says nothing
    about XRs."""
    monkeypatch.setattr(looplag, "INTERVAL", HOUR)


async def rest_for_a_day(plane: ControlPlane, clock: CountingClock) -> None:
    """Nothing may happen meanwhile, after the events of the beginning have expired."""
    await clock.advance(2 * HOUR)
    await quiet(plane)
    before = Activity.of(plane)
    await clock.advance(24 * HOUR)
    await quiet(plane)
    assert Activity.of(plane) == before


@pytest.mark.usefixtures("hourly_probe")
@pytest.mark.parametrize("count", SIZES)
async def test_a_day_of_rest_writes_nothing_calls_nothing_and_has_no_timer_for_any_xr(
    tmp_path: Path, count: int
) -> None:
    clock = CountingClock()
    async with virtual_plane(tmp_path, clock) as plane:
        async with running(clock):
            await quiet(plane)
            timers = clock.sleeping
            await compose(plane, count)
        assert Activity.of(plane).calls >= 2 * count
        await rest_for_a_day(plane, clock)
        assert clock.sleeping == timers
        await poll_one(plane)
        assert clock.sleeping == timers + 1, "a timer of an XR would have been seen"


@pytest.mark.usefixtures("hourly_probe")
async def test_a_day_of_rest_writes_nothing_and_calls_nothing_for_a_claim(tmp_path: Path) -> None:
    clock = CountingClock()
    async with virtual_plane(tmp_path, clock) as plane:
        async with running(clock):
            await compose_claim(plane)
        await rest_for_a_day(plane, clock)


@pytest.mark.parametrize("count", SIZES)
async def test_a_restart_with_nothing_changed_writes_nothing_and_calls_nothing(tmp_path: Path, count: int) -> None:
    async with control_plane(tmp_path, SystemClock()) as plane:
        await compose(plane, count)
        revision = plane.core.store.revision
    await restart_and_rest(tmp_path, revision, "composite/apps.rest.example.org", count)


async def test_a_restart_over_a_claim_writes_nothing_and_calls_nothing(tmp_path: Path) -> None:
    async with control_plane(tmp_path, SystemClock()) as plane:
        await compose_claim(plane)
        revision = plane.core.store.revision
    await restart_and_rest(tmp_path, revision, f"claim/xapps.{GROUP}", 1)


async def restart_and_rest(data: Path, revision: int, controller: str, count: int) -> None:
    async with control_plane(data, SystemClock()) as plane:

        async def all_looked_at() -> bool:
            return total(plane.metrics, "planform_reconcile_total", f'controller="{controller}"') >= count

        await eventually(all_looked_at, f"{controller} has looked at {count}", seconds=60)
        await quiet(plane)
        after = Activity.of(plane)
        assert (after.revision, after.calls, after.runs) == (revision, 0, 0)
