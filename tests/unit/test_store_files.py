"""The data directory: who owns it, what is refused and why, copies, formats and what lies on the disk."""

from __future__ import annotations

import asyncio
import sqlite3
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from planform.clock import VirtualClock
from planform.errors import StoreCorrupt, StoreError, StoreFailed, StoreLocked, StoreTooNew, UsageError
from planform.store import Entry, Key, Store, open_store, restore_backup
from planform.store.database import MIGRATIONS, connect, open_database
from planform.store.failures import RESTORE

A = Key("secrets", "default", "a")


async def open_at(directory: Path) -> Store:
    return await open_store(directory, clock=VirtualClock())


async def make(directory: Path, count: int = 200) -> list[tuple[Key, Entry]]:
    """A closed store with so many objects, half of them written twice; returns what it lists."""
    async with await open_at(directory) as store:
        for number in range(count):
            store.stage(Key("secrets", "default", f"n{number:04}"), b"x" * 900)
        for number in range(0, count, 2):
            store.stage(Key("secrets", "default", f"n{number:04}"), b"y" * 900)
        await store.settled(Key("secrets", "default", f"n{count - 2:04}"))
        return store.list("secrets")


async def test_a_second_store_is_refused_by_name_of_the_owner(tmp_path: Path) -> None:
    async with await open_at(tmp_path):
        with pytest.raises(StoreLocked, match=r"is in use by process \d+") as refusal:
            await open_at(tmp_path)
        assert "choose another" in (refusal.value.hint or "")
    await (await open_at(tmp_path)).close()


async def test_another_process_is_refused_and_a_dead_one_leaves_no_lock(tmp_path: Path) -> None:
    program = (
        "import asyncio, pathlib, sys, os\n"
        "from planform.clock import SystemClock\n"
        "from planform.store import open_store\n"
        "async def main():\n"
        "    await open_store(pathlib.Path(sys.argv[1]), clock=SystemClock())\n"
        "    os._exit(7)\n"
        "asyncio.run(main())\n"
    )
    command = [sys.executable, "-c", program, str(tmp_path)]

    async def attempt() -> subprocess.CompletedProcess[str]:
        return await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, timeout=30, check=False)

    async with await open_at(tmp_path):
        refused = await attempt()
    assert refused.returncode == 1
    assert "StoreLocked" in refused.stderr
    assert (await attempt()).returncode == 7
    await (await open_at(tmp_path)).close()


async def test_directory_and_files_are_private_even_if_they_were_not(tmp_path: Path) -> None:
    directory = tmp_path / "deep" / "data"
    await make(directory)
    directory.chmod(0o755)
    (directory / "planform.db").chmod(0o644)
    async with await open_at(directory) as store:
        await store.stage(A, b"1")
        modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in [directory, *directory.iterdir()]}
    assert modes.pop("data") == 0o700
    assert set(modes) == {"planform.db", "planform.db-wal", "planform.db-shm", "planform.lock", "planform.mark"}
    assert set(modes.values()) == {0o600}


async def test_a_private_store_leaves_nothing_behind() -> None:
    async with await open_store(None, clock=VirtualClock()) as store:
        directory = store.path.parent
        await store.stage(A, b"1")
        assert directory.is_dir()
    assert not directory.exists()


async def test_a_directory_that_cannot_be_made_is_an_error_with_its_name(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreFailed, match="cannot use data directory"):
        await open_at(tmp_path / "file" / "data")


