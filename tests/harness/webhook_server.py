"""A webhook server with TLS on the loopback, which both engines call: it records reviews and answers as it is told.

It runs in threads of the test's process, so tests with and without an event loop use it alike.
"""

from __future__ import annotations

import base64
import json
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from tests.harness.pki import write_pki

Object = dict[str, Any]
Answer = Callable[[Object], Object | bytes]
"""The `response` to the `request` of a review, without its uid; or bytes, which are the whole body."""


@dataclass
class Heard:
    """One call: where it went and what was sent."""

    path: str
    review: Object

    @property
    def request(self) -> Object:
        return dict(self.review["request"])


@dataclass
class WebhookServer:
    """`answers` are by path; what has none is allowed."""

    port: int
    ca_bundle: str
    answers: dict[str, Answer] = field(default_factory=dict)
    heard: list[Heard] = field(default_factory=list)
    status: int = 200
    raw: Callable[[Any], object] | None = None
    """Writes an answer to the socket's file itself."""

    def url(self, path: str) -> str:
        return f"https://127.0.0.1:{self.port}{path}"

    def client_config(self, path: str) -> Object:
        return {"url": self.url(path), "caBundle": self.ca_bundle}

    def asked(self, path: str) -> list[Object]:
        """The requests that came to a path."""
        return [each.request for each in self.heard if each.path == path]


def patch(*operations: Object) -> Object:
    """A response that allows and patches."""
    return {
        "allowed": True,
        "patchType": "JSONPatch",
        "patch": base64.b64encode(json.dumps(operations).encode()).decode(),
    }


def allowed(_: Object) -> Object | bytes:
    return {"allowed": True}


@contextmanager
def webhook_server(directory: Path) -> Iterator[WebhookServer]:
    pki = directory / "webhook-pki"
    write_pki(pki)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pki / "server.crt", pki / "server.key")
    bundle = base64.b64encode((pki / "ca.crt").read_bytes()).decode()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        timeout = 30

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            path, review = self.path.partition("?")[0], json.loads(body)
            server.heard.append(Heard(path, review))
            if server.raw is not None:
                server.raw(self.wfile)
                self.close_connection = True
                return
            answer = server.answers.get(path, allowed)(review["request"])
            if not isinstance(answer, bytes):
                response = {"uid": review["request"]["uid"], **answer}
                head = {"apiVersion": review["apiVersion"], "kind": review["kind"]}
                answer = json.dumps({**head, "response": response}).encode()
            self.send_response(server.status)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, format: str, *args: Any) -> None:
            """Say nothing."""

    class Server(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, request: Any, client_address: Any) -> None:
            """Whoever calls may hang up whenever they like."""

        def get_request(self) -> tuple[Any, Any]:
            connection, address = self.socket.accept()
            # The handshake happens in the thread that answers: one that hangs must not stop the others.
            return context.wrap_socket(connection, server_side=True, do_handshake_on_connect=False), address

    http = Server(("127.0.0.1", 0), Handler)
    server = WebhookServer(http.server_address[1], bundle)
    thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        http.shutdown()
        http.server_close()
        thread.join(10)
