"""Copies and checks of the whole file, each with a connection of its own, while the store goes on."""

from __future__ import annotations

import contextlib
import os
import shutil
import sqlite3
import time
from pathlib import Path
from typing import Final
from zlib import crc32

from planform.errors import StoreError, UsageError
from planform.store.database import MIGRATIONS, Connect, check_header, connect
from planform.store.directory import DATABASE, DataDirectory, sync_directory
from planform.store.failures import corrupt, open_failure, write_failure
from planform.store.log import Log
from planform.store.mark import MARK, HighWaterMark

SAVED_AT: Final = "saved-at"
"""In the `meta` of a backup: when it was made, in seconds since 1970."""
SKIPPED: Final = 1 << 30
WRITES_PER_SECOND: Final = 1_000_000
"""More than any machine can do. Resource versions skipped at a restore for each second since the backup."""

# Everything here must hold above the floor F: no gaps, and each change can still say what it replaced.
_LAWS = (
    (
        "SELECT max(rv) - F - count(*) FROM log, (SELECT value AS F FROM meta WHERE name = 'floor') WHERE rv > F",
        "changes are missing above the floor",
    ),
    (
        """SELECT count(*) FROM log JOIN (SELECT value AS F FROM meta WHERE name = 'floor')
           LEFT JOIN log AS before ON before.rv = log.previous
           WHERE log.rv > F AND log.previous > 0 AND (before.rv IS NULL OR before.deleted
             OR (before.resource, before.namespace, before.name) <> (log.resource, log.namespace, log.name))""",
        "changes do not lead back to the version they replaced",
    ),
)


def copy_database(source: Path, target: Path, connect: Connect) -> None:
    """Copy the committed state to `target`, which must not exist. It appears there only when it is whole and synced."""
    if target.exists():
        raise UsageError(f"backup {target} exists already", hint="choose a new name for each backup")
    partial = target.with_name(f".{target.name}.partial")
    try:
        os.close(os.open(partial, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o600))
        with (
            contextlib.closing(connect(source, read_only=True)) as database,
            contextlib.closing(sqlite3.connect(partial, isolation_level=None)) as copy,
        ):
            database.backup(copy)
            copy.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (SAVED_AT, int(time.time())))
            copy.execute("PRAGMA journal_mode = DELETE")  # one file, whole without companions
        with partial.open("rb") as file:
            os.fsync(file.fileno())
        partial.rename(target)
        sync_directory(target.parent)
    except (sqlite3.Error, OSError) as error:
        partial.unlink(missing_ok=True)
        raise write_failure(error, target) from error


def restore_backup(backup: Path, directory: Path) -> None:
    """Put a backup into a data directory that holds no database yet, after checking it.

    Raises StoreLocked, StoreCorrupt, StoreTooNew, or UsageError if there is a database already.
    """
    check_header(backup, newest=len(MIGRATIONS))
    if problems := check_database(backup, connect):
        raise corrupt(backup, "; ".join(problems))
    owned = DataDirectory.acquire(directory)
    try:
        target = directory / DATABASE
        if target.exists():
            raise UsageError(
                f"{target} exists already", hint="restore into an empty directory, or move the old one away"
            )
        partial = directory / f".{DATABASE}.partial"
        os.close(os.open(partial, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o600))
        shutil.copyfile(backup, partial)
        _continue_above(partial, directory / MARK)
        with partial.open("rb") as file:
            os.fsync(file.fileno())
        partial.rename(target)
        sync_directory(directory)
    finally:
        owned.close()


def _continue_above(copy: Path, mark: Path) -> None:
    """Let resource versions of a restored database go on above all that the control plane gave out after its backup.

    Nobody knows how many these were. So many as could not have been written since are skipped, and history begins
    there: whoever watches from before is told to list again, and nothing that was cached passes for current.
    """
    with contextlib.closing(sqlite3.connect(copy, isolation_level=None)) as database:
        meta = dict(database.execute("SELECT name, value FROM meta"))
        (last,) = database.execute("SELECT coalesce(max(rv), 0) FROM log").fetchone()
        age = max(0.0, time.time() - meta.get(SAVED_AT, copy.stat().st_mtime))
        known = HighWaterMark(mark)
        try:
            rv = max(known.value, max(last, meta["floor"]) + SKIPPED + int(age) * WRITES_PER_SECOND)
            Log(database, copy, None).compact(meta["floor"], rv)
            database.execute("DELETE FROM meta WHERE name = ?", (SAVED_AT,))
            known.raise_to(rv)
        finally:
            known.close()


def check_database(path: Path, connect: Connect) -> list[str]:
    """What is wrong with a database file: its structure, the checksum of each value, the laws of the log."""
    try:
        with contextlib.closing(connect(path, read_only=True)) as database:
            database.execute("BEGIN")  # one state of the file for all that follows
            problems = [str(row[0]) for row in database.execute("PRAGMA integrity_check(20)") if row[0] != "ok"]
            if problems:
                return problems
            for rv, resource, namespace, name, checksum, value in database.execute(
                "SELECT rv, resource, namespace, name, checksum, value FROM log"
            ):
                if crc32(value, rv & 0xFFFFFFFF) != checksum:
                    problems.append(f"checksum mismatch in {resource} {namespace}/{name} at {rv}")
            for query, law in _LAWS:
                (violations,) = database.execute(query).fetchone()
                if violations:
                    problems.append(f"{violations} {law}")
            return problems
    except sqlite3.Error as error:
        return [str(open_failure(error, path))]
    except StoreError as error:
        return [str(error)]
