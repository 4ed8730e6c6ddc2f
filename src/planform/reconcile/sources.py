"""Where keys come from: one watch for everybody who wants it, and the functions that turn a change into keys.

However many controllers care about a kind, there is one list and one watch of it; it starts with the first subscriber
and stops with the last. A subscriber that comes late first hears of everything that is there. Objects are not kept:
on the embedded engine the store is the cache, and elsewhere `Recent` has those that are in use.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from random import Random
from types import TracebackType
from typing import Any, Generic, NamedTuple, Self, TypeVar

from planform.api.kinds import GroupVersionKind, gvk_of
from planform.api.metadata import resource_version_of
from planform.api.owners import controller_of, owners_of
from planform.client.informer import Informer, InformerEvent, ObjectKey, key_of, list_pages, version_number
from planform.client.protocol import Client
from planform.client.recent import Recent
from planform.client.waits import Backoff
from planform.clock import Clock
from planform.errors import PlanformError, ServiceUnavailable
from planform.reconcile.catchup import CatchUp
from planform.reconcile.queue import ANY_VERSION, K, Priority, WorkQueue
from planform.telemetry.metrics import MetricsRegistry

Handler = Callable[[InformerEvent], None]
"""Hears of every change, on the event loop, without waiting. An error in it is logged and loses it that change."""

ToKeys = Callable[[InformerEvent], Iterable[K]]

T = TypeVar("T")

_logger = logging.getLogger(__name__)


class Scope(NamedTuple):
    """What one watch covers; all subscriptions to the same scope share it."""

    gvk: GroupVersionKind
    namespace: str = ""
    labels: str = ""


class Watches:
    """The shared watches of one process. Use it as a context manager: leaving it ends all of them."""

    def __init__(
        self,
        client: Client,
        *,
        clock: Clock,
        rng: Random,
        metrics: MetricsRegistry | None = None,
        thin: Mapping[GroupVersionKind, Client] | None = None,
        recent: Recent | None = None,
    ) -> None:
        """`thin` has other clients for kinds of which subscribers need no more than the metadata.

        Whoever selects objects by label has made them, and may look into them: those come whole. `recent` hears of
        every change of whole objects that a watch of all of them tells.
        """
        self._recent = recent
        self._client = client
        self._thin = thin if thin is not None else {}
        self._clock = clock
        self._rng = rng
        self._shared: dict[Scope, _Shared] = {}
        self._tasks: asyncio.TaskGroup | None = None
        self._stack = AsyncExitStack()
        metrics = metrics if metrics is not None else MetricsRegistry()
        self._running = metrics.gauge("planform_watches", "Watches that are running, by kind.", ["kind"])
        self._events = metrics.counter("planform_watch_events_total", "Changes that watches told, by kind.", ["kind"])

    async def __aenter__(self) -> Self:
        self._tasks = await self._stack.enter_async_context(asyncio.TaskGroup())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for shared in list(self._shared.values()):
            for subscription in list(shared.subscriptions):
                subscription.close()
        await self._stack.__aexit__(kind, error, trace)

    def __len__(self) -> int:
        """Watches that are running."""
        return len(self._shared)

    def disconnected(self, seconds: float) -> list[Scope]:
        """The watches that have not been able to hear of changes for longer than that."""
        return [scope for scope, shared in self._shared.items() if shared.informer.disconnected_seconds > seconds]

    def subscribe(
        self,
        gvk: GroupVersionKind,
        handler: Handler,
        *,
        namespace: str = "",
        labels: str = "",
        relisted: Callable[[], None] | None = None,
    ) -> Subscription:
        """Tell `handler` about all that exists and then about every change, until the subscription is closed.

        `relisted` is called when history was lost and all has been listed anew. An object that was created and deleted
        meanwhile is never told: who waits for it to be, or to be gone, has to look.
        """
        if self._tasks is None:
            raise RuntimeError("subscribe inside `async with Watches(...)`")
        scope = Scope(gvk, namespace, labels)
        shared = self._shared.get(scope)
        late = shared is not None
        if shared is None:
            shared = self._shared[scope] = self._share(scope)
            shared.task = self._tasks.create_task(shared.informer.run(), name=f"watch {gvk}")
            self._running.labels(str(gvk)).inc()
        subscription = Subscription(self, scope, shared, handler, relisted)
        shared.subscriptions[subscription] = None
        if late:
            subscription.catch_up(self._tasks, self._client_for(scope), self._clock, self._rng)
        return subscription

    def _share(self, scope: Scope) -> _Shared:
        client = self._client_for(scope)
        recent = self._recent if client is self._client and not scope.labels else None
        shared = _Shared(client, scope, self._clock, self._rng, self._events, recent)
        if recent is not None:
            recent.follow(scope.gvk, scope.namespace, shared.informer)
        return shared

    def _client_for(self, scope: Scope) -> Client:
        return self._client if scope.labels else self._thin.get(scope.gvk, self._client)

    def _leave(self, subscription: Subscription, shared: _Shared) -> None:
        shared.subscriptions.pop(subscription, None)
        if not shared.subscriptions and self._shared.get(subscription.scope) is shared:
            del self._shared[subscription.scope]
            if shared.recent is not None:
                shared.recent.unfollow(subscription.scope.gvk, subscription.scope.namespace)
            self._running.labels(str(subscription.scope.gvk)).dec()
            if shared.task is not None:
                shared.task.cancel()


class _Shared:
    """One informer and those who listen to it."""

    def __init__(
        self, client: Client, scope: Scope, clock: Clock, rng: Random, events: Any, recent: Recent | None
    ) -> None:
        self.subscriptions: dict[Subscription, None] = {}
        self.task: asyncio.Task[None] | None = None
        self.recent = recent
        self._gvk = scope.gvk
        self._count = events.labels(str(scope.gvk))
        self.informer = Informer(
            client, scope.gvk, self._deliver, clock=clock, rng=rng, namespace=scope.namespace, labels=scope.labels
        )

    def _deliver(self, change: InformerEvent) -> None:
        self._count.inc()
        if self.recent is not None:
            self.recent.observe(self._gvk, change)
        for subscription in tuple(self.subscriptions):
            subscription.offer(change)


class Subscription:
    """One subscriber's share of a watch. Closing it twice is harmless; after it no change is delivered."""

    def __init__(
        self,
        watches: Watches,
        scope: Scope,
        shared: _Shared,
        handler: Handler,
        relisted: Callable[[], None] | None = None,
    ) -> None:
        self.scope = scope
        self._watches = watches
        self._shared = shared
        self._handler = handler
        self._relisted = relisted
        self._listing: asyncio.Task[None] | None = None
        self._catch_up: CatchUp | None = None  # until the watch is level with the list
        self._synced_at: int | None = None  # the version of that list, once it is complete
        self._caught_up = asyncio.Event()
        self._caught_up.set()
        self._over = asyncio.Event()
        self._closed = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def keys(self) -> tuple[ObjectKey, ...]:
        """The objects that there are, as far as the watch has told."""
        return self._shared.informer.keys

    async def synced(self) -> None:
        """Wait until the handler has heard of everything that existed when the subscription began.

        Raises ServiceUnavailable if the subscription is closed before that: a reconcile that waits here ends with it.
        """
        if not (self._caught_up.is_set() and self._shared.informer.is_synced):
            await self._unless_over(self._heard_all())

    async def fully_synced(self) -> None:
        """Wait until nothing older than what the handler has heard is still to come: no list is half told.

        That holds until the next wait. Raises ServiceUnavailable if the subscription is closed before.
        """
        while not (self._caught_up.is_set() and self._shared.informer.is_fully_synced):
            await self._unless_over(self._heard_whole_lists())

    async def _unless_over(self, hearing: Coroutine[Any, Any, None]) -> None:
        heard = asyncio.create_task(hearing, name=f"hearing {self.scope.gvk}")
        over = asyncio.create_task(self._over.wait(), name=f"closed {self.scope.gvk}")
        try:
            await asyncio.wait({heard, over}, return_when=asyncio.FIRST_COMPLETED)
            if not heard.done():
                raise ServiceUnavailable(f"the watch of {self.scope.gvk} has ended")
        finally:
            heard.cancel()
            over.cancel()

    async def _heard_all(self) -> None:
        await self._caught_up.wait()
        await self._shared.informer.synced()

    async def _heard_whole_lists(self) -> None:
        await self._caught_up.wait()
        await self._shared.informer.fully_synced()

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        self._over.set()
        if self._listing is not None:
            self._listing.cancel()
        self._watches._leave(self, self._shared)

    def offer(self, change: InformerEvent) -> None:
        """Hand a change of the shared watch to the handler, unless it has heard of it already."""
        if change.relisted and self._relisted is not None and not self._closed:
            self._relisted()
        if self._catch_up is None:
            if change.type != "BOOKMARK":
                self._deliver(change)
            return
        if change.type != "BOOKMARK":
            for news in self._catch_up.watched(change):
                self._deliver(news)
        if self._shared.informer.position:  # it watches; while it lists, objects come in the order of their names
            self._end_catch_up(resource_version_of(change.object))

    def catch_up(self, tasks: asyncio.TaskGroup, client: Client, clock: Clock, rng: Random) -> None:
        """Tell a late subscriber what is there, beside the changes that go on arriving."""
        self._catch_up = CatchUp(self.scope.gvk)
        self._caught_up.clear()
        self._listing = tasks.create_task(self._list(client, clock, rng), name=f"catch up {self.scope.gvk}")

    async def _list(self, client: Client, clock: Clock, rng: Random) -> None:
        backoff, failures, scope = Backoff(first=0.2, maximum=30), 0, self.scope
        while True:
            try:
                version = await self._list_once(client)
                break
            except PlanformError as error:
                failures += 1
                if failures == 1:
                    _logger.warning("listing %s: %s; trying again", scope.gvk, error)
                await clock.sleep(backoff.delay(failures, rng))
        self._synced_at = version_number(version)
        self._caught_up.set()
        self._end_catch_up(self._shared.informer.position)

    async def _list_once(self, client: Client) -> str:
        version, scope = "", self.scope
        async for page in list_pages(client, scope.gvk, namespace=scope.namespace, labels=scope.labels):
            version = page.resource_version
            for obj in page.items:
                for news in self._catch_up.listed(obj) if self._catch_up is not None else ():
                    self._deliver(news)
            await asyncio.sleep(0)
        return version

    def _end_catch_up(self, position: str) -> None:
        """End the catching up once the watch has come as far as the list."""
        reached = version_number(position)
        if self._catch_up is not None and self._synced_at is not None and reached >= self._synced_at:
            catch_up, self._catch_up = self._catch_up, None
            for news in catch_up.vanished(self._shared.informer.uid_of, reached):
                self._deliver(news)

    def _deliver(self, change: InformerEvent) -> None:
        if self._closed:
            return
        try:
            self._handler(change)
        except Exception:  # others share this watch, and one subscriber's mistake is not theirs
            _logger.exception("handling %s of %s %s failed", change.type, self.scope.gvk, change.key)


