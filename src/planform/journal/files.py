"""The journal's file: opened, brought to the current format, or set aside.

The journal is worth having and never worth stopping for. A file that is damaged, or was written by a newer planform, is
renamed with a line in the log (the last one so renamed is kept), and a new one takes its place.
"""

from __future__ import annotations

import contextlib
import logging
import os
import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Final
from urllib.parse import quote

from planform.errors import PlanformError

log = logging.getLogger(__name__)

APPLICATION_ID: Final = int.from_bytes(b"plnj", "big")
ASIDE: Final = ".set-aside"
_CHECKED_BYTES: Final = 16 << 20  # a check reads the whole file; damage in a larger one shows when it is met
_DAMAGED: Final = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)

# The migration at index N leads from format N to N + 1; what is released never changes, the list only grows.
#
# A part is a piece of a pack: what a run brings that is new is compressed as one, and its parts have consecutive ids,
# the first that of the pack. How many runs name a part stands apart in `uses`, so that one more run rewrites a few
# narrow rows. `runs.parts` are the ids of a run's parts in the order of their places, eight bytes each. `latest` marks
# the last run of each object, which no limit removes.
_MIGRATIONS: Final[Sequence[Sequence[str]]] = (
    (
        "CREATE TABLE packs (id INTEGER PRIMARY KEY, parts INTEGER NOT NULL, content BLOB NOT NULL)",
        """CREATE TABLE parts (
            id INTEGER PRIMARY KEY,
            digest TEXT NOT NULL UNIQUE,
            pack INTEGER NOT NULL,
            start INTEGER NOT NULL,
            size INTEGER NOT NULL
        )""",
        "CREATE TABLE uses (part INTEGER PRIMARY KEY, runs INTEGER NOT NULL)",
        """CREATE TABLE runs (
            id INTEGER PRIMARY KEY,
            uid TEXT NOT NULL,
            kind TEXT NOT NULL,
            namespace TEXT NOT NULL,
            name TEXT NOT NULL,
            started TEXT NOT NULL,
            seconds REAL NOT NULL,
            cause TEXT NOT NULL,
            revision TEXT NOT NULL,
            failure TEXT NOT NULL,
            latest INTEGER NOT NULL,
            parts BLOB NOT NULL,
            body BLOB NOT NULL
        )""",
        "CREATE INDEX runs_of_object ON runs (uid, id)",
        "CREATE INDEX latest_runs ON runs (kind) WHERE latest = 1",
        "CREATE INDEX older_runs ON runs (started) WHERE latest = 0",
        "CREATE TABLE standing (uid TEXT, kind TEXT, state BLOB NOT NULL, PRIMARY KEY (uid, kind)) WITHOUT ROWID",
        "CREATE TABLE meta (name TEXT PRIMARY KEY, value INTEGER NOT NULL)",
        "INSERT INTO meta VALUES ('bytes', 0)",
        f"PRAGMA application_id = {APPLICATION_ID}",
    ),
)
FORMAT: Final = len(_MIGRATIONS)


class JournalUnreadable(PlanformError):
    """The file is not a journal that this planform can read."""

    reason = "JournalUnreadable"


def open_file(path: Path | None) -> sqlite3.Connection:
    """The connection that writes; None keeps everything in memory. Raises sqlite3.Error or OSError for what setting
    the file aside does not help against: no room, no permission."""
    if path is None:
        return _prepared(_connect(":memory:"))
    try:
        return _opened(path)
    except sqlite3.DatabaseError as error:
        if not is_damage(error):
            raise
        log.warning("%s is damaged (%s): starting a new one", path, error, extra={"kept": str(set_aside(path))})
    except JournalUnreadable as error:
        log.warning("%s: starting a new one", error.message, extra={"kept": str(set_aside(path))})
    return _opened(path)


def open_read_only(path: Path) -> sqlite3.Connection:
    """For reading a journal, also while its control plane runs. Raises JournalUnreadable."""
    try:
        if not path.is_file():
            raise JournalUnreadable(f"there is no journal {path}")
        database = _connect(f"file:{quote(str(path))}?mode=ro")
        if _check_format(database, str(path)) == 0:
            raise JournalUnreadable(f"{path} holds no journal")
    except sqlite3.Error as error:
        raise JournalUnreadable(f"cannot read {path}: {error}") from error
    return database


def set_aside(path: Path) -> Path:
    """Rename the file, and the write-ahead log that belongs to it; an older one set aside is replaced."""
    aside = path.with_name(path.name + ASIDE)
    for suffix in ("", "-wal", "-shm"):
        source, target = (each.with_name(each.name + suffix) for each in (path, aside))
        with contextlib.suppress(FileNotFoundError):
            target.unlink()
        with contextlib.suppress(FileNotFoundError):
            source.rename(target)
    return aside


def is_damage(error: BaseException) -> bool:
    """Whether SQLite says that the file itself is broken."""
    return (getattr(error, "sqlite_errorcode", None) or -1) & 0xFF in _DAMAGED


def _opened(path: Path) -> sqlite3.Connection:
    path.parent.mkdir(parents=True, exist_ok=True)
    os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
    database = _connect(f"file:{quote(str(path))}?mode=rw")
    try:
        database.execute("PRAGMA journal_mode = WAL")
        # A crash of the machine may lose the last commits, never the file: exactly what the journal promises.
        database.execute("PRAGMA synchronous = NORMAL")
        if path.stat().st_size <= _CHECKED_BYTES:
            problems = [str(row[0]) for row in database.execute("PRAGMA quick_check(1)") if row[0] != "ok"]
            if problems:
                raise JournalUnreadable(f"{path} is damaged ({problems[0]})")
        return _prepared(database, str(path))
    except BaseException:
        database.close()
        raise


def _prepared(database: sqlite3.Connection, name: str = "journal") -> sqlite3.Connection:
    for target, statements in enumerate(_MIGRATIONS[_check_format(database, name) :], 1):
        database.execute("BEGIN IMMEDIATE")
        for statement in statements:
            database.execute(statement)
        database.execute(f"PRAGMA user_version = {target}")
        database.execute("COMMIT")
    return database


def _check_format(database: sqlite3.Connection, name: str) -> int:
    (version,) = database.execute("PRAGMA user_version").fetchone()
    (application,) = database.execute("PRAGMA application_id").fetchone()
    (tables,) = database.execute("SELECT count(*) FROM sqlite_master").fetchone()
    if tables and application != APPLICATION_ID:
        raise JournalUnreadable(f"{name} is a database, but not a journal")
    if version > FORMAT:
        raise JournalUnreadable(f"{name} has format {version}, written by a newer planform; this one knows {FORMAT}")
    return int(version)


def _connect(address: str) -> sqlite3.Connection:
    return sqlite3.connect(address, uri=address != ":memory:", isolation_level=None, check_same_thread=False, timeout=5)
