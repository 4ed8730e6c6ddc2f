"""Functions that are run to completion for each call: JSON in on standard input, JSON out on standard output.

The JSON is protobuf's mapping of RunFunctionRequest and RunFunctionResponse; either spelling of a name is read. An
answer that leaves `desired` or `context` out means what it was sent; an empty one is empty. Whatever else goes wrong
(an exit code, no JSON, two values, members nobody knows) fails the call with the end of the program's stderr.
"""

from __future__ import annotations

import asyncio
import itertools
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Final, NoReturn

import orjson

from planform.functions.errors import (
    FunctionAnswerInvalid,
    FunctionFailed,
    FunctionRefused,
    FunctionTimedOut,
    FunctionUnavailable,
    answer_too_large,
    object_too_large,
)
from planform.functions.runner import FunctionRevision
from planform.functions.values import FunctionRequest, FunctionResponse
from planform.functions.wire import CallerCodec, ObjectTooLarge, WireError
from planform.packages.runtimes.containers import oneshot_bundle, oneshot_commands
from planform.packages.runtimes.launching import CLEAN_UP_LIMITS, Wanted, environment_of, limits_of
from planform.sandbox import Ended, Finished, Isolation, Limits, SandboxUnavailable, run_once
from planform_sdk.proto import PACKAGES, message_class, messages

CONCURRENT: Final = 8
_LIMITS: Final = Limits(memory=1 << 30)
_LAST_LINES: Final = 5
_KEPT_IF_LEFT_OUT: Final = ("desired", "context")


@dataclass(frozen=True, slots=True)
class _Program:
    """How to run it once; `clear_away` is for runs that were cut off."""

    command: Sequence[str]
    environment: Mapping[str, str]
    limits: Limits
    isolation: Isolation | None = None
    clear_away: Sequence[str] = field(default=())


class Oneshot:
    """One revision whose program is started for each call, at most `CONCURRENT` at a time."""

    def __init__(self, wanted: Wanted, *, directory: Path, hidden: Path) -> None:
        """Raises NotRunnable. `directory` is the revision's own, `hidden` the control plane's data."""
        self._wanted = wanted
        self._directory = directory
        self._limits = limits_of(wanted, hidden, limits=_LIMITS)
        self._bundle = oneshot_bundle(wanted, directory) if wanted.executable.way.is_container else None
        self._names = (f"{wanted.revision}-{os.getpid()}-{number}" for number in itertools.count(1))
        self._slots = asyncio.Semaphore(CONCURRENT)
        self._codec = CallerCodec()
        self._program()

    async def run(self, revision: FunctionRevision, request: FunctionRequest, /, *, timeout: float) -> FunctionResponse:
        """Raises the FunctionErrors of transports."""
        try:
            sent = self._request.FromString(await self._codec.encode(request))
        except (TypeError, ValueError, OverflowError) as error:
            raise FunctionRefused(f"the request cannot be sent: {error}", revision=revision) from error
        from google.protobuf import json_format

        document = orjson.dumps(_plain(json_format.MessageToDict(sent)))
        try:
            async with asyncio.timeout(timeout):
                async with self._slots:
                    done = await self._run(document, timeout, revision.max_answer_size)
        except TimeoutError as error:
            raise FunctionTimedOut("no answer within the step's deadline", revision=revision) from error
        except SandboxUnavailable as error:
            raise FunctionUnavailable(f"it is refused: {error}", revision=revision, hint=error.hint) from error
        if not done.ok:
            _fail(done, revision)
        try:
            return await self._codec.decode(self._answer(done.stdout, sent), request)
        except ObjectTooLarge as error:
            raise object_too_large(str(error), revision) from error
        except (orjson.JSONDecodeError, json_format.ParseError, WireError, _NoAnswer) as error:
            raise FunctionAnswerInvalid(f"its answer is no RunFunctionResponse: {error}", revision=revision) from error

    async def _run(self, document: bytes, timeout: float, output: int) -> Finished:
        program = self._program()
        limits = replace(program.limits, seconds=timeout, output=output)
        try:
            done = await run_once(
                program.command,
                document,
                limits,
                environment=program.environment,
                isolation=program.isolation,
            )
        except asyncio.CancelledError:
            await _clear_away(program)
            raise
        if not done.ok:
            await _clear_away(program)
        return done

    def _program(self) -> _Program:
        if self._bundle is None:
            command = [*self._wanted.executable.command(), *self._wanted.settings.args]
            return _Program(command, environment_of(self._wanted), self._limits)
        run, clear_away = oneshot_commands(self._directory, self._bundle, next(self._names))
        return _Program(run, {}, self._limits, Isolation.LIMITS_ONLY, clear_away)

    def _answer(self, output: bytes, sent: Any) -> bytes:
        from google.protobuf import json_format

        if not output.strip():
            raise _NoAnswer("it wrote nothing to its standard output")
        document = orjson.loads(output)
        if not isinstance(document, dict):
            raise _NoAnswer("it wrote something other than an object")
        # A program may well write back what it was sent, and a later protocol has members that this one does not know.
        answer = json_format.ParseDict(document, self._response(), ignore_unknown_fields=True)
        for name in _KEPT_IF_LEFT_OUT:
            if name not in document:
                getattr(answer, name).CopyFrom(getattr(sent, name))
            elif not answer.HasField(name):
                getattr(answer, name).SetInParent()
        if not answer.meta.tag:
            answer.meta.tag = sent.meta.tag
        encoded: bytes = answer.SerializeToString()
        return encoded

    @cached_property
    def _request(self) -> Any:
        return message_class(messages(), f"{PACKAGES['v1']}.RunFunctionRequest")

    @cached_property
    def _response(self) -> Any:
        return message_class(messages(), f"{PACKAGES['v1']}.RunFunctionResponse")


def _plain(value: Any) -> Any:
    """Whole numbers as such: the protocol knows only floats, and programs that count rarely expect `3.0`."""
    match value:
        case dict():
            return {key: _plain(each) for key, each in value.items()}
        case list():
            return [_plain(each) for each in value]
        case float() if value.is_integer() and abs(value) < 1 << 53:
            return int(value)
        case _:
            return value


class _NoAnswer(ValueError):
    """The output is JSON, or nothing, but no answer."""


async def _clear_away(program: _Program) -> None:
    if program.clear_away:
        await run_once(program.clear_away, b"", CLEAN_UP_LIMITS, isolation=Isolation.LIMITS_ONLY)


def _fail(done: Finished, revision: FunctionRevision) -> NoReturn:
    match done.why:
        case Ended.TIMED_OUT:
            raise FunctionTimedOut("no answer within the step's deadline", revision=revision)
        case Ended.OUTPUT:
            raise answer_too_large(done.written, revision.max_answer_size, revision, cut_off=done.cut_off)
    how = f"it ended with exit code {done.code}" if done.why is Ended.EXITED else f"it {done.why}"
    stderr = " | ".join(done.last_lines(_LAST_LINES))
    raise FunctionFailed(f"{how}: {stderr}" if stderr else how, revision=revision)
