"""One replica: stands for election, and runs all controllers while it leads, or those of its share of the XRs.

A replica that loses its Lease stops for good and leaves starting anew to whoever started it: nothing that was decided
before can then be carried out after. Its client does not send a write once the Lease is overdue, and each request has
a deadline, so the last write of an old leader arrives before its Lease has expired, plus that deadline at most.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from random import Random, SystemRandom
from typing import Final, Literal

import planform
from planform.api.kinds import GroupVersionKind
from planform.api.names import CRD, SECRET
from planform.apiserver.auth.pki import Pki
from planform.assembly import Controllers, Parts, open_controllers
from planform.blueprints.actions import PhaseFunctions
from planform.client.kubeconfig import Connection
from planform.client.kubernetes import KubernetesClient
from planform.client.recent import Recent
from planform.client.remembering import RememberingClient
from planform.client.rights import ClusterRights
from planform.client.transport import Fence
from planform.client.web_requests import Reach
from planform.client.wire import Limits
from planform.clock import Clock, SystemClock
from planform.cluster.endpoint import Health, open_endpoint
from planform.cluster.journal_peers import ADDRESS_ANNOTATION
from planform.cluster.journal_reviews import LocalJournal
from planform.cluster.takeover import require_sole_control
from planform.cluster.webhook import WebhookContext, WebhookSettings, open_webhook
from planform.compositions.revisions import TOOL_LABELS
from planform.errors import AlreadyExists, NotFound
from planform.features import FEATURES, BuiltInUse, FeatureGates
from planform.memory import IdleCollector
from planform.packages.runtimes.kubernetes import ClusterRuntime
from planform.reconcile.election import Election, Terms
from planform.reconcile.limiter import ConcurrencyLimiter
from planform.reconcile.manager import open_manager
from planform.reconcile.shards import Shards, Share
from planform.reconcile.sources import Watches
from planform.rollouts.gates.tools import rollout_reach
from planform.sandbox.report import SandboxReport, configure
from planform.telemetry.looplag import LoopLag
from planform.telemetry.metrics import MetricsRegistry
from planform.telemetry.tracing import PropagatingTracer, Tracer, open_telemetry_tracer
from planform.xrs.composed_kinds import ComposedKinds
from planform.xrs.sharding import PREFIX

LEASE_NAME: Final = "planform-controllers"
CONTROLLERS: Final = "controllers"
THIN: Final = (CRD, SECRET)
"""Kinds that controllers watch only for names and owners: the largest, and those whose content is nobody's business."""
Report = Callable[[str], None]
_NAMESPACE: Final = GroupVersionKind("", "v1", "Namespace")

_logger = logging.getLogger(__name__)


def terms_of(lease_seconds: float) -> Terms:
    """How a Lease of that length is renewed: every third of it. One renewal may fail and be tried again before its
    holder gives up, well before the Lease expires."""
    retry = min(0.15 * lease_seconds, 2.0)
    return Terms(lease=lease_seconds, renew=0.7 * lease_seconds, retry=retry, every=lease_seconds / 3)


