"""The front door for people who write controllers in Python: a manager, controllers, and what they watch.

Everything that such a program needs can be imported from here and from `planform.client`; other modules may move. The
words are controller-runtime's: a manager runs controllers, a controller reconciles keys, sources say which changes are
about which key. The same program runs against a planform control plane and against any Kubernetes cluster.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from random import SystemRandom

from planform.api.kinds import GroupVersionKind, Object, gvk
from planform.client.informer import ObjectKey
from planform.client.kubeconfig import find_connection
from planform.client.kubernetes import KubernetesClient
from planform.client.protocol import Client
from planform.clock import Clock, SystemClock
from planform.errors import AlreadyExists, Conflict, Forbidden, NotFound, PlanformError
from planform.reconcile.controller import Controller, Result
from planform.reconcile.limiter import ConcurrencyLimiter
from planform.reconcile.manager import Manager
from planform.reconcile.manager import open_manager as _open_manager
from planform.reconcile.sources import Source, Watches, to_owner, to_self

__all__ = [
    "AlreadyExists",
    "Conflict",
    "ControllerManager",
    "Forbidden",
    "GroupVersionKind",
    "NotFound",
    "Object",
    "ObjectKey",
    "PlanformError",
    "Result",
    "Source",
    "gvk",
    "open_manager",
    "to_owner",
    "to_self",
]


class ControllerManager:
    """Runs controllers that share one client and one watch for each kind."""

    def __init__(self, client: Client, manager: Manager, clock: Clock, rng: SystemRandom) -> None:
        self.client = client
        self._manager = manager
        self._clock = clock
        self._rng = rng
        self._limiter = ConcurrencyLimiter()

    async def add(
        self,
        name: str,
        reconcile: Callable[[ObjectKey], Awaitable[Result]],
        *,
        reconciles: GroupVersionKind,
        owns: Iterable[GroupVersionKind] = (),
        watches: Iterable[Source[ObjectKey]] = (),
        concurrency: int = 100,
    ) -> None:
        """Run a controller of one kind until the manager ends, and wait until it has heard of every object there is.

        A change of an object that one of `reconciles` controls, of a kind in `owns`, is a change of its owner; anything
        else that a reconcile looks at is named in `watches`. Raises PlanformError if the name is taken.
        """
        kind = await self.client.kind(reconciles)
        to_controller = to_owner(reconciles.group, reconciles.kind, cluster_scoped=not kind.namespaced)
        sources = [Source(reconciles, to_self), *(Source(owned, to_controller) for owned in owns), *watches]
        controller = Controller(
            name, reconcile, clock=self._clock, rng=self._rng, limiter=self._limiter, concurrency=concurrency
        )
        if not self._manager.start(controller, sources):
            raise PlanformError(f'a controller "{name}" runs already, or the manager is stopping')
        await self._manager.synced(name)

    async def wait(self) -> None:
        """Return when the process is asked to stop, by SIGINT or SIGTERM."""
        asked = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, asked.set)
        try:
            await asked.wait()
        finally:
            for number in (signal.SIGINT, signal.SIGTERM):
                loop.remove_signal_handler(number)


@asynccontextmanager
async def open_manager(
    field_manager: str, *, kubeconfig: Path | None = None, context: str = ""
) -> AsyncIterator[ControllerManager]:
    """A manager for the cluster that kubectl would take. Leaving the block lets reconciles end, then closes everything.

    `field_manager` is who the program is in managedFields and to the server.
    """
    clock, rng = SystemClock(), SystemRandom()
    connection = find_connection(clock=clock, path=kubeconfig, context=context)
    async with (
        KubernetesClient(connection, clock=clock, rng=rng, manager=field_manager, user_agent=field_manager) as client,
        Watches(client, clock=clock, rng=rng) as watches,
        _open_manager(watches, clock=clock) as manager,
    ):
        yield ControllerManager(client, manager, clock, rng)
