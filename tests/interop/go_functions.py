"""Functions that others published in Go: built from their modules, served on a loopback port, called by our runner.

They are kept beside the other test programs. Where a module cannot be had, the tests that need it are skipped with the
reason.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tools.testbins import Go, Product, Unavailable, Workshop, cache_directory, is_intact, locked, make, place

from planform.functions.endpoints import ClientTls, FixedEndpoints, Remote
from planform.functions.grpc_transport import GrpcRunner
from planform.functions.runner import FunctionRevision
from planform.functions.values import FunctionRequest, FunctionResponse
from tests.harness.processes import free_ports, running
from tests.harness.programs import ProgramMissing

_PATIENCE_SECONDS = 20.0
_CALL_SECONDS = 20.0


@dataclass(frozen=True)
class Published:
    """A release of a function: where its module is, and what the module calls itself."""

    version: str
    module: str
    package: str

    def build(self, workshop: Workshop, out: Path) -> str:
        """A recipe of `tools.testbins`."""
        go = Go.find(workshop)
        source = go.download(self.module, self.version)
        moved = {} if self.package == self.module else {self.package: f"{self.module} v{self.version}"}
        go.write_module(requires=f"{self.package} v{self.version}", language=source.language, replaces=moved)
        go.build([self.package], "", out / self.module.rpartition("/")[2])
        return f"go {self.module}@v{self.version}"


PUBLISHED = {
    "function-patch-and-transform": Published(
        "0.5.0",
        "github.com/crossplane-contrib/function-patch-and-transform",
        "github.com/crossplane-contrib/function-patch-and-transform",
    ),
    "function-auto-ready": Published(
        "0.7.0", "github.com/crossplane-contrib/function-auto-ready", "github.com/crossplane/function-auto-ready"
    ),
}
"""The newest releases whose modules the public proxy hands out."""


@cache
def built(name: str) -> Path:
    """The program of a published function, made first if need be. Raises ProgramMissing."""
    source = PUBLISHED[name]
    product = Product((name,), source.version, (source.build,), proof=("--help",))
    directory = cache_directory()
    program = place(directory, product, name)
    try:
        if not is_intact(program):
            with locked(directory, name):
                if not is_intact(program):
                    make(directory, product)
    except (Unavailable, OSError) as error:
        raise ProgramMissing(f"{name} {source.version}: {error}") from error
    return program


class GoFunction:
    """A published function that is being served."""

    def __init__(self, name: str, runner: GrpcRunner) -> None:
        self._runner = runner
        self._revision = FunctionRevision(function=name, name=f"{name}-1", digest=PUBLISHED[name].version)

    async def __call__(self, request: FunctionRequest) -> FunctionResponse:
        return await self._runner.run(self._revision, request, timeout=_CALL_SECONDS)

    async def ask_all(self, requests: Sequence[FunctionRequest]) -> list[FunctionResponse]:
        return [await self(request) for request in requests]


@asynccontextmanager
async def serving(name: str, directory: Path, certificates: Path | None = None) -> AsyncIterator[GoFunction]:
    """Serve a function on loopback for the length of the block.

    With mutual TLS if there is a directory with `ca.crt`, and with `tls.crt` and `tls.key` that both sides show; else
    in plain text.
    """
    program = built(name)
    [port] = free_ports(1)
    address = f"127.0.0.1:{port}"
    security = ["--insecure"] if certificates is None else ["--tls-certs-dir", str(certificates)]
    command = [str(program), *security, "--network", "tcp", "--address", address]
    remote = Remote(f"ipv4:{address}", _client_tls(certificates), server_name="localhost" if certificates else "")
    with running(command, directory / f"{name}.log") as child:
        async with asyncio.timeout(_PATIENCE_SECONDS):
            while not child.has_ended():
                try:
                    _, writer = await asyncio.open_connection("127.0.0.1", port)
                except OSError:
                    await asyncio.sleep(0.02)
                    continue
                writer.close()
                break
        assert not child.has_ended(), child.output_tail()
        async with GrpcRunner(FixedEndpoints({name: remote})) as runner:
            yield GoFunction(name, runner)


def _client_tls(certificates: Path | None) -> ClientTls | None:
    if certificates is None:
        return None
    authority, certificate, key = ((certificates / file).read_bytes() for file in ("ca.crt", "tls.crt", "tls.key"))
    return ClientTls(authority, certificate, key)
