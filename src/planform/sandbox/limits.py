"""What a child may use and see."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of one child. Memory, CPU, files and processes are bounded on every system; network and files are cut off
    where the system has namespaces or bubblewrap.

    None means no bound; for CPU and time that is for servers.
    """

    memory: int = 512 << 20
    cpu_seconds: int | None = 30
    seconds: float | None = 20.0
    """Time on the clock for a command that runs to its end."""
    output: int = 16 << 20
    """Bytes of standard output; a child that writes more is killed. Of standard error the end is kept."""
    file_size: int = 64 << 20
    open_files: int = 256
    processes: int = 64
    network: bool = False
    only_loopback: bool = False
    """Whether ports that it would listen at on all addresses become free ones of the loopback, where that can be."""
    writable: tuple[Path, ...] = ()
    """Directories it may write to besides a scratch directory of its own; everything else is read-only."""
    hidden: tuple[Path, ...] = ()
    """Directories that are empty to it, such as the control plane's own data."""
    visible: tuple[Path, ...] = ()
    """Directories below hidden ones that it sees all the same."""

    def for_server(self) -> Self:
        """The same, for a child that is meant to stay."""
        return replace(self, cpu_seconds=None, seconds=None)
