"""What exists of an XR's composed resources at the beginning of a reconcile."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from planform.api.annotations import annotations_of
from planform.api.kinds import Object, gvk
from planform.api.metadata import created_at, is_deleted, name_of, namespace_of
from planform.api.owners import controller_of, is_controlled_by
from planform.api.xr import RESOURCE_NAME_ANNOTATION, Style, composition_fields
from planform.client.protocol import Client
from planform.errors import NotFound, PlanformError
from planform.functions.sending import without_server_metadata
from planform.functions.values import Resource, State
from planform.xrs.composed_by import for_functions
from planform.xrs.connections import read_details, secret_reference
from planform.xrs.dependencies import Named
from planform.xrs.last_run import OnRead


class AnonymousResource(PlanformError):
    """A composed resource no longer says which one it is, so nothing can be decided about it."""

    reason = "AnonymousResource"

    def __init__(self, obj: Object) -> None:
        super().__init__(f"composed {obj['kind']} {name_of(obj)} has no annotation {RESOURCE_NAME_ANNOTATION}")
        self.hint = "give it back the name that it has in the composition"


@dataclass
class Observed:
    """Composed resources by their names in the composition. `leftovers` are further ones under a name that is taken,
    as when the kind of a resource was changed. `secrets` hold the connection details of any of them."""

    state: State
    leftovers: list[tuple[str, Object]] = field(default_factory=list)
    secrets: set[Named] = field(default_factory=set)
    resources: dict[str, Object] = field(default_factory=dict)
    """As stored; the state has them as functions see them."""


async def observe(
    client: Client, xr: Object, style: Style, on_read: OnRead, *, one_by_one: bool = False, confined: bool = False
) -> Observed:
    """Read what the XR refers to. What is gone is left out, and so is what somebody else controls.

    `on_read` hears of each Secret before it is read. Only what the XR controls has connection details, since anybody
    may write a reference to a Secret into an object of their own; and if the XR is `confined`, only those of its
    namespace.
    """
    home = namespace_of(xr)
    found = await _read_all(client, references(xr, style), home, one_by_one=one_by_one)
    observed = Observed(State())
    sent: dict[str, Resource] = {}
    for obj in _by_importance(found):
        if _is_foreign(xr, obj):
            continue
        name = annotations_of(obj).get(RESOURCE_NAME_ANNOTATION)
        if not name:
            if is_controlled_by(obj, xr):
                raise AnonymousResource(obj)
            continue  # it was there before us, and was not taken over
        if name in observed.resources:
            observed.leftovers.append((name, obj))
            continue
        observed.resources[name] = obj
        secret = secret_reference(obj, home) if is_controlled_by(obj, xr) else None
        if secret is not None and confined and home and secret.namespace != home:
            secret = None
        details = await _details(client, secret, observed, on_read) if secret is not None else {}
        sent[name] = Resource(without_server_metadata(obj), details)
    own = secret_reference(xr, "") if style == "legacy" else None
    details = await _details(client, own, observed, on_read) if own is not None else {}
    observed.state = State(Resource(without_server_metadata(for_functions(xr)), details), dict(sorted(sent.items())))
    return observed


def references(xr: Mapping[str, Any], style: Style) -> list[Mapping[str, Any]]:
    """The XR's references to composed resources; one without a name refers to nothing."""
    return [each for each in composition_fields(xr, style).get("resourceRefs") or () if each.get("name")]


def named(reference: Mapping[str, Any], xr: Mapping[str, Any]) -> Named:
    """The object a reference of this XR means."""
    namespace = namespace_of(xr) or reference.get("namespace") or ""
    return Named(reference["apiVersion"], reference["kind"], namespace, reference["name"])


async def _read_all(
    client: Client, wanted: Sequence[Mapping[str, Any]], home: str, *, one_by_one: bool
) -> list[Object]:
    if one_by_one or len(wanted) == 1:
        found = [await _read(client, each, home) for each in wanted]
    else:
        found = await asyncio.gather(*(_read(client, each, home) for each in wanted))
    return [obj for obj in found if obj is not None]


async def _read(client: Client, reference: Mapping[str, Any], home: str) -> Object | None:
    kind = gvk(reference["apiVersion"], reference["kind"])
    try:
        return await client.get(kind, reference["name"], namespace=home or reference.get("namespace") or "")
    except NotFound:
        return None


async def _details(client: Client, secret: Named, observed: Observed, on_read: OnRead) -> dict[str, bytes]:
    observed.secrets.add(secret)
    on_read(secret)
    return await read_details(client, secret)


def _is_foreign(xr: Object, obj: Object) -> bool:
    """Whether somebody else controls it, and the XR does not."""
    return not is_controlled_by(obj, xr) and controller_of(obj) is not None


def _by_importance(found: list[Object]) -> list[Object]:
    """The younger before the older, and what is being deleted last: the first of a name is the one that counts."""
    found = sorted(found, key=created_at, reverse=True)
    return sorted(found, key=is_deleted)
