"""The one place that builds a control plane from its parts."""

from __future__ import annotations

import asyncio
import logging
import resource
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

from planform import admission
from planform.api.kinds import GroupVersionKind, Kind, Object
from planform.apiserver.admission.authorship import Authorship
from planform.apiserver.admission.dynamic.dispatch import DynamicAdmission
from planform.apiserver.admission.dynamic.param_access import ParamAccessCheck
from planform.apiserver.admission.escalation import EscalationCheck
from planform.apiserver.admission.webhook_calls import WebhookCalls
from planform.apiserver.auth.acting import LocalRights, attributes_of
from planform.apiserver.auth.audit import AuditLog
from planform.apiserver.auth.authentication import Authentication
from planform.apiserver.auth.bootstrap import ensure_bootstrap
from planform.apiserver.auth.pki import Pki
from planform.apiserver.auth.private_files import make_private_directory, write_private
from planform.apiserver.auth.rbac import Rbac
from planform.apiserver.auth.reviews import Reviews
from planform.apiserver.auth.tokens import ServiceAccountTokens
from planform.apiserver.crds.conversion import Webhooks
from planform.apiserver.crds.registry import KindRegistry
from planform.apiserver.engine import open_engine
from planform.apiserver.local import LocalClient
from planform.apiserver.random_bytes import PooledSystemRandom
from planform.apiserver.verbs.core import Core
from planform.apiserver.verbs.requests import MASTERS
from planform.apiserver.wire.handler import Authenticator, Handler, Observer, refusal
from planform.apiserver.wire.http import HttpRequest, HttpResponse, HttpServer, Limits
from planform.apiserver.wire.metrics import RequestMetrics
from planform.apiserver.wire.nonresource import Mount, NonResourceEndpoints
from planform.apiserver.wire.offload import Offload
from planform.assembly import Controllers, Parts, open_controllers
from planform.blueprints import FUNCTIONS_PREFIX, LOGS_PREFIX
from planform.blueprints.actions import PhaseFunctions, blueprints_in
from planform.client.kubeconfig import write_kubeconfig
from planform.client.web_requests import Reach
from planform.clock import Clock, SystemClock
from planform.compositions.admission import RevisionGuard
from planform.compositions.revisions import TOOL_LABELS
from planform.engine.controllers import start_builtin_controllers
from planform.errors import NotFound, UsageError, system_words
from planform.features import FEATURES, BuiltInUse, FeatureGates
from planform.journal import serving
from planform.memory import IdleCollector, collect_seldom, keep_large_blocks_apart
from planform.pipeline.running import builtin_schema
from planform.preview import FUNCTION_DIFFS_PREFIX
from planform.reconcile.limiter import ConcurrencyLimiter
from planform.reconcile.manager import Manager, open_manager
from planform.reconcile.sources import Watches
from planform.rollouts.admission import RolloutGuard, revisions_in
from planform.rollouts.gates.tools import rollout_reach
from planform.sandbox.report import SandboxReport, configure
from planform.store import Codec, Store, Synchronous, open_store, remove_abandoned
from planform.telemetry.looplag import LoopLag
from planform.telemetry.metrics import MetricsRegistry
from planform.telemetry.tracing import PropagatingTracer, Tracer, open_telemetry_tracer
from planform.usages.controller import UsageGuard
from planform.usages.usages import USAGES_WEBHOOK
from planform.xrs.composed_kinds import ComposedKinds

log = logging.getLogger(__name__)

_EPHEMERAL = "planform-ephemeral-"


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Everything a user can choose. `data` None keeps nothing; `port` 0 takes any free one."""

    data: Path | None
    host: str = "127.0.0.1"
    port: int = 0
    kubeconfig: Path | None = None
    tls_names: tuple[str, ...] = ()
    token_file: Path | None = None
    features: FeatureGates = field(default_factory=lambda: FeatureGates({}))
    poll_interval: float = 60.0
    max_concurrent_reconciles: int = 100
    synchronous: Synchronous = "FULL"
    accept_loss: bool = False
    audit_log: Path | None = None
    encrypt_secrets: bool = False
    event_ttl: timedelta = timedelta(hours=1)
    otlp_endpoint: str = ""
    phase_function_versions: Path | None = None
    tool_labels: tuple[str, ...] = TOOL_LABELS
    rollout_reach: Reach = rollout_reach()  # noqa: RUF009  (frozen)
    """How far gates and notifications of Rollouts may go beyond public addresses."""
    builtin_functions: BuiltInUse = BuiltInUse.ALWAYS
    composed_kinds: ComposedKinds = ComposedKinds()  # noqa: RUF009  (frozen)
    kcl_modules: tuple[str, ...] = ()
    """Registries, or beginnings of repositories, from which KCL programs may have modules."""
    unconfined_tasks: frozenset[str] = frozenset()
    """Namespaces whose tasks may run outside the sandbox."""
    activations: tuple[str, ...] = ("*",)
    """What the default activation policy activates; without any there is no such policy."""
    shortcuts: bool = True
    """See `ControllerContext`."""
    allow_unconfined_functions: bool = False
    function_network: str = "host"
    limits: Limits = field(default_factory=Limits)


@dataclass(frozen=True)
class ControlPlane:
    """A running control plane."""

    url: str
    kubeconfig: Path
    started_in: float
    core: Core
    client: LocalClient
    manager: Manager
    metrics: MetricsRegistry
    server: HttpServer
    controllers: Controllers
    authenticator: Authenticator


def run_loop(main: Coroutine[Any, Any, None]) -> None:
    """Run a control plane's main coroutine on the fastest loop there is."""
    try:
        import uvloop
    except ImportError:
        asyncio.run(main)
    else:
        uvloop.run(main)


