"""The files of a package are on the disk before they have the name under which they are run."""

from __future__ import annotations

import ctypes
import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from planform.packages import durability
from planform.packages.blobs import BlobStore
from planform.packages.building import Source, assemble
from planform.packages.durability import make_durable
from planform.packages.fetching import CannotUnpack, RegistryPackages
from planform.packages.xpkg import package_of
from tests.harness.contexts import embedded_context
from tests.harness.packaging import REPOSITORY, meta, server_program


async def test_a_package_that_does_not_get_to_the_disk_is_not_shown_and_unpacked_anew_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[set[str]] = []

    def broken_disk(_: int) -> int:
        seen.append({each.name for each in (tmp_path / "files").iterdir()})
        ctypes.set_errno(errno.EIO)
        return -1

    blobs = BlobStore(tmp_path / "blobs")
    image = assemble(blobs, Source(package_of([("meta", meta("Function", "fn"))])), server_program("v1"))
    blobs.remember(f"{REPOSITORY}:v1", image.descriptor)
    name = image.digest.removeprefix("sha256:")
    async with embedded_context() as context:
        source = RegistryPackages(tmp_path, context.client, clock=context.clock, rng=context.rng)
        located = await source.locate(f"{REPOSITORY}:v1")
        with monkeypatch.context() as patched:
            patched.setattr(durability, "_syncfs", broken_disk)
            with pytest.raises(CannotUnpack, match=os.strerror(errno.EIO)):
                await source.fetch(located)
        assert seen == [{f".{name}.new"}], "it was hidden while it was not on the disk"
        assert not list((tmp_path / "files").iterdir())
        executable = (await source.fetch(located)).executable
    assert executable is not None
    assert executable.root == tmp_path / "files" / name
    assert (executable.root / "function" / "app" / "main.py").read_bytes()


@pytest.mark.skipif(durability._syncfs is None, reason="this system cannot sync a whole file system")
def test_one_call_is_enough_for_a_whole_tree(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "file").write_bytes(b"x" * 10_000)
    make_durable(tmp_path / "a")
    with pytest.raises(FileNotFoundError):
        make_durable(tmp_path / "missing")


def test_where_there_is_no_such_call_each_file_and_directory_is_synced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "file").write_bytes(b"x")
    (tmp_path / "a" / "b" / "other").write_bytes(b"y")
    (tmp_path / "a" / "link").symlink_to("nowhere")
    synced: set[int] = set()
    fsync: Callable[[int], None] = os.fsync

    def noted(handle: int) -> None:
        synced.add(os.fstat(handle).st_ino)
        fsync(handle)

    monkeypatch.setattr(durability, "_syncfs", None)
    monkeypatch.setattr(os, "fsync", noted)
    make_durable(tmp_path / "a")
    wanted = ("a", "a/file", "a/b", "a/b/other")
    assert synced == {(tmp_path / each).stat().st_ino for each in wanted}
