"""Everything it takes to install packages and run them, on this machine or in a cluster, put together.

A control plane without a directory of its own has none of it: there, only functions that ship with planform, or that
somebody else runs, can be installed.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from planform.api.annotations import annotations_of
from planform.api.conditions import condition_status
from planform.api.extensions.packages import RevisionSpec
from planform.api.metadata import name_of
from planform.api.names import FUNCTION_REVISION
from planform.api.objects import spec_of
from planform.client.waits import time_limit
from planform.errors import NotFound
from planform.packages.configurations import ConfigurationController
from planform.packages.contents import PackageContents
from planform.packages.deliveries import Deliveries
from planform.packages.fetching import RegistryPackages
from planform.packages.function_controller import Packaging
from planform.packages.locking import LockController
from planform.packages.protection import ProviderProtection
from planform.packages.providers import ProviderController
from planform.packages.revision_objects import DIGEST_ANNOTATION
from planform.packages.runtimes.certificates import Authority, RevisionCertificates
from planform.packages.runtimes.host import RuntimeHost
from planform.packages.runtimes.kubernetes import ClusterRuntime, KubernetesHost
from planform.packages.sweeping import PackageSweep
from planform.reconcile.context import ControllerContext

PATIENCE: Final = 10.0
"""Seconds that a start waits for functions that ran before: XRs shall not fail because their functions start too."""
_GLANCE: Final = 0.02


@asynccontextmanager
async def open_packaging(context: ControllerContext, data: Path, authority: Authority) -> AsyncIterator[Packaging]:
    """What pulls packages and runs them, until the block ends; then all that it runs has ended."""
    certificates = RevisionCertificates(authority, data / "certificates", clock=context.clock)
    source = RegistryPackages(data / "packages", context.client, clock=context.clock, rng=context.rng)
    contents = PackageContents(source, context.client, Deliveries(context.manager, context.clock))
    contents.dependencies = lock = LockController(context, contents)
    async with RuntimeHost(data, certificates, clock=context.clock) as host:
        yield Packaging(contents, host, lock)


@asynccontextmanager
async def open_cluster_packaging(
    context: ControllerContext, data: Path, runtime: ClusterRuntime
) -> AsyncIterator[Packaging]:
    """What pulls packages and has the cluster run them, until the block ends; what runs then goes on.

    Functions can be called as soon as it is open. Nothing is written before `start_packages`.
    """
    source = RegistryPackages(
        data / "packages",
        context.client,
        clock=context.clock,
        rng=context.rng,
        namespace=runtime.namespace,
        unpacks=False,
    )
    contents = PackageContents(source, context.client, Deliveries(context.manager, context.clock))
    contents.dependencies = lock = LockController(context, contents)
    async with KubernetesHost(context.client, context.manager, runtime, clock=context.clock, rng=context.rng) as host:
        yield Packaging(contents, host, lock)


def start_packages(
    context: ControllerContext,
    packaging: Packaging,
    authority: Authority | None,
    data: Path,
    server: Callable[[], str] | None,
) -> None:
    """Start the controllers of packages other than Functions, and of the Lock.

    `server` is the URL at which providers find the control plane, empty until it listens; None if they cannot.
    """
    assert packaging.lock is not None  # `open_packaging` made it
    if isinstance(packaging.host, KubernetesHost):
        packaging.host.start(context.controller)
    ConfigurationController(context, packaging.contents, packaging.lock).start()
    ProviderController(context, packaging, authority, data, server).start()
    packaging.lock.start()
    ProviderProtection(context).start()
    PackageSweep(context, packaging.contents.source, packaging.host, data).start()


async def settled(context: ControllerContext, packaging: Packaging) -> None:
    """Wait until every function that should run does, or says why not; at most `PATIENCE` seconds."""
    revisions = (await context.client.list(FUNCTION_REVISION)).items
    waiting = {
        name_of(each)
        for each in revisions
        if spec_of(each, RevisionSpec).is_active and DIGEST_ANNOTATION in annotations_of(each)
    }
    try:
        async with time_limit(context.clock, PATIENCE):
            for name in sorted(waiting):
                while await _is_starting(context, packaging, name):
                    await context.clock.sleep(_GLANCE)
    except TimeoutError:
        pass  # what does not start in time says so itself


async def _is_starting(context: ControllerContext, packaging: Packaging, revision: str) -> bool:
    runtime_status = packaging.host.runtime_status(revision)
    if runtime_status is not None:
        return not runtime_status.ready and not runtime_status.failed
    try:
        found = await context.client.get(FUNCTION_REVISION, revision)
    except NotFound:
        return False
    is_active = spec_of(found, RevisionSpec).is_active
    return is_active and condition_status(found, "RevisionHealthy") != "False"  # or its package is not to be had
