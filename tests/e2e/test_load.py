"""The event loop stays free while helm installs a chart and hundreds of objects are created beside it."""

from __future__ import annotations

import asyncio
from pathlib import Path
from random import Random

import pytest

from planform.client.kubeconfig import find_connection
from planform.client.kubernetes import KubernetesClient
from planform.clock import SystemClock
from tests.e2e.control_plane import RunningPlane, config_map
from tests.e2e.widgets import widget

pytestmark = pytest.mark.xdist_group("e2e")

CHART = str(Path(__file__).parent / "chart")
CREATES = 500
WRITERS = 16
ROUNDS = 4
LAG = "planform_event_loop_lag_seconds"


def lags(before: dict[str, float], after: dict[str, float]) -> dict[float, float]:
    """How many times the loop was at most this late, for each bucket, between two readings of the metrics."""
    found = {}
    for name, value in after.items():
        if name.startswith(f"{LAG}_bucket"):
            bound = name.partition('le="')[2].partition('"')[0]
            found[float(bound)] = value - before.get(name, 0.0)
    return found


async def create_many(plane: RunningPlane, namespace: str) -> None:
    """Half built-in and half defined objects, by several writers at once."""
    clock = SystemClock()
    connection = find_connection(clock=clock, path=plane.kubeconfig, context="")
    waiting = iter(range(CREATES))
    async with KubernetesClient(connection, clock=clock, rng=Random(1), manager="load") as client:

        async def write() -> None:
            for number in waiting:
                drawn = config_map(f"c{number}", {"n": str(number)}) if number % 2 else widget(f"w{number}")
                drawn["metadata"]["namespace"] = namespace
                await client.create(drawn)

        async with asyncio.TaskGroup() as tasks:
            for _ in range(WRITERS):
                tasks.create_task(write())


async def test_the_loop_is_hardly_late_under_load(plane: RunningPlane, namespace: str, widgets: None) -> None:
    # The plane shares its cores with whatever else runs here, which makes it late through no fault of its own. What
    # holds the loop does so in every round, so one good round shows that nothing does.
    rounds = []
    for number in range(ROUNDS):
        rounds.append(await lags_of_a_round(plane, f"{namespace}-{number}"))
        if is_calm(rounds[-1]):
            return
    raise AssertionError(f"late in every round: {rounds}")


async def lags_of_a_round(plane: RunningPlane, namespace: str) -> dict[float, float]:
    plane.kubectl("create", "namespace", namespace)
    before = plane.metrics()
    async with asyncio.timeout(60), asyncio.TaskGroup() as tasks:
        tasks.create_task(create_many(plane, namespace))
        tasks.create_task(asyncio.to_thread(plane.helm, "install", "load", CHART, "--namespace", namespace))
    after = plane.metrics()
    names = plane.kubectl("get", "cm,widgets", "-n", namespace, "-o", "name").lines
    assert len([name for name in names if name.rpartition("/")[2][1:].isdigit()]) == CREATES
    return lags(before, after)


def is_calm(seen: dict[float, float]) -> bool:
    """Late by more than 50 ms at most once in ten times, and never by more than a quarter of a second."""
    measured = seen[float("inf")]
    assert measured >= 3, "the probe ran"
    return seen[0.05] >= 0.9 * measured and seen[0.25] == measured
