"""How this machine can cut a child off, and what the spawner is told to do it.

Limits of memory, CPU, files and processes hold everywhere. Hiding the files of the machine takes namespaces, of users
or of root, or bubblewrap, or Landlock; containers and hardened systems have some of these and not others.
"""

from __future__ import annotations

import asyncio
import atexit
import os
import shutil
import sys
import tempfile
import threading
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import Any, Final

from planform.errors import PlanformError
from planform.sandbox.cgroups import CONTROLLERS, Cgroups, Group, find_controllers
from planform.sandbox.confinement import landlock, seccomp, syscalls
from planform.sandbox.confinement.launch import CANNOT_CONFINE
from planform.sandbox.leftovers import scratch_prefix, sweep_scratch
from planform.sandbox.limits import Limits, Network
from planform.sandbox.spawning import CODE, spawner, wait_for
from planform.sandbox.visible import DEVICES, PROC, SCRATCH, listable_paths, readable_paths, root_entries

_PORTS: Final = str(Path(__file__).with_name("ports.py"))
_NAMESPACES: Final = syscalls.NEW_NS | syscalls.NEW_PID | syscalls.NEW_IPC | syscalls.NEW_UTS
_FIRST_USER: Final = 0x60000000
_USERS: Final = 0x10000000
_TRIAL_SECONDS: Final = 10.0
_LOCKED: Final = 8 << 20


class Isolation(StrEnum):
    """The ways there are, the best first.

    Bubblewrap is for systems where only it may make user namespaces; namespaces of root for containers that have none.
    """

    NAMESPACES = "namespaces"
    BUBBLEWRAP = "bubblewrap"
    ROOT_NAMESPACES = "root-namespaces"
    LANDLOCK = "landlock"
    LIMITS_ONLY = "limits-only"
    """Nothing is hidden. For programs that we trust, such as container runtimes."""

    @property
    def has_own_root(self) -> bool:
        return self in (Isolation.NAMESPACES, Isolation.BUBBLEWRAP, Isolation.ROOT_NAMESPACES)


class SandboxUnavailable(PlanformError):
    """No sandbox of this machine hides its files, so functions and scripts of others are not run on it."""

    reason = "SandboxUnavailable"

    def __init__(self) -> None:
        super().__init__(
            "this machine cannot hide its files from a function: it has neither user namespaces, bubblewrap, rights to "
            "make namespaces, nor Landlock"
        )
        self.hint = (
            "allow user namespaces, install bubblewrap, or run a kernel with Landlock (5.13 or later); "
            "to run functions that see everything the control plane sees, start it with --allow-unconfined-functions"
        )


@dataclass(slots=True)
class Policy:
    """What the operator of this process has decided. There is one, as there is one machine below it."""

    allow_unconfined: bool = False
    """Whether functions and scripts run where nothing hides the files of the machine."""
    function_network: Network = Network.HOST
    """What of the network functions of packages have, unless their runtime configuration says otherwise."""
    use_cgroups: bool = False
    """Whether to look for cgroups; not worth it for programs that run for a moment."""
    cgroups: Cgroups | None = None


policy: Final = Policy()
_getting_ready: Final = threading.Lock()


def get_ready() -> None:
    """Find out what this machine can do, and sweep away what killed control planes left. Blocks, the first time."""
    with _getting_ready:
        if policy.use_cgroups and policy.cgroups is None and sys.platform == "linux":
            policy.cgroups = Cgroups(find_controllers())
            atexit.register(policy.cgroups.close)
            policy.cgroups.sweep()
            sweep_scratch()
        _best()


async def ready_isolation() -> Isolation:
    """`detect_isolation`, which does not hold up the event loop. Raises SandboxUnavailable."""
    if not _best.cache_info().currsize or (policy.use_cgroups and policy.cgroups is None):
        await asyncio.to_thread(get_ready)
    return detect_isolation()


