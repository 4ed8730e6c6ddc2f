"""kcl: composes resources with a KCL program. Reads `KCLInput` (or `KCLRun`) of `krm.kcl.dev/v1alpha1`.

The program reads the request by `option("params")` and gives objects, as with the published function-kcl. It runs in a
worker process that stays warm, with bounds on time, memory and what it gives, and without files or network.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

import msgspec

from planform.builtin.compiled import Refused
from planform.builtin.inputs import InputError, refuse_invalid, required
from planform.builtin.kcl.answers import DEFAULT, PATCH_RESOURCES, TARGETS, Base, carry_out, params_of
from planform.builtin.kcl.engine import Arguments, ProgramError, check_engine, run_program
from planform.builtin.workers import WorkerGone, Workers
from planform.errors import FieldError
from planform.functions.runner import MAX_ANSWER_SIZE
from planform.functions.values import FunctionRequest, FunctionResponse, Result, Severity, Target, respond
from planform.machinery.names import invalid

MEMORY: Final = 768 << 20
SECONDS: Final = 10.0
TIME_TTL: Final = 60.0
"""Seconds for which the answer of a program that asks for the time or for randomness is valid."""
_REMOTE: Final = re.compile(r"(oci|git|https?|ssh|file)://|git@|(github|gitlab)\.com/")
_VARYING: Final = re.compile(r"^\s*import\s+(datetime|crypto)\b", re.MULTILINE)
_FILES: Final = re.compile(r"^\s*import\s+file\b", re.MULTILINE)


class Part(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A part of an input. Members that are not known are let be, as function-kcl does."""


class Config(Part, frozen=True, kw_only=True):
    arguments: list[str] = []
    overrides: list[str] = []
    path_selectors: list[str] = []
    sort_keys: bool = False
    show_hidden: bool = False
    disable_none: bool = False
    strict_range_check: bool = False


class NamedBase(Part, frozen=True, kw_only=True):
    name: str = ""
    base: dict[str, Any] | None = None


class Spec(Part, frozen=True, kw_only=True):
    source: str = ""
    target: str = DEFAULT
    params: dict[str, Any] = {}
    dependencies: Any = None
    resources: list[NamedBase] = []
    config: Config = Config()


class Kcl:
    """The function. `run` has a worker do it; `call` is what the worker does.

    Whether an answer stays valid, the answer itself says.
    """

    name = "kcl"
    deterministic = False

    def __init__(self) -> None:
        self._workers = Workers(__name__, memory=MEMORY)

    async def run(
        self, request: FunctionRequest, /, *, timeout: float, max_answer_size: int = MAX_ANSWER_SIZE
    ) -> FunctionResponse:
        try:
            _read(request.input)
            check_engine()
            return await self._workers.call(request, seconds=min(SECONDS, timeout), most=max_answer_size)
        except (InputError, ProgramError) as error:
            return _fatal(request, str(error))
        except WorkerGone as error:
            limit = f"; it may use {MEMORY >> 20} MiB" if "memory" in str(error) else ""
            return _fatal(request, f"cannot run the KCL program: {error}{limit}")

    def call(self, request: FunctionRequest, /) -> FunctionResponse:
        response = respond(request)
        try:
            spec = _read(request.input)
            objects = run_program(spec.source, params_of(request, spec.params), _arguments(spec.config))
            bases = [Base(one.name, one.base or {}) for one in spec.resources]
            carry_out(objects, spec.target, bases, request, response)
        except (InputError, ProgramError, Refused) as error:
            return _fatal(request, str(error))
        response.deterministic = _VARYING.search(spec.source) is None
        response.ttl = None if response.deterministic else TIME_TTL
        return response

    def __repr__(self) -> str:
        return f"<built-in function {self.name}>"


def _read(value: Any) -> Spec:
    """The part of the input that counts; a `source` beside apiVersion and kind is understood as one in `spec`."""
    given = value if isinstance(value, dict) else {}
    try:
        spec = msgspec.convert(_without_nulls(given.get("spec") or given), Spec)
    except msgspec.ValidationError as error:
        raise InputError(f"cannot get Function input: {error}") from None
    if spec.target not in TARGETS:
        spec = msgspec.structs.replace(spec, target=DEFAULT)
    refuse_invalid(_errors(spec))
    return spec


def _errors(spec: Spec) -> Iterator[FieldError]:
    source = spec.source.strip()
    if not source:
        yield required("spec.source", "kcl source cannot be empty")
    if "\n" not in source and _REMOTE.match(source):
        yield invalid(
            "spec.source", source, "sources from registries and Git are not fetched here: write the program inline"
        )
    if spec.dependencies:
        yield invalid(
            "spec.dependencies",
            spec.dependencies,
            "KCL packages are not fetched here: copy the schemas that the program uses into spec.source",
        )
    if _FILES.search(spec.source):
        yield invalid("spec.source", "import file", "a program has no files to read")
    if spec.target == PATCH_RESOURCES:
        if not spec.resources:
            yield required("spec.resources", f"{PATCH_RESOURCES} target requires at least one resource")
        for index, resource in enumerate(spec.resources):
            if not resource.name:
                yield required(f"spec.resources[{index}].name", "name cannot be empty")
            if resource.base is None:
                yield required(f"spec.resources[{index}].base", "base cannot be empty")


def _arguments(config: Config) -> Arguments:
    return Arguments(
        given=tuple(config.arguments),
        overrides=tuple(config.overrides),
        selectors=tuple(config.path_selectors),
        sort_keys=config.sort_keys,
        show_hidden=config.show_hidden,
        disable_none=config.disable_none,
        strict_range_check=config.strict_range_check,
    )


def _without_nulls(spec: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in spec.items() if value is not None}


def _fatal(request: FunctionRequest, message: str) -> FunctionResponse:
    response = respond(request)
    response.results = [Result(Severity.FATAL, message, target=Target.COMPOSITE)]
    return response


function: Final = Kcl()
