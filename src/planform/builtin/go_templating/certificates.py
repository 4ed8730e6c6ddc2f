"""Keys, certificates and slow hashes for templates: sprig's functions, made repeatable.

What is random in them is drawn from the render's generator, and the time is that of the XR's creation, so that an XR
gets the same key and the same certificate on every run. Making a key takes long: these functions charge so many steps
that a template with one of them is rendered by a worker.
"""

from __future__ import annotations

import base64
import ipaddress
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar, Final

from planform.builtin.go_templating.library import creation_time
from planform.gotemplate import FunctionError, Record
from planform.gotemplate.functions import Library
from planform.gotemplate.runtime import State
from planform.gotemplate.values import Value, from_bytes, to_bytes

if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric.types import CertificateIssuerPrivateKeyTypes

certificates: Final = Library()

STEPS: Final = 200_000
"""What making a key or a slow hash costs: more than a render may use on the loop, a tenth of what a worker may."""
_SEED: Final = 32
_EXPONENT: Final = 65537
_WITNESSES: Final = 8
_SMALL: Final = 1 << 16
_BCRYPT_COST: Final = 10
_BCRYPT_MAX_LENGTH: Final = 72
_BCRYPT_ALPHABET: Final = b"./ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
_BASE64_ALPHABET: Final = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"


class Certificate(Record):
    """What the functions give: certificate and key as PEM."""

    go_type: ClassVar[str] = "sprig.certificate"
    fields: ClassVar[Mapping[str, Callable[[Any], Value]]] = {
        "Cert": lambda self: self.cert,
        "Key": lambda self: self.key,
    }
    __slots__ = ("cert", "key")

    def __init__(self, cert: str, key: str) -> None:
        self.cert = cert
        self.key = key

    def go_string(self) -> str:
        return f"{{{self.cert} {self.key}}}"

    def go_value(self) -> Value:
        return {"Cert": self.cert, "Key": self.key}


# --- hashes ----------------------------------------------------------------------------------------------------------


@certificates.add("func(string) string", "bcrypt", stateful=True)
def bcrypt_hash(state: State, text: str) -> str:
    try:
        import bcrypt
    except ImportError:
        raise FunctionError("bcrypt is not installed here: pip install bcrypt") from None
    state.spend(STEPS)
    password = to_bytes(text)
    if len(password) > _BCRYPT_MAX_LENGTH:
        return "failed to encrypt string with bcrypt: bcrypt: password length exceeds 72 bytes"
    salt = base64.b64encode(state.random.randbytes(16)).rstrip(b"=")
    spelled = salt.translate(bytes.maketrans(_BASE64_ALPHABET, _BCRYPT_ALPHABET))
    return bcrypt.hashpw(password, b"$2a$%02d$" % _BCRYPT_COST + spelled).decode()


@certificates.add("func(string, string) string", "htpasswd", stateful=True)
def htpasswd(state: State, user: str, password: str) -> str:
    if ":" in user:
        return f"invalid username: {user}"
    return f"{user}:{bcrypt_hash(state, password)}"


# --- keys ------------------------------------------------------------------------------------------------------------


@certificates.add("func(string) string", "genPrivateKey", stateful=True)
def gen_private_key(state: State, kind: str) -> str:
    from cryptography.hazmat.primitives.asymmetric import ec, ed25519

    seed = state.random.randbytes(_SEED)
    match kind:
        case "" | "rsa":
            state.spend(4 * STEPS)
            return _rsa_pem(seed, 4096)
        case "ecdsa":
            secret = int.from_bytes(state.random.randbytes(_SEED), "big") % (_P256_ORDER - 1) + 1
            return _pem(ec.derive_private_key(secret, ec.SECP256R1()))
        case "ed25519":
            return _pem(ed25519.Ed25519PrivateKey.from_private_bytes(seed))
        case "dsa":
            raise FunctionError("genPrivateKey makes no dsa keys: nothing accepts them any more")
    return f"Unknown type {kind}"


_P256_ORDER: Final = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551


