"""How this machine can cut a child off, and the command line that does it.

Limits of memory, CPU, files and processes hold everywhere. No network and read-only files take bubblewrap, or user
namespaces that ordinary users may make; containers and hardened systems often have neither.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from enum import StrEnum
from functools import cache
from pathlib import Path

from planform.sandbox.limits import Limits

_LAUNCH = str(Path(__file__).with_name("launch.py"))
_PORTS = str(Path(__file__).with_name("ports.py"))


class Isolation(StrEnum):
    """The ways there are, the best first. Bubblewrap is for systems where only it may make user namespaces."""

    NAMESPACES = "namespaces"
    BUBBLEWRAP = "bubblewrap"
    LIMITS_ONLY = "limits-only"


@cache
def available_isolation() -> tuple[Isolation, ...]:
    """Try them; what works is a fact of the machine, so once is enough. Takes some milliseconds."""
    return tuple(isolation for isolation in Isolation if _works(isolation))


def detect_isolation() -> Isolation:
    """The best way that works here."""
    return available_isolation()[0]


def _works(isolation: Isolation) -> bool:
    if isolation is Isolation.LIMITS_ONLY:
        return True
    if sys.platform != "linux" or (isolation is Isolation.BUBBLEWRAP and shutil.which("bwrap") is None):
        return False
    command = confined([sys.executable, "-I", "-S", "-c", ""], Limits(), isolation)
    try:
        tried = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return tried.returncode == 0


def confined(command: Sequence[str], limits: Limits, isolation: Isolation, *, scratch: Path | None = None) -> list[str]:
    """The command that runs `command` within the limits. Start it from a thread that outlives it: it dies with that."""
    writable = [*limits.writable, *([scratch] if scratch else [])]
    settings = list(_settings(limits))
    if isolation is not Isolation.LIMITS_ONLY:  # there it would count all that this user runs
        settings.append(f"processes={limits.processes}")
    if limits.only_loopback and sys.platform == "linux":
        command = [sys.executable, "-I", "-S", _PORTS, *command]
    prefix: list[str] = []
    parent = os.getpid()
    if isolation is Isolation.NAMESPACES:
        settings += ["namespaces=", *(f"writable={path}" for path in writable)]
        settings += [f"hidden={path}" for path in limits.hidden]
        settings += [f"visible={path}" for path in limits.visible]
        settings += ["network="] if limits.network else []
    elif isolation is Isolation.BUBBLEWRAP:
        prefix = list(_bubblewrap(limits, writable))
        parent = 0  # between us and the launcher stands bubblewrap, which dies with us itself
    return [*prefix, sys.executable, "-I", "-S", _LAUNCH, str(parent), *settings, "--", *command]


def own_code(code: int, isolation: Isolation) -> int:
    """The exit code of the command, or minus the signal that ended it; bubblewrap says 128 and the signal instead."""
    return 128 - code if isolation is Isolation.BUBBLEWRAP and 128 < code < 193 else code


def _settings(limits: Limits) -> Iterator[str]:
    yield f"memory={limits.memory}"
    yield f"file_size={limits.file_size}"
    yield f"open_files={limits.open_files}"
    if limits.cpu_seconds is not None:
        yield f"cpu={limits.cpu_seconds}"


def _bubblewrap(limits: Limits, writable: Sequence[Path]) -> Iterator[str]:
    yield from ("bwrap", "--die-with-parent", "--unshare-user", "--unshare-pid", "--unshare-ipc", "--cap-drop", "ALL")
    if not limits.network:
        yield "--unshare-net"
    yield from ("--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc")
    for path in limits.hidden:
        yield from ("--tmpfs", str(path))
    for path in limits.visible:
        yield from ("--ro-bind", str(path), str(path))
    for path in writable:
        yield from ("--bind", str(path), str(path))
    yield "--"
