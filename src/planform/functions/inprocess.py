"""The transport for functions that ship with planform: a plain call in this process, on plain values.

Built-ins are trusted and compile their inputs once, so a call takes well under a millisecond; it still gives way to the
loop before it starts if none has done so for a moment, so that a long pipeline of built-ins never holds the loop much
longer than one of its steps. Code whose cost a user decides is a `WaitingFunction` that works in a child process.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable

from planform.errors import PlanformError
from planform.functions.errors import FunctionError, FunctionFailed, FunctionNotFound
from planform.functions.runner import BuiltinFunction, FunctionRevision, WaitingFunction
from planform.functions.values import FunctionRequest, FunctionResponse
from planform.telemetry.metrics import MetricsRegistry

SLOW = 0.005
"""Seconds that nothing should hold the loop for."""

_MOMENT = 0.0005
"""Seconds that calls may follow each other before one gives way."""

Find = Callable[[str], BuiltinFunction | WaitingFunction | None]

_log = logging.getLogger(__name__)


class InProcessRunner:
    """Calls built-in functions by the name of the revision's function."""

    def __init__(
        self,
        functions: Iterable[BuiltinFunction | WaitingFunction] | Find,
        *,
        metrics: MetricsRegistry | None = None,
    ) -> None:
        """All of them, or what finds one by its name when it is first called."""
        self._find: Find = functions if callable(functions) else {each.name: each for each in functions}.get
        self._gave_way = 0.0
        metrics = metrics or MetricsRegistry()
        self._calls = metrics.counter(
            "function_run_builtin_total",
            "Calls of functions that ship with planform.",
            ("function_name", "function_revision"),
        )
        self._slow = metrics.counter(
            "function_builtin_slow_calls_total", "Calls that held the loop longer than they should.", ("function_name",)
        )

    def __contains__(self, function: str) -> bool:
        return self._find(function) is not None

    async def run(self, revision: FunctionRevision, request: FunctionRequest, /, *, timeout: float) -> FunctionResponse:
        """Call the built-in of the function's name."""
        return await self.run_builtin(revision.function, revision, request, timeout=timeout)

    async def run_builtin(
        self, name: str, revision: FunctionRevision, request: FunctionRequest, *, timeout: float
    ) -> FunctionResponse:
        """Call a built-in in the name of a revision. An error it raises is a fault of ours: FunctionFailed."""
        function = self._find(name)
        if function is None:
            raise FunctionNotFound(f'there is no built-in "{name}"', function=revision.function)
        self._calls.labels(name, revision.name).inc()
        try:
            if not callable(function):
                return await function.run(request, timeout=timeout, max_answer_size=revision.max_answer_size)
            if time.perf_counter() - self._gave_way > _MOMENT:
                await asyncio.sleep(0)
                self._gave_way = time.perf_counter()
            return self._call(function, request)
        except FunctionError:
            raise
        except PlanformError as error:
            raise FunctionFailed(error.message, revision=revision, hint=error.hint) from error
        except Exception as error:
            _log.exception("built-in function failed", extra={"function": revision.function})
            raise FunctionFailed(f"{type(error).__name__}: {error}", revision=revision) from error

    def _call(self, function: BuiltinFunction, request: FunctionRequest) -> FunctionResponse:
        started = time.perf_counter()
        response = function(request)
        if time.perf_counter() - started > SLOW:
            self._slow.labels(function.name).inc()
        return response
