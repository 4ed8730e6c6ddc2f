"""Carrying a plan out: references first, then everything that changed at once, then deletions.

Whatever line the process dies at, the next reconcile finds all that was created: a resource is in the XR's references
before it exists, its name follows from the XR, and its owner is the XR.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any, Final, TypeVar

from planform.api.annotations import annotations_of
from planform.api.kinds import Object, gvk_of
from planform.api.metadata import (
    finalizers_of,
    is_deleted,
    labels_of,
    name_of,
    namespace_of,
    resource_version_of,
    uid_of,
)
from planform.api.names import COMPOSITE_FINALIZER, COMPOSITE_MANAGER
from planform.api.owners import controller_of, is_controlled_by
from planform.api.xr import CLAIM_NAME_LABEL, CLAIM_NAMESPACE_LABEL, COMPOSITE_LABEL, Style
from planform.client.protocol import Client, Propagation
from planform.errors import AlreadyExists, Conflict, Invalid, NotFound, PlanformError
from planform.pipeline.plan import Composed, Deletion, Plan
from planform.reconcile.writes import merge, upon
from planform.xrs.last_run import contains
from planform.xrs.thrash import dispute

ADOPT_ANNOTATION: Final = "planform.dev/adopt"
_AT_ONCE: Final = 16

T = TypeVar("T")

TrackWrite = Callable[[Mapping[str, Any]], AbstractContextManager[Callable[[Object], None]]]
"""Surrounds a write of an object, and is told what became of it: see `XrIndex.tracked_write`."""


class NotOurs(PlanformError):
    """An object of the wanted name exists and belongs to somebody else."""

    reason = "NotOurs"

    def __init__(self, message: str, hint: str) -> None:
        super().__init__(message)
        self.hint = hint


class ComposedRefused(PlanformError):
    """Composed resources are not valid; the XR's status says which, and why. Only a change can help."""

    reason = "ComposedRefused"

    def __init__(self, errors: Mapping[str, PlanformError]) -> None:
        first = min(errors)
        more = f", and {len(errors) - 1} more" if len(errors) > 1 else ""
        super().__init__(f'composed resource "{first}": {errors[first]}{more}')


class ComposedNotApplied(ComposedRefused):
    """Composed resources could not be applied, or deleted; another try may help."""

    reason = "ComposedNotApplied"
    retryable = True


@dataclass
class Applied:
    """How the applies went: `intents` of all that are now as wanted, `errors` of the rest, by key."""

    intents: dict[str, bytes] = field(default_factory=dict)
    errors: dict[str, PlanformError] = field(default_factory=dict)
    writes: int = 0
    """How many applies changed something."""
    dispute: str = ""
    """What somebody else changed that had been applied before, in words."""


def composed_manager(xr: Mapping[str, Any]) -> str:
    """The field manager of everything this XR composes: the same before and after a change of API version."""
    kind = gvk_of(xr)
    text = f"{name_of(xr)}{kind.kind}.{kind.group}"
    return f"apiextensions.crossplane.io/composed/{sha256(text.encode()).hexdigest()}"


async def save_references(
    client: Client,
    xr: Object,
    style: Style,
    references: Sequence[Mapping[str, Any]],
    fields: Mapping[str, Any],
    *,
    tracked_write: TrackWrite,
) -> Object:
    """Everything of the XR that must be stored before a resource is created, in one write, or none if all is there.

    `fields` are further composition fields, as chosen Composition and revision.
    """
    # The finalizer goes with the references, in the same write: an XR that is deleted between two writes would be gone
    # with one of them, and what the other names would belong to nobody.
    body: Object = {}
    finalizers = finalizers_of(xr)
    if COMPOSITE_FINALIZER not in finalizers:
        body.setdefault("metadata", {})["finalizers"] = [*finalizers, COMPOSITE_FINALIZER]
    if not labels_of(xr).get(COMPOSITE_LABEL):
        body.setdefault("metadata", {})["labels"] = {COMPOSITE_LABEL: name_of(xr)}
    present = xr.get("spec") or {}
    if style == "modern":
        present = present.get("crossplane") or {}
    wanted = {**fields, "resourceRefs": list(references)}
    changed = {name: value for name, value in wanted.items() if (present.get(name) or []) != (value or [])}
    if changed:
        body["spec"] = {"crossplane": changed} if style == "modern" else changed
    if not body:
        return xr
    # The write is announced before it is made: its event may come back before its answer does, and would otherwise be
    # taken for somebody else's change.
    with tracked_write(xr) as done:
        written = await merge(client, xr, body, manager=COMPOSITE_MANAGER)
        done(written)
    return written


