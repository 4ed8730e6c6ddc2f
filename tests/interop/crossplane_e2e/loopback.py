"""A network of its own, with nothing but a loopback, where one registry answers to many host names.

Processes that run in here see their own /etc/hosts and no other machine. So a manifest that names a public registry is
used as it is, and nothing that a test does can reach anybody.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from tests.e2e.control_plane import clean_env, in_env
from tests.harness.processes import dies_with_us, running
from tests.harness.programs import ProgramMissing, programs

HOSTS = ("xpkg.crossplane.io", "xpkg.upbound.io", "us-west1-docker.pkg.dev")
_PATIENCE_SECONDS = 20.0

# Binds the file of hosts, has the loopback answer, says so, and stays until its standard input ends.
_HOLD = """
import fcntl, socket, struct, subprocess, sys
subprocess.run(["mount", "--bind", sys.argv[1], "/etc/hosts"], check=True)
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
    request = bytearray(struct.pack("16sH22x", b"lo", 0))
    fcntl.ioctl(any_socket, 0x8913, request)  # SIOCGIFFLAGS
    flags = struct.unpack_from("H", request, 16)[0] | 1  # IFF_UP
    fcntl.ioctl(any_socket, 0x8914, struct.pack("16sH22x", b"lo", flags))  # SIOCSIFFLAGS
print("ready", flush=True)
sys.stdin.read()
"""


@dataclass(frozen=True)
class Loopback:
    """Where to run programs, and what they must trust there."""

    holder: int
    authority: Path

    def command(self, command: Sequence[str], directory: Path, **env: str) -> list[str]:
        """The command, in here, in this directory, with an environment made for it."""
        nsenter = shutil.which("nsenter")
        assert nsenter is not None
        user = [] if os.geteuid() == 0 else ["--user", "--preserve-credentials"]
        trusting = clean_env(directory, SSL_CERT_FILE=str(self.authority), **env)
        enter = [nsenter, "--target", str(self.holder), *user, "--mount", "--net", "--"]
        return [*enter, "/bin/sh", "-c", 'cd "$0" && exec "$@"', str(directory), *in_env(trusting, command)]


@contextmanager
def own_loopback(directory: Path) -> Iterator[Loopback]:
    """A network for the length of the block. Raises ProgramMissing where the system allows none."""
    unshare = shutil.which("unshare")
    if unshare is None or shutil.which("nsenter") is None:
        raise ProgramMissing("unshare and nsenter are not installed (util-linux)")
    directory.mkdir(parents=True, exist_ok=True)
    hosts = directory / "hosts"
    hosts.write_text("127.0.0.1 localhost " + " ".join(HOSTS) + "\n")
    authority = write_certificates(directory)
    user = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    command = [unshare, *user, "--mount", "--net", sys.executable, "-I", "-c", _HOLD, str(hosts)]
    holder = subprocess.Popen(
        dies_with_us(command), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        assert holder.stdout is not None and holder.stderr is not None
        if holder.stdout.readline().strip() != "ready":
            said = (holder.stderr.read().strip().splitlines() or ["nothing"])[-1]
            raise ProgramMissing(f"this system gives no network of its own: {said}")
        yield Loopback(holder.pid, authority)
    finally:
        holder.kill()
        holder.communicate(timeout=_PATIENCE_SECONDS)


@contextmanager
def serving_hosts(loopback: Loopback, data: Path, directory: Path) -> Iterator[None]:
    """The registry with what the directory has, over TLS, at the port where everybody looks for one."""
    program = programs("docker-registry") / "docker-registry"
    config = directory / "registry.yml"
    config.write_text(
        "version: 0.1\n"
        "log:\n  level: warn\n"
        f"storage:\n  filesystem:\n    rootdirectory: {data}\n"
        "http:\n  addr: 127.0.0.1:443\n"
        f"  tls:\n    certificate: {directory / 'server.crt'}\n    key: {directory / 'server.key'}\n"
    )
    command = loopback.command([str(program), "serve", str(config)], directory)
    probe = loopback.command([sys.executable, "-I", "-c", _PROBE], directory)
    with running(command, directory / "registry.log") as child:
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while subprocess.run(probe, check=False, capture_output=True, timeout=_PATIENCE_SECONDS).returncode:
            assert not child.has_ended(), child.output_tail()
            assert time.monotonic() < deadline, child.output_tail()
            time.sleep(0.05)
        yield


_PROBE = "import socket; socket.create_connection(('127.0.0.1', 443), 2).close()"


def write_certificates(directory: Path) -> Path:
    """A server certificate for all hosts, and the authority that vouches for it; gives the authority's file."""
    ca_key, server_key = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
    ca_name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "authority of a test")])
    ca = _builder(ca_name, ca_name, ca_key).add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    usage = x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=True,
        crl_sign=False,
        encipher_only=False,
        decipher_only=False,
    )
    ca = ca.add_extension(usage, critical=True)
    identifier = x509.SubjectKeyIdentifier.from_public_key(ca_key.public_key())
    ca = ca.add_extension(identifier, critical=False)
    names = x509.SubjectAlternativeName([x509.DNSName(host) for host in HOSTS])
    server = _builder(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, HOSTS[0])]), ca_name, server_key)
    server = server.add_extension(names, critical=False).add_extension(
        x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(identifier), critical=False
    )
    pem = serialization.Encoding.PEM
    secret = server_key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    (directory / "server.key").write_bytes(secret)
    (directory / "server.crt").write_bytes(server.sign(ca_key, hashes.SHA256()).public_bytes(pem))
    (directory / "ca.crt").write_bytes(ca.sign(ca_key, hashes.SHA256()).public_bytes(pem))
    return directory / "ca.crt"


def _builder(name: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(days=30))
    )
