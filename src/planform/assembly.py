"""The controllers of a control plane, put together the same way for both engines.

The embedded control plane runs them beside its API server; on Kubernetes they run alone. What only the embedded engine
needs (chores that a cluster does itself, admission) is `app`'s business.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

from planform.api.names import SYSTEM_NAMESPACE, XRD
from planform.apiserver.webhook_calls import WebhookCalls
from planform.client.informer import list_pages
from planform.client.protocol import Client
from planform.client.rights import NoRights, Rights
from planform.clock import Clock
from planform.composition.composed_kinds import ComposedKinds
from planform.composition.recording import run_record
from planform.composition.revisions import TOOL_LABELS
from planform.controllers.actions import Actions, PhaseFunctions
from planform.controllers.claims import ClaimControllers
from planform.controllers.composites import CompositeControllers, FinishedRun, LiveCompositions, Tools
from planform.controllers.composites.fleet import Definition
from planform.controllers.composites.rights import NamespaceAccounts
from planform.controllers.compositions import CompositionController
from planform.controllers.crds import ensure_crds
from planform.controllers.definitions import DefinitionController, InstanceControllers
from planform.controllers.function_catalogue import LiveFunctions, runner
from planform.controllers.function_diffs import FunctionDiffs
from planform.controllers.function_users import FunctionUsers
from planform.controllers.functions import FunctionController, Packaging
from planform.controllers.managed_definitions import (
    ActivationPolicyController,
    ManagedDefinitionController,
    ensure_default_policy,
)
from planform.controllers.nop_kinds import NopKinds, groups_left_out
from planform.controllers.operation_schedules import CronOperationController
from planform.controllers.operation_watches import WatchOperationController
from planform.controllers.operations import OperationController
from planform.controllers.packaged_phases import PackagedPhases
from planform.controllers.packages.opening import open_cluster_packaging, open_packaging, settled, start_packages
from planform.controllers.pipelines import ClientReader, Pipelines, SecretCredentials, resolver_of
from planform.controllers.population import Population
from planform.controllers.random_keys import StoredRandomKeys
from planform.controllers.recording import Events, open_events
from planform.controllers.sharing import ServedDefinitions, SharedComposites
from planform.controllers.shipped_functions import BuiltInUse
from planform.controllers.step_revisions import StepRevisions
from planform.controllers.usages import UsageController, UsageGuard
from planform.controllers.workbench import Workbench
from planform.features import FeatureGates
from planform.functions.cache import ResponseCache
from planform.journal.journal import Journal, open_journal
from planform.packages.runtimes.certificates import Authority
from planform.packages.runtimes.host import RuntimeHost
from planform.packages.runtimes.kubernetes import ClusterRuntime
from planform.reconcile.gate import Gate
from planform.reconcile.plane import Plane
from planform.reconcile.shards import Shards
from planform.telemetry.metrics import Registry
from planform.telemetry.tracing import PassTracer, Tracer


@dataclass(frozen=True, kw_only=True)
class Parts:
    """What the controllers are built from. `data` is a directory of the process' own; None keeps nothing."""

    client: Client
    fleet_client: Client | None = None
    """See `Workbench`."""
    plane: Plane
    clock: Clock
    rng: Random
    gate: Gate
    metrics: Registry
    data: Path | None = None
    features: FeatureGates = field(default_factory=lambda: FeatureGates({}))
    tracer: Tracer = field(default_factory=PassTracer)
    concurrency: int = 100
    poll_interval: float = 60.0
    reads_at_once: bool = False
    shortcuts: bool = True
    """See `Workbench`."""
    usage_guard: UsageGuard | None = None
    authority: Authority | None = None
    """Signs the certificates of functions that run here; without it, or without `data`, none of them do."""
    server: Callable[[], str] | None = lambda: ""
    """Where providers that run here find the API; empty until it is served, None if it would not know them."""
    cluster: ClusterRuntime | None = None
    """How the cluster runs packages; None if they run on this machine, or not at all."""
    external_functions: bool = False
    """Whether somebody else runs every function that does not ship with planform."""
    phase_functions: PhaseFunctions = field(default_factory=PhaseFunctions)
    tool_labels: tuple[str, ...] = TOOL_LABELS
    """Labels of Compositions that make no new revision; a pattern may end in `*`."""
    activations: tuple[str, ...] = ("*",)
    """Patterns of the default activation policy; without any there is none."""
    rights: Rights = field(default_factory=NoRights)
    """See `Workbench`."""
    composed_kinds: ComposedKinds = ComposedKinds()  # noqa: RUF009  (frozen)
    """What Compositions may compose here."""
    builtin_functions: BuiltInUse = BuiltInUse.ALWAYS
    """For which packages the functions serve that ship with planform."""
    webhook_calls: WebhookCalls | None = None
    """Calls webhooks, also those of providers that run here; None where somebody else does."""
    shards: Shards | None = None
    """Which XRs are this process' own, where several share them; all but XRs then waits for `Controllers.lead`."""


@dataclass(frozen=True)
class Controllers:
    """Running controllers, and what others may want to ask them."""

    bench: Workbench
    events: Events
    functions: LiveFunctions
    pipelines: Pipelines
    population: Population
    journal: Journal
    cache: ResponseCache
    actions: Actions
    diffs: FunctionDiffs
    lead: Callable[[], Awaitable[None]]
    """Start all that only one process may run; done already unless XRs are shared."""


