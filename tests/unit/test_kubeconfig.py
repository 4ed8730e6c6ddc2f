"""Kubeconfig files: read, merged, refused by name, written; and the credentials they lead to."""

from __future__ import annotations

import base64
import stat
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml

from planform.client.credentials import FixedCredentials, Identity
from planform.client.kubeconfig import Connection, find_connection, read_kubeconfig, write_kubeconfig
from planform.clock import VirtualClock
from planform.errors import Unauthorized, UsageError

PEM = b"-----BEGIN CERTIFICATE-----\nMA==\n-----END CERTIFICATE-----\n"


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock(datetime(2026, 1, 1, tzinfo=UTC))


def config(user: dict[str, Any] | None = None, cluster: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "here",
        "clusters": [{"name": "c", "cluster": {"server": "https://127.0.0.1:6443"} | (cluster or {})}],
        "users": [{"name": "u", "user": {} if user is None else user}],
        "contexts": [{"name": "here", "context": {"cluster": "c", "user": "u", "namespace": "team"}}],
    } | more


def written(path: Path, document: dict[str, Any]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(yaml.safe_dump(document))
    return path


def connect(directory: Path, clock: VirtualClock, document: dict[str, Any], context: str = "") -> Connection:
    return find_connection(clock=clock, path=written(directory / "config", document), context=context)


async def test_a_context_gives_server_namespace_and_token(tmp_path: Path, clock: VirtualClock) -> None:
    connection = connect(tmp_path, clock, config({"token": "secret-token"}))
    assert (connection.server, connection.namespace, connection.context) == ("https://127.0.0.1:6443", "team", "here")
    assert (await connection.credentials.current()).authorization == "Bearer secret-token"
    assert await connection.credentials.renew() is None
    assert "secret-token" not in repr(connection)


async def test_inline_data_wins_over_files_and_files_are_relative_to_the_kubeconfig(
    tmp_path: Path, clock: VirtualClock
) -> None:
    (tmp_path / "ca.crt").write_bytes(b"from file")
    (tmp_path / "user.crt").write_bytes(b"certificate")
    (tmp_path / "user.key").write_bytes(b"key")
    user = {"client-certificate": "user.crt", "client-key": "user.key"}
    from_file = connect(tmp_path, clock, config(user, {"certificate-authority": "ca.crt"}))
    assert from_file.ca == b"from file"
    assert await from_file.credentials.current() == Identity("", b"certificate", b"key")
    inline = {"certificate-authority": "ca.crt", "certificate-authority-data": base64.b64encode(PEM).decode()}
    assert connect(tmp_path, clock, config(user, inline)).ca == PEM


async def test_a_user_with_a_password_is_sent_as_basic(tmp_path: Path, clock: VirtualClock) -> None:
    connection = connect(tmp_path, clock, config({"username": "me", "password": "pass"}))
    assert (await connection.credentials.current()).authorization == "Basic bWU6cGFzcw=="


def test_tls_options_are_kept(tmp_path: Path, clock: VirtualClock) -> None:
    cluster = {"insecure-skip-tls-verify": True, "tls-server-name": "kubernetes"}
    connection = connect(tmp_path, clock, config({}, cluster))
    assert (connection.insecure, connection.tls_server_name) == (True, "kubernetes")


def test_of_several_files_the_first_to_name_something_decides(tmp_path: Path, clock: VirtualClock) -> None:
    first = written(tmp_path / "1", {"clusters": [{"name": "c", "cluster": {"server": "https://first"}}]})
    second = written(tmp_path / "2", config({}, {"server": "https://second"}))
    environ = {"KUBECONFIG": f"{first}:{tmp_path / 'missing'}:{second}"}
    assert find_connection(clock=clock, environ=environ).server == "https://first"


def test_the_home_directory_is_looked_at_last_and_a_pod_after_it(tmp_path: Path, clock: VirtualClock) -> None:
    account = tmp_path / "account"
    account.mkdir()
    for name, text in (("token", "t\n"), ("ca.crt", PEM.decode()), ("namespace", "system\n")):
        (account / name).write_text(text)
    environ = {"KUBERNETES_SERVICE_HOST": "fd00::1", "KUBERNETES_SERVICE_PORT": "443"}
    home = tmp_path / "home"
    pod = find_connection(clock=clock, environ=environ, home=home, service_account=account)
    assert (pod.server, pod.namespace, pod.ca) == ("https://[fd00::1]:443", "system", PEM)
    written(home / ".kube" / "config", config({}))
    assert find_connection(clock=clock, environ=environ, home=home, service_account=account).context == "here"


def test_without_any_cluster_one_is_told_where_it_was_looked_for(tmp_path: Path, clock: VirtualClock) -> None:
    with pytest.raises(UsageError, match=r"none of .*/\.kube/config exists") as caught:
        find_connection(clock=clock, environ={}, home=tmp_path)
    assert "KUBECONFIG" in str(caught.value.hint)


@pytest.mark.parametrize(
    ("user", "cluster", "complaint"),
    [
        pytest.param({"as": "root"}, {}, r'user "u": as \(impersonation\) is not supported', id="as"),
        pytest.param({"as-groups": ["a"]}, {}, "as-groups", id="as-groups"),
        pytest.param({"as-uid": "1"}, {}, "as-uid", id="as-uid"),
        pytest.param({"as-user-extra": {"a": ["b"]}}, {}, "as-user-extra", id="as-user-extra"),
        pytest.param({"auth-provider": {"name": "gcp"}}, {}, "auth-provider is not supported", id="auth-provider"),
        pytest.param({}, {"proxy-url": "http://p"}, 'cluster "c": proxy-url is not supported', id="proxy-url"),
        pytest.param({}, {"server": "kube.example.org"}, "is no http", id="server"),
        pytest.param({"client-certificate-data": "QQ=="}, {}, "needs its key", id="half a pair"),
        pytest.param({"client-certificate-data": "!"}, {}, "is not base64", id="not base64"),
        pytest.param({"client-certificate": "nowhere"}, {}, "cannot read .*nowhere", id="missing file"),
        pytest.param(
            {}, {"insecure-skip-tls-verify": True, "certificate-authority-data": "QQ=="}, "exclude each other", id="ca"
        ),
        pytest.param({"exec": {"command": "x"}}, {}, "exec.apiVersion '' is not one of", id="exec version"),
        pytest.param(
            {"exec": {"command": "x", "apiVersion": "client.authentication.k8s.io/v1"}, "token": "t"},
            {},
            "exec excludes",
            id="exec and token",
        ),
        pytest.param(
            {
                "exec": {
                    "command": "x",
                    "apiVersion": "client.authentication.k8s.io/v1",
                    "interactiveMode": "Always",
                }
            },
            {},
            "needs a terminal",
            id="interactive",
        ),
        pytest.param({"token": 5}, {}, r"Expected `str`, got `int` - at `\$\.users\[0\]\.user\.token`", id="type"),
    ],
)
def test_what_is_not_supported_or_wrong_is_refused_by_name(
    tmp_path: Path, clock: VirtualClock, user: dict[str, Any], cluster: dict[str, Any], complaint: str
) -> None:
    with pytest.raises(UsageError, match=complaint):
        connect(tmp_path, clock, config(user, cluster))


def test_missing_names_are_told_with_those_that_exist(tmp_path: Path, clock: VirtualClock) -> None:
    with pytest.raises(UsageError, match='has no context "there"') as caught:
        connect(tmp_path, clock, config({}), context="there")
    assert caught.value.hint == "known: here"
    with pytest.raises(UsageError, match="sets no current context"):
        connect(tmp_path, clock, config({}) | {"current-context": ""})
    with pytest.raises(UsageError, match='names cluster "c", which is not there'):
        connect(tmp_path, clock, config({}) | {"clusters": None})
    with pytest.raises(UsageError, match='names user "u", which is not there'):
        connect(tmp_path, clock, config({}) | {"users": []})
    with pytest.raises(UsageError, match="does not exist"):
        find_connection(clock=clock, path=tmp_path / "nothing")


def test_a_file_that_is_no_kubeconfig_is_named(tmp_path: Path) -> None:
    path = tmp_path / "config"
    path.write_text("a: [")
    with pytest.raises(UsageError, match=f"{path} is not YAML"):
        read_kubeconfig([path])
    path.write_text("- 1")
    with pytest.raises(UsageError, match="Expected `object`, got `array`"):
        read_kubeconfig([path])


async def test_a_token_file_is_read_again_after_a_while_and_when_refused(tmp_path: Path, clock: VirtualClock) -> None:
    token = tmp_path / "token"
    token.write_text("one\n")
    credentials = connect(tmp_path, clock, config({"tokenFile": "token", "token": "ignored"})).credentials

    async def current() -> str:
        return (await credentials.current()).authorization

    assert await current() == "Bearer one"
    assert await credentials.renew() is None  # nothing newer: asking again would not help
    token.write_text("two\n")
    assert await current() == "Bearer one"
    await clock.advance(60)
    assert await current() == "Bearer two"
    token.write_text("three\n")
    renewed = await credentials.renew()
    assert renewed is not None and renewed.authorization == "Bearer three"
    token.unlink()
    with pytest.raises(Unauthorized, match="cannot read the token file"):
        await credentials.renew()


PLUGIN = """
import json, os, pathlib, sys
runs = pathlib.Path(sys.argv[1])
count = int(runs.read_text()) + 1 if runs.exists() else 1
runs.write_text(str(count))
info = json.loads(os.environ["KUBERNETES_EXEC_INFO"])
status = {"token": f"{os.environ['PREFIX']}-{count}"}
status.update(json.loads(sys.argv[2]))
(runs.parent / "info.json").write_text(json.dumps(info))
print(json.dumps({"apiVersion": info["apiVersion"], "kind": "ExecCredential", "status": status}))
"""


def exec_user(directory: Path, status: str = "{}", version: str = "v1", **more: Any) -> dict[str, Any]:
    plugin = directory / "plugin.py"
    plugin.write_text(PLUGIN)
    return {
        "exec": {
            "apiVersion": f"client.authentication.k8s.io/{version}",
            "command": sys.executable,
            "args": [str(plugin), str(directory / "runs"), status],
            "env": [{"name": "PREFIX", "value": "t"}],
            "interactiveMode": "IfAvailable",
        }
        | more
    }


async def test_a_plugin_is_run_once_until_its_credential_expires_or_is_refused(
    tmp_path: Path, clock: VirtualClock
) -> None:
    user = exec_user(tmp_path, '{"expirationTimestamp": "2026-01-01T00:10:00Z"}')
    credentials = connect(tmp_path, clock, config(user)).credentials
    assert (await credentials.current()).authorization == "Bearer t-1"
    await clock.advance(599)
    assert (await credentials.current()).authorization == "Bearer t-1"
    await clock.advance(1)
    assert (await credentials.current()).authorization == "Bearer t-2"
    renewed = await credentials.renew()
    assert renewed is not None and renewed.authorization == "Bearer t-3"


async def test_a_plugin_is_told_about_the_cluster_if_it_asks(tmp_path: Path, clock: VirtualClock) -> None:
    user = exec_user(tmp_path, version="v1beta1", provideClusterInfo=True)
    await connect(tmp_path, clock, config(user, {"tls-server-name": "k"})).credentials.current()
    info = yaml.safe_load((tmp_path / "info.json").read_text())
    assert info["apiVersion"] == "client.authentication.k8s.io/v1beta1"
    assert info["spec"] == {
        "interactive": False,
        "cluster": {"server": "https://127.0.0.1:6443", "tls-server-name": "k"},
    }


@pytest.mark.parametrize(
    ("status", "complaint"),
    [
        ('{"token": ""}', "neither a token nor a certificate"),
        ('{"clientCertificateData": "x"}', "only one of certificate and key"),
        ('{"expirationTimestamp": "soon"}', "no time: 'soon'"),
    ],
)
async def test_a_plugin_that_answers_wrongly_is_named(
    tmp_path: Path, clock: VirtualClock, status: str, complaint: str
) -> None:
    credentials = connect(tmp_path, clock, config(exec_user(tmp_path, status))).credentials
    with pytest.raises(Unauthorized, match=complaint):
        await credentials.current()


async def test_a_plugin_that_fails_says_why(tmp_path: Path, clock: VirtualClock) -> None:
    user = exec_user(tmp_path, args=["-c", "import sys; print('no login', file=sys.stderr); sys.exit(3)"])
    with pytest.raises(Unauthorized, match="failed with exit code 3: no login"):
        await connect(tmp_path, clock, config(user)).credentials.current()
    user = exec_user(tmp_path, args=["-c", "print('hello')"])
    with pytest.raises(Unauthorized, match="did not answer with an ExecCredential"):
        await connect(tmp_path, clock, config(user)).credentials.current()
    missing = exec_user(tmp_path, command="./no-such-plugin", installHint="get it from the shop")
    with pytest.raises(Unauthorized, match=r"cannot run the credential plugin .*no-such-plugin") as caught:
        await connect(tmp_path, clock, config(missing)).credentials.current()
    assert caught.value.hint == "get it from the shop"


async def test_what_is_written_is_read_and_only_its_owner_can_read_it(tmp_path: Path, clock: VirtualClock) -> None:
    path = tmp_path / "new" / "config"
    write_kubeconfig(path, name="plane", server="https://127.0.0.1:1", ca=PEM, token="t0ken", namespace="team")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    connection = find_connection(clock=clock, path=path)
    assert (connection.server, connection.ca, connection.namespace) == ("https://127.0.0.1:1", PEM, "team")
    assert connection.credentials == FixedCredentials(Identity("Bearer t0ken"))


def test_writing_keeps_what_else_is_in_the_file(tmp_path: Path, clock: VirtualClock) -> None:
    path = written(tmp_path / "config", config({"token": "t"}) | {"preferences": {"colors": True}})
    path.chmod(0o644)
    write_kubeconfig(path, name="plane", server="https://127.0.0.1:1", certificate=PEM, key=PEM, make_current=False)
    write_kubeconfig(path, name="plane", server="https://127.0.0.1:2", certificate=PEM, key=PEM, make_current=False)
    kubeconfig = read_kubeconfig([path])
    assert (kubeconfig.current_context, kubeconfig.context_names) == ("here", ["here", "plane"])
    assert kubeconfig.connection("plane", clock=clock).server == "https://127.0.0.1:2"
    assert yaml.safe_load(path.read_text())["preferences"] == {"colors": True}
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [file.name for file in tmp_path.iterdir()] == ["config"]


def test_a_broken_file_is_not_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "config"
    path.write_text("a: [")
    with pytest.raises(UsageError, match="is not YAML"):
        write_kubeconfig(path, name="plane", server="https://127.0.0.1:1")
    assert path.read_text() == "a: ["
