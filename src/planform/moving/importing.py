"""Putting a control plane into another engine.

Each object is created, told its status, and then given back who owned which of its fields, so that a controller which
comes afterwards finds nothing to do. Every step looks first at what is there: an import that was interrupted is
completed by doing it again, and one that was completed changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from planform.api.conditions import is_true
from planform.api.kinds import GroupVersionKind, Object, gvk_of
from planform.api.metadata import managed_fields_of, name_of, namespace_of, resource_version_of, uid_of
from planform.api.names import CRD, SYSTEM_NAMESPACE
from planform.client.protocol import Client, Patch, PatchType
from planform.client.waits import time_limit
from planform.clock import Clock
from planform.definitions.own_crds import ensure_crds
from planform.errors import Conflict, NotFound, PlanformError
from planform.moving.contents import Contents, Identity, has_kept_status, identity_of
from planform.moving.remapping import remapped, with_generation

MANAGER: Final = "planform-import"
_PATIENCE: Final = 60.0
_PAUSE: Final = 0.05
_ATTEMPTS: Final = 5
_MADE_BY_ENGINES: Final = frozenset({Identity("", "Namespace", "", SYSTEM_NAMESPACE)})
"""What an engine may have made before anybody wrote to it: it becomes what the archive says."""

Outcome = Literal["created", "completed", "changed", "unchanged"]


@dataclass(frozen=True, slots=True)
class Step:
    """What was done, or would be, to one object; `differing` names the parts in which it was found to differ."""

    identity: Identity
    outcome: Outcome
    differing: tuple[str, ...] = ()

    def __str__(self) -> str:
        what = f" ({', '.join(self.differing)})" if self.differing else ""
        return f"{self.identity}: {self.outcome}{what}"


@dataclass
class Imported:
    """What became of an archive."""

    steps: list[Step] = field(default_factory=list)
    uids: dict[str, str] = field(default_factory=dict)
    """The uid that each object has now, by the one it had."""


class AlreadyThere(PlanformError):
    """The engine holds objects of the same names that say something else."""

    reason = "AlreadyThere"

    def __init__(self, clashes: list[Step]) -> None:
        shown = "; ".join(f"{step.identity} differs in {', '.join(step.differing)}" for step in clashes[:5])
        more = f" and {len(clashes) - 5} more" if len(clashes) > 5 else ""
        super().__init__(f"nothing was imported, since there are other objects of the same names: {shown}{more}")
        self.clashes = clashes
        self.hint = "look at them with --dry-run; --overwrite makes them what the archive says"


class KindNotServed(PlanformError):
    """A definition was imported, and its kind is not served."""

    reason = "KindNotServed"


async def import_contents(
    client: Client, contents: Contents, *, clock: Clock, dry_run: bool = False, overwrite: bool = False
) -> Imported:
    """Make the engine hold what the archive does. Nothing may reconcile meanwhile.

    Raises AlreadyThere before anything is written, unless told to overwrite. Cancelling leaves a part, which the next
    call completes.
    """
    if not dry_run:
        await ensure_crds(client, clock=clock)
    planned = await _plan(client, contents)
    clashes = [step for step in planned if step.outcome == "changed" and step.identity not in _MADE_BY_ENGINES]
    if dry_run:
        return Imported(planned)
    if clashes and not overwrite:
        raise AlreadyThere(clashes)
    done = Imported()
    for obj in contents.objects:
        done.steps.append(await _bring(client, obj, done.uids, clock))
    return done


async def _plan(client: Client, contents: Contents) -> list[Step]:
    """What would happen to each object, as far as the engine tells today."""
    uids: dict[str, str] = {}
    steps = []
    for obj in contents.objects:
        found = await _read(client, obj)
        uids[uid_of(obj)] = uid_of(found or obj)
        wanted = remapped(obj, uids)
        differing = tuple(_differing(found, wanted)) if found else ()
        outcome: Outcome = "created" if found is None else "changed" if differing else "unchanged"
        if outcome == "unchanged" and found is not None and _is_incomplete(found, wanted, obj):
            outcome = "completed"
        steps.append(Step(identity_of(obj), outcome, differing))
    return steps


async def _bring(client: Client, obj: Object, uids: dict[str, str], clock: Clock) -> Step:
    """Have one object, whole."""
    for attempt in range(_ATTEMPTS):
        try:
            return await _bring_once(client, obj, uids, clock)
        except Conflict:  # an engine writes to some objects by itself
            if attempt == _ATTEMPTS - 1:
                raise
    raise AssertionError("unreachable")


async def _bring_once(client: Client, obj: Object, uids: dict[str, str], clock: Clock) -> Step:
    wanted = remapped(obj, uids)
    found = await _read(client, obj)
    outcome: Outcome = "unchanged"
    differing: tuple[str, ...] = ()
    if found is None:
        found = await client.create(_creatable(wanted), manager=MANAGER)
        outcome = "created"
    elif differing := tuple(_differing(found, wanted)):
        metadata = {**_creatable(wanted)["metadata"], "resourceVersion": resource_version_of(found)}
        found = await client.update({**_creatable(wanted), "metadata": metadata}, manager=MANAGER)
        outcome = "changed"
    uids[uid_of(obj)] = uid_of(found)
    if gvk_of(obj) == CRD:
        await _until_served(client, found, clock)
        return Step(identity_of(obj), outcome, differing)
    wanted = remapped(obj, uids)  # an object may name itself
    status = _status(obj, wanted, found)
    if status is not None and status != found.get("status"):
        found = await client.update({**found, "status": status}, subresource="status", manager=MANAGER)
        outcome = "completed" if outcome == "unchanged" else outcome
    managed = wanted["metadata"].get("managedFields")
    if managed and _ownership(managed) != _ownership(managed_fields_of(found)):
        await _give_back_fields(client, found, managed)
        outcome = "completed" if outcome == "unchanged" else outcome
    return Step(identity_of(obj), outcome, differing)


async def _give_back_fields(client: Client, found: Object, managed: list[Object]) -> None:
    body = {"metadata": {"managedFields": managed, "resourceVersion": resource_version_of(found)}}
    patch, namespace = Patch(PatchType.MERGE, body), namespace_of(found)
    await client.patch(gvk_of(found), name_of(found), patch, namespace=namespace, manager=MANAGER)


async def _read(client: Client, obj: Object) -> Object | None:
    try:
        return await client.get(gvk_of(obj), name_of(obj), namespace=namespace_of(obj))
    except NotFound:
        return None  # or its kind is not served yet


async def _until_served(client: Client, crd: Object, clock: Clock) -> None:
    """Wait until objects of a definition can be created."""
    spec, name = crd["spec"], name_of(crd)
    version = next((each["name"] for each in spec["versions"] if each["served"]), None)
    if version is None:
        return
    kind = GroupVersionKind(spec["group"], version, spec["names"]["kind"])
    try:
        async with time_limit(clock, _PATIENCE):
            while not _is_established(await client.get(CRD, name)) or not await _is_served(client, kind):
                await clock.sleep(_PAUSE)
    except TimeoutError as error:
        raise KindNotServed(f"{name} is not served after {_PATIENCE:g} s") from error


def _is_established(crd: Mapping[str, Any]) -> bool:
    return is_true(crd, "Established")


async def _is_served(client: Client, kind: GroupVersionKind) -> bool:
    try:
        await client.list(kind, limit=1)
    except NotFound:
        return False
    return True


# -- what is compared


def _creatable(wanted: Object) -> Object:
    """What a client may say of an object that does not exist yet."""
    metadata = {
        name: value for name, value in wanted["metadata"].items() if name not in ("managedFields", "generation")
    }
    return {**wanted, "metadata": metadata}


def _differing(found: Mapping[str, Any], wanted: Mapping[str, Any]) -> list[str]:
    """The parts of an object that are not as wanted. What is not wanted and there, such as defaults, does not count."""
    parts = [name for name in wanted if name not in ("apiVersion", "kind", "metadata", "status")]
    differing = [name for name in parts if not _covers(found.get(name), wanted[name])]
    for name in ("labels", "annotations", "ownerReferences", "finalizers"):
        if not _covers(found["metadata"].get(name), wanted["metadata"].get(name)):
            differing.append(f"metadata.{name}")
    return differing


def _covers(found: Any, wanted: Any) -> bool:
    if isinstance(wanted, Mapping):
        members = found if isinstance(found, Mapping) else {}
        return all(_covers(members.get(name), value) for name, value in wanted.items())
    if isinstance(wanted, list):
        items = found if isinstance(found, list) else []
        return len(items) >= len(wanted) and all(map(_covers, items, wanted))
    return wanted is None or bool(found == wanted)


def _status(obj: Object, wanted: Object, found: Object) -> Any:
    """The status to have; None if it is not ours to say."""
    kind = gvk_of(obj)
    if "status" not in wanted or not has_kept_status(kind.group, kind.kind):
        return None
    before, after = int(obj["metadata"].get("generation") or 1), int(found["metadata"].get("generation") or 1)
    return with_generation(wanted["status"], before, after)


def _is_incomplete(found: Object, wanted: Object, obj: Object) -> bool:
    status = _status(obj, wanted, found)
    managed = wanted["metadata"].get("managedFields")
    return (status is not None and status != found.get("status")) or bool(
        managed and _ownership(managed) != _ownership(managed_fields_of(found))
    )


def _ownership(entries: Iterable[Mapping[str, Any]]) -> dict[tuple[str, ...], Any]:
    """Who owns what, whenever they wrote it."""
    who = ("manager", "operation", "apiVersion", "subresource")
    return {tuple(str(each.get(part) or "") for part in who): each.get("fieldsV1") or {} for each in entries}
