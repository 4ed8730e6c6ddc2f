"""Crashes of composition: a control plane killed at any moment of an XR's life carries it to its end after a restart.

The moments come from a clean run that is traced. Each is then met by a process that the kernel kills there, and the
next one, on the same data directory, must bring the XR to where it was going: nothing twice, nothing lost, nothing
left. That one then begins another cycle and is killed at the next moment.
"""

from __future__ import annotations

import asyncio
import random
import shutil
import signal
import sys
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import orjson
import pytest

from tests.faults.failpoints import Point
from tests.harness.processes import dies_with_us

RecordProperty = Callable[[str, object], None]
VARIANTS = pytest.mark.parametrize("claimed", [False, True], ids=["an XR of a namespace", "a claim"])
SAMPLE = 12
CHAINS = 2
AGAIN = 0.25
"""How many of those that finish a cycle after a crash are themselves killed in doing so."""
PATIENCE_SECONDS = 90.0


class Planes:
    """Control planes on one data directory, one after the other."""

    def __init__(self, directory: Path, log: Path, process: asyncio.subprocess.Process, *, claimed: bool) -> None:
        self.directory = directory
        self._log = log
        self._process = process
        self._claimed = claimed
        self._unfinished: dict[str, Any] = {}
        self._story = "the beginning"

    async def run(self, **order: Any) -> dict[str, Any]:
        """Start one that first finishes what the one before it left; gives all that it said, when it has ended."""
        said: dict[str, Any] = {}
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None and stdout is not None
        stdin.write(orjson.dumps({"claimed": self._claimed, **self._unfinished, **order}) + b"\n")
        async with asyncio.timeout(PATIENCE_SECONDS):
            while "ended" not in said:
                line = await stdout.readline()
                assert line, f"the program ended after {self._story}:\n{self._log.read_text()}"
                said |= orjson.loads(line)
        assert "failure" not in said, f"after {self._story}:\n{said['failure']}\n{self._log.read_text()[-4000:]}"
        self._unfinished = {}
        return said

    async def crash(self, point: Point) -> bool:
        """Whether one was killed at that point; if it never came to it, it has gone through its cycle in peace."""
        said = await self.run(armed=tuple(point))
        if said["ended"] == 0:
            return False
        assert said["ended"] == -signal.SIGKILL, said
        assert said["phase"] == point.phase
        self._unfinished, self._story = {"died_in": point.phase, "since": said["since"]}, str(point)
        return True

    async def crash_again(self, after: int) -> None:
        """Kill one that finishes what the last one left, after it has met so many points, if there are as many."""
        unfinished = self._unfinished
        said = await self.run(again=after, cycle=False)
        if said["ended"] != 0:
            assert said["ended"] == -signal.SIGKILL, said
            self._unfinished = {**unfinished, "died_in": said["phase"]}
            self._story += f", and again {after} points later"

    async def finish(self) -> None:
        await self.run(cycle=False)


@asynccontextmanager
async def planes_on(directory: Path, *, claimed: bool) -> AsyncIterator[Planes]:
    log = directory.with_suffix(".log")
    program = [sys.executable, "-m", "tests.faults.composition_child", str(directory)]
    with log.open("wb") as output:
        process = await asyncio.create_subprocess_exec(
            *dies_with_us(program),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=output,
            limit=1 << 20,
        )
    try:
        yield Planes(directory, log, process, claimed=claimed)
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def trace(directory: Path, *, claimed: bool) -> list[Point]:
    """Every point of one clean cycle; the directory is left as it was before, and can be copied."""
    async with planes_on(directory, claimed=claimed) as planes:
        await planes.run(define=True, cycle=False)
        return [Point(*each) for each in (await planes.run())["points"]]


async def crash_at_each(directory: Path, points: Sequence[Point], *, claimed: bool) -> list[Point]:
    """Gives those that were not met: what comes together is written at once, which may be more or less."""
    missed, choose = [], random.Random(len(points))
    async with planes_on(directory, claimed=claimed) as planes:
        for point in points:
            if not await planes.crash(point) and not await planes.crash(point):
                missed.append(point)
            elif choose.random() < AGAIN:
                await planes.crash_again(choose.randrange(30))
        await planes.finish()
    return missed


def kinds_of(points: Sequence[Point]) -> dict[str, int]:
    """How many points are of which kind; a change of finalizers is also a write."""
    kinds: Counter[str] = Counter()
    for point in points:
        verb, _, rest = point.what.partition(" ")
        kinds[{"call": "function calls"}.get(verb, "journal writes" if rest == "journal" else "store writes")] += 1
        kinds["finalizer changes"] += any(word[0] in "+-" for word in rest.replace(",", " ").split())
        kinds[point.phase] += 1
    return dict(kinds)


async def crash_and_check(directory: Path, claimed: bool, sample: int | None, record_property: RecordProperty) -> None:
    points = await trace(directory / "0", claimed=claimed)
    assert points
    kinds = kinds_of(points)
    assert min(kinds.values()) > 0 and len(kinds) == 7, kinds
    chosen = points if sample is None else sorted(random.Random(7).sample(points, sample), key=points.index)
    for chain in range(1, CHAINS):
        shutil.copytree(directory / "0", directory / str(chain))
    missed = await asyncio.gather(
        *(crash_at_each(directory / str(chain), chosen[chain::CHAINS], claimed=claimed) for chain in range(CHAINS))
    )
    lost = [point for each in missed for point in each]
    killed = len(chosen) - len(lost)
    name = f"crash points of {'a claim' if claimed else 'an XR'}"
    told = ", ".join(f"{count} {kind}" for kind, count in kinds.items())
    record_property(name, f"{len(points)} ({told}); killed at {killed}; not met again: {[*map(str, lost)] or 0}")
    assert all(point.occurrence > 1 for point in lost), "only how often something is repeated may differ"
    assert killed >= 0.9 * len(chosen)


@VARIANTS
async def test_a_plane_killed_at_a_sample_of_points_brings_an_xr_to_where_it_was_going(
    tmp_path: Path, claimed: bool, record_property: RecordProperty
) -> None:
    await crash_and_check(tmp_path, claimed, SAMPLE, record_property)


@pytest.mark.long
@VARIANTS
@pytest.mark.timeout(3600)
async def test_a_plane_killed_at_every_point_brings_an_xr_to_where_it_was_going(
    tmp_path: Path, claimed: bool, record_property: RecordProperty
) -> None:
    await crash_and_check(tmp_path, claimed, None, record_property)
