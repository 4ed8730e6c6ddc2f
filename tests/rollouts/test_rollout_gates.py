"""Gates and windows of whole Rollouts: what fails stops, what is not known waits, and a way back waits for nothing."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from aiohttp import web

from planform.api.kinds import Object
from planform.api.names import CHANGE_WINDOW
from planform.clock import SystemClock, micro_timestamp
from planform.reconcile.context import ControllerContext
from tests.controllers.composing import Platform, a_platform
from tests.harness.contexts import eventually
from tests.rollouts.gating import LOOPBACK, Handler, Site, site
from tests.rollouts.rolling import act, all_on, fleet, good, policy, releases, revisions_used, rollouts, until_phase
from tests.rollouts.test_windows import window

pytestmark = pytest.mark.timeout(120)

WAVES = [{"name": "canary", "max": 1}, {"name": "others"}]


def answers(*values: str | None) -> Handler:
    """A Prometheus that gives these values, one after the other; None is no data, and the last one is repeated."""
    left = list(values)

    async def answer(_: web.Request) -> web.Response:
        value = left.pop(0) if len(left) > 1 else left[0]
        series = [] if value is None else [{"metric": {}, "value": [0, value]}]
        return web.json_response({"status": "success", "data": {"resultType": "vector", "result": series}})

    return answer


def errors(served: Site, **more: Any) -> Object:
    asked = {"address": served.url, "query": "errors", "success": "result < 0.01"}
    return {"name": "errors", "prometheus": asked, "interval": "1s", "timeout": "2s", **more}


async def begun(platform: Platform, **spec: Any) -> tuple[list[Object], Object, Object]:
    """Three XRs of the first revision, a policy, and the second revision on its way."""
    one = await platform.compose(good("1"))
    xrs = await fleet(platform, 3)
    await policy(platform, **{"waves": WAVES, **spec})

    async def released() -> bool:
        return await releases(platform) == [("True", "Released")]

    await eventually(released, "the first revision is released")
    return xrs, one, await platform.compose(good("2"))


async def waiting(platform: Platform, what: str) -> Object:
    async def look() -> Object | None:
        found = await rollouts(platform)
        status = (found[-1].get("status") or {}) if found else {}
        return found[-1] if (status.get("waiting") or {}).get("for") == what else None

    return await eventually(look, f"a Rollout waits for {what}", seconds=30)


def gate_of(rollout: Object, wave: str = "canary") -> Object:
    [found] = next(each for each in rollout["status"]["waves"] if each["name"] == wave)["gates"]
    return dict(found)


async def test_a_gate_that_fails_takes_the_canary_back_and_shows_its_value(
    context: ControllerContext, unique: str
) -> None:
    async with site(answers("0.2")) as served, a_platform(context, unique, rollout_reach=LOOPBACK) as platform:
        xrs, one, _ = await begun(platform, gates=[errors(served)])
        done = await until_phase(platform, "Aborted")
        await all_on(platform, xrs, one)
        shown = gate_of(done)
        assert (shown["verdict"], shown["value"], shown["threshold"]) == ("Failed", "0.2", "< 0.01")
        assert next(each for each in done["status"]["waves"] if each["name"] == "others").get("target", 0) == 0


async def test_a_gate_that_passes_lets_the_rest_go(context: ControllerContext, unique: str) -> None:
    async with site(answers("0.002")) as served, a_platform(context, unique, rollout_reach=LOOPBACK) as platform:
        xrs, _, two = await begun(platform, gates=[errors(served, count=2)])
        done = await until_phase(platform, "Completed")
        await all_on(platform, xrs, two)
        assert (gate_of(done)["verdict"], gate_of(done)["measured"]) == ("Passed", 2)


@pytest.mark.parametrize("value", [None, "NaN"], ids=["no data", "no number"])
async def test_what_says_nothing_waits_for_somebody_and_is_measured_again_when_they_resume(
    context: ControllerContext, unique: str, value: str | None
) -> None:
    async with site(answers(value)) as served, a_platform(context, unique, rollout_reach=LOOPBACK) as platform:
        xrs, one, two = await begun(platform, gates=[errors(served, inconclusiveLimit=1)])
        stopped = await waiting(platform, "Inconclusive")
        assert gate_of(stopped)["verdict"] == "Inconclusive"
        assert (await revisions_used(platform, xrs)).count(one["metadata"]["name"]) == 2, "only the canary moved"
        served.answer = answers("0.001")
        # The moment, as the server writes it: without its admission a second is all that is known.
        await act(platform, stopped, "Resume", at=micro_timestamp(SystemClock().now()))
        await until_phase(platform, "Completed")
        await all_on(platform, xrs, two)


async def test_a_prometheus_that_is_down_waits_and_an_abort_does_not(context: ControllerContext, unique: str) -> None:
    async with site() as served:
        down = served.url
    async with a_platform(context, unique, rollout_reach=LOOPBACK) as platform:
        xrs, one, _ = await begun(platform, gates=[errors(Site(down), consecutiveErrorLimit=1)])
        stopped = await waiting(platform, "Inconclusive")
        assert gate_of(stopped)["verdict"] == "Error"
        await act(platform, stopped, "Abort")
        await until_phase(platform, "Aborted")
        await all_on(platform, xrs, one)


async def test_an_abort_does_not_wait_for_a_gate_that_never_ends(context: ControllerContext, unique: str) -> None:
    asked = asyncio.Event()

    async def never(_: web.Request) -> web.Response:
        asked.set()
        await asyncio.sleep(300)
        return web.Response()

    async with site(never) as served, a_platform(context, unique, rollout_reach=LOOPBACK) as platform:
        xrs, one, _ = await begun(platform, gates=[errors(served, timeout="5m")])
        async with asyncio.timeout(30):
            await asked.wait()
        [rollout] = await rollouts(platform)
        await act(platform, rollout, "Abort")
        await until_phase(platform, "Aborted")
        await all_on(platform, xrs, one)


async def test_a_gate_that_goes_on_stops_what_comes_later(context: ControllerContext, unique: str) -> None:
    waves = [{"name": "canary", "max": 1}, {"name": "others", "approval": {"count": 1}}]
    async with site(answers("0.001")) as served, a_platform(context, unique, rollout_reach=LOOPBACK) as platform:
        xrs, one, _ = await begun(platform, waves=waves, gates=[errors(served, during=True)])
        assert gate_of(await waiting(platform, "Approval"))["verdict"] == "Passed"
        served.answer = answers("0.5")
        done = await until_phase(platform, "Aborted")
        await all_on(platform, xrs, one)
        assert (gate_of(done)["verdict"], gate_of(done)["value"]) == ("Failed", "0.5")


async def test_a_window_holds_a_rollout_but_not_its_way_back(context: ControllerContext, unique: str) -> None:
    async with a_platform(context, unique) as platform:
        name = f"{unique}-freeze"
        await context.client.create(window("Deny", name, once={"to": "2100-01-01T00:00:00Z"}, reason="audit"))
        try:
            xrs, one, two = await begun(platform)
            held = await waiting(platform, "Window")
            assert "audit" in held["status"]["waiting"]["message"]
            assert set(await revisions_used(platform, xrs)) == {one["metadata"]["name"]}
            await act(platform, held, "Abort")
            aborted = await until_phase(platform, "Aborted")
            await act(platform, aborted, "Retry")
            await waiting(platform, "Window")
            await context.client.delete(CHANGE_WINDOW, name)
            await until_phase(platform, "Completed", attempt=2)
            await all_on(platform, xrs, two)
        finally:
            await context.client.delete_collection(CHANGE_WINDOW)