def limits_that_hold() -> dict[str, str]:
    """For each of pids, memory and cpu, what bounds it: a version of cgroups, or rlimits."""
    held = policy.cgroups.controllers if policy.cgroups is not None else {}
    names = {name: f"cgroup v{held[name].version}" for name in CONTROLLERS if name in held}
    # A process can be bounded in how long it computes in all, which would end a server, but not in its share.
    return {"pids": "rlimit", "memory": "rlimit", "cpu": "nothing"} | names


@cache
def available_isolation() -> tuple[Isolation, ...]:
    """Try them; what works is a fact of the machine, so once is enough. Takes some tens of milliseconds."""
    return tuple(isolation for isolation in Isolation if _works(isolation))


@cache
def _best() -> Isolation:
    return next(isolation for isolation in Isolation if _works(isolation))


def detect_isolation() -> Isolation:
    """The best way that works here. Raises SandboxUnavailable if nothing hides files, and that is not allowed."""
    best = _best()
    if best is Isolation.LIMITS_ONLY and not policy.allow_unconfined:
        raise SandboxUnavailable
    return best


def best_isolation() -> Isolation:
    """The same for programs of our own, which run in any case."""
    return _best()


def runs_unconfined() -> bool:
    """Whether it is known that nothing hides files here, and functions run all the same."""
    return bool(_best.cache_info().currsize) and _best() is Isolation.LIMITS_ONLY and policy.allow_unconfined


@dataclass(frozen=True, slots=True)
class Prepared:
    """What the spawner is told, and a directory on disk that is the child's scratch, if it has one there."""

    spec: Mapping[str, Any]
    scratch: Path | None
    isolation: Isolation
    groups: list[Group] = field(default_factory=list)

    def clean_up(self) -> None:
        """Once nothing of the child is left; twice is harmless. May wait for the disk and for processes to end."""
        while self.groups and policy.cgroups is not None:
            policy.cgroups.give_back(self.groups.pop())
        if self.scratch is not None:
            shutil.rmtree(self.scratch, ignore_errors=True)

    def own_code(self, code: int) -> int:
        """The exit code of the command, or minus the signal that ended it; bubblewrap says 128 and the signal."""
        return 128 - code if self.isolation is Isolation.BUBBLEWRAP and 128 < code < 193 else code


def prepare(
    command: Sequence[str],
    limits: Limits,
    isolation: Isolation,
    *,
    environment: Mapping[str, str],
    port: int | None = None,
) -> Prepared:
    """Everything that the spawner needs to know. `port` is where a child listens that is reached by a socket."""
    scratch: Path | None = None
    if limits.scratch is None or not isolation.has_own_root:
        scratch = Path(tempfile.mkdtemp(prefix=scratch_prefix()))
    home = SCRATCH if isolation.has_own_root else str(scratch)
    if limits.only_loopback and sys.platform == "linux":
        chosen = (f"{asked}={given}" for asked, given in limits.loopback_ports)
        command = [sys.executable, "-I", "-S", _PORTS, *chosen, "--", *command]
    user = _user(isolation, limits, scratch)
    group = policy.cgroups.take(limits) if policy.cgroups is not None else None
    counted = group is not None and policy.cgroups is not None and "memory" in policy.cgroups.controllers
    numbered = group is not None and policy.cgroups is not None and "pids" in policy.cgroups.controllers
    spec: dict[str, Any] = {
        "namespaces": 0,
        "groups": [] if group is None else group.procs,
        "command": list(command),
        "environment": environment_of(home, environment),
        "directory": home,
        "limits": _rlimits(limits, isolation, user, numbered=numbered),
    }
    if isolation is not Isolation.LIMITS_ONLY:
        spec["layers"] = _layers(limits, isolation, scratch, counted=counted)
    if user is not None:
        spec["user"] = user
        spec["owns"] = [home, *(str(path.absolute()) for path in limits.writable)]
    match isolation:
        case Isolation.NAMESPACES | Isolation.ROOT_NAMESPACES:
            _in_namespaces(spec, limits, isolation, user, scratch, port)
        case Isolation.BUBBLEWRAP:
            spec["bubblewrap"] = list(_bubblewrap(limits, scratch))
            spec["serve"] = port if limits.network is Network.SERVE else None
            spec["code"], spec["python"] = CODE, sys.executable
        case _:
            pass
    return Prepared(spec, scratch, isolation, [] if group is None else [group])


