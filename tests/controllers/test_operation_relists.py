"""WatchOperations miss nothing when history is compacted while their watch is cut, and all is listed anew in pages."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from random import Random
from typing import Any

import pytest

from planform.api.kinds import GroupVersionKind, Object
from planform.api.names import OPERATION, WATCH_OPERATION
from planform.apiserver.local import LocalClient
from planform.client import informer
from planform.client.protocol import ObjectList, Patch, PatchType, WatchEvent
from planform.clock import SystemClock
from planform.definitions.own_crds import ensure_crds
from planform.errors import ServiceUnavailable
from planform.operations import watch_controller
from planform.operations.watch_controller import WatchOperationController
from planform.reconcile.context import ControllerContext
from planform.reconcile.events import open_events
from planform.reconcile.limiter import ConcurrencyLimiter
from planform.reconcile.manager import open_manager
from planform.reconcile.sources import Watches
from planform.telemetry.metrics import MetricsRegistry
from tests.harness.contexts import eventually
from tests.harness.embedded import Embedded, embedded_engine

pytestmark = pytest.mark.timeout(60)
CONFIG_MAP = GroupVersionKind("", "v1", "ConfigMap")
NAMES = ("a", "b", "c")


class Line(LocalClient):
    """The engine behind a line that can be cut for ConfigMaps; `between_pages` is awaited before a list goes on."""

    def __init__(self, engine: Embedded) -> None:
        super().__init__(engine.core)
        self._whole = asyncio.Event()
        self._whole.set()
        self._cut = asyncio.Event()
        self.between_pages: Callable[[], Awaitable[None]] | None = None

    def cut(self) -> None:
        self._whole.clear()
        self._cut.set()
        self._cut = asyncio.Event()

    def mend(self) -> None:
        self._whole.set()

    async def list(self, gvk: GroupVersionKind, **more: Any) -> ObjectList:
        if gvk == CONFIG_MAP:
            await self._whole.wait()
            if more.get("continue_token") and self.between_pages is not None:
                await self.between_pages()
        return await super().list(gvk, **more)

    @asynccontextmanager
    async def watch(self, gvk: GroupVersionKind, **more: Any) -> AsyncIterator[AsyncIterator[WatchEvent]]:
        if gvk == CONFIG_MAP:
            await self._whole.wait()
        async with super().watch(gvk, **more) as events:
            yield self._until_cut(events) if gvk == CONFIG_MAP else events

    async def _until_cut(self, events: AsyncIterator[WatchEvent]) -> AsyncIterator[WatchEvent]:
        cut = asyncio.ensure_future(self._cut.wait())
        following = asyncio.ensure_future(_next(events))
        try:
            while True:
                await asyncio.wait({following, cut}, return_when=asyncio.FIRST_COMPLETED)
                if cut.done():
                    raise ServiceUnavailable("the line was cut")
                event = following.result()
                following = asyncio.ensure_future(_next(events))
                yield event
        finally:
            cut.cancel()
            following.cancel()
            await asyncio.wait({cut, following})


async def _next(events: AsyncIterator[WatchEvent]) -> WatchEvent:
    return await anext(events)


class Watched:
    """Three ConfigMaps that a WatchOperation watches over the line; nobody runs the Operations."""

    def __init__(self, engine: Embedded, line: Line) -> None:
        self.engine = engine
        self.client = engine.client
        self.line = line

    async def change(self, name: str) -> str:
        """Gives the version of the change."""
        patch = Patch(PatchType.MERGE, {"data": {"changed": "yes"}})
        return str(
            (await self.client.patch(CONFIG_MAP, name, patch, namespace="default"))["metadata"]["resourceVersion"]
        )

    async def delete(self, name: str) -> None:
        await self.client.delete(CONFIG_MAP, name, namespace="default")

    async def forget_history(self) -> None:
        """As if all this were long ago: neither watches nor pages can be resumed."""
        store = self.engine.core.store
        await store.compact(store.revision)
        self.engine.core.pinned = None

    async def causes(self) -> set[tuple[str, str]]:
        """Which object, and which of its versions, each Operation is about."""
        about = [each["metadata"]["annotations"] for each in (await self.client.list(OPERATION)).items]
        prefix = "ops.crossplane.io/watched-resource-"
        return {(each[f"{prefix}name"], each[f"{prefix}resourceversion"]) for each in about}

    async def until_caused(self, *wanted: tuple[str, str]) -> None:
        async def caused() -> bool:
            return set(wanted) <= await self.causes()

        await eventually(caused, f"Operations for {wanted}")

    async def handled_so_far(self) -> None:
        """Give the controller every chance to work on what it has heard."""
        for _ in range(30):
            await asyncio.sleep(0.01)


def config_map(name: str) -> Object:
    metadata = {"name": name, "namespace": "default", "labels": {"watched": "yes"}}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}


def watch_operation() -> Object:
    step = {"step": "only", "functionRef": {"name": "function-auto-ready"}}
    return {
        "apiVersion": WATCH_OPERATION.api_version,
        "kind": WATCH_OPERATION.kind,
        "metadata": {"name": "watch"},
        "spec": {
            "watch": {"apiVersion": "v1", "kind": "ConfigMap", "matchLabels": {"watched": "yes"}},
            "operationTemplate": {"spec": {"mode": "Pipeline", "pipeline": [step]}},
        },
    }


DELETED = "ops.crossplane.io/synthetic-deleted"


@pytest.fixture
async def watched(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Watched]:
    """All three have led to an Operation; lists come in pages of two."""
    monkeypatch.setattr(informer, "PAGE", 2)
    clock, rng, metrics = SystemClock(), Random(7), MetricsRegistry()
    async with embedded_engine() as engine:
        line, client = Line(engine), engine.client
        await ensure_crds(client, clock=clock)
        async with (
            Watches(line, clock=clock, rng=rng) as watches,
            open_manager(watches, clock=clock) as manager,
            open_events(client, clock=clock, metrics=metrics) as events,
        ):
            context = ControllerContext(client, manager, events, clock, rng, ConcurrencyLimiter(4), metrics)
            watched = Watched(engine, line)
            made = [await client.create(config_map(name)) for name in NAMES]
            await client.create(watch_operation())
            WatchOperationController(context).start()
            await watched.until_caused(
                *((each["metadata"]["name"], each["metadata"]["resourceVersion"]) for each in made)
            )
            yield watched
            line.mend()


async def test_what_changed_earlier_but_is_listed_later_is_not_missed(watched: Watched) -> None:
    watched.line.cut()
    of_c = await watched.change("c")
    of_a = await watched.change("a")
    await watched.forget_history()
    watched.line.between_pages = watched.handled_so_far
    watched.line.mend()
    await watched.until_caused(("a", of_a), ("c", of_c))


async def test_all_that_vanished_at_once_is_told_one_by_one(watched: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch_controller, "_AT_ONCE", 1)
    watched.line.cut()
    for name in NAMES:
        await watched.delete(name)
    await watched.forget_history()
    watched.line.mend()
    await watched.until_caused(*((name, DELETED) for name in NAMES))


async def test_a_namesake_that_took_the_place_of_one_that_vanished_is_told_as_well(
    watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch_controller, "_AT_ONCE", 1)
    watched.line.cut()
    new = []
    for name in NAMES:
        await watched.delete(name)
        again = await watched.client.create(config_map(name))
        new.append((name, again["metadata"]["resourceVersion"]))
    await watched.forget_history()
    watched.line.mend()
    await watched.until_caused(*new, *((name, DELETED) for name in NAMES))


async def test_what_vanished_between_the_pages_of_a_list_that_had_to_begin_anew_is_told(watched: Watched) -> None:
    async def vanish() -> None:
        watched.line.between_pages = None
        await watched.delete("a")
        await watched.change("c")
        await watched.forget_history()

    watched.line.cut()
    await watched.change("b")
    await watched.forget_history()
    watched.line.between_pages = vanish
    watched.line.mend()
    await watched.until_caused(("a", DELETED))
