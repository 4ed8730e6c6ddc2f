"""Where functions are reached, held by us from before their first start until the last.

A process that crashes comes back where it was, so callers need not be told, and nobody else can take its place
meanwhile.
"""

from __future__ import annotations

import shutil
import socket
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from planform.sandbox.leftovers import scratch_prefix

_INSIDE: Final = 9443
_BACKLOG: Final = 64


class HeldPort:
    """A port of the loopback that is ours to give away. Servers that allow address reuse, as all do, can listen on it
    while we hold it without listening."""

    listening: int | None = None

    def __init__(self) -> None:
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._socket.bind(("127.0.0.1", 0))
        self.number = int(self._socket.getsockname()[1])

    @property
    def target(self) -> str:
        return target_of([self.number])

    def close(self) -> None:
        self._socket.close()


class HeldSocket:
    """A unix socket that we listen at, in a directory of our own, for functions that have no network.

    What the first process of a function's sandbox takes from it goes to `number`, a port of a network that holds that
    function and nobody else; so it can be the same for all.
    """

    number = _INSIDE

    def __init__(self) -> None:
        # Not below the control plane's data: paths of sockets are short.
        self._directory = Path(tempfile.mkdtemp(prefix=scratch_prefix()))
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.bind(str(self._directory / "s"))
        self._socket.listen(_BACKLOG)

    @property
    def listening(self) -> int:
        return self._socket.fileno()

    @property
    def target(self) -> str:
        return f"unix:{self._directory / 's'}"

    def close(self) -> None:
        self._socket.close()
        shutil.rmtree(self._directory, ignore_errors=True)


def target_of(ports: Sequence[int]) -> str:
    """Calls go round robin over all of them."""
    return "ipv4:" + ",".join(f"127.0.0.1:{port}" for port in ports)