@dataclass(frozen=True, slots=True)
class Source(Generic[K]):
    """What a controller watches, and which keys a change there is about."""

    gvk: GroupVersionKind
    to_keys: ToKeys[K]
    namespace: str = ""
    labels: str = ""
    is_self_triggered: Callable[[InformerEvent], bool] | None = None
    """Says of a change that the controller made it itself, so that looking at it may wait for what is news."""
    coalescing_seconds: float = 0.0
    """How long a change waits at least for others that are about the same key, to be looked at together; longer when
    the controller has much to do."""


class Enqueue(Generic[K]):
    """A handler that puts keys into a queue.

    It remembers which keys an object led to, because a change may be about two of them (an object that moved from one
    owner to another) and because an object that is found deleted says no more whom it belonged to.
    """

    def __init__(
        self,
        queue: WorkQueue[K],
        to_keys: ToKeys[K],
        is_self_triggered: Callable[[InformerEvent], bool] | None = None,
        coalescing_seconds: float = 0.0,
    ) -> None:
        self._queue = queue
        self._to_keys = to_keys
        self._is_self_triggered = is_self_triggered
        self._coalescing_seconds = coalescing_seconds
        self._keys: dict[ObjectKey, tuple[K, ...]] = {}
        self._own = to_keys is to_self

    def __call__(self, change: InformerEvent) -> None:
        queue, priority, wait = self._queue, Priority.NORMAL, 0.0
        version = changed = ANY_VERSION
        keys = self._to_keys(change) if self._own else self._about(change)
        if not keys:
            return
        if change.type != "DELETED":
            changed = version_number(resource_version_of(change.object)) or ANY_VERSION
        if self._own:
            priority, version = _priority(change), changed
        if change.first_sight:
            priority = Priority.BACKGROUND
        elif self._is_self_triggered is not None and self._is_self_triggered(
            change
        ):  # news tends to follow: somebody takes it up
            priority, wait = Priority.BACKGROUND, 2 * queue.pace
        elif self._coalescing_seconds:
            wait = max(self._coalescing_seconds, queue.pace / 2)
        for key in keys:
            queue.add_after(key, wait, priority=priority, version=version, change=changed)

    def _about(self, change: InformerEvent) -> tuple[K, ...]:
        """The keys that the object leads to, and those it led to before."""
        which, keys = change.key, tuple(dict.fromkeys(self._to_keys(change)))
        before = self._keys.get(which, ())
        if change.type == "DELETED" or not keys:
            if before:
                del self._keys[which]
        elif keys != before:
            self._keys[which] = keys
        return keys if keys == before else tuple(dict.fromkeys(before + keys))


def _priority(change: InformerEvent) -> Priority:
    """How urgent it is to look at an object that changed."""
    if not change.edited:
        return Priority.NORMAL
    return Priority.FOLLOW_UP if controller_of(change.object) is not None else Priority.USER


def to_self(change: InformerEvent) -> Iterable[ObjectKey]:
    """The object itself."""
    return (change.key,)


def to_owner(group: str, kind: str, *, cluster_scoped: bool = False, controller: bool = True) -> ToKeys[ObjectKey]:
    """The owners of this kind, whatever their version; only the one that controls the object unless told otherwise."""

    def owners(change: InformerEvent) -> Iterable[ObjectKey]:
        namespace = "" if cluster_scoped else key_of(change.object).namespace
        for reference in owners_of(change.object):
            if _refers_to(reference, group, kind) and (reference.get("controller") or not controller):
                yield ObjectKey(namespace, reference["name"])

    return owners


def _refers_to(reference: Mapping[str, Any], group: str, kind: str) -> bool:
    owner = gvk_of(reference)
    return owner.group == group and owner.kind == kind
