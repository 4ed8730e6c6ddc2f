"""Laws of the store, whatever the order of writes, failed commits, compactions, restarts and watches.

The model is the list of all states, one for each resource version. After every step the committed view is the last of
them, the head is that with what is staged on top, and every watch has given each change once and in order. A gate
before the disk decides when a commit ends, so that a run depends on nothing but its seed.
"""

from __future__ import annotations

import asyncio
import shutil
import sqlite3
import tempfile
import threading
from collections.abc import Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from planform.clock import VirtualClock
from planform.errors import DiskFull
from planform.store import ChangeType, Compacted, Entry, HistoryLimits, Key, Store, Watch, Write, open_store
from planform.store.database import connect

T = TypeVar("T")
State = dict[Key, Entry]

KEYS = [Key(resource, namespace, name) for resource in "xy" for namespace in ("", "n") for name in "ab"]


class Disk:
    """Lets a batch through for each permit it is given, or says that it is full."""

    def __init__(self) -> None:
        self.full = False
        self.permits = threading.Semaphore(0)

    def connect(self, path: Path, *, read_only: bool) -> sqlite3.Connection:
        disk = self

        class Connection(sqlite3.Connection):
            def execute(self, sql: str, parameters: Any = (), /) -> sqlite3.Cursor:
                if sql.startswith("INSERT INTO log"):
                    assert disk.permits.acquire(timeout=10)
                    if disk.full:
                        error = sqlite3.OperationalError("database or disk is full")
                        error.sqlite_errorcode = sqlite3.SQLITE_FULL
                        raise error
                return super().execute(sql, parameters)

        return connect(path, read_only=read_only, factory=Connection)


@dataclass
class Follower:
    """A watch, and the state that its changes add up to."""

    watch: Watch
    resource: str | None
    seen: int
    state: State


class StoreMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.directory = Path(tempfile.mkdtemp(prefix="planform-laws-"))
        self.disk = Disk()
        self.states: list[State] = [{}]  # committed, one for each resource version
        self.keys: list[Key | None] = [None]  # whose change led to that state
        self.coming: list[tuple[Key, State]] = []  # the same for what is staged
        self.staged: list[tuple[asyncio.Future[int], int]] = []  # who waits for how many of those
        self.followers: list[Follower] = []

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self.loop.run_until_complete(asyncio.wait_for(work, 20))

    @property
    def head(self) -> State:
        return self.coming[-1][1] if self.coming else self.states[-1]

    @initialize(ring=st.sampled_from([1, 3, 100]))
    def open(self, ring: int) -> None:
        self.history = HistoryLimits(ring_events=ring)
        self.store = self.run(self._open())

    async def _open(self) -> Store:
        return await open_store(
            self.directory, clock=VirtualClock(), history=self.history, connect=self.disk.connect, synchronous="OFF"
        )

    # Writers

    # Staging and the end of a commit are one rule, as well as rules of their own: hypothesis leaves some rules out
    # of each run, and a run in which nothing is committed says little.

    @rule(
        writes=st.lists(st.tuples(st.sampled_from(KEYS), st.booleans()), min_size=1, max_size=6),
        group=st.booleans(),
        then=st.sampled_from(["more", "commit", "fail"]),
    )
    def stage(self, writes: list[tuple[Key, bool]], group: bool, then: str) -> None:
        async def act() -> None:
            many = [self._decide(key, delete=delete) for key, delete in writes]
            if group:
                self.staged.append((self.store.stage_many(many), len(many)))
            else:
                self.staged += [(self.store.stage(key, value, last=last), 1) for key, value, last in many]
            await asyncio.sleep(0)  # the batch, if it is the first one, is handed to the disk
            await asyncio.sleep(0)

        self.run(act())
        self.views_hold()
        if then == "commit":
            self._commit()
        elif then == "fail":
            self._fail()

    def _decide(self, key: Key, *, delete: bool) -> Write:
        rv, state = len(self.states) + len(self.coming), dict(self.head)
        if delete and key in state:
            del state[key]
            write = Write(key, None, f"gone at {rv}".encode())
        else:
            state[key] = Entry(rv, f"v{rv}".encode())
            write = Write(key, state[key].value)
        self.coming.append((key, state))
        return write

    @precondition(lambda self: self.staged)
    @rule()
    def commit_the_batch_on_its_way(self) -> None:
        self._commit()

    @precondition(lambda self: self.staged)
    @rule()
    def fail_the_batch_on_its_way_and_all_that_was_staged_on_it(self) -> None:
        self._fail()

    def _commit(self) -> None:
        self.disk.permits.release()
        self.run(asyncio.wait_for(self.staged[0][0], 10))
        while self.staged and self.staged[0][0].done():
            future, count = self.staged.pop(0)
            self.keys += [key for key, _ in self.coming[:count]]
            self.states += [state for _, state in self.coming[:count]]
            self.coming = self.coming[count:]
            assert future.result() == len(self.states) - 1

    def _fail(self) -> None:
        async def act() -> list[Any]:
            waiting: list[Any] = [future for future, _ in self.staged]
            waiting += [asyncio.ensure_future(self.store.settled(key)) for key in {key for key, _ in self.coming}]
            await asyncio.sleep(0)
            self.disk.full = True
            self.disk.permits.release()
            return await asyncio.gather(*waiting, return_exceptions=True)

        results = self.run(act())
        assert [type(result) for result in results] == [DiskFull] * len(results)
        self.disk.full = False
        self.staged, self.coming = [], []

    # Housekeeping

    def _drain(self) -> None:
        while self.staged:
            self._commit()

    @rule(fraction=st.floats(0, 1.1))
    def compact(self, fraction: float) -> None:
        self._drain()
        keep_from, floor = int(len(self.states) * fraction), self.store.floor
        self.run(self.store.compact(keep_from))
        assert self.store.floor == max(floor, min(keep_from - 1, self.store.revision))

    @rule()
    def restart(self) -> None:
        self._drain()
        assert self.run(self.store.check()) == []
        floor = self.store.floor
        self.run(self.store.close())
        self.followers = []
        self.store = self.run(self._open())
        assert (self.store.revision, self.store.floor) == (len(self.states) - 1, floor)

    # Readers

    @rule(resource=st.sampled_from([None, "x", "y"]), back=st.integers(0, 12))
    def follow(self, resource: str | None, back: int) -> None:
        since = max(0, self.store.revision - back)
        try:
            watch = self.store.watch(resource, None, since)
        except Compacted:
            assert since < self.store.floor
            return
        assert since >= self.store.floor
        self.followers.append(Follower(watch, resource, since, self._part(since, resource)))

    @precondition(lambda self: self.followers)
    @rule(data=st.data())
    def read(self, data: st.DataObject) -> None:
        follower = self.followers[data.draw(st.integers(0, len(self.followers) - 1))]
        news = [
            rv
            for rv in range(follower.seen + 1, len(self.states))
            if (key := self.keys[rv]) is not None and follower.resource in (None, key.resource)
        ]
        try:
            while news:
                news = self._take(follower, news)
        except Compacted:
            assert follower.watch.position < self.store.floor
            self.followers.remove(follower)
            return
        assert follower.state == self._part(self.store.revision, follower.resource)

    def _take(self, follower: Follower, news: list[int]) -> list[int]:
        """Read one batch, which must be the next of what is new; returns the rest."""
        batch = self.run(_next_batch(follower.watch))
        assert [change.rv for change in batch] == news[: len(batch)]
        for change in batch:
            before = self.states[change.rv - 1].get(change.key)
            assert (change.previous, change.previous_rv) == ((before.value, before.rv) if before else (None, 0))
            follower.seen = change.rv
            follower.state.pop(change.key, None)
            if change.type is ChangeType.DELETED:
                assert change.value == f"gone at {change.rv}".encode()
            else:
                assert change.type is (ChangeType.MODIFIED if before else ChangeType.ADDED)
                follower.state[change.key] = Entry(change.rv, change.value)
        return news[len(batch) :]

    @rule(back=st.integers(0, 12), resource=st.sampled_from("xy"), namespace=st.sampled_from([None, "n"]))
    def list_at(self, back: int, resource: str, namespace: str | None) -> None:
        rv = max(0, self.store.revision - back)
        try:
            snapshot = self.run(self.store.list_at(resource, namespace, rv))
        except Compacted:
            assert rv < self.store.floor
            return
        wanted = {k: e for k, e in self._part(rv, resource).items() if namespace in (None, k.namespace)}
        assert list(snapshot) == sorted(wanted.items())
        assert len(snapshot) == len(wanted)

    def _part(self, rv: int, resource: str | None) -> State:
        return {key: entry for key, entry in self.states[rv].items() if resource in (None, key.resource)}

    # What always holds

    @invariant()
    def views_hold(self) -> None:
        if not hasattr(self, "store"):
            return
        assert self.store.revision == len(self.states) - 1
        assert self.store.next_revision() == len(self.states) + len(self.coming)
        committed, head = self.states[-1], self.head
        assert [item for resource in "xy" for item in self.store.list(resource)] == sorted(committed.items())
        assert sum(self.store.count(resource) for resource in "xy") == len(committed)
        for key in KEYS:
            assert self.store.get(key) == committed.get(key)
            assert self.store.head(key) == head.get(key)

    def teardown(self) -> None:
        for _ in self.staged:
            self.disk.permits.release()
        if hasattr(self, "store"):
            self.run(self.store.close())
        self.loop.close()
        shutil.rmtree(self.directory)


async def _next_batch(watch: Watch) -> list[Any]:
    return await anext(watch)


StoreMachine.TestCase.settings = settings(
    max_examples=60, stateful_step_count=30, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True
)
TestStoreLaws = StoreMachine.TestCase
