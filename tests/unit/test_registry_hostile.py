"""Registries that lie, never end or hardly begin: each is refused with a reason, and reading stops where it must.

The registry is a socket that says whatever a test has it say. What it managed to send tells how much was read.
"""

from __future__ import annotations

import asyncio
import gzip
import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random

import pytest

from planform.clock import SystemClock
from planform.packages.blobs import BlobStore
from planform.packages.credentials import Credentials
from planform.packages.errors import DigestMismatch, PackageError, PackageTooLarge, RegistryUnavailable
from planform.packages.fetching import RegistryPackages
from planform.packages.oci import MANIFEST_BYTES, OCI_LAYER_GZIP, OCI_MANIFEST, digest_of
from planform.packages.references import Reference, parse_reference
from planform.packages.registry import RegistryClient
from planform.packages.registry_session import Access
from tests.harness.contexts import embedded_context
from tests.unit.archives import FUNCTION_META, Entry, package_yaml, tar

BUFFERS = 16 << 20
"""What the kernel may take from a sender before anybody has read it."""
CONFIG = b"{}"
Say = Callable[["Request"], Awaitable[None]]


class RushingClock(SystemClock):
    """Waiting takes no time, and a minute has passed whenever somebody looks."""

    def __init__(self) -> None:
        self._minutes = 0

    def monotonic(self) -> float:
        self._minutes += 1
        return self._minutes * 60.0

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(0)


@dataclass(frozen=True)
class Request:
    """What is asked for, and the way to answer. `start` is the first byte that is wanted."""

    hostile: Hostile
    method: str
    start: int
    writer: asyncio.StreamWriter

    async def write(self, content: bytes) -> None:
        self.writer.write(content)
        await self.writer.drain()
        self.hostile.sent += len(content)


class Hostile:
    """A registry; `says` has, for a part of the path, what it does when that is asked for."""

    def __init__(self) -> None:
        self.says: dict[str, Say] = {}
        self.asked: list[str] = []
        self.sent = 0
        self.address = ""
        self.over = asyncio.Event()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            method, path, _ = head.split("\r\n")[0].split(" ")
            self.asked.append(f"{method} {path}")
            start = int((re.findall(r"bytes=(\d+)-", head) or ["0"])[0])
            say = next((say for part, say in self.says.items() if part in path), has_nothing)
            await say(Request(self, method, start, writer))
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    def reference(self, version: str = ":v1") -> Reference:
        return parse_reference(f"{self.address}/team/fn{version}")


async def has_nothing(request: Request) -> None:
    await request.write(b"HTTP/1.1 404 No\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")


@pytest.fixture
async def hostile() -> AsyncIterator[Hostile]:
    made = Hostile()
    server = await asyncio.start_server(made.serve, "127.0.0.1", 0)
    made.address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    async with server:
        yield made
        made.over.set()


@pytest.fixture
def blobs(tmp_path: Path) -> BlobStore:
    return BlobStore(tmp_path / "blobs")


async def refused(hostile: Hostile, blobs: BlobStore, version: str = ":v1", **access: float) -> PackageError:
    """What pulling ends with."""
    registry = RegistryClient(
        blobs,
        Credentials(),
        access=Access(**access),  # type: ignore[arg-type]
        clock=RushingClock(),
        rng=Random(7),
    )
    async with registry:
        with pytest.raises(PackageError) as caught:
            await registry.pull(hostile.reference(version))
    return caught.value


def stored_bytes(blobs: BlobStore) -> int:
    return sum(file.stat().st_size for file in blobs.directory.rglob("*") if file.is_file())


def answers(body: bytes) -> Say:
    lines = ["HTTP/1.1 200 OK", f"Content-Type: {OCI_MANIFEST}", f"Docker-Content-Digest: {digest_of(body)}"]
    head = "\r\n".join([*lines, f"Content-Length: {len(body)}", "Connection: close", "", ""]).encode()
    return lambda request: request.write(head if request.method == "HEAD" else head + body)


async def never_ends(request: Request) -> None:
    await request.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
    while True:
        await request.write(b"10000\r\n" + b" " * 65536 + b"\r\n")


async def drips(request: Request) -> None:
    await request.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n")
    while not request.hostile.over.is_set():
        await request.write(b" ")
        await asyncio.sleep(0.001)


