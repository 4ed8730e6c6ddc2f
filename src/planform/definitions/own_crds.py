"""Brings planform's own kinds to an engine: creates their CRDs, or upgrades those that an older planform left.

Where the engine knows admission policies, it gets ours as well; elsewhere `revision_guard` does the same.

Runs before any controller starts, on every start and in every process. At rest it only reads.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Mapping
from typing import Final

import planform
from planform.api.annotations import annotations_of
from planform.api.extensions import crds, policies
from planform.api.kinds import GroupVersionKind, Object, gvk_of
from planform.api.metadata import is_deleted, name_of
from planform.api.names import CRD
from planform.api.owners import owners_of
from planform.client.protocol import Client
from planform.client.waits import time_limit
from planform.clock import Clock
from planform.errors import AlreadyExists, Conflict, NotFound, PlanformError
from planform.functions.semver import parse_semver

VERSION_ANNOTATION: Final = "planform.dev/version"
"""On a CRD: the planform that wrote it. An older one leaves it alone."""
LABELS: Final = {"app.kubernetes.io/managed-by": "planform"}

_MANAGER: Final = "planform-crds"
_PATIENCE: Final = 30.0
_PAUSE: Final = 0.02
_logger = logging.getLogger(__name__)


class KindsNotServed(PlanformError):
    """The engine does not serve our kinds."""

    reason = "KindsNotServed"

    def __init__(self, problems: Mapping[str, str]) -> None:
        listed = (f"{name} ({problem})" if problem else name for name, problem in sorted(problems.items()))
        super().__init__(f"kinds are not served after {_PATIENCE:g} s: {', '.join(listed)}")
        self.hint = "see why: kubectl describe crd " + " ".join(sorted(problems))


async def ensure_crds(client: Client, *, clock: Clock, without: Collection[str] = ()) -> int:
    """Have all our kinds served, but for those of these groups; gives the number of writes, which is 0 if they were.

    Raises KindsNotServed if the engine does not serve them in time. Cancelling leaves some of them written, which the
    next call completes.
    """
    wanted = [crd for crd in crds() if crd["spec"]["group"] not in without]
    waiting = {name_of(crd): "" for crd in wanted}
    try:
        async with time_limit(clock, _PATIENCE):
            policed, written = await asyncio.gather(
                _ensure_policies(client, clock), asyncio.gather(*(_ensure(client, crd, clock) for crd in wanted))
            )
            for crd, _ in written:
                _note(crd, waiting)
            await _until_established(client, waiting)
            await asyncio.gather(*(_until_served(client, crd, waiting, clock) for crd, writes in written if writes))
    except TimeoutError as error:
        raise KindsNotServed(waiting) from error
    return policed + sum(writes for _, writes in written)


async def ensure_crd(client: Client, crd: Object, *, clock: Clock) -> None:
    """Have one of our kinds defined as we define it, unless somebody else does."""
    await _ensure(client, crd, clock)


def is_owned(crd: Object) -> bool:
    """Whether a definition belongs to somebody, such as a package that brings one of our kinds; ours do not."""
    return bool(owners_of(crd))


async def _ensure_policies(client: Client, clock: Clock) -> int:
    wanted = policies()
    try:
        await client.kind(gvk_of(wanted[0]))
    except NotFound:
        return 0
    return sum([writes for _, writes in await asyncio.gather(*(_ensure(client, each, clock) for each in wanted))])


async def _ensure(client: Client, wanted: Object, clock: Clock) -> tuple[Object, int]:
    """The object as it is stored, and how many writes that took. Several may try at once: one of them writes."""
    kind, name = gvk_of(wanted), name_of(wanted)
    while True:
        try:
            found = await client.get(kind, name)
        except NotFound:
            try:
                return await client.create(_stamped(wanted), manager=_MANAGER), 1
            except AlreadyExists:
                continue
        if is_deleted(found):
            await clock.sleep(_PAUSE)  # once it is gone with all its objects, it can be made anew
            continue
        upgraded = _upgraded(found, wanted)
        if upgraded == found:
            return found, 0
        try:
            return await client.update(upgraded, manager=_MANAGER), 1
        except (Conflict, NotFound):
            continue


def _stamped(obj: Object) -> Object:
    metadata = obj["metadata"]
    labels = {**(metadata.get("labels") or {}), **LABELS}
    annotations = {**(metadata.get("annotations") or {}), VERSION_ANNOTATION: planform.__version__}
    return {**obj, "metadata": {**metadata, "labels": labels, "annotations": annotations}}


def _upgraded(found: Object, wanted: Object) -> Object:
    """What to store instead of what is there; the same if nothing needs to change, or it is not ours to change."""
    if is_owned(found):
        return found
    writer = annotations_of(found).get(VERSION_ANNOTATION)
    if writer and _is_newer(writer, planform.__version__):
        _logger.info("%s is of planform %s, which is newer: left as it is", name_of(found), writer)
        return found
    spec = {**found["spec"], **wanted["spec"]}
    if gvk_of(wanted) == CRD:
        spec["versions"] = [*wanted["spec"]["versions"], *_still_stored(found, wanted)]
    return _stamped({**found, "spec": spec})


def _still_stored(found: Object, wanted: Object) -> list[Object]:
    """Versions that we no longer have, in which objects may still be stored: they must stay, or the API refuses."""
    ours = {version["name"] for version in wanted["spec"]["versions"]}
    stored: Collection[str] = (found.get("status") or {}).get("storedVersions") or ()
    return [
        {**version, "storage": False}
        for version in found["spec"]["versions"]
        if version["name"] in stored and version["name"] not in ours
    ]


def _is_newer(one: str, other: str) -> bool:
    first, second = parse_semver(one), parse_semver(other)
    return first is not None and second is not None and first > second


def _note(crd: Object, waiting: dict[str, str]) -> None:
    """Take the CRD out of `waiting` if it is established, or keep why it is not."""
    name = name_of(crd)
    conditions = {each["type"]: each for each in (crd.get("status") or {}).get("conditions") or ()}
    if (conditions.get("Established") or {}).get("status") == "True":
        waiting.pop(name, None)
    elif name in waiting:
        waiting[name] = str((conditions.get("NamesAccepted") or {}).get("message") or "")


async def _until_established(client: Client, waiting: dict[str, str]) -> None:
    """Watch until `waiting` is empty."""
    selector = ",".join(f"{key}={value}" for key, value in LABELS.items())
    while waiting:
        async with client.watch(CRD, labels=selector) as events:
            async for event in events:
                if event.type in ("ADDED", "MODIFIED"):
                    _note(event.object, waiting)
                if not waiting:
                    return


async def _until_served(client: Client, crd: Object, waiting: dict[str, str], clock: Clock) -> None:
    """A real API server serves a kind a moment after it has said that it does, and then in all versions."""
    spec, name = crd["spec"], name_of(crd)
    served = [version for version in spec["versions"] if version["served"]]
    version = min(served, key=lambda each: bool(each.get("deprecated")))
    gvk = GroupVersionKind(spec["group"], version["name"], spec["names"]["kind"])
    waiting[name] = "established, but not found"
    while name in waiting:
        try:
            await client.list(gvk, limit=1)
            del waiting[name]
        except NotFound:
            await clock.sleep(_PAUSE)
