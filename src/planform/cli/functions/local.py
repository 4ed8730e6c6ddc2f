"""Functions on an author's machine: built in, at an address, a Python file, an executable, or a package.

What a package holds is run as the control plane runs it: a process, a container, or a program for each call.

Only what a pipeline uses is started, all of it at once; everything is stopped at the end, also after Ctrl-C.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

from planform.api.annotations import annotations_of
from planform.api.kinds import Object
from planform.api.metadata import labels_of, name_of
from planform.builtin import find_builtin
from planform.cli.functions.from_source import SourceProcess, python_command, start_from_source, stop_all
from planform.errors import UsageError
from planform.features import BuiltInUse
from planform.functions.endpoints import Remote
from planform.functions.inprocess import InProcessRunner
from planform.functions.resolution import Catalogue, Version
from planform.functions.runner import FunctionRevision, FunctionRunner
from planform.functions.values import FunctionRequest, FunctionResponse
from planform.packages.errors import InvalidReference
from planform.packages.references import parse_reference
from planform.packages.revisions import copied_labels, system_labels
from planform.packages.shipped_functions import difference, stand_in
from planform.pipeline.modes import pipeline_of

if TYPE_CHECKING:
    from planform.packages.runtimes.host import RuntimeHost

Runtime = Literal["builtin", "address", "python", "executable", "package"]

_RUNTIME: Final = "render.crossplane.io/runtime"
_TARGET: Final = "render.crossplane.io/runtime-development-target"
_COMMAND: Final = "render.crossplane.io/runtime-process-command"


@dataclass(frozen=True)
class LocalFunction:
    """One function and how it is run here. `where` is a built-in's name, an address, a path or a package's name."""

    name: str
    runtime: Runtime
    where: str
    revision: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    number: int = 1
    note: str = ""
    """What serves in place of the package that was named, if it is not that version."""
    any_revision: bool = False
    """No document says which revision this is, so it is taken for whichever a step selects."""

    @property
    def id(self) -> str:
        return self.revision or f"{self.name}-local"


def functions_from(
    documents: Sequence[Object], overrides: Sequence[str], annotations: Sequence[str] = ()
) -> list[LocalFunction]:
    """What Function and FunctionRevision documents and `--function NAME=WHERE` words say; the words win."""
    replaced = dict(_pair(text, "--function", "NAME=PATH|ADDRESS|BUILTIN") for text in overrides)
    extra = dict(_pair(text, "--function-annotations", "KEY=VALUE") for text in annotations)
    found: list[LocalFunction] = []
    seen: set[str] = set()
    described: dict[str, Mapping[str, str]] = {}
    for document in documents:
        name = _function_name(document)
        if name in replaced:
            if document["kind"] == "Function":
                described[name] = _labels(name, document)
            continue
        function = _from_document(name, document, extra)
        if function.id in seen:
            raise UsageError(f'two functions are called "{function.id}"')
        seen.add(function.id)
        found.append(function)
    for name, where in replaced.items():
        function = _from_word(name, where)
        found.append(replace(function, labels=described[name]) if name in described else as_any_revision(function))
    return found


def as_any_revision(function: LocalFunction) -> LocalFunction:
    """The same function, taken for whichever revision of its name a step selects."""
    return replace(function, any_revision=True)


def _labels(name: str, document: Object) -> dict[str, str]:
    """What the revision that this package makes has in a control plane."""
    spec = document.get("spec") or {}
    if document["kind"] == "FunctionRevision":
        return dict(labels_of(document))
    copied = copied_labels(spec.get("commonLabels") or {}, labels_of(document))
    return {**copied, **system_labels(name, str(spec.get("package") or ""))}


def _function_name(document: Object) -> str:
    if document["kind"] == "FunctionRevision":
        labels = labels_of(document)
        return str(labels.get("pkg.crossplane.io/package") or name_of(document).rpartition("-")[0])
    return name_of(document)


def _from_document(name: str, document: Object, extra: Mapping[str, str]) -> LocalFunction:
    spec = document.get("spec") or {}
    annotations = {**annotations_of(document), **extra}
    revision = name_of(document) if document["kind"] == "FunctionRevision" else ""
    labels, number = _labels(name, document), int(spec.get("revision") or 1)
    more: dict[str, Any] = {"revision": revision, "labels": labels, "number": number}
    runtime = annotations.get(_RUNTIME, "")
    if runtime == "Development":
        return LocalFunction(name, "address", annotations.get(_TARGET, "localhost:9443"), **more)
    if runtime == "Process" or _COMMAND in annotations:
        command = annotations.get(_COMMAND)
        if not command:
            raise UsageError(f'function "{name}" has runtime Process and no annotation {_COMMAND}')
        return LocalFunction(name, "executable", command, **more)
    package = str(spec.get("package") or spec.get("image") or name)
    # As in a control plane: what is named by its digest, is somebody else's or is asked for by annotation is pulled.
    builtin = stand_in(package, annotations, BuiltInUse.ALWAYS)
    if builtin is not None:
        return LocalFunction(name, "builtin", builtin.name, note=difference(builtin, package), **more)
    if _names_package(package):
        return LocalFunction(name, "package", package, **more)
    raise UsageError(
        f'function "{name}" ({package}) is not built in, and "{package}" is no package of a registry',
        hint=f"run it yourself and say --function {name}=HOST:PORT, or give a file: --function {name}=FILE.py",
    )


def _from_word(name: str, where: str) -> LocalFunction:
    path = Path(where.partition(":")[0])
    if where.partition(":")[0].endswith(".py") or path.is_dir():
        if not path.exists():
            raise UsageError(f'function "{name}": there is no file {path}')
        return LocalFunction(name, "python", where)
    if where.endswith(".xpkg") or _names_package(where):
        return LocalFunction(name, "package", where)
    if path.is_file():
        return LocalFunction(name, "executable", where)
    if where.startswith(("unix:", "dns:")) or where.rpartition(":")[2].isdigit():
        return LocalFunction(name, "address", where)
    builtin = find_builtin(where)
    if builtin is None:
        raise UsageError(
            f'function "{name}": "{where}" is no file, address or built-in function',
            hint="use --function NAME=FILE.py, NAME=FILE.xpkg, NAME=HOST:PORT, NAME=unix:PATH or a built-in's name",
        )
    return LocalFunction(name, "builtin", builtin.name)


def _names_package(where: str) -> bool:
    """Whether this is the name of a package in a registry: a host, a path, and a tag or digest."""
    try:
        parse_reference(where)
    except InvalidReference:
        return False
    return True


def used_by(compositions: Sequence[Object], functions: Sequence[LocalFunction]) -> list[LocalFunction]:
    """Only the functions that some step names; a built-in that no file declares is found by its name."""
    named = {
        str((step.get("functionRef") or {}).get("name"))
        for composition in compositions
        for step in pipeline_of(composition["spec"], name_of(composition))
    }
    found = [function for function in functions if function.name in named]
    for name in sorted(named - {function.name for function in found}):
        try:
            found += functions_from([], [f"{name}={name.removeprefix('builtin/')}"])
        except UsageError:
            continue  # the pipeline says which step names it, and what there is
    return found


def _pair(text: str, flag: str, shape: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals or not key or not value:
        raise UsageError(f'{flag} "{text}" must be {shape}')
    return key, value


def catalogue_of(functions: Sequence[LocalFunction]) -> Catalogue:
    """The functions as versions that steps can be resolved to."""
    return Catalogue(
        Version(
            function.name,
            function.id,
            digest=f"{function.runtime}:{function.where}",
            number=function.number,
            labels=function.labels,
            deterministic=function.runtime == "builtin" and _is_deterministic(function.where),
        )
        for function in functions
    )


def _is_deterministic(builtin: str) -> bool:
    found = find_builtin(builtin)
    return found is not None and found.deterministic


class LocalRunner:
    """Calls each function the way it runs here, by the name of its revision."""

    def __init__(self, functions: Mapping[str, LocalFunction], remote: FunctionRunner | None) -> None:
        self._functions = functions
        self._remote = remote
        builtins = [find_builtin(function.where) for function in functions.values() if function.runtime == "builtin"]
        self._builtin = InProcessRunner([builtin for builtin in builtins if builtin is not None])

    async def run(self, revision: FunctionRevision, request: FunctionRequest, /, *, timeout: float) -> FunctionResponse:
        function = self._functions[revision.name]
        if function.runtime == "builtin":
            called = FunctionRevision(function.where, revision.name, revision.digest, revision.deterministic)
            return await self._builtin.run(called, request, timeout=timeout)
        assert self._remote is not None
        return await self._remote.run(revision, request, timeout=timeout)


@asynccontextmanager
async def running(functions: Sequence[LocalFunction]) -> AsyncIterator[LocalRunner]:
    """Start what must be started, in parallel, and give a runner for all of them."""
    by_id = {function.id: function for function in functions}
    remote = [function for function in functions if function.runtime != "builtin"]
    if not remote:
        yield LocalRunner(by_id, None)
        return
    from planform.functions.grpc_transport import GrpcRunner

    started = [function for function in remote if function.runtime != "package"]
    packaged = [function for function in remote if function.runtime == "package"]
    processes: list[SourceProcess] = []
    with tempfile.TemporaryDirectory(prefix="planform-functions-") as scratch:
        try:
            async with AsyncExitStack() as stack:
                host = await stack.enter_async_context(_host(packaged, Path(scratch))) if packaged else None
                addresses = await asyncio.gather(*(_address(function, processes) for function in started))
                known = {function.id: Remote(address) for function, address in zip(started, addresses, strict=True)}
                runner: FunctionRunner = await stack.enter_async_context(GrpcRunner(_LocalEndpoints(known, host)))
                yield LocalRunner(by_id, runner if host is None else host.runner(runner))
        finally:
            await stop_all(processes)


def _host(packaged: Sequence[LocalFunction], scratch: Path) -> AbstractAsyncContextManager[RuntimeHost]:
    """What runs packages is imported only now: most renders need none of it."""
    from planform.cli.functions.packaged import hosted

    return hosted(packaged, scratch)


class _LocalEndpoints:
    """Addresses that are known from the start, and those of what a runtime host runs."""

    def __init__(self, known: Mapping[str, Remote], host: RuntimeHost | None) -> None:
        self._known = known
        self._host = host

    def endpoint(self, revision: FunctionRevision, /) -> Remote | None:
        return self._known.get(revision.name) or (self._host.remote(revision.name) if self._host else None)


async def _address(function: LocalFunction, processes: list[SourceProcess]) -> str:
    """Where the function serves, after starting it if need be."""
    if function.runtime == "address":
        return function.where if "://" in function.where or ":/" in function.where else f"dns:///{function.where}"
    process = await start_from_source(function.name, _command(function))
    processes.append(process)
    await process.serving()
    return f"dns:///{process.address}"


def _command(function: LocalFunction) -> Sequence[str]:
    return python_command(function.where) if function.runtime == "python" else function.where.split()
