"""From measurements to a verdict, and when to measure next. Pure: what it knows is the GateStatus that a Rollout keeps.

A gate has passed once `count` measurements passed or failed, no more than `failureLimit` of them failed and one passed.
It has failed as soon as more failed. Inconclusive measurements and errors are repeated and decide nothing; beyond their
limits the gate is Inconclusive or in Error, and somebody has to decide. Every measurement brings one of these ends
nearer, so that no gate goes on for ever.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final, assert_never

import msgspec

from planform.api.rollout_gates import Gate, GateStatus
from planform.rollouts.durations import parse_duration
from planform.rollouts.gates.measurements import MAX_MESSAGE, MAX_VALUE, Measurement, Verdict, short

DEFAULT_INTERVAL: Final = timedelta(seconds=30)
DEFAULT_TIMEOUT: Final = timedelta(seconds=30)
DEFAULT_RUN_TIMEOUT: Final = timedelta(minutes=10)
INCONCLUSIVE_LIMIT: Final = 3
CONSECUTIVE_ERROR_LIMIT: Final = 4
_UNDECIDED: Final = ("Running", "Passed")


def begin(gate: Gate, since: datetime) -> GateStatus:
    """A gate of which nothing is known yet, about a move at this moment. It is also how a gate is asked anew."""
    return GateStatus(name=gate.name, verdict="Running", since=since)


def about(gate: Gate, status: GateStatus | None, since: datetime) -> GateStatus:
    """The status if it is about this move, else a new one: what was measured of an earlier move says nothing."""
    return begin(gate, since) if status is None or status.since != since else status


def is_decided(status: GateStatus) -> bool:
    return status.verdict != "Running"


def next_measurement(gate: Gate, status: GateStatus, *, moving: bool = False) -> datetime | None:
    """When to measure next; None if it is decided. `moving`: later waves move, during which some gates go on."""
    if status.verdict not in _UNDECIDED or (status.verdict == "Passed" and not (gate.during and moving)):
        return None
    assert status.since, "a gate is about a move"
    # From the last measurement on, and not from when it was due: a controller that was away does not catch up at once.
    return status.since if not status.last_measured else max(status.last_measured, status.since) + interval_of(gate)


def fold(gate: Gate, status: GateStatus, measurement: Measurement) -> GateStatus:
    """The status with one measurement more. One from before the move, or of a gate that is decided, changes nothing."""
    if status.since and measurement.at < status.since:
        return status
    if status.verdict not in _UNDECIDED or (status.verdict == "Passed" and not gate.during):
        return status
    passed, failed, inconclusive, errors = status.passed, status.failed, status.inconclusive, 0
    match measurement.verdict:
        case Verdict.PASSED:
            passed += 1
        case Verdict.FAILED:
            failed += 1
        case Verdict.INCONCLUSIVE:
            inconclusive += 1
        case Verdict.ERROR:
            errors = status.errors + 1
        case _:
            assert_never(measurement.verdict)
    folded = msgspec.structs.replace(
        status,
        passed=passed,
        failed=failed,
        inconclusive=inconclusive,
        errors=errors,
        measured=passed + failed,
        value=short(measurement.value, MAX_VALUE) or msgspec.UNSET,
        threshold=short(measurement.threshold, MAX_VALUE) or msgspec.UNSET,
        query=short(measurement.query, MAX_VALUE) or msgspec.UNSET,
        message=short(measurement.message, MAX_MESSAGE) or msgspec.UNSET,
        last_measured=measurement.at,
    )
    return _decided(gate, folded)


def _decided(gate: Gate, status: GateStatus) -> GateStatus:
    failures = gate.failure_limit or 0
    unclear = INCONCLUSIVE_LIMIT if gate.inconclusive_limit is msgspec.UNSET else gate.inconclusive_limit
    errors = CONSECUTIVE_ERROR_LIMIT if gate.consecutive_error_limit is msgspec.UNSET else gate.consecutive_error_limit
    # A failure is looked at first: it is a fact, and stopping is always safe.
    if status.failed > failures:
        return msgspec.structs.replace(status, verdict="Failed")
    if status.inconclusive > unclear:
        return msgspec.structs.replace(status, verdict="Inconclusive")
    if status.errors > errors:
        return msgspec.structs.replace(status, verdict="Error")
    if status.measured >= (gate.count or 1) and status.passed:
        return msgspec.structs.replace(status, verdict="Passed")
    return status


def skipped(status: GateStatus, why: str) -> GateStatus:
    """A gate that somebody decided to go without."""
    return msgspec.structs.replace(status, verdict="Skipped", message=short(why, MAX_MESSAGE))


def interval_of(gate: Gate) -> timedelta:
    return max(parse_duration(gate.interval), timedelta(seconds=1)) if gate.interval else DEFAULT_INTERVAL


def timeout_of(gate: Gate) -> timedelta:
    """How long one measurement may take."""
    if gate.timeout:
        return max(parse_duration(gate.timeout), timedelta(seconds=1))
    return DEFAULT_RUN_TIMEOUT if gate.operation or gate.job else DEFAULT_TIMEOUT
