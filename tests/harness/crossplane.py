"""A stock Crossplane on a real API server: its own binary, with functions of others as processes and no pods.

Everything is Crossplane's own but for one thing: nobody runs pods here, so its package manager is told that another
program runs the packages (`--package-runtime=External`, which it has for that), and this module is that program. It
starts a process for each Function that is installed and writes where it serves into its FunctionRevision. Packages are
pulled by Crossplane from a real registry.
"""

from __future__ import annotations

import base64
import io
import json
import os
import shutil
import subprocess
import sys
import tarfile
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from ipaddress import ip_address
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from tests.harness import own_network
from tests.harness.kubernetes import RealKubernetes
from tests.harness.processes import Child, dies_with_us, free_ports, running
from tests.harness.programs import ProgramMissing, programs

NAMESPACE = "crossplane-system"
_PATIENCE_SECONDS = 90.0
_SECRETS = {"TLS_CA_SECRET_NAME": "crossplane-root-ca", "TLS_CLIENT_SECRET_NAME": "crossplane-tls-client"}
_FILES = ("ca.crt", "tls.crt", "tls.key")
_LOOPBACK = ip_address("127.0.0.1")


@dataclass(frozen=True)
class UpstreamFunction:
    """A Function to install: what the cluster calls it, its package, and the program that is in there."""

    name: str
    package: str
    program: Path


@dataclass(frozen=True)
class Crossplane:
    """Crossplane, running on this cluster."""

    cluster: RealKubernetes
    children: tuple[Child, ...]
    """Itself, then the functions."""

    def get(self, *words: str) -> Any:
        return json.loads(self.cluster.kubectl("get", *words, "-o", "json"))

    def apply(self, *objects: Any) -> None:
        self.cluster.kubectl(
            "apply", "--server-side", "-f", "-", stdin="\n---\n".join(json.dumps(each) for each in objects)
        )

    def until(self, holds: Callable[[], bool], what: str, *, seconds: float = _PATIENCE_SECONDS) -> None:
        deadline = time.monotonic() + seconds
        while not holds():
            for child in self.children:
                assert not child.has_ended(), child.output_tail()
            assert time.monotonic() < deadline, f"not within {seconds:g} s: {what}\n{self.children[0].output_tail()}"
            time.sleep(0.2)


@contextmanager
def stock_crossplane(
    cluster: RealKubernetes, directory: Path, functions: Sequence[UpstreamFunction], ports: Sequence[int]
) -> Iterator[Crossplane]:
    """Crossplane with these functions for the length of the block, reaching these ports of ours besides.

    Raises ProgramMissing where a program or a network of its own cannot be had.
    """
    found = programs("crossplane", "crossplane-tree")
    (directory / "cache").mkdir(parents=True)
    _initialize(cluster, found, directory)
    client_files, authority = _certificates(cluster, directory)
    serving = dict(zip((each.name for each in functions), free_ports(len(functions)), strict=True))
    serving_each: list[Child] = []
    with ExitStack() as stack:
        for each in functions:
            certificates = _server_certificate(authority, directory / each.name)
            command = [str(each.program), "--network=tcp", f"--address=127.0.0.1:{serving[each.name]}"]
            command += [f"--tls-certs-dir={certificates}"]
            serving_each.append(stack.enter_context(running(command, directory / f"{each.name}.log")))
        reachable = [int(cluster.url.rpartition(":")[2]), *serving.values(), *ports]
        start = [str(found / "crossplane"), "core", "start", "--package-runtime=External", "--enable-webhooks=false"]
        start += [f"--xpkg-cache-dir={directory / 'cache'}", "--poll-interval=10s", "--max-concurrent-reconciles=20"]
        # It stops hearing of an XR that changes often, for minutes; tests change one as often as others do in a day.
        start += [f"--tls-client-certs-dir={client_files}", "--circuit-breaker-burst=10000"]
        environment = [f"KUBECONFIG={cluster.kubeconfig}", f"HOME={directory}", f"POD_NAMESPACE={NAMESPACE}"]
        command = _in_own_network(reachable, ["/usr/bin/env", "-i", *environment, *start])
        child = stack.enter_context(running(command, directory / "crossplane.log", name="crossplane"))
        crossplane = Crossplane(cluster, (child, *serving_each))
        for each in functions:
            _install(crossplane, each, directory / each.name)
        for each in functions:
            _tell_endpoint(crossplane, each, serving[each.name])
        for each in functions:
            crossplane.until(partial(_is_healthy, crossplane, each.name), f"{each.name} is healthy")
        yield crossplane


def _in_own_network(ports: Sequence[int], command: Sequence[str]) -> list[str]:
    launcher = [sys.executable, "-I", str(own_network.__file__), ",".join(map(str, ports)), *command]
    if os.geteuid() == 0:
        return launcher
    unshare = shutil.which("unshare")
    if unshare is None:
        raise ProgramMissing("unshare is not installed (util-linux)")
    return [unshare, "--user", "--map-root-user", "--", *launcher]


