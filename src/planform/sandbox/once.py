"""Run a command to its end: bytes in, bytes out, and nothing of it left behind."""

from __future__ import annotations

import asyncio
import shutil
import signal
import tempfile
from asyncio.subprocess import PIPE, Process
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final

from planform.sandbox.child import start_child
from planform.sandbox.isolation import Isolation, confined, detect_isolation, own_code
from planform.sandbox.launch import CANNOT_CONFINE, CANNOT_EXECUTE
from planform.sandbox.limits import Limits

_CHUNK: Final = 64 << 10
_STDERR_KEPT: Final = 64 << 10


class Ended(StrEnum):
    """Why a child came to its end."""

    EXITED = "exited"
    KILLED = "killed"
    """By a signal that was not ours."""
    TIMED_OUT = "timed out"
    CPU = "used up its CPU time"
    OUTPUT = "wrote too much"
    NOT_STARTED = "could not be started"


@dataclass(frozen=True, slots=True)
class Finished:
    """How a command ended. `code` is its exit code, or minus the signal that ended it."""

    stdout: bytes
    stderr: bytes
    code: int
    why: Ended

    @property
    def ok(self) -> bool:
        return self.why is Ended.EXITED and self.code == 0

    def last_lines(self, count: int = 10) -> list[str]:
        """The end of standard error, for people."""
        return self.stderr.decode(errors="replace").splitlines()[-count:]


async def run_once(
    command: Sequence[str],
    stdin: bytes = b"",
    limits: Limits = Limits(),  # noqa: B008  # frozen
    *,
    environment: Mapping[str, str] | None = None,
    isolation: Isolation | None = None,
) -> Finished:
    """Run it in a scratch directory of its own, with an environment of `environment` and little else.

    When this returns, or is cancelled, the command and all it started have ended and the scratch directory is gone.
    """
    scratch = Path(tempfile.mkdtemp(prefix="planform-sandbox-"))
    try:
        return await _run(command, stdin, limits, environment or {}, isolation or detect_isolation(), scratch)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


async def _run(
    command: Sequence[str],
    stdin: bytes,
    limits: Limits,
    environment: Mapping[str, str],
    isolation: Isolation,
    scratch: Path,
) -> Finished:
    command = confined(command, limits, isolation, scratch=scratch)
    child = await start_child(command, scratch=scratch, environment=environment, stdin=PIPE, stdout=PIPE, stderr=PIPE)
    out, err = bytearray(), bytearray()
    why = Ended.EXITED
    try:
        async with asyncio.timeout(limits.seconds), asyncio.TaskGroup() as tasks:
            tasks.create_task(_feed(child.process, stdin))
            tasks.create_task(_read_all(child.process, out, limits.output))
            tasks.create_task(_read_tail(child.process, err))
            # Once the command itself has ended, so must what it left running, which may still hold its pipes open.
            await child.exited.wait()
            child.signal_group(signal.SIGKILL)
    except* TimeoutError:
        why = Ended.TIMED_OUT
    except* _TooMuch:
        why = Ended.OUTPUT
    finally:
        await child.end()
    code = own_code(child.code, isolation)
    return Finished(bytes(out), bytes(err), code, why if why is not Ended.EXITED else _why(code, err))


class _TooMuch(Exception):
    """The child wrote more than it may."""


async def _feed(process: Process, data: bytes) -> None:
    assert process.stdin is not None
    with suppress(BrokenPipeError, ConnectionResetError):  # it may end without having read everything
        process.stdin.write(data)
        await process.stdin.drain()
        process.stdin.close()
        await process.stdin.wait_closed()


async def _read_all(process: Process, into: bytearray, limit: int) -> None:
    assert process.stdout is not None
    while chunk := await process.stdout.read(_CHUNK):
        into += chunk
        if len(into) > limit:
            del into[limit:]
            raise _TooMuch


async def _read_tail(process: Process, into: bytearray) -> None:
    assert process.stderr is not None
    while chunk := await process.stderr.read(_CHUNK):
        into += chunk
        del into[:-_STDERR_KEPT]


def _why(code: int, stderr: bytearray) -> Ended:
    if code == -signal.SIGXCPU:
        return Ended.CPU
    if code in (CANNOT_CONFINE, CANNOT_EXECUTE) and stderr.startswith(b"sandbox: "):
        return Ended.NOT_STARTED
    return Ended.KILLED if code < 0 else Ended.EXITED
