"""Rollouts beside failures: hand-overs, jumping clocks, edited policies, stops in every state.

Each claim is judged twice: by where everybody ends, and by `oracle` over all that was stored on the way.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from planform.api.kinds import Object
from planform.api.names import CHANGE_WINDOW, COMPOSITION_REVISION, ROLLOUT, ROLLOUT_POLICY
from planform.clock import SystemClock
from planform.reconcile.context import ControllerContext
from tests.controllers.composing import Platform, a_platform, a_process
from tests.controllers.conftest import LONG_ON_KUBERNETES
from tests.harness.contexts import embedded_context, eventually
from tests.harness.disturbed_watches import DisturbedWatches
from tests.rollouts.oracle import judged
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

pytestmark = [pytest.mark.timeout(300)]

CANARY: Object = {"name": "canary", "xrs": {"matchLabels": {"canary": "true"}}}
ALL: Object = {"name": "all", "approval": {"count": 1}}
NEVER = "wave.xrs.all(x, has(x.status.nothingSaysThis))"


async def until_state(platform: Platform, check: Callable[[Object], object], what: str) -> Object:
    """Wait until the status of the latest Rollout is such; gives the Rollout."""
    seen: list[Any] = []

    async def look() -> Object | None:
        found = await rollouts(platform)
        seen[:] = [each.get("status") for each in found[-1:]]
        return found[-1] if found and check(found[-1].get("status") or {}) else None

    try:
        return await eventually(look, what, seconds=60)
    except AssertionError as error:
        error.add_note(str(seen))
        raise


def waits_for(reason: str) -> Callable[[Object], bool]:
    return lambda status: (status.get("waiting") or {}).get("for") == reason


def is_at(state: str) -> Callable[[Object], bool]:
    return lambda status: (status.get("wave") or {}).get("state") == state


# -- abort in each named state

STATES: dict[str, tuple[Object, Callable[[Object], object]]] = {
    "Soaking": ({"waves": [{**CANARY, "soak": "1h"}]}, is_at("Soaking")),
    "Waiting for an approval": ({"waves": [CANARY, ALL]}, waits_for("Approval")),
    "AwaitingApproval": ({"start": "WhenApproved"}, lambda status: status.get("phase") == "AwaitingApproval"),
    "Pending": ({"start": "Manual"}, lambda status: status.get("phase") == "Pending"),
    "Waiting for a window": ({"waves": [CANARY]}, waits_for("Window")),
    "Paused": ({"waves": [{**CANARY, "soak": "1h"}]}, is_at("Soaking")),
    "Gating": (
        {
            "waves": [CANARY, {"name": "all"}],
            "gates": [{"name": "never", "cel": NEVER, "interval": "1h", "count": 5, "failureLimit": 5}],
        },
        is_at("Gating"),
    ),
    "Previewing": (
        {"preview": {"accept": ["summary.changed == 0"]}},
        lambda status: status.get("phase") in ("Previewing", "AwaitingApproval"),
    ),
    "Admitting": ({"concurrency": 1}, lambda status: (status.get("counts") or {}).get("target", 0) >= 1),
    "PromoteFull": ({"waves": [CANARY, ALL], "concurrency": 1}, waits_for("Approval")),
}


@pytest.mark.parametrize("state", STATES)
@LONG_ON_KUBERNETES
async def test_machine_is_aborted_in_each_state(context: ControllerContext, unique: str, state: str) -> None:
    spec, check = STATES[state]
    async with a_platform(context, unique) as platform:
        one = await platform.compose(good("1"))
        xrs = await fleet(platform, 5, {0: {"canary": "true"}})
        if "window" in state:
            await context.client.create(closed(unique))
        try:
            async with judged(context.client, platform.kind):
                await policy(platform, **spec)
                await platform.compose(good("2"))
                rollout = await until_state(platform, check, f"the Rollout is {state}")
                if state == "Paused":
                    await act(platform, rollout, "Pause")
                    await until_phase(platform, "Paused")
                elif state == "PromoteFull":
                    await act(platform, rollout, "PromoteFull")
                await act(platform, rollout, "Abort", reason="enough")
                ended = await until_state(
                    platform, lambda status: status.get("phase") in ("Aborted", "Completed"), "it has ended"
                )
                # One that had nobody left to move may have ended a moment before.
                if ended["status"]["phase"] == "Aborted" or state != "Admitting":
                    assert ended["status"]["phase"] == "Aborted"
                    await all_on(platform, xrs, one)
        finally:
            if "window" in state:
                await context.client.delete(CHANGE_WINDOW, f"{unique}-closed")


def closed(unique: str) -> Object:
    return {
        "apiVersion": CHANGE_WINDOW.api_version,
        "kind": CHANGE_WINDOW.kind,
        "metadata": {"name": f"{unique}-closed"},
        "spec": {"effect": "Deny", "for": {}, "once": {"from": "2020-01-01T00:00:00Z", "to": "2099-01-01T00:00:00Z"}},
    }


@LONG_ON_KUBERNETES
async def test_machine_lets_an_abort_win_over_a_promotion_and_an_undo_be_undone_by_a_retry(
    context: ControllerContext, unique: str
) -> None:
    async with a_platform(context, unique) as platform:
        one = await platform.compose(good("1"))
        xrs = await fleet(platform, 4, {0: {"canary": "true"}})
        async with judged(context.client, platform.kind):
            await policy(platform, waves=[CANARY, ALL])
            two = await platform.compose(good("2"))
            rollout = await until_state(platform, waits_for("Approval"), "the second wave waits")
            await asyncio.gather(
                act(platform, rollout, "Promote", wave="all"), act(platform, rollout, "Abort", reason="both at once")
            )
            aborted = await until_phase(platform, "Aborted")
            await all_on(platform, xrs, one)
            await act(platform, aborted, "Retry")
            again = await until_phase(platform, "Running", attempt=2)
            await act(platform, again, "PromoteFull")
            done = await until_phase(platform, "Completed", attempt=2)
            await all_on(platform, xrs, two)
            await act(platform, done, "Undo")
            await act(platform, done, "Abort", reason="abort during undo")
            await all_on(platform, xrs, one)
            ended = await until_state(
                platform, lambda status: status.get("phase") in ("Undone", "Aborted"), "it is taken back"
            )
            await act(platform, ended, "Retry")
            third = await until_phase(platform, "Running", attempt=3)
            await act(platform, third, "PromoteFull")
            await until_phase(platform, "Completed", attempt=3)
            await all_on(platform, xrs, two)


# -- one process after the other


@LONG_ON_KUBERNETES
async def test_machine_is_handed_over_in_every_phase(context: ControllerContext, unique: str, tmp_path: Path) -> None:
    """Every step is looked at by the process that began it and finished by the next one."""
    async with a_process(context, unique, tmp_path / "0") as platform:
        await platform.define()
        one = await platform.compose(good("1"))
        xrs = await fleet(platform, 4, {0: {"canary": "true"}})
        await policy(platform, waves=[{**CANARY, "soak": "1h"}, ALL], concurrency=1)
    names: list[str] = []

    async def steps(platform: Platform) -> list[Callable[[], Awaitable[object]]]:
        async def promote() -> None:
            rollout = await until_state(platform, is_at("Soaking"), "the canary soaks")
            await act(platform, rollout, "Promote", wave="canary")

        async def approve() -> None:
            rollout = await until_state(platform, waits_for("Approval"), "the second wave waits")
            await act(platform, rollout, "Approve", wave="all", by="alice")

        async def undo() -> None:
            await act(platform, await until_phase(platform, "Completed"), "Undo")

        async def retry() -> None:
            await act(platform, await until_phase(platform, "Undone"), "Retry")

        async def pause() -> None:
            rollout = await until_state(platform, is_at("Soaking"), "the canary soaks again")
            await act(platform, rollout, "Pause")

        async def abort() -> None:
            await act(platform, await until_phase(platform, "Paused", attempt=2), "Abort")

        async def newer() -> None:
            await until_phase(platform, "Aborted", attempt=2)
            await platform.client.apply(platform.composition(good("3")), manager="author", force=True)

        async def supersede() -> None:
            await until_state(platform, is_at("Soaking"), "the canary of the third soaks")
            await platform.client.apply(platform.composition(good("4")), manager="author", force=True)

        async def revert() -> None:
            await until_state(platform, is_at("Soaking"), "the canary of the fourth soaks")
            await platform.client.apply(platform.composition(good("1")), manager="author", force=True)

        return [promote, approve, undo, retry, pause, abort, newer, supersede, revert]

    async with judged(context.client, platform.kind):
        await context.client.apply(platform.composition(good("2")), manager="author", force=True)
        for number in range(9):
            async with a_process(context, unique, tmp_path / str(number + 1)) as platform:
                step = (await steps(platform))[number]
                await step()
                names.append(step.__name__)
        async with a_process(context, unique, tmp_path / "last") as platform:
            await until_phase(platform, "Aborted")
            await all_on(platform, xrs, one)
            for xr in xrs:
                await platform.ready(xr)


# -- watches


@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=pytest.mark.long) for seed in (12, 13, 17, 18))])
async def test_machine_hears_late_twice_and_not_at_all(unique: str, seed: int) -> None:
    async with (
        embedded_context(watched_by=lambda each: DisturbedWatches(each, clock=SystemClock(), seed=seed)) as context,
        a_platform(context, unique) as platform,
    ):
        one = await platform.compose(good("1"))
        xrs = await fleet(platform, 4, {0: {"canary": "true"}})
        async with judged(context.client, platform.kind):
            await policy(platform, waves=[CANARY, ALL], concurrency=1)
            await eventually(lambda: is_held(platform), "the policy is known")
            two = await platform.compose(good("2"))
            rollout = await until_state(platform, waits_for("Approval"), "the second wave waits")
            await act(platform, rollout, "Approve", wave="all", by="alice")
            done = await until_state(platform, lambda status: status.get("phase") == "Completed", "it is done")
            await all_on(platform, xrs, two)
            await act(platform, done, "Undo")
            await until_state(platform, lambda status: status.get("phase") == "Undone", "it is undone")
            await all_on(platform, xrs, one)
        async with judged(context.client, platform.kind) as oracle:
            await platform.compose(bad())
            await until_state(platform, lambda status: status.get("phase") == "Aborted", "it fails and goes back")
            await all_on(platform, xrs, one)
        assert sum(oracle.admissions.values()) == 1, "the canary alone"


async def is_held(platform: Platform) -> bool:
    """Whether the control plane has heard of the policy: what is changed before that is changed without one."""
    return await releases(platform) == [("True", "Released")]


# -- clocks


class JumpingClock(SystemClock):
    """The system's, whose wall time goes elsewhere when told to."""

    def __init__(self) -> None:
        self.ahead = timedelta()

    def now(self) -> datetime:
        return super().now() + self.ahead


