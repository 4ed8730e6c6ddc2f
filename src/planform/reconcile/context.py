"""What every controller is built from, as one value."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

from planform.client.protocol import Client
from planform.client.rights import NoRights, Rights
from planform.client.waits import Backoff
from planform.clock import Clock, timestamp
from planform.features import BuiltInUse, FeatureGates
from planform.reconcile.controller import Controller, Result
from planform.reconcile.events import Events
from planform.reconcile.limiter import ConcurrencyLimiter
from planform.reconcile.manager import Manager
from planform.reconcile.queue import K
from planform.reconcile.shards import Shards
from planform.telemetry.metrics import MetricsRegistry
from planform.telemetry.tracing import PropagatingTracer, Tracer


@dataclass(frozen=True)
class ControllerContext:
    """The tools of a controller. `manager` runs it and its watches; `events` tells users what it did."""

    client: Client
    manager: Manager
    events: Events
    clock: Clock
    rng: Random
    limiter: ConcurrencyLimiter
    metrics: MetricsRegistry
    tracer: Tracer = field(default_factory=PropagatingTracer)
    features: FeatureGates = field(default_factory=lambda: FeatureGates({}))
    concurrency: int = 100
    poll_interval: float = 60.0
    reads_at_once: bool = False
    """Whether reads never wait, as from memory, so that several at a time are no faster than one after the other."""

    shortcuts: bool = True
    """Whether XRs may rest on what is remembered: of their own writes, of their last run, of functions' answers. What
    they come to is the same without, only later; it is off to compare, and to look for where that is not so."""

    shards: Shards | None = None
    """Which XRs are this process' own, where several share them."""

    builtin_functions: BuiltInUse = BuiltInUse.ALWAYS
    """For which packages the functions serve that ship with planform."""

    xr_client: Client | None = None
    """What is asked about XRs and what they compose, if not the same: one that remembers, where reads are requests."""

    rights: Rights = field(default_factory=NoRights)
    """Acts with the rights of whoever wrote an object."""

    @property
    def for_xrs(self) -> ControllerContext:
        """The same bench for those who look after XRs and what they compose."""
        return self if self.xr_client is None else replace(self, client=self.xr_client)

    def controller(
        self,
        name: str,
        reconcile: Callable[[K], Awaitable[Result]],
        *,
        timeout: float = 120.0,
        backoff: Backoff = Backoff(first=1, maximum=60),  # noqa: B008  (frozen)
        **more: Any,
    ) -> Controller[K]:
        """A controller built from this context; give it to `manager.start` with its sources."""
        return Controller(
            name,
            reconcile if self.shards is None else self.shards.guarded(name, reconcile),
            clock=self.clock,
            rng=self.rng,
            limiter=self.limiter,
            metrics=self.metrics,
            tracer=self.tracer,
            concurrency=self.concurrency,
            timeout=timeout,
            backoff=backoff,
            **more,
        )

    def timestamp(self) -> str:
        """Now, as conditions write it."""
        return timestamp(self.clock.now())
