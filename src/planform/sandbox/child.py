"""One child process: how it is started, how one hears of its end, and how it is ended with all it started."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from asyncio.subprocess import DEVNULL, PIPE, STDOUT
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Final

from planform.sandbox.isolation import Prepared
from planform.sandbox.spawning import spawner

_WORD: Final = 4
_CHUNK: Final = 64 << 10


class Pipe:
    """Our end of a pipe to a child."""

    def __init__(self, descriptor: int) -> None:
        os.set_blocking(descriptor, False)
        self._descriptor: int | None = descriptor
        self._waiting: asyncio.Future[None] | None = None

    async def read(self, maximum: int = _CHUNK) -> bytes:
        """What there is, waiting until there is something; nothing at the end."""
        while self._descriptor is not None:
            try:
                return os.read(self._descriptor, maximum)
            except BlockingIOError:
                await self._ready(reading=True)
        return b""

    async def write_all(self, data: bytes) -> None:
        """Raises BrokenPipeError if the other end is closed."""
        rest = memoryview(data)
        while rest:
            if self._descriptor is None:
                raise BrokenPipeError
            try:
                rest = rest[os.write(self._descriptor, rest[:_CHUNK]) :]
            except BlockingIOError:
                await self._ready(reading=False)

    def close(self) -> None:
        if self._descriptor is not None:
            loop = asyncio.get_running_loop()
            loop.remove_reader(self._descriptor)
            loop.remove_writer(self._descriptor)
            os.close(self._descriptor)
            self._descriptor = None
            if self._waiting is not None:
                _resolve(self._waiting)

    async def _ready(self, *, reading: bool) -> None:
        assert self._descriptor is not None
        loop, descriptor = asyncio.get_running_loop(), self._descriptor
        ready: asyncio.Future[None] = loop.create_future()
        add, remove = (loop.add_reader, loop.remove_reader) if reading else (loop.add_writer, loop.remove_writer)
        add(descriptor, _resolve, ready)
        self._waiting = ready
        try:
            await ready
        finally:
            self._waiting = None
            if self._descriptor is not None:
                remove(descriptor)


def _resolve(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


@dataclass(eq=False)
class Child:
    """A started process. `exited` is set when the command has ended, `gone` when nothing of it is left.

    Its pipes may stay open longer: what it started may hold them.
    """

    stdin: Pipe | None
    stdout: Pipe | None
    stderr: Pipe | None
    exited: asyncio.Event = field(default_factory=asyncio.Event)
    gone: asyncio.Event = field(default_factory=asyncio.Event)
    started: asyncio.Event = field(default_factory=asyncio.Event)
    pid: int = 0
    """The leader of its process group; 0 until `started`, and if it could not be."""
    _prepared: Prepared | None = None
    _control: socket.socket | None = None
    _received: bytearray = field(default_factory=bytearray)

    @property
    def code(self) -> int:
        """The exit code, or minus the signal; of a child that has ended."""
        if len(self._received) < 2 * _WORD or self._prepared is None:
            return -signal.SIGKILL
        status = int.from_bytes(self._received[_WORD : 2 * _WORD], "little")
        return self._prepared.own_code(os.waitstatus_to_exitcode(status))

    def signal_group(self, number: signal.Signals) -> None:
        """Signal the child and all that stayed in its session."""
        if self._control is not None:
            with suppress(OSError):  # by the spawner, who knows whether the number is still the child's
                self._control.send(bytes([number]))

    async def end(self) -> None:
        """Kill what is left of it and wait until it is gone."""
        self.signal_group(signal.SIGKILL)
        await self.gone.wait()
        self.close_pipes()
        if self._prepared is not None and (self._prepared.scratch is not None or self._prepared.groups):
            await asyncio.to_thread(self._prepared.clean_up)

    @property
    def was_lost(self) -> bool:
        """Whether nobody started it."""
        return self.gone.is_set() and not self._received

    def close_pipes(self) -> None:
        for pipe in (self.stdin, self.stdout, self.stderr):
            if pipe is not None:
                pipe.close()

    def _hear(self) -> None:
        assert self._control is not None
        try:
            chunk = self._control.recv(64)
        except BlockingIOError:
            return
        except OSError:
            chunk = b""
        self._received += chunk
        if len(self._received) >= _WORD or not chunk:
            self.pid = int.from_bytes(self._received[:_WORD], "little")
            self.started.set()
        if len(self._received) >= 2 * _WORD or not chunk:
            self.exited.set()
        if not chunk:
            asyncio.get_running_loop().remove_reader(self._control.fileno())
            self._control.close()
            self._control = None
            self.gone.set()


async def start_child(prepared: Prepared, *, stdin: int, stdout: int, stderr: int, files: Sequence[int] = ()) -> Child:
    """Start it as the leader of a session. The streams are those of `asyncio.subprocess`; `files` are for the spawner.

    Raises OSError if nothing can be started. Cancelling it ends the child.
    """
    try:
        child = await _started(prepared, stdin, stdout, stderr, files)
        if child.was_lost:  # the spawner was killed before it answered the request; there is another one by now
            child.close_pipes()
            child = await _started(prepared, stdin, stdout, stderr, files)
        return child
    except OSError:
        await asyncio.to_thread(prepared.clean_up)
        raise


async def _started(prepared: Prepared, stdin: int, stdout: int, stderr: int, files: Sequence[int]) -> Child:
    with _streams(stdin, stdout, stderr) as (ours, theirs):
        control = spawner.spawn(prepared.spec, [*theirs, *files])
        control.setblocking(False)
        child = Child(ours[0], ours[1], ours[2], _prepared=prepared, _control=control)
    asyncio.get_running_loop().add_reader(control.fileno(), child._hear)
    try:
        await child.started.wait()
    except asyncio.CancelledError:
        await child.end()
        raise
    return child


@contextmanager
def _streams(stdin: int, stdout: int, stderr: int) -> Iterator[tuple[list[Pipe | None], list[int]]]:
    """Our ends, and those of the child, which are closed here once it has them."""
    ours: list[Pipe | None] = []
    theirs: list[int] = []
    opened: list[int] = []
    try:
        for at, what in enumerate((stdin, stdout, stderr)):
            if what == PIPE:
                reading, writing = os.pipe()
                mine, other = (writing, reading) if at == 0 else (reading, writing)
                opened.append(other)
                ours.append(Pipe(mine))
                theirs.append(other)
            elif what == STDOUT:
                ours.append(None)
                theirs.append(theirs[1])
            elif what == DEVNULL:
                nothing = os.open(os.devnull, os.O_RDWR)
                opened.append(nothing)
                ours.append(None)
                theirs.append(nothing)
            else:
                raise ValueError(f"no such stream: {what}")
        yield ours, theirs
    except BaseException:
        for pipe in ours:
            if pipe is not None:
                pipe.close()
        raise
    finally:
        for each in opened:
            os.close(each)
