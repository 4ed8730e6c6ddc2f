"""What a child may use and see."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Self


class Network(StrEnum):
    """What of the network a child has."""

    NONE = "none"
    HOST = "host"
    """That of the machine."""
    SERVE = "serve"
    """None, but it listens, and is reached by a socket that the control plane holds."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of one child. Memory, CPU, files and processes are bounded on every system; network and files by whichever
    isolation there is.

    None means no bound; for CPU and time that is for servers.
    """

    memory: int = 512 << 20
    address_space: int | None = None
    """Bytes that it may map, shared ones included; None is much more than `memory`, as runtimes reserve much."""
    cpus: float | None = None
    """How many CPUs it may keep busy, where there are cgroups."""
    cpu_seconds: int | None = 30
    seconds: float | None = 20.0
    """Time on the clock for a command that runs to its end."""
    output: int = 16 << 20
    """Bytes of standard output; a child that writes more is killed. Of standard error the end is kept."""
    file_size: int = 64 << 20
    open_files: int = 256
    processes: int = 64
    scratch: int | None = 64 << 20
    """Bytes of its scratch directory, which then is memory; None for one on disk, for commands that write much."""
    network: Network = Network.NONE
    only_loopback: bool = False
    """Whether ports that it would listen at on all addresses become free ones of the loopback, where that can be."""
    loopback_ports: tuple[tuple[int, int], ...] = ()
    """Which port of the loopback such a port becomes, for ports that others have to find."""
    writable: tuple[Path, ...] = ()
    """Directories it may write to besides a scratch directory of its own; everything else is read-only."""
    visible: tuple[Path, ...] = ()
    """What it sees besides programs, libraries and certificates."""
    hidden: tuple[Path, ...] = ()
    """What it does not see even if it lies within one of those, such as the control plane's own data."""

    def for_server(self) -> Self:
        """The same, for a child that is meant to stay."""
        return replace(self, cpu_seconds=None, seconds=None)

    @property
    def mapped(self) -> int:
        """Bytes that it may map."""
        return self.memory + (4 << 30) if self.address_space is None else self.address_space
