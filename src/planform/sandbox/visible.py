"""What of this machine a child may see: programs, libraries, certificates, how names are looked up. Nothing else.

Facts of the machine and of the interpreter, gathered once.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

SCRATCH: Final = "/tmp"  # in the child's root, where it is its own
DEVICES: Final = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")
PROC: Final = tuple(
    f"/proc/{name}" for name in ("cpuinfo", "filesystems", "loadavg", "meminfo", "stat", "sys", "uptime", "version")
)
"""Of a /proc that is not the child's own, what tells nothing of others."""

_SYSTEM: Final = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/nix/store", "/gnu/store")
_SETTINGS: Final = (
    "alternatives",
    "ca-certificates",
    "ca-certificates.conf",
    "crypto-policies",
    "gai.conf",
    "host.conf",
    "hosts",
    "ld.so.cache",
    "ld.so.conf",
    "ld.so.conf.d",
    "localtime",
    "mime.types",
    "nsswitch.conf",
    "os-release",
    "pki/ca-trust",
    "pki/tls/cert.pem",
    "pki/tls/certs",
    "pki/tls/openssl.cnf",
    "protocols",
    "resolv.conf",
    "services",
    "ssl/cert.pem",
    "ssl/certs",
    "ssl/openssl.cnf",
    "timezone",
)
"""Below /etc. Of /etc/ssl and /etc/pki not all: keys are there, too."""
_OURS: Final = ("planform", "planform_sdk", "crossplane")
_CERTIFICATE_VARIABLES: Final = ("SSL_CERT_FILE", "SSL_CERT_DIR")


@cache
def system_files() -> tuple[tuple[str, str], ...]:
    """Where each is seen, and where it really is; what lies within another one is left out."""
    wanted: dict[str, str] = {}
    for path in map(Path.absolute, map(Path, [*_SYSTEM, *_interpreter(), *_settings()])):
        if path.exists() and not (path.is_symlink() and str(path) in _SYSTEM):
            wanted[str(path)] = str(path.resolve())
            if path.is_dir():  # symbolic links lead there as well
                wanted[str(path.resolve())] = str(path.resolve())
    return tuple((path, wanted[path]) for path in outermost(wanted))


@cache
def system_links() -> tuple[tuple[str, str], ...]:
    """/bin and its like, where they are links into /usr."""
    return tuple((path, str(Path(path).readlink())) for path in _SYSTEM if Path(path).is_symlink())


def root_entries(
    *,
    user: int,
    group: int,
    visible: Iterable[Path],
    writable: Iterable[Path],
    hidden: Iterable[Path],
    scratch: str | None,
    scratch_size: int,
    shared_memory: int,
) -> Iterator[list[Any]]:
    """The child's root, in the order in which it is made. `scratch` is a directory on disk to be its scratch."""
    seen = system_files()
    for path, source in seen:
        yield ["bind", path, source]
    for path, target in system_links():
        yield ["link", path, target]
    yield ["file", "/etc/passwd", f"function:x:{user}:{group}::{SCRATCH}:/bin/sh\n"]
    yield ["file", "/etc/group", f"function:x:{group}:\n"]
    yield ["proc", "/proc", ""]
    for device in DEVICES:
        yield ["device", device, device]
    for name, target in (("fd", "fd"), ("stdin", "fd/0"), ("stdout", "fd/1"), ("stderr", "fd/2")):
        yield ["link", f"/dev/{name}", f"/proc/self/{target}"]
    yield ["tmpfs", "/dev/shm", f"mode=1777,size={shared_memory},nr_inodes=4k"]
    if scratch is None:
        yield ["tmpfs", SCRATCH, f"mode=1777,size={scratch_size},nr_inodes=16k"]
    else:
        yield ["writable", SCRATCH, scratch]
    for each in hidden:
        if any(_within(str(path), shown) for path in (each, each.resolve()) for shown, _ in seen):
            yield ["mask", str(each.resolve()), ""]
    for each in visible:
        yield ["bind", str(each.absolute()), str(each.resolve())]
    for each in writable:
        yield ["writable", str(each.absolute()), str(each.resolve())]


def readable_paths(visible: Iterable[Path], hidden: Iterable[Path]) -> list[str]:
    """The same for Landlock, which cannot take away what it has given: a hidden directory is gone around."""
    avoided = [str(each.resolve()) for each in hidden]
    found = [source for _, source in system_files()]
    return [each for path in found for each in _around(path, avoided)] + [os.path.realpath(each) for each in visible]


def listable_paths() -> list[str]:
    """Directories whose names Python reads to find our packages in them; only Landlock has to be told."""
    found = (find_spec(name) for name in _OURS)
    return [str(Path(place).parent) for spec in found if spec for place in spec.submodule_search_locations or ()]


def outermost(paths: Iterable[str]) -> list[str]:
    """Without those that lie within others."""
    kept: list[str] = []
    for path in sorted(paths):
        if not any(_within(path, each) for each in kept):
            kept.append(path)
    return kept


def _around(path: str, avoided: list[str]) -> Iterator[str]:
    if path in avoided:
        return
    if not any(_within(each, path) for each in avoided):
        yield path
        return
    for entry in os.scandir(path):
        yield from _around(entry.path, avoided)


def _within(path: str, directory: str) -> bool:
    return path == directory or path.startswith(directory.rstrip("/") + "/")


def _interpreter() -> Iterator[str]:
    """The interpreter and its libraries, and our own packages: not the directories that these happen to lie in."""
    yield from (sys.prefix, sys.exec_prefix, sys.base_prefix, sys.base_exec_prefix)
    yield os.path.realpath(sys.executable)
    for name in _OURS:
        found = find_spec(name)
        yield from found.submodule_search_locations or () if found is not None else ()


def _settings() -> Iterator[str]:
    yield from (f"/etc/{name}" for name in _SETTINGS)
    yield f"/etc/python{sys.version_info.major}.{sys.version_info.minor}"  # where some keep what is read at each start
    for name in _CERTIFICATE_VARIABLES:
        yield from filter(None, os.environ.get(name, "").split(os.pathsep))
