"""A disk that is full or fails: writes are refused as what they are, reads go on, nothing acknowledged is lost."""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
import shutil
import sqlite3
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from planform.clock import VirtualClock
from planform.errors import DiskFull, StoreError, StoreFailed
from planform.store import Entry, HistoryLimits, Key, Store, Write, open_store
from planform.store.database import Connect, connect


def key(name: str) -> Key:
    return Key("widgets", "default", name)


def sqlite_error(code: int, text: str) -> sqlite3.OperationalError:
    error = sqlite3.OperationalError(text)
    error.sqlite_errorcode = code
    return error


FULL = sqlite_error(sqlite3.SQLITE_FULL, "database or disk is full")
FSYNC = sqlite_error(sqlite3.SQLITE_IOERR_FSYNC, "disk I/O error")
CORRUPT = sqlite_error(sqlite3.SQLITE_CORRUPT, "database disk image is malformed")


class Faults:
    """Statements that begin with `statement` raise `error`, before or after they had their effect."""

    def __init__(self) -> None:
        self.statement = ""
        self.error: sqlite3.Error | None = None
        self.after_effect = False

    def arm(self, statement: str, error: sqlite3.Error, *, after_effect: bool = False) -> None:
        self.statement, self.error, self.after_effect = statement, error, after_effect

    def disarm(self) -> None:
        self.error = None

    @property
    def connect(self) -> Connect:
        faults = self

        class FaultyConnection(sqlite3.Connection):
            def execute(self, sql: str, parameters: Any = (), /) -> sqlite3.Cursor:
                failing = faults.error is not None and sql.startswith(faults.statement)
                if failing and not faults.after_effect:
                    assert faults.error is not None
                    raise faults.error
                cursor = super().execute(sql, parameters)
                if failing:
                    assert faults.error is not None
                    raise faults.error
                return cursor

        def connect_faulty(path: Path, *, read_only: bool) -> sqlite3.Connection:
            return connect(path, read_only=read_only, factory=FaultyConnection)

        return connect_faulty


async def open_faulty(directory: Path, faults: Faults, **options: Any) -> Store:
    return await open_store(directory, clock=VirtualClock(), connect=faults.connect, **options)


async def test_a_failed_commit_fails_everything_staged_on_top_of_it(tmp_path: Path) -> None:
    faults = Faults()
    async with await open_faulty(tmp_path, faults) as store:
        await store.stage(key("a"), b"1")
        faults.arm("INSERT", FULL)
        first = store.stage(key("a"), b"2")
        await asyncio.sleep(0)  # the first is on its way to the disk
        rest = [store.stage(key("a"), b"3"), store.stage_many([Write(key("b"), b"4"), Write(key("c"), b"5")])]
        waiting = asyncio.ensure_future(store.settled(key("c")))
        results = await asyncio.gather(first, *rest, waiting, return_exceptions=True)
        assert [type(result) for result in results] == [DiskFull] * 4
        assert len({id(result) for result in results}) == 4
        assert store.head(key("a")) == store.get(key("a")) == Entry(1, b"1")
        assert store.head(key("b")) is None
        assert store.next_revision() == 2
        faults.disarm()
        assert await store.stage(key("a"), b"2 again") == 2
    async with await open_store(tmp_path, clock=VirtualClock()) as store:
        assert store.list("widgets") == [(key("a"), Entry(2, b"2 again"))]


@pytest.mark.parametrize("error", [FSYNC, CORRUPT], ids=["fsync", "corrupt"])
async def test_after_a_failed_disk_reads_go_on_and_writes_wait_for_a_restart(
    tmp_path: Path, error: sqlite3.Error
) -> None:
    faults = Faults()
    async with await open_faulty(tmp_path, faults) as store:
        await store.stage(key("a"), b"1")
        watch = store.watch("widgets", None, 0)
        faults.arm("INSERT", error)
        with pytest.raises(StoreFailed, match="writes are refused until a restart") as failure:
            await store.stage(key("a"), b"2")
        assert failure.value.hint is not None
        faults.disarm()
        with pytest.raises(StoreFailed):
            store.stage(key("b"), b"2")
        with pytest.raises(StoreFailed):
            store.stage_many([Write(key("b"), b"2")])
        with pytest.raises(StoreFailed):
            await store.compact(2)
        assert store.get(key("a")) == store.head(key("a")) == Entry(1, b"1")
        assert [change.rv for change in await anext(watch)] == [1]
        assert list(await store.list_at("widgets", None, 0)) == []
        await store.backup(tmp_path / "copy.db")
    async with await open_store(tmp_path, clock=VirtualClock()) as store:
        assert store.list("widgets") == [(key("a"), Entry(1, b"1"))]
        assert await store.stage(key("a"), b"2") == 2


