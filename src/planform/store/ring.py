"""The newest changes in memory. Resource versions have no gaps, so a change's place is its version minus the first."""

from __future__ import annotations

from collections.abc import Sequence

from planform.store.records import Change


class Ring:
    """The last changes up to `revision`, at most `events` of them and about `size` bytes."""

    def __init__(self, revision: int, *, events: int, size: int) -> None:
        self._changes: list[Change] = []
        self._events = events
        self._size = size
        self._held = 0
        self._start = 0  # what lies before it is spent; it is cut off once it outweighs the rest
        self._revision = revision

    @property
    def floor(self) -> int:
        """Changes after this resource version are here, all of them."""
        return self._revision - (len(self._changes) - self._start)

    def extend(self, changes: Sequence[Change]) -> None:
        """Take the changes that follow the last one without a gap."""
        held = self._changes
        held.extend(changes)
        self._revision = changes[-1].rv
        self._held += sum([len(change.value) for change in changes])
        start = self._start
        while len(held) - start > self._events or self._held > self._size:
            self._held -= len(held[start].value)
            start += 1
        self._start = start
        if start > len(held) - start:
            del held[:start]
            self._start = 0

    def after(self, rv: int, limit: int) -> Sequence[Change] | None:
        """At most `limit` changes after `rv`, oldest first; None when they begin before what is held."""
        floor = self.floor
        if rv < floor:
            return None
        first = self._start + rv - floor
        return self._changes[first : first + limit]
