"""The journal as controllers see it: recording never waits, reading does.

    record/remember/forget -> Outbox (bounded, on the loop) -> one thread -> SQLite

Values are serialised and masked on the loop, which takes microseconds, so that nothing secret and nothing that somebody
could still change waits in a queue. Compression and the disk are the thread's. A crash loses what was not written yet;
what was written is whole.
"""

from __future__ import annotations

import asyncio
import logging
import sqlite3
import zlib
from collections.abc import AsyncIterator, Callable, Collection
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Final, TypeVar

import msgspec
import orjson

from planform.apimachinery.jsonbody import to_keep
from planform.clock import Clock
from planform.functions.sending import hash_of
from planform.journal.files import is_damage, open_file, set_aside
from planform.journal.masking import RunMask
from planform.journal.outbox import Batch, Entry, Outbox
from planform.journal.records import Run, RunRecord, RunSummary, encode_run
from planform.journal.tables import Limits, Tables, Written, last_runs_of, latest_runs, run_of, runs_of
from planform.store.worker import Worker
from planform.telemetry.metrics import MetricsRegistry

log = logging.getLogger(__name__)

T = TypeVar("T")

WAIT_SECONDS: Final = 0.2
"""For so long a run waits for others to be written with it: one transaction for many takes far less than several for
few."""
_IDENTITY: Final = ("uid", "apiVersion", "kind", "namespace", "name", "started")
_BATCH: Final = 64
_QUEUED_RUNS: Final = 4096
_QUEUED_BYTES: Final = 16 << 20
_KEPT_INPUTS: Final = 256


class Journal:
    """Made by `open_journal`."""

    def __init__(
        self, path: Path | None, *, clock: Clock, metrics: MetricsRegistry, limits: Limits, worker: Worker
    ) -> None:
        self._path = path
        self._clock = clock
        self._limits = limits
        self._worker = worker
        self._outbox = Outbox(max_bytes=_QUEUED_BYTES, max_runs=_QUEUED_RUNS)
        self._inputs = _Inputs()
        self._something = asyncio.Event()
        self._much = asyncio.Event()  # so much waits that it should not wait longer
        self._writing = asyncio.Lock()
        self._next_run = 1
        self._reported_error = ""
        self._written = metrics.counter(
            "planform_journal_runs_total", "Runs that were written to the journal."
        ).labels()
        dropped = metrics.counter("planform_journal_dropped_runs_total", "Runs that were not written.", ["reason"])
        self._crowded, self._failed = dropped.labels("QueueFull"), dropped.labels("WriteFailed")
        self._bytes = metrics.gauge("planform_journal_bytes", "Bytes of runs and parts in the journal.").labels()
        queued = metrics.gauge("planform_journal_queued_runs", "Runs that wait to be written.").labels()
        self.stop_showing = metrics.before_render(lambda: queued.set(len(self._outbox)))

    # -- writing, without waiting

    def record(self, record: RunRecord) -> int:
        """Keep a run; gives its id. Never raises for what the run holds: what has no JSON form is kept as text."""
        run_id = self._next_run
        self._next_run += 1
        self._crowded.inc(self._outbox.add(_entry(run_id, record, self._inputs)))
        self._something.set()
        if self._outbox.is_filling:
            self._much.set()
        return run_id

    def remember(self, uid: str, kind: str, state: bytes) -> None:
        """Keep a small state of an object over restarts, in place of an earlier one of that kind."""
        self._outbox.remember(uid, kind, state)
        self._something.set()

    def forget(self, uid: str) -> None:
        """The object is gone: so are its runs and states."""
        self._outbox.forget(uid)
        self._something.set()

    # -- reading: everything recorded before the call is seen

    async def runs(self, uid: str, limit: int = 10) -> list[RunSummary]:
        """The runs of an object, the newest first."""
        return await self._read(lambda database: runs_of(database, uid, limit), [])

    async def run(self, id: int) -> Run | None:
        """A run with all its parts; None if it is not kept."""
        return await self._read(lambda database: run_of(database, id), None)

    async def latest(self, kind: str = "") -> list[RunSummary]:
        """The latest run of every object of a kind, named with its group: `XBucket.example.org`; empty means any."""
        return await self._read(lambda database: latest_runs(database, kind), [])

    async def last_runs(self, kind: str) -> dict[str, bytes]:
        """What `remember` was given for this kind, by uid."""
        return await self._read(lambda database: last_runs_of(database, kind), {})

    async def forget_kind(self, kind: str) -> int:
        """The kind is gone: so are all its objects. Gives how many were forgotten."""
        return await self._read(lambda _: self._tables.forget_kind(kind), 0)

    async def retain(self, kinds: Collection[str]) -> int:
        """Forget the objects of all other kinds: what a crash kept `forget` from saying. Gives how many were forgotten.

        To be called before controllers run: of a kind that is newer than the list, a run might be forgotten, too.
        """
        return await self._read(lambda _: self._tables.retain(kinds), 0)

    async def flush(self) -> None:
        """Write everything that waits. A failure is logged and counted, never raised."""
        async with self._writing:
            while self._outbox:
                batch = self._outbox.take(_BATCH)
                try:
                    written = await self._worker.run(partial(self._write, batch))
                except (sqlite3.Error, OSError) as error:
                    self._failed.inc(len(batch.runs))
                    self._report_error(f"cannot write the journal: {error}")
                else:
                    self._reported_error = ""
                    self._written.inc(written.runs)
                    self._bytes.set(written.bytes)

    # -- the thread, and who gives it work

    async def start(self) -> None:
        await self._worker.run(self._open)
        self._next_run = self._tables.last_run + 1

    async def keep_writing(self) -> None:
        """Runs until cancelled; at rest it waits for the next record and no timer runs."""
        while True:
            await self._something.wait()
            with suppress(TimeoutError):
                async with asyncio.timeout(WAIT_SECONDS):
                    await self._much.wait()
            self._something.clear()
            self._much.clear()
            await self.flush()

    async def close(self) -> None:
        await self.flush()
        await self._worker.run(lambda: self._tables.close())
        self.stop_showing()

    async def _read(self, read: Callable[[sqlite3.Connection], T], nothing: T) -> T:
        await self.flush()
        try:
            return await self._worker.run(lambda: read(self._database))
        except (sqlite3.Error, zlib.error, msgspec.MsgspecError, ValueError) as error:
            self._report_error(f"cannot read the journal: {error}")
            return nothing

    def _open(self) -> None:
        """In the thread. What cannot be opened is done without: the runs then live in memory."""
        try:
            database = open_file(self._path)
        except (sqlite3.Error, OSError) as error:
            log.error("cannot open the journal %s: %s; runs are kept in memory only", self._path, error)
            self._path = None
            database = open_file(None)
        try:
            self._use(database)
        except sqlite3.DatabaseError as error:
            if self._path is None:
                raise
            self._start_anew(self._path, error)

    def _use(self, database: sqlite3.Connection) -> None:
        self._database = database
        self._tables = Tables(database, self._limits)

    def _start_anew(self, path: Path, error: Exception) -> None:
        self._database.close()
        kept = set_aside(path)
        log.warning("the journal %s is damaged (%s): starting a new one", path, error, extra={"kept": str(kept)})
        self._use(open_file(path))

    def _write(self, batch: Batch) -> Written:
        """In the thread. A file that turns out to be damaged is set aside, and the batch goes to a new one."""
        try:
            return self._tables.write(batch, self._clock.now())
        except sqlite3.DatabaseError as error:
            if self._path is None or not is_damage(error):
                raise
            self._start_anew(self._path, error)
            return self._tables.write(batch, self._clock.now())

    def _report_error(self, text: str) -> None:
        """Once for each problem, not once for each write."""
        if text != self._reported_error:
            self._reported_error = text
            log.error("%s", text)


