"""The process that children come from: one thread, no gRPC, no secrets, nothing open but what it is given.

A process with threads that forks may leave locks held in the child for ever, and libraries that try to prevent it stop
their threads meanwhile, in the middle of calls. So the control plane does not fork: it sends this process, over a
socket, what to start and the open files that the child shall have.

A child belongs to a socket of its own. Over it come the child's pid and then its wait status; a byte sent to it is a
signal for the child's process group; and when the other end closes, because its owner let go or died, the child is
killed. When the control plane itself is gone, this process ends, and with it all that it started.
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import sys
import time
from contextlib import suppress
from typing import Any, NoReturn

from .launch import CANNOT_CONFINE, become, stop
from .syscalls import (
    NEW_USER,
    PR_SET_CHILD_SUBREAPER,
    clone,
    die_with_parent,
    drop_bounding_capabilities,
    prctl,
    set_capabilities,
)

_MAX_FILES = 16
_LAST_TRIES = 100


class _Child:
    def __init__(self, pid: int, control: socket.socket, *, contained: bool) -> None:
        self.pid = pid
        self.control = control
        self.contained = contained


def main(descriptor: int) -> None:
    os.chdir("/")
    for ignored in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGPIPE):
        signal.signal(ignored, signal.SIG_IGN)
    if sys.platform == "linux":
        prctl(PR_SET_CHILD_SUBREAPER, 1, "hear of orphans")
    _Spawner(socket.socket(fileno=descriptor)).serve()


class _Spawner:
    def __init__(self, asking: socket.socket) -> None:
        self._asking = asking
        self._children: dict[int, _Child] = {}  # by pid
        self._controls: dict[int, _Child] = {}  # by descriptor
        self._poll = select.poll()
        self._poll.register(asking.fileno(), select.POLLIN)
        self._life, self._living = os.pipe()  # the end that writes is nobody's but ours, and closes when we die
        self._woken, writing = os.pipe()
        os.set_blocking(self._woken, False)
        os.set_blocking(writing, False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
        self._poll.register(self._woken, select.POLLIN)

    def serve(self) -> None:
        while True:
            for descriptor, _ in self._poll.poll():
                if descriptor == self._asking.fileno():
                    self._start()
                elif descriptor == self._woken:
                    with suppress(BlockingIOError):
                        os.read(self._woken, 512)
                elif descriptor in self._controls:
                    self._receive(self._controls[descriptor])
            self._bury()

    def _start(self) -> None:
        # Not to be inherited by any other child: it would keep pipes open that their reader waits to see closed.
        data, files, _, _ = socket.recv_fds(self._asking, 1, _MAX_FILES, socket.MSG_CMSG_CLOEXEC)
        if not data:  # the control plane is gone; what it started goes with us
            for child in self._children.values():
                _kill(child.pid, signal.SIGKILL)
            os._exit(0)
        control, spec_file, *streams = files
        spec = json.loads(os.pread(spec_file, os.fstat(spec_file).st_size, 0))
        spec["parent"] = os.getpid()
        os.close(spec_file)
        talking = socket.socket(fileno=control)
        entrance, opening = socket.socketpair()
        try:
            pid = clone(spec["namespaces"])
        except OSError as error:
            _refused(talking, streams[2], error)
        else:
            if not pid:
                self._in_child(spec, entrance.fileno(), control, streams)
            entrance.close()
            self._admit(pid, spec, talking, streams[2], opening)
        entrance.close()
        opening.close()
        for each in streams:
            os.close(each)

    def _admit(
        self, pid: int, spec: dict[str, Any], control: socket.socket, stderr: int, opening: socket.socket
    ) -> None:
        """Everything that is done to a child from outside, before it takes its first step."""
        try:
            if spec["namespaces"] & NEW_USER:
                _map_users(pid, spec["users"], privileged=bool(spec["privileged"]))
            for group in spec["groups"]:
                _write(group, str(pid))
            with suppress(OSError):  # when memory runs out, a function goes before the control plane
                _write(f"/proc/{pid}/oom_score_adj", "1000")
        except OSError as error:
            _kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            _refused(control, stderr, error)
            return
        child = _Child(pid, control, contained="root" in spec or "bubblewrap" in spec)
        self._children[pid] = self._controls[control.fileno()] = child
        self._poll.register(control.fileno(), select.POLLIN)
        opening.recv(1)  # it leads its session, so that its group can be signalled
        # Its pid comes first, then it starts: nothing it says can be ahead of that.
        with suppress(OSError):
            control.send(pid.to_bytes(4, "little"))
            opening.send(b".")

    def _in_child(self, spec: dict[str, Any], entrance: int, control: int, streams: list[int]) -> NoReturn:
        try:
            signal.set_wakeup_fd(-1)
            os.setsid()
            os.write(entrance, b".")
            for at, stream in enumerate(streams[:3]):
                os.dup2(stream, at)
            _close_all_but({0, 1, 2, entrance, control, self._life, *streams[3:]})
            if not os.read(entrance, 1):  # whoever should have let us in died before that
                os._exit(1)
            os.close(entrance)
            if "root" in spec:
                _first_process(spec, control, self._life, streams[3:])
            os.close(self._life)
            os.close(control)
            if "bubblewrap" in spec:
                _bubblewrap(spec, streams[3:])
            for path in spec.get("owns", ()):
                os.chown(path, spec["user"], spec["user"])
            become(spec)
        except OSError as error:
            stop(CANNOT_CONFINE, f"sandbox: {error.strerror or error}")
        except BaseException as error:
            stop(CANNOT_CONFINE, f"sandbox: {type(error).__name__}: {error}")

    def _receive(self, child: _Child) -> None:
        try:
            signals = child.control.recv(64, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return
        except OSError:
            signals = b""
        # It is not buried yet, or its socket would not be here: the pid is still its own.
        for number in signals or bytes([signal.SIGKILL]):
            _kill(child.pid, number)
        if not signals:
            self._poll.unregister(child.control.fileno())
            del self._controls[child.control.fileno()]

    def _bury(self) -> None:
        while True:
            try:
                ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            except ChildProcessError:
                return
            if ended is None:
                return
            # Before it is buried, as its number is nobody else's until then: what stayed in its group ends with it.
            pid = ended.si_pid
            child = self._children.pop(pid, None)
            if child is not None:
                with suppress(ProcessLookupError, PermissionError):
                    os.killpg(pid, signal.SIGKILL)
            _, status = os.waitpid(pid, 0)
            if child is None:
                continue
            self._end_orphans()
            if child.control.fileno() in self._controls:
                self._poll.unregister(child.control.fileno())
                del self._controls[child.control.fileno()]
            with suppress(OSError):  # whoever started it may have told the command's own before
                child.control.send(status.to_bytes(4, "little"))
            _hang_up(child.control)

    def _end_orphans(self) -> None:
        """Kill what left its group: without a namespace of its own it comes to us when its parent ends.

        Whose it was cannot be told, so they are left alone as long as others run that have no namespace.
        """
        if any(not child.contained for child in self._children.values()):
            return
        for _ in range(_LAST_TRIES):
            orphans = set(_own_children()) - set(self._children)
            if not orphans:
                return
            for pid in orphans:
                with suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signal.SIGKILL)
                with suppress(ChildProcessError):
                    os.waitpid(pid, os.WNOHANG)
            time.sleep(0.001)


def _own_children() -> list[int]:
    try:
        descriptor = os.open(f"/proc/self/task/{os.getpid()}/children", os.O_RDONLY)
    except OSError:
        return []
    try:
        return [int(pid) for pid in os.read(descriptor, 1 << 16).split()]
    finally:
        os.close(descriptor)


def _first_process(spec: dict[str, Any], control: int, life: int, files: list[int]) -> NoReturn:
    """In new namespaces: make the root, start the command, tell how it ended, and end everything.

    The first process of a namespace takes no signal that it does not handle, and with it ends everything in there: a
    command should not be it.
    """
    from .root import build_root

    die_with_parent()
    if select.select([life], [], [], 0)[0]:  # it died before the line above
        os._exit(1)
    os.close(life)
    socket.sethostname("sandbox")
    if spec.get("serve"):
        from .relay import loopback_up

        loopback_up()
    build_root(spec["root"])
    for path in spec.get("owns", ()):
        os.chown(path, spec["user"], spec["user"])
    command = os.fork()
    if not command:
        os.close(control)
        for each in files:
            os.close(each)
        become(spec)
    _wait_aside()
    drop_bounding_capabilities()
    set_capabilities(frozenset())
    if spec.get("serve"):
        from .relay import Relay, wake_on_child

        relay = Relay(files[0], spec["serve"])
        wake_on_child(relay)
        while True:
            _report_if_ended(command, control, os.WNOHANG)
            relay.poll()
    while True:
        _report_if_ended(command, control, 0)  # orphans too, which are the first process's to bury


def _report_if_ended(command: int, control: int, how: int) -> None:
    pid, status = os.waitpid(-1, how)
    if pid == command:
        with suppress(OSError):
            os.write(control, status.to_bytes(4, "little"))
        os._exit(0)


def _wait_aside() -> None:
    """Ignore what is meant for the command, and let go of its pipes, so that they close when it closes them."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2):
        signal.signal(number, signal.SIG_IGN)
    devnull = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(devnull, stream)


