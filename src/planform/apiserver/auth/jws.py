"""Compact JSON Web Signatures with one algorithm, ES256, and one key; nothing about a token is negotiable.

The key is made, and `cryptography` imported, when the first token is signed or checked.
"""

from __future__ import annotations

import binascii
import hashlib
from base64 import urlsafe_b64decode, urlsafe_b64encode
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import orjson

from planform.apiserver.auth.pki import PkiError
from planform.apiserver.auth.private_files import locked, make_private_directory, write_private
from planform.errors import PlanformError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey, EllipticCurvePublicKey

_HALF = 32
"""Bytes of each of the two numbers of a P-256 signature."""
_MAX_LENGTH = 16 * 1024


class BadToken(PlanformError):
    """A token that is not ours, was tampered with, or does not hold any more."""

    reason = "BadToken"


class SigningKey:
    """A P-256 key in a private file, and the signatures made with it."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def sign(self, payload: bytes) -> str:
        """The token that carries a payload."""
        from cryptography.hazmat.primitives import hashes
        from cryptography.hazmat.primitives.asymmetric import ec
        from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature

        signed = f"{self._header}.{_encoded(payload)}"
        r, s = decode_dss_signature(self._key.sign(signed.encode(), ec.ECDSA(hashes.SHA256())))
        return f"{signed}.{_encoded(r.to_bytes(_HALF, 'big') + s.to_bytes(_HALF, 'big'))}"

    def verified(self, token: str) -> bytes:
        """The payload of a token that this key signed; raises BadToken for any other text.

        The header must be the very one that `sign` writes: algorithm and key are ours to say, not the token's.
        """
        header, _, rest = token.partition(".")
        payload, _, signature = rest.partition(".")
        if not signature or "." in signature or len(token) > _MAX_LENGTH:
            raise BadToken("the token is not a JSON Web Token")
        if header != self._header:
            raise BadToken("the token was not signed by this control plane")
        from cryptography.exceptions import InvalidSignature
        from cryptography.hazmat.primitives import hashes
        from cryptography.hazmat.primitives.asymmetric import ec
        from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature

        numbers = _decoded(signature)
        if len(numbers) != 2 * _HALF:
            raise BadToken("the token's signature has the wrong length")
        r, s = int.from_bytes(numbers[:_HALF], "big"), int.from_bytes(numbers[_HALF:], "big")
        try:
            self._public.verify(encode_dss_signature(r, s), f"{header}.{payload}".encode(), ec.ECDSA(hashes.SHA256()))
        except InvalidSignature:
            raise BadToken("the token's signature is wrong") from None
        return _decoded(payload)

    def prepare(self) -> None:
        """Do now, perhaps in a thread, what the first token would otherwise wait for."""
        _ = self._header

    @cached_property
    def _key(self) -> EllipticCurvePrivateKey:
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.asymmetric import ec

        make_private_directory(self._path.parent)
        with locked(self._path.parent / ".lock"):
            if not self._path.exists():
                fresh = ec.generate_private_key(ec.SECP256R1())
                pem = fresh.private_bytes(
                    serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
                )
                write_private(self._path, pem)
        try:
            key = serialization.load_pem_private_key(self._path.read_bytes(), password=None)
            if not isinstance(key, ec.EllipticCurvePrivateKey) or not isinstance(key.curve, ec.SECP256R1):
                raise ValueError("it is not a P-256 key")
        except (OSError, ValueError) as error:
            raise PkiError(
                f"cannot use the key that signs ServiceAccount tokens, {self._path}: {error}",
                hint="restore the file from a backup, or remove it: a new key is made, and old tokens end",
            ) from error
        return key

    @cached_property
    def _public(self) -> EllipticCurvePublicKey:
        return self._key.public_key()

    @cached_property
    def _header(self) -> str:
        from cryptography.hazmat.primitives import serialization

        public = self._public.public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
        return _encoded(orjson.dumps({"alg": "ES256", "kid": _encoded(hashlib.sha256(public).digest())}))


def _encoded(content: bytes) -> str:
    return urlsafe_b64encode(content).rstrip(b"=").decode()


def _decoded(text: str) -> bytes:
    """Base64url in its one canonical spelling, so that one token has one text."""
    try:
        content = urlsafe_b64decode(text + "=" * (-len(text) % 4))
    except (binascii.Error, ValueError):
        raise BadToken("the token is not base64url") from None
    if _encoded(content) != text:
        raise BadToken("the token is not base64url")
    return content