@lru_cache(maxsize=64)
def _rsa_pem(seed: bytes, bits: int) -> str:
    """An RSA key that follows from the seed. A fleet asks for the same ones again and again."""
    from cryptography.hazmat.primitives.asymmetric import rsa

    from planform.gotemplate.drawing import SeededStream

    stream = SeededStream(b"rsa" + bits.to_bytes(4, "big") + seed)
    while True:
        first, second = _prime(stream, bits // 2), _prime(stream, bits // 2)
        if first != second and (first * second).bit_length() == bits:
            break
    phi = (first - 1) * (second - 1)
    secret = pow(_EXPONENT, -1, phi)
    public = rsa.RSAPublicNumbers(_EXPONENT, first * second)
    numbers = rsa.RSAPrivateNumbers(
        first,
        second,
        secret,
        rsa.rsa_crt_dmp1(secret, first),
        rsa.rsa_crt_dmq1(secret, second),
        rsa.rsa_crt_iqmp(first, second),
        public,
    )
    return _pem(numbers.private_key())


def _prime(stream: Any, bits: int) -> int:
    """The first prime after a number that is drawn, such that the exponent has an inverse."""
    while True:
        start = stream.getrandbits(bits) | (0b11 << (bits - 2)) | 1
        window = 16 * bits
        composite = bytearray(window)  # at index i stands start + 2 * i
        for small in _small_primes():
            first = (-start * pow(2, -1, small)) % small
            composite[first::small] = b"\1" * len(range(first, window, small))
        for index in range(window):
            candidate = start + 2 * index
            if not composite[index] and candidate.bit_length() == bits and _is_prime(candidate, stream):
                return int(candidate)


def _is_prime(candidate: int, stream: Any) -> bool:
    """Miller and Rabin's test; nearly all that are none fail the first witness."""
    if (candidate - 1) % _EXPONENT == 0 or pow(2, candidate - 1, candidate) != 1:
        return False
    odd, twos = candidate - 1, 0
    while odd % 2 == 0:
        odd, twos = odd // 2, twos + 1
    for _ in range(_WITNESSES):
        power = pow(stream.getrandbits(256) + 2, odd, candidate)
        if power in (1, candidate - 1):
            continue
        for _ in range(twos - 1):
            power = power * power % candidate
            if power == candidate - 1:
                break
        else:
            return False
    return True


@lru_cache(maxsize=1)
def _small_primes() -> tuple[int, ...]:
    composite = bytearray(_SMALL)
    for number in range(3, 256, 2):
        if not composite[number]:
            composite[number * number :: number] = b"\1" * len(range(number * number, _SMALL, number))
    return tuple(number for number in range(3, _SMALL, 2) if not composite[number])


# --- certificates ----------------------------------------------------------------------------------------------------


@certificates.add("func(string, int) (sprig.certificate, error)", "genCA", stateful=True)
def gen_ca(state: State, name: str, days: int) -> Certificate:
    return gen_ca_with_key(state, name, days, _fresh_key(state))


@certificates.add("func(string, int, string) (sprig.certificate, error)", "genCAWithKey", stateful=True)
def gen_ca_with_key(state: State, name: str, days: int, key: str) -> Certificate:
    return _signed(state, name, [], [], days, key, issuer=None, authority=True)


@certificates.add(
    "func(string, []interface {}, []interface {}, int) (sprig.certificate, error)", "genSelfSignedCert", stateful=True
)
def gen_self_signed(state: State, name: str, addresses: Any, names: Any, days: int) -> Certificate:
    return gen_self_signed_with_key(state, name, addresses, names, days, _fresh_key(state))


@certificates.add(
    "func(string, []interface {}, []interface {}, int, string) (sprig.certificate, error)",
    "genSelfSignedCertWithKey",
    stateful=True,
)
def gen_self_signed_with_key(state: State, name: str, addresses: Any, names: Any, days: int, key: str) -> Certificate:
    return _signed(state, name, addresses, names, days, key, issuer=None)


@certificates.add(
    "func(string, []interface {}, []interface {}, int, interface {}) (sprig.certificate, error)",
    "genSignedCert",
    stateful=True,
)
def gen_signed(state: State, name: str, addresses: Any, names: Any, days: int, ca: Value) -> Certificate:
    return gen_signed_with_key(state, name, addresses, names, days, ca, _fresh_key(state))


@certificates.add(
    "func(string, []interface {}, []interface {}, int, interface {}, string) (sprig.certificate, error)",
    "genSignedCertWithKey",
    stateful=True,
)
def gen_signed_with_key(
    state: State, name: str, addresses: Any, names: Any, days: int, ca: Value, key: str
) -> Certificate:
    if not isinstance(ca, Certificate):
        raise FunctionError("the authority must be what genCA or buildCustomCert gives")
    return _signed(state, name, addresses, names, days, key, issuer=ca)


@certificates.add("func(string, string) (sprig.certificate, error)", "buildCustomCert")
def build_custom_cert(cert: str, key: str) -> Certificate:
    """A certificate and its key, given as base64 of PEM."""
    decoded = []
    for what, text in (("certificate", cert), ("private key", key)):
        try:
            decoded.append(base64.b64decode(text, validate=True))
        except ValueError:
            raise FunctionError(f"unable to decode base64 {what}") from None
    _loaded_certificate(decoded[0])
    _loaded_key(from_bytes(decoded[1]))
    return Certificate(from_bytes(decoded[0]), from_bytes(decoded[1]))


def _fresh_key(state: State) -> str:
    state.spend(STEPS)
    return _rsa_pem(state.random.randbytes(_SEED), 2048)


def _signed(
    state: State,
    name: str,
    addresses: Any,
    names: Any,
    days: int,
    key_text: str,
    *,
    issuer: Certificate | None,
    authority: bool = False,
) -> Certificate:
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import ec, ed25519
    from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

    key = _loaded_key(key_text)
    signer = key if issuer is None else _loaded_key(issuer.key)
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)] if name else [])
    begin = creation_time() or datetime.fromtimestamp(int(state.clock()), UTC)
    try:
        end = begin + timedelta(days=days)
        alternatives = [*_addresses(addresses), *(x509.DNSName(each) for each in _texts(names, "alternate DNS names"))]
        builder = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(subject if issuer is None else _loaded_certificate(to_bytes(issuer.cert)).subject)
            .public_key(key.public_key())
            .serial_number(state.random.getrandbits(127) | 1)
            .not_valid_before(begin)
            .not_valid_after(end)
            .add_extension(_usage(authority), critical=True)
            .add_extension(
                x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]),
                critical=False,
            )
            .add_extension(x509.BasicConstraints(ca=authority, path_length=None), critical=True)
        )
        if alternatives:
            builder = builder.add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
        if authority:
            identifier = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
            builder = builder.add_extension(identifier, critical=False)
        if isinstance(signer, ec.EllipticCurvePrivateKey):
            made = builder.sign(signer, hashes.SHA256(), ecdsa_deterministic=True)
        else:
            made = builder.sign(signer, None if isinstance(signer, ed25519.Ed25519PrivateKey) else hashes.SHA256())
    except (ValueError, TypeError, OverflowError) as error:
        raise FunctionError(f"cannot make the certificate: {error}") from None
    return Certificate(from_bytes(_certificate_pem(made)), key_text)


