"""A preview that a control plane runs: a Preview is created, followed, and its reports are read."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

import msgspec

from planform.api.kinds import Object
from planform.api.metadata import name_of
from planform.api.names import PREVIEW, PREVIEW_LABEL, PREVIEW_REPORT
from planform.api.previews import Blast, ChangeClass, Summary
from planform.cli.previews.answers import Answer
from planform.client.informer import list_pages
from planform.client.protocol import Client
from planform.errors import Forbidden, PlanformError
from planform.preview.reports import merged, read_report

_LOOK_SECONDS: Final = 0.2

OnProgress = Callable[[int, int], None]


class PreviewFailed(PlanformError):
    """A control plane could not run a Preview."""

    reason = "PreviewFailed"


async def create(client: Client, spec: Object, name: str = "") -> Object:
    """A new Preview, not answered yet."""
    metadata: Object = {"name": name} if name else {"generateName": "preview-"}
    body = {"apiVersion": PREVIEW.api_version, "kind": PREVIEW.kind, "metadata": metadata, "spec": spec}
    return await client.create(body)


async def followed(client: Client, name: str, on_progress: OnProgress) -> Object:
    """The Preview once it is answered. Raises PreviewFailed."""
    while True:
        found = await client.get(PREVIEW, name)
        status = found.get("status") or {}
        progress = status.get("progress") or {}
        on_progress(progress.get("done", 0), progress.get("total", 0))
        if status.get("phase") == "Complete":
            return found
        if status.get("phase") == "Failed":
            raise PreviewFailed(f'preview "{name}": {status.get("message", "")}')
        await asyncio.sleep(_LOOK_SECONDS)


async def read_answer(client: Client, preview: Object) -> Answer:
    """What the Preview found out, in full if the caller may read its reports."""
    status, name = preview["status"], name_of(preview)
    answer = Answer(
        preview=name,
        verdict=status.get("verdict", ""),
        summary=msgspec.convert(status.get("summary") or {}, Summary),
        classes=msgspec.convert(status.get("classes") or [], list[ChangeClass]),
        more_classes=status.get("moreClasses") or 0,
        blast=msgspec.convert(status.get("blast") or {}, Blast),
        findings=list(status.get("findings") or ()),
    )
    try:
        labels = f"{PREVIEW_LABEL}={name[:63]}"
        reports = [
            read_report(each) async for page in list_pages(client, PREVIEW_REPORT, labels=labels) for each in page.items
        ]
    except Forbidden:
        answer.notes.append("diffs are left out: you may not read PreviewReports, which hold all namespaces' changes")
        return answer
    answer.classes, answer.more_classes = merged(reports).classes(), 0
    answer.xrs = [each for report in reports for each in report.xrs]
    return answer
