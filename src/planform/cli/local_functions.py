"""Functions on an author's machine: built in, at an address, a Python file, an executable, or a package.

What a package holds is run as the control plane runs it: a process, a container, or a program for each call.

Only what a pipeline uses is started, all of it at once; everything is stopped at the end, also after Ctrl-C.
"""

from __future__ import annotations

import asyncio
import socket
import sys
import tempfile
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

from planform.api.kinds import Object
from planform.builtin import find_builtin
from planform.composition.modes import pipeline_of
from planform.errors import UsageError
from planform.functions.endpoints import Remote
from planform.functions.errors import FunctionUnavailable
from planform.functions.inprocess import InProcessRunner
from planform.functions.resolution import Catalogue, Version
from planform.functions.runner import FunctionRevision, FunctionRunner
from planform.functions.values import FunctionRequest, FunctionResponse
from planform.packages.errors import InvalidReference
from planform.packages.references import parse_reference

if TYPE_CHECKING:
    from planform.packages.runtimes.host import RuntimeHost

Runtime = Literal["builtin", "address", "python", "executable", "package"]

_RUNTIME: Final = "render.crossplane.io/runtime"
_TARGET: Final = "render.crossplane.io/runtime-development-target"
_COMMAND: Final = "render.crossplane.io/runtime-process-command"
_START_SECONDS: Final = 20.0


@dataclass(frozen=True)
class LocalFunction:
    """One function and how it is run here. `where` is a built-in's name, an address, a path or a package's name."""

    name: str
    runtime: Runtime
    where: str
    revision: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    number: int = 1

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
    for document in documents:
        name = _function_name(document)
        if name in replaced:
            continue
        function = _from_document(name, document, extra)
        if function.id in seen:
            raise UsageError(f'two functions are called "{function.id}"')
        seen.add(function.id)
        found.append(function)
    return [*found, *(_from_word(name, where) for name, where in replaced.items())]


def _function_name(document: Object) -> str:
    if document["kind"] == "FunctionRevision":
        labels = document["metadata"].get("labels") or {}
        return str(labels.get("pkg.crossplane.io/package") or document["metadata"]["name"].rpartition("-")[0])
    return str(document["metadata"]["name"])


def _from_document(name: str, document: Object, extra: Mapping[str, str]) -> LocalFunction:
    metadata, spec = document["metadata"], document.get("spec") or {}
    annotations = {**(metadata.get("annotations") or {}), **extra}
    revision = metadata["name"] if document["kind"] == "FunctionRevision" else ""
    labels, number = metadata.get("labels") or {}, int(spec.get("revision") or 1)
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
    builtin = find_builtin(package) or find_builtin(name)
    if builtin is not None:
        return LocalFunction(name, "builtin", builtin.name, **more)
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
        for step in pipeline_of(composition["spec"], str(composition["metadata"].get("name", "")))
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
    processes: list[asyncio.subprocess.Process] = []
    with tempfile.TemporaryDirectory(prefix="planform-functions-") as scratch:
        try:
            async with AsyncExitStack() as stack:
                host = await stack.enter_async_context(_host(packaged, Path(scratch))) if packaged else None
                addresses = await asyncio.gather(*(_address(function, processes) for function in started))
                known = {function.id: Remote(address) for function, address in zip(started, addresses, strict=True)}
                runner: FunctionRunner = await stack.enter_async_context(GrpcRunner(_LocalEndpoints(known, host)))
                yield LocalRunner(by_id, runner if host is None else host.runner(runner))
        finally:
            await _stop(processes)


def _host(packaged: Sequence[LocalFunction], scratch: Path) -> AbstractAsyncContextManager[RuntimeHost]:
    """What runs packages is imported only now: most renders need none of it."""
    from planform.cli.packaged_functions import hosted

    return hosted(packaged, scratch)


class _LocalEndpoints:
    """Addresses that are known from the start, and those of what a runtime host runs."""

    def __init__(self, known: Mapping[str, Remote], host: RuntimeHost | None) -> None:
        self._known = known
        self._host = host

    def endpoint(self, revision: FunctionRevision, /) -> Remote | None:
        return self._known.get(revision.name) or (self._host.remote(revision.name) if self._host else None)


async def _address(function: LocalFunction, processes: list[asyncio.subprocess.Process]) -> str:
    """Where the function serves, after starting it if need be."""
    if function.runtime == "address":
        return function.where if "://" in function.where or ":/" in function.where else f"dns:///{function.where}"
    port = _free_port()
    address = f"127.0.0.1:{port}"
    serve = ["--insecure", "--address", address]
    process = await asyncio.create_subprocess_exec(
        *_command(function), *serve, stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE
    )
    processes.append(process)
    try:
        async with asyncio.timeout(_START_SECONDS):
            await _listening(function, process, port)
    except TimeoutError as error:
        raise FunctionUnavailable(f"did not serve within {_START_SECONDS:g} s", function=function.name) from error
    return f"dns:///{address}"


def _command(function: LocalFunction) -> Sequence[str]:
    if function.runtime == "python":
        return (sys.executable, "-m", "planform_sdk", "serve", function.where)
    return function.where.split()


async def _listening(function: LocalFunction, process: asyncio.subprocess.Process, port: int) -> None:
    while True:
        if process.returncode is not None:
            said = (await process.stderr.read()).decode(errors="replace").strip() if process.stderr else ""
            last = said.splitlines()[-1] if said else "it said nothing"
            raise FunctionUnavailable(
                f"ended with code {process.returncode} before it served: {last}", function=function.name
            )
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", port)
        except OSError:
            await asyncio.sleep(0.01)
        else:
            writer.close()
            return


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


async def _stop(processes: Sequence[asyncio.subprocess.Process]) -> None:
    for process in processes:
        if process.returncode is None:
            process.terminate()
    for process in processes:
        try:
            async with asyncio.timeout(5):
                await process.communicate()
        except TimeoutError:
            process.kill()
            await process.wait()
