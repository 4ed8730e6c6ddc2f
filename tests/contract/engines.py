"""The two engines as a client sees them: a URL, an authority to trust and some tokens.

Both run as processes of their own and are spoken to over HTTPS, so a case sees exactly what kubectl would. What is
written against `Engine` therefore holds for the embedded engine and for a real kube-apiserver alike, or the difference
stands in `differences.yaml`.
"""

from __future__ import annotations

import base64
import itertools
import json
import socket
import ssl
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from http.client import HTTPException, HTTPMessage, HTTPResponse, HTTPSConnection
from pathlib import Path
from typing import Any, Literal, TypeVar
from urllib.parse import urlencode, urlsplit

import yaml

from tests.harness.kubernetes import ADMIN_TOKEN, USER, USER_TOKEN, RealKubernetes
from tests.harness.processes import running

HERE = Path(__file__).parent
POLL_SECONDS = 0.05
PATIENCE_SECONDS = 45.0
"""How long a state that a controller brings about may take: the real collector looks for new kinds every 30 s."""

JSON = "application/json"
PROTOBUF = "application/vnd.kubernetes.protobuf"
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"
PATCHES = {
    "merge": "application/merge-patch+json",
    "json": "application/json-patch+json",
    "strategic": "application/strategic-merge-patch+json",
    "apply": "application/apply-patch+yaml",
}

Object = dict[str, Any]
Function = TypeVar("Function", bound=Callable[..., Any])
Query = Mapping[str, str | int | Sequence[str]]


@dataclass(frozen=True)
class Response:
    """An answer, whole. `ok` and `refused` say what a case expects of it and give its JSON."""

    status: int
    headers: HTTPMessage
    body: bytes

    @property
    def text(self) -> str:
        return self.body.decode()

    def json(self) -> Any:
        return json.loads(self.body)

    def header(self, name: str) -> str:
        return self.headers.get(name, "")

    @property
    def warnings(self) -> list[str]:
        """The texts of the Warning headers, without code, agent and quotes."""
        return [json.loads(value.split(" ", 2)[2]) for value in self.headers.get_all("Warning") or ()]

    def ok(self, status: int | None = None) -> Any:
        expected = (200, 201) if status is None else (status,)
        assert self.status in expected, f"expected {expected}, got {self.status}: {self.text[:2000]}"
        return self.json()

    def refused(self, status: int, reason: str = "", *texts: str) -> Any:
        """The Status of a refusal with this code and reason, whose message holds each of the texts."""
        assert self.status == status, f"expected {status}, got {self.status}: {self.text[:2000]}"
        answer = self.json()
        assert answer["kind"] == "Status" and answer["status"] == "Failure" and answer["code"] == status, answer
        if reason:
            assert answer["reason"] == reason, answer
        for text in texts:
            assert text in answer["message"], answer["message"]
        return answer


class Stream:
    """An open watch, one event a line. Every wait is bounded; `ended` waits for the server to close."""

    def __init__(self, connection: HTTPSConnection, response: HTTPResponse) -> None:
        self.status, self.headers = response.status, response.headers
        self._connection, self._response = connection, response

    def next(self, *, seconds: float = 15.0) -> Object:
        """The next event; fails if none comes in time or the stream ends."""
        line = self._line(seconds)
        assert line, "the watch ended"
        return dict(json.loads(line))

    def take(self, count: int) -> list[Object]:
        return [self.next() for _ in range(count)]

    def until(self, wanted: Callable[[Object], bool]) -> list[Object]:
        """All events up to the first that is wanted."""
        events: list[Object] = []
        while not events or not wanted(events[-1]):
            events.append(self.next())
        return events

    def rest(self, *, seconds: float = 15.0) -> list[Object]:
        """All events up to the end of the stream."""
        events = []
        while line := self._line(seconds):
            events.append(json.loads(line))
        return events

    def _line(self, seconds: float) -> bytes:
        if self._connection.sock is not None:
            self._connection.sock.settimeout(seconds)
        try:
            return self._response.readline()
        except TimeoutError as error:
            raise AssertionError(f"no event within {seconds} s") from error


