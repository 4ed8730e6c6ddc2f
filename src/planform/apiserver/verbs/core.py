"""What every verb needs, as one value: store, registry, admission, clock. And the way between bytes and objects."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

import orjson

from planform.api.kinds import Object
from planform.apiserver.admission.chain import Admission, AdmissionPlugin
from planform.apiserver.crds.registry import KindRegistry, ServedKind
from planform.apiserver.random_bytes import PooledSystemRandom
from planform.clock import Clock
from planform.errors import ApiError, InsufficientStorage, InternalError, ServiceUnavailable, StoreError
from planform.store import Entry, Key, Store

if TYPE_CHECKING:
    from planform.apiserver.admission.dynamic.dispatch import DynamicAdmission
    from planform.apiserver.verbs.reads import PinnedLists


_SLICE = 200


class ConversionWebhooks(Protocol):
    """Turns objects of one version into another by asking the webhook that their CRD names."""

    async def convert(self, served: ServedKind, objects: Sequence[Object], api_version: str) -> Sequence[Object]:
        """Raises an ApiError that names the webhook when it fails."""
        ...


@dataclass
class Core:
    """The embedded engine's parts. Verbs are functions that take it first."""

    store: Store
    registry: KindRegistry
    clock: Clock
    rng: random.Random = field(default_factory=PooledSystemRandom)
    admission: Sequence[AdmissionPlugin] = ()
    webhooks: ConversionWebhooks | None = None
    dynamic_admission: DynamicAdmission | None = None
    """Webhooks and policies that users configured; None where nobody is asked, as in a control plane at rest."""
    pinned: PinnedLists | None = None
    """Lists that paging clients may come back to; made on first use."""

    def admit(self, admission: Admission) -> None:
        for plugin in self.admission:
            plugin.admit(admission)


def key_of(served: ServedKind, namespace: str, name: str) -> Key:
    return Key(served.resource, namespace if served.kind.namespaced else "", name)


def decode(served: ServedKind, entry: Entry) -> Object:
    """A private copy of a stored object in the served version; for kinds without a conversion webhook."""
    obj: Object = orjson.loads(entry.value)
    if served.from_storage is not None:
        return served.from_storage(obj)
    if entry.rv <= served.schema_rv:
        _refresh(served, entry, obj)
    obj["apiVersion"] = served.api_version
    return obj


def raw(served: ServedKind, entry: Entry) -> bytes:
    """The stored bytes in the served version: nearly always the very bytes that are stored."""
    if entry.rv > served.schema_rv and entry.value.startswith(served.prefix):
        return entry.value
    if served.builtin and served.is_storage:
        return entry.value
    return orjson.dumps(decode(served, entry))


async def decode_any(core: Core, served: ServedKind, entries: Sequence[Entry]) -> list[Object]:
    """Like `decode`, for any kind: objects stored in another version pass through the conversion webhook.

    Many are decoded in slices that let others through.
    """
    objects: list[Object] = []
    if served.conversion is None:
        for start in range(0, len(entries), _SLICE):
            if start:
                await asyncio.sleep(0)
            objects += [decode(served, entry) for entry in entries[start : start + _SLICE]]
        return objects
    foreign: list[int] = []
    for position, entry in enumerate(entries):
        obj: Object = orjson.loads(entry.value)
        _refresh(served, entry, obj)
        objects.append(obj)
        if obj["apiVersion"] != served.api_version:
            foreign.append(position)
    if foreign:
        if core.webhooks is None:
            raise InternalError(f"{served.kind.resource} needs a conversion webhook, and none can be called")
        converted = await core.webhooks.convert(served, [objects[position] for position in foreign], served.api_version)
        for position, obj in zip(foreign, converted, strict=True):
            objects[position] = obj
    return objects


async def raw_any(core: Core, served: ServedKind, entry: Entry) -> bytes:
    if served.conversion is None:
        return raw(served, entry)
    if entry.rv > served.schema_rv and entry.value.startswith(served.prefix):
        return entry.value
    return orjson.dumps((await decode_any(core, served, [entry]))[0])


async def raw_all(core: Core, served: ServedKind, entries: Sequence[Entry]) -> list[bytes]:
    """Like `raw_any` of each, with one call of a conversion webhook for all of them."""
    if served.conversion is None:
        return [raw(served, entry) for entry in entries]
    return [orjson.dumps(obj) for obj in await decode_any(core, served, entries)]


def _refresh(served: ServedKind, entry: Entry, obj: Object) -> None:
    """Prune and default what was stored before the present schema was; newer objects were admitted by it."""
    if entry.rv > served.schema_rv or served.builtin:
        return
    schema = served.storage_schema
    if schema is not None:
        schema.prune(obj)
        schema.default(obj)


def answer_for(error: StoreError) -> ApiError:
    """What a client is told when the store refuses."""
    if error.reason == "DiskFull":
        return InsufficientStorage(f"the write was not stored: {error}", hint=error.hint)
    if error.reason == "StoreClosed":
        return ServiceUnavailable("the control plane is shutting down", details={"retryAfterSeconds": 1})
    return InternalError(f"the write was not stored: {error}", hint=error.hint)
