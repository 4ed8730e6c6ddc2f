"""Unpacking layers into a directory, so that nothing they hold can reach beyond it.

Layers come from strangers. Every path is walked part by part below the root, links are followed only as if the root
were `/`, what is in the way is removed instead of written through, and owners, setuid bits and extended attributes are
dropped. A layer may remove what lower ones brought (whiteouts). Sizes and counts hold for all layers together.
"""

from __future__ import annotations

import os
import shutil
import stat
import tarfile
from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path, PurePosixPath
from typing import BinaryIO, Final

from planform.packages.blobs import BlobStore, Image, chunks_of
from planform.packages.errors import PackageTooLarge, UnsafePackage
from planform.packages.oci import LAYERS, Descriptor
from planform.packages.streams import ArchiveLimits, open_archive

_WHITEOUT: Final = ".wh."
_OPAQUE: Final = ".wh..wh..opq"
_MAX_LINKS: Final = 40
_DEEPEST: Final = 64


class Links(StrEnum):
    """What symbolic links may point to."""

    BELOW = "below"
    """Only to what is below the root: for files that run on this machine as they are."""
    ROOTED = "rooted"
    """Anywhere, since the root becomes `/` before anybody follows them: for the root of a container."""


@dataclass(frozen=True, slots=True)
class Extracted:
    """What was unpacked."""

    entries: int
    bytes: int


def extract_image(
    image: Image,
    destination: Path,
    *,
    links: Links = Links.ROOTED,
    limits: ArchiveLimits = ArchiveLimits(),  # noqa: B008
) -> Extracted:
    """Unpack all layers of an image, lowest first, into a new directory."""
    return extract_layers(image.blobs, image.manifest.layers, destination, links=links, limits=limits)


def extract_layers(
    blobs: BlobStore,
    layers: Iterable[Descriptor],
    destination: Path,
    *,
    links: Links = Links.BELOW,
    limits: ArchiveLimits = ArchiveLimits(),  # noqa: B008  # frozen
) -> Extracted:
    """Unpack layers into a directory that must not exist yet. If anything is refused, the directory is gone again."""
    destination.mkdir(parents=True)
    try:
        tree = _Tree(destination.resolve(), links, limits)
        for layer in layers:
            if layer.media_type not in LAYERS:
                raise UnsafePackage(
                    f"layer {layer.digest} is of type {layer.media_type or 'nothing'}, not a tar archive"
                )
            tree.add(blobs, layer)
    except BaseException:
        shutil.rmtree(destination, ignore_errors=True)
        raise
    return Extracted(tree.entries, tree.bytes)


