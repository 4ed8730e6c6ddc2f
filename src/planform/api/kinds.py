"""What a kind is: its names, scope and subresources. Everyone who names a kind does it with these types."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, NamedTuple

from planform.apimachinery.objects import Object as Object


class GroupVersionKind(NamedTuple):
    """The name of a kind in one version, as objects carry it in apiVersion and kind."""

    group: str
    version: str
    kind: str

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    def __str__(self) -> str:
        return f"{self.kind}.{self.version}.{self.group}" if self.group else f"{self.kind}.{self.version}"


GVK = GroupVersionKind


@lru_cache(maxsize=4096)
def gvk(api_version: str, kind: str) -> GroupVersionKind:
    """`gvk("apps/v1", "Deployment")`; the core group has no slash."""
    group, slash, version = api_version.rpartition("/")
    return GroupVersionKind(group if slash else "", version, kind)


def gvk_of(obj: Mapping[str, Any]) -> GroupVersionKind:
    """The kind an object says it is; missing parts are empty strings."""
    return gvk(str(obj.get("apiVersion") or ""), str(obj.get("kind") or ""))


@dataclass(frozen=True, slots=True)
class Kind:
    """A served type with its scope, in one version. `resource` is what all versions of it share in the store."""

    group: str
    version: str
    kind: str
    plural: str
    namespaced: bool
    singular: str = ""
    list_kind: str = ""
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    verbs: tuple[str, ...] = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")
    subresources: tuple[str, ...] = field(default=())

    @property
    def gvk(self) -> GroupVersionKind:
        return GroupVersionKind(self.group, self.version, self.kind)

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def resource(self) -> str:
        """`widgets.example.org`: plural and group, the same for every version; also the name in messages."""
        return f"{self.plural}.{self.group}" if self.group else self.plural
