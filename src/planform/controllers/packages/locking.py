"""The Lock: which packages are active, what they need, and getting it.

What a package needs is installed for it, and kept in a version that fits; what users installed themselves is theirs to
change, so there it is only said. Trouble with one package is told on it and on the Lock, and stops no other.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from planform.api.kinds import GroupVersionKind, Object
from planform.api.names import (
    CONFIGURATION,
    CONFIGURATION_REVISION,
    FUNCTION,
    FUNCTION_REVISION,
    LOCK,
    PACKAGE_LABEL,
    PROVIDER,
    PROVIDER_REVISION,
)
from planform.builtin import find_builtin
from planform.client.informer import Change, ObjectKey
from planform.composition.xr import XrCondition
from planform.controllers.packages.contents import PackageContents
from planform.controllers.workbench import Workbench
from planform.controllers.writing import merge, set_status
from planform.errors import AlreadyExists, NotFound, PlanformError
from planform.functions.semver import parse_semver
from planform.packages.dependencies import (
    Entry,
    Need,
    NoVersionFits,
    Standing,
    choose_version,
    meets,
    needs,
    standing_of,
)
from planform.packages.errors import InvalidReference, PackageError
from planform.packages.references import package_name, parse_reference
from planform.packages.revision_objects import ACTIVE, DIGEST_ANNOTATION, annotations_of
from planform.reconcile.controller import Result
from planform.reconcile.sources import Source

NAME: Final = "lock"
DEPENDENCY_ANNOTATION: Final = "planform.dev/installed-as"
"""`dependency` on packages that were installed because another one needs them."""
KINDS: Final[Mapping[GroupVersionKind, GroupVersionKind]] = {
    FUNCTION_REVISION: FUNCTION,
    PROVIDER_REVISION: PROVIDER,
    CONFIGURATION_REVISION: CONFIGURATION,
}

_MANAGER: Final = "pkg.crossplane.io/lock"
_KEY: Final = ObjectKey("", NAME)
_LOOK_AGAIN: Final = 60.0
_MENTIONED: Final = re.compile(r"v?\d+\.\d+\.\d+(?:-[0-9A-Za-z.-]+)?")


class LockController:
    """Keeps the Lock, and knows for each revision how it is with what it needs."""

    def __init__(self, bench: Workbench, contents: PackageContents) -> None:
        self._bench = bench
        self._client = bench.client
        self._contents = contents
        self._standings: dict[str, Standing] = {}
        self._subscribers: list[Callable[[str, str], None]] = []

    def start(self) -> None:
        def to_lock(_: Change) -> Sequence[ObjectKey]:
            return (_KEY,)

        controller = self._bench.controller(NAME, self.reconcile)
        kinds = (*KINDS, *KINDS.values())
        self._bench.plane.start(controller, [Source(kind, to_lock) for kind in kinds])

    def standing(self, revision: str) -> Standing | None:
        """None as long as nothing is known of it, or if it is not active."""
        return self._standings.get(revision)

    def subscribe(self, callback: Callable[[str, str], None]) -> None:
        """Tell `callback` the kind and name of each package whose standing is another."""
        self._subscribers.append(callback)

    async def reconcile(self, key: ObjectKey) -> Result:
        entries, packages = await self._entries()
        await self._write(entries)
        self._judge(entries, packages)
        problems, retry = [], False
        for need in needs(entries):
            try:
                problem = await self._get(need)
            except PackageError as error:
                problem, retry = error.message, True
            except NoVersionFits as error:
                problem, retry = error.message, True
            if problem:
                problems.append(problem)
        await self._tell(entries, problems)
        return Result(requeue_after=_LOOK_AGAIN if retry else None)

    # -- what there is

    async def _entries(self) -> tuple[list[Entry], dict[str, tuple[str, str]]]:
        """The active revisions, and of which package each is."""
        entries, packages = [], {}
        for revision_kind, kind in KINDS.items():
            for revision in (await self._client.list(revision_kind)).items:
                spec, metadata = revision["spec"], revision["metadata"]
                if spec["desiredState"] != ACTIVE or metadata.get("deletionTimestamp"):
                    continue
                if (entry := await self._entry(revision, kind)) is not None:
                    entries.append(entry)
                    packages[entry.name] = kind.kind, str((metadata.get("labels") or {}).get(PACKAGE_LABEL) or "")
        return sorted(entries, key=lambda each: each.name), packages

    async def _entry(self, revision: Object, kind: GroupVersionKind) -> Entry | None:
        spec = revision["spec"]
        try:
            reference = parse_reference(str(spec["image"]))
        except InvalidReference:
            return None  # a built-in by its short name, which nobody can need
        dependencies: tuple[Any, ...] = ()
        if DIGEST_ANNOTATION in annotations_of(revision) and not spec.get("skipDependencyResolution"):
            try:
                dependencies = (await self._contents.fetched(revision)).package.dependencies
            except PackageError:
                return None  # its own controller says why
        version = reference.tag or reference.digest
        return Entry(revision["metadata"]["name"], kind.kind, kind.api_version, reference.source, version, dependencies)

    async def _write(self, entries: Sequence[Entry]) -> None:
        wanted = [_in_lock(each) for each in entries]
        try:
            lock = await self._client.get(LOCK, NAME)
        except NotFound:
            lock = {"apiVersion": LOCK.api_version, "kind": LOCK.kind, "metadata": {"name": NAME}, "packages": wanted}
            try:
                await self._client.create(lock, manager=_MANAGER)
            except AlreadyExists:
                await self._write(entries)
            return
        if (lock.get("packages") or []) != wanted:
            await merge(self._client, lock, {"packages": wanted}, manager=_MANAGER)

    def _judge(self, entries: Sequence[Entry], packages: Mapping[str, tuple[str, str]]) -> None:
        before, self._standings = self._standings, {each.name: standing_of(each, entries) for each in entries}
        for name, standing in self._standings.items():
            if before.get(name) != standing:
                for callback in self._subscribers:
                    callback(*packages[name])

    # -- what is needed

    async def _get(self, need: Need) -> str:
        """Install a package, or have another version of it; gives what stands in the way. Raises PackageError,
        NoVersionFits."""
        kind = next((each for each in KINDS.values() if each.kind == need.kind), None)
        if kind is None:
            return f"{need.source} is needed as {need.kind}, which is no kind of package"
        present = await self._present(kind, need.source)
        if present is not None and all(meets(_version(present), each.constraint) for each in need.asks):
            return ""  # it is on its way
        if present is not None and annotations_of(present).get(DEPENDENCY_ANNOTATION) != "dependency":
            asked = "; ".join(map(str, need.asks))
            return (
                f'{kind.kind} "{present["metadata"]["name"]}" is {_version(present)}: {asked}; change its spec.package'
            )
        version = choose_version(need, await self._tags(need))
        package = f"{need.source}{'@' if ':' in version else ':'}{version}"
        if present is not None:
            await merge(self._client, present, {"spec": {"package": package}}, manager=_MANAGER)
            return ""
        return await self._create(kind, package)

    async def _create(self, kind: GroupVersionKind, package: str) -> str:
        name = package_name(parse_reference(package))
        wanted = {
            "apiVersion": kind.api_version,
            "kind": kind.kind,
            "metadata": {"name": name, "annotations": {DEPENDENCY_ANNOTATION: "dependency"}},
            "spec": {"package": package},
        }
        try:
            await self._client.create(wanted, manager=_MANAGER)
        except AlreadyExists:
            there = (await self._client.get(kind, name))["spec"]["package"]
            return f'{package} cannot be installed: {kind.kind} "{name}" is there already, and is {there}'
        except PlanformError as error:
            if error.retryable:
                raise
            return f"{package} cannot be installed: {error.message}"
        return ""

    async def _present(self, kind: GroupVersionKind, source: str) -> Object | None:
        """The package object for a source, the one that was installed as a dependency last."""
        found = []
        for package in (await self._client.list(kind)).items:
            try:
                if parse_reference(str(package["spec"]["package"])).source == source:
                    found.append(package)
            except InvalidReference:
                continue
        return min(found, key=lambda each: DEPENDENCY_ANNOTATION in annotations_of(each), default=None)

    async def _tags(self, need: Need) -> list[str]:
        """The versions there are; a function that ships with planform is whatever is asked for."""
        if need.kind == FUNCTION.kind and find_builtin(need.source) is not None:
            return list(_mentioned(need))
        return await self._contents.source.versions(need.source)

    async def _tell(self, entries: Sequence[Entry], problems: Sequence[str]) -> None:
        lock = await self._client.get(LOCK, NAME)
        if problems:
            resolved = XrCondition("Resolved", "False", "DependencyResolutionFailed", "; ".join(sorted(problems)))
        else:
            resolved = XrCondition("Resolved", "True", "DependencyResolutionSucceeded")
        now = self._bench.timestamp()
        await set_status(self._client, lock, [resolved], now=now, manager=_MANAGER, packages=len(entries))


def _in_lock(entry: Entry) -> Object:
    return {
        "name": entry.name,
        "apiVersion": entry.api_version,
        "kind": entry.kind,
        "source": entry.source,
        "version": entry.version,
        "dependencies": [
            {
                "package": each.package,
                "apiVersion": each.api_version,
                "kind": each.kind,
                "constraints": each.constraint,
            }
            for each in entry.dependencies
        ],
    }


def _version(package: Object) -> str:
    reference = parse_reference(str(package["spec"]["package"]))
    return reference.tag or reference.digest


def _mentioned(need: Need) -> Iterator[str]:
    """Versions that a range may mean by the ones it names: these, and the next of each."""
    for ask in need.asks:
        for text in _MENTIONED.findall(ask.constraint) or ["0.0.0"]:
            yield text
            if (version := parse_semver(text)) is not None:
                steps = itertools.product((0, 1), repeat=3)
                yield from (f"v{version.major + a}.{version.minor + b}.{version.patch + c}" for a, b, c in steps)
