"""The Protocol that controllers are written against. LocalClient and KubernetesClient both keep it.

Objects go in and come out as JSON-shaped dicts that belong to the caller: change them freely. Failures are
`planform.errors.ApiError`s, whatever the engine. `namespace=""` on a read of many means every namespace.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Literal, NamedTuple, Protocol

from planform.api.kinds import GroupVersionKind, Kind, Object

Subresource = Literal["", "status", "scale", "finalize", "approval"]
EventType = Literal["ADDED", "MODIFIED", "DELETED", "BOOKMARK"]


class PatchType(StrEnum):
    """The patches an API server understands, by content type."""

    JSON = "application/json-patch+json"
    MERGE = "application/merge-patch+json"
    STRATEGIC = "application/strategic-merge-patch+json"


class Propagation(StrEnum):
    """What happens to the dependents of a deleted object."""

    BACKGROUND = "Background"
    FOREGROUND = "Foreground"
    ORPHAN = "Orphan"


@dataclass(frozen=True, slots=True)
class Patch:
    """A patch and how to read it: a dict for merge and strategic patches, a list of operations for JSON patches."""

    type: PatchType
    body: dict[str, Any] | list[Any]


class WatchEvent(NamedTuple):
    """A change. BOOKMARK carries only metadata.resourceVersion (and `k8s.io/initial-events-end` once, if asked for)."""

    type: EventType
    object: Object


@dataclass(frozen=True, slots=True)
class ObjectList:
    """One page of a list. `continue_token` is empty on the last page."""

    items: list[Object]
    resource_version: str
    continue_token: str = ""
    remaining: int | None = None


Watch = AbstractAsyncContextManager[AsyncIterator[WatchEvent]]


class Client(Protocol):
    """Any kind, one way. The engine behind it is not the caller's business."""

    async def kind(self, gvk: GroupVersionKind) -> Kind:
        """Plural, scope and subresources of a served kind; raises NotFound if it is not served."""
        ...

    async def get(self, gvk: GroupVersionKind, name: str, *, namespace: str = "", subresource: str = "") -> Object: ...

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
        """Objects in order of namespace, then name; `labels` and `fields` are selectors as kubectl writes them."""
        ...

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
        """Changes after `resource_version`; empty means everything that is there as ADDED, then changes.

        Raises Expired, also mid-stream, when the version is older than the kept history: list and watch again.
        The iterator ends when the server closes the stream (timeout, slow reader); resume from the last version seen.
        """
        ...

    async def create(self, obj: Object, *, manager: str = "", dry_run: bool = False) -> Object: ...

    async def update(self, obj: Object, *, subresource: str = "", manager: str = "", dry_run: bool = False) -> Object:
        """Replace; raises Conflict if the object's resourceVersion is set and is not the stored one."""
        ...

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
    ) -> Object: ...

    async def apply(
        self, obj: Object, *, manager: str, force: bool = False, subresource: str = "", dry_run: bool = False
    ) -> Object:
        """Server-side apply: this manager wants these fields. Raises ApplyConflict unless forced."""
        ...

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
        """The object if it still exists (finalizers), None if it is gone; raises NotFound if it was not there."""
        ...

    async def delete_collection(
        self, gvk: GroupVersionKind, *, namespace: str = "", labels: str = "", fields: str = ""
    ) -> Sequence[Object]: ...
