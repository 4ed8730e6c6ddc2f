"""What ActionSets count: how they end, how long their phases take, and which versions are used that will go."""

from __future__ import annotations

from planform.blueprints.catalogue import FunctionWarning
from planform.blueprints.contract import PhaseFunction
from planform.telemetry.metrics import MetricsRegistry


class ActionMetrics:
    """Labels are names of functions and versions, never of objects: there are few of them."""

    def __init__(self, registry: MetricsRegistry) -> None:
        self._ended = registry.counter(
            "planform_actionsets_total", "ActionSets that have ended, by the state they ended in.", ["state"]
        )
        self._running = registry.gauge("planform_actionsets_running", "ActionSets that run now.").labels()
        self._phases = registry.counter(
            "planform_phases_total",
            "Attempts to run a phase, by function, version and how they ended.",
            ["function", "version", "outcome"],
        )
        self._seconds = registry.histogram(
            "planform_phase_seconds", "How long an attempt to run a phase took, by function.", ["function"]
        )
        self._deprecated = registry.gauge(
            "planform_deprecated_function_used",
            "1 for each deprecated version of a phase function that was used since the start.",
            ["function", "version", "removed_in"],
        )

    def ended(self, state: str) -> None:
        self._ended.labels(state).inc()

    def running(self, count: int) -> None:
        self._running.set(count)

    def phase(self, function: PhaseFunction, outcome: str, seconds: float) -> None:
        self._phases.labels(function.name, function.version, outcome).inc()
        self._seconds.labels(function.name).observe(seconds)

    def warned(self, warning: FunctionWarning) -> None:
        if warning.code == "VersionDeprecated":
            self._deprecated.labels(warning.function, warning.version, warning.removed_in).set(1)
