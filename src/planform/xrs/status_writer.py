"""Telling users of an XR what became of it: conditions, problems and events, each only when it is news."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from planform.api.conditions import XrCondition
from planform.api.kinds import Object, gvk
from planform.api.metadata import resource_version_of
from planform.api.names import COMPOSITE_MANAGER
from planform.api.xr import composition_fields
from planform.client.informer import ObjectKey, key_of
from planform.compositions.selection import enforced_policy
from planform.errors import NotFound, PlanformError
from planform.functions.errors import FunctionError, ResolutionError
from planform.functions.sending import digest_of
from planform.functions.values import Severity, Target
from planform.pipeline.pipeline import PipelineOutcome
from planform.pipeline.xr_status import (
    MAX_PROBLEMS,
    RESPONSIVE,
    RUNNING_CALL,
    custom_conditions,
    failed,
    problem,
    status_of,
    unknown_conditions,
)
from planform.reconcile.context import ControllerContext
from planform.reconcile.events import EventKind
from planform.reconcile.writes import set_status
from planform.xrs.index import XrIndex
from planform.xrs.last_run import contains

_RESULT: Final = "ComposeResources"
"""The reason of what functions say without giving one."""


class StatusWriter:
    """Writes the statuses and events of one XRD's XRs."""

    def __init__(self, context: ControllerContext, xr_index: XrIndex) -> None:
        self._context = context
        self._xr_index = xr_index
        self._by = f"composite/{xr_index.definition.name}"

    def event(self, xr: Mapping[str, Any], kind: EventKind, reason: str, message: str, *, slot: str = "") -> None:
        self._context.events.record(xr, kind, reason, message, by=self._by, slot=slot)

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
            conditions=[*conditions, *self._responsive(key_of(xr)), *self._enforced(xr)],
            problems=problems,
            now=self._context.timestamp(),
            composition_fields=fields,
        )
        intended, found = digest_of(status), xr.get("status") or {}
        if found == status or (last == intended and contains(found, status)):
            return intended, None
        metadata = {name: xr["metadata"][name] for name in ("name", "namespace", "uid") if xr["metadata"].get(name)}
        with self._xr_index.tracked_write(xr) as done:
            written = await self._context.client.apply(
                {"apiVersion": xr["apiVersion"], "kind": xr["kind"], "metadata": metadata, "status": status},
                manager=COMPOSITE_MANAGER,
                force=True,
                subresource="status",
            )
            done(written)
        changed = resource_version_of(written) != resource_version_of(xr)
        return intended, written if changed else None

    async def running_call(self, xr: Object, call: Object) -> Object:
        """A function has not answered for long: nothing else is said of the XR. Gives the XR as it is then."""
        own = {**((xr.get("status") or {}).get("planform") or {}), RUNNING_CALL: call}
        before = own.get("problems") or ()
        _, written = await self.status(xr, desired=None, conditions=(), problems=before, fields={"planform": own})
        return written or xr

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

    async def failed_reconcile(self, xr: Object, error: PlanformError, *, fields: Mapping[str, Any]) -> None:
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
        for one in problems[:MAX_PROBLEMS]:
            if one not in known:
                self.event(xr, "Warning", _RESULT, f'cannot compose resource "{one["resource"]}": {one["message"]}')

    async def held_back(self, key: ObjectKey, xr: Object) -> None:
        """The thrash guard keeps the XR waiting."""
        self.event(xr, "Warning", "WatchCircuitOpen", self._xr_index.guard.reason(key))
        await self.conditions(xr, *self._responsive(key))

    async def unchanged(self, key: ObjectKey, xr: Object) -> None:
        """Nothing had to be run for the XR; what holds it back, and what its XRD enforces, may be another even so."""
        known = any(each["type"] == RESPONSIVE for each in (xr.get("status") or {}).get("conditions") or ())
        wanted = [*(self._responsive(key) if known else ()), *self._enforced(xr)]
        if wanted:
            await self.conditions(xr, *wanted)

    async def paused(self, xr: Object) -> None:
        text = "Reconciliation is paused via the pause annotation"
        self.event(xr, "Normal", "ReconciliationPaused", text)
        await self.conditions(xr, XrCondition("Synced", "False", "ReconcilePaused", text))

    async def conditions(self, xr: Object, *conditions: XrCondition) -> Object:
        """Set only these."""
        return await set_status(
            self._context.client, xr, conditions, now=self._context.timestamp(), manager=COMPOSITE_MANAGER
        )

    def _responsive(self, key: ObjectKey) -> list[XrCondition]:
        """Whether the thrash guard lets the XR follow what it watches."""
        why = self._xr_index.guard.reason(key)
        if why:
            return [XrCondition(RESPONSIVE, "False", "WatchCircuitOpen", why)]
        return [XrCondition(RESPONSIVE, "True", "WatchCircuitClosed")]

    def _enforced(self, xr: Object) -> list[XrCondition]:
        """The update policy that the XRD enforces on the XR."""
        definition = self._xr_index.definition
        found = enforced_policy(xr, definition.name, definition.spec, style=definition.style)
        return [found] if found is not None else []

    async def _claim(self, xr: Object) -> Object | None:
        """The XR's claim; None if it has none, or it is gone."""
        style = self._xr_index.definition.style
        reference = composition_fields(xr, style).get("claimRef") if style == "legacy" else None
        if not reference:
            return None
        kind = gvk(reference["apiVersion"], reference["kind"])
        try:
            return await self._context.client.get(kind, reference["name"], namespace=reference["namespace"])
        except NotFound:
            return None


def explained(error: PlanformError) -> str:
    """The error and what to do about it, for a condition."""
    return f"{error}; {error.hint}" if error.hint else str(error)
