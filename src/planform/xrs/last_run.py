"""What is remembered of an XR between reconciles: what its last run rested on, and what it was carried out to.

If everything a run rests on is still the same, its outcome is the same, and neither functions nor writes are needed:
own writes that come back as events, and a restart, cost a few reads. The memory is a hint. Losing it costs one run.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from planform.api.names import CRD
from planform.functions.read_policy import IsNamespaced
from planform.functions.runner import CredentialSource, ResourceReader
from planform.functions.sending import digest_of, without_server_metadata
from planform.functions.values import Object, Requirements, ResourceSelector, SchemaSelector
from planform.xrs.dependencies import Dependency, Named, Selected


class Read(msgspec.Struct, frozen=True, array_like=True):
    """One read of a run, by selector, and the digest of what it gave."""

    selector: ResourceSelector
    digest: bytes


class SchemaRead(msgspec.Struct, frozen=True, array_like=True):
    selector: SchemaSelector
    digest: bytes


class SecretRead(msgspec.Struct, frozen=True, array_like=True):
    namespace: str
    name: str
    digest: bytes


class LastRun(msgspec.Struct, frozen=True, kw_only=True):
    """The memory of one XR. `settled` says that the run was carried out in full and needs no repetition."""

    namespace: str
    name: str
    observed: bytes = b""
    """The digest of the XR and its composed resources, as the functions saw them; empty after a reconcile that changed
    something of that, since the same state again would need the same change again."""
    version: str = ""
    """The XR's resource version after the reconcile had written to it, if nothing else had changed by then; only for
    functions that do not look at what the control plane keeps in the XR."""
    resources: bytes = b""
    """The digest of all that was observed beside the XR itself, for `version`; empty if the reconcile changed that."""
    revision: str = ""
    functions: tuple[tuple[str, str], ...] = ()
    """Of each step, the digest of the function revision that answered."""
    reads: tuple[Read, ...] = ()
    schemas: tuple[SchemaRead, ...] = ()
    secrets: tuple[SecretRead, ...] = ()
    requirements: dict[str, Requirements] = {}
    named: frozenset[Named] = frozenset()
    selected: frozenset[Selected] = frozenset()
    intents: dict[str, bytes] = {}
    """Of each composed resource, by key, the digest of what was last applied."""
    status: bytes = b""
    """The digest of the status that was last applied."""
    published_keys: tuple[str, ...] = ()
    """The connection details that the XRD let through."""
    gates: tuple[str, ...] = ()
    """The feature gates that were on: they may decide what functions can read, or which of them are called."""
    generation: int = 0
    """The XR's generation that was last carried out."""
    deterministic: bool = False
    expires: float | None = None
    """Unix time from which the run is to be repeated even if nothing changed."""
    settled: bool = False

    @property
    def dependencies(self) -> frozenset[Dependency]:
        return self.named | self.selected


OnRead = Callable[[Dependency], None]
"""Hears of what is about to be read."""

_DEFINITIONS = Selected(CRD.api_version, CRD.kind, "", ())
"""What the schema of a kind may come from; which definition that is, one that is not served yet cannot say."""

_ENCODER = msgspec.msgpack.Encoder()
_DECODER = msgspec.msgpack.Decoder(LastRun)


def encode(last_run: LastRun) -> bytes:
    return _ENCODER.encode(last_run)


def decode(data: bytes) -> LastRun | None:
    """None for what another release wrote and this one cannot read."""
    try:
        return _DECODER.decode(data)
    except msgspec.MsgspecError:
        return None


@dataclass(slots=True)
class RecordingReader:
    """A ResourceReader that remembers digests of what it gave: exactly what the functions of this run saw. `on_read` is
    told of each dependency before it is read, so that a change right after the read is not missed.

    A namespace that somebody gives for a kind without namespaces means nothing, and is not remembered.
    """

    reader: ResourceReader
    is_namespaced: IsNamespaced
    on_read: OnRead
    reads: list[Read] = field(default_factory=list)
    schemas: list[SchemaRead] = field(default_factory=list)

    async def read(self, selector: ResourceSelector, /) -> list[Object]:
        if selector.namespace and not await self.is_namespaced(selector.api_version, selector.kind):
            selector = dataclasses.replace(selector, namespace=None)
        self.on_read(_selected(selector))
        found = list(await self.reader.read(selector))
        self.reads.append(Read(selector, _objects_digest(found)))
        return found

    async def schema(self, selector: SchemaSelector, /) -> Object | None:
        self.on_read(_DEFINITIONS)
        found = await self.reader.schema(selector)
        self.schemas.append(SchemaRead(selector, digest_of(found)))
        return found


@dataclass(slots=True)
class RecordingCredentials:
    """A CredentialSource that remembers digests of what it gave, and for the journal's mask the values. `on_read` is
    told of each Secret before it is read."""

    source: CredentialSource
    on_read: OnRead
    secrets: list[SecretRead] = field(default_factory=list)
    values: set[bytes] = field(default_factory=set)

    async def read(self, namespace: str, name: str, /) -> Mapping[str, bytes] | None:
        self.on_read(Named("v1", "Secret", namespace, name))
        found = await self.source.read(namespace, name)
        self.secrets.append(SecretRead(namespace, name, digest_of(found)))
        self.values.update((found or {}).values())
        return found


async def still_reads_the_same(last_run: LastRun, reader: ResourceReader, credentials: CredentialSource) -> bool:
    """Whether everything that the last run read would be read the same now."""
    for secret in last_run.secrets:
        if digest_of(await credentials.read(secret.namespace, secret.name)) != secret.digest:
            return False
    for read in last_run.reads:
        if _objects_digest(await reader.read(read.selector)) != read.digest:
            return False
    for schema in last_run.schemas:
        if digest_of(await reader.schema(schema.selector)) != schema.digest:
            return False
    return True


def dependencies_of(
    reads: Iterable[Read], secrets: Iterable[SecretRead], schemas: Iterable[SchemaRead]
) -> set[Dependency]:
    """What a run read, as dependencies."""
    found: set[Dependency] = {Named("v1", "Secret", each.namespace, each.name) for each in secrets}
    found.update(_selected(read.selector) for read in reads)
    if any(True for _ in schemas):
        found.add(_DEFINITIONS)
    return found


def _selected(selector: ResourceSelector) -> Dependency:
    namespace = selector.namespace or ""
    if selector.match_name:
        return Named(selector.api_version, selector.kind, namespace, selector.match_name)
    labels = tuple(sorted((selector.match_labels or {}).items()))
    return Selected(selector.api_version, selector.kind, namespace, labels)


def contains(found: Any, wanted: Any) -> bool:
    """Whether applying `wanted` over `found` would change no value; lists must match item by item.

    An empty map or list that is wanted may be missing: servers drop those of many kinds.
    """
    kind = type(wanted)
    if kind is not type(found):
        return bool(found == wanted) and not isinstance(found, bool) and not isinstance(wanted, bool)
    if kind is dict:
        for key, value in wanted.items():
            if key not in found:
                if value is None or value == {} or value == []:
                    continue
                return False
            there = found[key]
            if there is value:
                continue
            if type(value) is str:  # most values are; the rest of them is not worth a line here
                if there != value:
                    return False
            elif not contains(there, value):
                return False
        return True
    if kind is list:
        return len(found) == len(wanted) and all(map(contains, found, wanted))
    return bool(found == wanted)


def _objects_digest(objects: Iterable[Object]) -> bytes:
    return digest_of([without_server_metadata(each) for each in objects])
