"""Counts the answers that were not taken, whichever way a function is run."""

from __future__ import annotations

from planform.functions.errors import FunctionAnswerInvalid, FunctionAnswerTooLarge
from planform.functions.runner import FunctionRevision, FunctionRunner
from planform.functions.values import FunctionRequest, FunctionResponse
from planform.telemetry.metrics import MetricsRegistry


class RefusalCountingRunner:
    """A runner around the one of all transports."""

    def __init__(self, runner: FunctionRunner, *, metrics: MetricsRegistry) -> None:
        self._runner = runner
        self._refused = metrics.counter(
            "function_run_function_refused_answers_total",
            "Answers that were not taken: too large, or none.",
            ("function_name", "function_revision", "reason"),
        )

    async def run(self, revision: FunctionRevision, request: FunctionRequest, /, *, timeout: float) -> FunctionResponse:
        try:
            return await self._runner.run(revision, request, timeout=timeout)
        except (FunctionAnswerTooLarge, FunctionAnswerInvalid) as error:
            self._refused.labels(revision.function, revision.name, error.reason).inc()
            raise
