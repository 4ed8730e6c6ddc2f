"""A signature counts only if a trusted key made it, and made it for this very image."""

from __future__ import annotations

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from planform.packages.errors import SignatureInvalid
from planform.packages.signatures import Signature, parse_bundle, signature_tag, verify
from tests.unit.signing import bundle_of, key_pair, payload_for, public_pem, sign, statement_for

DIGEST, OTHER = f"sha256:{'a' * 64}", f"sha256:{'b' * 64}"
PRIVATE, PUBLIC = key_pair()


def signature(digest: str = DIGEST, private: ec.EllipticCurvePrivateKey = PRIVATE) -> Signature:
    payload = payload_for(digest)
    return Signature(payload, sign(private, payload))


def test_signature_by_a_trusted_key_counts() -> None:
    assert verify(DIGEST, [signature()], {"us": PUBLIC}).authority == "us"


def test_one_good_signature_among_others_is_enough() -> None:
    stranger, _ = key_pair()
    others = [signature(private=stranger), signature(OTHER), Signature(b"{}", b"")]
    assert verify(DIGEST, [*others, signature()], {"them": public_pem(key_pair()[0]), "us": PUBLIC}).authority == "us"


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        pytest.param([], "is not signed", id="none"),
        pytest.param([signature(OTHER)], f"it is about {OTHER}", id="of-another-image"),
        pytest.param([signature(private=key_pair()[0])], "made with another key than us's", id="by-another-key"),
        pytest.param([Signature(payload_for(DIGEST), b"")], "another key", id="empty"),
        pytest.param([Signature(payload_for(DIGEST), signature(OTHER).signature)], "another key", id="swapped"),
        pytest.param([Signature(b"{}", sign(PRIVATE, b"{}"))], "nothing about an image", id="of-something-else"),
        pytest.param([Signature(b"\xff", sign(PRIVATE, b"\xff"))], "nothing about an image", id="not-json"),
        pytest.param(
            [Signature(payload_for(DIGEST, "attestation"), sign(PRIVATE, payload_for(DIGEST, "attestation")))],
            "it is a 'attestation'",
            id="of-another-kind",
        ),
    ],
)
def test_anything_else_is_refused_with_the_reason(given: list[Signature], problem: str) -> None:
    with pytest.raises(SignatureInvalid, match=problem):
        verify(DIGEST, given, {"us": PUBLIC})


def test_bundle_by_a_trusted_key_counts() -> None:
    bundle = parse_bundle(bundle_of(PRIVATE, statement_for(DIGEST)))
    assert verify(DIGEST, [bundle], {"us": PUBLIC}).authority == "us"


@pytest.mark.parametrize(
    ("bundle", "problem"),
    [
        pytest.param(bundle_of(PRIVATE, statement_for(OTHER)), f"it is about {OTHER}", id="of-another-image"),
        pytest.param(bundle_of(key_pair()[0], statement_for(DIGEST)), "another key", id="by-another-key"),
        pytest.param(
            bundle_of(PRIVATE, statement_for(DIGEST, "https://slsa.dev/provenance/v1")), "slsa", id="attestation"
        ),
        pytest.param(bundle_of(PRIVATE, statement_for(DIGEST), "text/plain"), "it is a 'text/plain'", id="other-type"),
        pytest.param(bundle_of(PRIVATE, b"{}"), "nothing about an image", id="empty"),
    ],
)
def test_any_other_bundle_is_refused(bundle: bytes, problem: str) -> None:
    with pytest.raises(SignatureInvalid, match=problem):
        verify(DIGEST, [parse_bundle(bundle)], {"us": PUBLIC})


def test_signature_of_one_form_is_not_taken_for_the_other() -> None:
    bundle = parse_bundle(bundle_of(PRIVATE, payload_for(DIGEST)))
    with pytest.raises(SignatureInvalid, match="nothing about an image"):
        verify(DIGEST, [bundle], {"us": PUBLIC})
    with pytest.raises(SignatureInvalid, match="another key"):
        verify(DIGEST, [Signature(bundle.payload, bundle.signature)], {"us": PUBLIC})


def test_nobody_trusted_means_nothing_is() -> None:
    with pytest.raises(SignatureInvalid, match="is by nobody"):
        verify(DIGEST, [signature()], {})


@pytest.mark.parametrize(
    ("pem", "problem"),
    [
        (b"not a key", "not a public key in PEM"),
        (public_pem(ec.generate_private_key(ec.SECP384R1())), "not an ECDSA key on P-256"),
        (
            rsa.generate_private_key(65537, 2048)
            .public_key()
            .public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo),
            "not an ECDSA key on P-256",
        ),
    ],
    ids=["noise", "other-curve", "rsa"],
)
def test_key_that_cannot_be_used_is_named(pem: bytes, problem: str) -> None:
    with pytest.raises(SignatureInvalid, match=f"the key of us is {problem}"):
        verify(DIGEST, [signature()], {"us": pem})


def test_signatures_are_kept_under_a_tag_made_of_the_digest() -> None:
    assert signature_tag(DIGEST) == f"sha256-{'a' * 64}.sig"
