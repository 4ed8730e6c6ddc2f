"""How to reach an API server: read from kubeconfig files or from the pod we run in, and written for others to read.

What a kubeconfig asks for and we do not do (impersonation, proxies, removed auth providers) is refused by name:
silently leaving it out would act as somebody else, or through another network, than the user said.
"""

from __future__ import annotations

import base64
import binascii
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import yaml

from planform.client.credentials import (
    Credentials,
    ExecCredentials,
    ExecPlugin,
    FixedCredentials,
    Identity,
    TokenFile,
    basic_authorization,
)
from planform.clock import Clock
from planform.errors import UsageError

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")

EXEC_VERSIONS = ("client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1")


@dataclass(frozen=True, slots=True)
class Connection:
    """A server, how to trust it and who to be there. `namespace` is the context's, for commands that name none."""

    server: str
    credentials: Credentials
    ca: bytes = b""  # PEM; empty: the system's own certificates
    insecure: bool = False
    tls_server_name: str = ""
    namespace: str = "default"
    context: str = ""


class _Cluster(msgspec.Struct, frozen=True, rename="kebab"):
    server: str = ""
    certificate_authority: str = ""
    certificate_authority_data: str = ""
    insecure_skip_tls_verify: bool = False
    tls_server_name: str = ""
    proxy_url: str = ""


class _EnvVar(msgspec.Struct, frozen=True):
    name: str
    value: str = ""


class _Exec(msgspec.Struct, frozen=True, rename="camel"):
    command: str
    api_version: str = ""
    args: list[str] | None = None
    env: list[_EnvVar] | None = None
    install_hint: str = ""
    provide_cluster_info: bool = False
    interactive_mode: str = ""


class _User(msgspec.Struct, frozen=True, rename={"as_": "as"}):
    client_certificate: str = msgspec.field(default="", name="client-certificate")
    client_certificate_data: str = msgspec.field(default="", name="client-certificate-data")
    client_key: str = msgspec.field(default="", name="client-key")
    client_key_data: str = msgspec.field(default="", name="client-key-data")
    token: str = ""
    token_file: str = msgspec.field(default="", name="tokenFile")
    username: str = ""
    password: str = ""
    exec: _Exec | None = None
    auth_provider: Any = msgspec.field(default=None, name="auth-provider")
    as_: Any = None
    as_uid: Any = msgspec.field(default=None, name="as-uid")
    as_groups: Any = msgspec.field(default=None, name="as-groups")
    as_user_extra: Any = msgspec.field(default=None, name="as-user-extra")


class _Context(msgspec.Struct, frozen=True, rename="kebab"):
    cluster: str = ""
    user: str = ""
    namespace: str = ""


class _NamedCluster(msgspec.Struct, frozen=True):
    name: str
    cluster: _Cluster


class _NamedUser(msgspec.Struct, frozen=True):
    name: str
    user: _User


class _NamedContext(msgspec.Struct, frozen=True):
    name: str
    context: _Context


class _File(msgspec.Struct, frozen=True, rename="kebab"):
    current_context: str = ""
    clusters: list[_NamedCluster] | None = None
    users: list[_NamedUser] | None = None
    contexts: list[_NamedContext] | None = None


