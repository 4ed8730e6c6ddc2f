"""starlark: composes resources with a Starlark script. Reads `StarlarkScript` of `starlark.fn.planform.dev/v1`.

The script defines `main(req)`, which is given the request as a dict and returns the response as a dict. It runs in a
worker process with bounds on steps, time and memory; it has no clock, no randomness, no files and no network, so its
answer stays valid while its request does.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import msgspec

from planform.apimachinery.names import invalid
from planform.builtin.compiled import Refused
from planform.builtin.inputs import InputError, InputObject, convert_input, given_object, refuse_invalid, required
from planform.builtin.starlark.answers import read_response, request_dict
from planform.builtin.starlark.engine import FILE, Budget, ScriptError, call_main, check_engine
from planform.builtin.workers import WorkerGone, Workers
from planform.errors import FieldError
from planform.functions.runner import MAX_ANSWER_SIZE
from planform.functions.values import FunctionRequest, FunctionResponse, Result, Severity, Target, respond

MEMORY: Final = 512 << 20
STEPS: Final = 50_000_000
SECONDS: Final = 10.0
_GRACE: Final = 1.0
"""Seconds that a worker has on top, to say that the script took too long."""


class Input(InputObject, frozen=True, kw_only=True):
    script: str = ""
    modules: dict[str, str] = msgspec.field(default_factory=dict)


class Starlark:
    """The function. `run` has a worker do it; `call` is what the worker does."""

    name = "starlark"
    deterministic = True

    def __init__(self) -> None:
        self._workers = Workers(__name__, memory=MEMORY)

    async def run(
        self, request: FunctionRequest, /, *, timeout: float, max_answer_size: int = MAX_ANSWER_SIZE
    ) -> FunctionResponse:
        try:
            _read(request.input)
            check_engine()
            return await self._workers.call(request, seconds=min(SECONDS + _GRACE, timeout), maximum=max_answer_size)
        except InputError as error:
            return _fatal(request, str(error))
        except ScriptError as error:
            return _fatal(request, f"cannot run the script: {error}")
        except WorkerGone as error:
            limit = f"; it may use {MEMORY >> 20} MiB" if "memory" in str(error) else ""
            return _fatal(request, f"cannot run the script: {error}{limit}")

    def call(self, request: FunctionRequest, /) -> FunctionResponse:
        response = respond(request)
        try:
            spec = _read(request.input)
            budget = Budget(steps=STEPS, seconds=SECONDS)
            read_response(call_main(spec.script, spec.modules, request_dict(request), budget), response)
        except (InputError, ScriptError) as error:
            return _fatal(request, str(error))
        except Refused as error:
            return _fatal(request, f"{FILE}: {error}")
        return response

    def __repr__(self) -> str:
        return f"<built-in function {self.name}>"


def _read(value: Any) -> Input:
    spec = convert_input(given_object(value), Input)
    refuse_invalid(_errors(spec))
    return spec


def _errors(spec: Input) -> Iterator[FieldError]:
    if not spec.script.strip():
        yield required("script", "a script that defines main(req)")
    if FILE in spec.modules:
        yield invalid(f"modules[{FILE}]", FILE, "is what the script itself is called")


def _fatal(request: FunctionRequest, message: str) -> FunctionResponse:
    response = respond(request)
    response.results = [Result(Severity.FATAL, message, target=Target.COMPOSITE)]
    return response


function: Final = Starlark()
