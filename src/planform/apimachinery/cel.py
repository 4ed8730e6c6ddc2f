"""The Common Expression Language in Kubernetes' dialect: the door to the `cel_*` modules.

Typed before it runs, free of side effects, RE2 for patterns, Kubernetes' function libraries, and a budget for all:
an expression is refused if its estimate is too high, and stopped if it costs too much. From text to value it goes
through `cel_parser` (tree), `cel_check` (types, estimate) and `cel_program` (closures); functions stand in
`cel_operators`, `cel_strings`, `cel_library` and `cel_kubernetes`.
"""

from __future__ import annotations

from planform.apimachinery.cel_expression import CALL_BUDGET, Expression, compile_expression
from planform.apimachinery.cel_rules import OBJECT_BUDGET, Rules, cel_errors, compile_rules
from planform.apimachinery.cel_syntax import CelError

__all__ = [
    "CALL_BUDGET",
    "CelError",
    "Expression",
    "OBJECT_BUDGET",
    "Rules",
    "cel_errors",
    "compile_expression",
    "compile_rules",
]
