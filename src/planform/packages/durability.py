"""Having whole trees of files on the disk before they get the name under which they are looked for.

A rename may outlive a power cut that the content of the files does not: then a name would be there, and be believed,
with empty files behind it.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from pathlib import Path

_syncfs: Callable[[int], int] | None = getattr(ctypes.CDLL(None, use_errno=True), "syncfs", None)
"""One call for all that a file system has not written yet; on systems without it, each file is asked for."""


def make_durable(tree: Path) -> None:
    """Wait until everything below a directory is on the disk. Raises OSError if it cannot get there."""
    if _syncfs is None:
        for directory, _, files in os.walk(tree):
            for name in files:
                _sync(Path(directory, name))
            _sync(Path(directory))
        return
    handle = os.open(tree, os.O_RDONLY | os.O_DIRECTORY)
    try:
        # One by one, files wait for the disk in turns: thousands of them would take seconds instead of milliseconds.
        if _syncfs(handle):
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number), str(tree))
    finally:
        os.close(handle)


def _sync(path: Path) -> None:
    if path.is_symlink():
        return  # it is part of its directory
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
