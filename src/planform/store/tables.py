"""The committed view: every current object in memory, in order, shared with snapshots until somebody writes.

A `Table` holds one resource, split by namespace, so that a list of one namespace is a slice and an insertion moves
only the names beside it. Python orders strings by code point, which is the bytewise order of their UTF-8.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator

from planform.store.records import Entry, Key


class Partition:
    """The objects of one resource in one namespace. `names` are the keys of `entries`, sorted."""

    __slots__ = ("entries", "names", "shared")

    def __init__(self, names: list[str], entries: dict[str, Entry], *, shared: bool) -> None:
        self.names = names
        self.entries = entries
        self.shared = shared  # names and entries also belong to a snapshot: copy before the next change

    def pin(self) -> Partition:
        """A second owner of the same names and entries; whoever changes first makes its own copy."""
        self.shared = True
        return Partition(self.names, self.entries, shared=True)

    def own(self) -> None:
        if self.shared:
            self.names, self.entries, self.shared = self.names.copy(), self.entries.copy(), False


class Table:
    """The objects of one resource, in order of namespace, then name."""

    __slots__ = ("namespaces", "partitions", "resource", "size")

    def __init__(self, resource: str) -> None:
        self.resource = resource
        self.partitions: dict[str, Partition] = {}
        self.namespaces: list[str] = []  # the keys of `partitions`, sorted; no partition is empty
        self.size = 0

    @classmethod
    def of(cls, resource: str, contents: dict[str, dict[str, Entry]]) -> Table:
        """A table of everything at once: `contents` is by namespace, then name, in any order."""
        table = cls(resource)
        for namespace, entries in sorted(contents.items()):
            if entries:
                table.partitions[namespace] = Partition(sorted(entries), entries, shared=False)
                table.namespaces.append(namespace)
                table.size += len(entries)
        return table

    def get(self, namespace: str, name: str) -> Entry | None:
        partition = self.partitions.get(namespace)
        return None if partition is None else partition.entries.get(name)

    def put(self, namespace: str, name: str, entry: Entry) -> None:
        partition = self.partitions.get(namespace)
        if partition is None:
            self.partitions[namespace] = Partition([name], {name: entry}, shared=False)
            insort(self.namespaces, namespace)
            self.size += 1
            return
        if partition.shared:
            partition.own()
        if name not in partition.entries:
            if name > partition.names[-1]:
                partition.names.append(name)
            else:
                insort(partition.names, name)
            self.size += 1
        partition.entries[name] = entry

    def remove(self, namespace: str, name: str) -> None:
        """Take the object out; it must be there."""
        partition = self.partitions[namespace]
        partition.own()
        del partition.entries[name]
        del partition.names[bisect_left(partition.names, name)]
        self.size -= 1
        if not partition.names:
            del self.partitions[namespace]
            del self.namespaces[bisect_left(self.namespaces, namespace)]

    def count(self, namespace: str | None) -> int:
        if namespace is None:
            return self.size
        partition = self.partitions.get(namespace)
        return 0 if partition is None else len(partition.names)

    def count_after(self, after: Key) -> int:
        """How many objects come after that key, which need not exist."""
        first = bisect_right(self.namespaces, after.namespace)
        later = sum(len(self.partitions[namespace].names) for namespace in self.namespaces[first:])
        partition = self.partitions.get(after.namespace)
        return later if partition is None else later + len(partition.names) - bisect_right(partition.names, after.name)

    def pin(self, namespace: str | None) -> Table:
        """The same objects, whatever is written to this table from now on."""
        pinned = Table(self.resource)
        if namespace is None:
            pinned.namespaces = self.namespaces.copy()
        elif namespace in self.partitions:
            pinned.namespaces = [namespace]
        pinned.partitions = {each: self.partitions[each].pin() for each in pinned.namespaces}
        pinned.size = self.count(namespace)
        return pinned

    def page(self, namespace: str | None, after: Key | None, limit: int | None) -> list[tuple[Key, Entry]]:
        """At most `limit` objects that come after `after`."""
        found: list[tuple[Key, Entry]] = []
        resource = self.resource
        for each in self._namespaces(namespace, after):
            partition = self.partitions[each]
            names, entries = partition.names, partition.entries
            start = bisect_right(names, after.name) if after is not None and after.namespace == each else 0
            stop = len(names) if limit is None else min(len(names), start + limit - len(found))
            found += [(Key(resource, each, name), entries[name]) for name in names[start:stop]]
            if limit is not None and len(found) >= limit:
                break
        return found

    def _namespaces(self, namespace: str | None, after: Key | None) -> Iterator[str]:
        if namespace is not None:
            if namespace in self.partitions and (after is None or after.namespace <= namespace):
                yield namespace
            return
        first = 0 if after is None else bisect_left(self.namespaces, after.namespace)
        for position in range(first, len(self.namespaces)):
            yield self.namespaces[position]


class Snapshot:
    """What a list showed at one resource version, for paging through. It pins byte references, not copies."""

    __slots__ = ("_table", "rv")

    def __init__(self, rv: int, table: Table) -> None:
        self.rv = rv
        self._table = table

    def __len__(self) -> int:
        return self._table.size

    def __iter__(self) -> Iterator[tuple[Key, Entry]]:
        for items in self.slices(500):
            yield from items

    def page(self, after: Key | None = None, limit: int | None = None) -> list[tuple[Key, Entry]]:
        """At most `limit` objects that come after `after`, in order of namespace, then name."""
        return self._table.page(None, after, limit)

    def remaining(self, after: Key) -> int:
        """How many objects come after that key."""
        return self._table.count_after(after)

    def slices(self, size: int) -> Iterator[list[tuple[Key, Entry]]]:
        """Everything, at most `size` at a time, so that the caller can give way between two slices."""
        after: Key | None = None
        while items := self.page(after, size):
            yield items
            after = items[-1][0]
