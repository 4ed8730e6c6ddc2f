"""Rollouts whose policy demands a preview: nothing moves before it is accepted, and no XR does more than it said."""

from __future__ import annotations

import asyncio
from datetime import datetime
from typing import Any

import pytest

from planform.api.kinds import Object
from planform.api.names import PREVIEW
from planform.reconcile.context import ControllerContext
from tests.controllers.composing import (
    CONFIG_MAP,
    Platform,
    a_platform,
    becomes,
    config_map,
    from_xr,
    script,
    templates,
)
from tests.harness.contexts import condition_of, eventually
from tests.rollouts.rolling import act, all_on, fleet, good, patch, policy, revisions_used, rollouts, until_phase

pytestmark = pytest.mark.timeout(120)


def two_objects(text: str) -> Object:
    return templates(
        config_map("it", from_xr("metadata.name", "data.xr"), version=text),
        config_map("more", from_xr("metadata.name", "data.xr")),
    )


async def previewed(platform: Platform, **preview: Any) -> Object:
    return await policy(platform, preview=preview, budget={"progressDeadline": "20s"})


async def test_an_acceptable_preview_lets_the_rollout_begin(context: ControllerContext, unique: str) -> None:
    async with a_platform(context, unique) as platform:
        await platform.compose(good("1"))
        xrs = await fleet(platform, 3)
        await previewed(platform, accept=["summary.deletes == 0", "summary.changed * 100 <= summary.xrs * 100"])
        two = await platform.compose(good("2"))
        done = await until_phase(platform, "Completed")
        await all_on(platform, xrs, two)
        preview = await context.client.get(PREVIEW, done["spec"]["previewRef"]["name"])
        assert preview["spec"]["change"] == {
            "revision": {"composition": f"{unique}-apps", "name": two["metadata"]["name"]}
        }
        assert preview["status"]["summary"]["changed"] == 3
        assert done["status"]["counts"]["deviated"] == 0
        completed, started = preview["status"]["completionTime"], done["status"]["started"]
        assert datetime.fromisoformat(completed) <= datetime.fromisoformat(started)


async def test_a_preview_that_deletes_something_waits_for_an_approval(context: ControllerContext, unique: str) -> None:
    async with a_platform(context, unique) as platform:
        one = await platform.compose(two_objects("1"))
        xrs = await fleet(platform, 2)
        await previewed(platform)
        two = await platform.compose(good("2"))
        waiting = await until_phase(platform, "AwaitingApproval")
        assert waiting["status"]["reason"] == "PreviewNotAcceptable"
        assert "2 changed (2 delete something)" in waiting["status"]["waiting"]["message"]
        assert set(await revisions_used(platform, xrs)) == {one["metadata"]["name"]}
        await act(platform, waiting, "Approve")
        done = await until_phase(platform, "Completed")
        await all_on(platform, xrs, two)
        assert done["status"]["counts"]["deviated"] == 0


async def test_an_expression_that_is_false_or_fails_is_not_accepted(context: ControllerContext, unique: str) -> None:
    async with a_platform(context, unique) as platform:
        await platform.compose(good("1"))
        await fleet(platform, 1)
        await previewed(platform, accept=["summary.nothing == 0"])
        await platform.compose(good("2"))
        waiting = await until_phase(platform, "AwaitingApproval")
        assert "summary.nothing == 0" in waiting["status"]["waiting"]["message"]
        await act(platform, waiting, "Abort")
        await until_phase(platform, "Aborted")


async def test_a_preview_that_is_too_old_when_somebody_approves_is_made_again(
    context: ControllerContext, unique: str
) -> None:
    async with a_platform(context, unique) as platform:
        await platform.compose(two_objects("1"))
        await fleet(platform, 1)
        await previewed(platform, maxAge="3s")
        await platform.compose(good("2"))
        waiting = await until_phase(platform, "AwaitingApproval")
        name = waiting["spec"]["previewRef"]["name"]
        first = (await context.client.get(PREVIEW, name))["metadata"]["uid"]
        await asyncio.sleep(4)
        await act(platform, waiting, "Approve")
        await until_phase(platform, "Completed")
        assert (await context.client.get(PREVIEW, name))["metadata"]["uid"] != first


READS_ANOTHER = """
def main(req):
    found = req['requiredResources'].get('which', {}).get('items', [])
    word = found[0]['resource']['data']['x'] if found else ''
    version = 'VERSION'
    desired = req['desired']
    if version == '1':
        word = 'one'
    if not found and version != '1':
        word = 'one'
    one = {'apiVersion': 'v1', 'kind': 'ConfigMap', 'data': {'word': word}}
    desired['resources'] = {'one': {'resource': one, 'ready': True}}
    if not (version == '2' and word == 'less'):
        more = {'apiVersion': 'v1', 'kind': 'ConfigMap', 'data': {'a': 'b'}}
        desired['resources']['more'] = {'resource': more, 'ready': True}
    which = {'apiVersion': 'v1', 'kind': 'ConfigMap', 'matchName': 'WHICH', 'namespace': 'default'}
    return {'desired': desired, 'requirements': {'resources': {'which': which}}}
"""
"""The second version says what another object says, and composes one object less if that is `less`."""


