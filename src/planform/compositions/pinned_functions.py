"""Which function revisions must go on serving, because revisions of Compositions pin them that somebody may need.

A policy has revisions of Compositions pin function revisions. As long as such a revision is used, is what is released,
is on its way, or is a way back, what it pins stays active: undoing asks no registry and starts no program.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from msgspec import UNSET

from planform.api.annotations import annotation
from planform.api.kinds import Object
from planform.api.metadata import name_of
from planform.api.names import COMPOSITION_REVISION
from planform.api.owners import controller_of
from planform.client.informer import InformerEvent
from planform.compositions.live_rollouts import LiveRollouts, RolloutChange
from planform.compositions.pinning import UNPINNED_ANNOTATION, Pins, pins_of
from planform.compositions.released import DEFAULT_ROLLBACK, Record, kept_revisions
from planform.compositions.revisions import is_revision_of, newest_first
from planform.compositions.usage_index import UsageIndex
from planform.reconcile.manager import Manager
from planform.reconcile.sources import Subscription


class _Owner(NamedTuple):
    """A Composition. A namesake that was deleted is another one."""

    name: str
    uid: str


class PinnedFunctions:
    """`start` begins to listen. Nothing may be concluded from an absence before `synced`."""

    def __init__(self, manager: Manager, rollouts: LiveRollouts, usage_index: UsageIndex) -> None:
        self._manager = manager
        self._rollouts = rollouts
        self._usage_index = usage_index
        self._owners: dict[str, _Owner] = {}  # of each revision
        self._revisions: dict[_Owner, dict[str, Object]] = {}
        self._pins: dict[str, Pins] = {}  # of each revision that a policy pins
        self._listeners: list[Callable[[str], None]] = []
        self._subscription: Subscription | None = None

    def start(self) -> None:
        if self._subscription is None:
            self._rollouts.start()
            self._subscription = self._manager.subscribe(COMPOSITION_REVISION, self._changed)
            self._rollouts.subscribe(self._rollouts_changed)
            self._usage_index.subscribe(self._used, lambda: self._notify(self._pins))

    async def synced(self) -> None:
        await self._rollouts.synced()
        if self._subscription is not None:
            await self._subscription.synced()

    def subscribe(self, callback: Callable[[str], None]) -> None:
        """Tell `callback` each function whose revisions may be pinned otherwise now."""
        self._listeners.append(callback)

    def pinned(self, function: str) -> Mapping[str, frozenset[str]]:
        """The revisions of a function that must go on serving, each with the Compositions that need it."""
        found: dict[str, set[str]] = {}
        for owner, revisions in self._revisions.items():
            named = {name for name in revisions if function in self._pins.get(name, ())}
            if not named:
                continue
            for name in named & self._needed(owner, revisions):
                for each in self._pins[name][function]:
                    found.setdefault(each, set()).add(owner.name)
        return {name: frozenset(compositions) for name, compositions in found.items()}

    def _needed(self, owner: _Owner, revisions: Mapping[str, Object]) -> frozenset[str]:
        ordered = newest_first(revisions.values())
        records = self._rollouts.records(*owner)
        kept = kept_revisions(ordered, records, rollback=self._rollback(records))
        return kept | {name_of(ordered[0])} | self._usage_index.users(owner.name).keys()

    def _rollback(self, records: list[Record]) -> int:
        """How many released revisions the policy keeps, as the last Rollout has it."""
        rollout = self._rollouts.rollouts.get(records[-1].rollout) if records else None
        rollback = rollout.spec.strategy.rollback if rollout is not None else UNSET
        return rollback.revisions if rollback and rollback.revisions is not UNSET else DEFAULT_ROLLBACK

    # -- what is heard

    def _changed(self, change: InformerEvent) -> None:
        name = change.key.name
        before = self._pins.pop(name, {})
        owner = self._owners.pop(name, None)
        if owner is not None:
            self._revisions[owner].pop(name)
            if not self._revisions[owner]:
                del self._revisions[owner]
        controller = controller_of(change.object)
        if change.type != "DELETED" and controller is not None and is_revision_of(change.object, controller["name"]):
            owner = self._owners[name] = _Owner(controller["name"], controller["uid"])
            self._revisions.setdefault(owner, {})[name] = change.object  # the watch's own, which others keep anyway
            if annotation(change.object, UNPINNED_ANNOTATION):
                self._pins[name] = pins_of(change.object)
        if owner is not None and (before or self._is_pinned(owner)):
            self._notify({**self._pins_of_all(owner), name: before})

    def _rollouts_changed(self, change: RolloutChange) -> None:
        for composition in change.compositions:
            self._used(composition)

    def _used(self, composition: str) -> None:
        if not self._pins:
            return  # every XR that moves comes by here
        for owner in [each for each in self._revisions if each.name == composition]:
            self._notify(self._pins_of_all(owner))

    def _is_pinned(self, owner: _Owner) -> bool:
        return any(name in self._pins for name in self._revisions.get(owner, ()))

    def _pins_of_all(self, owner: _Owner) -> dict[str, Pins]:
        return {name: self._pins[name] for name in self._revisions.get(owner, ()) if name in self._pins}

    def _notify(self, pins: Mapping[str, Pins]) -> None:
        for function in sorted({function for each in pins.values() for function in each}):
            for listener in self._listeners:
                listener(function)
