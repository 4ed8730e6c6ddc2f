"""Signing as cosign does it, with keys of the test's own."""

from __future__ import annotations

import base64
import json

from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec


def key_pair() -> tuple[ec.EllipticCurvePrivateKey, bytes]:
    """A key, and its public half in PEM."""
    private = ec.generate_private_key(ec.SECP256R1())
    return private, public_pem(private)


def public_pem(private: ec.EllipticCurvePrivateKey) -> bytes:
    return private.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )


def payload_for(digest: str, kind: str = "cosign container image signature") -> bytes:
    critical = {
        "identity": {"docker-reference": "registry.example.org/team/f"},
        "image": {"docker-manifest-digest": digest},
        "type": kind,
    }
    return json.dumps({"critical": critical, "optional": None}).encode()


def sign(private: ec.EllipticCurvePrivateKey, payload: bytes) -> bytes:
    return private.sign(payload, ec.ECDSA(hashes.SHA256()))


def signed_with(private: ec.EllipticCurvePrivateKey, payload: bytes) -> dict[str, str]:
    """The annotations of a layer that is a signature."""
    return {"dev.cosignproject.cosign/signature": base64.b64encode(sign(private, payload)).decode()}


def statement_for(digest: str, predicate: str = "https://sigstore.dev/cosign/sign/v1") -> bytes:
    """What cosign 3 signs: a statement about the image."""
    subject = [{"digest": {"sha256": digest.removeprefix("sha256:")}}]
    statement = {"_type": "https://in-toto.io/Statement/v1", "subject": subject, "predicateType": predicate}
    return json.dumps(statement).encode()


def bundle_of(private: ec.EllipticCurvePrivateKey, payload: bytes, kind: str = "application/vnd.in-toto+json") -> bytes:
    """A payload in an envelope in a bundle, signed over the envelope's encoding of it."""
    message = b" ".join([b"DSSEv1", str(len(kind)).encode(), kind.encode(), str(len(payload)).encode(), payload])
    envelope = {
        "payload": base64.b64encode(payload).decode(),
        "payloadType": kind,
        "signatures": [{"sig": base64.b64encode(sign(private, message)).decode()}],
    }
    return json.dumps({"mediaType": "application/vnd.dev.sigstore.bundle.v0.3+json", "dsseEnvelope": envelope}).encode()
