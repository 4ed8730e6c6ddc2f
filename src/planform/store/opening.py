"""Opening a store: own the directory, check the file, load it, start the two threads."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from planform.clock import Clock
from planform.store.database import Connect, Synchronous, connect, open_database
from planform.store.directory import DataDirectory
from planform.store.failures import incomplete, open_failure
from planform.store.log import Loaded, Log, LogReader
from planform.store.mark import MARK, HighWaterMark
from planform.store.meter import Meter
from planform.store.records import Codec, HistoryLimits
from planform.store.store import Store
from planform.store.worker import Worker
from planform.telemetry.metrics import MetricsRegistry


async def open_store(
    directory: Path | None,
    *,
    clock: Clock,
    synchronous: Synchronous = "FULL",
    codec: Codec | None = None,
    history: HistoryLimits | None = None,
    connect: Connect = connect,
    metrics: MetricsRegistry | None = None,
    accept_loss: bool = False,
) -> Store:
    """Own a data directory and load what it holds; None is a private directory that is gone after `close`.

    Raises StoreLocked, StoreTooNew, StoreCorrupt, StoreIncomplete, DiskFull or StoreFailed, each with what to do about
    it. With `accept_loss`, a database that ends before the highest resource version that was given out is opened all
    the same; resource versions then go on above that one.
    """
    owned = DataDirectory.acquire(directory)
    path, durability = owned.database, "OFF" if directory is None else synchronous
    writing, reading = Worker("planform store writer"), Worker("planform store reader")

    def open_log() -> tuple[Log, LogReader, Loaded]:
        owned.make_database()
        mark = None if directory is None else HighWaterMark(owned.path / MARK)
        # What may not have reached the disk is not marked: a power cut would take it back.
        written = mark if durability == "FULL" else None
        try:
            lost = mark.value if mark is not None and not accept_loss else 0
            database = open_database(
                path,
                connect=connect,
                synchronous=durability,
                not_new=incomplete(path, 0, lost) if lost else None,
            )
            log = Log(database, path, codec, written)
        except BaseException:
            if mark is not None:
                mark.close()
            raise
        reader: LogReader | None = None
        try:
            loaded = log.load()
            reader = LogReader(connect(path, read_only=True), path, codec)
            if mark is not None and mark.value > loaded.revision:
                if not accept_loss:
                    raise incomplete(path, loaded.revision, mark.value)
                loaded = log.continue_from(loaded, mark.value)
            if written is not None:
                written.raise_to(loaded.revision)
            return log, reader, loaded
        except BaseException:
            # The reader cannot write, so that with it closed last the write-ahead log stays as it is, to be inspected.
            log.close()
            if reader is not None:
                reader.close()
            raise
        finally:
            if mark is not None and written is None:
                mark.close()

    try:
        log, reader, loaded = await writing.run(open_log)
    except BaseException as error:
        writing.stop()
        reading.stop()
        owned.close()
        if isinstance(error, sqlite3.Error | OSError):
            raise open_failure(error, path) from error
        raise
    return Store(
        owned,
        log,
        reader,
        writing,
        reading,
        loaded,
        clock=clock,
        history=history or HistoryLimits(),
        connect=connect,
        meter=None if metrics is None else Meter(metrics),
    )