def overwrite(path: Path, offset: int, content: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(offset)
        file.write(content)


def foreign(path: Path) -> None:
    path.unlink()
    with sqlite3.connect(path) as database:
        database.execute("CREATE TABLE t (x)")
    database.close()


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (lambda path: overwrite(path, 0, b"garbage"), "not a SQLite database"),
        (lambda path: path.write_bytes(b"short"), "not a SQLite database"),
        (lambda path: path.write_bytes(path.read_bytes()[: 8192 * 10]), "damaged"),
        (lambda path: overwrite(path, 8192 * 4, b"\xff" * 8192), "damaged"),
        (
            lambda path: overwrite(path, path.read_bytes().index(b"xxxx"), b"X"),
            "checksum mismatch in secrets default/n",
        ),
        (foreign, "not one of planform"),
        (lambda path: overwrite(path, 68, b"\1\2\3\4"), "another application"),
    ],
    ids=[
        "no magic",
        "too short",
        "cut off",
        "a page of noise",
        "one bit of a value",
        "other database",
        "other program",
    ],
)
async def test_a_damaged_file_is_refused_with_a_hint(tmp_path: Path, damage: Callable[[Path], None], says: str) -> None:
    await make(tmp_path)
    database = tmp_path / "planform.db"
    damage(database)
    before = database.read_bytes()
    with pytest.raises(StoreCorrupt, match=says) as refusal:
        await open_at(tmp_path)
    assert refusal.value.hint == RESTORE
    assert database.read_bytes() == before


async def test_a_newer_format_is_refused_untouched(tmp_path: Path) -> None:
    await make(tmp_path)
    database = tmp_path / "planform.db"
    overwrite(database, 60, (99).to_bytes(4, "big"))
    before = database.read_bytes()
    with pytest.raises(StoreTooNew, match="has format 99, written by a newer planform; this one knows up to 1"):
        await open_at(tmp_path)
    assert database.read_bytes() == before
    assert not (tmp_path / "planform.db-wal").exists()


async def test_a_newer_format_that_only_the_write_ahead_log_knows_is_refused(tmp_path: Path) -> None:
    await make(tmp_path)
    keeper = connect(tmp_path / "planform.db", read_only=False)
    keeper.execute("PRAGMA user_version = 42")
    with pytest.raises(StoreTooNew, match="format 42"):
        await open_at(tmp_path)
    keeper.close()


def test_formats_migrate_one_after_the_other_and_only_once(tmp_path: Path) -> None:
    path = tmp_path / "planform.db"
    path.touch()
    open_database(path).close()
    newer = (*MIGRATIONS, ("CREATE TABLE extra (x)",), ("INSERT INTO extra VALUES (1)",))
    for _ in range(2):
        database = open_database(path, migrations=newer)
        assert database.execute("SELECT x FROM extra").fetchall() == [(1,)]
        assert database.execute("PRAGMA user_version").fetchone() == (3,)
        database.close()
    with pytest.raises(StoreTooNew):
        open_database(path)


def test_a_migration_that_fails_leaves_the_format_before_it(tmp_path: Path) -> None:
    path = tmp_path / "planform.db"
    path.touch()
    with pytest.raises(StoreFailed, match="syntax error"):
        open_database(path, migrations=(*MIGRATIONS, ("CREATE TABLE extra (x)", "NONSENSE")))
    database = open_database(path)
    assert database.execute("PRAGMA user_version").fetchone() == (1,)
    assert database.execute("SELECT count(*) FROM sqlite_master WHERE name = 'extra'").fetchone() == (0,)
    database.close()


async def test_a_backup_taken_under_writes_restores_to_a_committed_state(tmp_path: Path) -> None:
    async with await open_at(tmp_path / "data") as store:
        writes = [store.stage(Key("r", "", f"n{number}"), b"x" * 500) for number in range(500)]
        await writes[0]
        more = [store.stage(Key("r", "", f"m{number}"), b"x" * 500) for number in range(500)]
        await store.backup(tmp_path / "copy.db")
        await more[-1]
        expected = {key: entry for key, entry in store.list("r") if entry.rv <= 500}
        assert stat.S_IMODE((tmp_path / "copy.db").stat().st_mode) == 0o600
        with pytest.raises(UsageError, match="exists already"):
            await store.backup(tmp_path / "copy.db")
    restore_backup(tmp_path / "copy.db", tmp_path / "restored")
    async with await open_at(tmp_path / "restored") as store:
        restored = dict(store.list("r"))
        assert len(restored) >= 500
        assert store.revision == store.floor > 1000, "above all that was given out after the backup"
        assert expected.items() <= restored.items()
        assert await store.check() == []
        assert await store.stage(Key("r", "", "new"), b"x") == store.floor + 1
    with pytest.raises(UsageError, match="exists already"):
        restore_backup(tmp_path / "copy.db", tmp_path / "restored")
    leftovers = await asyncio.to_thread(lambda: list(tmp_path.glob("**/.*")))
    assert leftovers == []


