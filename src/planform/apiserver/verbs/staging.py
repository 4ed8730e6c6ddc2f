"""The end of a write: what was decided is encoded, staged on the head of the store, and answered once it is durable."""

from __future__ import annotations

import asyncio

import msgspec
import orjson

from planform.api.kinds import Object
from planform.apimachinery.jsonbody import to_keep
from planform.apiserver.crds.registry import ServedKind
from planform.apiserver.verbs.core import Core, answer_for
from planform.errors import BadRequest, StoreError
from planform.store import Entry, Key


class Written(msgspec.Struct, frozen=True):
    """The object as it is now, in the version asked for. `gone` when this write removed the last finalizer."""

    value: bytes
    created: bool = False
    gone: bool = False
    object: Object | None = None
    """The same, decoded, where it was at hand; it shares nothing and becomes the caller's."""


async def in_storage_version(core: Core, served: ServedKind, obj: Object) -> Object:
    """The object as it is stored, where that is in another version than the served one."""
    if served.to_storage is not None:
        return served.to_storage(obj)
    if served.conversion is None or core.webhooks is None:
        return {**obj, "apiVersion": served.storage_api_version, "metadata": {**obj["metadata"]}}
    [converted] = await core.webhooks.convert(served, [obj], served.storage_api_version)
    if served.storage_schema is not None:
        served.storage_schema.prune(converted)
        served.storage_schema.default(converted)
    return converted


async def stage(core: Core, served: ServedKind, key: Key, obj: Object, stored: Object) -> bytes:
    version = str(core.store.next_revision())
    stored["metadata"]["resourceVersion"] = version
    value = encode(stored)
    future = core.store.stage(key, value)
    if stored is not obj:
        obj["metadata"]["resourceVersion"] = version
        answer = encode(obj)
    else:
        answer = value
    await commit(future)
    return answer


async def finish(
    core: Core, served: ServedKind, key: Key, entry: Entry, new: Object, old: Object, stored: Object
) -> Written:
    """The write that removed the last finalizer deletes: its event shows the state before, its answer keeps the RV."""
    last = orjson.loads(entry.value)
    last["metadata"]["resourceVersion"] = str(core.store.next_revision())
    await commit(core.store.stage(key, None, last=encode(last)))
    new["metadata"]["resourceVersion"] = old["metadata"]["resourceVersion"]
    return Written(encode(new), gone=True)


async def commit(future: asyncio.Future[int]) -> None:
    try:
        await future
    except StoreError as error:
        raise answer_for(error) from error


async def settle(core: Core, key: Key) -> None:
    try:
        await core.store.settled(key)
    except StoreError as error:
        raise answer_for(error) from error


def unmoved(core: Core, key: Key, entry: Entry) -> bool:
    """Whether nobody staged another version meanwhile."""
    head = core.store.head(key)
    return head is not None and head.rv == entry.rv


def encode(obj: Object) -> bytes:
    """Canonical bytes: apiVersion, kind and metadata first, so that a version can be told from the first bytes."""
    try:
        value = orjson.dumps({"apiVersion": obj["apiVersion"], "kind": obj["kind"], "metadata": obj["metadata"], **obj})
    except (TypeError, orjson.JSONEncodeError) as error:
        raise BadRequest(f"the object cannot be stored as JSON: {error}") from error
    return to_keep(value)
