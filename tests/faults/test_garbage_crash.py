"""Crashes in the middle of a deletion: what was to outlive its owner does, and what was to go first goes first."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from planform.api.kinds import Object, gvk_of
from planform.api.names import SECRET
from planform.api.owners import controller_reference
from planform.apiserver.engine import open_engine
from planform.apiserver.local import LocalClient
from planform.client.protocol import Propagation
from planform.clock import SystemClock, VirtualClock
from planform.engine.garbage import GarbageCollector
from planform.errors import Forbidden
from planform.reconcile.controller import Result
from planform.store import open_store
from tests.harness.contexts import condition_of, eventually, read
from tests.harness.embedded import CONFIG_MAP, CRD, NAMESPACE, embedded_engine, version, widget, widget_crd

DEPENDENTS = 10
SLOW = "example.org/slow"


def owner_and_dependents(namespace: str) -> list[Object]:
    """A ConfigMap that owns Secrets, which come after it in whatever order one looks."""
    owner = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "owner", "namespace": namespace}}
    secrets = [
        {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": f"owned-{number}", "namespace": namespace}}
        for number in range(DEPENDENTS)
    ]
    return [owner, *secrets]


def owned_by(owner: Object) -> Object:
    metadata = {"name": "owned", "namespace": "default", "ownerReferences": [controller_reference(owner)]}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": metadata}


async def delete_and_die(directory: Path, propagation: Propagation) -> None:
    """Delete the owner where nobody carries it out: all that is left is the request, as after a crash."""
    async with await open_store(directory, clock=SystemClock()) as store:
        client = LocalClient(open_engine(store, SystemClock()))
        await client.create({"apiVersion": NAMESPACE.api_version, "kind": "Namespace", "metadata": {"name": "default"}})
        owner, *secrets = owner_and_dependents("default")
        uid = (await client.create(owner))["metadata"]["uid"]
        reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": uid, "blockOwnerDeletion": True}
        for secret in secrets:
            secret["metadata"] |= {"ownerReferences": [reference], "finalizers": [SLOW]}
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


async def test_a_kind_goes_after_what_its_objects_owned_so_that_a_crash_in_between_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    collected = asyncio.Event()  # never set: the process ends before anything is

    async def collect(*_: object) -> Result:
        await collected.wait()
        return Result()

    name = "widgets.example.org"
    with monkeypatch.context() as patch:
        patch.setattr(GarbageCollector, "_collect", collect)
        async with embedded_engine(tmp_path) as engine:
            await engine.establish(widget_crd(version("v1", {})))
            owner = await engine.client.create(widget("owner"))
            await engine.client.create(owned_by(owner))
            await engine.client.delete(gvk_of(owner), "owner", namespace="default")
            await engine.client.delete(CRD, name)

            async def emptied() -> bool:
                crd = await read(engine.client, CRD, name)
                return crd is None or (condition_of(crd, "Terminating") or {}).get("status") == "False"

            await eventually(emptied, "no widgets are left")
            assert await read(engine.client, SECRET, "owned", "default") is not None
            collected.set()  # so that the reconciles end
    async with embedded_engine(tmp_path) as engine:
        await engine.gone(SECRET, "owned")
        await engine.gone(CRD, name, "")


async def test_a_kind_does_not_wait_for_what_is_going_already_though_somebody_holds_it() -> None:
    async with embedded_engine(clock=VirtualClock()) as engine:  # no time passes: nobody has to look again
        await engine.establish(widget_crd(version("v1", {})))
        owner = await engine.client.create(widget("owner"))
        await engine.client.create(owned_by(owner) | {"metadata": owned_by(owner)["metadata"] | {"finalizers": [SLOW]}})
        await engine.client.delete(gvk_of(owner), "owner", namespace="default")

        async def going() -> bool:
            return "deletionTimestamp" in (await engine.client.get(SECRET, "owned", namespace="default"))["metadata"]

        await eventually(going, "what it owned is being deleted")
        await engine.client.delete(CRD, "widgets.example.org")
        await engine.gone(CRD, "widgets.example.org", "")
        assert await going()


async def test_a_kind_does_not_wait_for_ever_for_what_may_not_be_collected(monkeypatch: pytest.MonkeyPatch) -> None:
    async def refuse(*_: object) -> Result:
        raise Forbidden("somebody still needs it")

    monkeypatch.setattr(GarbageCollector, "_collect", refuse)
    clock = VirtualClock()
    async with embedded_engine(clock=clock) as engine:
        await engine.establish(widget_crd(version("v1", {})))
        owner = await engine.client.create(widget("owner"))
        await engine.client.create(owned_by(owner))
        await engine.client.delete(gvk_of(owner), "owner", namespace="default")
        await engine.client.delete(CRD, "widgets.example.org")

        async def gone() -> bool:
            await clock.advance(1)
            return await read(engine.client, CRD, "widgets.example.org") is None

        await eventually(gone, "the kind is gone")
        assert await read(engine.client, SECRET, "owned", "default") is not None
