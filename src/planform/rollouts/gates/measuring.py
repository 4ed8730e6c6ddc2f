"""One measurement of any gate."""

from __future__ import annotations

from planform.api.rollout_gates import Gate
from planform.rollouts.gates.measurements import Measurement, Verdict, WaveFacts
from planform.rollouts.gates.progress import timeout_of
from planform.rollouts.gates.runs import run_job, run_operation
from planform.rollouts.gates.tools import GateTools
from planform.rollouts.gates.wave_expression import ask_xrs


def kind_of(gate: Gate) -> str:
    """How a gate measures, in a word."""
    return next((name for name in ("cel", "prometheus", "http", "operation", "job") if getattr(gate, name)), "unknown")


async def measure(gate: Gate, facts: WaveFacts, tools: GateTools) -> Measurement:
    """Take one measurement; it takes at most a little longer than the gate's timeout. What goes wrong is a measurement,
    too: it never raises but when cancelled."""
    limit = timeout_of(gate)
    if gate.cel:
        return await ask_xrs(gate.cel, facts, tools)
    if gate.operation:
        return await run_operation(gate, gate.operation, facts, tools, limit=limit)
    if gate.job:
        return await run_job(gate, gate.job, facts, tools, limit=limit)
    from planform.rollouts.gates.web import ask_http, ask_prometheus  # takes long to import

    if gate.prometheus:
        return await ask_prometheus(gate.prometheus, facts, tools, seconds=limit.total_seconds())
    if gate.http:
        return await ask_http(gate.http, facts, tools, seconds=limit.total_seconds())
    return Measurement(
        Verdict.ERROR, tools.clock.now(), message=f'gate "{gate.name}" says nothing that this version knows'
    )
