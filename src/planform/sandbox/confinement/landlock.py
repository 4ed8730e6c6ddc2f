"""Files, signals and sockets by Landlock: as the only layer where there are no namespaces, else as the second one."""

from __future__ import annotations

import ctypes
import os

from .syscalls import libc, syscall

EXECUTE, WRITE_FILE, READ_FILE, READ_DIR, TRUNCATE = 1, 2, 4, 8, 1 << 14
_REFER = 1 << 13
_VERSION_FLAG = 1
_ADD_RULE, _RESTRICT_SELF, _CREATE_RULESET = 445, 446, 444
_PATH_BENEATH = 1
_SCOPES = 1 | 2  # abstract unix sockets, signals
READ = EXECUTE | READ_FILE | READ_DIR
ALL = (1 << 13) - 1
"""Of the first version: reading, executing, writing, and making and removing entries of every kind."""
_OF_FILES = EXECUTE | WRITE_FILE | READ_FILE | TRUNCATE


class _Ruleset(ctypes.Structure):
    _fields_ = (("files", ctypes.c_uint64), ("network", ctypes.c_uint64), ("scoped", ctypes.c_uint64))


class _Beneath(ctypes.Structure):
    _pack_ = 1
    _fields_ = (("allowed", ctypes.c_uint64), ("parent", ctypes.c_int32))


def version() -> int:
    """Of the kernel's Landlock; 0 if there is none."""
    found = int(libc.syscall(ctypes.c_long(_CREATE_RULESET), None, ctypes.c_size_t(0), ctypes.c_uint(_VERSION_FLAG)))
    return max(found, 0)


def scopes_sockets() -> bool:
    """Whether the kernel can keep a child from the abstract sockets, and from the signals, of others."""
    return version() >= 6


def restrict(readable: list[str], writable: list[str], devices: list[str], listable: list[str]) -> None:
    """From now on, this process and what it becomes have these files and no others, and signal only each other.

    Takes `no_new_privs`. Paths that are not there are left out.
    """
    known = version()
    handled = ALL | (_REFER if known >= 2 else 0) | (TRUNCATE if known >= 3 else 0)
    # An older kernel does not know the later fields, and refuses a longer structure unless they are zero.
    wanted = _Ruleset(handled, 0, _SCOPES if known >= 6 else 0)
    rules = syscall(
        _CREATE_RULESET,
        "a Landlock ruleset",
        ctypes.byref(wanted),
        ctypes.c_size_t(ctypes.sizeof(wanted)),
        ctypes.c_uint(0),
    )
    kinds = (readable, READ), (writable, handled), (devices, READ_FILE | WRITE_FILE), (listable, READ_DIR)
    for paths, rights in kinds:
        for path in paths:
            _allow(rules, path, rights & handled)
    syscall(_RESTRICT_SELF, "restrict by Landlock", ctypes.c_int(rules), ctypes.c_uint(0))
    os.close(rules)


def _allow(rules: int, path: str, rights: int) -> None:
    try:
        held = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return
    if not os.path.isdir(path):  # noqa: PTH112
        rights &= _OF_FILES
    rule = _Beneath(rights, held)
    arguments = ctypes.c_int(rules), ctypes.c_int(_PATH_BENEATH), ctypes.byref(rule), ctypes.c_uint(0)
    syscall(_ADD_RULE, f"allow {path}", *arguments)
    os.close(held)
