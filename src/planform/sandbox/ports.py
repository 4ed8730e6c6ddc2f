"""Between us and a child that listens where it likes: what it opens to the world is on a free port of the loopback.

Programs that are made for a pod of their own listen on the same few ports of every address, for metrics and webhooks;
two of them on one machine would end each other, and strangers could call both. Run as `python -I -S ports.py
[ASKED=GIVEN...] -- COMMAND`, this is the parent of the command, hears of each of its calls of `bind` from the kernel,
and does those itself that would take a port of all addresses; a port named as ASKED becomes the one named as GIVEN.
Where the kernel cannot tell (it takes Linux 5.6 on x86-64 or 64-bit ARM), the command just runs.
"""

import ctypes
import errno
import os
import resource
import select
import signal
import socket
import struct
import sys
from fcntl import ioctl

CANNOT_EXECUTE = 127

_PR_SET_PDEATHSIG = 1
_SECCOMP, _BIND, _TGKILL, _ARCHITECTURE = {
    "x86_64": (317, 49, 234, 0xC000003E),
    "aarch64": (277, 200, 131, 0xC00000B7),
}.get(os.uname().machine, (0, 0, 0, 0))
_PIDFD_GETFD, _THREAD = 438, os.O_EXCL
_SET_FILTER, _NEW_LISTENER = 1, 8
_RECEIVE, _SEND = 0xC0502100, 0xC0182101
_NOTIFICATION = struct.Struct("=QIIiIQ6Q")  # id, pid, flags, number, architecture, instruction, arguments
_RESPONSE = struct.Struct("=QqiI")  # id, value, error, flags
_GO_ON = 1
_MAX_ADDRESS_LENGTH = 128
_LOOPBACKS = {socket.AF_INET: ("127.0.0.1",), socket.AF_INET6: ("::ffff:127.0.0.1", "::1")}

_libc = ctypes.CDLL(None, use_errno=True)


class _Vector(ctypes.Structure):
    _fields_ = (("base", ctypes.c_void_p), ("length", ctypes.c_size_t))


_given: dict[int, int] = {}


def main(arguments: list[str]) -> None:
    chosen, command = arguments[: arguments.index("--")], arguments[arguments.index("--") + 1 :]
    _given.update((int(asked), int(given)) for asked, _, given in (each.partition("=") for each in chosen))
    ours, theirs = socket.socketpair()
    parent = os.getpid()
    child = os.fork()
    if not child:
        ours.close()
        _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:  # it died before the line above
            os._exit(1)
        _become(command, theirs)
    theirs.close()
    _wait_aside()
    _, descriptors, _, _ = socket.recv_fds(ours, 1, 1)
    ours.close()
    if descriptors:
        _serve(descriptors[0], child)
    _, status = os.waitpid(child, 0)
    _end_as(status)


def _become(command: list[str], parent: socket.socket) -> None:
    """Have the parent hear of every `bind` from now on, and run the command."""
    listener = _filter()
    if listener >= 0:
        socket.send_fds(parent, [b"."], [listener])
        os.close(listener)
    parent.close()
    try:
        os.execvp(command[0], command)
    except OSError as error:
        os.write(2, f"sandbox: cannot run {command[0]}: {error.strerror}\n".encode())
        os._exit(CANNOT_EXECUTE)


