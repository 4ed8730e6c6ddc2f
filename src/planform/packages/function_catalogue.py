"""The functions there are at this moment: which versions, and where each of them serves.

One value of it serves every pipeline: `catalogue` is what steps are resolved against, `endpoint` what calls are routed
by, and `subscribe` tells whose pipelines might now run otherwise. It reads FunctionRevisions, whoever makes them, and
of Secrets only those that a revision names.

Built-ins are there without being installed, under every name users give them; a Function of the same name hides them.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol, Self

from planform.api.annotations import annotations_of
from planform.api.extensions.packages import FunctionRevisionStatus, FunctionSpec, RevisionSpec
from planform.api.kinds import Object
from planform.api.metadata import created_at, is_deleted, labels_of, name_of
from planform.api.names import FUNCTION, FUNCTION_REVISION, IMAGE_CONFIG, PACKAGE_LABEL, SECRET
from planform.api.objects import spec_of, status_of
from planform.builtin import BuiltinName, find_builtin, find_builtin_name, list_builtins
from planform.builtin.compiled import CompiledFunction
from planform.client.informer import Informer, InformerEvent
from planform.client.waits import time_limit
from planform.functions.endpoints import Endpoint, InProcess, Remote
from planform.functions.errors import FunctionUnavailable
from planform.functions.inprocess import InProcessRunner
from planform.functions.refusals import RefusalCountingRunner
from planform.functions.resolution import Catalogue, Version
from planform.functions.routing import RoutingRunner
from planform.functions.runner import (
    BUILTIN_DIGEST,
    MAX_ANSWER_SIZE,
    BuiltinFunction,
    FunctionRevision,
    FunctionRunner,
    WaitingFunction,
)
from planform.functions.semver import parse_semver
from planform.functions.values import FunctionRequest, FunctionResponse
from planform.packages.endpoints import SecretRef, max_answer_size_of, runs_externally, serving, tls_secret_of
from planform.packages.image_config import ImageConfig, InvalidImageConfig, parse_image_config
from planform.packages.revision_objects import DIGEST_ANNOTATION
from planform.packages.revisions import how_to_activate
from planform.packages.shipped_functions import stand_in
from planform.pipeline.modes import PATCH_AND_TRANSFORM, SHIPPED_PATCH_AND_TRANSFORM
from planform.reconcile.context import ControllerContext
from planform.reconcile.sources import Subscription
from planform.telemetry.metrics import MetricsRegistry
from planform.telemetry.tracing import Tracer

if TYPE_CHECKING:
    from planform.builtin.kcl.modules import Modules
    from planform.builtin.seeds import RandomKeys
    from planform.functions.grpc_transport import CallLimits
    from planform.packages.runtimes.host import RuntimeStatus

OnChange = Callable[[frozenset[str]], None]
"""Hears the names of functions; called on the event loop, must not wait and not raise."""

BUILTIN_REVISION: Final = "builtin"
"""The revision that a built-in has under a name that nobody installed."""

BUILTIN_CAPABILITIES: Final = ("composition", "operation")
DETERMINISTIC: Final = "deterministic"
"""The capability of a function that answers the same whenever it is sent the same."""

_HEALTH: Final = frozenset({"RevisionHealthy", "RuntimeHealthy", "Healthy"})
_PREFIX: Final = "function-"
_REMEMBERED_INPUTS: Final = 1024
_SECRETS_WAIT: Final = 5.0


@dataclass(frozen=True, slots=True)
class _Served:
    """A version and where it is called."""

    version: Version
    endpoint: Endpoint | None
    hosted: bool = False
    """Whether it runs on this machine; then its host knows the endpoint."""


class _Function(NamedTuple):
    """A Function object."""

    package: str
    runs_externally: bool
    builtin: str = ""
    """The built-in that stands in for its package, if any does."""
    is_automatic: bool = True
    history: int = 1
    deactivates: bool = False


class Hosting(Protocol):
    """Whoever runs revisions on this machine."""

    def runtime_status(self, revision: str) -> RuntimeStatus | None: ...

    def remote(self, revision: str) -> Remote | None: ...

    def subscribe(self, callback: Callable[[str], None]) -> Callable[[], None]: ...

    def runner(self, otherwise: FunctionRunner) -> FunctionRunner: ...


class LiveFunctions:
    """The functions of one control plane, in memory. Use it as a context manager, and wait for `synced`."""

    def __init__(
        self, context: ControllerContext, host: Hosting | None = None, versions: Mapping[str, str] | None = None
    ) -> None:
        """`versions` of built-in functions are instead of their own, as in another release."""
        self._context = context
        self._host = host
        self._versions = versions or {}
        self._builtins = {
            name: _builtin(name, entry, self._versions) for entry in list_builtins() for name in names_of(entry)
        }
        if (shipped := find_builtin_name(PATCH_AND_TRANSFORM)) is not None:
            self._builtins[SHIPPED_PATCH_AND_TRANSFORM] = _builtin(SHIPPED_PATCH_AND_TRANSFORM, shipped, self._versions)
        self._functions: dict[str, _Function] = {}
        self._rules: dict[str, ImageConfig] = {}  # for images
        self._revisions: dict[str, dict[str, Object]] = {}  # by function, then by their own names
        self._parents: dict[str, str] = {}  # the function of each revision
        self._named: dict[str, SecretRef] = {}  # the Secret of each revision that names one
        self._secrets = _Secrets(context, self._on_secret)
        self._served: dict[str, tuple[_Served, ...]] = {name: (served,) for name, served in self._builtins.items()}
        self._catalogue: Catalogue | None = None
        self._subscribers: dict[object, OnChange] = {}
        self._subscriptions: list[Subscription] = []
        self._ignoring: dict[tuple[str, int], tuple[Object | None, bool]] = {}
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        await self._stack.enter_async_context(self._secrets)
        for gvk, handler in (
            (IMAGE_CONFIG, self._on_rule),
            (FUNCTION, self._on_function),
            (FUNCTION_REVISION, self._on_revision),
        ):
            subscription = self._context.manager.subscribe(gvk, handler)
            self._subscriptions.append(subscription)
            self._stack.callback(subscription.close)
        if self._host is not None:
            self._stack.callback(self._host.subscribe(self._on_hosted))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stack.__aexit__(kind, error, trace)

    async def synced(self) -> None:
        """Wait until all revisions that there were at the start are known; of their Secrets, those that can be read."""
        for subscription in self._subscriptions:
            await subscription.synced()
        await self._secrets.synced()

    @property
    def catalogue(self) -> Catalogue:
        """Every version of every function. The same value until one of them changes."""
        if self._catalogue is None:
            self._catalogue = Catalogue(each.version for served in self._served.values() for each in served)
        return self._catalogue

    @property
    def remote(self) -> frozenset[FunctionRevision]:
        """The active revisions that are called over the network."""
        return frozenset(
            each.version.revision
            for served in self._served.values()
            for each in served
            if each.version.active and isinstance(self._endpoint(each), Remote)
        )

    def endpoint(self, revision: FunctionRevision, /) -> Endpoint | None:
        """Where a revision is called; None if it is not known, or gone. An inactive one may end what it has begun."""
        for each in self._served.get(revision.function, ()):
            if each.version.id == revision.name:
                return self._endpoint(each)
        return None

    def _endpoint(self, served: _Served) -> Endpoint | None:
        """One that runs here may have moved a moment ago, which is nobody's business but its callers'."""
        return self._host.remote(served.version.id) if served.hosted and self._host is not None else served.endpoint

    def ignores_control_plane_fields(self, revision: FunctionRevision, given: Object | None) -> bool:
        """Whether a function with this input certainly does not look at what the control plane keeps in the XR."""
        key = revision.digest, id(given)
        known = self._ignoring.get(key)
        if known is None:
            endpoint = self.endpoint(revision)
            builtin = find_builtin(endpoint.name) if isinstance(endpoint, InProcess) else None
            ignores = isinstance(builtin, CompiledFunction) and not builtin.reads_control_plane_fields(given)
            if len(self._ignoring) >= _REMEMBERED_INPUTS:
                self._ignoring.clear()
            known = self._ignoring[key] = (given, ignores)  # an input that is kept cannot lend its id to another
        return known[1]

    def subscribe(self, callback: OnChange) -> Callable[[], None]:
        """Tell `callback` the functions that from now on may be resolved or called otherwise; gives what ends that."""
        token = object()
        self._subscribers[token] = callback

        def unsubscribe() -> None:
            self._subscribers.pop(token, None)

        return unsubscribe

    # -- what is watched

    def _on_function(self, change: InformerEvent) -> None:
        name = change.key.name
        if change.type == "DELETED":
            self._functions.pop(name, None)
        else:
            spec, annotations = spec_of(change.object, FunctionSpec), annotations_of(change.object)
            builtin = stand_in(spec.package, annotations, self._context.builtin_functions)
            self._functions[name] = _Function(
                spec.package,
                runs_externally(annotations),
                builtin.name if builtin is not None else "",
                spec.is_automatic,
                spec.history_limit,
                spec.in_use_policy == "Deactivate",
            )
        self._refresh([name])

    def _on_rule(self, change: InformerEvent) -> None:
        name = change.key.name
        self._rules.pop(name, None)
        if change.type != "DELETED":
            with suppress(InvalidImageConfig):  # which packages say that it is about
                self._rules[name] = parse_image_config(change.object)
        self._refresh(list(self._functions))

    def _may_stand_in(self, name: str) -> bool:
        """While a Function has no revision yet, the built-in it is about to install already serves."""
        function, known = self._functions.get(name), self._builtins[name]
        if function is None:
            return True
        return (
            bool(function.builtin)
            and known.endpoint == InProcess(function.builtin)
            and not function.runs_externally
            and not any(rule.rewrite and rule.longest_match(function.package) for rule in self._rules.values())
        )

    def _on_revision(self, change: InformerEvent) -> None:
        name, obj = change.key.name, change.object
        gone = change.type == "DELETED" or is_deleted(obj)
        parent = "" if gone else str(labels_of(obj).get(PACKAGE_LABEL) or "")
        before, secret_before = self._parents.pop(name, ""), self._named.pop(name, None)
        if before:
            self._revisions[before].pop(name)
        if parent:
            self._parents[name] = parent
            self._revisions.setdefault(parent, {})[name] = _kept(obj)
            secret = tls_secret_of(annotations_of(obj))
            if secret is not None:
                self._named[name] = secret
        if self._named.get(name) != secret_before:
            self._secrets.want(frozenset(self._named.values()))
        self._refresh(dict.fromkeys(filter(None, (before, parent))))

    def _on_secret(self, secret: SecretRef) -> None:
        revisions = [name for name, named in self._named.items() if named == secret]
        self._refresh(dict.fromkeys(self._parents[name] for name in revisions))

    def _on_hosted(self, revision: str) -> None:
        if function := self._parents.get(revision):
            self._refresh([function])

    # -- what is known

    def _refresh(self, functions: Iterable[str]) -> None:
        changed = [name for name in functions if self._serve(name)]
        if not changed:
            return
        self._catalogue = None
        names = frozenset(changed)
        for callback in list(self._subscribers.values()):
            callback(names)

    def _serve(self, function: str) -> bool:
        """Bring what is known of one function up to date; whether anything of it is different now."""
        revisions = self._revisions.get(function)
        served: tuple[_Served, ...] = ()
        if revisions:
            served = tuple(self._of(function, obj) for _, obj in sorted(revisions.items()))
        elif function in self._builtins and self._may_stand_in(function):
            served = (self._builtins[function],)
        before = self._served.get(function, ())
        if served == before:
            if [each.version.activation for each in served] != [each.version.activation for each in before]:
                self._served[function], self._catalogue = served, None  # nothing is resolved otherwise: nobody is told
            return False
        if served:
            self._served[function] = served
        else:
            del self._served[function]
        return True

    def _of(self, function: str, obj: Object) -> _Served:
        annotations, status = annotations_of(obj), obj["status"]
        if DIGEST_ANNOTATION in annotations and not runs_externally(annotations):
            return self._of_package(function, obj, annotations[DIGEST_ANNOTATION])
        reference = self._named.get(name_of(obj))
        secret = self._secrets.get(reference) if reference is not None else None
        endpoint = serving(str(status.get("endpoint") or ""), annotations, secret).endpoint
        digest, deterministic, quick = "", False, False
        if isinstance(endpoint, InProcess):
            builtin = find_builtin_name(endpoint.name)
            if builtin is None:  # a later release had it
                endpoint = None
            else:
                digest, deterministic = builtin_digest(builtin, self._versions), builtin.deterministic
                quick = builtin.quick
        version = _version(
            function,
            obj,
            digest=digest,
            ready=_is_healthy(status),
            reachable=endpoint is not None,
            deterministic=deterministic,
            quick=quick,
            activation=self._activation(function, obj),
        )
        return _Served(version, endpoint)

    def _of_package(self, function: str, obj: Object, digest: str) -> _Served:
        """A revision that was pulled, and runs here or nowhere; its host knows first whether it serves."""
        runtime_status = self._host.runtime_status(name_of(obj)) if self._host is not None else None
        version = _version(
            function,
            obj,
            digest=digest,
            ready=runtime_status is not None and runtime_status.ready,
            reachable=runtime_status is not None and bool(runtime_status.endpoint),
            activation=self._activation(function, obj),
        )
        return _Served(version, None, hosted=True)

    def _activation(self, function: str, obj: Object) -> str:
        """What to do so that an inactive revision serves; empty for an active one."""
        name, spec = name_of(obj), spec_of(obj, RevisionSpec)
        if spec.is_active:
            return ""
        known = self._functions.get(function)
        if known is None or not known.is_automatic:
            return f"activate it: planform function activate {function} --revision {name}"
        numbers = [spec_of(each, RevisionSpec).revision for each in self._revisions[function].values()]
        rank = sum(each >= spec.revision for each in numbers)
        return how_to_activate(function, rank, history=known.history, deactivates=known.deactivates)


class _Secrets:
    """The Secrets that are wanted, each watched by its name."""

    def __init__(self, context: ControllerContext, on_change: Callable[[SecretRef], None]) -> None:
        self._context = context
        self._on_change = on_change
        self._known: dict[SecretRef, Object] = {}
        self._watched: dict[SecretRef, tuple[Informer, asyncio.Task[None]]] = {}
        self._tasks = asyncio.TaskGroup()

    async def __aenter__(self) -> Self:
        await self._tasks.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.want(frozenset())
        await self._tasks.__aexit__(kind, error, trace)

    def get(self, reference: SecretRef) -> Object | None:
        return self._known.get(reference)

    def want(self, references: frozenset[SecretRef]) -> None:
        """Watch exactly these from now on."""
        for reference in self._watched.keys() - references:
            self._watched.pop(reference)[1].cancel()
            self._known.pop(reference, None)
        for reference in references - self._watched.keys():
            informer = Informer(
                self._context.client,
                SECRET,
                partial(self._on_secret, reference),
                clock=self._context.clock,
                rng=self._context.rng,
                namespace=reference.namespace,
                fields=f"metadata.name={reference.name}",
            )
            task = self._tasks.create_task(informer.run(), name=f"watch Secret {reference}")
            self._watched[reference] = informer, task

    async def synced(self) -> None:
        """Wait for all of them, but not long: one that may not be read must not hold up the rest."""
        try:
            async with time_limit(self._context.clock, _SECRETS_WAIT):
                for informer, _ in list(self._watched.values()):
                    await informer.synced()
        except TimeoutError:
            pass

    def _on_secret(self, reference: SecretRef, change: InformerEvent) -> None:
        if change.type == "BOOKMARK" or reference not in self._watched:
            return
        if change.type == "DELETED":
            self._known.pop(reference, None)
        else:
            self._known[reference] = {"data": change.object.get("data") or {}}
        self._on_change(reference)


def names_of(builtin: BuiltinName) -> tuple[str, ...]:
    """Every name by which users call a built-in."""
    names = (builtin.name, *builtin.aliases)
    return (*names, *(_PREFIX + name for name in names))


def builtin_digest(builtin: BuiltinName, versions: Mapping[str, str]) -> str:
    """What a built-in answers is that of its own version, whatever revision stands for it."""
    return f"{BUILTIN_DIGEST}{builtin.name}:{versions.get(builtin.name, builtin.version)}"


@asynccontextmanager
async def runner(
    live: LiveFunctions,
    *,
    metrics: MetricsRegistry | None = None,
    limits: CallLimits | None = None,
    data: Path | None = None,
    tracer: Tracer | None = None,
    host: Hosting | None = None,
    keys: RandomKeys | None = None,
    modules: Callable[[], Modules] | None = None,
) -> AsyncIterator[FunctionRunner]:
    """Calls every function where it serves, until the block ends; calls in flight are then cancelled.

    `data` is the control plane's own directory, which scripts of users do not get to see; `host` runs what runs on this
    machine; `keys` are what random values of templates are made with; `modules` gives those that KCL programs may have.
    Connections of a revision that is gone or inactive are closed once its calls have ended.
    """
    builtins = InProcessRunner(_finder(data, keys, modules), metrics=metrics)
    async with _Remote(live, limits, metrics, tracer) as remote:
        routing = RoutingRunner(live, builtins, remote)
        called = routing if host is None else host.runner(routing)
        yield RefusalCountingRunner(called, metrics=metrics or MetricsRegistry())


class _Remote:
    """Functions over gRPC, of which nothing is imported before the first of them is called."""

    def __init__(
        self, live: LiveFunctions, limits: CallLimits | None, metrics: MetricsRegistry | None, tracer: Tracer | None
    ) -> None:
        self._live = live
        self._limits = limits
        self._metrics = metrics
        self._tracer = tracer
        self._stack = AsyncExitStack()
        self._runner: FunctionRunner | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stack.__aexit__(kind, error, trace)

    async def run(self, revision: FunctionRevision, request: FunctionRequest, /, *, timeout: float) -> FunctionResponse:
        if self._runner is None:
            self._runner = await self._open(revision)
        return await self._runner.run(revision, request, timeout=timeout)

    async def _open(self, revision: FunctionRevision) -> FunctionRunner:
        try:
            from planform.functions.grpc_transport import CallLimits, GrpcRunner
        except ImportError as error:
            raise FunctionUnavailable(
                "functions over gRPC are not available here",
                revision=revision,
                hint="install grpcio, protobuf and planform-sdk beside planform",
            ) from error
        limits = self._limits or CallLimits()
        runner = GrpcRunner(self._live, limits=limits, metrics=self._metrics, tracer=self._tracer)
        self._stack.push_async_exit(runner)
        self._stack.callback(self._live.subscribe(lambda _: runner.retain(self._live.remote)))
        return runner


def _finder(
    data: Path | None, keys: RandomKeys | None, modules: Callable[[], Modules] | None
) -> Callable[[str], BuiltinFunction | WaitingFunction | None]:
    @cache
    def find(name: str) -> BuiltinFunction | WaitingFunction | None:
        if name == "python" and data is not None:
            from planform.builtin.python import InlinePython

            return InlinePython(hidden=(data,))
        if keys is not None and find_builtin_name(name) == find_builtin_name("go-templating"):
            from planform.builtin.go_templating import GoTemplating

            return GoTemplating(keys)
        if modules is not None and find_builtin_name(name) == find_builtin_name("kcl"):
            from planform.builtin.kcl import Kcl

            return Kcl(modules())
        return find_builtin(name)

    return find


def _builtin(name: str, entry: BuiltinName, versions: Mapping[str, str]) -> _Served:
    version = Version(
        name,
        BUILTIN_REVISION,
        digest=builtin_digest(entry, versions),
        capabilities=frozenset(BUILTIN_CAPABILITIES),
        deterministic=entry.deterministic,
        quick=entry.quick,
    )
    return _Served(version, InProcess(entry.name))


def _version(
    function: str,
    obj: Object,
    *,
    digest: str,
    ready: bool,
    reachable: bool,
    deterministic: bool = False,
    quick: bool = False,
    activation: str = "",
) -> Version:
    spec = spec_of(obj, RevisionSpec)
    capabilities = frozenset(status_of(obj, FunctionRevisionStatus).capabilities or ())
    return Version(
        function,
        name_of(obj),
        digest=digest,
        semver=_tag(spec.image),
        number=spec.revision,
        labels=labels_of(obj),
        active=spec.is_active,
        ready=ready,
        reachable=reachable,
        capabilities=capabilities or None,
        deterministic=deterministic or DETERMINISTIC in capabilities,
        quick=quick,
        created=created_at(obj),
        max_answer_size=max_answer_size_of(annotations_of(obj)) or MAX_ANSWER_SIZE,
        activation=activation,
    )


def _kept(obj: Object) -> Object:
    """What is read of a revision later on."""
    metadata = {key: value for key, value in obj["metadata"].items() if key != "managedFields"}
    return {"metadata": metadata, "spec": obj.get("spec") or {}, "status": obj.get("status") or {}}


def _is_healthy(status: Mapping[str, Any]) -> bool:
    """Nothing that is said of its health is bad; of a revision that somebody runs elsewhere, nothing may be said."""
    conditions = status.get("conditions") or ()
    return all(each.get("status") == "True" for each in conditions if each.get("type") in _HEALTH)


def _tag(image: str) -> str:
    """The version in an image's tag, if it is one."""
    tag = image.partition("@")[0].rpartition("/")[2].partition(":")[2]
    return tag if parse_semver(tag) is not None else ""
