"""What measurements come to: a verdict that never rests on nothing, and an end whatever is measured."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from planform.api.rollout_gates import Gate, GateStatus
from planform.rollouts.gates.measurements import Measurement, Verdict
from planform.rollouts.gates.progress import about, begin, fold, interval_of, is_decided, next_measurement, skipped

MOVE = datetime(2026, 11, 18, 12, tzinfo=UTC)
OF = {"p": Verdict.PASSED, "f": Verdict.FAILED, "i": Verdict.INCONCLUSIVE, "e": Verdict.ERROR}


def gate(**fields: Any) -> Gate:
    return msgspec.convert({"name": "errors", "cel": "true", **fields}, Gate)


def measured(of: Gate, verdicts: str, since: datetime = MOVE) -> GateStatus:
    status = begin(of, since)
    for index, letter in enumerate(verdicts):
        status = fold(of, status, Measurement(OF[letter], since + timedelta(seconds=30 * index), value=str(index)))
    return status


@pytest.mark.parametrize(
    ("fields", "verdicts", "comes_to"),
    [
        ({}, "p", "Passed"),
        ({}, "f", "Failed"),
        ({"count": 3}, "pp", "Running"),
        ({"count": 3}, "ppp", "Passed"),
        ({"count": 3}, "ppf", "Failed"),
        ({"count": 3, "failureLimit": 1}, "pfp", "Passed"),
        ({"count": 3, "failureLimit": 1}, "pff", "Failed"),
        ({"count": 2, "failureLimit": 5}, "ffff", "Running"),
        ({"count": 2, "failureLimit": 5}, "ffffff", "Failed"),
        ({"count": 2, "inconclusiveLimit": 2}, "iipp", "Passed"),
        ({"count": 2, "inconclusiveLimit": 2}, "ipi", "Running"),
        ({"count": 2, "inconclusiveLimit": 2}, "iii", "Inconclusive"),
        ({"inconclusiveLimit": 0}, "i", "Inconclusive"),
        ({}, "iii", "Running"),
        ({}, "eeee", "Running"),
        ({}, "eeeee", "Error"),
        ({"count": 2}, "eeeepeeeep", "Passed"),
        ({"consecutiveErrorLimit": 0}, "e", "Error"),
        ({}, "iiip", "Passed"),
        ({"count": 2}, "pf", "Failed"),
    ],
)
def test_measurements_come_to(fields: dict[str, Any], verdicts: str, comes_to: str) -> None:
    assert measured(gate(**fields), verdicts).verdict == comes_to


gates = st.fixed_dictionaries(
    {
        "count": st.integers(1, 5),
        "failureLimit": st.integers(0, 5),
        "inconclusiveLimit": st.integers(0, 4),
        "consecutiveErrorLimit": st.integers(0, 4),
    }
).map(lambda fields: gate(**fields))


@given(gates, st.text("ie", max_size=40))
def test_without_one_good_measurement_no_gate_passes(of: Gate, verdicts: str) -> None:
    assert measured(of, verdicts).verdict != "Passed"


@given(gates, st.text("fie", max_size=60))
def test_failures_are_never_enough_to_pass(of: Gate, verdicts: str) -> None:
    assert measured(of, verdicts).verdict != "Passed"


@given(gates, st.text("pfie", min_size=120, max_size=120))
def test_every_gate_comes_to_an_end(of: Gate, verdicts: str) -> None:
    assert is_decided(measured(of, verdicts))


@given(gates, st.text("pfie", max_size=40), st.text("pfie", max_size=10))
def test_what_is_decided_stays_so(of: Gate, verdicts: str, more: str) -> None:
    status = measured(of, verdicts)
    if is_decided(status):
        assert measured(of, verdicts + more) == status
        assert next_measurement(of, status) is None


@given(gates, st.text("pfie", max_size=40))
def test_a_gate_that_passed_has_measured_enough_and_failed_no_more_than_it_may(of: Gate, verdicts: str) -> None:
    status = measured(of, verdicts)
    if status.verdict == "Passed":
        assert status.measured == status.passed + status.failed >= (of.count or 1)
        assert status.failed <= (of.failure_limit or 0)
    assert (status.verdict == "Failed") is (status.failed > (of.failure_limit or 0))


def test_what_was_measured_before_the_move_says_nothing() -> None:
    of = gate()
    old = Measurement(Verdict.PASSED, MOVE - timedelta(seconds=1))
    assert fold(of, begin(of, MOVE), old) == begin(of, MOVE)
    assert about(of, measured(of, "p"), MOVE + timedelta(minutes=5)) == begin(of, MOVE + timedelta(minutes=5))
    assert about(of, measured(of, "p"), MOVE).verdict == "Passed"
    assert about(of, None, MOVE) == begin(of, MOVE)


def test_measurements_keep_their_interval_from_the_last_one_on() -> None:
    of = gate(interval="1m", count=3)
    assert next_measurement(of, begin(of, MOVE)) == MOVE
    assert next_measurement(of, measured(of, "pp")) == MOVE + timedelta(seconds=30) + timedelta(minutes=1)
    assert interval_of(gate()) == timedelta(seconds=30)


def test_a_gate_that_goes_on_while_later_waves_move_can_still_fail() -> None:
    of = gate(during=True, failureLimit=1)
    status = measured(of, "pf")
    assert (status.verdict, next_measurement(of, status)) == ("Passed", None)
    assert next_measurement(of, status, moving=True) == MOVE + timedelta(seconds=60)
    assert measured(of, "pff").verdict == "Failed"
    assert measured(of, "p" * 50).verdict == "Passed"
    assert measured(of, "piiii").verdict == "Inconclusive"
    assert measured(gate(), "pf").verdict == "Passed", "but one that does not is over"


def test_a_status_shows_what_was_measured_and_fits_into_a_rollout() -> None:
    of = gate()
    long = "x" * 5000
    status = fold(of, begin(of, MOVE), Measurement(Verdict.FAILED, MOVE, "0.2", "< 0.01", long, f"line\n{long}"))
    assert (status.value, status.threshold, status.measured, status.last_measured) == ("0.2", "< 0.01", 1, MOVE)
    assert len(msgspec.json.encode(status)) < 2000
    assert msgspec.json.decode(msgspec.json.encode(status), type=GateStatus) == status


def test_somebody_may_go_without_a_gate() -> None:
    status = skipped(measured(gate(), "iiii"), "alice: CAB-4711")
    assert (status.verdict, status.message) == ("Skipped", "alice: CAB-4711")
    assert next_measurement(gate(), status) is None
