"""Semantic versions and constraints on them."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache, total_ordering
from typing import Any, ClassVar, Final

from planform.gotemplate.errors import CallFailed
from planform.gotemplate.functions import Library
from planform.gotemplate.values import Record, Uint64, Value

versions: Final = Library()

_TAIL: Final = r"(-([0-9A-Za-z\-]+(\.[0-9A-Za-z\-]+)*))?(\+([0-9A-Za-z\-]+(\.[0-9A-Za-z\-]+)*))?"
_VERSION: Final = re.compile(rf"v?([0-9]+)(\.[0-9]+)?(\.[0-9]+)?{_TAIL}\Z")
_LOOSE: Final = rf"v?([0-9|x|X|\*]+)(\.[0-9|x|X|\*]+)?(\.[0-9|x|X|\*]+)?{_TAIL}"
_OPERATOR: Final = r"!=|>=|=>|<=|=<|~>|=|>|<|~|\^|"
_CONSTRAINT: Final = re.compile(rf"\s*({_OPERATOR})\s*({_LOOSE})\s*\Z", re.ASCII)
_FIND: Final = re.compile(rf"({_OPERATOR})\s*({_LOOSE})", re.ASCII)
_VALID: Final = re.compile(
    rf"(\s*({_OPERATOR})\s*({_LOOSE})\s*)((?:\s+|,\s*)({_OPERATOR})\s*({_LOOSE})\s*)*\Z", re.ASCII
)
_HYPHEN: Final = re.compile(rf"\s*({_LOOSE})\s+-\s+({_LOOSE})\s*", re.ASCII)
_MAX_TEXT: Final = 256
_UINT64: Final = (1 << 64) - 1


@total_ordering
class Version(Record):
    """A version; ordered as the specification orders them, build metadata ignored."""

    go_type: ClassVar[str] = "*semver.Version"
    kind: ClassVar[str] = "ptr"
    __slots__ = ("major", "metadata", "minor", "original", "patch", "prerelease")

    def __init__(self, major: int, minor: int, patch: int, prerelease: str, metadata: str, original: str) -> None:
        self.major, self.minor, self.patch = major, minor, patch
        self.prerelease, self.metadata, self.original = prerelease, metadata, original

    def go_string(self) -> str:
        text = f"{self.major}.{self.minor}.{self.patch}"
        text += f"-{self.prerelease}" if self.prerelease else ""
        return text + (f"+{self.metadata}" if self.metadata else "")

    def go_copy(self) -> Version:
        """Go's deep copy cannot see the fields of a version, and so leaves them empty."""
        return Version(0, 0, 0, "", "", "")

    @property
    def rank(self) -> tuple[Any, ...]:
        return (self.major, self.minor, self.patch, not self.prerelease, _prerelease_rank(self.prerelease))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Version) and self.rank == other.rank

    def __lt__(self, other: Version) -> bool:
        return self.rank < other.rank

    def __hash__(self) -> int:
        return hash(self.rank)

    methods: ClassVar[Mapping[str, tuple[Callable[..., Value], tuple[str, ...]]]] = {
        "Major": (lambda self: Uint64(self.major), ()),
        "Minor": (lambda self: Uint64(self.minor), ()),
        "Patch": (lambda self: Uint64(self.patch), ()),
        "Prerelease": (lambda self: self.prerelease, ()),
        "Metadata": (lambda self: self.metadata, ()),
        "Original": (lambda self: self.original, ()),
        "String": (lambda self: self.go_string(), ()),
        "Equal": (lambda self, other: self == other, ("*semver.Version",)),
        "LessThan": (lambda self, other: self < other, ("*semver.Version",)),
        "GreaterThan": (lambda self, other: self > other, ("*semver.Version",)),
    }


def _prerelease_rank(text: str) -> tuple[Any, ...]:
    """Numbers come before words, and fewer parts before more."""
    return tuple(
        (part != "", 0, int(part), "") if part.isdigit() else (part != "", 1, 0, part) for part in text.split(".")
    )


def _no_leading_zero(text: str) -> None:
    if any(part.isdigit() and len(part) > 1 and part[0] == "0" for part in text.split(".")):
        raise CallFailed("Version segment starts with 0")


def parse_version(text: str) -> Version:
    match = _VERSION.match(text) if len(text) <= _MAX_TEXT else None
    if match is None:
        raise CallFailed("Invalid Semantic Version")
    major, minor, patch = (int((match[index] or "0").lstrip(".")) for index in (1, 2, 3))
    if max(major, minor, patch) > _UINT64:
        raise CallFailed("Error parsing version segment: value out of range")
    _no_leading_zero(match[5] or "")
    return Version(major, minor, patch, match[5] or "", match[8] or "", text)


@versions.add("func(string) (*semver.Version, error)")
def semver(text: str) -> Version:
    return parse_version(text)


