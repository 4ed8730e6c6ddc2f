"""Limits, identity, the second layer, and then the command itself.

`become` never returns. Exit codes 125 (a limit could not be applied) and 127 (no such command) are its own, with a line
on standard error. Bubblewrap runs this as a program, inside of what it has made.
"""

from __future__ import annotations

import os
import resource
import signal
import sys
from typing import Any, NoReturn

from . import landlock, seccomp
from .syscalls import (
    CAP_DAC_READ_SEARCH,
    PR_SET_KEEPCAPS,
    PR_SET_NO_NEW_PRIVS,
    die_with_parent,
    drop_bounding_capabilities,
    prctl,
    set_capabilities,
)

CANNOT_CONFINE = 125
CANNOT_EXECUTE = 127
_DEFAULT_SIGNALS = ("SIGPIPE", "SIGXFSZ", "SIGINT", "SIGTERM", "SIGHUP", "SIGCHLD", "SIGUSR1", "SIGUSR2")
_AF_UNIX, _AF_INET, _AF_INET6, _AF_NETLINK = 1, 2, 10, 16


def become(spec: dict[str, Any]) -> NoReturn:
    """The command within its limits, in the directory and root that were made for it."""
    command = spec["command"]
    try:
        if spec.get("user") is not None:
            _change_identity(spec["user"])
        elif spec.get("drops"):
            drop_bounding_capabilities()
            set_capabilities(frozenset())
        if "parent" in spec and "root" not in spec:
            die_with_parent()
            if os.getppid() != spec["parent"]:  # it died before the line above
                os._exit(1)
        if not spec.get("trusted"):
            _limit(spec["limits"])
        if sys.platform == "linux" and not spec.get("trusted"):
            prctl(PR_SET_NO_NEW_PRIVS, 1, "no new privileges")
        if spec.get("layers"):
            _second_layer(spec)
        os.chdir(spec["directory"])
    except OSError as error:
        stop(CANNOT_CONFINE, f"sandbox: {error.strerror or error}")
    for name in _DEFAULT_SIGNALS:
        signal.signal(getattr(signal, name), signal.SIG_DFL)
    try:
        os.execvpe(command[0], command, spec["environment"])
    except OSError as error:
        stop(CANNOT_EXECUTE, f"sandbox: cannot run {command[0]}: {error.strerror}")


def become_inside(spec: dict[str, Any]) -> NoReturn:
    """The same in a namespace that bubblewrap made. A command that serves is reached through this process."""
    if not spec.get("serve"):
        become(spec)
    from .relay import Relay, wake_on_child

    [listening] = spec["files"]
    ourselves = os.getpid()
    command = os.fork()
    if not command:
        os.close(listening)
        become({**spec, "parent": ourselves})
    devnull = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(devnull, stream)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    relay = Relay(listening, spec["serve"])
    wake_on_child(relay)
    while True:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if pid == command:
            code = os.waitstatus_to_exitcode(status)
            os._exit(128 - code if code < 0 else code)  # as bubblewrap says it
        relay.poll()


def stop(code: int, message: str) -> NoReturn:
    os.write(2, f"{message}\n".encode())
    os._exit(code)


def _change_identity(user: int) -> None:
    """Become somebody who owns nothing, and can read what can be seen.

    Files that it is given may be private to the control plane; which files those are, its root or Landlock says.
    Without this right it would have to own them.
    """
    reading = frozenset({CAP_DAC_READ_SEARCH})
    drop_bounding_capabilities(keep=reading)
    prctl(PR_SET_KEEPCAPS, 1, "keep capabilities")
    os.setgroups([])
    os.setresgid(user, user, user)
    os.setresuid(user, user, user)
    set_capabilities(reading)


def _limit(limits: dict[str, int]) -> None:
    def bound(what: int, value: int, *, slack: int = 0) -> None:
        _, hard = resource.getrlimit(what)
        top = value + slack if hard == resource.RLIM_INFINITY else min(value + slack, hard)
        resource.setrlimit(what, (min(value, top), top))

    bound(resource.RLIMIT_CORE, 0)
    # Of what is private, that which is reserved but not used is no harm: the data segment counts. What is shared counts
    # only as address space, which is bounded more widely, as runtimes reserve much.
    memory = resource.RLIMIT_DATA if sys.platform == "linux" else resource.RLIMIT_AS
    for what, key, slack in (
        (memory, "memory", 0),
        (resource.RLIMIT_AS, "address_space", 0),
        (resource.RLIMIT_CPU, "cpu", 1),  # first a signal that has a name, then the end
        (resource.RLIMIT_FSIZE, "file_size", 0),
        (resource.RLIMIT_NOFILE, "open_files", 0),
        (resource.RLIMIT_NPROC, "processes", 0),
        (resource.RLIMIT_MEMLOCK, "locked", 0),
    ):
        if key in limits:
            bound(what, limits[key], slack=slack)


def _second_layer(spec: dict[str, Any]) -> None:
    """Landlock and seccomp, as far as the kernel has them; where they are all there is, both are there."""
    layers = spec["layers"]
    alone = bool(layers.get("alone"))
    scoped = landlock.scopes_sockets()
    if landlock.version():
        readable, writable = list(layers["readable"]), list(layers["writable"])
        if alone:
            readable.append(f"/proc/{os.getpid()}")
        landlock.restrict(readable, writable, list(layers["devices"]), list(layers.get("listable", ())))
    elif alone:
        raise OSError("the kernel has no Landlock")
    if not seccomp.available():
        if alone:
            raise OSError("calls of the kernel cannot be filtered on this machine")
        return
    seccomp.restrict(
        families=_families(layers, alone=alone, scoped=scoped),
        only_streams=alone and layers["network"] == "serve",
        connects=not (alone and layers["network"] == "serve"),
        memory_files=bool(layers["memory_files"]),
        looks_into=bool(layers.get("looks_into")),
        signals_only=os.getpid() if alone and not scoped else None,
    )


def _families(layers: dict[str, Any], *, alone: bool, scoped: bool) -> list[int] | None:
    """Of which sockets can be made.

    Where the network of the machine is shared, so are its abstract unix sockets, unless Landlock keeps them apart. And
    where Landlock is all there is, nothing keeps sockets apart that have a path.
    """
    if layers["network"] == "none" and alone:
        return []
    internet = [_AF_INET, _AF_INET6, _AF_NETLINK]
    if alone or (layers["network"] == "host" and not scoped):
        return internet
    return [_AF_UNIX, *internet]
