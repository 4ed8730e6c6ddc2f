"""How late the event loop runs: the one number that tells whether something holds it too long.

The probe asks to be woken after a short while and measures by how much it was late. Nothing may run on the loop for
more than 5 ms, so a healthy control plane stays in the first buckets. It looks more often while the loop is late: a
busy minute is told from a thousand samples, and a quiet one costs next to nothing.

It also knows when there is nothing to do. Being on time does not tell that, for a busy loop is to be on time as well:
the loop rests if its thread has computed little since the last probe, several times in a row.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from planform.clock import Clock
from planform.telemetry.metrics import MetricsRegistry

LAG_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0)
ON_TIME: Final = 0.002
INTERVAL: Final = 0.1
BUSY_INTERVAL: Final = 0.02
LITTLE: Final = 0.1
"""So small a share of the time was computed by a loop that rests."""
IDLE_PROBES: Final = 3
PROBES_OF_WORK: Final = 50
"""So many probes in a row found work, and then again and again so many."""


class LoopLag:
    """Measures until cancelled; `worst` is the longest lag since it was last reset.

    `when_idle` is called at every probe while there is little to do, so it should do little itself; `when_busy` now and
    then while there is much. `computed` gives the seconds that the loop's thread has computed so far.
    """

    def __init__(
        self,
        metrics: MetricsRegistry,
        clock: Clock,
        *,
        when_idle: Callable[[], object] | None = None,
        when_busy: Callable[[], object] | None = None,
        computed: Callable[[], float] = time.thread_time,
    ) -> None:
        self._clock = clock
        self._when_idle = when_idle
        self._when_busy = when_busy
        self._computed = computed
        self._lag = metrics.histogram(
            "planform_event_loop_lag_seconds", "How late the event loop woke a timer.", buckets=LAG_BUCKETS
        ).labels()
        self.worst = 0.0

    async def run(self) -> None:
        quiet, busy, interval = 0, 0, INTERVAL
        while True:
            computed, begun = self._computed(), self._clock.monotonic()
            if self._when_idle is not None and quiet >= IDLE_PROBES:
                self._when_idle()  # within what is measured: it holds the loop as anything else does
            if self._when_busy is not None and busy >= PROBES_OF_WORK:
                self._when_busy()
                busy = 0
            await self._clock.sleep(interval)
            took = self._clock.monotonic() - begun
            lag = max(0.0, took - interval)
            self._lag.observe(lag)
            self.worst = max(self.worst, lag)
            interval = INTERVAL if lag < ON_TIME else BUSY_INTERVAL
            rested = self._computed() - computed < LITTLE * took
            quiet, busy = (quiet + 1, busy) if rested else (0, busy + 1)

    def reset(self) -> float:
        """The worst lag so far; measuring starts anew."""
        worst, self.worst = self.worst, 0.0
        return worst
