"""The processes that serve one revision: started together, watched, and counted as ready once they answer.

While calls are under way and none of them ends, the processes are asked whether they are well. One that was stopped, or
does not answer for long, is killed and started again, and those whose calls it costs are told why.

Of a function that is being called a spare process is there as well: it is called from when the other one ends until
that one is back, so that no call waits for a start. A function that nobody calls has none.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Final, Self

from planform.clock import Clock
from planform.functions.endpoints import ClientTls, Remote
from planform.packages.runtimes.calls import Tally
from planform.packages.runtimes.launching import CLEAN_UP_LIMITS, Launch
from planform.packages.runtimes.silence import is_stopped
from planform.sandbox import Isolation, Supervised, run_once
from planform.sandbox.supervised import Backoff, Running, State, Waiting

_BACKOFF: Final = Backoff(first=0.02, max_seconds=60.0, stable_after=30.0)
"""A server that was killed is back at once; one that keeps on ending is given more and more time."""
_CRASH_LOOP: Final = 3
_LAST_LINES: Final = 5
_PROBE_SECONDS: Final = 5.0
_STOPPED: Final = "its process was stopped (SIGSTOP); it is started again"
_HEALTH: Final = "/grpc.health.v1.Health/Check"
_SERVING: Final = b"\x08\x01"


class Replica:
    """One process of several. `on_change` hears when it ends and when it answers."""

    def __init__(
        self,
        launch: Launch,
        *,
        clock: Clock,
        answers: Callable[[], asyncio.Task[None]],
        note: Callable[[str], None],
        on_change: Callable[[], None],
    ) -> None:
        self._answers = answers
        self._on_change = on_change
        self._launch = launch
        self._note = note
        self._probe: asyncio.Task[None] | None = None
        self.failures = 0  # since it was last known to answer
        self._code = 0
        self._last_lines: deque[str] = deque(maxlen=_LAST_LINES)  # by the process that runs
        self._last_output = ""  # of the one that ended
        self.ready = False
        self.answering = False
        """Whether the process that runs now has answered; `ready` bears with one that was killed and comes back."""
        self.incarnation = 0
        self.cause = ""
        """Why we had to start it again; until it answers."""
        self._silent = 0.0
        self._supervised = Supervised(
            launch.command,
            launch.limits,
            clock=clock,
            environment=launch.environment,
            isolation=launch.isolation,
            backoff=_BACKOFF,
            on_line=self._hear,
            on_change=self._on_state,
            port=launch.port,
            files=[] if launch.listening is None else [launch.listening],
        )

    async def check(self, checks: HealthChecks) -> None:
        """Ask whether it is well, and start it again if it is not: at once if it was stopped, else after a while."""
        if self.restart_if_stopped() or not self.answering:
            return
        probe = self._answers()
        try:
            async with asyncio.timeout(checks.deadline):
                await probe
            self._silent = 0.0
        except TimeoutError:
            self._silent += checks.deadline
            if not self.restart_if_stopped() and self._silent >= checks.max_seconds:
                self._restart(f"it answered no health check for {checks.max_seconds:g} s; it is started again")
        finally:
            probe.cancel()

    def restart_if_stopped(self) -> bool:
        if self.pid is None or not is_stopped(self.pid):
            return False
        self._restart(_STOPPED)
        return True

    def _restart(self, cause: str) -> None:
        self.cause = cause
        self._silent = 0.0
        self._supervised.restart()

    @property
    def problem(self) -> str:
        """Why it is not ready, with the end of its stderr; nothing in it changes while it only tries again."""
        if self.ready:
            return ""
        if not self.failures:
            return "it was started and does not answer yet"
        how = f"exit code {self._code}" if self._code >= 0 else f"signal {-self._code}"
        return f"it ends by itself ({how})" + (f"; stderr ended with: {self._last_output}" if self._last_output else "")

    @property
    def pid(self) -> int | None:
        state = self._supervised.state
        return state.pid if isinstance(state, Running) else None

    async def __aenter__(self) -> Self:
        await self._supervised.__aenter__()
        return self

    async def __aexit__(self, *_: object) -> None:
        self._stop_probing()
        await self._supervised.__aexit__()
        if self._launch.clean_up:
            await run_once(self._launch.clean_up, b"", CLEAN_UP_LIMITS, isolation=Isolation.LIMITS_ONLY)

    def _on_state(self, state: State) -> None:
        self._stop_probing()
        self.answering = False
        if isinstance(state, Running):
            self._last_lines.clear()
            self._probe = self._answers()
            self._probe.add_done_callback(self._on_answer)
        elif isinstance(state, Waiting):
            self.failures += 1
            self._code = state.code
            self._last_output = " | ".join(self._last_lines)
            # Once is an accident, and it is back before anybody could be told.
            if self.failures >= _CRASH_LOOP:
                self.ready = False
            self._on_change()

    def _hear(self, line: str) -> None:
        if line.strip():
            self._last_lines.append(line.strip())
        self._note(line)

    def _on_answer(self, probe: asyncio.Task[None]) -> None:
        if probe.cancelled() or probe is not self._probe or probe.exception() is not None:
            return
        self.failures = 0
        self.cause = ""
        self.ready = self.answering = True
        self.incarnation += 1
        self._on_change()

    def _stop_probing(self) -> None:
        if self._probe is not None:
            self._probe.cancel()
            self._probe = None


@dataclass(frozen=True, slots=True)
class Spares:
    """When there is a spare process: from `after` seconds after a call, until none came for `idle` seconds."""

    after: float = 3.0
    idle: float = 60.0


@dataclass(frozen=True, slots=True)
class HealthChecks:
    """When processes are asked whether they are well, in seconds: after calls were under way for `after`, none ended.
    Each check has a `deadline`; who answers none for `max_seconds` is started again. Calls may take long, so that one
    of them hangs means nothing."""

    after: float = 2.0
    deadline: float = 5.0
    max_seconds: float = 30.0


@dataclass(frozen=True, slots=True)
class Spare:
    """A process beside the one that serves, and where it is called instead."""

    replica: Replica
    target: str
    when: Spares


class Servers:
    """All processes of one revision that were started alike, while the `async with` block lasts."""

    def __init__(
        self,
        held: ExitStack,
        replicas: Sequence[Replica],
        remote: Remote,
        *,
        clock: Clock,
        spare: Spare | None = None,
        checks: HealthChecks = HealthChecks(),  # noqa: B008  # frozen
    ) -> None:
        """`held` lets their ports go."""
        self._checks = checks
        self._checking: asyncio.Task[None] | None = None
        self._held = held
        self._clock = clock
        self._remote = remote
        self._spare = spare
        self._keeping_spare: asyncio.Task[None] | None = None
        self._is_ending = False
        self.replicas = replicas
        self.calls = Tally()

    @property
    def ready(self) -> bool:
        """Whether a call would be taken by somebody."""
        return any(each.ready for each in self.replicas)

    @property
    def answering(self) -> bool:
        return self._serve_themselves or self._spare_serves

    @property
    def _serve_themselves(self) -> bool:
        return any(each.answering for each in self.replicas)

    @property
    def _spare_serves(self) -> bool:
        return self._spare is not None and self._spare.replica.answering and not self._serve_themselves

    @property
    def target(self) -> str:
        """Where they serve, whoever of them does at this moment."""
        return self._remote.target

    @property
    def remote(self) -> Remote:
        """Where calls go now."""
        if self._spare is not None and self._spare_serves:
            return replace(self._remote, target=self._spare.target, incarnation=self._spare.replica.incarnation)
        return replace(self._remote, incarnation=sum(each.incarnation for each in self.replicas))

    @property
    def spare_pid(self) -> int | None:
        return self._spare.replica.pid if self._spare is not None and self._spare.replica.answering else None

    def show(self, tls: ClientTls) -> None:
        """From now on, callers show this certificate."""
        self._remote = replace(self._remote, tls=tls)

    @property
    def is_failing(self) -> bool:
        """Whether they were started and have ended by themselves."""
        return not self.ready and any(each.failures for each in self.replicas)

    @property
    def problem(self) -> str:
        if not self.replicas:
            return "its runtime configuration asks for no replicas"
        return "" if self.ready else self.replicas[0].problem

    async def __aenter__(self) -> Self:
        for replica in self.replicas:
            await replica.__aenter__()
        self._checking = asyncio.create_task(self._keep_checking(), name="check health")
        if self._spare is not None:
            self._keeping_spare = asyncio.create_task(self._keep_spare(self._spare), name="keep a spare process")
        return self

    async def __aexit__(self, *_: object) -> None:
        self._is_ending = True
        for task in (self._checking, self._keeping_spare):
            if task is not None:
                task.cancel()
                await asyncio.wait([task])
        await asyncio.gather(*(replica.__aexit__() for replica in self.replicas))
        self._held.close()

    def why_silent(self) -> str:
        """The cause if a process was found not to answer; one that is stopped is started again."""
        for replica in self.replicas:
            replica.restart_if_stopped()
        return next((replica.cause for replica in self.replicas if replica.cause), "")

    async def _keep_checking(self) -> None:
        """Nothing happens while nobody calls, or calls end."""
        while not self._is_ending:
            if not self.calls.under_way:
                await self.calls.next_one()
            ended = self.calls.begun - self.calls.under_way
            await self._clock.sleep(self._checks.after)
            if self.calls.under_way and ended == self.calls.begun - self.calls.under_way:
                for replica in self.replicas:
                    await replica.check(self._checks)

    async def _keep_spare(self, spare: Spare) -> None:
        while not self._is_ending:  # a cancellation that comes while a process ends is lost on it
            await self.calls.next_one()
            await self._clock.sleep(spare.when.after)
            async with spare.replica:
                known = -1
                while known != self.calls.begun or self.calls.under_way or self._spare_serves:
                    known = self.calls.begun
                    await self._clock.sleep(spare.when.idle)


async def until_serving(remote: Remote, clock: Clock) -> None:
    """Return once the server says that it serves; one that knows nothing of health serves as soon as it answers."""
    import grpc

    assert remote.tls is not None
    tls = remote.tls
    options = [
        ("grpc.ssl_target_name_override", remote.server_name),
        ("grpc.initial_reconnect_backoff_ms", 20),
        ("grpc.max_reconnect_backoff_ms", 50),
        ("grpc.min_reconnect_backoff_ms", int(_PROBE_SECONDS * 1000)),
        ("grpc.use_local_subchannel_pool", 1),
        ("grpc.enable_http_proxy", 0),
    ]
    credentials = grpc.ssl_channel_credentials(tls.authority, tls.key, tls.certificate)
    async with grpc.aio.secure_channel(remote.target, credentials, options) as channel:
        check = channel.unary_unary(_HEALTH)
        while True:
            try:
                if await check(b"", timeout=_PROBE_SECONDS, wait_for_ready=True) == _SERVING:
                    return
            except grpc.aio.AioRpcError as error:
                if error.code() is grpc.StatusCode.UNIMPLEMENTED:
                    return
            await clock.sleep(0.05)
