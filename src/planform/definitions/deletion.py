"""Deletes all objects of a kind and tells when the last of them is gone, without asking again and again.

The objects of ten thousand XRs go one by one, each when its own controller lets it. Only two of those changes matter to
whoever waits: that the last one left, and that a new one came. So a reconcile costs a list, and there are few
reconciles.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

from planform.api.kinds import GroupVersionKind, Object
from planform.api.metadata import is_deleted, uid_of
from planform.client.informer import InformerEvent, ObjectKey, key_of, list_pages
from planform.client.protocol import Client
from planform.errors import NotFound
from planform.reconcile.context import ControllerContext
from planform.reconcile.sources import Subscription

AT_ONCE: Final = 50
"""Deletions under way at a time: they share commits, and an API request does not wait behind all of them."""


class DeleteAndWait:
    """The objects of one kind on their way out. `wake` is called when it is worth looking again."""

    def __init__(self, context: ControllerContext, kind: GroupVersionKind, wake: Callable[[], None]) -> None:
        self._context = context
        self._kind = kind
        self._wake = wake
        self._present: set[ObjectKey] = set()
        self._subscription: Subscription | None = None

    async def any(self) -> bool:
        """Whether there is any object to wait for."""
        try:
            return bool((await self._context.client.list(self._kind, limit=1)).items)
        except NotFound:
            return False  # what is not served has no objects

    async def delete_all(self) -> bool:
        """Delete what is not being deleted yet; whether anything was there, in which case `wake` will be called.

        All are tried before the first error is raised, so that one object which must not go holds up no other.
        """
        if self._subscription is None:
            self._subscription = self._context.manager.subscribe(self._kind, self._heard, relisted=self._wake)
        await self._subscription.synced()  # whatever the list below shows, its going will be heard
        found, errors = False, []
        async for page in list_pages(self._context.client, self._kind):
            found = found or bool(page.items)
            staying = [obj for obj in page.items if not is_deleted(obj)]
            for start in range(0, len(staying), AT_ONCE):
                errors += await _delete(self._context.client, self._kind, staying[start : start + AT_ONCE])
        if errors:
            raise errors[0]
        return found

    def close(self) -> None:
        """Stop listening; closing twice is harmless."""
        if self._subscription is not None:
            self._subscription.close()

    def _heard(self, change: InformerEvent) -> None:
        if change.type == "DELETED":
            self._present.discard(change.key)
            if not self._present:
                self._wake()
        else:
            self._present.add(change.key)
            if change.type == "ADDED" and not change.first_sight:
                self._wake()


async def _delete(client: Client, kind: GroupVersionKind, objects: Sequence[Object]) -> list[BaseException]:
    """Ask for the deletion of these; the errors that say something else than that one is gone already."""

    async def delete(obj: Object) -> None:
        key = key_of(obj)
        try:
            await client.delete(kind, key.name, namespace=key.namespace, uid=uid_of(obj))
        except NotFound:
            pass

    results = await asyncio.gather(*map(delete, objects), return_exceptions=True)
    return [result for result in results if isinstance(result, BaseException)]
