"""The XRs that active Rollouts are about, heard by watches that last as long as somebody needs them.

Without an active Rollout nothing is watched here and nothing is kept. The watches of XRs are those that the controllers
of XRs have anyway.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from planform.api.kinds import GroupVersionKind
from planform.api.names import CHANGE_WINDOW
from planform.api.rollouts import Rollout
from planform.client.informer import InformerEvent
from planform.clock import Clock
from planform.compositions.usage_index import XrKey
from planform.reconcile.manager import Manager
from planform.reconcile.sources import Subscription
from planform.rollouts.members import Members
from planform.rollouts.windows import Window, window_of
from planform.rollouts.xr_facts import read_xr

NAMESPACE: Final = GroupVersionKind("", "v1", "Namespace")


@dataclass
class _Followed:
    """A Rollout, its XRs, and the watches that it needs."""

    uid: str
    members: Members
    watches: Mapping[GroupVersionKind, Subscription]


class WatchedXrs:
    """`wake` hears the name of a Rollout whose XRs changed."""

    def __init__(self, manager: Manager, clock: Clock, wake: Callable[[str], None]) -> None:
        self._manager = manager
        self._clock = clock
        self._wake = wake
        self._followed: dict[str, _Followed] = {}
        self._namespaces: dict[str, Mapping[str, str]] = {}
        self._common: tuple[Subscription, ...] = ()
        self.windows: dict[str, Window] = {}

    def __contains__(self, rollout: str) -> bool:
        return rollout in self._followed

    async def follow(self, rollout: Rollout, kinds: frozenset[GroupVersionKind]) -> Members:
        """The members of a Rollout, complete: everybody who was there when it was first asked for is counted."""
        name, uid = rollout.metadata.name, rollout.metadata.uid
        found = self._followed.get(name)
        if found is None or found.uid != uid or found.watches.keys() != kinds:
            self.leave(name)
            self._listen()
            members = Members(rollout, self._clock, self._namespaces.get)
            watches = {kind: self._watch(kind, name, members) for kind in kinds}
            found = self._followed[name] = _Followed(uid, members, watches)
        for subscription in (*self._common, *found.watches.values()):
            await subscription.synced()
        return found.members

    def leave(self, rollout: str) -> None:
        """Nobody asks for this Rollout's XRs any more."""
        found = self._followed.pop(rollout, None)
        if found is None:
            return
        for subscription in found.watches.values():
            subscription.close()
        if not self._followed:
            self.close()

    def close(self) -> None:
        for found in self._followed.values():
            for subscription in found.watches.values():
                subscription.close()
        for subscription in self._common:
            subscription.close()
        self._followed.clear()
        self._common = ()
        self._namespaces.clear()
        self.windows.clear()

    def _listen(self) -> None:
        if not self._common:
            self._common = (
                self._manager.subscribe(NAMESPACE, self._namespace_changed),
                self._manager.subscribe(CHANGE_WINDOW, self._window_changed),
            )

    def _watch(self, kind: GroupVersionKind, rollout: str, members: Members) -> Subscription:
        name = f"{kind.kind}.{kind.group}"

        def changed(change: InformerEvent) -> None:
            if change.type == "DELETED":
                members.forget(XrKey(name, *change.key))
            else:
                members.set(read_xr(change.object, kind=name))
            self._wake(rollout)

        return self._manager.subscribe(kind, changed)

    def _namespace_changed(self, change: InformerEvent) -> None:
        name = change.object["metadata"]["name"]
        labels = None if change.type == "DELETED" else change.object["metadata"].get("labels") or {}
        if labels is None:
            self._namespaces.pop(name, None)
        elif self._namespaces.get(name) == labels:
            return
        else:
            self._namespaces[name] = labels
        for rollout, found in self._followed.items():
            found.members.relabelled()
            self._wake(rollout)

    def _window_changed(self, change: InformerEvent) -> None:
        name = change.object["metadata"]["name"]
        if change.type == "DELETED":
            self.windows.pop(name, None)
        else:
            self.windows[name] = window_of(change.object)
        for rollout in self._followed:
            self._wake(rollout)

    def namespace_labels(self, name: str) -> Mapping[str, str] | None:
        return self._namespaces.get(name)
