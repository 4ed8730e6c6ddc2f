"""Packages go to and come from a real registry, over bad lines too."""

from __future__ import annotations

import asyncio
import base64
import fcntl
import os
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from planform.clock import Clock, SystemClock
from planform.packages.blobs import BlobStore, Image, store_image
from planform.packages.building import Program, Source, assemble
from planform.packages.credentials import Credentials, Login
from planform.packages.errors import (
    DigestMismatch,
    PackageNotFound,
    PackageTooLarge,
    RegistryRefused,
    RegistryUnavailable,
    SignatureInvalid,
)
from planform.packages.layers import File
from planform.packages.oci import Descriptor, Index, Platform
from planform.packages.payloads import Payload, RuntimeKind
from planform.packages.references import Reference, parse_reference
from planform.packages.registry import Limits, Progress, PullPolicy, RegistryClient
from planform.packages.registry_session import Access
from planform.packages.signatures import ARTIFACT_TYPE, SIMPLE_SIGNING, signature_tag, verify_image
from planform.packages.xpkg import package_of, read_package
from tests.e2e.registries import PASSWORD, USER
from tests.unit.archives import FUNCTION_META
from tests.unit.signing import key_pair, payload_for, signed_with


class HastyClock(SystemClock):
    """Time in which waiting takes none."""

    def __init__(self) -> None:
        self.waits: list[float] = []

    async def sleep(self, seconds: float) -> None:
        self.waits.append(seconds)
        await asyncio.sleep(0)


@asynccontextmanager
async def client(
    directory: Path,
    credentials: Credentials | None = None,
    *,
    limits: Limits | None = None,
    mirrors: Mapping[str, Sequence[str]] | None = None,
    clock: Clock | None = None,
) -> AsyncIterator[RegistryClient]:
    async with RegistryClient(
        BlobStore(directory),
        credentials or Credentials(),
        limits=limits or Limits(),
        mirrors=mirrors,
        clock=clock or HastyClock(),
        rng=Random(1),
        access=Access(read_seconds=10),
    ) as registry:
        yield registry


def build(blobs: BlobStore, *, noise: int = 1000, name: str = "function-greet", platform: str = "") -> Image:
    """A package with a program of so many bytes that cannot be compressed."""
    meta = {**FUNCTION_META, "metadata": {"name": name}}
    files = (File("bin/greet", Random(name).randbytes(noise), executable=True),)
    program = Program(
        Payload(RuntimeKind.PROCESS, ("bin/greet",)), files, Platform("linux", platform) if platform else None
    )
    return assemble(blobs, Source(package_of([("meta", meta)])), program)


async def test_package_comes_back_as_it_was_sent(address: str, tmp_path: Path) -> None:
    reference = parse_reference(f"{address}/team/greet:v1.0.0")
    progress: list[Progress] = []
    async with client(tmp_path / "here") as here:
        image = build(here.blobs)
        sent = await here.push(image, reference)
        assert sent.digest == image.digest
        assert await here.resolve(reference) == sent
    async with client(tmp_path / "there") as there:
        pulled = await there.pull(reference, report=progress.append)
        assert pulled.digest == image.digest
        assert read_package(pulled).name == "function-greet"
        assert await there.tags(reference) == ["v1.0.0"]
    assert progress[-1].done == progress[-1].total > 1000


async def test_what_is_stored_needs_no_registry(address: str, tmp_path: Path) -> None:
    reference = parse_reference(f"{address}/team/offline:v1")
    async with client(tmp_path / "store") as registry:
        image = build(registry.blobs, name="offline")
        await registry.push(image, reference)
        await registry.pull(reference)
    gone = Reference("127.0.0.1:1", reference.repository, reference.tag)
    async with client(tmp_path / "store") as registry:
        registry.blobs.remember(str(gone), image.descriptor)
        for policy in (PullPolicy.IF_NOT_PRESENT, PullPolicy.NEVER):
            assert (await registry.pull(gone, policy=policy)).digest == image.digest
        assert (await registry.pull(gone.pinned(image.digest), policy=PullPolicy.ALWAYS)).digest == image.digest
        with pytest.raises(RegistryUnavailable, match="cannot be reached"):
            await registry.pull(gone, policy=PullPolicy.ALWAYS)
        with pytest.raises(PackageNotFound, match="must not be pulled"):
            await registry.pull(gone.tagged("v2"), policy=PullPolicy.NEVER)


