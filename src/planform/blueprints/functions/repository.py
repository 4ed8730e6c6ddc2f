"""Backups in a location: chunks, and one manifest for each backup that says how they make files again.

    PREFIX/repository.json           the format, and what tells a wrong encryption key
    PREFIX/backups/ID.json           a manifest; written last, so that a backup is there whole or not at all
    PREFIX/archives/ID/000000        format `archive`: the pieces of one tar stream
    PREFIX/chunks/DIGEST             format `files`: pieces of files under their digest, shared by all backups

Every chunk is compared with its digest when it is read. With an encryption key chunks and manifests are sealed with
AES-256-GCM under their own names, and digests are keyed, so that the store learns neither content nor equality to
known content.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

import msgspec
import orjson

from planform.blueprints.errors import PhaseFailed
from planform.blueprints.functions.locations import Location, key_path

CHUNK: Final = 8 << 20
_NONCE: Final = 12


class RepositoryMissing(PhaseFailed):
    """There is no repository below this prefix."""

    reason = "RepositoryMissing"


class WrongKey(PhaseFailed):
    """The repository is encrypted with another key, or one side has a key and the other has none."""

    reason = "WrongKey"


class Damaged(PhaseFailed):
    """What was read is not what was written."""

    reason = "BackupDamaged"


class Entry(msgspec.Struct, frozen=True, omit_defaults=True):
    """A file, directory or link of a backup. `type` is that of its tar header."""

    name: str
    type: str
    mode: int = 0
    uid: int = 0
    gid: int = 0
    mtime: int = 0
    size: int = 0
    link: str = ""
    chunks: tuple[str, ...] = ()


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """One backup. An archive has the chunks of its tar stream here, the other format has them in its entries."""

    id: str
    format: Literal["archive", "files"]
    created: str
    files: int
    size: int
    """Bytes of the files."""
    stored: int
    """Bytes that this backup added to the location."""
    chunks: tuple[str, ...] = ()
    entries: tuple[Entry, ...] = ()
    source: str = ""

    @property
    def all_chunks(self) -> set[str]:
        return {*self.chunks, *(chunk for entry in self.entries for chunk in entry.chunks)}


class _Header(msgspec.Struct, frozen=True):
    """The first file of a repository."""

    format: int
    salt: str
    check: str
    """Proof of the key; empty without encryption."""


@dataclass(frozen=True)
class Repository:
    """An opened repository: the key, if there is one, is the right one."""

    location: Location
    prefix: str
    secret: bytes = b""

    def digest(self, data: bytes) -> str:
        return hmac.new(self.secret, data, "sha256").hexdigest() if self.secret else hashlib.sha256(data).hexdigest()

    async def write(self, name: str, data: bytes) -> int:
        """Store bytes under a name below the prefix; gives how many the location keeps."""
        sealed = await asyncio.to_thread(self._sealed, name, data)
        await self.location.put(f"{self.prefix}/{name}", sealed)
        return len(sealed)

    async def read(self, name: str) -> bytes:
        """The bytes under a name. Raises Damaged if they are missing or were touched."""
        found = await self.location.get(f"{self.prefix}/{name}")
        if found is None:
            raise Damaged(f"{self.prefix}/{name} is missing")
        return await asyncio.to_thread(self._opened, name, found)

    async def read_chunk(self, name: str, digest: str) -> bytes:
        data = await self.read(name)
        if not hmac.compare_digest(await asyncio.to_thread(self.digest, data), digest):
            raise Damaged(f"{self.prefix}/{name} is damaged: its checksum is wrong")
        return data

    async def write_manifest(self, manifest: Manifest) -> None:
        body = orjson.dumps(msgspec.to_builtins(manifest), option=orjson.OPT_SORT_KEYS)
        document = {"manifest": body.decode(), "digest": self.digest(body)}
        await self.write(f"backups/{manifest.id}.json", orjson.dumps(document))

    async def manifest(self, backup: str) -> Manifest:
        """One backup. Raises PhaseFailed if there is none of this id."""
        name = f"backups/{key_path(backup).name}.json"
        if backup != key_path(backup).name or await self.location.get(f"{self.prefix}/{name}") is None:
            raise PhaseFailed(f'no backup "{backup}" in {self.prefix}')
        return self._manifest(name, await self.read(name))

    async def manifests(self) -> list[Manifest]:
        found = await self.location.list(f"{self.prefix}/backups/")
        return [
            self._manifest(name, await self.read(name))
            for name in (each.key.removeprefix(f"{self.prefix}/") for each in found)
        ]

    async def delete(self, manifest: Manifest, *, reclaim: bool) -> int:
        """Forget a backup; gives the bytes freed. Shared chunks that no backup needs go only with `reclaim`."""
        await self.location.delete(f"{self.prefix}/backups/{manifest.id}.json")
        freed = await self._drop(f"{self.prefix}/archives/{manifest.id}/", keep=())
        if reclaim:
            needed = {chunk for each in await self.manifests() for chunk in each.all_chunks}
            freed += await self._drop(f"{self.prefix}/chunks/", keep=needed)
        return freed

    async def _drop(self, prefix: str, keep: Sequence[str] | set[str]) -> int:
        freed = 0
        for stored in await self.location.list(prefix):
            if stored.key.rpartition("/")[2] not in keep:
                await self.location.delete(stored.key)
                freed += stored.size
        return freed

    def _manifest(self, name: str, data: bytes) -> Manifest:
        try:
            document: dict[str, Any] = orjson.loads(data)
            body = str(document["manifest"]).encode()
            if not hmac.compare_digest(self.digest(body), str(document["digest"])):
                raise Damaged(f"{self.prefix}/{name} is damaged: its checksum is wrong")
            return msgspec.json.decode(body, type=Manifest)
        except (orjson.JSONDecodeError, KeyError, TypeError, msgspec.ValidationError) as error:
            raise Damaged(f"{self.prefix}/{name} is no manifest: {error}") from error

    def _sealed(self, name: str, data: bytes) -> bytes:
        if not self.secret:
            return data
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        nonce = secrets.token_bytes(_NONCE)
        return nonce + AESGCM(self.secret).encrypt(nonce, data, name.encode())

    def _opened(self, name: str, data: bytes) -> bytes:
        if not self.secret:
            return data
        from cryptography.exceptions import InvalidTag
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        try:
            return AESGCM(self.secret).decrypt(data[:_NONCE], data[_NONCE:], name.encode())
        except InvalidTag as error:
            raise Damaged(f"{self.prefix}/{name} is damaged: it cannot be decrypted") from error


async def open_repository(location: Location, prefix: str, key: str, *, create: bool = False) -> Repository:
    """Open what is below a prefix, with the key it was made with. Raises RepositoryMissing or WrongKey."""
    path = str(key_path(prefix.strip("/")))
    found = await location.get(f"{path}/repository.json")
    if found is None:
        if not create:
            raise RepositoryMissing(f'no backups are kept in "{path}"')
        # The salt follows from the place, so that two first backups at once write the same file.
        salt = hashlib.sha256(f"planform repository {path}".encode()).hexdigest()[:32]
        secret = await _derived(key, salt)
        header = _Header(1, salt, _proof(secret))
        await location.put(f"{path}/repository.json", msgspec.json.encode(header))
        return Repository(location, path, secret)
    try:
        header = msgspec.json.decode(found, type=_Header)
    except (msgspec.ValidationError, msgspec.DecodeError) as error:
        raise Damaged(f"{path}/repository.json cannot be read: {error}") from error
    secret = await _derived(key, header.salt)
    if not hmac.compare_digest(header.check, _proof(secret)):
        text = (
            "encrypted with another key" if key and header.check else "encrypted" if header.check else "not encrypted"
        )
        raise WrongKey(f'the backups in "{path}" are {text}', hint='see the argument "encryptionKey"')
    return Repository(location, path, secret)


async def _derived(key: str, salt: str) -> bytes:
    if not key:
        return b""
    return await asyncio.to_thread(
        hashlib.scrypt, key.encode(), salt=salt.encode(), n=1 << 14, r=8, p=1, maxmem=64 << 20, dklen=32
    )


def _proof(secret: bytes) -> str:
    return hmac.new(secret, b"planform repository key", "sha256").hexdigest() if secret else ""
