"""Blueprints and ActionSets, of which nothing is loaded before the first of them is there.

Phase functions are many and bring much with them; most control planes never run one. So the catalogue is made when the
first Blueprint or ActionSet is written or found, or when somebody asks which functions there are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from planform.api.kinds import Object
from planform.api.names import ACTION_SET, BLUEPRINT, BLUEPRINTS_GROUP
from planform.apiserver.admission.chain import Admission
from planform.client.informer import InformerEvent
from planform.reconcile.context import ControllerContext
from planform.reconcile.sources import Subscription
from planform.store import Store

if TYPE_CHECKING:
    from planform.blueprints.admission import BlueprintGuard
    from planform.blueprints.catalogue import PhaseCatalogue
    from planform.blueprints.contract import ContainerTasks, PhaseEnvironment
    from planform.blueprints.logs import PhaseLogs
    from planform.blueprints.registry import PhaseFunctionRegistry
    from planform.blueprints.uses import FunctionUses
    from planform.client.kubeconfig import Connection

Answer = tuple[int, Mapping[str, str], bytes]


@dataclass(frozen=True, kw_only=True)
class PhaseFunctions:
    """The phase functions of this process, and the admission of what uses them."""

    engine: Literal["embedded", "kubernetes"] = "embedded"
    data: Path | None = None
    overlay: Path | None = None
    """An operator's own versions file, laid over the one of this build."""
    connection: Connection | None = None
    unconfined: frozenset[str] = frozenset()
    """Namespaces whose tasks may run outside the sandbox."""
    look: Callable[[str, str], Object | None] | None = None
    """Finds the Blueprints that ActionSets name, for admission."""

    @cached_property
    def registry(self) -> PhaseFunctionRegistry:
        """Where packages bring their functions to; those of this build are not here before the catalogue is."""
        from planform.blueprints.registry import PhaseFunctionRegistry

        return PhaseFunctionRegistry()

    @cached_property
    def catalogue(self) -> PhaseCatalogue:
        from planform.blueprints.shipped import shipped_catalogue

        return shipped_catalogue(overlay=self.overlay, registry=self.registry)

    @cached_property
    def here(self) -> PhaseEnvironment:
        from planform.blueprints.contract import PhaseEnvironment

        containers = self._containers() if self.engine == "embedded" else None
        return PhaseEnvironment(
            engine=self.engine,
            data=self.data,
            connection=self.connection,
            containers=containers,
            unconfined=self.unconfined,
        )

    def _containers(self) -> ContainerTasks | None:
        """What runs images on this machine: Podman, or runc with images that are kept below our data."""
        from planform.blueprints.functions.containers import find_containers
        from planform.blueprints.image_tasks import find_image_tasks

        podman = find_containers()
        return podman if podman is not None or self.data is None else find_image_tasks(self.data / "task-images")

    @cached_property
    def _guard(self) -> BlueprintGuard:
        from planform.blueprints.admission import BlueprintGuard

        return BlueprintGuard(self.catalogue, here=self.here, look=self.look)

    def admit(self, admission: Admission, /) -> None:
        """Refuse Blueprints and ActionSets that cannot run, with all that is wrong at once."""
        if admission.kind.group == BLUEPRINTS_GROUP:
            self._guard.admit(admission)


def blueprints_in(store: Store) -> Callable[[str, str], Object | None]:
    """Finds Blueprints as the next write will find them."""

    def look(namespace: str, name: str) -> Object | None:
        from planform.blueprints import admission as blueprint_guard

        return blueprint_guard.blueprints_in(store)(namespace, name)

    return look


class Actions:
    """Runs ActionSets, from the first one on."""

    def __init__(self, context: ControllerContext, functions: PhaseFunctions) -> None:
        self._context = context
        self._functions = functions
        self._waiting: tuple[Subscription, ...] = ()
        self._running = False

    def start(self) -> None:
        if not self._waiting:
            subscribe = self._context.manager.subscribe
            self._waiting = (subscribe(BLUEPRINT, self._seen), subscribe(ACTION_SET, self._seen))

    def _seen(self, change: InformerEvent) -> None:
        if change.type == "DELETED" or self._running:
            return
        self._running = True
        from planform.blueprints.controller import ActionSetController

        self.uses.start(self._context.manager)  # unless it counts already
        ActionSetController(self._context, self._functions.catalogue, here=self._functions.here, logs=self.logs).start()
        for subscription in self._waiting:
            subscription.close()

    async def count_uses(self) -> None:
        """Know from now on who uses which version of a function, before ActionSets run and whether any do."""
        self.uses.start(self._context.manager)
        await self.uses.synced()

    @cached_property
    def uses(self) -> FunctionUses:
        from planform.blueprints.uses import FunctionUses

        return FunctionUses()

    @cached_property
    def logs(self) -> PhaseLogs:
        from planform.blueprints.logs import PhaseLogs

        data = self._functions.data
        return PhaseLogs(self._context.clock, None if data is None else data / "phase-logs")

    def list_functions(self, path: str, headers: Mapping[str, str], method: str = "GET") -> Answer:
        """What `/v1/functions` answers; `headers` are the request's, with names in lower case."""
        from planform.blueprints.discovery import answer

        return answer(self._functions.catalogue, path, headers, method=method, uses=self.uses)

    def read_logs(self, path: str) -> tuple[int, bytes]:
        """What phases of an ActionSet have told."""
        from planform.blueprints.logs import answer

        return answer(self.logs, path)
