"""Crashes while an API is withdrawn: its kinds go, and after a restart nothing that its objects owned is left.

A kind that is gone takes the knowledge along that its objects are. So it may only go after what they owned, which the
control planes here collect late on purpose. See `test_composition_crash`.
"""

from __future__ import annotations

import asyncio
import random
import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.faults.crashing import crash_at_each, trace
from tests.faults.failpoints import Point

PROGRAM = "withdrawal_child"
SAMPLE = 6
CHAINS = 2


async def crash_and_check(directory: Path, points: Sequence[Point]) -> None:
    for chain in range(1, CHAINS):
        shutil.copytree(directory / "0", directory / str(chain))
    missed = await asyncio.gather(
        *(crash_at_each(directory / str(chain), PROGRAM, points[chain::CHAINS]) for chain in range(CHAINS))
    )
    lost = [point for each in missed for point in each]
    assert all(point.occurrence > 1 for point in lost), "only how often something is repeated may differ"
    assert len(lost) <= 0.1 * len(points)


async def withdrawal(directory: Path) -> list[Point]:
    """The points of a withdrawal, in their order."""
    return [point for point in await trace(directory / "0", PROGRAM) if point.phase == "withdraw"]


async def test_a_plane_killed_when_the_owners_are_gone_leaves_nothing_of_what_they_owned(tmp_path: Path) -> None:
    points = await withdrawal(tmp_path)
    collected = [each for each in points if each.what.startswith(("delete secrets", "delete configmaps"))]
    assert {each.what for each in collected} >= {"delete secrets", "delete configmaps settings"}
    first_of_each = [each for each in collected if each.occurrence == 1]
    await crash_and_check(tmp_path, sorted(random.Random(7).sample(first_of_each, SAMPLE), key=points.index))


@pytest.mark.long
@pytest.mark.timeout(1800)
async def test_a_plane_killed_at_any_point_of_a_withdrawal_leaves_nothing(tmp_path: Path) -> None:
    await crash_and_check(tmp_path, await withdrawal(tmp_path))