def trusted(command: Sequence[str], environment: Mapping[str, str]) -> Prepared:
    """A program that we trust and that needs much, such as a container runtime: as we are, in a scratch directory."""
    scratch = Path(tempfile.mkdtemp(prefix=scratch_prefix()))
    spec = {
        "namespaces": 0,
        "groups": [],
        "command": list(command),
        "environment": environment_of(str(scratch), environment),
        "directory": str(scratch),
        "limits": {},
        "trusted": True,
    }
    return Prepared(spec, scratch, Isolation.LIMITS_ONLY)


def environment_of(home: str, extra: Mapping[str, str]) -> dict[str, str]:
    """The environment of a child: nothing of ours but where programs are."""
    own = {key: os.environ[key] for key in ("PATH", "LANG", "LC_ALL", "SSL_CERT_FILE") if key in os.environ}
    return {**own, "HOME": home, "TMPDIR": home, "PYTHONDONTWRITEBYTECODE": "1", **extra}


def _in_namespaces(
    spec: dict[str, Any], limits: Limits, isolation: Isolation, user: int | None, scratch: Path | None, port: int | None
) -> None:
    flags = _NAMESPACES
    if limits.network is not Network.HOST:
        flags |= syscalls.NEW_NET
    if isolation is Isolation.NAMESPACES:
        flags |= syscalls.NEW_USER
        spec["privileged"] = user is not None
        spec["users"] = [0, user] if user is not None else [os.getuid(), os.getgid()]
    if limits.network is Network.SERVE:
        spec["serve"] = port
    spec["namespaces"] = flags
    spec["drops"] = user is None
    spec["root"] = list(_root(limits, scratch, user))


def _root(limits: Limits, scratch: Path | None, user: int | None) -> Iterator[list[Any]]:
    return root_entries(
        user=os.getuid() if user is None else user,
        group=os.getgid() if user is None else user,
        visible=limits.visible,
        writable=limits.writable,
        hidden=limits.hidden,
        scratch=None if scratch is None else os.path.realpath(scratch),
        scratch_size=limits.scratch or 0,
        shared_memory=min(limits.memory, 64 << 20),
    )


def _user(isolation: Isolation, limits: Limits, scratch: Path | None) -> int | None:
    """Who a child of root is instead: limits on processes do not hold for root, and root owns what it should not.

    The same one for the same directory, so that what a function kept there is still its own after a restart; hardly the
    same one for two, so that none signals another where nothing else keeps them apart.
    """
    if os.geteuid() != 0 or isolation in (Isolation.LIMITS_ONLY, Isolation.BUBBLEWRAP):
        return None
    kept = [str(path) for path in limits.writable] or [str(scratch or os.urandom(8).hex())]
    return _FIRST_USER + zlib.crc32(kept[0].encode()) % _USERS


def _rlimits(limits: Limits, isolation: Isolation, user: int | None, *, numbered: bool) -> dict[str, int]:
    found = {
        "memory": limits.memory,
        "address_space": limits.mapped,
        "file_size": limits.file_size,
        "open_files": limits.open_files,
    }
    if limits.cpu_seconds is not None:
        found["cpu"] = limits.cpu_seconds
    if isolation is not Isolation.LIMITS_ONLY:
        found["locked"] = _LOCKED
    # Where the user is not the child's own, it would count all that this user runs: what is there is added.
    if isolation.has_own_root or user is not None:
        found["processes"] = limits.processes
    elif isolation is Isolation.LANDLOCK and not numbered:
        found["processes"] = limits.processes + _running(os.getuid())
    return found


