"""Calls of built-in functions that may take long or use much: they are made in a child process that can be killed.

A worker is `python -m planform.builtin.workers MODULE`. It reads requests and writes responses, one at a time, framed
by their length, and answers each with `MODULE.function.call`. It stays for the next call; a call that takes too long,
or ends the worker by what it does, costs that call alone, and the next one gets a new worker.
"""

from __future__ import annotations

import asyncio
import atexit
import importlib
import os
import selectors
import signal
import struct
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, Protocol

import msgspec

from planform.functions.errors import answer_too_large
from planform.functions.runner import MAX_ANSWER_SIZE
from planform.functions.values import FunctionRequest, FunctionResponse
from planform.sandbox import Limits, best_isolation
from planform.sandbox.isolation import prepare
from planform.sandbox.spawning import spawner

MEMORY: Final = 512 << 20
IDLE_SECONDS: Final = 60.0
"""After so long without a call a worker ends by itself."""
_HEAD: Final = struct.Struct(">I")
_CHUNK: Final = 1 << 20


class Worked(Protocol):
    """What a worker's module has under the name `function`. It may say with `asked` what a request is to it."""

    def call(self, request: Any, /) -> FunctionResponse: ...


class WorkerGone(Exception):
    """The call was out of time, or ended its worker; the text says which."""


class Workers:
    """The workers of one function: at most `maximum` calls at a time, the others wait for their turn.

    They see the files of `visible`, which must be there, and cannot change them.
    """

    def __init__(self, module: str, *, maximum: int = 2, memory: int = MEMORY, visible: tuple[Path, ...] = ()) -> None:
        self._module = module
        self._limits = Limits(memory=memory, visible=visible).for_server()
        # Each thread has a worker of its own. All that these threads do is wait for pipes.
        self._threads = ThreadPoolExecutor(maximum, thread_name_prefix=f"{module.rpartition('.')[2]}-worker")
        self._own = threading.local()

    async def call(self, request: Any, *, seconds: float, maximum: int = MAX_ANSWER_SIZE) -> FunctionResponse:
        """The function's answer of at most so many bytes. Raises WorkerGone, FunctionAnswerTooLarge.

        Cancelling it ends the worker."""
        call = _Call(msgspec.json.encode(request), seconds, maximum)
        try:
            answer = await asyncio.get_running_loop().run_in_executor(self._threads, self._exchange, call)
        except asyncio.CancelledError:
            call.cancel()
            raise
        return msgspec.json.decode(answer, type=FunctionResponse)

    def _exchange(self, call: _Call) -> bytes:
        worker: _Worker | None = getattr(self._own, "worker", None)
        if worker is None or not worker.alive:
            worker = self._own.worker = _Worker(self._module, self._limits)
        return call.make(worker)


class _Call:
    """One exchange with a worker, which another thread may cancel."""

    def __init__(self, asked: bytes, seconds: float, maximum: int) -> None:
        self._asked = asked
        self._seconds = seconds
        self._max_bytes = maximum
        self._worker: _Worker | None = None
        self._cancelled = False
        self._lock = threading.Lock()

    def make(self, worker: _Worker) -> bytes:
        with self._lock:
            if self._cancelled:
                return b""
            self._worker = worker
        try:
            return worker.exchange(self._asked, self._seconds, self._max_bytes)
        except BaseException:
            worker.end()
            raise
        finally:
            with self._lock:
                self._worker = None

    def cancel(self) -> None:
        with self._lock:
            self._cancelled = True
            if self._worker is not None:
                self._worker.kill()


