"""The change log on disk: append, load, read back, compact. All SQL that runs after opening is here.

A batch is one INSERT statement that commits by itself. The GIL is then released once for a whole batch, disk included,
rather than twice for each row; with a busy event loop every return to Python can cost a thread several milliseconds.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from sys import intern
from typing import Any, NamedTuple
from zlib import crc32

from planform.store.failures import corrupt, open_failure, write_failure
from planform.store.mark import HighWaterMark
from planform.store.records import Change, ChangeType, Codec, Entry, Key
from planform.store.tables import Table

ROWS_PER_STATEMENT = 256
BYTES_PER_READ = 4 << 20

_READ = """
    SELECT log.rv, log.resource, log.namespace, log.name, log.previous, log.deleted, log.value, before.value
    FROM log LEFT JOIN log AS before ON before.rv = log.previous
    WHERE log.rv > ? AND log.rv <= ? ORDER BY log.rv"""


class Loaded(NamedTuple):
    """What a database held when it was opened. `history` is about how many bytes the log keeps above the floor."""

    tables: dict[str, Table]
    revision: int
    floor: int
    history: int


class Log:
    """The writing side; every method runs in the writer's thread."""

    def __init__(
        self, database: sqlite3.Connection, path: Path, codec: Codec | None, mark: HighWaterMark | None = None
    ) -> None:
        self._database = database
        self._path = path
        self._codec = codec
        self._mark = mark

    def load(self) -> Loaded:
        """Read every row once, in order: the current objects are what remains of the last row of each key."""
        contents: dict[str, dict[str, dict[str, Entry]]] = {}
        history = rv = 0
        try:
            (floor,) = self._database.execute("SELECT value FROM meta WHERE name = 'floor'").fetchone()
            rows = self._database.execute(
                "SELECT rv, resource, namespace, name, deleted, checksum, value FROM log ORDER BY rv"
            )
            for rv, resource, namespace, name, deleted, checksum, value in rows:
                if crc32(value, rv & 0xFFFFFFFF) != checksum:
                    raise corrupt(self._path, f"checksum mismatch in {resource} {namespace}/{name} at {rv}")
                history += len(value) if rv > floor else 0
                namespaces = contents.get(resource)
                if namespaces is None:
                    namespaces = contents[intern(resource)] = {}
                names = namespaces.get(namespace)
                if names is None:
                    names = namespaces[intern(namespace)] = {}
                if deleted:
                    names.pop(name, None)
                else:
                    names[name] = Entry(rv, value)
        except sqlite3.Error as error:
            raise open_failure(error, self._path) from error
        if self._codec is not None:
            _decode(contents, self._codec)
        tables = {resource: Table.of(resource, namespaces) for resource, namespaces in contents.items()}
        return Loaded(tables, max(rv, floor), floor, history)

    def append(self, changes: Sequence[Change]) -> None:
        """Make the changes durable, all or none. Raises DiskFull, or StoreFailed when no more may be assumed."""
        try:
            if len(changes) <= ROWS_PER_STATEMENT:
                self._insert(changes)
            else:
                self._database.execute("BEGIN IMMEDIATE")
                for start in range(0, len(changes), ROWS_PER_STATEMENT):
                    self._insert(changes[start : start + ROWS_PER_STATEMENT])
                self._database.execute("COMMIT")
        except Exception as error:
            self._roll_back()
            raise write_failure(error, self._path) from error
        if self._mark is not None:  # only now: a mark of what is not committed would refuse a sound store
            self._mark.raise_to(changes[-1].rv)

    def try_write(self) -> None:
        """Commit something that changes nothing, to see whether writes work again."""
        try:
            self._database.execute("UPDATE meta SET value = value WHERE name = 'floor'")
        except Exception as error:
            self._roll_back()
            raise write_failure(error, self._path) from error

    def compact(self, floor: int, target: int) -> None:
        """Raise the floor from `floor` to `target`: forget what was replaced or deleted up to there."""
        try:
            self._database.execute("BEGIN IMMEDIATE")
            self._database.execute(
                "DELETE FROM log WHERE rv IN (SELECT previous FROM log WHERE rv > ? AND rv <= ? AND previous > 0)",
                (floor, target),
            )
            self._database.execute("DELETE FROM log WHERE rv > ? AND rv <= ? AND deleted", (floor, target))
            self._database.execute("UPDATE meta SET value = ? WHERE name = 'floor'", (target,))
            self._database.execute("COMMIT")
        except Exception as error:
            self._roll_back()
            raise write_failure(error, self._path) from error

    def continue_from(self, loaded: Loaded, rv: int) -> Loaded:
        """The same objects, from where resource versions go on above `rv`; no history before that can be had."""
        self.compact(loaded.floor, rv)
        return loaded._replace(revision=rv, floor=rv, history=0)

    def checkpoint(self) -> None:
        """Move what the write-ahead log holds into the database, as far as no reader is in the way."""
        try:
            self._database.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
        except Exception as error:
            raise write_failure(error, self._path) from error
        if self._mark is not None:
            self._mark.sync()

    def close(self) -> None:
        self._database.close()
        if self._mark is not None:
            self._mark.close()

    def _insert(self, changes: Sequence[Change]) -> None:
        codec = self._codec
        parameters: list[Any] = []
        for change in changes:
            rv, key = change.rv, change.key
            value = change.value if codec is None else codec.encode(key.resource, change.value)
            deleted = 1 if change.type is ChangeType.DELETED else 0  # sqlite3 takes a detour for a bool
            parameters += (rv, *key, change.previous_rv, deleted, crc32(value, rv & 0xFFFFFFFF), value)
        self._database.execute(_insert_statement(len(changes)), parameters)

    def _roll_back(self) -> None:
        if self._database.in_transaction:
            with contextlib.suppress(sqlite3.Error):  # the first error is the one to report
                self._database.execute("ROLLBACK")


