"""The life of a Configuration and the package it needs, and everything that must hold of them whatever happened.

The user installs the Configuration, which brings the other along; upgrades it twice, so that the second time the oldest
revision of either is garbage; goes back; and uninstalls both. What it needs is a Function, which runs, or another
Configuration. All of it comes from a real registry. Each act may be repeated: a user who got no answer tries again.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import orjson

from planform.api.kinds import GroupVersionKind, Object
from planform.api.names import (
    COMPOSITION,
    CONFIGURATION,
    CONFIGURATION_REVISION,
    FUNCTION,
    FUNCTION_REVISION,
    LOCK,
)
from planform.app import ControlPlane
from planform.errors import NotFound
from planform.packages.blobs import BlobStore
from planform.packages.revision_objects import DIGEST_ANNOTATION
from planform.store import Change
from tests.harness.contexts import condition_of, eventually, read

PHASES: Final = ("install", "upgrade", "collect", "go back", "uninstall")
VERSIONS: Final = {"install": "v1.0.0", "upgrade": "v2.0.0", "collect": "v3.0.0", "go back": "v2.0.0"}
STATES: Final[Mapping[str, Mapping[int, tuple[str, str]]]] = {
    "install": {1: ("v1.0.0", "Active")},
    "upgrade": {1: ("v1.0.0", "Inactive"), 2: ("v2.0.0", "Active")},
    "collect": {2: ("v2.0.0", "Inactive"), 3: ("v3.0.0", "Active")},
    "go back": {3: ("v3.0.0", "Inactive"), 4: ("v2.0.0", "Active")},
    "uninstall": {},
}
"""By phase and number: which version a revision is of, and whether it is active. The history limit is the default."""
CONF: Final = "conf"
NEEDED: Final = {"Function": "fn", "Configuration": "base"}
"""The repository of what the Configuration needs, by kind."""
SECONDS: Final = 60.0


class PackageCycle:
    """One Configuration's life on a running control plane; `home` is the registry and path of its packages, and
    `needed` the kind of what it needs."""

    def __init__(self, plane: ControlPlane, directory: Path, home: str, needed: str) -> None:
        self.plane = plane
        self.client = plane.client
        self.store = plane.core.store
        self.home = home
        self.needed = NEEDED[needed]
        self.runs = needed == "Function"
        kind = FUNCTION if self.runs else CONFIGURATION
        self.packages = ((CONFIGURATION, CONF), (kind, f"platform-{self.needed}"))
        self.data = directory

    async def define(self) -> None:
        """The Lock is there from the first package on, and stays."""
        for phase in ("install", "uninstall"):
            await self.act(phase)
            await self.settle(phase)

    # -- what the user does

    async def act(self, phase: str) -> None:
        if phase == "uninstall":
            for kind, name in self.packages:
                with suppress(NotFound):
                    await self.client.delete(kind, name)
                await self._until_gone(kind, name)
            return
        wanted = {"apiVersion": CONFIGURATION.api_version, "kind": CONFIGURATION.kind, "metadata": {"name": CONF}}
        spec = {"package": f"{self.home}/conf:{VERSIONS[phase]}"}
        await self.client.apply({**wanted, "spec": spec}, manager="user", force=True)

    async def _until_gone(self, kind: GroupVersionKind, name: str) -> None:
        """Who uninstalls what others need would have it installed again."""

        async def gone() -> bool:
            lock = await self.client.get(LOCK, "lock")
            needed = any(each["dependencies"] for each in lock["packages"])
            return await read(self.client, kind, name) is None and not needed

        await eventually(gone, f"{kind.kind} {name} is gone", seconds=SECONDS)

    # -- what must come of it

    async def settle(self, phase: str) -> None:
        """Wait until all that must hold at the end of a phase does, and goes on to hold when nothing moves any more."""
        deadline = self.plane.core.clock.monotonic() + SECONDS
        while True:
            try:
                await self.check(phase)
                break
            except (AssertionError, NotFound):
                if self.plane.core.clock.monotonic() > deadline:
                    raise
            await asyncio.sleep(0.02)
        await self.rest()
        await self.check(phase)

    async def rest(self) -> None:
        """Wait until nothing is written for a moment."""
        await self.plane.controllers.events.written()
        before = -1
        while before != self.store.revision:
            before = self.store.revision
            await asyncio.sleep(0.1)

    async def check(self, phase: str) -> None:
        """Nothing twice, nothing lost, nothing that belongs to nobody: in the store, on the disk, among processes."""
        digests, running = set(), set()
        listed = [*(await self.client.list(CONFIGURATION_REVISION)).items]
        listed += (await self.client.list(FUNCTION_REVISION)).items
        for name in (CONF, self.needed):
            revisions = [each for each in listed if f"/{name}:" in each["spec"]["image"]]
            specs = [each["spec"] for each in revisions]
            found = {each["revision"]: (each["image"], each["desiredState"]) for each in specs}
            wanted = {
                number: (f"{self.home}/{name}:{version}", state) for number, (version, state) in STATES[phase].items()
            }
            assert found == wanted and len(revisions) == len(wanted), (name, found)
            for each in revisions:
                digests.add(each["metadata"]["annotations"][DIGEST_ANNOTATION])
                assert _says(each, "RevisionHealthy"), each
                if each["kind"] == FUNCTION_REVISION.kind and each["spec"]["desiredState"] == "Active":
                    running.add(each["metadata"]["name"])
                    assert _says(each, "RuntimeHealthy"), each
        assert len(listed) == 2 * len(STATES[phase])
        await self._check_objects(phase)
        self._check_files(digests)
        self._check_processes(running)

    async def _check_objects(self, phase: str) -> None:
        lock = await self.client.get(LOCK, "lock")
        version = VERSIONS.get(phase, "")
        installed = {f"{self.home}/{name}": version for name in (CONF, self.needed)} if version else {}
        assert {each["source"]: each["version"] for each in lock["packages"]} == installed
        assert len(lock["packages"]) == len(installed)
        assert _says(lock, "Resolved"), lock
        compositions = (await self.client.list(COMPOSITION)).items
        assert [each["metadata"]["name"] for each in compositions] == (["app"] if version else [])
        if not version:
            return
        for kind, name in self.packages:
            package = await self.client.get(kind, name)
            assert _says(package, "Installed") and _says(package, "Healthy"), package
        conf = await self.client.get(CONFIGURATION, CONF)
        [composition] = compositions
        assert composition["metadata"]["annotations"]["version"] == version
        controllers = [each["name"] for each in composition["metadata"]["ownerReferences"] if each.get("controller")]
        assert controllers == [conf["status"]["currentRevision"]]

    def _check_files(self, digests: set[str]) -> None:
        """Of what is installed everything is there, and of anything else nothing."""
        packages = self.data / "packages"
        blobs = BlobStore(packages / "blobs")
        kept = blobs.closure(digests)
        assert not blobs.unused(kept) and len(kept) == len(list((packages / "blobs" / "blobs" / "sha256").iterdir()))
        assert not list((packages / "blobs" / "partial").iterdir())
        unpacked = {each.name for each in (packages / "files").iterdir()} if (packages / "files").is_dir() else set()
        assert unpacked <= {each.removeprefix("sha256:") for each in digests}, unpacked

    def _check_processes(self, revisions: set[str]) -> None:
        """Every active revision runs, and nothing else does; nor is anything kept of others."""
        running = _programs(str(self.data / "certificates"))
        assert running == revisions, running
        known = {each["metadata"]["name"] for each in self._stored("functionrevisions.pkg.crossplane.io")}
        for place in ("certificates", "runtimes"):
            left = {each.name for each in (self.data / place).iterdir()} if (self.data / place).is_dir() else set()
            assert revisions <= left <= known, (place, left)

    def _stored(self, resource: str) -> list[Object]:
        return [orjson.loads(entry.value) for _, entry in self.store.list(resource)]

    async def check_history(self, since: int) -> None:
        """Over a whole cycle each revision and object was made once and deleted once; the store's own log tells."""
        made: Counter[str] = Counter()
        deleted: Counter[str] = Counter()
        for change in await self._changes(since):
            if change.key.resource.partition(".")[0] in ("functionrevisions", "configurationrevisions", "compositions"):
                made[f"{change.key.resource} {change.key.name}"] += change.type == "ADDED"
                deleted[f"{change.key.resource} {change.key.name}"] += change.type == "DELETED"
        assert set((+made).values()) == {1} and len(+made) == 7, made  # three versions of either, and a Composition
        assert +deleted == +made

    async def _changes(self, since: int) -> list[Change]:
        changes: list[Change] = []
        position = since
        while position < self.store.revision:
            changes += await self.store.recall(position, 512)
            position = changes[-1].rv
        return changes


def _says(obj: Mapping[str, Any], type_: str) -> bool:
    condition = condition_of(dict(obj), type_)
    return condition is not None and condition["status"] == "True"


def _programs(path: str) -> set[str]:
    """The revisions whose programs were given something below a path, by what these were told they are."""
    found = set()
    for process in Path("/proc").iterdir():
        try:
            if not process.name.isdigit() or path not in (process / "cmdline").read_bytes().decode(errors="replace"):
                continue
            environment = dict(each.partition(b"=")[::2] for each in (process / "environ").read_bytes().split(b"\0"))
        except OSError:
            continue  # it has ended meanwhile
        found.add(environment.get(b"REVISION_NAME", b"").decode())
    return found