@asynccontextmanager
async def open_journal(
    path: Path | None,
    *,
    clock: Clock,
    metrics: MetricsRegistry,
    limits: Limits = Limits(),  # noqa: B008  # frozen
) -> AsyncIterator[Journal]:
    """The journal in that file, or in memory; leaving writes what waits. A file that cannot be used is set aside or
    left alone with a line in the log: the journal never keeps a control plane from starting."""
    worker = Worker("planform journal")
    try:
        journal = Journal(path, clock=clock, metrics=metrics, limits=limits, worker=worker)
        await journal.start()
        writing = asyncio.create_task(journal.keep_writing(), name="journal")
        try:
            yield journal
        finally:
            writing.cancel()
            await asyncio.wait([writing])
            await journal.close()
    finally:
        worker.stop()


class _Inputs:
    """Inputs of steps as JSON, and its digest. The runs of a fleet share the very same few, which are serialised once:
    one that is kept here cannot lend its id to another."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[object, bytes, str]] = {}

    def serialised(self, given: object) -> tuple[bytes, str]:
        known = self._known.get(id(given))
        if known is None:
            if len(self._known) >= _KEPT_INPUTS:
                self._known.clear()
            content = to_keep(_canonical(given))
            known = self._known[id(given)] = given, content, _digest(content)
        return known[1:]


def _entry(run_id: int, record: RunRecord, inputs: _Inputs) -> Entry:
    """A run in bytes, its secrets masked. Values that are one object are serialised once."""
    run = msgspec.structs.replace(record.run, id=run_id)
    given = {id(step.input.value): inputs.serialised(step.input.value) for step in run.steps if step.input is not None}
    values = {id(part.value): part.value for part in run.parts()}
    raw = {key: given[key][0] if key in given else _canonical(value) for key, value in values.items()}
    mask = RunMask(record.secrets, raw.values())
    parts: dict[str, bytes] = {}
    places: dict[str, int] = {}
    place_of: dict[int, int] = {}
    for key, content in raw.items():
        masked = mask.part(content)
        if masked is content and key in given:
            digest = given[key][1]
            parts[digest] = content
        else:
            digest = _digest(masked)
            parts[digest] = to_keep(masked)
        place_of[key] = places.setdefault(digest, len(places))
    body = mask.json(encode_run(run, lambda part: place_of[id(part.value)]), keep=_IDENTITY)
    return Entry(_summary(run, mask), body, parts, len(body) + sum(map(len, parts.values())))


def _digest(content: bytes) -> str:
    return hash_of(content)[:16].hex()


def _canonical(value: object) -> bytes:
    try:
        return orjson.dumps(value, option=orjson.OPT_SORT_KEYS)
    except TypeError:  # nothing JSON knows: better some text than no run
        pass
    try:
        return orjson.dumps(value, default=str, option=orjson.OPT_SORT_KEYS | orjson.OPT_NON_STR_KEYS)
    except TypeError as error:  # an enormous number, or nested too deep
        return orjson.dumps({"unwritable": str(error)})


def _summary(run: Run, mask: RunMask) -> RunSummary:
    return RunSummary(
        id=run.id,
        uid=run.uid,
        kind=run.group_kind,
        name=run.name,
        namespace=run.namespace,
        started=run.started,
        seconds=run.seconds,
        trigger=mask.text(run.trigger),
        composition_revision=run.composition_revision,
        failure=mask.text(run.failure),
    )
