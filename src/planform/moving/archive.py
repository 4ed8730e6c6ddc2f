"""Contents as files: one YAML document for each object, and a manifest with the checksum of each.

    manifest.yaml
    objects/GROUP/KIND/[NAMESPACE/]NAME.yaml      NAME.sealed if it is a Secret under a passphrase

The same files stand in a directory or in a tar.gz. Only what the manifest lists is read, and only if it is what was
written.
"""

from __future__ import annotations

import gzip
import io
import os
import tarfile
from collections.abc import Iterator, Mapping
from hashlib import sha256
from pathlib import Path, PurePosixPath
from typing import Any, Final

import planform
from planform.api.kinds import Object
from planform.api.metadata import name_of, namespace_of, uid_of
from planform.apimachinery import yaml_loader
from planform.errors import PlanformError, UsageError
from planform.moving.contents import Contents, Identity, LeftOut, identity_of
from planform.moving.sealing import Seal, new_seal, seal_of

FORMAT: Final = "planform-export/1"
MANIFEST: Final = "manifest.yaml"
_TARBALLS: Final = (".tar.gz", ".tgz", ".pf")
_MAX_BYTES: Final = 4 << 30  # of one archive, unpacked
_MAX_FILE_BYTES: Final = 16 << 20  # no engine stores larger objects


class ArchiveDamaged(PlanformError):
    """An archive is not what was written."""

    reason = "ArchiveDamaged"
    hint = "export again, or fetch the archive again"


def write_archive(path: Path, contents: Contents, *, made: str, passphrase: bytes = b"") -> None:
    """Write a directory, or a tar.gz if the name says so; readable by its owner alone. It must not exist yet.

    With a passphrase, Secrets are sealed. An archive that could not be completed is not left behind under its name.
    """
    if path.exists():
        raise UsageError(f"{path} exists already", hint="choose a new name for each export")
    seal = new_seal(passphrase) if passphrase else None
    files, rows = dict[str, bytes](), []
    for obj in contents.objects:
        name, content = _file(obj, seal)
        files[name] = content
        rows.append(_row(obj, name, content))
    manifest = {
        "format": FORMAT,
        "planform": planform.__version__,
        "made": made,
        "engine": contents.engine,
        **({"seal": seal.described()} if seal else {}),
        "objects": rows,
        "leftOut": [{**each.identity._asdict(), "why": each.why} for each in contents.left_out],
    }
    files = {MANIFEST: yaml_loader.dump(manifest).encode(), **files}
    partial = path.with_name(f".{path.name}.partial")
    if path.name.endswith(_TARBALLS):
        _write_tarball(partial, files)
    else:
        _write_directory(partial, files)
    partial.rename(path)


def read_archive(path: Path, *, passphrase: bytes = b"") -> Contents:
    """What was written. Raises ArchiveDamaged, or UsageError if it is no archive or the passphrase is missing."""
    files = _Files(path)
    manifest = _manifest(files)
    described = manifest.get("seal")
    if described and not passphrase:
        raise UsageError(f"the Secrets of {path} are sealed", hint="give --passphrase-file")
    seal = seal_of(described, passphrase) if described else None
    objects = tuple(_object(files, row, seal) for row in manifest.get("objects") or ())
    left = tuple(
        LeftOut(Identity(row["group"], row["kind"], row["namespace"], row["name"]), row["why"])
        for row in manifest.get("leftOut") or ()
    )
    return Contents(manifest["engine"], objects, left)


# -- files


def _file(obj: Object, seal: Seal | None) -> tuple[str, bytes]:
    group, kind, namespace, name = identity_of(obj)
    where = PurePosixPath("objects", group or "core", kind, *([namespace] if namespace else []))
    content = yaml_loader.dump(obj).encode()
    if seal is not None and (group, kind) == ("", "Secret"):
        path = str(where / f"{name}.sealed")
        return path, seal.close(content, about=path)
    return str(where / f"{name}.yaml"), content


