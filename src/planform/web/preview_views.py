"""Previews: the verdict, classes of change with the risky ones first, and what was not previewed."""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import orjson

from planform.api.kinds import Object
from planform.api.xr import listed
from planform.errors import PlanformError
from planform.web import rows
from planform.web.actions import READ_ONLY
from planform.web.answers import (
    Allowed,
    ChangeClass,
    NotPreviewed,
    PreviewDetail,
    PreviewPage,
    PreviewRow,
    Reference,
)
from planform.web.context import Looker
from planform.web.mirror import PREVIEW, PREVIEW_REPORT, Mirror
from planform.web.rollout_views import xr_link

MAX_LISTED: Final = 100
MAX_DIFF: Final = 20_000
_RISKS: Final = {"Deletes": 0, "Recreates": 1, "Fails": 2, "Failed": 2, "": 9}


async def preview_page(looker: Looker) -> PreviewPage:
    found = sorted((_row(each) for each in looker.mirror.objects["previews"].values()), key=lambda row: row.created)
    return PreviewPage(rows=tuple(reversed(found)), served=await looker.upstream.serves(PREVIEW))


def verdict(summary: Mapping[str, Any]) -> str:
    """`987 unchanged, 11 changed (2 delete something)`."""
    count = {name: rows.number(value) for name, value in summary.items()}
    parts = [f"{count.get('unchanged', 0):,} unchanged", f"{count.get('changed', 0):,} changed"]
    notes = [
        f"{count[name]:,} {words}"
        for name, words in (("deletes", "delete something"), ("recreates", "recreate something"))
        if count.get(name)
    ]
    if notes:
        parts[-1] += f" ({', '.join(notes)})"
    for name, words in (
        ("failed", "would fail"),
        ("invalid", "would be invalid"),
        ("mended", "would be mended"),
        ("notPreviewed", "not previewed"),
    ):
        if count.get(name):
            parts.append(f"{count[name]:,} {words}")
    return ", ".join(parts)


def _row(preview: Object) -> PreviewRow:
    spec, status = rows.mapping(preview.get("spec")), rows.mapping(preview.get("status"))
    summary = rows.mapping(status.get("summary"))
    return PreviewRow(
        name=rows.text(preview["metadata"].get("name")),
        phase=rows.text(status.get("phase")) or "Pending",
        created=rows.text(preview["metadata"].get("creationTimestamp")),
        verdict=verdict(summary) if summary else "",
        change=_change(rows.mapping(spec.get("change"))),
        xrs=rows.number(summary.get("xrs")),
        changed=rows.number(summary.get("changed")),
        deletes=rows.number(summary.get("deletes")) + rows.number(summary.get("recreates")),
    )


def _change(change: Mapping[str, Any]) -> str:
    if revision := rows.mapping(change.get("revision")):
        return f"Composition {rows.text(revision.get('composition'))} at {rows.text(revision.get('name'))}"
    if revisions := [rows.mapping(each) for each in rows.sequence(change.get("revisions"))]:
        return "Compositions " + listed([rows.text(each.get("composition")) for each in revisions])
    if revision := rows.mapping(change.get("functionRevision")):
        return f"Function {rows.text(revision.get('function'))} at {rows.text(revision.get('name'))}"
    manifests = [rows.mapping(each) for each in rows.sequence(change.get("manifests"))]
    shown = [
        f"{rows.text(each.get('kind'))} {rows.text(rows.mapping(each.get('metadata')).get('name'))}"
        for each in manifests
    ]
    return ", ".join(shown[:3]) + (f" and {len(shown) - 3} more" if len(shown) > 3 else "")


async def preview_detail(looker: Looker, name: str) -> PreviewDetail:
    preview = looker.mirror.objects["previews"].get(name) or await looker.upstream.client.get(PREVIEW, name)
    status = rows.mapping(preview.get("status"))
    reports, note = await _reports(looker, preview)
    blast = rows.mapping(status.get("blast"))
    entries = [rows.mapping(each) for report in reports for each in rows.sequence(_part(report, "xrs"))]
    link = _links(looker.mirror, entries)
    classes = sorted(
        (_class(each, reports, link) for each in map(rows.mapping, rows.sequence(status.get("classes")))),
        key=lambda each: (_RISKS.get(each.risk, 5), -each.xrs),
    )
    row = _row(preview)
    return PreviewDetail(
        row=row,
        summary={rows.text(key): rows.number(value) for key, value in rows.mapping(status.get("summary")).items()},
        classes=tuple(classes),
        more_classes=rows.number(status.get("moreClasses")),
        blast_namespaces=rows.number(blast.get("namespaces")),
        blast_kinds=_counts(blast.get("kinds")),
        blast_teams=_counts(blast.get("teams")),
        conditions=rows.conditions_of(preview),
        inputs={rows.text(key): rows.text(value) for key, value in rows.mapping(status.get("inputs")).items()},
        not_previewed=tuple(
            NotPreviewed(xr=_xr(each), link=link(_xr(each)), reason=rows.text(each.get("message")))
            for each in entries
            if each.get("outcome") in ("NotPreviewed", "Failed", "Invalid")
        )[:MAX_LISTED],
        drifting=tuple(_xr(each) for each in entries if each.get("drifting"))[:MAX_LISTED],
        unstable=tuple(_xr(each) for each in entries if each.get("unstable"))[:MAX_LISTED],
        markdown=markdown(row, classes, carry_out(preview)[1]),
        reports_note=note,
        actions=await _actions(looker, preview),
    )


def _counts(value: object) -> dict[str, int]:
    return {rows.text(key): rows.number(count) for key, count in rows.mapping(value).items()}


