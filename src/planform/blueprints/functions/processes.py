"""Runs a command of a phase as a process of this machine, in the sandbox: bounded, cut off from its files, and heard.

What the command prints is passed on as it comes, since commands of phases run for long and people watch them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from planform.blueprints.contract import PhaseContext
from planform.blueprints.errors import PhaseFailed
from planform.sandbox import Ended, Isolation, Limits, Network, SandboxUnavailable, run_in_sandbox

Listener = Callable[[bytes], None]

_STDERR_KEPT: Final = 4096

TASK_LIMITS: Final = Limits(
    memory=2 << 30,
    cpu_seconds=None,
    seconds=3600.0,
    file_size=64 << 30,
    open_files=1024,
    processes=256,
    scratch=None,
    network=Network.HOST,
)
"""What a command may use unless its phase says otherwise. It sees the network, as a pod would."""


@dataclass(frozen=True, slots=True)
class Exit:
    """How a command ended, and the end of what it said on standard error."""

    code: int
    stderr_tail: str = ""

    def check(self, what: str) -> None:
        """Raise PhaseFailed unless it ended well."""
        if self.code == 0:
            return
        how = f"was ended by signal {-self.code}" if self.code < 0 else f"ended with exit code {self.code}"
        words = f": {self.stderr_tail}" if self.stderr_tail else ""
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
    confined: bool = True,
) -> Exit:
    """Run to the end, in a scratch directory. `output` gets standard output as it comes; what it raises ends the run.

    Raises PhaseFailed if the command cannot be started or takes longer than `limits.seconds`. When this returns, or is
    cancelled, the command and all it started have ended. Only what is not `confined` sees this machine's files.
    """
    isolation = None if confined else Isolation.LIMITS_ONLY
    heard = None
    if log is not None:

        def heard(chunk: bytes) -> None:
            for line in chunk.decode(errors="replace").splitlines():
                log(line)

    try:
        done = await run_in_sandbox(
            command,
            limits,
            output=output,
            errors=heard,
            environment=environment,
            stdin=stdin,
            isolation=isolation,
        )
    except SandboxUnavailable as error:
        raise PhaseFailed(str(error)) from error
    stderr = done.stderr.decode(errors="replace").strip()
    match done.why:
        case Ended.TIMED_OUT:
            raise PhaseFailed(f"{command[0]} took longer than {limits.seconds:g} s")
        case Ended.NOT_STARTED:
            raise PhaseFailed(stderr.removeprefix("sandbox: "))
        case _:
            return Exit(done.code, " ".join(stderr[-_STDERR_KEPT:].splitlines()[-5:]))