@dataclass(frozen=True, kw_only=True)
class ClusterSettings:
    """Everything a user can choose. `namespace` is where Leases and the webhook's Secret are."""

    connection: Connection
    identity: str
    namespace: str = "planform-system"
    data: Path | None = None
    host: str = "127.0.0.1"
    port: int = 0
    features: FeatureGates = field(default_factory=lambda: FeatureGates({}))
    poll_interval: float = 60.0
    max_concurrent_reconciles: int = 100
    lease_seconds: float = 15.0
    request_seconds: float = 10.0
    requests_per_second: float = 500.0
    request_burst: int = 1000
    grace_seconds: float = 30.0
    take_over: bool = False
    otlp_endpoint: str = ""
    phase_function_versions: Path | None = None
    tool_labels: tuple[str, ...] = TOOL_LABELS
    rollout_reach: Reach = rollout_reach()  # noqa: RUF009  (frozen)
    """How far gates and notifications of Rollouts may go beyond public addresses."""
    builtin_functions: BuiltInUse = BuiltInUse.ALWAYS
    composed_kinds: ComposedKinds = ComposedKinds()  # noqa: RUF009  (frozen)
    kcl_modules: tuple[str, ...] = ()
    """Registries, or beginnings of repositories, from which KCL programs may have modules."""
    activations: tuple[str, ...] = ("*",)
    shortcuts: bool = True
    allow_unconfined_functions: bool = False
    function_network: str = "host"
    """See `ControllerContext`."""
    webhook: WebhookSettings | None = None
    """None: nothing is asked before a write."""
    share: Share = Share()  # noqa: RUF009  (frozen)
    """Which part of the XRs is this replica's, where replicas share them."""
    function_runtime: Literal["kubernetes", "process", "external"] = "process"
    """Who runs functions: the cluster, this machine (if it has `data`), or somebody else."""

    @property
    def user_agent(self) -> str:
        """Names the replica, so that an audit log tells which of them wrote."""
        return f"planform-controllers/{planform.__version__} ({self.identity})"

    @property
    def phase_functions(self) -> PhaseFunctions:
        return PhaseFunctions(
            engine="kubernetes",
            data=self.data,
            overlay=self.phase_function_versions,
            connection=self.connection,
        )

    def client(self, limits: Limits, fence: Fence | None = None) -> KubernetesClient:
        return KubernetesClient(
            self.connection,
            clock=SystemClock(),
            rng=SystemRandom(),
            user_agent=self.user_agent,
            limits=limits,
            fence=fence,
        )


@dataclass(frozen=True)
class Replica:
    """What the parts of one replica share."""

    settings: ClusterSettings
    clock: Clock
    rng: Random
    metrics: MetricsRegistry
    tracer: Tracer
    health: Health
    coordination: KubernetesClient
    """For Leases and the webhook's objects: it has no fence, and never waits behind the work."""
    journal: LocalJournal = field(default_factory=LocalJournal)
    address: str = ""
    """Where other replicas find the journal; empty if nobody does."""

    @property
    def terms(self) -> Terms:
        return terms_of(self.settings.lease_seconds)

    def election(self, lease: str, insists: bool = False, patience: float = 0.0) -> Election:
        """This replica as a candidate for a Lease."""
        return Election(
            self.coordination,
            name=lease,
            namespace=self.settings.namespace,
            identity=self.settings.identity,
            clock=self.clock,
            rng=self.rng,
            terms=self.terms,
            insists=insists,
            patience=patience,
            annotations={ADDRESS_ANNOTATION: self.address},
        )

    @property
    def leases(self) -> tuple[str, ...]:
        """What replicas that work hold."""
        count = self.settings.share.count
        return (LEASE_NAME, *(shard_lease(shard, count) for shard in range(count) if count > 1))

    async def require_sole_control(self) -> None:
        await require_sole_control(self.coordination, take_over=self.settings.take_over, clock=self.clock)

    def webhook_context(self) -> WebhookContext:
        return WebhookContext(
            client=self.coordination,
            clock=self.clock,
            rng=self.rng,
            metrics=self.metrics,
            health=self.health,
            phase_functions=self.settings.phase_functions,
            journal=self.journal,
            identity=self.settings.identity,
            leases=self.leases,
        )


async def run_controllers(
    settings: ClusterSettings, *, stopping: asyncio.Event, report: Report = lambda _: None
) -> None:
    """Work, or stand by, until `stopping` is set; then finish what is in hand and give the Lease up.

    Raises LeadershipLost if the Lease could not be renewed in time; nothing has been written since then.
    """
    async with _opened(settings) as (replica, port), AsyncExitStack() as stack:
        report(f"{settings.identity} answers /healthz and /metrics on {settings.host}:{port}")
        if settings.webhook is not None:
            reviews = await stack.enter_async_context(open_webhook(settings.webhook, replica.webhook_context()))
            report(f"{settings.identity} answers admission reviews on {settings.webhook.host}:{reviews}")
            replica = replace(replica, address=settings.webhook.peer_address(reviews))
        if settings.share.count > 1:
            await _share(replica, stopping, report)
        else:
            await _lead(replica, stopping, report)


