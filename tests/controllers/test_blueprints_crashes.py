"""The control plane may stop at any write of a run: the next one ends it cleanly, and its deferPhase has run."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest

from planform.api.kinds import GroupVersionKind, Object
from planform.api.names import ACTION_SET
from planform.blueprints.arguments import Arguments
from planform.blueprints.contract import PhaseContext, PhaseFunction
from planform.blueprints.controller import ActionSetController
from planform.client.protocol import Client
from planform.errors import ServiceUnavailable
from planform.reconcile.context import ControllerContext
from planform.reconcile.manager import open_manager
from planform.reconcile.sources import Watches
from tests.controllers.acting import Theatre, action, catalogue, phase
from tests.harness.contexts import embedded_context

WRITES = 7
"""More than an ActionSet of the stage below writes."""


class Stops:
    """A client that stops for good at one of its updates: before it is made, or when it is made and not known."""

    def __init__(self, client: Client, at: int, *, made: bool) -> None:
        self._client = client
        self._left = at
        self._made = made
        self.stopped = asyncio.Event()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    async def update(self, obj: Object, **more: Any) -> Object:
        self._left -= 1
        if self._left == 0:
            if self._made:
                await self._client.update(obj, **more)
            self.stopped.set()
        if self.stopped.is_set():
            await asyncio.Event().wait()
        return await self._client.update(obj, **more)


class Busy:
    """A client whose engine cannot answer the first reads of a kind."""

    def __init__(self, client: Client, kind: str, times: int) -> None:
        self._client = client
        self._kind = kind
        self._left = times

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    async def get(self, gvk: GroupVersionKind, name: str, **more: Any) -> Object:
        if gvk.kind == self._kind and self._left:
            self._left -= 1
            raise ServiceUnavailable("the engine is busy")
        return await self._client.get(gvk, name, **more)


class Stage:
    """Runs the same functions under one control plane after the other."""

    def __init__(self, theatre: Theatre, *, resumable: bool) -> None:
        self.theatre = theatre

        async def note(context: PhaseContext, args: Arguments) -> Object:
            theatre.calls.append(args.text("text"))
            return {"text": args.text("text")}

        self.known = catalogue(PhaseFunction(name="Note", run=note, arguments=("text",), resumable=resumable))

    @asynccontextmanager
    async def control_plane(self, client: Any) -> AsyncIterator[None]:
        context = self.theatre.context
        async with (
            Watches(context.client, clock=context.clock, rng=context.rng) as watches,
            open_manager(watches, clock=context.clock, grace_seconds=0.0) as manager,
        ):
            ActionSetController(replace(context, client=client, manager=manager), self.known).start()
            yield

    async def interrupted(self, at: int, *, made: bool) -> Object:
        """An ActionSet whose control plane stopped at its write number `at`, or had nothing to write so often."""
        client = Stops(self.theatre.client, at, made=made)
        async with self.control_plane(client):
            submitted = await self.theatre.submit("b", name=f"run-{at}")
            stopped = asyncio.create_task(client.stopped.wait())
            ended = asyncio.create_task(self.theatre.ended(submitted))
            await asyncio.wait({stopped, ended}, return_when=asyncio.FIRST_COMPLETED)
            for task in (stopped, ended):
                task.cancel()
        return submitted


@asynccontextmanager
async def stage(context: ControllerContext, namespace: str, *, resumable: bool) -> AsyncIterator[Stage]:
    async with Theatre.open(context, namespace, start=False) as theatre:
        await theatre.blueprint(
            {
                "b": action(
                    phase("one", "Note", {"text": "1"}),
                    phase("two", "Note", {"text": "{{ .Phases.one.Output.text }}2"}),
                    defer=phase("d", "Note", {"text": "bye"}),
                    outputs={
                        "o": {"keyValue": {"k": "{{ .Phases.two.Output.text }}", "d": "{{ .DeferPhase.Output.text }}"}}
                    },
                )
            }
        )
        made = Stage(theatre, resumable=resumable)
        yield made
        async with made.control_plane(context.client):
            for obj in (await context.client.list(ACTION_SET, namespace=namespace)).items:
                await theatre.delete(obj)
                await theatre.gone(obj)


@pytest.mark.parametrize("made", [False, True], ids=["before the write", "after the write"])
@pytest.mark.parametrize("at", range(1, WRITES + 1))
async def test_a_run_of_resumable_phases_completes_wherever_it_was_cut_off(at: int, made: bool, unique: str) -> None:
    async with embedded_context() as context, stage(context, unique, resumable=True) as scene:
        submitted = await scene.interrupted(at, made=made)
        async with scene.control_plane(context.client):
            done = await scene.theatre.ended(submitted)
        assert done["status"]["state"] == "complete", done["status"]
        assert done["status"]["actions"][0]["artifacts"]["o"]["keyValue"] == {"k": "12", "d": "bye"}
        assert list(dict.fromkeys(scene.theatre.calls)) == ["1", "12", "bye"]
        assert len(scene.theatre.calls) <= 4  # at most the phase that was cut off ran twice
        assert "finalizers" not in done["metadata"]


@pytest.mark.parametrize("made", [False, True], ids=["before the write", "after the write"])
@pytest.mark.parametrize("at", range(1, WRITES + 1))
async def test_a_phase_that_is_not_resumable_never_runs_twice_and_the_defer_phase_runs(
    at: int, made: bool, unique: str
) -> None:
    async with embedded_context() as context, stage(context, unique, resumable=False) as scene:
        submitted = await scene.interrupted(at, made=made)
        async with scene.control_plane(context.client):
            done = await scene.theatre.ended(submitted)
        calls = scene.theatre.calls
        assert all(calls.count(text) <= 1 for text in ("1", "12"))
        assert "bye" in calls
        reasons = [each["reason"] for each in done["status"].get("errors") or ()]
        assert reasons == ([] if done["status"]["state"] == "complete" else ["Interrupted"])
        assert "finalizers" not in done["metadata"]


@pytest.mark.parametrize("at", range(1, WRITES + 1))
async def test_an_actionset_deleted_between_two_control_planes_goes_and_leaves_nothing_running(
    at: int, unique: str
) -> None:
    async with embedded_context() as context, stage(context, unique, resumable=True) as scene:
        submitted = await scene.interrupted(at, made=True)
        before = list(scene.theatre.calls)
        await scene.theatre.delete(submitted)
        async with scene.control_plane(context.client):
            await scene.theatre.gone(submitted)
        assert scene.theatre.calls[len(before) :] in ([], ["bye"])
        assert "bye" in scene.theatre.calls or not before


async def test_an_engine_that_cannot_answer_for_a_moment_fails_no_actionset(unique: str) -> None:
    async with embedded_context() as context, stage(context, unique, resumable=True) as scene:
        async with scene.control_plane(Busy(context.client, "ConfigMap", 1)):
            submitted = await scene.theatre.submit("b")
            done = await scene.theatre.ended(submitted)
        assert done["status"]["state"] == "complete"