async def apply_changed(
    client: Client,
    xr: Object,
    plan: Plan,
    observed: Mapping[str, Object],
    before: Mapping[str, bytes],
    *,
    writer: Callable[[Object], Client],
    tracked_write: TrackWrite,
) -> Applied:
    """Apply what is new or differs, several at once. One that fails does not keep the others from being applied.

    `before` has the digests of what was applied last; what has neither a new intent nor drifted is left alone.
    `writer` gives the client that writes an object, with the rights that are meant for it.
    """
    outcome = Applied()
    waiting: list[Composed] = []
    undone: list[tuple[Object, Object]] = []
    for composed in plan.apply:
        found = observed.get(composed.key) if composed.exists else None
        if found is not None and before.get(composed.key) == composed.digest:
            if contains(found, composed.object):
                outcome.intents[composed.key] = composed.digest
                continue
            undone.append((composed.object, found))
        waiting.append(composed)
    if not waiting:
        return outcome
    manager = composed_manager(xr)
    outcome.dispute = next(filter(None, (dispute(wanted, found, ours=manager) for wanted, found in undone)), "")
    for start in range(0, len(waiting), _AT_ONCE):
        part = waiting[start : start + _AT_ONCE]
        results = await _at_once([_apply(client, writer, xr, each, observed, manager, tracked_write) for each in part])
        for composed, result in zip(part, results, strict=True):
            if isinstance(result, PlanformError):
                outcome.errors[composed.key] = result
            elif isinstance(result, BaseException):
                raise result
            else:
                outcome.writes += not _is_same_version(result, observed.get(composed.key))
                outcome.intents[composed.key] = composed.digest
    return outcome


async def _at_once(work: Sequence[Coroutine[Any, Any, T]]) -> Sequence[T | BaseException]:
    """What came of each, errors included. One alone needs no task of its own."""
    if len(work) > 1:
        results: list[T | BaseException] = await asyncio.gather(*work, return_exceptions=True)
        return results
    try:
        return [await each for each in work]
    except PlanformError as error:
        return [error]


async def _apply(
    client: Client,
    writer: Callable[[Object], Client],
    xr: Object,
    composed: Composed,
    observed: Mapping[str, Object],
    manager: str,
    tracked_write: TrackWrite,
) -> Object:
    acting = writer(composed.object)
    # Between this look and the apply somebody may create an object of that name; the apply then adds to it. The next
    # reconcile finds that it is not the XR's, and says so: nothing that was there is deleted for it.
    there = observed.get(composed.key) if composed.exists else await check_free(client, xr, composed)
    wanted = upon(there, composed.object)
    with tracked_write(composed.object) as done:
        applied = await acting.apply(wanted, manager=manager, force=True)
        done(applied)
    return applied


def _is_same_version(applied: Mapping[str, Any], found: Mapping[str, Any] | None) -> bool:
    version = resource_version_of(applied)
    return found is not None and bool(version == resource_version_of(found))


async def check_free(client: Client, xr: Object, composed: Composed) -> Object | None:
    """What is there under this name and may be applied upon. Raises NotOurs for what was there before, unless the
    composition asks to take it over."""
    obj = composed.object
    try:
        found = await client.get(gvk_of(obj), name_of(obj), namespace=namespace_of(obj))
    except NotFound:
        return None
    if is_controlled_by(found, xr):
        return found
    shown = f"{obj['kind']} {name_of(obj)}"
    owner = controller_of(found)
    if owner is not None:
        raise NotOurs(
            f"{shown} exists and is controlled by {owner['kind']} {owner['name']}", "give the resource another name"
        )
    if annotations_of(obj).get(ADOPT_ANNOTATION) != "true":
        raise NotOurs(
            f"{shown} exists already and is nobody's",
            f'to take it over, let the composition annotate the resource with {ADOPT_ANNOTATION}: "true"',
        )
    return found


async def delete_unwanted(client: Client, doomed: Sequence[Deletion]) -> dict[str, PlanformError]:
    """Delete what is no longer desired; gives the errors by key. What is being deleted already is left to itself."""
    waiting = [one for one in doomed if not is_deleted(one.object)]
    errors: dict[str, PlanformError] = {}
    for start in range(0, len(waiting), _AT_ONCE):
        part = waiting[start : start + _AT_ONCE]
        results = await _at_once([_delete(client, each.object) for each in part])
        for one, result in zip(part, results, strict=True):
            if isinstance(result, PlanformError):
                errors[one.key] = result
            elif result is not None:
                raise result
    return errors


async def _delete(client: Client, obj: Object) -> None:
    """It stops being the XR's before it goes, since going may take long."""
    labels = labels_of(obj)
    ours = [name for name in (COMPOSITE_LABEL, CLAIM_NAME_LABEL, CLAIM_NAMESPACE_LABEL) if name in labels]
    try:
        # Labels first: once the deletion has begun, a finalizer may keep the object for hours, and whoever selects the
        # XR's resources by label would find one that no longer counts. A crash in between leaves an unlabelled object
        # that is still referred to, which the next reconcile deletes.
        if ours:
            await merge(client, obj, {"metadata": {"labels": dict.fromkeys(ours)}}, manager=COMPOSITE_MANAGER)
        await client.delete(
            gvk_of(obj),
            name_of(obj),
            namespace=namespace_of(obj),
            propagation=Propagation.FOREGROUND,
            uid=uid_of(obj),  # an object made anew under this name meanwhile is another one, and stays
        )
    except NotFound:
        pass


def conflicts(errors: Mapping[str, PlanformError]) -> list[Conflict]:
    """Those that only mean: read again."""
    return [error for error in errors.values() if isinstance(error, Conflict) and not isinstance(error, AlreadyExists)]


def failure_of(errors: Mapping[str, PlanformError]) -> PlanformError:
    """What a reconcile raises that could not apply everything."""
    again = conflicts(errors)
    if again:
        return again[0]
    refused = all(isinstance(error, Invalid) for error in errors.values())
    return ComposedRefused(errors) if refused else ComposedNotApplied(errors)
