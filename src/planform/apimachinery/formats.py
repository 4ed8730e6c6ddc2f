"""The string formats of OpenAPI schemas, checked as Kubernetes checks them; a format that is not here is ignored."""

from __future__ import annotations

import base64
import binascii
import ipaddress
import re
from collections.abc import Callable
from datetime import date
from functools import lru_cache
from urllib.parse import urlsplit

# Only for patterns written here, all of them free of backtracking traps; a user's pattern goes to RE2.
_UUID = re.compile(
    r"[0-9a-f]{8}-?[0-9a-f]{4}-?([0-9a-f])[0-9a-f]{3}-?([0-9a-f])[0-9a-f]{3}-?[0-9a-f]{12}", re.IGNORECASE
)
_TIME = re.compile(r"([0-9]{2}):([0-9]{2}):([0-9]{2})(?:\.[0-9]+)?(?:z|[+-][0-9]{2}:[0-9]{2})")
_GO_DURATION = re.compile(r"[+-]?(?:0|(?:(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:ns|us|µs|μs|ms|s|m|h))+)")
_WORD_DURATION = re.compile(r"[0-9]+\s*([A-Za-zµ]+)")
_DURATION_WORDS = frozenset(
    {
        *("ns", "nano", "nanos", "nanosec", "nanosecs", "nanosecond", "nanoseconds"),
        *("us", "µs", "micro", "micros", "microsec", "microsecs", "microsecond", "microseconds"),
        *("ms", "milli", "millis", "millisec", "millisecs", "millisecond", "milliseconds"),
        *("s", "sec", "secs", "second", "seconds", "m", "min", "mins", "minute", "minutes"),
        *("h", "hr", "hrs", "hour", "hours", "d", "day", "days", "w", "wk", "wks", "week", "weeks"),
    }
)
_LABEL = re.compile(r"[a-z0-9](?:[-a-z0-9]*[a-z0-9])?")
_MAC = re.compile(
    r"(?:[0-9a-f]{2}(?P<sep>[:-])(?:[0-9a-f]{2}(?P=sep)){4}(?:(?:[0-9a-f]{2}(?P=sep)){2}(?:(?:[0-9a-f]{2}(?P=sep)){12})?)?"
    r"[0-9a-f]{2}|(?:[0-9a-f]{4}\.){2}(?:[0-9a-f]{4}\.)?(?:(?:[0-9a-f]{4}\.){6})?[0-9a-f]{4})",
    re.IGNORECASE,
)
_CARD = re.compile(
    r"4[0-9]{12}(?:[0-9]{3})?|5[1-5][0-9]{14}|6(?:011|5[0-9][0-9])[0-9]{12}|3[47][0-9]{13}"
    r"|3(?:0[0-5]|[68][0-9])[0-9]{11}|(?:2131|1800|35[0-9]{3})[0-9]{11}"
)
_RGB = re.compile(r"rgb\(\s*([0-9]{1,3})\s*,\s*([0-9]{1,3})\s*,\s*([0-9]{1,3})\s*\)")


_LEADING_ZEROS = re.compile(r"(?<![0-9A-Fa-f:.])0+(?=[0-9]+\.)|(?<=\.)0+(?=[0-9])")
_BAD_ESCAPE = re.compile(r"%(?![0-9A-Fa-f]{2})")


def _full(pattern: str, flags: int = 0) -> Callable[[str], bool]:
    compiled = re.compile(pattern, flags)
    return lambda text: compiled.fullmatch(text) is not None


def is_date(text: str) -> bool:
    """RFC 3339 full-date: `2006-01-02`."""
    try:
        return len(text) == 10 and text.isascii() and text[4] == text[7] == "-" and bool(date.fromisoformat(text))
    except ValueError:
        return False


def is_date_time(text: str) -> bool:
    """RFC 3339 date-time; the zone is required, letters may be of either case."""
    return _is_known_date_time(text) if len(text) == _SECONDS_LENGTH else _is_date_time(text)


def _is_date_time(text: str) -> bool:
    day, separator, time = text.lower().partition("t")
    matched = _TIME.fullmatch(time)
    return (
        bool(separator)
        and matched is not None
        and is_date(day)
        and matched[1] <= "23"
        and matched[2] <= "59"
        and matched[3] <= "59"
    )


_SECONDS_LENGTH = len("2006-01-02T15:04:05Z")
_is_known_date_time = lru_cache(maxsize=256)(_is_date_time)
"""Busy servers see the same few seconds in thousands of objects."""


def is_duration(text: str) -> bool:
    """Go's `1h30m`, or any text with a number and a unit in words, such as `3 days`."""
    return _GO_DURATION.fullmatch(text) is not None or any(
        word.lower() in _DURATION_WORDS for word in _WORD_DURATION.findall(text)
    )


def is_uuid(text: str, version: str = "", variants: str = "") -> bool:
    matched = _UUID.fullmatch(text)
    return (
        matched is not None
        and (not version or matched[1] == version)
        and (not variants or matched[2].lower() in variants)
    )


def is_hostname(text: str) -> bool:
    """Labels of letters, digits and inner dashes; the last of several is letters only."""
    labels = text.split(".")
    if not 0 < len(text) <= 255 or any(not 0 < len(label) <= 63 for label in labels):
        return False
    if any(label[0] == "-" or label[-1] == "-" for label in labels):
        return False
    if any(not (char.isalnum() or char == "-") for label in labels for char in label):
        return False
    return len(labels) == 1 or (len(labels[-1]) >= 2 and labels[-1].isalpha())


