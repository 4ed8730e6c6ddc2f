"""Passwords derived from a master password, and AES. What makes keys or slow hashes is refused: see `REFUSED`."""

from __future__ import annotations

import base64
import hashlib
import hmac
from typing import Final

from planform.gotemplate.errors import CallFailed
from planform.gotemplate.functions import Library
from planform.gotemplate.runtime import State
from planform.gotemplate.values import from_bytes, to_bytes

crypto: Final = Library()

_BLOCK: Final = 16
_SCRYPT_STEPS: Final = 250_000  # deriving a key takes about as long as this many steps
_SEED: Final = b"com.lyndir.masterpassword"
_SHAPES: Final = {
    "maximum": "anoxxxxxxxxxxxxxxxxx axxxxxxxxxxxxxxxxxno",
    "long": (
        "CvcvnoCvcvCvcv CvcvCvcvnoCvcv CvcvCvcvCvcvno CvccnoCvcvCvcv CvccCvcvnoCvcv CvccCvcvCvcvno CvcvnoCvccCvcv "
        "CvcvCvccnoCvcv CvcvCvccCvcvno CvcvnoCvcvCvcc CvcvCvcvnoCvcc CvcvCvcvCvccno CvccnoCvccCvcv CvccCvccnoCvcv "
        "CvccCvccCvcvno CvcvnoCvccCvcc CvcvCvccnoCvcc CvcvCvccCvccno CvccnoCvcvCvcc CvccCvcvnoCvcc CvccCvcvCvccno"
    ),
    "medium": "CvcnoCvc CvcCvcno",
    "short": "Cvcn",
    "basic": "aaanaaan aannaaan aaannaaa",
    "pin": "nnnn",
}
_LETTERS: Final = "AEIOUaeiouBCDFGHJKLMNPQRSTVWXYZbcdfghjklmnpqrstvwxyz"
_CHARACTERS: Final = {
    "V": "AEIOU",
    "C": "BCDFGHJKLMNPQRSTVWXYZ",
    "v": "aeiou",
    "c": "bcdfghjklmnpqrstvwxyz",
    "A": "AEIOUBCDFGHJKLMNPQRSTVWXYZ",
    "a": _LETTERS,
    "n": "0123456789",
    "o": "@&%?,=[]_:-+*$#!'^~;()/.",
    "x": _LETTERS + "0123456789!@#$%^&*()",
}


@crypto.add("func(uint32, string, string, string, string) string", "derivePassword", stateful=True)
def derive_password(state: State, counter: int, kind: str, password: str, user: str, site: str) -> str:
    """The Master Password algorithm: the same inputs always give the same password."""
    if kind not in _SHAPES:
        return f"cannot find password template {kind}"
    state.spend(_SCRYPT_STEPS)
    name, place = to_bytes(user), to_bytes(site)
    salt = _SEED + len(name).to_bytes(4, "big") + name
    key = hashlib.scrypt(to_bytes(password), salt=salt, n=32768, r=8, p=2, dklen=64, maxmem=64 << 20)
    message = _SEED + len(place).to_bytes(4, "big") + place + counter.to_bytes(4, "big")
    seed = hmac.new(key, message, hashlib.sha256).digest()
    shapes = _SHAPES[kind].split()
    shape = shapes[seed[0] % len(shapes)]
    return "".join(
        _CHARACTERS[letter][byte % len(_CHARACTERS[letter])] for letter, byte in zip(shape, seed[1:], strict=False)
    )


def _key(password: str) -> bytes:
    return to_bytes(password)[:32].ljust(32, b"\0")


@crypto.add("func(string, string) (string, error)", "encryptAES", stateful=True)
def encrypt_aes(state: State, password: str, text: str) -> str:
    """AES-256-CBC with a random first block, in base 64."""
    from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

    if not text:
        return ""
    data = to_bytes(text)
    padding = _BLOCK - len(data) % _BLOCK
    start = state.random.randbytes(_BLOCK)
    encryptor = Cipher(algorithms.AES(_key(password)), modes.CBC(start)).encryptor()
    encrypted = encryptor.update(data + bytes((padding,)) * padding) + encryptor.finalize()
    return base64.b64encode(start + encrypted).decode()


@crypto.add("func(string, string) (string, error)", "decryptAES")
def decrypt_aes(password: str, encoded: str) -> str:
    from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

    if not encoded:
        return ""
    try:
        data = base64.b64decode(encoded, validate=True)
    except ValueError as error:
        raise CallFailed(f"illegal base64 data: {error}") from None
    if len(data) <= _BLOCK or len(data) % _BLOCK:
        raise CallFailed("crypto/cipher: input not full blocks")
    decryptor = Cipher(algorithms.AES(_key(password)), modes.CBC(data[:_BLOCK])).decryptor()
    plain = decryptor.update(data[_BLOCK:]) + decryptor.finalize()
    if plain[-1] > len(plain):
        raise CallFailed(f"runtime error: slice bounds out of range [:{len(plain) - plain[-1]}]")
    return from_bytes(plain[: len(plain) - plain[-1]])
