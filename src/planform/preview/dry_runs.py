"""Asking the API server what it would store, and only where the asker may write: a preview by somebody who may only
read leaves no refused write in anybody's audit log."""

from __future__ import annotations

from typing import Final

from planform.api.kinds import Object, gvk_of
from planform.client.protocol import Client
from planform.client.rights import Access
from planform.errors import Forbidden, NotFound, PlanformError

_REVIEW: Final = {"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview"}


class DryRuns:
    """Writes that are never carried out.

    `ask_first` is for a process with somebody's own rights: it asks for each kind and namespace once whether it may
    write there. The control plane may, and does not ask.
    """

    def __init__(self, client: Client, *, ask_first: bool = False) -> None:
        self.client = client
        self._ask_first = ask_first
        self._known: dict[Access, bool] = {}

    async def apply(self, obj: Object, *, manager: str, subresource: str = "") -> Object:
        """What a forced apply would store. Raises what the API server refuses it with."""
        await self._check("patch", obj, subresource)
        return await self.client.apply(obj, manager=manager, force=True, subresource=subresource, dry_run=True)

    async def update(self, obj: Object, *, manager: str) -> Object:
        """What a replacement would store. Raises what the API server refuses it with."""
        await self._check("update", obj, "")
        return await self.client.update(obj, manager=manager, dry_run=True)

    async def _check(self, verb: str, obj: Object, subresource: str) -> None:
        """Raises Forbidden where the API server would."""
        if not self._ask_first:
            return
        try:
            served = await self.client.kind(gvk_of(obj))
        except NotFound:
            return  # the request itself says so
        namespace = str(obj["metadata"].get("namespace") or "") if served.namespaced else ""
        resource = f"{served.plural}/{subresource}" if subresource else served.plural
        access = Access(verb, gvk_of(obj).group, resource, namespace)
        if not await self._allows(access):
            raise Forbidden(f"you cannot {access}, which a dry run needs")

    async def _allows(self, access: Access) -> bool:
        if access not in self._known:
            self._known[access] = await self._review(access)
        return self._known[access]

    async def _review(self, access: Access) -> bool:
        resource, _, subresource = access.resource.partition("/")
        about = {
            "verb": access.verb,
            "group": access.group,
            "resource": resource,
            "subresource": subresource,
            "namespace": access.namespace,
        }
        attributes = {name: value for name, value in about.items() if value}
        try:
            review = await self.client.create({**_REVIEW, "spec": {"resourceAttributes": attributes}})
        except PlanformError:
            return True  # nobody knows: the request itself will tell
        return bool((review.get("status") or {}).get("allowed"))
