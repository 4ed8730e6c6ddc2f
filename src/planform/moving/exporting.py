"""Reading a control plane: everything of an embedded one, and of a cluster what belongs to the control plane.

In a cluster that is: every object of our kinds, all XRs and claims, what they are composed of, the Secrets and
ConfigMaps that any of these name, the definitions of all these kinds, and the namespaces they are in.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Final

from planform.api.extensions import crds
from planform.api.kinds import GroupVersionKind, Kind, Object, gvk, gvk_of
from planform.api.metadata import name_of, namespace_of
from planform.api.names import CRD, XRD
from planform.builtin.seeds import Keyring
from planform.client.informer import list_pages
from planform.client.protocol import Client
from planform.definitions.crds import claim_kind, xr_kind
from planform.errors import ApiError, MethodNotAllowed, NotFound
from planform.moving.contents import (
    Contents,
    Identity,
    LeftOut,
    identity_of,
    is_ephemeral,
    is_furniture,
    portable,
    why_left_out,
)
from planform.moving.ordering import in_order
from planform.moving.random_values import key_secrets, keyring_of, marked

NAMESPACE: Final = GroupVersionKind("", "v1", "Namespace")
_NAMED: Final = {
    "secret": GroupVersionKind("", "v1", "Secret"),
    "configmap": GroupVersionKind("", "v1", "ConfigMap"),
}
_REFERENCE: Final = re.compile(r"(secret|configmap)(?:to)?(?:key)?ref$", re.IGNORECASE)
_OBJECT_REFERENCES: Final = ("resourceRef", "resourceRefs", "compositeRef")
_DEPTH: Final = 32


async def export_everything(client: Client, kinds: Sequence[Kind], *, secrets: bool = True) -> Contents:
    """All that an embedded engine holds, but for what each engine has of its own."""
    stored = await _storage_versions(client)
    reading = _Reading(client, stored, secrets)
    for kind in _one_version_each(kinds, stored):
        await reading.take_all(kind.gvk)
    return reading.contents("embedded", await keyring_of(client))


async def export_reachable(client: Client, *, secrets: bool = True, more: Collection[Kind] = ()) -> Contents:
    """What belongs to the control plane in a cluster, and all objects of the kinds in `more`."""
    stored = await _storage_versions(client)
    reading = _Reading(client, stored, secrets)
    for crd in crds():
        names = crd["spec"]["names"]["kind"], crd["spec"]["group"]
        await reading.take_all(GroupVersionKind(names[1], stored.get((names[1], names[0]), ""), names[0]))
    for xrd in [obj for obj in reading.found.values() if obj["kind"] == XRD.kind]:
        for kind in (xr_kind(xrd), claim_kind(xrd)):
            if kind is not None:
                await reading.take_all(kind)
    for chosen in more:
        await reading.take_all(chosen.gvk)
    await reading.follow_references()
    for secret in await key_secrets(client):
        reading.take(secret)
    await reading.take_definitions_and_namespaces()
    return reading.contents("kubernetes", await keyring_of(client))


class _Reading:
    """What was found so far."""

    def __init__(self, client: Client, stored: Mapping[tuple[str, str], str], secrets: bool) -> None:
        self._client = client
        self._stored = stored
        self._with_secrets = secrets
        self._ours = {name_of(crd) for crd in crds()}
        self.found: dict[Identity, Object] = {}
        self.left: dict[Identity, LeftOut] = {}

    def contents(self, engine: Any, ring: Keyring | None) -> Contents:
        found = self.found.values() if ring is None else marked(self.found.values(), ring)
        objects = in_order([portable(obj) for obj in found])
        return Contents(engine, tuple(objects), tuple(self.left[name] for name in sorted(self.left)))

    async def take_all(self, kind: GroupVersionKind) -> None:
        try:
            async for page in list_pages(self._client, kind):
                for obj in page.items:
                    self.take(obj)
        except (NotFound, MethodNotAllowed):
            return  # it is named in discovery and cannot be listed, or is not served any more

    def take(self, obj: Object) -> bool:
        """Keep an object, unless it stays behind; gives whether it is new."""
        name = identity_of(obj)
        if name in self.found or name in self.left or is_furniture(obj) or is_ephemeral(name.group, name.kind):
            return False
        if gvk_of(obj) == CRD and name.name in self._ours:
            return False  # whoever imports brings his own
        why = why_left_out(obj)
        if not why and name.kind == "Secret" and not name.group and not self._with_secrets:
            why = "Secrets were excluded"
        if why:
            self.left[name] = LeftOut(name, why)
            return False
        self.found[name] = obj
        return True

    async def follow_references(self) -> None:
        """Take what the objects name, and what that names."""
        waiting = list(self.found.values())
        while waiting:
            for kind, namespace, name in references(waiting.pop()):
                try:
                    obj = await self._client.get(kind, name, namespace=namespace)
                except ApiError:
                    continue  # it is not there yet, or any more; or its kind is not
                if self.take(obj):
                    waiting.append(obj)

    async def take_definitions_and_namespaces(self) -> None:
        kinds = {(name.group, name.kind) for name in self.found}
        async for page in list_pages(self._client, CRD):
            for crd in page.items:
                if (crd["spec"]["group"], crd["spec"]["names"]["kind"]) in kinds:
                    self.take(crd)
        for namespace in sorted({name.namespace for name in self.found if name.namespace}):
            self.take(await self._client.get(NAMESPACE, namespace))


def references(obj: Mapping[str, Any]) -> Iterator[tuple[GroupVersionKind, str, str]]:
    """The objects that an object's spec names: what it is composed of, and Secrets and ConfigMaps."""
    home = namespace_of(obj)
    yield from _references(obj.get("spec"), home, 0)