def _row(obj: Object, path: str, content: bytes) -> dict[str, Any]:
    place = {"namespace": namespace_of(obj)} if namespace_of(obj) else {}
    return {
        "path": path,
        "sha256": sha256(content).hexdigest(),
        "apiVersion": obj["apiVersion"],
        "kind": obj["kind"],
        **place,
        "name": name_of(obj),
        "uid": uid_of(obj),
    }


def _object(files: _Files, row: Mapping[str, Any], seal: Seal | None) -> Object:
    path = str(row["path"])
    content = files.read(path)
    if sha256(content).hexdigest() != row["sha256"]:
        raise ArchiveDamaged(f"{path} was changed after it was written")
    if path.endswith(".sealed"):
        if seal is None:
            raise ArchiveDamaged(f"{path} is sealed, and the manifest has no seal")
        content = seal.open(content, about=path)
    obj = yaml_loader.load(content)
    if not isinstance(obj, dict) or (obj.get("kind"), name_of(obj)) != (row["kind"], row["name"]):
        raise ArchiveDamaged(f"{path} is not the object that the manifest names")
    return obj


def _manifest(files: _Files) -> dict[str, Any]:
    try:
        manifest = yaml_loader.load(files.read(MANIFEST))
    except ValueError as error:
        raise ArchiveDamaged(f"{MANIFEST} cannot be read: {error}") from error
    if not isinstance(manifest, dict) or not str(manifest.get("format") or "").startswith("planform-export/"):
        raise UsageError(f"{files.path} is not an export of a control plane")
    if manifest["format"] != FORMAT:
        raise UsageError(
            f"{files.path} has format {manifest['format']}, and this planform reads {FORMAT}",
            hint="import it with the planform that exported it, or a later one",
        )
    return manifest


class _Files:
    """The files of an archive by their names in it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        if path.is_dir():
            self._read = self._in_directory
        elif path.is_file():
            self._members = dict(_members(path))
            self._read = self._in_tarball
        else:
            raise UsageError(f"{path} does not exist")

    def read(self, name: str) -> bytes:
        parts = PurePosixPath(name)
        if parts.is_absolute() or ".." in parts.parts:
            raise ArchiveDamaged(f"{name} lies outside of the archive")
        found = self._read(name)
        if found is None:
            if name == MANIFEST:
                raise UsageError(f"{self.path} is not an export of a control plane: it has no {MANIFEST}")
            raise ArchiveDamaged(f"{name} is missing")
        return found

    def _in_directory(self, name: str) -> bytes | None:
        path = self.path / name
        if path.is_symlink() or not path.is_file():
            return None
        return path.read_bytes()

    def _in_tarball(self, name: str) -> bytes | None:
        return self._members.get(name)


def _members(path: Path) -> Iterator[tuple[str, bytes]]:
    total = 0
    try:
        with tarfile.open(path, mode="r:gz") as archive:
            for member in archive:
                if not member.isfile():
                    continue
                total += member.size
                if (member.size > _MAX_FILE_BYTES and member.name != MANIFEST) or total > _MAX_BYTES:
                    raise ArchiveDamaged(f"{member.name} is larger than any object")
                stream = archive.extractfile(member)
                assert stream is not None
                yield member.name, stream.read()
    except (tarfile.TarError, EOFError, OSError, gzip.BadGzipFile) as error:
        raise UsageError(f"{path} is not an export of a control plane: {error}") from error


def _write_tarball(path: Path, files: Mapping[str, bytes]) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with (
        os.fdopen(descriptor, "wb") as file,
        gzip.GzipFile(filename="", mode="wb", fileobj=file, mtime=0) as compressed,
        tarfile.open(fileobj=compressed, mode="w") as archive,
    ):
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size, member.mode = len(content), 0o600
            archive.addfile(member, io.BytesIO(content))


def _write_directory(path: Path, files: Mapping[str, bytes]) -> None:
    import shutil

    shutil.rmtree(path, ignore_errors=True)  # what an interrupted export left
    path.mkdir(mode=0o700)
    for name, content in files.items():
        file = path / name
        file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as stream:
            stream.write(content)
