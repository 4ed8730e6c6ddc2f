"""One process owns a data directory: a lock that dies with its holder, and files that only their owner can read."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
import time
from pathlib import Path

from planform.errors import StoreFailed, StoreLocked

_SETTLING_SECONDS = 60  # a control plane that is just starting has a directory and no lock yet
DATABASE = "planform.db"
LOCK = "planform.lock"


class DataDirectory:
    """An owned directory. `close` gives it back, and removes it if it was made for this process alone."""

    def __init__(self, path: Path, lock: int, *, ephemeral: bool) -> None:
        self.path = path
        self.database = path / DATABASE
        self._lock: int | None = lock
        self._ephemeral = ephemeral

    @classmethod
    def acquire(cls, path: Path | None) -> DataDirectory:
        """Own that directory, made if need be; None is a private one that does not outlive the process's use of it.

        Raises StoreLocked if another process (or another store of this one) owns it.
        """
        if path is None:
            private = Path(tempfile.mkdtemp(prefix="planform-"))
            return cls(private, _lock(private), ephemeral=True)
        try:
            _make_private(path)
            return cls(path, _lock(path), ephemeral=False)
        except OSError as error:
            failure = StoreFailed(f"cannot use data directory {path}: {error.strerror or error}")
            failure.hint = "choose a directory that this user can write"
            raise failure from error

    def make_database(self) -> None:
        """Make sure that the database file exists and is private; SQLite gives its companion files the same mode."""
        descriptor = os.open(self.database, os.O_RDWR | os.O_CREAT, 0o600)
        os.fchmod(descriptor, 0o600)
        os.close(descriptor)
        sync_directory(self.path)

    def close(self) -> None:
        if self._lock is None:
            return
        os.close(self._lock)
        self._lock = None
        if self._ephemeral:
            shutil.rmtree(self.path, ignore_errors=True)


def remove_abandoned(prefix: str) -> None:
    """Remove temporary directories of that prefix whose control planes were killed: each holds keys, and nobody its
    lock."""
    for path in Path(tempfile.gettempdir()).glob(f"{prefix}*"):
        try:
            status = path.stat()
            if status.st_uid != os.getuid() or not path.is_dir() or time.time() - status.st_mtime < _SETTLING_SECONDS:
                continue
            os.close(_lock(path / "store"))
        except (OSError, StoreLocked):
            continue
        shutil.rmtree(path, ignore_errors=True)


def sync_directory(path: Path) -> None:
    """Make the names in a directory durable, which syncing the files does not."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _make_private(path: Path) -> None:
    if not path.is_dir():
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        sync_directory(path.parent)
    if path.stat().st_mode & 0o077:
        path.chmod(0o700)


def _lock(directory: Path) -> int:
    """Hold the lock file until the descriptor is closed or the process ends, however it ends."""
    path = directory / LOCK
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        owner = os.read(descriptor, 32).decode("ascii", "replace").strip() or "unknown"
        os.close(descriptor)
        refusal = StoreLocked(f"data directory {directory} is in use by process {owner}")
        refusal.hint = f"stop process {owner}, or choose another data directory"
        raise refusal from None
    os.ftruncate(descriptor, 0)
    with contextlib.suppress(OSError):  # the number is a courtesy to whoever is refused; a full disk may withhold it
        os.write(descriptor, f"{os.getpid()}\n".encode("ascii"))
    return descriptor
