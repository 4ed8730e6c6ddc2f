"""XRs are composed, kept, changed and let go, on both engines."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from planform.api.names import COMPOSITE_FINALIZER
from planform.client.protocol import Patch, PatchType
from planform.reconcile.context import ControllerContext
from tests.controllers.composing import (
    CONFIG_MAP,
    NOP,
    Platform,
    auto_ready,
    config_map,
    from_xr,
    nop,
    script,
    templates,
)
from tests.harness.contexts import all_controllers, condition_of, eventually, until_condition

pytestmark = pytest.mark.timeout(120)


@pytest.fixture
async def platform(context: ControllerContext, unique: str) -> AsyncIterator[Platform]:
    async with all_controllers(context):
        platform = Platform(context.client, unique)
        await platform.define()
        yield platform


async def test_an_xr_is_composed_and_becomes_ready(platform: Platform) -> None:
    revision = await platform.compose(
        templates(config_map("settings", from_xr("spec.region", "data.region")), nop("thing"), ready=False),
        auto_ready(),
    )
    xr = await platform.ready(await platform.create(spec={"region": "eu"}))
    [settings] = (await platform.composed(xr)).values()
    [thing] = (await platform.composed(xr, NOP)).values()
    assert settings["data"] == {"region": "eu"}
    composition_fields = xr["spec"]["crossplane"]
    assert composition_fields["compositionRevisionRef"] == {"name": revision["metadata"]["name"]}
    assert {each["name"] for each in composition_fields["resourceRefs"]} == {
        settings["metadata"]["name"],
        thing["metadata"]["name"],
    }
    assert COMPOSITE_FINALIZER in xr["metadata"]["finalizers"]
    [owner] = settings["metadata"]["ownerReferences"]
    assert owner["uid"] == xr["metadata"]["uid"] and owner["controller"]


async def test_a_change_of_the_xr_reaches_only_the_resources_it_is_about(platform: Platform) -> None:
    await platform.compose(
        templates(config_map("a", from_xr("spec.region", "data.region")), config_map("b", fixed="yes"))
    )
    xr = await platform.ready(await platform.create(spec={"region": "eu"}))
    before = await platform.composed(xr)
    await platform.merge(xr, {"spec": {"region": "us"}})

    async def changed() -> bool:
        return bool((await platform.composed(xr))["a"]["data"] == {"region": "us"})

    await eventually(changed, "the region is us")
    assert (await platform.composed(xr))["b"] == before["b"]


async def test_a_resource_deleted_by_somebody_is_made_again_under_its_name(platform: Platform) -> None:
    await platform.compose(templates(config_map("a", x="1")))
    xr = await platform.ready(await platform.create())
    [first] = (await platform.composed(xr)).values()
    await platform.client.delete(CONFIG_MAP, first["metadata"]["name"], namespace="default")

    async def again() -> bool:
        found = (await platform.composed(xr)).get("a")
        return found is not None and found["metadata"]["uid"] != first["metadata"]["uid"]

    await eventually(again, "it was made again")
    assert (await platform.composed(xr))["a"]["metadata"]["name"] == first["metadata"]["name"]


async def test_drift_is_corrected(platform: Platform) -> None:
    await platform.compose(templates(config_map("a", x="1")))
    xr = await platform.ready(await platform.create())
    [found] = (await platform.composed(xr)).values()
    name = found["metadata"]["name"]
    await platform.client.patch(
        CONFIG_MAP, name, Patch(PatchType.MERGE, {"data": {"x": "2"}}), namespace="default", manager="somebody"
    )

    async def corrected() -> bool:
        return bool((await platform.composed(xr))["a"]["data"] == {"x": "1"})

    await eventually(corrected, "x is 1 again")


async def test_what_is_no_longer_desired_is_deleted_after_the_rest_was_applied(platform: Platform) -> None:
    await platform.compose(templates(config_map("a", x="1"), config_map("b", x="1")))
    xr = await platform.ready(await platform.create())
    await platform.compose(templates(config_map("a", x="2")))

    async def only_a() -> bool:
        found = await platform.composed(xr)
        return found.keys() == {"a"} and found["a"]["data"] == {"x": "2"}

    await eventually(only_a, "b is gone and a changed")

    async def one_reference() -> bool:
        return len((await platform.get(xr))["spec"]["crossplane"]["resourceRefs"]) == 1

    await eventually(one_reference, "the reference is gone too")


async def test_a_kind_changed_under_one_name_replaces_the_old_object(platform: Platform) -> None:
    await platform.compose(templates(config_map("a", x="1"), config_map("b", x="1")))
    xr = await platform.ready(await platform.create())
    secret = {"_key": "a", "apiVersion": "v1", "kind": "Secret", "stringData": {"x": "1"}}
    await platform.compose(templates(secret, config_map("b", x="1")))

    async def replaced() -> bool:
        references = (await platform.get(xr))["spec"]["crossplane"]["resourceRefs"]
        return {each["kind"] for each in references} == {"Secret", "ConfigMap"} and len(references) == 2

    await eventually(replaced, "a is a Secret, and no longer a ConfigMap")
    assert (await platform.composed(xr)).keys() == {"b"}


async def test_the_reference_to_an_object_of_the_former_kind_goes_with_it_however_long_that_takes(
    platform: Platform,
) -> None:
    await platform.compose(templates(config_map("a", x="1"), config_map("b", x="1")))
    xr = await platform.ready(await platform.create())
    former = (await platform.composed(xr))["a"]["metadata"]

    async def set_finalizers(*names: str) -> None:
        body = {"metadata": {"finalizers": list(names)}}
        await platform.client.patch(CONFIG_MAP, former["name"], Patch(PatchType.MERGE, body), namespace="default")

    await set_finalizers("example.org/slow")
    secret = {"_key": "a", "apiVersion": "v1", "kind": "Secret", "stringData": {"x": "1"}}
    await platform.compose(templates(secret, config_map("b", x="1")))

    async def going() -> bool:
        found = await platform.client.get(CONFIG_MAP, former["name"], namespace="default")
        return bool(found["metadata"].get("deletionTimestamp"))

    async def references() -> list[str]:
        found = (await platform.get(xr))["spec"]["crossplane"]["resourceRefs"]
        return sorted(each["kind"] for each in found)

    await eventually(going, "the ConfigMap is to go")
    await platform.at_rest(xr)
    assert await references() == ["ConfigMap", "ConfigMap", "Secret"]
    await set_finalizers()

    async def gone() -> bool:
        return await references() == ["ConfigMap", "Secret"]

    await eventually(gone, "the reference has gone with it")


async def test_deleting_an_xr_deletes_what_it_composed(platform: Platform) -> None:
    await platform.compose(templates(config_map("a", x="1"), config_map("b", x="1")))
    xr = await platform.ready(await platform.create())
    await platform.client.delete(platform.kind, xr["metadata"]["name"], namespace="default")
    await platform.gone(xr)

    async def empty() -> bool:
        return not await platform.composed(xr)

    # The collector of a real cluster looks for new kinds, such as that of the owner, every 30 s.
    await eventually(empty, "nothing is left of it", seconds=75)


async def test_nothing_desired_any_more_waits_for_a_human(platform: Platform) -> None:
    await platform.compose(templates(config_map("a", x="1"), config_map("b", x="1")))
    xr = await platform.ready(await platform.create())
    await platform.compose(script('def main(req):\n    return {"desired": {}}\n'))
    stopped = await until_condition(platform.client, xr, "Synced", "False")
    condition = condition_of(stopped, "Synced")
    assert condition is not None and "planform.dev/confirm-deletion=" in condition["message"]
    assert (await platform.composed(xr)).keys() == {"a", "b"}
    token = condition["message"].rpartition("=")[2]
    await platform.merge(xr, {"metadata": {"annotations": {"planform.dev/confirm-deletion": token}}})

    async def empty() -> bool:
        return not await platform.composed(xr)

    await eventually(empty, "the confirmed deletion was carried out")


async def test_a_failing_step_is_named_in_the_status(platform: Platform) -> None:
    await platform.compose(templates(config_map("a", x="1")), script('def main(req):\n    fail("no")\n', step="broken"))
    xr = await platform.create()
    failed = await until_condition(platform.client, xr, "Synced", "False")
    [problem] = failed["status"]["planform"]["problems"]
    assert problem["step"] == "broken" and "no" in problem["message"]
    assert not await platform.composed(xr)


async def test_an_existing_object_is_taken_over_only_when_asked(platform: Platform) -> None:
    name = f"mine-{platform.unique}"
    mine = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": "default"},
        "data": {"k": "v"},
    }
    await platform.client.create(mine)
    wanted = config_map("a", x="1")
    wanted["metadata"] = {"name": name}
    await platform.compose(templates(wanted))
    xr = await platform.create()
    refused = await until_condition(platform.client, xr, "Synced", "False")
    assert "exists already" in refused["status"]["planform"]["problems"][0]["message"]
    adopting = config_map("a", x="1")
    adopting["metadata"] = {"name": name, "annotations": {"planform.dev/adopt": "true"}}
    await platform.compose(templates(adopting))
    await platform.ready(xr)
    assert (await platform.client.get(CONFIG_MAP, name, namespace="default"))["data"] == {"k": "v", "x": "1"}


async def test_nothing_is_written_once_an_xr_is_ready(platform: Platform) -> None:
    await platform.compose(templates(nop("a"), nop("b"), ready=False), auto_ready())
    xr = await platform.ready(await platform.create())

    async def quiet() -> bool:
        before = [await platform.get(xr), await platform.composed(xr, NOP)]
        await asyncio.sleep(0.5)
        return before == [await platform.get(xr), await platform.composed(xr, NOP)]

    await eventually(quiet, "nothing changes any more")
