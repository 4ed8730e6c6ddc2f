"""Images from and to registries, through a local store.

Pulling resolves a name to a digest, fetches that digest and nothing else, and takes up where an interrupted download
stopped. Sizes are known before anything is fetched. What is stored already is not fetched again, and with a digest no
registry is asked at all. Mirrors are asked first: for a digest they can only give the bytes that were asked for; what a
tag means is up to them, so only mirror what you trust.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from random import Random
from types import TracebackType
from typing import Final, Self, TypeVar

from yarl import URL

from planform.clock import Clock, SystemClock
from planform.packages.blobs import BlobStore, Image, load_image
from planform.packages.credentials import Credentials
from planform.packages.errors import (
    DigestMismatch,
    InvalidPackage,
    PackageNotFound,
    PackageTooLarge,
    RegistryRefused,
    RegistryUnavailable,
)
from planform.packages.oci import (
    INDEXES,
    MANIFESTS,
    Descriptor,
    Index,
    Manifest,
    Platform,
    choose,
    digest_of,
    parse_json,
    parse_manifest,
)
from planform.packages.references import DIGEST, Reference, parse_reference
from planform.packages.registry_session import Access, RegistrySession
from planform.packages.transfers import download, upload

_ACCEPT: Final = {"Accept": ", ".join((*MANIFESTS, *INDEXES))}
_PARALLEL: Final = 3
_MAX_TAGS: Final = 20_000
_MAX_PAGES: Final = 1000
_NEXT: Final = re.compile(r'<([^>]+)>\s*;\s*rel="?next"?')


class PullPolicy(StrEnum):
    """When to ask the registry what a name means."""

    IF_NOT_PRESENT = "IfNotPresent"
    ALWAYS = "Always"
    NEVER = "Never"


@dataclass(frozen=True, slots=True)
class Limits:
    """What one image may bring to this machine."""

    image_bytes: int = 2 << 30
    """Bytes of an image as it is sent, all layers together."""


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a transfer is."""

    done: int
    total: int


Report = Callable[[Progress], None]
T = TypeVar("T")


