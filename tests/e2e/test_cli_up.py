"""`planform up` from its first start to its last: where settings come from, how it stops, what a restart keeps."""

from __future__ import annotations

import base64
import json
import signal
import socket
import ssl
import stat
import subprocess
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import yaml

from tests.e2e.control_plane import (
    PATIENCE_SECONDS,
    Program,
    RunningPlane,
    clean_env,
    config_map,
    manifest,
    planform,
    running_plane,
    stop,
)
from tests.e2e.widgets import WIDGETS, widget

pytestmark = pytest.mark.xdist_group("e2e-up")


def refused_start(directory: Path, *flags: str) -> str:
    """What `planform up` says when it does not start; its exit code is 1 or 2, never a traceback."""
    done = subprocess.run(
        [*planform(directory).command, "up", *flags],
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
        cwd=directory,
        env=clean_env(directory),
    )
    assert done.returncode in (1, 2), done.stderr
    assert "Traceback" not in done.stderr
    return done.stderr


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=lambda number: number.name)
def test_it_says_when_it_is_ready_and_stops_cleanly(tmp_path: Path, number: signal.Signals) -> None:
    with running_plane(tmp_path, env={"TMPDIR": str(tmp_path)}) as plane:
        said = plane.child.output()
        assert f"planform is ready at {plane.url} after " in said
        assert f"export KUBECONFIG={plane.kubeconfig}" in said
        assert "nothing is kept when it stops" in said
        with plane.kubectl.following("get", "cm", "-A", "-w"):  # a watch that is open does not hold it up
            assert stop(plane.child, number) == 0
        assert plane.child.output().endswith("stopping\nstopped\n")
    assert not list(tmp_path.glob("planform-*")), "an ephemeral plane leaves nothing behind"


def test_a_restart_keeps_everything_and_writes_nothing(tmp_path: Path) -> None:
    data = ("--data", str(tmp_path / "data"))
    with running_plane(tmp_path / "1", *data) as plane:
        objects = manifest(WIDGETS, config_map("c", {"a": "1"}))
        plane.kubectl("apply", "--server-side", "-f", "-", stdin=objects)
        plane.kubectl("wait", "--for=condition=Established", "crd/widgets.e2e.planform.dev", "--timeout=10s")
        plane.kubectl("apply", "-f", "-", stdin=manifest(widget("a")))
        plane.kubectl("create", "serviceaccount", "robot")
        token = plane.kubectl("create", "token", "robot").out.strip()
        before = everything(plane)
        assert stop(plane.child, signal.SIGTERM) == 0
        assert "stopped; nothing is lost" in plane.child.output()
    with running_plane(tmp_path / "2", *data) as plane:
        assert everything(plane) == before
        review = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": token}}
        answer = plane.kubectl("create", "-f", "-", "-o", "json", stdin=manifest(review)).json()
        assert answer["status"]["user"]["username"] == "system:serviceaccount:default:robot"
        assert stop(plane.child, signal.SIGTERM) == 0


def everything(plane: RunningPlane) -> tuple[str, list[str]]:
    """The resource version of the store, and each object with its own."""
    kinds = "configmaps,secrets,serviceaccounts,namespaces,crds,clusterroles,clusterrolebindings,widgets"
    listed = plane.kubectl("get", kinds, "-A", "-o", "json").json()["items"]
    latest = plane.kubectl("get", "--raw", "/api/v1/configmaps").json()["metadata"]["resourceVersion"]
    return latest, [json.dumps(item, sort_keys=True) for item in listed]


def test_a_second_process_on_the_same_data_is_refused(tmp_path: Path) -> None:
    data = str(tmp_path / "data")
    with running_plane(tmp_path / "1", "--data", data) as plane:
        said = refused_start(tmp_path, "--data", data, "--listen", "127.0.0.1:0")
        assert said.startswith("error: ")
        assert data in said
        assert str(plane.child.pid) in said, "it says who holds it"
        plane.kubectl("create", "configmap", "c")


