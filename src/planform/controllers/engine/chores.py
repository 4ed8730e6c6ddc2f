"""Starts the engine's chores on a plane and feeds them from the store."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from random import Random
from typing import Any, Protocol

from planform.apiserver.core import Core
from planform.controllers.engine.crds import CrdChore
from planform.controllers.engine.events import EventExpiry
from planform.controllers.engine.garbage import GarbageCollector
from planform.controllers.engine.namespaces import NamespaceChore
from planform.controllers.engine.roles import RoleAggregation
from planform.controllers.engine.service_accounts import ServiceAccountChore
from planform.reconcile.controller import Controller
from planform.reconcile.gate import Gate
from planform.reconcile.plane import Plane
from planform.store import Change
from planform.telemetry.metrics import Registry


class Chore(Protocol):
    """Something the engine does by itself. `changed` is called once per committed batch and must not wait."""

    controller: Controller[Any]

    def changed(self, changes: Sequence[Change], /) -> None: ...

    def begin(self) -> None:
        """Look at everything that is already there."""
        ...


@dataclass(frozen=True)
class Chores:
    """The running chores; `close` ends what feeds them (their controllers end with the plane)."""

    all: tuple[Chore, ...]
    _endings: tuple[Callable[[], None], ...]

    def close(self) -> None:
        for end in self._endings:
            end()


def start_chores(
    core: Core,
    plane: Plane,
    *,
    gate: Gate,
    rng: Random,
    metrics: Registry,
    event_ttl: timedelta = timedelta(hours=1),
    concurrency: int = 100,
    poll_interval: float = 60.0,
) -> Chores:
    """Run them all; each first looks at what a previous process may have left undone.

    `concurrency` bounds the reconciles of one chore; `poll_interval` is how often to look at what no change announces.
    """

    def controller(name: str, reconcile: Any, most: int = 16) -> Controller[Any]:
        return Controller(
            name,
            reconcile,
            clock=core.clock,
            rng=rng,
            gate=gate,
            metrics=metrics,
            concurrency=min(most, concurrency),
        )

    garbage = GarbageCollector(core, controller, poll_interval=poll_interval)
    chores: tuple[Chore, ...] = (
        CrdChore(core, controller, garbage.owes),
        NamespaceChore(core, controller),
        ServiceAccountChore(core, controller),
        RoleAggregation(core, controller),
        garbage,
        EventExpiry(core, controller, ttl=event_ttl),
    )
    unsubscribe = tuple(core.store.subscribe(chore.changed) for chore in chores)
    for chore in chores:
        plane.start(chore.controller)
        chore.begin()
    return Chores(chores, (*unsubscribe, garbage.close))
