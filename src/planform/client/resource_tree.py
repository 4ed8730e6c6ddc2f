"""The tree below an object: what it refers to, what that refers to, and how each of them is.

An XR names its composed resources, a claim its XR, an Operation what it applied; packages, Compositions and scheduled
operations own what they made. Only the API is asked, so that it works on any control plane that speaks it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from planform.api import names
from planform.api.annotations import annotations_of, set_annotation
from planform.api.kinds import GroupVersionKind, Object, gvk, gvk_of
from planform.api.metadata import is_deleted, name_of, namespace_of, resource_version_of, uid_of
from planform.api.owners import owners_of
from planform.api.xr import RESOURCE_NAME_ANNOTATION
from planform.client.protocol import Client, WatchEvent
from planform.errors import (
    ApiError,
    Forbidden,
    InternalError,
    MethodNotAllowed,
    NotFound,
    PlanformError,
    ServiceUnavailable,
    Timeout,
    TooManyRequests,
)

_OWNED: Final[Mapping[tuple[str, str], tuple[GroupVersionKind, str]]] = {
    (names.EXTENSIONS_GROUP, "Composition"): (names.COMPOSITION_REVISION, names.COMPOSITION_NAME_LABEL),
    (names.PACKAGES_GROUP, "Function"): (names.FUNCTION_REVISION, names.PACKAGE_LABEL),
    (names.OPERATIONS_GROUP, "CronOperation"): (names.OPERATION, ""),
    (names.OPERATIONS_GROUP, "WatchOperation"): (names.OPERATION, ""),
}
"""Kinds whose children name them as owner: the children's kind, and the label that narrows the search."""

_SYNCED: Final = ("Synced", "Installed")
_READY: Final = ("Ready", "Succeeded", "Healthy", "RevisionHealthy")
_CALM: Final = 0.1
"""Seconds in which changes are gathered before the tree is read again."""
_PATIENCE: Final = 1.0
_AWAY: Final = (ServiceUnavailable, Timeout, InternalError, TooManyRequests)
"""What a server answers, or is answered for, that will come back."""


class Target(NamedTuple):
    """An object that may exist."""

    gvk: GroupVersionKind
    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.gvk.kind}/{self.name}" + (f" ({self.namespace})" if self.namespace else "")


@dataclass(frozen=True, slots=True)
class Node:
    """One object of a tree. `object` is None if it could not be read; `error` says why, or why it has no children."""

    target: Target
    object: Object | None
    error: PlanformError | None = None
    children: tuple[Node, ...] = field(default=())

    @property
    def synced(self) -> str:
        return _status(self.object, _SYNCED)

    @property
    def ready(self) -> str:
        return _status(self.object, _READY)

    @property
    def resource(self) -> str:
        """Its name in the composition."""
        annotations = annotations_of(self.object)
        return str(annotations.get(RESOURCE_NAME_ANNOTATION, ""))

    @property
    def revision(self) -> str:
        """The composition revision it uses."""
        spec = (self.object or {}).get("spec") or {}
        composition_fields = spec.get("crossplane") or spec
        reference = composition_fields.get("compositionRevisionRef") if isinstance(composition_fields, dict) else None
        return str(reference.get("name", "")) if isinstance(reference, dict) else ""

    @property
    def state(self) -> str:
        """What to know about it in one line: that it goes, why it cannot be shown, or what its conditions say."""
        if self.object is not None and is_deleted(self.object):
            return "Deleting"
        if self.error is not None:
            return f"Error: {self.error.message}"
        synced, ready = _condition(self.object, _SYNCED), _condition(self.object, _READY)
        if synced is not None and synced.get("status") != "True":
            return _describe(synced)
        if ready is None:
            return _describe(synced) if synced is not None else ""
        return str(ready.get("reason", "")) if ready.get("status") == "True" else _describe(ready)

    def walk(self) -> Iterator[Node]:
        """This node and all below it."""
        yield self
        for child in self.children:
            yield from child.walk()