@versions.add("func(string, string) (bool, error)", "semverCompare")
def semver_compare(constraint: str, version: str) -> bool:
    """Whether the version meets the constraint: alternatives by `||`, each a list of conditions."""
    alternatives = parse_constraints(constraint)
    candidate = parse_version(version)
    return any(all(condition.met_by(candidate) for condition in conditions) for conditions in alternatives)


@dataclass(frozen=True, slots=True)
class Condition:
    """One comparison; the flags tell which segments were left open."""

    operator: str
    version: Version
    open_any: bool = False
    open_minor: bool = False
    open_patch: bool = False

    def met_by(self, version: Version) -> bool:
        """Prereleases are only for those who ask for one."""
        if version.prerelease and not self.version.prerelease and (self.operator != "!=" or self.open_any):
            return False
        return _CHECKS[self.operator](version, self)


def _not_equal(version: Version, condition: Condition) -> bool:
    wanted = condition.version
    if condition.open_any:
        if wanted.major != version.major:
            return True
        if condition.open_minor:
            return False
        if wanted.minor != version.minor:
            return True
        if condition.open_patch:
            return bool(version.prerelease or wanted.prerelease) and version.prerelease != wanted.prerelease
        if wanted.patch != version.patch:
            return True
    return version != wanted


def _greater(version: Version, condition: Condition) -> bool:
    wanted = condition.version
    if condition.open_any:
        if version.major != wanted.major:
            return version.major > wanted.major
        if condition.open_minor:
            return False
        if condition.open_patch:
            return version.minor > wanted.minor
    return version > wanted


def _less_or_equal(version: Version, condition: Condition) -> bool:
    wanted = condition.version
    if not condition.open_any:
        return version <= wanted
    if version.major > wanted.major:
        return False
    return not (version.major == wanted.major and version.minor > wanted.minor and not condition.open_minor)


def _tilde(version: Version, condition: Condition) -> bool:
    wanted = condition.version
    if version < wanted:
        return False
    is_zero = wanted.major == wanted.minor == wanted.patch == 0
    if is_zero and not condition.open_minor and not condition.open_patch:
        return True
    return version.major == wanted.major and (condition.open_minor or version.minor == wanted.minor)


def _equal(version: Version, condition: Condition) -> bool:
    return _tilde(version, condition) if condition.open_any else version == condition.version


def _caret(version: Version, condition: Condition) -> bool:
    wanted = condition.version
    if version < wanted:
        return False
    if wanted.major > 0 or condition.open_minor:
        return version.major == wanted.major
    if version.major > 0:
        return False
    if wanted.minor > 0 or condition.open_patch:
        return version.minor == wanted.minor
    return version.minor == 0 and version.patch == wanted.patch


_CHECKS: Final[Mapping[str, Callable[[Version, Condition], bool]]] = {
    "": _equal,
    "=": _equal,
    "!=": _not_equal,
    ">": _greater,
    "<": lambda version, condition: version < condition.version,
    ">=": lambda version, condition: version >= condition.version,
    "=>": lambda version, condition: version >= condition.version,
    "<=": _less_or_equal,
    "=<": _less_or_equal,
    "~": _tilde,
    "~>": _tilde,
    "^": _caret,
}


@lru_cache(maxsize=256)
def parse_constraints(text: str) -> tuple[tuple[Condition, ...], ...]:
    if len(text) > _MAX_TEXT:
        raise CallFailed(f"improper constraint: {text[:_MAX_TEXT]}")
    for match in _HYPHEN.finditer(text):
        text = text.replace(match[0], f">= {match[1]}, <= {match[11]} ", 1)
    alternatives = []
    for alternative in text.split("||"):
        if _VALID.match(alternative) is None:
            raise CallFailed(f"improper constraint: {alternative}")
        found = [match[0] for match in _FIND.finditer(alternative)] or [alternative]
        alternatives.append(tuple(map(_parse_condition, found)))
    return tuple(alternatives)


def _is_open(segment: str | None) -> bool:
    return not segment or segment.lstrip(".") in ("x", "X", "*")


def _parse_condition(text: str) -> Condition:
    match = _CONSTRAINT.match(text)
    if match is None:
        raise CallFailed(f"improper constraint: {text}")
    operator, version, major, minor, patch, tail = match[1], match[2], match[3], match[4], match[5], match[6] or ""
    open_minor = open_patch = False
    open_any = True
    if _is_open(major):
        version = f"0.0.0{tail}"
    elif _is_open(minor):
        version, open_minor = f"{major}.0.0{tail}", True
    elif _is_open(patch):
        version, open_patch = f"{major}{minor}.0{tail}", True
    else:
        open_any = False
    try:
        return Condition(operator, parse_version(version), open_any, open_minor, open_patch)
    except CallFailed:
        raise CallFailed("constraint Parser Error") from None
