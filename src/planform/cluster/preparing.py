"""What a cluster needs before the first replica starts: our kinds, and the certificates that replicas share.

The controllers see to all of this themselves, for as long as they run. Done once before them, as by an init container,
a replica that cannot start says why where an installer looks, and every replica finds the Secrets filled.
"""

from __future__ import annotations

from planform.api.names import SECRET
from planform.client.wire import Limits
from planform.clock import SystemClock
from planform.cluster.running import ClusterSettings, Report, ensure_namespace
from planform.cluster.takeover import require_sole_control
from planform.definitions.own_crds import ensure_crds
from planform.engine.nop_kinds import groups_left_out
from planform.errors import NotFound
from planform.packages.runtimes.cluster_authority import CLIENT_SECRET, ClusterAuthority
from planform.packages.runtimes.kubernetes import MANAGER


async def prepare(settings: ClusterSettings, *, report: Report = lambda _: None) -> None:
    """Have all of it there; nothing is written if it is. Any number of processes may do so at once."""
    clock = SystemClock()
    async with settings.client(Limits(request_seconds=settings.request_seconds)) as client:
        await ensure_namespace(client, settings.namespace)
        await require_sole_control(client, take_over=settings.take_over, clock=clock)
        written = await ensure_crds(client, clock=clock, without=await groups_left_out(client, settings.features))
        report(f"kinds: all served ({written} written)")
        if settings.function_runtime != "kubernetes":
            return
        authority = ClusterAuthority(client, clock=clock, namespace=settings.namespace, manager=MANAGER)
        try:
            present = await client.get(SECRET, CLIENT_SECRET, namespace=settings.namespace)
        except NotFound:
            present = None
        due = await authority.ensure_caller(present)
        report(f"Secret {settings.namespace}/{CLIENT_SECRET}: good until it is renewed, by {due:%Y-%m-%d}")