def _bubblewrap(spec: dict[str, Any], files: list[int]) -> NoReturn:
    """Bubblewrap makes the namespaces; what it runs in them is our own launch, which becomes the command."""
    inner = {key: spec[key] for key in ("command", "environment", "limits", "layers", "directory", "serve")}
    for each in files:
        os.set_inheritable(each, True)
    inner["files"] = files
    given = os.memfd_create("spec", 0)
    os.write(given, json.dumps(inner).encode())
    command: list[str] = []
    for word in spec["bubblewrap"]:
        if isinstance(word, str):
            command.append(word)
        else:  # the content of a file that there shall be
            held = os.memfd_create("file", 0)
            os.write(held, word[0].encode())
            os.lseek(held, 0, os.SEEK_SET)
            command.append(str(held))
    launch = (
        f"import sys, os, json; sys.path.insert(0, {spec['code']!r}); from confinement.launch import become_inside; "
        f"become_inside(json.loads(os.pread({given}, os.fstat({given}).st_size, 0)))"
    )
    os.execvpe(command[0], [*command, spec["python"], "-I", "-S", "-c", launch], spec["environment"])


def _map_users(pid: int, users: list[int], *, privileged: bool) -> None:
    """Whom the child's user namespace knows, by the same numbers as outside."""
    if not privileged:
        _write(f"/proc/{pid}/setgroups", "deny")
    for kind, number in (("uid", 0), ("gid", 1)):
        lines = [f"{user} {user} 1\n" for user in (users if privileged else users[number : number + 1])]
        _write(f"/proc/{pid}/{kind}_map", "".join(lines))


