"""Run a command to its end: bytes in, bytes out, and nothing of it left behind.

`run_once` gives what the command wrote when it has ended; `run_in_sandbox` passes it on as it comes.
"""

from __future__ import annotations

import asyncio
import signal
from asyncio.subprocess import PIPE
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from planform.sandbox.child import Child, Pipe, start_child
from planform.sandbox.confinement.launch import CANNOT_CONFINE, CANNOT_EXECUTE
from planform.sandbox.isolation import Isolation, Prepared, prepare, ready_isolation
from planform.sandbox.limits import Limits
from planform.sandbox.scratch import ScratchFull, watch_scratch

_CHUNK: Final = 64 << 10
_STDERR_KEPT: Final = 64 << 10
_AT_ONCE: Final = 16
"""Chunks that are read before the loop gets a turn."""
_COUNTED: Final = 16
"""Of a command that writes too much, so many times its limit are still counted, that its size can be told."""


class Ended(StrEnum):
    """Why a child came to its end."""

    EXITED = "exited"
    KILLED = "killed"
    """By a signal that was not ours."""
    TIMED_OUT = "timed out"
    CPU = "used up its CPU time"
    OUTPUT = "wrote too much"
    SCRATCH = "filled its scratch directory"
    NOT_STARTED = "could not be started"


@dataclass(frozen=True, slots=True)
class Finished:
    """How a command ended. `code` is its exit code, or minus the signal that ended it."""

    stdout: bytes
    stderr: bytes
    code: int
    why: Ended
    written: int = 0
    """Bytes of standard output, of which at most the limit is kept."""
    cut_off: bool = False
    """Whether it would have written more than that."""

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
    Raises SandboxUnavailable.
    """
    out, written = bytearray(), 0

    def keep(chunk: bytes) -> None:
        nonlocal written
        out.extend(chunk[: max(0, limits.output - written)])
        written += len(chunk)
        if written > limits.output * _COUNTED:
            raise _TooMuch

    try:
        finished = await run_in_sandbox(
            command, limits, output=keep, environment=environment, stdin=stdin, isolation=isolation
        )
        finished = replace(finished, stdout=bytes(out), written=written)
    finally:
        out.clear()  # an error that ended it has a traceback, which leads here for as long as anybody holds it
    if written <= limits.output:
        return finished
    return replace(finished, why=Ended.OUTPUT, cut_off=finished.why is not Ended.EXITED)


async def run_in_sandbox(
    command: Sequence[str],
    limits: Limits,
    *,
    output: Callable[[bytes], None],
    errors: Callable[[bytes], None] | None = None,
    environment: Mapping[str, str] | None = None,
    stdin: bytes = b"",
    isolation: Isolation | None = None,
) -> Finished:
    """The same for commands that people watch: `output` and `errors` get what it writes as it comes.

    What they raise ends the command, and is raised here; it is `limits.seconds` that bounds the time. Of standard error
    the end is kept as well.
    """
    prepared = prepare(command, limits, isolation or await ready_isolation(), environment=environment or {})
    return await _run(prepared, stdin, limits, output, errors)


async def _run(
    prepared: Prepared,
    stdin: bytes,
    limits: Limits,
    output: Callable[[bytes], None],
    errors: Callable[[bytes], None] | None,
) -> Finished:
    err = bytearray()

    def keep_end(chunk: bytes) -> None:
        err.extend(chunk)
        del err[:-_STDERR_KEPT]
        if errors is not None:
            errors(chunk)

    try:
        child = await start_child(prepared, stdin=PIPE, stdout=PIPE, stderr=PIPE)
    except OSError as error:
        return Finished(b"", f"sandbox: {error.strerror or error}".encode(), CANNOT_CONFINE, Ended.NOT_STARTED)
    why = Ended.EXITED
    try:
        async with asyncio.timeout(limits.seconds):
            await _attend(child, stdin, output, keep_end, watch_scratch(prepared, limits))
    except TimeoutError:
        why = Ended.TIMED_OUT
    except _TooMuch:
        why = Ended.OUTPUT
    except ScratchFull:
        why = Ended.SCRATCH
    finally:
        await child.end()
    code = child.code
    return Finished(b"", bytes(err), code, why if why is not Ended.EXITED else _why(code, err))


async def _attend(
    child: Child,
    stdin: bytes,
    output: Callable[[bytes], None],
    errors: Callable[[bytes], None],
    watching: Coroutine[None, None, None],
) -> None:
    """Feed and hear it until it ends. An error of one of these is that error, and not a group with one in it."""
    watch = asyncio.create_task(watching)
    tasks = [
        asyncio.create_task(_feed(child, stdin)),
        asyncio.create_task(_listen(child.stdout, output)),
        asyncio.create_task(_listen(child.stderr, errors)),
        asyncio.create_task(_until_exited(child)),
    ]
    try:
        waiting = {*tasks, watch}
        while waiting - {watch}:
            done, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            for each in done:
                each.result()
    finally:
        for task in (*tasks, watch):
            task.cancel()
        await asyncio.wait([*tasks, watch])


class _TooMuch(Exception):
    """The child wrote more than it may."""


async def _until_exited(child: Child) -> None:
    """Once the command itself has ended, so must what it left running, which may still hold its pipes open.

    What it did not read it will not: a loop may tell nobody that the other end of a pipe was closed.
    """
    await child.exited.wait()
    child.signal_group(signal.SIGKILL)
    if child.stdin is not None:
        child.stdin.close()


async def _feed(child: Child, data: bytes) -> None:
    assert child.stdin is not None
    with suppress(BrokenPipeError, ConnectionResetError):  # it may end without having read everything
        await child.stdin.write_all(data)
    child.stdin.close()


async def _listen(pipe: Pipe | None, listener: Callable[[bytes], None]) -> None:
    assert pipe is not None
    heard = 0
    while chunk := await pipe.read(_CHUNK):
        listener(chunk)
        heard += 1
        if heard % _AT_ONCE == 0:  # one that writes as fast as it is read must not have the loop to itself
            await asyncio.sleep(0)


def _why(code: int, stderr: bytearray) -> Ended:
    if code == -signal.SIGXCPU:
        return Ended.CPU
    if code in (CANNOT_CONFINE, CANNOT_EXECUTE) and stderr.startswith(b"sandbox: "):
        return Ended.NOT_STARTED
    return Ended.KILLED if code < 0 else Ended.EXITED
