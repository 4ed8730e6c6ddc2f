"""ActionSets on their way: where each run is stored, and the tasks that end with their controller."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from typing import Any, Final

from planform.api.kinds import Object
from planform.api.metadata import finalizers_of, uid_of
from planform.api.names import ACTION_SET, ACTION_SET_FINALIZER
from planform.blueprints.action_status import RunStatus
from planform.blueprints.execution import Run, RunLost
from planform.client.informer import ObjectKey, key_of
from planform.client.waits import Backoff
from planform.errors import Conflict, NotFound, PlanformError
from planform.reconcile.context import ControllerContext
from planform.reconcile.controller import Controller

MANAGER: Final = "planform/actionsets"

_WRITES: Final = Backoff(first=0.1, maximum=10, jitter=0.2)
_WRITE_TRIES: Final = 10


class LiveRun:
    """A run and the ActionSet that it writes to; nobody else writes its status."""

    run: Run
    blueprints: Sequence[Object] = ()
    """Those that its actions come from, where failures are told too."""

    def __init__(self, context: ControllerContext, obj: Object, runner: str) -> None:
        self.key = key_of(obj)
        self.uid: str = uid_of(obj)
        self.obj = obj
        self._context = context
        self._client = context.client
        self._runner = runner
        self._status: RunStatus
        self._written = 0
        self._gone = False
        self._writing = asyncio.Lock()

    def owns(self, obj: Object, status: RunStatus) -> None:
        """The ActionSet is stored as ours."""
        self.obj, self._status, self._written = obj, status, status.changes

    async def save(self) -> None:
        """Return once everything that the status says now is stored. Raises RunLost if it is not ours any more."""
        needed = self._status.changes
        async with self._writing:
            if self._written < needed:
                await self._write(list(finalizers_of(self.obj)))

    async def finish(self) -> None:
        """Store the end, and let the ActionSet go."""
        async with self._writing:
            finalizers = finalizers_of(self.obj)
            await self._write([each for each in finalizers if each != ACTION_SET_FINALIZER])

    async def _write(self, finalizers: list[str]) -> None:
        """Write over what others changed meanwhile, for they do not change the status."""
        failures = 0
        while not self._gone:
            changes = self._status.changes
            metadata = {**self.obj["metadata"], "finalizers": finalizers}
            try:
                stored = await self._client.update(
                    {**self.obj, "metadata": metadata, "status": self._status.wire}, manager=MANAGER
                )
            except NotFound:
                self._gone = True
            except PlanformError as error:
                failures += 1
                if failures >= _WRITE_TRIES or not error.retryable:
                    raise
                if isinstance(error, Conflict):
                    await self._read_again()
                if failures > 1:
                    await self._context.clock.sleep(_WRITES.delay(failures - 1, self._context.rng))
            else:
                self.obj, self._written = stored, changes
                return

    async def _read_again(self) -> None:
        try:
            found = await self._client.get(ACTION_SET, self.key.name, namespace=self.key.namespace)
        except NotFound:
            self._gone = True
            return
        if uid_of(found) != self.uid:
            self._gone = True
            return
        runner = (found.get("status") or {}).get("runner")
        if runner is not None and runner != self._runner:
            raise RunLost
        self.obj = found


class ControllerWithRuns(Controller[ObjectKey]):
    """A controller whose runs end when it does: they are cancelled, and the next process goes on with them."""

    _tasks: asyncio.TaskGroup

    async def run(self) -> None:
        async with asyncio.TaskGroup() as self._tasks:
            self._running: set[asyncio.Task[None]] = set()
            try:
                await super().run()
            finally:
                for task in self._running:
                    task.cancel()

    def spawn(self, work: Coroutine[Any, Any, None], name: str) -> None:
        task = self._tasks.create_task(work, name=name)
        self._running.add(task)
        task.add_done_callback(self._running.discard)


def is_loss(error: Exception) -> bool:
    """Whether a run ended because another process has it now."""
    return isinstance(error, RunLost) or (isinstance(error, ExceptionGroup) and error.subgroup(RunLost) is not None)
