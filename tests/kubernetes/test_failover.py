"""Two replicas as processes under load; the one that leads is killed or cut off, and the audit log is the judge."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack, asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from planform.api.kinds import Object
from planform.client.protocol import Client
from tests.controllers.composing import CONFIG_MAP, Platform, config_map, templates
from tests.harness.auditing import Write, counted
from tests.harness.contexts import condition_of, eventually
from tests.harness.cut_network import cut_network
from tests.harness.processes import Child
from tests.kubernetes.conftest import Audited
from tests.kubernetes.replicas import connected, lease, replica, until_held, until_works, withdraw

pytestmark = [pytest.mark.kubernetes, pytest.mark.xdist_group("kubernetes"), pytest.mark.timeout(280)]

COMPOSED = ("a", "b", "c", "d")


@pytest.mark.parametrize(
    ("lease_seconds", "xrs"), [(6, 20), pytest.param(10, 150, marks=pytest.mark.long)], ids=["short", "long"]
)
async def test_work_goes_on_when_the_leader_is_killed(
    audited: Audited,
    unique: str,
    tmp_path: Path,
    lease_seconds: int,
    xrs: int,
    record_property: Callable[[str, object], None],
) -> None:
    mark = audited.audit.mark()
    terms = ("--lease-duration", f"{lease_seconds}s")
    async with connected(audited.cluster) as client:
        with ExitStack() as stack:
            children = {
                name: stack.enter_context(replica(audited.cluster, f"{name}-{unique}", *terms, directory=tmp_path))
                for name in ("one", "two")
            }
            holder = await until_held(client, *(f"{name}-{unique}" for name in children))
            victim = children[holder.partition("-")[0]]
            await until_works(victim)
            async with creating(client, unique, xrs) as created:
                await eventually(created.half, "half of the XRs are created")
                victim.process.kill()
                killed = datetime.now(UTC)
            await until_all_ready(created, xrs)
            await until_held(client, *(f"{name}-{unique}" for name, child in children.items() if child is not victim))
            work = audited.audit.work(mark)
            resumed = min(write.received for write in work if write.replica != holder) - killed
            record_property("seconds until another replica worked", round(resumed.total_seconds(), 1))
            if lease_seconds == 10:
                assert resumed <= timedelta(seconds=15)
            await is_whole(created, xrs, work)
            await withdraw(client, f"apps.{created.platform.group}")


@pytest.mark.parametrize(
    ("lease_seconds", "request_seconds", "cut_seconds", "xrs"),
    [(6, 3, 12, 20), pytest.param(10, 10, 30, 150, marks=pytest.mark.long)],
    ids=["short", "long"],
)
async def test_a_leader_that_is_cut_off_writes_nothing_once_another_may_lead(
    audited: Audited, unique: str, tmp_path: Path, lease_seconds: int, request_seconds: int, cut_seconds: int, xrs: int
) -> None:
    mark = audited.audit.mark()
    terms = ("--lease-duration", f"{lease_seconds}s", "--request-timeout", f"{request_seconds}s")
    address = urlsplit(audited.cluster.url)
    async with (
        connected(audited.cluster) as client,
        cut_network(address.hostname or "", address.port or 0) as network,
    ):
        old, new = f"old-{unique}", f"new-{unique}"
        with replica(audited.cluster, old, *terms, directory=tmp_path, port=network.port) as cut_off:
            await until_works(cut_off)
            with replica(audited.cluster, new, *terms, directory=tmp_path):
                async with creating(client, unique, xrs) as created:
                    await eventually(created.half, "half of the XRs are created")
                    network.cut()
                    ended = asyncio.get_running_loop().time() + cut_seconds
                    await until_held(client, new)
                await until_all_ready(created, xrs)

                async def over() -> bool:
                    return asyncio.get_running_loop().time() >= ended

                await eventually(over, "the network has been cut long enough")
                network.mend()

                async def stopped() -> bool:
                    return cut_off.has_ended()

                await eventually(stopped, "the replica that lost its Lease ends")
                assert "lost the lease" in cut_off.output()
                writes = audited.audit.writes(mark)
                expired = expiry_of(writes, old)
                last = max(write.received for write in writes if write.replica == old and not write.is_bookkeeping)
                assert last <= expired + timedelta(seconds=request_seconds)
                first = min(write.received for write in writes if write.replica == new and write.is_bookkeeping)
                assert expired <= first or last <= first, "two replicas led at once"
                await is_whole(created, xrs, audited.audit.work(mark))
                await withdraw(client, f"apps.{created.platform.group}")


async def test_a_leader_that_is_told_to_stop_hands_over_at_once(audited: Audited, unique: str, tmp_path: Path) -> None:
    terms = ("--lease-duration", "60s")  # nobody waits for it to expire
    async with connected(audited.cluster) as client:
        old, new = f"old-{unique}", f"new-{unique}"
        with replica(audited.cluster, old, *terms, directory=tmp_path) as leader:
            await until_works(leader)
            with replica(audited.cluster, new, "--lease-duration", "4s", directory=tmp_path) as next_leader:
                leader.process.terminate()
                await until_held(client, new)
                await has_stopped(leader)
                next_leader.process.terminate()  # also while it is only starting to work
                await has_stopped(next_leader)
        assert not (await lease(client)).get("holderIdentity")


async def has_stopped(child: Child) -> None:
    """Wait until a replica has ended as it was asked to, without having to give up on anything in hand."""

    async def ended() -> bool:
        return child.has_ended()

    await eventually(ended, f"{child.name} stops: {child.output_tail()}")
    assert child.process.returncode == 0, child.output_tail()
    assert "cancelling the reconciles" not in child.output()


class Created:
    """XRs that are being created one after the other, whatever happens to the replicas."""

    def __init__(self, platform: Platform, wanted: int) -> None:
        self.platform = platform
        self.wanted = wanted
        self.xrs: list[Object] = []

    async def run(self) -> None:
        for number in range(self.wanted):
            self.xrs.append(await self.platform.create(f"x{number}"))
            await asyncio.sleep(0.02)

    async def half(self) -> bool:
        return len(self.xrs) >= self.wanted // 2


@asynccontextmanager
async def creating(client: Client, unique: str, wanted: int) -> AsyncIterator[Created]:
    """An API of the test's own whose XRs are created while the block runs; all of them at its end."""
    platform = Platform(client, unique)
    await platform.define()
    await platform.compose(templates(*(config_map(key, x="1") for key in COMPOSED)))
    created = Created(platform, wanted)
    load = asyncio.create_task(created.run())
    try:
        yield created
        await load
    finally:
        load.cancel()


