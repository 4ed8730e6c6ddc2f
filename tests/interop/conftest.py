"""Certificates for functions and their callers, as a control plane would hand them out."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import grpc
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

PEM = serialization.Encoding.PEM


class Authority:
    """Signs certificates; each goes to a directory as `tls.crt`, `tls.key` and `ca.crt`."""

    def __init__(self, name: str) -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        self._certificate = self._sign(self._name, self._key.public_key(), authority=True)

    def issue(self, directory: Path, name: str) -> Path:
        """Write a certificate that serves for `localhost` and 127.0.0.1, and identifies a client as well."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        certificate = self._sign(subject, key.public_key(), authority=False)
        directory.mkdir(parents=True, exist_ok=True)
        secret = key.private_bytes(PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
        (directory / "tls.key").write_bytes(secret)
        (directory / "tls.crt").write_bytes(certificate.public_bytes(PEM))
        (directory / "ca.crt").write_bytes(self._certificate.public_bytes(PEM))
        return directory

    def _sign(self, subject: x509.Name, key: ec.EllipticCurvePublicKey, *, authority: bool) -> x509.Certificate:
        now = datetime.now(UTC)
        names: list[x509.GeneralName] = [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(hours=1))
            .not_valid_after(now + timedelta(days=1))
            .add_extension(x509.BasicConstraints(ca=authority, path_length=None), critical=True)
            .add_extension(x509.SubjectAlternativeName(names), critical=False)
            .sign(self._key, hashes.SHA256())
        )


def client_credentials(directory: Path) -> grpc.ChannelCredentials:
    """Credentials of a caller whose certificate is in this directory."""
    authority, key, certificate = ((directory / name).read_bytes() for name in ("ca.crt", "tls.key", "tls.crt"))
    return grpc.ssl_channel_credentials(authority, key, certificate)


@pytest.fixture(scope="session")
def authority() -> Authority:
    return Authority("functions")


@pytest.fixture
def issue(authority: Authority, tmp_path: Path) -> Callable[[str], Path]:
    """Issue a certificate into a directory of its own."""
    return lambda name: authority.issue(tmp_path / name, name)
