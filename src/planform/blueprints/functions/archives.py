"""Directories as tar streams, and tar streams as backups of a repository.

A tar stream is how files travel: from a directory of this machine, or from a container, into a repository and back. It
is kept in a temporary file on the way, so that memory does not grow with the data.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import stat
import tarfile
import tempfile
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable
from contextlib import aclosing
from pathlib import Path, PurePosixPath
from typing import IO, Final

from planform.blueprints.errors import PhaseFailed
from planform.blueprints.functions.failures import together
from planform.blueprints.functions.repository import CHUNK, Damaged, Entry, Manifest, Repository

OnProgress = Callable[[int, int], None]
"""Called with the bytes done and the bytes in all."""

_BLOCK: Final = tarfile.BLOCKSIZE
AT_ONCE: Final = 6
"""Chunks that are read or written side by side."""
_STAGING: Final = ".planform-restore-"


def pack(directory: Path, into: IO[bytes]) -> None:
    """Write everything below a directory as a tar stream. Blocks: call it in a thread. Raises PhaseFailed."""
    if not directory.is_dir():
        raise PhaseFailed(f'"{directory}" is no directory')
    try:
        with tarfile.open(fileobj=into, mode="w|", format=tarfile.PAX_FORMAT) as tar:
            for path in sorted(directory.rglob("*")):
                if path.is_symlink() or path.is_file() or path.is_dir():  # sockets and devices have no content
                    tar.add(path, arcname=path.relative_to(directory).as_posix(), recursive=False)
    except OSError as error:
        raise PhaseFailed(f'cannot read "{directory}": {error}') from error


def unpack(stream: IO[bytes], target: Path) -> None:
    """Lay the files of a tar stream over a directory. Blocks: call it in a thread. Raises PhaseFailed.

    All of them are written beside the target first and then moved, each at once: a stream that is broken, or a disk
    that is full, changes nothing. Names that lead out of the directory are refused.
    """
    try:
        target.mkdir(parents=True, exist_ok=True)
        staging = Path(tempfile.mkdtemp(prefix=_STAGING, dir=target))
        try:
            with tarfile.open(fileobj=stream, mode="r:") as tar:
                _extract(tar, staging.resolve())
            _move(staging, target)
        finally:
            shutil.rmtree(staging, ignore_errors=True)
    except (OSError, tarfile.TarError) as error:
        raise PhaseFailed(f'cannot restore to "{target}": {error}') from error


def _extract(tar: tarfile.TarFile, root: Path) -> None:
    """Write files, directories and links that stay inside, with the modes, times and, where we may, owners they had.

    Devices are left out, and so are the bits by which a file would run as its owner. What is in the way is replaced,
    never written through. (tarfile's own filters came only with Python 3.11.4.)
    """
    directories: list[tuple[Path, tarfile.TarInfo]] = []
    for member in tar:
        place = _place(root, member.name)
        if not (member.isreg() or member.isdir() or member.issym() or member.islnk()) or place == root:
            continue
        place.parent.mkdir(parents=True, exist_ok=True)
        if place.is_symlink() or place.is_file():
            place.unlink()
        if member.isdir():
            place.mkdir(exist_ok=True)
            directories.append((place, member))
        elif member.issym():
            place.symlink_to(member.linkname)
            _take_traits(place, member)
        elif member.islnk():
            if member.linkname.startswith("/"):
                raise tarfile.ExtractError(f'"{member.name}" is a link to {member.linkname}')
            os.link(_place(root, member.linkname), place, follow_symlinks=False)
        else:
            content = tar.extractfile(member)
            assert content is not None, "a regular file has content"
            with content, place.open("xb") as file:
                shutil.copyfileobj(content, file)
            _take_traits(place, member)
    for place, member in reversed(directories):  # last, since their modes may forbid writing and their times change
        _take_traits(place, member)


def _place(root: Path, name: str) -> Path:
    """Where a member belongs. Raises ExtractError if that is outside, be it by way of a link."""
    relative = PurePosixPath(name.lstrip("/"))
    place = root / relative
    inside = place == root or place.parent.resolve().is_relative_to(root)
    if ".." in relative.parts or not inside:
        raise tarfile.ExtractError(f'"{name}" leads out of the archive')
    return place


def _take_traits(place: Path, member: tarfile.TarInfo) -> None:
    if os.geteuid() == 0:
        os.chown(place, member.uid, member.gid, follow_symlinks=False)
    if not member.issym():
        place.chmod(member.mode & (0o3777 if member.isdir() else 0o777))
    os.utime(place, (member.mtime, member.mtime), follow_symlinks=False)


def _move(source: Path, target: Path) -> None:
    for path in sorted(source.iterdir()):
        place = target / path.name
        if path.is_dir() and not path.is_symlink():
            traits = path.stat()
            path.chmod(0o700)  # or nothing could be moved out of it
            if place.is_symlink() or place.is_file():
                place.unlink()  # following a link could lead out of the target
            place.mkdir(exist_ok=True)
            _move(path, place)
            _take_over(traits, place)
        else:
            if place.is_dir() and not place.is_symlink():
                shutil.rmtree(place)
            path.replace(place)


def _take_over(traits: os.stat_result, directory: Path) -> None:
    """Give a directory the mode, times and, where we may, the owner of another."""
    if os.geteuid() == 0:
        os.chown(directory, traits.st_uid, traits.st_gid)
    directory.chmod(stat.S_IMODE(traits.st_mode))
    os.utime(directory, ns=(traits.st_atime_ns, traits.st_mtime_ns))


async def store_archive(
    repository: Repository, stream: IO[bytes], backup: str, *, created: str, source: str, on_progress: OnProgress
) -> Manifest:
    """Keep a tar stream as it is, in pieces of this backup's own."""
    total = stream.seek(0, os.SEEK_END)
    files, size = await asyncio.to_thread(_measured, stream)
    chunks: list[str] = []
    stored = done = 0
    async for data in _pieces(stream, 0, total):
        chunks.append(repository.digest(data))
        stored += await repository.write(f"archives/{backup}/{len(chunks) - 1:06d}", data)
        done += len(data)
        on_progress(done, total)
    manifest = Manifest(
        id=backup,
        format="archive",
        created=created,
        files=files,
        size=size,
        stored=stored,
        chunks=tuple(chunks),
        source=source,
    )
    await repository.write_manifest(manifest)
    return manifest


async def store_files(
    repository: Repository, stream: IO[bytes], backup: str, *, created: str, source: str, on_progress: OnProgress
) -> Manifest:
    """Keep the files of a tar stream; pieces that the repository has already are not stored again."""
    total = stream.seek(0, os.SEEK_END)
    known = {each.key.rpartition("/")[2] for each in await repository.location.list(f"{repository.prefix}/chunks/")}
    entries: list[Entry] = []
    async with together() as tasks:
        uploads = _Uploads(repository, tasks)
        for member in await asyncio.to_thread(_members, stream):
            digests: list[str] = []
            if member.isreg():
                async for data in _pieces(stream, member.offset_data, member.size):
                    digest = await asyncio.to_thread(repository.digest, data)
                    if digest not in known:
                        await uploads.put(f"chunks/{digest}", data)
                        known.add(digest)
                    digests.append(digest)
            entries.append(_entry(member, tuple(digests)))
            on_progress(member.offset_data + member.size, total)
    manifest = Manifest(
        id=backup,
        format="files",
        created=created,
        files=sum(entry.type == "0" for entry in entries),
        size=sum(entry.size for entry in entries),
        stored=uploads.stored,
        entries=tuple(entries),
        source=source,
    )
    await repository.write_manifest(manifest)
    return manifest


class _Uploads:
    """Writes chunks side by side, as many at once as keep memory small; whoever comes when all are busy waits."""

    def __init__(self, repository: Repository, tasks: asyncio.TaskGroup) -> None:
        self.stored = 0
        self._repository = repository
        self._tasks = tasks
        self._free = asyncio.Semaphore(AT_ONCE)

    async def put(self, name: str, data: bytes) -> None:
        await self._free.acquire()
        self._tasks.create_task(self._write(name, data))

    async def _write(self, name: str, data: bytes) -> None:
        try:
            size = await self._repository.write(name, data)
            self.stored += size  # not in one step: others count while this one waits
        finally:
            self._free.release()


async def fetch(repository: Repository, manifest: Manifest, into: IO[bytes], *, on_progress: OnProgress) -> None:
    """Write a backup as a tar stream, every piece compared with its checksum. Raises Damaged."""
    wanted = [(f"archives/{manifest.id}/{index:06d}", digest) for index, digest in enumerate(manifest.chunks)]
    wanted += [(f"chunks/{digest}", digest) for entry in manifest.entries for digest in entry.chunks]
    done = 0
    async with aclosing(_ahead(repository, wanted)) as chunks:
        for _ in manifest.chunks:
            done += await _copied(chunks, into)
            on_progress(done, manifest.size)
        for entry in manifest.entries:
            into.write(_header(entry))
            written = sum([await _copied(chunks, into) for _ in entry.chunks])
            if written != entry.size:
                raise Damaged(f'"{entry.name}" has {written} bytes instead of {entry.size}')
            into.write(bytes(-written % _BLOCK))
            done += written
            on_progress(done, manifest.size)
    if manifest.format == "files":
        into.write(bytes(2 * _BLOCK))
    into.seek(0)


async def _copied(chunks: AsyncGenerator[bytes, None], into: IO[bytes]) -> int:
    return await asyncio.to_thread(into.write, await anext(chunks))


async def _ahead(repository: Repository, wanted: Iterable[tuple[str, str]]) -> AsyncGenerator[bytes, None]:
    """Chunks in their order, of which some are read ahead."""
    coming: deque[asyncio.Task[bytes]] = deque()
    try:
        for name, digest in wanted:
            coming.append(asyncio.create_task(repository.read_chunk(name, digest)))
            if len(coming) >= AT_ONCE:
                yield await coming.popleft()
        while coming:
            yield await coming.popleft()
    finally:
        for task in coming:
            task.cancel()
        await asyncio.gather(*coming, return_exceptions=True)


async def _pieces(stream: IO[bytes], start: int, size: int) -> AsyncIterator[bytes]:
    at, end = start, start + size
    while at < end:

        def read(at: int = at) -> bytes:
            stream.seek(at)
            return stream.read(min(CHUNK, end - at))

        data = await asyncio.to_thread(read)
        if not data:
            raise PhaseFailed("the tar stream ends in the middle of a file")
        at += len(data)
        yield data


def _members(stream: IO[bytes]) -> list[tarfile.TarInfo]:
    stream.seek(0)
    try:
        with tarfile.open(fileobj=stream, mode="r:") as tar:
            return tar.getmembers()
    except tarfile.TarError as error:
        raise PhaseFailed(f"what was read is no tar stream: {error}") from error


def _measured(stream: IO[bytes]) -> tuple[int, int]:
    files = [member for member in _members(stream) if member.isreg()]
    return len(files), sum(member.size for member in files)


def _entry(member: tarfile.TarInfo, chunks: tuple[str, ...]) -> Entry:
    return Entry(
        member.name,
        member.type.decode("ascii") if member.type not in tarfile.REGULAR_TYPES else "0",
        member.mode,
        member.uid,
        member.gid,
        int(member.mtime),
        member.size if member.isreg() else 0,
        member.linkname,
        chunks,
    )


def _header(entry: Entry) -> bytes:
    info = tarfile.TarInfo(entry.name)
    info.type = entry.type.encode("ascii")
    info.mode, info.uid, info.gid = entry.mode, entry.uid, entry.gid
    info.mtime, info.size, info.linkname = entry.mtime, entry.size, entry.link
    return info.tobuf(tarfile.PAX_FORMAT)
