"""Where backups go, as the action's Profile says: a directory or an S3-compatible bucket; maps of key to bytes.

location: {type: fileSystem, path: /backups, prefix: team-a}          # path relative: below the control plane's own
location: {type: s3Compliant, bucket: b, endpoint: https://s3.example.org, prefix: team-a, region: eu-1}
"""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from planform.blueprints.contract import PhaseContext
from planform.blueprints.errors import PhaseFailed
from planform.blueprints.functions.policy import Policy

if TYPE_CHECKING:
    from planform.blueprints.functions.s3 import S3Bucket, S3Credentials


class Stored(NamedTuple):
    """One entry of a location."""

    key: str
    size: int


class Location(Protocol):
    """Keys are paths with slashes, below the profile's prefix. What goes wrong is a PhaseFailed."""

    async def put(self, key: str, data: bytes) -> None:
        """Write the whole of it; nobody ever reads a part."""
        ...

    async def get(self, key: str) -> bytes | None:
        """None if there is nothing."""
        ...

    async def delete(self, key: str) -> None:
        """Also if there is nothing."""
        ...

    async def list(self, prefix: str) -> list[Stored]:
        """All whose key begins so, in order of keys."""
        ...


@asynccontextmanager
async def open_location(context: PhaseContext, policy: Policy) -> AsyncIterator[Location]:
    """The location of the action's profile. Raises PhaseFailed if it has none, or one that cannot be used."""
    profile = context.params.get("Profile")
    if not isinstance(profile, Mapping):
        raise PhaseFailed(
            f"{context.function} needs a place for its data, and the action has no profile",
            hint="name a Profile in spec.actions[].profile of the ActionSet",
        )
    location: Mapping[str, Any] = profile["Location"]
    prefix = str(location.get("Prefix") or "").strip("/")
    match str(location.get("Type") or ""):
        case "fileSystem":
            path = str(location.get("Path") or location.get("Bucket") or "")
            if not path:
                raise PhaseFailed("a profile's location of type fileSystem needs a path")
            directory = policy.directory(context, path, below="locations")
            yield Directory(directory / key_path(prefix) if prefix else directory)
        case "s3Compliant":
            from planform.blueprints.functions.s3 import S3Bucket  # takes long to import

            async with S3Bucket.open(
                bucket=str(location.get("Bucket") or ""),
                endpoint=str(location.get("Endpoint") or ""),
                region=str(location.get("Region") or "us-east-1"),
                credentials=_credentials(profile.get("Credential") or {}),
                verify=not profile.get("SkipSSLVerify"),
                clock=context.clock,
            ) as bucket:
                yield Prefixed(bucket, prefix)
        case other:
            raise PhaseFailed(
                f'a profile\'s location of type "{other}" cannot be used (there are: fileSystem, s3Compliant)'
            )


def key_path(key: str) -> PurePosixPath:
    """The key as a path that stays where it is put; raises PhaseFailed for any other."""
    path = PurePosixPath(key)
    if not key or path.is_absolute() or ".." in path.parts or "\0" in key:
        raise PhaseFailed(f'"{key}" is no key of a location')
    return path


def _credentials(credential: Mapping[str, Any]) -> S3Credentials:
    from planform.blueprints.functions.s3 import S3Credentials

    pair = credential.get("KeyPair")
    if isinstance(pair, Mapping):
        return S3Credentials(str(pair["ID"]), str(pair["Secret"]))
    secret = credential.get("Secret")
    data = secret.get("Data") if isinstance(secret, Mapping) else None
    if isinstance(data, Mapping):
        names = ("aws_access_key_id", "aws_secret_access_key", "aws_session_token")
        found = [_text(data.get(name) or data.get(name.upper()) or b"") for name in names]
        if found[0] and found[1]:
            return S3Credentials(*found)
    raise PhaseFailed("the profile's credential must be a keyPair, or a secret with AWS access keys")


def _text(value: bytes | str) -> str:
    return value.decode() if isinstance(value, bytes) else value


class Directory:
    """A location on this machine. Writes are atomic, and on disk before they are reported."""

    def __init__(self, root: Path) -> None:
        self._root = root

    async def put(self, key: str, data: bytes) -> None:
        await asyncio.to_thread(self._put, self._root / key_path(key), data)

    async def get(self, key: str) -> bytes | None:
        return await asyncio.to_thread(self._get, self._root / key_path(key))

    async def delete(self, key: str) -> None:
        await asyncio.to_thread(self._delete, self._root / key_path(key))

    async def list(self, prefix: str) -> list[Stored]:
        return await asyncio.to_thread(lambda: sorted(self._list(prefix)))

    def _put(self, path: Path, data: bytes) -> None:
        try:
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=".partial-")
            try:
                with os.fdopen(descriptor, "wb") as file:
                    file.write(data)
                    file.flush()
                    os.fsync(file.fileno())
                Path(temporary).replace(path)
            except BaseException:
                Path(temporary).unlink(missing_ok=True)
                raise
        except OSError as error:
            raise PhaseFailed(f"cannot write {path}: {error.strerror}") from error

    def _get(self, path: Path) -> bytes | None:
        try:
            return path.read_bytes()
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise PhaseFailed(f"cannot read {path}: {error.strerror}") from error

    def _delete(self, path: Path) -> None:
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            raise PhaseFailed(f"cannot delete {path}: {error.strerror}") from error
        for parent in path.parents:
            if parent == self._root or not parent.is_relative_to(self._root):
                return
            try:
                parent.rmdir()
            except OSError:
                return  # not empty

    def _list(self, prefix: str) -> Iterator[Stored]:
        top = self._root / (key_path(prefix) if prefix.strip("/") else "")
        start = top if prefix.endswith("/") or not prefix else top.parent
        for directory, _, names in os.walk(start):
            for name in names:
                path = Path(directory) / name
                key = path.relative_to(self._root).as_posix()
                if key.startswith(prefix) and not name.startswith(".partial-"):
                    yield Stored(key, path.stat().st_size)


class Prefixed:
    """A bucket seen from below a prefix."""

    def __init__(self, bucket: S3Bucket, prefix: str) -> None:
        self._bucket = bucket
        self._prefix = f"{key_path(prefix)}/" if prefix else ""

    async def put(self, key: str, data: bytes) -> None:
        await self._bucket.put(f"{self._prefix}{key_path(key)}", data)

    async def get(self, key: str) -> bytes | None:
        return await self._bucket.get(f"{self._prefix}{key_path(key)}")

    async def delete(self, key: str) -> None:
        await self._bucket.delete(f"{self._prefix}{key_path(key)}")

    async def list(self, prefix: str) -> list[Stored]:
        found = await self._bucket.list(self._prefix + prefix)
        return [Stored(key.removeprefix(self._prefix), size) for key, size in found]
