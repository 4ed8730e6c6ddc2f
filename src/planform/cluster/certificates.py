"""The webhook's certificates: an authority of its own and a server certificate, in one Secret that all replicas share.

Nobody has to bring certificates, and they renew themselves. `renewed` is pure: given what the Secret holds, what the
API server trusts and the time, it says what the Secret should hold. A new authority is trusted before anything is
signed with it: first it is added to what is trusted, and once that is in force the server certificate follows.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, Final

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.serialization import Encoding

from planform.apiserver.auth import certificates

AUTHORITY_LIFETIME: Final = timedelta(days=3650)
SERVER_LIFETIME: Final = timedelta(days=90)
DUE: Final = 1 / 3
"""A certificate is issued anew when this part of its life is left."""

_AUTHORITY: Final = "planform webhook"


@dataclass(frozen=True)
class Kept:
    """What the Secret holds, in PEM. `authorities` has the newest first; only its key is kept."""

    authorities: tuple[bytes, ...]
    authority_key: bytes
    certificate: bytes
    key: bytes

    @property
    def bundle(self) -> bytes:
        """What the API server has to trust."""
        return b"".join(self.authorities)

    @classmethod
    def of(cls, data: Mapping[str, str]) -> Kept | None:
        """From a Secret's data; None if it holds nothing of use, as when somebody made it empty for us to fill."""
        try:
            parts = {name: base64.b64decode(data[name]) for name in ("ca.crt", "ca.key", "tls.crt", "tls.key")}
            authorities = tuple(
                each.public_bytes(Encoding.PEM) for each in x509.load_pem_x509_certificates(parts["ca.crt"])
            )
            certificates.not_after_of_pair(parts["tls.crt"], parts["tls.key"])
            certificates.not_after_of_pair(authorities[0], parts["ca.key"])
        except (KeyError, ValueError):
            return None
        return cls(authorities, parts["ca.key"], parts["tls.crt"], parts["tls.key"])

    def data(self) -> dict[str, str]:
        parts = {
            "ca.crt": self.bundle,
            "ca.key": self.authority_key,
            "tls.crt": self.certificate,
            "tls.key": self.key,
        }
        return {name: base64.b64encode(content).decode() for name, content in parts.items()}


def renewed(
    kept: Kept | None,
    names: Sequence[str],
    *,
    now: datetime,
    trusted: bytes,
    lifetime: timedelta = SERVER_LIFETIME,
    authority_lifetime: timedelta = AUTHORITY_LIFETIME,
) -> Kept:
    """What to keep instead, the same if nothing is due. `trusted` is the bundle that the API server has now."""
    if kept is None:
        pair = certificates.authority(_AUTHORITY, now, now + authority_lifetime)
        fresh = Kept((pair.certificate,), pair.key, b"", b"")
        return _issued(fresh, names, now, lifetime)
    if _is_due(kept.authorities[0], now):
        pair = certificates.authority(_AUTHORITY, now, now + authority_lifetime)
        alive = [each for each in kept.authorities if _parsed(each).not_valid_after_utc > now]
        kept = replace(kept, authorities=(pair.certificate, *alive[:1]), authority_key=pair.key)
    if not _is_in(kept.authorities[0], trusted):
        return kept
    ours = _is_signed_by(kept.certificate, kept.authorities[0])
    if ours and not _is_due(kept.certificate, now) and set(names) <= _names(kept.certificate):
        return kept
    return _issued(kept, names, now, lifetime)


def _issued(kept: Kept, names: Sequence[str], now: datetime, lifetime: timedelta) -> Kept:
    """A new server certificate; the names of the one before stay, for replicas that are reached by them."""
    wanted = list(dict.fromkeys([*names, *sorted(_names(kept.certificate))]))
    pair = certificates.server(kept.authorities[0], kept.authority_key, wanted, now, now + lifetime)
    return replace(kept, certificate=pair.certificate, key=pair.key)


def _parsed(pem: bytes) -> x509.Certificate:
    return x509.load_pem_x509_certificate(pem)


def _is_due(pem: bytes, now: datetime) -> bool:
    certificate = _parsed(pem)
    begin, end = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    return now > end - (end - begin) * DUE


def _names(pem: bytes) -> set[str]:
    if not pem:
        return set()
    found: Any = _parsed(pem).extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    return {str(each.value) for each in found}


def _is_signed_by(pem: bytes, authority: bytes) -> bool:
    try:
        _parsed(pem).verify_directly_issued_by(_parsed(authority))
    except (InvalidSignature, ValueError, TypeError):
        return False
    return True


def _is_in(authority: bytes, bundle: bytes) -> bool:
    try:
        return any(each == _parsed(authority) for each in x509.load_pem_x509_certificates(bundle))
    except ValueError:
        return False