async def _lead(replica: Replica, stopping: asyncio.Event, report: Report) -> None:
    """One replica works at a time."""
    identity, election = replica.settings.identity, replica.election(LEASE_NAME)

    async def work() -> None:
        report(f"{identity} leads")
        await replica.require_sole_control()
        async with open_work(replica, election.check):
            report(f"{identity} works: all controllers run")
            await stopping.wait()
            report("stopping: finishing what is in hand")

    await until_stopped(stopping, election, work)


async def _share(replica: Replica, stopping: asyncio.Event, report: Report) -> None:
    """Every replica reconciles the XRs of the shards it holds; one of them leads, and does everything else.

    A Lease each says who holds which shard. A replica takes its home shard from whoever stands in for it, and stands in
    for others whose replica is away. One lost Lease ends the replica: what one is too late for, all of them are.
    """
    identity, share, terms = replica.settings.identity, replica.settings.share, replica.terms
    shards = Shards(share.count, prefix=PREFIX)
    elections: set[Election] = set()

    def fence() -> None:
        for election in elections:
            if election.is_holding:
                election.check()

    await replica.require_sole_control()
    async with open_work(replica, fence, shards) as controllers, asyncio.TaskGroup() as tasks:

        async def lead() -> None:
            report(f"{identity} leads")
            await controllers.lead()
            report(f"{identity} works: all controllers run")
            await stopping.wait()
            await controllers.context.manager.stop_all()

        async def hold(shard: int, election: Election) -> None:
            report(f"{identity} holds shard {shard}")
            shards.begin(shard)
            await _first(stopping, election.wanted)
            await shards.end(shard)
            report(f"{identity} gives up shard {shard}")

        async def stand(shard: int) -> None:
            patience = 0.0 if shard == share.home else terms.lease / 2
            while not stopping.is_set():
                election = replica.election(shard_lease(shard, share.count), shard == share.home, patience)
                elections.add(election)
                await until_stopped(stopping, election, partial(hold, shard, election))
                elections.discard(election)

        leader = replica.election(LEASE_NAME)
        elections.add(leader)
        tasks.create_task(until_stopped(stopping, leader, lead), name="leading")
        for shard in range(share.count):
            tasks.create_task(stand(shard), name=f"shard {shard}")


def shard_lease(shard: int, count: int) -> str:
    """Another division of the work has other Leases: `planform-shard-0-of-3`."""
    return f"planform-shard-{shard}-of-{count}"


async def _first(*events: asyncio.Event) -> None:
    """Wait until one of them is set."""
    waiting = [asyncio.create_task(event.wait()) for event in events]
    try:
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in waiting:
            task.cancel()


async def until_stopped(stopping: asyncio.Event, election: Election, work: Callable[[], Awaitable[None]]) -> None:
    """Lead until the work ends by itself; a replica that only stands by when it should stop simply stops."""
    leading = asyncio.create_task(election.lead(work), name="leading")
    waiting = asyncio.create_task(stopping.wait(), name="stopping")
    try:
        await asyncio.wait({leading, waiting}, return_when=asyncio.FIRST_COMPLETED)
        if not election.is_holding:
            leading.cancel()
        await asyncio.wait({leading})
    finally:
        for task in (leading, waiting):
            task.cancel()
        await asyncio.wait({leading, waiting})
    if not leading.cancelled():
        leading.result()


