"""What an error of SQLite means for the store: no room, a failed disk, or a damaged file.

Only a full disk heals by itself. After any other error of a write nothing may be assumed about what reached the disk
(a failed fsync may have dropped the pages it was for), so the store serves reads and refuses writes until a restart
has read the file anew.
"""

from __future__ import annotations

import errno
import sqlite3
from pathlib import Path

from planform.errors import DiskFull, StoreCorrupt, StoreError, StoreFailed, StoreIncomplete

# The write never came near the disk: a value or a key that SQLite cannot take, or a codec that failed.
_HARMLESS = (-1, sqlite3.SQLITE_TOOBIG)

RESTORE = "keep the damaged directory for inspection, and start with an empty one that holds the newest backup"


def write_failure(error: BaseException, path: Path) -> StoreError:
    """The error that the writers of a failed commit are given."""
    code = primary_code(error)
    if code == sqlite3.SQLITE_FULL:
        return disk_full(error, path)
    if code in _HARMLESS:
        return StoreFailed(f"cannot write {path}: {describe(error)}; the write did not happen")
    failure = StoreFailed(f"cannot write {path}: {describe(error)}; writes are refused until a restart")
    failure.hint = "check the disk and the system log, then restart; reads go on and nothing acknowledged is lost"
    return failure


def is_final(failure: StoreError) -> bool:
    """No more may be written after this one."""
    return not isinstance(failure, DiskFull) and primary_code(failure.__cause__) not in _HARMLESS


def open_failure(error: BaseException, path: Path) -> StoreError:
    """The error that says why a database could not be opened or read."""
    match primary_code(error):
        case sqlite3.SQLITE_FULL:
            return disk_full(error, path)
        case sqlite3.SQLITE_CORRUPT | sqlite3.SQLITE_NOTADB:
            return corrupt(path, describe(error))
    failure = StoreFailed(f"cannot open {path}: {describe(error)}")
    failure.hint = "check the disk and who may write the directory"
    return failure


def disk_full(error: BaseException, path: Path) -> DiskFull:
    failure = DiskFull(f"no room left for {path}: {describe(error)}; the write did not happen")
    failure.hint = f"make room on the file system of {path.parent}; writes work again as soon as there is some"
    return failure


def corrupt(path: Path, why: str) -> StoreCorrupt:
    failure = StoreCorrupt(f"{path} is damaged: {why}")
    failure.hint = RESTORE
    return failure


def incomplete(path: Path, found: int, given: int) -> StoreIncomplete:
    failure = StoreIncomplete(
        f"{path} ends at resource version {found}, but {given} was given out: writes that were acknowledged are lost"
    )
    failure.hint = (
        "the write-ahead log was damaged or removed: restore the newest backup into an empty directory, or go on"
        " without what is lost by: planform up --accept-loss"
    )
    return failure


def primary_code(error: BaseException | None) -> int:
    """SQLite's primary result code, without what the extended code adds; -1 for an error that has none."""
    if isinstance(error, OSError):
        return sqlite3.SQLITE_FULL if error.errno in (errno.ENOSPC, errno.EDQUOT) else -1
    code: int | None = getattr(error, "sqlite_errorcode", None)
    return -1 if code is None else code & 0xFF


def describe(error: BaseException) -> str:
    name: str | None = getattr(error, "sqlite_errorname", None)
    return f"{error} ({name})" if name else str(error) or type(error).__name__
