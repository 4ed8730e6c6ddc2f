"""Secrets encrypted at rest: a codec of the store that seals the values of chosen resources.

A sealed value names its key, so that keys can be changed without touching what is stored:

    planform:aes-256-gcm:KEYID:  nonce (12 bytes)  ciphertext and tag

Values from before encryption was switched on are JSON and begin with a brace; they are read as they are, and sealed
when they are next written. The resource is authenticated with the value: a sealed Secret cannot be passed off as
something that more people may read.
"""

from __future__ import annotations

import os
import re
from base64 import b64decode, b64encode
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from planform.apiserver.auth.private_files import write_private
from planform.errors import StoreError, UsageError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

_MAGIC = b"planform:aes-256-gcm:"
_NONCE_BYTES = 12
_KEY_BYTES = 32
_KEY_ID = re.compile(r"[A-Za-z0-9_-]{1,32}")
_HEADING = "# Keys that encrypt objects at rest: the first encrypts, all of them decrypt. Keep a copy elsewhere.\n"


class EncryptionKeyMissing(StoreError):
    """A stored value was sealed with a key that the key file does not hold."""

    reason = "EncryptionKeyMissing"
    hint = "put that key back into the key file: without it the value cannot be read by anyone"


class SealBroken(StoreError):
    """A stored value does not open with the key it names: another key under that name, or bytes that were changed."""

    reason = "SealBroken"
    hint = "restore the key file that belongs to this data directory, or the data from a backup"


class Key(NamedTuple):
    """A key and the name that sealed values call it by."""

    id: str
    secret: bytes


class Encryption:
    """The store's Codec. `keys[0]` seals, every key opens; other resources pass through untouched."""

    def __init__(self, keys: Sequence[Key], *, resources: Iterable[str] = ("secrets",)) -> None:
        if not keys:
            raise UsageError("encryption at rest needs a key")
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        self._resources = frozenset(resources)
        self._ciphers: dict[bytes, AESGCM] = {key.id.encode(): AESGCM(key.secret) for key in keys}
        self._id = keys[0].id.encode()
        self._prefix = _MAGIC + self._id + b":"

    def encode(self, resource: str, value: bytes, /) -> bytes:
        if resource not in self._resources:
            return value
        nonce = os.urandom(_NONCE_BYTES)
        sealed = self._ciphers[self._id].encrypt(nonce, value, _bound_to(resource, self._id))
        return self._prefix + nonce + sealed

    def decode(self, resource: str, value: bytes, /) -> bytes:
        """The value as it was given to `encode`; raises EncryptionKeyMissing or SealBroken.

        What is sealed is opened whatever the resource: one that is no longer encrypted may hold old values.
        """
        if not value.startswith(_MAGIC):
            return value
        key_id, colon, rest = value[len(_MAGIC) :].partition(b":")
        cipher = self._ciphers.get(key_id) if colon else None
        if cipher is None:
            shown = key_id.decode("ascii", "replace")[:32]
            raise EncryptionKeyMissing(f'an object of {resource} is encrypted with key "{shown}", which is not there')
        from cryptography.exceptions import InvalidTag

        try:
            return cipher.decrypt(rest[:_NONCE_BYTES], rest[_NONCE_BYTES:], _bound_to(resource, key_id))
        except (InvalidTag, ValueError):
            raise SealBroken(f'an object of {resource} does not open with key "{key_id.decode()}"') from None


def load_keys(path: Path) -> list[Key]:
    """The keys of a key file, the sealing one first; raises UsageError by line, never showing a key."""
    try:
        lines = path.read_text().splitlines()
        readable_by_others = path.stat().st_mode & 0o077
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"cannot read the encryption key file {path}: {error}") from error
    if readable_by_others:
        raise UsageError(f"the encryption key file {path} can be read by others", hint=f"chmod 600 {path}")
    keys: dict[str, Key] = {}
    for number, line in enumerate(lines, start=1):
        if not line.strip() or line.startswith("#"):
            continue
        key_id, _, encoded = line.strip().partition(" ")
        try:
            secret = b64decode(encoded, validate=True)
        except ValueError:
            secret = b""
        if not _KEY_ID.fullmatch(key_id) or len(secret) != _KEY_BYTES or key_id in keys:
            raise UsageError(
                f"line {number} of {path} must be a new key id, a space and {_KEY_BYTES} bytes in base64",
                hint="a damaged key loses data: restore the file from a copy",
            )
        keys[key_id] = Key(key_id, secret)
    if not keys:
        raise UsageError(f"the encryption key file {path} holds no key")
    return list(keys.values())


def add_key(path: Path) -> Key:
    """Make a new key the one that seals, in a key file that is made if need be; the others still open."""
    known = load_keys(path) if path.exists() else []
    fresh = Key(os.urandom(4).hex(), os.urandom(_KEY_BYTES))
    lines = [f"{key.id} {b64encode(key.secret).decode()}\n" for key in (fresh, *known)]
    write_private(path, (_HEADING + "".join(lines)).encode())
    return fresh


def _bound_to(resource: str, key_id: bytes) -> bytes:
    return _MAGIC + key_id + b":" + resource.encode()
