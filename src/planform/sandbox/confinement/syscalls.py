"""Calls of the kernel that Python has no name for. All raise OSError that says what was tried."""

from __future__ import annotations

import ctypes
import os
import signal
import sys

NEW_NS, NEW_UTS, NEW_IPC = 0x00020000, 0x04000000, 0x08000000
NEW_USER, NEW_PID, NEW_NET = 0x10000000, 0x20000000, 0x40000000
MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_BIND, MS_REC, MS_PRIVATE = 2, 4, 8, 4096, 16384, 1 << 18
MNT_DETACH = 2
ATTR_RDONLY, ATTR_NOSUID = 1, 2
PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_SET_KEEPCAPS, PR_CAPBSET_DROP = 1, 4, 8, 24
PR_SET_CHILD_SUBREAPER, PR_SET_NO_NEW_PRIVS, PR_CAP_AMBIENT = 36, 38, 47
CAP_DAC_READ_SEARCH = 2

_AT_FDCWD, _AT_RECURSIVE = -100, 0x8000
_LAST_CAPABILITY = 63
_CAPABILITY_VERSION = 0x20080522
_MACHINES = {"x86_64": (56, 155), "aarch64": (220, 41)}
_CLONE, _PIVOT_ROOT = _MACHINES.get(os.uname().machine, (0, 0))
_MOUNT_SETATTR = 442

libc = ctypes.CDLL(None, use_errno=True)


class _MountAttributes(ctypes.Structure):
    _fields_ = (
        ("set", ctypes.c_uint64),
        ("clear", ctypes.c_uint64),
        ("propagation", ctypes.c_uint64),
        ("user_namespace", ctypes.c_uint64),
    )


def check(result: int, what: str) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
    return result


def syscall(number: int, what: str, *arguments: object) -> int:
    return check(int(libc.syscall(ctypes.c_long(number), *arguments)), what)


def prctl(option: int, value: int, what: str, third: int = 0) -> None:
    check(libc.prctl(option, ctypes.c_ulong(value), ctypes.c_ulong(third), 0, 0), what)


def clone(flags: int) -> int:
    """`fork` into new namespaces. Only for a process with one thread, whose child finds its memory as it was."""
    if not flags:
        return os.fork()
    if not _CLONE:
        raise OSError(f"new namespaces: not known how on {os.uname().machine}")
    zero = ctypes.c_long(0)
    return syscall(_CLONE, "new namespaces", ctypes.c_long(flags | signal.SIGCHLD), zero, zero, zero, zero)


def mount(source: str | None, target: str, kind: str | None, flags: int, data: str | None = None) -> None:
    def text(value: str | None) -> bytes | None:
        return None if value is None else os.fsencode(value)

    result = libc.mount(text(source), text(target), text(kind), ctypes.c_ulong(flags), text(data))
    check(result, f"mount {target}")


def unmount(target: str) -> None:
    check(libc.umount2(os.fsencode(target), MNT_DETACH), f"unmount {target}")


def pivot_root(new: str, old: str) -> None:
    syscall(_PIVOT_ROOT, f"make {new} the root", os.fsencode(new), os.fsencode(old))


def set_mount(path: str, *, on: int = 0, off: int = 0, recursive: bool = False) -> None:
    """Attributes of the mount at this path, and of those below it."""
    wanted = _MountAttributes(on, off, 0, 0)
    syscall(
        _MOUNT_SETATTR,
        f"change how {path} is mounted",
        ctypes.c_int(_AT_FDCWD),
        ctypes.c_char_p(os.fsencode(path)),
        ctypes.c_uint(_AT_RECURSIVE if recursive else 0),
        ctypes.byref(wanted),
        ctypes.c_size_t(ctypes.sizeof(wanted)),
    )


def die_with_parent() -> None:
    """Forgotten by the kernel at each change of identity, so it comes after the last one."""
    if sys.platform == "linux":
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL, "die with the spawner")


def drop_bounding_capabilities(keep: frozenset[int] = frozenset()) -> None:
    for capability in range(_LAST_CAPABILITY + 1):
        if capability not in keep:
            libc.prctl(PR_CAPBSET_DROP, capability, 0, 0, 0)


def set_capabilities(wanted: frozenset[int]) -> None:
    """Hold exactly these, and hand them to what is executed."""
    bits = sum(1 << capability for capability in wanted)
    header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION, 0)
    low, high = bits & 0xFFFFFFFF, bits >> 32
    data = (ctypes.c_uint32 * 6)(low, low, low, high, high, high)  # effective, permitted, inheritable; twice
    check(libc.capset(header, data), "drop capabilities")
    for capability in wanted:
        prctl(PR_CAP_AMBIENT, 2, "keep a capability", capability)
