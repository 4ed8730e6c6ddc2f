"""A watch on the wire: one JSON line an event, joined as many as are ready, encoded once for all watchers."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence

import orjson

from planform.api.kinds import Object
from planform.apiserver.crds.registry import ServedKind
from planform.apiserver.verbs import reads
from planform.apiserver.verbs.core import Core
from planform.apiserver.verbs.reads import Emission
from planform.apiserver.verbs.requests import Selection
from planform.apiserver.verbs.selection import compile_selection
from planform.apiserver.wire import tables
from planform.apiserver.wire.negotiation import Form
from planform.errors import ApiError, StoreClosed

_CHUNK_BYTES = 256 * 1024


def watch_lines(
    core: Core,
    served: ServedKind,
    selection: Selection,
    options: reads.WatchOptions,
    form: Form,
    include_object: str,
) -> AsyncIterator[bytes]:
    """The lines of one watch. Bad selectors raise here; a later error is the last line, since the answer has begun."""
    compile_selection(served, selection)
    return _lines(core, served, selection, options, form, include_object)


async def _lines(
    core: Core,
    served: ServedKind,
    selection: Selection,
    options: reads.WatchOptions,
    form: Form,
    include_object: str,
) -> AsyncIterator[bytes]:
    batches = reads.watch(core, served, selection, options)
    try:
        async for batch in batches:
            if form.shape == "":
                for chunk in _chunks(batch):
                    yield chunk
            else:
                for chunk in _projected(core, served, batch, form, include_object):
                    yield chunk
    except StoreClosed:  # we are stopping: a watch that begins now ends as those do that are open already
        return
    except ApiError as error:
        yield b'{"type":"ERROR","object":%b}\n' % orjson.dumps(error.to_status())
    finally:
        await batches.aclose()


def _chunks(batch: Sequence[Emission]) -> Iterator[bytes]:
    """The lines of a batch, joined up to a size: what waits for a slow reader is then little more than that."""
    lines, size = [], 0
    for emission in batch:
        line = _line(emission)
        lines.append(line)
        size += len(line)
        if size > _CHUNK_BYTES:
            yield b"".join(lines)
            lines, size = [], 0
    if lines:
        yield b"".join(lines)


def _line(emission: Emission) -> bytes:
    change = emission.change
    if change is None:
        return b'{"type":"%b","object":%b}\n' % (emission.type.encode(), emission.value)
    if change.cache is None:
        change.cache = {}
    line: bytes | None = change.cache.get("line")
    if line is None:
        line = change.cache["line"] = b'{"type":"%b","object":%b}\n' % (emission.type.encode(), emission.value)
    return line


def _projected(
    core: Core, served: ServedKind, batch: Sequence[Emission], form: Form, include_object: str
) -> Iterator[bytes]:
    lines, size = [], 0
    for emission in batch:
        obj: Object = orjson.loads(emission.value)
        if form.shape == "Table":
            # A Table has no annotations: the end of the initial events is told in a row's object.
            rows = [] if emission.type == "BOOKMARK" and "annotations" not in obj["metadata"] else [obj]
            metadata = {name: obj["metadata"][name] for name in ("resourceVersion",) if name in obj["metadata"]}
            shown = tables.table_for(
                served.kind,
                served.columns,
                rows,
                now=core.clock.now(),
                include_object=include_object,
                metadata=metadata,
            ) | {"apiVersion": f"meta.k8s.io/{form.version}"}
        else:
            shown = tables.partial_object(obj)
        line = orjson.dumps({"type": emission.type, "object": shown}) + b"\n"
        lines.append(line)
        size += len(line)
        if size > _CHUNK_BYTES:
            yield b"".join(lines)
            lines, size = [], 0
    if lines:
        yield b"".join(lines)
