"""The Lock: which packages are active, what they need, and getting it.

What a package needs is installed for it, and kept in a version that fits. What users installed themselves is theirs to
change, so there it is only said, unless a feature gate has it raised, or lowered too. An error with one package is
reported on it and on the Lock, and stops no other.
"""

from __future__ import annotations

import asyncio
import itertools
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from planform.api.annotations import annotations_of
from planform.api.conditions import XrCondition
from planform.api.extensions.packages import PackageSpec, RevisionSpec
from planform.api.kinds import GroupVersionKind, Object
from planform.api.metadata import is_deleted, label, name_of
from planform.api.names import (
    CONFIGURATION,
    CONFIGURATION_REVISION,
    FUNCTION,
    FUNCTION_REVISION,
    IMAGE_CONFIG,
    LOCK,
    PACKAGE_LABEL,
    PROVIDER,
    PROVIDER_REVISION,
    SECRET,
)
from planform.api.objects import spec_of
from planform.client.informer import InformerEvent, ObjectKey
from planform.client.protocol import Client
from planform.client.waits import time_limit
from planform.errors import AlreadyExists, NotFound, PlanformError
from planform.functions.semver import parse_semver
from planform.packages.contents import PackageContents
from planform.packages.dependencies import (
    DependencyStatus,
    Entry,
    Need,
    NoVersionFits,
    choose_version,
    dependency_status_of,
    is_below,
    meets,
    needs,
)
from planform.packages.errors import InvalidReference, PackageError, RegistryUnavailable
from planform.packages.references import package_name, parse_reference
from planform.packages.revision_objects import DIGEST_ANNOTATION
from planform.packages.shipped_functions import stand_in
from planform.reconcile.context import ControllerContext
from planform.reconcile.controller import Controller, Result
from planform.reconcile.sources import Source
from planform.reconcile.writes import merge, set_status

if TYPE_CHECKING:
    from planform.packages.xpkg import Dependency

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
_PATIENCE: Final = 30.0
"""Seconds that one package may take to be found."""

_MENTIONED: Final = re.compile(r"v?\d+\.\d+\.\d+(?:-[0-9A-Za-z.-]+)?")


class _Active(NamedTuple):
    """An active revision, the name of its package, and the Secrets that this is pulled with."""

    entry: Entry
    package: str
    pull_secrets: tuple[str, ...]


