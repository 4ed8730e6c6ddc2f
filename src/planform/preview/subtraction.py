"""What the change causes: the candidate's run less the baseline's. Pure.

What both would do is drift, what differs from call to call is unstable; neither is blamed on the change.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from planform.api.conditions import condition_of
from planform.api.kinds import Object
from planform.api.previews import FieldChange, ObjectChange, Outcome
from planform.errors import PlanformError
from planform.journal.masking import RunMask, values_within
from planform.pipeline.expectation import Expectation, ExpectedAction, ExpectedResource, input_digest, object_digest
from planform.pipeline.plan import identity
from planform.preview.classes import XrResult
from planform.preview.field_diffs import content_of, field_changes, without_paths
from planform.preview.side_runs import SideRun, immutable_field
from planform.telemetry.masking import MASK
from planform.xrs.index import Definition

Unstable = Mapping[str, frozenset[str]]

_SECRET_FIELDS: Final = ("data", "stringData")
_WHOLE: Final = frozenset({""})


class CannotPreview(PlanformError):
    """An XR cannot be previewed; the message says why."""

    reason = "CannotPreview"


def result_of(
    definition: Definition,
    xr: Object,
    baseline: SideRun,
    candidate: SideRun,
    *,
    unstable: Unstable = {},  # noqa: B006  (never written)
    team: str = "",
) -> XrResult:
    """What the change does to one XR."""
    changes = [] if candidate.failure is not None else _object_changes(baseline, candidate, unstable)
    changes += [] if candidate.failure is not None else _status_change(definition, baseline, candidate, unstable)
    outcome, message = _outcome(baseline, candidate, changes)
    if outcome == "NotPreviewed":
        changes = []
    mask = _mask(baseline, candidate)
    metadata = xr["metadata"]
    return XrResult(
        kind=definition.group_kind,
        namespace=metadata.get("namespace") or "",
        name=metadata["name"],
        uid=metadata.get("uid", ""),
        outcome=outcome,
        changes=tuple(_masked(each, mask) for each in changes),
        expectation=_expectation(candidate, unstable)
        if outcome in ("Unchanged", "Changed", "Mended")
        else Expectation(),
        input=input_digest(xr, definition.style),
        revision=baseline.choice.revision if baseline.choice else "",
        drifting=tuple(_drift(baseline, unstable)),
        unstable=tuple(_unstable_words(unstable, candidate)),
        unchecked=tuple(f"{_shown(candidate, key)}: {why}" for key, why in sorted(candidate.unchecked.items())),
        waits=(f"deletion budget: {mask.text(candidate.held)}",) if candidate.held and not baseline.held else (),
        message=mask.text(message),
        team=team,
        own=own_values(xr, baseline, candidate),
    )


def as_it_is(xr: Object, candidate: SideRun) -> SideRun:
    """What is there, as the run of a release that this process is not: whatever that one wanted, it has applied.

    An XR that was failing, or never composed, says nothing of what was wanted.
    """
    run = SideRun(
        choice=candidate.choice,
        observed=dict(candidate.observed),
        results=dict(candidate.observed),
        status=_only(xr.get("status") or {}, candidate.status),
        stable=True,
        xr=xr,
    )
    synced = condition_of(xr, "Synced")
    if synced is None:
        run.failure = CannotPreview("it has not been composed yet: there is nothing to compare with")
    elif synced.status != "True":
        run.failure = CannotPreview(
            f"it was failing before, so what is there says nothing of a release: {synced.message or 'not Synced'}"
        )
    return run


def own_values(xr: Object, *runs: SideRun) -> dict[str, str]:
    """What is this XR's own, and what stands in its place."""
    metadata = xr["metadata"]
    own: dict[str, str] = {}
    for run in runs:
        for key, obj in (*run.observed.items(), *run.results.items()):
            for field in ("name", "uid", "generateName"):
                if value := obj["metadata"].get(field):
                    own[str(value)] = f"{{{key}{'' if field == 'name' else '.' + field}}}"
            external = (obj["metadata"].get("annotations") or {}).get("crossplane.io/external-name")
            if external:
                own[str(external)] = f"{{{key}.external-name}}"
    own |= {str(metadata["name"]): "{name}"}
    if metadata.get("namespace"):
        own[str(metadata["namespace"])] = "{namespace}"
    if metadata.get("uid"):
        own[str(metadata["uid"])] = "{uid}"
    return own