def _refused(control: socket.socket, stderr: int, error: OSError) -> None:
    with suppress(OSError):
        os.write(stderr, f"sandbox: {error.strerror or error}\n".encode())
    with suppress(OSError):
        control.send((0).to_bytes(4, "little") + (CANNOT_CONFINE << 8).to_bytes(4, "little"))
    _hang_up(control)


def _hang_up(control: socket.socket) -> None:
    """Close it so that the other side hears of an end, and not of an error.

    A signal for a child that has just ended may be on its way. A socket that is closed with something unread in it is
    reset, and the loop of the other side tells nobody of a socket in error: whoever waits for the end waits for good.
    """
    with suppress(OSError):
        control.shutdown(socket.SHUT_RD)  # what comes from now on is refused
        while control.recv(64, socket.MSG_DONTWAIT):
            pass
    control.close()


def _kill(pid: int, number: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, number)
    if number == signal.SIGKILL:  # it may not have made its group yet
        with suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)


def _close_all_but(keep: set[int]) -> None:
    first = 0
    for each in [*sorted(keep), 1 << 20]:
        if first < each:  # of an empty range, some versions of Python close everything
            os.closerange(first, each)
        first = each + 1


def _write(path: str, text: str) -> None:
    descriptor = os.open(path, os.O_WRONLY)
    try:
        os.write(descriptor, text.encode())
    finally:
        os.close(descriptor)


if __name__ == "__main__":
    main(int(sys.argv[1]))