async def falls_silent(request: Request) -> None:
    """One more byte each time, and then nothing."""
    start = request.start
    await request.write(
        f"HTTP/1.1 {'206 Part' if start else '200 OK'}\r\nContent-Range: bytes {start}-99999/100000\r\n"
        f"Content-Length: {100_000 - start}\r\n\r\n ".encode()
    )
    await request.hostile.over.wait()


async def leads_in_circles(request: Request) -> None:
    where = f"http://{request.hostile.address}/v2/team/fn/manifests/v1"
    await request.write(f"HTTP/1.1 307 Go\r\nLocation: {where}\r\nContent-Length: 0\r\n\r\n".encode())


async def leads_to_a_file(request: Request) -> None:
    await request.write(b"HTTP/1.1 307 Go\r\nLocation: file:///etc/passwd\r\nContent-Length: 0\r\n\r\n")


async def speaks_nonsense(request: Request) -> None:
    await request.write(b"NONSENSE\r\n\r\n")


async def has_endless_headers(request: Request) -> None:
    await request.write(b"HTTP/1.1 200 OK\r\n")
    while True:
        await request.write(b"X-More: " + b"y" * 4000 + b"\r\n")


def manifest(blob: bytes, *, size: int | None = None) -> bytes:
    config = {"mediaType": "application/vnd.oci.image.config.v1+json", "digest": digest_of(CONFIG), "size": len(CONFIG)}
    layer = {"mediaType": OCI_LAYER_GZIP, "digest": digest_of(blob), "size": len(blob) if size is None else size}
    value = {"schemaVersion": 2, "mediaType": OCI_MANIFEST, "config": config, "layers": [layer]}
    return json.dumps(value).encode()


def has_image(hostile: Hostile, say: Say, *, size: int = 1000) -> None:
    """An image whose one layer is not what it should be."""
    hostile.says = {
        "manifests/": answers(manifest(b"what it should be", size=size)),
        digest_of(CONFIG): answers(CONFIG),
        "blobs/": say,
    }


async def test_a_manifest_without_end_is_read_up_to_the_limit(hostile: Hostile, blobs: BlobStore) -> None:
    hostile.says = {"manifests/": never_ends}
    error = await refused(hostile, blobs)
    assert isinstance(error, PackageTooLarge)
    assert f"more than {MANIFEST_BYTES} bytes" in error.message
    assert hostile.sent < MANIFEST_BYTES + BUFFERS
    assert stored_bytes(blobs) == 0


async def test_a_manifest_that_says_it_is_huge_is_not_read(hostile: Hostile, blobs: BlobStore) -> None:
    async def huge(request: Request) -> None:
        await request.write(b"HTTP/1.1 200 OK\r\nContent-Length: 10000000000\r\n\r\n")
        while True:
            await request.write(b" " * 65536)

    hostile.says = {"manifests/": huge}
    error = await refused(hostile, blobs)
    assert isinstance(error, PackageTooLarge)
    assert "the answer has 10000000000 bytes" in error.message
    assert hostile.sent < BUFFERS


async def test_a_blob_without_end_is_read_up_to_what_was_announced(hostile: Hostile, blobs: BlobStore) -> None:
    has_image(hostile, never_ends)
    error = await refused(hostile, blobs)
    assert isinstance(error, PackageTooLarge)
    assert "is larger than the 1000 bytes that were announced" in error.message
    assert hostile.sent < BUFFERS
    assert stored_bytes(blobs) < 10_000, "the manifest and the configuration, and nothing of the blob"


async def test_a_manifest_that_is_not_what_its_digest_says_is_refused(hostile: Hostile, blobs: BlobStore) -> None:
    hostile.says = {"manifests/": answers(manifest(b"other"))}
    error = await refused(hostile, blobs, f"@sha256:{'a' * 64}")
    assert isinstance(error, DigestMismatch)
    assert stored_bytes(blobs) == 0


async def test_a_blob_that_is_not_what_its_digest_says_is_refused(hostile: Hostile, blobs: BlobStore) -> None:
    has_image(hostile, answers(b"something else, as long"), size=len(b"something else, as long"))
    error = await refused(hostile, blobs)
    assert isinstance(error, DigestMismatch)
    assert not blobs.path(digest_of(b"something else, as long")).exists()
    assert not blobs.path(digest_of(b"what it should be")).exists()


