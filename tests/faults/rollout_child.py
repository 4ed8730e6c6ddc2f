"""Control planes that roll changes out, and live until their failpoint.

    python -m tests.faults.rollout_child DIRECTORY

See `composition_child`; an order names the `story`, see `rollout_cycle`.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from planform.app import ControlPlane
from planform.rollouts import controller
from tests.faults.composition_child import Life, Order, main
from tests.faults.failpoints import Failpoints
from tests.faults.rollout_cycle import STORIES, RolloutCycle


class RolloutOrder(Order):
    seconds = 120.0

    def __init__(self, directory: Path, order: dict[str, Any]) -> None:
        super().__init__(directory, order)
        self.phases = STORIES[order["story"]]

    def life(self, plane: ControlPlane) -> Life:
        return RolloutCycle(plane, self.order["story"])

    def prepare(self, points: Failpoints) -> None:
        super().prepare(points)
        # Counts alone are written now and then; each phase would wait for it, and none of them is about it.
        controller.STATUS_SECONDS = 0.05  # type: ignore[misc]


if __name__ == "__main__":
    main(Path(sys.argv[1]), RolloutOrder)
