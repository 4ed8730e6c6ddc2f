"""How late the event loop runs: the one number that tells whether something holds it too long.

The probe asks to be woken after a short while and measures by how much it was late. Nothing may run on the loop for
more than 5 ms, so a healthy plane stays in the first buckets.
"""

from __future__ import annotations

from planform.clock import Clock
from planform.telemetry.metrics import Registry

LAG_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0)


class LoopLag:
    """Measures until cancelled; `worst` is the longest lag since it was last reset."""

    def __init__(self, metrics: Registry, clock: Clock, *, interval: float = 0.1) -> None:
        self._clock = clock
        self._interval = interval
        self._lag = metrics.histogram(
            "planform_event_loop_lag_seconds", "How late the event loop woke a timer.", buckets=LAG_BUCKETS
        ).labels()
        self.worst = 0.0

    async def run(self) -> None:
        while True:
            due = self._clock.monotonic() + self._interval
            await self._clock.sleep(self._interval)
            lag = max(0.0, self._clock.monotonic() - due)
            self._lag.observe(lag)
            self.worst = max(self.worst, lag)

    def reset(self) -> float:
        """The worst lag so far; measuring starts anew."""
        worst, self.worst = self.worst, 0.0
        return worst
