"""Telling users of an XR what became of it: conditions, problems and events, each only when it is news."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from planform.api.kinds import Object, gvk
from planform.api.names import COMPOSITE_MANAGER
from planform.client.informer import ObjectKey, key_of
from planform.composition.pipeline import PipelineOutcome
from planform.composition.standing import contains
from planform.composition.xr import XrCondition, machinery
from planform.composition.xr_status import (
    MOST_PROBLEMS,
    RESPONSIVE,
    custom_conditions,
    failed,
    problem,
    status_of,
    unknown_conditions,
)
from planform.controllers.composites.fleet import Fleet
from planform.controllers.recording import EventKind
from planform.controllers.workbench import Workbench
from planform.controllers.writing import set_status
from planform.errors import NotFound, PlanformError
from planform.functions.errors import FunctionError, ResolutionError
from planform.functions.sending import digest_of
from planform.functions.values import Severity, Target

_RESULT: Final = "ComposeResources"
"""The reason of what functions say without giving one."""


class Teller:
    """Writes the statuses and events of one XRD's XRs."""

    def __init__(self, bench: Workbench, fleet: Fleet) -> None:
        self._bench = bench
        self._fleet = fleet
        self._by = f"composite/{fleet.definition.name}"

    def event(self, xr: Mapping[str, Any], kind: EventKind, reason: str, message: str, *, slot: str = "") -> None:
        self._bench.events.record(xr, kind, reason, message, by=self._by, slot=slot)

    async def status(
        self,
        xr: Object,
        *,
        desired: Mapping[str, Any] | None,
        conditions: Sequence[XrCondition],
        problems: Sequence[Object],
        fields: Mapping[str, Any],
        last: bytes = b"",
    ) -> tuple[bytes, Object | None]:
        """Write the status unless it says so already; gives its digest, and the XR if it was written.

        `last` is the digest of what was applied last: the same again, and still in place, need not be applied.
        """
        status = status_of(
            xr,
            desired=desired,
            conditions=[*conditions, *self._responsive(key_of(xr))],
            problems=problems,
            now=self._bench.timestamp(),
            machinery=fields,
        )
        intended, found = digest_of(status), xr.get("status") or {}
        if found == status or (last == intended and contains(found, status)):
            return intended, None
        metadata = {name: xr["metadata"][name] for name in ("name", "namespace", "uid") if xr["metadata"].get(name)}
        with self._fleet.own_write(xr) as done:
            written = await self._bench.client.apply(
                {"apiVersion": xr["apiVersion"], "kind": xr["kind"], "metadata": metadata, "status": status},
                manager=COMPOSITE_MANAGER,
                force=True,
                subresource="status",
            )
            done(written)
        changed = written["metadata"]["resourceVersion"] != xr["metadata"]["resourceVersion"]
        return intended, written if changed else None

    async def failed_run(
        self, xr: Object, outcome: PipelineOutcome, error: PlanformError, *, fields: Mapping[str, Any]
    ) -> None:
        """A step failed, or what all of them want cannot be: say why. What the run did not come to is unknown."""
        custom = custom_conditions(outcome)
        conditions = [failed(explained(error)), *custom, *unknown_conditions(xr, custom)]
        if isinstance(error, FunctionError):
            missing = isinstance(error, ResolutionError)
            words = f'function "{error.function}" {error.detail}' if missing else error.detail
            reason, problems = _RESULT, [problem(words, step=error.step)]
        else:
            reason, problems = error.reason, [problem(str(error))]
        self.event(xr, "Warning", reason, explained(error))
        await self.status(xr, desired=None, conditions=conditions, problems=problems, fields=fields)

    async def failed_pass(self, xr: Object, error: PlanformError, *, fields: Mapping[str, Any]) -> None:
        """Something other than a run kept the XR from being composed."""
        self.event(xr, "Warning", error.reason, explained(error))
        await self.status(
            xr, desired=None, conditions=[failed(explained(error))], problems=[problem(str(error))], fields=fields
        )

    async def results(self, xr: Object, outcome: PipelineOutcome) -> None:
        """What the functions said, as events of the XR and, if they meant it so, of its claim."""
        for_claim = []
        for index, one in enumerate(outcome.results):
            result, slot = one.result, f"{one.step}#{index}"
            kind: EventKind = "Normal" if result.severity is Severity.NORMAL else "Warning"
            known = result.severity in (Severity.NORMAL, Severity.WARNING)
            text = result.message if known else f"a result of unknown severity: {result.message}"
            self.event(xr, kind, result.reason or _RESULT, f'Pipeline step "{one.step}": {text}', slot=slot)
            if known and result.target is Target.COMPOSITE_AND_CLAIM:
                for_claim.append((kind, result, slot))
        claim = await self._claim(xr) if for_claim else None
        if claim is not None:
            for kind, result, slot in for_claim:
                self.event(claim, kind, result.reason or _RESULT, result.message, slot=slot)
        for step in outcome.steps:
            for index, warning in enumerate(step.warnings):
                text = f'Pipeline step "{step.step}": {warning}'
                self.event(xr, "Warning", _RESULT, text, slot=f"{step.step}!{index}")

    def not_composed(self, xr: Object, problems: Sequence[Object]) -> None:
        """Resources could not be applied or deleted. What the XR's status says of them already is no news."""
        known = ((xr.get("status") or {}).get("planform") or {}).get("problems") or ()
        for one in problems[:MOST_PROBLEMS]:
            if one not in known:
                self.event(xr, "Warning", _RESULT, f'cannot compose resource "{one["resource"]}": {one["message"]}')

    async def held_back(self, key: ObjectKey, xr: Object) -> None:
        """The thrash guard keeps the XR waiting."""
        self.event(xr, "Warning", "WatchCircuitOpen", self._fleet.guard.reason(key))
        await self.conditions(xr, *self._responsive(key))

    async def released(self, key: ObjectKey, xr: Object) -> None:
        """The thrash guard keeps the XR waiting no longer; says so if it said that it does."""
        if any(each["type"] == RESPONSIVE for each in (xr.get("status") or {}).get("conditions") or ()):
            await self.conditions(xr, *self._responsive(key))

    async def paused(self, xr: Object) -> None:
        text = "Reconciliation is paused via the pause annotation"
        self.event(xr, "Normal", "ReconciliationPaused", text)
        await self.conditions(xr, XrCondition("Synced", "False", "ReconcilePaused", text))

    async def conditions(self, xr: Object, *conditions: XrCondition) -> Object:
        """Set only these."""
        return await set_status(
            self._bench.client, xr, conditions, now=self._bench.timestamp(), manager=COMPOSITE_MANAGER
        )

    def _responsive(self, key: ObjectKey) -> list[XrCondition]:
        """Whether the thrash guard lets the XR follow what it watches."""
        why = self._fleet.guard.reason(key)
        if why:
            return [XrCondition(RESPONSIVE, "False", "WatchCircuitOpen", why)]
        return [XrCondition(RESPONSIVE, "True", "WatchCircuitClosed")]

    async def _claim(self, xr: Object) -> Object | None:
        """The XR's claim; None if it has none, or it is gone."""
        style = self._fleet.definition.style
        reference = machinery(xr, style).get("claimRef") if style == "legacy" else None
        if not reference:
            return None
        kind = gvk(reference["apiVersion"], reference["kind"])
        try:
            return await self._bench.client.get(kind, reference["name"], namespace=reference["namespace"])
        except NotFound:
            return None


def explained(error: PlanformError) -> str:
    """The error and what to do about it, for a condition."""
    return f"{error}; {error.hint}" if error.hint else str(error)
