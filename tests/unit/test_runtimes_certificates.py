"""The certificates of revisions: when they are issued anew, and what a function finds in its directory."""

from __future__ import annotations

import ssl
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from planform.apiserver.auth.pki import Pki
from planform.clock import SystemClock
from planform.packages.runtimes.certificates import LIFETIME, RENEW_BEFORE, RevisionCertificates


class MovedClock(SystemClock):
    """The real clock, some days off."""

    days = 0

    def now(self) -> datetime:
        return super().now() + timedelta(days=self.days)


@pytest.fixture
def clock() -> MovedClock:
    return MovedClock()


def opened(directory: Path, clock: MovedClock, *, authority: str = "pki") -> RevisionCertificates:
    return RevisionCertificates(Pki(directory / authority, clock=clock), directory / "certificates", clock=clock)


def shown(certificates: RevisionCertificates) -> x509.Certificate:
    """The certificate in the directory, whose key is the one beside it and whose authority is beside it too."""
    directory = certificates.directory_of("fn-1")
    found = x509.load_pem_x509_certificate((directory / "tls.crt").read_bytes())
    key = load_pem_private_key((directory / "tls.key").read_bytes(), None)
    assert key.public_key() == found.public_key()
    ssl.create_default_context(cafile=str(directory / "ca.crt"))
    found.verify_directly_issued_by(x509.load_pem_x509_certificate((directory / "ca.crt").read_bytes()))
    return found


def names_of(certificate: x509.Certificate) -> list[str]:
    extension = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName)
    return list(extension.value.get_values_for_type(x509.DNSName))


def test_a_certificate_stays_until_it_nears_its_end(tmp_path: Path, clock: MovedClock) -> None:
    certificates = opened(tmp_path, clock)
    first = certificates.ensure("fn-1")
    before = shown(certificates)
    assert opened(tmp_path, clock).ensure("fn-1") == first  # another start changes nothing
    clock.days = (LIFETIME - RENEW_BEFORE).days - 1
    assert certificates.ensure("fn-1") == first
    assert shown(certificates) == before
    clock.days += 2
    assert certificates.ensure("fn-1") > first
    assert shown(certificates).not_valid_after_utc > before.not_valid_after_utc
    due = certificates.renewal_of("fn-1")
    assert due is not None
    assert due > clock.now()


def test_another_name_makes_another_certificate(tmp_path: Path, clock: MovedClock) -> None:
    certificates = opened(tmp_path, clock)
    first = certificates.ensure("fn-1")
    assert names_of(shown(certificates)) == ["fn-1"]
    second = certificates.ensure("fn-1", ["fn.example.org"])
    assert second > first
    assert names_of(shown(certificates)) == ["fn-1", "fn.example.org"]
    assert certificates.ensure("fn-1", ["fn.example.org"]) == second


def test_another_authority_makes_another_certificate(tmp_path: Path, clock: MovedClock) -> None:
    certificates = opened(tmp_path, clock)
    first = certificates.ensure("fn-1")
    moved = opened(tmp_path, clock, authority="another")
    assert moved.ensure("fn-1") > first
    assert shown(moved).issuer
    assert (moved.directory_of("fn-1") / "ca.crt").read_bytes() == moved.caller().authority


@pytest.mark.parametrize("lost", ["tls.crt", "tls.key", "ca.crt", "issued.json"])
def test_a_file_that_is_lost_is_made_again(tmp_path: Path, clock: MovedClock, lost: str) -> None:
    certificates = opened(tmp_path, clock)
    certificates.ensure("fn-1")
    (certificates.directory_of("fn-1") / lost).unlink()
    certificates.ensure("fn-1")
    assert names_of(shown(certificates)) == ["fn-1"]


def test_revisions_have_certificates_of_their_own_that_go_with_them(tmp_path: Path, clock: MovedClock) -> None:
    certificates = opened(tmp_path, clock)
    for revision in ("fn-1", "fn-2"):
        certificates.ensure(revision)
    one, two = (certificates.directory_of(each) / "tls.key" for each in ("fn-1", "fn-2"))
    assert one.read_bytes() != two.read_bytes()
    certificates.remove("fn-1")
    assert not one.parent.exists()
    assert two.is_file()
    assert certificates.renewal_of("fn-1") is None
