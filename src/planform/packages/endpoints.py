"""Where a function revision says that it serves, and whether it may be called there.

`status.endpoint` is the one place that says it, whoever writes it: `builtin:NAME` for a function of ours, else an
address as gRPC takes it. What leaves this machine needs TLS: calls carry whole objects and credentials.
"""

from __future__ import annotations

import base64
import binascii
import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from planform.apimachinery.quantity import QuantityError, parse_quantity
from planform.functions.endpoints import ClientTls, Endpoint, InProcess, Remote
from planform.functions.errors import MAX_ANSWER_SIZE_ANNOTATION
from planform.functions.runner import MAX_ANSWER_SIZE

ENDPOINT_ANNOTATION: Final = "planform.dev/endpoint"
RUNTIME_ANNOTATION: Final = "planform.dev/runtime"
EXTERNAL: Final = "External"
"""The runtime of a function that somebody else runs, and whose address they write to its revision's status."""

PACKAGE: Final = "Package"
"""The runtime of a function whose package is pulled and run, though planform ships one that could stand in for it."""
BUILT_IN: Final = "BuiltIn"
"""The runtime of a function that planform ships, whatever version of its package is named."""
RUNTIMES: Final = (EXTERNAL, PACKAGE, BUILT_IN)

TLS_SECRET_ANNOTATION: Final = "planform.dev/tls-secret"
TLS_SERVER_NAME_ANNOTATION: Final = "planform.dev/tls-server-name"
LARGEST_ANSWER: Final = 1 << 30
TLS_KEYS: Final = ("ca.crt", "tls.crt", "tls.key")

_BUILTIN: Final = "builtin:"
_SOCKETS: Final = ("unix", "unix-abstract")
_ADDRESSES: Final = ("ipv4", "ipv6")


class SecretRef(NamedTuple):
    """A Secret by its place, written `NAMESPACE/NAME`."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True)
class Address:
    """A target for gRPC. `local` if nobody but this machine can be behind it."""

    target: str
    local: bool


@dataclass(frozen=True, slots=True)
class Serving:
    """Where a revision can be called; without an endpoint, `problem` says why not and what to do."""

    endpoint: Endpoint | None = None
    problem: str = ""


def runs_externally(annotations: Mapping[str, str]) -> bool:
    """Whether somebody else runs the function, whatever its package is."""
    runtime = annotations.get(RUNTIME_ANNOTATION)
    return ENDPOINT_ANNOTATION in annotations or runtime not in (None, PACKAGE, BUILT_IN)


def max_answer_size_of(annotations: Mapping[str, str]) -> int | None:
    """Bytes of the largest answer that is taken of a function; None if what is said about it is no size."""
    text = annotations.get(MAX_ANSWER_SIZE_ANNOTATION)
    if text is None:
        return MAX_ANSWER_SIZE
    try:
        size = parse_quantity(text).value
    except QuantityError:
        return None
    return size if 0 < size <= LARGEST_ANSWER else None


def builtin_endpoint(name: str) -> str:
    """How `status.endpoint` names a built-in."""
    return _BUILTIN + name


def tls_secret_of(annotations: Mapping[str, str]) -> SecretRef | None:
    """The Secret with the certificates for calls; None if none is named, or not by namespace and name."""
    namespace, slash, name = annotations.get(TLS_SECRET_ANNOTATION, "").partition("/")
    return SecretRef(namespace, name) if slash and namespace and name and "/" not in name else None


def serving(endpoint: str, annotations: Mapping[str, str], secret: Mapping[str, Any] | None) -> Serving:
    """Where a revision with this `status.endpoint` is called; `secret` is what `tls_secret_of` names, if it exists."""
    if not endpoint:
        return Serving(problem="it is not known yet where the function serves: status.endpoint is empty")
    if endpoint.startswith(_BUILTIN):
        return Serving(InProcess(endpoint.removeprefix(_BUILTIN)))
    try:
        address = parse_address(endpoint)
        if TLS_SECRET_ANNOTATION in annotations:
            server_name = annotations.get(TLS_SERVER_NAME_ANNOTATION, "")
            return Serving(Remote(address.target, _client_tls(annotations, secret), server_name))
    except ValueError as error:
        return Serving(problem=str(error))
    if address.local:
        return Serving(Remote(address.target))
    return Serving(
        problem="the endpoint is not on this machine and is therefore called only with TLS: name a Secret with"
        f" {', '.join(TLS_KEYS)} in the annotation {TLS_SECRET_ANNOTATION}: NAMESPACE/NAME"
    )


def parse_address(text: str) -> Address:
    """`HOST:PORT`, `dns:///HOST:PORT`, `ipv4:…`, `ipv6:…` or `unix:PATH`; raises ValueError for anything else."""
    scheme, colon, rest = text.partition(":")
    if colon and scheme in _SOCKETS:
        if not rest.strip("/"):
            raise ValueError(f'the endpoint "{text}" names no socket')
        return Address(text, local=True)
    if colon and scheme in _ADDRESSES:
        hosts = [_host(each, text) for each in rest.removeprefix("///").split(",")]
        return Address(text, local=all(map(_is_loopback, hosts)))
    if colon and scheme == "dns":
        # A name server given in the address may answer what it likes, also for "localhost".
        asked_here = rest.startswith("///") or not rest.startswith("//")
        host = _host(rest.rpartition("/")[2], text)
        return Address(text, local=asked_here and _is_loopback(host))
    return Address(f"dns:///{text}", local=_is_loopback(_host(text, text)))


def _host(address: str, text: str) -> str:
    """The host of `host:port` or `[host]:port`."""
    host, colon, port = address.rpartition(":")
    bare = host.removeprefix("[").removesuffix("]")
    if not colon or not port.isdecimal() or not 0 < int(port) < 65536 or not bare or "/" in bare:
        raise ValueError(f'the endpoint "{text}" is not an address: write HOST:PORT or unix:PATH')
    if ":" in bare and not host.startswith("["):
        raise ValueError(f'the endpoint "{text}" has several colons: write an IPv6 address as [ADDRESS]:PORT')
    return bare


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _client_tls(annotations: Mapping[str, str], secret: Mapping[str, Any] | None) -> ClientTls:
    reference = tls_secret_of(annotations)
    if reference is None:
        raise ValueError(f"the annotation {TLS_SECRET_ANNOTATION} must be NAMESPACE/NAME of a Secret")
    if secret is None:
        raise ValueError(f"Secret {reference}, named by {TLS_SECRET_ANNOTATION}, does not exist or may not be read")
    data = secret.get("data") or {}
    missing = [key for key in TLS_KEYS if not data.get(key)]
    if missing:
        raise ValueError(f"Secret {reference}, named by {TLS_SECRET_ANNOTATION}, has no {', '.join(missing)}")
    try:
        authority, certificate, key = (base64.b64decode(data[key], validate=True) for key in TLS_KEYS)
    except (binascii.Error, TypeError, ValueError) as error:
        raise ValueError(f"the data of Secret {reference} is not base64") from error
    return ClientTls(authority, certificate, key)
