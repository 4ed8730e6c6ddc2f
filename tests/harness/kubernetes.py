"""A real Kubernetes API on loopback: etcd, kube-apiserver and kube-controller-manager, without nodes.

Contract tests run against it and against the embedded engine, so that the two stay alike. Pods can be created but never
run. All state lives in one directory: calling `real_kubernetes` again with the same directory brings the same cluster
back, with the same certificates and tokens, on other ports.

The garbage collector looks for new kinds every 30 seconds only, as in any cluster: dependents of a kind whose CRD was
created just now are collected that much later.
"""

from __future__ import annotations

import base64
import json
import ssl
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.harness.pki import write_pki
from tests.harness.processes import Child, free_ports, running
from tests.harness.programs import programs

START_LIMIT_SECONDS = 60
START_ATTEMPTS = 5
POLL_SECONDS = 0.05

ADMIN = "admin"
ADMIN_TOKEN = "admin-token-for-tests"
USER = "user"
USER_TOKEN = "user-token-for-tests"
ISSUER = "https://kubernetes.default.svc"


class NotReady(Exception):
    """A part of the cluster ended or did not become ready in time; the message ends with the tail of its log."""


class PortTaken(NotReady):
    """A part of the cluster lost the race for its port."""


@dataclass(frozen=True)
class RealKubernetes:
    """A running cluster. The admin may do everything; the user exists, is authenticated, and may do nothing yet."""

    url: str
    ca_file: Path
    token: str
    kubeconfig: Path
    user_name: str
    user_token: str
    user_kubeconfig: Path
    directory: Path
    programs: Path
    children: tuple[Child, ...]

    def kubectl(self, *arguments: str, stdin: str | None = None, check: bool = True) -> str:
        """Run the real kubectl as the admin and give what it printed; raise CalledProcessError if it fails."""
        command = [str(self.programs / "kubectl"), "--kubeconfig", str(self.kubeconfig), *arguments]
        done = subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=120, check=False)
        if check and done.returncode != 0:
            error = subprocess.CalledProcessError(done.returncode, command, done.stdout, done.stderr)
            error.add_note(done.stderr)
            raise error
        return done.stdout

    def request(self, path: str, *, token: str | None = None) -> bytes:
        """GET a path of the API as the admin, or as the owner of another token; raise HTTPError as urllib does."""
        return _get(self.url + path, ca_file=self.ca_file, token=token or self.token)


@pytest.fixture(scope="session")
def kubernetes_engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealKubernetes]:
    """One real cluster for all tests of a session; import it in a conftest to use it."""
    with real_kubernetes(tmp_path_factory.mktemp("kubernetes")) as cluster:
        yield cluster


@contextmanager
def real_kubernetes(
    directory: Path, *, controller_manager: bool = True, unsafe_no_fsync: bool = False, api_flags: Sequence[str] = ()
) -> Iterator[RealKubernetes]:
    """Run a cluster for the length of the block.

    Raises ProgramMissing (a skip) if a program cannot be had, NotReady if the cluster does not start. Without the
    controller manager nothing collects garbage, empties namespaces or creates ServiceAccounts. `api_flags` are added to
    kube-apiserver's.
    """
    wanted = ["etcd", "kube-apiserver", "kubectl"] + ["kube-controller-manager"] * controller_manager
    found = programs(*wanted)
    directory.mkdir(parents=True, exist_ok=True)
    _write_fixed_files(directory)
    for attempt in range(1, START_ATTEMPTS + 1):
        with ExitStack() as stack:
            try:
                cluster = _start(stack, found, directory, controller_manager, unsafe_no_fsync, api_flags)
            except PortTaken:
                if attempt == START_ATTEMPTS:
                    raise
                continue
            yield cluster
            return


def _start(
    stack: ExitStack,
    found: Path,
    directory: Path,
    controller_manager: bool,
    unsafe_no_fsync: bool,
    api_flags: Sequence[str],
) -> RealKubernetes:
    """Start the parts in order, each once the one below it is ready; the stack stops them in reverse."""
    etcd_port, api_port, manager_port = free_ports(3)
    deadline = time.monotonic() + START_LIMIT_SECONDS
    children: list[Child] = []

    def start(name: str, flags: Sequence[str]) -> None:
        command = [str(found / name), *flags]
        children.append(stack.enter_context(running(command, directory / f"{name}.log", name=name)))

    ca_file = directory / "pki" / "ca.crt"
    url = f"https://127.0.0.1:{api_port}"

    def answers(address: str) -> bool:
        try:
            _get(address, ca_file=ca_file, token=ADMIN_TOKEN)
        except (OSError, urllib.error.HTTPError):
            return False
        return True

    start("etcd", _etcd_flags(directory, etcd_port, unsafe_no_fsync))
    _wait_until(lambda: answers(f"http://127.0.0.1:{etcd_port}/readyz"), children, deadline)
    start("kube-apiserver", [*_apiserver_flags(directory, api_port, etcd_port, controller_manager), *api_flags])
    _wait_until(lambda: answers(f"{url}/readyz"), children, deadline)
    kubeconfig = _write_kubeconfig(directory / "admin.kubeconfig", url, ca_file, ADMIN, ADMIN_TOKEN)
    user_kubeconfig = _write_kubeconfig(directory / "user.kubeconfig", url, ca_file, USER, USER_TOKEN)
    _wait_until(lambda: answers(f"{url}/api/v1/namespaces/default"), children, deadline)
    if controller_manager:
        start("kube-controller-manager", _controller_manager_flags(directory, manager_port, kubeconfig))
        _wait_until(lambda: answers(f"https://127.0.0.1:{manager_port}/healthz"), children, deadline)
        # Until it exists no pod is admitted; and it shows that the controllers run and not only listen.
        _wait_until(lambda: answers(f"{url}/api/v1/namespaces/default/serviceaccounts/default"), children, deadline)
    return RealKubernetes(
        url=url,
        ca_file=ca_file,
        token=ADMIN_TOKEN,
        kubeconfig=kubeconfig,
        user_name=USER,
        user_token=USER_TOKEN,
        user_kubeconfig=user_kubeconfig,
        directory=directory,
        programs=found,
        children=tuple(children),
    )


