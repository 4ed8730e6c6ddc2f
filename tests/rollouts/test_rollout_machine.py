"""Rollouts as a whole, on both engines: waves, failures, actions, and the ways back."""

from __future__ import annotations

from collections.abc import Awaitable

import pytest

from planform.reconcile.context import ControllerContext
from tests.controllers.composing import a_platform
from tests.harness.contexts import eventually
from tests.rollouts.rolling import (
    act,
    all_on,
    bad,
    composition_condition,
    fleet,
    good,
    policy,
    releases,
    revisions_used,
    rollouts,
    until_phase,
)

pytestmark = pytest.mark.timeout(120)


async def test_without_a_policy_no_revision_says_anything_of_its_release(
    context: ControllerContext, unique: str
) -> None:
    async with a_platform(context, unique) as platform:
        await platform.compose(good("1"))
        [xr] = await fleet(platform, 1)
        two = await platform.compose(good("2"))
        await all_on(platform, [xr], two)
        assert await releases(platform) == [None, None]
        assert await rollouts(platform) == []
        assert "composedBy" not in (await platform.get(xr))["status"]["planform"]


async def test_a_good_change_goes_through_all_waves_and_is_released(context: ControllerContext, unique: str) -> None:
    async with a_platform(context, unique) as platform:
        one = await platform.compose(good("1"))
        xrs = await fleet(platform, 6, {0: {"canary": "true"}})
        await policy(
            platform,
            waves=[
                {"name": "canary", "xrs": {"matchLabels": {"canary": "true"}}},
                {"name": "half", "percent": [50, 100]},
            ],
        )
        await eventually(lambda: _is(releases(platform), [("True", "Released")]), "the first revision is released")
        two = await platform.compose(good("2"))
        done = await until_phase(platform, "Completed")
        await all_on(platform, xrs, two)
        counts = done["status"]["counts"]
        assert (counts["xrs"], counts["target"], counts["ready"]) == (6, 6, 6)
        names = [each["name"] for each in done["status"]["waves"] if each["xrs"]]
        assert names == ["canary", "half"]
        change = done["spec"]["changes"][0]
        assert (change["from"], change["to"]) == (one["metadata"]["name"], two["metadata"]["name"])
        await eventually(lambda: _is(releases(platform), [("True", "Released")] * 2), "the new revision is released")
        rolled = await composition_condition(platform, "RolledOut")
        assert rolled is not None and rolled["status"] == "True"


async def test_a_bad_change_stops_at_the_canary_and_goes_back_by_itself(
    context: ControllerContext, unique: str
) -> None:
    async with a_platform(context, unique) as platform:
        one = await platform.compose(good("1"))
        xrs = await fleet(platform, 5, {0: {"canary": "true"}})
        await policy(platform, waves=[{"name": "canary", "xrs": {"matchLabels": {"canary": "true"}}}])
        await platform.compose(bad())
        aborted = await until_phase(platform, "Aborted")
        await all_on(platform, xrs, one)
        for xr in xrs:
            await platform.ready(xr)
        assert [each["action"] for each in aborted["status"]["history"]] == ["Abort"]
        assert aborted["status"]["history"][0]["by"] == "planform"
        assert (await releases(platform))[-1] == ("False", "Aborted")
        stalled = await composition_condition(platform, "Stalled")
        assert stalled is not None and stalled["status"] == "True"


async def test_undo_brings_everybody_back_with_one_write_and_retry_begins_again(
    context: ControllerContext, unique: str
) -> None:
    async with a_platform(context, unique) as platform:
        one = await platform.compose(good("1"))
        xrs = await fleet(platform, 4)
        await policy(platform)
        two = await platform.compose(good("2"))
        done = await until_phase(platform, "Completed")
        await all_on(platform, xrs, two)
        await act(platform, done, "Undo", reason="p99 doubled")
        undone = await until_phase(platform, "Undone")
        await all_on(platform, xrs, one)
        assert (await releases(platform))[-1] == ("False", "Undone")
        await act(platform, undone, "Retry")
        await until_phase(platform, "Completed", attempt=2)
        await all_on(platform, xrs, two)


