"""The control plane's side of the spawner: one for the process, started when the first child is.

Any thread may ask it to start something; asking takes no longer than a write to a socket.
"""

from __future__ import annotations

import atexit
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

CODE: Final = str(Path(__file__).parent)
"""Where the spawner finds its modules, without importing the rest of planform."""
_MAX_END: Final = 5.0
_PID_AND_STATUS: Final = 8


class Spawner:
    """Starts children from a process that has no threads. One that died is replaced, and takes its children with it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._socket: socket.socket | None = None

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process is not None else None

    def spawn(self, spec: Mapping[str, Any], files: Sequence[int]) -> socket.socket:
        """Start what the spec says with these open files: standard input, output and error, and what else it needs.

        Gives the socket that the child belongs to. Raises OSError if there is no spawner to be had.
        """
        ours, theirs = socket.socketpair()
        held = _in_memory(json.dumps(spec).encode())
        try:
            with self._lock:
                try:
                    socket.send_fds(self._connection(), [b"."], [theirs.fileno(), held, *files])
                except OSError:  # it was killed
                    self._close()
                    socket.send_fds(self._connection(), [b"."], [theirs.fileno(), held, *files])
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()
            os.close(held)
        return ours

    def close(self) -> None:
        """End it, and with it all that came from it."""
        with self._lock:
            self._close()

    def _connection(self) -> socket.socket:
        if self._socket is None:
            ours, theirs = socket.socketpair()
            begin = f"import sys; sys.path.insert(0, {CODE!r}); from confinement.spawner import main"
            begin += f"; main({theirs.fileno()})"
            # Not by the event loop, which would fork with all that libraries do around that; this is a vfork.
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", "-c", begin],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                env={"PATH": os.environ.get("PATH", os.defpath)},
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )
            theirs.close()
            self._socket = ours
        return self._socket

    def _close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None
        if self._process is not None:
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(_MAX_END)
            self._process = None


def wait_for(control: socket.socket, seconds: float | None) -> int:
    """The exit code of the child that belongs to this socket, or minus its signal. Raises TimeoutError. It blocks."""
    control.settimeout(seconds)
    received = b""
    while len(received) < _PID_AND_STATUS:
        chunk = control.recv(_PID_AND_STATUS - len(received))
        if not chunk:  # the spawner died, and the child with it
            return -signal.SIGKILL
        received += chunk
    return os.waitstatus_to_exitcode(int.from_bytes(received[4:], "little"))


def _in_memory(data: bytes) -> int:
    if sys.platform == "linux":
        held = os.memfd_create("spec")
    else:
        with tempfile.TemporaryFile() as file:
            held = os.dup(file.fileno())
    os.write(held, data)
    return held


spawner: Final = Spawner()
"""One for the process, like what it stands for: `fork`."""
atexit.register(spawner.close)
