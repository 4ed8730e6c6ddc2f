"""What a late subscriber has heard while its own list and the shared watch are not yet level.

The two tell of the same objects at different moments: the list may be ahead of the watch or behind it. Each object is
told once, never older than before, and in an order that makes sense: ADDED, MODIFIED, DELETED, one uid at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from planform.api.kinds import GroupVersionKind, Object
from planform.client.informer import InformerEvent, ObjectKey, key_of, tombstone, version_number


class _Known(NamedTuple):
    """The newest version told of an object; no uid: that it is gone."""

    uid: str
    version: int


class CatchUp:
    """Turns listed objects and watched changes into what one subscriber is told."""

    def __init__(self, gvk: GroupVersionKind) -> None:
        self._gvk = gvk
        self._known: dict[ObjectKey, _Known] = {}

    def listed(self, obj: Object) -> Iterator[InformerEvent]:
        """An object of the list; nothing if the watch was first, for then it also tells what comes after."""
        key = key_of(obj)
        if key not in self._known:
            self._known[key] = _of(obj)
            yield InformerEvent("ADDED", obj, first_sight=True)

    def watched(self, change: InformerEvent) -> Iterator[InformerEvent]:
        """A change of the shared watch, as it is news to this subscriber; nothing if it is not."""
        key, now = change.key, _of(change.object)
        before = self._known.get(key)
        if before is not None and now.version < before.version:
            return
        alive = before is not None and before.uid != ""
        if change.type == "DELETED":
            if before is not None and alive and before.uid != now.uid:
                return  # of a namesake that is gone for longer than we look
            self._known[key] = _Known("", now.version)
            if alive:
                yield change
            return
        if before is None or not alive:
            self._known[key] = now
            yield change._replace(type="ADDED")
        elif before.uid != now.uid:
            self._known[key] = now
            yield self._gone(key, before.uid, now.version)
            yield change._replace(type="ADDED")
        elif before.version < now.version:
            self._known[key] = now
            yield change._replace(type="MODIFIED")

    def vanished(self, uid_of: Callable[[ObjectKey], str], version: int) -> Iterator[InformerEvent]:
        """Objects that were listed and deleted before the watch ever saw them; asked once the two are level."""
        for key, known in self._known.items():
            if known.uid and uid_of(key) != known.uid:
                yield self._gone(key, known.uid, version)

    def _gone(self, key: ObjectKey, uid: str, version: int) -> InformerEvent:
        return InformerEvent("DELETED", tombstone(self._gvk, key, uid, str(version)), edited=True)


def _of(obj: Object) -> _Known:
    metadata = obj["metadata"]
    return _Known(metadata.get("uid") or "", version_number(metadata.get("resourceVersion") or ""))
