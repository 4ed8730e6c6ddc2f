"""The life of live XRs besides composing: pausing, polling, deleting, claims and secrets, on both engines."""

from __future__ import annotations

import asyncio

import pytest

from planform.api.kinds import Object, gvk
from planform.api.names import (
    COMPOSITE_FINALIZER,
    PAUSED_ANNOTATION,
    POLL_INTERVAL_ANNOTATION,
    RECONCILE_REQUESTED_ANNOTATION,
    XRD,
)
from planform.composition.budget import CONFIRM_ANNOTATION
from planform.controllers.workbench import Workbench
from tests.controllers.composing import (
    CONFIG_MAP,
    NAMESPACE,
    Platform,
    a_platform,
    annotated,
    becomes,
    config_map,
    from_xr,
    script,
    templates,
)
from tests.harness.planes import condition_of, eventually, read, until_condition

pytestmark = pytest.mark.timeout(120)


def reason(xr: Object, type_: str) -> str:
    return str((condition_of(xr, type_) or {}).get("reason"))


async def test_a_paused_xr_is_neither_changed_nor_deleted_until_it_goes_on(bench: Workbench, unique: str) -> None:
    async with a_platform(bench, unique) as platform:
        await platform.compose(templates(config_map("a", from_xr("spec.x", "data.x"))))
        xr = await platform.ready(await platform.create(spec={"x": "1"}))
        await platform.merge(xr, annotated(**{PAUSED_ANNOTATION: "true"}))
        await platform.until(xr, lambda xr: reason(xr, "Synced") == "ReconcilePaused", "it pauses")
        await platform.until_event(xr, "ReconciliationPaused")
        await platform.merge(xr, {"spec": {"x": "2"}})
        await platform.at_rest(xr)
        assert (await platform.composed(xr))["a"]["data"] == {"x": "1"}
        await platform.merge(xr, annotated(**{PAUSED_ANNOTATION: None}))

        async def changed() -> bool:
            return bool((await platform.composed(xr))["a"]["data"] == {"x": "2"})

        await eventually(changed, "the change is made up for")
        await until_condition(platform.client, xr, "Synced")
        await platform.merge(xr, annotated(**{PAUSED_ANNOTATION: "true"}))
        await platform.until(xr, lambda xr: reason(xr, "Synced") == "ReconcilePaused", "it pauses again")
        await platform.client.delete(platform.kind, xr["metadata"]["name"], namespace=NAMESPACE)
        [waiting] = await platform.at_rest(xr)
        assert COMPOSITE_FINALIZER in waiting["metadata"]["finalizers"] and (await platform.composed(xr)).keys() == {
            "a"
        }
        await platform.merge(xr, annotated(**{PAUSED_ANNOTATION: None}))
        await platform.gone(xr)


async def test_an_xr_that_others_hold_says_that_it_is_being_deleted_and_runs_no_function(
    bench: Workbench, unique: str
) -> None:
    async with a_platform(bench, unique) as platform:
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


async def test_a_request_to_reconcile_runs_the_functions_once_and_is_acknowledged(
    bench: Workbench, unique: str
) -> None:
    async with a_platform(bench, unique) as platform:
        await platform.compose(templates(config_map("a")))
        xr = await platform.ready(await platform.create())
        await platform.at_rest(xr)
        before = await platform.runs(xr)
        await platform.merge(xr, annotated(**{"example.org/note": "nothing that functions decide by, but they see it"}))
        await platform.at_rest(xr)
        for token in ("first", "second"):
            runs = await platform.runs(xr)
            await platform.merge(xr, annotated(**{RECONCILE_REQUESTED_ANNOTATION: token}))
            await platform.until(xr, lambda xr: xr["status"].get("lastHandledReconcileAt") == token, token)  # noqa: B023
            await platform.at_rest(xr)
            assert await platform.runs(xr) > runs
            await platform.until_event(xr, "ReconcileRequestHandled", token)
        assert await platform.runs(xr) > before
        runs = await platform.runs(xr)
        composed = await platform.composed(xr)
        await platform.merge(xr, annotated(**{RECONCILE_REQUESTED_ANNOTATION: "second"}))
        await platform.at_rest(xr)
        assert await platform.runs(xr) == runs and await platform.composed(xr) == composed