class LogReader:
    """The reading side, with a connection of its own that cannot write; every method runs in the reader's thread."""

    def __init__(self, database: sqlite3.Connection, path: Path, codec: Codec | None) -> None:
        self._database = database
        self._path = path
        self._codec = codec
        # From its first read on, a connection keeps the others' closing from being the last one (see Store.close).
        database.execute("SELECT value FROM meta WHERE name = 'floor'").fetchone()

    def read(self, after: int, upto: int) -> list[Change]:
        """The changes after one resource version up to another that are still there; fewer if they are large."""
        changes: list[Change] = []
        size = 0
        try:
            with contextlib.closing(self._database.execute(_READ, (after, upto))) as rows:
                for row in rows:
                    changes.append(self._change(*row))
                    size += len(changes[-1].value)
                    if size >= BYTES_PER_READ:
                        break
        except sqlite3.Error as error:
            raise open_failure(error, self._path) from error
        return changes

    def close(self) -> None:
        self._database.close()

    def _change(
        self,
        rv: int,
        resource: str,
        namespace: str,
        name: str,
        previous_rv: int,
        deleted: int,
        value: bytes,
        previous: bytes | None,
    ) -> Change:
        type = ChangeType.DELETED if deleted else ChangeType.MODIFIED if previous_rv else ChangeType.ADDED
        if self._codec is not None:
            value = self._codec.decode(resource, value)
            previous = None if previous is None else self._codec.decode(resource, previous)
        return Change(rv, Key(intern(resource), intern(namespace), name), type, value, previous, previous_rv)


def _decode(contents: dict[str, dict[str, dict[str, Entry]]], codec: Codec) -> None:
    for resource, namespaces in contents.items():
        for names in namespaces.values():
            for name, entry in names.items():
                names[name] = Entry(entry.rv, codec.decode(resource, entry.value))


@lru_cache(ROWS_PER_STATEMENT)
def _insert_statement(rows: int) -> str:
    return f"INSERT INTO log VALUES {', '.join(['(?, ?, ?, ?, ?, ?, ?, ?)'] * rows)}"
