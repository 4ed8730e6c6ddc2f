"""Packages that bring the kinds of the built-in provider: it steps back for them, comes back, and loses nothing."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from planform.api.extensions.nop import nop_resource
from planform.api.kinds import Object
from planform.api.names import CLUSTER_NOP_RESOURCE, CRD, NOP_RESOURCE, PROVIDER
from planform.app import ControlPlane, Settings, open_control_plane
from planform.engine.nop import MANAGED_FINALIZER
from planform.engine.nop import NAME as BUILT_IN
from planform.errors import NotFound
from planform.features import FeatureGates
from planform.packages.blobs import BlobStore
from planform.packages.building import Program, Source, assemble
from planform.packages.layers import File
from planform.packages.payloads import Payload, RuntimeKind
from planform.packages.xpkg import package_of
from tests.harness.contexts import condition_of, eventually, read, until_condition
from tests.harness.packaging import meta

pytestmark = pytest.mark.timeout(120)

DEFINITION = "nopresources.nop.crossplane.io"
REPOSITORY = "registry.example.org/acme/provider-nop"


@pytest.fixture
async def plane(tmp_path: Path) -> AsyncIterator[ControlPlane]:
    async with open_control_plane(Settings(data=tmp_path / "data")) as plane:
        yield plane


def publish(data: Path, scope: str) -> None:
    """A provider that brings NopResource with this scope, and does nothing."""
    blobs = BlobStore(data / "packages" / "blobs")
    definition = nop_resource()
    definition["spec"] = {**definition["spec"], "scope": scope}
    package = package_of([("meta", meta("Provider", "provider-nop")), ("crd", definition)])
    program = Program(
        Payload(RuntimeKind.PROCESS, ("python", "app/main.py"), ("app",)),
        (File("app/main.py", b"import signal\nsignal.pause()\n"),),
    )
    blobs.remember(f"{REPOSITORY}:{scope.lower()}", assemble(blobs, Source(package), program).descriptor)


async def install(plane: ControlPlane, scope: str) -> Object:
    wanted = {
        "apiVersion": PROVIDER.api_version,
        "kind": PROVIDER.kind,
        "metadata": {"name": "nop"},
        "spec": {"package": f"{REPOSITORY}:{scope.lower()}"},
    }
    return await plane.client.apply(wanted, manager="user", force=True)


def nop(name: str, kind: Any = NOP_RESOURCE, **metadata: Any) -> Object:
    after = [{"time": "0s", "conditionType": "Ready", "conditionStatus": "True"}]
    return {
        "apiVersion": kind.api_version,
        "kind": kind.kind,
        "metadata": {"name": name, **metadata},
        "spec": {"forProvider": {"conditionAfter": after}},
    }


async def until_scope(plane: ControlPlane, scope: str, *, owned: bool) -> Object:
    async def check() -> Object | None:
        found = await read(plane.client, CRD, DEFINITION)
        is_so = found is not None and found["spec"]["scope"] == scope
        return (
            found if found is not None and is_so and bool(found["metadata"].get("ownerReferences")) is owned else None
        )

    return await eventually(check, f"{DEFINITION} is {scope}, {'a package owns it' if owned else 'and ours'}")


async def created(plane: ControlPlane, obj: Object) -> Object:
    async def create() -> Object | None:
        try:
            return await plane.client.create(obj)
        except NotFound:
            return None

    return await eventually(create, "the kind is served")


async def test_a_kind_of_another_scope_takes_the_place_of_ours_and_gives_it_back(
    plane: ControlPlane, tmp_path: Path
) -> None:
    publish(tmp_path / "data", "Cluster")
    beside = nop("beside", CLUSTER_NOP_RESOURCE)
    await until_condition(plane.client, await plane.client.create(beside), "Ready")
    await until_condition(plane.client, await install(plane, "Cluster"), "Healthy")
    await until_scope(plane, "Cluster", owned=True)
    held = await created(plane, nop("held", finalizers=[MANAGED_FINALIZER]))
    assert "namespace" not in held["metadata"]
    second = nop("second", CLUSTER_NOP_RESOURCE)
    await until_condition(plane.client, await plane.client.create(second), "Ready")
    assert "status" not in await plane.client.get(NOP_RESOURCE, "held"), "it is the package's"

    await plane.client.delete(PROVIDER, "nop")
    await until_scope(plane, "Namespaced", owned=False)
    await until_condition(plane.client, await created(plane, nop("ours", namespace="default")), "Ready")
    assert await read(plane.client, CLUSTER_NOP_RESOURCE, "beside") is not None


async def test_objects_of_ours_are_not_lost_to_a_kind_of_another_scope(plane: ControlPlane, tmp_path: Path) -> None:
    publish(tmp_path / "data", "Cluster")
    await until_condition(plane.client, await plane.client.create(nop("ours", namespace="default")), "Ready")
    provider = await until_condition(plane.client, await install(plane, "Cluster"), "Healthy", "False")
    told = str((condition_of(provider, "Healthy") or {})["message"])
    assert "NopResource is Cluster in this package" in told
    assert "Delete them first: default/ours" in told
    assert await read(plane.client, NOP_RESOURCE, "ours", "default") is not None
    await plane.client.delete(NOP_RESOURCE, "ours", namespace="default")
    await plane.client.delete(PROVIDER, "nop")

    async def gone() -> bool:
        return await read(plane.client, PROVIDER, "nop") is None

    await eventually(gone, "the provider is gone")
    await until_condition(plane.client, await install(plane, "Cluster"), "Healthy")
    await until_scope(plane, "Cluster", owned=True)


async def test_a_kind_that_is_as_ours_is_handed_over_and_back_with_its_objects(
    plane: ControlPlane, tmp_path: Path
) -> None:
    publish(tmp_path / "data", "Namespaced")
    before = await plane.client.create(nop("before", namespace="default"))
    await until_condition(plane.client, before, "Ready")
    await until_condition(plane.client, await install(plane, "Namespaced"), "Healthy")
    await until_scope(plane, "Namespaced", owned=True)
    during = await plane.client.create(nop("during", namespace="default"))

    async def kept() -> bool:
        found = await plane.client.get(CRD, DEFINITION)
        return any(each["kind"] == "Lock" for each in found["metadata"]["ownerReferences"])

    await eventually(kept, "the definition will outlive its package")
    await plane.client.delete(PROVIDER, "nop")
    await until_scope(plane, "Namespaced", owned=False)
    await until_condition(plane.client, during, "Ready")
    found = await plane.client.get(NOP_RESOURCE, "before", namespace="default")
    assert found["metadata"]["uid"] == before["metadata"]["uid"]


async def test_without_the_built_in_kinds_only_a_package_brings_them(tmp_path: Path) -> None:
    off = Settings(data=tmp_path / "data", features=FeatureGates({"BuiltInNopResources": False}))
    async with open_control_plane(off) as plane:
        assert await read(plane.client, CRD, DEFINITION) is None
        publish(tmp_path / "data", "Cluster")
        await until_condition(plane.client, await install(plane, "Cluster"), "Healthy")
        await until_scope(plane, "Cluster", owned=True)
        assert BUILT_IN not in plane.manager
        await plane.client.delete(PROVIDER, "nop")

        async def gone() -> bool:
            return await read(plane.client, CRD, DEFINITION) is None

        await eventually(gone, "the definition went with its package")
