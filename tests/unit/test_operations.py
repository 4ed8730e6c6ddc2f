"""What operations decide without an API server: schedules, phases, names and histories."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planform.api.kinds import Object
from planform.apimachinery.names import label_value_problems, subdomain_problems
from planform.functions.calling import Call
from planform.functions.values import FunctionRequest, FunctionResponse, Resource, State
from planform.operations.operations import (
    MAX_OUTPUT_BYTES,
    WATCH_LABEL,
    WATCHED_RESOURCE,
    Phase,
    attempts_allowed,
    family_of,
    merged_references,
    operation_from,
    origin_label,
    outputs_of,
    progress_of,
    retry_delay,
    scheduled_name,
    unnamed,
    watched_annotations,
    watched_name,
)
from planform.operations.schedules import ScheduleInvalid, parse_schedule
from planform.pipeline.pipeline import PipelineOutcome, StepTrace
from planform.pipeline.steps import parse_pipeline


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


# -- schedules


@pytest.mark.parametrize(
    ("schedule", "after", "expected"),
    [
        pytest.param("* * * * *", "2026-01-01T00:00", "2026-01-01T00:01", id="each minute"),
        pytest.param("* * * * *", "2026-01-01T00:00:59.999", "2026-01-01T00:01", id="seconds do not count"),
        pytest.param("*/15 * * * *", "2026-01-01T00:46", "2026-01-01T01:00", id="steps"),
        pytest.param("5/20 * * * *", "2026-01-01T00:00", "2026-01-01T00:05", id="steps from a number on"),
        pytest.param("10-30/10 4 * * *", "2026-01-01T04:30", "2026-01-02T04:10", id="steps in a range"),
        pytest.param("0 9,17 * * *", "2026-01-01T09:00", "2026-01-01T17:00", id="lists"),
        pytest.param("30 2 * * MON-FRI", "2026-01-02T03:00", "2026-01-05T02:30", id="weekdays by name"),
        pytest.param("0 0 1 Feb,mar *", "2026-02-01T00:00", "2026-03-01T00:00", id="months by name"),
        pytest.param("0 0 * * 7", "2026-01-01T00:00", "2026-01-04T00:00", id="Sunday is 7"),
        pytest.param("0 0 * * 0", "2026-01-01T00:00", "2026-01-04T00:00", id="Sunday is 0"),
        pytest.param("0 0 * * 1/3", "2026-01-02T00:00", "2026-01-05T00:00", id="an open range of weekdays ends on 6"),
        pytest.param("0 0 31 * *", "2026-01-31T00:00", "2026-03-31T00:00", id="short months are passed over"),
        pytest.param("0 0 29 2 *", "2026-01-01T00:00", "2028-02-29T00:00", id="leap day"),
        pytest.param("0 0 29 2 *", "2096-02-29T00:00", "2104-02-29T00:00", id="2100 has no leap day"),
        pytest.param("0 0 13 * 5", "2026-01-01T00:00", "2026-01-02T00:00", id="either day if both are given"),
        pytest.param("0 0 13 * *", "2026-01-01T00:00", "2026-01-13T00:00", id="the weekday is free"),
        pytest.param("0 0 */2 * 1", "2026-01-01T00:00", "2026-01-05T00:00", id="both days if one begins with a star"),
        pytest.param("0 0 ? * ?", "2026-01-01T00:00", "2026-01-02T00:00", id="a question mark is a star"),
        pytest.param("59 23 31 12 *", "2026-12-31T23:59", "2027-12-31T23:59", id="over the year"),
        pytest.param("@hourly", "2026-01-01T00:30", "2026-01-01T01:00", id="@hourly"),
        pytest.param("@daily", "2026-01-01T00:30", "2026-01-02T00:00", id="@daily"),
        pytest.param("@midnight", "2026-01-01T00:30", "2026-01-02T00:00", id="@midnight"),
        pytest.param("@weekly", "2026-01-01T00:30", "2026-01-04T00:00", id="@weekly"),
        pytest.param("@monthly", "2026-01-01T00:30", "2026-02-01T00:00", id="@monthly"),
        pytest.param("@yearly", "2026-01-01T00:30", "2027-01-01T00:00", id="@yearly"),
        pytest.param("@annually", "2026-01-01T00:30", "2027-01-01T00:00", id="@annually"),
        pytest.param("@every 1h30m", "2026-01-01T00:30", "2026-01-01T02:00", id="@every"),
    ],
)
def test_the_next_run_of_a_schedule(schedule: str, after: str, expected: str) -> None:
    assert parse_schedule(schedule).next(at(after)) == at(expected)


def test_a_schedule_is_in_utc_whatever_the_zone_of_the_question() -> None:
    summer = datetime.fromisoformat("2026-03-29T02:30:00+02:00")
    assert parse_schedule("30 2 * * *").next(summer) == at("2026-03-29T02:30")
    runs, moment = [], at("2026-03-28T00:00")
    for _ in range(4):
        moment = parse_schedule("30 2 * * *").next(moment)
        runs.append(moment)
    assert {later - earlier for earlier, later in pairwise(runs)} == {timedelta(days=1)}


@pytest.mark.parametrize(
    ("schedule", "problem"),
    [
        ("* * * *", "has 4 fields, not 5"),
        ("", "has 0 fields, not 5"),
        ("60 * * * *", 'minute "60" is not between 0 and 59'),
        ("* 24 * * *", 'hour "24" is not between 0 and 23'),
        ("* * 0 * *", 'day of the month "0" is not between 1 and 31'),
        ("* * * 13 *", 'month "13" is not between 1 and 12'),
        ("* * * * 8", 'day of the week "8" is not between 0 and 7'),
        ("* * * foo *", 'month "foo" is not between 1 and 12'),
        ("5-1 * * * *", 'minute "5-1" goes backwards'),
        ("*/0 * * * *", 'minute "*/0" has a step of 0'),
        ("*-5 * * * *", 'minute "*-5" is not a number, a range or a step'),
        ("1,,2 * * * *", 'minute "" is not a number, a range or a step'),
        ("-1 * * * *", 'minute "-1" is not a number, a range or a step'),
        ("0 0 30 2 *", "never comes: no month of it has such a day"),
        ("0 0 31 4,6,9,11 *", "never comes: no month of it has such a day"),
        ("@fortnightly", "is none of @yearly"),
        ("@every", "needs a duration"),
        ("@every 10ms", "needs a duration"),
        ("TZ=Europe/Berlin 0 0 * * *", "schedules are in UTC"),
    ],
)
def test_what_is_no_schedule_is_refused_with_the_field_that_is_wrong(schedule: str, problem: str) -> None:
    with pytest.raises(ScheduleInvalid, match="schedule ") as caught:
        parse_schedule(schedule)
    assert problem in str(caught.value)


def test_a_day_that_no_month_has_may_stand_beside_a_weekday() -> None:
    assert parse_schedule("0 0 30 2 1").next(at("2026-02-01T00:00")) == at("2026-02-02T00:00")


_LIST = st.lists(st.integers(0, 59), min_size=1, max_size=4).map(lambda found: ",".join(map(str, found)))
_SCHEDULES = st.builds(
    "{} {} {} {} {}".format,
    _LIST,
    st.sampled_from(["*", "3", "*/5", "8-17"]),
    st.sampled_from(["*", "1", "29", "31", "*/9"]),
    st.sampled_from(["*", "2,7", "jan-mar", "12"]),
    st.sampled_from(["*", "0", "mon-fri", "*/3"]),
)
_MOMENTS = st.datetimes(datetime(2020, 1, 1), datetime(2060, 1, 1), timezones=st.just(UTC))


@given(_SCHEDULES, _MOMENTS)
def test_the_latest_run_before_the_next_one_is_the_next_one(schedule: str, moment: datetime) -> None:
    parsed = parse_schedule(schedule)
    found = parsed.next(moment)
    assert found > moment
    assert parsed.latest(moment, found) == found
    assert parsed.latest(moment, found - timedelta(seconds=1)) is None
    assert parsed.latest(moment - timedelta(days=1), found + timedelta(seconds=59)) == found


def test_of_many_missed_runs_the_latest_is_found_at_once() -> None:
    parsed = parse_schedule("* * * * *")
    assert parsed.latest(at("1996-01-01T00:00"), at("2026-01-01T00:00:30")) == at("2026-01-01T00:00")


def test_an_interval_counts_from_the_last_run() -> None:
    parsed = parse_schedule("@every 10m")
    assert parsed.latest(at("2026-01-01T00:05"), at("2026-01-01T00:14:59")) is None
    assert parsed.latest(at("2026-01-01T00:05"), at("2026-01-01T00:26")) == at("2026-01-01T00:25")


# -- how far an Operation is


def operation(status: str = "", reason: str = "", *, name: str = "op", stamp: str = "2026-01-01T00:00:00Z") -> Object:
    made: Object = {"metadata": {"name": name, "creationTimestamp": stamp}}
    if status:
        condition = {"type": "Succeeded", "status": status, "reason": reason, "lastTransitionTime": stamp}
        made["status"] = {"conditions": [condition], "failures": 2}
    return made


@pytest.mark.parametrize(
    ("status", "reason", "phase"),
    [
        ("", "", Phase.NEW),
        ("Unknown", "PipelineRunning", Phase.ATTEMPTING),
        ("Unknown", "PipelineError", Phase.RETRYING),
        ("True", "PipelineSuccess", Phase.SUCCEEDED),
        ("False", "PipelineError", Phase.FAILED),
    ],
)
def test_the_phase_of_an_operation_is_in_its_status(status: str, reason: str, phase: Phase) -> None:
    assert progress_of(operation(status, reason)).phase is phase


def test_an_operation_may_fail_five_times_unless_it_says_otherwise() -> None:
    assert attempts_allowed({}) == 5
    assert attempts_allowed({"retryLimit": 2}) == 2
    assert attempts_allowed({"retryLimit": 0}) == 1, "it is tried at least once"


def test_attempts_are_a_second_apart_then_two_then_four_up_to_a_minute() -> None:
    assert [retry_delay(failures) for failures in (1, 2, 3, 6, 7, 100)] == [1, 2, 4, 32, 60, 60]


# -- what an attempt gives


def outcome(*outputs: Object | None, **resources: Object) -> PipelineOutcome:
    traces = tuple(
        StepTrace(f"step-{index}", "f", calls=(Call(FunctionRequest(), FunctionResponse(output=output), 0.0),))
        for index, output in enumerate(outputs)
    )
    desired = State(resources={key: Resource(value) for key, value in resources.items()})
    return PipelineOutcome(desired, {}, (), (), {}, (), None, traces)


def test_outputs_are_kept_with_the_names_of_their_steps() -> None:
    assert outputs_of(outcome({"a": 1}, None, {"b": 2})) == (
        [{"step": "step-0", "output": {"a": 1}}, {"step": "step-2", "output": {"b": 2}}],
        [],
    )


def test_an_output_that_does_not_fit_is_left_out_and_the_others_stay() -> None:
    kept, dropped = outputs_of(outcome({"big": "x" * MAX_OUTPUT_BYTES}, {"small": 1}))
    assert [each["step"] for each in kept] == ["step-1"]
    assert dropped == ["step-0"]


def test_a_desired_resource_without_a_name_is_found() -> None:
    named: Object = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}}
    assert unnamed(outcome(one=named)) == ""
    nameless: Object = {"apiVersion": "v1", "kind": "ConfigMap"}
    assert unnamed(outcome(one=named, two=nameless)) == 'desired resource "two" (ConfigMap) has no metadata.name'


def test_references_of_several_attempts_are_kept_once() -> None:
    one = {"apiVersion": "v1", "kind": "Secret", "name": "a", "namespace": "x"}
    two = {"apiVersion": "v1", "kind": "ConfigMap", "name": "a"}
    assert merged_references([one], [two, dict(one)]) == merged_references([two, one], [])
    assert len(merged_references([one], [two, dict(one)])) == 2


# -- families


OWNER: Object = {
    "apiVersion": "ops.crossplane.io/v1alpha1",
    "kind": "CronOperation",
    "metadata": {"name": "nightly", "uid": "u1"},
    "spec": {
        "operationTemplate": {
            "metadata": {"labels": {"team": "a"}, "annotations": {"note": "b"}},
            "spec": {"mode": "Pipeline", "pipeline": [{"step": "one", "functionRef": {"name": "f"}}]},
        }
    },
}


def child(name: str, status: str, stamp: str, *, uid: str = "u1") -> Object:
    made = operation(status, "PipelineError" if status == "False" else "PipelineSuccess", name=name, stamp=stamp)
    made["metadata"]["ownerReferences"] = [{"uid": uid, "controller": True}]
    return made


def test_a_family_is_what_the_owner_controls_sorted_by_age() -> None:
    family = family_of(
        OWNER,
        [
            child("c", "True", "2026-01-03T00:00:00Z"),
            child("a", "True", "2026-01-01T00:00:00Z"),
            child("b", "False", "2026-01-02T00:00:00Z"),
            child("d", "", "2026-01-04T00:00:00Z"),
            child("foreign", "", "2026-01-04T00:00:00Z", uid="other"),
        ],
    )
    assert [each["metadata"]["name"] for each in family.succeeded] == ["a", "c"]
    assert [each["metadata"]["name"] for each in family.failed] == ["b"]
    assert family.running_references == [{"name": "d"}]
    assert family.last_success == "2026-01-03T00:00:00Z"


@pytest.mark.parametrize(
    ("spec", "gone"),
    [
        pytest.param({}, ["s0", "s1", "f0", "f1"], id="three successes and one failure are kept"),
        pytest.param({"successfulHistoryLimit": 0}, ["s0", "s1", "s2", "s3", "s4", "f0", "f1"], id="none"),
        pytest.param({"successfulHistoryLimit": 9, "failedHistoryLimit": 2}, ["f0"], id="own limits"),
    ],
)
def test_the_oldest_operations_that_are_over_go_first(spec: Object, gone: list[str]) -> None:
    children = [child(f"s{day}", "True", f"2026-01-0{day + 1}T00:00:00Z") for day in range(5)]
    children += [child(f"f{day}", "False", f"2026-01-0{day + 1}T00:00:00Z") for day in range(3)]
    children.append(child("running", "", "2020-01-01T00:00:00Z"))
    assert [each["metadata"]["name"] for each in family_of(OWNER, children).expired(spec)] == gone


def test_the_name_of_a_scheduled_operation_is_the_moment_it_is_for() -> None:
    assert scheduled_name(OWNER, at("2026-01-01T00:00")) == "nightly-1767225600"
    long = {"metadata": {"name": "x" * 250, "uid": "u"}}
    names = {scheduled_name(long, at(f"2026-01-01T00:0{minute}")) for minute in range(3)}
    assert len(names) == 3
    assert not any(subdomain_problems(name) for name in names)


def test_the_name_of_a_watched_operation_follows_from_object_and_version() -> None:
    names = {watched_name(OWNER, uid, version) for uid in ("a", "b") for version in ("1", "2")}
    assert len(names) == 4
    assert watched_name(OWNER, "a", "1") == watched_name(OWNER, "a", "1")
    assert all(name.startswith("nightly-") for name in names)


def test_a_label_can_name_an_origin_whose_name_is_longer_than_labels_are() -> None:
    assert origin_label("nightly") == "nightly"
    assert not label_value_problems(origin_label("n" * 200))
    assert origin_label("n" * 200) != origin_label("n" * 201)


def test_an_operation_comes_from_its_template_with_owner_and_label() -> None:
    made = operation_from(OWNER, "nightly-1", "ops.crossplane.io/cronoperation")
    assert made["metadata"]["labels"] == {"team": "a", "ops.crossplane.io/cronoperation": "nightly"}
    assert made["metadata"]["annotations"] == {"note": "b"}
    assert made["metadata"]["ownerReferences"][0]["uid"] == "u1"
    assert made["spec"] == OWNER["spec"]["operationTemplate"]["spec"]


def test_every_step_of_a_watched_operation_requires_the_object_that_changed() -> None:
    watched: Object = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "settings", "namespace": "apps"}}
    made = operation_from(OWNER, "n", WATCH_LABEL, annotations=watched_annotations(watched, "7"), watched=watched)
    (step,) = parse_pipeline(made["spec"])
    selector = step.bootstrap.resources[WATCHED_RESOURCE]
    assert (selector.api_version, selector.kind, selector.match_name, selector.namespace) == (
        "v1",
        "ConfigMap",
        "settings",
        "apps",
    )
    noted: dict[str, Any] = made["metadata"]["annotations"]
    assert noted["ops.crossplane.io/watched-resource-resourceversion"] == "7"
    assert "requirements" not in OWNER["spec"]["operationTemplate"]["spec"]["pipeline"][0], "the template is as it was"