class RegistryClient:
    """Any registry, as seen by one user. Use it as a context manager."""

    def __init__(
        self,
        blobs: BlobStore,
        credentials: Credentials,
        *,
        access: Access = Access(),  # noqa: B008  # frozen
        limits: Limits = Limits(),  # noqa: B008  # frozen
        mirrors: Mapping[str, Sequence[str]] | None = None,
        clock: Clock | None = None,
        rng: Random | None = None,
    ) -> None:
        """`mirrors` gives prefixes to try, in order, in place of a prefix of a package's name."""
        self.blobs = blobs
        self._limits = limits
        self._mirrors = dict(mirrors or {})
        self._session = RegistrySession(credentials, clock=clock or SystemClock(), rng=rng or Random(), access=access)
        self._downloads: dict[str, asyncio.Lock] = {}

    async def __aenter__(self) -> Self:
        await self._session.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._session.__aexit__(kind, error, trace)

    async def resolve(self, reference: Reference) -> Descriptor:
        """What a name means now: type, digest and size of its manifest. Costs one small request."""
        return await self._first(reference, self._resolve)

    async def manifest(self, reference: Reference) -> tuple[Descriptor, Manifest | Index]:
        """The manifest or index of a package, which is then stored."""
        return await self._first(reference, self._manifest)

    async def pull(
        self,
        reference: Reference,
        *,
        policy: PullPolicy = PullPolicy.IF_NOT_PRESENT,
        platform: Platform | None = None,
        report: Report | None = None,
    ) -> Image:
        """A package's image, complete in the store. Raises PackageError of the kind that says what is wrong."""
        known = self._stored(reference, policy)
        if known is not None and (image := self._whole(known, platform)) is not None:
            return image
        if policy is PullPolicy.NEVER:
            raise PackageNotFound(f"{reference} is not stored here, and must not be pulled")
        return await self._first(reference, lambda where: self._pull(where, reference, platform, report))

    async def tags(self, reference: Reference) -> list[str]:
        """All tags of a repository, as the registry lists them."""
        return await self._first(reference, self._tags)

    async def referrers(self, reference: Reference, digest: str) -> Index:
        """What else the registry keeps about an image, such as signatures; empty if it keeps no such list."""
        try:
            answer = await self._session.request("GET", reference, f"referrers/{digest}")
        except (PackageNotFound, RegistryRefused):
            with contextlib.suppress(PackageNotFound):  # how it is done on registries that cannot list them
                _, found = await self._manifest(reference.tagged(digest.replace(":", "-")))
                if isinstance(found, Index):
                    return found
            return Index(())
        found = parse_manifest(answer.body, where=f"the referrers of {digest}")
        if not isinstance(found, Index):
            raise InvalidPackage(f"the referrers of {digest} are no index")
        return found

    async def blob(
        self, reference: Reference, descriptor: Descriptor, report: Callable[[int], None] | None = None
    ) -> Path:
        """The path of a blob, which is fetched unless it is stored."""
        lock = self._downloads.setdefault(descriptor.digest, asyncio.Lock())
        try:
            async with lock:
                if not self.blobs.has(descriptor):
                    await download(self._session, self.blobs, reference, descriptor, report)
        finally:
            if not lock.locked():
                self._downloads.pop(descriptor.digest, None)
        return self.blobs.path(descriptor.digest)

    async def push(self, image: Image, reference: Reference, *, report: Report | None = None) -> Descriptor:
        """Send an image: first what it is made of, as far as it is missing there, then the manifest under its name."""
        parts = list({each.digest: each for each in (image.manifest.config, *image.manifest.layers)}.values())
        done, total = 0, sum(part.size for part in parts)
        for part in parts:
            await upload(self._session, image.blobs, reference, part)
            done += part.size
            if report is not None:
                report(Progress(done, total))
        body = image.blobs.read(image.digest, image.descriptor.size)
        return await self._put_manifest(reference, body, image.manifest.media_type)

    async def push_index(
        self, images: Sequence[Image], reference: Reference, *, report: Report | None = None
    ) -> Descriptor:
        """Send images for several platforms under one name."""
        platforms = [str(image.platform) for image in images]
        if len(set(platforms)) < len(images):
            raise InvalidPackage(f"two of the images are for the same platform: {', '.join(platforms)}")
        described = []
        for image in images:
            sent = await self.push(image, replace(reference, tag="", digest=image.digest), report=report)
            described.append(replace(sent, platform=image.platform))
        return await self.push_manifest(reference, Index(tuple(described)))

    async def push_manifest(self, reference: Reference, manifest: Manifest | Index) -> Descriptor:
        """Send a manifest or index whose parts are there already, under its tag or, without one, its digest."""
        return await self._put_manifest(reference, manifest.encode(), manifest.media_type)

    # -- names

    def _stored(self, reference: Reference, policy: PullPolicy) -> Descriptor | None:
        if reference.digest:
            path = self.blobs.path(reference.digest)
            return Descriptor("", reference.digest, path.stat().st_size) if path.exists() else None
        return None if policy is PullPolicy.ALWAYS else self.blobs.recall(str(reference))

    def _whole(self, described: Descriptor, platform: Platform | None) -> Image | None:
        """The stored image, if nothing of it is missing."""
        try:
            found = parse_manifest(self.blobs.read(described.digest, described.size), where=described.digest)
            digest = choose(found, platform).digest if isinstance(found, Index) else described.digest
            image = load_image(self.blobs, digest)
        except (PackageNotFound, DigestMismatch):
            return None  # what is damaged is fetched again, over what is there
        return image if all(self.blobs.has(layer) for layer in image.manifest.layers) else None

    async def _first(self, reference: Reference, ask: Callable[[Reference], Awaitable[T]]) -> T:
        """Ask each mirror, then the registry itself; only what cannot be had is asked for elsewhere."""
        *mirrors, origin = self._candidates(reference)
        for mirror in mirrors:
            with contextlib.suppress(RegistryUnavailable, PackageNotFound, DigestMismatch):
                return await ask(mirror)
        return await ask(origin)

    def _candidates(self, reference: Reference) -> list[Reference]:
        """Where to look, the registry itself last; of the mirrored prefixes the longest counts."""
        name = str(reference)
        prefix = max((each for each in self._mirrors if name.startswith(each)), key=len, default=None)
        places = self._mirrors[prefix] if prefix is not None else ()
        return [*(parse_reference(place + name[len(prefix or "") :]) for place in places), reference]

    # -- manifests

    async def _resolve(self, reference: Reference) -> Descriptor:
        path = f"manifests/{reference.version}"
        answer = await self._session.request("HEAD", reference, path, headers=_ACCEPT, expect=(200, 404, 405))
        digest, size = answer.headers.get("Docker-Content-Digest", ""), answer.headers.get("Content-Length", "")
        if answer.status == 200 and DIGEST.match(digest) and size.isdigit():
            return Descriptor(_media_type(answer.headers), digest, int(size))
        return (await self._manifest(reference))[0]  # some registries do not answer HEAD, or not fully

    async def _manifest(self, reference: Reference) -> tuple[Descriptor, Manifest | Index]:
        answer = await self._session.request("GET", reference, f"manifests/{reference.version}", headers=_ACCEPT)
        digest = digest_of(answer.body)
        if reference.digest and digest != reference.digest:
            raise DigestMismatch(f"asked {reference.registry} for {reference.digest}, and got {digest}")
        media_type = _media_type(answer.headers)
        parsed = parse_manifest(answer.body, media_type, where=f"the manifest of {reference}")
        self.blobs.add(answer.body)
        return Descriptor(parsed.media_type, digest, len(answer.body)), parsed

    async def _put_manifest(self, reference: Reference, body: bytes, media_type: str) -> Descriptor:
        digest = digest_of(body)
        if reference.digest and reference.digest != digest:
            raise DigestMismatch(f"{reference} cannot be the name of {digest}", hint="leave the digest out")
        await self._session.request(
            "PUT",
            reference,
            f"manifests/{reference.tag or digest}",
            headers={"Content-Type": media_type},
            body=lambda: body,
            push=True,
            expect=(200, 201, 202),
        )
        return Descriptor(media_type, digest, len(body))

    async def _pull(
        self, where: Reference, asked: Reference, platform: Platform | None, report: Report | None
    ) -> Image:
        described, found = await self._manifest(where)
        manifest_digest = described.digest
        if isinstance(found, Index):
            chosen = choose(found, platform)
            inner, found = await self._manifest(where.pinned(chosen.digest))
            if isinstance(found, Index):
                raise InvalidPackage(f"{where} is an index of indexes")
            manifest_digest = inner.digest
        parts = (found.config, *found.layers)
        total = sum(part.size for part in parts)
        if total > self._limits.image_bytes:
            raise PackageTooLarge(f"{where} has {total} bytes; at most {self._limits.image_bytes} are taken")
        done = {part.digest: 0 for part in parts}

        def advance(part: Descriptor) -> Callable[[int], None]:
            def to(size: int) -> None:
                done[part.digest] = size
                if report is not None:
                    report(Progress(min(total, sum(done.values())), total))

            return to

        slots = asyncio.Semaphore(_PARALLEL)

        async def fetch(part: Descriptor) -> None:
            async with slots:
                await self.blob(where, part, advance(part))
                advance(part)(part.size)

        await together([fetch(part) for part in {part.digest: part for part in parts}.values()])
        image = load_image(self.blobs, manifest_digest)
        if asked.tag and not asked.digest:
            self.blobs.remember(str(asked), described)
        return image

    async def _tags(self, reference: Reference) -> list[str]:
        found: list[str] = []
        path: str | URL = "tags/list?n=1000"
        for _ in range(_MAX_PAGES):
            answer = await self._session.request("GET", reference, path)
            value = parse_json(answer.body, f"the tags of {reference}")
            tags = value.get("tags") if isinstance(value, dict) else None
            found += [str(tag) for tag in tags or ()]
            following = _NEXT.search(answer.headers.get("Link", ""))
            if following is None or len(found) >= _MAX_TAGS:
                break
            path = URL(following[1], encoded=True)
            if path.is_absolute() and path.host != URL(f"//{reference.registry}").host:
                raise InvalidPackage(f"{reference.registry} lists its tags on another host: {path.host}")
        return found


def _media_type(headers: Mapping[str, str]) -> str:
    return headers.get("Content-Type", "").partition(";")[0].strip()


async def together(parts: Sequence[Coroutine[object, object, None]]) -> None:
    """Run all of them; the first that fails ends the others, and its error is raised as it is."""
    try:
        async with asyncio.TaskGroup() as tasks:
            for part in parts:
                tasks.create_task(part)
    except BaseExceptionGroup as group:
        raise group.exceptions[0] from None
