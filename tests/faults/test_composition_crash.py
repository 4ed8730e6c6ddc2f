"""Crashes of composition: a control plane killed at any moment of an XR's life carries it to its end after a restart.

The moments come from a clean run that is traced. Each is then met by a process that the kernel kills there, and the
next one, on the same data directory, must bring the XR to where it was going: nothing twice, nothing lost, nothing
left. That one then begins another cycle and is killed at the next moment.
"""

from __future__ import annotations

import asyncio
import random
import shutil
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from tests.faults.crashing import crash_at_each, trace
from tests.faults.failpoints import Point

PROGRAM = "composition_child"
RecordProperty = Callable[[str, object], None]
VARIANTS = pytest.mark.parametrize("claimed", [False, True], ids=["an XR of a namespace", "a claim"])
SAMPLE = 12
CHAINS = 2


def kinds_of(points: Sequence[Point]) -> dict[str, int]:
    """How many points are of which kind; a change of finalizers is also a write."""
    kinds: Counter[str] = Counter()
    for point in points:
        verb, _, rest = point.what.partition(" ")
        kinds[{"call": "function calls"}.get(verb, "journal writes" if rest == "journal" else "store writes")] += 1
        kinds["finalizer changes"] += any(word[0] in "+-" for word in rest.replace(",", " ").split())
        kinds[point.phase] += 1
    return dict(kinds)


async def crash_and_check(directory: Path, claimed: bool, sample: int | None, record_property: RecordProperty) -> None:
    points = await trace(directory / "0", PROGRAM, claimed=claimed)
    assert points
    kinds = kinds_of(points)
    assert min(kinds.values()) > 0 and len(kinds) == 7, kinds
    chosen = points if sample is None else sorted(random.Random(7).sample(points, sample), key=points.index)
    for chain in range(1, CHAINS):
        shutil.copytree(directory / "0", directory / str(chain))
    missed = await asyncio.gather(
        *(
            crash_at_each(directory / str(chain), PROGRAM, chosen[chain::CHAINS], claimed=claimed)
            for chain in range(CHAINS)
        )
    )
    lost = [point for each in missed for point in each]
    killed = len(chosen) - len(lost)
    name = f"crash points of {'a claim' if claimed else 'an XR'}"
    told = ", ".join(f"{count} {kind}" for kind, count in kinds.items())
    record_property(name, f"{len(points)} ({told}); killed at {killed}; not met again: {[*map(str, lost)] or 0}")
    assert all(point.occurrence > 1 for point in lost), "only how often something is repeated may differ"
    assert killed >= 0.9 * len(chosen)


@VARIANTS
async def test_a_plane_killed_at_a_sample_of_points_brings_an_xr_to_where_it_was_going(
    tmp_path: Path, claimed: bool, record_property: RecordProperty
) -> None:
    await crash_and_check(tmp_path, claimed, SAMPLE, record_property)


@pytest.mark.long
@VARIANTS
@pytest.mark.timeout(3600)
async def test_a_plane_killed_at_every_point_brings_an_xr_to_where_it_was_going(
    tmp_path: Path, claimed: bool, record_property: RecordProperty
) -> None:
    await crash_and_check(tmp_path, claimed, None, record_property)
