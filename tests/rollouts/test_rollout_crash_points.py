"""Crashes of Rollouts: a control plane killed at any moment of one brings it to where it was going after a restart.

The moments come from a clean run that is traced: before and after every write to the store and every call of a
function, in every phase. See `tests/faults/test_composition_crash.py`, which is about XRs; what must hold of what was
written in between is said by `oracle`.
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
from tests.faults.rollout_cycle import STORIES

PROGRAM = "rollout_child"
SAMPLE = 6
CHAINS = 2
SEED = 19
RecordProperty = Callable[[str, object], None]


def of_rollouts(points: Sequence[Point]) -> list[Point]:
    """Without those of events and the journal, which nothing is decided by."""
    return [each for each in points if "events" not in each.what and "journal" not in each.what]


def sample(points: Sequence[Point], count: int) -> list[Point]:
    """So many, as evenly from all phases as they come."""
    choose = random.Random(SEED)
    shuffled = choose.sample(list(points), len(points))
    seen: Counter[str] = Counter()
    ranked = []
    for point in shuffled:
        seen[point.phase] += 1
        ranked.append((seen[point.phase], point))
    ranked.sort(key=lambda each: each[0])
    return sorted((point for _, point in ranked[:count]), key=points.index)


async def crash_and_check(directory: Path, story: str, count: int | None, record_property: RecordProperty) -> None:
    points = await trace(directory / "0", PROGRAM, story=story)
    assert {each.phase for each in points} == set(STORIES[story])
    chosen = points if count is None else sample(of_rollouts(points), count)
    for chain in range(1, CHAINS):
        shutil.copytree(directory / "0", directory / str(chain))
    missed = await asyncio.gather(
        *(crash_at_each(directory / str(chain), PROGRAM, chosen[chain::CHAINS], story=story) for chain in range(CHAINS))
    )
    lost = [point for each in missed for point in each]
    killed = len(chosen) - len(lost)
    told = f"{len(points)}; killed at {killed}; not met again: {[*map(str, lost)] or 0}"
    record_property(f"crash points of {story}", told)
    print(told)
    # How often a status is written differs from run to run: what comes together is written at once.
    assert all(point.occurrence > 1 or "status" in point.what for point in lost), told
    assert killed >= 0.8 * len(chosen), told


@pytest.mark.parametrize("story", STORIES)
@pytest.mark.timeout(300)
async def test_crash_at_a_sample_of_points_of_a_rollout_changes_nothing_of_where_it_goes(
    tmp_path: Path, story: str, record_property: RecordProperty
) -> None:
    await crash_and_check(tmp_path, story, SAMPLE, record_property)


@pytest.mark.long
@pytest.mark.parametrize("story", STORIES)
@pytest.mark.timeout(7200)
async def test_crash_at_every_point_of_a_rollout_changes_nothing_of_where_it_goes(
    tmp_path: Path, story: str, record_property: RecordProperty
) -> None:
    await crash_and_check(tmp_path, story, None, record_property)