def _references(value: Any, home: str, depth: int) -> Iterator[tuple[GroupVersionKind, str, str]]:
    if depth > _DEPTH:
        return
    if isinstance(value, list):
        for item in value:
            yield from _references(item, home, depth + 1)
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from _named(key, item, home)
            yield from _references(item, home, depth + 1)


def _named(key: str, value: Any, home: str) -> Iterator[tuple[GroupVersionKind, str, str]]:
    if key in _OBJECT_REFERENCES:
        for item in value if isinstance(value, list) else [value]:
            if isinstance(item, Mapping) and all(item.get(part) for part in ("apiVersion", "kind", "name")):
                namespace = str(item.get("namespace") or home)
                yield gvk(item["apiVersion"], item["kind"]), namespace, str(item["name"])
        return
    match = _REFERENCE.search(key)
    if match and isinstance(value, Mapping) and value.get("name"):
        namespace = str(value.get("namespace") or home)
        if namespace:
            yield _NAMED[match[1].lower()], namespace, str(value["name"])


async def _storage_versions(client: Client) -> dict[tuple[str, str], str]:
    """For each kind of a CRD, the version to read it in: as it is stored, if that is served."""
    chosen = {}
    async for page in list_pages(client, CRD):
        for crd in page.items:
            spec = crd["spec"]
            served = [version for version in spec["versions"] if version["served"]]
            stored = [version["name"] for version in served if version["storage"]]
            if served:
                chosen[spec["group"], spec["names"]["kind"]] = stored[0] if stored else served[0]["name"]
    return chosen


def _one_version_each(kinds: Sequence[Kind], stored: Mapping[tuple[str, str], str]) -> list[Kind]:
    """Every kind that can be read and written, in one version."""
    chosen: dict[tuple[str, str], Kind] = {}
    for kind in kinds:
        if not {"list", "create", "get"} <= set(kind.verbs) or is_ephemeral(kind.group, kind.kind):
            continue
        wanted = stored.get((kind.group, kind.kind))
        if wanted in (None, kind.version):
            chosen.setdefault((kind.group, kind.kind), kind)
    return list(chosen.values())
