"""The database file: how it is opened, which format it has, and when it is refused.

Opening checks in the order of cost. The header says whether this is a planform database at all and of a format that
this version knows; a newer one is refused before SQLite touches the file. Then comes SQLite's quick_check, but only for
files that are small or were left by a crash (a clean close removes the write-ahead log): it reads the whole file, and
loading reads every row and its checksum anyway.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import Literal, Protocol
from urllib.parse import quote

from planform.errors import StoreError, StoreTooNew
from planform.store.failures import corrupt, open_failure

Synchronous = Literal["FULL", "NORMAL", "OFF"]

APPLICATION_ID = int.from_bytes(b"plnf", "big")
PAGE_SIZE = 8192
SMALL_FILE = 64 << 20
WAL_LIMIT = 64 << 20
STATEMENTS = 300  # prepared statements kept; one for each size of a batch

# The migration at index N leads from format N to N + 1; what is released never changes, the list only grows.
#
# `log` is everything: a row for each change after the floor, and of the history below it only what a current object,
# or the first change of one after the floor, still refers to. Resource versions have no gaps above the floor.
# `previous` is the version that a row replaced, 0 for none. Values stand last, so that keys are read without them.
MIGRATIONS: tuple[tuple[str, ...], ...] = (
    (
        """CREATE TABLE log (
            rv INTEGER PRIMARY KEY,
            resource TEXT NOT NULL,
            namespace TEXT NOT NULL,
            name TEXT NOT NULL,
            previous INTEGER NOT NULL,
            deleted INTEGER NOT NULL,
            checksum INTEGER NOT NULL,
            value BLOB NOT NULL
        )""",
        "CREATE TABLE meta (name TEXT PRIMARY KEY, value INTEGER NOT NULL)",
        "INSERT INTO meta VALUES ('floor', 0)",
        """CREATE VIEW objects AS
            SELECT resource, namespace, name, max(rv) AS rv, value FROM log
            GROUP BY resource, namespace, name HAVING NOT deleted""",
        f"PRAGMA application_id = {APPLICATION_ID}",
    ),
)


class Connect(Protocol):
    """How a connection is made: the seam at which tests let statements fail."""

    def __call__(self, path: Path, *, read_only: bool) -> sqlite3.Connection: ...


def connect(
    path: Path, *, read_only: bool, factory: type[sqlite3.Connection] = sqlite3.Connection
) -> sqlite3.Connection:
    """A connection without implicit transactions, to be used by one thread at a time."""
    mode = "ro" if read_only else "rw"
    return sqlite3.connect(
        f"file:{quote(str(path))}?mode={mode}",
        uri=True,
        isolation_level=None,
        check_same_thread=False,
        cached_statements=STATEMENTS,
        timeout=10,
        factory=factory,
    )


def open_database(
    path: Path,
    *,
    connect: Connect = connect,
    synchronous: Synchronous = "FULL",
    migrations: Sequence[Sequence[str]] = MIGRATIONS,
    not_new: StoreError | None = None,
) -> sqlite3.Connection:
    """The one connection that writes, its file checked and brought to the current format.

    Raises StoreCorrupt, StoreTooNew, DiskFull or StoreFailed, and `not_new` if the database is empty; the file is then
    as it was.
    """
    crashed = _has_write_ahead_log(path)
    check_header(path, newest=len(migrations))
    database: sqlite3.Connection | None = None
    try:
        database = connect(path, read_only=False)
        version = check_format(database, path, newest=len(migrations))
        if not version and not_new is not None:
            leave(database, path, connect)
            raise not_new
        database.execute(f"PRAGMA page_size = {PAGE_SIZE}")
        database.execute("PRAGMA journal_mode = WAL")
        database.execute(f"PRAGMA synchronous = {synchronous}")
        database.execute("PRAGMA wal_autocheckpoint = 0")  # the store says when, so that no writer waits for one
        database.execute(f"PRAGMA journal_size_limit = {WAL_LIMIT}")
        database.execute("PRAGMA temp_store = MEMORY")
        if crashed or path.stat().st_size <= SMALL_FILE:
            problems = [str(row[0]) for row in database.execute("PRAGMA quick_check(3)") if row[0] != "ok"]
            if problems:
                raise corrupt(path, "; ".join(problems))
        migrate(database, version, migrations)
    except BaseException as error:
        if database is not None:
            database.close()
        if isinstance(error, sqlite3.Error | OSError):
            raise open_failure(error, path) from error
        raise
    return database


def leave(database: sqlite3.Connection, path: Path, connect: Connect) -> None:
    """Close a connection and let the write-ahead log stay as it is, to be inspected.

    The last connection to close moves it into the database and removes it; here that is one which cannot write.
    """
    with closing(connect(path, read_only=True)) as last:
        with suppress(sqlite3.Error):
            last.execute("SELECT count(*) FROM sqlite_master").fetchone()
        database.close()


def check_header(path: Path, *, newest: int) -> None:
    """Refuse what is not ours or not readable yet, by the first hundred bytes; an empty file is a new database."""
    try:
        with path.open("rb") as file:
            header = file.read(100)
    except OSError as error:
        raise open_failure(error, path) from error
    if not header:
        return
    if len(header) < 100 or not header.startswith(b"SQLite format 3\0"):
        raise corrupt(path, "it is not a SQLite database")
    version, application = (int.from_bytes(header[at : at + 4], "big") for at in (60, 68))
    if application not in (0, APPLICATION_ID):
        raise corrupt(path, f"it belongs to another application (id {application:#x})")
    if application == APPLICATION_ID and version > newest:
        raise too_new(path, version, newest)


def check_format(database: sqlite3.Connection, path: Path, *, newest: int) -> int:
    """The format of the file, the write-ahead log included; 0 for a new one. Reads only."""
    (version,) = database.execute("PRAGMA user_version").fetchone()
    (application,) = database.execute("PRAGMA application_id").fetchone()
    (tables,) = database.execute("SELECT count(*) FROM sqlite_master").fetchone()
    if application != APPLICATION_ID and (tables or version):
        raise corrupt(path, "it is a SQLite database, but not one of planform")
    if version > newest:
        raise too_new(path, version, newest)
    return int(version)


def migrate(database: sqlite3.Connection, version: int, migrations: Sequence[Sequence[str]]) -> None:
    """Bring the format up to date, one transaction for each step: a crash leaves a format that is known."""
    for target, statements in enumerate(migrations[version:], version + 1):
        database.execute("BEGIN IMMEDIATE")
        try:
            for statement in statements:
                database.execute(statement)
            database.execute(f"PRAGMA user_version = {target}")
            database.execute("COMMIT")
        except sqlite3.Error:
            if database.in_transaction:
                database.execute("ROLLBACK")
            raise


def too_new(path: Path, version: int, newest: int) -> StoreTooNew:
    refusal = StoreTooNew(f"{path} has format {version}, written by a newer planform; this one knows up to {newest}")
    refusal.hint = "start the newer planform, or restore a backup that this version made"
    return refusal


def _has_write_ahead_log(path: Path) -> bool:
    try:
        return path.with_name(f"{path.name}-wal").stat().st_size > 0
    except FileNotFoundError:
        return False
