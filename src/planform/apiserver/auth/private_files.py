"""Files that only their owner may read: written whole or not at all, and noticed when another process changes them."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Generic, TypeVar

from planform.clock import Clock

T = TypeVar("T")
LOOK_AGAIN_SECONDS = 1.0


def make_private_directory(path: Path) -> None:
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    if path.stat().st_mode & 0o077:
        path.chmod(0o700)


def write_private(path: Path, content: bytes) -> None:
    """Replace a file atomically and durably; a crash leaves the old content or the new, readable by the owner alone."""
    fresh = path.with_name(f".{path.name}.{os.getpid()}.new")
    descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            os.fchmod(file.fileno(), 0o600)
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(path)
    except BaseException:
        fresh.unlink(missing_ok=True)
        raise
    directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold a lock file, so that the server and a command line do not overwrite each other's changes."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


class FollowedFile(Generic[T]):
    """What a file says now. It is looked at when asked for, at most once a second, and read only when it changed.

    A file that is absent reads as empty. When `parse` refuses a change, the last good content stays in force and
    `on_error` hears why, once for each change.
    """

    def __init__(
        self, path: Path, parse: Callable[[bytes], T], *, clock: Clock, on_error: Callable[[Exception], None]
    ) -> None:
        self._path = path
        self._parse = parse
        self._clock = clock
        self._on_error = on_error
        self._mark = _mark(path)
        self._looked = clock.monotonic()
        self._content = parse(_read(path))
        self.version = 0
        """Another number once the file says something else."""

    def current(self) -> T:
        now = self._clock.monotonic()
        if now - self._looked >= LOOK_AGAIN_SECONDS:
            self._looked = now
            self.look()
        return self._content

    def look(self) -> None:
        """Read the file if it changed, without waiting for the second to pass."""
        mark = _mark(self._path)
        if mark != self._mark:
            self._mark = mark
            try:
                self._content = self._parse(_read(self._path))
                self.version += 1
            except (ValueError, OSError) as error:
                self._on_error(error)


def _mark(path: Path) -> tuple[int, int, int]:
    """Changes whenever the file does; replaced files differ in their inode even within one tick of the clock."""
    try:
        found = path.stat()
    except FileNotFoundError:
        return (0, 0, 0)
    return (found.st_ino, found.st_mtime_ns, found.st_size)


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return b""
