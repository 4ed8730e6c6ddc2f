"""Functions and their revisions, with what the control plane's metrics say of their calls."""

from __future__ import annotations

from planform.api.kinds import Object
from planform.api.names import COMPOSITION_NAME_LABEL, COMPOSITION_REVISION, FUNCTION, PACKAGE_LABEL
from planform.builtin.catalogue import find_builtin_name
from planform.errors import ApiError
from planform.web import rows
from planform.web.actions import revision_actions
from planform.web.answers import FunctionDetail, FunctionPage, FunctionRevisionRow, FunctionRow
from planform.web.context import Looker
from planform.web.metrics import Metrics, read_metrics


async def function_page(looker: Looker) -> FunctionPage:
    metrics = await read_metrics(looker)
    objects = looker.mirror.objects["functions"]
    steps = await _steps(looker)
    builtin = {name for name in steps if name not in objects and find_builtin_name(name) is not None}
    found = [_row(looker, name, obj, metrics) for name, obj in sorted(objects.items())]
    found += [_row(looker, name, None, metrics) for name in sorted(builtin)]
    return FunctionPage(rows=tuple(found), metrics=bool(metrics))


def _revisions(looker: Looker, name: str) -> list[Object]:
    found = [
        each
        for each in looker.mirror.objects["functionrevisions"].values()
        if rows.mapping(each["metadata"].get("labels")).get(PACKAGE_LABEL) == name
    ]
    return sorted(found, key=lambda each: rows.number(rows.mapping(each.get("spec")).get("revision")), reverse=True)


def _row(looker: Looker, name: str, obj: Object | None, metrics: Metrics) -> FunctionRow:
    revisions = _revisions(looker, name)
    active = [
        f"r{rows.number(rows.mapping(each.get('spec')).get('revision'))}"
        for each in revisions
        if rows.mapping(each.get("spec")).get("desiredState") == "Active"
    ]
    healthy = rows.condition_of(obj, "Healthy") if obj is not None else None
    calls = metrics.total("function_run_function_response_total", function_name=name)
    builtin = metrics.total("function_run_builtin_total", function_name=name)
    return FunctionRow(
        name=name,
        package=rows.text(rows.mapping((obj or {}).get("spec")).get("package")),
        healthy=healthy.status if healthy is not None else ("" if obj is not None else "True"),
        active=", ".join(active),
        revisions=len(revisions),
        users=int(metrics.total("planform_function_revision_users", function=name)),
        calls=int(calls or builtin),
        errors=int(calls - metrics.total("function_run_function_response_total", function_name=name, grpc_code="OK")),
        milliseconds=metrics.mean("function_run_function_seconds", function_name=name) * 1000,
        cache_hits=int(
            metrics.total("function_run_function_response_cache_lookups_total", function_name=name, reason="Hit")
        ),
        cache_lookups=int(metrics.total("function_run_function_response_cache_lookups_total", function_name=name)),
        builtin=obj is None,
    )


async def function_detail(looker: Looker, name: str) -> FunctionDetail:
    metrics = await read_metrics(looker)
    obj = looker.mirror.objects["functions"].get(name)
    if obj is None and find_builtin_name(name) is None:
        obj = await looker.upstream.client.get(FUNCTION, name)  # raises what is true: missing, or not ours to see
    revisions = []
    for each in _revisions(looker, name):
        revisions.append(await _revision(looker, obj or {}, name, each, metrics))
    return FunctionDetail(
        row=_row(looker, name, obj, metrics),
        conditions=rows.conditions_of(obj or {}),
        policy=rows.text(rows.mapping((obj or {}).get("spec")).get("revisionActivationPolicy")) or "Automatic",
        revisions=tuple(revisions),
        compositions=tuple(sorted((await _steps(looker)).get(name, ()))),
        metrics=bool(metrics),
    )


async def _revision(
    looker: Looker, function: Object, name: str, revision: Object, metrics: Metrics
) -> FunctionRevisionRow:
    spec, own = rows.mapping(revision.get("spec")), rows.text(revision["metadata"]["name"])
    healthy = rows.condition_of(revision, "RevisionHealthy", "Healthy")
    asked = {"function_name": name, "function_revision": own}
    calls = metrics.total("function_run_function_response_total", **asked)
    users = int(metrics.total("planform_function_revision_users", function=name, revision=own))
    desired = rows.text(spec.get("desiredState")) or "Inactive"
    state = desired if desired == "Active" or not users else f"Draining, {users} XRs"
    return FunctionRevisionRow(
        name=own,
        number=rows.number(spec.get("revision")),
        package=rows.text(spec.get("image") or spec.get("package")),
        state=state if desired == "Active" or users else "Drained",
        healthy=healthy.status if healthy is not None else "",
        message=healthy.message if healthy is not None and healthy.status != "True" else "",
        users=users,
        created=rows.text(revision["metadata"].get("creationTimestamp")),
        calls=int(calls),
        errors=int(calls - metrics.total("function_run_function_response_total", **asked, grpc_code="OK")),
        milliseconds=metrics.mean("function_run_function_seconds", **asked) * 1000,
        actions=await revision_actions(looker, function, revision),
    )


async def _steps(looker: Looker) -> dict[str, set[str]]:
    """Functions that the newest revision of a Composition calls, and the Compositions."""
    found: dict[str, set[str]] = {}
    try:
        listed = (await looker.upstream.client.list(COMPOSITION_REVISION)).items
    except ApiError:
        return found
    for revision in listed:
        composition = rows.text(rows.mapping(revision["metadata"].get("labels")).get(COMPOSITION_NAME_LABEL))
        newest = looker.mirror.newest_of(composition)
        if newest is None or newest.name != revision["metadata"]["name"]:
            continue
        for step in rows.sequence(rows.mapping(revision.get("spec")).get("pipeline")):
            function = rows.text(rows.mapping(rows.mapping(step).get("functionRef")).get("name"))
            found.setdefault(function, set()).add(composition)
    return found
