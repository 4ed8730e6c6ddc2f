"""A client of the embedded engine with somebody's rights: what controllers do for the author of an object.

The wire asks RBAC before a verb; LocalClient does not, since controllers are trusted. This one asks as the wire does,
and its writes pass admission as that user, so that the escalation check is theirs and what they make is recorded as
their own. RBAC remembers its answers until a role or binding changes: asking costs a look into a dictionary.
"""

from __future__ import annotations

from collections.abc import Sequence

from planform.api.authors import Author
from planform.api.kinds import GroupVersionKind, Kind, Object, gvk_of
from planform.apiserver.auth.rbac import Rbac
from planform.apiserver.local import LocalClient
from planform.apiserver.verbs.core import Core, key_of
from planform.apiserver.verbs.requests import Attributes, User
from planform.client.protocol import Client, ObjectList, Patch, Propagation, Watch
from planform.client.rights import Access


def user_of(author: Author) -> User:
    return User(author.user, author.groups, author.uid)


def author_from(user: User) -> Author:
    return Author(user.name, user.uid, user.groups)


class LocalRights:
    """The rights that are stored here."""

    def __init__(self, core: Core, rbac: Rbac) -> None:
        self._core = core
        self._rbac = rbac

    def acting(self, author: Author, /) -> Client:
        return AuthorizedClient(self._core, self._rbac, user_of(author))

    async def allows(self, author: Author, access: Access, /) -> bool:
        return self._rbac.allows(user_of(author), attributes_of(access))


def attributes_of(access: Access) -> Attributes:
    return Attributes(access.verb, access.group, "*", access.resource, "", access.namespace, access.name)


class AuthorizedClient:
    """LocalClient as one user, who must be allowed each verb; raises Forbidden, worded as Kubernetes words it."""

    def __init__(self, core: Core, rbac: Rbac, user: User) -> None:
        self._core = core
        self._rbac = rbac
        self._user = user
        self._client = LocalClient(core, user=user)

    async def kind(self, gvk: GroupVersionKind) -> Kind:
        return await self._client.kind(gvk)

    async def get(self, gvk: GroupVersionKind, name: str, *, namespace: str = "", subresource: str = "") -> Object:
        self._check("get", gvk, namespace, name, subresource)
        return await self._client.get(gvk, name, namespace=namespace, subresource=subresource)

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
        self._check("list", gvk, namespace)
        return await self._client.list(
            gvk,
            namespace=namespace,
            labels=labels,
            fields=fields,
            limit=limit,
            continue_token=continue_token,
            resource_version=resource_version,
        )

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
        self._check("watch", gvk, namespace)
        return self._client.watch(
            gvk,
            namespace=namespace,
            labels=labels,
            fields=fields,
            resource_version=resource_version,
            bookmarks=bookmarks,
            send_initial_events=send_initial_events,
            timeout=timeout,
        )

    async def create(self, obj: Object, *, manager: str = "", dry_run: bool = False) -> Object:
        namespace, name = self._place(obj)
        self._check("create", gvk_of(obj), namespace, name)
        return await self._client.create(obj, manager=manager, dry_run=dry_run)

    async def update(self, obj: Object, *, subresource: str = "", manager: str = "", dry_run: bool = False) -> Object:
        namespace, name = self._place(obj)
        self._check("update", gvk_of(obj), namespace, name, subresource)
        return await self._client.update(obj, subresource=subresource, manager=manager, dry_run=dry_run)

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
    ) -> Object:
        self._check("patch", gvk, namespace, name, subresource)
        return await self._client.patch(
            gvk, name, patch, namespace=namespace, subresource=subresource, manager=manager, dry_run=dry_run
        )

    async def apply(
        self, obj: Object, *, manager: str, force: bool = False, subresource: str = "", dry_run: bool = False
    ) -> Object:
        gvk, (namespace, name) = gvk_of(obj), self._place(obj)
        self._check("patch", gvk, namespace, name, subresource)
        served = self._core.registry.find(gvk)
        if self._core.store.head(key_of(served, namespace, name)) is None:
            self._check("create", gvk, namespace, name, subresource)
        return await self._client.apply(obj, manager=manager, force=force, subresource=subresource, dry_run=dry_run)

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
        self._check("delete", gvk, namespace, name)
        return await self._client.delete(
            gvk,
            name,
            namespace=namespace,
            propagation=propagation,
            uid=uid,
            resource_version=resource_version,
            dry_run=dry_run,
        )

    async def delete_collection(
        self, gvk: GroupVersionKind, *, namespace: str = "", labels: str = "", fields: str = ""
    ) -> Sequence[Object]:
        self._check("deletecollection", gvk, namespace)
        return await self._client.delete_collection(gvk, namespace=namespace, labels=labels, fields=fields)

    def _place(self, obj: Object) -> tuple[str, str]:
        """Where the object says it is; a namespaced one without a namespace is refused by the verbs themselves."""
        metadata = obj.get("metadata") or {}
        return str(metadata.get("namespace") or ""), str(metadata.get("name") or "")

    def _check(self, verb: str, gvk: GroupVersionKind, namespace: str, name: str = "", subresource: str = "") -> None:
        kind = self._core.registry.find(gvk).kind
        if kind.resource == "namespaces":
            where = name
        elif not kind.namespaced:
            where = ""
        else:
            where = namespace or ("default" if name or verb == "create" else "")
        asked = Attributes(verb, kind.group, kind.version, kind.plural, subresource, where, name)
        self._rbac.authorize(self._user, asked)