@asynccontextmanager
async def open_controllers(parts: Parts) -> AsyncIterator[Controllers]:
    """Bring our kinds and run every controller until the block ends (the plane's owner ends their reconciles)."""
    left_out = await groups_left_out(parts.client, parts.features)
    await ensure_crds(parts.client, clock=parts.clock, without=left_out)
    async with AsyncExitStack() as stack:
        events = await stack.enter_async_context(open_events(parts.client, clock=parts.clock, metrics=parts.metrics))
        bench = Workbench(
            client=parts.client,
            plane=parts.plane,
            events=events,
            clock=parts.clock,
            rng=parts.rng,
            gate=parts.gate,
            metrics=parts.metrics,
            tracer=parts.tracer,
            features=parts.features,
            concurrency=parts.concurrency,
            poll_interval=parts.poll_interval,
            reads_at_once=parts.reads_at_once,
            shortcuts=parts.shortcuts,
            shards=parts.shards,
            fleet_client=parts.fleet_client if parts.shortcuts else None,
            rights=parts.rights,
            builtin_functions=parts.builtin_functions,
        )
        file = None if parts.data is None else parts.data / "journal.sqlite"
        journal = await stack.enter_async_context(open_journal(file, clock=parts.clock, metrics=parts.metrics))
        packaging: Packaging | None = None
        data = parts.data
        if parts.cluster is not None:
            if data is None:  # what packages say is read anew after a restart
                data = Path(stack.enter_context(TemporaryDirectory(prefix="planform-packages-")))
            packaging = await stack.enter_async_context(open_cluster_packaging(bench, data, parts.cluster))
        elif data is not None and parts.authority is not None:
            packaging = await stack.enter_async_context(open_packaging(bench, data, parts.authority))
        nop_kinds = NopKinds(bench.for_fleet)
        if packaging is not None:
            packaging.contents.built_in_kinds = nop_kinds
        host = packaging.host if packaging is not None else None
        if parts.webhook_calls is not None and isinstance(host, RuntimeHost):
            parts.webhook_calls.services = host
        functions = await stack.enter_async_context(LiveFunctions(bench, host))
        # The key must be there before the first XR is, or that XR counts as one from before there was a key.
        keys = StoredRandomKeys(parts.client, parts.cluster.namespace if parts.cluster else SYSTEM_NAMESPACE)
        await keys.ensure()
        call = await stack.enter_async_context(
            runner(functions, metrics=parts.metrics, data=parts.data, tracer=parts.tracer, host=host, keys=keys)
        )
        cache = ResponseCache(parts.clock, metrics=parts.metrics)
        pipelines = Pipelines(
            resolver=resolver_of(lambda: functions.catalogue, parts.features),
            runner=call,
            reader=ClientReader(parts.client),
            credentials=SecretCredentials(parts.client),
            clock=parts.clock,
            cache=cache if parts.shortcuts else None,
            is_blind=functions.is_blind,
        )
        population = Population(parts.metrics)
        compositions = LiveCompositions(parts.client, parts.plane)
        accounts = NamespaceAccounts(parts.plane)
        tools = Tools(
            bench=bench.for_fleet,
            pipelines=pipelines,
            compositions=compositions,
            population=population,
            record=_recorder(journal, StepRevisions(events)),
            accounts=accounts,
            composed_kinds=parts.composed_kinds,
        )
        composites = CompositeControllers(tools, functions, memory=journal)
        stack.callback(composites.close)
        compositions.start()
        accounts.start()
        # What XRs rest on comes first: none of them shall say that something is missing which is only not heard of.
        await functions.synced()
        await compositions.synced()
        await accounts.synced()
        await composites.expect(await _definitions(parts.client))
        population.started()
        selectors = parts.features.enabled("FunctionRevisionSelectors")
        actions = Actions(bench, parts.phase_functions)
        users = FunctionUsers(
            parts.plane, population, functions, actions.uses, metrics=parts.metrics, selectors_enabled=selectors
        )
        users.start()
        installed = FunctionController(bench, functions, packaging, users, external=parts.external_functions)

        async def lead() -> None:
            UsageController(bench, parts.usage_guard).start()
            if served is not None:
                await served.stop()
            await actions.count_uses()
            installed.start()
            if packaging is not None:
                assert data is not None
                start_packages(bench, packaging, parts.authority, data, parts.server)
                await settled(bench, packaging)
            CompositionController(bench, population, functions, ignored_labels=parts.tool_labels).start()
            DefinitionController(bench, instances, ClaimControllers(bench)).start()
            await ensure_default_policy(parts.client, parts.activations)
            ManagedDefinitionController(bench).start()
            ActivationPolicyController(bench).start()
            OperationController(bench, pipelines).start()
            CronOperationController(bench).start()
            WatchOperationController(bench).start()
            nop_kinds.start()
            actions.start()
            PackagedPhases(functions, pipelines, parts.phase_functions).start()

        instances: InstanceControllers = composites
        served: ServedDefinitions | None = None
        if parts.shards is None:
            await lead()
        else:
            instances = SharedComposites(composites, bench, population, parts.shards)
            served = ServedDefinitions(bench, instances)
            served.start()
        diffs = FunctionDiffs(
            parts.client,
            functions=functions,
            users=users,
            population=population,
            pipelines=pipelines,
            journal=journal,
            features=parts.features,
            lending=installed.lending,
        )
        yield Controllers(bench, events, functions, pipelines, population, journal, cache, actions, diffs, lead)


async def _definitions(client: Client) -> list[Definition]:
    return [Definition.of(xrd) async for page in list_pages(client, XRD) for xrd in page.items]


def _recorder(journal: Journal, revisions: StepRevisions) -> Callable[[FinishedRun], None]:
    def record(run: FinishedRun) -> None:
        revisions.finished(run)
        journal.record(
            run_record(
                run.xr,
                run.outcome,
                run.plan,
                started=run.started,
                seconds=run.seconds,
                trigger=run.trigger,
                composition=run.composition,
                composition_revision=run.revision,
                failure=run.failure,
                secrets=run.secrets,
            )
        )

    return record
