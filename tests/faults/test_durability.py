"""A plane that is killed under load loses no acknowledged write, keeps none in part, and its watches resume.

A killed process leaves the page cache behind, so killing alone would also spare a plane that never syncs. Hence the
second half: a trace of the system calls shows that each answer was sent after the sync that covers its write, and the
write-ahead log cut at each of these syncs recovers everything that had been answered by then.
"""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import pytest

from planform.clock import VirtualClock
from planform.store import open_store
from tests.faults.load import CONFIG_MAPS, Connection, PlaneProcess, Watcher, Writer, content, is_whole, running_plane
from tests.faults.traces import Order, traced_plane

WRITERS = 6
ROUNDS = 10
SMALL = (40, 400, 4_000)
LARGE = (40, 4_000, 40_000, 200_000)  # enough for the write-ahead log to be moved into the database meanwhile
SELECTOR = "writer+in+(0,3,fence)"


def is_selected(name: str) -> bool:
    return name.split("-")[1] in ("0", "3", "fence")


class Crashes:
    """Rounds of load, kill and check on one data directory, which grows from round to round."""

    def __init__(self, directory: Path, seed: int) -> None:
        payloads = SMALL if seed % 2 else LARGE
        self.directory = directory
        self.choose = random.Random(seed)
        self.writers = [Writer.of(number, seed, payloads=payloads) for number in range(WRITERS)]
        self.all = Watcher()
        self.some = Watcher(selector=SELECTOR)
        self.contents: dict[int, tuple[str, object]] = {}  # what each resource version stood for when it was seen
        self.highest = 0
        self.fences = 0
        self.interrupted = 0  # writes that were under way when the plane was killed

    async def round(self) -> None:
        """Check what the last round left, then load the plane and kill it at a random point."""
        async with running_plane(self.directory) as plane:
            await self.check(plane)
            await self.load_and_kill(plane)

    async def load_and_kill(self, plane: PlaneProcess) -> None:
        acknowledged = asyncio.Semaphore(0)
        connections = [await plane.connect() for _ in range(WRITERS + 2)]
        async with asyncio.TaskGroup() as tasks:
            for watcher, connection in zip((self.all, self.some), connections, strict=False):
                tasks.create_task(watcher.run(connection))
            for writer, connection in zip(self.writers, connections[2:], strict=True):
                tasks.create_task(writer.run(connection, acknowledged))
            for _ in range(self.choose.randint(1, 100)):
                await acknowledged.acquire()
            await asyncio.sleep(self.choose.uniform(0, 0.004))
            plane.kill()
        for connection in connections:
            connection.writer.transport.abort()

    async def check(self, plane: PlaneProcess) -> None:
        """Compare what the plane shows and its watches tell with what it had acknowledged."""
        async with plane.connection() as connection:
            fence = await self.write_fence(connection)
            for watcher in (self.all, self.some):
                async with plane.connection() as watching:
                    await watcher.run(watching, until=fence)
            answer = (await connection.request("GET", CONFIG_MAPS)).json()
        listed = {}
        for item in answer["items"]:
            assert is_whole(item["data"]), f"{item['metadata']['name']} is there in part"
            listed[item["metadata"]["name"]] = (int(item["metadata"]["resourceVersion"]), item["data"])
        assert int(answer["metadata"]["resourceVersion"]) >= self.highest
        assert self.all.view == listed
        assert self.some.view == {name: listed[name] for name in listed if is_selected(name)}
        assert self.some.events == [event for event in self.all.events if is_selected(event.name)]
        self.check_steps()
        for event in self.all.events:
            assert self.contents.setdefault(event.rv, (event.name, event.content)) == (event.name, event.content)
        self.all.events.clear()
        self.some.events.clear()
        self.highest = fence

    def check_steps(self) -> None:
        """The events of each object are its acknowledged writes in order, and perhaps the one not answered."""
        for writer in self.writers:
            for name, told in writer.objects.items():
                events = [event for event in self.all.events if event.name == name]
                assert len(events) - len(told.steps) in ((0, 1) if told.unanswered else (0,)), name
                expected = [*told.steps, *([told.unanswered] if told.unanswered else [])]
                for event, step in zip(events, expected, strict=False):
                    assert event.content == step.content, f"{name} at {event.rv}"
                    assert step.rv in (0, event.rv), f"{name} was acknowledged at {step.rv} and told at {event.rv}"
                    assert event.rv > self.highest
                self.interrupted += told.unanswered is not None
                if events:
                    told.content, told.rv = events[-1].content, events[-1].rv
                told.steps.clear()
                told.unanswered = None

    async def write_fence(self, connection: Connection) -> int:
        """A write after which everything before it must have been told."""
        self.fences += 1
        data = content(self.fences, "")
        metadata = {"name": "the-fence", "labels": {"writer": "fence"}}
        manifest = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}
        method, target = ("POST", CONFIG_MAPS) if self.fences == 1 else ("PUT", f"{CONFIG_MAPS}/the-fence")
        answer = await connection.request(method, target, manifest)
        assert answer.status in (200, 201), answer
        return int(answer.json()["metadata"]["resourceVersion"])


