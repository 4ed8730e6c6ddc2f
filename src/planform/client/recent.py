"""Objects as they were written, read or told last, so that a server need not be asked again for what is known.

A bounded memory, not a copy of the cluster: an object comes in when somebody writes or reads it, watches keep it fresh,
and those that nobody asked for the longest go first. It answers only while a watch of the kind is open and has told
nothing newer. So it is never behind one's own writes, nor behind any news that a controller has heard.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import NamedTuple, Protocol

import orjson

from planform.api.kinds import GroupVersionKind, Object
from planform.api.metadata import resource_version_of
from planform.apimachinery.jsonbody import to_keep
from planform.client.informer import InformerEvent, ObjectKey, Seen, key_of, version_number

MAX_BYTES = 64 << 20


class Listener(Protocol):
    """What an informer knows of all objects of a kind."""

    @property
    def position(self) -> str: ...

    @property
    def is_hearing(self) -> bool: ...

    def seen(self, key: ObjectKey) -> Seen | None: ...


class _Entry(NamedTuple):
    version: int
    value: bytes


class Recent:
    """By kind and name. Kinds that nobody listens to are not answered."""

    def __init__(self, max_bytes: int = MAX_BYTES) -> None:
        self._max_bytes = max_bytes
        self._bytes = 0
        self._entries: OrderedDict[tuple[GroupVersionKind, ObjectKey], _Entry] = OrderedDict()
        self._listeners: dict[tuple[GroupVersionKind, str], Listener] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def follow(self, gvk: GroupVersionKind, namespace: str, listener: Listener) -> None:
        """This one hears of every whole object of a namespace, or of all of them if that is empty."""
        self._listeners[gvk, namespace] = listener

    def unfollow(self, gvk: GroupVersionKind, namespace: str) -> None:
        self._listeners.pop((gvk, namespace), None)

    def get(self, gvk: GroupVersionKind, name: str, namespace: str) -> Object | None:
        """The object, for the caller to keep; None if it is not known, or might be out of date."""
        which = gvk, ObjectKey(namespace, name)
        entry = self._entries.get(which)
        if entry is None:
            return None
        # One watch may be ahead of another, and whoever was woken by it must not read what was before.
        listeners = [each for place in ("", namespace) if (each := self._listeners.get((gvk, place))) is not None]
        if not listeners or not all(each.is_hearing for each in listeners):
            return None
        if not all(_is_newest(each, which[1], entry.version) for each in listeners):
            self._forget(which)
            return None
        self._entries.move_to_end(which)
        obj: Object = orjson.loads(entry.value)
        return obj

    def keep(self, gvk: GroupVersionKind, obj: Object) -> None:
        """The server answered a read or a write with this object."""
        which = gvk, key_of(obj)
        version = version_number(resource_version_of(obj))
        before = self._entries.get(which)
        if version and (before is None or before.version < version):
            self._put(which, version, obj)

    def observe(self, gvk: GroupVersionKind, change: InformerEvent) -> None:
        """A watch told of a change: what is known of the object follows."""
        if change.type == "BOOKMARK":
            return
        which = gvk, change.key
        if which not in self._entries:
            return
        if change.type == "DELETED":
            version = version_number(resource_version_of(change.object))
            if self._entries[which].version <= version:  # and no namesake was made since
                self._forget(which)
        else:
            self.keep(gvk, change.object)

    def forget(self, gvk: GroupVersionKind, name: str, namespace: str) -> None:
        """The server was asked to delete this one: whether it is gone, and when, it will tell."""
        self._forget((gvk, ObjectKey(namespace, name)))

    def _put(self, which: tuple[GroupVersionKind, ObjectKey], version: int, obj: Object) -> None:
        self._forget(which)
        value = to_keep(orjson.dumps(obj))
        self._entries[which] = _Entry(version, value)
        self._bytes += len(value)
        while self._bytes > self._max_bytes:
            self._forget(next(iter(self._entries)))

    def _forget(self, which: tuple[GroupVersionKind, ObjectKey]) -> None:
        entry = self._entries.pop(which, None)
        if entry is not None:
            self._bytes -= len(entry.value)


def _is_newest(listener: Listener, key: ObjectKey, version: int) -> bool:
    """Whether nothing newer was told. An object that was told to be gone, or never told, is new only if its version is
    still to come."""
    seen = listener.seen(key)
    if seen is None:
        return version > version_number(listener.position)
    return version >= version_number(seen.resource_version)