@pytest.mark.parametrize("hours", [1, -1])
async def test_machine_soaks_no_shorter_when_the_clock_jumps(unique: str, hours: int) -> None:
    clock = JumpingClock()
    async with embedded_context(clock=clock) as context, a_platform(context, unique) as platform:
        one = await platform.compose(good("1"))
        xrs = await fleet(platform, 3, {0: {"canary": "true"}})
        await policy(platform, waves=[{**CANARY, "soak": "30m"}])
        two = await platform.compose(good("2"))
        before = await until_state(platform, is_at("Soaking"), "the canary soaks")
        clock.ahead = timedelta(hours=hours)
        # Anything makes the Rollout look at the clock; a jump ahead must not be taken for time that went by.
        await platform.merge(xrs[0], {"metadata": {"annotations": {"example.org/touched": "1"}}})
        settled = before["status"]["wave"]["until"]

        def rearmed(status: Object) -> bool:
            return is_at("Soaking")(status) and status["wave"]["until"] != settled

        after = await until_state(platform, rearmed, "the soak begins anew")
        until = datetime.fromisoformat(after["status"]["wave"]["until"])
        assert timedelta(minutes=25) < until - clock.now() <= timedelta(minutes=30)
        used = await revisions_used(platform, xrs)
        assert used == [two["metadata"]["name"]] + [one["metadata"]["name"]] * 2


