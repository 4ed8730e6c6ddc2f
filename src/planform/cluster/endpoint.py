"""What a kubelet and Prometheus ask a replica: `/metrics`, and how it is doing.

`/livez` says that the process answers. `/healthz` goes red when a controller is disconnected: a watch of it has been
down for so long that changes go unheard. `/readyz` says whether the API server may send admission reviews here.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from planform.apiserver.wire.handler import refusal
from planform.apiserver.wire.http import HttpRequest, HttpResponse, HttpServer, Limits
from planform.errors import UsageError
from planform.reconcile.sources import Watches
from planform.telemetry.metrics import MetricsRegistry

Check = Callable[[], str | None]
"""What is wrong now, in words; None if nothing is."""

DISCONNECTED_SECONDS = 60.0
"""So long may a watch be down before the replica is unhealthy: longer than any restart of an API server should take."""

_TEXT = b"text/plain; charset=utf-8"
_METRICS = b"text/plain; version=0.0.4; charset=utf-8"
_OPEN_METRICS = b"application/openmetrics-text; version=1.0.0; charset=utf-8"


@dataclass
class Health:
    """The checks of one replica, which come and go with what they are about."""

    live: dict[str, Check] = field(default_factory=dict)
    ready: dict[str, Check] = field(default_factory=dict)

    def hears(self, name: str, watches: Watches) -> None:
        """Red while one of these watches is down for too long."""

        def disconnected() -> str | None:
            scopes = watches.disconnected(DISCONNECTED_SECONDS)
            if not scopes:
                return None
            kinds = ", ".join(sorted({f"{scope.gvk.kind}.{scope.gvk.group}".rstrip(".") for scope in scopes}))
            return f"no watch of {kinds} for more than {DISCONNECTED_SECONDS:g} s"

        self.live[name] = disconnected

    def forget(self, name: str) -> None:
        self.live.pop(name, None)


@asynccontextmanager
async def open_endpoint(host: str, port: int, health: Health, metrics: MetricsRegistry) -> AsyncIterator[int]:
    """Serve until the block ends; gives the port, which matters where 0 was asked for."""

    async def handle(request: HttpRequest) -> HttpResponse:
        path, _, query = request.target.decode("latin-1").partition("?")
        match path:
            case "/metrics":
                opened = "openmetrics" in request.header(b"accept")
                body = metrics.render(openmetrics=opened).encode()
                return HttpResponse(200, body, content_type=_OPEN_METRICS if opened else _METRICS)
            case "/livez":
                return _answer("livez", {}, query)
            case "/healthz":
                return _answer("healthz", health.live, query)
            case "/readyz":
                return _answer("readyz", health.ready, query)
        return refusal(404, f"{path}: there is /metrics, /livez, /healthz and /readyz")

    server = HttpServer(handle, refusal, limits=Limits(connections=100, body_bytes=1024))
    try:
        bound = await server.start(host, port)
    except OSError as error:
        raise UsageError(
            f"cannot listen on {host}:{port}: {error.strerror or error}", hint="choose another with --listen HOST:PORT"
        ) from error
    try:
        yield bound
    finally:
        await server.stop(grace=1.0)


def _answer(name: str, checks: Mapping[str, Check], query: str) -> HttpResponse:
    problems = {check: problem for check, run in checks.items() if (problem := run()) is not None}
    if not problems and "verbose" not in query:
        return HttpResponse(200, b"ok", content_type=_TEXT)
    lines = [f"[-]{check} failed: {problems[check]}" if check in problems else f"[+]{check} ok" for check in checks]
    lines.append(f"{name} check {'failed' if problems else 'passed'}")
    return HttpResponse(500 if problems else 200, ("\n".join(lines) + "\n").encode(), content_type=_TEXT)