@asynccontextmanager
async def open_control_plane(settings: Settings, *, clock: Clock | None = None) -> AsyncIterator[ControlPlane]:
    """Start everything, in the order in which it depends on each other; leaving stops it in reverse.

    An error, whether of the start or of the block, comes out as it is, though groups of tasks surround it.
    """
    try:
        async with _opened(settings, clock) as control_plane:
            yield control_plane
    except BaseExceptionGroup as group:
        raise alone(group) from None


def alone(error: BaseException) -> BaseException:
    """The one error inside groups of one."""
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error


@asynccontextmanager
async def _opened(settings: Settings, clock: Clock | None) -> AsyncIterator[ControlPlane]:
    begun = time.perf_counter()
    clock = clock or SystemClock()
    metrics = MetricsRegistry()
    _show_features(settings.features, metrics)
    configure(allow_unconfined=settings.allow_unconfined_functions, function_network=settings.function_network)
    rng = PooledSystemRandom()
    async with AsyncExitStack() as stack:
        directory = settings.data
        if directory is None:
            remove_abandoned(_EPHEMERAL)
            directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix=_EPHEMERAL)))
        make_private_directory(directory)
        store = await stack.enter_async_context(await _open_store(settings, directory, clock, metrics))
        calls = WebhookCalls()
        core = _open_core(store, clock, stack, calls)
        rbac = Rbac(store)
        usages = UsageGuard(webhook=USAGES_WEBHOOK)
        phase_functions = PhaseFunctions(
            data=directory,
            overlay=settings.phase_function_versions,
            look=blueprints_in(store),
            unconfined=settings.unconfined_tasks,
        )
        core.admission = admission.chain(
            {
                admission.ESCALATION: EscalationCheck(rbac, store),
                admission.PARAMETERS: ParamAccessCheck(rbac, store, core.registry),
                admission.AUTHORSHIP: Authorship(lambda user, access: rbac.allows(user, attributes_of(access))),
                admission.PIPELINES: RevisionGuard(schema_of=_schemas_in(core.registry)),
                admission.ROLLOUTS: RolloutGuard(
                    lambda user, access: rbac.allows(user, attributes_of(access)), revisions_in(store), clock
                ),
                admission.USAGES: usages,
                admission.BLUEPRINTS: phase_functions,
            }
        )
        client = LocalClient(core)
        await ensure_bootstrap(client)
        core.dynamic_admission = DynamicAdmission(core, calls, rbac, metrics)

        pki = Pki(directory / "pki", clock=clock, names=(*settings.tls_names, settings.host))
        tokens = ServiceAccountTokens(store, directory / "pki", clock=clock)
        address = _Address(settings.host)
        watches = await stack.enter_async_context(Watches(client, clock=clock, rng=rng, metrics=metrics))
        manager = await stack.enter_async_context(open_manager(watches, clock=clock))
        limiter = ConcurrencyLimiter(4)
        builtin_controllers = start_builtin_controllers(
            core,
            manager,
            limiter=limiter,
            rng=rng,
            metrics=metrics,
            event_ttl=settings.event_ttl,
            concurrency=settings.max_concurrent_reconciles,
            poll_interval=settings.poll_interval,
        )
        stack.callback(builtin_controllers.close)
        controllers = await stack.enter_async_context(
            open_controllers(
                Parts(
                    client=client,
                    manager=manager,
                    clock=clock,
                    rng=rng,
                    limiter=limiter,
                    metrics=metrics,
                    data=directory,
                    features=settings.features,
                    tracer=_tracer(settings, stack),
                    concurrency=settings.max_concurrent_reconciles,
                    poll_interval=settings.poll_interval,
                    reads_at_once=True,
                    usage_guard=usages,
                    authority=pki,
                    server=lambda: f"https://{address}" if address.port else "",
                    phase_functions=phase_functions,
                    tool_labels=settings.tool_labels,
                    rollout_reach=settings.rollout_reach,
                    builtin_functions=settings.builtin_functions,
                    webhook_calls=calls,
                    activations=settings.activations,
                    shortcuts=settings.shortcuts,
                    rights=LocalRights(core, rbac),
                    composed_kinds=settings.composed_kinds,
                    kcl_modules=settings.kcl_modules,
                )
            )
        )
        stack.push_async_callback(manager.stop_all)  # before what reconciles use is closed

        handler = await _handler(settings, core, rbac, pki, tokens, metrics, address, stack, _mounts(controllers))
        server = HttpServer(handler.handle, refusal, limits=settings.limits, tls=pki.tls_context())
        address.port = await _listen(server, settings)
        stack.push_async_callback(server.stop)
        url = f"https://{address}"
        write_private(directory / "address", url.encode())
        kubeconfig = _write_admin_kubeconfig(settings, directory, pki, url)
        await stack.enter_async_context(_background(pki, tokens, clock, metrics))
        settle_process()
        yield ControlPlane(
            url,
            kubeconfig,
            time.perf_counter() - begun,
            core,
            client,
            manager,
            metrics,
            server,
            controllers,
            handler.authenticator,
        )


