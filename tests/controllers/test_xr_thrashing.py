"""The thrash guard on live XRs: slowed down, named, nothing lost, on both engines."""

from __future__ import annotations

import pytest

from planform.api.kinds import Object
from planform.reconcile.context import ControllerContext
from planform.xrs import thrash
from tests.controllers.composing import (
    CONFIG_MAP,
    NAMESPACE,
    Platform,
    a_platform,
    becomes,
    config_map,
    from_xr,
    templates,
)
from tests.harness.contexts import condition_of, eventually

pytestmark = pytest.mark.timeout(120)


async def test_two_writers_that_undo_each_other_are_slowed_down_and_named_and_the_last_change_counts(
    context: ControllerContext, unique: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(thrash, "BURST", 3)
    monkeypatch.setattr(thrash, "BURST_PER_RESOURCE", 0)
    monkeypatch.setattr(thrash, "PROBE_SECONDS", 1.0)
    monkeypatch.setattr(thrash, "COOLDOWN_SECONDS", 2.0)
    async with a_platform(context, unique) as platform:
        await platform.compose(templates(config_map("a", from_xr("spec.y", "data.y"), x="ours")))

        def responsive(xr: Object) -> Object:
            return condition_of(xr, "Responsive") or {}

        def is_held(xr: Object) -> bool:
            return bool(responsive(xr)["status"] == "False")

        async def is_ours(xr: Object) -> bool:
            return bool((await platform.composed(xr))["a"]["data"]["x"] == "ours")

        async def fight(xr: Object) -> Object:
            """Change what the XR composes, as often as it is changed back, until the XR is held back."""
            [found] = (await platform.composed(xr)).values()
            for turn in range(30):
                await platform.edit(CONFIG_MAP, found, {"data": {"x": f"theirs {turn}"}}, manager="the-other-one")

                async def settled() -> Object | None:
                    now = await platform.get(xr)
                    return now if is_held(now) or await is_ours(xr) else None

                now = await eventually(settled, "it is corrected, or held back")
                if is_held(now):
                    return now
            raise AssertionError("it was never held back")

        xr = await platform.ready(await platform.create(spec={"y": "0"}))
        for turn in range(1, 10):  # what the user changes is no thrashing, however often
            await platform.merge(xr, {"spec": {"y": str(turn)}})
            await becomes(lambda: _data_of(platform, xr), {"x": "ours", "y": str(turn)}, "the change is carried out")
        quiet = responsive(await platform.get(xr))
        assert (quiet["status"], quiet["reason"]) == ("True", "WatchCircuitClosed")
        held = await fight(xr)
        condition = responsive(held)
        assert (condition["status"], condition["reason"]) == ("False", "WatchCircuitOpen")
        assert "field data.x of ConfigMap" in condition["message"] and '"the-other-one"' in condition["message"]
        assert "apiextensions.crossplane.io/composed/" in condition["message"]
        await platform.until_event(xr, "WatchCircuitOpen", "data.x")
        # What came while it was held back is not lost.
        await becomes(lambda: is_ours(xr), True, "the last change is corrected as well")
        await platform.until(xr, lambda xr: responsive(xr).get("status") == "True", "it is responsive again")
        # Deletion does not wait, and a namesake starts afresh.
        other = await platform.ready(await platform.create("other", spec={"y": "0"}))
        await fight(other)
        monkeypatch.setattr(thrash, "PROBE_SECONDS", 3600.0)
        await platform.client.delete(platform.kind, other["metadata"]["name"], namespace=NAMESPACE)
        await platform.gone(other)
        other = await platform.ready(await platform.create("other", spec={"y": "0"}))
        assert not is_held(other)


async def _data_of(platform: Platform, xr: Object) -> object:
    return (await platform.composed(xr))["a"]["data"]
