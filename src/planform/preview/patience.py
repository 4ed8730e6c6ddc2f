"""Calls of functions in a preview: bounded, and none to a function that has shown that it does not answer.

A function of a change may hang, crash or answer far too much. Each call has a shorter limit than in a reconcile, and
after a few in a row that did not answer, the rest of the preview does not wait for that revision again.
"""

from __future__ import annotations

from collections import Counter
from typing import Final

from planform.functions.errors import FunctionAnswerTooLarge, FunctionCrashed, FunctionTimedOut, FunctionUnavailable
from planform.functions.runner import FunctionRevision, FunctionRunner
from planform.functions.values import FunctionRequest, FunctionResponse

CALL_SECONDS = 10.0
MAX_FAILURES: Final = 3


class NoLongerCalled(FunctionUnavailable):
    """A function has failed to answer so often in this preview that it is not called any more."""

    reason = "NoLongerCalled"


class PatientRunner:
    """A FunctionRunner around another, for one preview."""

    def __init__(self, runner: FunctionRunner, *, call_seconds: float | None = None) -> None:
        self._runner = runner
        self._call_seconds = CALL_SECONDS if call_seconds is None else call_seconds
        self._failures: Counter[FunctionRevision] = Counter()
        self._last: dict[FunctionRevision, str] = {}

    async def run(self, revision: FunctionRevision, request: FunctionRequest, /, *, timeout: float) -> FunctionResponse:
        if self._failures[revision] >= MAX_FAILURES:
            raise NoLongerCalled(
                f"it failed {MAX_FAILURES} times in a row in this preview and is not called again: "
                f"{self._last.get(revision, '')}",
                revision=revision,
            )
        try:
            answer = await self._runner.run(revision, request, timeout=min(timeout, self._call_seconds))
        except (FunctionTimedOut, FunctionUnavailable, FunctionCrashed, FunctionAnswerTooLarge) as error:
            self._failures[revision] += 1
            self._last[revision] = str(error)
            raise
        self._failures.pop(revision, None)
        return answer
