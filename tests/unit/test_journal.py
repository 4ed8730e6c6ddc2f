"""The journal: what is kept, what goes, what no reader may see, and what a crash or a broken file does to it."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import sys
import zlib
from array import array
from base64 import b64encode
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from random import Random
from typing import Any

import orjson
import pytest

from planform.clock import VirtualClock
from planform.journal import Journal, Limits, Part, Run, RunRecord, StepRun, open_journal
from planform.journal.files import JournalUnreadable, open_read_only
from planform.journal.outbox import Entry, Outbox
from planform.journal.records import RunSummary, read_run
from planform.journal.serving import answer
from planform.journal.tables import latest_runs, run_of, runs_named
from planform.telemetry.masking import MASK
from planform.telemetry.metrics import MetricsRegistry

CLOCK = VirtualClock()


def record(uid: str = "u", *, text: str = "", secrets: frozenset[bytes] = frozenset(), **fields: Any) -> RunRecord:
    """A run whose one step makes a thing with that text."""
    step = StepRun(step="make", function="f", added=("thing",), resources={"thing": Part(thing(text))})
    run = Run(
        uid=uid,
        api_version="example.org/v1",
        kind="XThing",
        name=f"name-{uid}",
        started=fields.pop("started", CLOCK.now()),
        **{"observed_composite": Part({"spec": {"uid": uid}}), "steps": (step,), **fields},
    )
    return RunRecord(run, secrets)


def thing(text: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Thing", "spec": {"text": text}}


@asynccontextmanager
async def opened(
    path: Path | None = None, *, clock: VirtualClock = CLOCK, metrics: MetricsRegistry | None = None, **limits: Any
) -> AsyncIterator[Journal]:
    async with open_journal(
        path, clock=clock, metrics=metrics or MetricsRegistry(), limits=Limits(**limits)
    ) as journal:
        yield journal


def rows(path: Path, query: str) -> list[Any]:
    database = sqlite3.connect(path)
    try:
        return database.execute(query).fetchall()
    finally:
        database.close()


def mode_of(path: Path) -> int:
    return path.stat().st_mode & 0o777


def content_of(path: Path) -> bytes:
    return path.read_bytes()


def break_file(path: Path, damage: str) -> bytes:
    """Spoil the file; gives what it holds now."""
    content = bytearray(path.read_bytes())
    if damage == "torn":
        content[4096:40960] = os.urandom(36864)
    elif damage == "zeroed":
        content[:] = bytes(len(content))
    else:
        content[:] = b"hello " * 1000
    path.write_bytes(content)
    return bytes(content)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "journal.db"


# -- what is kept


async def test_a_run_is_read_as_it_was_recorded() -> None:
    async with opened() as journal:
        given = record(text="hello", trigger="spec changed", failure="no")
        number = journal.record(given)
        found = await journal.run(number)
    assert found is not None
    assert found.id == number
    assert found.steps == given.run.steps
    assert found.observed_composite == given.run.observed_composite
    assert (found.trigger, found.failure, found.started) == ("spec changed", "no", CLOCK.now())


async def test_runs_of_an_object_come_newest_first() -> None:
    async with opened() as journal:
        numbers = [journal.record(record(trigger=str(n))) for n in range(3)]
        journal.record(record("other"))
        found = await journal.runs("u", 2)
    assert [each.id for each in found] == [numbers[2], numbers[1]]
    assert [each.trigger for each in found] == ["2", "1"]
    assert found[0].kind == "XThing.example.org"


async def test_the_latest_runs_of_a_kind_are_one_for_each_object() -> None:
    async with opened() as journal:
        for n in range(3):
            journal.record(record("a", trigger=str(n)))
        journal.record(record("b"))
        journal.record(record("c", trigger="only"))
        found = await journal.latest("XThing.example.org")
        assert await journal.latest("XThing") == []
    assert [(each.uid, each.trigger) for each in found] == [("a", "2"), ("b", ""), ("c", "only")]


async def test_runs_and_states_outlive_a_restart_and_numbers_go_on(path: Path) -> None:
    async with opened(path) as journal:
        first = journal.record(record(text="kept"))
        journal.remember("u", "dependencies", b"abc")
    async with opened(path) as journal:
        assert journal.record(record()) == first + 1
        found = await journal.run(first)
        assert found is not None
        assert found.steps[0].resources["thing"] == Part(thing("kept"))
        assert await journal.last_runs("dependencies") == {"u": b"abc"}


async def test_the_last_state_of_a_kind_counts() -> None:
    async with opened() as journal:
        journal.remember("u", "digest", b"1")
        await journal.flush()
        journal.remember("u", "digest", b"2")
        journal.remember("u", "dependencies", b"x")
        journal.remember("v", "digest", b"3")
        assert await journal.last_runs("digest") == {"u": b"2", "v": b"3"}
        assert await journal.last_runs("unknown") == {}


async def test_equal_parts_are_stored_once_across_steps_runs_and_objects(path: Path) -> None:
    async with opened(path) as journal:
        for n in range(50):
            journal.record(record("u" if n % 2 else "v", text="same", observed={"thing": Part(thing("same"))}))
    contents = rows(path, "SELECT count(*) FROM parts")
    assert contents == [(3,)], "the thing once, and the two objects"


def with_input(given: Any, uid: str = "u", *, secrets: frozenset[bytes] = frozenset()) -> RunRecord:
    return record(uid, steps=(StepRun(step="make", function="f", input=Part(given)),), secrets=secrets)


async def test_runs_that_share_an_input_have_it_each(path: Path) -> None:
    async with opened(path) as journal:
        shared = {"kind": "Input", "size": 1}
        numbers = [journal.record(with_input(given)) for given in (shared, shared, {"kind": "Input", "size": 2})]
        found = [await journal.run(number) for number in numbers]
    assert [run.steps[0].input for run in found if run is not None] == [
        Part(shared),
        Part(shared),
        Part({"kind": "Input", "size": 2}),
    ]


async def test_more_inputs_than_are_remembered_are_told_apart() -> None:
    async with opened() as journal:
        # None of these objects lives longer than its record, so that others come to stand in their places.
        numbers = [journal.record(with_input({"number": number}, f"u{number}")) for number in range(600)]
        for wanted, number in enumerate(numbers):
            run = await journal.run(number)
            assert run is not None and run.steps[0].input == Part({"number": wanted})


async def test_an_input_loses_what_is_secret_in_one_run_and_keeps_it_in_another(path: Path) -> None:
    async with opened(path) as journal:
        shared = {"kind": "Input", "text": "hunter2hunter2"}
        plain = journal.record(with_input(shared))
        masked = journal.record(with_input(shared, secrets=frozenset({b"hunter2hunter2"})))
        again = journal.record(with_input(shared))
        runs = [await journal.run(number) for number in (plain, masked, again)]
    texts = [run.steps[0].input.value["text"] for run in runs if run is not None and run.steps[0].input is not None]
    assert texts == ["hunter2hunter2", MASK, "hunter2hunter2"]


async def test_a_value_without_a_json_form_is_kept_as_text() -> None:
    async with opened() as journal:
        number = journal.record(record(observed={"odd": Part({1: {2}})}))
        found = await journal.run(number)
    assert found is not None
    assert found.observed["odd"] == Part({"1": "{2}"})


async def test_the_file_is_for_its_owner_alone(path: Path) -> None:
    async with opened(path):
        assert mode_of(path) == 0o600


# -- what goes


async def test_older_runs_are_bounded_by_count_for_each_object_and_the_newest_stay() -> None:
    async with opened(runs_per_object=3) as journal:
        for n in range(10):
            journal.record(record("a", text=str(n), trigger=str(n)))
            await journal.flush()
        journal.record(record("b"))
        assert [each.trigger for each in await journal.runs("a", 99)] == ["9", "8", "7"]
        assert len(await journal.runs("b", 99)) == 1


async def test_older_runs_go_by_age_and_the_latest_of_each_object_stays() -> None:
    clock = VirtualClock()
    async with opened(clock=clock, age=timedelta(days=1)) as journal:
        for uid in ("a", "a", "b"):
            journal.record(record(uid, started=clock.now()))
        await journal.flush()
        await clock.advance(25 * 3600)
        journal.record(record("c", started=clock.now()))
        assert len(await journal.runs("a", 99)) == 1
        assert len(await journal.runs("b", 99)) == 1


async def test_bytes_are_bounded_by_removing_the_oldest_and_the_latest_of_each_object_stays(path: Path) -> None:
    metrics = MetricsRegistry()
    async with opened(path, metrics=metrics, bytes=20_000, runs_per_object=100) as journal:
        journal.record(record("quiet", text="first"))
        for n in range(60):
            journal.record(record("busy", text=os.urandom(500).hex(), trigger=str(n)))
            await journal.flush()
        kept = await journal.runs("busy", 99)
        assert kept[0].trigger == "59"
        assert 10 < len(kept) < 50
        assert [int(each.trigger) for each in kept] == sorted((int(each.trigger) for each in kept), reverse=True)
        assert len(await journal.runs("quiet")) == 1
        assert 10_000 < metrics.gauge("planform_journal_bytes", "").labels().value <= 20_000


async def test_parts_that_no_run_names_are_gone_and_shared_ones_stay(path: Path) -> None:
    async with opened(path, runs_per_object=2) as journal:
        for n in range(20):
            journal.record(record("a", text=f"only {n}", observed={"shared": Part(thing("shared"))}))
            await journal.flush()
        journal.record(record("b", observed={"shared": Part(thing("shared"))}))
        journal.forget("a")
    texts = {orjson.loads(content)["spec"].get("text") for (content,) in _contents(path)}
    assert texts == {"shared", "", None}
    assert rows(path, "SELECT count(*) FROM uses") == rows(path, "SELECT count(*) FROM parts")
    measured = rows(
        path, "SELECT (SELECT sum(length(content)) FROM packs)+(SELECT sum(length(parts)+length(body)) FROM runs)"
    )
    assert rows(path, "SELECT value FROM meta WHERE name = 'bytes'") == measured


async def test_when_everything_is_forgotten_nothing_is_left(path: Path) -> None:
    async with opened(path) as journal:
        for n in range(200):
            journal.record(record(f"u{n}", text=str(n)))
            journal.remember(f"u{n}", "digest", b"x")
        await journal.flush()
        for n in range(200):
            journal.forget(f"u{n}")
        assert await journal.last_runs("digest") == {}
    for table in ("runs", "packs", "parts", "uses", "standing"):
        assert rows(path, f"SELECT count(*) FROM {table}") == [(0,)], table
    assert rows(path, "SELECT value FROM meta WHERE name = 'bytes'") == [(0,)]


async def test_what_waits_for_a_forgotten_object_is_not_written() -> None:
    async with opened() as journal:
        journal.record(record("a"))
        journal.remember("a", "digest", b"x")
        journal.forget("a")
        assert await journal.runs("a") == []
        assert await journal.last_runs("digest") == {}


@pytest.mark.parametrize("seed", range(5))
async def test_whatever_comes_and_goes_every_part_is_counted_and_nothing_is_left_over(path: Path, seed: int) -> None:
    rng = Random(seed)
    latest: dict[str, int] = {}
    async with opened(path, runs_per_object=3, bytes=6_000) as journal:
        for _ in range(150):
            uid = f"u{rng.randrange(6)}"
            if rng.random() < 0.1:
                journal.forget(uid)
                latest.pop(uid, None)
                await journal.flush()
            else:
                things = {str(n): Part(thing(f"{rng.randrange(12)}" * 50)) for n in range(rng.randrange(4))}
                latest[uid] = journal.record(record(uid, text=str(rng.randrange(5)), observed=things))
            if rng.random() < 0.3:
                await journal.flush()
        for uid, number in latest.items():
            assert (await journal.runs(uid, 1))[0].id == number
            assert await journal.run(number) is not None
    named = Counter(part for (ids,) in rows(path, "SELECT parts FROM runs") for part in array("q", ids))
    assert dict(rows(path, "SELECT part, runs FROM uses")) == named
    assert {part for (part,) in rows(path, "SELECT id FROM parts")} == set(named)
    assert {pack for (pack,) in rows(path, "SELECT id FROM packs")} == {
        pack for (pack,) in rows(path, "SELECT pack FROM parts")
    }
    measured = "SELECT (SELECT sum(length(content)) FROM packs) + (SELECT sum(length(parts) + length(body)) FROM runs)"
    assert rows(path, "SELECT value FROM meta WHERE name = 'bytes'") == rows(path, measured)


async def test_objects_of_kinds_that_vanished_unseen_are_forgotten_on_demand() -> None:
    async with opened() as journal:
        journal.record(record("alive"))
        journal.record(record("alive"))
        journal.remember("alive", "XThing.example.org", b"x")
        journal.remember("settled long ago", "XThing.example.org", b"x")
        for uid in ("dead", "long dead"):
            journal.remember(uid, "XGone.example.org", b"x")
        assert await journal.retain({"XThing.example.org", "XNew.example.org"}) == 2
        assert await journal.last_runs("XGone.example.org") == {}
        assert set(await journal.last_runs("XThing.example.org")) == {"alive", "settled long ago"}
        assert len(await journal.runs("alive")) == 2
        assert await journal.retain({"XThing.example.org"}) == 0


async def test_all_objects_of_a_kind_are_forgotten_at_once_and_nobody_else() -> None:
    async with opened() as journal:
        for number in range(100):  # more than one transaction takes
            journal.record(record(f"u{number}"))
        journal.remember("u7", "XThing.example.org", b"x")
        journal.remember("other", "XOther.example.org", b"x")
        assert await journal.forget_kind("XThing.example.org") == 100
        assert await journal.latest() == []
        assert await journal.last_runs("XThing.example.org") == {}
        assert list(await journal.last_runs("XOther.example.org")) == ["other"]
        assert await journal.forget_kind("XThing.example.org") == 0


def entry(number: int, uid: str, size: int = 1) -> Entry:
    summary = RunSummary(id=number, uid=uid, kind="K", name=uid, started=CLOCK.now())
    return Entry(summary, b"", {}, size)


def test_a_full_queue_drops_the_oldest_run_of_an_object_that_ran_again() -> None:
    outbox = Outbox(max_bytes=1 << 20, max_runs=3)
    assert [outbox.add(entry(n, uid)) for n, uid in enumerate("abab", 1)] == [0, 0, 0, 1]
    assert [each.summary.id for each in outbox.take(9).runs] == [2, 3, 4]


def test_a_queue_full_of_latest_runs_drops_the_oldest_of_them() -> None:
    outbox = Outbox(max_bytes=10, max_runs=99)
    assert [outbox.add(entry(n, uid, size=4)) for n, uid in enumerate("abc", 1)] == [0, 0, 1]
    assert [each.summary.uid for each in outbox.take(9).runs] == ["b", "c"]
    assert not outbox


async def test_large_runs_do_not_wait_for_company_until_they_are_dropped() -> None:
    metrics = MetricsRegistry()
    async with opened(metrics=metrics) as journal:
        for number in range(40):  # more than may wait, in less time than they would wait
            journal.record(record("a", text=f"{number}" + "x" * (1 << 20)))
            await asyncio.sleep(0.002)
        await journal.flush()
    assert "planform_journal_runs_total 40" in metrics.render()


def test_an_outbox_is_filling_when_a_quarter_is_taken() -> None:
    by_bytes, by_count = Outbox(max_bytes=40, max_runs=99), Outbox(max_bytes=1 << 20, max_runs=8)
    assert [(by_bytes.add(entry(n, "a", size=5)), by_bytes.is_filling) for n in range(3)][1:] == [(0, False), (0, True)]
    assert [(by_count.add(entry(n, "a")), by_count.is_filling) for n in range(3)][1:] == [(0, False), (0, True)]


async def test_dropped_runs_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("planform.journal.journal._QUEUED_RUNS", 5)
    metrics = MetricsRegistry()
    async with opened(metrics=metrics) as journal:
        for _ in range(8):
            journal.record(record("a"))
        assert len(await journal.runs("a", 99)) == 5
    assert 'planform_journal_dropped_runs_total{reason="QueueFull"} 3' in metrics.render()
    assert "planform_journal_runs_total 5" in metrics.render()


# -- what no reader may see

PASSWORD = "correct horse"
SECRET = {
    "apiVersion": "v1",
    "kind": "Secret",
    "metadata": {
        "name": "s",
        "annotations": {"kubectl.kubernetes.io/last-applied-configuration": '{"stringData": {"key": "uvw"}}'},
    },
    "data": {"password": b64encode(PASSWORD.encode()).decode(), "pin": b64encode(b"1234").decode()},
    "stringData": {"note": "tell nobody"},
}


def _contents(path: Path) -> list[tuple[bytes]]:
    packs = {id: zlib.decompress(content) for id, content in rows(path, "SELECT id, content FROM packs")}
    return [
        (packs[pack][start : start + size],) for pack, start, size in rows(path, "SELECT pack, start, size FROM parts")
    ]


def everything(path: Path) -> bytes:
    """All that the file says, unpacked."""
    bodies = [zlib.decompress(body) for (body,) in rows(path, "SELECT body FROM runs")]
    lists = [repr(row).encode() for row in rows(path, "SELECT failure, cause, name FROM runs")]
    return b"\n".join([*(content for (content,) in _contents(path)), *bodies, *lists])


@pytest.mark.parametrize(
    "where",
    [
        {"observed": {"s": Part(SECRET)}},
        {"steps": (StepRun(step="a", function="f", resources={"s": Part(SECRET)}),)},
        {"observed": {"wrapped": Part({"kind": "Object", "spec": {"manifest": SECRET}})}},
        {"observed": {"list": Part({"kind": "List", "items": [SECRET]})}},
    ],
    ids=["observed", "desired", "inside another object", "in a list"],
)
async def test_values_of_secret_objects_are_masked_wherever_they_turn_up(path: Path, where: dict[str, Any]) -> None:
    leak = {
        "status": {
            "url": f"postgres://me:{PASSWORD}@host",
            "encoded": SECRET["data"]["password"],  # type: ignore[index]
            PASSWORD: 1,
        }
    }
    async with opened(path) as journal:
        journal.record(
            record(
                **{
                    "observed_composite": Part(leak),
                    "failure": f"refused {PASSWORD}",
                    "trigger": "tell nobody",
                    **where,
                }
            )
        )
    text = everything(path)
    for secret in (PASSWORD, SECRET["data"]["password"], SECRET["data"]["pin"], "tell nobody", "uvw"):  # type: ignore[index]
        assert str(secret).encode() not in text
    assert b"postgres://me:******@host" in text
    assert b"refused ******" in text


async def test_connection_details_and_credentials_are_masked_in_every_spelling(path: Path) -> None:
    pem = "-----BEGIN KEY-----\nMIIEvQIBADANBg\n-----END KEY-----"
    secrets = frozenset({b'quo"ted\\pass', pem.encode(), b"\xff\xfebinary!", b"31415926"})
    leak = {
        "quoted": 'x quo"ted\\pass y',
        "line": "key MIIEvQIBADANBg",
        "binary": b64encode(b"\xff\xfebinary!").decode(),
        "number": 31415926,
        "longer number": 314159265,
        "harmless": "31415",
    }
    async with opened(path) as journal:
        number = journal.record(record(observed={"x": Part(leak)}, secrets=secrets))
        found = await journal.run(number)
    assert found is not None
    assert found.observed["x"].value == {
        "quoted": "x ****** y",
        "line": "key ******",
        "binary": "******",
        "number": "******",
        "longer number": 314159265,
        "harmless": "31415",
    }


async def test_a_secret_that_looks_like_a_time_does_not_make_the_run_unreadable() -> None:
    async with opened() as journal:
        number = journal.record(record(secrets=frozenset({b"2026-01-01"}), trigger="since 2026-01-01"))
        found = await journal.run(number)
    assert found is not None
    assert (found.started, found.trigger) == (CLOCK.now(), "since ******")


async def test_an_object_keeps_its_name_even_if_a_secret_is_spelled_the_same() -> None:
    async with opened() as journal:
        number = journal.record(record("abc", secrets=frozenset({b"name-abc"}), trigger="name-abc"))
        found = await journal.run(number)
        (listed,) = await journal.runs("abc")
    assert found is not None
    assert (found.name, found.trigger) == ("name-abc", "******")
    assert (listed.name, listed.trigger) == ("name-abc", "******")


async def test_nothing_secret_waits_in_the_queue() -> None:
    async with opened() as journal:
        journal.record(record(observed={"s": Part(SECRET)}, failure=PASSWORD))
        (waiting,) = journal._outbox.take(9).runs
    assert PASSWORD not in repr(waiting)
    assert str(SECRET["data"]["password"]) not in repr(waiting)  # type: ignore[index]


# -- crashes and broken files

WRITER = """
import asyncio, sys
from datetime import UTC, datetime
from pathlib import Path
from planform.clock import SystemClock
from planform.journal import Part, Run, RunRecord, open_journal
from planform.telemetry.metrics import MetricsRegistry