@dataclass
class Engine:
    """One running engine. Requests go out as its administrator unless a token says otherwise."""

    name: Literal["embedded", "kubernetes"]
    url: str
    ca_file: Path
    kubeconfig: Path
    authority: Path | None = None
    """The directory with the authority's key where the test owns it, to make client certificates."""
    token: str = ADMIN_TOKEN
    user: str = USER
    user_token: str = USER_TOKEN
    local: threading.local = field(default_factory=threading.local, repr=False)
    names: Iterator[int] = field(default_factory=itertools.count, repr=False)

    def http(
        self,
        method: str,
        path: str,
        body: bytes | str | Object | list[Any] | None = None,
        *,
        query: Query | None = None,
        headers: Mapping[str, str] | None = None,
        token: str | None = None,
    ) -> Response:
        """One request on a kept connection; a dict or list is sent as JSON, and "" as a token sends none."""
        sent = self._headers(body, headers, token)
        content = json.dumps(body).encode() if isinstance(body, dict | list) else body
        target = _target(path, query)
        for attempt in (1, 2):
            connection = getattr(self.local, "connection", None) or self.connect()
            self.local.connection = connection
            try:
                connection.request(method, target, content, sent)
                answer = connection.getresponse()
                response = Response(answer.status, answer.headers, answer.read())
            except (HTTPException, OSError):  # the server closed a kept connection: once more
                connection.close()
                self.local.connection = None
                if attempt == 2:
                    raise
                continue
            if answer.will_close:
                connection.close()
                self.local.connection = None
            return response
        raise AssertionError("not reached")

    def get(self, path: str, *, query: Query | None = None, accept: str = "", token: str | None = None) -> Response:
        return self.http("GET", path, query=query, headers={"Accept": accept} if accept else None, token=token)

    def post(self, path: str, body: Object, *, query: Query | None = None, token: str | None = None) -> Response:
        return self.http("POST", path, body, query=query, token=token)

    def put(self, path: str, body: Object, *, query: Query | None = None, token: str | None = None) -> Response:
        return self.http("PUT", path, body, query=query, token=token)

    def patch(
        self,
        path: str,
        body: Object | list[Any] | str,
        kind: str = "merge",
        *,
        query: Query | None = None,
        token: str | None = None,
    ) -> Response:
        headers = {"Content-Type": PATCHES.get(kind, kind)}
        return self.http("PATCH", path, body, query=query, headers=headers, token=token)

    def apply(
        self, path: str, body: Object, manager: str = "a", *, force: bool = False, query: Query | None = None
    ) -> Response:
        options: dict[str, Any] = {"fieldManager": manager, **({"force": "true"} if force else {}), **(query or {})}
        return self.patch(path, body, "apply", query=options)

    def delete(
        self, path: str, options: Object | None = None, *, query: Query | None = None, token: str | None = None
    ) -> Response:
        return self.http("DELETE", path, options, query=query, token=token)

    @contextmanager
    def watch(self, path: str, *, accept: str = "", **query: Any) -> Iterator[Stream]:
        """A watch of a collection, open when the block begins; without a limit it ends after 60 s."""
        connection = self.connect()
        try:
            headers = self._headers(None, {"Accept": accept} if accept else None, None)
            options: dict[str, Any] = {"watch": "true", "timeoutSeconds": 60, **query}
            connection.request("GET", _target(path, options), headers=headers)
            yield Stream(connection, connection.getresponse())
        finally:
            connection.close()

    def connect(self, certificate: tuple[Path, Path] | None = None) -> HTTPSConnection:
        """A new connection, as the owner of a client certificate and key if given."""
        context = ssl.create_default_context(cafile=str(self.ca_file))
        if certificate is not None:
            context.load_cert_chain(*map(str, certificate))
        address = urlsplit(self.url)
        connection = HTTPSConnection(address.hostname or "", address.port, timeout=30, context=context)
        connection.connect()
        connection.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return connection

    def close(self) -> None:
        """Close the kept connection, so that a server can stop at once."""
        connection = getattr(self.local, "connection", None)
        if connection is not None:
            connection.close()
            self.local.connection = None

    def fresh(self, stem: str = "t") -> str:
        """A name nobody else uses."""
        return f"{stem}-{next(self.names)}-{time.monotonic_ns() % 10**9:09}"

    def new_namespace(self) -> str:
        """A namespace of one's own; nobody waits for its end."""
        name = self.fresh()
        self.post("/api/v1/namespaces", {"metadata": {"name": name}}).ok(201)
        return name

    def eventually(self, path: str, holds: Callable[[Response], bool], *, seconds: float = PATIENCE_SECONDS) -> Any:
        """Read until something holds, and give the JSON it holds for."""
        deadline = time.monotonic() + seconds
        while not holds(response := self.get(path)):
            assert time.monotonic() < deadline, f"{path} after {seconds} s: {response.status} {response.text[:2000]}"
            time.sleep(POLL_SECONDS)
        return response.json() if response.body.startswith(b"{") else response.text

    def gone(self, path: str, *, seconds: float = PATIENCE_SECONDS) -> None:
        self.eventually(path, lambda response: response.status == 404, seconds=seconds)

    def expected(self, case_id: str) -> Any:
        """What this engine does in a case in which the two differ on purpose."""
        return differences()[case_id][self.name]

    def _headers(self, body: Any, headers: Mapping[str, str] | None, token: str | None) -> dict[str, str]:
        sent = {"User-Agent": "contract/1"}
        token = self.token if token is None else token
        if token:
            sent["Authorization"] = f"Bearer {token}"
        if isinstance(body, dict | list):
            sent["Content-Type"] = JSON
        return sent | dict(headers or {})


