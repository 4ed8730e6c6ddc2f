"""Keep a server running: start it, read its log, start it again when it ends, and end it with us."""

from __future__ import annotations

import asyncio
import signal
from asyncio.subprocess import DEVNULL, PIPE, STDOUT
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from planform.clock import Clock
from planform.sandbox.child import Child, start_child
from planform.sandbox.confinement.launch import CANNOT_CONFINE
from planform.sandbox.isolation import Isolation, Prepared, SandboxUnavailable, prepare, ready_isolation
from planform.sandbox.limits import Limits
from planform.sandbox.scratch import ScratchFull, watch_scratch

_MAX_LINE_LENGTH: Final = 4096
_STOP_GRACE: Final = 5.0


@dataclass(frozen=True, slots=True)
class Backoff:
    """How long to wait before another start, in seconds. A run of `stable_after` makes the next failure a first one."""

    first: float = 0.5
    max_seconds: float = 30.0
    stable_after: float = 60.0


@dataclass(frozen=True, slots=True)
class Running:
    """The server runs; `pid` leads its process group."""

    pid: int


@dataclass(frozen=True, slots=True)
class Waiting:
    """The server ended with this code (minus the signal, if it was one) and is started again after `delay` seconds."""

    code: int
    delay: float


@dataclass(frozen=True, slots=True)
class Stopped:
    """It was not started yet, or it was ended by us."""


State = Running | Waiting | Stopped


class Supervised:
    """A server process, while the `async with` block lasts. Past the block it and its children have ended."""

    def __init__(
        self,
        command: Sequence[str],
        limits: Limits = Limits(),  # noqa: B008  # frozen
        *,
        clock: Clock,
        environment: Mapping[str, str] | None = None,
        isolation: Isolation | None = None,
        backoff: Backoff = Backoff(),  # noqa: B008  # frozen
        log_lines: int = 200,
        on_line: Callable[[str], None] | None = None,
        on_change: Callable[[State], None] | None = None,
        port: int | None = None,
        files: Sequence[int] = (),
    ) -> None:
        """Limits of time are dropped, as a server is meant to stay.

        A server without network listens at `port`, and is reached by the listening socket in `files`, which stays ours.

        `on_line` hears each line of its log and `on_change` each of its states; neither may wait or raise.
        """
        self._command = list(command)
        self._limits = limits.for_server()
        self._clock = clock
        self._environment = dict(environment or {})
        self._isolation = isolation
        self._backoff = backoff
        self._log: deque[str] = deque(maxlen=log_lines)
        self._on_line = on_line
        self._on_change = on_change
        self._port = port
        self._files = tuple(files)
        self._state: State = Stopped()
        self._changed = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._child: Child | None = None
        self.starts = 0

    @property
    def state(self) -> State:
        return self._state

    def log(self) -> list[str]:
        """The last lines it wrote, of standard output and error."""
        return list(self._log)

    def restart(self) -> None:
        """Kill it; it is started again as if it had ended by itself."""
        if self._child is not None:
            self._child.signal_group(signal.SIGKILL)

    async def wait_until(self, kind: type[Running] | type[Waiting] | type[Stopped]) -> State:
        """Wait for the next time it is in such a state; bound it with `asyncio.timeout`."""
        while not isinstance(self._state, kind):
            self._changed.clear()
            await self._changed.wait()
        return self._state

    async def __aenter__(self) -> Supervised:
        self._task = asyncio.create_task(self._keep_running(), name=f"supervise {self._command[0]}")
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._task is not None
        self._task.cancel()
        with suppress(asyncio.CancelledError):
            await self._task

    async def _keep_running(self) -> None:
        delay = self._backoff.first
        try:
            while True:
                started = self._clock.monotonic()
                code = await self._run_once()
                if self._clock.monotonic() - started >= self._backoff.stable_after:
                    delay = self._backoff.first
                self._become(Waiting(code, delay))
                await self._clock.sleep(delay)
                delay = min(delay * 2, self._backoff.max_seconds)
        finally:
            self._become(Stopped())

    async def _run_once(self) -> int:
        try:
            isolation = self._isolation or await ready_isolation()
            prepared = prepare(self._command, self._limits, isolation, environment=self._environment, port=self._port)
            child = await start_child(prepared, stdin=DEVNULL, stdout=PIPE, stderr=STDOUT, files=self._files)
        except (OSError, SandboxUnavailable) as error:
            self._note(f"sandbox: {error}".encode())
            return CANNOT_CONFINE
        self.starts += 1
        self._child = child
        self._become(Running(child.pid))
        reading = asyncio.create_task(self._read_log(child))
        watching = asyncio.create_task(self._watch(child, prepared))
        try:
            await child.exited.wait()
        except asyncio.CancelledError:
            await _ask_to_end(child)
            raise
        finally:
            self._child = None
            watching.cancel()
            child.signal_group(signal.SIGKILL)
            await asyncio.wait([reading], timeout=1.0)  # the end of its output
            reading.cancel()
            await child.end()
        return child.code

    async def _watch(self, child: Child, prepared: Prepared) -> None:
        try:
            await watch_scratch(prepared, self._limits)
        except ScratchFull:
            self._note(b"sandbox: it filled its scratch directory and is ended")
            child.signal_group(signal.SIGKILL)

    async def _read_log(self, child: Child) -> None:
        """Line by line, long ones in pieces, so that a server which never ends a line costs no memory."""
        assert child.stdout is not None
        rest = b""
        while chunk := await child.stdout.read(_MAX_LINE_LENGTH):
            *lines, rest = (rest + chunk).split(b"\n")
            if len(rest) >= _MAX_LINE_LENGTH:
                lines, rest = [*lines, rest], b""
            for line in lines:
                self._note(line)
        if rest:
            self._note(rest)

    def _note(self, line: bytes) -> None:
        text = line.decode(errors="replace")
        self._log.append(text)
        if self._on_line is not None:
            self._on_line(text)

    def _become(self, state: State) -> None:
        self._state = state
        self._changed.set()
        if self._on_change is not None:
            self._on_change(state)


async def _ask_to_end(child: Child) -> None:
    """Ask, and wait a while for it to end by itself."""
    child.signal_group(signal.SIGTERM)
    with suppress(TimeoutError):
        async with asyncio.timeout(_STOP_GRACE):
            await child.exited.wait()