@dataclass(frozen=True)
class AtRest:
    """A control plane that holds objects and does nothing about them."""

    client: LocalClient
    core: Core

    def kinds(self) -> list[Kind]:
        """Every kind it stores, in the version in which it does."""
        return [served.kind for served in self.core.registry.storage_kinds()]


@asynccontextmanager
async def open_at_rest(directory: Path) -> AsyncIterator[AtRest]:
    """The engine of a stopped control plane, or of a new one, with its built-in controllers only, and without a
    server."""
    clock, rng, metrics = SystemClock(), PooledSystemRandom(), MetricsRegistry()
    make_private_directory(directory)
    async with AsyncExitStack() as stack:
        settings = Settings(data=directory)
        store = await stack.enter_async_context(await _open_store(settings, directory, clock, metrics))
        core = _open_core(store, clock, stack, WebhookCalls())
        client = LocalClient(core)
        watches = await stack.enter_async_context(Watches(client, clock=clock, rng=rng))
        manager = await stack.enter_async_context(open_manager(watches, clock=clock))
        builtin_controllers = start_builtin_controllers(
            core, manager, limiter=ConcurrencyLimiter(4), rng=rng, metrics=metrics
        )
        stack.callback(builtin_controllers.close)
        await ensure_bootstrap(client)
        yield AtRest(client, core)


async def _open_store(settings: Settings, directory: Path, clock: Clock, metrics: MetricsRegistry) -> Store:
    codec: Codec | None = None
    keys = directory / "pki" / "encryption.keys"
    if settings.encrypt_secrets or keys.exists():  # what was encrypted once must stay readable
        from planform.apiserver.auth.encryption import Encryption, add_key, load_keys

        make_private_directory(keys.parent)
        if not keys.exists():
            add_key(keys)
        codec = Encryption(load_keys(keys))
    return await open_store(
        directory / "store",
        clock=clock,
        synchronous=settings.synchronous,
        codec=codec,
        metrics=metrics,
        accept_loss=settings.accept_loss,
    )


def _open_core(store: Store, clock: Clock, stack: AsyncExitStack, calls: WebhookCalls) -> Core:
    stack.push_async_callback(calls.close)
    return open_engine(store, clock, webhooks=Webhooks(calls))


async def _handler(
    settings: Settings,
    core: Core,
    rbac: Rbac,
    pki: Pki,
    tokens: ServiceAccountTokens,
    metrics: MetricsRegistry,
    address: _Address,
    stack: AsyncExitStack,
    mounts: Mapping[tuple[str, ...], Mount],
) -> Handler:
    authentication = Authentication(
        clock=core.clock, pki=pki, tokens=tokens, authorizer=rbac, token_file=settings.token_file
    )
    observers: list[Observer] = [RequestMetrics(metrics)]
    if settings.audit_log is not None:
        observers.append(await stack.enter_async_context(AuditLog(settings.audit_log, clock=core.clock)))
    non_resource = NonResourceEndpoints(
        core,
        address=lambda: str(address),
        metrics=lambda opened: metrics.render(openmetrics=opened),
        live={"store": lambda: str(core.store.refusal) if core.store.refusal is not None else None},
        ready={"writes": lambda: str(failure) if (failure := core.store.write_failure) is not None else None},
        mounts=mounts,
    )
    offload = Offload()
    stack.push_async_callback(offload.close)
    return Handler(
        core,
        non_resource,
        authenticator=authentication,
        authorizer=rbac,
        virtual=Reviews(clock=core.clock, rbac=rbac, tokens=tokens, authentication=authentication),
        observers=tuple(observers),
        offload=offload,
    )


