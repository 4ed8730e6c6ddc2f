"""A function in this process, in a thread of its own, so that `breakpoint()` opens the debugger on this terminal.

The control plane goes on while the function stands still; its deadline is what ends the wait, see `patient`.
"""

from __future__ import annotations

import asyncio
import importlib.util
import sys
import threading
from pathlib import Path
from typing import Any, Final

from planform.api.kinds import Object
from planform.cli.functions.from_source import FunctionDidNotStart

PATIENCE: Final = "1h"
"""How long a step may stand at a breakpoint."""


class ThreadedFunction:
    """A function's server and the thread that it runs in."""

    def __init__(self, name: str, entry: Path) -> None:
        self.name = name
        self.address = ""
        self._entry = entry
        self._started = threading.Event()
        self._error: BaseException | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopping: asyncio.Event | None = None
        # A debugger that nobody leaves must not keep the process from ending.
        self._thread = threading.Thread(target=self._run, name=f"function {name}", daemon=True)

    @classmethod
    async def start(cls, name: str, entry: Path) -> ThreadedFunction:
        """Import the source and serve it. Raises FunctionDidNotStart with the traceback."""
        function = cls(name, entry)
        function._thread.start()
        await asyncio.to_thread(function._started.wait)
        if function._error is not None:
            import traceback

            lines = "".join(traceback.format_exception(function._error)).splitlines()
            raise FunctionDidNotStart(f"cannot be imported: {lines[-1]}", function=name, output=lines)
        return function

    def _run(self) -> None:
        asyncio.run(self._serve())

    async def _serve(self) -> None:
        from planform_sdk.server import FunctionServer, Settings

        try:
            server = FunctionServer(_imported(self.name, self._entry), Settings(address="127.0.0.1:0", insecure=True))
            await server.start()
        except BaseException as error:
            self._error = error
            self._started.set()
            return
        self.address = f"127.0.0.1:{server.port}"
        self._loop, self._stopping = asyncio.get_running_loop(), asyncio.Event()
        self._started.set()
        await self._stopping.wait()
        await server.stop()

    async def stop(self) -> None:
        if self._loop is not None and self._stopping is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._stopping.set)
            await asyncio.to_thread(self._thread.join, 1.0)


def _imported(name: str, entry: Path) -> Any:
    """The function of a file, imported anew together with what stands beside it."""
    from planform_sdk.functions import Function

    for loaded, module in list(sys.modules.items()):
        if str(getattr(module, "__file__", None) or "").startswith(f"{entry.parent}/"):
            del sys.modules[loaded]
    sys.path.insert(0, str(entry.parent))
    try:
        spec = importlib.util.spec_from_file_location(f"{entry.stem}_of_{name.replace('-', '_')}", entry)
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[spec.name] = module
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(str(entry.parent))
    found = [value for value in vars(module).values() if isinstance(value, Function)]
    if len(found) != 1:
        raise ImportError(f"{entry} has {len(found)} functions, and one is needed")
    return found[0]


def patient(composition: Object, functions: frozenset[str]) -> Object:
    """The Composition with an hour for each step of these functions, or every breakpoint would end by a deadline."""
    steps = composition["spec"].get("pipeline")
    if not isinstance(steps, list):
        return composition
    changed = [
        {**step, "timeout": PATIENCE}
        if isinstance(step, dict) and (step.get("functionRef") or {}).get("name") in functions
        else step
        for step in steps
    ]
    return {**composition, "spec": {**composition["spec"], "pipeline": changed}}
