"""Get, list and watch: from the committed view only, as bytes wherever the stored bytes will do."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import orjson

from planform.api.kinds import Object
from planform.apiserver.crds.registry import ServedKind
from planform.apiserver.verbs.core import Core, decode, decode_any, key_of, raw_all, raw_any
from planform.apiserver.verbs.requests import Selection
from planform.apiserver.verbs.selection import Matches, compile_selection, single_name
from planform.errors import BadRequest, Expired, NotFound, Timeout
from planform.store import Change, ChangeType, Compacted, Entry, Key, Lagging, Snapshot

_SLICE = 500
_PINNED_LISTS = 64
_PIN_SECONDS = 300.0
_TOO_OLD_LIST = "The provided continue parameter is too old to display a consistent list result."


@dataclass(frozen=True, slots=True)
class Options:
    """How much of a list, and from when."""

    limit: int = 0
    continue_token: str = ""
    resource_version: str = ""
    match: Literal["", "Exact", "NotOlderThan"] = ""


@dataclass(slots=True)
class Page:
    """Entries in order of namespace and name, as of `rv`."""

    entries: list[tuple[Key, Entry]]
    rv: int
    continue_token: str = ""
    remaining: int | None = None


async def get(core: Core, served: ServedKind, namespace: str, name: str) -> bytes:
    entry = core.store.get(key_of(served, namespace, name))
    if entry is None:
        raise NotFound.of(served.kind.group, served.kind.plural, name)
    return await raw_any(core, served, entry)


async def get_object(core: Core, served: ServedKind, namespace: str, name: str) -> Object:
    entry = core.store.get(key_of(served, namespace, name))
    if entry is None:
        raise NotFound.of(served.kind.group, served.kind.plural, name)
    if served.conversion is None:
        return decode(served, entry)
    return (await decode_any(core, served, [entry]))[0]


async def list_entries(core: Core, served: ServedKind, selection: Selection, options: Options) -> Page:
    """One page. Pages of one list show one moment: the first pins it, `continue` returns to it."""
    matches = compile_selection(served, selection)
    namespace = selection.namespace or None
    if options.continue_token:
        snapshot, after = await _continued(core, served, namespace, options)
        return await _page(core, served, namespace, snapshot, after, matches, options.limit)
    version = options.resource_version
    _not_older_than(core, version)
    if options.match == "Exact" or (options.limit > 0 and version not in ("", "0") and not options.match):
        snapshot = await _exactly(core, served, namespace, int(version))
        return await _page(core, served, namespace, snapshot, None, matches, options.limit)
    name = single_name(selection)
    if name and (namespace is not None or not served.kind.namespaced):
        key = key_of(served, selection.namespace, name)
        entry = core.store.get(key)
        found = entry is not None and (matches is None or matches(key, entry.value))
        return Page([(key, entry)] if entry is not None and found else [], core.store.revision)
    if matches is None and options.limit <= 0:
        return Page(core.store.list(served.resource, namespace), core.store.revision)
    return await _page(
        core, served, namespace, core.store.snapshot(served.resource, namespace), None, matches, options.limit
    )


async def _exactly(core: Core, served: ServedKind, namespace: str | None, rv: int) -> Snapshot:
    if rv == core.store.revision:
        return core.store.snapshot(served.resource, namespace)
    try:
        return await core.store.list_at(served.resource, namespace, rv)
    except Compacted as error:
        raise Expired("The resourceVersion for the provided list is too old.") from error


async def _continued(core: Core, served: ServedKind, namespace: str | None, options: Options) -> tuple[Snapshot, Key]:
    if options.resource_version not in ("", "0"):
        raise BadRequest("specifying resource version is not allowed when using continue")
    rv, after = decode_token(options.continue_token)
    after = after._replace(resource=served.resource)
    if rv == -1:
        return core.store.snapshot(served.resource, namespace), after
    if rv > core.store.revision:
        raise BadRequest(
            f"invalid continue token: continue key is not valid: resource version {rv} has not been reached"
        )
    pinned = pins(core).get((served.resource, namespace, rv))
    if pinned is not None:
        return pinned, after
    try:
        return await core.store.list_at(served.resource, namespace, rv), after
    except Compacted as error:
        raise Expired(
            f"{_TOO_OLD_LIST} You can start a new list without the continue parameter, or use the continue "
            "token in this response to retrieve the remainder of the results, which may be inconsistent.",
            metadata={"continue": encode_token(-1, after)},
        ) from error


async def _page(
    core: Core,
    served: ServedKind,
    namespace: str | None,
    snapshot: Snapshot,
    after: Key | None,
    matches: Matches | None,
    limit: int,
) -> Page:
    found: list[tuple[Key, Entry]] = []
    more = False
    if matches is None:
        found = snapshot.page(after, limit if limit > 0 else None)
        more = bool(found) and limit > 0 and snapshot.remaining(found[-1][0]) > 0
    else:
        while rows := snapshot.page(after, _SLICE):
            after = rows[-1][0]
            found += [row for row in rows if matches(row[0], row[1].value)]
            if limit > 0 and len(found) > limit:
                del found[limit:]
                more = True
                break
            await asyncio.sleep(0)
    if not more:
        return Page(found, snapshot.rv)
    pins(core).put((served.resource, namespace, snapshot.rv), snapshot)
    last = found[-1][0]
    remaining = snapshot.remaining(last) if matches is None else None
    return Page(found, snapshot.rv, encode_token(snapshot.rv, last), remaining)


def _not_older_than(core: Core, resource_version: str) -> None:
    if resource_version in ("", "0"):
        return
    try:
        wanted = int(resource_version)
    except ValueError as error:
        raise BadRequest(f'Invalid value: "{resource_version}": resource versions are decimal numbers') from error
    if wanted > core.store.revision:
        current = core.store.revision
        raise Timeout(
            f"Too large resource version: {wanted}, current: {current}",
            details={
                "causes": [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}],
                "retryAfterSeconds": 1,
            },
        )


def encode_token(rv: int, after: Key) -> str:
    """Where the next page starts, as clients carry it: opaque to them, plain JSON inside."""
    start = f"{after.namespace}/{after.name}\0" if after.namespace else f"{after.name}\0"
    text = orjson.dumps({"v": "meta.k8s.io/v1", "rv": rv, "start": start})
    return base64.urlsafe_b64encode(text).rstrip(b"=").decode()


def decode_token(token: str) -> tuple[int, Key]:
    try:
        padded = token.encode() + b"=" * (-len(token) % 4)
        fields: Any = orjson.loads(base64.urlsafe_b64decode(padded))
        rv, start = fields["rv"], fields["start"]
        if fields["v"] != "meta.k8s.io/v1" or type(rv) is not int or type(start) is not str:
            raise ValueError("unexpected fields")
    except (ValueError, KeyError, TypeError) as error:
        raise BadRequest(
            "invalid continue token: continue key is not valid: it is not one that this server gave out"
        ) from error
    namespace, slash, name = start.rstrip("\0").rpartition("/")
    return rv, Key("", namespace if slash else "", name)


@dataclass
class PinnedLists:
    """Lists that paging clients may come back to: byte references, bounded in number and age."""

    core: Core
    _lists: dict[tuple[str, str | None, int], tuple[float, Snapshot]] = field(default_factory=dict)

    def get(self, key: tuple[str, str | None, int]) -> Snapshot | None:
        self._expire()
        found = self._lists.get(key)
        return found[1] if found is not None else None

    def put(self, key: tuple[str, str | None, int], snapshot: Snapshot) -> None:
        self._expire()
        self._lists.pop(key, None)
        self._lists[key] = (self.core.clock.monotonic() + _PIN_SECONDS, snapshot)
        while len(self._lists) > _PINNED_LISTS:
            del self._lists[next(iter(self._lists))]

    def _expire(self) -> None:
        now = self.core.clock.monotonic()
        for key in [key for key, (deadline, _) in self._lists.items() if deadline < now]:
            del self._lists[key]


def pins(core: Core) -> PinnedLists:
    if core.pinned is None:
        core.pinned = PinnedLists(core)
    return core.pinned


class Emission(NamedTuple):
    """One event on its way to a watcher. `change` is set when `value` is its own, so that encodings are shared."""

    type: str
    value: bytes
    change: Change | None = None


@dataclass(frozen=True, slots=True)
class WatchOptions:
    """From when, for how long, and with what besides changes."""

    resource_version: str = ""
    send_initial_events: bool | None = None
    bookmarks: bool = False
    timeout: float | None = None
    bookmark_every: float = 60.0
    buffer: int = 1000
    gather: float = 0.0
    """In a burst, seconds to let more changes gather before the next batch; the first of a burst never waits."""


async def watch(  # noqa: C901  (one stream from its first event to its end)
    core: Core, served: ServedKind, selection: Selection, options: WatchOptions
) -> AsyncGenerator[list[Emission], None]:
    """Batches of events, as many as are ready. Ends at the timeout, or when the reader was too slow.

    Raises Expired when the wanted history is gone. An empty batch never occurs.
    """
    matches = compile_selection(served, selection)
    namespace = selection.namespace or None
    since = _watch_start(options)
    initial = since is None
    if options.send_initial_events is not None:
        initial = options.send_initial_events
        since = None if initial or since is None else since
    start = core.store.revision if initial or since is None else since
    try:
        stream = core.store.watch(served.resource, namespace, start, buffer=options.buffer)
    except Compacted as error:
        raise _too_old(start, core) from error
    loop = asyncio.get_running_loop()
    deadline = loop.time() + options.timeout if options.timeout is not None else None
    sent = 0.0
    async with stream:
        if initial:
            snapshot = core.store.snapshot(served.resource, namespace)
            async for batch in _initial_events(core, served, snapshot, matches):
                yield batch
            if options.send_initial_events and options.bookmarks:
                yield [_bookmark(served, start, ended_initial_events=True)]
        while True:
            wait = options.bookmark_every if options.bookmarks else None
            if deadline is not None:
                left = deadline - loop.time()
                if left <= 0:
                    break
                wait = left if wait is None else min(wait, left)
            try:
                async with asyncio.timeout(wait):
                    changes = await anext(stream)
            except TimeoutError:
                if options.bookmarks:
                    yield [_bookmark(served, stream.position)]
                continue
            except (StopAsyncIteration, Lagging):
                return
            except Compacted as error:
                raise _too_old(start, core) from error
            emissions = await _emissions(core, served, changes, matches)
            if emissions:
                yield emissions
                if options.gather:
                    now = loop.time()
                    if now - sent < 4 * options.gather:
                        await asyncio.sleep(options.gather)
                    sent = now


def _watch_start(options: WatchOptions) -> int | None:
    if options.resource_version in ("", "0"):
        return None
    try:
        return int(options.resource_version)
    except ValueError as error:
        raise BadRequest(
            f'Invalid value: "{options.resource_version}": resource versions are decimal numbers'
        ) from error


def _too_old(rv: int, core: Core) -> Expired:
    return Expired(f"too old resource version: {rv} ({core.store.revision})")


async def _initial_events(
    core: Core, served: ServedKind, snapshot: Snapshot, matches: Matches | None
) -> AsyncIterator[list[Emission]]:
    for rows in snapshot.slices(_SLICE):
        entries = [entry for key, entry in rows if matches is None or matches(key, entry.value)]
        if entries:
            yield [Emission("ADDED", value) for value in await raw_all(core, served, entries)]
        await asyncio.sleep(0)


async def _emissions(
    core: Core, served: ServedKind, changes: Sequence[Change], matches: Matches | None
) -> list[Emission]:
    emissions: list[Emission] = []
    for change in changes:
        seen_as = change.type.value
        value: bytes = change.value
        if matches is not None:
            before = change.previous is not None and matches(change.key, change.previous)
            after = change.type is not ChangeType.DELETED and matches(change.key, change.value)
            if not before and not after:
                continue
            if change.type is ChangeType.MODIFIED and before and not after:
                emissions.append(Emission("DELETED", await _restamped(core, served, change)))
                continue
            if change.type is ChangeType.MODIFIED and not before:
                seen_as = "ADDED"
        if served.is_storage and value.startswith(served.prefix):
            emissions.append(Emission(seen_as, value, change if seen_as == change.type.value else None))
        else:
            emissions.append(Emission(seen_as, await raw_any(core, served, Entry(change.rv, value))))
    return emissions


async def _restamped(core: Core, served: ServedKind, change: Change) -> bytes:
    """What a watcher that stops matching is told: the last state it saw, with the change's version."""
    previous: Object = orjson.loads(change.previous or change.value)
    previous["metadata"]["resourceVersion"] = str(change.rv)
    return await raw_any(core, served, Entry(change.rv, orjson.dumps(previous)))


def _bookmark(served: ServedKind, rv: int, *, ended_initial_events: bool = False) -> Emission:
    metadata: dict[str, Any] = {"resourceVersion": str(rv)}
    if ended_initial_events:
        metadata["annotations"] = {"k8s.io/initial-events-end": "true"}
    return Emission(
        "BOOKMARK",
        orjson.dumps({"apiVersion": served.api_version, "kind": served.kind.kind, "metadata": metadata}),
    )
