"""Functions from packages on an author's machine: run as the control plane runs them, for the length of one command.

The same runtime host starts them: a process in the sandbox, a container, or a program for each call, as the package
says; with certificates of an authority that is made for this command alone. Imported only by commands that need it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from planform.apiserver.auth.pki import Pki
from planform.cli.packages.access import find_image, is_file, package_cache
from planform.clock import SystemClock
from planform.errors import PlanformError, UsageError
from planform.functions.errors import FunctionUnavailable
from planform.packages.blobs import BlobStore
from planform.packages.runtimes.certificates import RevisionCertificates
from planform.packages.runtimes.executables import Executable
from planform.packages.runtimes.host import Draining, RuntimeHost
from planform.packages.runtimes.launching import Wanted
from planform.packages.unpacking import unpack_program

if TYPE_CHECKING:
    from planform.cli.functions.local import LocalFunction

_START_SECONDS: Final = 60.0
_AT_ONCE: Final = Draining(quiet=0.0, max_seconds=0.0)
"""When the command ends nobody calls any more."""


@asynccontextmanager
async def hosted(functions: Sequence[LocalFunction], scratch: Path) -> AsyncIterator[RuntimeHost]:
    """A host that runs these, once all of them serve.

    Raises what fetching and unpacking raise, and FunctionUnavailable.
    """
    clock = SystemClock()
    data = scratch / "runtimes-of-packages"
    pki = await asyncio.to_thread(Pki, data / "pki", clock=clock)
    certificates = RevisionCertificates(pki, data / "certificates", clock=clock)
    wanted = [await _wanted(function, scratch) for function in functions]
    async with RuntimeHost(data, certificates, clock=clock, draining=_AT_ONCE, spares=None) as host:
        for each in wanted:
            host.ensure(each)
        await asyncio.gather(*(_serving(host, each) for each in wanted))
        yield host


async def _wanted(function: LocalFunction, scratch: Path) -> Wanted:
    blobs = BlobStore(scratch / "blobs") if is_file(function.where) else package_cache()
    try:
        image = await find_image(function.where, blobs)
    except PlanformError as error:
        name = function.name
        error.hint = error.hint or f"or run it yourself: --function {name}=HOST:PORT, --function {name}=FILE"
        raise
    files = scratch / "files"
    files.mkdir(exist_ok=True)
    executable: Executable | None = await asyncio.to_thread(unpack_program, image, files / function.id)
    if executable is None:
        raise UsageError(
            f'function "{function.name}": the package {function.where} has no program to run',
            hint="build it with its image: planform function build --from-oci-tarball FILE",
        )
    return Wanted(function.name, function.id, "", executable, digest=image.digest)


async def _serving(host: RuntimeHost, wanted: Wanted) -> None:
    changed = asyncio.Event()
    unsubscribe = host.subscribe(lambda _: changed.set())
    problem = ""
    try:
        async with asyncio.timeout(_START_SECONDS):
            while True:
                changed.clear()
                state = host.runtime_status(wanted.revision)
                if state is not None and state.ready:
                    return
                problem = state.problem if state is not None else "it has ended"
                if state is not None and state.failed and not state.endpoint:
                    break
                await changed.wait()
    except TimeoutError:
        problem = f"did not serve within {_START_SECONDS:g} s: {problem}"
    finally:
        unsubscribe()
    raise FunctionUnavailable(problem, function=wanted.package)
