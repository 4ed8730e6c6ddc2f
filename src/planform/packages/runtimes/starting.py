"""From what is wanted to the processes that will serve it: their ports, how each is launched, how it is known to work.

A function that runs as one process gets a second place beside it, where a spare one waits while the function is called.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from planform.apiserver.auth.private_files import make_private_directory
from planform.clock import Clock
from planform.functions.endpoints import Remote
from planform.packages.runtimes.certificates import RevisionCertificates
from planform.packages.runtimes.containers import container_launch
from planform.packages.runtimes.executables import NotRunnable
from planform.packages.runtimes.held import HeldPort, HeldSocket, target_of
from planform.packages.runtimes.launching import Launch, Wanted, process_launch, provider_launch, why_no_network
from planform.packages.runtimes.logs import Logs
from planform.packages.runtimes.servers import Replica, Servers, Spare, Spares, until_serving
from planform.sandbox import SandboxUnavailable
from planform.sandbox.isolation import ready_isolation

_STAYS: Final = 3.0


@dataclass(frozen=True, slots=True)
class Starter:
    """Makes the processes of revisions, which their owner starts. `hidden` is the control plane's data."""

    certificates: RevisionCertificates
    logs: Logs
    hidden: Path
    clock: Clock
    spares: Spares | None

    async def servers(self, wanted: Wanted, directory: Path, on_change: Callable[[], None]) -> Servers:
        """All that serve this revision. `directory` is its own; `on_change` hears of each that answers or ends.

        Raises NotRunnable.
        """
        has_own_root = await self._has_own_root(wanted)
        caller = await asyncio.to_thread(self.certificates.caller)
        count = wanted.settings.replicas
        has_spare = self.spares is not None and count == 1 and wanted.kubeconfig is None
        with ExitStack() as held:
            ports: list[HeldPort | HeldSocket] = []
            if has_own_root and why_no_network(wanted):
                # Several processes take connections from one socket: there is no round robin over paths.
                shared = HeldSocket()
                ports += [shared] * count
                ports += [HeldSocket()] if has_spare else []
            else:
                ports += [HeldPort() for _ in range(count + has_spare)]
            for port in set(ports):
                held.callback(port.close)
            replicas = [
                Replica(
                    self._launch(wanted, port, directory),
                    clock=self.clock,
                    answers=partial(self._answers, wanted, Remote(port.target, caller, wanted.revision)),
                    note=self.logs.writer(wanted.revision, str(number) if count > 1 or number else ""),
                    on_change=on_change,
                )
                for number, port in enumerate(ports)
            ]
            spare = None
            if has_spare and self.spares is not None:
                spare = Spare(replicas.pop(), ports.pop().target, self.spares)
            numbers = [port.number for port in ports if isinstance(port, HeldPort)]
            remote = Remote(target_of(numbers) if numbers or not ports else ports[0].target, caller, wanted.revision)
            return Servers(held.pop_all(), replicas, remote, clock=self.clock, spare=spare)

    async def _has_own_root(self, wanted: Wanted) -> bool:
        """Whether it is a process with a root of its own. Raises NotRunnable where processes are refused."""
        if wanted.executable.way.is_container:
            return False
        try:
            return (await ready_isolation()).has_own_root
        except SandboxUnavailable as error:
            raise NotRunnable(f"it is refused: {error}; {error.hint}") from error

    def _launch(self, wanted: Wanted, held: HeldPort | HeldSocket, directory: Path) -> Launch:
        port = held.number
        certificates = self.certificates.directory_of(wanted.revision)
        if wanted.executable.way.is_container:
            return container_launch(wanted, port=port, certificates=certificates, directory=directory, replica=port)
        if wanted.kubeconfig is not None:
            return provider_launch(wanted, port=port, certificates=certificates, hidden=self.hidden)
        make_private_directory(directory / "cache")
        return process_launch(
            wanted,
            port=port,
            certificates=certificates,
            cache=directory / "cache",
            hidden=self.hidden,
            listening=held.listening,
        )

    def _answers(self, wanted: Wanted, remote: Remote) -> asyncio.Task[None]:
        """Ends when the process is known to work: a function answers; of a provider one sees that it stays."""
        if wanted.kubeconfig is not None:
            return asyncio.create_task(self.clock.sleep(_STAYS))
        return asyncio.create_task(until_serving(remote, self.clock))
