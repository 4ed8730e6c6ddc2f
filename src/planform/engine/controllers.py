"""Starts the engine's built-in controllers and feeds them from the store."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from random import Random
from typing import Any, Protocol

from planform.apiserver.verbs.core import Core
from planform.engine.crds import CrdController
from planform.engine.events import EventExpiry
from planform.engine.garbage import GarbageCollector
from planform.engine.namespaces import NamespaceController
from planform.engine.policies import PolicyTypeChecks
from planform.engine.roles import RoleAggregation
from planform.engine.service_accounts import ServiceAccountController
from planform.reconcile.controller import Controller
from planform.reconcile.limiter import ConcurrencyLimiter
from planform.reconcile.manager import Manager
from planform.store import Change
from planform.telemetry.metrics import MetricsRegistry


class BuiltinController(Protocol):
    """Something the engine does by itself. `changed` is called once per committed batch and must not wait."""

    controller: Controller[Any]

    def changed(self, changes: Sequence[Change], /) -> None: ...

    def begin(self) -> None:
        """Look at everything that is already there."""
        ...


@dataclass(frozen=True)
class BuiltinControllers:
    """The running built-in controllers; `close` ends what feeds them (they end with the manager)."""

    all: tuple[BuiltinController, ...]
    _endings: tuple[Callable[[], None], ...]

    def close(self) -> None:
        for end in self._endings:
            end()


def start_builtin_controllers(
    core: Core,
    manager: Manager,
    *,
    limiter: ConcurrencyLimiter,
    rng: Random,
    metrics: MetricsRegistry,
    event_ttl: timedelta = timedelta(hours=1),
    concurrency: int = 100,
    poll_interval: float = 60.0,
) -> BuiltinControllers:
    """Run them all; each first looks at what a previous process may have left undone.

    `concurrency` bounds the reconciles of one controller; `poll_interval` is how often to look at what no change
    announces.
    """

    def controller(name: str, reconcile: Any, maximum: int = 16) -> Controller[Any]:
        return Controller(
            name,
            reconcile,
            clock=core.clock,
            rng=rng,
            limiter=limiter,
            metrics=metrics,
            concurrency=min(maximum, concurrency),
        )

    garbage = GarbageCollector(core, controller, poll_interval=poll_interval)
    builtin_controllers: tuple[BuiltinController, ...] = (
        CrdController(core, controller, garbage.has_pending_garbage),
        NamespaceController(core, controller),
        ServiceAccountController(core, controller),
        RoleAggregation(core, controller),
        PolicyTypeChecks(core, controller),
        garbage,
        EventExpiry(core, controller, ttl=event_ttl),
    )
    unsubscribe = tuple(core.store.subscribe(builtin.changed) for builtin in builtin_controllers)
    for builtin in builtin_controllers:
        manager.start(builtin.controller)
        builtin.begin()
    return BuiltinControllers(builtin_controllers, (*unsubscribe, garbage.close))
