"""What the store holds: keys, entries and changes. Values are opaque bytes; nothing here knows a kind.

Entries and changes are msgspec structs because a store holds a hundred thousand of the one and makes one of the other
for every write: they are built in C and stay out of the garbage collector's rounds.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from typing import Any, NamedTuple, Protocol

import msgspec

from planform.errors import StoreError


class Key(NamedTuple):
    """Where an object lives. `resource` names the collection, such as `widgets.example.org`; "" is no namespace."""

    resource: str
    namespace: str
    name: str


class ChangeType(StrEnum):
    ADDED = "ADDED"
    MODIFIED = "MODIFIED"
    DELETED = "DELETED"


class Entry(msgspec.Struct, frozen=True, gc=False):
    """One version of an object: its resource version and its bytes."""

    rv: int
    value: bytes


class Change(msgspec.Struct, eq=False):
    """One write, as watchers see it. Everything but `cache` stays as it was made.

    `value` of a deletion is the last state, stamped with the deletion's own resource version. `previous` and
    `previous_rv` are the version that this one replaced; None and 0 for an object that was not there.
    `cache` is the reader's: encodings made once for each version and format, not once for each watcher.
    """

    rv: int
    key: Key
    type: ChangeType
    value: bytes
    previous: bytes | None
    previous_rv: int
    cache: dict[Any, Any] | None = None


class Write(NamedTuple):
    """One write of an atomic group. `value` None deletes; `last` is what the deletion's event carries."""

    key: Key
    value: bytes | None
    last: bytes | None = None


class Codec(Protocol):
    """How values look on disk, for instance encrypted. Called from the store's threads, never from the loop."""

    def encode(self, resource: str, value: bytes, /) -> bytes: ...

    def decode(self, resource: str, value: bytes, /) -> bytes: ...


@dataclass(frozen=True, slots=True)
class HistoryLimits:
    """How much history is kept for watches that resume and for lists at an old resource version.

    A change is kept while it is younger than `keep_for` or among the last `keep_events`; age counts from the start of
    the process for what was there before it. Beyond `max_bytes` the oldest go in any case, so that a burst of writes
    cannot fill the disk with history. `ring_events` and `ring_bytes` bound the part that is also held in memory.
    """

    keep_for: timedelta = timedelta(minutes=5)
    keep_events: int = 10_000
    max_bytes: int = 1 << 30
    ring_events: int = 4096
    ring_bytes: int = 32 << 20


class Compacted(StoreError):
    """The history asked for is gone: list again, and watch from there."""

    reason = "Expired"

    def __init__(self, requested: int, floor: int) -> None:
        super().__init__(f"resource version {requested} is too old: history is kept from {floor}")
        self.requested = requested
        self.floor = floor
        self.hint = "list again and watch from the list's resource version"


class Lagging(StoreError):
    """A watcher did not keep up with the writes and was closed; nothing else waited for it."""

    reason = "Lagging"
    retryable = True

    def __init__(self, buffer: int, position: int) -> None:
        super().__init__(f"watcher fell behind by more than {buffer} changes after resource version {position}")
        self.position = position
        self.hint = "watch again from the last resource version that was seen"
