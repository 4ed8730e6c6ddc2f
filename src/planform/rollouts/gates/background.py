"""Measurements beside the loop of Rollouts: asked for, taken in the background, and fetched by a later reconcile.

A reconcile of a Rollout must see an abort at once, and so never waits for a gate. It asks here; the answer is kept
until it is fetched, and `wake` has the Rollout looked at again when it is there. Nothing is stored: after a restart the
same measurement is asked for again, and finds what it had started by its name.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Final, NamedTuple

from planform.api.kinds import Object
from planform.api.rollout_gates import Gate
from planform.rollouts.gates.measurements import Measurement, Verdict, WaveFacts
from planform.rollouts.gates.measuring import kind_of, measure
from planform.rollouts.gates.runs import end_runs
from planform.rollouts.gates.tools import GateTools

AT_ONCE: Final = 8
"""So many measurements are taken at a time; the others wait."""
_logger = logging.getLogger(__name__)


class Asked(NamedTuple):
    """What tells measurements apart: of which Rollout, move, gate, and the how-manieth."""

    rollout: str
    uid: str
    wave: str
    part: int
    since: datetime
    gate: str
    number: int


class Measurements:
    """Open it with `open_measurements`."""

    def __init__(self, tools: GateTools, wake: Callable[[str], None]) -> None:
        self._tools = tools
        self._wake = wake
        self._slots = asyncio.Semaphore(AT_ONCE)
        self._running: dict[Asked, asyncio.Task[None]] = {}
        self._found: dict[Asked, Measurement] = {}
        self._taken = tools.metrics.counter(
            "planform_rollout_measurements_total", "Measurements of gates, by how they measure.", ["kind", "verdict"]
        )
        self._took = tools.metrics.histogram(
            "planform_rollout_measurement_seconds", "How long a measurement took.", ["kind"]
        )

    def ask(self, gate: Gate, facts: WaveFacts) -> Measurement | None:
        """The measurement if it has been taken, else None: it is being taken, and the Rollout will be woken."""
        metadata = facts.rollout["metadata"]
        asked = Asked(metadata["name"], metadata["uid"], facts.wave, facts.part, facts.since, gate.name, facts.number)
        found = self._found.pop(asked, None)
        if found is None and asked not in self._running:
            for old in [each for each in self._found if (each.uid, each.gate) == (asked.uid, asked.gate)]:
                del self._found[old]  # of an earlier move or wave; nobody asks for it again
            self._running[asked] = asyncio.create_task(self._take(asked, gate, facts), name=f"gate {gate.name}")
        return found

    async def end(self, rollout: Object) -> None:
        """Forget a Rollout that has ended or is being aborted, and delete what its gates have made."""
        uid = rollout["metadata"]["uid"]
        tasks = [task for asked, task in self._running.items() if asked.uid == uid]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for asked in [asked for asked in self._found if asked.uid == uid]:
            del self._found[asked]
        await end_runs(rollout, self._tools)

    async def close(self) -> None:
        tasks = list(self._running.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _take(self, asked: Asked, gate: Gate, facts: WaveFacts) -> None:
        try:
            async with self._slots:
                began = self._tools.clock.monotonic()
                found = await measure(gate, facts, self._tools)
                self._took.labels(kind_of(gate)).observe(self._tools.clock.monotonic() - began)
        except asyncio.CancelledError:
            self._running.pop(asked, None)
            raise
        except Exception as error:
            # The end of this task's journey: nobody awaits it, and a Rollout must hear of what went wrong.
            _logger.exception("gate %s of rollout %s cannot be measured", gate.name, asked.rollout)
            found = Measurement(Verdict.ERROR, self._tools.clock.now(), message=f"{type(error).__name__}: {error}")
        # Kept before it no longer runs: whoever asks in between must not start another.
        self._found[asked] = found
        self._taken.labels(kind_of(gate), found.verdict.value).inc()
        self._running.pop(asked, None)
        self._wake(asked.rollout)


@asynccontextmanager
async def open_measurements(tools: GateTools, wake: Callable[[str], None]) -> AsyncIterator[Measurements]:
    """`wake` gets the name of a Rollout of which something new is known. Past the block, nothing is being measured."""
    measurements = Measurements(tools, wake)
    try:
        yield measurements
    finally:
        await measurements.close()
