"""The routes of the page's API, and the OpenAPI document that follows from them.

/ui/api/v1/...    typed answers; a refusal is a `Refusal`; every list is filtered and paged here
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from planform.errors import NotFound
from planform.web import (
    answers,
    composition_views,
    control_plane_views,
    function_views,
    operation_views,
    overview_views,
    policy_views,
    preview_views,
    rollout_views,
    run_views,
    xr_views,
)
from planform.web.context import Looker
from planform.web.overview_views import Query

VERSION: Final = "v1"
PREFIX: Final = f"/ui/api/{VERSION}"

View = Callable[[Looker, tuple[str, ...], Query], Awaitable[Any]]


@dataclass(frozen=True, slots=True)
class Route:
    """A path below the prefix; a part in braces is anything. `query` names its parameters."""

    path: str
    answer: type
    view: View
    about: str
    query: tuple[str, ...] = ()

    @property
    def parts(self) -> tuple[str, ...]:
        return tuple(self.path.strip("/").split("/"))


async def _overview(looker: Looker, _: tuple[str, ...], __: Query) -> answers.Overview:
    return await overview_views.overview(looker.mirror)


async def _xrs(looker: Looker, _: tuple[str, ...], query: Query) -> answers.XrPage:
    return await overview_views.xr_page(looker.mirror, query)


async def _search(looker: Looker, _: tuple[str, ...], query: Query) -> answers.SearchPage:
    return await overview_views.search(looker.mirror, query)


async def _xr(looker: Looker, path: tuple[str, ...], _: Query) -> answers.XrDetail:
    return await xr_views.xr_detail(looker, *path)


async def _runs(looker: Looker, path: tuple[str, ...], query: Query) -> answers.RunPage:
    return await run_views.run_page(looker, path[0], query)


async def _run(looker: Looker, path: tuple[str, ...], _: Query) -> answers.RunDetail:
    return await run_views.run_detail(looker, *path)


async def _compositions(looker: Looker, _: tuple[str, ...], __: Query) -> answers.CompositionPage:
    return composition_views.composition_page(looker)


async def _composition(looker: Looker, path: tuple[str, ...], _: Query) -> answers.CompositionDetail:
    return await composition_views.composition_detail(looker, *path)


async def _composition_diff(looker: Looker, path: tuple[str, ...], query: Query) -> answers.TwoTexts:
    return await composition_views.composition_diff(looker, path[0], query)


async def _functions(looker: Looker, _: tuple[str, ...], __: Query) -> answers.FunctionPage:
    return await function_views.function_page(looker)


async def _function(looker: Looker, path: tuple[str, ...], _: Query) -> answers.FunctionDetail:
    return await function_views.function_detail(looker, *path)


async def _rollouts(looker: Looker, _: tuple[str, ...], __: Query) -> answers.RolloutPage:
    return await rollout_views.rollout_page(looker)


async def _rollout(looker: Looker, path: tuple[str, ...], _: Query) -> answers.RolloutDetail:
    return await rollout_views.rollout_detail(looker, *path)


async def _previews(looker: Looker, _: tuple[str, ...], __: Query) -> answers.PreviewPage:
    return await preview_views.preview_page(looker)


async def _preview(looker: Looker, path: tuple[str, ...], _: Query) -> answers.PreviewDetail:
    return await preview_views.preview_detail(looker, *path)


async def _policies(looker: Looker, _: tuple[str, ...], __: Query) -> answers.Policies:
    return await policy_views.policies(looker)


async def _operations(looker: Looker, _: tuple[str, ...], __: Query) -> answers.Operations:
    return await operation_views.operations(looker)


async def _control_plane(looker: Looker, _: tuple[str, ...], __: Query) -> answers.ControlPlane:
    return await control_plane_views.control_plane(looker)


ROUTES: Final = (
    Route("/overview", answers.Overview, _overview, "The fleet in numbers."),
    Route(
        "/xrs",
        answers.XrPage,
        _xrs,
        "XRs that match, what needs attention first.",
        ("q", "kind", "namespace", "health", "revision", "composition", "limit", "continue"),
    ),
    Route("/xrs/{kind}/{namespace}/{name}", answers.XrDetail, _xr, "One XR; `-` is the namespace of what has none."),
    Route("/search", answers.SearchPage, _search, "Anything by parts of its name.", ("q",)),
    Route("/runs/{uid}", answers.RunPage, _runs, "The runs of an object, the newest first.", ("limit",)),
    Route("/runs/{uid}/{id}", answers.RunDetail, _run, "One run, a lane for each step."),
    Route("/compositions", answers.CompositionPage, _compositions, "All Compositions."),
    Route("/compositions/{name}", answers.CompositionDetail, _composition, "One Composition and its revisions."),
    Route("/compositions/{name}/diff", answers.TwoTexts, _composition_diff, "Two revisions as YAML.", ("from", "to")),
    Route("/functions", answers.FunctionPage, _functions, "All functions."),
    Route("/functions/{name}", answers.FunctionDetail, _function, "One function and its revisions."),
    Route("/rollouts", answers.RolloutPage, _rollouts, "All Rollouts, the active ones first."),
    Route("/rollouts/{name}", answers.RolloutDetail, _rollout, "One Rollout: waves, gates, history."),
    Route("/previews", answers.PreviewPage, _previews, "All Previews, the newest first."),
    Route("/previews/{name}", answers.PreviewDetail, _preview, "One Preview: verdict and classes."),
    Route("/policies", answers.Policies, _policies, "RolloutPolicies and ChangeWindows."),
    Route("/operations", answers.Operations, _operations, "Operations and ActionSets."),
    Route("/control-plane", answers.ControlPlane, _control_plane, "Queues, watches, packages, findings."),
)


def route_of(parts: tuple[str, ...]) -> tuple[Route, tuple[str, ...]]:
    """The route of a path and what stands in its braces; raises NotFound."""
    for route in ROUTES:
        wanted = route.parts
        if len(wanted) == len(parts) and all(
            want == part or want.startswith("{") for want, part in zip(wanted, parts, strict=True)
        ):
            return route, tuple(part for want, part in zip(wanted, parts, strict=True) if want.startswith("{"))
    raise NotFound(f"there is nothing at {PREFIX}/{'/'.join(parts)[:200]}")


def openapi(version: str) -> dict[str, Any]:
    """The document, from the routes and the types of their answers."""
    others = (
        answers.Session,
        answers.Login,
        answers.Act,
        answers.Done,
        answers.Link,
        answers.Refusal,
        answers.Changes,
        answers.Live,
    )
    types = [*dict.fromkeys((*(route.answer for route in ROUTES), *others))]
    _, components = msgspec.json.schema_components(types, ref_template="#/components/schemas/{name}")
    refusal = {"description": "Refused.", "content": _content("Refusal")}

    def operation(about: str, answer: str, **more: Any) -> dict[str, Any]:
        said = {"200": {"description": "Done.", "content": _content(answer)}, "default": refusal}
        return {"summary": about, "responses": said, **more}

    paths: dict[str, Any] = {
        "/session": {
            "get": operation("Who looks.", "Session"),
            "post": operation("Log in.", "Session", requestBody={"content": _content("Login")}),
            "delete": operation("Log out.", "Done"),
        },
        "/links": {"post": operation("A one-time code for whoever asks with the API's own credentials.", "Link")},
        "/actions": {"post": operation("Do something.", "Done", requestBody={"content": _content("Act")})},
        "/stream": {
            "get": {
                "summary": "Server-sent events: `changes` (Changes), `live` (Live) and `reload`.",
                "parameters": [_parameter(name) for name in ("topics", "xr", "lastEventId")],
                "responses": {"200": {"description": "Until one side ends it.", "content": {"text/event-stream": {}}}},
            }
        },
    }
    for route in ROUTES:
        named = [part.strip("{}") for part in route.parts if part.startswith("{")]
        parameters = [
            *({"name": each, "in": "path", "required": True, "schema": {"type": "string"}} for each in named),
            *(_parameter(each) for each in route.query),
        ]
        more: dict[str, Any] = {"parameters": parameters} if parameters else {}
        paths[route.path] = {"get": operation(route.about, route.answer.__name__, **more)}
    return {
        "openapi": "3.1.0",
        "info": {"title": "planform dashboard", "version": version},
        "servers": [{"url": PREFIX}],
        "paths": paths,
        "components": {"schemas": components},
    }


def _content(name: str) -> dict[str, Any]:
    return {"application/json": {"schema": {"$ref": f"#/components/schemas/{name}"}}}


def _parameter(name: str) -> dict[str, Any]:
    return {"name": name, "in": "query", "schema": {"type": "string"}}
