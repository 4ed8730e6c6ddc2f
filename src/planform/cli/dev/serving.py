"""Functions from source, served anew after every change.

A changed source gets a process and an address of its own, and its Function that address: to the control plane it is a
new revision, so no answer of the old one is taken from a cache. The old process ends once the new one serves.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Protocol

from planform.api.kinds import Object
from planform.cli.dev.debugging import ThreadedFunction
from planform.cli.dev.directory import Source
from planform.cli.functions.from_source import (
    SourceProcess,
    SpareInterpreter,
    python_command,
    start_from_source,
    stop_all,
)
from planform.packages.endpoints import ENDPOINT_ANNOTATION

_GRACE: Final = 2.0
"""Seconds in which calls to the old process may end."""
PACKAGE: Final = "planform.dev/from-source/{name}:v0.0.0"


class Served(Protocol):
    """A function that serves."""

    @property
    def address(self) -> str: ...

    async def stop(self) -> None: ...


@dataclass
class _Running:
    source: Source
    served: Served


class FunctionSources:
    """The functions that are served; stop it when done. `debug` runs them in this process, for breakpoints."""

    def __init__(self, *, debug: bool = False) -> None:
        self._debug = debug
        self._running: dict[str, _Running] = {}
        self._leaving: dict[asyncio.Task[None], Served] = {}
        self._spare: SpareInterpreter | None = None

    @property
    def addresses(self) -> Mapping[str, str]:
        return {name: each.served.address for name, each in self._running.items()}

    async def start(self, source: Source) -> str:
        """Serve a function as its source is now; gives its address.

        Raises FunctionDidNotStart; what served before then serves on.
        """
        served: Served
        if self._debug:
            served = await ThreadedFunction.start(source.name, source.entry)
        else:
            served = await self._start_process(source)
        before = self._running.get(source.name)
        self._running[source.name] = _Running(source, served)
        if before is not None:
            self._release(before.served)
        return served.address

    async def _start_process(self, source: Source) -> SourceProcess:
        spare, self._spare = self._spare, None
        if spare is not None:
            process = await spare.serve(source.name, str(source.entry))
        else:
            process = await start_from_source(source.name, python_command(str(source.entry)))
        try:
            await process.serving()
        except BaseException:
            await process.stop()
            raise
        return process

    async def prepare(self) -> None:
        """Have a spare interpreter for the next save; after a save, when nobody waits."""
        if self._spare is None and self._running and not self._debug:
            self._spare = await SpareInterpreter.start()

    def _release(self, served: Served) -> None:
        async def later() -> None:
            await asyncio.sleep(_GRACE)
            await served.stop()

        task = asyncio.create_task(later(), name="stop what served before")
        self._leaving[task] = served
        task.add_done_callback(lambda done: None if done.cancelled() else self._leaving.pop(done, None))

    async def forget(self, name: str) -> None:
        if running := self._running.pop(name, None):
            await running.served.stop()

    def log(self, name: str) -> list[str]:
        """The last lines that a function wrote."""
        running = self._running.get(name)
        return list(running.served.lines) if running and isinstance(running.served, SourceProcess) else []

    async def close(self) -> None:
        leaving = dict(self._leaving)
        for task in leaving:
            task.cancel()
        await asyncio.gather(*leaving, return_exceptions=True)
        if self._spare is not None:
            await self._spare.stop()
        served = [*leaving.values(), *(each.served for each in self._running.values())]
        await stop_all([each for each in served if isinstance(each, SourceProcess)])
        for each in served:
            if not isinstance(each, SourceProcess):
                await each.stop()


def function_object(source: Source, address: str, written: Object | None) -> Object:
    """The Function that tells a control plane where the source serves, with what its document says beside that."""
    obj: Object = written or {
        "apiVersion": "pkg.crossplane.io/v1",
        "kind": "Function",
        "metadata": {"name": source.name},
        "spec": {"package": PACKAGE.format(name=source.name)},
    }
    metadata = obj["metadata"]
    annotations = {**(metadata.get("annotations") or {}), ENDPOINT_ANNOTATION: address}
    return {**obj, "metadata": {**metadata, "annotations": annotations}}
