"""Gates that ask the XRs themselves: CEL over those that were moved."""

from __future__ import annotations

from typing import Any, Final

from planform.api.kinds import Object
from planform.rollouts.gates.expressions import ExpressionFailed
from planform.rollouts.gates.measurements import Measurement, Verdict, WaveFacts
from planform.rollouts.gates.tools import GateTools

_FEW: Final = 16
"""So many XRs may be looked at on the event loop, within the quick budget."""


async def ask_xrs(expression: str, facts: WaveFacts, tools: GateTools) -> Measurement:
    """Whether the expression holds of the XRs that were moved. Never raises but when cancelled."""
    now = tools.clock.now()
    if facts.unsettled:
        message = f"{facts.unsettled} XRs have not settled since they were moved"
        return Measurement(Verdict.INCONCLUSIVE, now, threshold=expression, message=message)
    if not facts.xrs:  # `all` holds of nobody, which is no reason to go on
        return Measurement(Verdict.INCONCLUSIVE, now, threshold=expression, message="no XR was moved")
    wave: dict[str, Any] = {"name": facts.wave, "part": facts.part, "xrs": [_seen(xr) for xr in facts.xrs]}
    try:
        good = await tools.expressions.holds(expression, {"wave": wave}, large=len(facts.xrs) > _FEW)
    except ExpressionFailed as error:
        return Measurement(Verdict.ERROR, now, threshold=expression, message=str(error))
    value, verdict = ("true", Verdict.PASSED) if good else ("false", Verdict.FAILED)
    return Measurement(verdict, now, value, expression, message=f"asked of {len(facts.xrs)} XRs")


def _seen(xr: Object) -> Object:
    """An XR without what only the API server needs."""
    metadata = {name: value for name, value in xr["metadata"].items() if name != "managedFields"}
    return {**xr, "metadata": metadata}
