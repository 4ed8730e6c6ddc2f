"""Content by its digest, in a directory: an OCI image layout that several processes may share.

    blobs/sha256/HEX      content; a name never holds other bytes than those it was made of
    partial/HEX           a download that was interrupted, to be resumed
    names/HEX             which manifest a package's name meant when it was last asked for

Content is checked while it is written and appears under its name only when it is whole.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import math
import os
import shutil
import tempfile
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Final

from planform.packages.errors import (
    DigestMismatch,
    InvalidPackage,
    PackageError,
    PackageNotFound,
    PackageTooLarge,
)
from planform.packages.oci import (
    CONFIG_BYTES,
    MANIFEST_BYTES,
    OCI_CONFIG,
    Descriptor,
    Manifest,
    Platform,
    canonical_json,
    digest_of,
    parse_json,
    parse_manifest,
)
from planform.packages.references import DIGEST

_CHUNK: Final = 256 << 10


class BlobStore:
    """Content by digest. Every method that writes leaves either the whole content or nothing under its name."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._blobs = directory / "blobs" / "sha256"
        self._partial = directory / "partial"
        self._names = directory / "names"
        for each in (self._blobs, self._partial, self._names):
            each.mkdir(parents=True, exist_ok=True)

    def path(self, digest: str) -> Path:
        return self._blobs / _hex(digest)

    def partial(self, digest: str) -> Path:
        """Where an unfinished download of this content is kept."""
        return self._partial / _hex(digest)

    def has(self, descriptor: Descriptor) -> bool:
        try:
            return self.path(descriptor.digest).stat().st_size == descriptor.size
        except FileNotFoundError:
            return False

    def open(self, digest: str) -> BinaryIO:
        try:
            return self.path(digest).open("rb")
        except FileNotFoundError as error:
            raise PackageNotFound(f"{digest} is not stored here") from error

    def read(self, digest: str, limit: int) -> bytes:
        """Small content, whole and checked once more."""
        with self.open(digest) as file:
            body = file.read(limit + 1)
        if len(body) > limit:
            raise PackageTooLarge(f"{digest} has more than {limit} bytes")
        if digest_of(body) != digest:
            raise DigestMismatch(f"what is stored as {digest} has changed", hint=f"delete {self.path(digest)}")
        return body

    def add(self, body: bytes) -> str:
        return self.add_stream([body])[0]

    def add_stream(self, chunks: Iterable[bytes], *, limit: int | None = None, where: str = "it") -> tuple[str, int]:
        """Digest and size of what was stored. Raises PackageTooLarge, and then nothing was."""
        digest, size = hashlib.sha256(), 0
        with self._new() as (file, path):
            for chunk in chunks:
                size += len(chunk)
                if limit is not None and size > limit:
                    raise PackageTooLarge(f"{where} is larger than {limit} bytes")
                digest.update(chunk)
                file.write(chunk)
            file.flush()
            self._publish(path, f"sha256:{digest.hexdigest()}")
        return f"sha256:{digest.hexdigest()}", size

    @contextmanager
    def _new(self) -> Iterator[tuple[BinaryIO, Path]]:
        """A file to be written and then renamed; if it is not, it goes."""
        handle, name = tempfile.mkstemp(dir=self._partial, prefix="new-")
        try:
            with os.fdopen(handle, "wb") as file:
                fcntl.flock(file, fcntl.LOCK_EX)  # or a sweep would take it for the rest of a crash
                yield file, Path(name)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise

    def adopt(self, file: Path, descriptor: Descriptor) -> None:
        """Take a finished download; raises DigestMismatch, and removes it, if it is not what it should be."""
        with file.open("rb") as opened:
            found = f"sha256:{hashlib.file_digest(opened, 'sha256').hexdigest()}"
        if found != descriptor.digest:
            file.unlink(missing_ok=True)
            raise DigestMismatch(f"asked for {descriptor.digest}, and got {found}")
        self._publish(file, descriptor.digest)

    def remember(self, name: str, descriptor: Descriptor) -> None:
        """What a package's name means now."""
        with self._new() as (file, path):
            file.write(canonical_json({"name": name, **descriptor.to_json()}))
            file.flush()
            path.rename(self._names / hashlib.sha256(name.encode()).hexdigest())

    def recall(self, name: str) -> Descriptor | None:
        """What the name meant when it was last asked for."""
        try:
            noted = parse_json((self._names / hashlib.sha256(name.encode()).hexdigest()).read_bytes(), name)
        except (FileNotFoundError, InvalidPackage):
            return None
        return Descriptor(noted["mediaType"], noted["digest"], noted["size"])

    def closure(self, digests: Iterable[str]) -> set[str]:
        """These, and everything that they are made of and that is here: of an index its images, of an image its parts.

        What cannot be read is only itself.
        """
        found: set[str] = set()
        todo = list(digests)
        while todo:
            digest = todo.pop()
            if digest in found:
                continue
            found.add(digest)
            try:
                made = parse_manifest(self.read(digest, MANIFEST_BYTES), where=digest)
            except PackageError:
                continue
            if isinstance(made, Manifest):
                found.update(part.digest for part in (made.config, *made.layers))
            else:
                todo += [image.digest for image in made.manifests]
        return found

    def forget_names(self, keep: Collection[str]) -> None:
        """Forget the names of all but these and of what is here: somebody may have put it here just now."""
        for file in self._names.iterdir():
            try:
                noted = parse_json(file.read_bytes(), file.name)["digest"]
            except (FileNotFoundError, InvalidPackage, LookupError, TypeError):
                noted = ""
            if noted not in keep and not (DIGEST.match(noted) and (self._blobs / _hex(noted)).exists()):
                file.unlink(missing_ok=True)

    def unused(self, keep: Collection[str]) -> list[Path]:
        """The files of all content but this."""
        kept = {_hex(digest) for digest in keep}
        return [file for file in self._blobs.iterdir() if file.name not in kept]

    def sweep(self, keep: Collection[str], *, older_than: float = math.inf) -> int:
        """Remove all content but this, and what is left of interrupted downloads; gives the bytes that are free now.

        What is being written meanwhile stays, also if another process writes it, and so does what was last written
        after `older_than`, in seconds since 1970.
        """
        left = [file for file in self._partial.iterdir() if not _is_locked(file)]
        freed = 0
        for file in (*self.unused(keep), *left):
            with contextlib.suppress(FileNotFoundError):
                about = file.stat()
                if about.st_mtime < older_than:
                    file.unlink()
                    freed += about.st_size
        return freed

    def _publish(self, file: Path, digest: str) -> None:
        file.chmod(0o644)
        file.rename(self.path(digest))