async def until_all_ready(created: Created, wanted: int) -> None:
    async def ready() -> bool:
        found = (await created.platform.client.list(created.platform.kind)).items
        return len([xr for xr in found if (condition_of(xr, "Ready") or {}).get("status") == "True"]) == wanted

    await eventually(ready, f"all {wanted} XRs are ready", seconds=150)


async def is_whole(created: Created, wanted: int, work: list[Write]) -> None:
    """Nothing is lost, nothing is there twice, and nothing was written blindly."""
    client = created.platform.client
    names = {xr["metadata"]["name"] for xr in created.xrs}
    found = Counter[tuple[str, str]]()
    for each in (await client.list(CONFIG_MAP, namespace="default")).items:
        owner = str((each["metadata"].get("labels") or {}).get("crossplane.io/composite"))
        if owner in names:
            found[owner, each["metadata"]["annotations"]["crossplane.io/composition-resource-name"]] += 1
    assert found == Counter({(name, key): 1 for name in names for key in COMPOSED})
    made = Counter((write.resource, write.namespace, write.name) for write in work if write.code == 201)
    assert not {what: times for what, times in made.items() if times > 1}
    # Of a write that was cut off with its process the log does not say whether it was to make the object.
    blind = [write for write in work if not write.is_guarded and write.code != 504]
    assert not counted(blind)


def expiry_of(writes: list[Write], holder: str) -> datetime:
    """When the Lease expired, counted from its holder's last renewal as the server received it."""
    renewals = [
        write
        for write in writes
        if write.resource.startswith("leases.") and write.replica == holder and write.code < 300
    ]
    last = max(renewals, key=lambda write: write.received)
    return last.received + timedelta(seconds=last.request["spec"]["leaseDurationSeconds"])
