"""Certificates over real sockets: who gets in, who does not, and how a running server renews its own."""

from __future__ import annotations

import asyncio
import os
import ssl
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from planform.apiserver.auth.certificate_names import common_name_of, uri_of, user_of
from planform.apiserver.auth.pki import CA_LIFETIME, RENEW_BEFORE, SERVER_LIFETIME, ClientCredential, Pki, PkiError
from planform.clock import SystemClock, VirtualClock
from planform.errors import UsageError

YEAR = timedelta(days=365)


@pytest.fixture
def clock() -> VirtualClock:
    """Begins now, since OpenSSL looks at the real time."""
    return VirtualClock(SystemClock().now())


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "pki"


@asynccontextmanager
async def serving(context: ssl.SSLContext) -> AsyncIterator[int]:
    """A server that answers each line with the subject and serial number of the client's certificate."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while await reader.readline():
                certificate = writer.get_extra_info("peercert") or {}
                subject = [value for part in certificate.get("subject", ()) for _, value in part]
                writer.write(f"{certificate.get('serialNumber', '-')} {','.join(subject)}\n".encode())
        except (ConnectionError, ssl.SSLError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0, ssl=context)
    async with server:
        yield server.sockets[0].getsockname()[1]


async def ask(port: int, trust: str, *, client: Path | None = None, host: str = "localhost", **limits: Any) -> str:
    """What the server says of us; the certificate that it showed is checked against `trust` and `host`."""
    context = ssl.create_default_context(cadata=trust)
    context.verify_flags |= ssl.VERIFY_X509_STRICT
    for name, value in limits.items():
        setattr(context, name, value)
    if client is not None:
        context.load_cert_chain(client)
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context, server_hostname=host)
    try:
        writer.write(b"who am I?\n")
        return (await reader.readline()).decode().strip()
    finally:
        writer.close()


def saved(credential: ClientCredential, directory: Path) -> Path:
    path = directory / f"{credential.serial}.pem"
    path.write_text(credential.key + credential.certificate)
    return path


async def shown(port: int) -> bytes:
    """The certificate that a new handshake sees."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
    certificate = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    writer.close()
    assert isinstance(certificate, bytes)
    return certificate


@pytest.mark.parametrize(
    "host", ["localhost", "127.0.0.1", "::1", "kubernetes.default.svc", "plane.example.org", "10.1.2.3"]
)
async def test_the_server_is_trusted_under_each_of_its_names(directory: Path, clock: VirtualClock, host: str) -> None:
    pki = Pki(directory, clock=clock, names=["plane.example.org", "10.1.2.3"])
    async with serving(pki.tls_context()) as port:
        assert await ask(port, pki.authority_pem, host=host) == "-"
        with pytest.raises(ssl.SSLCertVerificationError):
            await ask(port, pki.authority_pem, host="elsewhere.example.org")


async def test_a_client_certificate_tells_user_groups_and_serial_number(directory: Path, clock: VirtualClock) -> None:
    pki = Pki(directory, clock=clock)
    alice = pki.issue_client("alice", ["dev", "ops"], timedelta(hours=1))
    async with serving(pki.tls_context()) as port:
        assert await ask(port, alice.authority, client=saved(alice, directory)) == f"{alice.serial} dev,ops,alice"


async def test_serial_numbers_are_spelled_as_tls_spells_them(directory: Path, clock: VirtualClock) -> None:
    pki = Pki(directory, clock=clock)
    async with serving(pki.tls_context()) as port:
        for number in range(8):
            credential = pki.issue_client(f"u{number}", [], YEAR)
            answer = await ask(port, credential.authority, client=saved(credential, directory))
            assert answer.split()[0] == credential.serial


