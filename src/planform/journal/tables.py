"""The journal's tables: one transaction for each batch, and what has become too much goes in the same one.

Everything here runs in the journal's thread. It is arranged so that little Python stands between two calls that let
the event loop run (SQLite, zlib): a busy thread would cost the loop milliseconds.
"""

from __future__ import annotations

import sqlite3
import zlib
from array import array
from collections import Counter, OrderedDict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

import orjson

from planform.clock import micro_timestamp, parse_timestamp
from planform.journal.outbox import Batch, Entry
from planform.journal.records import Run, RunSummary, decode_run

_KNOWN: Final = 20_000
_SLICE: Final = 64
_SUMMARY: Final = "id, uid, kind, namespace, name, started, seconds, cause, revision, failure"
_AMONG: Final = "IN (SELECT value FROM json_each(?))"


@dataclass(frozen=True, slots=True)
class Limits:
    """How much is kept beside the latest run of every object."""

    runs_per_object: int = 10
    bytes: int = 256 << 20
    age: timedelta = timedelta(days=7)


@dataclass(frozen=True, slots=True)
class Written:
    """How a transaction went."""

    runs: int
    removed: int
    bytes: int


class Tables:
    """The one connection that writes, with what it remembers of the file."""

    def __init__(self, database: sqlite3.Connection, limits: Limits) -> None:
        self._database = database
        self._limits = limits
        self._known: OrderedDict[str, int] = OrderedDict()
        """Digests of parts that are in the file, and their ids; those used last."""
        self._next_part = 1 + _number(database, "SELECT id + parts - 1 FROM packs ORDER BY id DESC LIMIT 1")
        self.last_run = _number(database, "SELECT max(id) FROM runs")
        self._bytes = _number(database, "SELECT value FROM meta WHERE name = 'bytes'")
        self._bytes_before = self._bytes

    def close(self) -> None:
        self._database.close()

    # -- writing

    def write(self, batch: Batch, now: datetime) -> Written:
        """Write a batch whole or not at all. Raises sqlite3.Error."""
        execute = self._database.execute
        execute("BEGIN IMMEDIATE")
        try:
            removed = self._forget(batch.forgotten)
            self._remember(batch.states)
            if batch.runs:
                self._add(batch.runs)
                removed += self._sweep({entry.summary.uid for entry in batch.runs}, now)
            execute("UPDATE meta SET value = ? WHERE name = 'bytes'", (self._bytes,))
            execute("COMMIT")
        except BaseException:
            self._known.clear()
            self._bytes = self._bytes_before
            if self._database.in_transaction:
                execute("ROLLBACK")
            raise
        self._bytes_before = self._bytes
        return Written(len(batch.runs), removed, self._bytes)

    def retain(self, kinds: Collection[str]) -> int:
        """Forget the objects of all other kinds; gives how many were forgotten."""
        known = self._database.execute("SELECT kind FROM runs WHERE latest = 1 UNION SELECT kind FROM standing")
        return sum(self.forget_kind(kind) for (kind,) in known.fetchall() if kind not in kinds)

    def forget_kind(self, kind: str) -> int:
        """Forget the objects of a kind; gives how many were forgotten."""
        known = self._database.execute(
            "SELECT uid FROM runs WHERE latest = 1 AND kind = :kind UNION SELECT uid FROM standing WHERE kind = :kind",
            {"kind": kind},
        )
        gone = [uid for (uid,) in known.fetchall()]
        for some in _slices(gone):
            self.write(Batch(forgotten=frozenset(some)), datetime.min)
        return len(gone)

    def _forget(self, uids: Collection[str]) -> int:
        if not uids:
            return 0
        wanted = orjson.dumps(list(uids)).decode()
        runs = self._database.execute(f"SELECT id FROM runs WHERE uid {_AMONG}", (wanted,)).fetchall()
        self._database.execute(f"DELETE FROM standing WHERE uid {_AMONG}", (wanted,))
        return self._drop([run for (run,) in runs])

    def _remember(self, states: Mapping[str, Mapping[str, bytes]]) -> None:
        rows = [(uid, kind, state) for uid, of in states.items() for kind, state in of.items()]
        self._insert("INSERT OR REPLACE INTO standing", rows)

    def _insert(self, into: str, rows: Sequence[tuple[object, ...]]) -> None:
        """Many at once: after each statement the thread has to wait for its turn among others."""
        for some in _slices(rows):
            marks = ", ".join([f"({', '.join('?' * len(rows[0]))})"] * len(some))
            self._database.execute(f"{into} VALUES {marks}", [value for row in some for value in row])

    def _add(self, entries: list[Entry]) -> None:
        ids = self._part_ids(entries)
        uids = orjson.dumps(list({entry.summary.uid for entry in entries})).decode()
        self._database.execute(f"UPDATE runs SET latest = 0 WHERE latest = 1 AND uid {_AMONG}", (uids,))
        newest = {entry.summary.uid: entry.summary.id for entry in entries}
        rows: list[tuple[object, ...]] = []
        for entry in entries:
            summary, body = entry.summary, _packed(entry.body)
            parts = array("q", [ids[digest] for digest in entry.parts]).tobytes()
            self._bytes += len(body) + len(parts)
            rows.append(
                (
                    summary.id,
                    summary.uid,
                    summary.kind,
                    summary.namespace,
                    summary.name,
                    micro_timestamp(summary.started),
                    summary.seconds,
                    summary.trigger,
                    summary.composition_revision,
                    summary.failure,
                    int(newest[summary.uid] == summary.id),
                    parts,
                    body,
                )
            )
        self._insert("INSERT INTO runs", rows)
        self._count(Counter(ids[digest] for entry in entries for digest in entry.parts))

    def _part_ids(self, entries: list[Entry]) -> dict[str, int]:
        """The id of every part that the runs name; what is not in the file yet is put there."""
        digests = {digest for entry in entries for digest in entry.parts}
        known = self._known
        ids = {digest: known[digest] for digest in digests if digest in known}
        if len(ids) < len(digests):
            unsure = orjson.dumps([digest for digest in digests if digest not in ids]).decode()
            ids.update(
                self._database.execute(f"SELECT digest, id FROM parts WHERE digest {_AMONG}", (unsure,)).fetchall()
            )
        if len(ids) < len(digests):
            self._add_parts(entries, ids)
        for digest, part in ids.items():
            known[digest] = part
            known.move_to_end(digest)
        while len(known) > _KNOWN:
            known.popitem(last=False)
        return ids

    def _add_parts(self, entries: list[Entry], ids: dict[str, int]) -> None:
        """Pack what each run brings that is new, and note the ids of its parts."""
        rows: list[tuple[int, str, int, int, int]] = []
        packs: list[tuple[object, ...]] = []
        for entry in entries:
            pack, start = self._next_part, 0
            fresh = [digest for digest in entry.parts if digest not in ids]
            for digest in fresh:
                size = len(entry.parts[digest])
                rows.append((self._next_part, digest, pack, start, size))
                ids[digest] = self._next_part
                self._next_part += 1
                start += size
            if fresh:
                content = _packed(b"".join([entry.parts[digest] for digest in fresh]))
                packs.append((pack, len(fresh), content))
                self._bytes += len(content)
        self._insert("INSERT INTO packs", packs)
        self._database.execute(
            "INSERT INTO parts SELECT value ->> 0, value ->> 1, value ->> 2, value ->> 3, value ->> 4"
            " FROM json_each(?)",
            (orjson.dumps(rows).decode(),),
        )

    def _count(self, uses: Mapping[int, int]) -> None:
        """So many more runs name these parts, or fewer."""
        self._database.execute(
            "INSERT INTO uses SELECT value ->> 0, value ->> 1 FROM json_each(?) WHERE true"
            " ON CONFLICT (part) DO UPDATE SET runs = runs + excluded.runs",
            (orjson.dumps(list(uses.items())).decode(),),
        )

    # -- limits

    def _sweep(self, uids: Collection[str], now: datetime) -> int:
        """Remove what is over a limit; the latest run of each object stays."""
        too_many = self._database.execute(
            "SELECT id FROM (SELECT id, row_number() OVER (PARTITION BY uid ORDER BY id DESC) AS place FROM runs"
            f" WHERE uid {_AMONG}) WHERE place > ?",
            (orjson.dumps(list(uids)).decode(), max(1, self._limits.runs_per_object)),
        ).fetchall()
        removed = self._drop([run for (run,) in too_many])
        removed += self._drop(self._older("AND started < ?", micro_timestamp(now - self._limits.age)))
        while self._bytes > self._limits.bytes and (oldest := self._older()):
            removed += self._drop(oldest)
        return removed

    def _older(self, condition: str = "", *values: str) -> list[int]:
        """Some of the oldest runs that are not the latest of their object."""
        rows = self._database.execute(
            f"SELECT id FROM runs WHERE latest = 0 {condition} ORDER BY started LIMIT {_SLICE}", values
        )
        return [run for (run,) in rows.fetchall()]

    def _drop(self, runs: list[int]) -> int:
        """Remove runs, and the parts that no other run names."""
        if not runs:
            return 0
        wanted = orjson.dumps(runs).decode()
        uses: Counter[int] = Counter()
        rows = self._database.execute(f"SELECT parts, length(body) FROM runs WHERE id {_AMONG}", (wanted,))
        for parts, size in rows.fetchall():
            uses.subtract(array("q", parts))
            self._bytes -= size + len(parts)
        self._database.execute(f"DELETE FROM runs WHERE id {_AMONG}", (wanted,))
        self._count(uses)
        self._drop_unused(orjson.dumps(list(uses)).decode())
        return len(runs)

    def _drop_unused(self, touched: str) -> None:
        unused = self._database.execute(
            f"SELECT id, digest, pack FROM parts JOIN uses ON part = id WHERE id {_AMONG} AND runs <= 0", (touched,)
        ).fetchall()
        if not unused:
            return
        gone = orjson.dumps([part for part, _, _ in unused]).decode()
        self._database.execute(f"DELETE FROM parts WHERE id {_AMONG}", (gone,))
        self._database.execute(f"DELETE FROM uses WHERE part {_AMONG}", (gone,))
        for _, digest, _ in unused:
            self._known.pop(digest, None)
        empty = self._database.execute(
            f"SELECT id, length(content) FROM packs WHERE id {_AMONG} AND NOT EXISTS"
            " (SELECT 1 FROM parts WHERE parts.id >= packs.id AND parts.id < packs.id + packs.parts)",
            (orjson.dumps(list({pack for _, _, pack in unused})).decode(),),
        ).fetchall()
        self._bytes -= sum(size for _, size in empty)
        self._database.execute(
            f"DELETE FROM packs WHERE id {_AMONG}", (orjson.dumps([pack for pack, _ in empty]).decode(),)
        )