def _schemas_in(registry: KindRegistry) -> Callable[[GroupVersionKind], Object | None]:
    """The schemas of what is served at the moment."""

    def schema_of(kind: GroupVersionKind) -> Object | None:
        try:
            served = registry.find(kind)
        except NotFound:
            return None
        return builtin_schema(kind) if served.builtin or served.openapi is None else dict(served.openapi)

    return schema_of


def _tracer(settings: Settings, stack: AsyncExitStack) -> Tracer:
    """Traces go to a collector if one is named; else nothing is imported and nothing is kept."""
    if not settings.otlp_endpoint:
        return PropagatingTracer()
    tracer = open_telemetry_tracer(settings.otlp_endpoint)
    stack.callback(tracer.close)
    return tracer


def _mounts(controllers: Controllers) -> dict[tuple[str, ...], Mount]:
    """What controllers answer over HTTP beside their objects."""

    async def runs(_: HttpRequest, path: str, query: Mapping[str, list[str]]) -> HttpResponse:
        return HttpResponse(*await serving.answer(controllers.journal, path, query))

    async def functions(request: HttpRequest, path: str, _: Mapping[str, list[str]]) -> HttpResponse:
        asked = {"if-none-match": request.header(b"if-none-match")}
        status, headers, body = controllers.actions.list_functions(path, asked, request.method)
        sent = [(name.lower().encode(), value.encode()) for name, value in headers.items() if name != "content-type"]
        return HttpResponse(status, body, headers=sent)

    async def logs(_: HttpRequest, path: str, __: Mapping[str, list[str]]) -> HttpResponse:
        return HttpResponse(*controllers.actions.read_logs(path))

    async def diffs(_: HttpRequest, path: str, query: Mapping[str, list[str]]) -> HttpResponse:
        return HttpResponse(*await controllers.diffs.answer(path, query))

    return {serving.PREFIX: runs, FUNCTIONS_PREFIX: functions, LOGS_PREFIX: logs, FUNCTION_DIFFS_PREFIX: diffs}


async def _listen(server: HttpServer, settings: Settings) -> int:
    try:
        return await server.start(settings.host, settings.port)
    except OSError as error:
        raise UsageError(
            f"cannot listen on {settings.host}:{settings.port}: {system_words(error)}",
            hint="choose another address with --listen HOST:PORT; port 0 takes any free one",
        ) from error


@dataclass
class _Address:
    """Where clients find us; the port is known once we listen."""

    host: str
    port: int = 0

    def __str__(self) -> str:
        host = "127.0.0.1" if self.host in ("0.0.0.0", "::") else self.host
        return f"[{host}]:{self.port}" if ":" in host else f"{host}:{self.port}"


def _write_admin_kubeconfig(settings: Settings, directory: Path, pki: Pki, url: str) -> Path:
    credential = pki.kept_client("admin", "planform-admin", (MASTERS,))
    path = settings.kubeconfig or directory / "kubeconfig"
    write_kubeconfig(
        path,
        name="planform",
        server=url,
        ca=pki.authority_pem.encode(),
        certificate=credential.certificate.encode(),
        key=credential.key.encode(),
    )
    return path


def _show_features(features: FeatureGates, metrics: MetricsRegistry) -> None:
    gauge = metrics.gauge("planform_feature_enabled", "Whether a feature gate is on.", ["name"])
    for name in FEATURES:
        gauge.labels(name).set(float(features.enabled(name)))


@asynccontextmanager
async def _background(
    pki: Pki, tokens: ServiceAccountTokens, clock: Clock, metrics: MetricsRegistry
) -> AsyncIterator[None]:
    """Certificate renewal and the loop-lag probe, for as long as the control plane runs."""
    collector = IdleCollector()
    tasks = [
        asyncio.create_task(pki.keep_renewed(), name="certificate renewal"),
        asyncio.create_task(asyncio.to_thread(tokens.prepare), name="token key"),
        asyncio.create_task(SandboxReport(metrics).run(), name="which sandbox there is"),
        asyncio.create_task(
            LoopLag(metrics, clock, when_idle=collector.when_idle, when_busy=collector.when_busy).run(), name="loop lag"
        ),
    ]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def settle_process() -> None:
    """Take the file descriptors we may have, and see to it that memory is given back and seldom searched."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 65536) if hard > 0 else 65536, hard))
    keep_large_blocks_apart()
    collect_seldom()
