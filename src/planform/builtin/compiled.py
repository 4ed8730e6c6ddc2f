"""What all built-in functions share: an input is compiled once, and a call ends in an answer, never in an exception."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final

import msgspec

from planform.builtin.inputs import InputError
from planform.functions.values import FunctionRequest, FunctionResponse, Result, Severity, Target, respond

CACHED_INPUTS: Final = 256
"""How many compiled inputs one function keeps; a fleet has about one for each step of each composition revision."""


class Refused(Exception):
    """Ends the call with a fatal result. The desired state and the context stay as they were received."""


Program = Callable[[FunctionRequest, FunctionResponse], None]
"""A compiled input. It changes the response, which starts as `respond` made it; it may raise Refused."""

Compile = Callable[[Any], Program]
"""Makes a program of an input (None if the step has none). It may keep what it is given; it may raise InputError."""


class CompiledFunction:
    """A built-in function: pure and synchronous, so its answer stays valid while its request does."""

    deterministic = True

    def __init__(
        self, name: str, compile_input: Compile, *, reads_control_plane_fields: Callable[[Any], bool] = lambda _: True
    ) -> None:
        self.name = name
        self.reads_control_plane_fields = reads_control_plane_fields
        """Whether with this input its answer may depend on what the control plane itself keeps in the XR."""

        # The text of the input is the key, and what the program is made of: so nobody else holds what it keeps.
        @lru_cache(maxsize=CACHED_INPUTS)
        def program(text: bytes) -> Program:
            return compile_input(msgspec.json.decode(text))

        self._program = program
        self._recent: dict[int, tuple[Any, Program]] = {}

    def _program_of(self, given: Any) -> Program:
        """The program of an input. Whoever gives the very same object again, as a fleet does, is not asked to spell it:
        inputs are not changed once they are given, and one that is kept here cannot lend its id to another."""
        known = self._recent.get(id(given))
        if known is not None:
            return known[1]
        program = self._program(msgspec.json.encode(given))
        if len(self._recent) >= CACHED_INPUTS:
            self._recent.clear()
        self._recent[id(given)] = (given, program)
        return program

    def __call__(self, request: FunctionRequest, /) -> FunctionResponse:
        response = respond(request)
        try:
            self._program_of(request.input)(request, response)
        except (InputError, Refused) as error:
            unchanged = respond(request)
            # What it looked for stays known: when that changes, the refusal may be over.
            unchanged.requirements = response.requirements
            unchanged.results = [*response.results, Result(Severity.FATAL, str(error), target=Target.COMPOSITE)]
            return unchanged
        return response

    def __repr__(self) -> str:
        return f"<built-in function {self.name}>"


def warn(response: FunctionResponse, message: str) -> None:
    response.results.append(Result(Severity.WARNING, message, target=Target.COMPOSITE))


def normal(response: FunctionResponse, message: str) -> None:
    response.results.append(Result(Severity.NORMAL, message, target=Target.COMPOSITE))