@pytest.mark.parametrize("what", ["manifests/", "blobs/"])
async def test_a_registry_that_falls_silent_is_given_up(what: str, hostile: Hostile, blobs: BlobStore) -> None:
    has_image(hostile, falls_silent, size=100_000)
    hostile.says[what] = falls_silent
    error = await refused(hostile, blobs, read_seconds=0.05)
    assert isinstance(error, RegistryUnavailable)
    assert hostile.address in error.message
    assert len(hostile.asked) <= 9, "a byte each time is no progress"


async def test_a_blob_that_comes_drop_by_drop_is_given_up(hostile: Hostile, blobs: BlobStore) -> None:
    has_image(hostile, drips, size=100_000)
    error = await refused(hostile, blobs)
    assert isinstance(error, RegistryUnavailable)
    assert "too slowly" in error.message
    assert len([each for each in hostile.asked if digest_of(b"what it should be") in each]) == 6


async def test_a_manifest_that_comes_drop_by_drop_is_given_up(hostile: Hostile, blobs: BlobStore) -> None:
    hostile.says = {"manifests/": drips}
    error = await refused(hostile, blobs, answer_seconds=0.05)
    assert isinstance(error, RegistryUnavailable)
    assert stored_bytes(blobs) == 0


@pytest.mark.parametrize("say", [leads_in_circles, leads_to_a_file, speaks_nonsense, has_endless_headers])
async def test_an_answer_that_makes_no_sense_is_an_error_of_the_registry(
    say: Say, hostile: Hostile, blobs: BlobStore
) -> None:
    hostile.says = {"manifests/": say}
    error = await refused(hostile, blobs)
    assert isinstance(error, RegistryUnavailable)
    assert hostile.address in error.message
    assert hostile.sent < BUFFERS * len(hostile.asked)


async def test_a_registry_that_refuses_to_be_asked_for_the_head_only_is_asked_for_all(
    hostile: Hostile, blobs: BlobStore
) -> None:
    body = manifest(b"x")

    async def not_allowed(request: Request) -> None:
        if request.method == "HEAD":
            await request.write(b"HTTP/1.1 405 No\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
        else:
            await answers(body)(request)

    hostile.says = {"manifests/": not_allowed}
    async with RegistryClient(blobs, Credentials(), clock=RushingClock(), rng=Random(7)) as registry:
        assert (await registry.resolve(hostile.reference())).digest == digest_of(body)


async def test_a_tag_that_moves_after_it_was_looked_up_changes_nothing(hostile: Hostile, tmp_path: Path) -> None:
    layer = gzip.compress(tar(Entry("package.yaml", package_yaml(FUNCTION_META))))
    first, second = manifest(layer), manifest(b"moved meanwhile")
    meant = iter([first, second])
    hostile.says = {
        digest_of(first): answers(first),
        "manifests/": lambda request: answers(next(meant))(request),
        digest_of(CONFIG): answers(CONFIG),
        "blobs/": answers(layer),
    }
    async with embedded_context() as context:
        source = RegistryPackages(tmp_path / "packages", context.client, clock=context.clock, rng=Random(7))
        located = await source.locate(str(hostile.reference()))
        fetched = await source.fetch(located)
    assert fetched.digest == digest_of(first)
    assert fetched.package.name == "function-greet"
    assert [each for each in hostile.asked if each.endswith("manifests/v1")] == ["HEAD /v2/team/fn/manifests/v1"]


async def test_a_list_of_tags_that_never_ends_ends(hostile: Hostile, blobs: BlobStore) -> None:
    async def page(request: Request) -> None:
        link = '</v2/team/fn/tags/list?n=1000>; rel="next"'
        head = f"HTTP/1.1 200 OK\r\nLink: {link}\r\nContent-Length: 12\r\nConnection: close\r\n\r\n"
        await request.write(head.encode() + b'{"tags": []}')

    hostile.says = {"tags/": page}
    async with RegistryClient(blobs, Credentials(), clock=RushingClock(), rng=Random(7)) as registry:
        assert await registry.tags(hostile.reference()) == []
    assert len(hostile.asked) == 1000
