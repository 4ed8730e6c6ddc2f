"""What vanishes comes back and what is deleted goes, also where watches are late, cut, expired or repeat themselves."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import pytest

from planform.api.kinds import GroupVersionKind, Object
from planform.api.names import CRD, XRD
from planform.client.protocol import Client, WatchEvent
from planform.clock import SystemClock
from planform.errors import Expired, PlanformError
from planform.reconcile.context import ControllerContext
from tests.harness.contexts import embedded_context, eventually, kubernetes_context, read
from tests.harness.definitions import Definitions, definitions
from tests.harness.disturbed_watches import DisturbedWatches
from tests.harness.kubernetes import RealKubernetes

ROUNDS, BESIDE_EACH_OTHER = 50, 4
"""Two hundred times in all."""


class Disturbing:
    """Has a bench's controllers watch by a disturbed client, and keeps that for its counts."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self.client: DisturbedWatches | None = None

    def __call__(self, client: Client) -> Client:
        self.client = DisturbedWatches(client, clock=SystemClock(), seed=self._seed)
        return self.client


async def crds_that_vanish_or_lose_their_owner_come_back(defs: Definitions) -> None:
    xrd = await defs.until(await defs.established(defs.claimed()), "Offered", "True")
    name = xrd["metadata"]["name"]
    crd = await defs.context.client.get(CRD, f"apps.{defs.group}")
    await defs.delete(crd)
    await defs.change(await defs.context.client.get(CRD, name), {"metadata": {"ownerReferences": None}})

    async def check() -> bool:
        again = await read(defs.context.client, CRD, crd["metadata"]["name"])
        owners = (await defs.context.client.get(CRD, name))["metadata"].get("ownerReferences")
        return again is not None and again["metadata"]["uid"] != crd["metadata"]["uid"] and bool(owners)

    await eventually(check, f"both CRDs of {defs.group} are as they were")
    await defs.delete(xrd)
    await defs.gone(xrd)


async def one_round(context: ControllerContext, unique: str, times: int) -> None:
    """So many XRDs of one controller at a time, each with a group of its own, beside changes that concern nobody."""
    async with AsyncExitStack() as stack:
        first = await stack.enter_async_context(definitions(context, f"{unique}-0"))
        others = [Definitions(context, f"{unique}-{number}.example.org") for number in range(1, times)]
        load = asyncio.create_task(_change_without_end(context, first), name="load")
        stack.callback(load.cancel)
        async with asyncio.TaskGroup() as tasks:
            for each in (first, *others):
                tasks.create_task(_explained(each))


async def _explained(defs: Definitions) -> None:
    """The claim for one XRD; if it fails, the error has the objects as they are."""
    try:
        await crds_that_vanish_or_lose_their_owner_come_back(defs)
    except AssertionError as error:
        for kind, plural in ((XRD, "xapps"), (CRD, "xapps"), (CRD, "apps")):
            found = await read(defs.context.client, kind, f"{plural}.{defs.group}")
            shown = {part: (found or {}).get(part) for part in ("metadata", "status")}
            shown["metadata"] = {**(shown["metadata"] or {}), "managedFields": None}
            error.add_note(f"{kind.kind} {plural}: {shown}")
        raise


async def _change_without_end(context: ControllerContext, defs: Definitions) -> None:
    """Touch the CRDs of the round, so that their watch always has something to tell."""
    number = 0
    while True:
        for name in (f"xapps.{defs.group}", f"apps.{defs.group}"):
            number += 1
            touched: Object = {"metadata": {"annotations": {"example.org/touched": str(number)}}}
            try:
                await defs.change(
                    {"apiVersion": CRD.api_version, "kind": CRD.kind, "metadata": {"name": name}}, touched
                )
            except PlanformError:
                pass  # it is gone at this moment
        await context.clock.sleep(0.05)


class Gap(DisturbedWatches):
    """Loses all history after the deletion of one CRD, from when it was told until `end` is called."""

    def __init__(self, client: Client) -> None:
        super().__init__(client, clock=SystemClock(), seed=0)
        self.after = ""
        self._over = asyncio.Event()

    def end(self) -> None:
        self._over.set()

    async def _disturbed(self, gvk: GroupVersionKind, events: AsyncIterator[WatchEvent]) -> AsyncIterator[WatchEvent]:
        async for event in events:
            yield event
            if event.type == "DELETED" and event.object["metadata"]["name"] == self.after:
                self.after = ""
                await self._over.wait()
                raise Expired("too old resource version")


async def test_a_crd_comes_back_that_was_made_and_deleted_while_history_was_lost(unique: str) -> None:
    gaps: list[Gap] = []

    def watched_by(client: Client) -> Client:
        gaps.append(Gap(client))
        return gaps[0]

    async with embedded_context(watched_by=watched_by) as context, definitions(context, unique) as defs:
        await defs.until(await defs.established(defs.claimed()), "Offered", "True")
        name = f"apps.{defs.group}"
        first = await context.client.get(CRD, name)
        gaps[0].after = name
        await defs.delete(first)

        async def another(than: Object) -> Object | None:
            found = await read(context.client, CRD, name)
            return found if found and found["metadata"]["uid"] != than["metadata"]["uid"] else None

        second = await eventually(lambda: another(first), "the controller makes another one")
        await defs.delete(second)  # which no watch ever tells, nor that there was one
        await defs.gone(second)
        gaps[0].end()
        await eventually(lambda: another(second), "the controller makes a third one")


@pytest.mark.parametrize("seed", [1, 2])
async def test_crds_come_back_though_watches_are_disturbed(unique: str, seed: int) -> None:
    disturbing = Disturbing(seed)
    async with embedded_context(watched_by=disturbing) as context:
        await one_round(context, unique, BESIDE_EACH_OTHER)
    assert disturbing.client is not None
    counted = disturbing.client.counted
    assert counted["late"] and counted["twice"] and counted["closed"] + counted["failed"] + counted["expired"], counted


@pytest.mark.long
@pytest.mark.kubernetes
@pytest.mark.xdist_group("kubernetes")
@pytest.mark.timeout(7200)
async def test_crds_come_back_on_a_cluster_though_watches_are_disturbed(
    kubernetes_engine: RealKubernetes, unique: str
) -> None:
    for round_ in range(ROUNDS):
        disturbing = Disturbing(round_)
        async with kubernetes_context(kubernetes_engine, watched_by=disturbing) as context:
            await one_round(context, f"{unique}-{round_}", BESIDE_EACH_OTHER)
        assert disturbing.client is not None
        print(f"round {round_ + 1} of {ROUNDS}: {dict(disturbing.client.counted)}", flush=True)