def _filter() -> int:
    """Have every `bind` from now on wait for an answer of the listener, which this gives; -1 if that cannot be."""
    if not _SECCOMP:
        return -1
    code = b"".join(
        struct.pack("=HBBI", *each)
        for each in (
            (0x20, 0, 0, 4),  # load the architecture
            (0x15, 0, 3, _ARCHITECTURE),  # another one: allow
            (0x20, 0, 0, 0),  # load the number of the call
            (0x15, 0, 1, _BIND),  # another one: allow
            (0x06, 0, 0, 0x7FC00000),  # ask the listener
            (0x06, 0, 0, 0x7FFF0000),  # allow
        )
    )
    held = ctypes.create_string_buffer(code, len(code))
    program = struct.pack("@HP", len(code) // 8, ctypes.addressof(held))
    return int(_libc.syscall(_SECCOMP, _SET_FILTER, _NEW_LISTENER, program))


def _serve(listener: int, child: int) -> None:
    """Answer until the child has ended."""
    ended = os.pidfd_open(child)
    waiting = select.poll()
    waiting.register(listener, select.POLLIN)
    waiting.register(ended, select.POLLIN)
    while True:
        ready = {descriptor for descriptor, _ in waiting.poll()}
        if ended in ready:
            return
        asked = bytearray(_NOTIFICATION.size)
        try:
            ioctl(listener, _RECEIVE, asked)
        except OSError:  # whoever asked is gone
            continue
        number, task, _, _, _, _, descriptor, address, length, *_ = _NOTIFICATION.unpack(asked)
        answer = _RESPONSE.pack(number, 0, 0, _GO_ON)
        try:
            if _bound_to_another_address(task, child, descriptor, address, min(length, _MAX_ADDRESS_LENGTH)):
                answer = _RESPONSE.pack(number, 0, 0, 0)
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                answer = _RESPONSE.pack(number, 0, -errno.EADDRINUSE, 0)
        try:
            ioctl(listener, _SEND, answer)
        except OSError:
            continue


def _bound_to_another_address(task: int, child: int, descriptor: int, address: int, length: int) -> bool:
    """Bind the socket to a free port of the loopback, if it is a stream's and asks for a port of all addresses."""
    wanted = _memory(task, address, length)
    family = int.from_bytes(wanted[:2], sys.byteorder)
    port, host = wanted[2:4], wanted[4:8] if family == socket.AF_INET else wanted[8:24]
    if family not in _LOOPBACKS or port == b"\0\0" or any(host):
        return False
    with socket.socket(fileno=_descriptor(task, child, descriptor)) as shared:
        if shared.type != socket.SOCK_STREAM:
            return False
        *likely, last = _LOOPBACKS[shared.family]
        free = _given.get(int.from_bytes(port, "big"), 0)
        for each in likely:
            try:
                shared.bind((each, free))
                return True
            except OSError:
                continue
        shared.bind((last, free))
    return True


def _memory(task: int, address: int, length: int) -> bytes:
    read = ctypes.create_string_buffer(length)
    here, there = _Vector(ctypes.addressof(read), length), _Vector(address, length)
    got = _libc.process_vm_readv(task, ctypes.byref(here), 1, ctypes.byref(there), 1, 0)
    if got != length:
        raise OSError(ctypes.get_errno(), "cannot read what is asked")
    return read.raw


def _descriptor(task: int, child: int, descriptor: int) -> int:
    """Our copy of the asker's socket. Whoever asks is a thread: of the child, or of what the child started."""
    if _libc.syscall(_TGKILL, child, task, 0) == 0:
        process = os.pidfd_open(child)
    else:
        try:
            process = os.pidfd_open(task, _THREAD)
        except OSError:  # before Linux 6.9, only processes can be had, and so their first threads
            process = os.pidfd_open(task)
    try:
        copy = int(_libc.syscall(_PIDFD_GETFD, process, descriptor, 0))
    finally:
        os.close(process)
    if copy < 0:
        raise OSError(ctypes.get_errno(), "cannot get the socket")
    return copy


def _wait_aside() -> None:
    """Ignore what is meant for the command, and let go of its pipes, so that they close when it closes them."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2):
        signal.signal(number, signal.SIG_IGN)
    devnull = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(devnull, stream)


def _end_as(status: int) -> None:
    """End as a process with this wait status did."""
    if os.WIFSIGNALED(status):
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        number = os.WTERMSIG(status)
        if number != signal.SIGKILL:
            signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
    os._exit(os.waitstatus_to_exitcode(status))


if __name__ == "__main__":
    main(sys.argv[1:])
