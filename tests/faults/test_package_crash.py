"""Crashes of the package manager: a control plane killed at any moment of an installation, an upgrade, a garbage
collection, a way back or an uninstallation comes to where it was going after a restart.

The moments come from a clean run that is traced: each write to the store, before and after, and each step on the disk.
"""

from __future__ import annotations

import asyncio
import random
import shutil
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random

import pytest

from planform.api.kinds import Object
from planform.api.names import COMPOSITION
from planform.packages.blobs import BlobStore
from planform.packages.building import Source, assemble
from planform.packages.credentials import Credentials
from planform.packages.references import parse_reference
from planform.packages.registry import RegistryClient
from planform.packages.xpkg import package_of
from tests.e2e.registries import serving_registry
from tests.faults.crashing import crash_at_each, trace
from tests.faults.failpoints import Point
from tests.faults.package_cycle import CONF, NEEDED, PHASES, VERSIONS
from tests.harness.packaging import meta, server_program

RecordProperty = Callable[[str, object], None]
PROGRAM = "package_child"
CHAINS = 2


def composition(version: str) -> Object:
    return {
        "apiVersion": COMPOSITION.api_version,
        "kind": COMPOSITION.kind,
        "metadata": {"name": "app", "annotations": {"version": version}},
        "spec": {
            "compositeTypeRef": {"apiVersion": "example.org/v1", "kind": "App"},
            "mode": "Pipeline",
            "pipeline": [{"step": "one", "functionRef": {"name": "function-auto-ready"}}],
        },
    }


async def publish(directory: Path, home: str, needed: str) -> None:
    """Three versions of a Configuration, and of what it needs: one of a kind, and exactly this version."""
    blobs = BlobStore(directory)
    async with RegistryClient(blobs, Credentials(), rng=Random(1)) as registry:
        for version in sorted(set(VERSIONS.values())):
            name = NEEDED[needed]
            depends = [{needed.lower(): f"{home}/{name}", "version": version}]
            about = [("meta", meta("Configuration", CONF, dependsOn=depends)), ("app", composition(version))]
            other = meta(needed, name, capabilities=[version])  # or all versions would be the same
            program = server_program(version) if needed == "Function" else None
            for repository, image in (
                (name, assemble(blobs, Source(package_of([("meta", other)])), program)),
                (CONF, assemble(blobs, Source(package_of(about)), None)),
            ):
                await registry.push(image, parse_reference(f"{home}/{repository}:{version}"))


def kinds_of(points: Sequence[Point]) -> dict[str, int]:
    kinds = Counter("steps on the disk" if point.what.startswith("disk") else "store writes" for point in points)
    return dict(kinds + Counter(point.phase for point in points))


async def crash_and_check(directory: Path, needed: str, sample: int | None, record_property: RecordProperty) -> None:
    with serving_registry(directory / "registry") as address:
        home = f"{address}/platform"
        await publish(directory / "author", home, needed)
        points = await trace(directory / "0", PROGRAM, home=home, needed=needed)
        kinds = kinds_of(points)
        assert len(kinds) == 2 + len(PHASES), kinds
        chosen = points if sample is None else sorted(random.Random(7).sample(points, sample), key=points.index)
        for chain in range(1, CHAINS):
            shutil.copytree(directory / "0", directory / str(chain))
        missed = await asyncio.gather(
            *(
                crash_at_each(directory / str(chain), PROGRAM, chosen[chain::CHAINS], home=home, needed=needed)
                for chain in range(CHAINS)
            )
        )
    lost = [point for each in missed for point in each]
    told = ", ".join(f"{count} {kind}" for kind, count in kinds.items())
    killed = len(chosen) - len(lost)
    record_property(
        f"crash points of a Configuration that needs a {needed}",
        f"{len(points)} ({told}); killed at {killed}; not met again: {[*map(str, lost)] or 0}",
    )
    assert all(point.occurrence > 1 for point in lost), "only how often something is repeated may differ"
    assert killed >= 0.75 * len(chosen)


@pytest.mark.timeout(600)
@pytest.mark.parametrize(("needed", "sample"), [("Configuration", 6), ("Function", 2)])
async def test_a_plane_killed_at_a_sample_of_points_brings_packages_to_where_they_were_going(
    tmp_path: Path, needed: str, sample: int, record_property: RecordProperty
) -> None:
    await crash_and_check(tmp_path, needed, sample, record_property)


@pytest.mark.long
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("needed", ["Configuration", "Function"])
async def test_a_plane_killed_at_every_point_brings_packages_to_where_they_were_going(
    tmp_path: Path, needed: str, record_property: RecordProperty
) -> None:
    await crash_and_check(tmp_path, needed, None, record_property)
