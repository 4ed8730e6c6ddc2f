"""What packages brought to the engine, and what of it is no longer as it was brought.

There is one watch for each kind that some package has brought. An object's generation tells whether somebody changed
its content, and its metadata tells the rest: nothing is read, and nothing compared, that was not changed. Objects that
are being deleted are left alone until they are gone, and those of revisions that rest for good.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Final, NamedTuple

from planform.api.kinds import GroupVersionKind, Object, gvk_of
from planform.api.metadata import labels_of, name_of, uid_of
from planform.api.names import PACKAGE_LABEL
from planform.client.informer import InformerEvent, version_number
from planform.client.waits import time_limit
from planform.clock import Clock
from planform.packages.runtimes.deployments import covers
from planform.reconcile.manager import Manager
from planform.reconcile.sources import Subscription

_PATIENCE: Final = 10.0
"""Seconds to wait until a new watch has begun; what happens before it has is not heard of."""


class Address(NamedTuple):
    """Where an object is. What packages bring has no namespace."""

    kind: GroupVersionKind
    name: str


def address_of(obj: Object) -> Address:
    return Address(gvk_of(obj), name_of(obj))


@dataclass(frozen=True, slots=True)
class _Delivery:
    """An object as a revision brought it."""

    revision: str  # its uid
    package: str
    package_kind: str
    wanted: Object  # the metadata that the revision asks for
    uid: str
    generation: int | None
    version: int

    def is_undone_by(self, change: InformerEvent) -> bool:
        metadata = change.object["metadata"]
        if change.type == "DELETED":
            return bool(metadata["uid"] == self.uid)
        if metadata.get("deletionTimestamp") or version_number(metadata["resourceVersion"]) <= self.version:
            return False
        is_as_brought = metadata["uid"] == self.uid and metadata.get("generation") == self.generation
        return not (is_as_brought and covers(metadata, self.wanted))


class Deliveries:
    """Knows what each revision brought, and tells when one has to bring something again."""

    def __init__(self, manager: Manager, clock: Clock) -> None:
        self._manager = manager
        self._clock = clock
        self._known: dict[Address, _Delivery] = {}
        self._undone: dict[str, set[Address]] = {}  # by uid of the revision
        self._withheld: dict[Address, InformerEvent | None] = {}  # what was heard last of objects on their way
        self._watches: dict[GroupVersionKind, Subscription] = {}
        self._subscribers: list[Callable[[str, str], None]] = []

    def subscribe(self, callback: Callable[[str, str], None]) -> None:
        """Tell `callback` the kind and name of each package of which something has to be brought again."""
        self._subscribers.append(callback)

    async def watch(self, kinds: Iterable[GroupVersionKind]) -> None:
        """From now on, hear of objects of these kinds; called before they are brought."""
        for kind in sorted(set(kinds) - self._watches.keys()):
            self._watches[kind] = self._manager.subscribe(kind, partial(self._hear, kind))
            try:
                async with time_limit(self._clock, _PATIENCE):
                    await self._watches[kind].synced()
            except TimeoutError:
                pass  # whoever must not watch may bring all the same

    @contextmanager
    def bringing(self, address: Address) -> Iterator[None]:
        """While an object is on its way, an event about it may be self-triggered: it is validated when that is
        known."""
        self._withheld[address] = None
        try:
            yield
        finally:
            change = self._withheld.pop(address)
            if change is not None:
                self._validate(address, change)

    def brought(self, revision: Object, wanted: Object, stored: Object) -> None:
        """A revision wanted this, and got it stored like that."""
        metadata, address = stored["metadata"], address_of(wanted)
        self._drop(address)
        self._known[address] = _Delivery(
            uid_of(revision),
            str(labels_of(revision)[PACKAGE_LABEL]),
            revision["kind"].removesuffix("Revision"),
            {key: wanted["metadata"][key] for key in ("labels", "annotations", "ownerReferences")},
            metadata["uid"],
            metadata.get("generation"),
            version_number(metadata["resourceVersion"]),
        )

    def uid_of(self, address: Address) -> str:
        """The uid of an object that some revision brought; empty if none did since the start."""
        delivery = self._known.get(address)
        return delivery.uid if delivery is not None else ""

    def undone(self, revision: str) -> Collection[Address]:
        """What a revision, known by its uid, has to bring again."""
        return self._undone.get(revision, ())

    def rest(self, revision: str) -> None:
        """What becomes of its objects is no longer the business of this revision."""
        for address in [address for address, delivery in self._known.items() if delivery.revision == revision]:
            self._drop(address)

    def leave(self, address: Address, revision: str) -> None:
        """The object is not this revision's to bring, but another's."""
        if address in self._known and self._known[address].revision == revision:
            self._drop(address)

    def gone(self, kind: str, package: str) -> None:
        """A package was uninstalled."""
        for address, delivery in list(self._known.items()):
            if (delivery.package_kind, delivery.package) == (kind, package):
                self._drop(address)

    def _drop(self, address: Address) -> None:
        delivery = self._known.pop(address, None)
        if delivery is not None and address in (undone := self._undone.get(delivery.revision, set())):
            undone.discard(address)
            if not undone:
                del self._undone[delivery.revision]

    def _hear(self, kind: GroupVersionKind, change: InformerEvent) -> None:
        address = Address(kind, change.key.name)
        if address in self._withheld:
            self._withheld[address] = change
        else:
            self._validate(address, change)

    def _validate(self, address: Address, change: InformerEvent) -> None:
        delivery = self._known.get(address)
        if delivery is None or not delivery.is_undone_by(change):
            return
        self._undone.setdefault(delivery.revision, set()).add(address)
        for callback in self._subscribers:
            callback(delivery.package_kind, delivery.package)