def _outcome(baseline: SideRun, candidate: SideRun, changes: list[ObjectChange]) -> tuple[Outcome, str]:
    for run in (candidate, baseline):
        if isinstance(run.failure, CannotPreview):
            return "NotPreviewed", str(run.failure)
    failed_before = _error_text(baseline)
    failed_now = _error_text(candidate)
    if failed_now and (not failed_before or candidate.failure is None):
        if candidate.failure is None and not any(each.action == "Fail" for each in changes):
            return ("Changed", "") if changes else ("Unchanged", failed_now)
        return ("Failed", failed_now) if failed_now != failed_before else ("Unchanged", failed_now)
    if failed_now:
        return "Unchanged", f"fails with the change and without: {failed_now}"
    if failed_before:
        return "Mended", f"no longer: {failed_before}"
    if not candidate.stable:
        return "NotPreviewed", "it does not come to rest: each reconcile asks for something else"
    return ("Changed", "") if changes else ("Unchanged", "")


def _error_text(run: SideRun) -> str:
    """Why a reconcile would fail, leaving out what has to be recreated."""
    if run.failure is not None:
        return str(run.failure)
    refused = [
        f"{_shown(run, key)}: {error}" for key, error in sorted(run.refusals.items()) if not immutable_field(error)
    ]
    return "; ".join(refused)


def _object_changes(baseline: SideRun, candidate: SideRun, unstable: Unstable) -> list[ObjectChange]:
    found: list[ObjectChange] = []
    for key in sorted(baseline.results.keys() | candidate.results.keys() | candidate.refusals.keys()):
        shaky = unstable.get(key, frozenset())
        if shaky & _WHOLE:
            continue
        before, after = baseline.results.get(key), candidate.results.get(key)
        refusal, before_refusal = candidate.refusals.get(key), baseline.refusals.get(key)
        if refusal is not None and str(refusal) != str(before_refusal or ""):
            found.append(_refused(candidate, key, refusal))
        elif refusal is not None:
            continue
        elif before is None and after is not None:
            found.append(ObjectChange(kind=after["kind"], action="Create", resource=key, fields=_whole(after, "after")))
        elif before is not None and after is None:
            found.append(ObjectChange(kind=before["kind"], action="Delete", resource=key))
        elif before is not None and after is not None and before is not after:
            found += _update(key, before, after, shaky)
    return found


def _update(key: str, before: Object, after: Object, shaky: frozenset[str]) -> list[ObjectChange]:
    if identity(before) != identity(after):
        forced = "kind" if before["kind"] != after["kind"] else "metadata.name"
        if before["kind"] == after["kind"] and identity(before)[0] != identity(after)[0]:
            forced = "apiVersion"
        fields = field_changes(content_of(before), content_of(after))
        return [ObjectChange(kind=after["kind"], action="Recreate", resource=key, fields=fields, forced_by=forced)]
    fields = without_paths(field_changes(content_of(before), content_of(after)), shaky)
    return [ObjectChange(kind=after["kind"], action="Update", resource=key, fields=fields)] if fields else []


def _refused(candidate: SideRun, key: str, refusal: PlanformError) -> ObjectChange:
    if not key:
        return ObjectChange(kind=str(candidate.xr.get("kind")), action="Fail", message=str(refusal))
    wanted = candidate.wanted[key].object if key in candidate.wanted else candidate.desired[key][-1]
    there = candidate.results.get(key)
    forced = immutable_field(refusal)
    if not forced or there is None:
        return ObjectChange(kind=wanted["kind"], action="Fail", resource=key, message=str(refusal))
    fields = tuple(each for each in field_changes(_only(content_of(there), wanted), content_of(wanted)))
    return ObjectChange(
        kind=wanted["kind"], action="Recreate", resource=key, fields=fields, forced_by=forced, message=str(refusal)
    )


def _only(there: Any, wanted: Any) -> Any:
    """What is there of the fields that are wanted."""
    if isinstance(there, dict) and isinstance(wanted, dict):
        return {key: _only(there[key], value) for key, value in wanted.items() if key in there}
    return there


def _status_change(
    definition: Definition, baseline: SideRun, candidate: SideRun, unstable: Unstable
) -> list[ObjectChange]:
    if baseline.failure is not None:
        return []
    fields = field_changes({"status": baseline.status}, {"status": candidate.status})
    fields = without_paths(fields, unstable.get("", frozenset()))
    return [ObjectChange(kind=definition.kind.kind, action="Update", fields=fields)] if fields else []


