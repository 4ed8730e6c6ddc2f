"""Changes of live XRs that are easily lost: what comes back, what comes at the wrong moment, what nobody expects."""

from __future__ import annotations

import asyncio

import pytest

from planform.api.names import SECRET, XRD
from planform.client.protocol import Patch, PatchType
from planform.controllers.workbench import Workbench
from tests.controllers.composing import CONFIG_MAP, NAMESPACE, a_platform, config_map, from_xr, templates
from tests.harness.planes import eventually, read

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


async def test_connection_details_follow_their_secret_and_the_keys_of_the_xrd(bench: Workbench, unique: str) -> None:
    async with a_platform(bench, unique, scope="LegacyCluster", xrd={"connectionSecretKeys": ["one"]}) as platform:
        step = templates({**config_map("a"), "metadata": {"namespace": NAMESPACE}})
        step["input"]["resources"][0]["connectionDetails"] = [
            {"name": name, "type": "FromValue", "value": "word"} for name in ("one", "two")
        ]
        await platform.compose(step)
        name = f"{unique}-details"
        xr = await platform.create(writeConnectionSecretToRef={"name": name, "namespace": NAMESPACE})

        async def publishes(*keys: str) -> None:
            async def same() -> bool:
                found = await read(platform.client, SECRET, name, NAMESPACE)
                return found is not None and found["data"].keys() == set(keys)

            await eventually(same, f"{keys} are published")

        await publishes("one")
        await platform.at_rest(xr)
        await platform.client.delete(SECRET, name, namespace=NAMESPACE)
        await publishes("one")
        more = Patch(PatchType.MERGE, {"spec": {"connectionSecretKeys": ["one", "two"]}})
        await platform.client.patch(XRD, f"apps.{platform.group}", more)
        await publishes("one", "two")