def is_email(text: str) -> bool:
    """One address, alone or as `Name <address>`."""
    if text.endswith(">") and "<" in text:
        text = text[text.rindex("<") + 1 : -1]
    local, at, domain = text.strip().rpartition("@")
    atom = r"[^\s()<>\[\]:;@\\,.\"]+"
    quoted = len(local) > 2 and local[0] == local[-1] == '"'
    return bool(at) and (quoted or _dotted(local, atom)) and (_dotted(domain, atom) or _is_domain_literal(domain))


def _dotted(text: str, atom: str) -> bool:
    return all(re.fullmatch(atom, part) for part in text.split("."))


def _is_domain_literal(text: str) -> bool:
    return text[:1] == "[" and text[-1:] == "]" and (is_ip(text[1:-1], 4) or is_ip(text[1:-1].removeprefix("IPv6:"), 6))


def is_ip(text: str, version: int) -> bool:
    """An address without a zone; decimal parts may have leading zeros, as old manifests have them."""
    try:
        return "%" not in text and ipaddress.ip_address(_LEADING_ZEROS.sub("", text)).version == version
    except ValueError:
        return False


def is_cidr(text: str) -> bool:
    address, slash, prefix = text.partition("/")
    if not slash or not prefix.isascii() or not prefix.isdigit() or len(prefix) > 9:
        return False
    return (is_ip(address, 4) and int(prefix) <= 32) or (is_ip(address, 6) and int(prefix) <= 128)


def is_uri(text: str) -> bool:
    """An absolute URI, or a path that starts with a slash."""
    if not text or any(char <= " " or char == "\x7f" for char in text) or _BAD_ESCAPE.search(text):
        return False
    try:
        parts = urlsplit(text)
        return bool(parts.scheme) or text.startswith("/")
    except ValueError:
        return False


def is_base64(text: str) -> bool:
    try:
        return bool(text) and bool(base64.b64decode(text, validate=True) or True)
    except (binascii.Error, ValueError):
        return False


def is_isbn10(text: str) -> bool:
    digits = text.replace("-", "").replace(" ", "")
    if not re.fullmatch(r"[0-9]{9}[0-9X]", digits):
        return False
    return sum((i + 1) * (10 if c == "X" else int(c)) for i, c in enumerate(digits)) % 11 == 0


def is_isbn13(text: str) -> bool:
    digits = text.replace("-", "").replace(" ", "")
    if not re.fullmatch(r"[0-9]{13}", digits):
        return False
    return sum((3 if i % 2 else 1) * int(c) for i, c in enumerate(digits)) % 10 == 0


def is_credit_card(text: str) -> bool:
    digits = re.sub(r"[^0-9]+", "", text)
    if not _CARD.fullmatch(digits):
        return False
    doubled = (int(c) * (2 if i % 2 else 1) for i, c in enumerate(reversed(digits)))
    return sum(n - 9 if n > 9 else n for n in doubled) % 10 == 0


def is_rgb_color(text: str) -> bool:
    matched = _RGB.fullmatch(text)
    return matched is not None and all(int(part) <= 255 and str(int(part)) == part for part in matched.groups())


def is_short_name(text: str) -> bool:
    """A Kubernetes label name: up to 63 lowercase letters, digits and inner dashes."""
    return len(text) <= 63 and _LABEL.fullmatch(text) is not None


def is_long_name(text: str) -> bool:
    """A Kubernetes subdomain name: labels joined by dots, up to 253 characters."""
    return len(text) <= 253 and all(_LABEL.fullmatch(label) for label in text.split("."))


FORMATS: dict[str, Callable[[str], bool]] = {
    "bsonobjectid": _full("[0-9a-fA-F]{24}"),
    "byte": is_base64,
    "cidr": is_cidr,
    "creditcard": is_credit_card,
    "date": is_date,
    "datetime": is_date_time,
    "duration": is_duration,
    "email": is_email,
    "hexcolor": _full("#?(?:[0-9a-fA-F]{3}|[0-9a-fA-F]{6})"),
    "hostname": is_hostname,
    "ipv4": lambda text: is_ip(text, 4),
    "ipv6": lambda text: is_ip(text, 6),
    "isbn": lambda text: is_isbn10(text) or is_isbn13(text),
    "isbn10": is_isbn10,
    "isbn13": is_isbn13,
    "k8slongname": is_long_name,
    "k8sshortname": is_short_name,
    "mac": lambda text: _MAC.fullmatch(text) is not None,
    "password": lambda text: True,
    "rgbcolor": is_rgb_color,
    "ssn": _full("[0-9]{3}[- ][0-9]{2}[- ][0-9]{4}"),
    "uri": is_uri,
    "uuid": is_uuid,
    "uuid3": lambda text: is_uuid(text, "3"),
    "uuid4": lambda text: is_uuid(text, "4", "89ab"),
    "uuid5": lambda text: is_uuid(text, "5", "89ab"),
}


def format_check(name: str) -> Callable[[str], bool] | None:
    """The check behind a format's name (dashes do not count), or None if Kubernetes ignores that format."""
    return FORMATS.get(name.replace("-", ""))
