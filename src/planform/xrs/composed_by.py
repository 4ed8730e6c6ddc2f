"""What an XR under a RolloutPolicy says of how it gets on with a revision: `status.planform.composedBy`. Pure.

Rollouts believe nothing else. What an XR said of itself before it moved, such as an old `Ready`, must not count for the
revision it moved to; so this names the revision and the generation that were carried out, and whether a later reconcile
observed what was applied and had nothing left to apply. It holds no time and changes nothing at rest.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from planform.api.kinds import Object
from planform.api.metadata import generation_of

FIELD: Final = "composedBy"
ENOUGH_FAILURES: Final = 3
"""So many failed reconciles since an XR moved make it a failed one. More are not counted: nothing is written then."""


def composed_by(xr: Mapping[str, Any], revision: str, *, observed: bool, deviates: bool = False) -> Object:
    """After a reconcile that carried out the revision. That a plan went beyond its preview, and might, stays said."""
    last = _last(xr)
    deviated = deviates or (bool(last.get("deviates")) and last.get("revision") == revision and _was_carried_out(last))
    return _of(xr, revision) | ({"observed": True} if observed else {}) | ({"deviates": True} if deviated else {})


def deviated_by(xr: Mapping[str, Any], revision: str) -> Object:
    """After a reconcile that was kept from carrying the revision out, as it would do more than its preview said."""
    return _of(xr, revision) | {"deviates": True, "held": True}


def has_settled(xr: Mapping[str, Any], revision: str) -> bool:
    """Whether the revision has been carried out once, and observed: what comes then comes from elsewhere."""
    last = _last(xr)
    return last.get("revision") == revision and bool(last.get("observed"))


def failed_by(xr: Mapping[str, Any], revision: str) -> Object:
    """After a reconcile that could not; an XR that got on with this revision before goes on counting anew."""
    last = _last(xr)
    same = last.get("revision") == revision and last.get("generation") == generation_of(xr)
    before = int(last.get("failures") or 0) if same else 0
    return _of(xr, revision) | {"failures": min(before + 1, ENOUGH_FAILURES)}


def reports_current(resources: Iterable[Mapping[str, Any]]) -> bool:
    """Whether none of these resources says that it has not looked at its latest generation yet."""
    return not any(_is_behind(each) for each in resources)


def for_functions(xr: Object) -> Object:
    """The XR without what it says of revisions, which is no business of functions."""
    own = (xr.get("status") or {}).get("planform")
    if not isinstance(own, dict) or FIELD not in own:
        return xr
    kept = {name: value for name, value in own.items() if name != FIELD}
    return {**xr, "status": {**xr["status"], "planform": kept}}


def _of(xr: Mapping[str, Any], revision: str) -> Object:
    return {"revision": revision, "generation": generation_of(xr)}


def _last(xr: Mapping[str, Any]) -> Mapping[str, Any]:
    return ((xr.get("status") or {}).get("planform") or {}).get(FIELD) or {}


def _was_carried_out(last: Mapping[str, Any]) -> bool:
    return not last.get("held")


def _is_behind(resource: Mapping[str, Any]) -> bool:
    status, generation = resource.get("status"), resource["metadata"].get("generation")
    if not isinstance(status, Mapping) or not isinstance(generation, int):
        return False
    conditions = status.get("conditions")
    told = [each for each in conditions if isinstance(each, Mapping)] if isinstance(conditions, list) else []
    seen = [status.get("observedGeneration"), *(each.get("observedGeneration") for each in told)]
    known = [each for each in seen if isinstance(each, int)]
    return bool(known) and max(known) < generation
