"""RolloutPolicies, Rollouts and RolloutActions as the watches last told them: what `Released` is derived from.

Without policies these are three watches of nothing. Whoever asks has to wait for `synced` first: half of what was
decided about a revision may say that it is released although it is not.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import msgspec

from planform.api.annotations import annotation
from planform.api.kinds import Object
from planform.api.metadata import name_of, uid_of
from planform.api.names import ROLLOUT, ROLLOUT_ACTION, ROLLOUT_POLICY
from planform.api.objects import TypedObject
from planform.api.rollouts import Rollout, RolloutAction, RolloutPolicy
from planform.client.informer import InformerEvent
from planform.compositions.pinning import UNPINNED_ANNOTATION, frozen_spec, functions_held, held_spec, pins_of
from planform.compositions.released import Record, policy_for, records_of
from planform.functions.resolution import Catalogue
from planform.reconcile.manager import Manager
from planform.reconcile.sources import Subscription

T = TypeVar("T", bound=TypedObject)
_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class RolloutChange:
    """What changed: a policy, or something about the Rollout of this name and the Compositions it changes."""

    rollout: str = ""
    compositions: frozenset[str] = frozenset()

    @property
    def is_policy(self) -> bool:
        return not self.rollout


Listener = Callable[[RolloutChange], None]


class LiveRollouts:
    """`start` begins to listen; what is read belongs to everybody."""

    def __init__(self, manager: Manager) -> None:
        self._manager = manager
        self.policies: dict[str, RolloutPolicy] = {}
        self.rollouts: dict[str, Rollout] = {}
        self._actions: dict[str, dict[str, RolloutAction]] = {}
        self._acted_on: dict[str, str] = {}  # of each action, by its name, the Rollout
        self._by_composition: dict[str, set[str]] = {}
        self._listeners: list[Listener] = []
        self._subscriptions: tuple[Subscription, ...] = ()

    def start(self) -> None:
        if not self._subscriptions:
            self._subscriptions = (
                self._manager.subscribe(ROLLOUT_POLICY, self._policy_changed),
                self._manager.subscribe(ROLLOUT, self._rollout_changed),
                self._manager.subscribe(ROLLOUT_ACTION, self._action_changed),
            )

    async def synced(self) -> None:
        for subscription in self._subscriptions:
            await subscription.synced()

    def subscribe(self, listener: Listener) -> None:
        self._listeners.append(listener)

    def policy(self, composition: Mapping[str, Any]) -> tuple[RolloutPolicy | None, bool]:
        """See `policy_for`."""
        return policy_for(composition, self.policies.values()) if self.policies else (None, False)

    def held_spec(self, composition: Mapping[str, Any], newest: Object | None, functions: Catalogue) -> Object:
        """The Composition's spec with the function revisions that its policy pins; as it is without one.

        `newest` is the Composition's newest revision, whose pins count while nothing newer has been healthy."""
        spec: Object = composition["spec"]
        policy, _ = self.policy(composition)
        last = pins_of(newest) if newest is not None and annotation(newest, UNPINNED_ANNOTATION) else {}
        if policy is not None:
            return held_spec(spec, functions, held=functions_held(policy), last=last)
        records = self.records(name_of(composition), uid_of(composition)) if last else ()
        return frozen_spec(spec, last) if any(each.verdict == "Active" for each in records) else spec

    def records(self, composition: str, uid: str) -> list[Record]:
        """See `records_of`."""
        names = self._by_composition.get(composition)
        if not names:
            return []
        actions = {name: self.actions(name) for name in names}
        return records_of(composition, uid, (self.rollouts[name] for name in names), actions)

    def actions(self, rollout: str) -> Sequence[RolloutAction]:
        """What was decided about a Rollout, in the order of its time; a namesake's before it is not."""
        found = self._actions.get(rollout)
        return sorted(found.values(), key=_when) if found else ()

    def of(self, composition: str) -> Iterable[Rollout]:
        return [self.rollouts[name] for name in self._by_composition.get(composition, ())]

    def _policy_changed(self, change: InformerEvent) -> None:
        name = name_of(change.object)
        policy = None if change.type == "DELETED" else _read(change.object, RolloutPolicy)
        before = self.policies.pop(name, None)
        if policy is not None:
            self.policies[name] = policy
        if (
            before is None
            or policy is None
            or (before.spec, before.metadata.deletion_timestamp)
            != (
                policy.spec,
                policy.metadata.deletion_timestamp,
            )
        ):
            self._notify(RolloutChange())

    def _rollout_changed(self, change: InformerEvent) -> None:
        name = name_of(change.object)
        rollout = None if change.type == "DELETED" else _read(change.object, Rollout)
        before = self.rollouts.pop(name, None)
        touched = {each.composition for one in (before, rollout) if one is not None for each in one.spec.changes}
        for each in touched:
            members = self._by_composition.setdefault(each, set())
            members.discard(name)
            if rollout is not None and not any(change.is_release for change in rollout.spec.changes):
                members.add(name)  # a release is about no revision, so that nothing of one is derived from it
            if not members:
                del self._by_composition[each]
        if rollout is not None:
            self.rollouts[name] = rollout
        self._notify(RolloutChange(name, frozenset(touched)))

    def _action_changed(self, change: InformerEvent) -> None:
        name = name_of(change.object)
        action = None if change.type == "DELETED" else _read(change.object, RolloutAction)
        rollout = action.spec.rollout if action is not None else self._acted_on.get(name, "")
        found = self._actions.setdefault(rollout, {})
        if action is None:
            found.pop(name, None)
            self._acted_on.pop(name, None)
        else:
            found[name] = action
            self._acted_on[name] = rollout
        if not found:
            del self._actions[rollout]
        known = self.rollouts.get(rollout)
        changed = frozenset(each.composition for each in known.spec.changes) if known is not None else frozenset[str]()
        self._notify(RolloutChange(rollout, changed))

    def _notify(self, change: RolloutChange) -> None:
        for listener in self._listeners:
            listener(change)


def _when(action: RolloutAction) -> tuple[str, bool, str]:
    """Of two at the same moment, a Pause is the last word."""
    when = action.spec.at or action.metadata.creation_timestamp or ""
    return when, action.spec.action == "Pause", action.metadata.uid


def _read(obj: Mapping[str, Any], kind: type[T]) -> T | None:
    """None, and a word in the log, for an object that this release cannot read."""
    try:
        return msgspec.convert(obj, kind)
    except msgspec.ValidationError as error:
        _logger.warning("%s %s is not read: %s", kind.__name__, name_of(obj), error)
        return None
