"""Two replicas that share the XRs: each XR has one owner at a time, and a shard changes its owner safely."""

from __future__ import annotations

import asyncio
from itertools import groupby
from pathlib import Path

import pytest

from planform.api.kinds import Object
from planform.client.protocol import Client
from planform.cluster.running import shard_lease
from planform.reconcile.shards import shard_of
from tests.controllers.composing import Platform, config_map, templates
from tests.harness.auditing import Write
from tests.kubernetes.conftest import Audited
from tests.kubernetes.replicas import connected, replica, until_any_says, until_held, until_says, withdraw

pytestmark = [pytest.mark.kubernetes, pytest.mark.xdist_group("kubernetes"), pytest.mark.timeout(280)]

TERMS = ("--lease-duration", "6s")


async def test_every_xr_has_one_owner(audited: Audited, unique: str, tmp_path: Path) -> None:
    mark = audited.audit.mark()
    zero, one = f"zero-{unique}", f"one-{unique}"
    async with connected(audited.cluster) as client:
        platform = Platform(client, unique)
        with (
            replica(audited.cluster, zero, *TERMS, "--shards", "0/2", directory=tmp_path) as first,
            replica(audited.cluster, one, *TERMS, "--shards", "1/2", directory=tmp_path) as second,
        ):
            await until_owners(client, zero, one)
            await until_any_says((first, second), "all controllers run")
            await platform.define()
            await platform.compose(templates(config_map("a"), config_map("b")))
            await make(platform, 0, 16)
            writes = of_xrs(audited.audit.work(mark), platform)
            owners = {
                name: {write.replica for write in writes if name_of(write) == name} for name in map(name_of, writes)
            }
            assert owners == {name: {(zero, one)[shard]} for name, shard in shards_of(platform, 0, 16).items()}
            await withdraw(client, f"apps.{platform.group}")


@pytest.mark.long
async def test_every_xr_has_one_owner_also_when_a_replica_dies_and_comes_back(
    audited: Audited, unique: str, tmp_path: Path
) -> None:
    mark = audited.audit.mark()
    zero, one, again = f"zero-{unique}", f"one-{unique}", f"again-{unique}"
    async with connected(audited.cluster) as client:
        platform = Platform(client, unique)
        with replica(audited.cluster, zero, *TERMS, "--shards", "0/2", directory=tmp_path) as first:
            await until_says(first, "all controllers run")
            with replica(audited.cluster, one, *TERMS, "--shards", "1/2", directory=tmp_path) as second:
                await until_owners(client, zero, one)
                await platform.define()
                await platform.compose(templates(config_map("a"), config_map("b")))
                await make(platform, 0, 16)
                owners = {name_of(write): write.replica for write in of_xrs(audited.audit.work(mark), platform)}
                assert owners == {name: (zero, one)[shard] for name, shard in shards_of(platform, 0, 16).items()}
                second.process.kill()
            await until_owners(client, zero, zero)
            await make(platform, 16, 24)
            with replica(audited.cluster, again, *TERMS, "--shards", "1/2", directory=tmp_path) as third:
                await until_owners(client, zero, again)
                await until_says(first, "gives up shard 1")
                await make(platform, 24, 32)
                third.process.terminate()
                await asyncio.to_thread(third.process.wait, 60)
                assert third.process.returncode == 0, third.output_tail()
    writes = of_xrs(audited.audit.work(mark), platform)
    for name, of_one in groupby(sorted(writes, key=lambda each: (name_of(each), each.received)), key=name_of):
        turns = [identity for identity, _ in groupby(write.replica for write in of_one)]
        assert len(turns) == len(set(turns)), f"{name} went back and forth: {turns}"
    late = {name_of(write): write.replica for write in writes if name_of(write) in shards_of(platform, 24, 32)}
    assert late == {name: (zero, again)[shard] for name, shard in shards_of(platform, 24, 32).items()}


async def make(platform: Platform, begin: int, end: int) -> None:
    """Create XRs and wait until all of them are ready."""
    made = await asyncio.gather(*(platform.create(f"x{number}") for number in range(begin, end)))
    await asyncio.gather(*(platform.ready(xr) for xr in made))


def shards_of(platform: Platform, begin: int, end: int) -> dict[str, int]:
    """Which shard each XR belongs to, as anybody can work out."""
    names = (f"x{number}-{platform.unique}" for number in range(begin, end))
    return {name: shard_of(f"composite/apps.{platform.group} default/{name}", 2) for name in names}


async def until_owners(client: Client, *holders: str) -> None:
    for shard, holder in enumerate(holders):
        await until_held(client, holder, name=shard_lease(shard, len(holders)))


def of_xrs(work: list[Write], platform: Platform) -> list[Write]:
    """What was written to XRs and to what they compose, by whoever did."""
    return [write for write in work if name_of(write).endswith(platform.unique) and name_of(write).startswith("x")]


def name_of(write: Write) -> str:
    """The XR that a write is about: itself, or the owner of what is composed."""
    if write.resource.startswith("apps."):
        return write.name
    request: Object = write.request if isinstance(write.request, dict) else {}
    labels = (request.get("metadata") or {}).get("labels") or {}
    return str(labels.get("crossplane.io/composite") or "")
