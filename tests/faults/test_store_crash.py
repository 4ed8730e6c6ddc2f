"""Crashes: after a power cut or a killed process, every acknowledged write is there and no batch is there in part.

What the disk holds after a power cut is a prefix of the write-ahead log up to at least the last fsync, perhaps with
noise after it. So the log of a live store is copied and cut at every frame, and in between; the store notes how long it
was when each batch was acknowledged, since by then it has been synced that far.
"""

from __future__ import annotations

import asyncio
import random
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from planform.clock import VirtualClock
from planform.store import Change, Entry, Key, Store, Write, open_store
from planform.store.database import PAGE_SIZE

WAL_HEADER = 32
FRAME = 24 + PAGE_SIZE

State = dict[Key, Entry]


class Acknowledged(NamedTuple):
    """A batch was acknowledged when the write-ahead log was `synced` bytes long; then the store held `state`."""

    synced: int
    state: State


def state_of(store: Store) -> State:
    return {key: entry for resource in store.resources() for key, entry in store.list(resource)}


async def record_batches(store: Store, rounds: int, seed: int) -> list[Acknowledged]:
    """Write batches of several sizes, some of them atomic groups, some with values of several pages."""
    choose = random.Random(seed)
    wal = store.path.with_name("planform.db-wal")
    acknowledged: list[Acknowledged] = []
    for _ in range(rounds):
        writes = []
        for key in choose.sample(
            [Key("widgets", "default", f"n{number}") for number in range(12)], choose.randint(1, 6)
        ):
            value = choose.randbytes(choose.choice([10, 2000, 20_000]))
            writes.append(Write(key, None if store.get(key) and choose.random() < 0.3 else value))
        if choose.random() < 0.5:
            await store.stage_many(writes)
        else:
            await asyncio.gather(*(store.stage(*write[:2]) for write in writes))
        acknowledged.append(Acknowledged(wal.stat().st_size, state_of(store)))
    return acknowledged


@pytest.mark.parametrize("noise", [False, True], ids=["cut", "cut and noise after it"])
async def test_a_log_cut_anywhere_recovers_to_a_whole_number_of_batches(tmp_path: Path, noise: bool) -> None:
    async with await open_store(tmp_path / "live", clock=VirtualClock()) as store:
        acknowledged = await record_batches(store, 20, seed=11)
        database = store.path.read_bytes()
        wal = store.path.with_name("planform.db-wal").read_bytes()
    frames = (len(wal) - WAL_HEADER) // FRAME
    assert frames > 60
    cuts = [WAL_HEADER + frame * FRAME for frame in range(frames + 1)]
    cuts += [cut + random.Random(cut).randrange(1, FRAME) for cut in cuts[:-1:7]]
    reached = set()
    for cut in cuts:
        directory = tmp_path / "cut"
        directory.mkdir()
        (directory / "planform.db").write_bytes(database)
        tail = random.Random(cut).randbytes(len(wal) - cut) if noise else b""
        (directory / "planform.db-wal").write_bytes(wal[:cut] + tail)
        async with await open_store(directory, clock=VirtualClock()) as store:
            state, revision = state_of(store), store.revision
        shutil.rmtree(directory)
        states = [State(), *(each.state for each in acknowledged)]
        synced = sum(each.synced <= cut for each in acknowledged)
        assert state in states[synced:], f"a write acknowledged before byte {cut} is gone, or a batch is there in part"
        assert revision >= max((entry.rv for entry in state.values()), default=0)
        reached.add(states.index(state))
    assert reached == set(range(21))


WRITER = """
import asyncio, pathlib, sys
from planform.clock import SystemClock
from planform.store import HistoryLimits, Key, open_store

async def main():
    limits = HistoryLimits(keep_events=0, max_bytes=100_000)  # so that compactions are under way, too
    store = await open_store(pathlib.Path(sys.argv[1]), clock=SystemClock(), history=limits)

    async def write(name):
        key = Key("widgets", "default", name)
        current = store.get(key)
        count = int(current.value.split()[0]) if current else 0
        while True:
            count += 1
            rv = await store.stage(key, f"{count} {'x' * 1500}".encode())
            sys.stdout.write(f"{name} {count} {rv}\\n")
            sys.stdout.flush()

    async with asyncio.TaskGroup() as tasks:
        for name in "abcdefgh":
            tasks.create_task(write(name))

asyncio.run(main())
"""


def kill_after(directory: Path, lines: int) -> list[tuple[str, int, int]]:
    """Run writers in a process of their own and kill it after so many acknowledgements; returns all it gave."""
    with subprocess.Popen([sys.executable, "-c", WRITER, str(directory)], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        given = [process.stdout.readline() for _ in range(lines)]
        process.send_signal(signal.SIGKILL)
        given += process.stdout.readlines()
    fields = [line.split() for line in given if line.endswith("\n")]
    return [(name, int(count), int(rv)) for name, count, rv in fields]


async def test_a_killed_process_loses_no_acknowledged_write_and_reuses_no_version(tmp_path: Path) -> None:
    choose = random.Random(5)
    counts: dict[str, int] = {}
    highest = 0
    for _ in range(5):
        acknowledged = await asyncio.to_thread(kill_after, tmp_path, choose.randint(1, 1500))
        assert min(rv for _, _, rv in acknowledged) > highest
        for name, count, rv in acknowledged:
            counts[name], highest = max(count, counts.get(name, 0)), max(rv, highest)
        async with await open_store(tmp_path, clock=VirtualClock()) as store:
            assert await store.check() == []
            stored = {key.name: int(entry.value.split()[0]) for key, entry in store.list("widgets")}
            # A killed writer may have been at one write more than the last one it was told of.
            assert {name: stored[name] - count in (0, 1) for name, count in counts.items()} == dict.fromkeys(
                counts, True
            )
            assert store.revision >= highest
            counts, highest = stored, store.revision
            await assert_replay_ends_in_the_list(store)


async def assert_replay_ends_in_the_list(store: Store) -> None:
    state = dict(await store.list_at("widgets", None, store.floor))
    expected = store.floor
    async with store.watch("widgets", None, store.floor) as watch:
        while watch.position < store.revision:
            for change in await anext(watch):
                expected += 1
                assert change.rv == expected
                apply(state, change)
    assert state == state_of(store)


def apply(state: State, change: Change) -> None:
    before = state.pop(change.key, None)
    assert (change.previous, change.previous_rv) == ((before.value, before.rv) if before else (None, 0))
    if change.type != "DELETED":
        state[change.key] = Entry(change.rv, change.value)
