"""Packages of functions that ship with planform: what serves for them is told, and is the package if asked for."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from planform.api.names import EVENT, FUNCTION
from planform.client.protocol import Patch, PatchType
from planform.features import BuiltInUse
from planform.packages.endpoints import RUNTIME_ANNOTATION
from planform.packages.revisions import VERSION_LABEL
from tests.harness.contexts import condition_of, embedded_context, eventually
from tests.harness.packaging import Installation, installing, server_program

HOME = "registry.example.org/crossplane-contrib/function-patch-and-transform"


@pytest.fixture
async def installation(tmp_path: Path) -> AsyncIterator[Installation]:
    async with embedded_context() as context, installing(context, tmp_path / "data") as installation:
        yield installation


async def test_what_serves_for_another_version_is_told_and_the_package_runs_when_asked_for(
    installation: Installation,
) -> None:
    installation.publish(f"{HOME}:v0.8.2", server_program("v0.8.2"))
    await installation.install(f"{HOME}:v0.8.2")
    function = await installation.until("PackageServed", "False", reason="BuiltInServes")
    assert function["status"]["servedBy"].startswith("built-in patch-and-transform v")
    told = str((condition_of(function, "PackageServed") or {})["message"])
    assert "spec.package names v0.8.2" in told

    async def event() -> bool:
        found = (await installation.context.client.list(EVENT)).items
        return any(each["reason"] == "BuiltInServes" and each["type"] == "Warning" for each in found)

    await eventually(event, "an event that says so")
    asked = {"metadata": {"annotations": {RUNTIME_ANNOTATION: "Package"}}}
    await installation.context.client.patch(FUNCTION, "fn", Patch(PatchType.MERGE, asked))
    function = await installation.until("PackageServed", "True", reason="PackageServes")
    assert function["status"]["servedBy"] == "package"
    await installation.until_called("v0.8.2")


async def test_a_package_named_by_its_digest_is_never_replaced(installation: Installation) -> None:
    digest = installation.publish(f"{HOME}:v0.8.2", server_program("these very bytes"))
    await installation.install(f"{HOME}@{digest}")
    await installation.until("Healthy", "True")
    await installation.until_called("these very bytes")
    await installation.install(f"{HOME}@sha256:{'0' * 64}", packagePullPolicy="Never")
    function = await installation.until("Installed", "False")
    assert "is not stored here" in str((condition_of(function, "Installed") or {})["message"])


async def test_the_example_of_the_rollout_design_runs_two_versions_side_by_side(tmp_path: Path) -> None:
    async with (
        embedded_context() as context,
        installing(replace(context, builtin_functions=BuiltInUse.NEVER), tmp_path / "data") as installation,
    ):
        for version in ("v0.8.2", "v0.9.0"):
            installation.publish(f"{HOME}:{version}", server_program(version))
            await installation.install(f"{HOME}:{version}", activeRevisionLimit=2, revisionHistoryLimit=2)
            await installation.until_called(version)
        await installation.until_states({1: "Active", 2: "Active"})
        for version in ("v0.8.2", "v0.9.0"):
            assert (await installation.call(selector={VERSION_LABEL: version}))["version"] == version
