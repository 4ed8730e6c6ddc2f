"""Versions that authors give to functions: compared by number and pre-release, whatever was typed around them.

`v1.2.3`, `1.2.3` and `1.2.3+build7` are one version.
"""

from __future__ import annotations

import re
from functools import lru_cache, total_ordering
from typing import Final, NamedTuple

_TEXT: Final = re.compile(
    r"v?(0|[1-9]\d*)(?:\.(0|[1-9]\d*))?(?:\.(0|[1-9]\d*))?(?:-([0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*))?(?:\+[0-9A-Za-z.-]+)?\Z"
)


@total_ordering
class _Identifier:
    """One part of a pre-release: numbers come first, in order of size, then words."""

    __slots__ = ("key",)

    def __init__(self, text: str) -> None:
        self.key = (0, int(text), "") if text.isdigit() else (1, 0, text)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Identifier) and self.key == other.key

    def __lt__(self, other: _Identifier) -> bool:
        return self.key < other.key

    def __hash__(self) -> int:
        return hash(self.key)


class Semver(NamedTuple):
    """A parsed version; comparing gives semver's order, so `1.0.0-rc.2 < 1.0.0-rc.10 < 1.0.0`."""

    major: int
    minor: int
    patch: int
    released: bool = True  # before `pre`, so that a release sorts after its candidates
    pre: tuple[_Identifier, ...] = ()


@lru_cache(maxsize=4096)
def parse_semver(text: str, *, short: bool = False) -> Semver | None:
    """The version, or None if it is not one; `short` also takes `v1` and `1.2`, filled up with zeros."""
    match = _TEXT.match(text)
    if match is None or (match[3] is None and not short):
        return None
    pre = tuple(_Identifier(part) for part in match[4].split(".")) if match[4] else ()
    return Semver(int(match[1]), int(match[2] or 0), int(match[3] or 0), not pre, pre)


UNVERSIONED: Final = Semver(0, 0, 0)
"""What code without a version of its own counts as."""
