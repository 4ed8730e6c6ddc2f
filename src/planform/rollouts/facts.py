"""What a Rollout knows of its XRs when it decides: how many there are in each state, wave by wave. Pure values."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum
from typing import Literal

from planform.api.rollouts import Failing


class State(IntEnum):
    """Where an XR is in a Rollout. PENDING to FAILED and DEVIATED belong to a wave."""

    PENDING = 0  # on another revision, well, and free to go
    MOVING = 1  # refers to the target and has not settled
    READY = 2  # has settled on the target
    FAILED = 3  # failed on the target
    PUT_OFF = 4  # on another revision and not well
    SKIPPED = 5  # paused, or its reference is another manager's
    PINNED = 6  # compositionUpdatePolicy Manual
    OUTSIDE = 7  # does not follow the target
    DEVIATED = 8  # refers to the target, and is kept from it as its plan is no subset of its preview


@dataclass(slots=True)
class PartCounts:
    """The XRs of one part of a wave."""

    pending: int = 0
    moving: int = 0
    ready: int = 0
    failed: int = 0
    deviated: int = 0

    @property
    def xrs(self) -> int:
        return self.pending + self.moving + self.ready + self.failed + self.deviated


@dataclass(slots=True)
class WaveCounts:
    """The XRs of a wave, by part."""

    name: str
    parts: list[PartCounts]

    @property
    def xrs(self) -> int:
        return sum(each.xrs for each in self.parts)

    @property
    def failed(self) -> int:
        return sum(each.failed for each in self.parts)


Newest = Literal["Target", "Stable", "Newer"]


@dataclass(slots=True)
class Facts:
    """All that a decision rests on beside the Rollout, its actions and the time."""

    waves: list[WaveCounts]
    """As `waves_of` orders them."""
    complete: bool = True
    """Whether every XR is known; nothing is concluded from an absence before."""
    newest: Newest = "Target"
    """What the newest revision of each changed Composition is: the target, the one before, or one that came since."""
    gone: str = ""
    """The Composition or target revision that is gone."""
    invalid: str = ""
    """Why the target's pipeline cannot be run."""
    returning: int = 0
    """XRs that refer to the target and go back by themselves when it is taken back."""
    put_off: int = 0
    skipped: int = 0
    pinned: int = 0
    unmatched: int = 0
    by_hand: int = 0
    deviated: int = 0
    """XRs whose plan is no subset of their preview, also those that might carry it out."""
    held_by_window: int = 0
    """Of the pending XRs whose turn it is, those that a ChangeWindow or their owner holds."""
    window: str = ""
    """Why these are held."""
    function: str = ""
    """Why a function revision that a target names cannot be called."""
    tree: str = ""
    """Another Rollout that moves the same trees."""
    failing: list[Failing] = field(default_factory=list)
    clock_jumped: bool = False
    preview: Literal["", "Running", "Unacceptable", "Failed"] = ""
    preview_message: str = ""
