"""What a function is sent: objects without server metadata, and a tag that names exactly this request.

Managed fields and resource versions change with every write of anybody, would defeat every cache and burst message
limits, and no function decides by them.
"""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import sha256
from typing import Any

import orjson

from planform.functions.values import FunctionRequest, Object, Resource, State

_CANONICAL = orjson.OPT_SORT_KEYS
_UNDIVIDED = 2047
"""So many bytes hashlib takes without letting other threads run."""


def without_server_metadata(obj: Object) -> Object:
    """The object, or a shallow copy of it if there was something to leave out."""
    metadata = obj.get("metadata")
    if not isinstance(metadata, dict) or not ("managedFields" in metadata or "resourceVersion" in metadata):
        return obj
    kept = metadata.copy()
    kept.pop("managedFields", None)
    kept.pop("resourceVersion", None)
    return {**obj, "metadata": kept}


def snapshot(observed: State) -> State:
    """The observed state as every step of a run sees it."""
    return State(_sent(observed.composite), {name: _sent(each) for name, each in sorted(observed.resources.items())})


def canonical(value: object) -> bytes:
    """The same bytes for equal values. Raises TypeError for what JSON cannot express."""
    return orjson.dumps(value, option=_CANONICAL, default=_plain)


def digest_of(value: object) -> bytes:
    """The same digest for equal values. Raises TypeError for what JSON cannot express."""
    return hash_of(canonical(value))


def hash_of(data: bytes) -> bytes:
    """Their SHA-256, without pausing."""
    if len(data) <= _UNDIVIDED:
        return sha256(data).digest()
    # In one piece it would give the interpreter away to another thread, and wait long to have it back.
    digest, view = sha256(), memoryview(data)
    for start in range(0, len(data), _UNDIVIDED):
        digest.update(view[start : start + _UNDIVIDED])
    return digest.digest()


def tag_of(request: FunctionRequest, observed: bytes) -> str:
    """The tag of a request, given the digest of its observed state, which is the same for a whole run.

    Empty if the request holds something that has no canonical form, or if there is no such digest; such a request is
    never answered from a cache.
    """
    if not observed:
        return ""
    try:
        rest = digest_of(
            [
                request.desired,
                request.input,
                request.context,
                request.credentials,
                request.required_resources,
                request.extra_resources,
                request.required_schemas,
            ]
        )
    except TypeError:
        return ""
    return sha256(observed + rest).hexdigest()


def observed_digest(observed: object) -> bytes:
    """The digest of an observed state, or of a part of it; empty if that has no canonical form."""
    try:
        return digest_of(observed)
    except TypeError:
        return b""


def _sent(resource: Resource) -> Resource:
    return Resource(without_server_metadata(resource.resource), resource.connection_details, resource.ready)


def _plain(value: object) -> Any:
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{type(value).__name__} has no canonical form")
