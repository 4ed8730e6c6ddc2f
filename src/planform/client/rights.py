"""Acting for somebody: a client with another's rights, and the question whether somebody has a right."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

import msgspec

from planform.api.authors import Author
from planform.api.kinds import GroupVersionKind, Object
from planform.client.protocol import Client
from planform.errors import Forbidden

if TYPE_CHECKING:
    from planform.client.kubernetes import KubernetesClient

ACCESS_REVIEW: Final = GroupVersionKind("authorization.k8s.io", "v1", "SubjectAccessReview")


class Access(msgspec.Struct, frozen=True):
    """Something that somebody may do, or not."""

    verb: str
    group: str
    resource: str
    namespace: str = ""
    name: str = ""

    def __str__(self) -> str:
        where = f' in the namespace "{self.namespace}"' if self.namespace else ""
        name = f' "{self.name}"' if self.name else ""
        return f"{self.verb} {self.resource}{name}{where}"


def impersonating(namespace: str, name: str) -> Access:
    """What naming a ServiceAccount needs."""
    return Access("impersonate", "", "serviceaccounts", namespace, name)


class Rights(Protocol):
    """Whose rights there are, on one engine."""

    def acting(self, author: Author, /) -> Client:
        """A client that can do what this user may, and is refused the rest with Forbidden."""
        ...

    async def allows(self, author: Author, access: Access, /) -> bool: ...


def impersonation_headers(author: Author) -> list[tuple[str, str]]:
    """What a request says that is somebody else's; nothing for an administrator, whose rights are ours, and whose
    group nobody may impersonate."""
    if author.is_administrator:
        return []
    uid = [("Impersonate-Uid", author.uid)] if author.uid else []
    groups = [("Impersonate-Group", group) for group in author.groups]
    return [("Impersonate-User", author.user), *uid, *groups]


class NoRights:
    """Of a process that cannot act for others: whatever needs somebody's rights is refused."""

    def acting(self, author: Author, /) -> Client:
        raise Forbidden(f'this process cannot act with the rights of "{author.user}"')

    async def allows(self, author: Author, access: Access, /) -> bool:
        return False


class ClusterRights:
    """Asks a real API server, which knows its users' rights: by impersonation, and by SubjectAccessReviews."""

    def __init__(self, client: KubernetesClient) -> None:
        self._client = client

    def acting(self, author: Author, /) -> Client:
        return self._client.with_headers(impersonation_headers(author))

    async def allows(self, author: Author, access: Access, /) -> bool:
        if author.is_administrator:
            return True
        return await review(self._client, author, access)


async def review(client: Client, author: Author, access: Access) -> bool:
    """One SubjectAccessReview."""
    asked: Object = {
        "apiVersion": ACCESS_REVIEW.api_version,
        "kind": ACCESS_REVIEW.kind,
        "spec": {
            "user": author.user,
            "uid": author.uid,
            "groups": list(author.groups),
            "resourceAttributes": {
                "verb": access.verb,
                "group": access.group,
                "resource": access.resource,
                "namespace": access.namespace,
                "name": access.name,
            },
        },
    }
    answer = await client.create(asked)
    return bool((answer.get("status") or {}).get("allowed"))
