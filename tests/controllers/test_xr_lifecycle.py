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
from planform.api.xr import composition_fields
from planform.reconcile.context import ControllerContext
from tests.controllers.composing import (
    CONFIG_MAP,
    NAMESPACE,
    Platform,
    a_platform,
    annotated,
    config_map,
    from_xr,
    script,
    templates,
)
from tests.harness.contexts import condition_of, eventually, read, until_condition

pytestmark = pytest.mark.timeout(120)


def reason(xr: Object, type_: str) -> str:
    return str((condition_of(xr, type_) or {}).get("reason"))


async def test_a_paused_xr_is_neither_changed_nor_deleted_until_it_goes_on(
    context: ControllerContext, unique: str
) -> None:
    async with a_platform(context, unique) as platform:
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


async def test_a_request_to_reconcile_runs_the_functions_once_and_is_acknowledged(
    context: ControllerContext, unique: str
) -> None:
    async with a_platform(context, unique) as platform:
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


FAILING = "def main(req):\n    fail('not today')\n"


async def test_a_request_to_reconcile_is_acknowledged_also_if_the_pipeline_fails_or_there_is_none(
    context: ControllerContext, unique: str
) -> None:
    async with a_platform(context, unique) as platform:
        await platform.compose(script(FAILING))
        failing = await platform.failed(await platform.create("failing"), "not today")
        lost = await platform.failed(await platform.create("lost", compositionRef={"name": "nowhere"}), "nowhere")
        for xr in (failing, lost):
            runs = await platform.runs(xr)
            await platform.merge(xr, annotated(**{RECONCILE_REQUESTED_ANNOTATION: "now"}))
            await platform.until(xr, lambda xr: xr["status"].get("lastHandledReconcileAt") == "now", "it was handled")
            assert xr is lost or await platform.runs(xr) > runs


async def test_an_xr_says_what_it_is_composed_by_also_if_nothing_comes_of_it(
    context: ControllerContext, unique: str
) -> None:
    """By its functions, by what they want, by a function that is missing, or by a revision that is not valid."""
    nobody: Object = {"step": "ask", "functionRef": {"name": f"function-{unique}"}}
    nameless = script("def main(req):\n    return {'desired': {'resources': {'a': {'resource': {'kind': 'X'}}}}}\n")
    refused = {**config_map("a"), "data": {"x": 1}}
    cases = {
        "fails": [script(FAILING)],
        "wants": [templates(config_map("a")), nameless],
        "refused": [templates(refused)],
        "missing": [nobody],
    }
    async with a_platform(context, unique) as platform:
        xrs = {}
        for case, steps in cases.items():
            wanted = platform.composition(*steps, name=f"{unique}-{case}", labels={"case": case})
            await platform.client.apply(wanted, manager="author", force=True)
            selector = {"matchLabels": {"case": case}}
            xrs[case] = await platform.create(case, compositionSelector=selector)
        for case, xr in xrs.items():
            found = composition_fields(await platform.failed(xr, ""), "modern")
            assert found["compositionRef"] == {"name": f"{unique}-{case}"}
            [revision] = await platform.revisions(f"{unique}-{case}")
            assert found["compositionRevisionRef"] == {"name": revision["metadata"]["name"]}


async def test_an_xr_is_polled_as_often_as_it_asks_but_at_most_once_a_second(
    context: ControllerContext, unique: str
) -> None:
    template = {
        "apiVersion": "gotemplating.fn.crossplane.io/v1beta1",
        "kind": "GoTemplate",
        "source": "Inline",
        "inline": {"template": "# {{ now }}"},
        "ttl": "0s",
    }
    clock = {"step": "clock", "functionRef": {"name": "function-go-templating"}, "input": template}
    async with a_platform(context, unique) as platform:
        await platform.compose(clock)  # which is run in every reconcile, as it may say something else each time
        xrs = {}
        intervals = {"below": "1ms", "equal": "1s", "above": "1h", "garbage": "soon", "absent": None}
        for case, interval in intervals.items():
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
        took = await polled(2)
        assert took > 0.8
        assert 1 <= await platform.runs(xrs["equal"]) - before["equal"] <= took / 0.9 + 2
        for case in ("above", "garbage", "absent"):
            assert await platform.runs(xrs[case]) == before[case], case
        await platform.until_event(xrs["garbage"], "InvalidPollInterval", '"soon" is not a duration')


async def test_another_referenceable_version_takes_compositions_of_that_version(
    context: ControllerContext, unique: str
) -> None:
    async with a_platform(context, unique) as platform:
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


async def test_a_changed_xrd_restarts_its_controller_without_a_run_or_a_write(
    context: ControllerContext, unique: str
) -> None:
    async with a_platform(context, unique) as platform:
        await platform.compose(templates(config_map("a")))
        xr = await platform.ready(await platform.create())
        [before] = await platform.at_rest(xr)
        runs, composed = await platform.runs(xr), await platform.composed(xr)
        [version] = platform.xrd()["spec"]["versions"]
        column = {"name": "Words", "type": "string", "jsonPath": ".status.words"}
        xrd = {"metadata": {"name": f"apps.{platform.group}"}}
        changed = await platform.edit(
            XRD, xrd, {"spec": {"versions": [{**version, "additionalPrinterColumns": [column]}]}}
        )

        async def established() -> bool:
            found = await platform.client.get(XRD, f"apps.{platform.group}")
            condition = condition_of(found, "Established") or {}
            return bool(condition.get("observedGeneration") == changed["metadata"]["generation"])

        await eventually(established, "the controller runs for the changed XRD")
        assert await platform.at_rest(xr) == [before]
        assert await platform.runs(xr) == runs and await platform.composed(xr) == composed
        await platform.edit(CONFIG_MAP, composed["a"], {"data": {"drift": "yes"}})
        await platform.client.delete(CONFIG_MAP, composed["a"]["metadata"]["name"], namespace=NAMESPACE)

        async def again() -> bool:
            found = (await platform.composed(xr)).get("a")
            return found is not None and found["metadata"]["uid"] != composed["a"]["metadata"]["uid"]

        await eventually(again, "what it composes still wakes it")
