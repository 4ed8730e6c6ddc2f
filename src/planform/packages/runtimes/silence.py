"""Why a process that runs does not answer: what /proc says of it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

_STOPPED: Final = ("T", "t")
_MAX: Final = 256


def is_stopped(leader: int) -> bool:
    """Whether it, or something that it started, was stopped by a signal."""
    return any(_state(pid) in _STOPPED for pid in _descendants(leader))


def _descendants(leader: int) -> Iterator[int]:
    waiting, seen = [leader], 0
    while waiting and seen < _MAX:
        pid = waiting.pop()
        seen += 1
        yield pid
        try:
            waiting += map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split())
        except OSError:
            continue


def _state(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return ""
