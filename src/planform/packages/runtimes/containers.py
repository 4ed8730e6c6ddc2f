"""Containers through runc, without a daemon and without rights: root inside is the user of the control plane outside.

The image's files lie unpacked in a directory and are mounted read-only. The container shares the network of this
machine, as its server is called over the loopback; one that shall have no network can be called there and opens no
connection. One that runs to completion has none at all.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

import orjson

from planform.api.kinds import Object
from planform.apiserver.auth.private_files import make_private_directory, write_private
from planform.packages.runtimes.container_calls import can_filter_calls, refused_calls
from planform.packages.runtimes.executables import NotRunnable
from planform.packages.runtimes.launching import (
    SERVER_LIMITS,
    Launch,
    Wanted,
    environment_of,
    provider_environment_of,
    why_no_network,
)
from planform.sandbox import Isolation

CERTIFICATES: Final = "/tls/server"
_ACCOUNT: Final = "/account"
_PATH: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_MASKED: Final = ("/proc/acpi", "/proc/kcore", "/proc/keys", "/proc/timer_list", "/proc/sched_debug", "/sys/firmware")
_READ_ONLY: Final = ("/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger")


def find_runc() -> str | None:
    return shutil.which("runc")


def is_filtered() -> bool:
    """Whether containers have a filter of calls here. Waits for a program, the first time."""
    runc = find_runc()
    return runc is not None and can_filter_calls(runc)


def container_launch(wanted: Wanted, *, port: int, certificates: Path, directory: Path, replica: int) -> Launch:
    """A function in a container, serving at this port of the loopback, or a provider; writes its bundle.

    Raises NotRunnable.
    """
    if wanted.kubeconfig is not None:
        flags = wanted.settings.args
        mounts = [bound(wanted.kubeconfig.parent, _ACCOUNT), bound(certificates, CERTIFICATES), *resolving()]
        environment = {
            **environment_of(wanted),
            **provider_environment_of(wanted, f"{_ACCOUNT}/{wanted.kubeconfig.name}", CERTIFICATES),
        }
    else:
        flags = (*wanted.settings.args, f"--address=127.0.0.1:{port}", f"--tls-certs-dir={CERTIFICATES}")
        mounts = [bound(certificates, CERTIFICATES), *resolving()]
        environment = {**environment_of(wanted), "TLS_SERVER_CERTS_DIR": CERTIFICATES}
    bundle = _write_bundle(
        wanted,
        directory / f"bundle-{replica}",
        (*wanted.executable.entrypoint, *flags),
        environment,
        mounts,
        network=True,
    )
    runc = _runc(directory)
    name = f"{wanted.revision}-{replica}"
    # A control plane that was killed leaves its containers behind, and a name can be had only once.
    script = f'{_quoted(*runc, "delete", "--force", name)} >/dev/null 2>&1; exec "$@"'
    return Launch(
        ("/bin/sh", "-c", script, "sh", *runc, "run", "--bundle", str(bundle), name),
        {},
        replace(  # which it inherits
            SERVER_LIMITS,
            memory=wanted.settings.memory or SERVER_LIMITS.memory,
            cpus=wanted.settings.cpus,
            only_loopback=wanted.kubeconfig is not None,
            loopback_ports=((wanted.settings.webhook_port, port),) if wanted.kubeconfig is not None else (),
        ),
        Isolation.LIMITS_ONLY,
        (*runc, "delete", "--force", name),
    )


def leftover_containers(runtimes: Path) -> Iterator[Sequence[str]]:
    """Commands that end the containers which a control plane that was killed has left running.

    Their own process ends with it, but they do not. `runtimes` holds the directories of all revisions.
    """
    runc = find_runc()
    if runc is None:
        return
    for state in sorted(runtimes.glob("*/runc/*")):
        yield *runc_command(runc, state.parents[1]), "delete", "--force", state.name


def oneshot_bundle(wanted: Wanted, directory: Path) -> Path:
    """The bundle of a container that is run once for each call."""
    command = (*wanted.executable.entrypoint, *wanted.settings.args)
    return _write_bundle(wanted, directory / "bundle", command, environment_of(wanted), [], network=False)


def oneshot_commands(directory: Path, bundle: Path, name: str) -> tuple[Sequence[str], Sequence[str]]:
    """What runs it under this name, and what clears away a run that was cut off."""
    runc = _runc(directory)
    return (*runc, "run", "--bundle", str(bundle), name), (*runc, "delete", "--force", name)


def _runc(directory: Path) -> tuple[str, ...]:
    runc = find_runc()
    if runc is None:
        raise NotRunnable("the package is a container image, and runc, which runs those here, is not installed")
    return runc_command(runc, directory)


def runc_command(runc: str, directory: Path) -> tuple[str, ...]:
    """How to call it, with the state of containers kept in the directory."""
    return runc, "--rootless", "true", "--root", str(directory / "runc")


def _write_bundle(
    wanted: Wanted,
    bundle: Path,
    command: Sequence[str],
    environment: Mapping[str, str],
    mounts: Sequence[Object],
    *,
    network: bool,
) -> Path:
    if not wanted.executable.entrypoint:
        raise NotRunnable("the package does not say which program to run: its image has no entrypoint")
    if (cut_off := why_no_network(wanted)) and network and not is_filtered():
        raise NotRunnable(f"the network cannot be taken from it, as this runc was built without seccomp: {cut_off}")
    config = container_config(
        wanted.executable.root,
        command,
        {"HOME": "/tmp", **environment},
        mounts,
        name=wanted.revision,
        directory=wanted.executable.working_directory,
        network=network,
        filtered=is_filtered(),
        # Providers may run plugins of theirs, which they speak to by such sockets.
        unix_sockets=not network or wanted.kubeconfig is not None,
        connects=not cut_off,
    )
    return write_bundle(bundle, config)


def write_bundle(bundle: Path, config: Object) -> Path:
    """A directory from which runc runs a container."""
    make_private_directory(bundle)
    write_private(bundle / "config.json", orjson.dumps(config))
    return bundle


def container_config(
    root: Path,
    command: Sequence[str],
    environment: Mapping[str, str],
    mounts: Sequence[Object] = (),
    *,
    name: str,
    directory: str = "",
    network: bool = False,
    writable: bool = False,
    max_memory: int | None = None,
    unix_sockets: bool = True,
    connects: bool = True,
    filtered: bool = False,
) -> Object:
    """What runc has to know of a container; `writable` lets it change the files of its root.

    `filtered` refuses calls of the kernel, for a runc that can; with `unix_sockets` false those sockets, and with
    `connects` false to open connections.
    """
    limits = [{"type": "RLIMIT_DATA", "hard": max_memory, "soft": max_memory}] if max_memory is not None else []
    return {
        "ociVersion": "1.0.2",
        "process": {
            "terminal": False,
            "user": {"uid": 0, "gid": 0},
            "args": list(command),
            "env": [f"{key}={value}" for key, value in {"PATH": _PATH, **environment}.items()],
            "cwd": directory or "/",
            "noNewPrivileges": True,
            "capabilities": {},
            "rlimits": limits,
        },
        "root": {"path": str(root), "readonly": not writable},
        "hostname": name,
        "mounts": [
            {"destination": "/proc", "type": "proc", "source": "proc"},
            _tmpfs("/dev", "mode=755", "size=64k", options=("nosuid", "strictatime")),
            _tmpfs("/dev/shm", "mode=1777", "size=16m"),
            *(() if writable else (_tmpfs("/tmp", "mode=1777", "size=64m"),)),
            *mounts,
        ],
        "linux": {
            "namespaces": [
                {"type": kind} for kind in ("pid", "ipc", "uts", "mount", "user", *(() if network else ("network",)))
            ],
            "uidMappings": [{"containerID": 0, "hostID": os.getuid(), "size": 1}],
            "gidMappings": [{"containerID": 0, "hostID": os.getgid(), "size": 1}],
            "maskedPaths": list(_MASKED),
            "readonlyPaths": list(_READ_ONLY),
            **({"seccomp": refused_calls(unix_sockets=unix_sockets, connects=connects)} if filtered else {}),
        },
    }


def _tmpfs(where: str, *data: str, options: Sequence[str] = ("nosuid", "nodev", "noexec")) -> Object:
    return {"destination": where, "type": "tmpfs", "source": "tmpfs", "options": [*options, *data]}


def bound(source: Path, where: str, *, writable: bool = False) -> Object:
    """A mount of something of this machine."""
    options = ["rbind", "rw" if writable else "ro", "nosuid", "nodev"]
    return {"destination": where, "type": "bind", "source": str(source), "options": options}


def resolving() -> list[Object]:
    """What it takes to look up names on the network that it shares."""
    files = (Path("/etc/resolv.conf"), Path("/etc/hosts"))
    return [bound(file.resolve(), str(file)) for file in files if file.is_file()]


def _quoted(*words: str) -> str:
    return " ".join("'" + word.replace("'", "'\\''") + "'" for word in words)
