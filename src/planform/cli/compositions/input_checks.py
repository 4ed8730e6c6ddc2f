"""Whether the input of a step is one that its built-in function takes: the function itself is asked, about nothing.

Functions read their input before they look at anything else. Those that run a program of the author's are not asked.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

from planform.builtin import find_builtin, find_builtin_name
from planform.functions.errors import FunctionError
from planform.functions.inprocess import InProcessRunner
from planform.functions.runner import FunctionRevision
from planform.functions.values import FunctionRequest

_RUN_PROGRAMS: Final = frozenset({"python", "kcl", "starlark"})
_REFUSALS: Final = ("cannot get Function input", "invalid Function input")
_SECONDS: Final = 5.0


def input_problem(function: str, given: dict[str, Any]) -> str | None:
    """What is wrong with the input; empty if nothing, None if the function is not one that can be asked."""
    name = find_builtin_name(function)
    if name is None or name.name in _RUN_PROGRAMS:
        return None
    builtin = find_builtin(name.name)
    if builtin is None:
        return None
    request = FunctionRequest(input=given)
    revision = FunctionRevision(name.name, name.name, name.name, builtin.deterministic)
    try:
        answer = asyncio.run(InProcessRunner([builtin]).run(revision, request, timeout=_SECONDS))
    except FunctionError as error:
        return error.detail if error.detail.startswith(_REFUSALS) else ""
    fatal = answer.fatal
    return fatal.message if fatal is not None and fatal.message.startswith(_REFUSALS) else ""