def _whole(obj: Object, side: str) -> tuple[FieldChange, ...]:
    shown = {key: value for key, value in content_of(obj).items() if key not in ("apiVersion", "kind")}
    metadata = {key: value for key, value in shown.pop("metadata").items() if key in ("name", "namespace")}
    shown = {"metadata": metadata, **shown}
    return tuple(FieldChange(path=key, **{side: value}) for key, value in shown.items() if value)


def _expectation(candidate: SideRun, unstable: Unstable) -> Expectation:
    """All that a reconcile may do with the change in force: what the change causes, and what drifted."""
    resources: dict[str, ExpectedResource] = {}
    for key, objects in candidate.desired.items():
        there, after = candidate.observed.get(key), candidate.results.get(key)
        if after is None and key not in candidate.refusals:
            continue
        action: ExpectedAction = "Create" if there is None else "Update"
        if there is not None and after is not None and identity(there) != identity(after):
            action = "Recreate"
        elif there is not None and after is not None and key not in candidate.refusals and _is_as_it_was(there, after):
            continue
        unknown = tuple(sorted(unstable.get(key, frozenset()) - _WHOLE))
        digests = tuple(dict.fromkeys(object_digest(each, unknown) for each in objects))
        resources[key] = ExpectedResource(action=action, digests=digests, unknown=unknown)
    for key in candidate.observed.keys() - candidate.results.keys():
        resources[key] = ExpectedResource(action="Delete")
    return Expectation(resources=resources)


def _is_as_it_was(there: Object, after: Object) -> bool:
    return there is after or content_of(there) == content_of(after)


def _drift(baseline: SideRun, unstable: Unstable) -> list[str]:
    """What would happen without the change, less what differs each time."""
    if baseline.failure is not None:
        return []
    found = []
    for key in sorted(baseline.observed.keys() | baseline.results.keys()):
        there, after = baseline.observed.get(key), baseline.results.get(key)
        shaky = unstable.get(key, frozenset())
        if there is after or shaky & _WHOLE:
            continue
        if there is None and after is not None:
            found.append(f'{after["kind"]} "{key}" would be created')
        elif after is None and there is not None:
            found.append(f'{there["kind"]} "{key}" would be deleted')
        elif there is not None and after is not None:
            fields = without_paths(field_changes(content_of(there), content_of(after)), shaky)
            paths = [each.path for each in fields]
            if paths:
                more = f", and {len(paths) - 3} more" if len(paths) > 3 else ""
                found.append(f'{after["kind"]} "{key}": {", ".join(paths[:3])}{more}')
    return found


def _unstable_words(unstable: Unstable, candidate: SideRun) -> list[str]:
    found = []
    for key, paths in sorted(unstable.items()):
        shown = _shown(candidate, key) if key else "its status"
        found.append(shown if paths & _WHOLE else f"{shown}: {', '.join(sorted(paths))}")
    return found


def _shown(run: SideRun, key: str) -> str:
    if not key:
        return "its status"
    obj = run.results.get(key) or (run.desired.get(key) or [{}])[-1]
    return f'{obj.get("kind", "resource")} "{key}"'


def _mask(*runs: SideRun) -> RunMask:
    secrets = {value for run in runs for value in run.secrets}
    for run in runs:
        for obj in (*run.results.values(), *run.observed.values()):
            secrets.update(values_within(obj))
    return RunMask(secrets, ())


def _masked(change: ObjectChange, mask: RunMask) -> ObjectChange:
    fields = tuple(_masked_field(change.kind, each, mask) for each in change.fields)
    return msgspec.structs.replace(change, fields=fields, message=mask.text(change.message))


def _masked_field(kind: str, change: FieldChange, mask: RunMask) -> FieldChange:
    hidden = kind == "Secret" and change.path.split(".")[0].split("[")[0] in _SECRET_FIELDS

    def shown(value: Any) -> Any:
        if value is msgspec.UNSET:
            return value
        if hidden:
            return dict.fromkeys(value, MASK) if isinstance(value, dict) else MASK
        return mask.value(value)

    return FieldChange(path=mask.text(change.path), before=shown(change.before), after=shown(change.after))
