"""Which XRs care about which objects: the index that turns a change anywhere into the XRs to look at again.

An XR depends on objects by name (what it composes, inputs, what functions asked for by name) and by selector (what
functions asked for by labels, or all of a kind). Versions do not matter: a change told in one version of a kind is a
change of the object. Nothing here waits or reads.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping
from typing import Any, Generic, NamedTuple, TypeVar

from planform.api.kinds import GroupVersionKind, gvk
from planform.api.metadata import labels_of, name_of, namespace_of

K = TypeVar("K", bound=Hashable)


class Named(NamedTuple):
    """One object. `namespace` is empty for cluster-scoped kinds."""

    api_version: str
    kind: str
    namespace: str
    name: str


class Selected(NamedTuple):
    """All objects of a kind with these labels, or simply all; in every namespace if `namespace` is empty."""

    api_version: str
    kind: str
    namespace: str
    labels: tuple[tuple[str, str], ...]


Dependency = Named | Selected


class Watched(NamedTuple):
    """What must be watched so that a dependency's changes are heard."""

    gvk: GroupVersionKind
    namespace: str


def watched_for(dependency: Dependency) -> Watched:
    """One watch for a kind serves every XR. Secrets are watched by namespace: nobody needs to see them all."""
    kind = gvk(dependency.api_version, dependency.kind)
    secret = not kind.group and kind.kind == "Secret"
    return Watched(kind, dependency.namespace if secret else "")


class DependencyIndex(Generic[K]):
    """Dependencies of each XR, and back. `track` replaces all that was known of an XR at once."""

    def __init__(self) -> None:
        self._of: dict[K, frozenset[Dependency]] = {}
        self._by_name: dict[tuple[str, str, str, str], set[K]] = {}
        self._by_labels: dict[tuple[str, str], dict[Selected, set[K]]] = {}
        self._watched: dict[Watched, int] = {}

    def __len__(self) -> int:
        return len(self._of)

    def of(self, xr: K) -> frozenset[Dependency]:
        return self._of.get(xr, frozenset())

    def track(self, xr: K, dependencies: Iterable[Dependency]) -> None:
        wanted, before = frozenset(dependencies), self._of.get(xr, frozenset())
        if wanted == before:
            return
        for gone in before - wanted:
            self._remove(xr, gone)
        for new in wanted - before:
            self._add(xr, new)
        if wanted:
            self._of[xr] = wanted
        else:
            self._of.pop(xr, None)

    def add(self, xr: K, dependency: Dependency) -> None:
        """Track one more. Said before the object is read, no change of it after that read is missed."""
        known = self._of.get(xr, frozenset())
        if dependency not in known:
            self._add(xr, dependency)
            self._of[xr] = known | {dependency}

    def forget(self, xr: K) -> None:
        self.track(xr, ())

    def watched(self) -> frozenset[Watched]:
        """Everything that has to be watched for somebody."""
        return frozenset(self._watched)

    def interested(self, obj: Mapping[str, Any], kind: GroupVersionKind) -> Iterator[K]:
        """The XRs that depend on this object as it is now; each once."""
        namespace, name = namespace_of(obj), name_of(obj)
        found = dict.fromkeys(self._by_name.get((kind.group, kind.kind, namespace, name), ()))
        selectors = self._by_labels.get((kind.group, kind.kind))
        if selectors:
            labels = labels_of(obj)
            for selected, xrs in selectors.items():
                if selected.namespace not in ("", namespace):
                    continue
                if all(labels.get(key) == value for key, value in selected.labels):
                    found |= dict.fromkeys(xrs)
        return iter(found)

    def _add(self, xr: K, dependency: Dependency) -> None:
        if isinstance(dependency, Named):
            self._by_name.setdefault(_name_key(dependency), set()).add(xr)
        else:
            self._by_labels.setdefault(_kind_key(dependency), {}).setdefault(dependency, set()).add(xr)
        watched = watched_for(dependency)
        self._watched[watched] = self._watched.get(watched, 0) + 1

    def _remove(self, xr: K, dependency: Dependency) -> None:
        if isinstance(dependency, Named):
            key = _name_key(dependency)
            self._by_name[key].discard(xr)
            if not self._by_name[key]:
                del self._by_name[key]
        else:
            kind = _kind_key(dependency)
            selectors = self._by_labels[kind]
            selectors[dependency].discard(xr)
            if not selectors[dependency]:
                del selectors[dependency]
            if not selectors:
                del self._by_labels[kind]
        watched = watched_for(dependency)
        self._watched[watched] -= 1
        if not self._watched[watched]:
            del self._watched[watched]


def _name_key(named: Named) -> tuple[str, str, str, str]:
    kind = gvk(named.api_version, named.kind)
    return kind.group, kind.kind, named.namespace, named.name


def _kind_key(selected: Selected) -> tuple[str, str]:
    kind = gvk(selected.api_version, selected.kind)
    return kind.group, kind.kind
