"""Control planes that are killed and started again on one data directory, as orders to a program that forks them.

Each is killed at a moment that a clean run was seen to pass; the next one finishes what it left, checks everything and
begins anew. The programs are `composition_child` and `package_child`, which say what they understand.
"""

from __future__ import annotations

import asyncio
import random
import signal
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import orjson

from tests.faults.failpoints import Point
from tests.harness.processes import dies_with_us

AGAIN = 0.25
"""How many of those that finish a cycle after a crash are themselves killed in doing so."""
PATIENCE_SECONDS = 240.0


class Planes:
    """Control planes on one data directory, one after the other. `order` is part of every order that they get."""

    def __init__(self, log: Path, process: asyncio.subprocess.Process, order: dict[str, Any]) -> None:
        self._log = log
        self._process = process
        self._order = order
        self._unfinished: dict[str, Any] = {}
        self._story = "the beginning"

    async def run(self, **order: Any) -> dict[str, Any]:
        """Start one that first finishes what the one before it left; gives all that it said, when it has ended."""
        said: dict[str, Any] = {}
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None and stdout is not None
        stdin.write(orjson.dumps({**self._order, **self._unfinished, **order}) + b"\n")
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
async def planes_on(directory: Path, program: str, **order: Any) -> AsyncIterator[Planes]:
    """The program, a module of this folder, for the length of the block."""
    log = directory.with_suffix(".log")
    command = [sys.executable, "-m", f"tests.faults.{program}", str(directory)]
    with log.open("wb") as output:
        process = await asyncio.create_subprocess_exec(
            *dies_with_us(command),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=output,
            limit=1 << 20,
        )
    try:
        yield Planes(log, process, order)
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def trace(directory: Path, program: str, **order: Any) -> list[Point]:
    """Every point of one clean cycle; the directory is left as it was before, and can be copied."""
    async with planes_on(directory, program, **order) as planes:
        await planes.run(define=True, cycle=False)
        return [Point(*each) for each in (await planes.run())["points"]]


async def crash_at_each(directory: Path, program: str, points: Sequence[Point], **order: Any) -> list[Point]:
    """Gives those that were not met: what comes together is written at once, which may be more or less."""
    missed, choose = [], random.Random(len(points))
    async with planes_on(directory, program, **order) as planes:
        for point in points:
            if not await planes.crash(point) and not await planes.crash(point):
                missed.append(point)
            elif choose.random() < AGAIN:
                await planes.crash_again(choose.randrange(30))
        await planes.finish()
    return missed
