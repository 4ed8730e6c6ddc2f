"""The kinds that are served right now, and what is compiled for each: schema, type tree, rules, printer columns.

The registry follows the committed store: CRDs enter and leave it in the store's commit callback, so that discovery,
verbs and watches never disagree. Compiling is lazy; a kind nobody uses costs a few hundred bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from planform.api.kinds import GroupVersionKind, Kind, Object
from planform.errors import NotFound

if TYPE_CHECKING:
    from planform.apimachinery.cel import Rules
    from planform.apimachinery.schema import Schema
    from planform.apimachinery.typed import TypeNode
    from planform.apiserver.crds.strategies import Strategy

Resolve = Callable[[str], Mapping[str, Any]]
Convert = Callable[[Object], Object]


@dataclass(slots=True, frozen=True)
class PrinterColumn:
    """One column of a Table: where its cell comes from and how it is shown. Priority above 0 is for wide tables."""

    name: str
    type: str
    path: str
    format: str = ""
    description: str = ""
    priority: int = 0


@dataclass(frozen=True)
class Scale:
    """Where a kind's scale subresource reads and writes, as JSON paths."""

    spec_replicas: str
    status_replicas: str
    selector: str = ""


@dataclass
class ServedKind:
    """A kind in one version as the verbs need it."""

    kind: Kind
    strategy: Strategy
    openapi: Mapping[str, Any] | None
    resolve: Resolve | None = None
    builtin: bool = True
    storage_version: str = ""
    storage_resource: str = ""
    columns: tuple[PrinterColumn, ...] = ()
    selectable: tuple[str, ...] = ()
    scale: Scale | None = None
    deprecation: str = ""
    conversion: Object | None = None
    to_storage: Convert | None = None
    from_storage: Convert | None = None
    terminating: bool = False
    schema_rv: int = 0
    """Objects written up to this resource version may predate the present schema."""
    storage: ServedKind | None = None
    """The same kind in its storage version, where that is another one."""

    @cached_property
    def has_status(self) -> bool:
        return "status" in self.kind.subresources

    @cached_property
    def resource(self) -> str:
        """The name in the store: all versions, and both shapes of Event, share one."""
        return self.storage_resource or self.kind.resource

    @cached_property
    def api_version(self) -> str:
        return self.kind.api_version

    @cached_property
    def storage_api_version(self) -> str:
        version = self.storage_version or self.kind.version
        return f"{self.kind.group}/{version}" if self.kind.group else version

    @cached_property
    def is_storage(self) -> bool:
        """Whether what is stored can be sent as it is."""
        return self.storage_api_version == self.api_version and self.from_storage is None

    @cached_property
    def prefix(self) -> bytes:
        """How the bytes of an object in this very version begin."""
        return b'{"apiVersion":"%s","kind":"%s",' % (self.api_version.encode(), self.kind.kind.encode())

    @cached_property
    def schema(self) -> Schema | None:
        from planform.apimachinery.schema import compile_schema

        if self.openapi is None:
            return None
        schema = self.openapi
        if self.builtin:  # metadata has rules of its own, and for built-in kinds nothing to add to them
            known = ("apiVersion", "kind", "metadata")
            properties = {name: value for name, value in schema["properties"].items() if name not in known}
            schema = {**schema, "properties": properties}
        return compile_schema(schema, resolve=self.resolve, root=True)

    @property
    def storage_schema(self) -> Schema | None:
        return self.storage.schema if self.storage is not None else self.schema

    @cached_property
    def node(self) -> TypeNode:
        from planform.apimachinery.typed import compile_type

        return compile_type(self.openapi, resolve=self.resolve)

    @cached_property
    def rules(self) -> Rules | None:
        if self.builtin or self.openapi is None or not _has_rules(self.openapi):
            return None
        from planform.apimachinery.cel import compile_rules

        return compile_rules(self.openapi)


@dataclass
class KindRegistry:
    """Every served kind, by the two names that requests use."""

    _by_gvk: dict[GroupVersionKind, ServedKind] = field(default_factory=dict)
    _by_path: dict[tuple[str, str, str], ServedKind] = field(default_factory=dict)
    _listeners: list[Callable[[], None]] = field(default_factory=list)
    _of_resource: dict[tuple[str, str], tuple[ServedKind, ...]] = field(default_factory=dict)
    _of_kind: dict[tuple[str, str], tuple[ServedKind, ...]] = field(default_factory=dict)

    def __iter__(self) -> Iterator[ServedKind]:
        return iter(self._by_gvk.values())

    def add(self, kinds: Iterable[ServedKind]) -> None:
        for served in kinds:
            self._by_gvk[served.kind.gvk] = served
            self._by_path[served.kind.group, served.kind.version, served.kind.plural] = served
        self._changed()

    def remove(self, group: str, plural: str) -> None:
        """Forget every version of a resource."""
        for path in [path for path in self._by_path if path[0] == group and path[2] == plural]:
            served = self._by_path.pop(path)
            self._by_gvk.pop(served.kind.gvk, None)
        self._changed()

    def replace(self, group: str, plural: str, kinds: Iterable[ServedKind]) -> None:
        self.remove(group, plural)
        self.add(kinds)

    def on_change(self, listener: Callable[[], None]) -> None:
        self._listeners.append(listener)

    def find(self, gvk: GroupVersionKind) -> ServedKind:
        served = self._by_gvk.get(gvk)
        if served is None:
            raise NotFound(
                f'no kind "{gvk.kind}" is served in "{gvk.api_version}"',
                details={"kind": gvk.kind, "group": gvk.group},
                hint="list what is served: planform get --kinds; a new CRD is served once it is Established",
            )
        return served

    def at_path(self, group: str, version: str, plural: str) -> ServedKind | None:
        return self._by_path.get((group, version, plural))

    def of_resource(self, group: str, plural: str) -> Sequence[ServedKind]:
        """Every version of a resource."""
        found = self._of_resource.get((group, plural))
        if found is None:
            found = tuple(served for path, served in self._by_path.items() if path[0] == group and path[2] == plural)
            self._of_resource[group, plural] = found
        return found

    def of_kind(self, group: str, kind: str) -> Sequence[ServedKind]:
        """Every version of a kind."""
        found = self._of_kind.get((group, kind))
        if found is None:
            found = tuple(each for each in self if each.kind.group == group and each.kind.kind == kind)
            self._of_kind[group, kind] = found
        return found

    def storage_kinds(self) -> list[ServedKind]:
        """One served kind for each resource in the store: the one in the storage version, else any."""
        found: dict[str, ServedKind] = {}
        for served in self:
            if "list" not in served.kind.verbs:
                continue
            if served.resource not in found or served.is_storage:
                found[served.resource] = served
        return list(found.values())

    def has_group_version(self, group: str, version: str) -> bool:
        return any(path[0] == group and path[1] == version for path in self._by_path)

    def _changed(self) -> None:
        self._of_resource.clear()
        self._of_kind.clear()
        for listener in self._listeners:
            listener()


def _has_rules(schema: Any) -> bool:
    """Whether a schema has CEL rules at any depth; most have none and never load the language."""
    if isinstance(schema, dict):
        return "x-kubernetes-validations" in schema or any(_has_rules(value) for value in schema.values())
    return isinstance(schema, list) and any(_has_rules(value) for value in schema)
