"""One child process: how it is started, how one hears of its end, and how it is ended with all it started."""

from __future__ import annotations

import asyncio
import os
import signal
from asyncio.subprocess import Process, SubprocessStreamProtocol
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

_BUFFER = 64 << 10


@dataclass(frozen=True, slots=True)
class Child:
    """A started process. `exited` is set when the process itself has ended.

    `process.wait()` may return much later: not before its pipes are closed, which what it started may hold open.
    """

    process: Process
    exited: asyncio.Event
    transport: asyncio.SubprocessTransport

    @property
    def code(self) -> int:
        """The exit code, or minus the signal; of a child that has ended."""
        code = self.process.returncode
        return -signal.SIGKILL if code is None else code

    def signal_group(self, number: signal.Signals) -> None:
        """Signal the child and all that stayed in its session."""
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, number)

    async def end(self) -> None:
        """Kill what is left of it and wait until it is gone."""
        self.signal_group(signal.SIGKILL)
        await self.exited.wait()
        self.transport.close()


async def start_child(
    command: Sequence[str], *, scratch: Path, environment: Mapping[str, str], stdin: int, stdout: int, stderr: int
) -> Child:
    """Start it as the leader of a session, in the scratch directory, with little of our environment."""
    loop = asyncio.get_running_loop()
    transport, protocol = await loop.subprocess_exec(
        lambda: _Exiting(limit=_BUFFER, loop=loop),
        *command,
        stdin=stdin,
        stdout=stdout,
        stderr=stderr,
        cwd=scratch,
        env=surroundings(scratch, environment),
        start_new_session=True,
    )
    return Child(Process(transport, protocol, loop), protocol.exited, transport)


class _Exiting(SubprocessStreamProtocol):
    """Tells of the end of the process itself, whoever still holds its pipes."""

    def __init__(self, limit: int, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(limit, loop)
        self.exited = asyncio.Event()

    def process_exited(self) -> None:
        self.exited.set()
        super().process_exited()


def surroundings(scratch: Path, extra: Mapping[str, str]) -> dict[str, str]:
    """The environment of a child: nothing of ours but where programs are."""
    own = {key: os.environ[key] for key in ("PATH", "LANG", "LC_ALL", "SSL_CERT_FILE") if key in os.environ}
    return {**own, "HOME": str(scratch), "TMPDIR": str(scratch), "PYTHONDONTWRITEBYTECODE": "1", **extra}
