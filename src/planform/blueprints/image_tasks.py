"""Tasks of phases in containers through runc, on machines that have it and no Podman.

Images come as packages do, checked and bounded, and are kept in a directory of our own:

    DIRECTORY/blobs        what registries sent, by digest
    DIRECTORY/files/HEX    the files of an image, unpacked once
    DIRECTORY/runs/NAME    a container: its bundle and a copy of the files, which it may change; gone at its end

Root in the container is the user of the control plane outside, whatever user the image names, and the network is that
of this machine. Logins for registries are those of the same user's docker or podman.
"""

from __future__ import annotations

import asyncio
import shutil
import uuid
from collections import Counter
from collections.abc import AsyncIterator, Callable, Collection, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from functools import cached_property
from pathlib import Path
from typing import Final

import orjson

from planform.apiserver.auth.private_files import make_private_directory
from planform.blueprints.contract import ContainerTask
from planform.blueprints.errors import PhaseFailed
from planform.blueprints.functions.containers import attend
from planform.packages.blobs import BlobStore, Image
from planform.packages.credentials import credentials_from_files, usual_files
from planform.packages.errors import PackageError
from planform.packages.extraction import extract_image
from planform.packages.references import Reference, parse_reference
from planform.packages.registry import PullPolicy, RegistryClient
from planform.packages.runtimes.containers import (
    bound,
    container_config,
    find_runc,
    is_filtered,
    resolving,
    runc_command,
    write_bundle,
)
from planform.sandbox import Isolation, run_once

MAX_IMAGES: Final = 16
"""Images whose files are kept; those that were not used for longest make room."""
_LATEST: Final = "latest"


def find_image_tasks(directory: Path) -> ImageTasks | None:
    """What runs images here and keeps them in the directory; None without runc."""
    runc = find_runc()
    return None if runc is None else ImageTasks(runc, directory)


