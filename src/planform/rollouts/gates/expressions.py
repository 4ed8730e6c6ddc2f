"""CEL of gates: whether a value is good, within a budget, and away from the event loop where it may take long.

An expression is first tried with a budget that is spent within some milliseconds. Only what needs more goes to a worker
process, which can be killed: XRs are few and small, or many, and expressions are anybody's.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from planform.apimachinery.cel import CALL_BUDGET, CelError, compile_expression
from planform.apimachinery.cel_values import BudgetExceeded, EvaluationError, to_json
from planform.builtin.workers import WorkerGone, Workers
from planform.errors import PlanformError
from planform.functions.values import FunctionResponse

QUICK_BUDGET: Final = 5_000
"""What may be spent on the event loop: about a millisecond."""
SLOW_BUDGET: Final = 10 * CALL_BUDGET
"""What a worker may spend: expressions are asked of thousands of XRs at once."""
SECONDS: Final = 10.0


class ExpressionFailed(PlanformError):
    """The expression cannot be read, fails on what it is given, or takes too long."""

    reason = "ExpressionFailed"


class Question(msgspec.Struct, frozen=True):
    """What a worker is asked."""

    text: str
    values: dict[str, Any]


class _Evaluator:
    """What a worker runs."""

    asked = Question

    def call(self, question: Question, /) -> FunctionResponse:
        try:
            return FunctionResponse(output={"value": _evaluated(question.text, question.values, SLOW_BUDGET)})
        except CelError as error:
            return FunctionResponse(output={"error": str(error)})
        except BudgetExceeded:
            return FunctionResponse(output={"error": f"the expression costs too much: {question.text}"})


function: Final = _Evaluator()


class Expressions:
    """Evaluates conditions. A worker is started when the first of them needs one, and ends when it is idle."""

    def __init__(self) -> None:
        self._workers: Workers | None = None

    async def holds(self, text: str, values: Mapping[str, Any], *, large: bool = False) -> bool:
        """Whether the condition is true. `large` values are not even looked at on the event loop. Raises
        ExpressionFailed."""
        if not large:
            try:
                return _truth(text, _evaluated(text, values, QUICK_BUDGET))
            except CelError as error:
                raise ExpressionFailed(str(error)) from error
            except BudgetExceeded:
                pass
        if self._workers is None:
            self._workers = Workers(__name__, maximum=1)
        try:
            response = await self._workers.call(Question(text, dict(values)), seconds=SECONDS)
        except WorkerGone as error:
            raise ExpressionFailed(f"{error}: {text}") from error
        output = response.output or {}
        if "error" in output:
            raise ExpressionFailed(str(output["error"]))
        return _truth(text, output.get("value"))


def _evaluated(text: str, values: Mapping[str, Any], budget: float) -> Any:
    expression = compile_expression(text, dict.fromkeys(values, "dyn"))
    try:
        value, _ = expression.run(values, budget)
    except EvaluationError as error:
        raise CelError(f"{error} evaluating expression: {text}") from error
    return to_json(value)


def _truth(text: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise ExpressionFailed(f"the expression gives {type(value).__name__}, and must give true or false: {text}")
    return value
