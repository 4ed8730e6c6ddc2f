"""Controllers that start and stop while the process runs, with their watches, and a shutdown that ends.

An XRD brings a controller with it and takes it away again; a composition that makes a new kind of resource adds a
watch to a controller that runs. Starting what runs and stopping what does not are no errors, so a reconciler may say
every time what it wants.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Hashable, Iterable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from planform.api.kinds import GroupVersionKind
from planform.client.informer import ObjectKey
from planform.client.waits import time_limit
from planform.clock import Clock
from planform.errors import ServiceUnavailable
from planform.reconcile.controller import Controller
from planform.reconcile.queue import SLICE, K, Priority
from planform.reconcile.sources import Enqueue, Handler, Source, Subscription, Watches, to_self

_logger = logging.getLogger(__name__)


@dataclass(slots=True)
class _Running:
    controller: Controller[Any]
    task: asyncio.Task[None]
    subscriptions: dict[Hashable, Subscription] = field(default_factory=dict)
    stopping: bool = False
    revisit: asyncio.Task[None] | None = None

    def close(self) -> None:
        self.stopping = True
        if self.revisit is not None:
            self.revisit.cancel()
        for subscription in self.subscriptions.values():
            subscription.close()
        self.subscriptions.clear()
        self.controller.close()


class Manager:
    """The controllers of one process, by name. Made by `open_manager`, which also ends them."""

    def __init__(self, tasks: asyncio.TaskGroup, watches: Watches, clock: Clock, grace_seconds: float) -> None:
        self._tasks = tasks
        self._watches = watches
        self._clock = clock
        self._grace_seconds = grace_seconds
        self._running: dict[str, _Running] = {}
        self._stopping = False

    def __contains__(self, name: str) -> bool:
        return name in self._running

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(sorted(self._running))

    def start(self, controller: Controller[K], sources: Iterable[Source[K]] = ()) -> bool:
        """Run a controller and its watches; False, and nothing happens, if one of that name runs, or all are stopped.

        One that is being stopped runs until its last reconcile has ended: two never reconcile the same keys.
        """
        if controller.name in self._running or self._stopping:
            return False
        task = self._tasks.create_task(controller.run(), name=f"controller {controller.name}")
        self._running[controller.name] = _Running(controller, task)
        task.add_done_callback(lambda _: self._running.pop(controller.name))
        for source in sources:
            self.watch(controller.name, source)
        return True

    def watch(self, name: str, source: Source[Any]) -> bool:
        """Have a running controller watch one source more; False if it does already, or is being stopped."""
        running = self._running[name]
        if running.stopping or source in running.subscriptions:
            return False
        handler = Enqueue(running.controller.queue, source.to_keys, source.is_self_triggered, source.coalescing_seconds)
        # A dependent that came and went while history was lost leads to no key: whom it belonged to is among all.
        relisted = None if source.to_keys is to_self else lambda: self._revisit_in_slices(name)
        running.subscriptions[source] = self._watches.subscribe(
            source.gvk, handler, namespace=source.namespace, labels=source.labels, relisted=relisted
        )
        return True

    def unwatch(self, name: str, source: Source[Any]) -> bool:
        """End one watch of a running controller; False if it has no such watch."""
        subscription = self._running[name].subscriptions.pop(source, None)
        if subscription is not None:
            subscription.close()
        return subscription is not None

    def revisit(self, name: str) -> None:
        """Have a running controller look again at every object that its own kinds have, in no hurry."""
        running = self._running[name]
        for key in _own_keys(running):
            running.controller.queue.add(key, priority=Priority.BACKGROUND)

    def _revisit_in_slices(self, name: str) -> None:
        """The same, for a moment at which there may be very many of them, and others wait for the event loop."""
        running = self._running.get(name)
        if running is not None and not running.stopping and running.revisit is None:
            running.revisit = self._tasks.create_task(_revisit(running), name=f"revisit {name}")

    def subscribe(
        self,
        gvk: GroupVersionKind,
        handler: Handler,
        *,
        namespace: str = "",
        labels: str = "",
        relisted: Callable[[], None] | None = None,
    ) -> Subscription:
        """A share of a watch for what is no controller, such as an index that several of them read."""
        return self._watches.subscribe(gvk, handler, namespace=namespace, labels=labels, relisted=relisted)

    def sources(self, name: str) -> frozenset[Hashable]:
        """What a running controller watches."""
        return frozenset(self._running[name].subscriptions)

    async def synced(self, name: str) -> None:
        """Wait until a controller has heard of everything its sources had when they were started."""
        for subscription in list(self._running[name].subscriptions.values()):
            await subscription.synced()

    async def fully_synced(self, name: str, source: Source[Any]) -> None:
        """Wait until nothing older than what a controller has heard from this source is still to come.

        Raises ServiceUnavailable if it is being stopped.
        """
        subscription = self._running[name].subscriptions.get(source)
        if subscription is None:
            raise ServiceUnavailable(f"the watch of {source.gvk} has ended")
        await subscription.fully_synced()

    async def stop(self, name: str) -> bool:
        """End a controller: no new keys, then a bounded wait for the reconciles in hand; False if it does not run."""
        running = self._running.get(name)
        if running is None:
            return False
        await self._end([running])
        return True

    async def stop_all(self) -> None:
        """End every controller for good. Whoever owns what reconciles use calls it before that is closed."""
        self._stopping = True
        await self._end(list(self._running.values()))

    async def _end(self, stopping: list[_Running]) -> None:
        for running in stopping:
            running.close()
        tasks = {running.task for running in stopping}
        if not tasks:
            return
        try:
            async with time_limit(self._clock, self._grace_seconds):
                await asyncio.wait(tasks)
        except TimeoutError:
            late = sorted(running.controller.name for running in stopping if not running.task.done())
            _logger.warning("cancelling the reconciles of %s after %g s", ", ".join(late), self._grace_seconds)
        finally:
            for task in tasks:
                task.cancel()
        await asyncio.wait(tasks)


def _own_keys(running: _Running) -> Iterator[ObjectKey]:
    """The objects of a controller's own kinds."""
    for source, subscription in running.subscriptions.items():
        if isinstance(source, Source) and source.to_keys is to_self:
            yield from subscription.keys


async def _revisit(running: _Running) -> None:
    for number, key in enumerate(list(_own_keys(running)), 1):
        running.controller.queue.add(key, priority=Priority.BACKGROUND)
        if number % SLICE == 0:
            await asyncio.sleep(0)
    running.revisit = None


@asynccontextmanager
async def open_manager(watches: Watches, *, clock: Clock, grace_seconds: float = 30.0) -> AsyncIterator[Manager]:
    """A manager whose controllers end, gracefully but within `grace_seconds`, when the block does.

    A controller that dies of a mistake outside its reconciles ends the block with its error.
    """
    async with asyncio.TaskGroup() as tasks:
        manager = Manager(tasks, watches, clock, grace_seconds)
        try:
            yield manager
        finally:
            await manager.stop_all()
