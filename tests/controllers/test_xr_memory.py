"""What is remembered of XRs beyond a process: for how long it holds, and that what is gone is forgotten."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection
from pathlib import Path

import pytest

from planform.api.kinds import Object
from planform.api.names import CRD, XRD
from planform.client.protocol import Patch, PatchType
from planform.features import parse_gates
from planform.reconcile.context import ControllerContext
from tests.controllers.composing import Platform, a_process, config_map, reading, templates
from tests.harness.contexts import embedded_context, eventually, read

pytestmark = pytest.mark.timeout(120)


@pytest.fixture
async def context() -> AsyncIterator[ControllerContext]:
    async with embedded_context() as context:
        yield context


async def a_ready_xr(platform: Platform) -> Object:
    """An XR of the platform's only kind, with a run and a last run that are written."""
    await platform.define()
    await platform.compose(templates(config_map("a", x="1")))
    xr = await platform.ready(await platform.create())

    async def written() -> bool:
        return xr["metadata"]["uid"] in await remembered(platform)

    await eventually(written, "the XR is remembered")
    return xr


async def remembered(platform: Platform) -> set[str]:
    """The uids of all of whom the journal holds anything."""
    assert platform.controllers is not None
    journal, kind = platform.controllers.journal, f"{platform.kind.kind}.{platform.kind.group}"
    return {run.uid for run in await journal.latest()} | set(await journal.last_runs(kind))


async def until_forgotten(platform: Platform, *, but: Collection[str] = ()) -> None:
    async def forgotten() -> bool:
        return await remembered(platform) == set(but)

    await eventually(forgotten, f"nothing is remembered but of {but or 'nobody'}")


async def let_go(context: ControllerContext, platform: Platform, xr: Object) -> None:
    """What the last act of a process leaves that was killed before it could forget the XR."""
    await context.client.delete(platform.kind, xr["metadata"]["name"], namespace=platform.namespace)
    await platform.merge(xr, {"metadata": {"finalizers": None}})
    await platform.gone(xr)


async def test_an_xr_that_went_when_the_process_was_killed_is_forgotten_by_the_next(
    context: ControllerContext, tmp_path: Path
) -> None:
    async with a_process(context, "memory", tmp_path) as platform:
        xr = await a_ready_xr(platform)
        other = await platform.ready(await platform.create("other"))
    await let_go(context, platform, xr)
    async with a_process(context, "memory", tmp_path) as platform:
        await until_forgotten(platform, but={other["metadata"]["uid"]})
        again = await platform.ready(await platform.create())
        await until_forgotten(platform, but={other["metadata"]["uid"], again["metadata"]["uid"]})


async def test_xrs_whose_xrd_went_as_well_are_forgotten_at_the_start(
    context: ControllerContext, tmp_path: Path
) -> None:
    async with a_process(context, "memory", tmp_path) as platform:
        xr = await a_ready_xr(platform)
    await let_go(context, platform, xr)
    name = f"apps.{platform.group}"
    patch = Patch(PatchType.MERGE, {"metadata": {"finalizers": None}})
    await context.client.patch(XRD, name, patch)
    await context.client.delete(XRD, name)

    async def undefined() -> bool:
        return await read(context.client, CRD, name) is None

    await eventually(undefined, "the kind is gone")
    async with a_process(context, "memory", tmp_path) as platform:
        assert await remembered(platform) == set()


async def test_xrs_of_an_xrd_whose_withdrawal_was_cut_short_are_forgotten_with_it(
    context: ControllerContext, tmp_path: Path
) -> None:
    async with a_process(context, "memory", tmp_path) as platform:
        xr = await a_ready_xr(platform)
    await context.client.delete(XRD, f"apps.{platform.group}")
    await let_go(context, platform, xr)
    async with a_process(context, "memory", tmp_path) as platform:
        await until_forgotten(platform)
        assert platform.controllers is not None
        assert platform.controllers.usage_index.complete(), "nobody waits for XRs that cannot come"


@pytest.mark.parametrize(
    "gates", ["DenyExtraResourcesByDefault=true", "ConfineNamespacedReads=true", "FunctionRevisionSelectors=false"]
)
async def test_exactly_a_change_of_feature_gates_runs_an_xr_again_and_once(
    context: ControllerContext, tmp_path: Path, gates: str
) -> None:
    async with a_process(context, "memory", tmp_path) as platform:
        xr = await a_ready_xr(platform)
        before = await platform.at_rest(xr)
        runs = await platform.runs(xr)
    for more, settings in ((1, [gates]), (1, [gates]), (2, []), (2, [])):
        async with a_process(context, "memory", tmp_path, features=parse_gates(settings)) as platform:
            late = await platform.ready(await platform.create("late"))  # by then the other has been looked at

            async def run(platform: Platform = platform, wanted: int = runs + more) -> bool:
                return await platform.runs(xr) == wanted

            await eventually(run, f"{runs + more} runs with {settings}")
            assert await platform.at_rest(xr) == before
            assert await platform.runs(xr) == runs + more
            await context.client.delete(platform.kind, late["metadata"]["name"], namespace=platform.namespace)
            await platform.gone(late)


async def test_a_gate_that_is_turned_on_denies_what_an_xr_at_rest_has_read(
    context: ControllerContext, tmp_path: Path
) -> None:
    wanted = {"it": {"apiVersion": "v1", "kind": "ConfigMap", "matchName": "it", "namespace": "default"}}
    async with a_process(context, "memory", tmp_path) as platform:
        await platform.define()
        await platform.compose(templates(config_map("a")), reading(wanted))
        xr = await platform.ready(await platform.create())
        await platform.at_rest(xr)
    async with a_process(
        context, "memory", tmp_path, features=parse_gates(["DenyExtraResourcesByDefault=true"])
    ) as platform:
        await platform.failed(xr, "allowedExtraResources")
