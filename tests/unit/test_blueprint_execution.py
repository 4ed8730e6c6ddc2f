"""One phase at a time, on a clock that stands still: templates, calls, attempts, progress, and what is written down."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planform.api.kinds import Object
from planform.blueprints.action_status import (
    DEFER,
    MAX_ERRORS,
    MAX_WARNINGS,
    RunStatus,
    begun,
    checked_output,
    locks_of,
)
from planform.blueprints.arguments import Arguments
from planform.blueprints.calling import call
from planform.blueprints.catalogue import FunctionWarning, PhaseCatalogue
from planform.blueprints.contract import PhaseContext, PhaseEnvironment, PhaseFunction, Progress
from planform.blueprints.errors import OutputInvalid, PhaseFailed, PhaseTimedOut
from planform.blueprints.model import Action, ActionRequest, ObjectReference, parse_action, parse_blueprint
from planform.blueprints.parameters import Found, go_timestamp, parameters
from planform.blueprints.planning import ActionError, plan, plan_again
from planform.blueprints.registry import PhaseFunctionRegistry
from planform.blueprints.rendering import RenderFailed, Templates
from planform.blueprints.versions import parse_versions
from planform.clock import VirtualClock, parse_timestamp

RELEASES = 'releases: ["0.1"]'
TEMPLATES = Templates(lambda: 0.0)


async def nothing(context: PhaseContext, args: Arguments) -> None: ...


def catalogue(*functions: PhaseFunction) -> PhaseCatalogue:
    registry = PhaseFunctionRegistry(plugins=lambda: ())
    registry.register(PhaseFunction(name="Say", run=nothing), *functions)
    return PhaseCatalogue(registry, versions=parse_versions(RELEASES), release="0.1")


# Templates


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("plain", "plain"),
        (None, None),
        (3, 3),
        (True, True),
        (["{{ .a }}", 1, None], ["x", 1, None]),
        ({"{{ .a }}": {"k": "{{ .a }}{{ .a }}"}}, {"x": {"k": "xx"}}),
        ("{{ .n }}", "3"),
        ("{{ .n | int }}", "3"),
        ('{{ index .m "a-b" }}', "dashed"),
        ('{{ index .o "absent" }}|', "|"),
        ("{{- if .b }} yes {{- else if .n }} n {{- else }} no {{- end }}", " n"),
        ("{{ range $k, $v := .m }}{{ $k }}={{ $v }};{{ end }}", "a-b=dashed;z=last;"),
        ('{{ $x := "old" }}{{ if .n }}{{ $x = "new" }}{{ end }}{{ $x }}', "new"),
        ('{{ .a | printf "%s-%s" "y" }}', "y-x"),
        ('{{ toDate "2006-01-02" "2026-08-21" | date "02.01.06" }}', "21.08.26"),
        ('{{ .a | default "d" | upper | quote }}', '"X"'),
        ("{{ .secret | toString }}", "bytes"),
        ('{{ "aGk=" | b64dec }}', "hi"),
        ("{{ .m | toJson }}", '{"a-b":"dashed","z":"last"}'),
    ],
)
def test_values_are_rendered_through_and_through(value: Any, expected: Any) -> None:
    request = ActionRequest("b", "bp", ObjectReference())
    options = parameters(request, Found({}), "")["Options"]
    data = {"a": "x", "n": 3, "b": False, "m": {"z": "last", "a-b": "dashed"}, "o": options, "secret": b"bytes"}
    assert TEMPLATES.render(value, data) == expected


@pytest.mark.parametrize(
    ("value", "told"),
    [
        ({"a": "{{ .absent }}"}, 'args.a: failed to render, key not found: "absent"'),
        ("{{ .none.field }}", "nil pointer evaluating"),
        ("{{ nope }}", 'function "nope" not defined'),
        ("{{ .a", "unclosed action"),
        ("{{ env `HOME` }}", 'function "env"'),
        ("{{ getHostByName `x` }}", "getHostByName"),
        ("{{ bcrypt `x` }}", "bcrypt"),
        ({"{{ .a }}": 1, "x": 2}, 'two keys of the map render to "x"'),
        ('{{ repeat 100000000 "x" }}', "failed to render"),
        ("{{ range until 1000000 }}{{ . }}{{ end }}", "failed to render"),
        ('{{ define "t" }}{{ template "t" }}{{ end }}{{ template "t" }}', "failed to render"),
    ],
    ids=["missing", "nil", "unknown", "unclosed", "env", "host", "slow", "collision", "bomb", "steps", "recursion"],
)
def test_what_cannot_be_rendered_is_an_error_and_never_harm(value: Any, told: str) -> None:
    with pytest.raises(RenderFailed) as failed:
        TEMPLATES.render(value, {"a": "x", "none": None}, where="args")
    assert told in str(failed.value)


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.text(max_size=5).filter(lambda text: "{{" not in text),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("abc", max_size=3), inner, max_size=3),
    max_leaves=8,
)


@given(json_values)
def test_what_holds_no_template_is_left_as_it_is(value: Any) -> None:
    assert TEMPLATES.render(value, {}) == value


@pytest.mark.parametrize(
    ("moment", "told"),
    [
        ("2026-01-02T03:04:05Z", "2026-01-02T03:04:05Z"),
        ("2026-01-02T03:04:05.120000+00:00", "2026-01-02T03:04:05.12Z"),
        ("2026-01-02T05:04:05.000007+02:00", "2026-01-02T03:04:05.000007Z"),
    ],
)
def test_time_is_written_as_go_writes_it(moment: str, told: str) -> None:
    assert go_timestamp(parse_timestamp(moment)) == told


def test_a_workload_has_its_pods_containers_and_claims() -> None:
    pod: Object = {
        "metadata": {"name": "db-0"},
        "spec": {
            "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}, {"name": "tmp", "emptyDir": {}}],
            "containers": [
                {
                    "name": "db",
                    "volumeMounts": [{"name": "v", "mountPath": "/data"}, {"name": "tmp", "mountPath": "/t"}],
                },
                {"name": "side"},
            ],
        },
    }
    request = ActionRequest("b", "bp", ObjectReference(kind="StatefulSet", name="db", namespace="n"))
    found = Found({"metadata": {"name": "db", "namespace": "n"}}, [pod])
    roots = parameters(request, found, "now")
    assert roots["StatefulSet"] == {
        "Name": "db",
        "Namespace": "n",
        "Pods": ["db-0"],
        "Containers": [["db", "side"]],
        "PersistentVolumeClaims": {"db-0": {"data": "/data"}},
    }
    assert (roots["Deployment"], roots["Profile"], roots["CurrentPhase"]) == (None, None, None)


@pytest.mark.parametrize(
    ("target", "root"),
    [
        (ObjectReference(kind="pvc", name="x", namespace="n"), {"PVC": {"Name": "x", "Namespace": "n"}}),
        (ObjectReference(kind="Namespace", name="x", namespace="n"), {"Namespace": {"Name": "n", "Namespace": "n"}}),
    ],
)
def test_claims_and_namespaces_have_roots_of_their_own(target: ObjectReference, root: Object) -> None:
    found = Found({"metadata": {"name": "x", "namespace": "n"}})
    assert root.items() <= parameters(ActionRequest("b", "bp", target), found, "").items()


# Calls


def context(clock: VirtualClock, said: list[Progress] | None = None, told: list[str] | None = None) -> PhaseContext:
    return PhaseContext(
        client=None,  # type: ignore[arg-type]  # these functions read nothing
        clock=clock,
        phase="p",
        on_progress=None if said is None else said.append,
        on_log=None if told is None else told.append,
    )


async def settle(clock: VirtualClock, work: asyncio.Task[Any], step: float = 1.0) -> Any:
    """Let time pass until the work ends."""
    for _ in range(1000):
        if work.done():
            return await work
        await clock.advance(step)
    raise AssertionError("the work does not end")


async def test_an_object_that_does_not_tell_its_progress_is_asked_for_it() -> None:
    class Slow:
        def __init__(self) -> None:
            self.done = 0

        def progress(self) -> int:
            self.done += 20
            if self.done > 60:
                raise ValueError("lost count")
            return self.done

        async def __call__(self, context: PhaseContext, args: Arguments) -> None:
            await context.clock.sleep(60)

    clock, said, told = VirtualClock(), list[Progress](), list[str]()
    function = PhaseFunction(name="Slow", run=Slow)
    work = asyncio.create_task(call(function, context(clock, said, told), Arguments(), None))
    await settle(clock, work)
    assert [each.percent for each in said] == [20, 40, 60]
    assert told == ["progress is not known any more: ValueError: lost count"]


async def test_a_timeout_of_the_phase_and_one_of_the_function_are_told_apart() -> None:
    async def impatient(context: PhaseContext, args: Arguments) -> None:
        raise TimeoutError("the database does not answer")

    async def slow(context: PhaseContext, args: Arguments) -> None:
        await context.clock.sleep(100)

    clock = VirtualClock()
    with pytest.raises(PhaseFailed, match="the database does not answer") as failed:
        await call(PhaseFunction(name="F", run=impatient), context(clock), Arguments(), 30)
    assert not isinstance(failed.value, PhaseTimedOut)
    work = asyncio.create_task(call(PhaseFunction(name="F", run=slow), context(clock), Arguments(), 30))
    with pytest.raises(PhaseTimedOut, match=r"F v0\.0\.0 took longer than 30 s"):
        await settle(clock, work)


async def test_a_plain_function_runs_in_a_thread_of_its_own_and_may_give_an_awaitable() -> None:
    async def later() -> Mapping[str, str]:
        return {"from": "later"}

    def plain(context: PhaseContext, args: Arguments) -> Any:
        assert threading.current_thread() is not threading.main_thread()
        return later()

    assert await call(PhaseFunction(name="F", run=plain), context(VirtualClock()), Arguments(), None) == {
        "from": "later"
    }


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt(), StopIteration()])
async def test_nothing_that_a_blocking_function_raises_ends_more_than_its_phase(error: BaseException) -> None:
    def ends(context: PhaseContext, args: Arguments) -> None:
        raise error

    with pytest.raises(PhaseFailed, match=type(error).__name__):
        await call(PhaseFunction(name="F", run=ends), context(VirtualClock()), Arguments(), None)


async def test_cancelling_tells_a_blocking_function_and_waits_for_it() -> None:
    began, ended = threading.Event(), threading.Event()

    def blocks(context: PhaseContext, args: Arguments) -> None:
        began.set()
        context.stop.wait(20)
        ended.set()

    work = asyncio.create_task(call(PhaseFunction(name="F", run=blocks), context(VirtualClock()), Arguments(), None))
    await asyncio.to_thread(began.wait, 20)
    work.cancel()
    with pytest.raises(asyncio.CancelledError):
        await work
    assert ended.is_set()


def test_progress_is_bounded_and_needs_nobody_who_listens() -> None:
    said: list[Progress] = []
    told = context(VirtualClock(), said)
    told.progress(150)
    told.progress(-3, uploaded=7)
    context(VirtualClock()).progress(5)
    assert said == [Progress(percent=100), Progress(percent=0, uploaded=7)]


@pytest.mark.parametrize(
    "output", [{1: 2}, {"a": object()}, {"a": {1, 2}}, "text", {"a": float}, {"x": "y" * (1 << 20)}]
)
def test_an_output_that_cannot_be_kept_is_refused(output: Any) -> None:
    with pytest.raises(OutputInvalid, match="F v1"):
        checked_output(output, "F v1")


# What is written down

ACTION = {
    "phases": [{"name": "a", "func": "Say"}, {"name": "b", "func": "Say"}],
    "deferPhase": {"name": "d", "func": "Say"},
}
TARGET = ObjectReference(kind="Namespace", name="x", namespace="x")


def planned(count: int = 1) -> RunStatus:
    spec = {"actions": [{"name": "b", "blueprint": "bp", "object": {"kind": "Namespace"}}] * count}
    blueprint = parse_blueprint({"metadata": {"name": "bp"}, "actions": {"b": ACTION}})
    requests = [ActionRequest("b", "bp", TARGET)] * count
    made = plan(requests, {"bp": blueprint}, catalogue(), PhaseEnvironment())
    assert not made.action_errors
    ticks = iter(range(10_000))
    return begun(spec, made.actions, runner="me", started_at="then", now=lambda: f"t{next(ticks)}")


def test_a_run_begins_with_every_phase_pending_and_bound() -> None:
    status = planned(2)
    assert status.state == "running"
    assert locks_of(status.wire) == [["v0.0.0"] * 3] * 2
    assert status.wire["progress"]["percentCompleted"] == "0"
    assert [each["action"] for each in status.wire["snapshots"]] == [ACTION] * 2


def test_progress_of_phases_of_one_name_is_kept_apart_and_averaged_without_the_defer_phase() -> None:
    status = planned(2)
    status.phase_running(0, 0, 1)
    status.phase_running(1, 0, 1)
    status.phase_progress(1, 0, Progress(percent=80))
    assert [status.phase(index, 0)["progress"]["progressPercent"] for index in (0, 1)] == ["0", "80"]
    assert status.wire["progress"]["percentCompleted"] == "20"
    status.phase_running(0, DEFER, 1)
    status.phase_progress(0, DEFER, Progress(percent=100))
    assert status.wire["progress"]["percentCompleted"] == "20"


def test_the_time_of_progress_moves_only_with_progress() -> None:
    status = planned()
    status.phase_running(0, 0, 1)
    before = status.phase(0, 0)["progress"]["lastTransitionTime"]
    changes = status.changes
    assert status.phase_progress(0, 0, Progress(percent=0)) is False
    assert (status.phase(0, 0)["progress"]["lastTransitionTime"], status.changes) == (before, changes)
    assert status.phase_progress(0, 0, Progress(uploaded=1)) is True
    assert status.phase(0, 0)["progress"]["lastTransitionTime"] != before


def test_what_a_phase_says_after_its_end_does_not_count() -> None:
    status = planned()
    status.phase_running(0, 0, 1)
    status.phase_complete(0, 0, None)
    assert status.phase_progress(0, 0, Progress(percent=10)) is False
    assert status.phase(0, 0)["progress"]["progressPercent"] == "100"
    assert "output" not in status.phase(0, 0)


def test_the_first_error_stays_the_error_and_all_are_kept_up_to_a_bound() -> None:
    status = planned()
    for number in range(MAX_ERRORS + 10):
        status.add_error(ActionError(PhaseFailed(f"error {number}"), "b", "a"))
    status.add_error(ActionError(PhaseFailed("error 0"), "b", "a"))
    assert status.wire["error"] == {"message": "error 0"}
    assert len(status.wire["errors"]) == MAX_ERRORS
    assert status.state == "running"
    assert status.ended() == "failed"


def test_warnings_are_kept_once_for_each_action_function_and_code_and_bounded() -> None:
    status = planned()
    old = FunctionWarning("VersionDeprecated", "Say", "v0.0.0", "old")
    assert [status.warn("b", f"p{number}", old) for number in range(100)] == [True] + [False] * 99
    assert status.warn("other", "p", old) is True
    for number in range(100):
        status.warn("b", "p", FunctionWarning("VersionPreview", f"F{number}", "v0.0.0", "x"))
    assert len(status.wire["warnings"]) == MAX_WARNINGS


steps: list[Callable[[RunStatus, int, int], object]] = [
    lambda status, action, place: status.phase_running(action, place, 1),
    lambda status, action, place: status.phase_complete(action, place, {"a": 1}),
    lambda status, action, place: status.phase_failed(action, place),
    lambda status, action, place: status.phase_progress(action, place, Progress(percent=action * 30)),
]


@given(
    st.lists(st.tuples(st.sampled_from(range(4)), st.sampled_from([0, 1]), st.sampled_from([0, 1, DEFER])), max_size=20)
)
def test_percent_and_running_phase_always_follow_from_the_phases(done: list[tuple[int, int, int]]) -> None:
    status = planned(2)
    for step, action, place in done:
        steps[step](status, action, place)
    entries = [entry for action in status.wire["actions"] for entry in action["phases"]]
    percents = [int((entry.get("progress") or {}).get("progressPercent", 0)) for entry in entries]
    assert status.wire["progress"]["percentCompleted"] == str(sum(percents) // 4)
    everything = [*entries, *(action["deferPhase"] for action in status.wire["actions"])]
    running = [entry["name"] for entry in everything if entry["state"] == "running"]
    assert (status.wire["progress"].get("runningPhase") in running) if running else True
    complete = all(entry["state"] == "complete" for entry in everything)
    assert status.ended() == ("complete" if complete else "failed")
    assert "runningPhase" not in status.wire["progress"]


def test_a_run_that_goes_on_is_bound_to_the_versions_it_began_with() -> None:
    newer = PhaseFunction(name="Say", run=nothing, version="v1.0.0", stable=True)
    action: Action = parse_action("b", ACTION)
    known = catalogue(newer)
    (again,) = plan_again([ActionRequest("b", "bp", TARGET)], [action], [["v0.0.0", "v1.0.0", "v9.0.0"]], known)
    assert [each.function().version for each in again.phases] == ["v0.0.0", "v1.0.0"]
    assert again.defer is not None and again.defer.chosen is None
    with pytest.raises(Exception, match="locked to"):
        again.defer.function()
