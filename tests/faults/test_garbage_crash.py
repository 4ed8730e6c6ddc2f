"""Crashes in the middle of a deletion: what was to outlive its owner does, and what was to go first goes first."""

from __future__ import annotations

from pathlib import Path

from planform.api.kinds import Object
from planform.api.names import SECRET
from planform.apiserver.engine import open_engine
from planform.apiserver.local import LocalClient
from planform.client.protocol import Propagation
from planform.clock import SystemClock
from planform.store import open_store
from tests.harness.embedded import CONFIG_MAP, NAMESPACE, embedded_engine
from tests.harness.planes import eventually, read

DEPENDENTS = 10


def owner_and_dependents(namespace: str) -> list[Object]:
    """A ConfigMap that owns Secrets, which come after it in whatever order one looks."""
    owner = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "owner", "namespace": namespace}}
    secrets = [
        {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": f"owned-{number}", "namespace": namespace}}
        for number in range(DEPENDENTS)
    ]
    return [owner, *secrets]


async def delete_and_die(directory: Path, propagation: Propagation) -> None:
    """Delete the owner where nobody carries it out: all that is left is the request, as after a crash."""
    async with await open_store(directory, clock=SystemClock()) as store:
        client = LocalClient(open_engine(store, SystemClock()))
        await client.create({"apiVersion": NAMESPACE.api_version, "kind": "Namespace", "metadata": {"name": "default"}})
        owner, *secrets = owner_and_dependents("default")
        uid = (await client.create(owner))["metadata"]["uid"]
        reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": uid, "blockOwnerDeletion": True}
        for secret in secrets:
            secret["metadata"] |= {"ownerReferences": [reference], "finalizers": ["example.org/slow"]}
            await client.create(secret)
        await client.delete(CONFIG_MAP, "owner", namespace="default", propagation=propagation)


async def test_what_is_to_be_orphaned_outlives_its_owner_also_after_a_crash(tmp_path: Path) -> None:
    await delete_and_die(tmp_path, Propagation.ORPHAN)
    async with embedded_engine(tmp_path) as engine:
        await engine.gone(CONFIG_MAP, "owner")
        secrets = (await engine.client.list(SECRET)).items
        assert len(secrets) == DEPENDENTS
        assert not any(each["metadata"].get("ownerReferences") for each in secrets)
        assert not any(each["metadata"].get("deletionTimestamp") for each in secrets)


async def test_a_foreground_deletion_waits_for_dependents_also_after_a_crash(tmp_path: Path) -> None:
    await delete_and_die(tmp_path, Propagation.FOREGROUND)
    async with embedded_engine(tmp_path) as engine:

        async def all_going() -> bool:
            secrets = (await engine.client.list(SECRET)).items
            return all(each["metadata"].get("deletionTimestamp") for each in secrets)

        await eventually(all_going, "the dependents are being deleted")
        assert await read(engine.client, CONFIG_MAP, "owner", "default") is not None
        for secret in (await engine.client.list(SECRET)).items:
            secret["metadata"]["finalizers"] = []
            await engine.client.update(secret)
        await engine.gone(CONFIG_MAP, "owner")
        assert not (await engine.client.list(SECRET)).items
