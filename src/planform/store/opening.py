"""Opening a store: own the directory, check the file, load it, start the two threads."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from planform.clock import Clock
from planform.store.database import Connect, Synchronous, connect, open_database
from planform.store.directory import DataDirectory
from planform.store.failures import open_failure
from planform.store.log import Loaded, Log, LogReader
from planform.store.meter import Meter
from planform.store.records import Codec, HistoryLimits
from planform.store.store import Store
from planform.store.worker import Worker
from planform.telemetry.metrics import Registry


async def open_store(
    directory: Path | None,
    *,
    clock: Clock,
    synchronous: Synchronous = "FULL",
    codec: Codec | None = None,
    history: HistoryLimits | None = None,
    connect: Connect = connect,
    metrics: Registry | None = None,
) -> Store:
    """Own a data directory and load what it holds; None is a private directory that is gone after `close`.

    Raises StoreLocked, StoreTooNew, StoreCorrupt, DiskFull or StoreFailed, each with what to do about it.
    """
    owned = DataDirectory.acquire(directory)
    path, durability = owned.database, "OFF" if directory is None else synchronous
    writing, reading = Worker("planform store writer"), Worker("planform store reader")

    def open_log() -> tuple[Log, LogReader, Loaded]:
        owned.make_database()
        log = Log(open_database(path, connect=connect, synchronous=durability), path, codec)
        try:
            loaded = log.load()
            return log, LogReader(connect(path, read_only=True), path, codec), loaded
        except BaseException:
            log.close()
            raise

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
