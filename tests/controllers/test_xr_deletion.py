"""What may be deleted, when and by whom: budgets, orphans and XRs that others hold, on both engines."""

from __future__ import annotations

from pathlib import Path

import pytest

from planform.api.kinds import Object
from planform.api.names import PAUSED_ANNOTATION
from planform.client.protocol import Patch, PatchType, Propagation
from planform.reconcile.context import ControllerContext
from planform.xrs.budget import CONFIRM_ANNOTATION
from tests.controllers.composing import (
    CONFIG_MAP,
    NAMESPACE,
    Platform,
    a_platform,
    a_process,
    annotated,
    becomes,
    config_map,
    script,
    templates,
)
from tests.harness.contexts import condition_of, embedded_context, until_condition

pytestmark = pytest.mark.timeout(120)


def reason(xr: Object, type_: str) -> str:
    return str((condition_of(xr, type_) or {}).get("reason"))


async def test_an_xr_that_others_hold_says_that_it_is_being_deleted_and_runs_no_function(
    context: ControllerContext, unique: str
) -> None:
    async with a_platform(context, unique) as platform:
        await platform.compose(templates(config_map("a")))
        xr = platform.xr()
        xr["metadata"]["finalizers"] = ["example.org/mine"]
        xr = await platform.ready(await platform.client.create(xr))
        await platform.at_rest(xr)
        runs = await platform.runs(xr)
        await platform.client.delete(platform.kind, xr["metadata"]["name"], namespace=NAMESPACE)
        found = await platform.until(xr, lambda xr: reason(xr, "Ready") == "Deleting", "it says so")
        found = await platform.until(
            xr, lambda xr: xr["metadata"]["finalizers"] == ["example.org/mine"], "ours is gone, and only ours"
        )
        assert found["metadata"]["deletionTimestamp"]
        await platform.merge(xr, {"spec": {"x": "1"}})
        await platform.at_rest(xr)
        assert await platform.runs(xr) in (0, runs)  # what was remembered of it may be forgotten already
        await platform.merge(xr, {"metadata": {"finalizers": None}})
        await platform.gone(xr)


def keeping(*keys: str) -> Object:
    """A step that desires one ConfigMap for each key unless the XR says `none`, and always says something itself."""
    text = (
        f"KEYS = {list(keys)!r}\n"
        "def main(req):\n"
        "    spec = req['observed']['composite']['resource']['spec']\n"
        "    wanted = [] if spec.get('none') else KEYS\n"
        "    obj = {'apiVersion': 'v1', 'kind': 'ConfigMap'}\n"
        "    resources = {key: {'resource': obj, 'ready': True} for key in wanted}\n"
        "    composite = {'resource': {'status': {'count': len(wanted)}}}\n"
        "    return {'desired': {'resources': resources, 'composite': composite}}\n"
    )
    return script(text)


async def keys_of(platform: Platform, xr: Object) -> set[str]:
    return set(await platform.composed(xr))


async def test_everything_may_go_when_the_xr_was_changed_and_else_waits_for_exactly_that_confirmation(
    context: ControllerContext, unique: str
) -> None:
    async with a_platform(context, unique) as platform:
        await platform.compose(keeping("a", "b", "c"))
        edited = await platform.ready(await platform.create("edited"))
        stopped = await platform.ready(await platform.create("stopped"))
        await platform.at_rest(edited, stopped)
        await platform.merge(edited, {"spec": {"none": True}})
        await becomes(lambda: keys_of(platform, edited), set(), "a change of the XR may empty it")
        slow = [each for key, each in (await platform.composed(stopped)).items() if key != "c"]
        for each in slow:
            await platform.edit(CONFIG_MAP, each, {"metadata": {"finalizers": ["example.org/slow"]}})
        await platform.compose(keeping())
        found = await platform.failed(stopped, "all composed resources would vanish although the XR did not change")
        await platform.until_event(stopped, "DeletionBudgetExceeded", "a, b, c")
        await platform.merge(stopped, annotated(**{CONFIRM_ANNOTATION: "something else"}))
        await platform.at_rest(stopped)
        assert await keys_of(platform, stopped) == {"a", "b", "c"}
        token = condition_of(found, "Synced")["message"].rpartition("=")[2]  # type: ignore[index]
        await platform.merge(stopped, annotated(**{CONFIRM_ANNOTATION: token}))
        for each in slow:
            await platform.until_deleting(CONFIG_MAP, each)
        # While some of them are still going, nothing asks for another confirmation.
        await until_condition(platform.client, stopped, "Synced")
        [resting] = await platform.at_rest(stopped)
        assert (condition_of(resting, "Synced") or {})["status"] == "True"
        for each in slow:
            await platform.edit(CONFIG_MAP, each, {"metadata": {"finalizers": None}})
        await platform.until(stopped, lambda xr: not xr["spec"]["crossplane"].get("resourceRefs"), "all are gone")


