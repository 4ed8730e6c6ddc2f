"""A client over another one: reads fall through to what is live, writes stay in memory.

Whatever is run against it sees its own writes and can never change anything: there is no way through for a write, a dry
run included. Overlays stand upon overlays: one holds a change, another what one XR makes of it.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final

from planform.api.kinds import GroupVersionKind, Kind, Object, gvk_of
from planform.apimachinery.fieldpath import FieldPathError, parse_path
from planform.apimachinery.patches import json_patch, merge_patch
from planform.apimachinery.selectors import parse_fields, parse_labels
from planform.client.protocol import Client, ObjectList, Patch, PatchType, Propagation, Watch
from planform.errors import AlreadyExists, BadRequest, NotFound

Place = tuple[str, str, str, str]
"""Group, kind, namespace and name: an object, whatever the version it is read in."""

_UIDS: Final = uuid.uuid5(uuid.NAMESPACE_DNS, "preview.planform.dev")
VERSION: Final = "0"
"""The resource version of what only an overlay has."""


def place_of(obj: Mapping[str, Any]) -> Place:
    kind, metadata = gvk_of(obj), obj["metadata"]
    return kind.group, kind.kind, metadata.get("namespace") or "", metadata["name"]


def assumed_uid(place: Place) -> str:
    """The uid of an object that does not exist yet: the same each time it is assumed."""
    return str(uuid.uuid5(_UIDS, "/".join(place)))


class OverlayClient:
    """Keeps the Client Protocol. What it gives is shared with later reads below `metadata`: read it only."""

    def __init__(self, base: Client) -> None:
        self.base = base
        self._objects: dict[Place, Object | None] = {}
        self._kinds: dict[GroupVersionKind, Kind | None] = {}

    # -- for whoever prepares it

    def put(self, obj: Object) -> Object:
        """Have this object be there, in place of any that is."""
        place = place_of(obj)
        metadata = dict(obj["metadata"])
        metadata.setdefault("uid", assumed_uid(place))
        metadata.setdefault("resourceVersion", VERSION)
        stored = {**obj, "metadata": metadata}
        self._objects[place] = stored
        return stored

    def remove(self, obj: Mapping[str, Any]) -> None:
        """Have this object be gone."""
        self._objects[place_of(obj)] = None

    def serve(self, kind: Kind) -> None:
        """Have this kind be served."""
        self._kinds[kind.gvk] = kind

    def withdraw(self, kind: GroupVersionKind) -> None:
        """Have this kind not be served."""
        self._kinds[kind] = None

    def holds(self, obj: Mapping[str, Any]) -> bool:
        """Whether the object is as it is, or gone, because of a write to this overlay or one below."""
        if place_of(obj) in self._objects:
            return True
        return isinstance(self.base, OverlayClient) and self.base.holds(obj)

    def serves(self, kind: GroupVersionKind) -> bool:
        """Whether the kind is served in an overlay only."""
        if kind in self._kinds:
            return self._kinds[kind] is not None
        return isinstance(self.base, OverlayClient) and self.base.serves(kind)

    # -- the Protocol

    async def kind(self, gvk: GroupVersionKind) -> Kind:
        if gvk in self._kinds:
            kind = self._kinds[gvk]
            if kind is None:
                raise NotFound(f"{gvk.kind} ({gvk.api_version}) is not served")
            return kind
        return await self.base.kind(gvk)

    async def get(self, gvk: GroupVersionKind, name: str, *, namespace: str = "", subresource: str = "") -> Object:
        place = (gvk.group, gvk.kind, namespace, name)
        if place not in self._objects:
            return await self.base.get(gvk, name, namespace=namespace, subresource=subresource)
        found = self._objects[place]
        if found is None:
            raise NotFound(f'{gvk.kind} "{name}" not found')
        return {**found, "apiVersion": gvk.api_version, "metadata": dict(found["metadata"])}

    async def list(
        self,
        gvk: GroupVersionKind,
        *,
        namespace: str = "",
        labels: str = "",
        fields: str = "",
        limit: int = 0,
        continue_token: str = "",
        resource_version: str = "",
    ) -> ObjectList:
        try:
            page = await self.base.list(
                gvk,
                namespace=namespace,
                labels=labels,
                fields=fields,
                limit=limit,
                continue_token=continue_token,
                resource_version=resource_version,
            )
        except NotFound:
            if not self.serves(gvk):
                raise
            page = ObjectList([], VERSION)
        ours = list(self._of(gvk, namespace))
        if not ours:
            return page
        items = [obj for obj in page.items if place_of(obj) not in self._objects]
        if not page.continue_token:  # what only we have comes with the last page
            selects, picks = parse_labels(labels), parse_fields(fields)
            items += [
                {**obj, "apiVersion": gvk.api_version, "metadata": dict(obj["metadata"])}
                for obj in ours
                if obj is not None
                and selects.matches(obj["metadata"].get("labels") or {})
                and picks.matches(partial(_text_at, obj))
            ]
            items.sort(key=lambda obj: (obj["metadata"].get("namespace") or "", obj["metadata"]["name"]))
        return ObjectList(items, page.resource_version, page.continue_token, page.remaining)

    def _of(self, gvk: GroupVersionKind, namespace: str) -> Iterator[Object | None]:
        for place, obj in self._objects.items():
            if place[:2] == (gvk.group, gvk.kind) and namespace in ("", place[2]):
                yield obj

    def watch(
        self,
        gvk: GroupVersionKind,
        *,
        namespace: str = "",
        labels: str = "",
        fields: str = "",
        resource_version: str = "",
        bookmarks: bool = False,
        send_initial_events: bool = False,
        timeout: float | None = None,
    ) -> Watch:
        """What is live: nobody waits for what an overlay alone has."""
        return self.base.watch(
            gvk,
            namespace=namespace,
            labels=labels,
            fields=fields,
            resource_version=resource_version,
            bookmarks=bookmarks,
            send_initial_events=send_initial_events,
            timeout=timeout,
        )

    async def create(self, obj: Object, *, manager: str = "", dry_run: bool = False) -> Object:
        try:
            await self._current(obj)
        except NotFound:
            return self._kept(obj, dry_run)
        raise AlreadyExists(f'{obj["kind"]} "{obj["metadata"]["name"]}" already exists')

    async def update(self, obj: Object, *, subresource: str = "", manager: str = "", dry_run: bool = False) -> Object:
        found = await self._current(obj)
        if subresource == "status":
            return self._kept({**found, "status": obj.get("status") or {}}, dry_run)
        return self._kept({**obj, "metadata": {**found["metadata"], **obj["metadata"]}}, dry_run)

    async def patch(
        self,
        gvk: GroupVersionKind,
        name: str,
        patch: Patch,
        *,
        namespace: str = "",
        subresource: str = "",
        manager: str = "",
        dry_run: bool = False,
    ) -> Object:
        found = await self.get(gvk, name, namespace=namespace)
        if patch.type is PatchType.STRATEGIC:
            raise BadRequest("an overlay takes merge patches and JSON patches")
        apply = json_patch if patch.type is PatchType.JSON else merge_patch
        return self._kept(apply(found, patch.body), dry_run)

    async def apply(
        self, obj: Object, *, manager: str, force: bool = False, subresource: str = "", dry_run: bool = False
    ) -> Object:
        """A merge: nobody else's fields are known here. Whoever wants more asks an API server for a dry run."""
        try:
            return self._kept(merge_patch(await self._current(obj), obj), dry_run)
        except NotFound:
            return self._kept(obj, dry_run)

    async def delete(
        self,
        gvk: GroupVersionKind,
        name: str,
        *,
        namespace: str = "",
        propagation: Propagation | None = None,
        uid: str = "",
        resource_version: str = "",
        dry_run: bool = False,
    ) -> Object | None:
        found = await self.get(gvk, name, namespace=namespace)
        if not dry_run:
            self.remove(found)
        return None

    async def delete_collection(
        self, gvk: GroupVersionKind, *, namespace: str = "", labels: str = "", fields: str = ""
    ) -> Sequence[Object]:
        found = (await self.list(gvk, namespace=namespace, labels=labels, fields=fields)).items
        for obj in found:
            self.remove(obj)
        return found

    async def _current(self, obj: Mapping[str, Any]) -> Object:
        metadata = obj["metadata"]
        return await self.get(gvk_of(obj), metadata["name"], namespace=metadata.get("namespace") or "")

    def _kept(self, obj: Object, dry_run: bool) -> Object:
        return obj if dry_run else self.put(obj)


def _text_at(obj: Mapping[str, Any], field: str) -> str:
    try:
        return str(parse_path(field).get(obj) or "")
    except FieldPathError:
        return ""
