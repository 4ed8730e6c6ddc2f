"""Measures the gates of a wave for the loop of Rollouts, a step at a time: what is due is asked for, and what has been
measured meanwhile is folded into the statuses that the Rollout keeps."""

from __future__ import annotations

from datetime import datetime

import msgspec

from planform.api.kinds import Object, gvk
from planform.api.rollout_gates import Gate, GateStatus
from planform.api.rollouts import Rollout, RolloutStatus, WaveStatus
from planform.client.protocol import Client
from planform.clock import Clock
from planform.errors import NotFound
from planform.rollouts.decide import Moves
from planform.rollouts.gates.background import Measurements
from planform.rollouts.gates.measurements import WaveFacts
from planform.rollouts.gates.progress import about, fold, next_measurement
from planform.rollouts.members import Members

_ERRORS = 10_000
"""More errors in a row than any gate tolerates: so measurements of a gate have numbers that never come again."""


class WaveGates:
    """The gates of all Rollouts of a control plane."""

    def __init__(self, client: Client, clock: Clock, measurements: Measurements) -> None:
        self._client = client
        self._clock = clock
        self._measurements = measurements

    async def advance(
        self, rollout: Object, read: Rollout, report: WaveStatus, members: Members, moves: Moves
    ) -> tuple[list[GateStatus], datetime | None]:
        """What the gates say now, and when to ask again; what is being measured wakes the Rollout by itself."""
        # Until every XR had settled nothing was worth measuring: what came before tells of what was before.
        since = datetime.fromisoformat(report.settled) if report.settled else self._clock.now()
        known = {each.name: each for each in report.gates or ()}
        states, again = [], list[datetime]()
        wanted = set(moves.gates)
        for gate in read.spec.strategy.gates or ():
            if gate.name not in wanted:
                continue
            state = about(gate, known.get(gate.name), since)
            due = next_measurement(gate, state)
            if due is not None and due <= self._clock.now():
                facts = await self._facts(rollout, report, gate, state, members, since)
                measurement = self._measurements.ask(gate, facts)
                if measurement is not None:
                    state = fold(gate, state, measurement)
                    due = next_measurement(gate, state)
            if due is not None and due > self._clock.now():
                again.append(due)
            states.append(state)
        return states, min(again, default=None)

    async def during(
        self, rollout: Object, read: Rollout, members: Members, status: RolloutStatus
    ) -> tuple[RolloutStatus, datetime | None]:
        """Go on with gates that measure while later waves move: those with `during` that passed in a finished wave."""
        gates = {each.name: each for each in read.spec.strategy.gates or () if each.during}
        if not gates or status.phase != "Running":
            return status, None
        waves, again, now = list(status.waves or ()), list[datetime](), self._clock.now()
        for index, report in enumerate(waves):
            if not report.finished:
                continue
            states = list(report.gates or ())
            for number, state in enumerate(states):
                gate = gates.get(state.name)
                due = next_measurement(gate, state, moving=True) if gate is not None else None
                if gate is None or due is None or not state.since:
                    continue
                if due <= now:
                    facts = await self._facts(rollout, report, gate, state, members, state.since)
                    measurement = self._measurements.ask(gate, facts)
                    if measurement is None:
                        continue  # it is being taken, and wakes the Rollout
                    state = states[number] = fold(gate, state, measurement)
                    due = next_measurement(gate, state, moving=True)
                # Decided against going on: the next look stops what moves, and must come at once.
                again.append(due if due is not None else now)
            waves[index] = msgspec.structs.replace(report, gates=states or report.gates)
        return msgspec.structs.replace(status, waves=waves), min(again, default=None)

    async def end(self, rollout: Object) -> None:
        await self._measurements.end(rollout)

    async def _facts(
        self, rollout: Object, report: WaveStatus, gate: Gate, state: GateStatus, members: Members, since: datetime
    ) -> WaveFacts:
        xrs = await self._xrs(report.name, members) if gate.cel else []
        return WaveFacts(
            rollout=rollout,
            wave=report.name,
            since=since,
            part=report.parts,
            xrs=xrs,
            unsettled=report.in_flight,
            counts={"xrs": report.xrs, "target": report.target, "ready": report.ready, "failed": report.failed},
            number=(state.passed + state.failed + state.inconclusive) * _ERRORS + state.errors,
        )

    async def _xrs(self, wave: str, members: Members) -> list[Object]:
        found = []
        for view in members.moved_in(wave):
            kind = gvk(view.api_version, view.key.kind.partition(".")[0])
            try:
                found.append(await self._client.get(kind, view.key.name, namespace=view.key.namespace))
            except NotFound:
                continue
        return found
