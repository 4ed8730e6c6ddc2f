"""Compositions: the timeline of their revisions, who uses which, and what two of them differ in."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

import yaml

from planform.api.kinds import Object
from planform.api.names import COMPOSITION, COMPOSITION_NAME_LABEL, COMPOSITION_REVISION
from planform.compositions.revisions import DEFAULT_HISTORY, superfluous
from planform.errors import BadRequest, NotFound
from planform.web import rows
from planform.web.access import Right
from planform.web.actions import READ_ONLY
from planform.web.answers import (
    Allowed,
    CompositionDetail,
    CompositionPage,
    CompositionRow,
    PinnedStep,
    RevisionRow,
    RevisionUsage,
    Sample,
    TwoTexts,
)
from planform.web.context import Looker
from planform.web.mirror import PREVIEW, ROLLOUT_GROUP
from planform.web.overview_views import Query, is_active, one, rollout_brief

_FUNCTION_REF: Final = "functionRef"


def composition_page(looker: Looker) -> CompositionPage:
    found = sorted(looker.mirror.objects["compositions"].values(), key=lambda each: each["metadata"]["name"])
    return CompositionPage(rows=tuple(_row(looker, each) for each in found))


def _row(looker: Looker, composition: Object) -> CompositionRow:
    mirror = looker.mirror
    name = composition["metadata"]["name"]
    type_ref = rows.mapping(rows.mapping(composition.get("spec")).get("compositeTypeRef"))
    used: Mapping[str, int] = mirror.by_composition.get(name, {})
    revisions = mirror.revisions_of(name)
    newest = revisions[-1].name if revisions else ""
    valid = rows.condition_of(composition, "ValidPipeline", "Ready")
    return CompositionRow(
        name=name,
        kind=rows.text(type_ref.get("kind")),
        group=rows.text(type_ref.get("apiVersion")).rpartition("/")[0],
        users=sum(used.values()),
        revisions=len(revisions),
        behind=sum(count for revision, count in used.items() if revision != newest),
        rollout=next((brief.name for brief in _rollouts(looker, name, active=True)), ""),
        created=rows.text(composition["metadata"].get("creationTimestamp")),
        valid=valid.status if valid is not None else "",
    )


def _rollouts(looker: Looker, composition: str, *, active: bool = False) -> list[Any]:
    found = []
    for rollout in looker.mirror.objects["rollouts"].values():
        changes = rows.sequence(rows.mapping(rollout.get("spec")).get("changes"))
        if any(rows.mapping(each).get("composition") == composition for each in changes) and (
            not active or is_active(rollout)
        ):
            found.append(rollout_brief(rollout))
    return found


async def composition_detail(looker: Looker, name: str) -> CompositionDetail:
    client, mirror = looker.upstream.client, looker.mirror
    composition = await client.get(COMPOSITION, name)
    listed = (await client.list(COMPOSITION_REVISION, labels=f"{COMPOSITION_NAME_LABEL}={name}")).items
    listed.sort(key=lambda each: rows.number(rows.mapping(each.get("spec")).get("revision")), reverse=True)
    used = {revision for revision, count in mirror.by_composition.get(name, {}).items() if count > 0}
    doomed = {each["metadata"]["name"] for each in superfluous(composition, listed, used=used, selectors=())}
    found = [_revision(looker, name, each, index == 0, doomed) for index, each in enumerate(listed)]
    limit = rows.mapping(composition.get("spec")).get("revisionHistoryLimit", DEFAULT_HISTORY)
    return CompositionDetail(
        row=_row(looker, composition),
        revisions=tuple(found),
        usage=revision_usage(looker, name),
        functions=tuple(dict.fromkeys(step.function for each in found[:1] for step in each.steps)),
        history_limit=rows.number(limit),
        rollouts=tuple(_rollouts(looker, name)),
        conditions=rows.conditions_of(composition),
        actions=await _actions(looker, name, found[0].name if found else ""),
    )


async def _actions(looker: Looker, name: str, newest: str) -> tuple[Allowed, ...]:
    missing = READ_ONLY if looker.read_only else ""
    if not missing and not await looker.upstream.serves(PREVIEW):
        missing = "this control plane serves no Previews"
    missing = missing or await looker.access.missing(Right("create", ROLLOUT_GROUP, "previews"))
    command = f"planform preview --revision {name}/{newest}"
    detail = f"Runs {newest} beside what each XR runs now, and shows the difference. Nothing is changed."
    return (
        Allowed(
            action="start-preview",
            label="Preview the newest",
            allowed=not missing,
            why=missing,
            command=command,
            detail=detail,
        ),
    )


def _revision(looker: Looker, composition: str, revision: Object, newest: bool, doomed: set[str]) -> RevisionRow:
    name = revision["metadata"]["name"]
    spec = rows.mapping(revision.get("spec"))
    users = looker.mirror.by_composition.get(composition, {}).get(name, 0)
    released, valid = rows.condition_of(revision, "Released"), rows.condition_of(revision, "ValidPipeline")
    keeps = "newest" if newest else f"{users} in use" if users else "" if name in doomed else "within history limit"
    return RevisionRow(
        name=name,
        number=rows.number(spec.get("revision")),
        created=rows.text(revision["metadata"].get("creationTimestamp")),
        users=users,
        newest=newest,
        released="" if released is None else (released.reason or released.status),
        valid=valid.status if valid is not None else "",
        message=valid.message if valid is not None and valid.status != "True" else "",
        steps=tuple(_step(each) for each in rows.sequence(spec.get("pipeline")) if isinstance(each, dict)),
        collectable=name in doomed,
        keeps=keeps,
    )


def _step(step: Mapping[str, Any]) -> PinnedStep:
    reference = rows.mapping(step.get(_FUNCTION_REF))
    pinned = rows.mapping(step.get("functionRevisionRef"))
    selector = rows.mapping(rows.mapping(step.get("functionRevisionSelector")).get("matchLabels"))
    pin = rows.text(pinned.get("name")) or ",".join(f"{key}={value}" for key, value in selector.items())
    return PinnedStep(step=rows.text(step.get("step")), function=rows.text(reference.get("name")), pin=pin)


def revision_usage(looker: Looker, composition: str) -> RevisionUsage:
    """The series with its present end, in the order of the revisions."""
    mirror = looker.mirror
    samples = mirror.series.of(composition)
    now = mirror.now().timestamp()
    if samples:
        samples.append((now, samples[-1][1]))
    seen = {revision for _, counts in samples for revision in counts}
    revisions = sorted(seen, key=lambda each: (mirror.numbers.get(each, 0), each))
    return RevisionUsage(
        revisions=tuple(revisions),
        samples=tuple(
            Sample(
                time=datetime.fromtimestamp(moment, UTC).isoformat(),
                counts=tuple(counts.get(revision, 0) for revision in revisions),
            )
            for moment, counts in samples
        ),
        source="since this dashboard began to look",
    )


async def composition_diff(looker: Looker, name: str, query: Query) -> TwoTexts:
    before, after = one(query, "from"), one(query, "to")
    if not before or not after:
        raise BadRequest("a diff needs two revisions: from and to")
    texts = []
    for revision in (before, after):
        found = await looker.upstream.client.get(COMPOSITION_REVISION, revision)
        if rows.mapping(found["metadata"].get("labels")).get(COMPOSITION_NAME_LABEL) != name:
            raise NotFound(f'Composition "{name}" has no revision "{revision}"')
        spec = {key: value for key, value in rows.mapping(found.get("spec")).items() if key != "revision"}
        texts.append(yaml.safe_dump(spec, sort_keys=False, allow_unicode=True, width=120))
    return TwoTexts(before=texts[0], after=texts[1], before_name=before, after_name=after)
