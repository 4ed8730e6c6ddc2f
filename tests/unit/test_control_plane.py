"""The assembled control plane: what it leaves alone, and what it does by itself."""

from __future__ import annotations

import asyncio
import os
import tempfile
from pathlib import Path

import pytest

from planform.api.kinds import gvk
from planform.apiserver.wire.http import HttpRequest
from planform.app import Settings, open_control_plane
from planform.errors import PlanformError
from planform.store import Store

CLUSTER_ROLE = gvk("rbac.authorization.k8s.io/v1", "ClusterRole")


async def test_a_restart_with_nothing_changed_writes_nothing(tmp_path: Path) -> None:
    async with open_control_plane(Settings(data=tmp_path / "data")) as plane:
        await _settled(plane.core.store)
        await plane.client.create(
            {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "namespace": "default"}}
        )
        before = plane.core.store.revision
    async with open_control_plane(Settings(data=tmp_path / "data")) as plane:
        await _settled(plane.core.store)
        assert plane.core.store.revision == before


async def test_aggregated_roles_show_the_rules_they_gather() -> None:
    async with open_control_plane(Settings(data=None)) as plane:
        rule = {"apiGroups": ["example.org"], "resources": ["widgets"], "verbs": ["get"]}
        role = {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRole",
            "metadata": {"name": "widgets", "labels": {"rbac.authorization.k8s.io/aggregate-to-view": "true"}},
            "rules": [rule],
        }
        async with plane.client.watch(CLUSTER_ROLE, fields="metadata.name=view") as changes:
            await plane.client.create(role)
            async with asyncio.timeout(10):
                async for change in changes:
                    if rule in (change.object.get("rules") or []):
                        break


async def test_the_data_directory_is_private(tmp_path: Path) -> None:
    async with open_control_plane(Settings(data=tmp_path / "data")) as plane:
        for path in [tmp_path / "data", *(tmp_path / "data").rglob("*")]:
            assert path.stat().st_mode & 0o077 == 0, path
        assert plane.kubeconfig == tmp_path / "data" / "kubeconfig"


async def test_what_a_killed_ephemeral_plane_left_is_removed_and_a_living_one_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    dead = tmp_path / "planform-ephemeral-dead"
    (dead / "store").mkdir(parents=True)
    os.utime(dead, (0, 0))
    async with open_control_plane(Settings(data=None)) as first:
        assert not dead.exists()
        os.utime(first.kubeconfig.parent, (0, 0))
        async with open_control_plane(Settings(data=None)):
            assert first.kubeconfig.exists()


async def test_readiness_fails_while_writes_fail(tmp_path: Path) -> None:
    """A database that may not grow stands for a disk without room."""
    async with open_control_plane(Settings(data=tmp_path / "data")) as plane:
        store = plane.core.store
        await _settled(store)

        async def allow_pages(count: int) -> None:
            database = store._log._database
            await store._writing.run(lambda: database.execute(f"PRAGMA max_page_count = {count}").fetchone())

        async def readiness() -> tuple[int, str]:
            answer = await plane.server.handler(HttpRequest("GET", b"/readyz", {}, b""))
            return answer.status, answer.body.decode()

        config = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "large", "namespace": "default"}}
        assert await readiness() == (200, "ok")
        await allow_pages(1)
        with pytest.raises(PlanformError):
            await plane.client.create(config | {"data": {"text": "x" * 500_000}})
        status, text = await readiness()
        assert status == 500 and "[-]writes failed: no room left" in text
        await allow_pages(1 << 30)
        await plane.client.create(config | {"data": {"text": "x" * 500_000}})
        assert await readiness() == (200, "ok")


async def _settled(store: Store) -> None:
    """Wait until the built-in controllers have had a while without writing anything."""
    quiet, last = 0, -1
    while quiet < 20:
        await asyncio.sleep(0.01)
        now = store.revision
        quiet, last = (quiet + 1, last) if now == last else (0, now)
