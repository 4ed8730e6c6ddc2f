"""What an API server would store of an apply, worked out here from the schemas that it publishes.

For whom a dry run is not allowed: lists merge by their keys, fields that the manager no longer wants go, defaults come,
and what breaks the schema is refused. Admission (webhooks, policies, quotas) has no say; so such objects are told apart
from those that a dry run has seen.
"""

from __future__ import annotations

import copy
from functools import cache
from typing import Final

from planform.api.kinds import GroupVersionKind, Object, gvk_of
from planform.apimachinery.apply import apply
from planform.apimachinery.typed import TypedError
from planform.apiserver.crds.builtin_kinds import builtin_served_kinds
from planform.apiserver.crds.definitions import served_kinds
from planform.apiserver.crds.registry import ServedKind
from planform.client.protocol import Client
from planform.clock import SystemClock, timestamp
from planform.errors import BadRequest, Forbidden, Invalid, NotFound

CRD: Final = GroupVersionKind("apiextensions.k8s.io", "v1", "CustomResourceDefinition")


class SchemaApplies:
    """Applies by schema; those of CRDs are read once."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._known: dict[GroupVersionKind, ServedKind | None] = {}

    async def apply(self, obj: Object, there: Object | None, *, manager: str) -> Object | None:
        """What would be stored over what is there, None if the schema is not to be had. Raises Invalid or BadRequest
        for what the schema refuses."""
        kind = gvk_of(obj)
        if kind not in self._known:
            self._known[kind] = await self._read(kind)
        served = self._known[kind]
        return None if served is None else _applied(served, obj, there, manager)

    async def _read(self, kind: GroupVersionKind) -> ServedKind | None:
        if kind in _builtin():
            return _builtin()[kind]
        try:
            crd = await self._client.get(CRD, f"{(await self._client.kind(kind)).plural}.{kind.group}")
        except (NotFound, Forbidden):
            return None
        return next((each for each in served_kinds(crd, 0) if each.kind.version == kind.version), None)


@cache
def _builtin() -> dict[GroupVersionKind, ServedKind]:
    return {gvk_of({"apiVersion": each.api_version, "kind": each.kind.kind}): each for each in _served()}


def _served() -> list[ServedKind]:
    return builtin_served_kinds(SystemClock().now)


def _applied(served: ServedKind, obj: Object, there: Object | None, manager: str) -> Object:
    try:
        new = apply(
            there,
            obj,
            node=served.node,
            manager=manager,
            api_version=served.api_version,
            force=True,
            now=timestamp(SystemClock().now()),
            status_subresource=served.has_status,
        )
    except TypedError as error:
        raise BadRequest(str(error)) from error
    new = copy.deepcopy(new)
    served.strategy.prepare(new, there, "")
    errors = []
    if served.schema is not None:
        errors += served.schema.admit(new, old=there, null_errors=True).errors
    if not errors and served.rules is not None:
        errors += served.rules.check(new, there)
    if errors:
        raise Invalid.of(served.kind.group, served.kind.kind, obj["metadata"]["name"], errors)
    return new
