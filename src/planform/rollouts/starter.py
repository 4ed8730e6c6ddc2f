"""Begins Rollouts: looks at Compositions that a policy holds, and makes the Rollout of a revision that has none.

A new function revision makes new revisions of every Composition that calls it. They begin together, in one Rollout: it
is made once the last of them is there, by whichever Composition is looked at then.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

import msgspec

from planform.api.annotations import is_paused
from planform.api.conditions import condition_of
from planform.api.kinds import Object
from planform.api.metadata import is_deleted, name_of, uid_of
from planform.api.names import COMPOSITION, COMPOSITION_NAME_LABEL, COMPOSITION_REVISION, ROLLOUT_POLICY
from planform.api.rollouts import Rollout, RolloutAction, RolloutPolicy
from planform.client.informer import InformerEvent, ObjectKey
from planform.compositions.live_rollouts import LiveRollouts
from planform.compositions.pinning import changed_functions
from planform.compositions.released import Record, derive
from planform.compositions.revisions import (
    TOOL_LABELS,
    composition_label,
    is_revision_of,
    newest_first,
    number_of,
    plan_revisions,
)
from planform.compositions.selection import is_validated
from planform.errors import AlreadyExists, NotFound
from planform.functions.resolution import Catalogue
from planform.reconcile.context import ControllerContext
from planform.reconcile.controller import Controller, Result
from planform.reconcile.sources import Source
from planform.rollouts.starting import PlannedChange, is_way_back, new_change, new_rollout
from planform.rollouts.xr_facts import MANAGER

NAME: Final = "rollout-starts"
MAX_CHANGES: Final = 200
"""As many Compositions as one Rollout may change."""


class Revisions(Protocol):
    """Compositions and their revisions, as last heard of."""

    def get(self, composition: str) -> Object | None: ...

    async def revisions(self, composition: str) -> Any: ...


class Functions(Protocol):
    """The functions there are, and who wants to hear of changes."""

    @property
    def catalogue(self) -> Catalogue: ...

    def subscribe(self, callback: Callable[[frozenset[str]], None], /) -> Any: ...


@dataclass(frozen=True, slots=True)
class _Awaiting:
    """A Composition whose newest revision is held and has no Rollout yet."""

    composition: Object
    stable: Object | None
    target: Object
    records: Sequence[Record]
    functions: Mapping[str, str]
    """The functions that are pinned otherwise than before, with their new revisions."""

    @property
    def attempt(self) -> int:
        same = (name_of(self.target), number_of(self.target))
        return max(
            (each.attempt for each in self.records if (each.change.to, each.change.to_number) == same), default=0
        )


class RolloutStarter:
    """Reconciles Compositions under a policy."""

    def __init__(
        self,
        context: ControllerContext,
        rollouts: LiveRollouts,
        compositions: Revisions,
        functions: Functions,
        *,
        ignored_labels: Iterable[str] = TOOL_LABELS,
    ) -> None:
        self._context = context
        self._client = context.client
        self._rollouts = rollouts
        self._known = compositions
        self._functions = functions
        self._ignored_labels = tuple(ignored_labels)
        self._pins = context.features.enabled("FunctionRevisionSelectors")
        self._controller: Controller[ObjectKey] | None = None
        self._compositions: set[str] = set()

    def start(self) -> None:
        if self._controller is None:
            self._controller = self._context.controller(NAME, self.reconcile)
            sources = (Source(COMPOSITION, self._to_self), Source(COMPOSITION_REVISION, self._to_composition))
            self._context.manager.start(self._controller, sources)

    def wake(self, composition: str) -> None:
        if self._controller is not None:
            self._controller.queue.add(ObjectKey("", composition))

    def policies_changed(self) -> None:
        for name in list(self._compositions):
            self.wake(name)

    async def reconcile(self, key: ObjectKey) -> Result:
        await self._rollouts.synced()
        if not self._rollouts.policies:
            return Result()
        try:
            composition = await self._client.get(COMPOSITION, key.name)
        except NotFound:
            return Result()
        policy, _ = self._rollouts.policy(composition)
        if policy is None or is_deleted(composition):
            return Result()
        if any(each.verdict == "Active" for each in self._rollouts.records(key.name, uid_of(composition))):
            return Result()
        mine = self._awaiting(composition, await self.revisions(key.name, uid_of(composition)))
        if mine is None:
            return Result()
        together = await self._together(mine, policy)
        if together:
            changes = [self._change(each, policy) for each in together]
            await self._create(changes, policy.metadata.name, attempt=1 + max(each.attempt for each in together))
        return Result()

    def _awaiting(self, composition: Object, ours: Sequence[Object]) -> _Awaiting | None:
        records = self._rollouts.records(name_of(composition), uid_of(composition))
        if any(each.verdict == "Active" for each in records):
            return None
        derived = derive(ours, records, held=True)
        target = next((each for each in ours if name_of(each) == derived.awaits), None)
        if target is None or not is_validated(target):
            return None
        stable = next((each for each in ours if name_of(each) == derived.stable), None)
        return _Awaiting(composition, stable, target, records, changed_functions(stable, target))

    def _change(self, awaiting: _Awaiting, policy: RolloutPolicy) -> PlannedChange:
        cause: Object = {}
        for function, revision in awaiting.functions.items():
            cause = cause or {"function": function, "revision": revision}
        if is_way_back(name_of(awaiting.target), awaiting.records, policy, self._context.clock.now()):
            cause["rollback"] = True
        return new_change(awaiting.composition, awaiting.stable, awaiting.target, cause=cause or None)

    # -- what a new function revision changes begins together

    async def _together(self, mine: _Awaiting, policy: RolloutPolicy) -> list[_Awaiting]:
        """All that begins with this one; nothing as long as the revision of one of them is still to be made.

        Who comes too late, because its function is not there yet or it cannot be validated, has a Rollout of its own.
        """
        if not mine.functions:
            return [mine]
        others, late = await self._others(mine, policy)
        found, functions = [mine], set(mine.functions)
        while more := [each for each in others if each not in found and functions & each.functions.keys()]:
            found += more
            functions |= {name for each in more for name in each.functions}
        if any(functions & each for each in late):
            return []
        found.sort(key=lambda each: name_of(each.composition))
        start = found.index(mine) // MAX_CHANGES * MAX_CHANGES
        return found[start : start + MAX_CHANGES]

    async def _others(self, mine: _Awaiting, policy: RolloutPolicy) -> tuple[list[_Awaiting], list[frozenset[str]]]:
        """Of the policy's other Compositions, those that wait for a Rollout, and the functions of those whose newest
        revision is not what it will be in a moment."""
        awaiting: list[_Awaiting] = []
        late: list[frozenset[str]] = []
        for name in sorted(self._compositions - {name_of(mine.composition)}):
            composition = self._known.get(name)
            if composition is None or is_deleted(composition) or is_paused(composition) or _is_refused(composition):
                continue
            held, _ = self._rollouts.policy(composition)
            if held is None or held.metadata.name != policy.metadata.name:
                continue
            ours = _ours(await self._known.revisions(name), name, uid_of(composition))
            coming = self._coming(composition, ours)
            if coming is not None:
                late.append(frozenset(changed_functions(ours[0] if ours else None, coming)))
            elif (found := self._awaiting(composition, ours)) is not None:
                awaiting.append(found)
            elif ours and self._is_about_to_wait(composition, ours):
                late.append(frozenset(changed_functions(self._stable(composition, ours), ours[0])))
        return awaiting, late

    def _coming(self, composition: Object, ours: Sequence[Object]) -> Object | None:
        """The revision that the Composition gets next; None if its newest one is what it says."""
        if not self._pins:
            return None
        held = self._rollouts.held_spec(composition, ours[0] if ours else None, self._functions.catalogue)
        plan = plan_revisions(composition, ours, ignored_labels=self._ignored_labels, held_spec=held)
        if plan.create is not None:
            return plan.create
        return plan.current if plan.renumber is not None else None

    def _is_about_to_wait(self, composition: Object, ours: Sequence[Object]) -> bool:
        """Whether the newest revision has no Rollout of its own because another one has not ended, or because nobody
        has validated it."""
        records = self._rollouts.records(name_of(composition), uid_of(composition))
        newest = (name_of(ours[0]), number_of(ours[0]))
        return name_of(ours[0]) != derive(ours, records, held=True).stable and newest not in {
            (each.change.to, each.change.to_number) for each in records
        }

    def _stable(self, composition: Object, ours: Sequence[Object]) -> Object | None:
        records = self._rollouts.records(name_of(composition), uid_of(composition))
        stable = derive(ours, records, held=True).stable
        return next((each for each in ours if name_of(each) == stable), None)

    # -- once more, and what is written

    async def retry(self, stored: Object, rollout: Rollout, actions: Sequence[RolloutAction]) -> None:
        """Begin once more what was aborted or undone, if somebody asks for it and it is still what is wanted."""
        if not any(each.spec.action == "Retry" for each in actions) or rollout.metadata.is_deleted:
            return
        changes = []
        for change in rollout.spec.changes:
            records = self._rollouts.records(change.composition, change.uid or "")
            if not records or records[-1].rollout != rollout.metadata.name:
                return  # it was begun again, or something else came
            try:
                composition = await self._client.get(COMPOSITION, change.composition)
            except NotFound:
                return
            ours = await self.revisions(change.composition, uid_of(composition))
            if not ours or (name_of(ours[0]), number_of(ours[0])) != (change.to, change.to_number):
                return
            derived = derive(ours, records, held=True)
            stable = next((each for each in ours if name_of(each) == derived.stable), None)
            cause = msgspec.to_builtins(change.cause) if change.cause and not change.cause.rollback else None
            changes.append(new_change(composition, stable, ours[0], cause=cause))
        attempt = (rollout.spec.attempt or 1) + 1
        await self._create(changes, rollout.spec.policy or "", attempt=attempt, like=stored)

    async def _create(
        self, changes: Sequence[PlannedChange], policy: str, *, attempt: int = 1, like: Object | None = None
    ) -> None:
        try:
            held = await self._client.get(ROLLOUT_POLICY, policy)
        except NotFound:
            if like is None:
                return
            held = {"metadata": {**like["metadata"], "name": policy}, "spec": like["spec"]["strategy"]}
        wanted = new_rollout(changes, held, attempt=attempt)
        try:
            created = await self._client.create(wanted, manager=MANAGER)
        except AlreadyExists:
            return  # it was made already, and only the watch has not told of it
        for each in msgspec.convert(created, Rollout).spec.changes:
            text = f'Rollout "{name_of(created)}" begins with revision {each.to_number}'
            if (composition := self._known.get(each.composition)) is not None:
                self._context.events.record(composition, "Normal", "RolloutCreated", text, by=NAME)

    async def revisions(self, composition: str, uid: str) -> list[Object]:
        """Of a Composition, the newest first, as the API server has them."""
        label = f"{COMPOSITION_NAME_LABEL}={composition_label(composition)}"
        return _ours((await self._client.list(COMPOSITION_REVISION, labels=label)).items, composition, uid)

    def _to_self(self, change: InformerEvent) -> Iterable[ObjectKey]:
        if change.type == "DELETED":
            self._compositions.discard(change.key.name)
        else:
            self._compositions.add(change.key.name)
        return (change.key,) if self._rollouts.policies else ()

    def _to_composition(self, change: InformerEvent) -> Iterable[ObjectKey]:
        if not self._rollouts.policies:
            return ()
        owners = change.object["metadata"].get("ownerReferences") or ()
        return [ObjectKey("", each["name"]) for each in owners if each.get("controller")]


def _ours(revisions: Iterable[Object], composition: str, uid: str) -> list[Object]:
    return newest_first(each for each in revisions if is_revision_of(each, composition, uid))


def _is_refused(composition: Mapping[str, Any]) -> bool:
    """Whether the Composition says that its revision cannot be made: nobody waits for that."""
    synced = condition_of(composition, "Synced")
    return synced is not None and synced.status == "False"
