"""What is served besides resources: discovery, OpenAPI, health, version and metrics."""

from __future__ import annotations

import platform
from collections.abc import Awaitable, Callable, Mapping
from datetime import timedelta
from email.utils import format_datetime

import orjson

from planform import __version__
from planform.api import builtin
from planform.api.kinds import Kind
from planform.apiserver.verbs.core import Core
from planform.apiserver.wire import discovery, openapi
from planform.apiserver.wire.http import HttpRequest, HttpResponse
from planform.apiserver.wire.negotiation import accepted
from planform.apiserver.wire.routes import OtherPath
from planform.errors import NotFound

Check = Callable[[], str | None]
"""A health check: None when all is well, else what is wrong in a few words."""

Mount = Callable[[HttpRequest, str, Mapping[str, list[str]]], Awaitable[HttpResponse]]
"""Answers everything below a path that somebody else brings: the request, its path and its query."""

_CACHED = [(b"cache-control", b"public"), (b"vary", b"Accept")]
_NOT_FOUND = HttpResponse(404, b"404 page not found\n", content_type=b"text/plain; charset=utf-8")


class NonResourceEndpoints:
    """Answers GETs of everything that is not a resource; what follows from the registry is built once a change."""

    def __init__(
        self,
        core: Core,
        *,
        address: Callable[[], str],
        metrics: Callable[[bool], str],
        live: Mapping[str, Check] | None = None,
        ready: Mapping[str, Check] | None = None,
        mounts: Mapping[tuple[str, ...], Mount] | None = None,
    ) -> None:
        self._core = core
        self._address = address
        self._metrics = metrics
        self._live = dict(live or {})
        self._ready = dict(ready or {})
        self._mounts = dict(mounts or {})
        self._cache: dict[str, tuple[bytes, str]] = {}
        core.registry.on_change(self._cache.clear)

    async def answer(self, request: HttpRequest, path: OtherPath, query: Mapping[str, list[str]]) -> HttpResponse:  # noqa: C901  (a table)
        match path.parts:
            case ():
                return self._document(request, "/", lambda: discovery.root_paths(self._kinds()))
            case ("healthz" | "livez" as name,):
                return _health(name, self._live, path, query)
            case ("readyz" as name,):
                return _health(name, {**self._live, **self._ready}, path, query)
            case ("healthz" | "livez" | "readyz" as name, check):
                checks = self._live if name != "readyz" else {**self._live, **self._ready}
                if check not in checks and check != "ping":
                    return _NOT_FOUND
                return _health(name, {check: checks.get(check, lambda: None)}, path, query)
            case ("version",):
                return HttpResponse(200, orjson.dumps(version_info(), option=orjson.OPT_INDENT_2) + b"\n")
            case ("metrics",):
                opened = "openmetrics" in request.header(b"accept")
                kind = b"application/openmetrics-text; version=1.0.0" if opened else b"text/plain; version=0.0.4"
                return HttpResponse(200, self._metrics(opened).encode(), content_type=kind + b"; charset=utf-8")
            case ("api",):
                return self._discovery_root(request, core=True)
            case ("apis",):
                return self._discovery_root(request, core=False)
            case ("api", version):
                return self._resources(request, "", version)
            case ("apis", group):
                document = discovery.group(self._kinds(), group)
                return self._document(request, f"/apis/{group}", lambda: document) if document else _NOT_FOUND
            case ("apis", group, version):
                return self._resources(request, group, version)
            case ("openapi", "v2"):
                if "proto-openapi.spec.v2" in request.header(b"accept"):
                    return HttpResponse(200, openapi.SWAGGER_PROTOBUF, content_type=openapi.SWAGGER_PROTOBUF_TYPE)
                return self._document(request, "/openapi/v2", self._swagger)
            case ("openapi", "v3"):
                return self._document(request, "/openapi/v3", self._openapi_index)
            case ("openapi", "v3", *rest):
                return self._openapi_document(request, "/".join(rest), query)
            case parts:
                for prefix, mount in self._mounts.items():
                    if parts[: len(prefix)] == prefix:
                        return await mount(request, path.path, query)
                return _NOT_FOUND

    def _kinds(self) -> list[Kind]:
        return [served.kind for served in self._core.registry]

    def _described(self) -> dict[str, list[openapi.Described]]:
        """The served kinds by group version, as OpenAPI needs them."""
        found: dict[str, list[openapi.Described]] = {}
        for served in self._core.registry:
            described = openapi.Described(served.kind, None if served.builtin else served.openapi)
            found.setdefault(openapi.path_of(served.kind.group, served.kind.version), []).append(described)
        return found

    def _discovery_root(self, request: HttpRequest, *, core: bool) -> HttpResponse:
        form = accepted(request.header(b"accept"), discovery=True)
        path = "/api" if core else "/apis"
        if form.shape == "APIGroupDiscoveryList":
            response = self._document(
                request,
                f"{path} {form.version}",
                lambda: discovery.aggregated(
                    [kind for kind in self._kinds() if (kind.group == "") is core],
                    core=core,
                    version=form.version,  # type: ignore[arg-type]  # `accepted` lets only v2 and v2beta1 through
                ),
            )
            response.content_type = form.content_type
            return response
        if core:
            return self._document(
                request, path, lambda: discovery.core_versions(self._kinds(), server_address=self._address())
            )
        return self._document(request, path, lambda: discovery.group_list(self._kinds()))

    def _resources(self, request: HttpRequest, group: str, version: str) -> HttpResponse:
        document = discovery.resource_list(self._kinds(), group, version)
        if document is None:
            return _NOT_FOUND
        return self._document(request, f"/apis/{group}/{version}", lambda: document)

    # -- OpenAPI

    def _swagger(self) -> Mapping[str, object]:
        return openapi.swagger(openapi.document(kinds) for kinds in self._described().values())

    def _openapi_index(self) -> Mapping[str, object]:
        return openapi.index({path: openapi.fingerprint(kinds) for path, kinds in self._described().items()})

    def _openapi_document(self, request: HttpRequest, name: str, query: Mapping[str, list[str]]) -> HttpResponse:
        kinds = self._described().get(name)
        if kinds is None:
            raise NotFound("the server could not find the requested resource")
        tag = openapi.fingerprint(kinds)
        wanted = query.get("hash", [""])[0]
        if wanted and wanted != tag:
            return HttpResponse(301, headers=[(b"location", f"/openapi/v3/{name}?hash={tag}".encode())])
        headers = [(b"etag", b'"%s"' % tag.encode()), (b"vary", b"Accept")]
        if wanted:
            later = format_datetime(self._core.clock.now() + timedelta(days=365), usegmt=True)
            headers += [(b"cache-control", b"public, immutable"), (b"expires", later.encode())]
        if _unchanged(request, tag):
            return HttpResponse(304, headers=headers)
        key = f"openapi/v3/{name}"
        if key not in self._cache:
            self._cache[key] = discovery.encode(openapi.document(kinds))
        return HttpResponse(200, self._cache[key][0], headers)

    def _document(self, request: HttpRequest, key: str, build: Callable[[], Mapping[str, object]]) -> HttpResponse:
        if key not in self._cache:
            self._cache[key] = discovery.encode(dict(build()))
        body, tag = self._cache[key]
        headers = [*_CACHED, (b"etag", tag.encode())]
        if _unchanged(request, tag):
            return HttpResponse(304, headers=headers)
        return HttpResponse(200, body, headers)


