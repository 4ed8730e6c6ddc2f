"""All XRs of one XRD, as their controller remembers them: what wakes each, and what its last reconcile rested on."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Protocol

from planform.api.kinds import GroupVersionKind, Object, gvk
from planform.api.metadata import generation_of, name_of, resource_version_of
from planform.api.xr import Style
from planform.client.informer import InformerEvent, ObjectKey, version_number
from planform.clock import Clock
from planform.definitions.crds import scope_of
from planform.journal.records import RunSummary
from planform.pipeline.plan import identity
from planform.reconcile.sources import Source
from planform.xrs.dependencies import Dependency, DependencyIndex, Watched
from planform.xrs.last_run import LastRun, decode, encode
from planform.xrs.thrash import ThrashGuard

ANY_COMPOSITION = "*"
"""What an XR follows that has found no Composition yet."""

_COALESCING_SECONDS = 0.005
"""Resources of one XR tend to change together; they are looked at together."""

_ANY_VERSION = float("inf")

_REMEMBERED_WRITES = 20_000
"""So many objects are recognised when the watch tells of our own writes; forgetting one costs a little urgency."""


_Identity = tuple[str, str, str, str]


@dataclass(frozen=True)
class Definition:
    """An XRD as the controller of its XRs needs it."""

    name: str
    generation: int
    spec: Mapping[str, Any]
    kind: GroupVersionKind
    style: Style
    namespaced: bool

    @cached_property
    def group_kind(self) -> str:
        """`XApp.example.org`: the kind, whatever its version."""
        return f"{self.kind.kind}.{self.kind.group}"

    @classmethod
    def of(cls, xrd: Object) -> Definition:
        spec = xrd["spec"]
        version = next(each["name"] for each in spec["versions"] if each.get("referenceable"))
        scope = scope_of(xrd)
        return cls(
            name=name_of(xrd),
            generation=generation_of(xrd),
            spec=spec,
            kind=gvk(f"{spec['group']}/{version}", spec["names"]["kind"]),
            style="legacy" if scope == "LegacyCluster" else "modern",
            namespaced=scope == "Namespaced",
        )


class Memory(Protocol):
    """Keeps small states beyond the life of the process, if it can; the journal does."""

    def remember(self, uid: str, kind: str, state: bytes, /) -> None: ...

    def forget(self, uid: str, /) -> None: ...

    async def forget_kind(self, kind: str, /) -> object: ...

    async def retain(self, kinds: Collection[str], /) -> object: ...

    async def last_runs(self, kind: str, /) -> Mapping[str, bytes]: ...

    async def latest(self, kind: str, /) -> Sequence[RunSummary]: ...


@dataclass
class _Known:
    """One XR. Its last run is kept encoded: ten thousand of them are small then."""

    uid: str
    last_run: bytes = b""
    follows: str = ""
    functions: frozenset[str] = frozenset()


class _TrackedWrite:
    """See `XrIndex.tracked_write`. Several surround every reconcile that writes, so this is no generator."""

    __slots__ = ("_known", "_version", "_which")

    def __init__(self, known: OrderedDict[_Identity, float], which: _Identity) -> None:
        self._known = known
        self._which = which
        self._version: float | None = None

    def __enter__(self) -> Callable[[Object], None]:
        known = self._known
        known[self._which] = _ANY_VERSION
        known.move_to_end(self._which)
        if len(known) > _REMEMBERED_WRITES:
            known.popitem(last=False)
        return self._done

    def __exit__(self, *_: object) -> None:
        if self._version is None:
            self._known.pop(self._which, None)
        else:
            self._known[self._which] = self._version

    def _done(self, written: Object) -> None:
        self._version = version_number(resource_version_of(written))


@dataclass
class XrIndex:
    """The index behind one XR controller. Nothing here waits but `restore`."""

    definition: Definition
    clock: Clock
    memory: Memory | None = None
    shortcuts: bool = True
    """See `ControllerContext`."""
    index: DependencyIndex[ObjectKey] = field(default_factory=DependencyIndex)
    guard: ThrashGuard[ObjectKey] = field(init=False)
    _known: dict[ObjectKey, _Known] = field(default_factory=dict)
    _followers: dict[str, set[ObjectKey]] = field(default_factory=dict)
    _users: dict[str, set[ObjectKey]] = field(default_factory=dict)
    _sources: dict[Watched, Source[ObjectKey]] = field(default_factory=dict)
    _restored: set[str] = field(default_factory=set)  # uids that an earlier process remembered; they may be gone
    _written: OrderedDict[_Identity, float] = field(default_factory=OrderedDict)

    def __post_init__(self) -> None:
        self.guard = ThrashGuard(self.clock)

    def __len__(self) -> int:
        return len(self._known)

    async def restore(self) -> None:
        """Take over what an earlier process remembered, so that nothing has to be run again to know who wakes whom."""
        if self.memory is None:
            return
        kind = self.definition.group_kind
        self._restored = {run.uid for run in await self.memory.latest(kind)}
        for uid, data in (await self.memory.last_runs(kind)).items():
            self._restored.add(uid)
            last_run = decode(data)
            if last_run is None:
                continue
            key = ObjectKey(last_run.namespace, last_run.name)
            self._known[key] = _Known(uid, data)
            self.index.track(key, last_run.dependencies)

    def last_run(self, key: ObjectKey, uid: str) -> LastRun | None:
        """What is remembered of this very XR, not of a namesake before it."""
        if not self.shortcuts:
            return None
        known = self._known.get(key)
        return decode(known.last_run) if known is not None and known.uid == uid and known.last_run else None

    def remember(self, key: ObjectKey, uid: str, last_run: LastRun) -> None:
        known = self._know(key, uid)
        data = encode(last_run)
        self.index.track(key, last_run.dependencies)
        if data == known.last_run:
            return
        known.last_run = data
        if self.memory is not None and last_run.settled:
            self.memory.remember(uid, self.definition.group_kind, data)

    def add_dependency(self, key: ObjectKey, uid: str, dependency: Dependency) -> None:
        """Wake the XR from now on when this changes: a reconcile is about to read it, and says at its end if it
        counts."""
        self._know(key, uid)
        self.index.add(key, dependency)

    def follow(self, key: ObjectKey, uid: str, composition: str, functions: Collection[str] | None = None) -> None:
        """Wake the XR when this Composition's revisions change (not if empty), or one of these functions'; of which it
        stays the same ones as long as that is not known."""
        known = self._know(key, uid)
        if known.follows != composition:
            _move(self._followers, key, {known.follows} - {""}, {composition} - {""})
            known.follows = composition
        wanted = known.functions if functions is None else frozenset(functions)
        if known.functions != wanted:
            _move(self._users, key, known.functions - wanted, wanted - known.functions)
            known.functions = wanted

    def forget(self, key: ObjectKey) -> None:
        known = self._known.pop(key, None)
        self.index.forget(key)
        self.guard.forget(key)
        if known is None:
            return
        _move(self._followers, key, {known.follows} - {""}, set())
        _move(self._users, key, known.functions, set())
        if self.memory is not None:
            self.memory.forget(known.uid)

    def tracked_write(self, obj: Mapping[str, Any]) -> AbstractContextManager[Callable[[Object], None]]:
        """A reconcile of ours writes this object in the block, and gives what became of it to the function it gets;
        what is told of the object meanwhile, or up to that version, is no news."""
        return _TrackedWrite(self._written, identity(obj))

    def is_self_triggered(self, change: InformerEvent) -> bool:
        """Whether a change only tells of what a reconcile of ours wrote. To be wrong here costs only urgency."""
        written = self._written.get(identity(change.object)) if self.shortcuts else None
        return written is not None and version_number(resource_version_of(change.object)) <= written

    def followers(self, composition: str) -> Iterable[ObjectKey]:
        return (*self._followers.get(composition, ()), *self._followers.get(ANY_COMPOSITION, ()))

    def users(self, functions: Iterable[str]) -> Iterable[ObjectKey]:
        return dict.fromkeys(key for name in functions for key in self._users.get(name, ()))

    def forget_missing(self, live: Collection[str]) -> None:
        """Forget what was restored of XRs that no longer exist: the process that saw them go may not have come to it.

        `live` are the uids of all that have existed ever since `restore`.
        """
        gone, self._restored = self._restored.difference(live), set()
        for key in [key for key, known in self._known.items() if known.uid in gone]:
            self.forget(key)
        if self.memory is not None:
            for uid in gone:
                self.memory.forget(uid)

    def sources(self) -> tuple[set[Source[ObjectKey]], set[Source[ObjectKey]]]:
        """The watches that are wanted now, and those that no XR needs any more."""
        wanted = self.index.watched()
        if wanted == self._sources.keys():
            return set(), set()
        gone = {self._sources.pop(each) for each in self._sources.keys() - wanted}
        new = {each: self._source(each) for each in wanted - self._sources.keys()}
        self._sources |= new
        return set(new.values()), gone

    def unwatch_all(self) -> None:
        """A new controller watches nothing yet."""
        self._sources.clear()

    def _source(self, watched: Watched) -> Source[ObjectKey]:
        def to_xrs(change: InformerEvent) -> Iterable[ObjectKey]:
            return self.index.interested(change.object, watched.gvk)

        return Source(
            watched.gvk,
            to_xrs,
            namespace=watched.namespace,
            is_self_triggered=self.is_self_triggered,
            coalescing_seconds=_COALESCING_SECONDS,
        )

    def _know(self, key: ObjectKey, uid: str) -> _Known:
        known = self._known.get(key)
        if known is None or known.uid != uid:
            if known is not None:
                self.forget(key)
            known = self._known[key] = _Known(uid)
        return known


def _move(groups: dict[str, set[ObjectKey]], key: ObjectKey, gone: Collection[str], new: Collection[str]) -> None:
    for name in gone:
        members = groups.get(name)
        if members is not None:
            members.discard(key)
            if not members:
                del groups[name]
    for name in new:
        groups.setdefault(name, set()).add(key)