class LockController:
    """Keeps the Lock, and knows for each revision how it is with what it needs."""

    def __init__(self, context: ControllerContext, contents: PackageContents) -> None:
        self._context = context
        self._client = context.client
        self._contents = contents
        self._needed: dict[str, tuple[Dependency, ...]] = {}  # by digest, of what is installed
        self._dependency_statuses: dict[str, DependencyStatus] = {}
        self._subscribers: list[Callable[[str, str], None]] = []
        self._controller: Controller[ObjectKey] | None = None
        gates = context.features
        self._lowers = gates.enabled("DependencyVersionDowngrades")
        self._raises = self._lowers or gates.enabled("DependencyVersionUpgrades")
        self._waits = False  # for something that a registry has and does not give

    def start(self) -> None:
        def to_lock(_: InformerEvent) -> Sequence[ObjectKey]:
            return (_KEY,)

        def if_waiting(_: InformerEvent) -> Sequence[ObjectKey]:
            return (_KEY,) if self._waits else ()

        def if_login(change: InformerEvent) -> Sequence[ObjectKey]:
            return if_waiting(change) if self._contents.source.asks_for(change.key.name) else ()

        controller = self._context.controller(NAME, self.reconcile)
        namespace = self._contents.source.namespace
        sources = [Source(kind, to_lock) for kind in (*KINDS, *KINDS.values())]
        sources += [Source(IMAGE_CONFIG, if_waiting), Source(SECRET, if_login, namespace=namespace)]
        if self._context.manager.start(controller, sources):
            self._controller = controller
            controller.queue.add(_KEY)  # what it names may have gone while nobody looked

    def dependency_status(self, revision: str) -> DependencyStatus | None:
        """None as long as nothing is known of it, or if it is not active."""
        return self._dependency_statuses.get(revision)

    def subscribe(self, callback: Callable[[str, str], None]) -> None:
        """Tell `callback` the kind and name of each package whose dependency status changed."""
        self._subscribers.append(callback)

    def note(self, digest: str, needed: tuple[Dependency, ...]) -> None:
        """A package that is here, and trusted, needs these."""
        if self._needed.get(digest) != needed:
            self._needed[digest] = needed
            if self._controller is not None:
                self._controller.queue.add(_KEY)

    async def reconcile(self, key: ObjectKey) -> Result:
        lock = await _read_lock(self._client)
        active = await self._active(lock)
        entries = sorted((each.entry for each in active), key=lambda each: each.name)
        if lock is None and not entries:
            return Result()
        lock = await self._write(lock, entries)
        self._validate(entries, {each.entry.name: (each.entry.kind, each.package) for each in active})
        logins: dict[str, tuple[str, ...]] = {}
        for each in active:
            logins[each.entry.source] = (*logins.get(each.entry.source, ()), *each.pull_secrets)
        # Together: a registry that does not answer holds up nobody but those who need what it has.
        outcomes = await asyncio.gather(*(self._outcome(need, logins) for need in needs(entries)))
        await self._set_status(lock, entries, [problem for problem, _ in outcomes if problem])
        errors = [error for _, error in outcomes if error is not None]
        self._waits = bool(errors)
        if unavailable := next((error for error in errors if error.retryable), None):
            raise unavailable
        return Result(requeue_after=_LOOK_AGAIN if errors else None)

    async def _outcome(self, need: Need, logins: Mapping[str, tuple[str, ...]]) -> tuple[str, PlanformError | None]:
        """What stands in the way of a need, and the error if looking again may help."""
        pull_secrets = tuple(dict.fromkeys(each for ask in need.asks for each in logins.get(ask.by, ())))
        try:
            async with time_limit(self._context.clock, _PATIENCE):
                return await self._get(need, pull_secrets), None
        except (PackageError, NoVersionFits) as error:
            return error.message, error
        except TimeoutError:
            late = RegistryUnavailable(f"{need.source}: the registry did not answer within {_PATIENCE:g} s")
            return late.message, late

    # -- what there is

    async def _active(self, lock: Object | None) -> list[_Active]:
        """The active revisions of which it is known what they need."""
        noted = {each["name"]: _dependencies(each) for each in (lock or {}).get("packages") or ()}
        found, digests = [], set()
        for revision_kind, kind in KINDS.items():
            for revision in (await self._client.list(revision_kind)).items:
                digests.add(annotations_of(revision).get(DIGEST_ANNOTATION))
                if not spec_of(revision, RevisionSpec).is_active or is_deleted(revision):
                    continue
                if (active := self._of(revision, kind, noted)) is not None:
                    found.append(active)
        self._needed = {digest: needed for digest, needed in self._needed.items() if digest in digests}
        return found

    def _of(
        self, revision: Object, kind: GroupVersionKind, noted: Mapping[str, tuple[Dependency, ...]]
    ) -> _Active | None:
        spec = spec_of(revision, RevisionSpec)
        try:
            reference = parse_reference(spec.image)
        except InvalidReference:
            return None  # a built-in by its short name, which nobody can need
        dependencies: tuple[Dependency, ...] | None = ()
        digest = annotations_of(revision).get(DIGEST_ANNOTATION)
        if digest and not spec.skip_dependency_resolution:
            # Nothing is fetched here. Until its own controller has it, what the Lock says of it holds: after a start
            # nothing is written, and what is not here, or not trusted, asks for nothing.
            dependencies = self._needed.get(digest, noted.get(name_of(revision)))
        if dependencies is None:
            return None
        version = reference.tag or reference.digest
        entry = Entry(name_of(revision), kind.kind, kind.api_version, reference.source, version, dependencies)
        return _Active(entry, label(revision, PACKAGE_LABEL), spec.pull_secrets)

    async def _write(self, lock: Object | None, entries: Sequence[Entry]) -> Object:
        wanted = [_in_lock(each) for each in entries]
        if lock is None:
            made = {"apiVersion": LOCK.api_version, "kind": LOCK.kind, "metadata": {"name": NAME}, "packages": wanted}
            try:
                return await self._client.create(made, manager=_MANAGER)
            except AlreadyExists:
                lock = await self._client.get(LOCK, NAME)
        if (lock.get("packages") or []) == wanted:
            return lock
        return await merge(self._client, lock, {"packages": wanted}, manager=_MANAGER)

    def _validate(self, entries: Sequence[Entry], packages: Mapping[str, tuple[str, str]]) -> None:
        before, self._dependency_statuses = (
            self._dependency_statuses,
            {each.name: dependency_status_of(each, entries) for each in entries},
        )
        for name, dependency_status in self._dependency_statuses.items():
            if before.get(name) != dependency_status:
                for callback in self._subscribers:
                    callback(*packages[name])

    # -- what is needed

    async def _get(self, need: Need, pull_secrets: Sequence[str]) -> str:
        """Install a package, or have another version of it; gives what stands in the way. Raises PackageError,
        NoVersionFits."""
        kind = next((each for each in KINDS.values() if each.kind == need.kind), None)
        if kind is None:
            return f"{need.source} is needed as {need.kind}, which is no kind of package"
        present = await self._present(kind, need.source)
        if present is not None and all(meets(_version(present), each.constraint) for each in need.asks):
            return ""  # it is on its way
        by_hand = present is not None and annotations_of(present).get(DEPENDENCY_ANNOTATION) != "dependency"
        if present is not None and by_hand and not self._raises:
            return _left_alone(present, need)
        version = choose_version(need, await self._tags(need, pull_secrets))
        if present is not None and by_hand and not self._lowers and is_below(version, _version(present)):
            return _left_alone(present, need)
        package = f"{need.source}{'@' if ':' in version else ':'}{version}"
        if present is None:
            return await self._create(kind, package, pull_secrets)
        before = _version(present)
        await merge(self._client, present, {"spec": {"package": package}}, manager=_MANAGER)
        asked = "; ".join(map(str, need.asks))
        message = f"changed from {before} to {version}: {asked}"
        self._context.events.record(present, "Normal", "UpdateDependency", message, by=NAME)
        return ""

    async def _create(self, kind: GroupVersionKind, package: str, pull_secrets: Sequence[str]) -> str:
        """Install a package, with the logins of those who need it."""
        name = package_name(parse_reference(package))
        logins = {"packagePullSecrets": [{"name": each} for each in pull_secrets]} if pull_secrets else {}
        wanted = {
            "apiVersion": kind.api_version,
            "kind": kind.kind,
            "metadata": {"name": name, "annotations": {DEPENDENCY_ANNOTATION: "dependency"}},
            "spec": {"package": package, **logins},
        }
        try:
            await self._client.create(wanted, manager=_MANAGER)
        except AlreadyExists:
            there = spec_of(await self._client.get(kind, name), PackageSpec).package
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
                if parse_reference(spec_of(package, PackageSpec).package).source == source:
                    found.append(package)
            except InvalidReference:
                continue
        return min(found, key=lambda each: DEPENDENCY_ANNOTATION in annotations_of(each), default=None)

    async def _tags(self, need: Need, pull_secrets: Sequence[str]) -> list[str]:
        """The versions there are; a function that ships with planform is whatever is asked for, unless a rule says
        where else it is to be had from."""
        source = self._contents.source
        use = self._context.builtin_functions
        is_ours = need.kind == FUNCTION.kind and stand_in(need.source, {}, use) is not None
        if is_ours and not await source.is_rewritten(need.source):
            return list(_mentioned(need))
        return await source.versions(need.source, pull_secrets=pull_secrets)

    async def _set_status(self, lock: Object, entries: Sequence[Entry], problems: Sequence[str]) -> None:
        if problems:
            resolved = XrCondition("Resolved", "False", "DependencyResolutionFailed", "; ".join(sorted(problems)))
        else:
            resolved = XrCondition("Resolved", "True", "DependencyResolutionSucceeded")
        now = self._context.timestamp()
        await set_status(self._client, lock, [resolved], now=now, manager=_MANAGER, packages=len(entries))


