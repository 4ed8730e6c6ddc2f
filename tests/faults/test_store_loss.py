"""Loss that SQLite does not notice: bit rot in the write-ahead log, a log or a database that is gone, an old copy.

The mark beside the database knows how far it had come. Where it is ahead of the database, the store is refused, left as
it is, and opened only by those who accept the loss; resource versions then go on above all that were ever given out.
"""

from __future__ import annotations

import random
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from planform.clock import VirtualClock
from planform.errors import DiskFull, StoreIncomplete
from planform.store import Compacted, Key, Store, open_store, restore_backup
from planform.store.mark import MARK, HighWaterMark
from tests.faults.test_store_crash import FRAME, WAL_HEADER, record_batches, state_of
from tests.faults.test_store_disk import FULL, Faults, open_faulty

WAL = "planform.db-wal"


def key(name: str) -> Key:
    return Key("widgets", "default", name)


async def open_at(directory: Path, *, accept_loss: bool = False) -> Store:
    return await open_store(directory, clock=VirtualClock(), accept_loss=accept_loss)


def mark_of(directory: Path) -> int:
    mark = HighWaterMark(directory / MARK)
    mark.close()
    return mark.value


@pytest.fixture
async def killed(tmp_path: Path) -> Path:
    """The directory of a store that was killed after 30 acknowledged writes, its write-ahead log still there."""
    async with await open_at(tmp_path / "live") as store:
        for number in range(30):
            await store.stage(key(f"n{number}"), b"x" * 3000)
        shutil.copytree(tmp_path / "live", tmp_path / "killed")
    return tmp_path / "killed"


async def test_a_killed_store_is_whole(killed: Path) -> None:
    assert mark_of(killed) == 30
    async with await open_at(killed) as store:
        assert store.revision == 30