async def test_a_pause_holds_what_is_left_and_a_resume_goes_on(context: ControllerContext, unique: str) -> None:
    async with a_platform(context, unique) as platform:
        one = await platform.compose(good("1"))
        xrs = await fleet(platform, 4, {0: {"canary": "true"}})
        await policy(
            platform,
            waves=[
                {"name": "canary", "xrs": {"matchLabels": {"canary": "true"}}},
                {"name": "all", "approval": {"count": 1}},
            ],
        )
        two = await platform.compose(good("2"))

        async def waits() -> bool:
            found = await rollouts(platform)
            return bool(found) and (found[0].get("status") or {}).get("waiting", {}).get("for") == "Approval"

        await eventually(waits, "the second wave waits for an approval")
        used = await revisions_used(platform, xrs)
        assert used == [two["metadata"]["name"]] + [one["metadata"]["name"]] * 3
        [rollout] = await rollouts(platform)
        await act(platform, rollout, "Pause")
        await until_phase(platform, "Paused")
        await act(platform, rollout, "Approve", wave="all", by="alice")
        await until_phase(platform, "Paused")
        assert (await revisions_used(platform, xrs))[1:] == [one["metadata"]["name"]] * 3
        await act(platform, rollout, "Resume")
        await until_phase(platform, "Completed")
        await all_on(platform, xrs, two)


async def test_a_newer_revision_supersedes_and_its_rollout_takes_the_moved_xrs_first(
    context: ControllerContext, unique: str
) -> None:
    async with a_platform(context, unique) as platform:
        one = await platform.compose(good("1"))
        xrs = await fleet(platform, 4, {0: {"canary": "true"}})
        await policy(
            platform,
            waves=[
                {"name": "canary", "xrs": {"matchLabels": {"canary": "true"}}, "soak": "1h"},
                {"name": "all"},
            ],
        )
        two = await platform.compose(good("2"))

        async def moved() -> bool:
            return (await revisions_used(platform, xrs))[0] == str(two["metadata"]["name"])

        await eventually(moved, "the canary moved")
        three = await platform.compose(good("3"))
        await until_phase(platform, "Superseded", revision=two["metadata"]["name"])
        running = await until_phase(platform, "Running", revision=three["metadata"]["name"])
        assert running["spec"]["changes"][0]["from"] == one["metadata"]["name"]
        await act(platform, running, "PromoteFull")
        await until_phase(platform, "Completed", revision=three["metadata"]["name"])
        await all_on(platform, xrs, three)


async def test_going_back_to_the_stable_revision_in_git_is_an_abort(context: ControllerContext, unique: str) -> None:
    async with a_platform(context, unique) as platform:
        one = await platform.compose(good("1"))
        xrs = await fleet(platform, 3, {0: {"canary": "true"}})
        waves = [{"name": "canary", "xrs": {"matchLabels": {"canary": "true"}}, "soak": "1h"}]
        await policy(platform, waves=waves)
        two = await platform.compose(good("2"))

        async def moved() -> bool:
            return (await revisions_used(platform, xrs))[0] == str(two["metadata"]["name"])

        await eventually(moved, "the canary moved")
        back = await platform.compose(good("1"))
        assert back["metadata"]["name"] == one["metadata"]["name"]
        await until_phase(platform, "Aborted")
        await all_on(platform, xrs, one)
        assert len(await rollouts(platform)) == 1


async def test_a_revert_to_what_was_released_before_reaches_everybody_at_once(
    context: ControllerContext, unique: str
) -> None:
    async with a_platform(context, unique) as platform:
        one = await platform.compose(good("1"))
        xrs = await fleet(platform, 3)
        await policy(platform, waves=[{"name": "all", "approval": {"count": 1}}])
        await platform.compose(good("2"))
        running = await until_phase(platform, "Running")
        await act(platform, running, "PromoteFull")
        await until_phase(platform, "Completed")
        await platform.compose(good("1"))
        await all_on(platform, xrs, one)
        last = (await rollouts(platform))[-1]
        assert last["spec"]["changes"][0]["cause"] == {"rollback": True}


async def _is(found: Awaitable[object], wanted: object) -> bool:
    return (await found) == wanted
