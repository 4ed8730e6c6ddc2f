"""Secrets of an archive under a passphrase: scrypt makes the key, AES-256-GCM keeps and proves the content."""

from __future__ import annotations

import base64
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from planform.errors import UsageError

_SCRYPT: Final = {"n": 1 << 15, "r": 8, "p": 1}
_NONCE_BYTES: Final = 12


@dataclass(frozen=True)
class Seal:
    """A key, and what it takes to make it again from the passphrase."""

    key: bytes
    salt: bytes

    def described(self) -> dict[str, Any]:
        """For the manifest: everything but the key."""
        return {"cipher": "AES-256-GCM", "kdf": "scrypt", **_SCRYPT, "salt": base64.b64encode(self.salt).decode()}

    def close(self, content: bytes, *, about: str) -> bytes:
        """The content, unreadable; `about` must be the same when it is opened."""
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        nonce = os.urandom(_NONCE_BYTES)
        return nonce + AESGCM(self.key).encrypt(nonce, content, about.encode())

    def open(self, sealed: bytes, *, about: str) -> bytes:
        from cryptography.exceptions import InvalidTag
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        try:
            return AESGCM(self.key).decrypt(sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:], about.encode())
        except InvalidTag as error:
            raise UsageError(f"{about} does not open", hint="is it the passphrase of this archive?") from error


def new_seal(passphrase: bytes) -> Seal:
    salt = os.urandom(16)
    return Seal(_key(passphrase, salt, _SCRYPT), salt)


def seal_of(described: Mapping[str, Any], passphrase: bytes) -> Seal:
    """The seal that a manifest describes. Raises UsageError for one of another make."""
    if described.get("cipher") != "AES-256-GCM" or described.get("kdf") != "scrypt":
        raise UsageError(f"the archive is sealed in a way this planform does not know: {described.get('cipher')}")
    salt = base64.b64decode(str(described["salt"]))
    costs = {name: int(described[name]) for name in _SCRYPT}
    if not 1 < costs["n"] <= 1 << 20 or not 1 <= costs["r"] <= 32 or not 1 <= costs["p"] <= 16:
        raise UsageError("the archive asks for more work than opening a seal may take")
    return Seal(_key(passphrase, salt, costs), salt)


def _key(passphrase: bytes, salt: bytes, costs: Mapping[str, int]) -> bytes:
    from cryptography.hazmat.primitives.kdf.scrypt import Scrypt

    if not passphrase:
        raise UsageError("the passphrase is empty")
    return Scrypt(salt=salt, length=32, n=costs["n"], r=costs["r"], p=costs["p"]).derive(passphrase)