@dataclass
class Kubeconfig:
    """Several files as one: the first that names something decides. Paths are relative to the file they stand in."""

    sources: tuple[Path, ...]
    current_context: str = ""
    clusters: dict[str, tuple[_Cluster, Path]] = field(default_factory=dict)
    users: dict[str, tuple[_User, Path]] = field(default_factory=dict)
    contexts: dict[str, _Context] = field(default_factory=dict)

    @property
    def context_names(self) -> list[str]:
        return sorted(self.contexts)

    def connection(self, context: str = "", *, clock: Clock) -> Connection:
        """The connection of a context, by default the current one; raises UsageError naming what is wrong."""
        name = context or self.current_context
        if not name:
            raise self._wrong(
                "it sets no current context", f"choose one of: {', '.join(self.context_names) or '(none)'}"
            )
        if name not in self.contexts:
            raise self._wrong(f'it has no context "{name}"', f"known: {', '.join(self.context_names) or '(none)'}")
        chosen = self.contexts[name]
        if chosen.cluster not in self.clusters:
            raise self._wrong(f'context "{name}" names cluster "{chosen.cluster}", which is not there')
        if chosen.user and chosen.user not in self.users:
            raise self._wrong(f'context "{name}" names user "{chosen.user}", which is not there')
        cluster, cluster_file = self.clusters[chosen.cluster]
        user, user_file = self.users.get(chosen.user, (_User(), Path()))
        where = f'cluster "{chosen.cluster}"'
        if not cluster.server.startswith(("https://", "http://")):
            raise self._wrong(f"{where}: server {cluster.server!r} is no http(s) address")
        if cluster.proxy_url:
            raise self._wrong(f"{where}: proxy-url is not supported", "reach the server without a proxy")
        ca = _data_or_file(cluster.certificate_authority_data, cluster.certificate_authority, cluster_file, where)
        if ca and cluster.insecure_skip_tls_verify:
            raise self._wrong(f"{where}: a certificate-authority and insecure-skip-tls-verify exclude each other")
        return Connection(
            server=cluster.server.rstrip("/"),
            credentials=self._credentials(chosen.user, user, user_file, cluster, ca, clock),
            ca=ca,
            insecure=cluster.insecure_skip_tls_verify,
            tls_server_name=cluster.tls_server_name,
            namespace=chosen.namespace or "default",
            context=name,
        )

    def _credentials(
        self, name: str, user: _User, file: Path, cluster: _Cluster, ca: bytes, clock: Clock
    ) -> Credentials:
        where = f'user "{name}"'
        for attribute, field_name in _REFUSED.items():
            if getattr(user, attribute):
                raise self._wrong(f"{where}: {field_name} is not supported", "remove it, or use another user")
        certificate = _data_or_file(user.client_certificate_data, user.client_certificate, file, where)
        key = _data_or_file(user.client_key_data, user.client_key, file, where)
        if bool(certificate) != bool(key):
            raise self._wrong(f"{where}: a client certificate needs its key, and the key its certificate")
        if user.exec is not None:
            if user.token or user.token_file or user.username or certificate:
                raise self._wrong(f"{where}: exec excludes every other credential")
            return ExecCredentials(self._plugin(where, user.exec, file, cluster, ca), clock=clock)
        if user.token_file:
            base = Identity("", certificate, key)
            return TokenFile(_beside(file, user.token_file), clock=clock, base=base)
        authorization = ""
        if user.token:
            authorization = f"Bearer {user.token}"
        elif user.username:
            authorization = basic_authorization(user.username, user.password)
        return FixedCredentials(Identity(authorization, certificate, key))

    def _plugin(self, where: str, spec: _Exec, file: Path, cluster: _Cluster, ca: bytes) -> ExecPlugin:
        if spec.api_version not in EXEC_VERSIONS:
            raise self._wrong(f"{where}: exec.apiVersion {spec.api_version!r} is not one of {', '.join(EXEC_VERSIONS)}")
        if spec.interactive_mode == "Always":
            raise self._wrong(f"{where}: exec.interactiveMode Always needs a terminal, and there is none here")
        cluster_info: dict[str, Any] = {"server": cluster.server}
        if cluster.tls_server_name:
            cluster_info["tls-server-name"] = cluster.tls_server_name
        if cluster.insecure_skip_tls_verify:
            cluster_info["insecure-skip-tls-verify"] = True
        if ca:
            cluster_info["certificate-authority-data"] = base64.b64encode(ca).decode()
        return ExecPlugin(
            api_version=spec.api_version,
            command=str(_beside(file, spec.command)) if "/" in spec.command else spec.command,
            args=tuple(spec.args or ()),
            env={variable.name: variable.value for variable in spec.env or ()},
            install_hint=spec.install_hint.strip(),
            cluster=cluster_info if spec.provide_cluster_info else None,
        )

    def _wrong(self, what: str, hint: str | None = None) -> UsageError:
        files = ", ".join(map(str, self.sources)) or "no file"
        return UsageError(f"kubeconfig {files}: {what}", hint=hint)


_REFUSED = {
    "auth_provider": "auth-provider",
    "as_": "as (impersonation)",
    "as_uid": "as-uid (impersonation)",
    "as_groups": "as-groups (impersonation)",
    "as_user_extra": "as-user-extra (impersonation)",
}


def read_kubeconfig(paths: Sequence[Path]) -> Kubeconfig:
    """Merge kubeconfig files; those that do not exist are passed over. Raises UsageError for one that is not one."""
    merged = Kubeconfig(tuple(path for path in paths if path.exists()))
    for path in merged.sources:
        file = _parse(path)
        merged.current_context = merged.current_context or file.current_context
        for cluster in file.clusters or ():
            merged.clusters.setdefault(cluster.name, (cluster.cluster, path))
        for user in file.users or ():
            merged.users.setdefault(user.name, (user.user, path))
        for context in file.contexts or ():
            merged.contexts.setdefault(context.name, context.context)
    return merged


