"""One measurement of a gate, and the facts that it is taken of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Final

from planform.api.kinds import Object

MAX_VALUE: Final = 256
MAX_MESSAGE: Final = 1024


class Verdict(StrEnum):
    """What one measurement says. Only the first two decide anything; the others say that nothing is known."""

    PASSED = "Passed"
    FAILED = "Failed"
    INCONCLUSIVE = "Inconclusive"
    ERROR = "Error"


@dataclass(frozen=True)
class Measurement:
    """What was measured at a moment, what it was held against, and what that means."""

    verdict: Verdict
    at: datetime
    value: str = ""
    threshold: str = ""
    query: str = ""
    message: str = ""


@dataclass(frozen=True)
class WaveFacts:
    """What a gate is asked about: a part of a wave whose XRs have settled on what they were moved to.

    `since` is the last move: nothing that was measured before it counts. `rollout` is the Rollout as stored, which owns
    what a gate makes and carries the record of its policy's author. `number` tells the measurements of one gate apart.
    """

    rollout: Object
    wave: str
    since: datetime
    part: int = 0
    xrs: Sequence[Object] = ()
    unsettled: int = 0
    """XRs of the wave that have not settled, or no longer are: what is measured now may be of what they were before."""
    counts: Mapping[str, int] = field(default_factory=dict)
    number: int = 0


def short(text: str, limit: int) -> str:
    """The text on one line, cut where it is too long for a status."""
    line = " ".join(text.split())
    return line if len(line) <= limit else line[: limit - 3] + "..."
