"""Runs a command of a phase as a process of this machine: bounded, cut off from the control plane's files, and heard.

Unlike `sandbox.run_once` it passes on what the command prints as it comes, since commands of phases run for long and
people watch them.
"""

from __future__ import annotations

import asyncio
import shutil
import signal
import tempfile
from asyncio.subprocess import PIPE, Process
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from planform.blueprints.contract import PhaseContext
from planform.blueprints.errors import PhaseFailed
from planform.blueprints.functions.failures import together
from planform.sandbox import Limits, detect_isolation
from planform.sandbox.child import start_child
from planform.sandbox.isolation import confined, own_code
from planform.sandbox.launch import CANNOT_CONFINE, CANNOT_EXECUTE

Listener = Callable[[bytes], None]

_CHUNK: Final = 64 << 10
_STDERR_KEPT: Final = 4096

TASK_LIMITS: Final = Limits(
    memory=2 << 30,
    cpu_seconds=None,
    seconds=3600.0,
    file_size=64 << 30,
    open_files=1024,
    processes=256,
    network=True,
)
"""What a command may use unless its phase says otherwise. It sees the network, as a pod would."""


@dataclass(frozen=True, slots=True)
class Exit:
    """How a command ended, and the end of what it said on standard error."""

    code: int
    last_words: str = ""

    def check(self, what: str) -> None:
        """Raise PhaseFailed unless it ended well."""
        if self.code == 0:
            return
        how = f"was ended by signal {-self.code}" if self.code < 0 else f"ended with exit code {self.code}"
        words = f": {self.last_words}" if self.last_words else ""
        raise PhaseFailed(f"{what} {how}{words}", details={"exitCode": self.code})


def limits_for(context: PhaseContext, *, seconds: float | None = None, memory: int | None = None) -> Limits:
    """The limits of a command of this phase: the control plane's own files are hidden from it."""
    hidden = (context.here.data,) if context.here.data is not None and context.here.data.is_dir() else ()
    return replace(
        TASK_LIMITS,
        hidden=hidden,
        seconds=TASK_LIMITS.seconds if seconds is None else seconds,
        memory=TASK_LIMITS.memory if memory is None else memory,
    )


async def run_process(
    command: Sequence[str],
    limits: Limits,
    *,
    output: Listener,
    log: Callable[[str], None] | None = None,
    environment: Mapping[str, str] | None = None,
    stdin: bytes = b"",
) -> Exit:
    """Run to the end, in a scratch directory. `output` gets standard output as it comes; what it raises ends the run.

    Raises PhaseFailed if the command cannot be started or takes longer than `limits.seconds`. When this returns, or is
    cancelled, the command and all it started have ended.
    """
    scratch = Path(tempfile.mkdtemp(prefix="planform-phase-"))
    isolation = detect_isolation()
    words = bytearray()

    def heard(chunk: bytes) -> None:
        words.extend(chunk)
        del words[:-_STDERR_KEPT]
        if log is not None:
            for line in chunk.decode(errors="replace").splitlines():
                log(line)

    try:
        child = await start_child(
            confined(command, limits, isolation, scratch=scratch),
            scratch=scratch,
            environment=environment or {},
            stdin=PIPE,
            stdout=PIPE,
            stderr=PIPE,
        )
        try:
            async with asyncio.timeout(limits.seconds), together() as tasks:
                tasks.create_task(_feed(child.process, stdin))
                tasks.create_task(_listen(child.process.stdout, output))
                tasks.create_task(_listen(child.process.stderr, heard))
                await child.exited.wait()
                child.signal_group(signal.SIGKILL)  # what it left running may hold its pipes open
        except TimeoutError as error:
            raise PhaseFailed(f"{command[0]} took longer than {limits.seconds:g} s") from error
        finally:
            await child.end()
    finally:
        await asyncio.to_thread(shutil.rmtree, scratch, ignore_errors=True)
    said = words.decode(errors="replace").strip()
    code = own_code(child.code, isolation)
    if code in (CANNOT_CONFINE, CANNOT_EXECUTE) and said.startswith("sandbox: "):
        raise PhaseFailed(said.removeprefix("sandbox: "))
    return Exit(code, " ".join(said.splitlines()[-5:]))


async def _feed(process: Process, data: bytes) -> None:
    assert process.stdin is not None
    with suppress(BrokenPipeError, ConnectionResetError):  # it may end without having read everything
        process.stdin.write(data)
        await process.stdin.drain()
        process.stdin.close()
        await process.stdin.wait_closed()


async def _listen(stream: asyncio.StreamReader | None, listener: Listener) -> None:
    assert stream is not None
    while chunk := await stream.read(_CHUNK):
        listener(chunk)
