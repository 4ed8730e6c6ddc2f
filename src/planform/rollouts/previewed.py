"""The Preview that a policy demands: made once its Rollout is, judged before the first wave begins.

The Preview has its Rollout's name and goes with it. As long as nothing has begun, one that has become too old is made
again; from the first wave on it is what XRs are held to, and stays.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, Final, Literal

import msgspec

import planform
from planform.api.authors import authority_annotations
from planform.api.kinds import Object
from planform.api.names import PREVIEW, ROLLOUT
from planform.api.previews import Summary, verdict
from planform.api.rollouts import PreviewDemand, Rollout
from planform.client.protocol import Client
from planform.errors import AlreadyExists, NotFound
from planform.rollouts.durations import parse_duration
from planform.rollouts.gates.expressions import ExpressionFailed, Expressions

PreviewVerdict = Literal["", "Running", "Unacceptable", "Failed"]
DEFAULT_MAX_AGE: Final = timedelta(hours=24)
_TTL: Final = "365d"
_MANAGER: Final = "planform-rollout"


def new_preview(stored: Mapping[str, Any], rollout: Rollout) -> Object:
    """What a Rollout's change would do, with the rights of the policy's author."""
    metadata, change = stored["metadata"], rollout.spec.changes[0]
    revisions = [{"composition": each.composition, "name": each.to} for each in rollout.spec.changes]
    previewed: Object = {"revision": revisions[0]} if len(revisions) == 1 else {"revisions": revisions}
    pinned = rollout.spec.strategy.manual_xrs == "Advance"
    if change.is_release:  # which reaches pinned XRs, too: no revision of a Composition names a release
        previewed = {"release": {"composition": change.composition, "planform": planform.__version__}}
        pinned = True
    owner = {"apiVersion": ROLLOUT.api_version, "kind": ROLLOUT.kind, "name": metadata["name"], "uid": metadata["uid"]}
    annotations = authority_annotations(stored)
    name = rollout.spec.preview_ref.name if rollout.spec.preview_ref else metadata["name"]
    return {
        "apiVersion": PREVIEW.api_version,
        "kind": PREVIEW.kind,
        "metadata": {
            "name": name,
            "ownerReferences": [owner],
            **({"annotations": annotations} if annotations else {}),
        },
        "spec": {
            "change": previewed,
            "scope": {"includeManual": pinned},
            "ttl": _TTL,
        },
    }


class DemandedPreviews:
    """Makes the Previews of Rollouts that have not begun, and says what to think of them."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._expressions = Expressions()

    async def verdict_on(self, stored: Object, rollout: Rollout, now: datetime) -> tuple[PreviewVerdict, str]:
        """What stands between the Rollout and its first wave, and why; empty if nothing does."""
        reference = rollout.spec.preview_ref
        if not reference or (rollout.status and rollout.status.started):
            return "", ""
        demand = rollout.spec.strategy.preview or PreviewDemand()
        try:
            preview = await self._client.get(PREVIEW, reference.name)
        except NotFound:
            preview = await self._make(stored, rollout)
        status = preview.get("status") or {}
        phase = status.get("phase")
        if phase == "Failed":
            return "Failed", f'preview "{reference.name}" failed: {status.get("message") or "no reason"}'
        if phase != "Complete" or preview["metadata"].get("deletionTimestamp"):
            return "Running", f'preview "{reference.name}" is under way'
        if is_too_old(status, demand, now):
            await self._client.delete(PREVIEW, reference.name, uid=preview["metadata"]["uid"])
            return "Running", f'preview "{reference.name}" is too old and made again'
        return await self._accepted(reference.name, status, demand)

    async def _make(self, stored: Object, rollout: Rollout) -> Object:
        wanted = new_preview(stored, rollout)
        try:
            return await self._client.create(wanted, manager=_MANAGER)
        except AlreadyExists:
            return await self._client.get(PREVIEW, wanted["metadata"]["name"])

    async def _accepted(
        self, name: str, status: Mapping[str, Any], demand: PreviewDemand
    ) -> tuple[PreviewVerdict, str]:
        summary = msgspec.convert(status.get("summary") or {}, Summary)
        words = f'preview "{name}": {verdict(summary)}'
        if summary.not_previewed:
            return "Unacceptable", words
        if not demand.accept:
            risky = summary.deletes or summary.recreates or summary.failed or summary.invalid
            return ("Unacceptable", words) if risky else ("", "")
        values = {"summary": msgspec.to_builtins(summary)}
        for each in demand.accept:
            try:
                if not await self._expressions.holds(each, values):
                    return "Unacceptable", f"{words}; not accepted: {each}"
            except ExpressionFailed as error:
                return "Unacceptable", f"{words}; what is to be accepted cannot be told: {error}"
        return "", ""


def is_too_old(status: Mapping[str, Any], demand: PreviewDemand, now: datetime) -> bool:
    limit = parse_duration(demand.max_age) if demand.max_age else DEFAULT_MAX_AGE
    return now - datetime.fromisoformat(str(status["completionTime"])) > limit