# -- policies


@LONG_ON_KUBERNETES
@pytest.mark.parametrize("change", ["edited", "deleted"])
async def test_machine_keeps_its_snapshot_of_a_policy(context: ControllerContext, unique: str, change: str) -> None:
    async with a_platform(context, unique) as platform:
        one = await platform.compose(good("1"))
        xrs = await fleet(platform, 4, {0: {"canary": "true"}})
        async with judged(context.client, platform.kind):
            held = await policy(platform, waves=[CANARY, ALL])
            two = await platform.compose(good("2"))
            rollout = await until_state(platform, waits_for("Approval"), "the second wave waits")
            if change == "edited":
                await policy(platform, waves=[])
            else:
                await context.client.delete(ROLLOUT_POLICY, held["metadata"]["name"])
            await platform.merge(xrs[1], {"metadata": {"annotations": {"example.org/touched": "1"}}})
            await platform.at_rest(*xrs)
            used = await revisions_used(platform, xrs)
            assert used == [two["metadata"]["name"]] + [one["metadata"]["name"]] * 3
            await act(platform, rollout, "Approve", wave="all", by="alice")
            await until_phase(platform, "Completed")
            await all_on(platform, xrs, two)


# -- restores


@LONG_ON_KUBERNETES
@pytest.mark.parametrize("phase", ["Waiting", "Completed", "Aborted", "Undone"])
async def test_restore_without_status_changes_nobody(
    context: ControllerContext, unique: str, tmp_path: Path, phase: str
) -> None:
    async with a_process(context, unique, tmp_path / "before") as platform:
        await platform.define()
        one = await platform.compose(good("1"))
        xrs = await fleet(platform, 4, {0: {"canary": "true"}})
        await policy(platform, waves=[CANARY, ALL])
        two = await platform.compose(good("2"))
        rollout = await until_state(platform, waits_for("Approval"), "the second wave waits")
        if phase == "Aborted":
            await act(platform, rollout, "Abort")
        elif phase in ("Completed", "Undone"):
            await act(platform, rollout, "PromoteFull")
            rollout = await until_phase(platform, "Completed")
            if phase == "Undone":
                await act(platform, rollout, "Undo")
        if phase != "Waiting":
            await until_phase(platform, phase)
        before = await revisions_used(platform, xrs)
    for kind in (COMPOSITION_REVISION, ROLLOUT):
        for obj in (await context.client.list(kind)).items:
            await context.client.update({**obj, "status": {}}, subresource="status")
    async with (
        judged(context.client, platform.kind) as oracle,
        a_process(context, unique, tmp_path / "after") as platform,
    ):
        if phase == "Waiting":
            await until_state(platform, waits_for("Approval"), "the second wave waits again")
        else:
            await until_phase(platform, phase)
        await platform.at_rest(*xrs)
        assert await revisions_used(platform, xrs) == before
    assert not oracle.admissions
    assert set(before) <= {one["metadata"]["name"], two["metadata"]["name"]}
