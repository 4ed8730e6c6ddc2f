"""How a client's certificate names its user.

The common name is the user, as Kubernetes reads it, but X.509 allows it 64 characters, and a provider's account has
more if its own name is longer than 24. The whole name of such a user is a URI among the alternative names, and the
common name is a digest of it: who reads only common names takes it for a user without any rights.
"""

from __future__ import annotations

import hashlib
from typing import Final
from urllib.parse import quote, unquote

MAX_COMMON_NAME_LENGTH: Final = 64
MAX_USER_LENGTH: Final = 512
"""Far more than the account of any object has."""
_DIGEST: Final = "planform:user:sha256:"
_URI: Final = "urn:planform:user:"


def common_name_of(user: str) -> str:
    """The user, or a digest if that is too long."""
    if len(user) <= MAX_COMMON_NAME_LENGTH:
        return user
    return f"{_DIGEST}{hashlib.sha256(user.encode()).hexdigest()[:40]}"


def uri_of(user: str) -> str:
    return f"{_URI}{quote(user, safe='')}"


def user_of(common_name: str, uris: list[str]) -> str:
    """The user of a certificate with this common name and these URIs; empty if it names none, or two at odds."""
    if not common_name.startswith(_DIGEST):
        return common_name
    users = [unquote(uri.removeprefix(_URI)) for uri in uris if uri.startswith(_URI)]
    return next((user for user in users if common_name_of(user) == common_name), "")
