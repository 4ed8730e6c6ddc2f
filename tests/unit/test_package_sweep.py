"""What packages left on the disk goes, and nothing that anybody needs, or that is on its way."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from random import Random

import pytest

from planform.api.kinds import Object
from planform.api.names import FUNCTION_REVISION
from planform.client.informer import ObjectKey
from planform.clock import SystemClock
from planform.packages.blobs import BlobStore, Image
from planform.packages.building import Source, assemble
from planform.packages.fetching import RegistryPackages
from planform.packages.oci import Index
from planform.packages.runtimes.host import RuntimeStatus
from planform.packages.sweeping import PackageSweep
from planform.packages.xpkg import package_of
from planform.reconcile.context import ControllerContext
from tests.harness.contexts import embedded_context
from tests.harness.packaging import meta, server_program

REPOSITORY = "registry.example.org/team/fn"


@pytest.fixture
async def context() -> AsyncIterator[ControllerContext]:
    async with embedded_context() as made:
        yield made


def source_of(directory: Path, context: ControllerContext, *, spare: timedelta = timedelta(0)) -> RegistryPackages:
    return RegistryPackages(directory, context.client, clock=SystemClock(), rng=Random(1), spare=spare)


def stored(directory: Path, version: str) -> Image:
    """A package that is here under its tag, as after a pull."""
    blobs = BlobStore(directory / "blobs")
    image = assemble(blobs, Source(package_of([("meta", meta("Function", "fn"))])), server_program(version))
    blobs.remember(f"{REPOSITORY}:{version}", image.descriptor)
    return image


def digests_in(directory: Path) -> set[str]:
    return {f"sha256:{file.name}" for file in (directory / "blobs" / "blobs" / "sha256").iterdir()}


def parts_of(image: Image) -> set[str]:
    return {image.digest, image.manifest.config.digest, *(layer.digest for layer in image.manifest.layers)}


def test_what_something_is_made_of_is_all_that_it_leads_to(tmp_path: Path) -> None:
    blobs = BlobStore(tmp_path / "blobs")
    one, two = stored(tmp_path, "v1"), stored(tmp_path, "v2")
    index = blobs.add(Index((one.descriptor,)).encode())
    assert blobs.closure([index]) == {index, *parts_of(one)}
    assert blobs.closure([one.digest, two.digest]) == parts_of(one) | parts_of(two)
    missing = "sha256:" + "0" * 64
    assert blobs.closure([missing]) == {missing}


async def test_all_of_other_packages_goes_and_all_of_these_stays(tmp_path: Path, context: ControllerContext) -> None:
    source = source_of(tmp_path, context)
    _, two = stored(tmp_path, "v1"), stored(tmp_path, "v2")
    for version in ("v1", "v2"):
        await source.fetch(await source.locate(f"{REPOSITORY}:{version}"))
    (tmp_path / "files" / f".{'0' * 64}.new").mkdir()  # what a crash left of an unpacking
    assert await source.keep([two.digest]) is None
    assert digests_in(tmp_path) == parts_of(two)
    assert [file.name for file in (tmp_path / "files").iterdir()] == [two.digest.removeprefix("sha256:")]
    assert await source.meaning(f"{REPOSITORY}:v1") == ""
    assert await source.meaning(f"{REPOSITORY}:v2") == two.digest


async def test_what_came_a_short_while_ago_stays_until_later(tmp_path: Path, context: ControllerContext) -> None:
    source = source_of(tmp_path, context, spare=timedelta(hours=1))
    image = stored(tmp_path, "v1")
    assert await source.keep([]) == 3600.0
    assert digests_in(tmp_path) == parts_of(image)
    assert await source.meaning(f"{REPOSITORY}:v1") == image.digest
    for file in (tmp_path / "blobs" / "blobs" / "sha256").iterdir():
        os.utime(file, (0, 0))
    assert await source.keep([]) is None
    assert digests_in(tmp_path) == set()


async def test_nothing_goes_while_a_package_is_on_its_way(tmp_path: Path, context: ControllerContext) -> None:
    image = stored(tmp_path, "v1")
    asked = asyncio.Event()

    async def say_nothing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.set()
        await reader.read()
        writer.close()

    server = await asyncio.start_server(say_nothing, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        source = source_of(tmp_path, context)
        located = await source.locate(f"127.0.0.1:{port}/team/fn@sha256:{'1' * 64}")
        pull = asyncio.create_task(source.fetch(located))
        await asked.wait()
        assert await source.keep([]) is not None
        assert digests_in(tmp_path) == parts_of(image)
        pull.cancel()
        with suppress(asyncio.CancelledError):
            await pull
        assert await source.keep([]) is None
        assert digests_in(tmp_path) == set()


class Programs:
    """What runs, as a host would say it."""

    def __init__(self) -> None:
        self.running: set[str] = set()
        self.forgotten: list[str] = []

    def runtime_status(self, revision: str) -> RuntimeStatus | None:
        return RuntimeStatus(ready=True) if revision in self.running else None

    def forget(self, revision: str) -> None:
        self.forgotten.append(revision)

    def subscribe(self, callback: Callable[[str], None]) -> object:
        return callback


def revision(name: str, digest: str) -> Object:
    return {
        "apiVersion": FUNCTION_REVISION.api_version,
        "kind": FUNCTION_REVISION.kind,
        "metadata": {"name": name, "annotations": {"planform.dev/digest": digest}},
        "spec": {"image": f"{REPOSITORY}:v1", "revision": 1, "desiredState": "Inactive"},
    }


async def test_files_of_a_deleted_revision_stay_as_long_as_it_runs(tmp_path: Path, context: ControllerContext) -> None:
    packages = tmp_path / "packages"
    image, programs = stored(packages, "v1"), Programs()
    for name in ("fn-1", "gone"):
        (tmp_path / "certificates" / name).mkdir(parents=True)
    sweep = PackageSweep(context, source_of(packages, context), programs, tmp_path)
    await context.client.create(revision("fn-1", image.digest))
    programs.running = {"fn-1"}
    await sweep.reconcile(ObjectKey("", "x"))
    assert programs.forgotten == ["gone"], "a crash came before it was"
    await context.client.delete(FUNCTION_REVISION, "fn-1")
    await sweep.reconcile(ObjectKey("", "x"))
    assert digests_in(packages) == parts_of(image)
    assert programs.forgotten == ["gone", "gone"]
    programs.running = set()
    await sweep.reconcile(ObjectKey("", "x"))
    assert digests_in(packages) == set()
    assert programs.forgotten[-2:] == ["fn-1", "gone"]


async def test_what_an_installed_package_means_stays_though_it_has_no_revision_yet(
    tmp_path: Path, context: ControllerContext
) -> None:
    image = stored(tmp_path / "packages", "v1")
    stored(tmp_path / "packages", "v2")
    package = {"apiVersion": "pkg.crossplane.io/v1", "kind": "Function", "metadata": {"name": "fn"}}
    await context.client.create({**package, "spec": {"package": f"{REPOSITORY}:v1"}})
    sweep = PackageSweep(context, source_of(tmp_path / "packages", context), Programs(), tmp_path)
    await sweep.reconcile(ObjectKey("", "x"))
    assert digests_in(tmp_path / "packages") == parts_of(image)
