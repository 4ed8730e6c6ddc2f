"""Long lists in every form, a slice at a time: what waits for a slow reader is one slice, not the whole list.

A list is a head and one field of many items; each form is written so that its pieces, put together, are what encoding
the whole at once would give.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from typing import Any, Final, Protocol

import orjson

from planform.api.kinds import Object
from planform.apimachinery import yaml_loader
from planform.apiserver.wire.negotiation import Form
from planform.store import Entry

SLICE_BYTES: Final = 64 * 1024
YAML_SLICE_BYTES: Final = 8 * 1024
"""Of stored JSON; writing YAML takes far longer, and nothing may hold the loop for long."""


def slices_of(entries: Sequence[Entry], form: Form) -> Iterator[Sequence[Entry]]:
    """The entries in slices of about as many bytes as can be encoded at once."""
    maximum, start, size = YAML_SLICE_BYTES if form.yaml else SLICE_BYTES, 0, 0
    for position, entry in enumerate(entries):
        size += len(entry.value)
        if size >= maximum:
            yield entries[start : position + 1]
            start, size = position + 1, 0
    if start < len(entries):
        yield entries[start:]


async def list_chunks(
    head: Object, field: str, slices: Iterable[Callable[[], list[Any]]], form: Form, *, pretty: bool
) -> AsyncIterator[bytes]:
    """The list as bytes. `slices` make their items when they are asked, and none of them is empty."""
    write: _Writing = _Yaml() if form.yaml else _Pretty() if pretty else _Plain()
    begun = write.head(head, field)
    first = True
    for items in slices:
        yield begun + write.items(items(), first=first)
        begun, first = b"", False
        await asyncio.sleep(0)
    yield begun + write.end(field, empty=first)


class _Writing(Protocol):
    def head(self, head: Object, field: str) -> bytes: ...

    def items(self, items: list[Any], *, first: bool) -> bytes: ...

    def end(self, field: str, *, empty: bool) -> bytes: ...


class _Plain:
    def head(self, head: Object, field: str) -> bytes:
        return orjson.dumps(head)[:-1] + b',"%b":[' % field.encode()

    def items(self, items: list[Any], *, first: bool) -> bytes:
        return (b"" if first else b",") + orjson.dumps(items)[1:-1]

    def end(self, field: str, *, empty: bool) -> bytes:
        return b"]}\n"


class _Pretty:
    _BEGIN: Final = b'{\n  "x": ['
    _END: Final = b"\n  ]\n}"

    def head(self, head: Object, field: str) -> bytes:
        return orjson.dumps(head, option=orjson.OPT_INDENT_2)[:-2] + b',\n  "%b": [' % field.encode()

    def items(self, items: list[Any], *, first: bool) -> bytes:
        text = orjson.dumps({"x": items}, option=orjson.OPT_INDENT_2)
        return (b"" if first else b",") + text[len(self._BEGIN) : -len(self._END)]

    def end(self, field: str, *, empty: bool) -> bytes:
        return b"]\n}\n" if empty else self._END + b"\n"


class _Yaml:
    def head(self, head: Object, field: str) -> bytes:
        return yaml_loader.dump(head).encode() + b"%b:" % field.encode()

    def items(self, items: list[Any], *, first: bool) -> bytes:
        return (b"\n" if first else b"") + yaml_loader.dump(items).encode()

    def end(self, field: str, *, empty: bool) -> bytes:
        return b" []\n" if empty else b""
