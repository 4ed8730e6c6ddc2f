"""Begins Rollouts: looks at Compositions that a policy holds, and makes the Rollout of a revision that has none."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from planform.api.kinds import Object
from planform.api.names import COMPOSITION, COMPOSITION_NAME_LABEL, COMPOSITION_REVISION, ROLLOUT_POLICY
from planform.api.rollouts import Rollout, RolloutAction
from planform.client.informer import InformerEvent, ObjectKey
from planform.compositions.live_rollouts import LiveRollouts
from planform.compositions.released import derive
from planform.compositions.revisions import composition_label, is_revision_of, newest_first, number_of
from planform.compositions.selection import is_validated
from planform.errors import AlreadyExists, NotFound
from planform.reconcile.context import ControllerContext
from planform.reconcile.controller import Controller, Result
from planform.reconcile.sources import Source
from planform.rollouts.starting import is_way_back, new_rollout
from planform.rollouts.xr_facts import MANAGER

NAME: Final = "rollout-starts"


class RolloutStarter:
    """Reconciles Compositions under a policy."""

    def __init__(self, context: ControllerContext, rollouts: LiveRollouts) -> None:
        self._context = context
        self._client = context.client
        self._rollouts = rollouts
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
        if policy is None or composition["metadata"].get("deletionTimestamp"):
            return Result()
        uid = composition["metadata"]["uid"]
        records = self._rollouts.records(key.name, uid)
        if any(each.verdict == "Active" for each in records):
            return Result()
        ours = await self._revisions(key.name, uid)
        derived = derive(ours, records, held=True)
        target = next((each for each in ours if each["metadata"]["name"] == derived.awaits), None)
        if target is None or not is_validated(target):
            return Result()
        stable = next((each for each in ours if each["metadata"]["name"] == derived.stable), None)
        back = is_way_back(derived.awaits, records, policy, self._context.clock.now())
        cause: Object | None = {"rollback": True} if back else None
        await self._create(composition, stable, target, policy.metadata.name, cause=cause)
        return Result()

    async def retry(self, stored: Object, rollout: Rollout, actions: Sequence[RolloutAction]) -> None:
        """Begin once more what was aborted or undone, if somebody asks for it and it is still what is wanted."""
        if not any(each.spec.action == "Retry" for each in actions) or rollout.metadata.is_deleted:
            return
        for change in rollout.spec.changes:
            records = self._rollouts.records(change.composition, change.uid or "")
            if not records or records[-1].rollout != rollout.metadata.name:
                return  # it was begun again, or something else came
            try:
                composition = await self._client.get(COMPOSITION, change.composition)
            except NotFound:
                return
            ours = await self._revisions(change.composition, composition["metadata"]["uid"])
            if not ours or (ours[0]["metadata"]["name"], number_of(ours[0])) != (change.to, change.to_number):
                return
            derived = derive(ours, records, held=True)
            stable = next((each for each in ours if each["metadata"]["name"] == derived.stable), None)
            attempt = (rollout.spec.attempt or 1) + 1
            await self._create(composition, stable, ours[0], rollout.spec.policy or "", attempt=attempt, like=stored)

    async def _create(
        self,
        composition: Object,
        stable: Object | None,
        target: Object,
        policy: str,
        *,
        attempt: int = 1,
        cause: Object | None = None,
        like: Object | None = None,
    ) -> None:
        try:
            held = await self._client.get(ROLLOUT_POLICY, policy)
        except NotFound:
            if like is None:
                return
            held = {"metadata": {**like["metadata"], "name": policy}, "spec": like["spec"]["strategy"]}
        wanted = new_rollout(composition, stable, target, held, attempt=attempt, cause=cause)
        try:
            created = await self._client.create(wanted, manager=MANAGER)
        except AlreadyExists:
            return  # it was made already, and only the watch has not told of it
        changes = msgspec.convert(created, Rollout).spec.changes
        text = f'Rollout "{created["metadata"]["name"]}" begins with revision {changes[0].to_number}'
        self._context.events.record(composition, "Normal", "RolloutCreated", text, by=NAME)

    async def _revisions(self, composition: str, uid: str) -> list[Object]:
        label = f"{COMPOSITION_NAME_LABEL}={composition_label(composition)}"
        listed = await self._client.list(COMPOSITION_REVISION, labels=label)
        return newest_first(each for each in listed.items if is_revision_of(each, composition, uid))

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
