"""Objects of declared kinds, read through any `Client`: `await get(client, Composition, "site")`.

What comes back is for reading alone and is never written: a write is an apply or a patch of the fields meant, through
the client itself. So fields that a declaration does not know, or that others manage, stay as they are. The embedded
engine decodes the stored bytes; elsewhere the decoded answer is converted.
"""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from planform.api.kinds import GroupVersionKind
from planform.api.objects import Typed, read, read_bytes
from planform.client.protocol import Client
from planform.errors import NotFound


@runtime_checkable
class HasBytes(Protocol):
    """A client that has objects as bytes before it decodes them."""

    async def get_bytes(self, gvk: GroupVersionKind, name: str, *, namespace: str = "") -> bytes:
        """The object as JSON, in the version asked for; raises NotFound."""
        ...


async def get(client: Client, kind: type[Typed], name: str, *, namespace: str = "") -> Typed:
    """Raises NotFound, or ObjectUnreadable for one that is not as its kind is declared."""
    if isinstance(client, HasBytes):
        return read_bytes(kind, await client.get_bytes(kind.gvk, name, namespace=namespace))
    return read(kind, await client.get(kind.gvk, name, namespace=namespace))


async def find(client: Client, kind: type[Typed], name: str, *, namespace: str = "") -> Typed | None:
    """Like `get`, and None for what is not there."""
    try:
        return await get(client, kind, name, namespace=namespace)
    except NotFound:
        return None


async def list_all(
    client: Client, kind: type[Typed], *, namespace: str = "", labels: str = "", fields: str = ""
) -> list[Typed]:
    """All of them, in order of namespace and name; raises ObjectUnreadable if one is not as its kind is declared."""
    found = await client.list(kind.gvk, namespace=namespace, labels=labels, fields=fields)
    return [read(kind, each) for each in found.items]
