"""A data directory from before there were records: what it holds counts as an administrator's, and works unchanged."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from planform.api.authors import author_of
from planform.api.names import ACTION_SET, BLUEPRINT, COMPOSITION, COMPOSITION_REVISION
from planform.app import Settings, open_control_plane
from planform.client.protocol import Client, Patch, PatchType
from tests.harness.contexts import eventually, until_condition
from tests.harness.tenants import CONFIG_MAP, Tenants, obj, to_cluster_admin


async def test_what_was_stored_without_a_record_acts_as_an_administrators(tmp_path: Path) -> None:
    first, second = (to_cluster_admin("nobody", name) for name in ("first", "second"))
    async with open_control_plane(Settings(data=tmp_path)) as plane:
        before = _tenants(plane.client)  # the control plane itself, whose writes are not recorded
        await before.prepare()
        composition = await before.admin.create(before.composition(first))
        xr = await before.admin.create(before.xr(composition, before.site))
        await until_condition(plane.client, xr, "Synced")
        for stored in (
            *(await plane.client.list(COMPOSITION)).items,
            *(await plane.client.list(COMPOSITION_REVISION)).items,
        ):
            assert author_of(stored) is None
        phase = {"name": "make", "func": "KubeOps", "args": {"operation": "create", "spec": second}}
        await plane.client.create(obj(BLUEPRINT, "old", before.team, actions={"act": {"phases": [phase]}}))
        team, unique = before.team, before.unique
    async with open_control_plane(Settings(data=tmp_path)) as plane:
        after = _tenants(plane.client, unique)
        changed = Patch(PatchType.MERGE, {"metadata": {"labels": {"a": "b"}}})
        await plane.client.patch(after.site, xr["metadata"]["name"], changed)
        await plane.client.delete(*_named(first))
        await eventually(lambda: after.exists(first), "it is composed again")
        target = {"apiVersion": "v1", "resource": "configmaps", "name": "target", "namespace": team}
        action = {"name": "act", "blueprint": "old", "object": target}
        await plane.client.create(obj(ACTION_SET, "run", team, spec={"actions": [action]}))

        async def complete() -> bool:
            found = await plane.client.get(ACTION_SET, "run", namespace=team)
            return (found.get("status") or {}).get("state") == "complete"

        await eventually(complete, "the ActionSet's end")
        assert await after.exists(second)
        assert await after.exists(obj(CONFIG_MAP, "target", team))


def _tenants(client: Client, unique: str = "told") -> Tenants:
    admin: Any = client
    return Tenants(admin, "embedded", unique)


def _named(wanted: dict[str, Any]) -> tuple[Any, str]:
    from planform.api.kinds import gvk_of

    return gvk_of(wanted), wanted["metadata"]["name"]