# -- reading, also by those who only read


def runs_of(database: sqlite3.Connection, uid: str, limit: int) -> list[RunSummary]:
    """The newest first."""
    return _summaries(database, "WHERE uid = ? ORDER BY id DESC LIMIT ?", uid, limit)


def latest_runs(database: sqlite3.Connection, kind: str) -> list[RunSummary]:
    """The latest run of every object of a kind, or of every kind if that is empty, by namespace and name."""
    if not kind:
        return _summaries(database, "WHERE latest = 1 ORDER BY kind, namespace, name")
    return _summaries(database, "WHERE latest = 1 AND kind = ? ORDER BY namespace, name", kind)


def runs_named(database: sqlite3.Connection, namespace: str, name: str) -> list[RunSummary]:
    """The latest runs of objects of that name, the newest first; for readers who do not know a uid."""
    return _summaries(database, "WHERE latest = 1 AND namespace = ? AND name = ? ORDER BY id DESC", namespace, name)


def run_of(database: sqlite3.Connection, run: int) -> Run | None:
    """A run with all its parts."""
    row = database.execute("SELECT body, parts FROM runs WHERE id = ?", (run,)).fetchone()
    if row is None:
        return None
    ids = array("q", row[1]).tolist()
    found = database.execute(
        f"SELECT id, pack, start, size FROM parts WHERE id {_AMONG}", (orjson.dumps(ids).decode(),)
    ).fetchall()
    wanted = orjson.dumps(list({pack for _, pack, _, _ in found})).decode()
    packs = database.execute(f"SELECT id, content FROM packs WHERE id {_AMONG}", (wanted,)).fetchall()
    unpacked = {pack: zlib.decompress(content) for pack, content in packs}
    values = {part: orjson.loads(unpacked[pack][start : start + size]) for part, pack, start, size in found}
    return decode_run(zlib.decompress(row[0]), [values.get(part) for part in ids])


def last_runs_of(database: sqlite3.Connection, kind: str) -> dict[str, bytes]:
    return dict(database.execute("SELECT uid, state FROM standing WHERE kind = ?", (kind,)).fetchall())


def _summaries(database: sqlite3.Connection, which: str, *values: object) -> list[RunSummary]:
    return [
        RunSummary(
            id=id,
            uid=uid,
            kind=kind,
            namespace=namespace,
            name=name,
            started=parse_timestamp(started),
            seconds=seconds,
            trigger=cause,
            composition_revision=revision,
            failure=failure,
        )
        for id, uid, kind, namespace, name, started, seconds, cause, revision, failure in database.execute(
            f"SELECT {_SUMMARY} FROM runs {which}", values
        ).fetchall()
    ]


def _packed(content: bytes) -> bytes:
    return zlib.compress(content, 1)


def _number(database: sqlite3.Connection, query: str) -> int:
    row: tuple[Any, ...] | None = database.execute(query).fetchone()
    return int(row[0] or 0) if row else 0


def _slices(items: Iterable[Any]) -> Iterator[list[Any]]:
    every = list(items)
    return (every[at : at + _SLICE] for at in range(0, len(every), _SLICE))