async def test_moved_tag_is_noticed_only_if_asked_for(address: str, tmp_path: Path) -> None:
    reference = parse_reference(f"{address}/team/moving:latest")
    async with client(tmp_path / "here") as here, client(tmp_path / "there") as there:
        old, new = build(here.blobs, name="old"), build(here.blobs, name="new")
        await here.push(old, reference)
        assert (await there.pull(reference)).digest == old.digest
        await here.push(new, reference)
        assert (await there.pull(reference)).digest == old.digest
        assert (await there.pull(reference, policy=PullPolicy.ALWAYS)).digest == new.digest


async def test_several_platforms_share_a_name(address: str, tmp_path: Path) -> None:
    reference = parse_reference(f"{address}/team/many:v1")
    async with client(tmp_path / "here") as here, client(tmp_path / "there") as there:
        images = {each: build(here.blobs, name=f"for-{each}", platform=each) for each in ("amd64", "arm64")}
        await here.push_index(list(images.values()), reference)
        for architecture, image in images.items():
            pulled = await there.pull(reference, platform=Platform("linux", architecture))
            assert pulled.digest == image.digest


async def test_missing_package_is_not_found(address: str, tmp_path: Path) -> None:
    async with client(tmp_path) as registry:
        with pytest.raises(PackageNotFound, match="does not exist"):
            await registry.pull(parse_reference(f"{address}/no/such:v1"))


async def test_image_beyond_the_limit_is_not_fetched(address: str, tmp_path: Path) -> None:
    reference = parse_reference(f"{address}/team/large:v1")
    async with client(tmp_path / "here") as here:
        await here.push(build(here.blobs, noise=100_000, name="large"), reference)
    async with client(tmp_path / "there", limits=Limits(image_bytes=50_000)) as there:
        with pytest.raises(PackageTooLarge, match="at most 50000 are taken"):
            await there.pull(reference)
    stored = [file.stat().st_size for file in (tmp_path / "there").rglob("*") if file.is_file()]
    assert sum(stored) < 5_000, "nothing but the manifest has come"


# -- logins


async def test_login_lets_us_in_and_its_lack_does_not(guarded: str, tmp_path: Path) -> None:
    reference = parse_reference(f"{guarded}/team/private:v1")
    async with client(tmp_path / "ada", Credentials({guarded: Login(USER, PASSWORD)})) as ada:
        await ada.push(build(ada.blobs, name="private"), reference)
    async with client(tmp_path / "ada2", Credentials({f"{guarded}/team": Login(USER, PASSWORD)})) as ada:
        assert read_package(await ada.pull(reference)).name == "private"
    for number, credentials in enumerate((Credentials(), Credentials({guarded: Login(USER, "wrong")}))):
        async with client(tmp_path / f"eve{number}", credentials) as eve:
            with pytest.raises(RegistryRefused, match="401") as caught:
                await eve.pull(reference)
            assert PASSWORD not in str(caught.value)
            assert "docker login" in (caught.value.hint or "")


# -- bad lines: a proxy in front of the real registry