@asynccontextmanager
async def open_work(replica: Replica, fence: Fence, shards: Shards | None = None) -> AsyncIterator[Controllers]:
    """Every controller, with a client that the fence guards; they end gracefully when the block does.

    Where XRs are shared by `shards`, all but theirs wait for `lead`.
    """
    settings, clock = replica.settings, replica.clock
    limits = Limits(
        request_seconds=settings.request_seconds,
        per_second=settings.requests_per_second,
        burst=settings.request_burst,
    )
    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(settings.client(limits, fence))
        recent = Recent()
        watches = await stack.enter_async_context(
            Watches(
                client,
                clock=clock,
                rng=replica.rng,
                metrics=replica.metrics,
                thin=dict.fromkeys(THIN, client.metadata_only()),
                recent=recent,
            )
        )
        replica.health.hears(CONTROLLERS, watches)
        stack.callback(replica.health.forget, CONTROLLERS)
        manager = await stack.enter_async_context(
            open_manager(watches, clock=clock, grace_seconds=settings.grace_seconds)
        )
        parts = Parts(
            client=client,
            xr_client=RememberingClient(client, recent),
            manager=manager,
            clock=clock,
            rng=replica.rng,
            limiter=ConcurrencyLimiter(4),
            metrics=replica.metrics,
            data=settings.data,
            features=settings.features,
            tracer=replica.tracer,
            concurrency=settings.max_concurrent_reconciles,
            poll_interval=settings.poll_interval,
            phase_functions=settings.phase_functions,
            tool_labels=settings.tool_labels,
            rollout_reach=settings.rollout_reach,
            jobs=True,
            builtin_functions=settings.builtin_functions,
            activations=settings.activations,
            shortcuts=settings.shortcuts,
            authority=_authority(settings, clock),
            server=None,
            cluster=None if settings.function_runtime == "process" else ClusterRuntime(settings.namespace),
            external_functions=settings.function_runtime == "external",
            shards=shards,
            rights=ClusterRights(client),
            composed_kinds=settings.composed_kinds,
            kcl_modules=settings.kcl_modules,
        )
        controllers = await stack.enter_async_context(open_controllers(parts))
        stack.push_async_callback(manager.stop_all)
        replica.journal.controllers = controllers
        stack.callback(replica.journal.close)
        yield controllers


def _authority(settings: ClusterSettings, clock: Clock) -> Pki | None:
    """Signs for functions that run on this machine."""
    if settings.function_runtime != "process" or settings.data is None:
        return None
    return Pki(settings.data / "pki", clock=clock)


@asynccontextmanager
async def _opened(settings: ClusterSettings) -> AsyncIterator[tuple[Replica, int]]:
    """What a replica has whether it leads or not, and the port of its endpoint."""
    metrics, clock, health = MetricsRegistry(), SystemClock(), Health()
    gauge = metrics.gauge("planform_feature_enabled", "Whether a feature gate is on.", ["name"])
    for name in FEATURES:
        gauge.labels(name).set(float(settings.features.enabled(name)))
    configure(allow_unconfined=settings.allow_unconfined_functions, function_network=settings.function_network)
    sandbox = asyncio.create_task(SandboxReport(metrics).run(), name="which sandbox there is")
    async with AsyncExitStack() as stack:
        stack.callback(sandbox.cancel)
        # Renewals are small and must not wait: they have connections of their own, and fail in time to be tried again.
        limits = Limits(request_seconds=terms_of(settings.lease_seconds).renew / 2, connections=8)
        coordination = await stack.enter_async_context(settings.client(limits))
        tracer: Tracer = PropagatingTracer()
        if settings.otlp_endpoint:
            traces = open_telemetry_tracer(settings.otlp_endpoint)
            stack.callback(traces.close)
            tracer = traces
        await ensure_namespace(coordination, settings.namespace)
        port = await stack.enter_async_context(open_endpoint(settings.host, settings.port, health, metrics))
        collector = IdleCollector()
        lag = asyncio.create_task(
            LoopLag(metrics, clock, when_idle=collector.when_idle, when_busy=collector.when_busy).run(), name="loop lag"
        )
        stack.callback(lag.cancel)
        yield Replica(settings, clock, SystemRandom(), metrics, tracer, health, coordination), port


async def ensure_namespace(client: KubernetesClient, name: str) -> None:
    """Leases need a namespace. Whoever may not create one has been given one."""
    try:
        await client.get(_NAMESPACE, name)
    except NotFound:
        with suppress(AlreadyExists):
            await client.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
