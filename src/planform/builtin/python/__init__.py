"""python: composes resources with a Python script, which runs in a sandbox and never in the control plane.

Reads `Script` of `python.fn.crossplane.io/v1beta1`. The script defines `compose(req, rsp)` or `operate(req, rsp)`, sync
or async; both arguments are the protocol's messages, and `rsp` starts as what was sent. Each call is a process of its
own, so nothing stays from one XR to the next. Whatever a script does wrong, its step ends with a fatal result, but for
an answer that is too large, which is refused as any function's is.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from planform.builtin.inputs import InputError, InputObject, convert_input, given_object
from planform.functions.errors import answer_too_large, object_too_large
from planform.functions.runner import MAX_ANSWER_SIZE
from planform.functions.values import FunctionRequest, FunctionResponse, Result, Severity, Target, respond
from planform.reconcile.limiter import ConcurrencyLimiter
from planform.sandbox import Ended, Finished, Limits, SandboxUnavailable, run_once

if TYPE_CHECKING:
    from planform.functions.wire import CallerCodec

_CHILD: Final = str(Path(__file__).with_name("child.py"))
_LIMITS: Final = Limits(memory=512 << 20, address_space=1 << 30, cpu_seconds=20, seconds=20.0, output=MAX_ANSWER_SIZE)
_AT_ONCE: Final = 4
_MARGIN: Final = 0.9  # of the step's time, so that the fatal result comes before the step's own deadline


class Input(InputObject, frozen=True, kw_only=True):
    script: str = ""


class InlinePython:
    """Runs scripts. Few at a time, in turns between XRs, since each is a process."""

    name = "python"
    deterministic = False

    def __init__(
        self,
        limits: Limits = _LIMITS,
        *,
        hidden: tuple[Path, ...] = (),
        at_once: int = _AT_ONCE,
        enabled: bool = True,
    ) -> None:
        self._limits = replace(limits, hidden=(*limits.hidden, *hidden))
        self._limiter = ConcurrencyLimiter(at_once)
        self._enabled = enabled
        self._codec: CallerCodec | None = None

    async def run(
        self, request: FunctionRequest, /, *, timeout: float, max_answer_size: int = MAX_ANSWER_SIZE
    ) -> FunctionResponse:
        """Raises FunctionAnswerTooLarge."""
        if not self._enabled:
            return _fatal(request, "inline Python scripts are switched off on this control plane")
        try:
            if not convert_input(given_object(request.input), Input).script.strip():
                raise InputError("invalid Function input: script: Required value")
        except InputError as error:
            return _fatal(request, str(error))
        async with self._limiter.slot(_asker(request)):
            seconds = min(timeout * _MARGIN, self._limits.seconds or timeout)
            return await self._run(request, replace(self._limits, seconds=seconds, output=max_answer_size))

    async def _run(self, request: FunctionRequest, limits: Limits) -> FunctionResponse:
        from planform.functions.wire import CallerCodec, ObjectTooLarge, WireError

        if self._codec is None:
            self._codec = CallerCodec()
        command = [sys.executable, "-I", _CHILD]
        try:
            done = await run_once(command, await self._codec.encode(request), limits)
        except SandboxUnavailable as error:
            return _fatal(request, f"scripts are refused: {error}; {error.hint}")
        if done.why is Ended.OUTPUT:
            raise answer_too_large(done.written, limits.output, cut_off=done.cut_off)
        if not done.ok or not done.stdout:
            return _fatal(request, _what_happened(done))
        try:
            return await self._codec.decode(done.stdout, request)
        except ObjectTooLarge as error:
            raise object_too_large(str(error)) from error
        except WireError as error:
            return _fatal(request, f"the script's answer is not one: {error}")


def _what_happened(done: Finished) -> str:
    if done.why is Ended.EXITED:
        what = f"ended with code {done.code} and without an answer"
    else:
        what = f"was ended: {done.why}"
    return f"the script {what}{_quoted(done.last_lines(3))}"


def _quoted(lines: Iterable[str]) -> str:
    text = " | ".join(line.strip() for line in lines if line.strip())
    return f" ({text})" if text else ""


def _fatal(request: FunctionRequest, message: str) -> FunctionResponse:
    response = respond(request)
    response.results.append(Result(Severity.FATAL, message, target=Target.COMPOSITE))
    return response


def _asker(request: FunctionRequest) -> str:
    metadata = request.observed.composite.resource.get("metadata")
    return str(metadata.get("uid") or metadata.get("name", "")) if isinstance(metadata, dict) else ""


function = InlinePython()