async def test_an_xr_that_another_control_plane_composed_is_not_emptied_on_sight(unique: str, tmp_path: Path) -> None:
    async with embedded_context() as context:
        async with a_process(context, unique, tmp_path / "before") as platform:
            await platform.define()
            await platform.compose(keeping("a", "b"))
            xr = await platform.ready(await platform.create())
            await platform.at_rest(xr)
            await platform.merge(xr, annotated(**{PAUSED_ANNOTATION: "true"}))
            await until_condition(platform.client, xr, "Synced", "False")
            await platform.compose(keeping())
        unknown = Patch(PatchType.MERGE, {"status": {"planform": None}})
        name = xr["metadata"]["name"]
        await context.client.patch(platform.kind, name, unknown, namespace=platform.namespace, subresource="status")
        await platform.merge(xr, annotated(**{PAUSED_ANNOTATION: None}))
        async with a_process(context, unique, tmp_path / "after") as platform:
            await platform.failed(xr, "all composed resources would vanish and whether the XR changed is not known")
            assert await keys_of(platform, xr) == {"a", "b"}
            await platform.compose(keeping("a"))
            await becomes(lambda: keys_of(platform, xr), {"a"}, "some of them may go")
            await platform.compose(keeping("a", "c"))
            await becomes(lambda: keys_of(platform, xr), {"a", "c"}, "it goes on")
            await platform.merge(xr, {"spec": {"none": True}})
            await becomes(lambda: keys_of(platform, xr), set(), "and a change may empty it from now on")


async def test_a_single_resource_may_go_a_silent_last_step_may_take_nothing_and_shares_are_kept(
    context: ControllerContext, unique: str
) -> None:
    async with a_platform(context, unique) as platform:
        single, silent, shared = (f"{unique}-{each}" for each in ("single", "silent", "shared"))
        await platform.compose(keeping("a"), name=single)
        await platform.compose(keeping("a"), name=silent)
        await platform.compose(keeping("a", "b", "c", "d"), name=shared, deletionBudget={"maxShare": 25})
        xrs = {
            each: await platform.create(each.rpartition("-")[2], compositionRef={"name": each})
            for each in (single, silent, shared)
        }
        for xr in xrs.values():
            await platform.ready(xr)
        await platform.at_rest(*xrs.values())
        await platform.compose(keeping(), name=single)
        await platform.compose(script('def main(req):\n    return {"desired": {}}\n'), name=silent)
        await platform.compose(keeping("c", "d"), name=shared, deletionBudget={"maxShare": 25})
        await becomes(lambda: keys_of(platform, xrs[single]), set(), "one of one may go")
        await platform.failed(xrs[silent], "the last step returned no desired state at all (a)")
        await platform.failed(xrs[shared], "2 of 4 composed resources would vanish, more than 25 % (a, b)")
        assert await keys_of(platform, xrs[silent]) == {"a"}
        assert await keys_of(platform, xrs[shared]) == {"a", "b", "c", "d"}
        await platform.compose(keeping("b", "c", "d"), name=shared, deletionBudget={"maxShare": 25})
        await becomes(lambda: keys_of(platform, xrs[shared]), {"b", "c", "d"}, "a quarter may go")


async def test_an_xr_deleted_with_orphaning_leaves_what_it_composed_to_nobody(unique: str) -> None:
    """On Kubernetes orphaning is the cluster's own work, which begins up to half a minute after a kind came."""
    async with embedded_context() as context, a_platform(context, unique) as platform:
        await platform.compose(templates(config_map("a", x="1"), config_map("b")))
        xr = await platform.ready(await platform.create())
        name = xr["metadata"]["name"]
        await platform.client.delete(platform.kind, name, namespace=NAMESPACE, propagation=Propagation.ORPHAN)
        await platform.gone(xr)
        left = await platform.composed(xr)
        assert left.keys() == {"a", "b"} and left["a"]["data"] == {"x": "1"}
        assert not [each for each in left.values() if each["metadata"].get("ownerReferences")]


async def test_a_stuck_xr_can_be_let_go_by_hand_and_is_forgotten_then(context: ControllerContext, unique: str) -> None:
    async with a_platform(context, unique) as platform:
        await platform.compose(templates(config_map("a")))
        stuck = await platform.ready(await platform.create())
        await platform.merge(stuck, annotated(**{PAUSED_ANNOTATION: "true"}))
        await platform.until(stuck, lambda xr: reason(xr, "Synced") == "ReconcilePaused", "it pauses")
        await platform.client.delete(platform.kind, stuck["metadata"]["name"], namespace=NAMESPACE)
        await platform.until_deleting(platform.kind, stuck)
        await platform.merge(stuck, {"metadata": {"finalizers": None}})
        await platform.gone(stuck)
        await becomes(lambda: platform.runs(stuck), 0, "its runs are forgotten")
