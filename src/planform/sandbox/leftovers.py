"""What killed control planes left behind: scratch directories and cgroups, named after the process that made them."""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Final

PREFIX: Final = "planform-sandbox-"


@cache
def owner() -> str:
    """This process, in a way that no later one is: numbers of processes come again. Whoever asks makes something of
    that name, so what is still there when the process ends goes with it."""
    name = f"{os.getpid()}.{_began(os.getpid())}"
    atexit.register(_sweep_own, name, os.getpid())
    return name


def _sweep_own(name: str, pid: int) -> None:
    if os.getpid() == pid:  # a fork has its parent's name, and its parent may still be at work
        for path in Path(tempfile.gettempdir()).glob(f"{PREFIX}{name}-*"):
            shutil.rmtree(path, ignore_errors=True)


def scratch_prefix() -> str:
    return f"{PREFIX}{owner()}-"


def is_abandoned(name: str) -> bool:
    """Whether a directory of such a name was made by a process that is no more."""
    pid, dot, rest = name.removeprefix(PREFIX).partition(".")
    began = rest.partition("-")[0]
    if not name.startswith(PREFIX) or not dot or not pid.isdigit():
        return False
    return _began(int(pid)) != began


def sweep_scratch(directory: Path | None = None) -> int:
    """Remove the scratch directories of processes that are no more; gives how many."""
    swept = 0
    for path in (directory or Path(tempfile.gettempdir())).glob(f"{PREFIX}*"):
        if is_abandoned(path.name):
            with suppress(OSError):
                shutil.rmtree(path)
                swept += 1
    return swept


def _began(pid: int) -> str:
    """When the process began, in the kernel's own count; empty if it is not there."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        return ""