def _running(user: int) -> int:
    """How many threads this user has at the moment."""
    count = 0
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            count += len(list((process / "task").iterdir())) if process.stat().st_uid == user else 0
    return count


def _layers(limits: Limits, isolation: Isolation, scratch: Path | None, *, counted: bool) -> dict[str, Any]:
    writable = [str(path.absolute()) for path in limits.writable]
    layers: dict[str, Any] = {
        "network": str(limits.network),
        # Files that are only memory are counted by cgroups and by nothing else.
        "memory_files": counted,
        "looks_into": limits.only_loopback,
    }
    if isolation.has_own_root:
        return {**layers, "readable": ["/"], "writable": [SCRATCH, "/dev/shm", *writable], "devices": list(DEVICES)}
    return {
        **layers,
        "alone": True,
        "readable": [*readable_paths(limits.visible, limits.hidden), *PROC],
        "listable": listable_paths(),
        "writable": [str(scratch), *(os.path.realpath(path) for path in writable)],
        "devices": list(DEVICES),
    }


def _bubblewrap(limits: Limits, scratch: Path | None) -> Iterator[str | list[str]]:
    yield from ("bwrap", "--die-with-parent", "--unshare-user", "--unshare-pid", "--unshare-ipc", "--unshare-uts")
    yield from ("--cap-drop", "ALL")
    if limits.network is not Network.HOST:
        yield "--unshare-net"
    for kind, path, argument in _root(limits, scratch, None):
        match kind:
            case "bind":
                yield from ("--ro-bind", argument, path)
            case "writable":
                yield from ("--bind", argument, path)
            case "device":
                yield from ("--dev-bind", argument, path)
            case "link":
                yield from ("--symlink", argument, path)
            case "file":
                yield from ("--ro-bind-data", [argument], path)
            case "proc":
                yield from ("--proc", path)
            case "tmpfs":
                size = next(each for each in argument.split(",") if each.startswith("size="))
                yield from ("--perms", "1777", "--size", size.removeprefix("size="), "--tmpfs", path)
            case "mask":
                yield from ("--tmpfs", path)
    yield from ("--remount-ro", "/", "--chdir", SCRATCH, "--")


def _works(isolation: Isolation) -> bool:
    """Whether a child comes up in it that does not see what it should not."""
    if isolation is Isolation.LIMITS_ONLY:
        return True
    if sys.platform != "linux" or not _promising(isolation):
        return False
    with tempfile.TemporaryDirectory(prefix=scratch_prefix()) as hidden:
        secret = Path(hidden, "secret")
        secret.write_text("hidden")
        script = f"import sys\ntry: open({str(secret)!r})\nexcept OSError: sys.exit(0)\nsys.exit(1)"
        return run_trial([sys.executable, "-I", "-S", "-c", script], isolation) == 0


def _promising(isolation: Isolation) -> bool:
    match isolation:
        case Isolation.BUBBLEWRAP:
            return shutil.which("bwrap") is not None
        case Isolation.ROOT_NAMESPACES:
            return os.geteuid() == 0 and seccomp.available()
        case Isolation.LANDLOCK:
            return landlock.version() > 0 and seccomp.available()
        case _:
            return True


def run_trial(command: Sequence[str], isolation: Isolation) -> int:
    """The exit code of a command in a sandbox with the usual limits; 125 if there is no such sandbox."""
    prepared = prepare(command, Limits(), isolation, environment={})
    nothing = os.open(os.devnull, os.O_RDWR)
    try:
        with spawner.spawn(prepared.spec, [nothing] * 3) as control:
            return prepared.own_code(wait_for(control, _TRIAL_SECONDS))
    except OSError:
        return CANNOT_CONFINE
    finally:
        os.close(nothing)
        prepared.clean_up()
