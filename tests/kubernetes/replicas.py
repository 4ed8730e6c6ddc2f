"""`planform controllers` as users run it: processes on a real API server, by a way to it that can be cut."""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from random import Random

from planform.api.kinds import Object
from planform.api.names import XRD
from planform.client.kubeconfig import find_connection, write_kubeconfig
from planform.client.kubernetes import KubernetesClient
from planform.client.protocol import Client
from planform.clock import SystemClock
from planform.errors import NotFound
from planform.reconcile.election import LEASE
from tests.harness.contexts import eventually, read
from tests.harness.kubernetes import RealKubernetes
from tests.harness.processes import Child, running

PLANFORM = Path(sys.executable).with_name("planform")
NAMESPACE = "planform-system"
LEADER = "planform-controllers"


@contextmanager
def replica(
    cluster: RealKubernetes, identity: str, *options: str, directory: Path, port: int | None = None
) -> Iterator[Child]:
    """One replica; `port` is that of a way to the API server other than the direct one."""
    kubeconfig = cluster.kubeconfig
    if port is not None:
        kubeconfig = directory / f"{identity}.kubeconfig"
        ca = cluster.ca_file.read_bytes()
        write_kubeconfig(kubeconfig, name="way", server=f"https://127.0.0.1:{port}", ca=ca, token=cluster.token)
    command = [str(PLANFORM), "controllers", "--kubeconfig", str(kubeconfig), "--identity", identity]
    command += ["--listen", "127.0.0.1:0", *options]
    with running(command, directory / f"{identity}.log", name=identity) as child:
        yield child


@asynccontextmanager
async def connected(cluster: RealKubernetes) -> AsyncIterator[KubernetesClient]:
    """The test's own way in, as somebody who is no replica."""
    clock = SystemClock()
    connection = find_connection(clock=clock, path=cluster.kubeconfig)
    async with KubernetesClient(connection, clock=clock, rng=Random(os.getpid()), user_agent="test") as client:
        yield client


async def lease(client: Client, name: str = LEADER) -> Object:
    """What a Lease says; empty if there is none."""
    try:
        found = await client.get(LEASE, name, namespace=NAMESPACE)
    except NotFound:
        return {}
    spec: Object = found["spec"]
    return spec


async def until_held(client: Client, *holders: str, name: str = LEADER) -> str:
    """Wait until one of these holds the Lease; gives which."""

    async def held() -> str | None:
        holder = str((await lease(client, name)).get("holderIdentity") or "")
        return holder if holder in holders else None

    return await eventually(held, f"one of {', '.join(holders)} holds {name}")


async def until_says(child: Child, words: str) -> None:
    """Wait until a replica has said something."""

    async def said() -> bool:
        assert not child.has_ended(), child.output_tail()
        return words in child.output()

    await eventually(said, f"{child.name} says {words!r}")


async def until_any_says(children: Sequence[Child], words: str) -> None:
    """Wait until one of these replicas has said something."""

    async def said() -> bool:
        return any(words in child.output() for child in children)

    await eventually(said, f"one of {', '.join(child.name for child in children)} says {words!r}")


async def until_works(child: Child) -> None:
    """Wait until a replica runs all controllers."""
    await until_says(child, "all controllers run")


async def withdraw(client: Client, xrd: str) -> None:
    """Take an API back with all its XRs, so that later replicas do not have to look at them; one must be at work."""
    await client.delete(XRD, xrd)

    async def gone() -> bool:
        return await read(client, XRD, xrd) is None

    await eventually(gone, f"{xrd} is gone", seconds=150)
