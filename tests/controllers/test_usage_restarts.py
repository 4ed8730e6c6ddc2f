"""Usages over restarts and at rest: what is protected meanwhile, what converges, and that nothing is written."""

from __future__ import annotations

from pathlib import Path

import pytest

from planform.api.kinds import GroupVersionKind
from planform.api.names import CLUSTER_USAGE, EVENT, NOP_RESOURCE, USAGE
from planform.api.xr import COMPOSITE_LABEL
from planform.clock import VirtualClock
from planform.errors import NotFound, ServiceUnavailable
from planform.reconcile.context import ControllerContext
from planform.usages.controller import UsageController, UsageGuard
from planform.usages.usages import IN_USE_LABEL, InUse
from tests.controllers.using import (
    HOLD,
    attempt,
    deleted,
    guarded,
    idle,
    merged,
    nop,
    pair,
    side,
    stored,
    until_gone,
    until_marked,
    usage,
)
from tests.harness.contexts import embedded_context, eventually, until_condition


async def test_until_all_usages_are_read_nothing_that_is_marked_can_be_deleted(tmp_path: Path) -> None:
    async with guarded(tmp_path) as context:
        used, unused = await context.client.create(nop("used")), await context.client.create(nop("unused"))
        created = await context.client.create(usage("u", of=side("used"), reason="r"))
        await until_condition(context.client, created, "Ready")
    guard = UsageGuard()
    async with embedded_context(tmp_path, admission=[guard]) as context:
        with pytest.raises(ServiceUnavailable, match="marked as in use"):
            await deleted(context, used)
        await deleted(context, unused)
        UsageController(context, guard).start()

        async def refused() -> bool:
            try:
                await deleted(context, used)
            except ServiceUnavailable:
                return False
            except InUse:
                return True
            pytest.fail("it was deleted")

        await eventually(refused, "the usage protects again")


async def test_a_mark_that_outlived_its_usage_holds_nobody_up(tmp_path: Path) -> None:
    async with guarded(tmp_path) as context:
        stale = await context.client.create(nop("n", labels={IN_USE_LABEL: "true"}))

        async def let_go() -> bool:
            try:
                await deleted(context, stale)
            except ServiceUnavailable:
                return False
            return True

        await eventually(let_go, "without usages the index is complete too")
        with pytest.raises(NotFound):
            await deleted(context, stale)


async def test_a_restart_writes_nothing(tmp_path: Path) -> None:
    clock = VirtualClock()

    async def versions(context: ControllerContext) -> dict[tuple[str, str], str]:
        await idle(300)
        await context.events.written()
        kinds: tuple[GroupVersionKind, ...] = (USAGE, CLUSTER_USAGE, NOP_RESOURCE, EVENT)
        return {
            (kind.kind, obj["metadata"]["name"]): obj["metadata"]["resourceVersion"]
            for kind in kinds
            for obj in (await context.client.list(kind)).items
        }

    async with guarded(tmp_path, clock=clock) as context:
        await pair(context, "n")
        composed = usage("waiting", labels={COMPOSITE_LABEL: "xr"}, of=side("n-of"), by=side("n-by"))
        for wanted, status in (
            (usage("ready", of=side("n-of"), by=side("n-by")), "True"),
            (usage("missing", of=side("nothing"), reason="r"), "False"),
            (usage("unresolved", of=side(matchLabels={"a": "b"}), reason="r"), "False"),
            (composed, "True"),
        ):
            await until_condition(context.client, await context.client.create(wanted), "Ready", status)
        await deleted(context, composed)
        await until_condition(context.client, composed, "Ready", "False", reason="WaitingUsingDeleted")
        before = await versions(context)
        assert {name for kind, name in before if kind == "Usage"} == {"ready", "missing", "unresolved", "waiting"}
    async with guarded(tmp_path, clock=clock) as context:
        assert await versions(context) == before
        await clock.advance(24 * 3600)  # in which events come to their end
        after = await versions(context)
        assert after == {key: version for key, version in before.items() if key[0] != "Event"}


