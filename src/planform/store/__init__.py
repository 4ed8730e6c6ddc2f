"""SQLite as the durable truth, memory as the view: current objects, change log, watch, group commit."""

from planform.store.backup import restore_backup
from planform.store.database import Connect, Synchronous
from planform.store.directory import remove_abandoned
from planform.store.opening import open_store
from planform.store.records import (
    Change,
    ChangeType,
    Codec,
    Compacted,
    Entry,
    HistoryLimits,
    Key,
    Lagging,
    Write,
)
from planform.store.store import Store
from planform.store.tables import Snapshot
from planform.store.watch import Watch

__all__ = [
    "Change",
    "ChangeType",
    "Codec",
    "Compacted",
    "Connect",
    "Entry",
    "HistoryLimits",
    "Key",
    "Lagging",
    "Snapshot",
    "Store",
    "Synchronous",
    "Watch",
    "Write",
    "open_store",
    "remove_abandoned",
    "restore_backup",
]
