"""Rollouts that are cut off, restored and fought over: they converge, and nobody runs what was not admitted."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, cast

import pytest

from planform.api.kinds import Object
from planform.api.names import COMPOSITION_REVISION, ROLLOUT
from planform.client.protocol import Client
from planform.errors import ServiceUnavailable
from planform.reconcile.context import ControllerContext
from planform.rollouts.xr_facts import MANAGER
from tests.controllers.composing import Platform, a_platform, a_process
from tests.controllers.conftest import LONG_ON_KUBERNETES
from tests.harness.contexts import eventually
from tests.rollouts.rolling import (
    act,
    all_on,
    bad,
    fleet,
    good,
    policy,
    releases,
    revisions_used,
    rollouts,
    until_phase,
)

pytestmark = [pytest.mark.timeout(300), LONG_ON_KUBERNETES]
CANARY = {"name": "canary", "xrs": {"matchLabels": {"canary": "true"}}}


class CutOff:
    """A client of a process that dies at its n-th write for Rollouts: that write, before or after it was made, and all
    that follow, never return."""

    def __init__(self, client: Client, writes: int, *, after: bool) -> None:
        self._client = client
        self._left = writes
        self._after = after
        self._over = asyncio.Event()

    def bury(self) -> None:
        """The process is gone: nobody waits for its writes any more."""
        self._over.set()

    async def _hang(self) -> None:
        await self._over.wait()
        raise ServiceUnavailable("the process is gone")

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._client, name)
        if name not in ("create", "update", "patch", "apply"):
            return method

        async def write(*given: Any, **more: Any) -> Any:
            if self._left < 0:
                await self._hang()
            if more.get("manager") == MANAGER:
                self._left -= 1
                if self._left < 0:
                    if self._after:
                        await method(*given, **more)
                    await self._hang()
            return await method(*given, **more)

        return write

    @property
    def is_dead(self) -> bool:
        return self._left < 0


@pytest.mark.parametrize("after", [False, True], ids=["before the write", "after the write"])
@pytest.mark.parametrize("writes", [0, 1, 2, 3, 5, 7])
async def test_crash_at_each_write_of_a_rollout_converges(
    context: ControllerContext, unique: str, tmp_path: Path, writes: int, after: bool
) -> None:
    async with a_process(context, unique, tmp_path / "first") as platform:
        await platform.define()
        await platform.compose(good("1"))
        xrs = await fleet(platform, 4, {0: {"canary": "true"}})
        await policy(platform, waves=[CANARY], concurrency=2)
    cut = CutOff(context.client, writes, after=after)
    dying = _with(context, cast("Client", cut))
    async with a_process(dying, unique, tmp_path / "second") as platform:
        platform.client = context.client
        two = await platform.compose(good("2"))

        async def dead_or_done() -> bool:
            used = await revisions_used(platform, xrs)
            return cut.is_dead or set(used) == {two["metadata"]["name"]}

        await eventually(dead_or_done, "the process dies or is done", seconds=30)
        await _only_admitted(platform, xrs)
        cut.bury()
    async with a_process(context, unique, tmp_path / "third") as platform:
        await until_phase(platform, "Completed")
        await all_on(platform, xrs, two)
        assert [each["spec"]["changes"][0]["toNumber"] for each in await rollouts(platform)] == [2]

        async def released() -> bool:
            return await releases(platform) == [("True", "Released")] * 2

        await eventually(released, "both revisions are released")


def _with(context: ControllerContext, client: Client) -> ControllerContext:
    from dataclasses import replace

    return replace(context, client=client)


async def _only_admitted(platform: Platform, xrs: list[Object]) -> None:
    """Who runs a revision that is not released refers to it because a Rollout wrote so."""
    for xr in xrs:
        found = await platform.get(xr)
        for entry in found["metadata"].get("managedFields") or ():
            fields = ((entry.get("fieldsV1") or {}).get("f:spec") or {}).get("f:crossplane") or {}
            if "f:compositionRevisionRef" in fields:
                assert entry["manager"] in (MANAGER, "apiextensions.crossplane.io/composite")


async def test_restore_without_any_status_in_mid_rollout_moves_nobody_and_goes_on(
    context: ControllerContext, unique: str, tmp_path: Path
) -> None:
    async with a_process(context, unique, tmp_path / "before") as platform:
        await platform.define()
        one = await platform.compose(good("1"))
        xrs = await fleet(platform, 4, {0: {"canary": "true"}})
        await policy(platform, waves=[{**CANARY, "soak": "1h"}])
        two = await platform.compose(good("2"))

        async def soaks() -> bool:
            found = await rollouts(platform)
            return bool(found) and ((found[0].get("status") or {}).get("wave") or {}).get("state") == "Soaking"

        await eventually(soaks, "the canary soaks")
    for kind in (COMPOSITION_REVISION, ROLLOUT):
        for obj in (await context.client.list(kind)).items:
            await context.client.update({**obj, "status": {}}, subresource="status")
    async with a_process(context, unique, tmp_path / "after") as platform:
        await eventually(soaks, "the canary soaks again")
        used = await revisions_used(platform, xrs)
        assert used == [two["metadata"]["name"]] + [one["metadata"]["name"]] * 3

        async def told_again() -> bool:
            return await releases(platform) == [("True", "Released"), ("False", "InRollout")]

        await eventually(told_again, "both revisions say again who may use them")
        [rollout] = await rollouts(platform)
        await act(platform, rollout, "Promote", wave="canary")
        await until_phase(platform, "Completed")
        await all_on(platform, xrs, two)


async def test_crash_of_the_plane_keeps_an_abort_that_was_made_while_it_was_down(
    context: ControllerContext, unique: str, tmp_path: Path
) -> None:
    async with a_process(context, unique, tmp_path / "before") as platform:
        await platform.define()
        one = await platform.compose(good("1"))
        xrs = await fleet(platform, 3, {0: {"canary": "true"}})
        await policy(platform, waves=[{**CANARY, "soak": "1h"}])
        two = await platform.compose(good("2"))

        async def moved() -> bool:
            return (await revisions_used(platform, xrs))[0] == str(two["metadata"]["name"])

        await eventually(moved, "the canary moved")
        [rollout] = await rollouts(platform)
    await act(platform, rollout, "Abort")
    async with a_process(context, unique, tmp_path / "after") as platform:
        await until_phase(platform, "Aborted")
        await all_on(platform, xrs, one)


async def test_machine_stops_a_bad_change_though_the_watch_is_behind(context: ControllerContext, unique: str) -> None:
    async with a_platform(context, unique) as platform:
        one = await platform.compose(good("1"))
        xrs = await fleet(platform, 3)
        await policy(platform, concurrency=1)
        await platform.compose(bad())
        aborted = await until_phase(platform, "Aborted")
        await all_on(platform, xrs, one)
        assert aborted["status"]["history"][-1]["action"] == "Abort"
