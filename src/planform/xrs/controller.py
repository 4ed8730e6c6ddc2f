"""Runs a controller for the XRs of each XRD, and wakes XRs when something they rest on changes."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Iterable
from dataclasses import dataclass

from planform.api.kinds import Object
from planform.api.metadata import uid_of
from planform.api.xr import composition_fields
from planform.client.informer import ObjectKey, key_of, list_pages
from planform.client.waits import Backoff
from planform.compositions.usage_index import XrKey
from planform.errors import PlanformError
from planform.packages.function_catalogue import LiveFunctions
from planform.pipeline.revision_selectors import RevisionSelector
from planform.reconcile.controller import Controller
from planform.reconcile.queue import Priority
from planform.reconcile.sources import Source, to_self
from planform.xrs.context import Tools
from planform.xrs.index import Definition, Memory, XrIndex
from planform.xrs.reconciler import CompositeReconciler

_logger = logging.getLogger(__name__)


@dataclass
class _Running:
    xr_index: XrIndex
    controller: Controller[ObjectKey]
    counting: asyncio.Task[None]

    def wake(self, keys: Iterable[ObjectKey]) -> None:
        for key in list(keys):
            self.controller.queue.add(key, priority=Priority.NORMAL)


class CompositeControllers:
    """One controller `composite/<XRD>` for each XRD that is started here."""

    def __init__(self, tools: Tools, functions: LiveFunctions, *, memory: Memory | None = None) -> None:
        self._tools = tools
        self._context = tools.context
        self._memory = memory
        self._running: dict[str, _Running] = {}
        self._kinds: dict[str, str] = {}  # of each XRD that there is, the kind of its XRs
        tools.compositions.subscribe(self._composition_changed)
        functions.subscribe(self._functions_changed)

    async def expect(self, definitions: Iterable[Definition]) -> None:
        """Hear which XRDs there are, before any is started. XRs of other kinds went unseen, and are forgotten."""
        for definition in definitions:
            self._kinds[definition.name] = definition.group_kind
            self._tools.usage_index.expect(definition.group_kind)
        if self._memory is not None:
            await self._memory.retain(set(self._kinds.values()))

    async def start(self, xrd: Object) -> None:
        """Run it for the XRD as it is now; nothing happens if it runs for this generation already."""
        definition = Definition.of(xrd)
        self._kinds[definition.name] = definition.group_kind
        running = self._running.get(definition.name)
        if running is not None and running.xr_index.definition == definition:
            return
        await self._end(definition.name)
        if running is not None and running.xr_index.definition.group_kind == definition.group_kind:
            xr_index = running.xr_index
            xr_index.definition = definition
        else:
            xr_index = XrIndex(definition, self._context.clock, self._memory, shortcuts=self._context.shortcuts)
            await xr_index.restore()
        self._run(definition, xr_index)

    async def stop(self, xrd_name: str) -> None:
        """End it once its reconciles in hand are done, and forget its XRs, whether or not it ran."""
        await self._end(xrd_name)
        self._running.pop(xrd_name, None)
        kind = self._kinds.pop(xrd_name, "")
        if not kind or kind in self._kinds.values():
            return
        self._tools.usage_index.leave(kind)
        if self._memory is not None:
            await self._memory.forget_kind(kind)

    def close(self) -> None:
        """Begin nothing more; the manager's owner ends the controllers."""
        for running in self._running.values():
            running.counting.cancel()

    def _run(self, definition: Definition, xr_index: XrIndex) -> None:
        name = _name(definition.name)

        def watch() -> None:
            if name in self._context.manager:
                wanted, gone = xr_index.sources()
                for source in wanted:
                    self._context.manager.watch(name, source)
                for source in gone:
                    self._context.manager.unwatch(name, source)

        reconciler = CompositeReconciler(xr_index, self._tools, watch=watch)
        controller = self._context.controller(
            name,
            reconciler.reconcile,
            backoff=Backoff(first=1, maximum=30),
            fed_by_itself=math.inf,  # one resource after the other may take many passes; the thrash guard counts them
        )
        self._tools.usage_index.expect(definition.group_kind)
        counting = asyncio.create_task(self._count(definition, xr_index), name=f"count {definition.group_kind}")
        self._running[definition.name] = _Running(xr_index, controller, counting)
        self._context.manager.start(
            controller, [Source(definition.kind, to_self, is_self_triggered=xr_index.is_self_triggered)]
        )
        xr_index.unwatch_all()
        watch()

    async def _end(self, xrd_name: str) -> None:
        running = self._running.get(xrd_name)
        if running is not None:
            running.counting.cancel()
        await self._context.manager.stop(_name(xrd_name))

    async def _count(self, definition: Definition, xr_index: XrIndex) -> None:
        """Say of every XR that is there which revision it uses, before anybody may conclude that one is unused."""
        backoff, failures = Backoff(first=0.2, maximum=30), 0
        while True:
            try:
                live = await self._seed(definition)
                break
            except PlanformError as error:
                failures += 1
                if failures == 1:
                    _logger.warning("counting %s: %s; trying again", definition.group_kind, error)
                await self._context.clock.sleep(backoff.delay(failures, self._context.rng))
        self._tools.usage_index.heard(definition.group_kind)
        xr_index.forget_missing(live)

    async def _seed(self, definition: Definition) -> set[str]:
        """Enter every XR that is there into the usage index; gives their uids."""
        usage_index, live = self._tools.usage_index, set[str]()
        async for page in list_pages(self._context.client, definition.kind):
            for xr in page.items:
                live.add(uid_of(xr))
                fields = composition_fields(xr, definition.style)
                composition = (fields.get("compositionRef") or {}).get("name")
                if composition:
                    usage_index.seed(
                        XrKey(definition.group_kind, *key_of(xr)),
                        composition,
                        (fields.get("compositionRevisionRef") or {}).get("name") or "",
                        RevisionSelector.of(fields.get("compositionRevisionSelector")),
                    )
            await asyncio.sleep(0)
        return live

    def _composition_changed(self, composition: str) -> None:
        for running in self._running.values():
            running.wake(running.xr_index.followers(composition))

    def _functions_changed(self, functions: frozenset[str]) -> None:
        for running in self._running.values():
            running.wake(running.xr_index.users(functions))


def _name(xrd_name: str) -> str:
    return f"composite/{xrd_name}"