async def test_an_xr_is_polled_as_often_as_it_asks_but_at_most_once_a_second(bench: Workbench, unique: str) -> None:
    template = {
        "apiVersion": "gotemplating.fn.crossplane.io/v1beta1",
        "kind": "GoTemplate",
        "source": "Inline",
        "inline": {"template": "# {{ now }}"},
        "ttl": "0s",
    }
    clock = {"step": "clock", "functionRef": {"name": "function-go-templating"}, "input": template}
    async with a_platform(bench, unique) as platform:
        await platform.compose(clock)  # which is run in every pass, as it may say something else each time
        xrs = {}
        for case, interval in {"below": "1ms", "above": "1h", "garbage": "soon", "absent": None}.items():
            xr = platform.xr(case)
            if interval:
                xr["metadata"]["annotations"] = {POLL_INTERVAL_ANNOTATION: interval}
            xrs[case] = await platform.client.create(xr)
        for xr in xrs.values():
            await platform.ready(xr)

        async def polled(times: int) -> float:
            """Wait for so many more passes; gives the seconds that took."""
            started, before = asyncio.get_running_loop().time(), await platform.runs(xrs["below"])

            async def often_enough() -> bool:
                return await platform.runs(xrs["below"]) >= before + times

            await eventually(often_enough, f"{times} more passes")
            return asyncio.get_running_loop().time() - started

        await polled(1)  # meanwhile the others have looked at their own writes
        before = {case: await platform.runs(xr) for case, xr in xrs.items()}
        assert await polled(2) > 0.8
        for case in ("above", "garbage", "absent"):
            assert await platform.runs(xrs[case]) == before[case], case
        await platform.until_event(xrs["garbage"], "InvalidPollInterval", '"soon" is not a duration')


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
    bench: Workbench, unique: str
) -> None:
    async with a_platform(bench, unique) as platform:
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


async def test_a_single_resource_may_go_a_silent_last_step_may_take_nothing_and_shares_are_kept(
    bench: Workbench, unique: str
) -> None:
    async with a_platform(bench, unique) as platform:
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


async def test_another_referenceable_version_takes_compositions_of_that_version(bench: Workbench, unique: str) -> None:
    async with a_platform(bench, unique) as platform:
        await platform.compose(templates(config_map("a", version="v1")), name=f"{unique}-one")
        before = await platform.ready(await platform.create("before"))
        [one] = platform.xrd()["spec"]["versions"]
        versions = [{**one, "referenceable": False}, {**one, "name": "v2"}]
        xrd = {"metadata": {"name": f"apps.{platform.group}"}}
        await platform.edit(XRD, xrd, {"spec": {"versions": versions}})
        newer = Platform(platform.client, unique, controllers=platform.controllers)
        newer.kind = gvk(f"{platform.group}/v2", "App")
        await newer.compose(templates(config_map("a", version="v2")), name=f"{unique}-two")

        async def created() -> Object | None:
            # The API server serves the new version a moment after the XRD says so.
            found = await read(platform.client, XRD, f"apps.{platform.group}")
            status = ((found or {}).get("status") or {}).get("controllers") or {}
            served = (status.get("compositeResourceType") or {}).get("apiVersion")
            return await newer.create("after") if served == newer.kind.api_version else None

        after = await newer.ready(await eventually(created, "v2 is what XRs are composed in"))
        assert after["spec"]["crossplane"]["compositionRef"] == {"name": f"{unique}-two"}
        assert (await newer.composed(after))["a"]["data"] == {"version": "v2"}
        # An XR of before is of the new version now, and its composition of the old one no longer fits.
        await newer.failed(before, "and this XR is App")
        assert (await newer.composed(before))["a"]["data"] == {"version": "v1"}
        await newer.merge(before, {"spec": {"crossplane": {"compositionRef": {"name": f"{unique}-two"}}}})

        async def moved() -> bool:
            return bool((await newer.composed(before))["a"]["data"] == {"version": "v2"})

        await eventually(moved, "it is composed by the new one")
