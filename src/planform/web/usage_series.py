"""How many XRs use each revision of a Composition, over time: a small bounded series, kept while somebody looks.

A sample is taken when the numbers changed, at most once a second while it moves; when the series is full every other
sample of its older half goes, so that it reaches far back and stays fine where it is young.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Final

MAX_SAMPLES: Final = 240
MAX_COMPOSITIONS: Final = 2000
APART_SECONDS: Final = 1.0

Moment = tuple[float, Mapping[str, int]]
"""Seconds since the epoch, and users by revision."""


class Series:
    """The series of every Composition."""

    def __init__(self) -> None:
        self._samples: dict[str, list[Moment]] = {}

    def note(self, composition: str, counts: Counter[str], now: float) -> None:
        """The numbers are now these. Of changes close to each other the last one counts."""
        if composition not in self._samples and len(self._samples) >= MAX_COMPOSITIONS:
            return
        samples = self._samples.setdefault(composition, [])
        present = {revision: count for revision, count in counts.items() if count > 0}
        if samples and samples[-1][1] == present:
            return
        if len(samples) > 1 and now - samples[-1][0] < APART_SECONDS:
            samples[-1] = (samples[-1][0], present)
        else:
            samples.append((now, present))
        if len(samples) > MAX_SAMPLES:
            half = len(samples) // 2
            self._samples[composition] = samples[:half:2] + samples[half:]

    def of(self, composition: str) -> list[Moment]:
        return list(self._samples.get(composition, ()))
