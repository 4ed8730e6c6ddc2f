"""Plans that were previewed are held to: an XR that a Rollout has moved does what its preview said, or less.

Every process that composes XRs reads this for itself: which Rollouts are under way, from a watch, and what their
Previews expect, from the PreviewReports, once for each Rollout. Without such Rollouts this is a watch of nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from planform.api.kinds import Object
from planform.api.metadata import name_of, uid_of
from planform.api.names import PREVIEW, PREVIEW_LABEL, PREVIEW_REPORT, ROLLOUT
from planform.api.owners import owners_of
from planform.api.previews import ReportSpec
from planform.api.rollouts import FINAL, Rollout
from planform.api.xr import Style, listed
from planform.client.informer import InformerEvent, list_pages
from planform.client.protocol import Client
from planform.compositions.selection import release_of
from planform.errors import NotFound, PlanformError
from planform.pipeline.expectation import Expectation, deviations, input_digest, unforeseen
from planform.pipeline.plan import Plan
from planform.reconcile.manager import Manager
from planform.reconcile.sources import Subscription
from planform.xrs.composed_by import has_settled
from planform.xrs.last_run import contains

_FORESEEN: Final = ("Unchanged", "Changed", "Mended")


class PlanDeviates(PlanformError):
    """A reconcile would do more than the preview of its XR said."""

    reason = "PlanDeviates"

    def __init__(self, message: str, rollout: str) -> None:
        super().__init__(message)
        self.hint = f"planform rollout promote {rollout} accepts it once all others have moved, abort goes back"


class _Entry(msgspec.Struct, frozen=True):
    input: str
    foreseen: bool
    expectation: bytes


@dataclass
class _Enforced:
    """A Rollout under way, and what its Preview expects of each XR, by uid; None where nothing is enforced."""

    rollout: Rollout
    expected: dict[str, _Entry] | None = None
    loading: asyncio.Lock = field(default_factory=asyncio.Lock)
    loaded: bool = False


class EnforcedPlans:
    """`start` begins to listen."""

    def __init__(self, client: Client, manager: Manager) -> None:
        self._client = client
        self._manager = manager
        self._subscription: Subscription | None = None
        self._by_name: dict[str, _Enforced] = {}

    def start(self) -> None:
        if self._subscription is None:
            self._subscription = self._manager.subscribe(ROLLOUT, self._changed)

    def for_new(self, composition: str) -> str:
        """The revision with which new XRs of a Composition begin, where a Rollout that runs has its policy say so."""
        for each in self._by_name.values():
            rollout = each.rollout
            if rollout.phase == "Running" and rollout.spec.strategy.new_xrs == "Target":
                for change in rollout.spec.changes:
                    if change.composition == composition:
                        return change.to
        return ""

    async def check(
        self,
        xr: Object,
        plan: Plan,
        revision: Mapping[str, Any],
        *,
        style: Style,
        observed: Mapping[str, Object],
        intents: Mapping[str, bytes],
    ) -> bool:
        """Whether the plan goes beyond the preview and may: raises PlanDeviates if it may not."""
        release = release_of(revision)
        name = name_of(revision)
        if release is None or release.reason != "InRollout" or has_settled(xr, name):
            return False
        enforced = await self._enforced(name)
        if enforced is None or enforced.expected is None:
            return False
        entry = enforced.expected.get(uid_of(xr))
        if entry is None or not entry.foreseen or entry.input != input_digest(xr, style):
            found, since = unforeseen(plan), "it is not what was previewed any more, and "
        else:
            expectation = msgspec.json.decode(entry.expectation, type=Expectation)
            found, since = deviations(expectation, plan, unchanged=_unchanged(plan, observed, intents)), ""
        if not found:
            return False
        demand = enforced.rollout.spec.strategy.preview
        if demand and demand.on_deviation == "Accept":
            return True
        where = enforced.rollout.metadata.name
        raise PlanDeviates(f"nothing was written, as the plan deviates from its preview: {since}{listed(found)}", where)

    async def _enforced(self, revision: str) -> _Enforced | None:
        """The Rollout to a revision, with what its Preview expects."""
        if self._subscription is None:
            return None
        await self._subscription.synced()
        found = self._of(revision)
        if found is None:  # the watch of XRs may be ahead of the one of Rollouts
            async for page in list_pages(self._client, ROLLOUT):
                for each in page.items:
                    self._set(each)
            found = self._of(revision)
        if found is not None and not found.loaded:
            async with found.loading:
                if not found.loaded:
                    found.loaded, found.expected = await self._expected(found.rollout)
        return found

    def _of(self, revision: str) -> _Enforced | None:
        for each in self._by_name.values():
            if any(change.to == revision for change in each.rollout.spec.changes):
                return each
        return None

    async def _expected(self, rollout: Rollout) -> tuple[bool, dict[str, _Entry] | None]:
        """Whether the Preview has come to an end, and what it expects: None if it failed or is gone, as whoever let
        the Rollout begin then did so without one."""
        reference = rollout.spec.preview_ref
        if not reference:
            return True, None
        try:
            preview = await self._client.get(PREVIEW, reference.name)
        except NotFound:
            return False, None
        phase = (preview.get("status") or {}).get("phase")
        if phase != "Complete":
            return phase == "Failed", None
        found: dict[str, _Entry] = {}
        label = f"{PREVIEW_LABEL}={reference.name[:63]}"
        async for page in list_pages(self._client, PREVIEW_REPORT, labels=label):
            for report in page.items:
                owners = owners_of(report)
                if any(each.get("uid") == uid_of(preview) for each in owners):
                    for entry in msgspec.convert(report["spec"], ReportSpec, strict=False).xrs:
                        expectation = msgspec.json.encode(entry.expectation)
                        found[entry.uid] = _Entry(entry.input, entry.outcome in _FORESEEN, expectation)
        return True, found

    def _changed(self, change: InformerEvent) -> None:
        if change.type == "DELETED":
            self._by_name.pop(name_of(change.object), None)
        else:
            self._set(change.object)

    def _set(self, obj: Mapping[str, Any]) -> None:
        name = name_of(obj)
        try:
            rollout = msgspec.convert(obj, Rollout)
        except msgspec.ValidationError:
            return  # a newer planform's; the controller of Rollouts says so
        if rollout.phase in FINAL:
            self._by_name.pop(name, None)
            return
        known = self._by_name.get(name)
        if known is None or known.rollout.metadata.uid != rollout.metadata.uid:
            self._by_name[name] = _Enforced(rollout)
        else:
            known.rollout = rollout


def _unchanged(plan: Plan, observed: Mapping[str, Object], intents: Mapping[str, bytes]) -> set[str]:
    """The resources that applying the plan does not change. What was applied last time counts as far as it is known: a
    field that is wanted no longer is a change although all that is wanted is there."""
    return {
        each.key
        for each in plan.apply
        if each.exists
        and intents.get(each.key, each.digest) == each.digest
        and (found := observed.get(each.key)) is not None
        and contains(found, each.object)
    }
