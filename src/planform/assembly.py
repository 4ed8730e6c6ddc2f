"""The controllers of a control plane, put together the same way for both engines.

The embedded control plane runs them beside its API server; on Kubernetes they run alone. What only the embedded engine
needs (built-in controllers that a cluster has itself, admission) is `app`'s business.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from planform.api.names import SYSTEM_NAMESPACE, XRD
from planform.apiserver.admission.webhook_calls import WebhookCalls
from planform.blueprints.actions import Actions, PhaseFunctions
from planform.blueprints.packaged_phases import PackagedPhases
from planform.builtin import list_builtins
from planform.claims.controller import ClaimControllers
from planform.client.informer import list_pages
from planform.client.protocol import Client
from planform.client.rights import NoRights, Rights
from planform.client.web_requests import Reach
from planform.clock import Clock
from planform.compositions.controller import CompositionController
from planform.compositions.live_rollouts import LiveRollouts
from planform.compositions.pinned_functions import PinnedFunctions
from planform.compositions.revisions import TOOL_LABELS
from planform.compositions.usage_index import UsageIndex
from planform.definitions.controller import DefinitionController, InstanceControllers
from planform.definitions.own_crds import ensure_crds
from planform.engine.nop_kinds import NopKinds, groups_left_out
from planform.features import BuiltInUse, FeatureGates
from planform.functions.cache import ResponseCache
from planform.journal.journal import Journal, open_journal
from planform.operations.controller import OperationController
from planform.operations.cron_controller import CronOperationController
from planform.operations.watch_controller import WatchOperationController
from planform.packages.fetching import RegistryPackages
from planform.packages.function_catalogue import LiveFunctions, runner
from planform.packages.function_controller import FunctionController, Packaging
from planform.packages.managed_definitions import (
    ActivationPolicyController,
    ManagedDefinitionController,
    ensure_default_policy,
)
from planform.packages.runtimes.certificates import Authority
from planform.packages.runtimes.host import RuntimeHost
from planform.packages.runtimes.kubernetes import ClusterRuntime
from planform.packages.wiring import open_cluster_packaging, open_packaging, settled, start_packages
from planform.pipeline.random_keys import StoredRandomKeys
from planform.pipeline.recording import run_record
from planform.pipeline.running import ClientReader, Pipelines, SecretCredentials, resolver_of
from planform.preview.candidate_functions import InstalledFunctions
from planform.preview.controller import PreviewController
from planform.preview.function_diffs import FunctionDiffs
from planform.reconcile.context import ControllerContext
from planform.reconcile.events import Events, open_events
from planform.reconcile.limiter import ConcurrencyLimiter
from planform.reconcile.manager import Manager
from planform.reconcile.shards import Shards
from planform.rollouts.controller import RolloutController
from planform.rollouts.gates.background import open_measurements
from planform.rollouts.gates.tools import GateTools, rollout_reach
from planform.rollouts.gating import WaveGates
from planform.rollouts.notifications import NotificationController
from planform.rollouts.own_release import ReleaseRollouts, release_id
from planform.rollouts.policy_controller import PolicyController
from planform.rollouts.window_controller import ChangeWindowController
from planform.telemetry.metrics import MetricsRegistry
from planform.telemetry.tracing import PropagatingTracer, Tracer
from planform.usages.controller import UsageController, UsageGuard
from planform.xrs.composed_kinds import ComposedKinds
from planform.xrs.context import FinishedRun, Tools
from planform.xrs.controller import CompositeControllers
from planform.xrs.enforced_plans import EnforcedPlans
from planform.xrs.function_users import FunctionUsers
from planform.xrs.index import Definition
from planform.xrs.live_compositions import LiveCompositions
from planform.xrs.rights import NamespaceAccounts
from planform.xrs.sharding import ServedDefinitions, SharedComposites
from planform.xrs.step_revisions import StepRevisions

if TYPE_CHECKING:
    from planform.builtin.kcl.modules import Modules


@dataclass(frozen=True, kw_only=True)
class Parts:
    """What the controllers are built from. `data` is a directory of the process' own; None keeps nothing."""

    client: Client
    xr_client: Client | None = None
    """See `ControllerContext`."""
    manager: Manager
    clock: Clock
    rng: Random
    limiter: ConcurrencyLimiter
    metrics: MetricsRegistry
    data: Path | None = None
    features: FeatureGates = field(default_factory=lambda: FeatureGates({}))
    tracer: Tracer = field(default_factory=PropagatingTracer)
    concurrency: int = 100
    poll_interval: float = 60.0
    reads_at_once: bool = False
    shortcuts: bool = True
    """See `ControllerContext`."""
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
    rollout_reach: Reach = rollout_reach()  # noqa: RUF009  (frozen)
    """How far gates and notifications of Rollouts may go beyond public addresses."""
    jobs: bool = False
    """Whether somebody runs Jobs here."""
    tool_labels: tuple[str, ...] = TOOL_LABELS
    """Labels of Compositions that make no new revision; a pattern may end in `*`."""
    activations: tuple[str, ...] = ("*",)
    """Patterns of the default activation policy; without any there is none."""
    rights: Rights = field(default_factory=NoRights)
    """See `ControllerContext`."""
    composed_kinds: ComposedKinds = ComposedKinds()  # noqa: RUF009  (frozen)
    """What Compositions may compose here."""
    kcl_modules: tuple[str, ...] = ()
    """Registries, or beginnings of repositories, from which KCL programs may have modules."""
    builtin_functions: BuiltInUse = BuiltInUse.ALWAYS
    """For which packages the functions serve that ship with planform."""
    builtin_versions: Mapping[str, str] = field(default_factory=dict)
    """Versions of functions that ship with planform instead of their own: what another release is, for tests."""
    webhook_calls: WebhookCalls | None = None
    """Calls webhooks, also those of providers that run here; None where somebody else does."""
    shards: Shards | None = None
    """Which XRs are this process' own, where several share them; all but XRs then waits for `Controllers.lead`."""


