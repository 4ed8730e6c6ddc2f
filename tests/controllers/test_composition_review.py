"""Changes of live XRs that are easily lost: what comes back, what comes at the wrong moment, what nobody expects."""

from __future__ import annotations

import asyncio

import pytest

from planform.controllers.workbench import Workbench
from tests.controllers.composing import CONFIG_MAP, a_platform, config_map, from_xr, templates
from tests.harness.planes import eventually

pytestmark = pytest.mark.timeout(120)


async def test_a_resource_gets_what_another_one_told_the_xr(bench: Workbench, unique: str) -> None:
    async with a_platform(bench, unique) as platform:
        up = {"type": "ToCompositeFieldPath", "fromFieldPath": "data.x", "toFieldPath": "status.words"}
        taking = config_map("taking", from_xr("status.words", "data.y"))
        await platform.compose(templates(config_map("giving", up, x="told"), taking))
        xr = await platform.create()

        async def told() -> bool:
            found = (await platform.composed(xr)).get("taking") or {}
            return (found.get("data") or {}).get("y") == "told"

        await eventually(told, "the value went through the XR's status")


async def test_a_drift_that_comes_back_at_once_is_put_right_again(bench: Workbench, unique: str) -> None:
    async with a_platform(bench, unique) as platform:
        await platform.compose(templates(config_map("a", x="good")))
        xr = await platform.create()
        await platform.ready(xr)
        await platform.at_rest(xr)
        found = (await platform.composed(xr))["a"]

        async def value() -> str:
            now = await platform.client.get(CONFIG_MAP, found["metadata"]["name"], namespace=platform.namespace)
            return str(now["data"]["x"])

        for _ in range(3):  # a rival that answers each correction at once
            await platform.edit(CONFIG_MAP, found, {"data": {"x": "bad"}})
            async with asyncio.timeout(20):
                while await value() != "good":  # noqa: ASYNC110  (the rival must not be late)
                    await asyncio.sleep(0)