def reads_another(version: str, unique: str) -> Object:
    return script(READS_ANOTHER.replace("VERSION", version).replace("WHICH", f"{unique}-which"))


async def deviating(platform: Platform, word: str, **preview: Any) -> tuple[Object, Object, Object]:
    """A Rollout that was previewed, and begins after its XR's plan has become another; with the XR and revision 1."""
    which = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": f"{platform.unique}-which", "namespace": "default"},
        "data": {"x": "two"},
    }
    await platform.client.create(which)
    one = await platform.compose(reads_another("1", platform.unique))
    [xr] = await fleet(platform, 1)
    await policy(platform, start="WhenApproved", preview=preview)
    await platform.compose(reads_another("2", platform.unique))
    waiting = await until_phase(platform, "AwaitingApproval")
    assert waiting["status"].get("reason") is None, waiting["status"]
    await platform.edit(CONFIG_MAP, which, {"data": {"x": word}})
    await act(platform, waiting, "Approve")
    return waiting, xr, one


async def held(platform: Platform) -> Object:
    async def look() -> Object | None:
        [found] = await rollouts(platform)
        status = found.get("status") or {}
        return found if (status.get("waiting") or {}).get("for") == "Deviation" else None

    return await eventually(look, "the Rollout waits for somebody to accept a deviation", seconds=30)


async def composed_words(platform: Platform, xr: Object) -> list[str]:
    return sorted(str((each.get("data") or {}).get("word")) for each in (await platform.composed(xr)).values())


async def test_an_xr_whose_plan_deviates_is_held_and_nothing_of_it_is_written(
    context: ControllerContext, unique: str
) -> None:
    async with a_platform(context, unique) as platform:
        _, xr, _ = await deviating(platform, "less")
        waiting = await held(platform)
        assert waiting["status"]["counts"]["deviated"] == 1
        assert waiting["status"]["counts"]["failed"] == 0
        assert 'ConfigMap "more" would be deleted' in waiting["status"]["failing"][0]["message"]
        synced = condition_of(await platform.get(xr), "Synced")
        assert synced is not None and "deviates from its preview" in synced["message"]
        assert await composed_words(platform, xr) == ["None", "one"]
        await act(platform, waiting, "Promote")
        await until_phase(platform, "Completed")
        await becomes(lambda: composed_words(platform, xr), ["less"], "what deviates is carried out once accepted")


async def test_another_value_than_was_previewed_deviates_and_an_abort_goes_back(
    context: ControllerContext, unique: str
) -> None:
    async with a_platform(context, unique) as platform:
        _, xr, one = await deviating(platform, "three")
        waiting = await held(platform)
        assert 'ConfigMap "one" would become something else' in waiting["status"]["failing"][0]["message"]
        await act(platform, waiting, "Abort")
        await until_phase(platform, "Aborted")
        await all_on(platform, [xr], one)
        assert await composed_words(platform, xr) == ["None", "one"]
        await platform.ready(xr)


async def test_a_plan_as_it_was_previewed_is_carried_out(context: ControllerContext, unique: str) -> None:
    async with a_platform(context, unique) as platform:
        _, xr, _ = await deviating(platform, "two")
        done = await until_phase(platform, "Completed")
        assert done["status"]["counts"]["deviated"] == 0
        assert await composed_words(platform, xr) == ["None", "two"]


async def test_deviations_that_the_policy_accepts_are_carried_out_and_counted(
    context: ControllerContext, unique: str
) -> None:
    async with a_platform(context, unique) as platform:
        _, xr, _ = await deviating(platform, "less", onDeviation="Accept")
        done = await until_phase(platform, "Completed")
        assert done["status"]["counts"]["deviated"] == 1
        assert await composed_words(platform, xr) == ["less"]


async def test_a_deviation_aborts_where_the_policy_says_so(context: ControllerContext, unique: str) -> None:
    async with a_platform(context, unique) as platform:
        _, xr, one = await deviating(platform, "less", onDeviation="Abort")
        aborted = await until_phase(platform, "Aborted")
        assert "would be deleted" in aborted["status"]["message"]
        await all_on(platform, [xr], one)
        assert await composed_words(platform, xr) == ["None", "one"]


async def test_an_xr_edited_since_its_preview_may_change_but_delete_nothing(
    context: ControllerContext, unique: str
) -> None:
    async with a_platform(context, unique) as platform:
        await platform.compose(two_objects("1"))
        one, two = await fleet(platform, 2)
        await previewed(platform)
        await platform.compose(good("2"))
        waiting = await until_phase(platform, "AwaitingApproval")
        await patch(platform, one, {"spec": {"size": 3}})
        await platform.at_rest(one)
        await act(platform, waiting, "Approve")
        waiting = await held(platform)
        assert waiting["status"]["counts"]["deviated"] == 1
        assert "not what was previewed any more" in waiting["status"]["failing"][0]["message"]
        assert len(await platform.composed(one)) == 2
        assert len(await platform.composed(two)) == 1
