"""KCL modules from registries, for programs that name them by their digests; only from where the operator allows it.

    DIRECTORY/HEX      the files of a module, unpacked once

Registries are asked as they are for packages: with the logins, rewriting and signatures of the same rules. What is here
is not asked for again, and modules that nobody used for long make way for others.
"""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Final, Protocol

from planform.apiserver.auth.private_files import make_private_directory
from planform.builtin.kcl.modules import ModuleRefused, Pinned
from planform.clock import Clock
from planform.packages.errors import InvalidReference, PackageError
from planform.packages.fetching import Located
from planform.packages.references import parse_reference
from planform.packages.streams import ArchiveLimits

MAX_BYTES: Final = 32 << 20
"""Bytes of a module as it is sent."""
UNPACKED: Final = ArchiveLimits(unpacked_bytes=128 << 20, entries=20_000)
MAX_KEPT: Final = 200
SPARED_SECONDS: Final = 24 * 3600.0
"""A module that was used within this time stays, however many there are."""


class Artifacts(Protocol):
    """Whoever finds artifacts by the rules for packages, and unpacks them."""

    async def locate(self, package: str) -> Located: ...

    async def unpack_artifact(
        self, located: Located, destination: Path, *, max_bytes: int, limits: ArchiveLimits
    ) -> None: ...


class RegistryModules:
    """Modules of registries, kept below one directory. `allowed` are registries, or beginnings of repositories."""

    def __init__(self, directory: Path, artifacts: Artifacts, allowed: Sequence[str], *, clock: Clock) -> None:
        self.directory = directory
        self._artifacts = artifacts
        self._allowed = tuple(prefix.removeprefix("oci://").rstrip("/") for prefix in allowed)
        self._clock = clock
        self._locks: dict[str, asyncio.Lock] = {}
        make_private_directory(directory)

    async def fetch(self, module: Pinned, /) -> Path:
        """The files of a module, which is fetched unless it is here. Raises ModuleRefused."""
        self._check(module)
        path = self.directory / module.digest.partition(":")[2]
        async with self._locks.setdefault(module.digest, asyncio.Lock()):
            try:
                if not path.is_dir():
                    located = await self._artifacts.locate(f"{module.repository}@{module.digest}")
                    await asyncio.to_thread(self._make_room)
                    await self._artifacts.unpack_artifact(located, path, max_bytes=MAX_BYTES, limits=UNPACKED)
                now = self._clock.now().timestamp()
                os.utime(path, (now, now))
            except PackageError as error:
                raise ModuleRefused(f"the KCL module {module} cannot be fetched: {error.message}") from error
            except OSError as error:
                why = error.strerror or error
                raise ModuleRefused(f"the KCL module {module} cannot be kept on this machine: {why}") from error
        return path

    def _check(self, module: Pinned) -> None:
        try:
            name = parse_reference(str(module).removeprefix("oci://")).source
        except InvalidReference as error:
            raise ModuleRefused(error.message) from error
        if not any(name == prefix or name.startswith(f"{prefix}/") for prefix in self._allowed):
            raise ModuleRefused(
                f"KCL modules are not fetched from {name}: the operator of this control plane has to allow it, with"
                " --allow-kcl-modules REGISTRY/PREFIX"
            )

    def _make_room(self) -> None:
        """Delete those that were used least recently, if there are many of them and they are not in use."""
        used = sorted((entry.stat().st_mtime, entry.path) for entry in os.scandir(self.directory))
        oldest = self._clock.now().timestamp() - SPARED_SECONDS
        for when, path in used[: max(0, len(used) - MAX_KEPT)]:
            if when < oldest:
                shutil.rmtree(path, ignore_errors=True)