def _wait_until(is_ready: Callable[[], bool], children: Sequence[Child], deadline: float) -> None:
    """Wait for the youngest child to be ready while all of them live."""
    while True:
        ready = is_ready()
        for child in children:  # looked at after the question: a stranger on the port may have answered it
            if child.has_ended():
                taken = "address already in use" in child.output()
                failure = PortTaken if taken else NotReady
                raise failure(f"{child.name} ended with {child.process.returncode}:\n{child.output_tail()}")
        if ready:
            return
        if time.monotonic() > deadline:
            child = children[-1]
            raise NotReady(f"{child.name} is not ready after {START_LIMIT_SECONDS} s:\n{child.output_tail()}")
        time.sleep(POLL_SECONDS)


def _get(address: str, *, ca_file: Path, token: str) -> bytes:
    context = ssl.create_default_context(cafile=ca_file) if address.startswith("https:") else None
    opener = urllib.request.build_opener(
        urllib.request.ProxyHandler({}),  # loopback is never behind a proxy, whatever the environment says
        *([urllib.request.HTTPSHandler(context=context)] if context else []),
    )
    request = urllib.request.Request(address, headers={"Authorization": f"Bearer {token}"})
    with opener.open(request, timeout=10) as response:
        content: bytes = response.read()
    return content


def _write_fixed_files(directory: Path) -> None:
    """Write what stays the same over restarts: keys, certificates and tokens."""
    write_pki(directory / "pki")
    tokens = f'{ADMIN_TOKEN},{ADMIN},{ADMIN},"system:masters"\n{USER_TOKEN},{USER},{USER}\n'
    (directory / "tokens.csv").write_text(tokens)


def _write_kubeconfig(path: Path, url: str, ca_file: Path, user: str, token: str) -> Path:
    authority = base64.b64encode(ca_file.read_bytes()).decode()
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "real", "cluster": {"server": url, "certificate-authority-data": authority}}],
        "users": [{"name": user, "user": {"token": token}}],
        "contexts": [{"name": "real", "context": {"cluster": "real", "user": user}}],
        "current-context": "real",
    }
    path.write_text(json.dumps(config, indent=2))  # JSON is YAML
    path.chmod(0o600)
    return path


def _etcd_flags(directory: Path, port: int, unsafe_no_fsync: bool) -> list[str]:
    client = f"http://127.0.0.1:{port}"
    return [
        f"--data-dir={directory / 'etcd'}",
        f"--listen-client-urls={client}",
        f"--advertise-client-urls={client}",
        "--listen-peer-urls=http://127.0.0.1:0",  # a single member has no peers
        "--log-level=warn",
        *(["--unsafe-no-fsync"] if unsafe_no_fsync else []),
    ]


def _apiserver_flags(directory: Path, port: int, etcd_port: int, controller_manager: bool) -> list[str]:
    pki = directory / "pki"
    return [
        f"--etcd-servers=http://127.0.0.1:{etcd_port}",
        "--bind-address=127.0.0.1",
        "--advertise-address=127.0.0.1",
        f"--secure-port={port}",
        "--endpoint-reconciler-type=none",  # a loopback address is not a valid endpoint
        f"--cert-dir={directory / 'apiserver'}",
        f"--tls-cert-file={pki / 'server.crt'}",
        f"--tls-private-key-file={pki / 'server.key'}",
        f"--client-ca-file={pki / 'ca.crt'}",
        f"--token-auth-file={directory / 'tokens.csv'}",
        "--authorization-mode=RBAC",
        f"--service-account-issuer={ISSUER}",
        f"--service-account-key-file={pki / 'service-accounts.pub'}",
        f"--service-account-signing-key-file={pki / 'service-accounts.key'}",
        "--service-cluster-ip-range=10.0.0.0/24",
        "--allow-privileged=true",
        "--profiling=false",
        # Nobody would create the ServiceAccount that this plugin wants every pod to have.
        *([] if controller_manager else ["--disable-admission-plugins=ServiceAccount"]),
    ]


def _controller_manager_flags(directory: Path, port: int, kubeconfig: Path) -> list[str]:
    pki = directory / "pki"
    return [
        f"--kubeconfig={kubeconfig}",
        f"--authentication-kubeconfig={kubeconfig}",
        f"--authorization-kubeconfig={kubeconfig}",
        "--bind-address=127.0.0.1",
        f"--secure-port={port}",
        f"--tls-cert-file={pki / 'server.crt'}",
        f"--tls-private-key-file={pki / 'server.key'}",
        "--leader-elect=false",
        f"--root-ca-file={pki / 'ca.crt'}",
        f"--service-account-private-key-file={pki / 'service-accounts.key'}",
        f"--cluster-signing-cert-file={pki / 'ca.crt'}",
        f"--cluster-signing-key-file={pki / 'ca.key'}",
        "--kube-api-qps=200",
        "--kube-api-burst=400",
    ]
