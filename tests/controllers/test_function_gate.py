"""With the gate FunctionRevisionSelectors off nothing is different for anybody who does not use what it gates."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import pytest

from planform.api.kinds import Object
from planform.api.names import COMPOSITION_REVISION, EVENT, FUNCTION, FUNCTION_REVISION, PACKAGE_LABEL
from planform.app import Settings, open_control_plane
from planform.client.protocol import Client
from planform.features import FeatureGates
from tests.controllers.composing import CONFIG_MAP, Platform, auto_ready, config_map, templates
from tests.harness.contexts import all_controllers, embedded_context, eventually, until_condition

pytestmark = pytest.mark.timeout(180)

NAME: Final = "function-auto-ready"
PACKAGE: Final = f"example.org/crossplane-contrib/{NAME}"
OFF: Final = FeatureGates({"FunctionRevisionSelectors": False})
ON: Final = FeatureGates({"FunctionRevisionSelectors": True})
_OWN: Final = frozenset(
    {"uid", "resourceVersion", "creationTimestamp", "lastTransitionTime", "managedFields", "firstTimestamp"}
    | {"lastTimestamp", "eventTime", "count", "series"}
)


async def install(client: Client, version: str, *, channel: str = "", **spec: Any) -> Object:
    labels = {"release-channel": channel} if channel else {}
    applied = await client.apply(
        {
            "apiVersion": FUNCTION.api_version,
            "kind": "Function",
            "metadata": {"name": NAME, "labels": labels},
            "spec": {"package": f"{PACKAGE}:{version}", **spec},
        },
        manager="user",
        force=True,
    )
    return await until_condition(client, applied, "Healthy", observedGeneration=applied["metadata"]["generation"])


async def until_states(client: Client, wanted: dict[int, str]) -> list[Object]:
    async def check() -> list[Object] | None:
        found = (await client.list(FUNCTION_REVISION, labels=f"{PACKAGE_LABEL}={NAME}")).items
        states = {each["spec"]["revision"]: each["spec"]["desiredState"] for each in found}
        return sorted(found, key=lambda each: int(each["spec"]["revision"])) if states == wanted else None

    return await eventually(check, f"revisions {wanted}")


def plain(value: Any) -> Any:
    """What of an object does not differ from one control plane to the next."""
    if isinstance(value, dict):
        return {key: plain(each) for key, each in value.items() if key not in _OWN}
    return [plain(each) for each in value] if isinstance(value, list) else value


async def story(gates: FeatureGates) -> dict[str, Any]:
    """A function is installed, used, upgraded and rolled back; gives all there is then."""
    async with embedded_context() as context, all_controllers(context, features=gates):
        client, platform = context.client, Platform(context.client, "gate")
        await platform.define()
        await install(client, "v1", channel="stable")
        await platform.compose(templates(config_map("a"), ready=False), auto_ready())
        xr = await platform.create()
        await platform.ready(xr)
        await install(client, "v2", channel="alpha")
        await until_states(client, {1: "Inactive", 2: "Active"})
        await install(client, "v1", channel="stable")
        revisions = await until_states(client, {2: "Inactive", 3: "Active"})

        async def counted() -> list[Object] | None:
            found = await until_states(client, {2: "Inactive", 3: "Active"})
            return found if [each["status"].get("users") for each in found] == [0, 1] else None

        revisions = await eventually(counted, "the XR uses the newest revision")
        await platform.ready(xr)

        async def told() -> Object | None:
            function = await client.get(FUNCTION, NAME)
            active = function["status"]["activeRevisions"]
            return function if [each.get("users") for each in active] == [1] else None

        events = (await client.list(EVENT)).items
        return {
            "function": plain(await eventually(told, "the Function says who uses it")),
            "revisions": plain(revisions),
            "composition": plain((await client.list(COMPOSITION_REVISION)).items),
            "xr": plain(await platform.get(xr)),
            "composed": plain(await platform.composed(xr, CONFIG_MAP)),
            "events": [each["message"] for each in events if "FunctionRevisionSelectors" in each["message"]],
        }


async def test_with_the_gate_off_everything_is_as_with_it_on_for_whoever_does_not_choose_revisions() -> None:
    assert await story(OFF) == await story(ON)


async def test_a_control_plane_whose_gate_is_turned_off_comes_back_to_one_active_revision(tmp_path: Path) -> None:
    limits = {"revisionHistoryLimit": 2, "activeRevisionLimit": 2}
    choosing = auto_ready() | {"functionRevisionSelector": {"matchLabels": {"release-channel": "stable"}}}
    for gates, states in ((ON, {1: "Active", 2: "Active"}), (OFF, {1: "Inactive", 2: "Active"})):
        async with open_control_plane(Settings(data=tmp_path / "data", features=gates)) as plane:
            client, platform = plane.client, Platform(plane.client, "gate")
            if gates is ON:
                await platform.define()
                await install(client, "v1", channel="stable", **limits)
                await install(client, "v2", channel="alpha", **limits)
                await platform.compose(templates(config_map("a"), ready=False), choosing)
                await platform.create()
            await until_states(client, states)
            number = 1 if gates is ON else 2

            async def used(number: int = number, client: Client = client, states: dict[int, str] = states) -> bool:
                users = {
                    each["spec"]["revision"]: each["status"].get("users") for each in await until_states(client, states)
                }
                return users == {1: int(number == 1), 2: int(number == 2)}

            await eventually(used, f"the XR uses revision {number}")
            wanted = platform.xr(spec={"gate": str(gates is ON)})
            xr = await client.apply(wanted, manager="user", force=True)
            await platform.ready(xr)
            function = await client.get(FUNCTION, NAME)
            assert function["spec"]["activeRevisionLimit"] == 2  # accepted as it is, and not followed
            if gates is OFF:
                await platform.until_event(xr, "ComposeResources", "FunctionRevisionSelectors is off")
