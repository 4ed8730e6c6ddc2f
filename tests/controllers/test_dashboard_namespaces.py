"""Users who may read some namespaces only see the XRs of those, and of no others."""

from __future__ import annotations

import asyncio

from planform.api.kinds import GroupVersionKind, Object
from planform.errors import NotFound
from tests.controllers.test_dashboard_revocation import BINDING, WIDGET, Served, Visitor, role, served, until_total, xrd

__all__ = ["served"]
ROLE_BINDING = GroupVersionKind(BINDING.group, "v1", "RoleBinding")


def grant_in(namespace: str, user: str, to: str) -> Object:
    return {
        "apiVersion": BINDING.api_version,
        "kind": "RoleBinding",
        "metadata": {"name": to, "namespace": namespace},
        "roleRef": {"apiGroup": BINDING.group, "kind": "ClusterRole", "name": to},
        "subjects": [{"kind": "User", "name": user, "apiGroup": BINDING.group}],
    }


async def populate(served: Served) -> None:
    client = served.plane.client
    await client.create(xrd("Widget", "widgets", "example.org"))
    await client.create(role("xrs", "example.org"))
    for namespace in ("team-a", "team-b", "team-c"):
        await client.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
        async with asyncio.timeout(20):
            while True:
                try:
                    await client.create({**WIDGET, "metadata": {"name": f"of-{namespace}", "namespace": namespace}})
                    break
                except NotFound:
                    await asyncio.sleep(0.1)


async def seen(visitor: Visitor) -> set[str]:
    status, page = await visitor.ask("GET", "xrs")
    assert status == 200, page
    return {row["namespace"] for row in page["rows"]}


async def test_user_of_two_namespaces_sees_their_xrs_only_and_follows_the_grants(served: Served) -> None:
    client = served.plane.client
    await populate(served)
    for namespace in ("team-a", "team-b"):
        await client.create(grant_in(namespace, "alice", "xrs"))
    alice = await served.by_link("alice")
    overview = await until_total(alice, 2)
    assert await seen(alice) == {"team-a", "team-b"}
    said = next(each for each in overview["problems"] if each["what"] == "Widget")
    assert "team-a, team-b" in said["message"]
    assert "team-c" not in str(overview), "not even the name of a namespace that she may not read"
    reader, writer = await alice.stream()
    await client.create({**WIDGET, "metadata": {"name": "hidden", "namespace": "team-c"}})
    await client.create({**WIDGET, "metadata": {"name": "shown", "namespace": "team-a"}})
    async with asyncio.timeout(20):
        told = await reader.readuntil(b"shown")
    assert b"hidden" not in told
    await client.delete(ROLE_BINDING, "xrs", namespace="team-a")
    await until_total(alice, 1)
    assert await seen(alice) == {"team-b"}
    await client.create(grant_in("team-c", "alice", "xrs"))
    await until_total(alice, 3)
    assert await seen(alice) == {"team-b", "team-c"}
    writer.close()


async def test_user_who_is_granted_all_namespaces_sees_every_xr_once(served: Served) -> None:
    client = served.plane.client
    await populate(served)
    await client.create(grant_in("team-a", "alice", "xrs"))
    alice = await served.by_link("alice")
    await until_total(alice, 1)
    binding = {**grant_in("", "alice", "xrs"), "kind": "ClusterRoleBinding", "metadata": {"name": "xrs"}}
    await client.create(binding)
    overview = await until_total(alice, 3)
    assert sum(sum(each["health"].values()) for each in overview["kinds"]) == 3
    await client.delete(BINDING, "xrs")
    await until_total(alice, 1)
    assert await seen(alice) == {"team-a"}