def flip_a_bit(directory: Path) -> None:
    wal = bytearray((directory / WAL).read_bytes())
    frames = (len(wal) - WAL_HEADER) // FRAME
    wal[WAL_HEADER + (frames // 2) * FRAME + 5000] ^= 4
    (directory / WAL).write_bytes(wal)


def lose_the_log(directory: Path) -> None:
    (directory / WAL).unlink()


def cut_the_log(directory: Path) -> None:
    with (directory / WAL).open("r+b") as file:
        file.truncate(WAL_HEADER + 3 * FRAME)


def lose_the_database(directory: Path) -> None:
    for name in ("planform.db", WAL, "planform.db-shm"):
        (directory / name).unlink(missing_ok=True)


DAMAGES = [flip_a_bit, lose_the_log, cut_the_log, lose_the_database]


@pytest.fixture(params=DAMAGES, ids=lambda damage: damage.__name__)
def damaged(request: pytest.FixtureRequest, killed: Path) -> Iterator[Path]:
    request.param(killed)
    yield killed


async def test_acknowledged_writes_that_are_gone_refuse_the_store(damaged: Path) -> None:
    wal = damaged / WAL
    before = wal.read_bytes() if wal.exists() else b""
    for _ in range(2):
        with pytest.raises(StoreIncomplete, match="but 30 was given out") as raised:
            await open_at(damaged)
        assert "--accept-loss" in str(raised.value.hint)
        assert (wal.read_bytes() if wal.exists() else b"") == before, "left as it is, to be inspected"


async def test_whoever_accepts_the_loss_goes_on_above_all_that_was_given_out(damaged: Path) -> None:
    async with await open_at(damaged, accept_loss=True) as store:
        assert (store.revision, store.floor) == (30, 30)
        for old in (0, 5, 29):
            with pytest.raises(Compacted):
                store.watch("widgets", since=old)
        assert await store.stage(key("new"), b"1") == 31
        assert not await store.check()
    async with await open_at(damaged) as store:
        assert store.revision == 31
        assert store.get(key("new")) is not None


async def test_a_log_cut_anywhere_is_refused_only_where_a_marked_batch_is_gone(tmp_path: Path) -> None:
    """The mark of a batch is written once the log was synced for it: with the mark of any batch that was, it opens."""
    marks = []
    async with await open_at(tmp_path / "live") as store:
        acknowledged = []
        for seed in range(12):
            acknowledged += await record_batches(store, 1, seed=seed)
            marks.append((tmp_path / "live" / MARK).read_bytes())
        database, wal = store.path.read_bytes(), store.path.with_name(WAL).read_bytes()
    for cut in range(WAL_HEADER, len(wal) + 1, FRAME):
        synced = sum(each.synced <= cut for each in acknowledged)
        for marked in {synced - 1, random.Random(cut).randrange(max(synced, 1)), synced}:
            if not 0 <= marked < len(marks):
                continue
            directory = tmp_path / "cut"
            directory.mkdir()
            (directory / "planform.db").write_bytes(database)
            (directory / WAL).write_bytes(wal[:cut])
            (directory / MARK).write_bytes(marks[marked])
            if marked < synced:
                async with await open_at(directory) as store:
                    assert state_of(store) in [each.state for each in acknowledged[synced - 1 :]]
            else:
                with pytest.raises(StoreIncomplete):
                    await open_at(directory)
            shutil.rmtree(directory)


async def test_a_torn_mark_leaves_the_one_before(tmp_path: Path) -> None:
    async with await open_at(tmp_path) as store:
        for number in range(3):
            await store.stage(key(f"n{number}"), b"x")
    data = bytearray((tmp_path / MARK).read_bytes())
    newest = data.index((3).to_bytes(8, "big"))
    data[newest + 3] ^= 1
    (tmp_path / MARK).write_bytes(data)
    assert mark_of(tmp_path) == 2
    async with await open_at(tmp_path) as store:
        assert store.revision == 3
    assert mark_of(tmp_path) == 3


async def test_a_failed_commit_is_not_marked(tmp_path: Path) -> None:
    faults = Faults()
    async with await open_faulty(tmp_path, faults) as store:
        await store.stage(key("a"), b"1")
        faults.arm("INSERT", FULL)
        with pytest.raises(DiskFull):
            await store.stage(key("b"), b"1")
        assert mark_of(tmp_path) == 1


async def test_what_a_power_cut_may_take_back_is_not_marked(tmp_path: Path) -> None:
    async with await open_store(tmp_path, clock=VirtualClock(), synchronous="NORMAL") as store:
        await store.stage(key("a"), b"1")
    assert mark_of(tmp_path) == 0


async def test_a_directory_from_before_there_was_a_mark_gets_one(killed: Path) -> None:
    (killed / MARK).unlink()
    async with await open_at(killed) as store:
        assert store.revision == 30
    assert mark_of(killed) == 30


async def test_after_a_restore_resource_versions_go_on_above_the_highest_ever_given(tmp_path: Path) -> None:
    async with await open_at(tmp_path / "data") as store:
        await store.stage(key("kept"), b"1")
        await store.stage(key("gone"), b"1")
        await store.stage(key("gone"), None)
        await store.backup(tmp_path / "copy.db")
        for number in range(50):
            last = await store.stage(key(f"later{number}"), b"1")
    restore_backup(tmp_path / "copy.db", tmp_path / "restored")
    async with await open_at(tmp_path / "restored") as store:
        assert [each.name for each in store.keys("widgets")] == ["kept"]
        for old in (1, 3, last):
            with pytest.raises(Compacted):
                store.watch("widgets", since=old)
        assert await store.stage(key("new"), b"1") > last
        assert not await store.check()


async def test_a_restore_skips_more_the_older_its_backup_is(tmp_path: Path) -> None:
    async with await open_at(tmp_path / "data") as store:
        await store.stage(key("a"), b"1")
        await store.backup(tmp_path / "copy.db")
    with closing(sqlite3.connect(tmp_path / "copy.db")) as database, database:
        database.execute("UPDATE meta SET value = value - 86400 WHERE name = 'saved-at'")
    restore_backup(tmp_path / "copy.db", tmp_path / "restored")
    async with await open_at(tmp_path / "restored") as store:
        assert store.revision > 86_400 * 100_000, "a hundred thousand writes a second for a day"


def fails(store: Store) -> bool:
    return store.write_failure is not None


async def test_writes_that_fail_are_told_until_one_works(tmp_path: Path) -> None:
    """Also if nobody writes any more: whoever asks has it tried."""
    faults = Faults()
    async with await open_faulty(tmp_path, faults) as store:
        assert not fails(store)
        faults.arm("INSERT", FULL)
        with pytest.raises(DiskFull):
            await store.stage(key("a"), b"1")
        faults.arm("UPDATE", FULL)
        assert fails(store)
        await store._writing.run(lambda: None)
        assert fails(store)
        faults.disarm()
        for _ in range(1000):
            if not fails(store):
                break
            await store._writing.run(lambda: None)
        assert not fails(store)
        assert await store.stage(key("a"), b"1") == 1