class Line:
    """A connection to the registry that can be cut, slow, busy or lying."""

    def __init__(self, upstream: str) -> None:
        self.upstream = upstream
        self.cut_after: int | None = None
        """Bytes of a blob's answer after which the connection is cut; None never."""
        self.busy = 0
        """How many answers are 503 from now on."""
        self.token = ""
        """If set, requests need this bearer token, which /token gives to Ada."""
        self.lie: bytes = b""
        """If set, blobs hold this instead."""
        self.requests: list[str] = []
        self.address = ""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            await self._answer(head, reader, writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    async def _answer(self, head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        text = head.decode()
        first, *lines = text.split("\r\n")
        headers = {key.lower(): value.strip() for key, _, value in (line.partition(":") for line in lines if line)}
        note = f"{first} {headers.get('range', '')}".strip()
        self.requests.append(note)
        if self.busy:
            self.busy -= 1
            writer.write(b"HTTP/1.1 503 Busy\r\nRetry-After: 7\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
            return
        if "/token?" in first:
            ok = headers.get("authorization") == Login(USER, PASSWORD).basic
            body = b'{"token": "%s"}' % self.token.encode() if ok else b"{}"
            status = b"200 OK" if ok else b"401 No"
            writer.write(
                b"HTTP/1.1 %s\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s" % (status, len(body), body)
            )
            return
        if self.token and headers.get("authorization") != f"Bearer {self.token}":
            asks = f'Bearer realm="http://{self.address}/token",service="test",scope="repository:x:pull"'
            said = f"WWW-Authenticate: {asks}\r\nContent-Length: 0\r\nConnection: close"
            writer.write(f"HTTP/1.1 401 No\r\n{said}\r\n\r\n".encode())
            return
        is_blob = first.startswith("GET") and "/blobs/" in first
        if self.lie and is_blob:
            writer.write(
                b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\nConnection: close\r\n\r\n" % len(self.lie) + self.lie
            )
            return
        host, _, port = self.upstream.partition(":")
        upstream_reader, upstream_writer = await asyncio.open_connection(host, int(port))
        kept = [line for line in lines if line and not line.lower().startswith(("connection", "authorization", "host"))]
        request = [first, *kept, f"Host: {self.upstream}", "Connection: close", "", ""]
        upstream_writer.write("\r\n".join(request).encode())
        upstream_writer.write(await reader.readexactly(int(headers.get("content-length", "0"))))
        answer = await upstream_reader.readuntil(b"\r\n\r\n")
        writer.write(answer)
        sent = 0
        while chunk := await upstream_reader.read(16384):
            if is_blob and self.cut_after is not None and sent + len(chunk) > self.cut_after:
                writer.write(chunk[: max(0, self.cut_after - sent)])
                await writer.drain()
                break
            sent += len(chunk)
            writer.write(chunk)
            await writer.drain()
        upstream_writer.close()


@pytest.fixture
async def line(address: str) -> AsyncIterator[Line]:
    made = Line(address)
    server = await asyncio.start_server(made.serve, "127.0.0.1", 0)
    made.address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    async with server:
        yield made


async def pushed(address: str, directory: Path, name: str, noise: int = 1000) -> tuple[Image, str]:
    async with client(directory) as here:
        image = build(here.blobs, noise=noise, name=name)
        await here.push(image, parse_reference(f"{address}/team/{name}:v1"))
    return image, f"team/{name}:v1"


async def test_interrupted_download_goes_on_where_it_stopped(address: str, line: Line, tmp_path: Path) -> None:
    image, name = await pushed(address, tmp_path / "here", "torn", noise=400_000)
    line.cut_after = 100_000
    async with client(tmp_path / "there") as there:
        assert (await there.pull(parse_reference(f"{line.address}/{name}"))).digest == image.digest
    ranges = [request.rpartition("bytes=")[2] for request in line.requests if "bytes=" in request]
    assert ranges == ["100000-", "200000-", "300000-", "400000-"]


async def test_download_that_a_crash_interrupted_goes_on_in_the_next_process(
    address: str, line: Line, tmp_path: Path
) -> None:
    image, name = await pushed(address, tmp_path / "here", "crashed", noise=200_000)
    reference = parse_reference(f"{line.address}/{name}")
    largest = max(image.manifest.layers, key=lambda layer: layer.size)
    there = BlobStore(tmp_path / "there")
    there.partial(largest.digest).write_bytes(image.blobs.path(largest.digest).read_bytes()[:150_000])
    async with client(tmp_path / "there") as registry:
        assert (await registry.pull(reference)).digest == image.digest
    assert next(request for request in line.requests if "bytes=" in request).endswith("bytes=150000-")
    assert not list((tmp_path / "there" / "partial").iterdir())


async def test_part_that_was_spoilt_is_noticed_and_fetched_anew(address: str, line: Line, tmp_path: Path) -> None:
    image, name = await pushed(address, tmp_path / "here", "spoilt", noise=50_000)
    reference = parse_reference(f"{line.address}/{name}")
    largest = max(image.manifest.layers, key=lambda layer: layer.size)
    BlobStore(tmp_path / "there").partial(largest.digest).write_bytes(b"x" * 20_000)
    async with client(tmp_path / "there") as registry:
        with pytest.raises(DigestMismatch):
            await registry.pull(reference)
        assert (await registry.pull(reference)).digest == image.digest


async def test_line_that_never_holds_is_given_up(address: str, line: Line, tmp_path: Path) -> None:
    _, name = await pushed(address, tmp_path / "here", "hopeless", noise=50_000)
    line.cut_after = 0
    clock = HastyClock()
    async with client(tmp_path / "there", clock=clock) as there:
        with pytest.raises(RegistryUnavailable):
            await there.pull(parse_reference(f"{line.address}/{name}"))
    assert len(clock.waits) >= 5
    assert max(clock.waits) < 10


async def test_busy_registry_is_asked_again_when_it_says(address: str, line: Line, tmp_path: Path) -> None:
    image, name = await pushed(address, tmp_path / "here", "busy")
    line.busy, clock = 3, HastyClock()
    async with client(tmp_path / "there", clock=clock) as there:
        assert (await there.pull(parse_reference(f"{line.address}/{name}"))).digest == image.digest
    assert clock.waits == [7.0, 7.0, 7.0]


@pytest.mark.parametrize("lie", [b"x", b"x" * 5_000_000])
async def test_other_bytes_than_announced_are_refused(address: str, line: Line, tmp_path: Path, lie: bytes) -> None:
    _, name = await pushed(address, tmp_path / "here", "lied-about", noise=30_000)
    line.lie = lie
    async with client(tmp_path / "there") as there:
        with pytest.raises((DigestMismatch, PackageTooLarge, RegistryUnavailable)):
            await there.pull(parse_reference(f"{line.address}/{name}"))
    stored = [file.stat().st_size for file in (tmp_path / "there").rglob("*") if file.is_file()]
    assert sum(stored) < 50_000, "no more than was announced is ever kept"


async def test_token_is_asked_for_where_the_registry_says(address: str, line: Line, tmp_path: Path) -> None:
    image, name = await pushed(address, tmp_path / "here", "with-token")
    line.token = base64.b64encode(os.urandom(12)).decode()
    reference = parse_reference(f"{line.address}/{name}")
    async with client(tmp_path / "ada", Credentials({line.address: Login(USER, PASSWORD)})) as ada:
        assert (await ada.pull(reference)).digest == image.digest
    asked = [request for request in line.requests if "/token?" in request]
    assert len(asked) == 1, "one token serves all requests for a repository"
    assert "scope=repository:team/with-token:pull" in asked[0]
    async with client(tmp_path / "eve") as eve:
        with pytest.raises(RegistryRefused):
            await eve.pull(reference)


async def test_token_that_is_no_longer_taken_is_renewed(address: str, line: Line, tmp_path: Path) -> None:
    await pushed(address, tmp_path / "here", "renewed")
    reference = parse_reference(f"{line.address}/team/renewed:v1")
    async with client(tmp_path / "ada", Credentials({line.address: Login(USER, PASSWORD)})) as ada:
        for token in ("first", "second"):
            line.token = token
            assert await ada.tags(reference) == ["v1"]
    assert len([request for request in line.requests if "/token?" in request]) == 2


async def test_two_processes_can_fetch_the_same_at_once(address: str, tmp_path: Path) -> None:
    image, name = await pushed(address, tmp_path / "here", "shared", noise=50_000)
    store = BlobStore(tmp_path / "there")
    with store.partial(max(image.manifest.layers, key=lambda layer: layer.size).digest).open("ab") as theirs:
        fcntl.flock(theirs, fcntl.LOCK_EX)  # what the other process does while it downloads
        async with client(tmp_path / "there") as there:
            assert (await there.pull(parse_reference(f"{address}/{name}"))).digest == image.digest
    assert [file.stat().st_size for file in (tmp_path / "there" / "partial").iterdir()] == [0], "only theirs is left"


async def test_mirror_is_asked_first_and_may_fail(address: str, line: Line, tmp_path: Path) -> None:
    image, name = await pushed(address, tmp_path / "here", "mirrored")
    origin = parse_reference(f"origin.example.org/{name}")
    async with client(tmp_path / "one", mirrors={"origin.example.org/": [f"{line.address}/"]}) as registry:
        assert (await registry.pull(origin)).digest == image.digest
        assert registry.blobs.recall(str(origin)) is not None, "it is known by the name that was asked for"
    mirrors = {"origin.example.org/": ["127.0.0.1:1/", f"{line.address}/nothing/", f"{line.address}/"]}
    async with client(tmp_path / "two", mirrors=mirrors) as registry:
        assert (await registry.pull(origin.pinned(image.digest))).digest == image.digest


async def test_second_push_sends_nothing_that_is_there(address: str, line: Line, tmp_path: Path) -> None:
    _, name = await pushed(address, tmp_path / "here", "again", noise=20_000)
    async with client(tmp_path / "here") as here:
        await here.push(build(here.blobs, noise=20_000, name="again"), parse_reference(f"{line.address}/{name}"))
    assert not [request for request in line.requests if request.startswith("POST")]


# -- signatures


async def test_signature_beside_the_image_is_found_and_checked(address: str, tmp_path: Path) -> None:
    image, name = await pushed(address, tmp_path / "here", "signed")
    reference = parse_reference(f"{address}/{name}")
    private, public = key_pair()
    _, stranger = key_pair()
    async with client(tmp_path / "here") as here:
        with pytest.raises(SignatureInvalid, match="is not signed"):
            await verify_image(here, reference, image.digest, {"us": public})
        payload = payload_for(image.digest)
        layer = Descriptor(SIMPLE_SIGNING, here.blobs.add(payload), len(payload), signed_with(private, payload))
        signature = store_image(here.blobs, {"rootfs": {"diff_ids": []}}, [layer])
        await here.push(signature, reference.tagged(signature_tag(image.digest)))
    async with client(tmp_path / "there") as there:
        verified = await verify_image(there, reference, image.digest, {"them": stranger, "us": public})
        assert verified.authority == "us"
        with pytest.raises(SignatureInvalid, match="made with another key than them's"):
            await verify_image(there, reference, image.digest, {"them": stranger})


async def test_signature_that_refers_to_the_image_is_found_too(address: str, tmp_path: Path) -> None:
    """On a registry that cannot list referrers, the list is kept under a tag made of the digest."""
    image, name = await pushed(address, tmp_path / "here", "referred-to")
    reference = parse_reference(f"{address}/{name}")
    private, public = key_pair()
    async with client(tmp_path / "here") as here:
        payload = payload_for(image.digest)
        layer = Descriptor(SIMPLE_SIGNING, here.blobs.add(payload), len(payload), signed_with(private, payload))
        parts = store_image(here.blobs, {}, [layer])
        await here.push(parts, reference.tagged("parts"))
        manifest = replace(parts.manifest, artifact_type=ARTIFACT_TYPE, subject=image.descriptor)
        sent = await here.push_manifest(reference.tagged(""), manifest)
        listed = Index((replace(sent, artifact_type=ARTIFACT_TYPE), Descriptor("text/other", sent.digest, sent.size)))
        await here.push_manifest(reference.tagged(image.digest.replace(":", "-")), listed)
    async with client(tmp_path / "there") as there:
        assert (await verify_image(there, reference, image.digest, {"us": public})).authority == "us"
