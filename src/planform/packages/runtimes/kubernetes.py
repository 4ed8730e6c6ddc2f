"""Runs revisions in a cluster: a Deployment for each, a Service that finds its pods, and certificates for both sides.

One controller brings what is missing or other than wanted, and writes nothing when all is there. A revision serves
when its Deployment is available and its pods are found; an older one serves until then, since it is deactivated only
after that. One that is released is removed when no call has been under way for a while; other replicas of the control
plane may be in the middle of one, so its pods go on serving as long as a call may take.

What is known of pods is known from watches alone, so that a replica which does not write can call all the same.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from random import Random
from types import TracebackType
from typing import Any, Final, Protocol, Self

from planform.api.annotations import annotations_of
from planform.api.kinds import GroupVersionKind, Object, gvk_of
from planform.api.metadata import labels_of, name_of, resource_version_of, uid_of
from planform.api.names import SECRET, SYSTEM_NAMESPACE
from planform.client.informer import InformerEvent, ObjectKey, version_number
from planform.client.protocol import Client, Propagation
from planform.clock import Clock
from planform.errors import NotFound, PlanformError
from planform.functions.endpoints import Remote
from planform.functions.runner import FunctionRunner
from planform.packages.runtimes.calls import first_of
from planform.packages.runtimes.certificates import RENEW_BEFORE
from planform.packages.runtimes.cluster_authority import ClusterAuthority, describe
from planform.packages.runtimes.cluster_calls import ClusterRunner
from planform.packages.runtimes.deployments import (
    APPLIED_ANNOTATION,
    DEPLOYMENT,
    KINDS,
    PORT,
    REVISION_LABEL,
    SERVICE,
    STARTING,
    Deployed,
    covers,
    identified,
    objects_of,
    secret_of,
    server_name,
    stamped,
    unavailable,
)
from planform.packages.runtimes.host import Draining, RuntimeStatus
from planform.packages.runtimes.listeners import Listeners, OnChange
from planform.packages.runtimes.serving_pods import Reach, ServingPods
from planform.reconcile.controller import Controller, Result
from planform.reconcile.manager import Manager
from planform.reconcile.sources import Source, Subscription

NAME: Final = "runtimes"
MANAGER: Final = "pkg.crossplane.io/runtime"
_PATIENCE: Final = 3.0
_MAX_WAIT: Final = 86_400.0


class MakeController(Protocol):
    """Whoever makes controllers with the tools of this process."""

    def __call__(self, name: str, reconcile: Callable[[ObjectKey], Awaitable[Result]]) -> Controller[ObjectKey]: ...


@dataclass(frozen=True, slots=True)
class ClusterRuntime:
    """How revisions run in a cluster: where, how long a released one goes on, and how its pods are reached."""

    namespace: str = SYSTEM_NAMESPACE
    draining: Draining = field(default_factory=Draining)
    reach: Reach = str


@dataclass(eq=False)
class _Known:
    """What is known of one revision."""

    wanted: Deployed | None = None
    released: bool = False
    objects: dict[tuple[GroupVersionKind, str], Object] = field(default_factory=dict)
    gone: dict[tuple[GroupVersionKind, str], int] = field(default_factory=dict)
    """The version at which an object was deleted."""
    problem: str = ""
    calls: int = 0
    called: float = 0.0
    released_at: float | None = None
    news: asyncio.Event = field(default_factory=asyncio.Event)
    """Set, and replaced by another one, when its pods are others."""
    reported: RuntimeStatus | None = None


class KubernetesHost:
    """The programs of packages, in one namespace of a cluster. Use it as a context manager; `start` begins to write."""

    def __init__(
        self,
        client: Client,
        manager: Manager,
        runtime: ClusterRuntime,
        *,
        clock: Clock,
        rng: Random,
    ) -> None:
        self._client = client
        self._manager = manager
        self._clock = clock
        self._draining = runtime.draining
        self.namespace = namespace = runtime.namespace
        self._authority = ClusterAuthority(client, clock=clock, namespace=namespace, manager=MANAGER)
        self._pods = ServingPods(
            client,
            manager,
            self._on_pods,
            self._on_caller,
            clock=clock,
            rng=rng,
            namespace=namespace,
            reach=runtime.reach,
        )
        self._known: dict[str, _Known] = {}
        self._settled: dict[tuple[GroupVersionKind, str], tuple[str, Any]] = {}
        self._listeners = Listeners()
        self._subscriptions: list[Subscription] = []
        self._controller: Controller[ObjectKey] | None = None
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        await self._stack.enter_async_context(self._pods)
        for kind in KINDS:
            subscription = self._manager.subscribe(
                kind, self._on_object, namespace=self.namespace, labels=REVISION_LABEL
            )
            self._subscriptions.append(subscription)
            self._stack.callback(subscription.close)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stack.__aexit__(kind, error, trace)

    def start(self, make: MakeController) -> None:
        """Do from now on what `ensure` and `release` say; of several replicas, one does."""
        controller = make(NAME, self.reconcile)
        sources = [Source(kind, _to_revision, self.namespace, REVISION_LABEL) for kind in KINDS]
        if self._manager.start(controller, sources):
            self._controller = controller
            for revision in self._known:
                self._look(revision)

    async def synced(self) -> None:
        """Wait until everything that there was at the start is known."""
        for subscription in self._subscriptions:
            await subscription.synced()
        await self._pods.synced()

    # -- what is told

    def ensure(self, wanted: Deployed) -> RuntimeStatus:
        """Have this revision run, and run this way; gives how it is doing now. Cheap if it does already."""
        known = self._known.setdefault(wanted.revision, _Known())
        if known.wanted != wanted:
            known.wanted, known.released, known.released_at = wanted, False, None
            self._look(wanted.revision)
        return self.runtime_status(wanted.revision) or RuntimeStatus(problem=STARTING)

    def release(self, revision: str) -> None:
        """Take this revision away once its calls have ended. Subscribers hear when that is done."""
        known = self._known.setdefault(revision, _Known())
        if not known.released:
            known.wanted, known.released, known.released_at = None, True, self._clock.monotonic()
            self._look(revision)

    def forget(self, revision: str) -> None:
        """The revision is gone; what it owned goes with it, and here as soon as its calls have ended."""
        self.release(revision)

    # -- what is known

    def runtime_status(self, revision: str) -> RuntimeStatus | None:
        """None if nothing of it is there and nothing is wanted."""
        known = self._known.get(revision)
        if known is None:
            return None
        deployment = _one(known, DEPLOYMENT)
        if deployment is None:
            failed = bool(known.problem)
            return None if known.wanted is None else RuntimeStatus(problem=known.problem or STARTING, failed=failed)
        service = _one(known, SERVICE)
        endpoint = "" if service is None else _endpoint(name_of(service), self.namespace)
        if known.wanted is not None and known.wanted.provider:
            problem = unavailable(deployment)
            return RuntimeStatus(endpoint, not problem, known.problem or problem, failed=bool(known.problem))
        found = self._pods.remote(revision) is not None
        problem = unavailable(deployment, some_serve=found) or ("" if found else "none of its pods is found yet")
        return RuntimeStatus(endpoint, not problem, known.problem or problem, failed=bool(known.problem))

    def remote(self, revision: str) -> Remote | None:
        """Where it is called; None if none of its pods serves."""
        return self._pods.remote(revision)

    def why_no_network(self, revision: str) -> str:
        """Who decided that its pods open no connections; empty if they may, or if nobody here runs it."""
        known = self._known.get(revision)
        return known.wanted.why_no_network if known is not None and known.wanted is not None else ""

    def subscribe(self, callback: OnChange) -> Callable[[], None]:
        """Tell `callback` each revision whose runtime status changed; gives what ends that."""
        return self._listeners.add(callback)

    # -- calls

    def runner(self, otherwise: FunctionRunner) -> FunctionRunner:
        """Passes calls on and counts them, so that nothing is taken away in the middle of one."""
        return ClusterRunner(self, otherwise, self._clock)

    @contextmanager
    def calling(self, revision: str) -> Iterator[None]:
        known = self._known.setdefault(revision, _Known())
        known.calls += 1
        try:
            yield
        finally:
            known.calls -= 1
            known.called = self._clock.monotonic()

    async def answering(self, revision: str, seconds: float) -> None:
        """Wait until one of its pods serves, if none does, but not long."""
        deadline = self._clock.monotonic() + min(seconds, _PATIENCE)
        while self._pods.remote(revision) is None and (known := self._known.get(revision)) is not None:
            left = deadline - self._clock.monotonic()
            if left <= 0:
                return
            await first_of(self._clock, left, known.news)

    # -- what is heard

    async def authority(self) -> bytes:
        """The certificate of the authority that signs for all that runs in the cluster, in PEM."""
        return await self._authority.certificate()

    def _on_object(self, change: InformerEvent) -> None:
        obj = change.object
        key = gvk_of(obj), change.key.name
        if change.type == "DELETED":
            for revision, known in list(self._known.items()):
                if known.objects.pop(key, None) is not None:
                    known.gone[key] = _version(obj)
                    self._notify(revision)
                    self._forget_if_gone(revision, known)
            return
        self._note(obj)

    def _note(self, obj: Object) -> None:
        """Keep what is read of an object later on, unless a newer one is known."""
        revision = labels_of(obj).get(REVISION_LABEL)
        if not revision:
            return
        known = self._known.setdefault(str(revision), _Known())
        key = gvk_of(obj), name_of(obj)
        before = known.objects.get(key)
        newest = known.gone.get(key, 0) if before is None else _version(before)
        if newest > _version(obj):  # the answer to a write may come after what was watched since
            return
        known.objects[key] = _kept(obj)
        self._notify(str(revision))

    def _on_pods(self, revision: str) -> None:
        known = self._known.setdefault(revision, _Known())
        known.news.set()
        known.news = asyncio.Event()
        self._notify(revision)
        self._forget_if_gone(revision, known)

    def _forget_if_gone(self, revision: str, known: _Known) -> None:
        if known.wanted is None and not known.objects and not known.calls and self._pods.remote(revision) is None:
            self._known.pop(revision, None)

    def _on_caller(self) -> None:
        for revision, known in self._known.items():
            if known.wanted is not None:
                self._look(revision)

    def _look(self, revision: str) -> None:
        if self._controller is not None:
            self._controller.queue.add(ObjectKey("", revision))

    def _notify(self, revision: str) -> None:
        known = self._known[revision]
        runtime_status = self.runtime_status(revision)
        if known.reported == runtime_status:
            return
        known.reported = runtime_status
        self._listeners.notify(revision)

    # -- what is done

    async def reconcile(self, key: ObjectKey) -> Result:
        """Bring one revision to what is wanted of it; nothing is done to one of which nothing was said yet."""
        await self.synced()
        known = self._known.get(key.name)
        if known is None:
            return Result()
        if known.wanted is None:
            return await self._take_away(key.name, known) if known.released else Result()
        try:
            due = await self._bring(known, known.wanted)
        except PlanformError as error:
            if not error.retryable:  # what may pass by itself is nothing for users to read
                known.problem = error.message
                self._notify(key.name)
            raise
        known.problem = ""
        self._notify(key.name)
        left = (due - self._clock.now()).total_seconds()
        return Result(requeue_after=min(max(left, 1.0), _MAX_WAIT))

    async def _bring(self, known: _Known, wanted: Deployed) -> datetime:
        """Have all objects of a revision as they are wanted; gives when its certificates are to be looked at again."""
        due = await self._authority.ensure_caller(self._pods.client_secret)
        names = wanted.server_names(self.namespace)
        server = await self._secret(known, wanted, wanted.server_secret, names)
        described = describe(server)
        assert described is not None  # it is current
        if wanted.provider:
            await self._secret(known, wanted, wanted.client_secret, ())
        seconds = max(1, round(self._draining.max_seconds))
        for obj in objects_of(wanted, self.namespace, certificate=described.serial, drain_seconds=seconds):
            await self._apply(known, obj)
        return min(due, described.not_after - RENEW_BEFORE)

    async def _secret(self, known: _Known, wanted: Deployed, name: str, names: tuple[str, ...]) -> Mapping[str, Any]:
        """A Secret with a certificate for these names, or of a client if there are none; gives its data."""
        present = known.objects.get((SECRET, name))
        data = (present or {}).get("data") or {}
        if await self._authority.is_current(data, names):
            return data
        issued = await (self._authority.issue_server(names) if names else self._authority.issue_client(wanted.revision))
        secret = secret_of(wanted, name, self.namespace, issued)
        self._note(await self._client.apply(identified(secret, present), manager=MANAGER, force=True))
        return issued

    async def _apply(self, known: _Known, wanted: Object) -> None:
        """Write an object unless it is there, as it was applied, and nobody has changed that."""
        obj = stamped(wanted)
        digest = annotations_of(obj)[APPLIED_ANNOTATION]
        key = gvk_of(obj), name_of(wanted)
        present = known.objects.get(key)
        if REVISION_LABEL not in labels_of(wanted):  # shared by revisions, and so not watched
            present = await self._read(*key)
        if present is not None:
            state = digest, present["metadata"].get("generation")
            if covers(present, obj) or (state[1] is not None and self._settled.get(key) == state):
                return
        applied = await self._client.apply(identified(obj, present), manager=MANAGER, force=True)
        self._settled[key] = digest, applied["metadata"].get("generation")
        self._note(applied)

    async def _read(self, kind: GroupVersionKind, name: str) -> Object | None:
        try:
            return await self._client.get(kind, name, namespace=self.namespace)
        except NotFound:
            return None

    async def _take_away(self, revision: str, known: _Known) -> Result:
        """Delete what runs a revision, unless a call is under way or was a moment ago."""
        now = self._clock.monotonic()
        assert known.released_at is not None
        quiet = max(known.called, known.released_at) + self._draining.quiet - now
        if known.objects and (known.calls or quiet > 0) and now < known.released_at + self._draining.max_seconds:
            return Result(requeue_after=max(quiet, 0.1))
        for kind, name in sorted(known.objects, key=lambda each: KINDS.index(each[0])):
            uid = uid_of(known.objects[kind, name])
            try:
                await self._client.delete(
                    kind, name, namespace=self.namespace, uid=uid, propagation=Propagation.BACKGROUND
                )
            except NotFound:
                pass
            self._settled.pop((kind, name), None)
        self._forget_if_gone(revision, known)
        return Result()


def _to_revision(change: InformerEvent) -> tuple[ObjectKey, ...]:
    revision = labels_of(change.object).get(REVISION_LABEL)
    return (ObjectKey("", str(revision)),) if revision else ()


def _one(known: _Known, kind: GroupVersionKind) -> Object | None:
    return next((obj for key, obj in known.objects.items() if key[0] == kind), None)


def _endpoint(service: str, namespace: str) -> str:
    """As others who look at the revision expect it; calls from here go to the pods themselves."""
    return f"dns:///{server_name(service, namespace)}:{PORT}"


def _version(obj: Mapping[str, Any]) -> int:
    return version_number(resource_version_of(obj))


def _kept(obj: Object) -> Object:
    metadata = {key: value for key, value in obj["metadata"].items() if key != "managedFields"}
    return {**obj, "metadata": metadata}