async def _read_lock(client: Client) -> Object | None:
    """The Lock; None as long as there was nothing to lock."""
    try:
        return await client.get(LOCK, NAME)
    except NotFound:
        return None


def _dependencies(package: Mapping[str, Any]) -> tuple[Dependency, ...]:
    """What an entry of the Lock says that a package needs."""
    from planform.packages.xpkg import Dependency

    return tuple(
        Dependency(str(each["package"]), str(each["kind"]), str(each["apiVersion"]), str(each["constraints"]))
        for each in package.get("dependencies") or ()
    )


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


def _left_alone(present: Object, need: Need) -> str:
    """What to say of a package that a user installed in a version that does not fit."""
    asked = "; ".join(map(str, need.asks))
    name = f'{present["kind"]} "{name_of(present)}"'
    return f"{name} is {_version(present)}: {asked}; change its spec.package"


def _version(package: Object) -> str:
    reference = parse_reference(spec_of(package, PackageSpec).package)
    return reference.tag or reference.digest


def _mentioned(need: Need) -> Iterator[str]:
    """Versions that a range may mean by the ones it names: these, and the next of each."""
    for ask in need.asks:
        for text in _MENTIONED.findall(ask.constraint) or ["0.0.0"]:
            yield text
            if (version := parse_semver(text)) is not None:
                steps = itertools.product((0, 1), repeat=3)
                yield from (f"v{version.major + a}.{version.minor + b}.{version.patch + c}" for a, b, c in steps)
