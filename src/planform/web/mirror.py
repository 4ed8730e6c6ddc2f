"""The fleet as one user may see it: a row for each XR, kept by watches, with what is counted of them.

There is one of these for each identity, however many pages look. It begins with the first that looks and ends a while
after the last has gone. Whole objects are not kept: a row is a few hundred bytes.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime
from random import Random
from typing import Final

from planform.api import names
from planform.api.kinds import GroupVersionKind, Object
from planform.client.informer import Informer, InformerEvent, tombstone
from planform.client.waits import Backoff
from planform.clock import Clock
from planform.errors import Forbidden, PlanformError
from planform.web import rights, rows
from planform.web.answers import XrRow
from planform.web.namespaces import Namespaces
from planform.web.upstream import Upstream
from planform.web.usage_series import Series

ROLLOUT_GROUP: Final = "rollout.planform.dev"
ROLLOUT: Final = GroupVersionKind(ROLLOUT_GROUP, "v1alpha1", "Rollout")
ROLLOUT_ACTION: Final = GroupVersionKind(ROLLOUT_GROUP, "v1alpha1", "RolloutAction")
ROLLOUT_POLICY: Final = GroupVersionKind(ROLLOUT_GROUP, "v1alpha1", "RolloutPolicy")
CHANGE_WINDOW: Final = GroupVersionKind(ROLLOUT_GROUP, "v1alpha1", "ChangeWindow")
PREVIEW: Final = GroupVersionKind(ROLLOUT_GROUP, "v1alpha1", "Preview")
PREVIEW_REPORT: Final = GroupVersionKind(ROLLOUT_GROUP, "v1alpha1", "PreviewReport")

_KEPT: Final[dict[str, GroupVersionKind]] = {
    "compositions": names.COMPOSITION,
    "functions": names.FUNCTION,
    "functionrevisions": names.FUNCTION_REVISION,
    "providers": names.PROVIDER,
    "configurations": names.CONFIGURATION,
    "rollouts": ROLLOUT,
    "previews": PREVIEW,
    "policies": ROLLOUT_POLICY,
    "windows": CHANGE_WINDOW,
    "operations": names.OPERATION,
    "cronoperations": names.CRON_OPERATION,
    "watchoperations": names.WATCH_OPERATION,
    "actionsets": names.ACTION_SET,
}
"""Topics whose objects are few, and are kept whole."""
HISTORY: Final = 20_000
"""Changes that a page which was away may still catch up with; older ones mean that it lists again."""
SYNC_SECONDS: Final = 20.0
RIGHTS_SECONDS: Final = 2.0
"""Between two times that the control plane is asked what may still be read."""
COMPOSITE: Final = "composite"
"""The category of all XRs, by which discovery tells of their kinds to users who may not read XRDs."""
DISCOVERY_SECONDS: Final = 30.0
MAX_WATCHES: Final = 200
"""Watches of single namespaces together; of what lies beyond, the page says that it is not shown."""
GATES: Final = 1000
_BACKOFF: Final = Backoff(first=0.2, maximum=15)

_logger = logging.getLogger(__name__)

Listener = Callable[[str, str], None]
"""Told the topic and id of everything that changes; does not wait."""


@dataclass(frozen=True, slots=True)
class Definition:
    """An XRD, as far as the fleet needs it."""

    name: str
    gvk: GroupVersionKind
    plural: str
    namespaced: bool


@dataclass(frozen=True, slots=True)
class RevisionBrief:
    name: str
    composition: str
    number: int
    released: str


@dataclass(frozen=True, slots=True)
class _Source:
    """Where what a topic holds comes from, and who takes it in."""

    gvk: GroupVersionKind
    deliver: Callable[[InformerEvent], None]


class Mirror:
    """What the watches told. Everything is read without waiting."""

    def __init__(self, upstream: Upstream, *, clock: Clock, rng: Random, epoch: str) -> None:
        self.upstream = upstream
        self.epoch = epoch
        self.sequence = 0
        self.rows: dict[str, XrRow] = {}
        self.definitions: dict[str, Definition] = {}
        self.revisions: dict[str, RevisionBrief] = {}
        self.numbers: dict[str, int] = {}
        self.objects: dict[str, dict[str, Object]] = {topic: {} for topic in _KEPT}
        self.health: Counter[tuple[str, str]] = Counter()  # (kind.group, health)
        self.usage: Counter[tuple[str, str, str]] = Counter()  # (kind.group, composition, revision)
        self.by_composition: dict[str, Counter[str]] = {}
        self.series = Series()
        self.measured: dict[tuple[str, str, str], deque[tuple[int, float]]] = {}  # by rollout, wave and gate
        self._history: deque[tuple[int, str, str]] = deque(maxlen=HISTORY)
        self._listeners: set[Listener] = set()
        self._clock = clock
        self._rng = rng
        self._tasks: dict[tuple[str, str], asyncio.Task[None]] = {}  # by topic and namespace; "" is all of them
        self._sources: dict[str, _Source] = {}
        self._lost: set[str] = set()  # topics that may not be read in all namespaces
        self._informers: dict[tuple[str, str], Informer] = {}
        self._namespaces = Namespaces(upstream, clock)
        self._rights_round = asyncio.Lock()
        self._discovered_at = float("-inf")
        self.narrowed: dict[GroupVersionKind, tuple[str, ...]] = {}  # kinds that are read in these namespaces only
        self.beyond: dict[GroupVersionKind, int] = {}  # and in how many more they could be

    # -- life

    def start(self) -> None:
        self._watch("definitions", names.XRD, self._definition)
        self._watch("revisions", names.COMPOSITION_REVISION, self._revision)
        for topic, gvk in _KEPT.items():
            self._watch(topic, gvk, self._keeper(topic))
        self._tasks["rights", ""] = asyncio.create_task(self._keep_to_rights(), name="dashboard rights")

    async def synced(self) -> bool:
        """Wait until all that can be read has been read once; False if that takes too long."""
        try:
            async with asyncio.timeout(SYNC_SECONDS):
                await self._first(("definitions", ""))
                await asyncio.gather(*map(self._first, list(self._informers)))
                for _ in range(2):  # where XRDs are refused, the first look finds the kinds and the second their XRs
                    if any(isinstance(each, Forbidden) for each in self.failures().values()):
                        await self._look_at_rights()
                        await asyncio.gather(*map(self._first, list(self._informers)))
        except TimeoutError:
            return False
        return True

    async def _first(self, place: tuple[str, str]) -> None:
        """A kind that is refused or not served is as synced as it will ever be."""
        informer = self._informers.get(place)
        if informer is None:
            return
        waiting = asyncio.ensure_future(informer.fully_synced())
        try:
            while not informer.is_fully_synced and not informer.restarts:
                await asyncio.wait({waiting}, timeout=0.05)
        finally:
            waiting.cancel()

    async def close(self) -> None:
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)

    @property
    def is_live(self) -> bool:
        """Whether the control plane is heard, by whatever may be read; not yet tried counts as heard."""
        return any(
            informer.is_hearing or (not informer.is_synced and not informer.restarts)
            for informer in self._informers.values()
        )

    @property
    def is_refused(self) -> bool:
        """Whether nothing at all may be read any more."""
        return bool(self._lost) and not self._informers

    def failures(self) -> dict[GroupVersionKind, PlanformError]:
        return dict(self.upstream.client.failures)

    # -- telling

    def listen(self, listener: Listener) -> Callable[[], None]:
        self._listeners.add(listener)
        return lambda: self._listeners.discard(listener)

    def since(self, sequence: int) -> Iterable[tuple[str, str]] | None:
        """Topics and ids that changed after this; None if nobody knows any more."""
        if sequence > self.sequence or (self._history and sequence < self._history[0][0] - 1):
            return None
        if not self._history and sequence != self.sequence:
            return None
        return [(topic, id_) for number, topic, id_ in self._history if number > sequence]

    def _changed(self, topic: str, id_: str) -> None:
        self.sequence += 1
        self._history.append((self.sequence, topic, id_))
        for listener in list(self._listeners):
            listener(topic, id_)

    # -- hearing

    def _watch(self, topic: str, gvk: GroupVersionKind, deliver: Callable[[InformerEvent], None]) -> None:
        self._sources[topic] = _Source(gvk, deliver)
        self._open(topic, "")

    def _open(self, topic: str, namespace: str) -> None:
        source = self._sources[topic]
        informer = Informer(
            self.upstream.client,
            source.gvk,
            source.deliver,
            clock=self._clock,
            rng=self._rng,
            namespace=namespace,
            backoff=_BACKOFF,
        )
        self._informers[topic, namespace] = informer
        name = f"dashboard watch {source.gvk} {namespace}".rstrip()
        self._tasks[topic, namespace] = asyncio.create_task(informer.run(), name=name)

    def _shut(self, topic: str, namespace: str) -> None:
        """End a watch, and let go of what it told."""
        source = self._sources[topic]
        self._tasks.pop((topic, namespace)).cancel()
        informer = self._informers.pop((topic, namespace))
        for key in informer.keys:
            gone = tombstone(source.gvk, key, informer.uid_of(key), "")
            source.deliver(InformerEvent("DELETED", gone))

    async def _keep_to_rights(self) -> None:
        """Let go of what may not be read any more, and look again at what may."""
        while True:
            await self._clock.sleep(RIGHTS_SECONDS)
            await self._look_at_rights()

    async def _look_at_rights(self) -> None:
        async with self._rights_round:
            sources = {topic: source for topic, source in self._sources.items() if self._is_known(topic, source)}
            refused = await rights.lost(self.upstream, {source.gvk for source in sources.values()})
            if refused is None:
                return
            for topic, source in sources.items():
                if self._sources.get(topic) is not source:
                    continue  # its definition went meanwhile
                if source.gvk in refused and topic not in self._lost:
                    self._lose(topic, source)
                elif source.gvk not in refused and topic in self._lost:
                    self._regain(topic, source)
            if "definitions" in self._lost:
                await self._discover()
            await self._narrow()

    def _is_known(self, topic: str, source: _Source) -> bool:
        """Whether a topic was read once, or refused."""
        if topic in self._lost or isinstance(self.upstream.client.failures.get(source.gvk), Forbidden):
            return True
        informer = self._informers.get((topic, ""))
        return informer is not None and informer.is_synced

    def _lose(self, topic: str, source: _Source) -> None:
        self._lost.add(topic)
        if not isinstance(self.upstream.client.failures.get(source.gvk), Forbidden):
            self.upstream.client.failures[source.gvk] = Forbidden(f"you may not list {source.gvk.kind} any more")
        if topic == "definitions":  # the kinds are still there: discovery tells of them
            self._tasks.pop((topic, "")).cancel()
            del self._informers[topic, ""]
            self._discovered_at = float("-inf")
        else:
            self._shut(topic, "")

    def _regain(self, topic: str, source: _Source) -> None:
        self._lost.discard(topic)
        self.upstream.client.failures.pop(source.gvk, None)
        self.narrowed.pop(source.gvk, None)
        self.beyond.pop(source.gvk, None)
        for each, namespace in list(self._informers):
            if each == topic:
                self._shut(topic, namespace)
        self._open(topic, "")

    async def _narrow(self) -> None:
        """Of kinds that may not be read everywhere, watch those namespaces in which they may."""
        wanted = {}
        for topic in self._lost:
            try:
                if (await self.upstream.client.kind(self._sources[topic].gvk)).namespaced:
                    wanted[topic] = self._sources[topic].gvk
            except PlanformError:
                continue
        readable = await self._namespaces.readable(set(wanted.values()))
        room = MAX_WATCHES
        for topic, gvk in sorted(wanted.items()):
            if topic not in self._lost or gvk not in readable:
                continue  # its definition went meanwhile
            shown = readable[gvk][:room]
            room -= len(shown)
            self.narrowed[gvk], self.beyond[gvk] = shown, len(readable[gvk]) - len(shown)
            for namespace in [held for each, held in self._informers if each == topic and held not in shown]:
                self._shut(topic, namespace)
            for namespace in shown:
                if (topic, namespace) not in self._informers:
                    self._open(topic, namespace)

    async def _discover(self) -> None:
        """The kinds of XRs for a user who may not read XRDs: discovery is for everybody."""
        now = self._clock.monotonic()
        if now - self._discovered_at < DISCOVERY_SECONDS:
            return
        try:
            kinds = [kind for kind in await self.upstream.kinds(refresh=True) if COMPOSITE in kind.categories]
        except PlanformError:
            return
        self._discovered_at = now
        served: dict[str, Definition] = {}
        for kind in kinds:  # of several versions the first is the preferred one
            served.setdefault(kind.resource, Definition(kind.resource, kind.gvk, kind.plural, kind.namespaced))
        for name in self.definitions.keys() - served.keys():
            self._define(name, None)
        for name, definition in served.items():
            self._define(name, definition)

    def _keeper(self, topic: str) -> Callable[[InformerEvent], None]:
        kept = self.objects[topic]

        def deliver(event: InformerEvent) -> None:
            if event.type == "BOOKMARK":
                return
            id_ = str(event.key)
            if event.type == "DELETED":
                kept.pop(id_, None)
            else:
                event.object.get("metadata", {}).pop("managedFields", None)
                kept[id_] = event.object
                if topic == "rollouts":
                    self._measure(event.object)
            self._changed(topic, id_)

        return deliver

    def _measure(self, rollout: Object) -> None:
        """Remember what gates measured: a status holds the last value only, and a picture wants those before it."""
        name = rows.text(rows.mapping(rollout.get("metadata")).get("name"))
        for wave in map(rows.mapping, rows.sequence(rows.mapping(rollout.get("status")).get("waves"))):
            for gate in map(rows.mapping, rows.sequence(wave.get("gates"))):
                try:
                    value = float(rows.text(gate.get("value")))
                except ValueError:
                    continue
                key = (name, rows.text(wave.get("name")), rows.text(gate.get("name")))
                if key not in self.measured and len(self.measured) >= GATES:
                    continue
                series = self.measured.setdefault(key, deque(maxlen=60))
                if not series or series[-1] != (rows.number(gate.get("measured")), value):
                    series.append((rows.number(gate.get("measured")), value))

    def _definition(self, event: InformerEvent) -> None:
        if event.type == "BOOKMARK":
            return
        self._define(event.key.name, None if event.type == "DELETED" else definition_of(event.object))

    def _define(self, name: str, after: Definition | None) -> None:
        before = self.definitions.get(name)
        if before == after:
            return
        if before is not None:
            self._forget(before)
            del self.definitions[name]
        if after is not None:
            self.definitions[name] = after
            self._watch(f"xrs {name}", after.gvk, self._xr_handler(after))
        self._changed("definitions", name)

    def _forget(self, definition: Definition) -> None:
        topic = f"xrs {definition.name}"
        for each, namespace in list(self._informers):
            if each == topic:
                self._shut(topic, namespace)
        self._sources.pop(topic, None)
        self._lost.discard(topic)
        self.narrowed.pop(definition.gvk, None)
        self.beyond.pop(definition.gvk, None)
        self.upstream.client.failures.pop(definition.gvk, None)
        for id_ in [each.id for each in self.rows.values() if (each.group, each.kind) == group_kind(definition)]:
            self._put(id_, None)

    def _revision(self, event: InformerEvent) -> None:
        if event.type == "BOOKMARK":
            return
        name = event.key.name
        if event.type == "DELETED":
            self.revisions.pop(name, None)
            self.numbers.pop(name, None)
        else:
            composition, number, released = rows.revision_brief(event.object)
            self.revisions[name] = RevisionBrief(name, composition, number, released)
            self.numbers[name] = number
        self._changed("revisions", name)

    def _xr_handler(self, definition: Definition) -> Callable[[InformerEvent], None]:
        group, kind = group_kind(definition)

        def deliver(event: InformerEvent) -> None:
            if event.type == "BOOKMARK":
                return
            id_ = rows.xr_id(group, kind, event.key.namespace, event.key.name)
            self._put(id_, None if event.type == "DELETED" else rows.xr_row(event.object, self.numbers))

        return deliver

    def _put(self, id_: str, row: XrRow | None) -> None:
        before = self.rows.pop(id_, None)
        if before is not None:
            self._count(before, -1)
        if row is not None:
            self.rows[id_] = row
            self._count(row, 1)
        for composition in {each.composition for each in (before, row) if each is not None and each.composition}:
            self.series.note(composition, self.by_composition[composition], self._clock.now().timestamp())
        if row != before:
            self._changed("xrs", id_)

    def _count(self, row: XrRow, by: int) -> None:
        kind = f"{row.kind}.{row.group}"
        self.health[kind, row.health] += by
        self.usage[kind, row.composition, row.revision] += by
        self.by_composition.setdefault(row.composition, Counter())[row.revision] += by

    # -- asking

    def now(self) -> datetime:
        return self._clock.now()

    def revisions_of(self, composition: str) -> list[RevisionBrief]:
        found = [each for each in self.revisions.values() if each.composition == composition]
        return sorted(found, key=lambda each: each.number)

    def newest_of(self, composition: str) -> RevisionBrief | None:
        return max(
            (each for each in self.revisions.values() if each.composition == composition),
            key=lambda each: each.number,
            default=None,
        )

    def row(self, id_: str) -> XrRow | None:
        """A row as it is shown now: its revision's number may have become known after it."""
        found = self.rows.get(id_)
        return None if found is None else self.numbered(found)

    def numbered(self, row: XrRow) -> XrRow:
        number = self.numbers.get(row.revision, 0)
        if number == row.revision_number:
            return row
        import msgspec

        return msgspec.structs.replace(row, revision_number=number)

    def definition_for(self, kind: str) -> Definition | None:
        """By `KIND.GROUP`, as links name it."""
        return next((each for each in self.definitions.values() if f"{each.gvk.kind}.{each.gvk.group}" == kind), None)

    def xr_kinds(self) -> frozenset[tuple[str, str]]:
        return frozenset(group_kind(each) for each in self.definitions.values())


def group_kind(definition: Definition) -> tuple[str, str]:
    return definition.gvk.group, definition.gvk.kind


def definition_of(xrd: Object) -> Definition | None:
    """None for an XRD that names no served version."""
    spec = rows.mapping(xrd.get("spec"))
    named = rows.mapping(spec.get("names"))
    versions = [each for each in rows.sequence(spec.get("versions")) if isinstance(each, dict) and each.get("served")]
    chosen = next((each for each in versions if each.get("referenceable")), versions[0] if versions else None)
    if chosen is None or not named.get("kind"):
        return None
    gvk = GroupVersionKind(rows.text(spec.get("group")), rows.text(chosen.get("name")), rows.text(named.get("kind")))
    return Definition(
        name=rows.text(rows.mapping(xrd.get("metadata")).get("name")),
        gvk=gvk,
        plural=rows.text(named.get("plural")),
        namespaced=spec.get("scope") == "Namespaced",
    )
