"""Runs the revisions that shall run: starts them, replaces them by another way of running them, drains and stops them.

One task looks after each revision. Told another way to run it (other arguments, another certificate), it starts the new
processes beside the old ones, moves callers over once these answer, and has the old ones stopped after their own last
call. Told to let it go, it waits until calls have ended and none came for a while; told before that to keep it, nothing
happened. A provider is not called and must not meet itself: of it, the old process ends before the new one starts.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self

from planform.api.names import SYSTEM_NAMESPACE
from planform.apiserver.admission.webhook_calls import Endpoint
from planform.apiserver.auth.private_files import make_private_directory
from planform.clock import Clock
from planform.errors import PlanformError
from planform.functions.endpoints import Remote
from planform.functions.errors import FunctionCrashed, FunctionError, FunctionTimedOut, FunctionUnavailable
from planform.functions.runner import FunctionRevision, FunctionRunner
from planform.functions.values import FunctionRequest, FunctionResponse
from planform.packages.runtimes.calls import Tally, first_of
from planform.packages.runtimes.certificates import RevisionCertificates
from planform.packages.runtimes.containers import is_filtered, leftover_containers
from planform.packages.runtimes.executables import WEBHOOK_PORT
from planform.packages.runtimes.launching import (
    CLEAN_UP_LIMITS,
    Wanted,
    remark_of,
    why_no_network,
    without_network,
)
from planform.packages.runtimes.listeners import Listeners, OnChange
from planform.packages.runtimes.logs import Logs, logs_directory
from planform.packages.runtimes.servers import Servers, Spares
from planform.packages.runtimes.starting import Starter
from planform.sandbox import Isolation, run_once

if TYPE_CHECKING:
    from planform.packages.runtimes.oneshot import Oneshot

ONESHOT_ENDPOINT: Final = "oneshot:"
_TRY_AGAIN: Final = 30.0
_MAX_SLEEP: Final = 86_400.0
_PATIENCE: Final = 3.0
_HEARSAY: Final = 0.5


@dataclass(frozen=True, slots=True)
class Draining:
    """How long a released revision still runs, in seconds: until no call was under way for `quiet`, and not
    longer than `max_seconds`. A pipeline may have chosen it a moment ago and call it a moment later."""

    quiet: float = 2.0
    max_seconds: float = 120.0


@dataclass(frozen=True, slots=True)
class RuntimeStatus:
    """How a revision is doing. `endpoint` is for statuses. While it does not serve, `problem` says why; one that serves
    has a problem if it cannot be run the way that is wanted now. `failed` says that it ended by itself or cannot be
    started, rather than being on its way. `remark` is what to know though nothing is wrong."""

    endpoint: str = ""
    ready: bool = False
    problem: str = ""
    remark: str = ""
    failed: bool = False


@dataclass(eq=False)
class _Hosted:
    """What is known of one revision that runs or shall run."""

    wanted: Wanted | None
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    calls: Tally = field(default_factory=Tally)
    news: asyncio.Event = field(default_factory=asyncio.Event)
    """Set, and replaced by another one, when one of its processes answers or ends."""
    serving: Servers | Oneshot | None = None
    coming: Servers | None = None
    retiring: set[asyncio.Task[None]] = field(default_factory=set)
    """The ends of processes that were replaced."""
    problem: str = "it is being started"
    failed: bool = False
    """Whether it cannot be started as it is wanted."""
    forgotten: bool = False
    reported: RuntimeStatus | None = None

    def runtime_status(self) -> RuntimeStatus:
        remark = remark_of(self.wanted) if self.wanted is not None else ""
        if isinstance(self.serving, Servers):
            ready = self.serving.ready
            problem = "" if ready else self.serving.problem
            if ready and self.coming is not None and self.coming.is_failing:
                problem = f"as it shall run now, {self.coming.problem}; what ran before still serves"
            return RuntimeStatus(self.serving.target, ready, problem, remark, self.serving.is_failing)
        if self.serving is not None:
            return RuntimeStatus(ONESHOT_ENDPOINT, ready=True, remark=remark)
        if self.coming is not None:
            return RuntimeStatus(problem=self.coming.problem, remark=remark, failed=self.coming.is_failing)
        return RuntimeStatus(problem=self.problem, remark=remark, failed=self.failed)


class RuntimeHost:
    """The programs of packages on this machine. Use it as a context manager: past the block, all of them have ended.

    `directory` is the control plane's data, of which programs see their own files only.
    """

    def __init__(
        self,
        directory: Path,
        certificates: RevisionCertificates,
        *,
        clock: Clock,
        draining: Draining = Draining(),  # noqa: B008  # frozen
        spares: Spares | None = Spares(),  # noqa: B008  # frozen
    ) -> None:
        self._directory = directory
        self._certificates = certificates
        self._clock = clock
        self._draining = draining
        self._hosted: dict[str, _Hosted] = {}
        self._listeners = Listeners()
        self._tasks = asyncio.TaskGroup()
        self._keepers: set[asyncio.Task[None]] = set()
        make_private_directory(directory / "runtimes")
        self._logs = Logs(logs_directory(directory), clock=clock)
        self._starter = Starter(certificates, self._logs, directory, clock, spares)

    async def __aenter__(self) -> Self:
        for command in leftover_containers(self._directory / "runtimes"):
            await run_once(command, b"", CLEAN_UP_LIMITS, isolation=Isolation.LIMITS_ONLY)
        await self._tasks.__aenter__()
        return self

    async def __aexit__(self, *error: object) -> None:
        for task in self._keepers:
            task.cancel()
        await self._tasks.__aexit__(None, None, None)

    # -- what is told

    def ensure(self, wanted: Wanted) -> RuntimeStatus:
        """Have this revision run, and run this way; gives how it is doing now. Cheap if it does already."""
        hosted = self._hosted.get(wanted.revision)
        if hosted is None:
            hosted = self._hosted[wanted.revision] = _Hosted(wanted)
            self._keeper(self._keep(wanted.revision, hosted), f"run {wanted.revision}")
        elif hosted.wanted != wanted:
            hosted.forgotten = False
            hosted.changed.set()
        hosted.wanted = wanted  # also if it is equal: what does not apply may be something else
        return hosted.runtime_status()

    def release(self, revision: str) -> None:
        """Stop this revision once its calls have ended. Subscribers hear when that is done."""
        hosted = self._hosted.get(revision)
        if hosted is not None and hosted.wanted is not None:
            hosted.wanted = None
            hosted.changed.set()

    def forget(self, revision: str) -> None:
        """Delete what is kept of a revision, its certificates and its log, once it has come to its end."""
        hosted = self._hosted.get(revision)
        if hosted is not None:
            hosted.forgotten = True
            self.release(revision)
            return
        self._certificates.remove(revision)
        self._logs.remove(revision)
        shutil.rmtree(self._directory / "runtimes" / revision, ignore_errors=True)

    def look_again(self) -> None:
        """Look at every revision now, for instance at what its certificate says after the clock was set."""
        for hosted in self._hosted.values():
            hosted.changed.set()

    # -- what is known

    def runtime_status(self, revision: str) -> RuntimeStatus | None:
        """None if it does not run and is not being started or drained."""
        hosted = self._hosted.get(revision)
        return None if hosted is None else hosted.runtime_status()

    def remote(self, revision: str) -> Remote | None:
        """Where it is called; None if it does not serve (yet), or is run for each call."""
        hosted = self._hosted.get(revision)
        return hosted.serving.remote if hosted is not None and isinstance(hosted.serving, Servers) else None

    def endpoint(self, namespace: str, name: str, port: int, /) -> Endpoint | None:
        """Where the webhooks of a provider are that runs here, by the Service that it has in a cluster."""
        if namespace != SYSTEM_NAMESPACE or port != WEBHOOK_PORT:
            return None
        for hosted in self._hosted.values():
            wanted, servers = hosted.wanted, hosted.serving or hosted.coming
            if (
                wanted is not None
                and wanted.kubeconfig is not None
                and wanted.package == name
                and isinstance(servers, Servers)
            ):
                return Endpoint("127.0.0.1", int(servers.target.partition(",")[0].rpartition(":")[2]))
        return None

    def pids(self, revision: str) -> list[int]:
        """The leaders of its process groups."""
        hosted = self._hosted.get(revision)
        if hosted is None or not isinstance(hosted.serving, Servers):
            return []
        return [each.pid for each in hosted.serving.replicas if each.pid is not None]

    def spare_pid(self, revision: str) -> int | None:
        """The leader of the group that takes over at once if its process is killed; None while there is none."""
        hosted = self._hosted.get(revision)
        return hosted.serving.spare_pid if hosted is not None and isinstance(hosted.serving, Servers) else None

    def subscribe(self, callback: OnChange) -> Callable[[], None]:
        """Tell `callback` each revision whose runtime status changed; gives what ends that."""
        return self._listeners.add(callback)

    # -- calls

    def runner(self, otherwise: FunctionRunner) -> FunctionRunner:
        """Runs what is run for each call, passes everything else on, and counts, so that nothing is stopped in it."""
        return _HostedRunner(self, otherwise, self._clock)

    # -- one revision

    def _keeper(self, work: Coroutine[None, None, None], name: str) -> asyncio.Task[None]:
        """A task that ends with the host."""
        task = self._tasks.create_task(work, name=name)
        self._keepers.add(task)
        task.add_done_callback(self._keepers.discard)
        return task

    async def _keep(self, revision: str, hosted: _Hosted) -> None:
        """Look after a revision until it is released and has ended."""
        async with AsyncExitStack() as running:
            way: object = None
            while True:
                # Cleared before `wanted` is read: what is wanted from here on sets it again and ends the wait below.
                # The other way round, a change between the two would be slept through.
                hosted.changed.clear()
                wanted = hosted.wanted
                if wanted is None:
                    if await self._drained(hosted):
                        break
                    continue
                try:
                    names = service_names(wanted.package) if wanted.kubeconfig is not None else ()
                    generation = await asyncio.to_thread(self._certificates.ensure, revision, names)
                    if hosted.serving is None or way != (wanted, generation):
                        if not await self._start(wanted, hosted, running):
                            continue
                        way = wanted, generation
                    await self._refresh_caller(hosted)
                    limit = self._seconds_to_renewal(revision)
                except (PlanformError, OSError) as error:
                    hosted.problem, hosted.failed = str(error), True
                    limit = _TRY_AGAIN
                self._notify(revision)
                await self._wait(hosted.changed, limit)
            # Callers are sent away before the processes end, which leaving this block does.
            hosted.serving = None
        # The entry goes last: whoever wants the revision again finds it until then, and no second keeper starts on the
        # same directory and ports.
        await _ended(hosted.retiring)
        del self._hosted[revision]
        if hosted.forgotten:
            self.forget(revision)
        self._notify(revision)

    async def _start(self, wanted: Wanted, hosted: _Hosted, running: AsyncExitStack) -> bool:
        """Move callers to processes that run this way; False if something else is wanted before these answer."""
        directory = self._directory / "runtimes" / wanted.revision
        make_private_directory(directory)
        if wanted.executable.way.is_container:
            await asyncio.to_thread(is_filtered)  # which is known from then on
        if wanted.kubeconfig is not None:
            # A provider, unlike a function, acts by itself: two generations at once would both write. So no overlap.
            await running.aclose()
            hosted.serving = None
        before = hosted.serving
        if wanted.executable.way.is_oneshot:
            from planform.packages.runtimes.oneshot import Oneshot

            hosted.serving = Oneshot(wanted, directory=directory, hidden=self._directory)
            previous = running.pop_all()
        else:
            fresh = await self._starter.servers(wanted, directory, partial(self._on_replica, wanted.revision))
            async with AsyncExitStack() as attempt:
                await attempt.enter_async_context(fresh)
                if not await self._come_up(wanted, hosted, fresh):
                    return False
                # No wait from here to the end of the block: a cancellation would find both generations in neither
                # stack, and their processes would outlive the host.
                hosted.serving = fresh
                previous = running.pop_all()
                running.push_async_exit(attempt.pop_all())
        self._notify(wanted.revision)
        if isinstance(before, Servers):
            earlier = set(hosted.retiring)
            task = self._keeper(self._retire(before, previous), f"end what ran {wanted.revision}")
            hosted.retiring.add(task)
            task.add_done_callback(hosted.retiring.discard)
            await _ended(earlier)  # however often something else is wanted, no more than two generations end at once
        return True

    async def _come_up(self, wanted: Wanted, hosted: _Hosted, fresh: Servers) -> bool:
        """Wait until these answer; False if something else is wanted before that."""
        hosted.coming = fresh
        self._notify(wanted.revision)
        try:
            while not fresh.ready and fresh.replicas:
                if await self._wait(hosted.changed, _MAX_SLEEP) and hosted.wanted != wanted:
                    return False
                hosted.changed.clear()
            return True
        finally:
            hosted.coming = None

    async def _retire(self, servers: Servers, running: AsyncExitStack) -> None:
        """Stop processes that were replaced, once they have answered their last call."""
        async with running:
            await servers.calls.quiet(self._clock, seconds=self._draining.quiet, max_seconds=self._draining.max_seconds)

    async def _refresh_caller(self, hosted: _Hosted) -> None:
        """Show the function our newest certificate; calls under way end with the one they began with."""
        if isinstance(hosted.serving, Servers):
            hosted.serving.show(await asyncio.to_thread(self._certificates.caller))

    def _on_replica(self, revision: str) -> None:
        hosted = self._hosted.get(revision)
        if hosted is not None:
            # A new event for every change: who waits for the next one must not be woken by this one again.
            hosted.news.set()
            hosted.news = asyncio.Event()
            hosted.changed.set()
            self._notify(revision)

    async def _answering(self, hosted: _Hosted, seconds: float) -> None:
        """Wait until one of its processes answers, if all of them are just coming back, but not longer than that."""
        deadline = self._clock.monotonic() + min(seconds, _PATIENCE)
        while isinstance(hosted.serving, Servers) and not hosted.serving.answering:
            left = deadline - self._clock.monotonic()
            if left <= 0 or not await self._wait(hosted.news, left):
                return

    async def _lost(self, hosted: _Hosted, called: Remote) -> None:
        """Wait until one hears of the end of the process that a call was lost with; not long, it may be well."""
        deadline = self._clock.monotonic() + _HEARSAY
        while isinstance(hosted.serving, Servers) and hosted.serving.answering and hosted.serving.remote == called:
            left = deadline - self._clock.monotonic()
            if left <= 0 or not await self._wait(hosted.news, left):
                return

    async def _drained(self, hosted: _Hosted) -> bool:
        """Wait for the end of its calls; False if it is wanted again before that."""
        quiet, max_seconds = self._draining.quiet, self._draining.max_seconds
        while not await hosted.calls.quiet(
            self._clock, seconds=quiet, max_seconds=max_seconds, interrupt=hosted.changed
        ):
            if hosted.wanted is not None:
                return False
            hosted.changed.clear()  # one of its processes ended, which is no reason to go on
        return True

    async def _wait(self, event: asyncio.Event, seconds: float) -> bool:
        return await first_of(self._clock, seconds, event)

    def _seconds_to_renewal(self, revision: str) -> float:
        due = self._certificates.renewal_of(revision)
        if due is None:
            return _TRY_AGAIN
        return min(max((due - self._clock.now()).total_seconds(), 1.0), _MAX_SLEEP)

    def _notify(self, revision: str) -> None:
        hosted = self._hosted.get(revision)
        runtime_status = hosted.runtime_status() if hosted is not None else None
        if hosted is not None:
            if hosted.reported == runtime_status:
                return
            hosted.reported = runtime_status
        self._listeners.notify(revision)


def service_names(provider: str) -> tuple[str, ...]:
    """The names under which the webhooks of a provider are called; the API server asks for the first."""
    return (f"{provider}.{SYSTEM_NAMESPACE}.svc", f"{provider}.{SYSTEM_NAMESPACE}")


class _HostedRunner:
    def __init__(self, host: RuntimeHost, otherwise: FunctionRunner, clock: Clock) -> None:
        self._host = host
        self._otherwise = otherwise
        self._clock = clock

    async def run(self, revision: FunctionRevision, request: FunctionRequest, /, *, timeout: float) -> FunctionResponse:
        hosted = self._host._hosted.get(revision.name)
        if hosted is None:
            return await self._otherwise.run(revision, request, timeout=timeout)
        with hosted.calls.counting():
            if hosted.serving is None:
                raise FunctionUnavailable("it is being started", revision=revision)
            try:
                response = await self._run(hosted, revision, request, timeout)
            except FunctionError as error:
                raise self._named(hosted, error) from error.__cause__
        return without_network(response, why_no_network(hosted.wanted) if hosted.wanted is not None else "")

    async def _run(
        self, hosted: _Hosted, revision: FunctionRevision, request: FunctionRequest, timeout: float
    ) -> FunctionResponse:
        assert hosted.serving is not None
        if not isinstance(hosted.serving, Servers):
            return await hosted.serving.run(revision, request, timeout=timeout)
        deadline = self._clock.monotonic() + timeout
        called = hosted.serving.remote
        try:
            return await self._call(hosted, revision, request, deadline)
        except FunctionCrashed:
            # Its process ended in the middle. Reconciles repeat calls anyway, so this one may be repeated at once;
            # a request that kills its function does so twice, and then it is said.
            await self._host._lost(hosted, called)
            return await self._call(hosted, revision, request, deadline)

    def _named(self, hosted: _Hosted, error: FunctionError) -> FunctionError:
        """The same error, which also says what we know of its cause."""
        causes = []
        if isinstance(hosted.serving, Servers) and isinstance(error, FunctionTimedOut | FunctionCrashed):
            causes.append(hosted.serving.why_silent())
        if hosted.wanted is not None and (why := why_no_network(hosted.wanted)):
            causes.append(f"it runs without network: {why}")
        if found := "; ".join(filter(None, causes)):
            error.detail = f"{error.detail} ({found})"
        return error

    async def _call(
        self, hosted: _Hosted, revision: FunctionRevision, request: FunctionRequest, deadline: float
    ) -> FunctionResponse:
        await self._host._answering(hosted, self._left(deadline))
        # From here until the call has chosen its connection nobody else runs: it goes to those that count it.
        counted = hosted.serving.calls if isinstance(hosted.serving, Servers) else hosted.calls
        with counted.counting():
            return await self._otherwise.run(revision, request, timeout=self._left(deadline))

    def _left(self, deadline: float) -> float:
        return max(deadline - self._clock.monotonic(), 0.001)


async def _ended(tasks: set[asyncio.Task[None]]) -> None:
    if tasks:
        await asyncio.wait(tasks)
