"""`@function`: makes a composition function of a plain Python function.

    @function(input=Settings)
    def buckets(req: Request[Settings], rsp: Response) -> None:
        rsp.desired.resources["bucket"] = {"apiVersion": "s3.example.org/v1", "kind": "Bucket"}

The result is a `Function`: `planform_sdk.serve` serves it, `planform_sdk.testing` tests it, a control plane may run it
in its own process with `await it.run(request)`. It is still callable as it was written.
"""

from __future__ import annotations

import inspect
import logging
import re
import time
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any, overload

import msgspec

from planform_sdk.failures import TRACEBACK, traceback_text, where_raised
from planform_sdk.request import Request
from planform_sdk.resource import copy_object
from planform_sdk.response import DEFAULT_TTL, Response
from planform_sdk.types import RunFunctionRequest, RunFunctionResponse

Handler = Callable[[Request[Any], Response], Awaitable[None] | None]

logger = logging.getLogger("planform_sdk")

_SLOW_SECONDS = 0.1
_KRM_FIELDS = ("apiVersion", "kind", "metadata")
_AT = re.compile(r"^(?P<what>.*?)(?: - at `\$(?P<where>.*)`)?$", re.DOTALL)


class Fatal(Exception):
    """Raise it to stop the function and the pipeline, with a message for the user."""

    def __init__(self, message: str, *, reason: str | None = None) -> None:
        super().__init__(message)
        self.reason = reason


class InvalidInput(Fatal):
    """The step's input does not fit the function's model."""


class Function:
    """A composition function: what it is called, what input it takes, and how to run it."""

    def __init__(
        self,
        handler: Handler,
        *,
        name: str,
        input: type | None,
        deterministic: bool,
        ttl: timedelta | None,
        blocking: bool,
    ) -> None:
        self.handler = handler
        self.name = name
        self.input = input
        self.deterministic = deterministic
        self.ttl = ttl
        self.blocking = blocking
        self.is_async = inspect.iscoroutinefunction(handler)
        self.__doc__ = handler.__doc__

    def __call__(self, req: Request[Any], rsp: Response) -> Awaitable[None] | None:
        """Call the function as it was written."""
        return self.handler(req, rsp)

    async def run(self, request: RunFunctionRequest) -> RunFunctionResponse:
        """Answer a request. Whatever goes wrong inside becomes a fatal result; the request is left as it was."""
        response = Response(request, ttl=self.ttl)
        try:
            await self._handle(request, response)
        except Fatal as error:
            response.undo()
            response.fatal(str(error), reason=error.reason)
        except Exception as error:
            logger.exception("function failed", extra={"function": self.name, "tag": request.meta.tag})
            response.undo()
            message = f'function "{self.name}" failed: {_one_line(error)}{where_raised(error)}'
            response.fatal(message, reason="FunctionFailed")
            # Callers stop at the fatal result, so this one becomes no event: it is for whoever looks at the answer.
            response.normal(traceback_text(error), reason=TRACEBACK)
        return response.to_plain()

    async def _handle(self, request: RunFunctionRequest, response: Response) -> None:
        req: Request[Any] = Request(request, self.read_input(request.input), response.requirements)
        if self.is_async:
            pending = self.handler(req, response)
            assert pending is not None
            await pending
        elif self.blocking:
            import asyncio  # costs more than all the rest of this package; whoever awaits us has it already

            await asyncio.to_thread(self.handler, req, response)
        else:
            started = time.perf_counter()
            self.handler(req, response)
            seconds = time.perf_counter() - started
            if seconds > _SLOW_SECONDS:
                logger.warning(
                    "function held up all others; if it waits for something, write `async def` or say blocking=True",
                    extra={"function": self.name, "seconds": round(seconds, 3)},
                )

    def read_input(self, given: dict[str, Any] | None) -> Any:
        """Read an input object as the function's model. Raises InvalidInput, naming the field that does not fit."""
        if self.input is None:
            return copy_object(given) if given else {}
        try:
            return msgspec.convert(_without_krm_fields(given or {}, self.input), type=self.input)
        except msgspec.ValidationError as error:
            missing = "" if given is not None else " (the step has no input)"
            raise InvalidInput(
                f'function "{self.name}": invalid input: {_explain(error)}{missing}', reason="InvalidInput"
            ) from error

    def __repr__(self) -> str:
        return f"<Function {self.name}>"


@overload
def function(handler: Handler, /) -> Function: ...


@overload
def function(
    *,
    name: str | None = None,
    input: type | None = None,
    deterministic: bool = False,
    ttl: timedelta | None = None,
    blocking: bool = False,
) -> Callable[[Handler], Function]: ...


def function(
    handler: Handler | None = None,
    /,
    *,
    name: str | None = None,
    input: type | None = None,
    deterministic: bool = False,
    ttl: timedelta | None = None,
    blocking: bool = False,
) -> Function | Callable[[Handler], Function]:
    """Make a composition function of `handler(req, rsp)`, sync or async.

    name           as results and logs call it; the handler's name with dashes if not given
    input          a msgspec type that the step's input must fit
    deterministic  the answer depends on the request alone, so it stays good until the request changes
    ttl            how long any other function's answer stays good; a minute if not given
    blocking       a sync function that waits for something: run it in a thread. Others run on the server's loop
    """

    def decorate(handler: Handler) -> Function:
        return Function(
            handler,
            name=name or getattr(handler, "__name__", "function").replace("_", "-"),
            input=input,
            deterministic=deterministic,
            ttl=ttl if ttl is not None else None if deterministic else DEFAULT_TTL,
            blocking=blocking,
        )

    return decorate if handler is None else decorate(handler)


def _without_krm_fields(given: dict[str, Any], model: type) -> dict[str, Any]:
    """An input is an object with apiVersion and kind; a model that forbids unknown fields need not declare those."""
    config = getattr(model, "__struct_config__", None)
    if config is None or not config.forbid_unknown_fields:
        return given
    known = set(getattr(model, "__struct_encode_fields__", ()))
    return {key: value for key, value in given.items() if key not in _KRM_FIELDS or key in known}


def _explain(error: msgspec.ValidationError) -> str:
    """Word an error as `field: what is wrong`."""
    match = _AT.match(str(error))
    what, where = (match["what"], match["where"]) if match else (str(error), None)
    what = what[:1].lower() + what[1:]
    return f"{where.lstrip('.')}: {what}" if where else what


def _one_line(error: Exception) -> str:
    """What to tell a user about an unexpected error: its kind and first line, no traceback."""
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__
