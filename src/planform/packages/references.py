"""How packages are named: `registry/repository[:tag][@digest]`.

There is no default registry and no default tag: a name that leaves either out would mean different packages on
different machines and days.
"""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass, replace
from typing import Final

from planform.packages.errors import InvalidReference

DIGEST: Final = re.compile(r"sha256:[0-9a-f]{64}\Z")
_HOST: Final = re.compile(r"(?:[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?|\[[0-9a-fA-F:]+\])(?::[0-9]{1,5})?\Z")
_REPOSITORY: Final = re.compile(r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*(?:/[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*)*\Z")
_TAG: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}\Z")
_MAX_LENGTH: Final = 512


@dataclass(frozen=True, slots=True)
class Reference:
    """A package in a registry. With a digest it means the same bytes for ever; a tag beside it is then only a word."""

    registry: str
    repository: str
    tag: str = ""
    digest: str = ""

    @property
    def source(self) -> str:
        """The name without tag and digest: what versions of one package have in common."""
        return f"{self.registry}/{self.repository}"

    @property
    def version(self) -> str:
        """What tells versions apart: the digest if there is one, else the tag."""
        return self.digest or self.tag

    @property
    def is_loopback(self) -> bool:
        """Whether nobody but this machine can be behind the registry; such registries speak plain HTTP."""
        return is_loopback(re.sub(r":[0-9]+\Z", "", self.registry).strip("[]"))

    def pinned(self, digest: str) -> Reference:
        """The same package, and exactly these bytes."""
        return replace(self, digest=digest)

    def tagged(self, tag: str) -> Reference:
        """Another version of the same package."""
        return replace(self, tag=tag, digest="")

    def __str__(self) -> str:
        return f"{self.source}{f':{self.tag}' if self.tag else ''}{f'@{self.digest}' if self.digest else ''}"


def parse_reference(text: str, *, versioned: bool = True) -> Reference:
    """The package that a text names; raises InvalidReference. `versioned` asks for a tag or a digest."""
    if len(text) > _MAX_LENGTH:
        raise InvalidReference(f"{text[:40]!r}… is longer than {_MAX_LENGTH} characters")
    name, at, digest = text.partition("@")
    if at and not DIGEST.match(digest):
        raise InvalidReference(f'"{text}": "{digest}" is no digest; it must be sha256: and 64 hexadecimal digits')
    registry, slash, path = name.partition("/")
    repository, colon, tag = path.partition(":")
    if not slash or not _is_registry(registry):
        raise InvalidReference(f'"{text}" names no registry')
    if not _REPOSITORY.match(repository):
        raise InvalidReference(f'"{text}": "{repository}" is no repository; use lower-case letters, digits and ._-/')
    if colon and not _TAG.match(tag):
        raise InvalidReference(f'"{text}": "{tag}" is no tag')
    if versioned and not tag and not digest:
        raise InvalidReference(f'"{text}" has neither tag nor digest')
    return Reference(registry.lower(), repository, tag, digest)


def _is_registry(text: str) -> bool:
    """A first part is a host if it cannot be a directory: it has a dot or a port, or is this machine."""
    return bool(_HOST.match(text)) and ("." in text or ":" in text or text == "localhost")


def is_loopback(host: str) -> bool:
    """Whether a host is this machine, by its name alone: nobody is asked."""
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def package_name(reference: Reference) -> str:
    """The name of a package object that nobody named: its repository as a DNS label."""
    kept = []
    text = reference.repository
    for number, letter in enumerate(text[:63]):
        if letter in "abcdefghijklmnopqrstuvwxyz0123456789":
            kept.append(letter)
        elif letter in "./:-" and number not in (0, 62, len(text) - 1):
            kept.append("-")
    return "".join(kept).strip("-")