async def test_a_damaged_backup_is_not_restored(tmp_path: Path) -> None:
    async with await open_at(tmp_path / "data") as store:
        await store.stage(A, b"precious" * 100)
        await store.backup(tmp_path / "copy.db")
    overwrite(tmp_path / "copy.db", (tmp_path / "copy.db").read_bytes().index(b"precious"), b"P")
    with pytest.raises(StoreCorrupt, match="checksum"):
        restore_backup(tmp_path / "copy.db", tmp_path / "restored")
    assert not (tmp_path / "restored").exists()


async def test_a_backup_that_cannot_be_written_leaves_no_trace_and_no_failed_store(tmp_path: Path) -> None:
    async with await open_at(tmp_path / "data") as store:
        with pytest.raises(StoreError, match="cannot write"):
            await store.backup(tmp_path / "missing" / "copy.db")
        assert await store.stage(A, b"1") == 1


async def test_check_finds_what_happened_to_the_file_behind_its_back(tmp_path: Path) -> None:
    async with await open_at(tmp_path) as store:
        await store.stage(A, b"1")
        await store.stage(A, b"2")
        await store.stage(A, b"3")
        assert await store.check() == []
        intruder = sqlite3.connect(store.path)
        with intruder:
            intruder.execute("UPDATE log SET value = x'00' WHERE rv = 3")
            intruder.execute("DELETE FROM log WHERE rv = 2")
        intruder.close()
        assert await store.check() == [
            "checksum mismatch in secrets default/a at 3",
            "1 changes are missing above the floor",
            "1 changes do not lead back to the version they replaced",
        ]
        async with store.watch("secrets", None, 0) as watch:
            assert [change.rv for change in await anext(watch)] == [1, 2, 3]  # memory still has them


class Rot13:
    """A codec that only marks what it was asked to do."""

    def encode(self, resource: str, value: bytes) -> bytes:
        return b"sealed:" + bytes(byte ^ 0x2A for byte in value) if resource == "secrets" else value

    def decode(self, resource: str, value: bytes) -> bytes:
        return bytes(byte ^ 0x2A for byte in value.removeprefix(b"sealed:")) if resource == "secrets" else value


async def test_a_codec_decides_what_lies_on_the_disk_and_nobody_else_notices(tmp_path: Path) -> None:
    for _ in range(2):
        async with await open_store(tmp_path, clock=VirtualClock(), codec=Rot13()) as store:
            await store.stage(A, b"hush hush")
            await store.stage(Key("plain", "", "b"), b"read me")
            assert store.get(A) == Entry(store.revision - 1, b"hush hush")
    on_disk = (tmp_path / "planform.db").read_bytes()
    assert b"hush" not in on_disk
    assert b"read me" in on_disk
    async with await open_store(tmp_path, clock=VirtualClock(), codec=Rot13()) as store:
        assert store.get(A) == Entry(3, b"hush hush")
        async with store.watch("secrets", None, 0) as watch:
            assert [(c.value, c.previous) for c in await anext(watch)] == [
                (b"hush hush", None),
                (b"hush hush", b"hush hush"),
            ]


async def test_people_can_read_current_objects_with_sqlite_alone(tmp_path: Path) -> None:
    expected = await make(tmp_path, 20)
    with sqlite3.connect(tmp_path / "planform.db") as database:
        rows = database.execute("SELECT resource, namespace, name, rv, value FROM objects ORDER BY 1, 2, 3").fetchall()
    database.close()
    assert [(Key(*row[:3]), Entry(*row[3:])) for row in rows] == expected
