"""Signatures that cosign makes with a key: where they are kept, and whether they hold.

A signature is about a digest. Its payload (simple signing) names that digest, and the signature is over the payload's
bytes. Registries keep it as an image of its own: under the tag `sha256-HEX.sig` beside the signed image, or as a
referrer of it.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from planform.packages.errors import InvalidPackage, PackageNotFound, SignatureInvalid
from planform.packages.oci import Descriptor, Index, Manifest, parse_json
from planform.packages.references import Reference
from planform.packages.registry import Registry

if TYPE_CHECKING:  # imported when a signature is checked: most commands never do
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey

SIMPLE_SIGNING: Final = "application/vnd.dev.cosign.simplesigning.v1+json"
ARTIFACT_TYPE: Final = "application/vnd.dev.cosign.artifact.sig.v1+json"
SIGNATURE_ANNOTATION: Final = "dev.cosignproject.cosign/signature"
PAYLOAD_TYPE: Final = "cosign container image signature"

_PAYLOAD_BYTES: Final = 64 << 10
_MOST_SIGNATURES: Final = 64
_MOST_REFERRERS: Final = 16


@dataclass(frozen=True, slots=True)
class Signature:
    """A payload and the signature over it; neither has been checked."""

    payload: bytes
    signature: bytes


@dataclass(frozen=True, slots=True)
class Verified:
    """Whose key the signature was made with."""

    authority: str
    digest: str


def signature_tag(digest: str) -> str:
    """The tag under which the signatures of an image are kept."""
    return f"{digest.replace(':', '-')}.sig"


async def fetch_signatures(registry: Registry, reference: Reference, digest: str) -> list[Signature]:
    """All signatures that the registry keeps for an image, of either scheme. Bounded in number and size."""
    found: list[Signature] = []
    for place in await _places(registry, reference, digest):
        try:
            _, manifest = await registry.manifest(place)
        except PackageNotFound:
            continue
        if isinstance(manifest, Manifest):
            for layer in manifest.layers[:_MOST_SIGNATURES]:
                if (signature := await _signature(registry, reference, layer)) is not None:
                    found.append(signature)
    return found[:_MOST_SIGNATURES]


def verify(digest: str, signatures: Sequence[Signature], keys: Mapping[str, bytes]) -> Verified:
    """Find a signature of this image by one of these keys (PEM, by authority). Raises SignatureInvalid."""
    if not signatures:
        raise SignatureInvalid(f"{digest} is not signed")
    problems: list[str] = []
    for authority, pem in keys.items():
        for signature in signatures:
            problem = _problem(digest, signature, authority, pem)
            if not problem:
                return Verified(authority, digest)
            problems.append(problem)
    tried = ", ".join(keys) or "nobody"
    reasons = "; ".join(sorted(set(problems)))
    raise SignatureInvalid(f"none of the {len(signatures)} signatures of {digest} is by {tried}: {reasons}")


async def verify_image(registry: Registry, reference: Reference, digest: str, keys: Mapping[str, bytes]) -> Verified:
    """Fetch the signatures of an image and check them. Raises SignatureInvalid."""
    return verify(digest, await fetch_signatures(registry, reference, digest), keys)


async def _places(registry: Registry, reference: Reference, digest: str) -> list[Reference]:
    index: Index = await registry.referrers(reference, digest)
    kept = [each for each in index.manifests if each.artifact_type in (ARTIFACT_TYPE, SIMPLE_SIGNING)]
    tagged = reference.tagged(signature_tag(digest))
    return [tagged, *(reference.tagged("").pinned(each.digest) for each in kept[:_MOST_REFERRERS])]


async def _signature(registry: Registry, reference: Reference, layer: Descriptor) -> Signature | None:
    encoded = layer.annotations.get(SIGNATURE_ANNOTATION)
    if layer.media_type != SIMPLE_SIGNING or encoded is None or layer.size > _PAYLOAD_BYTES:
        return None
    try:
        signature = base64.b64decode(encoded, validate=True)
    except (binascii.Error, ValueError):
        return None
    await registry.blob(reference, layer)
    return Signature(registry.blobs.read(layer.digest, _PAYLOAD_BYTES), signature)


def _problem(digest: str, signature: Signature, authority: str, pem: bytes) -> str:
    """Why a signature does not count; empty if it does. The payload is believed only after its signature holds."""
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import ec

    key = _public_key(pem, authority)
    try:
        key.verify(signature.signature, signature.payload, ec.ECDSA(hashes.SHA256()))
    except InvalidSignature:
        return f"made with another key than {authority}'s"
    try:
        critical = parse_json(signature.payload, "the payload")["critical"]
        signed, kind = critical["image"]["docker-manifest-digest"], critical["type"]
    except (InvalidPackage, LookupError, TypeError):  # whatever was signed, it is not this
        return "it says nothing about an image"
    if kind != PAYLOAD_TYPE:
        return f"it is a {kind!r}"
    return "" if signed == digest else f"it is about {signed}"


def _public_key(pem: bytes, authority: str) -> EllipticCurvePublicKey:
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.serialization import load_pem_public_key

    try:
        key = load_pem_public_key(pem)
    except (ValueError, UnsupportedAlgorithm) as error:
        raise SignatureInvalid(f"the key of {authority} is not a public key in PEM") from error
    if not isinstance(key, ec.EllipticCurvePublicKey) or not isinstance(key.curve, ec.SECP256R1):
        raise SignatureInvalid(
            f"the key of {authority} is not an ECDSA key on P-256", hint="cosign generate-key-pair makes such keys"
        )
    return key
