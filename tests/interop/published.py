"""Functions that others published: made from their packages, served on a loopback port, called by our runner.

They are kept beside the other test programs. Where a package cannot be had, the tests that need it are skipped with the
reason.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from planform.functions.endpoints import ClientTls, FixedEndpoints, Remote
from planform.functions.grpc_transport import GrpcRunner
from planform.functions.runner import FunctionRevision
from planform.functions.values import FunctionRequest, FunctionResponse
from tests.harness.processes import free_ports, running
from tests.harness.programs import programs

_PATIENCE_SECONDS = 20.0
_CALL_SECONDS = 20.0
_WITHOUT_NETWORK_FLAG = frozenset({"function-pythonic"})
_FEATURE_GATES = {"function-auto-ready": ["--feature-gates=CELHealthcheckCustomizations=true"]}
"""What a published function does only when it is asked to, and a built-in always."""


class PublishedFunction:
    """A published function that is being served."""

    def __init__(self, name: str, runner: GrpcRunner) -> None:
        self._runner = runner
        self._revision = FunctionRevision(function=name, name=f"{name}-1", digest=name)

    async def __call__(self, request: FunctionRequest) -> FunctionResponse:
        return await self._runner.run(self._revision, request, timeout=_CALL_SECONDS)

    async def ask_all(self, requests: Sequence[FunctionRequest]) -> list[FunctionResponse]:
        return [await self(request) for request in requests]


@asynccontextmanager
async def serving(name: str, directory: Path, certificates: Path | None = None) -> AsyncIterator[PublishedFunction]:
    """Serve a function on loopback for the length of the block.

    With mutual TLS if there is a directory with `ca.crt`, and with `tls.crt` and `tls.key` that both sides show; else
    in plain text.
    """
    program = programs(name) / name
    [port] = free_ports(1)
    address = f"127.0.0.1:{port}"
    security = ["--insecure"] if certificates is None else ["--tls-certs-dir", str(certificates)]
    network = [] if name in _WITHOUT_NETWORK_FLAG else ["--network", "tcp"]
    command = [str(program), *security, *network, *_FEATURE_GATES.get(name, ()), "--address", address]
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
            yield PublishedFunction(name, runner)


def _client_tls(certificates: Path | None) -> ClientTls | None:
    if certificates is None:
        return None
    authority, certificate, key = ((certificates / file).read_bytes() for file in ("ca.crt", "tls.crt", "tls.key"))
    return ClientTls(authority, certificate, key)