class _Worker:
    """A child process and the two pipes to it. It runs our own code, so it runs also where nothing can be hidden."""

    def __init__(self, module: str, limits: Limits) -> None:
        command = [sys.executable, "-m", __spec__.name, module]
        environment = {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        self._prepared = prepare(command, limits, best_isolation(), environment=environment)
        asked, self._asking = os.pipe()
        self._answering, answer = os.pipe()
        nothing = os.open(os.devnull, os.O_WRONLY)
        try:
            self._control = spawner.spawn(self._prepared.spec, [asked, answer, nothing])
        except BaseException:
            os.close(self._asking)
            os.close(self._answering)
            raise
        finally:
            for each in (asked, answer, nothing):
                os.close(each)
        os.set_blocking(self._asking, False)
        self._ended = False
        _RUNNING.add(self)

    @property
    def alive(self) -> bool:
        if self._ended:  # after a call that it did not survive
            return False
        with selectors.DefaultSelector() as selector:
            selector.register(self._answering, selectors.EVENT_READ)
            if not selector.select(0):  # between calls it says nothing, unless that it is gone
                return True
        self.end()
        return False

    def exchange(self, asked: bytes, seconds: float, maximum: int) -> bytes:
        deadline = time.monotonic() + seconds
        try:
            self._send(_HEAD.pack(len(asked)) + asked, deadline, seconds)
            (length,) = _HEAD.unpack(self._receive(_HEAD.size, deadline, seconds))
            if length > maximum:
                raise answer_too_large(length, maximum)
            return self._receive(length, deadline, seconds)
        except (BrokenPipeError, EOFError):
            raise WorkerGone("it ended its own process, most likely for want of memory") from None

    def _send(self, data: bytes, deadline: float, seconds: float) -> None:
        rest = memoryview(data)
        while rest:
            self._wait(self._asking, selectors.EVENT_WRITE, deadline, seconds)
            rest = rest[os.write(self._asking, rest[:_CHUNK]) :]

    def _receive(self, length: int, deadline: float, seconds: float) -> bytes:
        found = bytearray()
        while len(found) < length:
            self._wait(self._answering, selectors.EVENT_READ, deadline, seconds)
            chunk = os.read(self._answering, min(length - len(found), _CHUNK))
            if not chunk:
                raise EOFError
            found += chunk
        return bytes(found)

    def _wait(self, descriptor: int, event: int, deadline: float, seconds: float) -> None:
        with selectors.DefaultSelector() as selector:
            selector.register(descriptor, event)
            if not selector.select(max(deadline - time.monotonic(), 0)):
                raise WorkerGone(f"it took longer than {seconds:g} s and was stopped")

    def kill(self) -> None:
        with suppress(OSError):
            self._control.send(bytes([signal.SIGKILL]))

    def end(self) -> None:
        """Kill it if need be, wait for its end, and take away what is left of it."""
        if self._ended:
            return
        self._ended = True
        _RUNNING.discard(self)
        self.kill()
        with suppress(OSError):
            while self._control.recv(64):
                pass
        self._control.close()
        os.close(self._asking)
        os.close(self._answering)
        self._prepared.clean_up()


_RUNNING: Final[set[_Worker]] = set()


@atexit.register
def _end_all() -> None:
    """Leave no scratch directory behind. The threads that made calls have ended by then: nobody uses a worker."""
    for worker in tuple(_RUNNING):
        worker.end()


def _serve(function: Worked) -> None:
    """Answer until nobody asks any more. What the function prints goes nowhere."""
    kind: Any = getattr(function, "asked", FunctionRequest)
    asking, answering = os.dup(0), os.dup(1)
    os.dup2(2, 1)
    for asked in _frames(asking):
        answer = msgspec.json.encode(function.call(msgspec.json.decode(asked, type=kind)))
        data = memoryview(_HEAD.pack(len(answer)) + answer)
        while data:
            data = data[os.write(answering, data) :]


def _frames(asking: int) -> Iterator[bytes]:
    def read(length: int) -> bytes:
        found = bytearray()
        while len(found) < length and (chunk := os.read(asking, min(length - len(found), _CHUNK))):
            found += chunk
        return bytes(found)

    with selectors.DefaultSelector() as selector:
        selector.register(asking, selectors.EVENT_READ)
        while selector.select(IDLE_SECONDS):
            head = read(_HEAD.size)
            if len(head) < _HEAD.size:
                return
            yield read(*_HEAD.unpack(head))


if __name__ == "__main__":
    _serve(importlib.import_module(sys.argv[1]).function)