async def test_a_user_that_went_while_nobody_looked_is_noticed(tmp_path: Path) -> None:
    async with guarded(tmp_path) as context:
        used, using = await pair(context, "n")
        created = await context.client.create(
            usage("u", labels={COMPOSITE_LABEL: "xr"}, of=side("n-of"), by=side("n-by"), replayDeletion=True)
        )
        await until_condition(context.client, created, "Ready")
        await deleted(context, created)
        await until_condition(context.client, created, "Ready", "False", reason="WaitingUsingDeleted")
        with pytest.raises(InUse):
            await deleted(context, used)

        async def recorded() -> bool:
            return attempt(await stored(context, used)) is not None

        await eventually(recorded, "the attempt is recorded")
    async with embedded_context(tmp_path) as context:  # neither guard nor controller
        await deleted(context, using)
    async with guarded(tmp_path) as context:
        await until_gone(context, created)
        await until_gone(context, used)


async def test_a_crash_between_replaying_and_letting_go_converges(tmp_path: Path) -> None:
    """The used object is terminating already when the controller comes back to the usage that ends."""
    async with guarded(tmp_path) as context:
        used = await context.client.create(nop("n", finalizers=[HOLD]))
        created = await context.client.create(usage("u", of=side("n"), reason="r", replayDeletion=True))
        await until_condition(context.client, created, "Ready")
        with pytest.raises(InUse):
            await deleted(context, used)

        async def recorded() -> bool:
            return attempt(await stored(context, used)) is not None

        await eventually(recorded, "the attempt is recorded")
    async with embedded_context(tmp_path) as context:  # as the replay left it
        await deleted(context, created)
        await deleted(context, used)
    async with guarded(tmp_path) as context:
        await until_gone(context, created)
        left = await until_marked(context, used, False)
        assert "deletionTimestamp" in left["metadata"] and attempt(left) is None
        await merged(context, used, {"metadata": {"finalizers": None}})
        await until_gone(context, used)


async def test_a_usage_that_others_still_hold_protects_no_more_once_it_has_let_go(tmp_path: Path) -> None:
    async with guarded(tmp_path) as context:
        used = [await context.client.create(nop(name)) for name in ("a", "b")]
        for obj in used:
            held = usage(obj["metadata"]["name"], of=side(obj["metadata"]["name"]), reason="r")
            held["metadata"]["finalizers"] = [HOLD]
            await until_condition(context.client, await context.client.create(held), "Ready")
            await deleted(context, held)
            await until_marked(context, obj, False)
        await deleted(context, used[0])
        assert await stored(context, used[0]) is None
    async with guarded(tmp_path) as context:

        async def let_go() -> bool:
            try:
                await deleted(context, used[1])
            except InUse:
                return False
            return True

        await eventually(let_go, "after a restart too")


async def test_changes_of_what_is_in_use_do_not_reconcile_its_usages() -> None:
    async with guarded() as context:
        used = await context.client.create(nop("n"))
        created = await context.client.create(usage("u", of=side("n"), reason="r"))
        await until_condition(context.client, created, "Ready")
        await idle()
        reconciles = context.metrics.counter(
            "planform_reconcile_total", "Reconciles, by controller and how they ended.", ["controller", "outcome"]
        ).labels("usages", "success")
        before = reconciles.value
        for number in range(20):
            await merged(context, used, {"metadata": {"annotations": {"n": str(number)}}})
        await idle()
        assert reconciles.value == before


async def test_the_watch_of_a_kind_ends_with_the_last_usage_that_names_it() -> None:
    async with guarded() as context:
        await context.client.create(nop("n"))
        created = await context.client.create(usage("u", of=side("n"), reason="r"))
        await until_condition(context.client, created, "Ready")
        kinds = 3  # of Usages
        assert len(context.manager.sources("usages")) == kinds + 1
        await deleted(context, created)
        await until_gone(context, created)

        async def unwatched() -> bool:
            return len(context.manager.sources("usages")) == kinds

        await eventually(unwatched, "only usages are watched")
