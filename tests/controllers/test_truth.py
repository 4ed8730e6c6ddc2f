"""The record of a run, and the XR's status, say what is so: also of what failed after it, and of what has not ended."""

from __future__ import annotations

import asyncio

import pytest

from planform.api.kinds import Object
from planform.journal.records import Run
from planform.reconcile.context import ControllerContext
from planform.xrs import running_calls
from tests.controllers.composing import Platform, a_platform, config_map, python, templates


async def latest(platform: Platform, xr: Object) -> Run:
    assert platform.controllers is not None
    journal = platform.controllers.journal
    [newest] = await journal.runs(xr["metadata"]["uid"], limit=1)
    run = await journal.run(newest.id)
    assert run is not None
    return run


async def test_a_run_whose_resource_is_refused_is_not_ok(context: ControllerContext, unique: str) -> None:
    async with a_platform(context, unique) as platform:
        wrong = {**config_map("bad"), "metadata": {"labels": {"team": "no label!"}}}
        await platform.compose(templates(config_map("good", x="1"), wrong))
        xr = await platform.create()
        await platform.failed(xr, "bad")
        run = await latest(platform, xr)
        planned = {each.resource: each for each in run.plan or ()}
        assert 'composed resource "bad"' in run.failure
        assert "a valid label" in planned["bad"].error
        assert not planned["good"].error


async def test_a_run_that_went_well_is_ok(context: ControllerContext, unique: str) -> None:
    async with a_platform(context, unique) as platform:
        await platform.compose(templates(config_map("good", x="1")))
        xr = await platform.create()
        await platform.ready(xr)
        assert (await latest(platform, xr)).failure == ""


SLOW = """
import os, time

def compose(req, rsp):
    deadline = time.monotonic() + 3
    while time.monotonic() < deadline:
        time.sleep(0.05)
"""


async def test_a_call_that_takes_long_is_shown_while_it_does(
    context: ControllerContext, unique: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(running_calls, "SLOW_SECONDS", 0.2)
    async with a_platform(context, unique) as platform:
        await platform.compose(python(SLOW, step="dawdle"))
        xr = await platform.create()

        def is_shown(found: Object) -> bool:
            return "runningCall" in ((found.get("status") or {}).get("planform") or {})

        shown = await platform.until(xr, is_shown, "a call that takes long is shown")
        call = shown["status"]["planform"]["runningCall"]
        assert (call["step"], call["function"]) == ("dawdle", "function-python")
        assert call["since"] < call["deadline"]
        await platform.until(xr, lambda found: not is_shown(found), "it ends, and is shown no longer")
        await asyncio.sleep(0.1)
        assert not is_shown(await platform.get(xr))
