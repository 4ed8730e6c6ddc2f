"""How a function without network is reached: by a socket that the control plane holds.

The control plane listens at a unix socket in a directory of its own and gives it to the first process in the function's
network namespace. That one takes connections from it and passes them on to where the function listens, which is the
loopback of that namespace and is seen by nobody else.
"""

from __future__ import annotations

import os
import selectors
import socket
import struct
from collections.abc import Callable
from fcntl import ioctl

_CHUNK = 256 << 10
_SIOCGIFFLAGS, _SIOCSIFFLAGS, _UP = 0x8913, 0x8914, 1
_REQUEST = struct.Struct("16sh14x")


def loopback_up() -> None:
    """A new network namespace has one, which is down."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        flags = _REQUEST.unpack(ioctl(asking, _SIOCGIFFLAGS, _REQUEST.pack(b"lo", 0)))[1]
        ioctl(asking, _SIOCSIFFLAGS, _REQUEST.pack(b"lo", flags | _UP))


class Relay:
    """Passes connections on until its process ends. `watch` has it look after something else as well."""

    def __init__(self, listening: int, port: int) -> None:
        self._listening = socket.socket(fileno=listening)
        self._listening.setblocking(False)
        self._port = port
        self.selector = selectors.DefaultSelector()
        self.selector.register(self._listening, selectors.EVENT_READ, self._accept)

    def poll(self) -> None:
        """Wait for something to do, and do it."""
        for key, events in self.selector.select():
            key.data(events)

    def _accept(self, _: int) -> None:
        try:
            caller, _address = self._listening.accept()
        except OSError:
            return
        try:
            function = socket.create_connection(("127.0.0.1", self._port), timeout=1.0)
            function.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        except OSError:  # it does not listen yet: callers try again
            caller.close()
            return
        _Pair(self.selector, caller, function)


class _Pair:
    """Two sockets and what is under way between them: at most one chunk each way."""

    def __init__(self, selector: selectors.BaseSelector, one: socket.socket, other: socket.socket) -> None:
        self._selector = selector
        self._other = {one: other, other: one}
        self._pending = {one: b"", other: b""}  # to be written to it
        for each in self._other:
            each.setblocking(False)
            selector.register(each, selectors.EVENT_READ, self._ready(each))

    def _ready(self, which: socket.socket) -> Callable[[int], None]:
        def ready(events: int) -> None:
            try:
                if events & selectors.EVENT_WRITE:
                    self._flush(which)
                if events & selectors.EVENT_READ:
                    self._read(which)
            except BlockingIOError:
                pass
            except OSError:
                self._close()

        return ready

    def _read(self, which: socket.socket) -> None:
        other = self._other[which]
        if self._pending[other]:
            return
        data = which.recv(_CHUNK)
        if not data:
            self._close()  # gRPC closes both ways at once
            return
        self._pending[other] = data
        self._flush(other)

    def _flush(self, which: socket.socket) -> None:
        data = self._pending[which]
        try:
            sent = which.send(data) if data else 0
        except BlockingIOError:
            sent = 0
        self._pending[which] = data[sent:]
        other = self._other[which]
        # Whoever waits for a slow reader is not read from meanwhile.
        self._want(which, reading=not self._pending[other], writing=bool(self._pending[which]))
        self._want(other, reading=not self._pending[which], writing=bool(self._pending[other]))

    def _want(self, which: socket.socket, *, reading: bool, writing: bool) -> None:
        events = (selectors.EVENT_READ if reading else 0) | (selectors.EVENT_WRITE if writing else 0)
        known = self._selector.get_map().get(which)
        if known is None and events:
            self._selector.register(which, events, self._ready(which))
        elif known is not None and not events:
            self._selector.unregister(which)
        elif known is not None and known.events != events:
            self._selector.modify(which, events, known.data)

    def _close(self) -> None:
        for each in self._other:
            if each.fileno() in self._selector.get_map():
                self._selector.unregister(each)
            each.close()


def wake_on_child(relay: Relay) -> None:
    """End a turn when a child of this process ends."""
    import signal

    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(writing)
    relay.selector.register(reading, selectors.EVENT_READ, lambda _: os.read(reading, 512))
