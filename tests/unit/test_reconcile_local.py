"""The controller machinery on the embedded engine, with a real store and real time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random

import pytest

from planform.api.kinds import GVK, Object
from planform.apiserver.engine import open_engine
from planform.apiserver.local import LocalClient
from planform.client.informer import ObjectKey
from planform.clock import SystemClock
from planform.errors import NotFound
from planform.reconcile.controller import Controller, Result
from planform.reconcile.election import LEASE, Election, Terms
from planform.reconcile.limiter import ConcurrencyLimiter
from planform.reconcile.manager import Manager, open_manager
from planform.reconcile.sources import Source, Watches, to_owner, to_self
from planform.store import open_store

CONFIG_MAP = GVK("", "v1", "ConfigMap")
SECRET = GVK("", "v1", "Secret")

pytestmark = pytest.mark.timeout(30)


@pytest.fixture
async def client() -> AsyncIterator[LocalClient]:
    clock = SystemClock()
    async with await open_store(None, clock=clock) as store:
        client = LocalClient(open_engine(store, clock))
        await client.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "default"}})
        yield client


@asynccontextmanager
async def a_manager(client: LocalClient) -> AsyncIterator[Manager]:
    clock = SystemClock()
    async with Watches(client, clock=clock, rng=Random(1)) as watches, open_manager(watches, clock=clock) as manager:
        yield manager


def config_map(name: str, **data: str) -> Object:
    metadata = {"name": name, "namespace": "default"}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}


class Mirror:
    """Keeps a Secret beside every ConfigMap, with the same data; notes when there was nothing to do."""

    def __init__(self, client: LocalClient) -> None:
        self._client = client
        self.reconciles = 0
        self.settled = asyncio.Condition()

    async def reconcile(self, key: ObjectKey) -> Result:
        self.reconciles += 1
        try:
            source = await self._client.get(CONFIG_MAP, key.name, namespace=key.namespace)
        except NotFound:
            source = None
        if source is not None:
            owner = {
                "apiVersion": "v1",
                "kind": "ConfigMap",
                "name": key.name,
                "uid": source["metadata"]["uid"],
                "controller": True,
            }
            await self._client.apply(
                {
                    "apiVersion": "v1",
                    "kind": "Secret",
                    "metadata": {"name": key.name, "namespace": key.namespace, "ownerReferences": [owner]},
                    "stringData": source.get("data") or {},
                },
                manager="mirror",
                force=True,
            )
        async with self.settled:
            self.settled.notify_all()
        return Result()

    async def until(self, client: LocalClient, count: int) -> None:
        """Wait until so many Secrets exist."""
        async with asyncio.timeout(20), self.settled:
            while len((await client.list(SECRET, namespace="default")).items) != count:
                await self.settled.wait()


async def at_rest(subject: Controller[ObjectKey]) -> None:
    """Wait until the controller has nothing to do, and stays so while every event on its way arrives."""
    quiet = 0
    async with asyncio.timeout(20):
        while quiet < 200:
            await asyncio.sleep(0)
            quiet = 0 if subject.queue or subject.queue.processing else quiet + 1


async def test_controllers_keep_what_they_make(client: LocalClient) -> None:
    mirror = Mirror(client)
    for number in range(300):
        await client.create(config_map(f"c{number}", n=str(number)))
    subject = Controller("mirror", mirror.reconcile, clock=SystemClock(), rng=Random(1), limiter=ConcurrencyLimiter())
    async with a_manager(client) as manager:
        manager.start(subject, [Source(CONFIG_MAP, to_self), Source(SECRET, to_owner("", "ConfigMap"))])
        await mirror.until(client, 300)
        await client.delete(SECRET, "c7", namespace="default")  # its owner hears of it and makes it anew
        await mirror.until(client, 300)
        await manager.synced("mirror")
        await at_rest(subject)
        written = (await client.list(SECRET)).resource_version
        for number in range(300):
            subject.queue.add(ObjectKey("default", f"c{number}"))
        await at_rest(subject)
        assert (await client.list(SECRET)).resource_version == written  # what is as it should be is not written
    assert (await client.get(SECRET, "c7", namespace="default"))["metadata"]["ownerReferences"][0]["name"] == "c7"


async def test_the_lease_goes_from_one_candidate_to_the_next(client: LocalClient) -> None:
    worked: list[str] = []

    async def run(identity: str) -> None:
        async def work() -> None:
            worked.append(identity)

        await Election(
            client,
            name="plane",
            namespace="default",
            identity=identity,
            clock=SystemClock(),
            rng=Random(identity),
            terms=Terms(lease=1, renew=0.5, retry=0.02),
        ).lead(work)

    async with asyncio.timeout(20), asyncio.TaskGroup() as tasks:
        for identity in ("a", "b", "c"):
            tasks.create_task(run(identity))
    assert sorted(worked) == ["a", "b", "c"]
    spec = (await client.get(LEASE, "plane", namespace="default"))["spec"]
    assert (spec["holderIdentity"], spec["leaseTransitions"]) == ("", 2)
