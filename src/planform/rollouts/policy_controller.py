"""Keeps the status of RolloutPolicies: how many Compositions each holds, and whether another is as specific.

Nothing rests on this status. Where two policies mean a Composition equally, it is held, and its Rollouts follow the
policy whose name comes first; the condition `Conflict` of both says so.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from planform.api.conditions import XrCondition, set_conditions
from planform.api.names import COMPOSITION, ROLLOUT_POLICY
from planform.api.xr import listed
from planform.client.informer import InformerEvent, ObjectKey, list_pages
from planform.compositions.live_rollouts import LiveRollouts
from planform.compositions.released import policy_for
from planform.errors import NotFound
from planform.reconcile.context import ControllerContext
from planform.reconcile.controller import Result
from planform.reconcile.sources import Source
from planform.reconcile.writes import merge

NAME: Final = "rolloutpolicies"
MANAGER: Final = f"planform-{NAME}"
_COALESCING_SECONDS: Final = 0.5


class PolicyController:
    """Says of each policy what it holds. Every change of a policy or a Composition may concern all policies."""

    def __init__(self, context: ControllerContext, rollouts: LiveRollouts) -> None:
        self._context = context
        self._rollouts = rollouts

    def start(self) -> None:
        sources = [
            Source(ROLLOUT_POLICY, self._to_all, coalescing_seconds=_COALESCING_SECONDS),
            Source(COMPOSITION, self._to_all, coalescing_seconds=_COALESCING_SECONDS),
        ]
        self._context.manager.start(self._context.controller(NAME, self.reconcile), sources)

    async def reconcile(self, key: ObjectKey) -> Result:
        client = self._context.client
        try:
            policy = await client.get(ROLLOUT_POLICY, key.name)
        except NotFound:
            return Result()
        await self._rollouts.synced()
        held, ties = 0, dict[str, str]()
        async for page in list_pages(client, COMPOSITION):
            for composition in page.items:
                first, tie = self._rollouts.policy(composition)
                if first is None:
                    continue
                held += first.metadata.name == key.name
                if tie and (other := self._equal(composition, key.name, first.metadata.name)):
                    ties[composition["metadata"]["name"]] = other
        condition = XrCondition("Conflict", "False", "NoConflict")
        if ties:
            others = listed(sorted(set(ties.values())))
            words = f"as specific as {others} for {listed(sorted(ties))}; the policy whose name comes first is followed"
            condition = XrCondition("Conflict", "True", "EquallySpecific", words)
        before = policy.get("status") or {}
        generation = policy["metadata"].get("generation")
        conditions = set_conditions(
            before.get("conditions") or [], [condition], now=self._context.timestamp(), generation=generation
        )
        wanted = {"compositions": held, "observedGeneration": generation, "conditions": conditions}
        changed = {name: value for name, value in wanted.items() if before.get(name) != value}
        if changed:
            await merge(client, policy, {"status": changed}, manager=MANAGER, subresource="status")
        return Result()

    def _equal(self, composition: object, own: str, first: str) -> str:
        """Another policy that means the Composition as this one does; empty if this one is not among them."""
        assert isinstance(composition, dict)
        policies = self._rollouts.policies
        if own == first:
            rest = [each for name, each in policies.items() if name != own]
            other, _ = policy_for(composition, rest)
            return other.metadata.name if other is not None else ""
        if own not in policies:
            return ""
        _, tie = policy_for(composition, [policies[first], policies[own]])
        return first if tie else ""

    def _to_all(self, change: InformerEvent) -> Iterable[ObjectKey]:
        # The watch that fills the policies may tell of this one a moment later.
        own = [change.key] if change.object.get("kind") == ROLLOUT_POLICY.kind else []
        return {*own, *(ObjectKey("", name) for name in self._rollouts.policies)}
