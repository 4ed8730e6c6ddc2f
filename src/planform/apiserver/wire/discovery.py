"""What is served, told in the three ways that clients ask: group by group, version by version, or all at once.

Pure functions from the served kinds to documents; the caller caches them until the set of kinds changes. Groups keep
the order in which their first kind appears, since clients resolve a short name that two groups share by that order.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Sequence
from typing import Any, Final, Literal

import orjson

from planform.api.builtin import SCALE, TOKEN_REQUEST
from planform.api.kinds import GroupVersionKind, Kind

Document = dict[str, Any]
AggregatedVersion = Literal["v2", "v2beta1"]

_READ_WRITE: Final = ("get", "patch", "update")
_SUBRESOURCE_VERBS: Final = {"token": ("create",), "finalize": ("update",)}
_SUBRESOURCE_KINDS: Final = {"scale": SCALE, "token": TOKEN_REQUEST}
_VERSION: Final = re.compile(r"v([1-9][0-9]*)(?:(alpha|beta)([1-9][0-9]*))?")
_STABILITY: Final = {"alpha": 0, "beta": 1, "": 2}


def by_preference(versions: Iterable[str]) -> list[str]:
    """v2, v1, v1beta2, v1alpha1: stable first, higher first; names of no such form come last, in their own order."""
    return sorted(set(versions), key=_preference)


def _preference(version: str) -> tuple[int, int, int, str]:
    match = _VERSION.fullmatch(version)
    if match is None:
        return (1, 0, 0, version)
    major, stage, minor = match.groups(default="")
    return (-_STABILITY[stage], -int(major), -int(minor or 0), "")


def root_paths(kinds: Iterable[Kind]) -> Document:
    """`/`: the paths that lead on."""
    paths = {"/api", "/apis", "/healthz", "/livez", "/openapi/v2", "/openapi/v3", "/readyz", "/version"}
    for kind in kinds:
        paths.add(f"/apis/{kind.group}/{kind.version}" if kind.group else f"/api/{kind.version}")
        if kind.group:
            paths.add(f"/apis/{kind.group}")
    return {"paths": sorted(paths)}


def core_versions(kinds: Iterable[Kind], *, server_address: str) -> Document:
    """`/api`: the versions of the group without a name."""
    return {
        "kind": "APIVersions",
        "versions": by_preference(kind.version for kind in kinds if not kind.group),
        "serverAddressByClientCIDRs": [{"clientCIDR": "0.0.0.0/0", "serverAddress": server_address}],
    }


def group_list(kinds: Sequence[Kind]) -> Document:
    """`/apis`: every named group."""
    groups = [_group(name, kinds) for name in _groups(kinds) if name]
    return {"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}


def group(kinds: Sequence[Kind], name: str) -> Document | None:
    """`/apis/G`, or None if nothing of that group is served."""
    if not name or name not in _groups(kinds):
        return None
    return {"kind": "APIGroup", "apiVersion": "v1", **_group(name, kinds)}


def _group(name: str, kinds: Iterable[Kind]) -> Document:
    ordered = by_preference(kind.version for kind in kinds if kind.group == name)
    versions = [{"groupVersion": f"{name}/{version}", "version": version} for version in ordered]
    return {"name": name, "versions": versions, "preferredVersion": versions[0]}


def _groups(kinds: Iterable[Kind]) -> list[str]:
    return list(dict.fromkeys(kind.group for kind in kinds))


def resource_list(kinds: Iterable[Kind], group: str, version: str) -> Document | None:
    """`/api/V` and `/apis/G/V`, or None if nothing of that version is served."""
    served = _of_version(kinds, group, version)
    if not served:
        return None
    rows: list[Document] = []
    for kind in served:
        row = {
            "name": kind.plural,
            "singularName": _singular(kind),
            "namespaced": kind.namespaced,
            "kind": kind.kind,
            "verbs": list(kind.verbs),
        }
        rows.append(row | _nicknames(kind))
        rows += [_subresource_row(kind, subresource) for subresource in sorted(kind.subresources)]
    group_version = f"{group}/{version}" if group else version
    return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": group_version, "resources": rows}


def _subresource_row(kind: Kind, subresource: str) -> Document:
    other = _SUBRESOURCE_KINDS.get(subresource)
    return {
        "name": f"{kind.plural}/{subresource}",
        "singularName": "",
        "namespaced": kind.namespaced,
        "kind": other.kind if other else kind.kind,
        "verbs": list(_SUBRESOURCE_VERBS.get(subresource, _READ_WRITE)),
        **({"group": other.group, "version": other.version} if other else {}),
    }


def aggregated(kinds: Sequence[Kind], *, core: bool, version: AggregatedVersion = "v2") -> Document:
    """`/api` (core) or `/apis` in one document: groups, versions, resources and subresources."""
    items = []
    for name in _groups(kinds):
        if bool(name) == core:
            continue
        ordered = by_preference(kind.version for kind in kinds if kind.group == name)
        versions = [_aggregated_version(kinds, name, served) for served in ordered]
        items.append({"metadata": {"name": name} if name else {}, "versions": versions})
    api_version = f"apidiscovery.k8s.io/{version}"
    return {"kind": "APIGroupDiscoveryList", "apiVersion": api_version, "metadata": {}, "items": items}


def _aggregated_version(kinds: Iterable[Kind], group: str, version: str) -> Document:
    resources = [_aggregated_resource(kind) for kind in _of_version(kinds, group, version)]
    return {"version": version, "resources": resources, "freshness": "Current"}


def _aggregated_resource(kind: Kind) -> Document:
    row: Document = {
        "resource": kind.plural,
        "responseKind": kind.gvk._asdict(),
        "scope": "Namespaced" if kind.namespaced else "Cluster",
        "singularResource": _singular(kind),
        "verbs": list(kind.verbs),
        **_nicknames(kind),
    }
    if kind.subresources:
        row["subresources"] = [
            {
                "subresource": subresource,
                "responseKind": _response_kind(kind, subresource)._asdict(),
                "verbs": list(_SUBRESOURCE_VERBS.get(subresource, _READ_WRITE)),
            }
            for subresource in sorted(kind.subresources)
        ]
    return row


def _response_kind(kind: Kind, subresource: str) -> GroupVersionKind:
    return _SUBRESOURCE_KINDS.get(subresource, kind.gvk)


def _of_version(kinds: Iterable[Kind], group: str, version: str) -> list[Kind]:
    served = (kind for kind in kinds if (kind.group, kind.version) == (group, version))
    return sorted(served, key=lambda kind: kind.plural)


def _singular(kind: Kind) -> str:
    return kind.singular or kind.kind.lower()


def _nicknames(kind: Kind) -> Document:
    nicknames = {"shortNames": list(kind.short_names), "categories": list(kind.categories)}
    return {name: values for name, values in nicknames.items() if values}


def encode(document: Document) -> tuple[bytes, str]:
    """The document as it is sent, and its ETag, quotes included."""
    body = orjson.dumps(document) + b"\n"
    return body, f'"{hashlib.sha256(body).hexdigest().upper()}"'