def _xr(entry: Mapping[str, Any]) -> str:
    if isinstance(entry.get("xr"), str):
        return rows.text(entry["xr"])
    namespace, name = rows.text(entry.get("namespace")), rows.text(entry.get("name"))
    return f"{rows.text(entry.get('kind'))} {namespace + '/' if namespace else ''}{name}".strip()


def _links(mirror: Mirror, entries: list[Mapping[str, Any]]) -> Callable[[str], str]:
    """Links of XRs as Previews name them: `team-a/pay` or `Database team-a/pay`; one that may be two has none."""
    groups: dict[str, set[str]] = {}
    for definition in mirror.definitions.values():
        groups.setdefault(definition.gvk.kind, set()).add(definition.gvk.group)
    kinds: dict[str, set[str]] = {}
    for entry in entries:
        kinds.setdefault(_xr(entry).partition(" ")[2], set()).add(rows.text(entry.get("kind")))

    def link(xr: str) -> str:
        kind, _, key = xr.rpartition(" ")
        found = {kind} if kind else kinds.get(key, set())
        if len(found) != 1:
            return ""
        (kind,) = found
        if "." not in kind and len(groups.get(kind, ())) == 1:
            kind = f"{kind}.{next(iter(groups[kind]))}"
        return xr_link(f"{kind} {key}")

    return link


async def _reports(looker: Looker, preview: Object) -> tuple[list[Object], str]:
    """The Preview's reports: they hold the diffs of all namespaces, and few may read them."""
    uid = preview["metadata"].get("uid")
    try:
        listed = (await looker.upstream.client.list(PREVIEW_REPORT)).items
    except PlanformError as error:
        return [], f"Diffs are in PreviewReports: {error.message}"
    await asyncio.sleep(0)
    return [each for each in listed if _owned(each, uid)], ""


def _owned(report: Object, uid: object) -> bool:
    return any(each.get("uid") == uid for each in rows.sequence(report["metadata"].get("ownerReferences")))


def _part(report: Object, name: str) -> Any:
    return (
        report.get(name) or rows.mapping(report.get("spec")).get(name) or rows.mapping(report.get("status")).get(name)
    )


def _class(fields: Mapping[str, Any], reports: list[Object], link: Callable[[str], str]) -> ChangeClass:
    id_ = rows.text(fields.get("id"))
    changes = rows.sequence(fields.get("changes"))
    for report in reports:
        for each in map(rows.mapping, rows.sequence(_part(report, "classes"))):
            if each.get("id") == id_ and not changes:
                changes = rows.sequence(each.get("changes"))
    examples = [rows.text(each) for each in rows.sequence(fields.get("examples"))]
    return ChangeClass(
        id=id_,
        xrs=rows.number(fields.get("xrs")),
        risk=rows.text(fields.get("risk")),
        change=rows.text(fields.get("change")),
        diff=rows.text("\n".join(line for each in changes for line in diff_lines(rows.mapping(each))), MAX_DIFF),
        examples=tuple(Reference(kind="", namespace="", name=each, link=link(each)) for each in examples[:20]),
    )


def diff_lines(change: Mapping[str, Any]) -> Iterator[str]:
    """One object's change as lines of a diff: a head, then a line for each side of each field."""
    action, resource = rows.text(change.get("action")), rows.text(change.get("resource"))
    head = f'{rows.text(change.get("kind"))} "{resource}" {action.lower()}'.strip()
    yield {"Create": "+", "Creates": "+", "Delete": "-", "Deletes": "-"}.get(action, "") + head
    for field in map(rows.mapping, rows.sequence(change.get("fields"))):
        for sign, side in (("-", "before"), ("+", "after")):
            if side in field:
                yield f"{sign}  {rows.text(field.get('path'))}: {_shown(field[side])}"
    if forced := rows.text(change.get("forcedBy")):
        yield f"  forced by {forced}"


def _shown(value: object) -> str:
    return value if isinstance(value, str) else orjson.dumps(value, default=str).decode()


def markdown(row: PreviewRow, classes: list[ChangeClass], command: str) -> str:
    """What one pastes into a pull request."""
    lines = [f"**{row.verdict or row.phase}** for {row.change}", ""]
    if classes:
        lines += ["| XRs | change | risk |", "|---:|---|---|"]
        lines += [f"| {each.xrs} | {_cell(each.change)} | {each.risk or '-'} |" for each in classes]
    lines += ["", f"Preview `{row.name}`; carry it out: `{command}`"]
    return "\n".join(lines)


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def carry_out(preview: Object) -> tuple[str, str]:
    """What has the previewed change happen: in words, and as a command."""
    change = rows.mapping(rows.mapping(preview.get("spec")).get("change"))
    if revision := rows.mapping(change.get("revision")):
        composition = shlex.quote(rows.text(revision.get("composition")))
        return "Start its rollout", f"planform rollout start {composition}"
    if revision := rows.mapping(change.get("functionRevision")):
        function, name = (shlex.quote(rows.text(revision.get(key))) for key in ("function", "name"))
        return "Activate the revision", f"planform function activate {function} --revision {name}"
    return "Apply it", "planform apply -f DIR"


async def _actions(looker: Looker, preview: Object) -> tuple[Allowed, ...]:
    label, command = carry_out(preview)
    detail = "XRs move in the waves of the policy that holds their Composition; without a policy, at once."
    why = READ_ONLY if looker.read_only else "carry it out with the command"
    return (Allowed(action="start-rollout", label=label, allowed=False, why=why, command=command, detail=detail),)
