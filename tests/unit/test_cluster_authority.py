"""The authority that replicas of a control plane share through Secrets."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta

import pytest

from planform.api.names import SECRET
from planform.apiserver.engine import open_engine
from planform.apiserver.local import LocalClient
from planform.client.protocol import Client
from planform.clock import VirtualClock
from planform.packages.runtimes.certificates import LIFETIME, RENEW_BEFORE
from planform.packages.runtimes.cluster_authority import (
    CLIENT_SECRET,
    ROOT_SECRET,
    AuthorityUnusable,
    ClusterAuthority,
    client_tls,
    describe,
)
from planform.store import open_store

NAMES = ("fn", "fn.system", "fn.system.svc")


@asynccontextmanager
async def open_client() -> AsyncIterator[tuple[Client, VirtualClock]]:
    clock = VirtualClock()
    async with await open_store(None, clock=clock) as store:
        client = LocalClient(open_engine(store, clock))
        await client.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "system"}})
        yield client, clock


def authority_of(client: Client, clock: VirtualClock) -> ClusterAuthority:
    return ClusterAuthority(client, clock=clock, namespace="system", manager="test")


async def test_replicas_that_start_at_once_have_one_authority() -> None:
    async with open_client() as (client, clock):
        replicas = [authority_of(client, clock) for _ in range(3)]
        issued = await asyncio.gather(*(each.issue_server(NAMES) for each in replicas))
        assert len({each["ca.crt"] for each in issued}) == 1
        for replica in replicas:
            assert [await replica.is_current(each, NAMES) for each in issued] == [True] * 3


async def test_a_certificate_is_replaced_before_it_ends_or_when_names_or_authority_are_others() -> None:
    async with open_client() as (client, clock):
        authority = authority_of(client, clock)
        issued = await authority.issue_server(NAMES)
        described = describe(issued)
        assert described is not None
        assert described.names == frozenset(NAMES)
        assert await authority.is_current(issued, NAMES)
        assert not await authority.is_current(issued, ("other",))
        assert not await authority.is_current({}, NAMES)
        assert not await authority.is_current({**issued, "tls.crt": "bm90aGluZw=="}, NAMES)
        await client.delete(SECRET, ROOT_SECRET, namespace="system")
        assert not await authority_of(client, clock).is_current(issued, NAMES)
        await clock.advance((LIFETIME - RENEW_BEFORE + timedelta(minutes=1)).total_seconds())
        assert not await authority.is_current(issued, NAMES)


async def test_the_secret_of_the_caller_is_made_filled_or_renewed_and_else_left_alone() -> None:
    async with open_client() as (client, clock):
        authority = authority_of(client, clock)
        empty = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": CLIENT_SECRET, "namespace": "system"}}
        await client.create(empty)
        due = await authority.ensure_caller(None)
        filled = await client.get(SECRET, CLIENT_SECRET, namespace="system")
        assert client_tls(filled["data"]) is not None
        assert due == clock.now().replace(microsecond=0) + LIFETIME - RENEW_BEFORE
        assert await authority.ensure_caller(filled) == due
        assert await authority.ensure_caller(None) == due, "another replica has just made it"
        assert await client.get(SECRET, CLIENT_SECRET, namespace="system") == filled
        await clock.advance((LIFETIME - RENEW_BEFORE + timedelta(minutes=1)).total_seconds())
        assert await authority.ensure_caller(filled) > due
        assert await client.get(SECRET, CLIENT_SECRET, namespace="system") != filled


async def test_a_secret_that_is_no_authority_is_refused() -> None:
    async with open_client() as (client, clock):
        about = {"name": ROOT_SECRET, "namespace": "system"}
        data = {"tls.crt": "bm90aGluZw==", "tls.key": "bm90aGluZw=="}
        await client.create({"apiVersion": "v1", "kind": "Secret", "metadata": about, "data": data})
        with pytest.raises(AuthorityUnusable, match="system/planform-root-ca is no authority"):
            await authority_of(client, clock).issue_client("somebody")
