"""Another release of planform, as a reconcile meets it: built-in functions have other versions than in the last run.

An XR of a Composition that a RolloutPolicy holds does not follow them by itself. If nothing else has changed since its
last run, the run's answer is looked at first: one that wants what was applied last is only remembered, and any other
is carried out once whoever holds the release lets it through. Until then the XR is left as it is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from planform.api.conditions import XrCondition, has_condition
from planform.functions.runner import BUILTIN_DIGEST
from planform.pipeline.plan import Plan
from planform.xrs.last_run import LastRun, contains

Functions = Sequence[tuple[str, str]]
"""Of each step, the digest of the function revision that answers."""


class ReleaseGate(Protocol):
    """Holds what another release of planform would change."""

    async def admits(self, composition: str, controller: str, /) -> str:
        """Empty if XRs of the Composition may be changed by this release; else why not yet. `controller` is had to look
        at its XRs again once that is different."""
        ...


def changed_builtins(before: Functions, now: Functions) -> list[str]:
    """The built-in functions of which only the version is another, with both; none if anything else differs."""
    if [step for step, _ in before] != [step for step, _ in now]:
        return []
    found: dict[str, str] = {}
    for (_, old), (_, new) in zip(before, now, strict=True):
        if old == new:
            continue
        name, _, version = old.removeprefix(BUILTIN_DIGEST).rpartition(":")
        other, _, later = new.removeprefix(BUILTIN_DIGEST).rpartition(":")
        if not (old.startswith(BUILTIN_DIGEST) and new.startswith(BUILTIN_DIGEST)) or name != other:
            return []
        found[name] = f"{name} {version} -> {later}"
    return [found[name] for name in sorted(found)]


def wants_the_same(
    xr: Mapping[str, Any],
    decided: Plan,
    observed: Mapping[str, Mapping[str, Any]],
    last: LastRun,
    conditions: Sequence[XrCondition],
) -> bool:
    """Whether carrying out the plan would write nothing: it wants what was applied last, and that is still there."""
    if decided.delete or {each.key: each.digest for each in decided.apply} != last.intents:
        return False
    if not all(each.key in observed and contains(observed[each.key], each.object) for each in decided.apply):
        return False
    status = xr.get("status") or {}
    return contains(status, decided.status) and all(has_condition(xr, each) for each in conditions)
