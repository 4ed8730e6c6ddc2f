"""The path grammar of Kubernetes, which is regular enough to need no framework."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from urllib.parse import unquote_to_bytes

from planform.errors import BadRequest

_NAMESPACE_SUBRESOURCES = frozenset({"status", "finalize"})


@dataclass(frozen=True, slots=True)
class ResourcePath:
    """A path below /api/v1 or /apis/G/V. `name` is empty for a collection."""

    group: str
    version: str
    plural: str
    namespace: str = ""
    name: str = ""
    subresource: str = ""
    watching: bool = False
    """From one of the old /watch/ paths."""


@dataclass(frozen=True, slots=True)
class OtherPath:
    """Everything else: discovery, OpenAPI, health. `parts` has no empty parts."""

    path: str
    parts: tuple[str, ...]
    trailing_slash: bool


def parse_target(target: bytes) -> tuple[ResourcePath | OtherPath, dict[str, list[str]]]:
    """Path and query of a request target; raises BadRequest for what cannot be decoded."""
    path, _, query = target.partition(b"?")
    return parse_path(path), parse_query(query) if query else {}


def parse_path(path: bytes) -> ResourcePath | OtherPath:
    try:
        text = (unquote_to_bytes(path) if b"%" in path else path).decode()
    except UnicodeDecodeError as error:
        raise BadRequest("the request path is not UTF-8") from error
    if b"%" in path:
        parts = [_segment(part) for part in path.split(b"/") if part]
    else:
        parts = [part for part in text.split("/") if part]
    if not text.startswith("/"):
        raise BadRequest("the request path must begin with a slash")
    if any(part in (".", "..") or "\0" in part for part in parts):
        raise BadRequest("the request path holds a segment that no object can be named")
    if len(parts) >= 3 and parts[0] == "api":
        return _resource("", parts[1], parts[2:])
    if len(parts) >= 4 and parts[0] == "apis":
        return _resource(parts[1], parts[2], parts[3:])
    return OtherPath(text, tuple(parts), text.endswith("/") and text != "/")


def _segment(part: bytes) -> str:
    try:
        text = unquote_to_bytes(part).decode()
    except UnicodeDecodeError as error:
        raise BadRequest("the request path is not UTF-8") from error
    if "/" in text:
        raise BadRequest("a name in the request path must not contain a slash")
    return text


def _resource(group: str, version: str, rest: list[str]) -> ResourcePath | OtherPath:
    watching = rest[0] == "watch" and len(rest) > 1
    if watching:
        rest = rest[1:]
    namespace = ""
    if rest[0] == "namespaces" and len(rest) >= 3 and not (len(rest) == 3 and rest[2] in _NAMESPACE_SUBRESOURCES):
        namespace, rest = rest[1], rest[2:]
    if len(rest) > 3:
        joined = "/".join(rest)
        return OtherPath(f"/{joined}", tuple(rest), False)
    plural, name, subresource = (*rest, "", "")[:3]
    return ResourcePath(group, version, plural, namespace, name, subresource, watching)


def parse_query(query: bytes) -> dict[str, list[str]]:
    """Parameters in order; a name without a value has the empty one."""
    found: dict[str, list[str]] = {}
    for part in query.split(b"&"):
        if part:
            name, _, value = part.partition(b"=")
            found.setdefault(_parameter(name), []).append(_parameter(value))
    return found


def _parameter(text: bytes) -> str:
    return _common_parameter(text) if len(text) <= 256 else _decode_parameter(text)


def _decode_parameter(text: bytes) -> str:
    try:
        return unquote_to_bytes(text.replace(b"+", b" ")).decode()
    except UnicodeDecodeError as error:
        raise BadRequest("a query parameter is not UTF-8") from error


# Bounded in bytes, too: long ones are rare, and a client could fill it with them.
_common_parameter = lru_cache(maxsize=1024)(_decode_parameter)


def truth(value: str) -> bool:
    """Kubernetes' booleans in a query: only 0 and false are false, and an empty value is true."""
    return value.lower() not in ("0", "false")
