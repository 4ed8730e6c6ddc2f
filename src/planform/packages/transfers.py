"""Blobs on their way: downloads that go on where they stopped and never take more than was announced, and uploads.

A download is written beside the store's content and joins it only if its digest is right. It survives a crash: the
next one asks for the rest only.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, Final

import aiohttp
from yarl import URL

from planform.packages.blobs import BlobStore
from planform.packages.errors import PackageTooLarge, RegistryRefused, RegistryUnavailable
from planform.packages.oci import Descriptor
from planform.packages.references import Reference
from planform.packages.registry_session import FAILURES, RETRIES, Pace, RegistrySession, retry_after, unreachable

_CHUNK: Final = 256 << 10

Advance = Callable[[int], None]
"""Is told how many bytes there are by now."""


async def download(
    session: RegistrySession,
    blobs: BlobStore,
    reference: Reference,
    descriptor: Descriptor,
    advance: Advance | None = None,
) -> None:
    """Fetch a blob into the store. Raises DigestMismatch, PackageTooLarge, RegistryUnavailable and others.

    As long as each try brings enough for its time, there may be any number of them: large layers over bad lines do
    arrive.
    """
    with _reserved(blobs.partial(descriptor.digest)) as (file, path):
        failures = 0
        while True:
            before = os.fstat(file.fileno()).st_size
            if before > descriptor.size:
                file.truncate(0)
                before = 0
            if before == descriptor.size and before:
                break
            pace = session.pace()
            try:
                await _fetch_rest(session, file, before, reference, descriptor, pace, advance)
                break
            except _Interrupted as error:
                pace.see(os.fstat(file.fileno()).st_size - before)
                failures = failures + 1 if pace.is_slow else 1
                if failures > RETRIES:
                    raise error.failure from error
                await session.pause(failures, error.wait)
        file.flush()
        await asyncio.to_thread(os.fsync, file.fileno())
        await asyncio.to_thread(blobs.adopt, path, descriptor)


async def upload(session: RegistrySession, blobs: BlobStore, reference: Reference, descriptor: Descriptor) -> None:
    """Send a blob unless the registry has it."""
    path = f"blobs/{descriptor.digest}"
    there = await session.request("HEAD", reference, path, push=True, expect=(200, 404))
    if there.status == 200:
        return
    for attempt in range(1, RETRIES + 2):
        begun = await session.request("POST", reference, "blobs/uploads/", push=True, expect=(202,))
        where = URL(begun.headers.get("Location", ""), encoded=True)
        if not where.path:
            raise RegistryRefused(f"{reference.registry} does not say where to send blobs")
        target = session.url(reference, where).update_query({"digest": descriptor.digest})
        headers = {"Content-Type": "application/octet-stream", "Content-Length": str(descriptor.size)}
        failure: RegistryUnavailable
        try:
            async with session.stream(
                "PUT",
                reference,
                target,
                headers=headers,
                body=lambda: _content(blobs, descriptor),
                push=True,
            ) as response:
                if response.status in (200, 201, 204):
                    return
                refused = await session.failure(response, reference)
                if not isinstance(refused, RegistryUnavailable):
                    raise refused
                failure = refused
        except FAILURES as error:
            failure = unreachable(reference, error)
        if attempt > RETRIES:
            raise failure
        await session.pause(attempt, None)  # and from the beginning: nobody knows what arrived


class _Interrupted(Exception):
    """The download stopped; another try makes sense."""

    def __init__(self, failure: RegistryUnavailable, wait: float | None = None) -> None:
        super().__init__(str(failure))
        self.failure = failure
        self.wait = wait


async def _fetch_rest(
    session: RegistrySession,
    file: BinaryIO,
    start: int,
    reference: Reference,
    descriptor: Descriptor,
    pace: Pace,
    advance: Advance | None,
) -> None:
    headers = {"Range": f"bytes={start}-"} if start else {}
    try:
        async with session.stream("GET", reference, f"blobs/{descriptor.digest}", headers=headers) as response:
            if response.status == 416:  # it does not have so much: what is here is not what it has
                file.truncate(0)
                raise _Interrupted(RegistryUnavailable(f"{reference.registry} has no more of {descriptor.digest}"))
            if response.status not in (200, 206):
                failure = await session.failure(response, reference)
                if isinstance(failure, RegistryUnavailable):
                    raise _Interrupted(failure, retry_after(response))
                raise failure
            if response.status == 200:
                start = 0
                file.truncate(0)
            elif not response.headers.get("Content-Range", "").startswith(f"bytes {start}-"):
                file.truncate(0)
                raise _Interrupted(RegistryUnavailable(f"{reference.registry} sends another part than asked for"))
            file.seek(start)
            await _receive(response, file, start, reference, descriptor, pace, advance)
    except FAILURES as error:
        raise _Interrupted(unreachable(reference, error)) from error
    if (got := os.fstat(file.fileno()).st_size) < descriptor.size:
        raise _Interrupted(
            RegistryUnavailable(f"{reference.registry} sent {got} of {descriptor.size} bytes of {descriptor.digest}")
        )


async def _receive(
    response: aiohttp.ClientResponse,
    file: BinaryIO,
    start: int,
    reference: Reference,
    descriptor: Descriptor,
    pace: Pace,
    advance: Advance | None,
) -> None:
    size = start
    async for chunk in response.content.iter_chunked(_CHUNK):
        size += len(chunk)
        if size > descriptor.size:
            file.truncate(0)
            raise PackageTooLarge(f"{descriptor.digest} is larger than the {descriptor.size} bytes that were announced")
        file.write(chunk)
        if advance is not None:
            advance(size)
        if pace.see_now_and_then(size - start):
            raise _Interrupted(RegistryUnavailable(f"{reference.registry} sends {descriptor.digest} too slowly"))


@contextmanager
def _reserved(path: Path) -> Iterator[tuple[BinaryIO, Path]]:
    """The file of a download, which is kept if it is interrupted.

    Should another process be at it, this one downloads to a file of its own, which is not kept.
    """
    shared = _locked(path)
    if shared is not None:
        with shared:
            yield shared, path
        return
    handle, name = tempfile.mkstemp(dir=path.parent, prefix="also-")
    try:
        with os.fdopen(handle, "ab", buffering=0) as file:
            yield file, Path(name)
    finally:
        Path(name).unlink(missing_ok=True)


def _locked(path: Path) -> BinaryIO | None:
    """The file, if nobody else has it.

    Whoever had it may have finished between our opening and locking it; then what we hold has become content that must
    not change any more, and the file is opened anew.
    """
    while True:
        file = path.open("ab", buffering=0)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _is_still(path, file):
                return file
        except BlockingIOError:
            file.close()
            return None
        file.close()


def _is_still(path: Path, file: BinaryIO) -> bool:
    try:
        return os.path.samestat(path.stat(), os.fstat(file.fileno()))
    except FileNotFoundError:
        return False


async def _content(blobs: BlobStore, descriptor: Descriptor) -> AsyncIterator[bytes]:
    with blobs.open(descriptor.digest) as file:
        while chunk := file.read(_CHUNK):
            yield chunk
