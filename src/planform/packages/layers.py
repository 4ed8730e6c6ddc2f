"""Layers that we make: the same files give the same bytes, wherever and whenever they are packed.

So entries are sorted, and times, owners and all of the mode but "executable" are left out.
"""

from __future__ import annotations

import hashlib
import io
import tarfile
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from planform.packages.blobs import BlobStore
from planform.packages.oci import OCI_LAYER_GZIP, Descriptor

_GZIP_WINDOW: Final = 31  # zlib's number for "write a gzip header"; the one it writes has neither time nor name
_LEVEL: Final = 6


@dataclass(frozen=True, slots=True)
class File:
    """One file of a layer: its path there, and its content or where that is."""

    path: str
    content: bytes | Path
    executable: bool = False


@dataclass(frozen=True, slots=True)
class Layer:
    """A stored layer. `diff_id` is the digest of the archive before compression, which configurations list."""

    descriptor: Descriptor
    diff_id: str


def make_layer(blobs: BlobStore, files: Iterable[File], *, with_directories: bool = True) -> Layer:
    """Pack files into a layer and store it. `with_directories` also packs the directories they are in."""
    packed = _Packed()
    digest, size = blobs.add_stream(packed.chunks(sorted(files, key=lambda file: file.path), with_directories))
    return Layer(Descriptor(OCI_LAYER_GZIP, digest, size), f"sha256:{packed.plain.hexdigest()}")


class _Packed(io.RawIOBase):
    """What `tarfile` writes to: digests the archive and gives its compressed form, piece by piece."""

    def __init__(self) -> None:
        self.plain = hashlib.sha256()
        self._compressor = zlib.compressobj(_LEVEL, zlib.DEFLATED, _GZIP_WINDOW)
        self._ready: list[bytes] = []

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self.plain.update(data)
        self._ready.append(self._compressor.compress(data))
        return len(data)

    def chunks(self, files: Iterable[File], with_directories: bool) -> Iterator[bytes]:
        made: set[str] = set()
        with tarfile.open(fileobj=self, mode="w|", format=tarfile.PAX_FORMAT) as archive:
            for file in files:
                for directory in _above(file.path) if with_directories else ():
                    if directory not in made:
                        made.add(directory)
                        archive.addfile(_header(directory, 0, 0o755, tarfile.DIRTYPE))
                mode = 0o755 if file.executable else 0o644
                if isinstance(file.content, bytes):
                    archive.addfile(_header(file.path, len(file.content), mode), io.BytesIO(file.content))
                else:
                    with file.content.open("rb") as opened:
                        archive.addfile(_header(file.path, file.content.stat().st_size, mode), opened)
                yield from self._take()
        yield from self._take()
        yield self._compressor.flush()

    def _take(self) -> list[bytes]:
        ready, self._ready = self._ready, []
        return ready


def _above(path: str) -> list[str]:
    parts = path.split("/")[:-1]
    return ["/".join(parts[:count]) for count in range(1, len(parts) + 1)]


def _header(path: str, size: int, mode: int, kind: bytes = tarfile.REGTYPE) -> tarfile.TarInfo:
    header = tarfile.TarInfo(path)
    header.size, header.mode, header.type = size, mode, kind
    return header
