"""The writes that all controllers share. Each sends only what differs, and nothing if nothing does.

They carry the resource version of the object they were decided on: whoever wrote in between makes them a Conflict,
which a controller answers by reading again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from planform.api.conditions import XrCondition, set_conditions
from planform.api.kinds import Object, gvk_of
from planform.api.metadata import finalizers_of, name_of, namespace_of, resource_version_of, uid_of
from planform.client.protocol import Client, Patch, PatchType
from planform.errors import NotFound


async def merge(
    client: Client, obj: Mapping[str, Any], body: Mapping[str, Any], *, manager: str = "", subresource: str = ""
) -> Object:
    """A merge patch on exactly this version of the object."""
    guarded = {"uid": uid_of(obj), "resourceVersion": resource_version_of(obj)}
    patch = {**body, "metadata": {**(body.get("metadata") or {}), **guarded}}
    return await client.patch(
        gvk_of(obj),
        name_of(obj),
        Patch(PatchType.MERGE, patch),
        namespace=namespace_of(obj),
        subresource=subresource,
        manager=manager,
    )


def upon(found: Mapping[str, Any] | None, wanted: Object) -> Object:
    """What to apply so that it hits this very object, and no namesake that has taken its place."""
    if found is None:
        return wanted
    return {**wanted, "metadata": {**wanted["metadata"], "uid": uid_of(found)}}


async def add_finalizer(client: Client, obj: Object, finalizer: str, *, manager: str = "") -> Object:
    """The object with the finalizer, as stored."""
    present = finalizers_of(obj)
    if finalizer in present:
        return obj
    return await merge(client, obj, {"metadata": {"finalizers": [*present, finalizer]}}, manager=manager)


async def remove_finalizer(client: Client, obj: Object, finalizer: str, *, manager: str = "") -> None:
    """Let the object go; one that is gone already is as wanted."""
    present = finalizers_of(obj)
    if finalizer not in present:
        return
    left = [each for each in present if each != finalizer]
    try:
        await merge(client, obj, {"metadata": {"finalizers": left}}, manager=manager)
    except NotFound:
        pass


async def set_status(
    client: Client,
    obj: Object,
    conditions: Sequence[XrCondition],
    *,
    now: str,
    manager: str = "",
    **more: Any,
) -> Object:
    """Set these conditions and top-level fields of the status; writes only if one of them differs."""
    before = obj.get("status") or {}
    wanted: Object = {**before, **more}
    wanted["conditions"] = set_conditions(
        before.get("conditions") or [], conditions, now=now, generation=obj["metadata"].get("generation")
    )
    if wanted == before:
        return obj
    changed = {name: value for name, value in wanted.items() if before.get(name) != value}
    return await merge(client, obj, {"status": changed}, manager=manager, subresource="status")
