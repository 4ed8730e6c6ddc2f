"""Child processes that a test starts: their output goes to a file, and none of them outlives the test run."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

# Runs in a fresh interpreter instead of a preexec_fn: that one would run Python between fork and exec, which can
# deadlock once the test process has threads. The order matters: whoever died before the prctl is found by the getppid.
_TIE = """
import ctypes, os, signal, sys
signal.signal(signal.SIGINT, signal.SIG_DFL)  # a shell that runs tests in the background has it ignored
ctypes.CDLL(None).prctl(1, 9)
if os.getppid() != int(sys.argv[1]): os._exit(1)
os.execv(sys.argv[2], sys.argv[2:])
"""


def dies_with_us(command: Sequence[str]) -> list[str]:
    """Wrap a command so that the kernel kills it when its parent ends, even by SIGKILL.

    To the kernel the parent is the *thread* that started the command, so start it from one that lives long enough. The
    first word must be a path. Elsewhere than on Linux the command is left as it is.
    """
    if not sys.platform.startswith("linux"):
        return list(command)
    return [sys.executable, "-I", "-S", "-c", _TIE, str(os.getpid()), *command]


@dataclass(frozen=True)
class Child:
    """A running child process."""

    name: str
    log: Path
    log_start: int  # where this run's output begins: an earlier one may have written to the same file
    process: subprocess.Popen[bytes]

    @property
    def pid(self) -> int:
        return self.process.pid

    def has_ended(self) -> bool:
        return self.process.poll() is not None

    def output(self) -> str:
        with self.log.open("rb") as file:
            file.seek(self.log_start)
            return file.read().decode(errors="replace")

    def output_tail(self, lines: int = 20) -> str:
        return "\n".join(self.output().splitlines()[-lines:])

    def stop(self, *, grace_seconds: float = 5) -> None:
        """Ask it to end, insist after the grace time, and wait until it has ended."""
        if not self.has_ended():
            self.process.terminate()
        try:
            self.process.wait(grace_seconds)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait(grace_seconds)


@contextmanager
def running(command: Sequence[str], log: Path, *, name: str | None = None) -> Iterator[Child]:
    """Run a command for the length of the block, with all its output appended to `log`."""
    with log.open("ab") as output:
        start = output.tell()
        process = subprocess.Popen(
            dies_with_us(command),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # Ctrl-C is for the tests, which then stop their children in order
        )
    child = Child(name or Path(command[0]).name, log, start, process)
    try:
        yield child
    finally:
        child.stop()


def free_ports(count: int) -> list[int]:
    """Give distinct loopback ports that are free right now; somebody may still be faster, so be ready to try again."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for opened in sockets:
            opened.bind(("127.0.0.1", 0))
        return [int(opened.getsockname()[1]) for opened in sockets]