def _target(path: str, query: Query | None) -> str:
    return path + ("&" if "?" in path else "?") + urlencode(query, doseq=True) if query else path


@cache
def differences() -> dict[str, Object]:
    """The deliberate differences by case id."""
    entries = yaml.safe_load((HERE / "differences.yaml").read_text()) or []
    return {entry["case"]: entry for entry in entries}


def on_kubernetes(cluster: RealKubernetes) -> Engine:
    return Engine("kubernetes", cluster.url, cluster.ca_file, cluster.kubeconfig, cluster.directory / "pki")


@contextmanager
def embedded(directory: Path) -> Iterator[Engine]:
    """A control plane in a process of its own, with the same two tokens as the real cluster."""
    tokens, kubeconfig = directory / "tokens.csv", directory / "kubeconfig"
    tokens.write_text(f'{ADMIN_TOKEN},admin,admin,"system:masters"\n{USER_TOKEN},{USER},{USER}\n')
    tokens.chmod(0o600)
    command = [sys.executable, "-m", "planform", "up", "--ephemeral", "--durability", "normal"]
    command += ["--kubeconfig", str(kubeconfig), "--token-file", str(tokens), "--log-level", "warning"]
    with running(command, directory / "planform.log", name="planform") as child:
        deadline = time.monotonic() + 30
        while "planform is ready" not in child.output():
            assert not child.has_ended() and time.monotonic() < deadline, child.output_tail()
            time.sleep(POLL_SECONDS)
        config = yaml.safe_load(kubeconfig.read_text())
        cluster = config["clusters"][0]["cluster"]
        ca_file = directory / "ca.crt"
        ca_file.write_bytes(base64.b64decode(cluster["certificate-authority-data"]))
        engine = Engine("embedded", cluster["server"], ca_file, kubeconfig)
        yield engine
        engine.close()
        assert not child.has_ended(), child.output_tail()


def case(*rows: str) -> Callable[[Function], Function]:
    """Names the rows of `rows.yaml` that a test is the case of: `@case("6.1-exists")`."""

    def named(function: Function) -> Function:
        function.__dict__["rows"] = rows
        return function

    return named
