"""Functions that are started from their source: a process that serves at a port of its own until it is stopped.

What it writes to stderr is read all the time, or a talkative function would stand still once the pipe is full; the last
of it says why one died.
"""

from __future__ import annotations

import asyncio
import json
import socket
import sys
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Final

from planform.functions.errors import FunctionUnavailable

_START_SECONDS: Final = 20.0
_STOP_SECONDS: Final = 5.0
_LINES: Final = 200
_KEPT_BYTES: Final = 1 << 20
_SHOWN: Final = 25


class FunctionDidNotStart(FunctionUnavailable):
    """A function that was started from its source ended, or did not serve, before the first call.

    `output` is the last of what it wrote, a traceback as a rule.
    """

    reason = "FunctionDidNotStart"

    def __init__(self, detail: str, *, function: str, output: Sequence[str] = ()) -> None:
        shown = "\n".join(f"  {line}" for line in output[-_SHOWN:])
        hint = f"stderr ended with:\n{shown}" if len(output) > 1 else "mend it, and run this again"
        super().__init__(detail, function=function, hint=hint)
        self.output = tuple(output)


class SourceProcess:
    """A function's process, its address, and the last lines of its stderr."""

    def __init__(self, name: str, process: asyncio.subprocess.Process, port: int) -> None:
        self.name = name
        self.port = port
        self.lines: deque[str] = deque(maxlen=_LINES)
        self._process = process
        self._reading = asyncio.create_task(self._read(), name=f"stderr of {name}")

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def returncode(self) -> int | None:
        return self._process.returncode

    async def _read(self) -> None:
        assert self._process.stderr is not None
        rest = b""
        while chunk := await self._process.stderr.read(1 << 16):  # not by lines, whose length nobody bounds
            *whole, rest = (rest + chunk)[-_KEPT_BYTES:].split(b"\n")
            self.lines.extend(line.decode(errors="replace") for line in whole)
        if rest:
            self.lines.append(rest.decode(errors="replace"))

    async def serving(self, *, seconds: float = _START_SECONDS) -> None:
        """Wait until it takes connections. Raises FunctionDidNotStart with what it said."""
        try:
            async with asyncio.timeout(seconds):
                while not await self._answers():
                    if self.returncode is not None:
                        await self._reading
                        output = [line for line in self.lines if line.strip()]
                        last = output[-1].strip() if output else "it said nothing"
                        raise FunctionDidNotStart(
                            f"ended with code {self.returncode} before it served: {last}",
                            function=self.name,
                            output=output,
                        )
                    await asyncio.sleep(0.01)
        except TimeoutError as error:
            raise FunctionDidNotStart(
                f"did not serve within {seconds:g} s", function=self.name, output=list(self.lines)
            ) from error

    async def _answers(self) -> bool:
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", self.port)
        except OSError:
            return False
        writer.close()
        return True

    def terminate(self) -> None:
        if self.returncode is None:
            self._process.terminate()

    async def stop(self) -> None:
        """End it, by force if it does not end by itself."""
        self.terminate()
        try:
            async with asyncio.timeout(_STOP_SECONDS):
                await self._process.wait()
        except TimeoutError:
            self._process.kill()
            await self._process.wait()
        await self._reading


class SpareInterpreter:
    """A Python that has imported all but the function, and waits to be told which: half of a start is done before."""

    _PROGRAM: Final = (
        "import json, sys\n"
        "import planform_sdk.server, planform_sdk.logs\n"
        "from planform_sdk.__main__ import main\n"
        "line = sys.stdin.readline()\n"
        "if line: main(json.loads(line))\n"
    )

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    @classmethod
    async def start(cls) -> SpareInterpreter:
        return cls(
            await asyncio.create_subprocess_exec(
                sys.executable,
                "-c",
                cls._PROGRAM,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.DEVNULL,
                stderr=asyncio.subprocess.PIPE,
            )
        )

    async def serve(self, name: str, where: str) -> SourceProcess:
        """Have it serve `FILE.py`; it is no spare any more. Whoever calls waits for `serving`, and stops it."""
        port = _free_port()
        words = ["serve", where, "--insecure", "--address", f"127.0.0.1:{port}"]
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(words).encode() + b"\n")
        self._process.stdin.close()
        return SourceProcess(name, self._process, port)

    async def stop(self) -> None:
        if self._process.returncode is None:
            self._process.kill()
        await self._process.wait()


async def start_from_source(
    name: str, command: Sequence[str], *, environment: Mapping[str, str] | None = None
) -> SourceProcess:
    """Start a function that serves where `--address` says; whoever calls waits for `serving`, and stops it."""
    port = _free_port()
    process = await asyncio.create_subprocess_exec(
        *command,
        "--insecure",
        "--address",
        f"127.0.0.1:{port}",
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
        env=environment,
    )
    return SourceProcess(name, process, port)


def python_command(where: str) -> Sequence[str]:
    """What serves `FILE.py` or `FILE.py:NAME`."""
    return (sys.executable, "-m", "planform_sdk", "serve", where)


async def stop_all(processes: Sequence[SourceProcess]) -> None:
    """All are told first, so that they end beside each other."""
    for process in processes:
        process.terminate()
    for process in processes:
        await process.stop()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