def test_an_address_that_is_taken_is_refused(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        said = refused_start(tmp_path, "--ephemeral", "--listen", address)
    assert f"error: cannot listen on {address}: Address already in use\n" in said
    assert "hint: choose another address with --listen HOST:PORT" in said


def test_files_are_private_and_the_kubeconfig_is_found_without_telling(tmp_path: Path) -> None:
    home = tmp_path / "home"
    default = home / ".local" / "share" / "planform"
    with running_plane(home, "--data", str(default)) as plane:
        for path in (plane.kubeconfig, *default.rglob("*"), default):
            if not path.is_socket():
                assert stat.S_IMODE(path.stat().st_mode) & 0o077 == 0, path
    with running_plane(home / "again", "--listen", "127.0.0.1:0", "--data", str(default)) as plane:
        (default / "kubeconfig").write_text(plane.kubeconfig.read_text())
        assert planform(home)("get", "ns", "default", "-o", "name").out == "namespace/default\n"
        other = planform(home, PLANFORM_KUBECONFIG=str(home / "nope"))
        assert "nope does not exist" in other("get", "ns", code=2).err, "the environment goes first"


def test_settings_come_from_flags_then_environment_then_file(tmp_path: Path) -> None:
    file = tmp_path / "planform.yaml"
    settings = {"data": str(tmp_path / "from-file"), "listen": "127.0.0.1:0", "tls-name": ["a.example", "b.example"]}
    file.write_text(yaml.safe_dump({**settings, "log-level": "debug", "encrypt-secrets": True}))
    with running_plane(tmp_path / "1", "--config", str(file)) as plane:
        assert (tmp_path / "from-file" / "pki" / "encryption.keys").exists()
        assert {"a.example", "b.example"} <= names_in_certificate(plane)
    environment = {"PLANFORM_DATA": str(tmp_path / "from-environment")}
    with running_plane(tmp_path / "2", "--config", str(file), env=environment):
        assert (tmp_path / "from-environment" / "store").exists()
    flag = str(tmp_path / "from-flag")
    with running_plane(tmp_path / "3", "--config", str(file), "--data", flag, env=environment):
        assert (tmp_path / "from-flag" / "store").exists()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        pytest.param("bogus: 1", 'there is no option "bogus"', id="unknown option"),
        pytest.param("- data", "must hold one mapping", id="no mapping"),
        pytest.param("data: [", "cannot read", id="broken"),
        pytest.param("log-level: loud", "'loud' is not one of", id="bad value"),
        pytest.param("listen: 99999999", "is not HOST:PORT", id="bad address"),
    ],
)
def test_a_file_of_settings_that_is_wrong_is_refused(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "f.yaml").write_text(text)
    assert said in refused_start(tmp_path, "--config", "f.yaml")


def test_extra_names_stand_in_the_certificate_and_others_do_not(tmp_path: Path) -> None:
    with running_plane(tmp_path, "--tls-name", "plane.example.org", "--tls-name", "192.0.2.7") as plane:
        names = names_in_certificate(plane)
        assert {"plane.example.org", "192.0.2.7", "127.0.0.1", "localhost"} <= names
        plane.kubectl("version", "--tls-server-name", "plane.example.org")
        refused = plane.kubectl("version", "--tls-server-name", "elsewhere.example.org", code=1).err
        assert "certificate is valid for" in refused


def names_in_certificate(plane: RunningPlane) -> set[str]:
    address = urlsplit(plane.url)
    assert address.hostname is not None
    context = ssl.create_default_context(cafile=plane.authority)
    with (
        socket.create_connection((address.hostname, address.port or 443), timeout=PATIENCE_SECONDS) as plain,
        context.wrap_socket(plain, server_hostname="127.0.0.1") as connection,
    ):
        certificate = connection.getpeercert()
    assert certificate is not None
    return {str(entry[1]) for entry in certificate["subjectAltName"]}


def test_tokens_from_a_file_let_people_in(tmp_path: Path) -> None:
    tokens = tmp_path / "tokens.csv"
    tokens.write_text('sesame-sesame-sesame,ann,1,"readers,writers"\n')
    tokens.chmod(0o600)
    with running_plane(tmp_path, "--token-file", str(tokens)) as plane:
        who = with_token(plane, "sesame-sesame-sesame")("auth", "whoami", "-o", "json").json()["status"]["userInfo"]
        assert (who["username"], set(who["groups"]) >= {"readers", "writers"}) == ("ann", True)
        assert "You must be logged in to the server" in with_token(plane, "wrong")("get", "cm", code=1).err