@dataclass(frozen=True, slots=True)
class Looking:
    """How to look: through which client, with secrets or without, and how many requests at once."""

    client: Client
    secrets: bool = False
    limit: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(8))

    async def tree(self, target: Target) -> Node:
        """The tree below an object. Raises NotFound and other ApiErrors for the object itself, not for those below."""
        obj = await self._get(target)
        return await self._grown(target, obj, frozenset())

    async def _node(self, target: Target, above: frozenset[Target]) -> Node:
        if target in above:
            return Node(target, None, PlanformError("refers to itself; it is shown above"))
        try:
            obj = await self._get(target)
        except ApiError as error:
            return Node(target, None, error)
        return await self._grown(target, obj, above)

    async def _grown(self, target: Target, obj: Object, above: frozenset[Target]) -> Node:
        error: PlanformError | None = None
        try:
            found = await self._children(obj)
        except ApiError as refusal:
            found, error = [], refusal
        children = await asyncio.gather(*(self._node(child, above | {target}) for child in found))
        return Node(target, obj, error, tuple(children))

    async def _get(self, target: Target) -> Object:
        async with self.limit:
            obj = await self.client.get(target.gvk, target.name, namespace=target.namespace)
        obj["metadata"].pop("managedFields", None)
        if target.gvk == names.SECRET:
            obj.pop("data", None)
            from planform.apimachinery import last_applied

            set_annotation(obj, last_applied.ANNOTATION, "")
        return obj

    async def _children(self, obj: Object) -> list[Target]:
        """What an object refers to, by kind and name."""
        found = [await self._placed(reference, obj) for reference in _references(obj)]
        owned = _OWNED.get((gvk_of(obj).group, obj["kind"]))
        if owned is not None:
            found += await self._owned(obj, *owned)
        if self.secrets:
            found += _connection_secrets(obj)
        return sorted(dict.fromkeys(found), key=lambda each: (each.gvk.api_version, each.gvk.kind, each[1:]))

    async def _placed(self, reference: Mapping[str, Any], parent: Object) -> Target:
        """Where a reference leads: a namespaced kind without a namespace is in that of its parent."""
        kind = gvk(str(reference["apiVersion"]), str(reference["kind"]))
        namespace = str(reference.get("namespace") or "")
        if not namespace:
            try:
                async with self.limit:
                    namespaced = (await self.client.kind(kind)).namespaced
            except NotFound:
                namespaced = False
            namespace = namespace_of(parent) if namespaced else ""
        return Target(kind, namespace, str(reference["name"]))

    async def _owned(self, owner: Object, kind: GroupVersionKind, label: str) -> list[Target]:
        async with self.limit:
            listed = await self.client.list(kind, labels=f"{label}={name_of(owner)}" if label else "")
        return [
            Target(kind, namespace_of(each), name_of(each))
            for each in listed.items
            if any(by.get("uid") == uid_of(owner) for by in owners_of(each))
        ]


async def changing_trees(
    looking: Looking, target: Target, lost: Callable[[ApiError | None], None] = lambda _: None
) -> AsyncGenerator[Node, None]:
    """The tree now, and again after every change of anything in it. Ends when the object itself is gone.

    A server that cannot be reached is asked again until it can; `lost` hears of it once, and once more with None when
    it is back. Raises NotFound if the object was never there.
    """
    watching = _Watching(looking.client)
    tree = await looking.tree(target)
    try:
        while True:
            yield tree
            watching.follow(tree)
            await watching.changed()
            try:
                tree = await _read_again(looking, target, lost)
            except NotFound:
                return
    finally:
        await watching.close()


async def _read_again(looking: Looking, target: Target, lost: Callable[[ApiError | None], None]) -> Node:
    is_lost = False
    while True:
        try:
            tree = await looking.tree(target)
        except _AWAY as error:
            if not is_lost:
                lost(error)
            is_lost = True
            await asyncio.sleep(_PATIENCE)
        else:
            if is_lost:
                lost(None)
            return tree


