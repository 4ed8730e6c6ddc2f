"""What a Rollout reads of one XR, and the state that it is in. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from planform.api.annotations import is_paused
from planform.api.kinds import Object
from planform.api.names import CLAIM_MANAGER, COMPOSITE_MANAGER
from planform.api.owners import controller_of
from planform.api.rollouts import Strategy
from planform.api.xr import CLAIM_NAMESPACE_LABEL, composition_fields, style_of
from planform.compositions.usage_index import XrKey
from planform.pipeline.revision_selectors import RevisionSelector
from planform.rollouts.facts import State
from planform.xrs.composed_by import ENOUGH_FAILURES, FIELD

MANAGER: Final = "planform-rollout"
"""The field manager of admissions."""
_OURS: Final = frozenset({MANAGER, COMPOSITE_MANAGER, CLAIM_MANAGER})
_REF: Final = "f:compositionRevisionRef"


@dataclass(frozen=True, slots=True)
class XrView:
    """One XR, as far as Rollouts care."""

    key: XrKey
    api_version: str
    legacy: bool
    uid: str
    version: str
    composition: str
    revision: str
    selector: RevisionSelector
    labels: Mapping[str, str]
    home: str
    """The namespace of its claim, or its own."""
    owner: str
    """The uid of its controller."""
    owned_by: str
    """Whoever owns the reference to its revision, if that is not the control plane."""
    manual: bool
    paused: bool
    deleted: bool
    well: bool
    """Whether it is Synced and Ready."""
    generation: int
    carried_out: str
    """The revision that was carried out for its generation."""
    observed: bool
    failures: int
    deviates: bool
    """Whether its plan goes beyond its preview."""
    held: bool
    """Whether it is kept from carrying it out for that."""
    message: str
    """What is wrong with it, in its own words."""


def read_xr(xr: Object, *, kind: str) -> XrView:
    """`kind` is the XR's as XrKey has it."""
    metadata, style = xr["metadata"], style_of(xr)
    fields, status = composition_fields(xr, style), xr.get("status") or {}
    labels: Mapping[str, str] = metadata.get("labels") or {}
    composed = (status.get("planform") or {}).get(FIELD) or {}
    conditions = {each["type"]: each for each in status.get("conditions") or ()}
    current = composed.get("generation") == metadata.get("generation")
    namespace = metadata.get("namespace") or ""
    return XrView(
        key=XrKey(kind, namespace, metadata["name"]),
        api_version=xr["apiVersion"],
        legacy=style == "legacy",
        uid=metadata["uid"],
        version=metadata["resourceVersion"],
        composition=str((fields.get("compositionRef") or {}).get("name") or ""),
        revision=str((fields.get("compositionRevisionRef") or {}).get("name") or ""),
        selector=RevisionSelector.of(fields.get("compositionRevisionSelector")),
        labels=labels,
        home=labels.get(CLAIM_NAMESPACE_LABEL) or namespace,
        owner=str((controller_of(xr) or {}).get("uid") or ""),
        owned_by=_other_manager(metadata.get("managedFields") or (), legacy=style == "legacy"),
        manual=fields.get("compositionUpdatePolicy") == "Manual",
        paused=is_paused(xr),
        deleted=bool(metadata.get("deletionTimestamp")),
        well=all((conditions.get(each) or {}).get("status") == "True" for each in ("Synced", "Ready")),
        generation=int(metadata.get("generation") or 0),
        carried_out=str(composed.get("revision") or "") if current else "",
        observed=bool(composed.get("observed")) and current,
        failures=int(composed.get("failures") or 0) if current else 0,
        deviates=bool(composed.get("deviates")) and current,
        held=bool(composed.get("held")) and current,
        message=_message(conditions),
    )


def state_of(xr: XrView, target: str, strategy: Strategy, *, follows: bool) -> State:
    """The state of an XR whose Composition changes; `follows` says whether its selector means the target."""
    if xr.deleted or not follows:
        return State.OUTSIDE
    if xr.revision == target:
        if xr.carried_out == target and xr.held:
            return State.DEVIATED
        if xr.carried_out == target and xr.failures >= ENOUGH_FAILURES:
            return State.FAILED
        if xr.carried_out == target and xr.observed and xr.well:
            return State.READY
        return State.SKIPPED if xr.paused else State.MOVING
    if xr.manual and strategy.manual_xrs != "Advance":
        return State.PINNED
    if xr.owned_by or xr.paused:
        return State.SKIPPED
    if not xr.well and strategy.already_failing != "Include":
        return State.PUT_OFF
    return State.PENDING


def moved(xr: XrView, revision: str) -> tuple[Object, Object]:
    """The XR as a guarded write names it, and what makes it refer to a revision."""
    reference = {"compositionRevisionRef": {"name": revision}}
    metadata = {"name": xr.key.name, "namespace": xr.key.namespace, "uid": xr.uid, "resourceVersion": xr.version}
    named = {"apiVersion": xr.api_version, "kind": xr.key.kind.partition(".")[0], "metadata": metadata}
    return named, {"spec": reference if xr.legacy else {"crossplane": reference}}


def _other_manager(entries: Any, *, legacy: bool) -> str:
    for entry in entries:
        if entry.get("subresource") or entry.get("manager") in _OURS:
            continue
        spec = (entry.get("fieldsV1") or {}).get("f:spec") or {}
        if _REF in (spec if legacy else spec.get("f:crossplane") or {}):
            return str(entry.get("manager") or "")
    return ""


def _message(conditions: Mapping[str, Mapping[str, Any]]) -> str:
    return "; ".join(_problems(conditions))[:500]


def _problems(conditions: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    for name in ("Synced", "Ready"):
        found = conditions.get(name)
        if found is not None and found.get("status") != "True":
            words = found.get("message") or found.get("reason") or ""
            yield f"{name}={found.get('status')}" + (f": {words}" if words else "")
