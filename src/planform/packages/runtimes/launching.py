"""How a revision's program is started: its command line, environment and limits, as a process or in a container.

What functions rely on is the same either way: `--address` and `--tls-certs-dir`, the variables FUNCTION_NAME,
REVISION_NAME, REVISION_UID and TLS_SERVER_CERTS_DIR, and SIGTERM as a request to end.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from planform.api.names import SYSTEM_NAMESPACE
from planform.functions.values import FunctionResponse, Result, Severity
from planform.packages.runtimes.executables import NETWORK_ANNOTATION, Executable, RuntimeSettings
from planform.sandbox import Isolation, Limits, Network
from planform.sandbox.isolation import limits_that_hold, policy, runs_unconfined

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
    port: int | None = None
    """Where it listens."""
    listening: int | None = None
    """The socket by which it is reached if it has no network; ours, and open as long as it may be started."""


def process_launch(
    wanted: Wanted, *, port: int, certificates: Path, cache: Path, hidden: Path, listening: int | None = None
) -> Launch:
    """A function as a process in the sandbox, serving at this port of the loopback. Raises NotRunnable.

    `cache` is the revision's own, where Python keeps what it compiled: after a crash it is back much sooner. With a
    `listening` socket it has no network, and is reached by that.
    """
    network = Network.HOST if network_of(wanted) is Network.HOST else Network.SERVE
    flags = (*wanted.settings.args, f"--address=127.0.0.1:{port}", f"--tls-certs-dir={certificates}")
    return Launch(
        (*wanted.executable.command(), *flags),
        {
            **environment_of(wanted),
            "TLS_SERVER_CERTS_DIR": str(certificates),
            "PYTHONPYCACHEPREFIX": str(cache),
            "PYTHONDONTWRITEBYTECODE": "",
        },
        replace(limits_of(wanted, hidden, certificates), writable=(cache,), network=network),
        port=port,
        listening=listening,
    )


def provider_launch(wanted: Wanted, *, port: int, certificates: Path, hidden: Path) -> Launch:
    """A provider as a process in the sandbox, whose webhooks are at this port of the loopback. Raises NotRunnable.

    Many start a server for webhooks, which ends them if it finds no certificate, and one for metrics, both at ports
    that are the same for all of them.
    """
    assert wanted.kubeconfig is not None
    return Launch(
        (*wanted.executable.command(), *wanted.settings.args),
        {**environment_of(wanted), **provider_environment_of(wanted, str(wanted.kubeconfig), str(certificates))},
        replace(
            limits_of(wanted, hidden, wanted.kubeconfig.parent, certificates),
            only_loopback=True,
            loopback_ports=((wanted.settings.webhook_port, port),),
        ),
    )


def provider_environment_of(wanted: Wanted, kubeconfig: str, certificates: str) -> dict[str, str]:
    """What providers rely on."""
    return {
        "KUBECONFIG": kubeconfig,
        "POD_NAMESPACE": SYSTEM_NAMESPACE,
        "PROVIDER_NAME": wanted.package,
        "TLS_SERVER_CERTS_DIR": certificates,
        "WEBHOOK_TLS_CERT_DIR": certificates,
    }


def environment_of(wanted: Wanted) -> dict[str, str]:
    """The environment of a function; what its users set comes last but for what says who it is."""
    return {
        **wanted.executable.variables(),
        **dict(wanted.settings.environment),
        "FUNCTION_NAME": wanted.package,
        "REVISION_NAME": wanted.revision,
        "REVISION_UID": wanted.uid,
    }


def network_of(wanted: Wanted) -> Network:
    """What of the network the function has: as its runtime configuration says, else as the control plane was told."""
    return Network(wanted.settings.network) if wanted.settings.network else policy.function_network


def why_no_network(wanted: Wanted) -> str:
    """Who decided that it has none; empty if it has."""
    return "" if wanted.kubeconfig is not None else why_cut_off(wanted.settings.network)


def why_cut_off(configured: str) -> str:
    """The same of what its runtime configuration says, which is empty where it says nothing."""
    if configured == "none":
        return f"its runtime configuration has the annotation {NETWORK_ANNOTATION}: none"
    if configured:
        return ""
    return "" if policy.function_network is Network.HOST else "the control plane runs with --function-network=none"


def without_network(response: FunctionResponse, why: str) -> FunctionResponse:
    """A fatal result of a function without network says that it has none, and `why`, as that may be its cause."""
    if response.fatal is not None and why:
        response.results.append(Result(Severity.WARNING, f"the function runs without network: {why}"))
    return response


def remark_of(wanted: Wanted) -> str:
    """What users should know of how it runs though nothing is wrong."""
    parts = [wanted.settings.remark(shares_cpu=limits_that_hold()["cpu"] != "nothing")]
    if not wanted.executable.way.is_container and runs_unconfined():
        parts.append("it runs unconfined and sees the files of this machine")
    return "; ".join(filter(None, parts))


def limits_of(wanted: Wanted, hidden: Path, *visible: Path, limits: Limits = SERVER_LIMITS) -> Limits:
    """The limits of a program that sees, of the control plane's data, its own files and nothing else."""
    return replace(
        limits,
        memory=wanted.settings.memory or limits.memory,
        cpus=wanted.settings.cpus,
        hidden=(hidden,),
        visible=(wanted.executable.root, *visible),
    )
