"""What RolloutPolicies say of themselves, and with which revision new XRs begin."""

from __future__ import annotations

import pytest

from planform.api.kinds import Object
from planform.api.names import ROLLOUT_POLICY
from planform.errors import Invalid
from planform.reconcile.context import ControllerContext
from tests.controllers.composing import Platform, a_platform
from tests.harness.contexts import condition_of, eventually
from tests.rollouts.rolling import fleet, good, policy, revision_of, rollouts, until_phase

pytestmark = pytest.mark.timeout(120)


async def conflict(platform: Platform, name: str, wanted: str) -> Object:
    async def look() -> Object | None:
        found = await platform.client.get(ROLLOUT_POLICY, name)
        condition = condition_of(found, "Conflict")
        return found if condition is not None and condition["status"] == wanted else None

    return await eventually(look, f"Conflict of {name} is {wanted}", seconds=30)


async def test_two_policies_that_are_as_specific_say_so_and_a_more_specific_one_does_not(
    context: ControllerContext, unique: str
) -> None:
    async with a_platform(context, unique) as platform:
        await platform.compose(good("1"), labels={"tier": unique})
        by_label = {"compositions": {"matchLabels": {"tier": unique}}}
        await policy(platform, f"{unique}-a", **{"for": by_label})
        alone = await conflict(platform, f"{unique}-a", "False")
        assert alone["status"]["compositions"] == 1
        await policy(platform, f"{unique}-b", **{"for": by_label})
        first = await conflict(platform, f"{unique}-a", "True")
        second = await conflict(platform, f"{unique}-b", "True")
        assert f"{unique}-b" in str(condition_of(first, "Conflict"))
        assert (first["status"]["compositions"], second["status"]["compositions"]) == (1, 0)
        await policy(platform, f"{unique}-c")
        await conflict(platform, f"{unique}-a", "False")
        await conflict(platform, f"{unique}-c", "False")


async def test_what_a_policy_cannot_hold_yet_is_refused(context: ControllerContext, unique: str) -> None:
    async with a_platform(context, unique) as platform:
        with pytest.raises(Invalid, match="not held yet"):
            await policy(platform, "", **{"for": {"definitions": {"names": ["xdatabases.example.org"]}}})
        with pytest.raises(Invalid, match="planform adds waves named rest"):
            await policy(platform, waves=[{"name": "rest"}])


@pytest.mark.parametrize(("new_xrs", "target"), [("Target", True), ("Stable", False)])
async def test_an_xr_that_is_created_meanwhile_begins_where_the_policy_says(
    context: ControllerContext, unique: str, new_xrs: str, target: bool
) -> None:
    async with a_platform(context, unique) as platform:
        one = await platform.compose(good("1"))
        await fleet(platform, 2, {0: {"canary": "true"}})
        canary = {"name": "canary", "xrs": {"matchLabels": {"canary": "true"}}, "soak": "1h"}
        await policy(platform, newXRs=new_xrs, waves=[canary])
        two = await platform.compose(good("2"))
        await until_phase(platform, "Running")

        async def soaking() -> bool:
            [rollout] = await rollouts(platform)
            return ((rollout.get("status") or {}).get("wave") or {}).get("state") == "Soaking"

        await eventually(soaking, "the canary soaks", seconds=30)
        new = await platform.ready(await platform.create("new"))
        assert revision_of(new) == (two if target else one)["metadata"]["name"]