def _usage(authority: bool) -> x509.KeyUsage:
    from cryptography import x509

    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=True,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=authority,
        crl_sign=False,
        encipher_only=False,
        decipher_only=False,
    )


def _addresses(given: Any) -> list[x509.IPAddress]:
    from cryptography import x509

    found = []
    for text in _texts(given, "IP addresses"):
        try:
            found.append(x509.IPAddress(ipaddress.ip_address(text)))
        except ValueError:
            raise FunctionError(f"error parsing ip: {text} is not an IP address") from None
    return found


def _texts(given: Any, what: str) -> list[str]:
    for each in given or ():
        if not isinstance(each, str):
            raise FunctionError(f"{what} must be texts")
    return list(given or ())


def _pem(key: Any) -> str:
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import ed25519

    modern = isinstance(key, ed25519.Ed25519PrivateKey)
    form = serialization.PrivateFormat.PKCS8 if modern else serialization.PrivateFormat.TraditionalOpenSSL
    return from_bytes(key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption()))


def _certificate_pem(certificate: x509.Certificate) -> bytes:
    from cryptography.hazmat.primitives import serialization

    return certificate.public_bytes(serialization.Encoding.PEM)


def _loaded_certificate(data: bytes) -> x509.Certificate:
    from cryptography import x509

    try:
        return x509.load_pem_x509_certificate(data)
    except ValueError as error:
        raise FunctionError(f"unable to decode certificate: {error}") from None


def _loaded_key(text: str) -> CertificateIssuerPrivateKeyTypes:
    from cryptography.hazmat.primitives import serialization

    try:
        # The keys that are made here are sound, and checking one takes as long as a hundred signatures.
        found: Any = serialization.load_pem_private_key(to_bytes(text), None, unsafe_skip_rsa_key_validation=True)
    except (ValueError, TypeError) as error:
        raise FunctionError(f"unable to decode private key: {error}") from None
    loaded: CertificateIssuerPrivateKeyTypes = found
    return loaded
