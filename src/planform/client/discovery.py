"""Which kinds a server has, and by which path each is reached.

Everything is learnt at once from aggregated discovery (two requests), or from one list per group version where the
server is too old for it. A kind that is not known then is looked for in its own group version, which is cheap and
always fresh: a CRD can be used as soon as it is established.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import quote

from planform.api.kinds import GroupVersionKind, Kind
from planform.api.metadata import name_of
from planform.client.transport import Transport
from planform.errors import BadRequest, NotFound, ServiceUnavailable

AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json"

GroupVersion = tuple[str, str]

_logger = logging.getLogger(__name__)


class Discovery:
    """A server's kinds, as far as they are known."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self._kinds: dict[GroupVersionKind, Kind] = {}
        self._complete = False
        self._learning = asyncio.Lock()

    async def kind(self, gvk: GroupVersionKind) -> Kind:
        """The kind of that name; raises NotFound if the server does not have it."""
        known = self._kinds.get(gvk)
        if known is not None:
            return known
        if not gvk.kind or not gvk.version:
            raise BadRequest(f"apiVersion and kind must be set, not {gvk.api_version!r} and {gvk.kind!r}")
        if not self._complete:
            await self.kinds()
        if gvk not in self._kinds:
            await self._learn_version((gvk.group, gvk.version))
        if gvk not in self._kinds:
            raise NotFound(f'no matches for kind "{gvk.kind}" in version "{gvk.api_version}"')
        return self._kinds[gvk]

    async def kinds(self, *, refresh: bool = False) -> Iterable[Kind]:
        """Every kind the server has, learnt on the first call."""
        async with self._learning:
            if refresh or not self._complete:
                self._kinds = {kind.gvk: kind for kind in await self._everything()}
                self._complete = True
        return self._kinds.values()

    def forget(self, gvk: GroupVersionKind) -> None:
        """The server no longer answers for this kind: look again next time."""
        self._kinds.pop(gvk, None)

    async def _everything(self) -> list[Kind]:
        found: list[Kind] = []
        for root in ("/api", "/apis"):
            document = (await self._transport.request("GET", root, accept=AGGREGATED, repeatable=True)).json()
            if document.get("kind") == "APIGroupDiscoveryList":
                for group in document.get("items") or ():
                    found.extend(_aggregated(group))
                continue
            for version in _versions(document):
                try:
                    found.extend(await self._resources(version))
                except ServiceUnavailable as error:  # an extension server is away; its kinds are looked for when asked
                    _logger.warning("discovering %s: %s", version_path(*version), error)
        return found

    async def _learn_version(self, version: GroupVersion) -> None:
        found = await self._resources(version)
        for gvk in [gvk for gvk in self._kinds if (gvk.group, gvk.version) == version]:
            del self._kinds[gvk]
        self._kinds.update({kind.gvk: kind for kind in found})

    async def _resources(self, version: GroupVersion) -> list[Kind]:
        try:
            answer = await self._transport.request("GET", version_path(*version), repeatable=True)
        except NotFound:
            return []
        return _listed(version, answer.json().get("resources") or ())


def version_path(group: str, version: str) -> str:
    return f"/apis/{quote(group)}/{quote(version)}" if group else f"/api/{quote(version)}"


def path_of(kind: Kind, namespace: str, name: str = "", subresource: str = "") -> str:
    """Where the objects of a kind are, or one of them, or a subresource of that one; names are escaped."""
    path = version_path(kind.group, kind.version)
    if kind.namespaced and namespace:
        path += f"/namespaces/{quote(namespace, safe='')}"
    elif kind.namespaced and name:
        raise BadRequest(f'{kind.resource} "{name}": a namespaced object needs a namespace')
    path += f"/{kind.plural}"
    if name:
        if name in (".", ".."):
            raise BadRequest(f"not a name: {name!r}")
        path += f"/{quote(name, safe=':')}"
    return f"{path}/{subresource}" if subresource else path


def _aggregated(group: Mapping[str, Any]) -> Iterable[Kind]:
    name = name_of(group)
    for version in group.get("versions") or ():
        for resource in version.get("resources") or ():
            response = resource.get("responseKind") or {}
            if not response.get("kind"):
                continue
            yield Kind(
                group=name,
                version=version["version"],
                kind=response["kind"],
                plural=resource["resource"],
                namespaced=resource.get("scope") == "Namespaced",
                singular=resource.get("singularResource") or "",
                list_kind=response["kind"] + "List",
                short_names=tuple(resource.get("shortNames") or ()),
                categories=tuple(resource.get("categories") or ()),
                verbs=tuple(resource.get("verbs") or ()),
                subresources=tuple(part["subresource"] for part in resource.get("subresources") or ()),
            )


def _versions(document: Mapping[str, Any]) -> Iterable[GroupVersion]:
    """Group versions in an APIVersions (the core group) or an APIGroupList."""
    for version in document.get("versions") or ():
        yield "", version
    for group in document.get("groups") or ():
        for version in group.get("versions") or ():
            yield group["name"], version["version"]


def _listed(version: GroupVersion, resources: Iterable[Mapping[str, Any]]) -> list[Kind]:
    """Kinds in an APIResourceList, where a subresource is a row of its own named `plural/subresource`."""
    subresources: dict[str, list[str]] = {}
    rows = []
    for resource in resources:
        plural, slash, subresource = resource["name"].partition("/")
        if slash:
            subresources.setdefault(plural, []).append(subresource)
        else:
            rows.append(resource)
    return [
        Kind(
            group=version[0],
            version=version[1],
            kind=row["kind"],
            plural=row["name"],
            namespaced=bool(row.get("namespaced")),
            singular=row.get("singularName") or "",
            list_kind=row["kind"] + "List",
            short_names=tuple(row.get("shortNames") or ()),
            categories=tuple(row.get("categories") or ()),
            verbs=tuple(row.get("verbs") or ()),
            subresources=tuple(subresources.get(row["name"], ())),
        )
        for row in rows
    ]
