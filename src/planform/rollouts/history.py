"""What people decided about a Rollout, and what that means for it now. Pure.

A RolloutAction is taken up once: from then on it stands in the history, with the wave that it was about. Should the
status be lost, actions that meant "the wave under way" mean nothing any more: nobody knows which one that was.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from msgspec import UNSET, UnsetType

from planform.api.rollout_gates import GateStatus
from planform.api.rollouts import MAX_HISTORY, HistoryEntry, Rollout, RolloutAction
from planform.rollouts.facts import Facts

_ABOUT_A_WAVE = ("Approve", "Promote", "SkipGate")


@dataclass(frozen=True)
class Decided:
    """The history, and what follows from it."""

    history: Sequence[HistoryEntry]
    groups: dict[str, frozenset[str]]
    """Of each action, by uid, the groups of whoever did it."""
    paused: str = ""
    """Who paused the Rollout; empty if it is not paused."""

    @property
    def full(self) -> bool:
        """Whether everybody goes now."""
        return any(each.action == "PromoteFull" and not each.outcome for each in self.history)

    @property
    def start_approved(self) -> bool:
        return self.full or any(each.action in ("Approve", "Promote") and not each.outcome for each in self.history)

    @property
    def started(self) -> bool:
        return self.start_approved

    @property
    def accepted_failures(self) -> int:
        """So many failures somebody has resumed from."""
        return max((each.failures or 0 for each in self.history if each.action == "Resume"), default=0)

    def promotes(self, wave: str, part: int) -> bool:
        """Whether somebody said not to wait any longer for this part of a wave."""
        return any(
            each.action == "Promote" and each.wave == wave and (each.part is UNSET or each.part == part + 1)
            for each in self._effective
        )

    def skips_gates(self, wave: str, part: int) -> bool:
        return any(
            each.action in ("SkipGate", "Promote")
            and each.wave == wave
            and (each.part is UNSET or each.part == part + 1)
            for each in self._effective
        )

    def approvals(self, wave: str, groups: Collection[str]) -> set[str]:
        """The different users who approved a wave and are in one of the groups, if any are asked for."""
        return {
            each.by
            for each in self._effective
            if each.action == "Approve"
            and each.wave == wave
            and (not groups or not self.groups.get(each.uid, frozenset()).isdisjoint(groups))
        }

    def resumed_since(self, gate: GateStatus) -> bool:
        """Whether somebody resumed after the gate was last measured."""
        if gate.last_measured is UNSET:
            return False
        measured = gate.last_measured.isoformat()
        return any(each.action == "Resume" and each.time.replace("Z", "+00:00") > measured for each in self.history)

    @property
    def _effective(self) -> list[HistoryEntry]:
        return [each for each in self.history if not each.outcome]


def decided(rollout: Rollout, actions: Sequence[RolloutAction], facts: Facts) -> Decided:
    """Take up what is new among the actions, which come in the order of their time."""
    status = rollout.status
    history = list((status.history if status else None) or ())
    known = {each.uid for each in history}
    lost = not (status and status.phase)
    position = status.wave if status else UNSET
    for action in actions:
        spec = action.spec
        if action.metadata.uid in known:
            continue
        wave, outcome = spec.wave or "", ""
        part: int | UnsetType = UNSET
        if spec.action in _ABOUT_A_WAVE and not wave:
            started = bool(status and status.started)
            if position and started:
                wave, part = position.name, position.part if spec.action != "Approve" else UNSET
            elif lost and _had_begun(facts):
                outcome = "nobody knows which wave it was about: do it again"
        failures = sum(each.failed for each in facts.waves) if spec.action == "Resume" else UNSET
        history.append(
            HistoryEntry(
                time=spec.at or action.metadata.creation_timestamp or "",
                by=spec.by or "planform",
                action=spec.action,
                reason=spec.reason or UNSET,
                wave=wave or UNSET,
                part=part,
                failures=failures or UNSET,
                outcome=outcome or UNSET,
                uid=action.metadata.uid,
            )
        )
    groups = {each.metadata.uid: frozenset(each.spec.groups or ()) for each in actions}
    return Decided(history[-MAX_HISTORY:], groups, _paused(history))


def _had_begun(facts: Facts) -> bool:
    return any(part.xrs > part.pending for wave in facts.waves for part in wave.parts)


def _paused(history: Sequence[HistoryEntry]) -> str:
    """Who paused the Rollout, if the last word of Pause and Resume was that."""
    words = [each for each in history if each.action in ("Pause", "Resume", "PromoteFull")]
    if not words or words[-1].action != "Pause":
        return ""
    reason = f": {words[-1].reason}" if words[-1].reason else ""
    return f"paused by {words[-1].by}{reason}"
