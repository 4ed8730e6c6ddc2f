"""Control planes that live until their failpoint: a program that forks one process for each order on its stdin.

    python -m tests.faults.composition_child DIRECTORY

What is slow, the imports, is done once; each fork is a process of its own that opens the data directory, does what it
was ordered to and is killed on the way, or ends. Orders and answers are lines of JSON. An order first names the phase
in which the process before it died, and when its cycle began: the new process then carries that cycle to its end and
checks everything before it begins another, unless it is killed in doing so, `again`.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import signal
import sys
import traceback
from pathlib import Path
from typing import Any, NoReturn, Protocol

import orjson

from planform.app import ControlPlane, Settings, open_control_plane, run_loop
from planform.compositions import controller
from planform.store import Store
from tests.faults.composition_cycle import PHASES, Cycle
from tests.faults.failpoints import Failpoints, Point


class Life(Protocol):
    """What a control plane goes through over and over again, and everything that must then hold."""

    store: Store

    async def define(self) -> None: ...

    async def act(self, phase: str) -> None: ...

    async def settle(self, phase: str) -> None: ...

    async def rest(self) -> None: ...

    async def check_history(self, since: int) -> None: ...


class Order:
    """What one process is to do."""

    phases: tuple[str, ...] = PHASES
    seconds = 60.0

    def __init__(self, directory: Path, order: dict[str, Any]) -> None:
        self.directory = directory
        self.order = order
        self.died_in: str = order.get("died_in", "")
        self.since: int = order.get("since", 0)
        self.define: bool = order.get("define", False)
        self.cycle: bool = order.get("cycle", True)
        self.armed = Point(*order["armed"]) if order.get("armed") else None
        self.again: int | None = order.get("again")

    def life(self, plane: ControlPlane) -> Life:
        return Cycle(plane, claimed=self.order["claimed"])

    def prepare(self, points: Failpoints) -> None:
        """Say where this process may die, and hurry it where nobody cares."""
        points.surround_writers_and_callers()
        # Counts are written once a second by default: each phase would wait for it, and none of them is about it.
        controller.COUNTS_EVERY = 0.01  # type: ignore[misc]

    async def carry_out(self) -> None:
        points = Failpoints()
        self.prepare(points)
        async with open_control_plane(Settings(data=self.directory)) as plane:
            plane.core.store.subscribe(points.committed)
            try:
                await self._use(self.life(plane), points)
            except Exception:
                _fail()  # as it is now: closing in order might mend what is wrong, and would hide where it was

    async def _use(self, cycle: Life, points: Failpoints) -> None:
        if self.define:
            await cycle.define()
        if self.died_in:
            points.reset(self.again)
            await _go_through(cycle, self.phases[self.phases.index(self.died_in) :], points)
            await cycle.check_history(self.since)
        await cycle.rest()
        if self.cycle:
            since = cycle.store.revision
            _say(since=since)
            points.reset(self.armed)
            await _go_through(cycle, self.phases, points)
            await cycle.check_history(since)
        _say(points=[list(point) for point in points.met])


async def _go_through(cycle: Life, phases: tuple[str, ...], points: Failpoints) -> None:
    for phase in phases:
        _say(phase=phase)
        points.phase = phase
        await cycle.act(phase)
        await cycle.settle(phase)
        points.phase = ""


def _say(**what: Any) -> None:
    os.write(1, orjson.dumps(what) + b"\n")


def _fail() -> NoReturn:
    _say(failure=traceback.format_exc())
    os._exit(1)


def _obey(order: Order) -> None:
    """In a fork."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # it ends with the program that forked it
    try:
        run_loop(asyncio.wait_for(order.carry_out(), order.seconds))
    except BaseException:
        _fail()
    os._exit(0)


def main(directory: Path, order_of: type[Order] = Order) -> None:
    for line in sys.stdin.buffer:
        order = order_of(directory, orjson.loads(line))
        process = os.fork()
        if process == 0:
            _obey(order)
        _, status = os.waitpid(process, 0)
        _say(ended=os.waitstatus_to_exitcode(status))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
