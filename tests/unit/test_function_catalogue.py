"""Which functions there are, and where each of them may be called."""

from __future__ import annotations

import base64

import pytest

from planform.functions.endpoints import InProcess, Remote
from planform.packages.endpoints import (
    TLS_SECRET_ANNOTATION,
    TLS_SERVER_NAME_ANNOTATION,
    SecretRef,
    builtin_endpoint,
    parse_address,
    serving,
    tls_secret_of,
)

# -- addresses


@pytest.mark.parametrize(
    ("text", "target"),
    [
        ("localhost:9443", "dns:///localhost:9443"),
        ("127.0.0.1:1", "dns:///127.0.0.1:1"),
        ("127.8.0.1:1", "dns:///127.8.0.1:1"),
        ("[::1]:9443", "dns:///[::1]:9443"),
        ("dns:///localhost:9443", "dns:///localhost:9443"),
        ("dns:localhost:9443", "dns:localhost:9443"),
        ("ipv4:127.0.0.1:1,127.0.0.2:1", "ipv4:127.0.0.1:1,127.0.0.2:1"),
        ("ipv6:[::1]:1", "ipv6:[::1]:1"),
        ("unix:/run/fn.sock", "unix:/run/fn.sock"),
        ("unix:///run/fn.sock", "unix:///run/fn.sock"),
        ("unix-abstract:fn", "unix-abstract:fn"),
    ],
)
def test_what_cannot_leave_this_machine_is_called_in_plain_text(text: str, target: str) -> None:
    assert parse_address(text).local
    assert serving(text, {}, None).endpoint == Remote(target)


@pytest.mark.parametrize(
    "text",
    [
        "fn.example.org:9443",
        "10.0.0.1:9443",
        "0.0.0.0:9443",
        "dns:///fn.system:9443",
        "dns://10.0.0.1/localhost:9443",
        "ipv4:127.0.0.1:1,10.0.0.1:1",
        "ipv6:[fe80::1]:1",
        "localhost.example.org:1",
        "unix.example.org:1",
    ],
)
def test_what_may_leave_this_machine_needs_certificates(text: str) -> None:
    assert not parse_address(text).local
    refused = serving(text, {}, None)
    assert refused.endpoint is None
    assert "only with TLS" in refused.problem
    assert TLS_SECRET_ANNOTATION in refused.problem


@pytest.mark.parametrize(
    "text",
    [
        "https://fn:1",
        "fn",
        "fn:",
        "fn:x",
        "fn:0",
        "fn:65536",
        ":1",
        "unix:",
        "unix:///",
        "ipv4:",
        "::1:9443",
        "dns:///",
    ],
)
def test_what_is_no_address_is_refused_by_name(text: str) -> None:
    with pytest.raises(ValueError, match="the endpoint"):
        parse_address(text)
    assert f'"{text}"' in serving(text, {}, None).problem


# -- certificates

NAMED = {TLS_SECRET_ANNOTATION: "platform/fn-client"}


def secret(**data: bytes) -> dict[str, dict[str, str]]:
    return {"data": {key.replace("_", "."): base64.b64encode(value).decode() for key, value in data.items()}}


def test_certificates_come_from_the_named_secret() -> None:
    annotations = {**NAMED, TLS_SERVER_NAME_ANNOTATION: "fn-1"}
    found = serving("fn:1", annotations, secret(ca_crt=b"ca", tls_crt=b"crt", tls_key=b"key")).endpoint
    assert isinstance(found, Remote)
    assert found.tls is not None
    assert (found.tls.authority, found.tls.certificate, found.tls.key) == (b"ca", b"crt", b"key")
    assert found.server_name == "fn-1"
    assert tls_secret_of(annotations) == SecretRef("platform", "fn-client")


@pytest.mark.parametrize(
    ("value", "found", "says"),
    [
        ("fn-client", None, "must be NAMESPACE/NAME"),
        ("a/b/c", None, "must be NAMESPACE/NAME"),
        ("platform/fn-client", None, "Secret platform/fn-client, named by planform.dev/tls-secret, does not exist"),
        ("platform/fn-client", secret(ca_crt=b"ca", tls_crt=b"crt"), "has no tls.key"),
        ("platform/fn-client", {"data": {"ca.crt": "%", "tls.crt": "%", "tls.key": "%"}}, "is not base64"),
    ],
)
@pytest.mark.parametrize("endpoint", ["fn:1", "localhost:1"])
def test_broken_certificates_never_lead_to_plain_text(
    endpoint: str, value: str, found: dict[str, dict[str, str]] | None, says: str
) -> None:
    refused = serving(endpoint, {TLS_SECRET_ANNOTATION: value}, found)
    assert refused.endpoint is None
    assert says in refused.problem


def test_a_built_in_serves_in_this_process() -> None:
    assert serving(builtin_endpoint("auto-ready"), {}, None).endpoint == InProcess("auto-ready")
    assert "status.endpoint is empty" in serving("", {}, None).problem
