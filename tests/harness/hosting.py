"""Revisions of functions that really run: small functions written with the SDK, in processes of their own."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from planform.apiserver.auth.pki import Pki
from planform.clock import Clock, SystemClock
from planform.functions.endpoints import Endpoint
from planform.functions.grpc_transport import CallLimits, GrpcRunner
from planform.functions.runner import FunctionRevision, FunctionRunner
from planform.functions.values import FunctionRequest, FunctionResponse
from planform.packages.runtimes.certificates import RevisionCertificates
from planform.packages.runtimes.executables import Executable, RuntimeSettings, Way
from planform.packages.runtimes.host import Draining, RuntimeHost, RuntimeStatus
from planform.packages.runtimes.launching import Wanted
from planform.packages.runtimes.servers import Spares
from planform.telemetry.metrics import MetricsRegistry
from tests.harness.contexts import PATIENCE_SECONDS, eventually

SERVER = '''"""Says who it is, and waits as long as its input says."""

import asyncio
import os
import sys
from pathlib import Path
from typing import Any

from planform_sdk import Request, Response, function
from planform_sdk.__main__ import serve

print("starting", os.environ["REVISION_NAME"], flush=True)


@function
async def who(req: Request[Any], rsp: Response) -> None:
    given = req.input or {}
    await asyncio.sleep(given.get("seconds", 0))
    rsp.context["version"] = "VERSION"
    rsp.context["pid"] = os.getpid()
    rsp.context["environment"] = {name: os.environ.get(name, "") for name in given.get("environment", ())}
    rsp.context["arguments"] = sys.argv[1:]
    rsp.context["files"] = {path: Path(path).exists() for path in given.get("files", ())}


serve(who, [each for each in sys.argv[1:] if not each.startswith("--own-")])
'''


def server_payload(directory: Path, version: str = "v1", *, source: str = SERVER) -> Executable:
    """A package's files, unpacked: a function in Python."""
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "main.py").write_text(source.replace("VERSION", version))
    return Executable(Way.PROCESS, directory, ("python", str(directory / "main.py")))


def oneshot_payload(directory: Path, script: str) -> Executable:
    """A program that is run for each call; `request` is what it was sent."""
    directory.mkdir(parents=True, exist_ok=True)
    program = directory / "run"
    program.write_text(f"#!{sys.executable}\nimport json, os, sys\nrequest = json.load(sys.stdin)\n{script}\n")
    program.chmod(0o755)
    return Executable(Way.ONESHOT, directory, ("./run",))


class HostEndpoints:
    """Where the host's revisions serve."""

    def __init__(self, host: RuntimeHost) -> None:
        self._host = host

    def endpoint(self, revision: FunctionRevision, /) -> Endpoint | None:
        return self._host.remote(revision.name)


@dataclass(frozen=True)
class Hosting:
    """A host, and calls of what it runs."""

    host: RuntimeHost
    run: FunctionRunner
    data: Path
    certificates: RevisionCertificates

    def want(self, revision: str, payload: Executable, **settings: Any) -> Wanted:
        wanted = Wanted("fn", revision, f"uid-of-{revision}", payload, RuntimeSettings(**settings))
        self.host.ensure(wanted)
        return wanted

    async def ready(self, revision: str, *, seconds: float = PATIENCE_SECONDS) -> RuntimeStatus:
        async def check() -> RuntimeStatus | None:
            runtime_status = self.host.runtime_status(revision)
            return runtime_status if runtime_status is not None and runtime_status.ready else None

        return await eventually(check, f"{revision} serves: {self.host.runtime_status(revision)}", seconds=seconds)

    async def spare(self, revision: str) -> int:
        """Wait until a spare process is there beside the one that serves; gives its leader."""

        async def check() -> int | None:
            return self.host.spare_pid(revision) if self.host.pids(revision) else None

        return await eventually(check, f"{revision} has a spare process")

    async def gone(self, revision: str) -> None:
        async def check() -> bool:
            return self.host.runtime_status(revision) is None

        await eventually(check, f"{revision} has stopped")

    async def call(self, revision: str, *, timeout: float = 20.0, **given: Any) -> Mapping[str, Any]:
        return (await self.ask(revision, FunctionRequest(tag="t", input=given), timeout=timeout)).context

    async def ask(self, revision: str, request: FunctionRequest, *, timeout: float = 20.0) -> FunctionResponse:
        return await self.run.run(FunctionRevision("fn", revision, revision), request, timeout=timeout)


@asynccontextmanager
async def open_hosting(
    data: Path,
    *,
    clock: Clock | None = None,
    draining: Draining = Draining(quiet=0.2, max_seconds=20.0),  # noqa: B008  # frozen
    spares: Spares | None = Spares(),  # noqa: B008  # frozen
    limits: CallLimits = CallLimits(),  # noqa: B008  # frozen
    metrics: MetricsRegistry | None = None,
) -> AsyncIterator[Hosting]:
    clock = clock or SystemClock()
    certificates = RevisionCertificates(Pki(data / "pki", clock=clock), data / "certificates", clock=clock)
    async with (
        RuntimeHost(data, certificates, clock=clock, draining=draining, spares=spares) as host,
        GrpcRunner(HostEndpoints(host), limits=limits, metrics=metrics) as remote,
    ):
        yield Hosting(host, host.runner(remote), data, certificates)