class _Watching:
    """A watch for each kind and namespace that a tree has."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._known: dict[Target, str] = {}
        """The objects of the tree and their resource versions; empty for one that was not there."""
        self._watches: dict[tuple[GroupVersionKind, str], asyncio.Task[None]] = {}
        self._change = asyncio.Event()

    def follow(self, tree: Node) -> None:
        self._known = {
            node.target: "" if node.object is None else resource_version_of(node.object) for node in tree.walk()
        }
        for place in {(target.gvk, target.namespace) for target in self._known}:
            if place not in self._watches or self._watches[place].done():
                self._watches[place] = asyncio.create_task(self._watch(*place), name=f"watch of {place[0]}")

    async def changed(self) -> None:
        """Wait for a change, and then until it is calm."""
        await self._change.wait()
        await asyncio.sleep(_CALM)
        self._change.clear()

    async def close(self) -> None:
        for task in self._watches.values():
            task.cancel()
        await asyncio.gather(*self._watches.values(), return_exceptions=True)

    async def _watch(self, kind: GroupVersionKind, namespace: str) -> None:
        """What is there comes first, so that a change between reading the tree and watching it is seen."""
        while True:
            try:
                async with self._client.watch(kind, namespace=namespace) as events:
                    async for event in events:
                        if self._is_news(kind, event):
                            self._change.set()
            except (NotFound, Forbidden, MethodNotAllowed):
                return  # it can be read at most; the next change of anything else reads it again
            except ApiError:
                self._change.set()  # reading the tree tells whether the server is there
                await asyncio.sleep(_PATIENCE)
            await asyncio.sleep(_CALM)

    def _is_news(self, kind: GroupVersionKind, event: WatchEvent) -> bool:
        known = self._known.get(Target(kind, namespace_of(event.object), name_of(event.object)))
        return known is not None and (event.type == "DELETED" or resource_version_of(event.object) != known)


def _references(obj: Object) -> Iterator[Mapping[str, Any]]:
    spec, status = obj.get("spec"), obj.get("status")
    spec, status = (each if isinstance(each, dict) else {} for each in (spec, status))
    composition_fields = spec.get("crossplane")
    composition_fields = composition_fields if isinstance(composition_fields, dict) else {}
    lists = (composition_fields.get("resourceRefs"), spec.get("resourceRefs"), status.get("appliedResourceRefs"))
    for reference in (spec.get("resourceRef"), *(each for found in lists for each in found or ())):
        if isinstance(reference, dict) and all(reference.get(part) for part in ("apiVersion", "kind", "name")):
            yield reference


def _connection_secrets(obj: Object) -> Iterator[Target]:
    spec = obj.get("spec")
    reference = spec.get("writeConnectionSecretToRef") if isinstance(spec, dict) else None
    if isinstance(reference, dict) and reference.get("name"):
        namespace = reference.get("namespace") or namespace_of(obj)
        yield Target(names.SECRET, str(namespace), str(reference["name"]))


def _condition(obj: Object | None, types: tuple[str, ...]) -> Mapping[str, Any] | None:
    """The condition of the first of these types that there is."""
    status = (obj or {}).get("status")
    conditions = status.get("conditions") if isinstance(status, dict) else None
    found = {each.get("type"): each for each in conditions or () if isinstance(each, dict)}
    return next((found[type_] for type_ in types if type_ in found), None)


def _status(obj: Object | None, types: tuple[str, ...]) -> str:
    condition = _condition(obj, types)
    return "-" if condition is None else str(condition.get("status", "Unknown"))


def _describe(condition: Mapping[str, Any]) -> str:
    reason, message = condition.get("reason", ""), condition.get("message", "")
    return f"{reason}: {message}" if message else str(reason)
