"""How fast the store commits, loads and lists, each beside a limit measured in the same run.

    python bench/store.py [--writes 20000] [--objects 100000]

The limit for writes is plain SQLite from one thread, 64 writes to a transaction, each an event row and an upsert of
the object: what a store with a table of current objects and a change log could reach at best.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sqlite3
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

import uvloop

from planform.clock import SystemClock
from planform.store import Key, open_store

CONCURRENCY = 64
VALUE = os.urandom(2800)
OBJECT = 2048


def plain_writes(path: Path, count: int) -> float:
    """Writes a second of plain SQLite."""
    database = sqlite3.connect(path, isolation_level=None)
    for statement in (
        "PRAGMA page_size = 8192",
        "PRAGMA journal_mode = WAL",
        "PRAGMA synchronous = FULL",
        "CREATE TABLE objects (id INTEGER PRIMARY KEY, key TEXT UNIQUE, rv INTEGER, value BLOB)",
        "CREATE TABLE log (rv INTEGER PRIMARY KEY, key TEXT, type INTEGER, value BLOB)",
    ):
        database.execute(statement)
    started = time.perf_counter()
    for first in range(0, count, CONCURRENCY):
        database.execute("BEGIN IMMEDIATE")
        for rv in range(first + 1, first + CONCURRENCY + 1):
            key = f"widgets.example.org/default/w{rv % 5000}"
            database.execute("INSERT INTO log VALUES (?, ?, 1, ?)", (rv, key, VALUE))
            database.execute(
                "INSERT INTO objects (key, rv, value) VALUES (?, ?, ?)"
                " ON CONFLICT (key) DO UPDATE SET rv = excluded.rv, value = excluded.value",
                (key, rv, VALUE),
            )
        database.execute("COMMIT")
    rate = count / (time.perf_counter() - started)
    database.close()
    return rate


async def store_writes(directory: Path, count: int) -> float:
    """Writes a second through the store by concurrent writers, each waiting for its own."""
    async with await open_store(directory, clock=SystemClock()) as store:

        async def writer(number: int) -> None:
            for turn in range(count // CONCURRENCY):
                key = Key("widgets.example.org", "default", f"w{(turn * CONCURRENCY + number) % 5000}")
                await store.stage(key, VALUE)

        started = time.perf_counter()
        async with asyncio.TaskGroup() as tasks:
            for number in range(CONCURRENCY):
                tasks.create_task(writer(number))
        return count / (time.perf_counter() - started)


async def fill(directory: Path, count: int) -> None:
    async with await open_store(directory, clock=SystemClock(), synchronous="OFF") as store:
        for first in range(0, count, 1000):
            names = [f"widget-{number:06}" for number in range(first, min(first + 1000, count))]
            await asyncio.gather(
                *(
                    store.stage(Key("widgets.example.org", f"ns-{first % 50_000}", name), os.urandom(OBJECT))
                    for name in names
                )
            )


def resident() -> int:
    """Bytes of memory this process has in use."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


async def load_and_list(directory: Path) -> None:
    before, started = resident(), time.perf_counter()
    async with await open_store(directory, clock=SystemClock()) as store:
        loading = time.perf_counter() - started
        count = store.count("widgets.example.org")
        beside = (resident() - before) / count - OBJECT
        print(
            f"load     {count} objects of 2 KB in {loading:.2f} s (limit 1.5 s), {beside:.0f} B each beside the value"
        )
        started = time.perf_counter()
        snapshot = store.snapshot("widgets.example.org")
        pinning = time.perf_counter() - started
        started = time.perf_counter()
        pages = list(snapshot.slices(500))
        listing = time.perf_counter() - started
        print(f"list     pin {pinning * 1e3:.2f} ms, page of 500 in {listing / len(pages) * 1e3:.2f} ms (limit 5 ms)")


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--writes", type=int, default=20_000)
    parser.add_argument("--objects", type=int, default=100_000)
    parser.add_argument("--load", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.load:
        uvloop.run(load_and_list(options.load))
        return 0
    with tempfile.TemporaryDirectory() as temporary:
        root = Path(temporary)
        writes = options.writes // CONCURRENCY * CONCURRENCY
        plain: list[float] = []
        ours: list[float] = []
        for turn in range(5):
            plain.append(plain_writes(root / f"plain-{turn}.db", writes))
            ours.append(uvloop.run(store_writes(root / f"store-{turn}", writes)))
        ratio = median(mine / limit for mine, limit in zip(ours, plain, strict=True))
        print(f"writes   {median(ours):,.0f}/s by {CONCURRENCY} writers, plain SQLite {median(plain):,.0f}/s")
        print(f"         ratio {ratio:.2f} (limit 0.60)")
        uvloop.run(fill(root / "many", options.objects))
        # In a process of its own, so that memory is that of loading alone.
        subprocess.run([sys.executable, __file__, "--load", str(root / "many")], check=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
