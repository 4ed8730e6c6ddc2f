"""Which certificates the webhook keeps, when they are issued anew, and that an authority is trusted before it signs."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from cryptography import x509
from cryptography.exceptions import InvalidSignature

from planform.cluster.certificates import AUTHORITY_LIFETIME, SERVER_LIFETIME, Kept, renewed

NOW = datetime(2026, 1, 1, tzinfo=UTC)
NAMES = ("planform-webhook.planform-system.svc",)


def made() -> Kept:
    return renewed(None, NAMES, now=NOW, trusted=b"")


def signer_of(kept: Kept) -> int:
    """Which of the authorities signed the server certificate."""
    certificate = x509.load_pem_x509_certificate(kept.certificate)
    for index, authority in enumerate(kept.authorities):
        if certificate.issuer == (parsed := x509.load_pem_x509_certificate(authority)).subject:
            try:
                certificate.verify_directly_issued_by(parsed)
            except InvalidSignature:
                continue
            return index
    raise AssertionError("nobody that is trusted signed it")


def test_what_was_made_is_kept_and_survives_the_secret() -> None:
    kept = made()
    assert Kept.of(kept.data()) == kept
    assert renewed(kept, NAMES, now=NOW + SERVER_LIFETIME / 2, trusted=kept.bundle) == kept


def test_an_empty_or_damaged_secret_counts_as_none() -> None:
    assert Kept.of({}) is None
    assert Kept.of({**made().data(), "tls.key": made().data()["tls.key"]}) is None
    assert Kept.of({**made().data(), "ca.crt": "bm90IGEgY2VydGlmaWNhdGU="}) is None


def test_a_server_certificate_is_issued_anew_while_a_third_of_its_life_is_left() -> None:
    kept = made()
    later = renewed(kept, NAMES, now=NOW + SERVER_LIFETIME * 0.7, trusted=kept.bundle)
    assert later.authorities == kept.authorities
    assert later.certificate != kept.certificate
    assert signer_of(later) == 0


def test_a_name_more_is_added_and_none_is_lost() -> None:
    kept = made()
    both = renewed(kept, ("127.0.0.1",), now=NOW, trusted=kept.bundle)
    assert both.certificate != kept.certificate
    assert renewed(both, NAMES, now=NOW, trusted=both.bundle) == both


def test_a_new_authority_is_trusted_before_it_signs() -> None:
    kept = made()
    old = NOW + AUTHORITY_LIFETIME * 0.67
    kept = renewed(kept, NAMES, now=old - timedelta(days=50), trusted=kept.bundle)
    announced = renewed(kept, NAMES, now=old, trusted=kept.bundle)
    assert len(announced.authorities) == 2
    assert (announced.certificate, signer_of(announced)) == (kept.certificate, 1)
    assert renewed(announced, NAMES, now=old, trusted=kept.bundle) == announced
    signed = renewed(announced, NAMES, now=old, trusted=announced.bundle)
    assert signed.authorities == announced.authorities
    assert signer_of(signed) == 0
