"""The thrash guard: two writers that undo each other must not keep the machine busy, and must be named.

A reconcile that writes without the user having changed the XR costs a token, one that fails costs several, more if it
asked a function often; tokens come back slowly. An XR without tokens is looked at only now and then until it has been
quiet for a while, or its user changes it. Nothing is dropped: changes that come meanwhile are seen together by the next
reconcile.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

from planform.api.metadata import managed_fields_of, name_of
from planform.clock import Clock
from planform.pipeline.matching import differences

K = TypeVar("K", bound=Hashable)

BURST: Final = 40
BURST_PER_RESOURCE: Final = 5
REFILL_PER_SECOND: Final = 0.5
TOKENS_PER_FAILED_CALL: Final = 5
PROBE_SECONDS: Final = 30.0
COOLDOWN_SECONDS: Final = 300.0
_FORGOTTEN_WHEN_FULL: Final = 10_000
_FAILS: Final = "it fails again and again, and is woken each time"


@dataclass(slots=True)
class _Bucket:
    tokens: float
    filled: float
    last: float
    generation: int
    opened: bool = False
    why: str = ""


class ThrashGuard(Generic[K]):
    """Counts writing reconciles of each XR. XRs that write seldom are not remembered."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._buckets: dict[K, _Bucket] = {}

    def wait(self, xr: K, *, generation: int = 0) -> float:
        """Seconds until the next reconcile may begin; 0 for nearly everybody, and if the user changed the XR
        meanwhile."""
        bucket = self._buckets.get(xr)
        if bucket is None or not bucket.opened or bucket.generation != generation:
            return 0.0
        now = self._clock.monotonic()
        if now - bucket.last >= COOLDOWN_SECONDS:
            del self._buckets[xr]
            return 0.0
        return max(0.0, bucket.last + PROBE_SECONDS - now)

    def reason(self, xr: K) -> str:
        """Why the XR is held back; empty if it is not."""
        bucket = self._buckets.get(xr)
        return bucket.why if bucket is not None and bucket.opened else ""

    def quiet_in(self, xr: K) -> float | None:
        """Seconds until an XR that is held back counts as quiet if nothing more happens; None if it is not."""
        bucket = self._buckets.get(xr)
        if bucket is None or not bucket.opened:
            return None
        return max(0.0, bucket.last + COOLDOWN_SECONDS - self._clock.monotonic())

    def wrote(self, xr: K, *, resources: int, why: str, generation: int = 0) -> None:
        """A reconcile wrote although the user changed nothing; `generation` is the XR's after that."""
        self._take(xr, 1, generation, BURST + BURST_PER_RESOURCE * resources, why)

    def failed(self, xr: K, *, generation: int, calls: int) -> None:
        """A reconcile failed, in which some function was called so often. After a change of the user's it counts
        anew."""
        bucket = self._buckets.get(xr)
        if bucket is not None and bucket.generation != generation:
            del self._buckets[xr]
        self._take(xr, max(1, TOKENS_PER_FAILED_CALL * calls), generation, BURST, _FAILS)

    def _take(self, xr: K, tokens: int, generation: int, maximum: int, why: str) -> None:
        now = self._clock.monotonic()
        bucket = self._buckets.get(xr)
        if bucket is None:
            self._sweep(now)
            bucket = self._buckets[xr] = _Bucket(float(maximum), now, now, generation)
        bucket.tokens = min(maximum, bucket.tokens + (now - bucket.filled) * REFILL_PER_SECOND) - tokens
        bucket.filled = bucket.last = now
        bucket.generation = generation
        if bucket.tokens <= 0 or bucket.opened:
            bucket.tokens, bucket.opened, bucket.why = 0.0, True, why or bucket.why

    def forget(self, xr: K) -> None:
        self._buckets.pop(xr, None)

    def _sweep(self, now: float) -> None:
        if len(self._buckets) < _FORGOTTEN_WHEN_FULL:
            return
        for xr in [xr for xr, each in self._buckets.items() if now - each.last > COOLDOWN_SECONDS]:
            del self._buckets[xr]


def dispute(wanted: Mapping[str, Any], found: Mapping[str, Any], *, ours: str) -> str:
    """The field that is being changed back and forth, and by whom, in words for a condition."""
    first = next(differences(wanted, found), "")
    if not first:
        return ""
    path = first.partition(": expected")[0]
    others = sorted(set(_owners(managed_fields_of(found), path)) - {ours})
    who = f'"{others[-1]}"' if others else "somebody"
    name = f"{found['kind']} {name_of(found)}"
    return f'field {path} of {name} is changed back and forth between this XR\'s composition ("{ours}") and {who}'


def _owners(managed_fields: Iterable[Mapping[str, Any]], path: str) -> Iterable[str]:
    """The managers that own the field or something above or below it."""
    steps = [f"f:{step}" for step in path.partition("[")[0].split(".")]
    for entry in managed_fields:
        fields: Any = entry.get("fieldsV1") or {}
        for step in steps:
            if not isinstance(fields, dict) or step not in fields:
                break
            fields = fields[step]
        else:
            yield str(entry.get("manager", ""))
