"""Runs a program in a network of its own, from which only some ports of this machine's loopback can be reached.

    own_network.py PORT[,PORT...] COMMAND...

For programs of others that listen on every address and cannot be told otherwise: in there nobody else sees them. The
sockets that stand for the ports are opened in that network and served from ours, so no address has to be changed. It
takes the right to make a network: root's, or that of a user namespace (`unshare --user --map-root-user`).
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Sequence

_CLONE_NEWNET = 0x40000000
_PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None, use_errno=True)


def main(arguments: Sequence[str]) -> int:
    ports = [int(port) for port in arguments[0].split(",")]
    opened: list[socket.socket] = []
    ready, ended = threading.Event(), threading.Event()
    code = [1]

    def inside() -> None:
        """The one thread that lives in the new network, and whatever it starts."""
        try:
            if _LIBC.unshare(_CLONE_NEWNET):
                print(f"no network of its own: {os.strerror(ctypes.get_errno())}", file=sys.stderr)
                return
            _bring_loopback_up()
            opened.extend(socket.create_server(("127.0.0.1", port), backlog=128) for port in ports)
            ready.set()
            child = subprocess.Popen(list(arguments[1:]), preexec_fn=lambda: _LIBC.prctl(_PR_SET_PDEATHSIG, 9))
            code[0] = child.wait()
        finally:
            ended.set()
            ready.set()

    threading.Thread(target=inside, daemon=True).start()
    ready.wait()
    for listening in opened:
        threading.Thread(target=_serve, args=(listening,), daemon=True).start()
    ended.wait()
    return code[0]


def _bring_loopback_up() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        request = bytearray(struct.pack("16sH22x", b"lo", 0))
        fcntl.ioctl(any_socket, 0x8913, request)  # SIOCGIFFLAGS
        flags = struct.unpack_from("H", request, 16)[0] | 1  # IFF_UP
        fcntl.ioctl(any_socket, 0x8914, struct.pack("16sH22x", b"lo", flags))  # SIOCSIFFLAGS


def _serve(listening: socket.socket) -> None:
    """Pass every connection on to the same port of our network."""
    address = listening.getsockname()
    while True:
        near, _ = listening.accept()
        try:
            far = socket.create_connection(address, timeout=10)
        except OSError:
            near.close()
            continue
        far.settimeout(None)
        for one, other in ((near, far), (far, near)):
            threading.Thread(target=_copy, args=(one, other), daemon=True).start()


def _copy(one: socket.socket, other: socket.socket) -> None:
    try:
        while data := one.recv(65536):
            other.sendall(data)
    except OSError:
        pass
    for each in (one, other):
        try:
            each.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