async def crash_and_check(directory: Path, seed: int) -> None:
    crashes = Crashes(directory, seed)
    for _ in range(ROUNDS):
        await crashes.round()
    async with running_plane(directory) as plane:
        await crashes.check(plane)
        assert plane.log() == ""
    assert crashes.interrupted >= ROUNDS


@pytest.mark.parametrize("seed", range(5))
async def test_a_plane_killed_under_load_keeps_every_acknowledged_write_whole_and_its_watches_resume(
    tmp_path: Path, seed: int
) -> None:
    await crash_and_check(tmp_path, seed)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(5, 55))
async def test_a_plane_killed_five_hundred_times_keeps_every_acknowledged_write(tmp_path: Path, seed: int) -> None:
    await crash_and_check(tmp_path, seed)


async def trace_load(directory: Path, writes: int) -> Order:
    """Load a plane until so many writes are acknowledged, kill it, and read the trace of it."""
    writers = [Writer.of(number, 7, payloads=(40, 400)) for number in range(WRITERS)]
    acknowledged = asyncio.Semaphore(0)
    async with asyncio.TaskGroup() as tasks, traced_plane(directory) as plane:
        for writer in writers:
            tasks.create_task(writer.run(await plane.connect(), acknowledged))
        for _ in range(writes):
            await acknowledged.acquire()
    order = Order.of(directory / "trace", "writer-")
    told = sum(len(told.steps) for writer in writers for told in writer.objects.values())
    assert len(order.acknowledgements) >= told >= writes
    assert order.other_writes == []
    return order


async def test_no_write_is_acknowledged_before_the_sync_that_covers_it(tmp_path: Path) -> None:
    order = await trace_load(tmp_path, 150)
    answers: dict[str, int] = {}
    for acknowledgement in order.acknowledgements:
        name, begin = acknowledgement.name, acknowledgement.begin
        # An object's writer waits for each answer, so the nth one acknowledges the nth row.
        rv, written = sorted(order.rows[name].items())[answers.setdefault(name, 0)]
        answers[name] += 1
        assert acknowledgement.rv in (0, rv)
        covering = [sync for sync in order.syncs if sync.begin > written and sync.end < begin]
        assert covering, f"{name} at {rv} was written at line {written} and acknowledged at {begin} without a sync"
    assert len(order.syncs) < len(order.acknowledgements), "writes were expected to share syncs"


async def test_the_log_cut_at_every_sync_recovers_what_had_been_acknowledged_by_then(tmp_path: Path) -> None:
    order = await trace_load(tmp_path, 100)
    database = (tmp_path / "data/store/planform.db").read_bytes()
    log = (tmp_path / "data/store/planform.db-wal").read_bytes()
    first = min(min(rows.values()) for rows in order.rows.values())
    cuts = 0
    async with await open_store(power_cut(tmp_path / "whole", database, log), clock=VirtualClock()) as whole:
        for sync, following in zip(order.syncs, [*order.syncs[1:], None], strict=True):
            if sync.begin < first:
                continue
            cuts += 1
            left = power_cut(tmp_path / f"cut-{sync.end}", database, log[: sync.size])
            async with await open_store(left, clock=VirtualClock()) as store:
                known = [each for each in order.acknowledgements if following is None or each.begin < following.end]
                assert store.revision >= max((each.rv for each in known), default=0)
                for resource in whole.resources():
                    at_that_time = await whole.list_at(resource, None, store.revision)
                    assert list(at_that_time) == store.list(resource)
    assert cuts > 10


def power_cut(directory: Path, database: bytes, log: bytes) -> Path:
    """A data directory as a power cut leaves it."""
    directory.mkdir()
    (directory / "planform.db").write_bytes(database)
    (directory / "planform.db-wal").write_bytes(log)
    return directory
