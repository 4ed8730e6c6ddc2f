"""kcl: composes resources with a KCL program. Reads `KCLInput` (or `KCLRun`) of `krm.kcl.dev/v1alpha1`.

The program reads the request by `option("params")` and gives objects, as with the published function-kcl. It runs in a
worker process that stays warm, with bounds on time, memory and what it gives, without network, and without files but
those of modules that it names by their digests and that the operator allows.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from planform.apimachinery.names import invalid
from planform.builtin.compiled import Refused
from planform.builtin.inputs import InputError, refuse_invalid, required
from planform.builtin.kcl.answers import DEFAULT, PATCH_RESOURCES, TARGETS, Base, carry_out, params_of
from planform.builtin.kcl.engine import Arguments, Program, ProgramError, check_engine, run_program
from planform.builtin.kcl.modules import FILES, VARYING, Fetched, ModuleRefused, Modules, fetch_all, needed
from planform.builtin.workers import WorkerGone, Workers
from planform.errors import FieldError
from planform.functions.runner import MAX_ANSWER_SIZE
from planform.functions.values import FunctionRequest, FunctionResponse, Result, Severity, Target, respond

MEMORY: Final = 768 << 20
SECONDS: Final = 10.0
TIME_TTL: Final = 60.0
"""Seconds for which the answer of a program that asks for the time or for randomness is valid."""
_NOT_HERE: Final = (
    "KCL modules are fetched by a control plane only: write the program, and the schemas that it uses, into spec.source"
)


@dataclass(frozen=True, slots=True)
class ModularRequest:
    """What a worker is asked: it fetches nothing, and is told where the modules are."""

    request: FunctionRequest
    modules: Fetched = Fetched()  # noqa: RUF009  (frozen)


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
    asked = ModularRequest

    def __init__(self, modules: Modules | None = None) -> None:
        """`modules` are those of a control plane; without them every module is refused."""
        self._modules = modules
        self._workers = Workers(__name__, memory=MEMORY, visible=(modules.directory,) if modules is not None else ())

    async def run(
        self, request: FunctionRequest, /, *, timeout: float, max_answer_size: int = MAX_ANSWER_SIZE
    ) -> FunctionResponse:
        try:
            spec = _read(request.input)
            check_engine()
            async with asyncio.timeout(timeout) as limit:
                asked = ModularRequest(request, await self._fetch(spec))
                seconds = min(SECONDS, (limit.when() or 0.0) - asyncio.get_running_loop().time())
            return await self._workers.call(asked, seconds=seconds, maximum=max_answer_size)
        except (InputError, ModuleRefused, ProgramError) as error:
            return _fatal(request, str(error))
        except TimeoutError:
            return _fatal(request, f"the modules of the KCL program were not fetched within {timeout:g} s")
        except WorkerGone as error:
            maximum = f"; it may use {MEMORY >> 20} MiB" if "memory" in str(error) else ""
            return _fatal(request, f"cannot run the KCL program: {error}{maximum}")

    async def _fetch(self, spec: Spec) -> Fetched:
        wanted = needed(spec.source, spec.dependencies)
        if not wanted:
            return Fetched()
        if self._modules is None:
            raise ModuleRefused(_NOT_HERE)
        return await fetch_all(wanted, self._modules)

    def call(self, asked: ModularRequest, /) -> FunctionResponse:
        request, modules = asked.request, asked.modules
        response = respond(request)
        try:
            spec = _read(request.input)
            program = Program("" if modules.source else spec.source, modules.source, modules.packages)
            objects = run_program(program, params_of(request, spec.params), _arguments(spec.config))
            bases = [Base(one.name, one.base or {}) for one in spec.resources]
            carry_out(objects, spec.target, bases, request, response)
        except (InputError, ProgramError, Refused) as error:
            return _fatal(request, str(error))
        response.deterministic = not modules.varies and VARYING.search(spec.source) is None
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
    needed(spec.source, spec.dependencies)  # raises for those that are not pinned
    return spec


def _errors(spec: Spec) -> Iterator[FieldError]:
    source = spec.source.strip()
    if not source:
        yield required("spec.source", "kcl source cannot be empty")
    if FILES.search(spec.source):
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
