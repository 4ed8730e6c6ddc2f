"""Kubernetes' own types in CEL: quantities, URLs, addresses, versions, named formats. Importing enters them."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qs, quote, urlsplit

from planform.apimachinery import cel_functions as table
from planform.apimachinery.cel_functions import declare
from planform.apimachinery.cel_values import NOTHING, Cidr, EvaluationError, NamedFormat, Optional, Semver, Url, new_int
from planform.apimachinery.formats import FORMATS, is_long_name, is_short_name, is_uri
from planform.apimachinery.quantity import Quantity, QuantityError, parse_quantity

Address = ipaddress.IPv4Address | ipaddress.IPv6Address


def _holds(parse: Callable[..., Any]) -> Callable[..., bool]:
    def check(*args: Any) -> bool:
        try:
            parse(*args)
        except EvaluationError:
            return False
        return True

    return check


# Quantities


@declare("quantity(string): quantity", cost=table.traverses)
def quantity(text: str) -> Quantity:
    try:
        return parse_quantity(text)
    except QuantityError as error:
        raise EvaluationError(str(error)) from error


declare("isQuantity(string): bool", cost=table.traverses)(_holds(quantity))
declare("quantity.sign(): int", "sign(quantity): int")(lambda one: (one.nanos > 0) - (one.nanos < 0))
declare("quantity.isInteger(): bool")(lambda one: one.nanos % 10**9 == 0 and abs(one.nanos) < 2**63 * 10**9)
declare("quantity.asApproximateFloat(): double")(float)
declare("quantity.add(quantity): quantity")(lambda one, other: one + other)
declare("quantity.add(int): quantity")(lambda one, other: one + Quantity(other * 10**9))
declare("quantity.sub(quantity): quantity")(lambda one, other: one - other)
declare("quantity.sub(int): quantity")(lambda one, other: one - Quantity(other * 10**9))


@declare("quantity.asInteger(): int")
def as_integer(one: Quantity) -> int:
    if one.nanos % 10**9:
        raise EvaluationError("cannot convert value to integer")
    return new_int(one.nanos // 10**9)


for _kind in ("quantity", "semver"):
    declare(f"{_kind}.isGreaterThan({_kind}): bool")(lambda one, other: one > other)
    declare(f"{_kind}.isLessThan({_kind}): bool")(lambda one, other: one < other)
    declare(f"{_kind}.compareTo({_kind}): int")(lambda one, other: (one > other) - (one < other))


# URLs


@declare("url(string): url", cost=table.traverses)
def url(text: str) -> Url:
    if not is_uri(text):
        raise EvaluationError(f'URL parse error during conversion from string: parse "{text}": invalid URI for request')
    try:
        parts = urlsplit(text)
        _ = parts.port
    except ValueError as error:
        raise EvaluationError(f'URL parse error during conversion from string: parse "{text}": {error}') from error
    return Url(text, parts)


def _host(value: Url) -> str:
    return value.parts.netloc.rpartition("@")[2]


def _hostname(value: Url) -> str:
    host = _host(value)
    return host[1 : host.index("]")] if host.startswith("[") and "]" in host else host.partition(":")[0]


declare("isURL(string): bool", cost=table.traverses)(_holds(url))
declare("url.getScheme(): string")(lambda value: value.parts.scheme)
declare("url.getHost(): string")(_host)
declare("url.getHostname(): string")(_hostname)
declare("url.getPort(): string")(lambda value: str(value.parts.port) if value.parts.port is not None else "")
declare("url.getEscapedPath(): string")(lambda value: quote(value.parts.path, safe="/%:@!$&'()*+,;=-._~"))
declare("url.getQuery(): map<string, list<string>>")(lambda value: parse_qs(value.parts.query, keep_blank_values=True))


# Addresses


@declare("ip(string): ip", cost=table.traverses)
def ip(text: str) -> Address:
    try:
        address = ipaddress.ip_address(text)
    except ValueError as error:
        raise EvaluationError(f'IP Address "{text}" parse error during conversion from string: {error}') from error
    if "%" in text:
        raise EvaluationError(f'IP address "{text}" with zone value is not allowed')
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        raise EvaluationError(f'IPv4-mapped IPv6 address "{text}" is not allowed')
    return address


declare("isIP(string): bool", cost=table.traverses)(_holds(ip))
declare("ip::isCanonical(string): bool", cost=lambda sizes: 2 * table.traverses(sizes))(
    lambda text: str(ip(text)) == text
)
declare("ip.family(): int")(lambda address: address.version)
declare("ip.isUnspecified(): bool")(lambda address: address.is_unspecified)
declare("ip.isLoopback(): bool")(lambda address: address.is_loopback)
declare("ip.isLinkLocalUnicast(): bool")(lambda address: address.is_link_local)


@declare("ip.isLinkLocalMulticast(): bool")
def is_link_local_multicast(address: Address) -> bool:
    if isinstance(address, ipaddress.IPv4Address):
        return address in ipaddress.ip_network("224.0.0.0/24")
    return address.packed[0] == 0xFF and address.packed[1] & 0x0F == 0x02


@declare("ip.isGlobalUnicast(): bool")
def is_global_unicast(address: Address) -> bool:
    broadcast = isinstance(address, ipaddress.IPv4Address) and address.packed == b"\xff\xff\xff\xff"
    return not (
        broadcast or address.is_unspecified or address.is_loopback or address.is_multicast or address.is_link_local
    )


@declare("cidr(string): cidr", cost=table.traverses)
def cidr(text: str) -> Cidr:
    address, slash, prefix = text.partition("/")
    if not slash or not prefix.isascii() or not prefix.isdigit() or (len(prefix) > 1 and prefix[0] == "0"):
        raise EvaluationError(f'network address parse error during conversion from string: "{text}"')
    host = ip(address)
    try:
        return Cidr(host, ipaddress.ip_network(text, strict=False))
    except ValueError as error:
        raise EvaluationError(f'network address parse error during conversion from string: "{text}"') from error


def _contains(outer: Cidr, inner: Cidr | str) -> bool:
    other = cidr(inner) if isinstance(inner, str) else inner
    return (
        outer.network.version == other.network.version
        and other.network.prefixlen >= outer.network.prefixlen
        and other.address in outer.network
    )


declare("isCIDR(string): bool", cost=table.traverses)(_holds(cidr))
declare("cidr.containsIP(string): bool", "cidr.containsIP(ip): bool")(
    lambda outer, address: (ip(address) if isinstance(address, str) else address) in outer.network
)
declare("cidr.containsCIDR(string): bool", "cidr.containsCIDR(cidr): bool")(_contains)
declare("cidr.ip(): ip")(lambda value: value.address)
declare("cidr.masked(): cidr")(lambda value: Cidr(value.network.network_address, value.network))
declare("cidr.prefixLength(): int")(lambda value: value.network.prefixlen)


# Semantic versions

_SEMVER = re.compile(
    r"(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)"
    r"(?:-((?:0|[1-9]\d*|\d*[A-Za-z-][0-9A-Za-z-]*)(?:\.(?:0|[1-9]\d*|\d*[A-Za-z-][0-9A-Za-z-]*))*))?"
    r"(?:\+[0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*)?",
    re.ASCII,
)


@declare("semver(string): semver", "semver(string, bool): semver", cost=table.traverses)
def semver(text: str, normalize: bool = False) -> Semver:
    plain = _normalized(text) if normalize else text
    matched = _SEMVER.fullmatch(plain) if len(plain) <= 256 else None
    if matched is None or any(int(part) >= 2**64 for part in matched.groups()[:3]):
        raise EvaluationError(f'"{text}" is not a semantic version')
    labels = tuple(
        (0, int(label), "") if label.isdigit() else (1, 0, label) for label in (matched[4] or "").split(".") if label
    )
    return Semver((*(int(part) for part in matched.groups()[:3]), not labels, labels), plain)


def _normalized(text: str) -> str:
    """`v1.02` becomes `1.2.0`: no v, three parts, no leading zeros."""
    core, dash, rest = re.sub(r"^v", "", text).partition("-") if "-" in text.split("+")[0] else (text, "", "")
    core, plus, build = (core.removeprefix("v")).partition("+")
    parts = [part.lstrip("0") or "0" if part.isdigit() else part for part in core.split(".")]
    return ".".join(parts + ["0"] * (3 - len(parts))) + dash + rest + plus + build


declare("isSemver(string): bool", "isSemver(string, bool): bool", cost=table.traverses)(_holds(semver))
for _index, _part in enumerate(("major", "minor", "patch")):
    declare(f"semver.{_part}(): int")(lambda version, index=_index: new_int(version.order[index]))


# Named formats


def _problems(check: Callable[[str], bool], message: str) -> Callable[[str], list[str]]:
    return lambda text: [] if check(text) else [message]


_LABEL_VALUE = re.compile(r"(?:[A-Za-z0-9](?:[-A-Za-z0-9_.]*[A-Za-z0-9])?)?")
_DNS_1035 = re.compile(r"[a-z](?:[-a-z0-9]*[a-z0-9])?")


def _qualified_name(text: str) -> bool:
    prefix, slash, name = text.rpartition("/")
    return bool(name) and _is_label_value(name) and (not slash or is_long_name(prefix))


def _is_label_value(text: str) -> bool:
    return len(text) <= 63 and _LABEL_VALUE.fullmatch(text) is not None


def _is_1035(text: str) -> bool:
    return len(text) <= 63 and _DNS_1035.fullmatch(text) is not None


def _without_dash(check: Callable[[str], bool]) -> Callable[[str], bool]:
    """A prefix of a name may end in a dash, which the generated rest makes valid."""
    return lambda text: check(text.removesuffix("-"))


_NAMED: dict[str, Callable[[str], bool]] = {
    "dns1123Label": is_short_name,
    "dns1123Subdomain": is_long_name,
    "dns1035Label": _is_1035,
    "qualifiedName": _qualified_name,
    "dns1123LabelPrefix": _without_dash(is_short_name),
    "dns1123SubdomainPrefix": _without_dash(is_long_name),
    "dns1035LabelPrefix": _without_dash(_is_1035),
    "labelValue": _is_label_value,
    "uri": FORMATS["uri"],
    "uuid": FORMATS["uuid"],
    "byte": FORMATS["byte"],
    "date": FORMATS["date"],
    "datetime": FORMATS["datetime"],
}
_FORMATS = {name: NamedFormat(name, _problems(check, f"must be a valid {name}")) for name, check in _NAMED.items()}


def _enter_format(named: NamedFormat) -> None:
    declare(f"format::{named.name}(): format")(lambda: named)


for _named in _FORMATS.values():
    _enter_format(_named)


@declare("format::named(string): optional<format>")
def named_format(name: str) -> Optional:
    return Optional(True, _FORMATS[name]) if name in _FORMATS else NOTHING


@declare("format.validate(string): optional<list<string>>", cost=lambda sizes: (1 + sizes[-1]) * table.STRING_COST * 32)
def validate_format(named: NamedFormat, text: str) -> Optional:
    found = named.problems(text)
    return Optional(True, found) if found else NOTHING