@dataclass(frozen=True)
class Controllers:
    """Running controllers, and what others may want to ask them."""

    context: ControllerContext
    events: Events
    functions: LiveFunctions
    pipelines: Pipelines
    usage_index: UsageIndex
    journal: Journal
    cache: ResponseCache
    actions: Actions
    diffs: FunctionDiffs
    temporary_activation: Callable[[str], AbstractAsyncContextManager[None]]
    """Has a function revision run while its block does."""
    lead: Callable[[], Awaitable[None]]
    """Start all that only one process may run; done already unless XRs are shared."""


@asynccontextmanager
async def open_controllers(parts: Parts) -> AsyncIterator[Controllers]:
    """Bring our kinds and run every controller until the block ends (the manager's owner ends their reconciles)."""
    left_out = await groups_left_out(parts.client, parts.features)
    await ensure_crds(parts.client, clock=parts.clock, without=left_out)
    async with AsyncExitStack() as stack:
        events = await stack.enter_async_context(open_events(parts.client, clock=parts.clock, metrics=parts.metrics))
        context = ControllerContext(
            client=parts.client,
            manager=parts.manager,
            events=events,
            clock=parts.clock,
            rng=parts.rng,
            limiter=parts.limiter,
            metrics=parts.metrics,
            tracer=parts.tracer,
            features=parts.features,
            concurrency=parts.concurrency,
            poll_interval=parts.poll_interval,
            reads_at_once=parts.reads_at_once,
            shortcuts=parts.shortcuts,
            shards=parts.shards,
            xr_client=parts.xr_client if parts.shortcuts else None,
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
            packaging = await stack.enter_async_context(open_cluster_packaging(context, data, parts.cluster))
        elif data is not None and parts.authority is not None:
            packaging = await stack.enter_async_context(open_packaging(context, data, parts.authority))
        nop_kinds = NopKinds(context.for_xrs)
        if packaging is not None:
            packaging.contents.built_in_kinds = nop_kinds
        host = packaging.host if packaging is not None else None
        if parts.webhook_calls is not None and isinstance(host, RuntimeHost):
            parts.webhook_calls.services = host
        functions = await stack.enter_async_context(LiveFunctions(context, host, parts.builtin_versions))
        # The key must be there before the first XR is, or that XR counts as one from before there was a key.
        keys = StoredRandomKeys(parts.client, parts.cluster.namespace if parts.cluster else SYSTEM_NAMESPACE)
        await keys.ensure()
        call = await stack.enter_async_context(
            runner(
                functions,
                metrics=parts.metrics,
                data=parts.data,
                tracer=parts.tracer,
                host=host,
                keys=keys,
                modules=_kcl_modules(parts, packaging, data),
            )
        )
        cache = ResponseCache(parts.clock, metrics=parts.metrics)
        pipelines = Pipelines(
            resolver=resolver_of(lambda: functions.catalogue, parts.features),
            runner=call,
            reader=ClientReader(parts.client),
            credentials=SecretCredentials(parts.client),
            clock=parts.clock,
            cache=cache if parts.shortcuts else None,
            ignores_control_plane_fields=functions.ignores_control_plane_fields,
        )
        usage_index = UsageIndex(parts.metrics)
        compositions = LiveCompositions(parts.client, parts.manager)
        rollouts = LiveRollouts(parts.manager)
        accounts = NamespaceAccounts(parts.manager)
        enforced = EnforcedPlans(parts.client, parts.manager)
        enforced.start()
        tools = Tools(
            context=context.for_xrs,
            pipelines=pipelines,
            compositions=compositions,
            usage_index=usage_index,
            record=_recorder(journal, StepRevisions(events)),
            accounts=accounts,
            enforced=enforced,
            releases=ReleaseRollouts(
                context, rollouts, compositions, release_id(list_builtins(), parts.builtin_versions)
            ),
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
        usage_index.started()
        selectors = parts.features.enabled("FunctionRevisionSelectors")
        actions = Actions(context, parts.phase_functions)
        pins = PinnedFunctions(parts.manager, rollouts, usage_index)
        users = FunctionUsers(
            parts.manager,
            usage_index,
            functions,
            actions.uses,
            pins=pins,
            metrics=parts.metrics,
            selectors_enabled=selectors,
        )
        users.start()
        installed = FunctionController(context, functions, packaging, users, external=parts.external_functions)

        gate_tools = GateTools(
            client=parts.client,
            clock=parts.clock,
            rights=parts.rights,
            reach=parts.rollout_reach,
            jobs=parts.jobs,
            metrics=parts.metrics,
        )
        previews = PreviewController(
            context,
            pipelines,
            InstalledFunctions(
                parts.client,
                lambda: functions.catalogue,
                installed.temporary_activation,
                selectors_enabled=selectors,
            ),
        )
        previews.start()

        async def lead() -> None:
            UsageController(context, parts.usage_guard).start()
            if served is not None:
                await served.stop()
            await actions.count_uses()
            pins.start()
            await pins.synced()  # what a way back pins must not be deactivated for want of knowledge
            installed.start()
            if packaging is not None:
                assert data is not None
                start_packages(context, packaging, parts.authority, data, parts.server)
                await settled(context, packaging)
            CompositionController(
                context, usage_index, functions, ignored_labels=parts.tool_labels, rollouts=rollouts
            ).start()
            rollout_controller = RolloutController(
                context, rollouts, compositions, functions, ignored_labels=parts.tool_labels
            )
            measurements = await stack.enter_async_context(open_measurements(gate_tools, rollout_controller.wake))
            rollout_controller.gates = WaveGates(parts.client, parts.clock, measurements)
            rollout_controller.start()
            DefinitionController(context, instances, ClaimControllers(context)).start()
            await ensure_default_policy(parts.client, parts.activations)
            ManagedDefinitionController(context).start()
            ActivationPolicyController(context).start()
            OperationController(context, pipelines).start()
            CronOperationController(context).start()
            WatchOperationController(context).start()
            ChangeWindowController(context).start()
            NotificationController(context, gate_tools).start()
            PolicyController(context, rollouts).start()
            nop_kinds.start()
            actions.start()
            previews.lead()
            PackagedPhases(functions, pipelines, parts.phase_functions).start()

        instances: InstanceControllers = composites
        served: ServedDefinitions | None = None
        if parts.shards is None:
            await lead()
        else:
            instances = SharedComposites(composites, context, usage_index, parts.shards)
            served = ServedDefinitions(context, instances)
            served.start()
        diffs = FunctionDiffs(
            parts.client,
            functions=functions,
            users=users,
            usage_index=usage_index,
            pipelines=pipelines,
            journal=journal,
            features=parts.features,
            temporary_activation=installed.temporary_activation,
        )
        yield Controllers(
            context,
            events,
            functions,
            pipelines,
            usage_index,
            journal,
            cache,
            actions,
            diffs,
            installed.temporary_activation,
            lead,
        )


async def _definitions(client: Client) -> list[Definition]:
    return [Definition.of(xrd) async for page in list_pages(client, XRD) for xrd in page.items]


def _kcl_modules(parts: Parts, packaging: Packaging | None, data: Path | None) -> Callable[[], Modules] | None:
    """What gives the modules of KCL programs; nothing is made before the first program runs."""
    source = packaging.contents.source if packaging is not None else None
    if data is None or not isinstance(source, RegistryPackages):
        return None

    def modules() -> Modules:
        from planform.packages.kcl_modules import RegistryModules

        return RegistryModules(data / "kcl-modules", source, parts.kcl_modules, clock=parts.clock)

    return modules


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
                errors=run.errors,
            )
        )

    return record