async def test_a_commit_that_failed_late_may_survive_but_its_version_is_never_given_to_another(tmp_path: Path) -> None:
    faults = Faults()
    async with await open_faulty(tmp_path, faults) as store:
        await store.stage(key("a"), b"1")
        faults.arm("INSERT", FSYNC, after_effect=True)
        with pytest.raises(StoreFailed):
            await store.stage(key("a"), b"2")
        assert store.get(key("a")) == Entry(1, b"1")
    async with await open_store(tmp_path, clock=VirtualClock()) as store:
        assert store.get(key("a")) == Entry(2, b"2")
        assert await store.stage(key("a"), b"3") == 3


async def test_after_a_failure_closing_does_not_move_the_write_ahead_log_into_the_database(tmp_path: Path) -> None:
    faults = Faults()
    async with await open_faulty(tmp_path, faults) as store:
        await store.stage(key("a"), b"1")
        before = (tmp_path / "planform.db").read_bytes()
        faults.arm("INSERT", FSYNC)
        with pytest.raises(StoreFailed):
            await store.stage(key("a"), b"2")
    assert (tmp_path / "planform.db-wal").stat().st_size > 0
    assert (tmp_path / "planform.db").read_bytes() == before


@pytest.mark.parametrize("statement", ["BEGIN", "DELETE", "UPDATE", "COMMIT"])
async def test_a_compaction_that_fails_halfway_loses_nothing_and_is_done_again(tmp_path: Path, statement: str) -> None:
    faults = Faults()
    async with await open_faulty(tmp_path, faults) as store:
        for number in range(20):
            await store.stage(key("a"), str(number).encode())
        faults.arm(statement, FULL)
        with pytest.raises(DiskFull):
            await store.compact(11)
        faults.disarm()
        assert await store.check() == []
        await store.stage(key("b"), b"x")
        await store.compact(11)
        assert await store.check() == []
        rows = sqlite3.connect(store.path)
        assert rows.execute("SELECT group_concat(rv) FROM log").fetchone() == (",".join(map(str, range(10, 22))),)
        rows.close()


async def test_large_groups_that_fail_halfway_are_rolled_back(tmp_path: Path) -> None:
    faults = Faults()
    async with await open_faulty(tmp_path, faults) as store:
        faults.arm("COMMIT", FULL)
        with pytest.raises(DiskFull):
            await store.stage_many(Write(key(f"n{number}"), b"x") for number in range(600))
        assert store.count("widgets") == 0
        faults.disarm()
        assert await store.stage(key("a"), b"1") == 1
    async with await open_store(tmp_path, clock=VirtualClock()) as store:
        assert store.keys("widgets") == [key("a")]


async def test_a_checkpoint_without_room_is_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("planform.store.store.CHECKPOINT_BYTES", 1)
    faults = Faults()
    async with await open_faulty(tmp_path, faults) as store:
        faults.arm("PRAGMA wal_checkpoint", FULL)
        for number in range(5):
            await store.stage(key("a"), str(number).encode())
        faults.disarm()
        await store.stage(key("a"), b"last")
        faults.arm("PRAGMA wal_checkpoint", FSYNC)
        await store.stage(key("a"), b"still acknowledged")
        await store.check()
        with pytest.raises(StoreFailed):
            await store.stage(key("a"), b"x")
    async with await open_store(tmp_path, clock=VirtualClock()) as store:
        assert store.get(key("a")) == Entry(7, b"still acknowledged")


async def fill_up(store: Store, acknowledged: dict[Key, bytes], *, limit: int = 5000) -> StoreError:
    """Write until the store refuses; what was acknowledged is noted."""
    for number in range(limit):
        target, value = key(f"n{number % 400}"), os.urandom(2000)
        try:
            await store.stage(target, value)
        except StoreError as failure:
            return failure
        acknowledged[target] = value
    raise AssertionError("the disk was never full")


def shown(store: Store) -> dict[Key, bytes]:
    return {each: entry.value for each, entry in store.list("widgets")}


