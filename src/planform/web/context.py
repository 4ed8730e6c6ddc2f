"""Somebody who looks: their way to the control plane, what the mirror holds for them, and what they may do."""

from __future__ import annotations

import uuid
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

from planform.clock import Clock
from planform.web.access import Access
from planform.web.answers import FindingRow
from planform.web.mirror import Mirror
from planform.web.upstream import Upstream

Examination = Callable[[Upstream], Awaitable[Sequence[FindingRow]]]
"""What `planform doctor` finds; the command brings it along."""


@dataclass(slots=True)
class Looker:
    """One identity. Pages that share it share its mirror."""

    user: str
    groups: tuple[str, ...]
    upstream: Upstream
    mirror: Mirror
    access: Access
    read_only: bool
    examine: Examination | None = None
    links: Mapping[str, str] = field(default_factory=dict)
    remembered: dict[str, tuple[float, Any]] = field(default_factory=dict)
    streams: int = 0
    idle_since: float = 0.0


def looker(
    user: str,
    groups: tuple[str, ...],
    upstream: Upstream,
    *,
    clock: Clock,
    read_only: bool,
    examine: Examination | None = None,
    links: Mapping[str, str] | None = None,
) -> Looker:
    mirror = Mirror(upstream, clock=clock, rng=Random(), epoch=uuid.uuid4().hex[:12])
    return Looker(
        user,
        groups,
        upstream,
        mirror,
        Access(upstream, clock),
        read_only,
        examine,
        links or {},
        idle_since=clock.monotonic(),
    )
