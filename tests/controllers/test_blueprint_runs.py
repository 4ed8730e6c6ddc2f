"""Runs of ActionSets on both engines: several at once, their progress, how they end early, what others do meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from planform.api.names import ACTION_SET, BLUEPRINT, EVENT
from planform.blueprints.arguments import Arguments
from planform.blueprints.contract import PhaseContext, PhaseFunction
from planform.blueprints.errors import PhaseFailed
from planform.blueprints.model import CANCEL_ANNOTATION
from planform.client.protocol import Patch, PatchType
from planform.reconcile.context import ControllerContext
from tests.controllers.acting import Theatre, action, phase

pytestmark = pytest.mark.timeout(90)


# Several actions


async def test_actions_run_side_by_side_and_are_kept_apart(context: ControllerContext, unique: str) -> None:
    met = asyncio.Barrier(2)

    async def meet(context: PhaseContext, args: Arguments) -> Mapping[str, Any]:
        context.progress(50)
        async with asyncio.timeout(20):
            await met.wait()
        if args.text("text") == "bad":
            raise PhaseFailed("bad luck")
        return {"text": args.text("text")}

    async with Theatre.open(context, unique, PhaseFunction(name="Meet", run=meet)) as theatre:
        outputs = {"x": {"keyValue": {"a": "{{ .Phases.p.Output.text }}"}}}
        await theatre.blueprint({"b": action(phase("p", "Meet", {"text": "{{ .Options.t }}"}), outputs=outputs)})
        done = await theatre.run(
            theatre.request("b", options={"t": "good"}), theatre.request("b", options={"t": "bad"})
        )
        assert done["status"]["state"] == "failed"
        assert [theatre.states(done, index) for index in (0, 1)] == [["complete"], ["failed"]]
        assert done["status"]["actions"][0]["artifacts"]["x"]["keyValue"] == {"a": "good"}
        assert "artifacts" not in done["status"]["actions"][1]
        assert [each["phases"][0]["progress"]["progressPercent"] for each in done["status"]["actions"]] == ["100", "50"]
        assert done["status"]["progress"]["percentCompleted"] == "75"


async def test_actions_can_be_told_to_run_one_after_the_other(context: ControllerContext, unique: str) -> None:
    async with Theatre.open(context, unique) as theatre:
        await theatre.blueprint(
            {
                "one": action(phase("a", args={"text": "1"})),
                "two": action(phase("a", "Fail", {"text": "2"})),
                "three": action(phase("a", args={"text": "3"}), defer=phase("d", args={"text": "4"})),
            }
        )
        done = await theatre.run("one", "two", "three", actionOrder="Sequential")
        assert theatre.calls == ["1", "2"]
        assert [theatre.states(done, index) for index in range(3)] == [["complete"], ["failed"], ["pending"] * 2]
        assert done["status"]["state"] == "failed"


async def test_fifty_runs_of_one_class_share_nothing(context: ControllerContext, unique: str) -> None:
    class Count:
        def __init__(self) -> None:
            self.seen: list[str] = []

        async def __call__(self, context: PhaseContext, args: Arguments) -> Mapping[str, Any]:
            self.seen.append(args.text("text"))
            await asyncio.sleep(0)
            self.seen.append(args.text("text"))
            return {"seen": ",".join(self.seen)}

    function = PhaseFunction(name="Count", run=Count, arguments=("text",))
    async with Theatre.open(context, unique, function) as theatre:
        await theatre.blueprint({"b": action(phase("p", "Count", {"text": "{{ .Options.n }}"}))})
        submitted = [await theatre.submit(theatre.request("b", options={"n": str(number)})) for number in range(50)]
        ended = [await theatre.ended(each) for each in submitted]
        seen = [each["status"]["actions"][0]["phases"][0]["output"]["seen"] for each in ended]
        assert seen == [f"{number},{number}" for number in range(50)]


async def test_no_more_run_at_once_than_allowed_and_the_others_follow(context: ControllerContext, unique: str) -> None:
    async with Theatre.open(context, unique, max_at_once=1) as theatre:
        await theatre.blueprint({"b": action(phase("p", "Hold", {"text": "x"}))})
        first = await theatre.submit("b")
        await asyncio.wait_for(theatre.held.wait(), 20)
        second = await theatre.submit("b")
        third = await theatre.submit("b")
        theatre.released.set()
        for each in (first, second, third):
            assert (await theatre.ended(each))["status"]["state"] == "complete"


# Progress, time and further attempts


async def test_progress_is_stored_while_a_phase_runs(context: ControllerContext, unique: str) -> None:
    release = asyncio.Event()

    async def slow(context: PhaseContext, args: Arguments) -> None:
        context.progress(40, uploaded=10, upload_total=25, seconds_left=3)
        context.log("almost\nthere")
        await release.wait()

    async with Theatre.open(context, unique, PhaseFunction(name="Slow", run=slow)) as theatre:
        await theatre.blueprint({"b": action(phase("p", "Slow"), phase("q"))})
        submitted = await theatre.submit("b")
        seen = await theatre.until(
            submitted,
            lambda found: (found.get("status") or {}).get("progress", {}).get("percentCompleted") == "20",
            "progress",
        )
        assert seen["status"]["progress"]["runningPhase"] == "p"
        progress = seen["status"]["actions"][0]["phases"][0]["progress"]
        assert progress.pop("lastTransitionTime")
        assert progress == {
            "progressPercent": "40",
            "sizeUploadedB": 10,
            "estimatedUploadSizeB": 25,
            "estinatedTimeSeconds": 3,
        }
        release.set()
        await theatre.ended(submitted)
        lines = [each["line"] for each in theatre.controller.logs.read(submitted["metadata"]["uid"])]
        assert lines == ["almost", "there"]


async def test_a_phase_is_tried_again_as_often_as_it_says_and_with_the_same_version(
    context: ControllerContext, unique: str
) -> None:
    tries: list[tuple[int, str]] = []

    async def flaky(context: PhaseContext, args: Arguments) -> None:
        tries.append((context.attempt, context.version))
        if len(tries) < 3:
            raise PhaseFailed("not yet")

    async with Theatre.open(context, unique, PhaseFunction(name="Flaky", run=flaky)) as theatre:
        await theatre.blueprint({"b": action(phase("p", "Flaky", retry={"limit": 2, "backoff": "10ms"}))})
        done = await theatre.run("b")
        assert done["status"]["state"] == "complete"
        assert tries == [(1, "v0.0.0"), (2, "v0.0.0"), (3, "v0.0.0")]
        assert done["status"]["actions"][0]["phases"][0]["attempts"] == 3


async def test_a_phase_that_takes_too_long_is_ended(context: ControllerContext, unique: str) -> None:
    async with Theatre.open(context, unique) as theatre:
        await theatre.blueprint({"b": action(phase("p", "Hold", {"text": "x"}, timeout="50ms"), defer=phase("d"))})
        done = await theatre.run("b")
        assert theatre.cancelled == ["x"]
        assert theatre.errors(done) == [("p", "PhaseTimedOut")]
        assert theatre.states(done) == ["failed", "complete"]


async def test_a_function_that_blocks_runs_beside_the_loop_and_hears_of_its_end(
    context: ControllerContext, unique: str
) -> None:
    ended: list[bool] = []

    def block(context: PhaseContext, args: Arguments) -> None:
        context.progress(10)
        ended.append(context.stop.wait(20))

    async with Theatre.open(context, unique, PhaseFunction(name="Block", run=block)) as theatre:
        await theatre.blueprint({"b": action(phase("p", "Block", timeout="100ms"))})
        done = await theatre.run("b")
        assert theatre.errors(done) == [("p", "PhaseTimedOut")]
        assert ended == [True]


async def test_events_tell_the_story_of_a_run(context: ControllerContext, unique: str) -> None:
    async with Theatre.open(context, unique) as theatre:
        await theatre.blueprint({"b": action(phase("a"), phase("x", "Fail"), defer=phase("d"))})
        await theatre.run("b")
        await context.events.written()
        events = (await context.client.list(EVENT, namespace=unique)).items
        assert {each["reason"] for each in events if each["involvedObject"].get("kind") == "ActionSet"} == {
            "Started Action",
            "Started Phase",
            "Ended Phase",
            "Started deferPhase",
            "Ended deferPhase",
            "ActionSetFailed Action: b",
        }
        (failure,) = [each for each in events if each["involvedObject"].get("kind") == "Blueprint"]
        assert failure["message"] == f"ActionSet {unique}/run-1: failed as told"


# Deletion


async def test_deleting_ends_the_phase_and_waits_for_the_defer_phase(context: ControllerContext, unique: str) -> None:
    cleaned = asyncio.Event()

    async def clean(context: PhaseContext, args: Arguments) -> None:
        theatre.calls.append("clean")
        await cleaned.wait()

    async with Theatre.open(context, unique, PhaseFunction(name="Clean", run=clean)) as theatre:
        await theatre.blueprint({"b": action(phase("p", "Hold", {"text": "x"}), defer=phase("d", "Clean"))})
        submitted = await theatre.submit("b")
        await asyncio.wait_for(theatre.held.wait(), 20)
        await theatre.delete(submitted)
        seen = await theatre.until(
            submitted, lambda found: theatre.states(found) == ["failed", "running"], "its deferPhase"
        )
        assert theatre.errors(seen) == [("p", "Cancelled")]
        assert (theatre.cancelled, theatre.calls) == (["x"], ["x", "clean"])
        cleaned.set()
        await theatre.gone(submitted)


async def test_deleting_waits_for_the_defer_phase_only_so_long(context: ControllerContext, unique: str) -> None:
    async def forever(context: PhaseContext, args: Arguments) -> None:
        theatre.calls.append("forever")
        await asyncio.Event().wait()

    function = PhaseFunction(name="Forever", run=forever)
    async with Theatre.open(context, unique, function, grace=0.3) as theatre:
        await theatre.blueprint({"b": action(phase("p", "Hold", {"text": "x"}), defer=phase("d", "Forever"))})
        submitted = await theatre.submit("b")
        await asyncio.wait_for(theatre.held.wait(), 20)
        await theatre.delete(submitted)
        await theatre.gone(submitted)
        assert theatre.calls == ["x", "forever"]


async def test_a_new_actionset_of_the_same_name_is_another_one(context: ControllerContext, unique: str) -> None:
    async with Theatre.open(context, unique) as theatre:
        await theatre.blueprint({"b": action(phase("p", "Hold", {"text": "x"}), defer=phase("d"))})
        first = await theatre.submit("b", name="same")
        await asyncio.wait_for(theatre.held.wait(), 20)
        await theatre.delete(first)
        await theatre.gone(first)
        theatre.released.set()
        second = await theatre.run("b", name="same")
        assert second["metadata"]["uid"] != first["metadata"]["uid"]
        assert second["status"]["state"] == "complete"


async def test_an_actionset_whose_finalizer_is_taken_away_is_still_cleaned_up_after(
    context: ControllerContext, unique: str
) -> None:
    async with Theatre.open(context, unique) as theatre:
        await theatre.blueprint(
            {"b": action(phase("p", "Hold", {"text": "x"}), defer=phase("d", args={"text": "bye"}))}
        )
        submitted = await theatre.submit("b")
        await asyncio.wait_for(theatre.held.wait(), 20)
        await context.client.patch(
            ACTION_SET,
            submitted["metadata"]["name"],
            Patch(PatchType.MERGE, {"metadata": {"finalizers": None}}),
            namespace=unique,
        )
        await theatre.delete(submitted)
        await theatre.gone(submitted)
        await theatre.until_called("bye")


async def test_a_function_that_does_not_mind_being_cancelled_is_the_last_of_its_action(
    context: ControllerContext, unique: str
) -> None:
    async def stubborn(context: PhaseContext, args: Arguments) -> None:
        theatre.held.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return

    async with Theatre.open(context, unique, PhaseFunction(name="Stubborn", run=stubborn)) as theatre:
        await theatre.blueprint(
            {"b": action(phase("p", "Stubborn"), phase("q"), defer=phase("d", args={"text": "bye"}))}
        )
        submitted = await theatre.submit("b")
        await asyncio.wait_for(theatre.held.wait(), 20)
        await theatre.delete(submitted)
        await theatre.gone(submitted)
        assert theatre.calls == ["bye"]


async def test_an_actionset_can_be_cancelled_and_kept(context: ControllerContext, unique: str) -> None:
    async with Theatre.open(context, unique) as theatre:
        await theatre.blueprint(
            {"b": action(phase("p", "Hold", {"text": "x"}), defer=phase("d", args={"text": "bye"}))}
        )
        submitted = await theatre.submit("b")
        await asyncio.wait_for(theatre.held.wait(), 20)
        body = {"metadata": {"annotations": {CANCEL_ANNOTATION: "true"}}}
        name = submitted["metadata"]["name"]
        await context.client.patch(ACTION_SET, name, Patch(PatchType.MERGE, body), namespace=unique)
        done = await theatre.ended(submitted)
        assert theatre.states(done) == ["failed", "complete"]
        assert (theatre.errors(done), theatre.calls) == ([("p", "Cancelled")], ["x", "bye"])
        early = await theatre.create(
            ACTION_SET,
            "early",
            metadata={"annotations": {CANCEL_ANNOTATION: "true"}},
            spec={"actions": [theatre.request("b")]},
        )
        assert theatre.errors(await theatre.ended(early)) == [("", "Cancelled")]


# What others do meanwhile


async def test_a_run_goes_by_the_blueprint_as_it_was(context: ControllerContext, unique: str) -> None:
    async with Theatre.open(context, unique) as theatre:
        blueprint = await theatre.blueprint(
            {"b": action(phase("p", "Hold", {"text": "x"}), phase("q", args={"text": "old"}))}
        )
        submitted = await theatre.submit("b")
        await asyncio.wait_for(theatre.held.wait(), 20)
        blueprint["actions"] = {"b": action(phase("q", args={"text": "new"}))}
        await context.client.update(blueprint)
        await context.client.delete(BLUEPRINT, "blueprint", namespace=unique)
        theatre.released.set()
        done = await theatre.ended(submitted)
        assert (done["status"]["state"], theatre.calls) == ("complete", ["x", "old"])


async def test_a_storm_of_writes_by_others_does_not_stop_a_run(context: ControllerContext, unique: str) -> None:
    async with Theatre.open(context, unique) as theatre:
        await theatre.blueprint({"b": action(*(phase(f"p{number}") for number in range(10)))})
        submitted = await theatre.submit("b")
        name = submitted["metadata"]["name"]

        async def disturb() -> None:
            for number in range(50):
                body = {"metadata": {"labels": {"disturbed": str(number)}}}
                await context.client.patch(ACTION_SET, name, Patch(PatchType.MERGE, body), namespace=unique)

        await disturb()
        done = await theatre.ended(submitted)
        assert done["status"]["state"] == "complete"
        assert theatre.states(done) == ["complete"] * 10
