"""Between us and the child: applies limits, cuts it off, and becomes it.

Run as `python -I -S launch.py PARENT_PID [KEY=VALUE...] -- COMMAND...`, so it imports nothing but the standard library
and as little of that as it can: it is on the way of every call. It runs in an interpreter of its own instead of
between fork and exec, where Python code can deadlock once a process has threads.

Exit codes 125 (a limit could not be applied) and 127 (no such command) are its own, with a line on standard error.
"""

import ctypes
import os
import resource
import signal
import sys

CANNOT_CONFINE = 125
CANNOT_EXECUTE = 127

_PR_SET_PDEATHSIG, _PR_CAPBSET_DROP, _PR_SET_NO_NEW_PRIVS = 1, 24, 38
_NEW_NS, _NEW_IPC, _NEW_USER, _NEW_PID, _NEW_NET = 0x00020000, 0x08000000, 0x10000000, 0x20000000, 0x40000000
_MS_BIND, _MS_REC, _MS_PRIVATE = 4096, 16384, 1 << 18
_MS_NOSUID, _MS_NODEV = 2, 4
_SYS_MOUNT_SETATTR = 442
_AT_FDCWD, _AT_RECURSIVE, _MOUNT_ATTR_RDONLY = -100, 0x8000, 1
_LAST_CAPABILITY = 63

_libc = ctypes.CDLL(None, use_errno=True)


class _MountAttributes(ctypes.Structure):
    _fields_ = (
        ("set", ctypes.c_uint64),
        ("clear", ctypes.c_uint64),
        ("propagation", ctypes.c_uint64),
        ("user_namespace", ctypes.c_uint64),
    )


def main(arguments: list[str]) -> None:
    split = arguments.index("--")
    parent, *settings = arguments[:split]
    command = arguments[split + 1 :]
    values: dict[str, list[str]] = {}
    for setting in settings:
        key, _, value = setting.partition("=")
        values.setdefault(key, []).append(value)
    _die_with_parent(int(parent))
    try:
        if "namespaces" in values:
            _cut_off(values)
        _limit(values)
        _check(_libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "no new privileges")
    except OSError as error:
        _stop(CANNOT_CONFINE, f"sandbox: {error}")
    try:
        os.execvp(command[0], command)
    except OSError as error:
        _stop(CANNOT_EXECUTE, f"sandbox: cannot run {command[0]}: {error.strerror}")


def _die_with_parent(parent: int) -> None:
    """Whoever died before the first line is found by the second."""
    if sys.platform == "linux":
        _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if parent and os.getppid() != parent:
        os._exit(1)


def _cut_off(values: dict[str, list[str]]) -> None:
    """Own user, mount, process and network namespaces; everything read-only but what is said to be writable."""
    uid, gid = os.getuid(), os.getgid()
    flags = _NEW_USER | _NEW_NS | _NEW_PID | _NEW_IPC | (0 if "network" in values else _NEW_NET)
    _check(_libc.unshare(flags), "new namespaces")
    _write("/proc/self/setgroups", "deny")
    _write("/proc/self/uid_map", f"{uid} {uid} 1")
    _write("/proc/self/gid_map", f"{gid} {gid} 1")
    _mount(None, "/", None, _MS_REC | _MS_PRIVATE)
    visible = [(path, os.open(path, os.O_PATH)) for path in values.get("visible", ())]
    for path in values.get("hidden", ()):
        _mount("tmpfs", path, "tmpfs", _MS_NOSUID | _MS_NODEV, "size=4k,mode=0555")
    for path, held in visible:  # what was hidden above them a moment ago is reached by what was opened before
        os.makedirs(path, exist_ok=True)  # noqa: PTH103
        _mount(f"/proc/self/fd/{held}", path, None, _MS_BIND | _MS_REC)
        os.close(held)
    for path in values.get("writable", ()):
        _mount(path, path, None, _MS_BIND | _MS_REC)
    _set_read_only("/", recursive=True)
    for path in values.get("writable", ()):
        _set_read_only(path, off=True)
    os.chdir(os.getcwd())  # noqa: PTH109  # where we were is below the mounts just made; pathlib takes long to import
    _go_on_inside()
    # Root of a user namespace gets its capabilities back on exec, and could undo all this, unless none are left.
    for capability in range(_LAST_CAPABILITY + 1):
        _libc.prctl(_PR_CAPBSET_DROP, capability, 0, 0, 0)


def _go_on_inside() -> None:
    """Return as the second process of the new process namespace. The first one and we wait, and end as it ends.

    The first process of a namespace takes no signal that it does not handle, and with it ends everything in there: a
    program should not be it. Neither of the two that wait does anything with signals, as those go to the whole group.
    """
    reading, writing = os.pipe()
    first = os.fork()
    if first:
        os.close(writing)
        _wait_aside()
        status = os.read(reading, 4)
        os.waitpid(first, 0)
        _end_as(int.from_bytes(status, "little") if status else signal.SIGKILL)
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    os.close(reading)
    command = os.fork()
    if command:
        _wait_aside()
        while True:
            ended, status_of = os.wait()  # orphans too, which are the first process's to bury
            if ended == command:
                os.write(writing, status_of.to_bytes(4, "little"))
                os._exit(0)
    os.close(writing)


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


def _limit(values: dict[str, list[str]]) -> None:
    def bound(what: int, value: int, *, slack: int = 0) -> None:
        _, hard = resource.getrlimit(what)
        top = value + slack if hard == resource.RLIM_INFINITY else min(value + slack, hard)
        resource.setrlimit(what, (min(value, top), top))

    bound(resource.RLIMIT_CORE, 0)
    # What is reserved but not used is no harm, so the data segment counts; elsewhere only the address space can be had.
    memory = resource.RLIMIT_DATA if sys.platform == "linux" else resource.RLIMIT_AS
    for what, key, slack in (
        (memory, "memory", 0),
        (resource.RLIMIT_CPU, "cpu", 1),  # first a signal that has a name, then the end
        (resource.RLIMIT_FSIZE, "file_size", 0),
        (resource.RLIMIT_NOFILE, "open_files", 0),
        (resource.RLIMIT_NPROC, "processes", 0),
    ):
        if key in values:
            bound(what, int(values[key][0]), slack=slack)


def _mount(source: str | None, target: str, kind: str | None, flags: int, data: str | None = None) -> None:
    def text(value: str | None) -> bytes | None:
        return None if value is None else os.fsencode(value)

    result = _libc.mount(text(source), text(target), text(kind), ctypes.c_ulong(flags), text(data))
    _check(result, f"mount {target}")


def _set_read_only(path: str, *, recursive: bool = False, off: bool = False) -> None:
    wanted = _MountAttributes(0 if off else _MOUNT_ATTR_RDONLY, _MOUNT_ATTR_RDONLY if off else 0, 0, 0)
    result = _libc.syscall(
        ctypes.c_long(_SYS_MOUNT_SETATTR),
        ctypes.c_int(_AT_FDCWD),
        ctypes.c_char_p(os.fsencode(path)),
        ctypes.c_uint(_AT_RECURSIVE if recursive else 0),
        ctypes.byref(wanted),
        ctypes.c_size_t(ctypes.sizeof(wanted)),
    )
    _check(result, f"make {path} {'writable' if off else 'read-only'}")


def _write(path: str, text: str) -> None:
    descriptor = os.open(path, os.O_WRONLY)
    os.write(descriptor, text.encode())
    os.close(descriptor)


def _check(result: int, what: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


def _stop(code: int, message: str) -> None:
    os.write(2, f"{message}\n".encode())
    os._exit(code)


if __name__ == "__main__":
    main(sys.argv[1:])