async def test_certificates_of_other_authorities_servers_or_the_past_are_refused(
    directory: Path, tmp_path: Path, clock: VirtualClock
) -> None:
    pki = Pki(directory, clock=clock)
    stranger = Pki(tmp_path / "other", clock=clock).issue_client("alice", ["system:masters"], YEAR)
    past = Pki(directory, clock=VirtualClock(clock.now() - 2 * YEAR)).issue_client("alice", [], YEAR)
    context = pki.tls_context()
    async with serving(context) as port:
        for bad in (saved(stranger, tmp_path), saved(past, tmp_path), directory / "server.pem"):
            with pytest.raises((ssl.SSLError, ConnectionError)):
                assert await ask(port, pki.authority_pem, client=bad, maximum_version=ssl.TLSVersion.TLSv1_2)


async def test_old_tls_is_refused_and_http_1_1_is_agreed_on(directory: Path, clock: VirtualClock) -> None:
    pki = Pki(directory, clock=clock)
    async with serving(pki.tls_context()) as port:
        with pytest.warns(DeprecationWarning), pytest.raises((ssl.SSLError, ConnectionError)):
            await ask(
                port,
                pki.authority_pem,
                minimum_version=ssl.TLSVersion.TLSv1_1,
                maximum_version=ssl.TLSVersion.TLSv1_1,
            )
        context = ssl.create_default_context(cadata=pki.authority_pem)
        context.set_alpn_protocols(["h2", "http/1.1"])
        _, writer = await asyncio.open_connection("localhost", port, ssl=context)
        assert writer.get_extra_info("ssl_object").selected_alpn_protocol() == "http/1.1"
        writer.close()


async def test_a_due_certificate_is_renewed_while_the_server_runs(directory: Path, clock: VirtualClock) -> None:
    pki = Pki(directory, clock=clock)
    async with serving(pki.tls_context()) as port:
        before = await shown(port)
        assert not pki.renew_if_due(clock.now() + SERVER_LIFETIME - RENEW_BEFORE - timedelta(minutes=1))
        assert await shown(port) == before
        assert pki.renew_if_due(clock.now() + SERVER_LIFETIME - RENEW_BEFORE)
        assert await shown(port) != before
        assert not pki.renew_if_due(clock.now() + SERVER_LIFETIME - RENEW_BEFORE)