def version_info() -> dict[str, str]:
    """What /version says: the Kubernetes API this server speaks, with planform's own version as build metadata."""
    spoken = builtin.kubernetes_version()
    major, minor, _ = spoken.removeprefix("v").split(".", 2)
    return {
        "major": major,
        "minor": minor,
        "gitVersion": f"{spoken}+planform-{__version__}",
        "gitCommit": "",
        "gitTreeState": "clean",
        "buildDate": "1970-01-01T00:00:00Z",
        "goVersion": f"python{platform.python_version()}",
        "compiler": platform.python_implementation().lower(),
        "platform": f"{platform.system().lower()}/{platform.machine()}",
    }


def _health(name: str, checks: Mapping[str, Check], path: OtherPath, query: Mapping[str, list[str]]) -> HttpResponse:
    if path.trailing_slash:
        return _NOT_FOUND
    problems = {check: problem for check, run in checks.items() if (problem := run()) is not None}
    if "verbose" not in query and not problems:
        return HttpResponse(200, b"ok", content_type=b"text/plain; charset=utf-8")
    lines = ["[+]ping ok"] if "ping" not in checks else []
    lines += [f"[-]{check} failed: {problems[check]}" if check in problems else f"[+]{check} ok" for check in checks]
    lines.append(f"{name} check {'failed' if problems else 'passed'}")
    text = "\n".join(lines) + "\n"
    return HttpResponse(500 if problems else 200, text.encode(), content_type=b"text/plain; charset=utf-8")


def _unchanged(request: HttpRequest, tag: str) -> bool:
    return request.header(b"if-none-match").strip('W/"') == tag.strip('"')
