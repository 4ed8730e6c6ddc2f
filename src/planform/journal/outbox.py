"""What waits to be written: bounded, and of each object the newest run is the last to go."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import NamedTuple

from planform.journal.records import RunSummary


class Entry(NamedTuple):
    """A run in bytes, without secrets: what lists show of it, its body, and its parts by digest."""

    summary: RunSummary
    body: bytes
    parts: Mapping[str, bytes]
    size: int


@dataclass(slots=True)
class Batch:
    """What one transaction writes: first it forgets, then it adds."""

    runs: list[Entry] = field(default_factory=list)
    states: dict[str, dict[str, bytes]] = field(default_factory=dict)
    """By uid, then kind."""
    forgotten: frozenset[str] = frozenset()

    def __bool__(self) -> bool:
        return bool(self.runs or self.states or self.forgotten)


class Outbox:
    """Runs in the order they came, and states and forgotten objects, of which only the last word counts."""

    def __init__(self, *, max_bytes: int, max_runs: int) -> None:
        self._max_bytes = max_bytes
        self._max_runs = max_runs
        self._runs: OrderedDict[int, Entry] = OrderedDict()
        self._runs_of: dict[str, list[int]] = {}
        self._superseded: OrderedDict[int, None] = OrderedDict()
        """Runs of objects that ran again since: they make room first."""
        self._bytes = 0
        self._states: dict[str, dict[str, bytes]] = {}
        self._forgotten: dict[str, None] = {}

    def __bool__(self) -> bool:
        return bool(self._runs or self._states or self._forgotten)

    def __len__(self) -> int:
        return len(self._runs)

    @property
    def is_filling(self) -> bool:
        """Whether a quarter of the room is taken: it should be emptied before runs have to go."""
        return 4 * self._bytes > self._max_bytes or 4 * len(self._runs) > self._max_runs

    def add(self, entry: Entry) -> int:
        """Take a run; gives how many had to make room for it."""
        run, runs = entry.summary.id, self._runs_of.setdefault(entry.summary.uid, [])
        if runs:
            self._superseded[runs[-1]] = None
        runs.append(run)
        self._runs[run] = entry
        self._bytes += entry.size
        dropped = 0
        while (self._bytes > self._max_bytes or len(self._runs) > self._max_runs) and len(self._runs) > 1:
            self._remove(next(iter(self._superseded or self._runs)))
            dropped += 1
        return dropped

    def remember(self, uid: str, kind: str, state: bytes) -> None:
        self._states.setdefault(uid, {})[kind] = state

    def forget(self, uid: str) -> None:
        for run in tuple(self._runs_of.get(uid, ())):
            self._remove(run)
        self._states.pop(uid, None)
        self._forgotten[uid] = None

    def take(self, maximum: int) -> Batch:
        """Up to `maximum` runs, objects with states and forgotten objects, each in the order they came."""
        runs = list(islice(self._runs.values(), maximum))
        for entry in runs:
            self._remove(entry.summary.id)
        states = {uid: self._states.pop(uid) for uid in list(islice(self._states, maximum))}
        forgotten = {uid: self._forgotten.pop(uid) for uid in list(islice(self._forgotten, maximum))}
        return Batch(runs, states, frozenset(forgotten))

    def _remove(self, run: int) -> None:
        entry = self._runs.pop(run)
        self._superseded.pop(run, None)
        runs = self._runs_of[entry.summary.uid]
        runs.remove(run)
        if not runs:
            del self._runs_of[entry.summary.uid]
        self._bytes -= entry.size
