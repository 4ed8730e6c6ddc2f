"""X.509 by way of `cryptography`: P-256 throughout, and everything that strict verifiers ask for.

Imported only where a certificate is made; `pki` keeps what a start needs to know outside the certificates.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from planform.apiserver.auth.certificate_names import common_name_of, uri_of

_CLOCK_SKEW = timedelta(minutes=5)


class IssuedPair(NamedTuple):
    """A certificate and its key, in PEM."""

    certificate: bytes
    key: bytes
    serial: str


def authority(name: str, now: datetime, not_after: datetime) -> IssuedPair:
    """A new authority, which signs end certificates and nothing below it."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    builder = _builder(subject, subject, key.public_key(), now, not_after)
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    builder = builder.add_extension(_key_usage(signs_certificates=True), critical=True)
    builder = builder.add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    return _signed(builder, key, key)


def server(ca: bytes, ca_key: bytes, names: Sequence[str], now: datetime, not_after: datetime) -> IssuedPair:
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "planform")])
    alternatives = x509.SubjectAlternativeName([_general_name(name) for name in names])
    return _end_certificate(ca, ca_key, subject, ExtendedKeyUsageOID.SERVER_AUTH, now, not_after, alternatives)


def client(
    ca: bytes, ca_key: bytes, user: str, groups: Sequence[str], now: datetime, not_after: datetime
) -> IssuedPair:
    """The user is the common name, each group an organisation, as Kubernetes reads them.

    A user whose name is too long for a common name stands whole in an alternative name, beside a digest of it.
    """
    name, uri = common_name_of(user), uri_of(user)
    subject = x509.Name(
        [
            *(x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in groups),
            x509.NameAttribute(NameOID.COMMON_NAME, name),
        ]
    )
    whole = x509.SubjectAlternativeName([x509.UniformResourceIdentifier(uri)]) if name != user else None
    return _end_certificate(ca, ca_key, subject, ExtendedKeyUsageOID.CLIENT_AUTH, now, not_after, whole)


def not_after_of_pair(certificate: bytes, key: bytes) -> datetime:
    """When a certificate ends; raises ValueError if the key is not its."""
    parsed = x509.load_pem_x509_certificate(certificate)
    secret = serialization.load_pem_private_key(key, password=None)
    if not isinstance(secret, ec.EllipticCurvePrivateKey) or secret.public_key() != parsed.public_key():
        raise ValueError("the key does not belong to the certificate")
    return parsed.not_valid_after_utc


def _end_certificate(
    ca: bytes,
    ca_key: bytes,
    subject: x509.Name,
    purpose: x509.ObjectIdentifier,
    now: datetime,
    not_after: datetime,
    alternatives: x509.SubjectAlternativeName | None,
) -> IssuedPair:
    issuer = x509.load_pem_x509_certificate(ca)
    issuer_key = serialization.load_pem_private_key(ca_key, password=None)
    assert isinstance(issuer_key, ec.EllipticCurvePrivateKey)
    key = ec.generate_private_key(ec.SECP256R1())
    builder = _builder(subject, issuer.subject, key.public_key(), now, not_after)
    builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
    builder = builder.add_extension(_key_usage(signs_certificates=False), critical=True)
    builder = builder.add_extension(x509.ExtendedKeyUsage([purpose]), critical=False)
    builder = builder.add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    builder = builder.add_extension(
        x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key.public_key()), critical=False
    )
    if alternatives is not None:
        builder = builder.add_extension(alternatives, critical=False)
    return _signed(builder, key, issuer_key)


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, now: datetime, not_after: datetime
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _CLOCK_SKEW)
        .not_valid_after(not_after)
    )


def _signed(
    builder: x509.CertificateBuilder, key: ec.EllipticCurvePrivateKey, issuer_key: ec.EllipticCurvePrivateKey
) -> IssuedPair:
    certificate = builder.sign(issuer_key, hashes.SHA256())
    digits = f"{certificate.serial_number:X}"
    return IssuedPair(
        certificate.public_bytes(serialization.Encoding.PEM),
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()),
        digits.rjust(len(digits) + len(digits) % 2, "0"),
    )


def _key_usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )


def _general_name(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)
