"""Everything it takes to install packages and run them, on this machine or in a cluster, put together.

A control plane without a directory of its own has none of it: there, only functions that ship with planform, or that
somebody else runs, can be installed.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from planform.api.names import FUNCTION_REVISION
from planform.client.waits import time_limit
from planform.controllers.functions import Packaging
from planform.controllers.packages.configurations import ConfigurationController
from planform.controllers.packages.contents import PackageContents
from planform.controllers.packages.deliveries import Deliveries
from planform.controllers.packages.locking import LockController
from planform.controllers.packages.protection import ProviderProtection
from planform.controllers.packages.providers import ProviderController
from planform.controllers.packages.sweeping import PackageSweep
from planform.controllers.workbench import Workbench
from planform.errors import NotFound
from planform.packages.fetching import RegistryPackages
from planform.packages.revision_objects import ACTIVE, DIGEST_ANNOTATION, annotations_of, condition_status
from planform.packages.runtimes.certificates import Authority, RevisionCertificates
from planform.packages.runtimes.host import RuntimeHost
from planform.packages.runtimes.kubernetes import ClusterRuntime, KubernetesHost

PATIENCE: Final = 10.0
"""Seconds that a start waits for functions that ran before: XRs shall not fail because their functions start too."""
_GLANCE: Final = 0.02


@asynccontextmanager
async def open_packaging(bench: Workbench, data: Path, authority: Authority) -> AsyncIterator[Packaging]:
    """What pulls packages and runs them, until the block ends; then all that it runs has ended."""
    certificates = RevisionCertificates(authority, data / "certificates", clock=bench.clock)
    source = RegistryPackages(data / "packages", bench.client, clock=bench.clock, rng=bench.rng)
    contents = PackageContents(source, bench.client, Deliveries(bench.plane, bench.clock))
    contents.dependencies = lock = LockController(bench, contents)
    async with RuntimeHost(data, certificates, clock=bench.clock) as host:
        yield Packaging(contents, host, lock)


@asynccontextmanager
async def open_cluster_packaging(bench: Workbench, data: Path, runtime: ClusterRuntime) -> AsyncIterator[Packaging]:
    """What pulls packages and has the cluster run them, until the block ends; what runs then goes on.

    Functions can be called as soon as it is open. Nothing is written before `start_packages`.
    """
    source = RegistryPackages(
        data / "packages",
        bench.client,
        clock=bench.clock,
        rng=bench.rng,
        namespace=runtime.namespace,
        unpacks=False,
    )
    contents = PackageContents(source, bench.client, Deliveries(bench.plane, bench.clock))
    contents.dependencies = lock = LockController(bench, contents)
    async with KubernetesHost(bench.client, bench.plane, runtime, clock=bench.clock, rng=bench.rng) as host:
        yield Packaging(contents, host, lock)


def start_packages(
    bench: Workbench, packaging: Packaging, authority: Authority | None, data: Path, server: Callable[[], str] | None
) -> None:
    """Start the controllers of packages other than Functions, and of the Lock.

    `server` is the URL at which providers find the control plane, empty until it listens; None if they cannot.
    """
    assert packaging.lock is not None  # `open_packaging` made it
    if isinstance(packaging.host, KubernetesHost):
        packaging.host.start(bench.controller)
    ConfigurationController(bench, packaging.contents, packaging.lock).start()
    ProviderController(bench, packaging, authority, data, server).start()
    packaging.lock.start()
    ProviderProtection(bench).start()
    PackageSweep(bench, packaging.contents.source, packaging.host, data).start()


async def settled(bench: Workbench, packaging: Packaging) -> None:
    """Wait until every function that should run does, or says why not; at most `PATIENCE` seconds."""
    revisions = (await bench.client.list(FUNCTION_REVISION)).items
    waiting = {
        str(each["metadata"]["name"])
        for each in revisions
        if each["spec"]["desiredState"] == ACTIVE and DIGEST_ANNOTATION in annotations_of(each)
    }
    try:
        async with time_limit(bench.clock, PATIENCE):
            for name in sorted(waiting):
                while await _is_starting(bench, packaging, name):
                    await bench.clock.sleep(_GLANCE)
    except TimeoutError:
        pass  # what does not start in time says so itself


async def _is_starting(bench: Workbench, packaging: Packaging, revision: str) -> bool:
    standing = packaging.host.standing(revision)
    if standing is not None:
        return not standing.ready and "ends by itself" not in standing.problem
    try:
        found = await bench.client.get(FUNCTION_REVISION, revision)
    except NotFound:
        return False
    is_active = found["spec"]["desiredState"] == ACTIVE
    return is_active and condition_status(found, "RevisionHealthy") != "False"  # or its package is not to be had