@dataclass(frozen=True, slots=True)
class Image:
    """A stored image. `config` has been parsed; layers are read from `blobs` when they are needed."""

    descriptor: Descriptor
    manifest: Manifest
    config: Mapping[str, Any]
    blobs: BlobStore

    @property
    def digest(self) -> str:
        return self.descriptor.digest

    @property
    def size(self) -> int:
        """Bytes of all that would be sent to a registry."""
        return self.descriptor.size + self.manifest.config.size + sum(layer.size for layer in self.manifest.layers)

    @property
    def platform(self) -> Platform:
        config = self.config
        return Platform(
            str(config.get("os") or ""), str(config.get("architecture") or ""), str(config.get("variant") or "")
        )

    @property
    def settings(self) -> Mapping[str, Any]:
        """How its program is started: Entrypoint, Cmd, Env, WorkingDir, User, Labels."""
        settings = self.config.get("config")
        return settings if isinstance(settings, dict) else {}

    @property
    def labels(self) -> Mapping[str, str]:
        labels = self.settings.get("Labels")
        return labels if isinstance(labels, dict) else {}


def load_image(blobs: BlobStore, digest: str) -> Image:
    """An image that is stored, by the digest of its manifest."""
    body = blobs.read(digest, MANIFEST_BYTES)
    manifest = parse_manifest(body, where=f"manifest {digest}")
    if not isinstance(manifest, Manifest):
        raise InvalidPackage(f"{digest} is an index of images, not an image")
    config = parse_json(blobs.read(manifest.config.digest, CONFIG_BYTES), f"the configuration of {digest}")
    if not isinstance(config, dict):
        raise InvalidPackage(f"the configuration of {digest} is not an object")
    return Image(Descriptor(manifest.media_type, digest, len(body)), manifest, config, blobs)


def store_image(
    blobs: BlobStore,
    config: Mapping[str, Any] | bytes,
    layers: Sequence[Descriptor],
    annotations: Mapping[str, str] | None = None,
) -> Image:
    """Make an image of layers that are stored already. A configuration given as bytes stays as it is."""
    body = config if isinstance(config, bytes) else canonical_json(config)
    parsed = parse_json(body, "the configuration of the image")
    if not isinstance(parsed, dict):
        raise InvalidPackage("the configuration of the image is not an object")
    manifest = Manifest(Descriptor(OCI_CONFIG, blobs.add(body), len(body)), tuple(layers), annotations or {})
    encoded = manifest.encode()
    return Image(Descriptor(manifest.media_type, blobs.add(encoded), len(encoded)), manifest, parsed, blobs)


@contextmanager
def temporary_store() -> Iterator[BlobStore]:
    """A store for the length of the block."""
    directory = Path(tempfile.mkdtemp(prefix="planform-blobs-"))
    try:
        yield BlobStore(directory)
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def chunks_of(stream: BinaryIO) -> Iterator[bytes]:
    while chunk := stream.read(_CHUNK):
        yield chunk


def _is_locked(file: Path) -> bool:
    try:
        with file.open("rb") as opened:
            fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except FileNotFoundError:
        pass  # whoever had it is done with it
    return False


def _hex(digest: str) -> str:
    if not DIGEST.match(digest):
        raise InvalidPackage(f"{digest[:80]!r} is no sha256 digest")
    return digest.removeprefix("sha256:")
