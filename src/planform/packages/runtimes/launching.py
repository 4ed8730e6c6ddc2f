"""How a revision's program is started: its command line, surroundings and limits, as a process or in a container.

What functions rely on is the same either way: `--address` and `--tls-certs-dir`, the variables FUNCTION_NAME,
REVISION_NAME, REVISION_UID and TLS_SERVER_CERTS_DIR, and SIGTERM as a request to end.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from planform.api.names import SYSTEM_NAMESPACE
from planform.packages.runtimes.executables import Executable, RuntimeSettings
from planform.sandbox import Isolation, Limits, Network

WEBHOOK_PORT: Final = 9443
"""Where providers serve webhooks, and functions their calls, in a pod of their own."""
SERVER_LIMITS: Final = Limits(memory=2 << 30, open_files=1024, processes=256, network=Network.HOST).for_server()
"""Functions may reach the network, as they do elsewhere; calls come in over it as well."""
CLEAN_UP_LIMITS: Final = Limits(seconds=10.0)
"""Of a command that clears away what a process may have left behind."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """A revision that shall run, and how. `digest` identifies its content."""

    package: str
    revision: str
    uid: str
    executable: Executable
    settings: RuntimeSettings = field(default_factory=RuntimeSettings)
    digest: str = ""
    kubeconfig: Path | None = None
    """Of a provider, which calls the control plane and is not called: who it is there."""


@dataclass(frozen=True, slots=True)
class Launch:
    """Everything it takes to start one process. `clean_up` is a command for what it may leave behind."""

    command: tuple[str, ...]
    environment: Mapping[str, str]
    limits: Limits
    isolation: Isolation | None = None
    clean_up: tuple[str, ...] = ()


def process_launch(wanted: Wanted, *, port: int, certificates: Path, cache: Path, hidden: Path) -> Launch:
    """A function as a process in the sandbox, serving at this port of the loopback. Raises NotRunnable.

    `cache` is the revision's own, where Python keeps what it compiled: after a crash it is back much sooner.
    """
    flags = (*wanted.settings.args, f"--address=127.0.0.1:{port}", f"--tls-certs-dir={certificates}")
    return Launch(
        (*wanted.executable.command(), *flags),
        {
            **surroundings(wanted),
            "TLS_SERVER_CERTS_DIR": str(certificates),
            "PYTHONPYCACHEPREFIX": str(cache),
            "PYTHONDONTWRITEBYTECODE": "",
        },
        replace(limits_of(wanted, hidden, certificates, cache), writable=(cache,)),
    )


def provider_launch(wanted: Wanted, *, port: int, certificates: Path, hidden: Path) -> Launch:
    """A provider as a process in the sandbox, whose webhooks are at this port of the loopback. Raises NotRunnable.

    Many start a server for webhooks, which ends them if it finds no certificate, and one for metrics, both at ports
    that are the same for all of them.
    """
    assert wanted.kubeconfig is not None
    return Launch(
        (*wanted.executable.command(), *wanted.settings.args),
        {**surroundings(wanted), **provider_surroundings(wanted, str(wanted.kubeconfig), str(certificates))},
        replace(
            limits_of(wanted, hidden, wanted.kubeconfig.parent, certificates),
            only_loopback=True,
            loopback_ports=((WEBHOOK_PORT, port),),
        ),
    )


def provider_surroundings(wanted: Wanted, kubeconfig: str, certificates: str) -> dict[str, str]:
    """What providers rely on."""
    return {
        "KUBECONFIG": kubeconfig,
        "POD_NAMESPACE": SYSTEM_NAMESPACE,
        "PROVIDER_NAME": wanted.package,
        "TLS_SERVER_CERTS_DIR": certificates,
        "WEBHOOK_TLS_CERT_DIR": certificates,
    }


def surroundings(wanted: Wanted) -> dict[str, str]:
    """The environment of a function; what its users set comes last but for what says who it is."""
    return {
        **wanted.executable.variables(),
        **dict(wanted.settings.environment),
        "FUNCTION_NAME": wanted.package,
        "REVISION_NAME": wanted.revision,
        "REVISION_UID": wanted.uid,
    }


def limits_of(wanted: Wanted, hidden: Path, *visible: Path, limits: Limits = SERVER_LIMITS) -> Limits:
    """The limits of a program that sees, of the control plane's data, its own files and nothing else."""
    return replace(
        limits,
        memory=wanted.settings.memory or limits.memory,
        hidden=(hidden,),
        visible=(wanted.executable.root, *visible),
    )
