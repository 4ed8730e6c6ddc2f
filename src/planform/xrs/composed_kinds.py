"""Which kinds Compositions may compose on this control plane: lists of the operator's own, both empty by default."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from planform.api.kinds import GroupVersionKind
from planform.errors import PlanformError, UsageError

_PATTERN: Final = re.compile(r"(\*|[A-Z][A-Za-z0-9]*)(\.(\*|[a-z0-9]([-a-z0-9.]*[a-z0-9])?))?")


class ComposedKindDenied(PlanformError):
    """The operator of this control plane does not let Compositions compose such objects."""

    reason = "ComposedKindDenied"

    def __init__(self, kind: GroupVersionKind) -> None:
        shown = f"{kind.kind}.{kind.group}" if kind.group else kind.kind
        super().__init__(f"this control plane does not let Compositions compose {shown}")
        self.hint = "an operator decides by --composed-kinds-allow and --composed-kinds-deny"


@dataclass(frozen=True, slots=True)
class ComposedKinds:
    """Patterns are `Kind.group`, with `*` for any of either; `Secret` is of the core group, `*` alone is everything."""

    allow: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()

    def check(self, kind: GroupVersionKind) -> None:
        """Raises ComposedKindDenied. What is denied stays so, whatever is allowed."""
        if _matches(self.deny, kind) or (self.allow and not _matches(self.allow, kind)):
            raise ComposedKindDenied(kind)


def parse_composed_kinds(allow: Iterable[str], deny: Iterable[str]) -> ComposedKinds:
    """Of options, each of which may list several with commas. Raises UsageError."""
    lists = []
    for texts in (allow, deny):
        patterns = tuple(part.strip() for text in texts for part in text.split(",") if part.strip())
        for pattern in patterns:
            if not _PATTERN.fullmatch(pattern):
                raise UsageError(
                    f'"{pattern}" names no kinds', hint="write Kind.group, *.group, Kind (of the core group) or *"
                )
        lists.append(patterns)
    return ComposedKinds(*lists)


def _matches(patterns: tuple[str, ...], kind: GroupVersionKind) -> bool:
    for pattern in patterns:
        name, dot, group = pattern.partition(".")
        if pattern == "*" or (name in ("*", kind.kind) and ((dot and group == "*") or group == kind.group)):
            return True
    return False