def with_token(plane: RunningPlane, token: str) -> Program:
    server = ("--server", plane.url, "--certificate-authority", str(plane.authority))
    return plane.kubectl.with_("--kubeconfig", "/dev/null", *server, "--token", token)


def test_the_audit_log_has_a_line_for_each_request_and_no_secret(tmp_path: Path) -> None:
    log = tmp_path / "audit.log"
    with running_plane(tmp_path, "--audit-log", str(log)) as plane:
        plane.kubectl("create", "secret", "generic", "s", "--from-literal=password=hunter2hunter2")
        plane.kubectl("get", "cm", "nope", code=1)
        stop(plane.child, signal.SIGTERM)
    text = log.read_text()
    lines = [json.loads(line) for line in text.splitlines()]
    created = [line for line in lines if line["verb"] == "create" and line["objectRef"]["resource"] == "secrets"]
    assert [line["user"]["username"] for line in created] == ["planform-admin"]
    assert [line["responseStatus"]["code"] for line in created] == [201]
    missed = [line for line in lines if line.get("objectRef", {}).get("name") == "nope"]
    assert [line["responseStatus"]["code"] for line in missed] == [404]
    assert "hunter2" not in text
    assert base64.b64encode(b"hunter2hunter2").decode()[:12] not in text


@pytest.mark.parametrize("encrypted", [True, False], ids=["encrypted", "plain"])
def test_secrets_lie_on_disk_encrypted_when_told(tmp_path: Path, encrypted: bool) -> None:
    data = tmp_path / "data"
    needle = base64.b64encode(b"a-needle-in-a-haystack").rstrip(b"=")[:-1]
    create = ("create", "secret", "generic", "s", "--from-literal=password=a-needle-in-a-haystack")
    with running_plane(tmp_path / "1", "--data", str(data), *(["--encrypt-secrets"] * encrypted)) as plane:
        plane.kubectl(*create)
        plane.kubectl("create", "configmap", "c", "--from-literal=open=for-all-to-see")
        on_disk = b"".join(path.read_bytes() for path in (data / "store").iterdir() if path.is_file())
        assert b"for-all-to-see" in on_disk, "the test reads what the plane writes"
        assert (needle in on_disk) is not encrypted
        stop(plane.child, signal.SIGTERM)
    on_disk = b"".join(path.read_bytes() for path in (data / "store").iterdir() if path.is_file())
    assert (needle in on_disk) is not encrypted
    with running_plane(tmp_path / "2", "--data", str(data)) as plane:  # the flag is not needed to read
        found = plane.kubectl("get", "secret", "s", "-o", "jsonpath={.data.password}").out
        assert base64.b64decode(found) == b"a-needle-in-a-haystack"


@pytest.mark.parametrize("level", ["debug", "info"])
def test_logs_are_json_and_as_many_as_wanted(tmp_path: Path, level: str) -> None:
    with running_plane(tmp_path, "--log-format", "json", "--log-level", level) as plane:
        with_token(plane, "not.a.token")("get", "--raw", "/api/v1/namespaces", code=1)
        stop(plane.child, signal.SIGTERM)
        entries = [json.loads(line) for line in plane.child.output().splitlines() if line.startswith("{")]
    refusals = [entry for entry in entries if entry["message"].startswith("a bearer token was refused")]
    assert {entry["level"].lower() for entry in refusals} == ({"debug"} if level == "debug" else set())


def test_features_show_how_the_running_control_plane_has_them_set(tmp_path: Path) -> None:
    with running_plane(tmp_path, "--feature-gates", "ConfineNamespacedReads=true") as plane:
        gates = {gate["name"]: gate["set"] for gate in plane.planform("features", "-o", "json").json()}
        assert gates["ConfineNamespacedReads"] is True
        assert gates["DenyExtraResourcesByDefault"] is False
        assert None in {gate["set"] for gate in plane.planform("features", "--client", "-o", "json").json()}
