"""Where the pods of each revision serve, as their EndpointSlices say.

The name of a headless Service would lead there too, but name servers and resolvers remember: for half a minute a
caller would go on to pods that are gone, and not find new ones. A watch tells of a pod that is ready, or about to go,
in the moment in which everybody else learns it. The name stays what the certificate of the function must say.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from contextlib import AsyncExitStack
from random import Random
from types import TracebackType
from typing import Any, Final, NamedTuple, Self

from planform.api.kinds import Object
from planform.api.metadata import labels_of
from planform.api.names import SECRET
from planform.client.informer import Informer, InformerEvent
from planform.client.protocol import Client
from planform.clock import Clock
from planform.functions.endpoints import ClientTls, Remote
from planform.packages.runtimes.cluster_authority import CLIENT_SECRET, client_tls
from planform.packages.runtimes.deployments import ENDPOINT_SLICE, REVISION_LABEL, server_name
from planform.reconcile.manager import Manager
from planform.reconcile.sources import Subscription

SERVICE_NAME_LABEL: Final = "kubernetes.io/service-name"
_FAMILIES: Final = {"IPv4": "ipv4", "IPv6": "ipv6"}

Reach = Callable[[str], str]
"""How the address of a pod is reached from here; in the cluster's network it is what it is."""


class Place(NamedTuple):
    """One pod at which calls may be answered."""

    family: str
    address: str
    port: int
    ready: bool


class ServingPods:
    """The pods of all revisions in one namespace, in memory.

    `on_change` hears whose have changed, `on_caller` that there is news of the Secret with which they are called.
    """

    def __init__(
        self,
        client: Client,
        manager: Manager,
        on_change: Callable[[str], None],
        on_caller: Callable[[], None],
        *,
        clock: Clock,
        rng: Random,
        namespace: str,
        reach: Reach,
    ) -> None:
        self._manager = manager
        self._on_change = on_change
        self._on_caller = on_caller
        self._namespace = namespace
        self._reach = reach
        self._slices: dict[str, dict[str, tuple[str, tuple[Place, ...]]]] = {}  # by revision: service and places
        self._revisions: dict[str, str] = {}  # the revision of each slice
        self._remotes: dict[str, Remote] = {}
        self._tls: ClientTls | None = None
        self.client_secret: Object | None = None
        self._caller = Informer(
            client,
            SECRET,
            self._on_secret,
            clock=clock,
            rng=rng,
            namespace=namespace,
            fields=f"metadata.name={CLIENT_SECRET}",
        )
        self._subscription: Subscription | None = None
        self._watching: asyncio.Task[None] | None = None
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        tasks = await self._stack.enter_async_context(asyncio.TaskGroup())
        self._watching = tasks.create_task(self._caller.run(), name=f"watch Secret {CLIENT_SECRET}")
        self._subscription = self._manager.subscribe(
            ENDPOINT_SLICE, self._on_slice, namespace=self._namespace, labels=REVISION_LABEL
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._subscription is not None and self._watching is not None
        self._subscription.close()
        self._watching.cancel()
        await self._stack.__aexit__(kind, error, trace)

    async def synced(self) -> None:
        assert self._subscription is not None
        await self._subscription.synced()
        await self._caller.synced()

    def remote(self, revision: str) -> Remote | None:
        """Where a revision is called; None if none of its pods serves, or nothing can be shown to them yet."""
        return self._remotes.get(revision)

    def _on_secret(self, change: InformerEvent) -> None:
        if change.type == "BOOKMARK":
            return
        self.client_secret = None if change.type == "DELETED" else change.object
        # What was shown last is good until there is another one, whatever has become of the Secret.
        self._tls = client_tls((self.client_secret or {}).get("data") or {}) or self._tls
        for revision in list(self._slices):
            self._refresh(revision)
        self._on_caller()

    def _on_slice(self, change: InformerEvent) -> None:
        name = change.key.name
        before = self._revisions.pop(name, "")
        if before:
            self._slices[before].pop(name)
        now = ""
        if change.type != "DELETED":
            labels = labels_of(change.object)
            now = self._revisions[name] = str(labels[REVISION_LABEL])
            service = str(labels.get(SERVICE_NAME_LABEL, ""))
            self._slices.setdefault(now, {})[name] = service, tuple(places_of(change.object))
        for revision in dict.fromkeys(filter(None, (before, now))):
            self._refresh(revision)
            if not self._slices[revision]:
                del self._slices[revision]

    def _refresh(self, revision: str) -> None:
        slices = self._slices[revision].values()
        target = target_of((place for _, places in slices for place in places), self._reach)
        if not target or self._tls is None:
            changed = self._remotes.pop(revision, None) is not None
        else:
            service = next(iter(slices))[0]
            remote = Remote(target, self._tls, server_name(service, self._namespace))
            changed = self._remotes.get(revision) != remote
            self._remotes[revision] = remote
        if changed:
            self._on_change(revision)


def places_of(endpoint_slice: Mapping[str, Any]) -> Iterable[Place]:
    """Where a slice says that calls are answered; pods that neither serve nor are about to do not count."""
    family = _FAMILIES.get(str(endpoint_slice.get("addressType")))
    ports = [each.get("port") for each in endpoint_slice.get("ports") or () if each.get("name") == "grpc"]
    if family is None or not ports or not ports[0]:
        return
    for endpoint in endpoint_slice.get("endpoints") or ():
        conditions = endpoint.get("conditions") or {}
        ready = conditions.get("ready", True)
        if ready or conditions.get("serving"):
            for address in endpoint.get("addresses") or ():
                yield Place(family, str(address), int(ports[0]), bool(ready))


def target_of(places: Iterable[Place], reach: Reach) -> str:
    """All pods that are ready, as gRPC takes them; if there are none, those that still serve while they go."""
    found = sorted(set(places))
    chosen = [place for place in found if place.ready] or found
    if not chosen:
        return ""
    family = chosen[0].family
    addresses = [(reach(place.address), place.port) for place in chosen if place.family == family]
    shown = [f"[{address}]:{port}" if family == "ipv6" else f"{address}:{port}" for address, port in addresses]
    return f"{family}:{','.join(shown)}"
