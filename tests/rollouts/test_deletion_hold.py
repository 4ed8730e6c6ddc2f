"""Compositions under a policy, and their revisions, stay as long as XRs use them."""

from __future__ import annotations

import pytest

from planform.api.kinds import Object
from planform.api.names import COMPOSITION, COMPOSITION_REVISION, IN_USE_FINALIZER, ROLLOUT_POLICY
from planform.client.protocol import Propagation
from planform.errors import AlreadyExists
from planform.reconcile.context import ControllerContext
from planform.rollouts.under_way import RolloutsUnderWay, refuse_active, refuse_unreleased
from tests.controllers.composing import Platform, a_platform
from tests.harness.contexts import condition_of, eventually, read
from tests.rollouts.rolling import act, all_on, fleet, good, policy, releases, revisions_used, until_phase

pytestmark = pytest.mark.timeout(120)


async def kept(platform: Platform) -> bool:
    """Whether the Composition and all of its revisions have the finalizer."""
    objects = [await platform.client.get(COMPOSITION, f"{platform.unique}-apps"), *await platform.revisions()]
    return all(IN_USE_FINALIZER in each["metadata"].get("finalizers", ()) for each in objects)


async def until_kept(platform: Platform) -> None:
    await eventually(lambda: kept(platform), "the finalizers are there")


async def until_gone(platform: Platform) -> None:
    async def gone() -> bool:
        composition = await read(platform.client, COMPOSITION, f"{platform.unique}-apps", "")
        return composition is None and not await platform.revisions()

    await eventually(gone, "the Composition and its revisions are gone", seconds=30)


async def until_waiting(platform: Platform) -> Object:
    async def waiting() -> Object | None:
        found = await platform.client.get(COMPOSITION, f"{platform.unique}-apps")
        return found if (condition_of(found, "Synced") or {}).get("reason") == "InUse" else None

    return await eventually(waiting, "the deletion of the Composition waits")


@pytest.mark.parametrize(
    "propagation", [Propagation.BACKGROUND, Propagation.FOREGROUND], ids=lambda each: each.name.lower()
)
async def test_a_composition_under_a_policy_that_xrs_use_outlives_its_deletion(
    context: ControllerContext, unique: str, propagation: Propagation
) -> None:
    async with a_platform(context, unique) as platform:
        one = await platform.compose(good("1"))
        xrs = await fleet(platform, 2)
        await policy(platform)
        await until_kept(platform)
        await platform.client.delete(COMPOSITION, f"{unique}-apps", propagation=propagation)
        waiting = await until_waiting(platform)
        assert f'RolloutPolicy "{unique}-policy"' in str(condition_of(waiting, "Synced"))
        with pytest.raises(AlreadyExists):  # as a tool that replaces it would
            await platform.client.create(platform.composition(good("2")))
        assert await revisions_used(platform, xrs) == [one["metadata"]["name"]] * 2
        assert [each["metadata"]["name"] for each in await platform.revisions()] == [one["metadata"]["name"]]
        for xr in xrs:
            await platform.client.delete(platform.kind, xr["metadata"]["name"], namespace=platform.namespace)
        await until_gone(platform)


async def test_without_its_policy_a_composition_goes_as_always(context: ControllerContext, unique: str) -> None:
    async with a_platform(context, unique) as platform:
        await platform.compose(good("1"))
        await fleet(platform, 1)
        await policy(platform)
        await until_kept(platform)
        await platform.client.delete(COMPOSITION, f"{unique}-apps")
        await until_waiting(platform)
        await platform.client.delete(ROLLOUT_POLICY, f"{unique}-policy")
        await until_gone(platform)


async def test_a_policy_that_goes_takes_the_finalizers_along(context: ControllerContext, unique: str) -> None:
    async with a_platform(context, unique) as platform:
        await platform.compose(good("1"))
        await policy(platform)
        await until_kept(platform)
        await platform.client.delete(ROLLOUT_POLICY, f"{unique}-policy")

        async def free() -> bool:
            objects = [await platform.client.get(COMPOSITION, f"{unique}-apps"), *await platform.revisions()]
            return not any(each["metadata"].get("finalizers") for each in objects)

        await eventually(free, "the finalizers are gone")


async def test_a_revision_that_xrs_use_is_kept_and_goes_when_they_have_moved(
    context: ControllerContext, unique: str
) -> None:
    async with a_platform(context, unique) as platform:
        one = await platform.compose(good("1"))
        xrs = await fleet(platform, 1)
        await policy(platform, start="Manual")
        await until_kept(platform)
        two = await platform.compose(good("2"))
        rollout = await until_phase(platform, "Pending", revision=two["metadata"]["name"])
        assert await kept(platform)
        await platform.client.delete(COMPOSITION_REVISION, one["metadata"]["name"])
        found = await platform.client.get(COMPOSITION_REVISION, one["metadata"]["name"])
        assert found["metadata"]["deletionTimestamp"]
        assert await revisions_used(platform, xrs) == [one["metadata"]["name"]]
        await act(platform, rollout, "Promote")
        await all_on(platform, xrs, two)

        async def gone() -> bool:
            return await read(platform.client, COMPOSITION_REVISION, one["metadata"]["name"], "") is None

        await eventually(gone, "the revision is gone", seconds=30)


async def test_an_abort_goes_back_also_while_the_composition_is_being_deleted(
    context: ControllerContext, unique: str
) -> None:
    async with a_platform(context, unique) as platform:
        one = await platform.compose(good("1"))
        xrs = await fleet(platform, 2, {0: {"canary": "true"}})
        await policy(platform, waves=[{"name": "canary", "xrs": {"matchLabels": {"canary": "true"}}, "soak": "1h"}])
        await until_kept(platform)
        two = await platform.compose(good("2"))
        rollout = await until_phase(platform, "Running", revision=two["metadata"]["name"])
        await all_on(platform, xrs[:1], two)
        with pytest.raises(RolloutsUnderWay, match="would move all XRs to the newest revisions at once") as refused:
            await refuse_unreleased(platform.client)
        assert rollout["metadata"]["name"] in refused.value.rollouts
        assert f"{unique}-apps" in refused.value.held
        with pytest.raises(RolloutsUnderWay):
            await refuse_active(platform.client)
        await platform.client.delete(COMPOSITION, f"{unique}-apps")
        await until_waiting(platform)
        await act(platform, rollout, "Abort")
        await until_phase(platform, "Aborted")
        await all_on(platform, xrs, one)
        assert await releases(platform) == [("True", "Released"), ("False", "Aborted")]
