"""Of several replicas on one cluster, one works: leader election on a Lease.

The holder renews its Lease; the others watch whether it does. Nobody compares clocks: a candidate takes the Lease only
after it has seen the same content for a whole lease duration by its own clock. The holder stops working well before
that, so two never work at once unless a machine stands still for longer than the difference. For that case too the
holder's client asks `check` before each write: what was decided before the standstill is not sent after it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from random import Random
from types import MappingProxyType
from typing import Any

from planform.api.annotations import annotations_of
from planform.api.kinds import GroupVersionKind, Object
from planform.client.protocol import Client
from planform.client.waits import time_limit
from planform.clock import Clock, micro_timestamp
from planform.errors import AlreadyExists, Conflict, NotFound, PlanformError

LEASE = GroupVersionKind("coordination.k8s.io", "v1", "Lease")
WANTED_ANNOTATION = "planform.dev/wanted-by"
"""On a Lease: the candidate that it is meant for, who asks the holder to finish what is in hand and give it up."""

_logger = logging.getLogger(__name__)


class LeadershipLost(PlanformError):
    """The Lease could not be renewed in time; the work was cancelled, and somebody else may be doing it now."""

    reason = "LeadershipLost"
    retryable = True

    def __init__(self, namespace: str, name: str, identity: str) -> None:
        super().__init__(f'{identity} lost the lease "{name}" in namespace "{namespace}"')
        self.hint = "is the API server reachable and answering in time? It runs for election again when restarted"


@dataclass(frozen=True, slots=True)
class Terms:
    """Seconds. A dead holder is replaced after `lease` at the latest; a cut-off one stops after `renew`.

    The holder renews `every` so often, or as often as others look if that is 0; after a renewal that failed it tries
    again as soon as `retry` says.
    """

    lease: float = 15.0
    renew: float = 10.0
    retry: float = 2.0
    every: float = 0.0

    def __post_init__(self) -> None:
        if self.every and not self.renew > self.every:
            raise ValueError(f"renew > every must hold, not {self.renew}, {self.every}")
        if not self.lease > self.renew > self.retry > 0:
            raise ValueError(f"lease > renew > retry > 0 must hold, not {self.lease}, {self.renew}, {self.retry}")


class Election:
    """One candidate. `identity` must be unique among all: a host name and something random. `annotations` are what a
    holder says of itself on the Lease.

    A Lease may be meant for one candidate: that one `insists`, so whoever holds it instead is asked to give it up, and
    hears of that by `wanted`. The others have `patience`: they take a Lease that is free only after so many seconds.
    """

    def __init__(
        self,
        client: Client,
        *,
        name: str,
        namespace: str,
        identity: str,
        clock: Clock,
        rng: Random,
        terms: Terms = Terms(),  # noqa: B008  (frozen)
        insists: bool = False,
        patience: float = 0.0,
        annotations: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self._client = client
        self._annotations = annotations
        self._insists = insists
        self._patience = patience
        self._since = clock.monotonic()
        self._name = name
        self._namespace = namespace
        self._identity = identity
        self._clock = clock
        self._rng = rng
        self._terms = terms
        self._observed: Any = None  # the spec last seen, and when it was first seen so, by our own clock
        self._observed_at = 0.0
        self._lease: Object | None = None  # our Lease as last written or read; its version guards the next write
        self._renewed_at = 0.0
        self._holds = False  # from winning to giving up, whatever the clock says
        self.leader = ""  # who holds the Lease, as far as we know
        self.wanted = asyncio.Event()  # set while we hold what is meant for another who asks for it

    @property
    def is_holding(self) -> bool:
        """Whether the Lease was won and not yet given up; it may be overdue all the same."""
        return self._holds

    def check(self) -> None:
        """Raise LeadershipLost unless the Lease is ours and was renewed in time: the fence in front of writes."""
        if not self._holds or self._clock.monotonic() >= self._renewed_at + self._terms.renew:
            raise LeadershipLost(self._namespace, self._name, self._identity)

    async def lead(self, work: Callable[[], Awaitable[None]]) -> None:
        """Wait to be elected, then work, renewing all the while. Returns when the work does.

        Raises LeadershipLost, once the work has been cancelled and has ended, if the Lease cannot be renewed in time.
        The Lease is given up as the last thing, so that a successor starts at once and never beside us.
        """
        await self._acquire()
        self._holds = True
        _logger.info("elected: %s holds lease %s/%s", self._identity, self._namespace, self._name)
        try:
            await self._work_while_renewing(work)
        finally:
            self._holds = False
            await self._release()

    async def _acquire(self) -> None:
        while not await self._try_once(limit=self._terms.renew):
            await self._clock.sleep(self._terms.retry * (1 + 0.2 * self._rng.random()))

    async def _work_while_renewing(self, work: Callable[[], Awaitable[None]]) -> None:
        async def run() -> None:
            await work()

        working = asyncio.create_task(run(), name="elected work")
        renewing = asyncio.create_task(self._renew_until_lost(), name="renew lease")
        lost = False
        try:
            await asyncio.wait({working, renewing}, return_when=asyncio.FIRST_COMPLETED)
            lost = renewing.done() and not working.done()
        finally:
            working.cancel()
            try:
                await asyncio.wait({working})  # work may take its time to end; until then the Lease is renewed
            finally:
                renewing.cancel()
                await asyncio.wait({renewing})
        if lost:
            renewing.result()  # an error of its own, if it had one
            raise LeadershipLost(self._namespace, self._name, self._identity)
        working.result()

    async def _renew_until_lost(self) -> None:
        """Returns when the Lease has not been renewed for the time that `Terms.renew` allows, or is another's."""
        renewed = True
        while True:
            await self._clock.sleep(self._terms.every if renewed and self._terms.every else self._terms.retry)
            left = self._renewed_at + self._terms.renew - self._clock.monotonic()
            if left <= 0:
                return
            renewed = await self._try_once(limit=left)
            if not renewed and self.leader not in ("", self._identity):
                return

    async def _try_once(self, *, limit: float) -> bool:
        """Take or renew the Lease if that is possible now; what the API refuses or does not answer in time is a no."""
        try:
            async with time_limit(self._clock, limit):
                return await self._take_or_renew()
        except (Conflict, AlreadyExists):
            self._lease = None  # somebody wrote first: read what, next time
        except TimeoutError:
            _logger.warning("lease %s/%s: no answer within %g s", self._namespace, self._name, limit)
        except PlanformError as error:
            self._lease = None
            _logger.warning("lease %s/%s: %s", self._namespace, self._name, error)
        return False

    async def _take_or_renew(self) -> bool:
        started = (
            self._clock.monotonic()
        )  # before the write: the Lease counts from when we said so, not from the answer
        lease = self._lease
        if lease is None:
            try:
                lease = await self._client.get(LEASE, self._name, namespace=self._namespace)
            except NotFound:
                if started < self._since + self._patience:
                    return False
                created = await self._client.create(self._new_lease())
                self._note(created)
                self._renewed_at = started
                return True
            self._note(lease)
        spec: dict[str, Any] = lease.get("spec") or {}
        holder = spec.get("holderIdentity") or ""
        if holder != self._identity:
            self._lease = None  # keep looking
            length = float(spec.get("leaseDurationSeconds") or self._terms.lease) if holder else 0.0
            if self._clock.monotonic() < self._observed_at + max(length, 0.0 if holder else self._patience):
                if holder and self._insists:
                    await self._ask_for(lease)
                return False
        transitions = int(spec.get("leaseTransitions") or 0) + (holder != self._identity)
        acquired = str(spec.get("acquireTime") or "") if holder == self._identity else ""
        if holder != self._identity:
            lease = _asked_for(lease, None)
        written = await self._client.update({**self._annotated(lease), "spec": self._spec(transitions, acquired)})
        self._note(written)
        self._renewed_at = started
        return True

    async def _ask_for(self, lease: Object) -> None:
        """Tell the holder, who finds it at its next renewal."""
        if _asking(lease) != self._identity:
            await self._client.update(_asked_for(lease, self._identity))

    async def _release(self) -> None:
        """Give the Lease up, if it is ours; failing to only makes the successor wait."""
        lease, self._lease = self._lease, None
        if lease is None or self.leader != self._identity:
            return
        transitions = int(lease["spec"].get("leaseTransitions") or 0)
        spec = self._spec(transitions, "") | {"holderIdentity": "", "leaseDurationSeconds": 1}
        try:
            async with time_limit(self._clock, self._terms.retry):
                await self._client.update({**lease, "spec": spec})
        except (PlanformError, TimeoutError) as error:
            _logger.warning("giving up lease %s/%s: %s", self._namespace, self._name, str(error) or "no answer")
        self.leader = ""

    def _note(self, lease: Object) -> None:
        spec = lease.get("spec") or {}
        if spec != self._observed:
            self._observed, self._observed_at = spec, self._clock.monotonic()
        self._lease = lease
        self.leader = spec.get("holderIdentity") or ""
        if self.leader == self._identity and _asking(lease) not in ("", self._identity):
            self.wanted.set()

    def _new_lease(self) -> Object:
        return {
            "apiVersion": LEASE.api_version,
            "kind": LEASE.kind,
            "metadata": self._annotated({"metadata": {"name": self._name, "namespace": self._namespace}})["metadata"],
            "spec": self._spec(0, ""),
        }

    def _annotated(self, lease: Object) -> Object:
        """With what the holder says of itself; what its predecessor said is replaced, or goes."""
        if not self._annotations:
            return lease
        annotations = {**annotations_of(lease), **self._annotations}
        return {**lease, "metadata": {**lease["metadata"], "annotations": annotations}}

    def _spec(self, transitions: int, acquired: str) -> dict[str, Any]:
        now = micro_timestamp(self._clock.now())
        return {
            "holderIdentity": self._identity,
            "leaseDurationSeconds": round(self._terms.lease),
            "acquireTime": acquired or now,
            "renewTime": now,
            "leaseTransitions": transitions,
        }


def _asking(lease: Object) -> str:
    return str(annotations_of(lease).get(WANTED_ANNOTATION) or "")


def _asked_for(lease: Object, identity: str | None) -> Object:
    """The Lease with the name of who asks for it, or without any."""
    annotations = {**annotations_of(lease), WANTED_ANNOTATION: identity}
    kept = {name: value for name, value in annotations.items() if value is not None}
    return {**lease, "metadata": {**lease["metadata"], "annotations": kept}}