def find_connection(
    *,
    clock: Clock,
    path: Path | None = None,
    context: str = "",
    environ: Mapping[str, str] = os.environ,
    home: Path | None = None,
    service_account: Path = SERVICE_ACCOUNT,
) -> Connection:
    """The way kubectl finds a cluster: the file named, else KUBECONFIG, else ~/.kube/config, else the pod we are in."""
    if path is not None:
        if not path.exists():
            raise UsageError(f"kubeconfig {path} does not exist")
        return read_kubeconfig([path]).connection(context, clock=clock)
    if named := environ.get("KUBECONFIG"):
        paths = [Path(part) for part in named.split(os.pathsep) if part]
    else:
        paths = [(home or Path.home()) / ".kube" / "config"]
    kubeconfig = read_kubeconfig(paths)
    if kubeconfig.sources:
        return kubeconfig.connection(context, clock=clock)
    if environ.get("KUBERNETES_SERVICE_HOST") and not context:
        return in_cluster(clock=clock, environ=environ, directory=service_account)
    raise UsageError(
        f"no cluster: none of {', '.join(map(str, paths))} exists, and this is not a pod",
        hint="set KUBECONFIG, or start a control plane with `planform up`",
    )


def in_cluster(
    *, clock: Clock, environ: Mapping[str, str] = os.environ, directory: Path = SERVICE_ACCOUNT
) -> Connection:
    """The server of the cluster whose pod we run in, as the pod's service account."""
    host, port = environ.get("KUBERNETES_SERVICE_HOST", ""), environ.get("KUBERNETES_SERVICE_PORT", "443")
    token, ca, namespace = directory / "token", directory / "ca.crt", directory / "namespace"
    if not host or not token.exists():
        raise UsageError(f"not inside a cluster: KUBERNETES_SERVICE_HOST or {token} is missing")
    return Connection(
        server=f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}",
        credentials=TokenFile(token, clock=clock, base=Identity()),
        ca=ca.read_bytes() if ca.exists() else b"",
        namespace=namespace.read_text().strip() if namespace.exists() else "default",
        context="in-cluster",
    )


def write_kubeconfig(
    path: Path,
    *,
    name: str,
    server: str,
    ca: bytes = b"",
    token: str = "",
    certificate: bytes = b"",
    key: bytes = b"",
    namespace: str = "",
    make_current: bool = True,
) -> None:
    """Add a cluster, a user and a context of this name to a kubeconfig, and leave all else in it as it is.

    The file is readable by its owner alone and replaced in one step: a reader sees the old one or the new one.
    """
    document: dict[str, Any] = {"apiVersion": "v1", "kind": "Config"}
    if path.exists():
        _parse(path)
        document |= yaml.load(path.read_text(), Loader=_LOADER) or {}
    cluster: dict[str, Any] = {"server": server}
    if ca:
        cluster["certificate-authority-data"] = base64.b64encode(ca).decode()
    user: dict[str, Any] = {}
    if token:
        user["token"] = token
    if certificate:
        user["client-certificate-data"] = base64.b64encode(certificate).decode()
        user["client-key-data"] = base64.b64encode(key).decode()
    context = {"cluster": name, "user": name} | ({"namespace": namespace} if namespace else {})
    for listing, entry in (("clusters", "cluster"), ("users", "user"), ("contexts", "context")):
        kept = [item for item in document.get(listing) or () if item.get("name") != name]
        body = {"cluster": cluster, "user": user, "context": context}[entry]
        document[listing] = [*kept, {"name": name, entry: body}]
    if make_current or not document.get("current-context"):
        document["current-context"] = name
    import tempfile  # late: commands read these files, and few write one

    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")  # made with mode 0600
    try:
        with os.fdopen(descriptor, "w") as file:
            yaml.dump(document, file, Dumper=_DUMPER, sort_keys=False)
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_DUMPER: Any = getattr(yaml, "CSafeDumper", yaml.SafeDumper)


def _parse(path: Path) -> _File:
    try:
        return msgspec.convert(yaml.load(path.read_text(), Loader=_LOADER) or {}, _File)
    except OSError as error:
        raise UsageError(f"cannot read kubeconfig {path}: {error.strerror}") from error
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
        raise UsageError(f"kubeconfig {path} is not YAML: {where}{error.problem or error.context}") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise UsageError(f"kubeconfig {path} is not YAML: {' '.join(str(error).split())}") from error
    except msgspec.ValidationError as error:
        raise UsageError(f"{path} is no kubeconfig: {error}") from error


def _data_or_file(data: str, path: str, base: Path, where: str) -> bytes:
    """Inline data wins over a file, as it does for kubectl."""
    if data:
        try:
            return base64.b64decode("".join(data.split()), validate=True)
        except (binascii.Error, ValueError) as error:
            raise UsageError(f"kubeconfig {base}: {where}: inline data is not base64") from error
    if not path:
        return b""
    file = _beside(base, path)
    try:
        return file.read_bytes()
    except OSError as error:
        raise UsageError(f"kubeconfig {base}: {where}: cannot read {file}: {error.strerror}") from error


def _beside(file: Path, path: str) -> Path:
    return file.parent / path