async def test_a_server_that_runs_for_long_renews_by_itself_and_survives_a_failure(
    directory: Path, clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    pki = Pki(directory, clock=clock)
    pki.tls_context()
    first = (directory / "server.pem").read_bytes()
    task = asyncio.create_task(pki.keep_renewed())
    await asyncio.sleep(0)
    key = (directory / "ca.key").read_bytes()
    (directory / "ca.key").unlink()
    await clock.advance((SERVER_LIFETIME - RENEW_BEFORE).total_seconds() + 1)
    await _until(lambda: "cannot be renewed" in caplog.text)
    (directory / "ca.key").write_bytes(key)
    await clock.advance(3600)
    await _until(lambda: (directory / "server.pem").read_bytes() != first)
    assert not task.done()
    task.cancel()


async def _until(holds: Callable[[], bool]) -> None:
    """Let the loop and its threads go on until something holds."""
    async with asyncio.timeout(10):
        while not holds():  # noqa: ASYNC110  # a thread has no event to wait for
            await asyncio.sleep(0.001)


async def test_another_name_means_another_certificate_and_the_same_names_the_same(
    directory: Path, clock: VirtualClock
) -> None:
    Pki(directory, clock=clock).tls_context()
    first = (directory / "server.pem").read_bytes()
    Pki(directory, clock=clock).tls_context()
    assert (directory / "server.pem").read_bytes() == first
    Pki(directory, clock=clock, names=["plane.example.org"]).tls_context()
    assert (directory / "server.pem").read_bytes() != first


async def test_issuing_a_credential_leaves_the_servers_certificate_alone(directory: Path, clock: VirtualClock) -> None:
    Pki(directory, clock=clock, names=["plane.example.org"]).tls_context()
    before = (directory / "server.pem").read_bytes()
    Pki(directory, clock=clock).issue_client("alice", [], YEAR)
    assert (directory / "server.pem").read_bytes() == before


def test_all_keys_are_private(directory: Path, clock: VirtualClock) -> None:
    directory.mkdir(mode=0o755)
    pki = Pki(directory, clock=clock)
    pki.tls_context()
    pki.kept_client("admin", "admin", ["system:masters"])
    pki.revoke(user="admin")
    assert directory.stat().st_mode & 0o777 == 0o700
    modes = {path.name: path.stat().st_mode & 0o777 for path in directory.iterdir()}
    assert set(modes.values()) == {0o600}
    assert {"ca.key", "ca.crt", "server.pem", "issued.json", "revoked.json", "admin.client.json"} <= set(modes)


async def test_revoking_a_user_refuses_all_of_theirs_and_nobody_elses(directory: Path, clock: VirtualClock) -> None:
    pki = Pki(directory, clock=clock)
    first, second = (pki.issue_client("alice", [], YEAR) for _ in range(2))
    other = pki.issue_client("bob", [], YEAR)
    assert {entry.serial for entry in pki.revoke(user="alice")} == {first.serial, second.serial}
    assert [pki.is_revoked(each.serial) for each in (first, second, other)] == [True, True, False]
    spelled = ":".join(other.serial[at : at + 2].lower() for at in range(0, len(other.serial), 2))
    assert pki.revoke(serial=spelled)[0].user == "bob"
    assert all(pki.is_revoked(each.serial) for each in (first, second, other))


async def test_a_revocation_by_another_process_is_noticed_within_a_second(directory: Path, clock: VirtualClock) -> None:
    pki = Pki(directory, clock=clock)
    alice = pki.issue_client("alice", [], YEAR)
    assert not pki.is_revoked(alice.serial)
    Pki(directory, clock=clock).revoke(user="alice")
    await clock.advance(1)
    assert pki.is_revoked(alice.serial)


async def test_a_revocation_list_damaged_later_leaves_the_last_one_in_force(
    directory: Path, clock: VirtualClock
) -> None:
    pki = Pki(directory, clock=clock)
    alice = pki.issue_client("alice", [], YEAR)
    pki.revoke(user="alice")
    (directory / "revoked.json").write_text("{")
    await clock.advance(1)
    assert pki.is_revoked(alice.serial)
    with pytest.raises(PkiError, match="damaged"):
        Pki(directory, clock=clock)


async def test_only_what_was_issued_and_is_valid_can_be_revoked(directory: Path, clock: VirtualClock) -> None:
    pki = Pki(directory, clock=clock)
    pki.issue_client("alice", [], timedelta(hours=1))
    with pytest.raises(UsageError, match='user "bob"'):
        pki.revoke(user="bob")
    with pytest.raises(UsageError, match="serial number AB"):
        pki.revoke(serial="ab")
    with pytest.raises(UsageError, match="either"):
        pki.revoke()
    await clock.advance(3601)
    with pytest.raises(UsageError):
        pki.revoke(user="alice")
    assert pki.issued() == []


async def test_ledger_and_revocation_list_forget_what_has_expired(directory: Path, clock: VirtualClock) -> None:
    pki = Pki(directory, clock=clock)
    pki.issue_client("alice", [], timedelta(hours=1))
    pki.revoke(user="alice")
    await clock.advance(3601)
    bob = pki.issue_client("bob", ["dev"], YEAR)
    pki.revoke(user="bob")
    assert [entry.user for entry in pki.issued()] == ["bob"]
    assert (directory / "revoked.json").read_text() == f'["{bob.serial}"]'


async def test_a_kept_credential_stays_until_it_nears_its_end_or_is_revoked(
    directory: Path, clock: VirtualClock
) -> None:
    def kept() -> ClientCredential:
        return Pki(directory, clock=clock).kept_client("admin", "admin", ["system:masters"])

    first = kept()
    assert kept() == first
    Pki(directory, clock=clock).revoke(user="admin")
    second = kept()
    assert second.serial != first.serial
    await clock.advance((SERVER_LIFETIME - RENEW_BEFORE).total_seconds())
    assert kept().serial != second.serial


async def test_no_credential_outlives_the_authority(directory: Path, clock: VirtualClock) -> None:
    pki = Pki(directory, clock=clock)
    assert pki.issue_client("alice", [], timedelta(days=36500)).not_after <= clock.now() + CA_LIFETIME
    await clock.advance(CA_LIFETIME.total_seconds() + 1)
    with pytest.raises(PkiError, match="expired on"):
        pki.issue_client("alice", [], YEAR)


@pytest.mark.parametrize(
    ("user", "groups", "expires"),
    [("", [], YEAR), ("x" * 513, [], YEAR), ("a", [""], YEAR), ("a\nb", [], YEAR), ("a", [], timedelta(0))],
    ids=["no name", "a name longer than any account's", "an empty group", "a line break", "no time"],
)
async def test_what_cannot_stand_in_a_certificate_is_refused(
    directory: Path, clock: VirtualClock, user: str, groups: list[str], expires: timedelta
) -> None:
    with pytest.raises(UsageError):
        Pki(directory, clock=clock).issue_client(user, groups, expires)


def test_a_user_too_long_for_a_common_name_stands_whole_beside_a_digest_of_it() -> None:
    user = f"system:serviceaccount:crossplane-system:{'provider-' * 5}nop"
    assert len(user) > 64
    assert len(common_name_of(user)) <= 64
    assert user_of(common_name_of(user), [uri_of(user)]) == user
    assert user_of(common_name_of(user), [uri_of("somebody else")]) == "", "a digest proves its user and no other"
    assert user_of(common_name_of(user), []) == ""
    assert user_of("alice", [uri_of("system:masters")]) == "alice", "a short name is read as Kubernetes does"


async def test_a_bad_server_name_is_refused(directory: Path, clock: VirtualClock) -> None:
    with pytest.raises(UsageError, match="neither a host name nor an address"):
        Pki(directory, clock=clock, names=["not a name"])


async def test_an_authority_without_its_key_is_an_error_that_says_what_to_do(
    directory: Path, clock: VirtualClock
) -> None:
    pki = Pki(directory, clock=clock)
    pki.tls_context()
    (directory / "ca.key").unlink()
    Pki(directory, clock=clock).tls_context()  # a fresh server certificate still serves
    with pytest.raises(PkiError, match="cannot use the certificate authority") as failure:
        pki.issue_client("alice", [], YEAR)
    assert failure.value.hint is not None
    assert "backup" in failure.value.hint


async def test_a_damaged_note_beside_the_certificate_only_costs_a_new_one(directory: Path, clock: VirtualClock) -> None:
    Pki(directory, clock=clock).tls_context()
    (directory / "server.json").write_text("{")
    pki = Pki(directory, clock=clock)
    async with serving(pki.tls_context()) as port:
        assert await ask(port, pki.authority_pem) == "-"


async def test_a_start_with_fresh_certificates_does_not_import_cryptography(directory: Path) -> None:
    prepare = Pki(directory, clock=SystemClock())
    prepare.tls_context()
    prepare.kept_client("admin", "admin", ["system:masters"])
    program = f"""
import sys
from pathlib import Path
from planform.apiserver.auth.pki import Pki
from planform.clock import SystemClock
pki = Pki(Path({str(directory)!r}), clock=SystemClock())
pki.tls_context()
pki.kept_client("admin", "admin", ["system:masters"])
assert not pki.is_revoked("AB")
print(sorted(name for name in sys.modules if name.startswith("cryptography")))
"""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", program, stdout=subprocess.PIPE, env={**os.environ}
    )
    output, _ = await asyncio.wait_for(process.communicate(), 30)
    assert output.strip() == b"[]"


async def test_a_kubeconfig_names_one_current_context(directory: Path, clock: VirtualClock) -> None:
    config: Any = Pki(directory, clock=clock).issue_client("alice", ["dev"], YEAR).kubeconfig("https://127.0.0.1:6443")
    assert config["current-context"] == config["contexts"][0]["name"] == "alice@planform"
    assert config["contexts"][0]["context"] == {"cluster": "planform", "user": "alice"}
    assert config["clusters"][0]["cluster"]["server"] == "https://127.0.0.1:6443"
    assert set(config["users"][0]["user"]) == {"client-certificate-data", "client-key-data"}
