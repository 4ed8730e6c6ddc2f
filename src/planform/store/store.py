"""The store: two views of every object, and one writer behind them.

`head` is the staged view: what the next write must be decided on. `get`, `list` and the watches show the committed
view: what has reached the disk. A write is staged synchronously and gets the next resource version at once; the writes
of one turn of the event loop, and all that gather while a commit is under way, share the next commit. When it is
durable, one callback publishes it without a pause: committed view, ring, watches, subscribers, then the writers.

    stage -> pending -> (writer thread: one transaction) -> publish -> writers' futures

A commit that fails takes everything with it that was staged on top of it. Resource versions then go back to the last
committed one, so they have no gaps, and none that was acknowledged is ever used twice.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

from planform.clock import Clock
from planform.errors import DiskFull, StoreClosed, StoreError
from planform.store.backup import check_database, copy_database
from planform.store.database import Connect
from planform.store.directory import DataDirectory
from planform.store.failures import corrupt, is_final, write_failure
from planform.store.log import Loaded, Log, LogReader
from planform.store.meter import Meter
from planform.store.records import Change, ChangeType, Compacted, Entry, HistoryLimits, Key, Write
from planform.store.retention import Retention
from planform.store.ring import Ring
from planform.store.tables import Snapshot, Table
from planform.store.watch import SLICE, Watch, Watchers
from planform.store.worker import Worker

ROWS_PER_COMMIT = 1024
COMPACTION_SLICE = 512
CHECKPOINT_BYTES = 16 << 20
BATCH_OVERHEAD = 4 * 8192  # pages that a commit writes beside its rows, about

SEVERAL_WRITES = 3
"""A commit of so many writes shows that several are writing at once."""

GATHER_SECONDS = 0.002
GATHERED_WRITES = 48
"""So long the next commit then waits for more writes, and so many of them are enough."""

Subscriber = Callable[[Sequence[Change]], None]


Waiters = list[asyncio.Future[Any]]


class Staged(NamedTuple):
    """Changes that stand or fall together, and whom to tell."""

    changes: tuple[Change, ...]
    writer: asyncio.Future[int]


class Store:
    """Objects by key in one data directory. Everything but the disk work happens on the loop that opened it."""

    def __init__(
        self,
        directory: DataDirectory,
        log: Log,
        reader: LogReader,
        writing: Worker,
        reading: Worker,
        loaded: Loaded,
        *,
        clock: Clock,
        history: HistoryLimits,
        connect: Connect,
        meter: Meter | None,
    ) -> None:
        self._directory = directory
        self._log, self._reader = log, reader
        self._writing, self._reading = writing, reading
        self._clock = clock
        self._connect = connect
        self._loop = asyncio.get_running_loop()

        self._revision = loaded.revision
        self._floor = loaded.floor  # what is promised: never below `_compacted`
        self._compacted = loaded.floor  # what the disk has forgotten
        self._tables = loaded.tables
        self._ring = Ring(loaded.revision, events=history.ring_events, size=history.ring_bytes)
        self._retention = Retention(history, now=clock.monotonic(), revision=loaded.revision, size=loaded.history)
        self._watchers = Watchers()
        self._subscribers: list[Subscriber] = []

        self._last_staged = loaded.revision
        self._overlay: dict[Key, Change] = {}  # the newest uncommitted change of each key
        self._pending: list[Staged] = []
        self._in_flight: list[Staged] | None = None
        self._flush_scheduled = False
        self._gathering: asyncio.TimerHandle | None = None  # a flush that waits for more writes
        self._settling: list[tuple[int, asyncio.Future[None]]] = []

        self._refusal: StoreError | None = None  # set for good: why nothing can be written any more
        self._last_failure: StoreError | None = None  # of the last commit, if it failed
        self._trying = False
        self._closed = False
        self._closing: asyncio.Task[None] | None = None
        self._compacting = asyncio.Lock()
        self._compaction: asyncio.Task[None] | None = None
        self._wal_bytes = 0
        self._meter = meter
        if meter is not None:
            meter.follow(self)

    # The committed view

    @property
    def revision(self) -> int:
        """The committed resource version."""
        return self._revision

    @property
    def refusal(self) -> StoreError | None:
        """Why nothing can be written until a restart; None while all is well."""
        return self._refusal

    @property
    def write_failure(self) -> StoreError | None:
        """Why the last write failed; None once one worked. Asking has it tried again: perhaps nobody else writes."""
        if self._last_failure is not None and self._refusal is None and not self._trying and not self._closed:
            self._trying = True
            self._writing.submit(self._log.try_write, self._tried)
        return self._refusal or self._last_failure

    def _tried(self, _: None, failure: BaseException | None) -> None:
        self._trying = False
        if failure is None:
            self._last_failure = None
        elif isinstance(failure, StoreError):
            self._note_failure(failure)

    @property
    def floor(self) -> int:
        """History is kept after this resource version: a watch may resume from it, a list may be of it."""
        return self._floor

    def get(self, key: Key) -> Entry | None:
        """The committed version of an object."""
        resource, namespace, name = key
        table = self._tables.get(resource)
        return None if table is None else table.get(namespace, name)

    def list(
        self, resource: str, namespace: str | None = None, *, start: Key | None = None, limit: int | None = None
    ) -> list[tuple[Key, Entry]]:
        """At most `limit` committed objects after the key `start`, in bytewise order of namespace, then name."""
        table = self._tables.get(resource)
        return [] if table is None else table.page(namespace, start, limit)

    def keys(
        self, resource: str, namespace: str | None = None, *, start: Key | None = None, limit: int | None = None
    ) -> Sequence[Key]:
        """The keys of what `list` shows."""
        return [key for key, _ in self.list(resource, namespace, start=start, limit=limit)]

    def count(self, resource: str, namespace: str | None = None) -> int:
        table = self._tables.get(resource)
        return 0 if table is None else table.count(namespace)

    def resources(self) -> Sequence[str]:
        """The resources that hold objects, sorted."""
        return sorted(resource for resource, table in self._tables.items() if table.size)

    def snapshot(self, resource: str, namespace: str | None = None) -> Snapshot:
        """The committed objects as they are now, to page through while others write."""
        return Snapshot(self._revision, self._pin(resource, namespace))

    async def list_at(self, resource: str, namespace: str | None, rv: int) -> Snapshot:
        """The objects as they were at exactly that resource version. Raises Compacted if it is below the floor.

        An object that has changed since was, at `rv`, what the first change after it replaced. That holds for
        changes made while the log is read as well: they replace what this list has pinned.
        """
        if rv > self._revision:
            raise ValueError(f"resource version {rv} has not been reached, the store is at {self._revision}")
        self._require_history(rv)
        upto, table = self._revision, self._pin(resource, namespace)
        undone: set[Key] = set()
        position = rv
        while position < upto:
            changes = self.recent(position, SLICE)
            for change in await self.recall(position, SLICE) if changes is None else changes:
                key, position = change.key, change.rv
                if key.resource != resource or (namespace is not None and key.namespace != namespace) or key in undone:
                    continue
                undone.add(key)
                if change.previous is not None:
                    table.put(key.namespace, key.name, Entry(change.previous_rv, change.previous))
                elif table.get(key.namespace, key.name) is not None:
                    table.remove(key.namespace, key.name)
        return Snapshot(rv, table)

    # The staged view

    def head(self, key: Key) -> Entry | None:
        """The staged version of an object if there is one, else the committed one."""
        staged = self._overlay.get(key)
        if staged is None:
            return self.get(key)
        return None if staged.type is ChangeType.DELETED else Entry(staged.rv, staged.value)

    def next_revision(self) -> int:
        """The resource version that the next staged write will get; no await between this and `stage`."""
        return self._last_staged + 1

    def stage(self, key: Key, value: bytes | None, *, last: bytes | None = None) -> asyncio.Future[int]:
        """Write an object (None deletes it) on top of `head`; the future gives its resource version once committed.

        The caller has decided the write on `head` and put `next_revision` inside the bytes. `last` is what the event
        of a deletion carries, by default the head's bytes. The future raises DiskFull, StoreFailed or StoreClosed;
        cancelling it does not take the write back. Raises StoreFailed or StoreClosed when no write is possible, and
        ValueError for the deletion of what is not there.
        """
        return self._enqueue((self._change(key, value, last),))

    def stage_many(self, writes: Iterable[Write]) -> asyncio.Future[int]:
        """Stage several writes that are committed together or not at all; the future gives the last one's version.

        Each gets the next resource version in order. Raises like `stage`, and then none of them is staged.
        """
        before, overlay = self._last_staged, dict[Key, Change | None]()
        changes: list[Change] = []
        try:
            for key, value, last in writes:
                overlay.setdefault(key, self._overlay.get(key))
                changes.append(self._change(key, value, last))
            if not changes:
                raise ValueError("an empty group of writes")
        except BaseException:
            self._last_staged = before
            for key, change in overlay.items():
                if change is None:
                    self._overlay.pop(key, None)
                else:
                    self._overlay[key] = change
            raise
        return self._enqueue(tuple(changes))

    async def settled(self, key: Key) -> None:
        """Wait until the head of this key is committed, as an answer that rests on it must; raises if it failed."""
        staged = self._overlay.get(key)
        if staged is not None:
            await self._reached(staged.rv)

    # Following changes

    def watch(
        self, resource: str | None = None, namespace: str | None = None, since: int | None = None, *, buffer: int = 1024
    ) -> Watch:
        """Changes after `since` (None: from now; a future one: silence until it is reached). None watches all.

        Raises Compacted if that history is gone. `buffer` bounds the changes that wait for the reader.
        """
        if self._closed:
            raise StoreClosed("the store is closed")
        position = self._revision if since is None else since
        self._require_history(position)
        return Watch(self, self._watchers, (resource, namespace), position, buffer=buffer)

    def subscribe(self, callback: Subscriber) -> Callable[[], None]:
        """Have each committed batch before its writers hear of it; returns what ends the subscription.

        For indexes that must never lag behind the committed view. The callback runs on the loop and must be quick.
        """
        self._subscribers.append(callback)
        return partial(self._subscribers.remove, callback)

    @property
    def watches(self) -> int:
        """How many watches are live."""
        return self._watchers.count

    def recent(self, after: int, limit: int) -> Sequence[Change] | None:
        """At most `limit` changes after a resource version from memory; None when they reach back further."""
        return self._ring.after(after, limit)

    async def recall(self, after: int, limit: int) -> Sequence[Change]:
        """The same from disk, fewer if they are large. Raises Compacted if they are gone, also while they are read.

        Resource versions have no gaps above the floor, so a slice without one is proof that nothing was missed.
        """
        self._require_open()
        upto = min(self._revision, after + limit)
        changes = await self._reading.run(partial(self._reader.read, after, upto))
        self._require_history(after)
        if upto > after and (not changes or changes[-1].rv != after + len(changes)):
            raise corrupt(self.path, f"changes are missing between {after} and {upto}")
        return changes

    # Keeping house

    @property
    def path(self) -> Path:
        """The database file."""
        return self._directory.database

    async def compaction(self) -> None:
        """Wait for the compaction by the limits that is under way, if there is one."""
        if self._compaction is not None:
            await asyncio.wait([self._compaction])

    async def compact(self, keep_from_rv: int) -> None:
        """Forget history before that resource version, in slices between which writers go first."""
        target = min(keep_from_rv - 1, self._revision)
        async with self._compacting:
            while self._compacted < target:
                self._require_writable()
                floor = min(self._compacted + COMPACTION_SLICE, target)
                # Raised before the rows go: whoever reads them meanwhile learns that it may have missed some.
                self._floor = max(self._floor, floor)
                try:
                    await self._writing.run(partial(self._log.compact, self._compacted, floor))
                except StoreError as failure:
                    self._note_failure(failure)
                    raise
                self._compacted = floor
                self._wal_bytes += COMPACTION_SLICE * 4096
                self._checkpoint_if_due()

    async def backup(self, path: Path) -> None:
        """Write a consistent copy of the committed state to a new private file, while everything goes on."""
        self._require_open()
        await asyncio.to_thread(copy_database, self.path, path, self._connect)

    async def check(self) -> Sequence[str]:
        """Everything that is wrong with the database file, in words; empty if nothing is."""
        self._require_open()
        return await asyncio.to_thread(check_database, self.path, self._connect)

    async def close(self) -> None:
        """Commit what is staged, end all watches, close the file and give the directory back.

        May be called again, also by others at the same time; cancelling stops the waiting, not the closing.
        """
        if self._closing is None:
            self._closing = self._loop.create_task(self._close(), name="store close")
        await asyncio.shield(self._closing)

    async def _close(self) -> None:
        self._closed = True
        self._watchers.close()
        with contextlib.suppress(StoreError):  # the writers were told
            while self._overlay:
                await self._reached(self._last_staged)
        await self.compaction()
        async with self._compacting:
            # Closing the last connection moves the write-ahead log into the database. After a failed write that must
            # not happen: pages of it may be lost, and only opening it again checks them. The reader's connection
            # cannot write, so then it is closed last.
            if self._refusal is None:
                await self._close_reader()
                await self._close_writer()
            else:
                await self._close_writer()
                await self._close_reader()
        self._directory.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    # From staging to publication

    def _change(self, key: Key, value: bytes | None, last: bytes | None) -> Change:
        """The next change of a key, decided on the head and put on top of it."""
        self._require_writable()
        current: Change | Entry | None
        staged = self._overlay.get(key)
        if staged is None:
            current = self.get(key)
        else:
            current = None if staged.type is ChangeType.DELETED else staged
        rv = self._last_staged + 1
        if value is not None:
            if current is None:
                change = Change(rv, key, ChangeType.ADDED, value, None, 0)
            else:
                change = Change(rv, key, ChangeType.MODIFIED, value, current.value, current.rv)
        elif current is not None:
            stamped = current.value if last is None else last
            change = Change(rv, key, ChangeType.DELETED, stamped, current.value, current.rv)
        else:
            raise ValueError(f"cannot delete {key.resource} {key.namespace}/{key.name}: it is not there")
        self._last_staged = rv
        self._overlay[key] = change
        return change

    def _enqueue(self, changes: tuple[Change, ...]) -> asyncio.Future[int]:
        writer: asyncio.Future[int] = self._loop.create_future()
        self._pending.append(Staged(changes, writer))
        if not self._flush_scheduled and self._in_flight is None:
            self._flush_scheduled = True
            self._loop.call_soon(self._flush)
        elif self._gathering is not None and len(self._pending) >= GATHERED_WRITES:
            self._gathering.cancel()
            self._gathering = None
            self._loop.call_soon(self._flush)
        return writer

    def _flush(self) -> None:
        """Hand what is pending to the writer thread, unless a commit is under way: its end will do it."""
        self._flush_scheduled = False
        if self._gathering is not None:
            self._gathering.cancel()
            self._gathering = None
        if self._in_flight is not None or not self._pending:
            return
        batch, changes = self._pending, [change for staged in self._pending for change in staged.changes]
        if len(changes) > ROWS_PER_COMMIT:
            batch, changes = [], []
            for staged in self._pending:
                batch.append(staged)
                changes += staged.changes
                if len(changes) >= ROWS_PER_COMMIT:
                    break
        self._pending = self._pending[len(batch) :]
        self._in_flight = batch
        started = self._clock.monotonic()
        self._writing.submit(partial(self._log.append, changes), partial(self._finish, changes, started))

    def _finish(self, changes: Sequence[Change], started: float, _: None, failure: BaseException | None) -> None:
        """The end of a commit, on the loop."""
        batch, self._in_flight = self._in_flight, None
        assert batch is not None
        if failure is not None:
            self._fail(batch, failure)
            return
        self._last_failure = None
        self._flush_next(len(batch))
        self._publish(changes)
        for staged in batch:
            if not staged.writer.done():
                staged.writer.set_result(staged.changes[-1].rv)
        if self._settling:
            self._settle()
        self._keep_house(changes, started)

    def _flush_next(self, committed: int) -> None:
        """Let the disk work on the next batch while this one is published.

        If several wrote at once, others are about to: they get a moment to join, since a commit costs the loop about as
        much as a write does. Somebody who writes one thing after the other is never kept waiting.
        """
        if committed < SEVERAL_WRITES or len(self._pending) >= GATHERED_WRITES:
            self._flush()
        elif not self._flush_scheduled:
            self._flush_scheduled = True
            self._gathering = self._loop.call_later(GATHER_SECONDS, self._flush)

    def _publish(self, changes: Sequence[Change]) -> None:
        """Make a committed batch visible, everywhere at once: there is no await in here."""
        tables, overlay, deleted = self._tables, self._overlay, ChangeType.DELETED
        for change in changes:
            key = change.key
            resource, namespace, name = key
            table = tables.get(resource)
            if table is None:
                table = tables[resource] = Table(resource)
            if change.type is deleted:
                table.remove(namespace, name)
            else:
                table.put(namespace, name, Entry(change.rv, change.value))
            if overlay[key] is change:
                del overlay[key]
        self._revision = changes[-1].rv
        self._ring.extend(changes)
        self._watchers.publish(changes)
        for subscriber in tuple(self._subscribers):
            try:
                subscriber(changes)
            except Exception as error:  # the batch is committed: one broken index must not hide it from the others
                self._loop.call_exception_handler({"message": "subscriber of the store failed", "exception": error})

    def _fail(self, batch: Sequence[Staged], failure: BaseException) -> None:
        """Undo everything staged: the batch, and what was decided on top of it."""
        error = failure if isinstance(failure, StoreError) else write_failure(failure, self.path)
        self._note_failure(error)
        doomed, self._pending = [*batch, *self._pending], []
        self._overlay.clear()
        self._last_staged = self._revision
        settling, self._settling = self._settling, []
        waiting: Waiters = [staged.writer for staged in doomed]
        waiting += [waiter for _, waiter in settling]
        for waiter in waiting:
            if not waiter.done():
                waiter.set_exception(_again(error))
        if self._meter is not None:
            self._meter.failures.labels(error.reason).inc()

    def _note_failure(self, error: StoreError) -> None:
        if is_final(error) and self._refusal is None:
            self._refusal = error
        if isinstance(error, DiskFull):
            self._last_failure = error

    async def _reached(self, rv: int) -> None:
        """Wait until the committed view has come to a staged resource version; raises what its commit raises."""
        waiter: asyncio.Future[None] = self._loop.create_future()
        self._settling.append((rv, waiter))
        await waiter

    def _settle(self) -> None:
        revision, waiting = self._revision, self._settling
        self._settling = [(rv, waiter) for rv, waiter in waiting if rv > revision]
        for rv, waiter in waiting:
            if rv <= revision and not waiter.done():
                waiter.set_result(None)

    # Between commits

    def _keep_house(self, changes: Sequence[Change], started: float) -> None:
        now = self._clock.monotonic()
        size = sum([len(change.value) for change in changes])
        if self._meter is not None:
            self._meter.committed(len(changes), now - started)
        self._wal_bytes += size + BATCH_OVERHEAD
        self._checkpoint_if_due()
        self._retention.note(now, self._revision, size)
        idle = self._compaction is None and not self._closed
        if idle and self._retention.floor(now, self._revision) > self._compacted:
            self._compaction = self._loop.create_task(self._compact_by_limits(), name="store compaction")

    def _checkpoint_if_due(self) -> None:
        if self._wal_bytes >= CHECKPOINT_BYTES:
            self._wal_bytes = 0
            self._writing.submit(self._log.checkpoint, self._checkpointed)

    def _checkpointed(self, _: None, failure: BaseException | None) -> None:
        """A checkpoint that found no room is tried again later; the write-ahead log still has everything."""
        if isinstance(failure, StoreError):
            self._note_failure(failure)

    async def _compact_by_limits(self) -> None:
        """Compact as far as the limits allow. A failure is noted, and met again by whoever writes next."""
        try:
            with contextlib.suppress(StoreError):
                while (floor := self._retention.floor(self._clock.monotonic(), self._revision)) > self._compacted:
                    await self.compact(floor + 1)
        finally:
            self._compaction = None

    # What every entrance asks

    def _require_open(self) -> None:
        if self._closed:
            raise StoreClosed("the store is closed")

    def _require_writable(self) -> None:
        if self._closed:
            raise StoreClosed("the store is closed")
        if self._refusal is not None:
            raise _again(self._refusal)

    def _require_history(self, rv: int) -> None:
        if rv < self._floor:
            raise Compacted(rv, self._floor)

    def _pin(self, resource: str, namespace: str | None) -> Table:
        table = self._tables.get(resource)
        return Table(resource) if table is None else table.pin(namespace)

    async def _close_reader(self) -> None:
        await self._reading.run(self._reader.close)
        self._reading.stop()

    async def _close_writer(self) -> None:
        await self._writing.run(self._log.close)
        self._writing.stop()


def _again(error: StoreError) -> StoreError:
    """A fresh copy for each who is told: a traceback belongs to one raise."""
    copy = type(error)(*error.args)
    copy.hint = error.hint
    copy.__cause__ = error.__cause__
    return copy
