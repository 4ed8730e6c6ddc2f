"""`planform kubeconfig|backup|restore`: who may enter, and a whole control plane as one file."""

from __future__ import annotations

import signal
import ssl
import stat
import time
from base64 import b64decode
from collections.abc import Callable, Iterator
from http.client import HTTPSConnection
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import yaml

from tests.e2e.control_plane import PATIENCE_SECONDS, Program, RunningPlane, planform, running_plane, stop

pytestmark = pytest.mark.xdist_group("e2e-up")


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningPlane]:
    """A plane with a data directory, `DIRECTORY/data`."""
    directory = tmp_path_factory.mktemp("kept")
    with running_plane(directory, "--data", str(directory / "data")) as plane:
        yield plane


@pytest.fixture
def cli(kept: RunningPlane) -> Program:
    return kept.planform


def issue(kept: RunningPlane, user: str, *flags: str) -> Program:
    """kubectl with a new certificate for a user."""
    file = kept.directory / f"{user}.kubeconfig"
    file.unlink(missing_ok=True)
    create = ("kubeconfig", "create", "--user", user, "--data", "data", "--server", kept.url, "--file", str(file))
    kept.planform(*create, *flags)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    return kept.kubectl.with_("--kubeconfig", str(file))


def test_a_user_enters_with_groups_and_does_what_rbac_allows(kept: RunningPlane) -> None:
    ann = issue(kept, "ann", "--group", "readers", "--group", "staff")
    who = ann("auth", "whoami", "-o", "json").json()["status"]["userInfo"]
    assert who["username"] == "ann"
    assert set(who["groups"]) == {"readers", "staff", "system:authenticated"}
    assert 'User "ann" cannot list resource "configmaps"' in ann("get", "cm", code=1).err
    kept.kubectl("create", "clusterrolebinding", "readers", "--clusterrole=view", "--group=readers")
    ann("get", "cm")


def test_a_kubeconfig_can_be_printed(kept: RunningPlane, cli: Program) -> None:
    done = cli("kubeconfig", "create", "--user", "bea", "--expires", "2h", "--data", "data", "--server", kept.url)
    config = yaml.safe_load(done.out)
    assert config["clusters"][0]["cluster"]["server"] == kept.url
    assert "bea may enter until" in done.err, "words go to stderr"


def test_a_revoked_user_is_refused_and_others_are_not(kept: RunningPlane, cli: Program) -> None:
    carl, dora = issue(kept, "carl"), issue(kept, "dora")
    carl("auth", "whoami")
    assert "of carl revoked" in cli("kubeconfig", "revoke", "--user", "carl", "--data", "data").out
    listed = {entry["user"]: entry for entry in cli("kubeconfig", "list", "--data", "data", "-o", "json").json()}
    assert (listed["carl"]["revoked"], listed["dora"]["revoked"]) == (True, False)
    certificate = certificate_of(kept.directory / "carl.kubeconfig", kept.directory / "carl.pem")
    until(lambda: get(kept, "/api/v1/namespaces", certificate=certificate) == 401)
    assert "You must be logged in to the server" in carl("get", "cm", code=1).err
    dora("auth", "whoami")
    assert (
        "no certificate that is still valid"
        in cli("kubeconfig", "revoke", "--user", "nobody", "--data", "data", code=2).err
    )


def until(reached: Callable[[], bool]) -> None:
    """Wait for a state that comes within a second or two."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not reached():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_expiry_times_are_checked(cli: Program) -> None:
    said = cli("kubeconfig", "create", "--user", "x", "--expires", "5y", "--data", "data", code=2).err
    assert 'error: "5y" is not a duration' in said


def test_certificates_of_another_authority_are_refused(kept: RunningPlane, tmp_path: Path) -> None:
    with running_plane(tmp_path, "--data", str(tmp_path / "data")) as other:
        stranger = issue(other, "planform-admin", "--group", "system:masters")
        stranger("auth", "whoami")
        assert "certificate signed by unknown authority" in stranger("get", "cm", "--server", kept.url, code=1).err
    # The stranger's certificate claims a name and a group that may do everything, and does not get that far.
    assert get(kept, "/api/v1/namespaces", certificate=certificate_of(kept.kubeconfig, tmp_path / "ours.pem")) == 200
    foreign = certificate_of(other.directory / "planform-admin.kubeconfig", tmp_path / "theirs.pem")
    refusal = get(kept, "/api/v1/namespaces", certificate=foreign)
    assert "alert unknown ca" in str(refusal).replace("_", " ").lower()


def test_nobody_enters_without_credentials(kept: RunningPlane) -> None:
    assert get(kept, "/readyz") == 200
    assert get(kept, "/version") == 200
    assert get(kept, "/api/v1/namespaces/default/secrets") in (401, 403)
    assert get(kept, "/metrics") in (401, 403)


def certificate_of(kubeconfig: Path, file: Path) -> Path:
    user = yaml.safe_load(kubeconfig.read_text())["users"][0]["user"]
    file.write_bytes(b64decode(user["client-certificate-data"]) + b64decode(user["client-key-data"]))
    return file


def get(plane: RunningPlane, path: str, *, certificate: Path | None = None) -> int | str:
    """The status code, or what the server said when it refused the handshake."""
    context = ssl.create_default_context(cafile=plane.authority)
    if certificate is not None:
        context.load_cert_chain(certificate)
    address = urlsplit(plane.url)
    connection = HTTPSConnection(address.hostname or "", address.port, context=context, timeout=PATIENCE_SECONDS)
    try:
        connection.request("GET", path)
        return connection.getresponse().status
    except ssl.SSLError as error:
        return str(error)
    finally:
        connection.close()


def test_a_backup_of_a_running_plane_is_restored_as_it_was(kept: RunningPlane, cli: Program, tmp_path: Path) -> None:
    kept.kubectl("create", "configmap", "precious", "--from-literal=k=v")
    uid = kept.kubectl("get", "cm", "precious", "-o", "jsonpath={.metadata.uid}").out
    file = tmp_path / "plane.backup"
    assert "backed up" in cli("backup", str(file), "--data", "data").err
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert "exists already" in cli("backup", str(file), "--data", "data", code=2).err
    kept.kubectl("delete", "cm", "precious")

    restored = tmp_path / "restored"
    said = cli("restore", str(file), "--data", str(restored)).err
    assert f"planform up --data {restored}" in said
    assert "holds a control plane already" in cli("restore", str(file), "--data", str(restored), code=2).err
    with running_plane(tmp_path / "again", "--data", str(restored)) as again:
        assert again.kubectl("get", "cm", "precious", "-o", "jsonpath={.metadata.uid}").out == uid
        assert again.authority.read_bytes() == kept.authority.read_bytes(), "old kubeconfigs stay good"
        assert stop(again.child, signal.SIGTERM) == 0


def test_what_is_no_backup_is_refused_and_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "junk").write_bytes(b"junk" * 1000)
    said = planform(tmp_path)("restore", "junk", "--data", "d", code=2).err
    assert said.startswith("error: junk is not a backup of a control plane")
    assert len(said.splitlines()) == 1
    assert not (tmp_path / "d").exists()
