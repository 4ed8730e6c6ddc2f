"""Leader election between candidates that share an API and nothing else; time is virtual."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from random import Random

import pytest

from planform.client.protocol import Client
from planform.clock import Clock, VirtualClock
from planform.cluster.running import terms_of
from planform.errors import ServiceUnavailable
from planform.reconcile.election import LEASE, Election, LeadershipLost, Terms
from tests.unit.memory_engine import MemoryEngine, settle


class SkewedClock:
    """The same seconds, another idea of what time it is."""

    def __init__(self, clock: VirtualClock) -> None:
        self._clock = clock

    def now(self) -> datetime:
        return datetime(1999, 1, 1, tzinfo=UTC)

    def monotonic(self) -> float:
        return self._clock.monotonic() + 1_000_000

    async def sleep(self, seconds: float) -> None:
        await self._clock.sleep(seconds)


class Candidate:
    """Runs for election and notes when it works."""

    def __init__(self, identity: str, client: Client, clock: Clock, working: set[str]) -> None:
        self.identity = identity
        self.working = working
        self.election = Election(
            client, name="plane", namespace="default", identity=identity, clock=clock, rng=Random(identity)
        )
        self.task = asyncio.create_task(self.election.lead(self._work))

    async def _work(self) -> None:
        assert not self.working, f"{self.identity} works beside {self.working}"
        self.working.add(self.identity)
        try:
            await asyncio.Event().wait()
        finally:
            self.working.discard(self.identity)

    async def stop(self) -> None:
        self.task.cancel()
        await settle()
        assert self.task.done()


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


async def advance(clock: VirtualClock, seconds: int) -> None:
    for _ in range(seconds):
        await clock.advance(1)
        await settle()


async def test_one_of_two_works_for_an_hour_and_the_other_waits(clock: VirtualClock) -> None:
    engine, working = MemoryEngine(), set[str]()
    a = Candidate("a", engine, clock, working)
    await settle()
    b = Candidate("b", engine, clock, working)
    await advance(clock, 3600)
    assert working == {"a"}
    assert b.election.leader == "a"
    lease = await engine.get(LEASE, "plane", namespace="default")
    assert lease["spec"]["holderIdentity"] == "a"
    assert lease["spec"]["leaseTransitions"] == 0
    assert lease["spec"]["acquireTime"] == "2026-01-01T00:00:00.000000Z"
    assert lease["spec"]["renewTime"] > "2026-01-01T00:59:55"
    await a.stop()
    await b.stop()


async def test_a_leader_that_stops_gives_the_lease_up_and_the_next_starts_soon(clock: VirtualClock) -> None:
    engine, working = MemoryEngine(), set[str]()
    a, b = Candidate("a", engine, clock, working), Candidate("b", engine, clock, working)
    await advance(clock, 10)
    assert working == {"a"}
    await a.stop()
    lease = await engine.get(LEASE, "plane", namespace="default")
    assert (lease["spec"]["holderIdentity"], lease["spec"]["leaseDurationSeconds"]) == ("", 1)
    await advance(clock, 3)
    assert working == {"b"}
    lease = await engine.get(LEASE, "plane", namespace="default")
    assert lease["spec"]["leaseTransitions"] == 1
    await b.stop()


async def test_a_leader_that_ends_slowly_keeps_the_lease_until_it_has_ended(clock: VirtualClock) -> None:
    engine, working = MemoryEngine(), set[str]()

    class Slow(Candidate):
        async def _work(self) -> None:
            try:
                await super()._work()
            finally:
                self.working.add(self.identity)
                await clock.sleep(60)  # reconciles in hand
                self.working.discard(self.identity)

    a = Slow("a", engine, clock, working)
    await settle()
    b = Candidate("b", engine, clock, working)
    await advance(clock, 5)
    a.task.cancel()
    await advance(clock, 59)
    assert working == {"a"}
    await advance(clock, 5)
    assert working == {"b"}
    await b.stop()


async def test_a_leader_that_cannot_renew_stops_working_before_another_may_start(clock: VirtualClock) -> None:
    engine, working = MemoryEngine(), set[str]()
    cut_off = MemoryEngine()
    cut_off.objects, cut_off.history = engine.objects, engine.history  # the same cluster, over another line
    a = Candidate("a", cut_off, clock, working)
    await settle()
    b = Candidate("b", engine, clock, working)
    await advance(clock, 10)
    assert working == {"a"}
    cut_off.failing = ServiceUnavailable("connection refused")
    seconds_idle = 0
    while working != {"b"}:
        await advance(clock, 1)
        seconds_idle += not working
        assert clock.monotonic() < 60
    assert isinstance(a.task.exception(), LeadershipLost)
    assert seconds_idle >= 2
    await b.stop()


async def test_a_dead_leader_is_replaced_after_a_lease_duration_whatever_the_clocks_say(clock: VirtualClock) -> None:
    engine, working = MemoryEngine(), set[str]()
    dead = {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": "plane", "namespace": "default"},
        "spec": {"holderIdentity": "dead", "leaseDurationSeconds": 15, "renewTime": "1990-01-01T00:00:00.000000Z"},
    }
    await engine.create(dead)
    b = Candidate("b", engine, SkewedClock(clock), working)
    await advance(clock, 14)
    assert working == set()  # its renewTime is long past, but we have not seen it stand still long enough
    await advance(clock, 5)
    assert working == {"b"}
    await b.stop()


async def test_a_lease_taken_by_force_ends_the_work_at_once(clock: VirtualClock) -> None:
    engine, working = MemoryEngine(), set[str]()
    a = Candidate("a", engine, clock, working)
    await settle()
    lease = await engine.get(LEASE, "plane", namespace="default")
    lease["spec"] |= {"holderIdentity": "usurper"}
    await engine.update(lease)
    await advance(clock, 5)
    assert working == set()
    with pytest.raises(LeadershipLost, match='a lost the lease "plane" in namespace "default"'):
        a.task.result()
    assert (await engine.get(LEASE, "plane", namespace="default"))["spec"]["holderIdentity"] == "usurper"


async def test_many_candidates_racing_elect_one(clock: VirtualClock) -> None:
    engine, working = MemoryEngine(), set[str]()
    candidates = [Candidate(str(number), engine, clock, working) for number in range(5)]
    for _ in range(5):
        await advance(clock, 20)
        assert len(working) == 1
        leader = next(candidate for candidate in candidates if candidate.identity in working)
        await leader.stop()
        candidates.remove(leader)
    assert working == set()


async def test_work_that_ends_ends_the_lead_and_its_error_is_passed_on(clock: VirtualClock) -> None:
    engine = MemoryEngine()

    def election() -> Election:
        return Election(engine, name="l", namespace="default", identity="a", clock=clock, rng=Random(1))

    async def fine() -> None:
        return None

    async def broken() -> None:
        raise ZeroDivisionError

    await election().lead(fine)
    with pytest.raises(ZeroDivisionError):
        await election().lead(broken)
    assert (await engine.get(LEASE, "l", namespace="default"))["spec"]["holderIdentity"] == ""


def test_terms_that_would_let_two_work_are_refused() -> None:
    with pytest.raises(ValueError, match="lease > renew > retry"):
        Terms(lease=10, renew=10)


async def test_the_fence_opens_with_the_lease_and_closes_before_it_expires(clock: VirtualClock) -> None:
    engine, terms = MemoryEngine(), Terms(lease=10, renew=7, retry=1.5)
    election = Election(
        engine, name="plane", namespace="default", identity="a", clock=clock, rng=Random(1), terms=terms
    )
    with pytest.raises(LeadershipLost):
        election.check()

    async def work() -> None:
        await asyncio.Event().wait()

    leading = asyncio.create_task(election.lead(work))
    await settle()
    await advance(clock, 60)
    election.check()
    engine.failing = ServiceUnavailable("cut off")
    renewed = clock.monotonic()
    while not leading.done():
        await advance(clock, 1)
        if clock.monotonic() - renewed >= terms.renew:
            with pytest.raises(LeadershipLost):
                election.check()
    assert clock.monotonic() - renewed < terms.lease
    with pytest.raises(LeadershipLost):
        await leading
    with pytest.raises(LeadershipLost):
        election.check()


async def test_who_stands_in_gives_the_lease_up_to_whom_it_is_meant_for(clock: VirtualClock) -> None:
    engine, terms = MemoryEngine(), Terms(lease=10, renew=7, retry=1.5)
    holders: list[str] = []

    def candidate(identity: str, *, insists: bool = False, patience: float = 0.0) -> Election:
        return Election(
            engine,
            name="shard",
            namespace="default",
            identity=identity,
            clock=clock,
            rng=Random(identity),
            terms=terms,
            insists=insists,
            patience=patience,
        )

    async def hold(election: Election, identity: str) -> None:
        async def work() -> None:
            holders.append(identity)
            await election.wanted.wait()

        await election.lead(work)

    stand_in, other = candidate("stand-in", patience=5), candidate("other", patience=5)
    tasks = [asyncio.create_task(hold(stand_in, "stand-in"))]
    await advance(clock, 4)
    assert holders == []
    await advance(clock, 3)
    assert holders == ["stand-in"]
    tasks.append(asyncio.create_task(hold(other, "other")))
    await advance(clock, 30)
    assert holders == ["stand-in"]
    home = candidate("home", insists=True)
    tasks.append(asyncio.create_task(hold(home, "home")))
    await advance(clock, 8)
    assert holders == ["stand-in", "home"]
    await advance(clock, 60)
    assert holders == ["stand-in", "home"]
    assert not home.wanted.is_set()
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def test_a_holder_renews_every_third_of_its_lease_and_tries_sooner_after_a_failure(clock: VirtualClock) -> None:
    engine, terms = MemoryEngine(), terms_of(15.0)
    election = Election(
        engine, name="plane", namespace="default", identity="a", clock=clock, rng=Random(1), terms=terms
    )

    async def work() -> None:
        await asyncio.Event().wait()

    leading = asyncio.create_task(election.lead(work))
    await settle()

    async def version() -> int:
        return int((await engine.get(LEASE, "plane", namespace="default"))["metadata"]["resourceVersion"])

    before = await version()
    await advance(clock, 60)
    assert await version() - before <= 12
    engine.failing = ServiceUnavailable("for a moment")
    await advance(clock, 6)
    engine.failing = None
    await advance(clock, 3)
    election.check()
    assert clock.monotonic() - election._renewed_at < terms.every
    leading.cancel()
    await asyncio.wait({leading})