class ImageTasks:
    """Runs each task in a container of its own, which is gone when `run` returns or is cancelled."""

    def __init__(self, runc: str, directory: Path) -> None:
        self._directory = directory
        self._files = directory / "files"
        self._runs = directory / "runs"
        self._runc = runc_command(runc, directory)
        self._locks: dict[str, asyncio.Lock] = {}
        self._used: Counter[str] = Counter()  # by running containers
        self._pulls = 0  # how many are under way
        self._sweeping = asyncio.Lock()
        self._begun = False

    async def run(self, task: ContainerTask, output: Callable[[bytes], None], /) -> int:
        """The exit code of the command. Raises PhaseFailed if there is no container, or it takes too long."""
        await self._begin()
        async with AsyncExitStack() as using:
            try:
                async with self._coming():
                    image = await self._pulled(task.image)
                    using.enter_context(self._using(image))
                    await self._unpack(image)
                return await self._contain(task, image, output)
            except PackageError as error:
                raise PhaseFailed(f"no container of {task.image}: {error}", hint=error.hint) from error
            except OSError as error:
                raise PhaseFailed(f"no container of {task.image}: {error.strerror or error}") from error

    async def _begin(self) -> None:
        """Remove what a process before us left behind, which may still run."""
        if self._begun:
            return
        self._begun = True
        for directory in (self._directory, self._files, self._runs):
            make_private_directory(directory)
        for left in sorted(self._runs.iterdir()):
            await self._remove(left.name)

    async def _pulled(self, name: str) -> Image:
        reference = parse_reference(name, versioned=False)
        if not reference.version:
            reference = reference.tagged(_LATEST)
        credentials = await asyncio.to_thread(credentials_from_files, usual_files())
        async with self._lock(str(reference)), RegistryClient(self._blobs, credentials) as registry:
            return await registry.pull(reference, policy=_policy(reference))

    async def _unpack(self, image: Image) -> None:
        """Have the files of an image; a crash leaves nothing that looks whole."""
        root = self._root(image)
        async with self._lock(image.digest):
            if root.is_dir():
                root.touch()
                return
            fresh = root.with_name(f".{root.name}.new")
            await asyncio.to_thread(shutil.rmtree, fresh, ignore_errors=True)
            await asyncio.to_thread(extract_image, image, fresh)
            fresh.rename(root)

    async def _contain(self, task: ContainerTask, image: Image, output: Callable[[bytes], None]) -> int:
        name = f"task-{uuid.uuid4().hex}"
        place = self._runs / name
        settings = image.settings
        variables = dict(str(each).partition("=")[::2] for each in settings.get("Env") or ())
        config = container_config(
            place / "root",
            task.command,
            {"HOME": "/root", **variables, **task.environment},
            [*resolving(), *(bound(source, target, writable=True) for source, target in task.mounts.items())],
            name=name[:17],
            directory=str(settings.get("WorkingDir") or ""),
            network=True,
            writable=True,
            max_memory=task.memory,
            filtered=await asyncio.to_thread(is_filtered),
            unix_sockets=False,
        )
        log = place / "log"
        command = [*self._runc, "--log", str(log), "--log-format", "json", "run", "--bundle", str(place), name]
        try:
            write_bundle(place, config)
            await asyncio.to_thread(shutil.copytree, self._root(image), place / "root", symlinks=True)
            kill = [*self._runc, "delete", "--force", name]
            ended = await attend(command, task, output, environment={}, kill=kill)
            if ended.code and (problem := await asyncio.to_thread(_problem, log)):
                raise PhaseFailed(f"no container of {task.image}: {problem}")
            return ended.code
        finally:
            await asyncio.to_thread(shutil.rmtree, place, ignore_errors=True)

    async def _remove(self, name: str) -> None:
        await run_once([*self._runc, "delete", "--force", name], isolation=Isolation.LIMITS_ONLY)
        await asyncio.to_thread(shutil.rmtree, self._runs / name, ignore_errors=True)

    @asynccontextmanager
    async def _coming(self) -> AsyncIterator[None]:
        """An image is on its way: nothing is deleted, since nobody knows yet which of the parts here it needs."""
        async with self._sweeping:
            if not self._pulls:
                await asyncio.to_thread(self._make_room, frozenset(+self._used))
            self._pulls += 1
        try:
            yield
        finally:
            self._pulls -= 1

    def _make_room(self, used: Collection[str]) -> None:
        roots = [each for each in self._files.iterdir() if not each.name.startswith(".")]
        roots.sort(key=lambda each: each.stat().st_mtime, reverse=True)
        kept = [each for place, each in enumerate(roots) if place < MAX_IMAGES or each.name in used]
        if len(kept) == len(roots):
            return
        for each in roots:
            if each not in kept:
                shutil.rmtree(each, ignore_errors=True)
        needed = self._blobs.closure(f"sha256:{each.name}" for each in kept)
        self._blobs.sweep(needed)
        self._blobs.forget_names(needed)

    @contextmanager
    def _using(self, image: Image) -> Iterator[None]:
        """The files of the image stay as long as the block."""
        name = self._root(image).name
        self._used[name] += 1
        try:
            yield
        finally:
            self._used[name] -= 1

    def _lock(self, what: str) -> asyncio.Lock:
        return self._locks.setdefault(what, asyncio.Lock())

    def _root(self, image: Image) -> Path:
        return self._files / image.digest.partition(":")[2]

    @cached_property
    def _blobs(self) -> BlobStore:
        return BlobStore(self._directory / "blobs")


def _policy(reference: Reference) -> PullPolicy:
    """As for pods: what is called latest is asked for each time."""
    moves = reference.tag == _LATEST and not reference.digest
    return PullPolicy.ALWAYS if moves else PullPolicy.IF_NOT_PRESENT


def _problem(log: Path) -> str:
    """What runc itself complained about; nothing if it was the command that failed."""
    lines = [orjson.loads(line) for line in log.read_bytes().splitlines()] if log.exists() else []
    return "; ".join(str(line.get("msg")) for line in lines if line.get("level") in ("error", "fatal"))
