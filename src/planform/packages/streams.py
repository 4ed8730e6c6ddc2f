"""Reading compressed tar archives that somebody else made, with memory and output bounded whatever they hold.

The reader below is what `tarfile` is given. It never inflates more than it is asked for, counts everything that comes
out, and refuses the two ways in which a small file becomes a large one: a high compression ratio, and a header of a
tar entry that claims to be long (those are read whole).
"""

from __future__ import annotations

import io
import tarfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final

from planform.packages.errors import InvalidPackage, PackageTooLarge

CHUNK: Final = 256 << 10
_GZIP: Final = b"\x1f\x8b"
_ZSTANDARD: Final = b"\x28\xb5\x2f\xfd"
_GZIP_WINDOW: Final = 31  # zlib's number for "expect a gzip header"
_MAX_READ: Final = 1 << 20
_RATIO_FLOOR: Final = 32 << 20
"""Bytes that may come out before the ratio is looked at: small archives of zeros are no danger."""


@dataclass(frozen=True, slots=True)
class ArchiveLimits:
    """What one archive may become."""

    unpacked_bytes: int = 4 << 30
    """Bytes that an archive, or all layers of an image, may have once unpacked."""
    ratio: int = 200
    """How many times its size an archive may become; looked at beyond 32 MiB."""
    entries: int = 250_000
    """Files, directories and links in it."""
    path_length: int = 1024
    """Characters of the path of an entry."""


class ArchiveReader(io.RawIOBase):
    """The bytes of an archive, inflated if need be, forwards only."""

    def __init__(self, source: BinaryIO, limits: ArchiveLimits, *, where: str) -> None:
        self._source = source
        self._limits = limits
        self._where = where
        self._taken = 0
        self._position = 0
        self._buffer = b""
        start = source.read(4)
        self._taken += len(start)
        if start.startswith(_ZSTANDARD):
            raise InvalidPackage(f"{where} is compressed with zstd", hint="build it with gzip compression")
        self._inflater = zlib.decompressobj(_GZIP_WINDOW) if start.startswith(_GZIP) else None
        self._waiting = start
        self._between = False  # whether a compressed stream has ended and no other has begun
        self._ended = False

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Forwards only, by reading: `tarfile` skips the content of entries this way."""
        target = offset if whence == io.SEEK_SET else self._position + offset
        if target < self._position:
            raise InvalidPackage(f"{self._where} is not in the order in which it is read")
        while self._position < target:
            if not self._take(min(CHUNK, target - self._position)):
                break
        return self._position

    def read(self, size: int = -1) -> bytes:
        if size < 0 or size > _MAX_READ:
            raise PackageTooLarge(f"{self._where} has an entry with a header of {size} bytes")
        parts, missing = [], size
        while missing:
            part = self._take(missing)
            if not part:
                break
            parts.append(part)
            missing -= len(part)
        return b"".join(parts)

    def _take(self, maximum: int) -> bytes:
        while not self._buffer and not self._ended:
            self._buffer = self._inflate()
        part, self._buffer = self._buffer[:maximum], self._buffer[maximum:]
        self._position += len(part)
        return part

    def _inflate(self) -> bytes:
        """Some more of the archive, at most CHUNK bytes; none if only a part of a compressed block has come yet."""
        if not self._waiting:
            self._waiting = self._source.read(CHUNK)
            self._taken += len(self._waiting)
        if not self._waiting:
            self._ended = True
            if self._inflater is not None and not self._between:
                raise InvalidPackage(f"{self._where} ends too early")
            return b""
        if self._inflater is None:
            out, self._waiting = self._waiting, b""
        else:
            out = self._inflated(self._inflater)
        self._check(self._position + len(out))
        return out

    def _inflated(self, inflater: zlib._Decompress) -> bytes:
        try:
            out = inflater.decompress(self._waiting, CHUNK)
        except zlib.error as error:
            raise InvalidPackage(f"{self._where} is damaged: {error}") from error
        self._waiting = inflater.unconsumed_tail
        if inflater.eof:
            self._waiting = inflater.unused_data.lstrip(b"\0")
            # Archives that several programs had a hand in are several gzip streams one after the other.
            self._inflater = zlib.decompressobj(_GZIP_WINDOW)
        self._between = inflater.eof
        return out

    def _check(self, size: int) -> None:
        limits = self._limits
        if size > limits.unpacked_bytes:
            raise PackageTooLarge(f"{self._where} is larger than {limits.unpacked_bytes} bytes once unpacked")
        if size > _RATIO_FLOOR and size > limits.ratio * max(1, self._taken):
            raise PackageTooLarge(f"{self._where} becomes more than {limits.ratio} times its size when unpacked")


@contextmanager
def open_archive(
    source: Path | BinaryIO, limits: ArchiveLimits, *, where: str
) -> Iterator[Iterator[tuple[tarfile.TarInfo, BinaryIO | None]]]:
    """The entries of a tar archive, compressed or not, each with its content if it is a regular file.

    An entry's content can be read until the next one is asked for. Raises InvalidPackage and PackageTooLarge.
    """
    stream = source.open("rb") if isinstance(source, Path) else source
    try:
        reader = ArchiveReader(stream, limits, where=where)
        yield _entries(reader, limits, where)
    finally:
        if isinstance(source, Path):
            stream.close()


def _entries(
    reader: ArchiveReader, limits: ArchiveLimits, where: str
) -> Iterator[tuple[tarfile.TarInfo, BinaryIO | None]]:
    count = 0
    try:
        with tarfile.open(fileobj=reader, mode="r:") as archive:
            while (entry := archive.next()) is not None:
                count += 1
                if count > limits.entries:
                    raise PackageTooLarge(f"{where} has more than {limits.entries} entries")
                if len(entry.name) > limits.path_length or len(entry.linkname) > limits.path_length:
                    raise PackageTooLarge(f"{where} has an entry whose path is longer than {limits.path_length}")
                if entry.issparse():
                    raise InvalidPackage(f"{where}: {entry.name} is a sparse file, which packages do not need")
                content = archive.extractfile(entry) if entry.isreg() else None
                yield entry, content  # type: ignore[misc]  # tarfile's IO[bytes] is a BinaryIO
                archive.members = []  # type: ignore[attr-defined]  # else it keeps every entry it has seen
    except (tarfile.TarError, EOFError, UnicodeError, ValueError, OverflowError) as error:
        if isinstance(error, tarfile.ReadError) and str(error) == "empty file":
            return
        raise InvalidPackage(f"{where} is not a tar archive: {error}") from error
