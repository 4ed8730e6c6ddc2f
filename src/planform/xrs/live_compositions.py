"""Compositions and their revisions as the watches last told them, shared by the controllers of all XRs.

A thousand XRs follow a handful of revisions, each of which may be long: they are decoded once. Whoever finds nothing
here asks the server before saying so, since a watch may be a moment behind.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

from planform.api.kinds import Object
from planform.api.metadata import labels_of, name_of, uid_of
from planform.api.names import COMPOSITION, COMPOSITION_NAME_LABEL, COMPOSITION_REVISION
from planform.client.informer import InformerEvent
from planform.client.protocol import Client
from planform.compositions.revisions import composition_label
from planform.compositions.selection import is_validated, release_of
from planform.errors import NotFound
from planform.reconcile.manager import Manager
from planform.reconcile.sources import Subscription

_WITHHELD: Final = frozenset({"Held", "InRollout"})
"""Why a revision is not released that nobody has taken back."""

Listener = Callable[[str], None]
"""Hears the name of a Composition that came, went, or whose revisions changed in a way that XRs care about."""


class LiveCompositions:
    """`start` begins to listen; what is read belongs to everybody and must not be changed."""

    def __init__(self, client: Client, manager: Manager) -> None:
        self._client = client
        self._manager = manager
        self._compositions: dict[str, Object] = {}
        self._revisions: dict[str, dict[str, Object]] = {}
        self._listeners: list[Listener] = []
        self._subscriptions: tuple[Subscription, ...] = ()

    def start(self) -> None:
        if not self._subscriptions:
            self._subscriptions = (
                self._manager.subscribe(COMPOSITION, self._composition_changed),
                self._manager.subscribe(COMPOSITION_REVISION, self._revision_changed),
            )

    async def synced(self) -> None:
        for subscription in self._subscriptions:
            await subscription.synced()

    def subscribe(self, listener: Listener) -> None:
        self._listeners.append(listener)

    async def compositions(self, api_version: str, kind: str) -> Sequence[Object]:
        """Those that compose this kind, in any of its versions so that an error can name the near miss."""
        group = api_version.rpartition("/")[0]
        found = [each for each in self._compositions.values() if _composes(each, group, kind)]
        if not found:
            listed = await self._client.list(COMPOSITION)
            found = [each for each in listed.items if _composes(each, group, kind)]
        return found

    async def revisions(self, composition: str) -> Sequence[Object]:
        """All that carry the name of this Composition."""
        label = composition_label(composition)
        found = self._revisions.get(label)
        if found:
            return list(found.values())
        listed = await self._client.list(COMPOSITION_REVISION, labels=f"{COMPOSITION_NAME_LABEL}={label}")
        return listed.items

    async def fresh(self, names: Collection[str], revisions: Sequence[Object]) -> Sequence[Object]:
        """The same revisions, of which those of these names are as the API server has them now, or left out if gone."""
        found = [each for each in revisions if name_of(each) not in names]
        for name in names:
            with suppress(NotFound):
                found.append(await self._client.get(COMPOSITION_REVISION, name))
        return found

    def get(self, composition: str) -> Object | None:
        """As it was last told; None if it has not been heard of."""
        return self._compositions.get(composition)

    def uid(self, composition: str) -> str:
        """The Composition's own; empty if it has not been heard of."""
        found = self._compositions.get(composition)
        return uid_of(found) if found is not None else ""

    def _composition_changed(self, change: InformerEvent) -> None:
        name = name_of(change.object)
        before = self._compositions.get(name)
        if change.type == "DELETED":
            self._compositions.pop(name, None)
        else:
            self._compositions[name] = change.object
        if change.type == "DELETED" or before is None or _selection(before) != _selection(change.object):
            self._notify(name)

    def _revision_changed(self, change: InformerEvent) -> None:
        name = name_of(change.object)
        if change.type == "DELETED":
            owners = [owner for owner, revisions in self._revisions.items() if name in revisions]
            for owner in owners:
                del self._revisions[owner][name]
                if not self._revisions[owner]:
                    del self._revisions[owner]
                self._notify_label(owner)
            return
        owner = labels_of(change.object).get(COMPOSITION_NAME_LABEL, "")
        known = self._revisions.setdefault(owner, {})
        before = known.get(name)
        known[name] = change.object
        if is_validated(change.object) and (before is None or _choice(before) != _choice(change.object)):
            came = before is None or not is_validated(before)
            if _is_withheld(change.object) and (came or (before is not None and _is_withheld(before))):
                return  # nobody may follow it, and nobody could before
            self._notify_label(owner)

    def _notify_label(self, label: str) -> None:
        """A revision knows its Composition by label, which long names do not fit in."""
        for name in [name for name in self._compositions if composition_label(name) == label] or [label]:
            self._notify(name)

    def _notify(self, composition: str) -> None:
        for listener in self._listeners:
            listener(composition)


def _composes(composition: Mapping[str, Any], group: str, kind: str) -> bool:
    reference = composition["spec"].get("compositeTypeRef") or {}
    return str(reference.get("apiVersion", "")).rpartition("/")[0] == group and reference.get("kind") == kind


def _selection(composition: Mapping[str, Any]) -> tuple[Any, ...]:
    """What the choice of a Composition rests on."""
    return composition["metadata"].get("labels"), composition["spec"].get("compositeTypeRef")


def _is_withheld(revision: Mapping[str, Any]) -> bool:
    """Whether nobody may follow the revision yet, so that it moves nobody that it comes to be."""
    release = release_of(revision)
    return release is not None and release.withholds and release.reason in _WITHHELD


def _choice(revision: Mapping[str, Any]) -> tuple[Any, ...]:
    """What the choice of a revision rests on; its statistics are not among that."""
    valid = [each for each in (revision.get("status") or {}).get("conditions") or () if each["type"] == "ValidPipeline"]
    state = tuple((each.get("status"), each.get("message")) for each in valid)
    release = release_of(revision)
    taken_back = release.reason if release is not None and release.withholds else ""
    metadata = revision["metadata"]
    return revision["spec"].get("revision"), metadata.get("labels"), metadata.get("ownerReferences"), state, taken_back
