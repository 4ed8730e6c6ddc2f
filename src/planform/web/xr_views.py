"""One XR: its tree, conditions, events, runs, and what may be done to it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Final

from planform.api import names
from planform.api.annotations import is_paused
from planform.api.kinds import GroupVersionKind, Object, gvk
from planform.api.xr import CLAIM_NAME_LABEL, CLAIM_NAMESPACE_LABEL, composition_fields, style_of
from planform.client.resource_tree import Looking, Target
from planform.errors import ApiError, NotFound, PlanformError
from planform.journal.records import RunSummary, read_summaries
from planform.web import rows
from planform.web.actions import xr_actions
from planform.web.answers import EventRow, Reference, RunRow, TreeNode, XrDetail
from planform.web.context import Looker
from planform.web.mirror import Definition
from planform.web.overview_views import is_active

MAX_EVENTS: Final = 50
MAX_RUNS: Final = 20


def target_of(looker: Looker, kind: str, namespace: str, name: str) -> tuple[Definition, Target]:
    """The XR that a link names; raises NotFound for a kind that no XRD defines."""
    definition = looker.mirror.definition_for(kind)
    if definition is None:
        raise NotFound(f'no XRD that you may read defines "{kind}"', hint="planform get xrds lists them")
    return definition, Target(definition.gvk, "" if namespace == "-" else namespace, name)


async def xr_detail(looker: Looker, kind: str, namespace: str, name: str) -> XrDetail:
    definition, target = target_of(looker, kind, namespace, name)
    mirror, upstream = looker.mirror, looker.upstream
    client: Any = upstream.client
    tree = await Looking(client, secrets=True).tree(target)
    xr = tree.object
    assert xr is not None  # `tree` raises otherwise
    events, (runs, note) = await asyncio.gather(events_of(looker, xr), runs_of(looker, xr))
    fields = composition_fields(xr, style_of(xr))
    row = mirror.numbered(rows.xr_row(xr, mirror.numbers))
    shown = rows.tree_node(tree, mirror.xr_kinds())
    newest = mirror.newest_of(row.composition)
    held = next(
        (
            each["metadata"]["name"]
            for each in mirror.objects["rollouts"].values()
            if is_active(each) and row.composition in _changed_by(each)
        ),
        "",
    )
    token = rows.budget_token(xr)
    return XrDetail(
        row=row,
        uid=rows.text(xr["metadata"].get("uid")),
        api_version=rows.text(xr.get("apiVersion")),
        generation=rows.number(xr["metadata"].get("generation")),
        plural=definition.plural,
        conditions=rows.conditions_of(xr),
        tree=shown,
        nodes=_size(shown),
        events=events,
        runs=runs,
        runs_note=note,
        paused=is_paused(xr),
        deleting=rows.text(xr["metadata"].get("deletionTimestamp")),
        budget_token=token,
        update_policy=rows.text(fields.get("compositionUpdatePolicy")) or "Automatic",
        newest_revision=newest.name if newest is not None else "",
        newest_number=newest.number if newest is not None else 0,
        held_by=held,
        parents=_parents(xr, mirror.xr_kinds()),
        claim=_claim(fields, xr),
        actions=await xr_actions(looker, definition, xr, token=token, newest=newest.name if newest is not None else ""),
        links={label: _filled(template, xr) for label, template in looker.links.items()},
    )


def _changed_by(rollout: Mapping[str, Any]) -> set[str]:
    changes = rows.sequence(rows.mapping(rollout.get("spec")).get("changes"))
    return {rows.text(rows.mapping(each).get("composition")) for each in changes}


def _size(node: TreeNode) -> int:
    return 1 + sum(_size(child) for child in node.children)


def _filled(template: str, xr: Object) -> str:
    from urllib.parse import quote

    metadata = xr["metadata"]
    filled = template
    for name, value in (
        ("name", metadata.get("name", "")),
        ("namespace", metadata.get("namespace", "")),
        ("kind", xr.get("kind", "")),
        ("uid", metadata.get("uid", "")),
    ):
        filled = filled.replace("{" + name + "}", quote(str(value), safe=""))
    return filled


def _parents(xr: Object, xr_kinds: frozenset[tuple[str, str]]) -> tuple[Reference, ...]:
    found = []
    for owner in rows.sequence(xr["metadata"].get("ownerReferences")):
        kind = gvk(rows.text(owner.get("apiVersion")), rows.text(owner.get("kind")))
        if (kind.group, kind.kind) in xr_kinds:
            namespace, name = rows.text(xr["metadata"].get("namespace")), rows.text(owner.get("name"))
            link = rows.link_of(kind.group, kind.kind, namespace, name)
            found.append(Reference(kind=kind.kind, namespace=namespace, name=name, link=link))
    return tuple(found)


def _claim(fields: Mapping[str, Any], xr: Object) -> Reference | None:
    claim = rows.mapping(fields.get("claimRef"))
    labels = rows.mapping(xr["metadata"].get("labels"))
    name = rows.text(claim.get("name")) or rows.text(labels.get(CLAIM_NAME_LABEL))
    if not name:
        return None
    namespace = rows.text(claim.get("namespace")) or rows.text(labels.get(CLAIM_NAMESPACE_LABEL))
    return Reference(kind=rows.text(claim.get("kind")) or "Claim", namespace=namespace, name=name, link="")


async def events_of(looker: Looker, obj: Object) -> tuple[EventRow, ...]:
    """Events about an object, the newest first; none if they may not be read."""
    metadata = obj["metadata"]
    namespace = metadata.get("namespace") or "default"
    try:
        listed = await looker.upstream.client.list(
            names.EVENT, namespace=namespace, fields=f"involvedObject.uid={metadata['uid']}", limit=200
        )
    except ApiError:
        return ()
    found = [_event(each) for each in listed.items]
    return tuple(sorted(found, key=lambda each: each.last, reverse=True)[:MAX_EVENTS])


def _event(event: Object) -> EventRow:
    series = rows.mapping(event.get("series"))
    last = event.get("lastTimestamp") or series.get("lastObservedTime") or event.get("eventTime")
    return EventRow(
        type=rows.text(event.get("type")),
        reason=rows.text(event.get("reason")),
        message=rows.text(event.get("message")),
        count=rows.number(event.get("count")) or rows.number(series.get("count")) or 1,
        last=rows.text(last or event["metadata"].get("creationTimestamp")),
        source=rows.text(rows.mapping(event.get("source")).get("component") or event.get("reportingComponent")),
    )


async def runs_of(looker: Looker, obj: Object) -> tuple[tuple[RunRow, ...], str]:
    """The runs of an object, or why there are none to show."""
    try:
        found = read_summaries(await looker.upstream.runs(obj["metadata"]["uid"], limit=str(MAX_RUNS)))
    except NotFound:
        return (), "Runs are recorded by a planform control plane; this one keeps no journal."
    except PlanformError as error:
        return (), f"Runs cannot be read: {error.message}"
    return tuple(run_row(each) for each in found), ""


def run_row(run: RunSummary) -> RunRow:
    return RunRow(
        id=run.id,
        uid=run.uid,
        started=run.started.isoformat(),
        seconds=run.seconds,
        trigger=run.trigger,
        revision=run.composition_revision,
        failure=rows.text(run.failure),
    )


XR_TARGET = tuple[GroupVersionKind, str, str]
