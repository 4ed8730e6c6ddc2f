"""A root directory made of what a child may see, and nothing else.

It is a tmpfs. What is on the list is bound into it, read-only; all else of the machine does not exist in it. What is
made here lives in a mount namespace of the child's own and goes with it.
"""

from __future__ import annotations

import os
from typing import Any

from .syscalls import (
    ATTR_NOSUID,
    ATTR_RDONLY,
    MS_BIND,
    MS_NODEV,
    MS_NOEXEC,
    MS_NOSUID,
    MS_PRIVATE,
    MS_REC,
    mount,
    pivot_root,
    set_mount,
    unmount,
)

_OLD = "/.old"


def build_root(entries: list[list[Any]]) -> None:
    """Make it, and make it ours. Entries are `[kind, path, argument]`, in the order in which they are to be made.

    Sources are paths without symbolic links: an absolute link would be followed in the new root and not in the old one.
    """
    mount(None, "/", None, MS_REC | MS_PRIVATE)  # nothing of what follows is seen outside
    base = "/tmp"  # any directory that is there; it is covered, not written to
    mount("tmpfs", base, "tmpfs", MS_NOSUID | MS_NODEV, "mode=0755,size=1m,nr_inodes=8k")
    os.mkdir(base + _OLD)  # noqa: PTH102  # pathlib takes long to import
    pivot_root(base, base + _OLD)
    os.chdir("/")
    os.umask(0o022)
    for kind, path, argument in entries:
        _make(kind, path, argument)
    # Only now: the kernel gives a new /proc to those who see a whole one, and sources were below the old root.
    unmount(_OLD)
    os.rmdir(_OLD)  # noqa: PTH106
    set_mount("/", on=ATTR_RDONLY | ATTR_NOSUID, recursive=True)
    for kind, path, _ in entries:
        if kind in ("writable", "tmpfs"):
            set_mount(path, off=ATTR_RDONLY)


def _make(kind: str, path: str, argument: str) -> None:
    match kind:
        case "bind" | "writable":
            _bind(argument, path)
        case "device":
            _bind(argument, path)
        case "link":
            _parents(path)
            os.symlink(argument, path)  # noqa: PTH211
        case "file":
            _parents(path)
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
            os.write(descriptor, argument.encode())
            os.close(descriptor)
        case "tmpfs":
            os.makedirs(path, exist_ok=True)  # noqa: PTH103
            mount("tmpfs", path, "tmpfs", MS_NOSUID | MS_NODEV, argument)
        case "mask":
            os.makedirs(path, exist_ok=True)  # noqa: PTH103
            mount("tmpfs", path, "tmpfs", MS_NOSUID | MS_NODEV, "mode=0755,size=64k,nr_inodes=1k")
        case "proc":
            os.makedirs(path, exist_ok=True)  # noqa: PTH103
            mount("proc", path, "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC)
        case _:
            raise OSError(f"no such entry of a root: {kind}")


def _bind(source: str, path: str) -> None:
    old = _OLD + source
    if os.path.isdir(old):  # noqa: PTH112
        os.makedirs(path, exist_ok=True)  # noqa: PTH103
    else:
        _parents(path)
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT, 0o644))
    mount(old, path, None, MS_BIND | MS_REC)


def _parents(path: str) -> None:
    os.makedirs(os.path.dirname(path), exist_ok=True)  # noqa: PTH103, PTH120
