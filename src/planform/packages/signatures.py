"""Signatures that cosign makes with a key: where they are kept, and whether they hold.

A signature is about a digest. What is signed is a payload that names it, in one of two forms: simple signing, kept
under the tag `sha256-HEX.sig` beside the image or as a referrer of it; and since cosign 3 a bundle, a referrer that
holds an in-toto statement in a DSSE envelope. A bundle that attests something else about the image is no signature.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from planform.packages.errors import InvalidPackage, PackageNotFound, SignatureInvalid
from planform.packages.oci import OCI_EMPTY, Descriptor, Index, Manifest, parse_json
from planform.packages.references import Reference
from planform.packages.registry import RegistryClient

if TYPE_CHECKING:  # imported when a signature is checked: most commands never do
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey

SIMPLE_SIGNING: Final = "application/vnd.dev.cosign.simplesigning.v1+json"
ARTIFACT_TYPE: Final = "application/vnd.dev.cosign.artifact.sig.v1+json"
SIGNATURE_ANNOTATION: Final = "dev.cosignproject.cosign/signature"
PAYLOAD_TYPE: Final = "cosign container image signature"
BUNDLE: Final = "application/vnd.dev.sigstore.bundle.v0.3+json"
IN_TOTO: Final = "application/vnd.in-toto+json"
PREDICATE: Final = "https://sigstore.dev/cosign/sign/v1"

_PAYLOAD_BYTES: Final = 256 << 10
_MAX_SIGNATURES: Final = 64
_MAX_REFERRERS: Final = 16


@dataclass(frozen=True, slots=True)
class Signature:
    """A payload and the signature over it; neither has been checked. Without a type the payload is simple signing."""

    payload: bytes
    signature: bytes
    payload_type: str = ""

    @property
    def message(self) -> bytes:
        """The bytes that were signed: the payload, or in an envelope its type and the payload with their lengths."""
        if not self.payload_type:
            return self.payload
        kind = self.payload_type.encode()
        return b"DSSEv1 %d %s %d %s" % (len(kind), kind, len(self.payload), self.payload)


@dataclass(frozen=True, slots=True)
class Verified:
    """Whose key the signature was made with."""

    authority: str
    digest: str


def signature_tag(digest: str) -> str:
    """The tag under which the signatures of an image are kept."""
    return f"{digest.replace(':', '-')}.sig"


async def fetch_signatures(registry: RegistryClient, reference: Reference, digest: str) -> list[Signature]:
    """All signatures that the registry keeps for an image, of either scheme. Bounded in number and size."""
    found: list[Signature] = []
    for place in await _places(registry, reference, digest):
        try:
            _, manifest = await registry.manifest(place)
        except PackageNotFound:
            continue
        if isinstance(manifest, Manifest):
            for layer in manifest.layers[:_MAX_SIGNATURES]:
                if (signature := await _signature(registry, reference, layer)) is not None:
                    found.append(signature)
    return found[:_MAX_SIGNATURES]


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


async def verify_image(
    registry: RegistryClient, reference: Reference, digest: str, keys: Mapping[str, bytes]
) -> Verified:
    """Fetch the signatures of an image and check them. Raises SignatureInvalid."""
    return verify(digest, await fetch_signatures(registry, reference, digest), keys)


async def _places(registry: RegistryClient, reference: Reference, digest: str) -> list[Reference]:
    index: Index = await registry.referrers(reference, digest)
    kinds = (ARTIFACT_TYPE, SIMPLE_SIGNING, BUNDLE, OCI_EMPTY, "")  # the last two: older lists do not say it
    kept = [each for each in index.manifests if each.artifact_type in kinds]
    tagged = reference.tagged(signature_tag(digest))
    return [tagged, *(reference.tagged("").pinned(each.digest) for each in kept[:_MAX_REFERRERS])]


async def _signature(registry: RegistryClient, reference: Reference, layer: Descriptor) -> Signature | None:
    """The signature in a layer; None if it is something else."""
    if layer.media_type not in (SIMPLE_SIGNING, BUNDLE) or layer.size > _PAYLOAD_BYTES:
        return None
    await registry.blob(reference, layer)
    body = registry.blobs.read(layer.digest, _PAYLOAD_BYTES)
    try:
        if layer.media_type == BUNDLE:
            return parse_bundle(body)
        return Signature(body, base64.b64decode(layer.annotations[SIGNATURE_ANNOTATION], validate=True))
    except (InvalidPackage, LookupError, TypeError, ValueError):
        return None


def parse_bundle(body: bytes) -> Signature:
    """The signature in a bundle. Raises LookupError, TypeError, ValueError or InvalidPackage for anything else."""
    envelope = parse_json(body, "the bundle")["dsseEnvelope"]
    [signature] = envelope["signatures"]
    payload, made = (base64.b64decode(text, validate=True) for text in (envelope["payload"], signature["sig"]))
    if not isinstance(envelope["payloadType"], str) or not envelope["payloadType"]:
        raise ValueError("an envelope says of what type its payload is")
    return Signature(payload, made, envelope["payloadType"])


def _problem(digest: str, signature: Signature, authority: str, pem: bytes) -> str:
    """Why a signature does not count; empty if it does. The payload is believed only after its signature holds."""
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import ec

    key = _public_key(pem, authority)
    try:
        key.verify(signature.signature, signature.message, ec.ECDSA(hashes.SHA256()))
    except InvalidSignature:
        return f"made with another key than {authority}'s"
    try:
        kind, signed = _claim(signature)
    except (InvalidPackage, LookupError, TypeError):  # whatever was signed, it is not this
        return "it says nothing about an image"
    if kind not in (PAYLOAD_TYPE, PREDICATE):
        return f"it is a {kind!r}"
    return "" if digest in signed else f"it is about {', '.join(signed) or 'nothing'}"


def _claim(signature: Signature) -> tuple[str, list[str]]:
    """What a payload is, and the digests that it is about."""
    payload = parse_json(signature.payload, "the payload")
    if not signature.payload_type:
        critical = payload["critical"]
        return str(critical["type"]), [str(critical["image"]["docker-manifest-digest"])]
    if signature.payload_type != IN_TOTO:
        return signature.payload_type, []
    return str(payload["predicateType"]), [f"sha256:{each['digest']['sha256']}" for each in payload["subject"]]


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
