"""What a request must look like before anybody looks at what it asks: where it goes to, and where it comes from.

A page of another site can make a browser send requests here. It cannot choose the Host (a name that it had resolve to
loopback stands there: DNS rebinding), it cannot hide its Origin, and it cannot read our CSRF token. Each is checked.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Final

from planform.apiserver.wire.http import HttpRequest
from planform.errors import BadRequest, Forbidden, PlanformError

POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
    "base-uri 'none'; frame-ancestors 'none'; form-action 'none'"
)
HEADERS: Final = [
    (b"content-security-policy", POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"permissions-policy", b"camera=(), geolocation=(), microphone=()"),
]
READS: Final = ("GET", "HEAD")
CSRF_HEADER: Final = b"x-planform-csrf"

Hosts = Callable[[], Collection[str]]
"""Names with ports under which this server may be asked for."""


class NotOurOrigin(Forbidden):
    """A request that a page of another site made, or that reached us under a name that is not ours."""


def check(request: HttpRequest, hosts: Collection[str], *, scheme: str) -> None:
    """Raise if the request is not one that our own page, or a person who typed our address, could have sent."""
    host = request.header(b"host").lower()
    if host not in hosts:
        raise _hinted(
            NotOurOrigin(f'this server is not "{host[:200]}"'), f"open it as {scheme}://{next(iter(sorted(hosts)), '')}"
        )
    if b"transfer-encoding" in request.headers and b"content-length" in request.headers:
        raise BadRequest("a request has one length: Transfer-Encoding and Content-Length contradict each other")
    origin = request.header(b"origin").lower()
    if origin and origin not in {f"{scheme}://{each}" for each in hosts}:
        raise NotOurOrigin(f'"{origin[:200]}" may not ask here')
    site = request.header(b"sec-fetch-site")
    if site in ("cross-site", "same-site") and not _is_navigation(request):
        raise NotOurOrigin("another site may not ask here")
    if request.method not in READS and not origin and site != "same-origin" and b"cookie" in request.headers:
        raise NotOurOrigin("a request that changes something says where it comes from (Origin)")


def _is_navigation(request: HttpRequest) -> bool:
    """Somebody followed a link: they get the page, which holds nothing, and the cookie does not come along."""
    return request.method in READS and request.header(b"sec-fetch-mode") == "navigate"


def _hinted(error: PlanformError, hint: str) -> PlanformError:
    error.hint = hint
    return error
