"""ActionSets that a control plane left behind: who goes on with them, from where, and with which versions."""

from __future__ import annotations

import asyncio

import pytest

from planform.api.kinds import Object
from planform.api.names import ACTION_SET, BLUEPRINT
from planform.blueprints.arguments import Arguments
from planform.blueprints.contract import PhaseContext, PhaseFunction
from planform.client.protocol import Patch, PatchType
from planform.reconcile.context import ControllerContext
from tests.controllers.acting import AGED, Theatre, action, phase

pytestmark = pytest.mark.timeout(90)


async def interrupted(theatre: Theatre, function: str) -> Object:
    """An ActionSet whose control plane stopped while its second phase ran."""
    await theatre.blueprint(
        {
            "b": action(
                phase("first", args={"text": "1"}),
                phase("second", function, {"text": "{{ .Phases.first.Output.text }}2"}),
                phase("third", args={"text": "{{ .Phases.second.Output.text }}3"}),
                defer=phase("d", args={"text": "bye {{ .Phases.first.Output.text }}"}),
            )
        }
    )
    submitted = await theatre.submit("b")
    await asyncio.wait_for(theatre.held.wait(), 20)
    await theatre.context.manager.stop("actionsets")
    found = await theatre.context.client.get(ACTION_SET, submitted["metadata"]["name"], namespace=theatre.namespace)
    assert theatre.states(found) == ["complete", "running", "pending", "pending"]
    return found


async def test_a_phase_that_can_be_run_again_is_and_the_run_goes_on(context: ControllerContext, unique: str) -> None:
    async with Theatre.open(context, unique) as theatre:
        found = await interrupted(theatre, "Resume")
        await context.client.delete(BLUEPRINT, "blueprint", namespace=unique)
        theatre.released.set()
        theatre.use()
        done = await theatre.ended(found)
        assert done["status"]["state"] == "complete"
        assert theatre.calls == ["1", "12", "12", "123", "bye 1"]
        assert [context.resumed for context in theatre.contexts if context.phase == "second"] == [False, True]


async def test_a_run_that_goes_on_goes_by_what_it_was_asked_for(context: ControllerContext, unique: str) -> None:
    async with Theatre.open(context, unique) as theatre:
        await theatre.blueprint(
            {"b": action(phase("p", "Resume", {"text": "x"}), phase("q", args={"text": "{{ .Options.a }}"}))}
        )
        submitted = await theatre.submit(theatre.request("b", options={"a": "as asked"}))
        await asyncio.wait_for(theatre.held.wait(), 20)
        await context.manager.stop("actionsets")
        body = {"spec": {"actions": [theatre.request("b", options={"a": "otherwise"})]}}
        await context.client.patch(
            ACTION_SET, submitted["metadata"]["name"], Patch(PatchType.MERGE, body), namespace=unique
        )
        theatre.released.set()
        theatre.use()
        await theatre.ended(submitted)
        assert theatre.calls == ["x", "x", "as asked"]


async def test_a_phase_that_cannot_be_run_again_fails_and_the_defer_phase_runs(
    context: ControllerContext, unique: str
) -> None:
    async with Theatre.open(context, unique) as theatre:
        found = await interrupted(theatre, "Hold")
        theatre.use()
        done = await theatre.ended(found)
        assert theatre.states(done) == ["complete", "failed", "pending", "complete"]
        assert theatre.errors(done) == [("second", "Interrupted")]
        assert theatre.calls == ["1", "12", "bye 1"]
        assert "finalizers" not in done["metadata"]


async def test_an_actionset_deleted_while_nobody_ran_it_is_cleaned_up_and_goes(
    context: ControllerContext, unique: str
) -> None:
    async with Theatre.open(context, unique) as theatre:
        found = await interrupted(theatre, "Resume")
        await theatre.delete(found)
        theatre.use()
        await theatre.gone(found)
        assert theatre.calls == ["1", "12", "bye 1"]


async def test_a_locked_version_that_an_upgrade_removed_fails_its_phase_and_the_defer_phase_runs(
    context: ControllerContext, unique: str
) -> None:
    held = asyncio.Event()

    async def dump(context: PhaseContext, args: Arguments) -> None:
        held.set()
        await asyncio.Event().wait()

    old = [PhaseFunction(name="Dump", run=dump, version=number, resumable=True) for number in ("v0.0.0", "v0.1.0")]
    async with Theatre.open(context, unique, *old, versions=AGED, release="0.3") as theatre:
        await theatre.blueprint(
            {"b": action(phase("p", "Dump", funcVersion="v0.0.0"), defer=phase("d", args={"text": "bye"}))}
        )
        submitted = await theatre.submit("b")
        await asyncio.wait_for(held.wait(), 20)
        await context.manager.stop("actionsets")
        theatre.use(old[1], versions=AGED, release="0.4")
        done = await theatre.ended(submitted)
        assert theatre.errors(done) == [("p", "VersionRemoved")]
        assert theatre.states(done) == ["failed", "complete"]


async def test_a_status_that_nobody_can_go_on_from_ends_the_actionset(context: ControllerContext, unique: str) -> None:
    async with Theatre.open(context, unique) as theatre:
        await theatre.blueprint({"b": action(phase("p"))})
        theatre_request = theatre.request("b")
        made = await theatre.create(
            ACTION_SET,
            "odd",
            spec={"actions": [theatre_request]},
            status={"state": "running", "actions": [{"name": "b", "phases": [{"name": "p", "state": "running"}]}]},
        )
        done = await theatre.ended(made)
        assert (done["status"]["state"], theatre.calls) == ("failed", [])


async def test_the_other_process_that_runs_an_actionset_is_left_alone(context: ControllerContext, unique: str) -> None:
    async with Theatre.open(context, unique) as theatre:
        await theatre.blueprint({"b": action(phase("p", "Hold", {"text": "x"}), phase("q"))})
        submitted = await theatre.submit("b")
        await asyncio.wait_for(theatre.held.wait(), 20)
        body = {"status": {"runner": "another"}}
        taken = await context.client.patch(
            ACTION_SET, submitted["metadata"]["name"], Patch(PatchType.MERGE, body), namespace=unique
        )
        theatre.released.set()
        await theatre.idle()
        found = await context.client.get(ACTION_SET, submitted["metadata"]["name"], namespace=unique)
        assert found["metadata"]["resourceVersion"] == taken["metadata"]["resourceVersion"]
        assert theatre.calls == ["x"]
