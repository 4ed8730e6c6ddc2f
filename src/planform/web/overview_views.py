"""The fleet, its XRs and search: all from what the mirror holds, in slices that leave the loop to others."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator, Mapping
from typing import Final

from planform.errors import BadRequest
from planform.web import rows
from planform.web.answers import (
    Found,
    KindSummary,
    Overview,
    Problem,
    RevisionCount,
    RolloutBrief,
    SearchPage,
    XrPage,
    XrRow,
)
from planform.web.mirror import Definition, Mirror

MAX_LIMIT: Final = 500
SLICE: Final = 1000
MAX_FOUND: Final = 30
MAX_NAMED: Final = 8
_RANK: Final = {
    "NotSynced": 0, "Deviating": 1, "NotReady": 2, "Unknown": 3, "Deleting": 4, "Paused": 5, "Ready": 9,
}  # fmt: skip
"""What needs attention comes first."""

Query = Mapping[str, list[str]]


def one(query: Query, name: str) -> str:
    return query.get(name, [""])[0]


async def overview(mirror: Mirror) -> Overview:
    health: dict[str, int] = {}
    for (_, state), count in mirror.health.items():
        if count:
            health[state] = health.get(state, 0) + count
    kinds = [_kind(mirror, each) for each in sorted(mirror.definitions.values(), key=lambda each: each.gvk.kind)]
    unhealthy = [
        f"{obj.get('kind')}/{name}"
        for topic in ("functions", "providers", "configurations")
        for name, obj in mirror.objects[topic].items()
        if (found := rows.condition_of(obj, "Healthy")) is not None and found.status != "True"
    ]
    return Overview(
        as_of=mirror.now().isoformat(),
        synced=mirror.is_live,
        total=len(mirror.rows),
        health=health,
        kinds=tuple(kinds),
        rollouts=tuple(rollout_brief(each) for each in mirror.objects["rollouts"].values() if is_active(each)),
        packages_unhealthy=tuple(sorted(unhealthy)),
        problems=problems(mirror),
        definitions=len(mirror.definitions),
    )


def problems(mirror: Mirror) -> tuple[Problem, ...]:
    """Kinds that this user may not see, and other refusals. That a kind is not served is no problem."""
    found = []
    narrowed: dict[tuple[tuple[str, ...], int], list[str]] = {}
    for gvk, error in mirror.failures().items():
        if getattr(error, "code", 0) == 404:
            continue
        if namespaces := mirror.narrowed.get(gvk):
            narrowed.setdefault((namespaces, mirror.beyond.get(gvk, 0)), []).append(gvk.kind)
            continue
        hint = ""
        if _forbidden(error):
            hint = f"ask for the right to list and watch {gvk.kind}s"
            if gvk in mirror.narrowed:
                hint += "; or, if you have it in one namespace: planform dashboard --namespace NAME"
        found.append(Problem(what=gvk.kind, message=rows.text(error.message), hint=hint or (error.hint or "")))
    return (*(_narrowed(kinds, *where) for where, kinds in narrowed.items()), *found)


def _narrowed(kinds: list[str], namespaces: tuple[str, ...], beyond: int) -> Problem:
    named = ", ".join(namespaces[:MAX_NAMED])
    more = len(namespaces) - MAX_NAMED
    where = f"{named} and {more} more" if more > 0 else named
    left = f"; {beyond} more that you may read are too many to watch" if beyond else ""
    return Problem(
        what=", ".join(sorted(kinds)),
        message=f"shown for the namespaces that you may read: {where}{left}",
        hint="planform dashboard --namespace NAME puts one first",
    )


def _forbidden(error: Exception) -> bool:
    return getattr(error, "code", 0) == 403


def is_active(rollout: Mapping[str, object]) -> bool:
    phase = rows.text(rows.mapping(rollout.get("status")).get("phase"))
    return phase not in ("Completed", "Aborted", "Undone", "Failed", "Superseded")


def rollout_brief(rollout: Mapping[str, object]) -> RolloutBrief:
    spec, status = rows.mapping(rollout.get("spec")), rows.mapping(rollout.get("status"))
    counts = rows.mapping(status.get("counts"))
    changes = [rows.mapping(each) for each in rows.sequence(spec.get("changes"))]
    return RolloutBrief(
        name=rows.text(rows.mapping(rollout.get("metadata")).get("name")),
        phase=rows.text(status.get("phase")) or "Pending",
        composition=", ".join(rows.text(each.get("composition")) for each in changes),
        target=rows.number(counts.get("target")),
        total=rows.number(counts.get("xrs")),
        waiting=rows.text(rows.mapping(status.get("waiting")).get("for")),
    )


def _kind(mirror: Mirror, definition: Definition) -> KindSummary:
    id_ = f"{definition.gvk.kind}.{definition.gvk.group}"
    states = {state: count for (kind, state), count in mirror.health.items() if kind == id_ and count}
    used = {(comp, rev): count for (kind, comp, rev), count in mirror.usage.items() if kind == id_ and count}
    compositions = sorted({composition for composition, _ in used if composition})
    newest = {each: mirror.newest_of(each) for each in compositions}
    revisions = [
        RevisionCount(
            name=revision,
            number=mirror.numbers.get(revision, 0),
            count=count,
            newest=(last := newest.get(composition)) is not None and last.name == revision,
        )
        for (composition, revision), count in used.items()
    ]
    return KindSummary(
        id=id_,
        kind=definition.gvk.kind,
        group=definition.gvk.group,
        definition=definition.name,
        total=sum(states.values()),
        health=states,
        compositions=tuple(compositions),
        revisions=tuple(sorted(revisions, key=lambda each: (-each.number, each.name))),
    )


Key = tuple[int, str, str, str]


def _key(row: XrRow) -> Key:
    return _RANK.get(row.health, 3), row.kind, row.namespace, row.name


async def xr_page(mirror: Mirror, query: Query) -> XrPage:
    """XRs that match, what needs attention first; `continue` goes on behind a row, whatever changed meanwhile."""
    limit = one(query, "limit") or "100"
    if not (limit.isascii() and limit.isdecimal() and 0 < int(limit[:6]) <= MAX_LIMIT):
        raise BadRequest(f'limit must be a number from 1 to {MAX_LIMIT}, not "{limit}"')
    after = _cursor(one(query, "continue"))
    matching, later = 0, []
    event = f"{mirror.epoch}.{mirror.sequence}"
    async for row in _matching(mirror, query):
        matching += 1
        key = _key(row)
        if after is None or key > after:
            later.append((key, row))
    later.sort(key=lambda each: each[0])
    shown = later[: int(limit)]
    return XrPage(
        rows=tuple(mirror.numbered(row) for _, row in shown),
        next=_token(shown[-1][0]) if len(later) > len(shown) else "",
        matching=matching,
        total=len(mirror.rows),
        event=event,
    )


async def _matching(mirror: Mirror, query: Query) -> AsyncIterator[XrRow]:
    words = one(query, "q").lower().split()[:8]
    kind, namespace, health = one(query, "kind"), one(query, "namespace"), one(query, "health")
    revision, composition = one(query, "revision"), one(query, "composition")
    states = frozenset(health.split(",")) if health else None
    if states is not None and "attention" in states:
        states = frozenset(_RANK) - {"Ready"}
    for index, row in enumerate(list(mirror.rows.values())):
        if index % SLICE == SLICE - 1:
            await asyncio.sleep(0)  # a large fleet must not keep the loop to itself
        if (
            (not kind or f"{row.kind}.{row.group}" == kind)
            and (not namespace or row.namespace == namespace)
            and (states is None or row.health in states)
            and (not revision or row.revision == revision)
            and (not composition or row.composition == composition)
            and all(_has(row, word) for word in words)
        ):
            yield row


def _has(row: XrRow, word: str) -> bool:
    """A word stands in the name, kind, namespace, revision or claim, or is a label (`team=pay`, or part of either)."""
    if word in row.name.lower() or word in row.kind.lower() or word in row.namespace or word in row.revision:
        return True
    return word in row.claim or any(word in f"{key}={value}".lower() for key, value in row.labels.items())


async def search(mirror: Mirror, query: Query) -> SearchPage:
    """XRs, Compositions, functions, rollouts and previews by parts of their names."""
    words = one(query, "q").lower().split()[:8]
    found: list[Found] = []
    if not words:
        return SearchPage(found=(), more=0)
    for topic, kind, path in (
        ("compositions", "Composition", "/composition/"),
        ("functions", "Function", "/function/"),
        ("rollouts", "Rollout", "/rollout/"),
        ("previews", "Preview", "/preview/"),
    ):
        for name in sorted(mirror.objects[topic]):
            if all(word in name.lower() or word in kind.lower() for word in words):
                found.append(Found(kind=kind, name=name, namespace="", health="", link=path + name))
    matching = []
    async for row in _matching(mirror, {"q": [one(query, "q")]}):
        matching.append(row)
    matching.sort(key=_key)
    found += [
        Found(
            kind=row.kind,
            name=row.name,
            namespace=row.namespace,
            health=row.health,
            link=rows.link_of(row.group, row.kind, row.namespace, row.name),
        )
        for row in matching[:MAX_FOUND]
    ]
    return SearchPage(found=tuple(found[:MAX_FOUND]), more=max(0, len(found) + len(matching) - 2 * MAX_FOUND))


def _token(key: Key) -> str:
    return base64.urlsafe_b64encode("\x00".join(str(part) for part in key).encode()).decode()


def _cursor(token: str) -> Key | None:
    if not token:
        return None
    try:
        rank, kind, namespace, name = base64.urlsafe_b64decode(token).decode().split("\x00")
        return int(rank), kind, namespace, name
    except ValueError as error:
        raise BadRequest("continue is not what this server gave") from error