def _initialize(cluster: RealKubernetes, found: Path, directory: Path) -> None:
    """What its init container does: CRDs, certificates and the few objects that it expects."""
    tree = subprocess.run([found / "crossplane-tree"], capture_output=True, check=True, timeout=60).stdout
    with tarfile.open(fileobj=io.BytesIO(tree)) as opened:
        for member in opened.getmembers():
            opened.extract(member, directory, set_attrs=False)
    cluster.kubectl("create", "namespace", NAMESPACE)
    cluster.kubectl("create", "serviceaccount", "crossplane", "-n", NAMESPACE)
    env = {"KUBECONFIG": str(cluster.kubeconfig), "HOME": str(directory), **_SECRETS}
    command = [str(found / "crossplane"), "core", "init", "--enable-webhooks=false"]
    command += [f"--cr-ds-path={directory / 'cluster/crds'}", f"--namespace={NAMESPACE}"]
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while True:  # it ends where a CRD of its own is not served yet, and is started again, as a container would be
        done = subprocess.run(
            dies_with_us(command), env=env, capture_output=True, text=True, timeout=_PATIENCE_SECONDS, check=False
        )
        if done.returncode == 0:
            return
        assert time.monotonic() < deadline, done.stdout + done.stderr
        time.sleep(0.5)


def _certificates(cluster: RealKubernetes, directory: Path) -> tuple[Path, dict[str, bytes]]:
    """The directory of Crossplane's own certificate, as its Secret is mounted, and the authority behind it."""

    def read(secret: str) -> dict[str, bytes]:
        data = json.loads(cluster.kubectl("get", "secret", secret, "-n", NAMESPACE, "-o", "json"))["data"]
        return {name: base64.b64decode(value) for name, value in data.items()}

    client_files = directory / "client"
    client_files.mkdir()
    for name, content in read(_SECRETS["TLS_CLIENT_SECRET_NAME"]).items():
        (client_files / name).write_bytes(content)
    return client_files, read(_SECRETS["TLS_CA_SECRET_NAME"])


def _server_certificate(authority: dict[str, bytes], target: Path) -> Path:
    """A function's certificate, signed by Crossplane's authority, as its runtime would sign it."""
    target.mkdir()
    pem = serialization.Encoding.PEM
    key = ec.generate_private_key(ec.SECP256R1())
    issuer = x509.load_pem_x509_certificate(authority["tls.crt"])
    signer: Any = serialization.load_pem_private_key(authority["tls.key"], None)
    now = datetime.now(UTC)
    warnings.filterwarnings("ignore", "Attribute's length", UserWarning)  # Crossplane's country is Earth
    certificate = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, target.name)]))
        .issuer_name(issuer.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(days=30))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(_LOOPBACK)]), critical=False)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .sign(signer, hashes.SHA256())
    )
    (target / "tls.crt").write_bytes(certificate.public_bytes(pem))
    (target / "tls.key").write_bytes(
        key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    (target / "ca.crt").write_bytes(authority.get("ca.crt") or authority["tls.crt"])
    return target


def _install(crossplane: Crossplane, function: UpstreamFunction, certificates: Path) -> None:
    """Install a Function, and the Secret with which it serves."""
    secret = _secret(function)
    data = {name: base64.b64encode((certificates / name).read_bytes()).decode() for name in _FILES}
    crossplane.apply(
        {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": secret, "namespace": NAMESPACE},
            "data": data,
        },
        {
            "apiVersion": "pkg.crossplane.io/v1",
            "kind": "Function",
            "metadata": {"name": function.name},
            "spec": {"package": function.package},
        },
    )


def _secret(function: UpstreamFunction) -> str:
    return f"{function.name}-server"


def _tell_endpoint(crossplane: Crossplane, function: UpstreamFunction, port: int) -> None:
    """Once Crossplane has made its revision, say where that serves and with which Secret, as a runtime does."""
    revisions: list[Any] = []

    def is_active() -> bool:
        label = f"pkg.crossplane.io/package={function.name}"
        revisions[:] = [
            each
            for each in crossplane.get("functionrevisions", "-l", label)["items"]
            if each["spec"]["desiredState"] == "Active"
        ]
        return bool(revisions)

    crossplane.until(is_active, f"{function.name} has an active revision")
    name = revisions[0]["metadata"]["name"]
    healthy = {
        "type": "RuntimeHealthy",
        "status": "True",
        "reason": "HealthyPackageRevision",
        "lastTransitionTime": datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z"),
    }
    status = {
        "apiVersion": "pkg.crossplane.io/v1",
        "kind": "FunctionRevision",
        "metadata": {"name": name},
        "status": {"endpoint": f"127.0.0.1:{port}", "tlsServerSecretName": _secret(function), "conditions": [healthy]},
    }
    words = ("--server-side", "--subresource=status", "--field-manager=runtime", "--force-conflicts", "-f", "-")
    crossplane.cluster.kubectl("apply", *words, stdin=json.dumps(status))


def _is_healthy(crossplane: Crossplane, function: str) -> bool:
    found = (crossplane.get("function", function).get("status") or {}).get("conditions") or ()
    return any(each["type"] == "Healthy" and each["status"] == "True" for each in found)