class _Tree:
    """A root directory that layers are put into. Nobody else writes to it meanwhile."""

    def __init__(self, root: Path, links: Links, limits: ArchiveLimits) -> None:
        self._root = root
        self._links = links
        self._limits = limits
        self.entries = 0
        self.bytes = 0

    def add(self, blobs: BlobStore, layer: Descriptor) -> None:
        left = replace(
            self._limits,
            unpacked_bytes=max(0, self._limits.unpacked_bytes - self.bytes),
            entries=max(0, self._limits.entries - self.entries),
        )
        fresh: set[Path] = set()  # what this layer itself has put there: its whiteouts are about lower ones
        with blobs.open(layer.digest) as file, open_archive(file, left, where=f"layer {layer.digest}") as entries:
            for entry, content in entries:
                self.entries += 1
                self._put(entry, content, fresh)

    def _put(self, entry: tarfile.TarInfo, content: BinaryIO | None, fresh: set[Path]) -> None:
        parts = _parts(entry.name)
        if not parts:
            return  # the root itself
        *above, name = parts
        parent = self._directory(above, entry.name)
        if name == _OPAQUE:
            for child in list(parent.iterdir()):
                if child not in fresh:
                    _remove(child)
            return
        if name.startswith(_WHITEOUT):
            _remove(parent / _plain(name.removeprefix(_WHITEOUT), entry.name))
            return
        path = parent / name
        if entry.isdir():
            self._make_directory(path, entry)
        elif content is not None:
            self._write(path, entry, content)
        elif entry.issym():
            self._symlink(path, entry)
        elif entry.islnk():
            self._hard_link(path, entry)
        else:
            raise UnsafePackage(f"{entry.name} is a device or pipe, which packages must not bring")
        fresh.add(path)

    def _make_directory(self, path: Path, entry: tarfile.TarInfo) -> None:
        if path.is_symlink() or (path.exists() and not path.is_dir()):
            path.unlink()
        path.mkdir(exist_ok=True)
        path.chmod(_mode(entry) | 0o700)  # or nobody could put anything into it

    def _write(self, path: Path, entry: tarfile.TarInfo, content: BinaryIO) -> None:
        _remove(path)
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        with os.fdopen(handle, "wb") as file:
            for chunk in chunks_of(content):
                self.bytes += len(chunk)
                if self.bytes > self._limits.unpacked_bytes:
                    raise PackageTooLarge(f"the layers have more than {self._limits.unpacked_bytes} bytes unpacked")
                file.write(chunk)
        path.chmod(_mode(entry) | 0o400)

    def _symlink(self, path: Path, entry: tarfile.TarInfo) -> None:
        target = entry.linkname
        if "\0" in target or not target:
            raise UnsafePackage(f"{entry.name} links to nothing")
        depth = len(path.relative_to(self._root).parts) - 1  # of where it really is, whatever links led there
        if self._links is Links.BELOW and not _stays_below(depth, target):
            raise UnsafePackage(f"{entry.name} links to {target}, which is outside of the package")
        _remove(path)
        path.symlink_to(target)

    def _hard_link(self, path: Path, entry: tarfile.TarInfo) -> None:
        *above, name = _parts(entry.linkname) or [""]
        target = self._directory(above, entry.name, create=False) / name
        if not os.path.lexists(target):
            raise UnsafePackage(f"{entry.name} links to {entry.linkname}, which is not in the package")
        if not stat.S_ISREG(target.lstat().st_mode):
            raise UnsafePackage(f"{entry.name} links to {entry.linkname}, which is no regular file")
        if path == target:
            return
        _remove(path)
        os.link(target, path, follow_symlinks=False)

    def _directory(self, parts: list[str], name: str, *, create: bool = True) -> Path:
        """The directory that these parts lead to, below the root; links on the way are followed within it."""
        waiting, followed = list(reversed(parts)), 0
        found: list[str] = []
        while waiting:
            part = waiting.pop()
            if part in ("", "."):
                continue
            if part == "..":
                del found[-1:]
                continue
            path = self._root.joinpath(*found, part)
            if path.is_symlink():
                followed += 1
                if followed > _MAX_LINKS:
                    raise UnsafePackage(f"{name} leads through more than {_MAX_LINKS} links")
                target = str(path.readlink())
                found = [] if target.startswith("/") else found
                waiting += reversed(target.split("/"))
                continue
            if not path.is_dir():
                if not create:
                    raise UnsafePackage(f"{name} links into {part}, which is no directory of the package")
                if path.exists():
                    path.unlink()
                path.mkdir(mode=0o755)
            found.append(part)
        return self._root.joinpath(*found)


def _parts(name: str) -> list[str]:
    """A path of an archive as names below the root. Raises UnsafePackage for one that is not below it."""
    if "\0" in name:
        raise UnsafePackage(f"{name!r} is no path")
    if name.startswith("/"):
        raise UnsafePackage(f"{name} is an absolute path")
    parts = [part for part in name.split("/") if part not in ("", ".")]
    if ".." in parts:
        raise UnsafePackage(f"{name} leads out of the package")
    if len(parts) > _DEEPEST:
        raise UnsafePackage(f"{name[:80]}… is deeper than {_DEEPEST} directories")
    return parts


def _plain(name: str, entry: str) -> str:
    if name in ("", ".", ".."):
        raise UnsafePackage(f"{entry} removes what is not in the package")
    return name


def _stays_below(depth: int, target: str) -> bool:
    """Whether a link that stands so deep leads to somewhere below the root.

    Going up is allowed only at the start: after a name, which may be a link itself, nobody can tell where `..` leads.
    """
    parts = PurePosixPath(target).parts
    ups = next((number for number, part in enumerate(parts) if part != ".."), len(parts))
    return not target.startswith("/") and ups <= depth and ".." not in parts[ups:]


def _mode(entry: tarfile.TarInfo) -> int:
    return entry.mode & 0o755  # never setuid, setgid or writable for others


def _remove(path: Path) -> None:
    if path.is_symlink() or path.is_file():
        path.unlink()
    elif path.is_dir():
        shutil.rmtree(path)