async def main():
    async with open_journal(Path(sys.argv[1]), clock=SystemClock(), metrics=MetricsRegistry()) as journal:
        n = 0
        while True:
            run = Run(uid=f"u{n % 7}", api_version="e/v1", kind="K", name="n", started=datetime.now(UTC),
                      observed_composite=Part({"n": n // 3}))
            number = journal.record(RunRecord(run))
            journal.remember(run.uid, "digest", str(number).encode())
            await journal.flush()
            print(number, flush=True)
            n += 1

asyncio.run(main())
"""


async def test_a_killed_writer_leaves_a_whole_journal_with_all_that_was_flushed(path: Path) -> None:
    writer = await asyncio.create_subprocess_exec(
        sys.executable, "-c", WRITER, str(path), stdout=asyncio.subprocess.PIPE
    )
    assert writer.stdout is not None
    flushed = 0
    while flushed < 200:
        flushed = int(await writer.stdout.readline())
    writer.kill()
    rest = (await writer.stdout.read()).split()
    await writer.wait()
    flushed = int(rest[-1]) if rest else flushed
    async with opened(path) as journal:
        states = await journal.last_runs("digest")
        assert flushed <= max(map(int, states.values())) <= flushed + 1
        for uid, number in states.items():
            newest = (await journal.runs(uid, 1))[0]
            assert newest.id == int(number), "a run and the state that came with it are of one transaction"
            run = await journal.run(newest.id)
            assert run is not None
            assert run.observed_composite == Part({"n": (newest.id - 1) // 3})
    used = rows(path, "SELECT count(*) FROM parts WHERE id NOT IN (SELECT part FROM uses WHERE runs > 0)")
    assert used == [(0,)]
    assert not path.with_name("journal.db.set-aside").exists()


@pytest.mark.parametrize("damage", ["not a database", "torn"])
async def test_a_damaged_file_is_set_aside_and_a_new_one_begun(
    path: Path, damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with opened(path) as journal:
        for n in range(100):
            journal.record(record(f"u{n}", text=os.urandom(300).hex()))
    before = break_file(path, damage)
    async with opened(path) as journal:
        assert await journal.runs("u1") == []
        number = journal.record(record("u1"))
        assert await journal.run(number) is not None
    assert content_of(path.with_name("journal.db.set-aside")) == before
    assert "starting a new one" in caplog.text


async def test_a_file_of_a_newer_planform_is_set_aside_unchanged(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with opened(path) as journal:
        journal.record(record())
    database = sqlite3.connect(path)
    database.execute("PRAGMA user_version = 99")
    database.close()
    async with opened(path) as journal:
        assert await journal.runs("u") == []
    assert "has format 99, written by a newer planform" in caplog.text
    assert rows(path.with_name("journal.db.set-aside"), "SELECT count(*) FROM runs") == [(1,)]


async def test_damage_met_while_writing_starts_a_new_file_and_loses_no_new_run(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with opened(path) as journal:
        journal.record(record("old"))
        await journal.flush()
        journal._database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        journal._database.execute("PRAGMA journal_mode = DELETE")
        break_file(path, "zeroed")
        journal._database.execute("PRAGMA cache_size = 0")
        number = journal.record(record("new"))
        assert await journal.run(number) is not None
    assert "starting a new one" in caplog.text


async def test_a_journal_that_cannot_be_opened_is_done_without(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").touch()
    async with opened(tmp_path / "file" / "journal.db") as journal:
        number = journal.record(record())
        assert await journal.run(number) is not None
    assert "cannot open the journal" in caplog.text


async def test_a_failed_write_is_counted_and_told_once(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    metrics = MetricsRegistry()
    async with opened(path, metrics=metrics) as journal:
        journal.record(record("a"))
        await journal.flush()
        journal._database.execute("PRAGMA query_only = 1")
        for _ in range(2):
            journal.record(record("a"))
            await journal.flush()
        journal._database.execute("PRAGMA query_only = 0")
        journal.record(record("a", trigger="again"))
        assert [each.trigger for each in await journal.runs("a")] == ["again", ""]
    assert 'planform_journal_dropped_runs_total{reason="WriteFailed"} 2' in metrics.render()
    assert caplog.text.count("cannot write the journal") == 1


# -- reading from outside


async def test_a_journal_can_be_read_while_its_control_plane_writes(path: Path) -> None:
    async with opened(path) as journal:
        number = journal.record(record("a", text="seen"))
        await journal.flush()
        database = open_read_only(path)
        assert [each.id for each in latest_runs(database, "XThing.example.org")] == [number]
        assert [each.id for each in runs_named(database, "", "name-a")] == [number]
        run = run_of(database, number)
        database.close()
    assert run is not None
    assert run.steps[0].resources["thing"] == Part(thing("seen"))


def test_what_is_no_journal_cannot_be_read(tmp_path: Path) -> None:
    for name, content in (("text", b"hello " * 100), ("empty", b"")):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(JournalUnreadable):
            open_read_only(tmp_path / name)
    with pytest.raises(JournalUnreadable, match="there is no journal"):
        open_read_only(tmp_path / "nothing")


async def test_runs_are_served_as_a_list_by_number_and_the_latest() -> None:
    async with opened() as journal:
        numbers = [journal.record(record("u", text=str(n))) for n in range(3)]
        code, body = await answer(journal, "/planform/v1/runs/u", {"limit": ["2"]})
        assert code == 200
        assert [each["id"] for each in orjson.loads(body)["items"]] == [numbers[2], numbers[1]]
        for last, text in (("latest", "2"), (str(numbers[0]), "0")):
            code, body = await answer(journal, f"/planform/v1/runs/u/{last}", {})
            assert code == 200
            assert orjson.loads(body)["steps"][0]["resources"]["thing"] == thing(text)
            assert read_run(body).steps[0].resources["thing"] == Part(thing(text))


@pytest.mark.parametrize(
    ("path", "query", "code"),
    [
        ("/planform/v1/runs/nobody/latest", {}, 404),
        ("/planform/v1/runs/nobody/steps", {}, 404),
        ("/planform/v1/runs/u/99", {}, 404),
        ("/planform/v1/runs/other/1", {}, 404),
        ("/planform/v1/runs/u/x", {}, 404),
        ("/planform/v1/runs", {}, 404),
        ("/planform/v1/else", {}, 404),
        ("/planform/v1/runs/u", {"limit": ["0"]}, 400),
        ("/planform/v1/runs/u", {"limit": ["many"]}, 400),
    ],
)
async def test_what_cannot_be_served_is_refused_with_a_status(
    path: str, query: dict[str, list[str]], code: int
) -> None:
    async with opened() as journal:
        journal.record(record("u"))
        found, body = await answer(journal, path, query)
    assert found == code
    assert orjson.loads(body)["kind"] == "Status"