async def test_a_full_database_refuses_writes_until_there_is_room(tmp_path: Path) -> None:
    connections: list[sqlite3.Connection] = []

    def limited(path: Path, *, read_only: bool) -> sqlite3.Connection:
        connections.append(connect(path, read_only=read_only))
        return connections[-1]

    acknowledged: dict[Key, bytes] = {}
    async with await open_store(tmp_path, clock=VirtualClock(), connect=limited) as store:
        connections[0].execute("PRAGMA max_page_count = 100")
        assert isinstance(await fill_up(store, acknowledged), DiskFull)
        with pytest.raises(DiskFull, match="the write did not happen"):
            await store.stage(key("more"), os.urandom(20_000))
        assert shown(store) == acknowledged
        connections[0].execute("PRAGMA max_page_count = 10000")
        acknowledged[key("more")] = b"room again"
        await store.stage(key("more"), b"room again")
    async with await open_store(tmp_path, clock=VirtualClock()) as store:
        assert shown(store) == acknowledged
        assert await store.check() == []


async def test_the_write_ahead_log_stays_bounded(tmp_path: Path) -> None:
    async with await open_store(tmp_path, clock=VirtualClock(), synchronous="OFF") as store:
        for _ in range(30):
            await asyncio.gather(*(store.stage(key(f"n{number}"), os.urandom(20_000)) for number in range(100)))
        assert (tmp_path / "planform.db-wal").stat().st_size < 32 << 20


async def test_history_gives_its_room_back(tmp_path: Path) -> None:
    limits = HistoryLimits(max_bytes=200_000)
    async with await open_store(tmp_path, clock=VirtualClock(), history=limits, synchronous="OFF") as store:
        sizes: list[int] = []
        for _ in range(4):
            for _ in range(10):
                await asyncio.gather(*(store.stage(key(f"n{number}"), os.urandom(2000)) for number in range(100)))
                await store.compaction()
            await store.compact(store.revision)
            pages = sqlite3.connect(store.path)
            sizes.append(pages.execute("PRAGMA page_count").fetchone()[0])
            pages.close()
    assert sizes[-1] <= sizes[0] * 1.2


@pytest.fixture
def tiny_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of three megabytes, where this user may mount one."""
    mount_point = tmp_path / "disk"
    mount_point.mkdir()
    mount = shutil.which("mount")
    command = [mount or "mount", "-t", "tmpfs", "-o", "size=3m", "tmpfs", str(mount_point)]
    if mount is None or os.geteuid() != 0 or subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("may not mount a file system here")
    yield mount_point
    subprocess.run(["umount", str(mount_point)], check=False)


async def test_a_disk_that_really_is_full_refuses_writes_until_there_is_room(tiny_disk: Path) -> None:
    (tiny_disk / "ballast").write_bytes(bytes(600_000))
    acknowledged: dict[Key, bytes] = {}
    async with await open_store(tiny_disk / "data", clock=VirtualClock()) as store:
        for _ in range(3):
            assert isinstance(await fill_up(store, acknowledged), DiskFull)
            assert shown(store) == acknowledged
        (tiny_disk / "ballast").unlink()
        acknowledged[key("more")] = b"room again"
        await store.stage(key("more"), b"room again")
    async with await open_store(tiny_disk / "data", clock=VirtualClock()) as store:
        assert shown(store) == acknowledged
        assert await store.check() == []


@contextlib.contextmanager
def file_size_limit(size: int) -> Iterator[None]:
    """The kernel refuses to let any file of this process grow beyond `size`: an I/O error that nobody simulates."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


async def test_a_write_that_the_kernel_refuses_fails_the_store_and_loses_nothing(tmp_path: Path) -> None:
    acknowledged: dict[Key, bytes] = {}
    async with await open_store(tmp_path, clock=VirtualClock()) as store:
        with file_size_limit(400_000):
            failure = await fill_up(store, acknowledged)
        assert isinstance(failure, StoreFailed)
        assert "I/O error" in str(failure)
        assert shown(store) == acknowledged
        with pytest.raises(StoreFailed):
            store.stage(key("a"), b"x")
    async with await open_store(tmp_path, clock=VirtualClock()) as store:
        restarted = shown(store)
        assert {each: restarted[each] for each in acknowledged} == acknowledged
        assert await store.check() == []


@pytest.mark.parametrize(
    ("statement", "error", "expected"),
    [
        ("PRAGMA journal_mode", FULL, DiskFull),
        ("CREATE TABLE", FULL, DiskFull),
        ("SELECT rv", sqlite_error(sqlite3.SQLITE_IOERR_READ, "disk I/O error"), StoreFailed),
    ],
)
async def test_trouble_while_opening_is_told_and_gives_the_directory_back(
    tmp_path: Path, statement: str, error: sqlite3.Error, expected: type[StoreError]
) -> None:
    faults = Faults()
    faults.arm(statement, error)
    with pytest.raises(expected):
        await open_faulty(tmp_path, faults)
    await (await open_store(tmp_path, clock=VirtualClock())).close()
