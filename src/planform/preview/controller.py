"""Runs Previews in the control plane: every process looks at the XRs of its shards, one puts the answers together.

    previews        in the process that leads: checks the author, sets status, merges the shards' reports, deletes
                    what is older than its TTL
    preview-runs    in every process: runs a Preview for each shard that it holds, and writes the shard's reports

All state is in objects. A process that dies in the middle leaves a shard without a complete report, and whoever holds
that shard next runs it again. Nothing is written but Previews' status and PreviewReports.
"""

from __future__ import annotations

from collections.abc import Coroutine, Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any, Final

import msgspec

import planform
from planform.api.conditions import XrCondition, set_conditions
from planform.api.kinds import Object
from planform.api.names import COMPOSITION_REVISION, FUNCTION_REVISION, PREVIEW, PREVIEW_LABEL, PREVIEW_REPORT
from planform.api.previews import PreviewSpec, Summary, release_verdict, verdict
from planform.client.informer import InformerEvent, ObjectKey, list_pages
from planform.client.protocol import Patch, PatchType
from planform.clock import timestamp
from planform.errors import Conflict, NotFound, PlanformError
from planform.functions.resolution import Catalogue
from planform.functions.sending import digest_of
from planform.pipeline.expectation import Expectation, plan_digest
from planform.pipeline.running import Pipelines
from planform.preview.access import BoundedCredentials, check_author, check_readable, known_credentials
from planform.preview.candidate_functions import InstalledFunctions
from planform.preview.candidates import change_digest
from planform.preview.classes import XrResult
from planform.preview.reports import merged, plain, read_report, report_objects, shortened_blast, status_classes
from planform.preview.sessions import Findings, open_previewer, run_preview
from planform.reconcile.context import ControllerContext
from planform.reconcile.controller import Result
from planform.reconcile.sources import Source, to_self
from planform.reconcile.writes import merge
from planform.xrs.index import Definition
from planform.xrs.sharding import PREFIX

NAME: Final = "previews"
RUNS_NAME: Final = "preview-runs"
MANAGER: Final = "planform-previews"
MAX_RUN_SECONDS: Final = 3600.0
MAX_REPORTED_NOTES: Final = 100
_PROGRESS_SECONDS: Final = 0.5
_UNITS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86400}


class PreviewController:
    """Both controllers. `start` is for every process, `lead` for the one that leads."""

    def __init__(self, context: ControllerContext, pipelines: Pipelines, functions: InstalledFunctions) -> None:
        self._context = context
        self._client = context.client
        self._pipelines = pipelines
        self._functions = functions
        self._running: set[ObjectKey] = set()

    def start(self) -> None:
        controller = self._context.controller(RUNS_NAME, self.run, timeout=MAX_RUN_SECONDS)
        self._context.manager.start(controller, [Source(PREVIEW, to_self)])
        if self._context.shards is not None:
            self._context.shards.on_begin(lambda: self._context.manager.revisit(RUNS_NAME))

    def lead(self) -> None:
        controller = self._context.controller(NAME, self.reconcile)
        sources = [
            Source(PREVIEW, to_self),
            Source(PREVIEW_REPORT, _to_preview, coalescing_seconds=0.05),
            Source(COMPOSITION_REVISION, self._to_complete, coalescing_seconds=1.0),
            Source(FUNCTION_REVISION, self._to_complete, coalescing_seconds=1.0),
        ]
        self._complete: set[ObjectKey] = set()
        self._context.manager.start(controller, sources)

    # -- every process: the XRs of its shards

    async def run(self, key: ObjectKey) -> Result:
        """Look at the XRs of every shard that this process holds, unless their report is there."""
        preview = await self._get(key)
        if preview is None or _phase(preview) != "Running":
            return Result()
        shards = self._context.shards
        held = [0] if shards is None else sorted(shards.held)
        count = 1 if shards is None else shards.count
        complete = _complete_shards(await self._reports(key.name, preview))
        for shard in held:
            if shard not in complete:
                await self._run_shard(preview, shard, count)
        return Result()

    async def _run_shard(self, preview: Object, shard: int, count: int) -> None:
        spec = _spec(preview)
        try:
            findings = await self._findings(preview, spec, shard, count)
            for report in report_objects(preview, findings.classes, findings.entries, shard=shard, shards=count):
                await self._client.apply(report, manager=MANAGER, force=True)
        except PlanformError as error:
            if error.retryable or isinstance(error, Conflict):
                raise
            if isinstance(error, NotFound) and await self._get(ObjectKey("", preview["metadata"]["name"])) is None:
                return  # it was deleted while it ran
            await self._set(preview, {"phase": "Failed", "message": str(error)}, _failed(error))
            return
        if findings.notes and shard == min(self._held()):
            fresh = await self._get(ObjectKey("", preview["metadata"]["name"]))
            if fresh is not None:
                await merge(
                    self._client,
                    fresh,
                    {"status": {"findings": findings.notes[:MAX_REPORTED_NOTES]}},
                    subresource="status",
                )

    def _held(self) -> list[int]:
        shards = self._context.shards
        return [0] if shards is None or not shards.held else sorted(shards.held)

    async def _findings(self, preview: Object, spec: PreviewSpec, shard: int, count: int) -> Findings:
        rights, shards = self._context.rights, self._context.shards
        author = await check_author(preview, spec, self._client, rights)

        def owns(definition: Definition, xr: Object) -> bool:
            metadata = xr["metadata"]
            key = ObjectKey(metadata.get("namespace") or "", metadata["name"])
            return shards is None or shards.shard_of(f"{PREFIX}{definition.name}", key) == shard

        async def limited(work: Coroutine[Any, Any, list[XrResult]]) -> list[XrResult]:
            return await self._context.limiter.run(RUNS_NAME, work)

        async with open_previewer(
            spec,
            client=self._client,
            functions=self._functions,
            pipelines=self._pipelines,
            features=self._context.features,
        ) as previewer:
            await check_readable(author, spec, previewer, rights)
            revisions = [each for some in previewer.baseline.revisions.values() for each in some]
            known = known_credentials(revisions)
            previewer.bound_credentials(lambda source: BoundedCredentials(source, author, rights, known))
            report = _Progress(self, preview) if count == 1 else None
            return await run_preview(
                previewer, spec.scope, owns=owns, through=limited, progress=report.tick if report else _silent
            )

    async def note_progress(self, preview: Object, findings: Findings) -> None:
        """Whatever has become of it since: progress is nobody else's field. Raises NotFound once it is deleted."""
        metadata = preview["metadata"]
        progress = {"done": findings.done, "total": findings.total}
        body = {"metadata": {"uid": metadata["uid"]}, "status": {"progress": progress}}
        patch = Patch(PatchType.MERGE, body)
        await self._client.patch(PREVIEW, metadata["name"], patch, subresource="status", manager=MANAGER)

    # -- the process that leads

    async def reconcile(self, key: ObjectKey) -> Result:
        preview = await self._get(key)
        if preview is None or preview["metadata"].get("deletionTimestamp"):
            self._complete.discard(key)
            return Result()
        left = self._seconds_left(preview)
        if left <= 0:
            await self._client.delete(PREVIEW, key.name, uid=preview["metadata"]["uid"])
            return Result()
        match _phase(preview):
            case "":
                await self._begin(preview)
            case "Running":
                await self._complete_if_all_are_there(preview)
            case "Complete":
                self._complete.add(key)
                await self._note_freshness(preview)
        return Result(requeue_after=left)

    async def _begin(self, preview: Object) -> None:
        try:
            spec = _spec(preview)
            await check_author(preview, spec, self._client, self._context.rights)
        except PlanformError as error:
            await self._set(preview, {"phase": "Failed", "message": str(error)}, _failed(error))
            return
        inputs = {
            "candidate": change_digest(spec.change),
            "catalogue": await self._catalogue_digest(),
            "resourceVersion": str(preview["metadata"]["resourceVersion"]),
            "planform": planform.__version__,
        }
        running = XrCondition("Complete", "False", "Running", "XRs are being looked at")
        now = timestamp(self._context.clock.now())
        await self._set(preview, {"phase": "Running", "startTime": now, "inputs": inputs}, [running])

    async def _complete_if_all_are_there(self, preview: Object) -> None:
        reports = await self._reports(preview["metadata"]["name"], preview)
        shards = self._context.shards
        if len(_complete_shards(reports)) < (1 if shards is None else shards.count):
            return
        read = [read_report(each) for each in reports]
        whole = merged(read)
        classes, more = status_classes(whole.classes())
        summary = whole.summary
        expectations = {
            f"{each.kind}/{each.namespace}/{each.name}": msgspec.convert(each.expectation, Expectation)
            for report in read
            for each in report.xrs
        }
        fields: Object = {
            "phase": "Complete",
            "message": None,
            "verdict": (release_verdict if _spec(preview).change.release else verdict)(summary),
            "completionTime": timestamp(self._context.clock.now()),
            "plan": plan_digest(expectations),
            "progress": {"done": summary.xrs, "total": summary.xrs},
            "summary": plain(summary),
            "classes": classes,
            "moreClasses": more,
            "blast": plain(shortened_blast(whole.blast)),
            "reports": len(reports),
        }
        await self._set(preview, fields, conditions_of(summary))

    async def _note_freshness(self, preview: Object) -> None:
        """A Preview stays readable for ever; whether it still holds is a condition."""
        inputs = (preview.get("status") or {}).get("inputs") or {}
        if inputs.get("catalogue") == await self._catalogue_digest():
            return
        words = "Compositions or functions have changed since; XRs whose input is the same may still be judged by it"
        stale = XrCondition("Fresh", "False", "InputsChanged", words)
        await self._set(preview, {}, [stale])

    async def _catalogue_digest(self) -> str:
        """The digest of what all XRs are composed by: the functions that serve, and the revisions there are."""
        found = [
            (each["metadata"]["name"], each["spec"].get("revision"))
            async for page in list_pages(self._client, COMPOSITION_REVISION)
            for each in page.items
        ]
        return f"sha256:{digest_of([_served(self._functions.catalogue()), sorted(found)]).hex()}"

    def _seconds_left(self, preview: Object) -> float:
        status = preview.get("status") or {}
        since = datetime.fromisoformat(str(status.get("completionTime") or preview["metadata"]["creationTimestamp"]))
        end = since + timedelta(seconds=seconds_of(_ttl(preview)))
        return (end - self._context.clock.now()).total_seconds()

    def _to_complete(self, _: InformerEvent) -> Iterable[ObjectKey]:
        return tuple(self._complete)

    # -- both

    async def _get(self, key: ObjectKey) -> Object | None:
        try:
            return await self._client.get(PREVIEW, key.name)
        except NotFound:
            return None

    async def _reports(self, name: str, preview: Object) -> list[Object]:
        found: list[Object] = []
        async for page in list_pages(self._client, PREVIEW_REPORT, labels=f"{PREVIEW_LABEL}={name[:63]}"):
            found += [each for each in page.items if _is_owned(each, preview)]
        return found

    async def _set(self, preview: Object, fields: Mapping[str, Any], conditions: Iterable[XrCondition]) -> None:
        status = preview.get("status") or {}
        now, metadata = timestamp(self._context.clock.now()), preview["metadata"]
        made = set_conditions(
            status.get("conditions") or [], list(conditions), now=now, generation=metadata.get("generation")
        )
        body = {**fields, "conditions": made}
        if all(status.get(key) == value for key, value in body.items()):
            return
        await merge(self._client, preview, {"status": body}, subresource="status", manager=MANAGER)


class _Progress:
    """Tells of a long run every now and then; a reader who is late misses nothing."""

    def __init__(self, controller: PreviewController, preview: Object) -> None:
        self._controller = controller
        self._preview = preview
        self._clock = controller._context.clock
        self._last = self._clock.monotonic()

    async def tick(self, findings: Findings) -> None:
        if self._clock.monotonic() - self._last < _PROGRESS_SECONDS:
            return
        self._last = self._clock.monotonic()
        await self._controller.note_progress(self._preview, findings)


async def _silent(_: Findings) -> None:
    """Nobody is told: shards would tell of each other's progress."""


def conditions_of(summary: Summary) -> list[XrCondition]:
    """What a complete Preview says of itself."""
    missing = summary.not_previewed
    complete = XrCondition("Complete", "True", "AllPreviewed")
    if missing:
        complete = XrCondition("Complete", "False", "NotPreviewed", f"{missing} XRs could not be previewed")
    risky = [
        f"{count} {word}"
        for count, word in (
            (summary.deletes, "delete something"),
            (summary.recreates, "must recreate something"),
            (summary.failed, "would fail"),
            (summary.invalid, "would become invalid"),
        )
        if count
    ]
    acceptable = XrCondition("Acceptable", "True", "NothingRisky")
    if risky:
        acceptable = XrCondition("Acceptable", "False", "Risky", ", ".join(risky))
    return [complete, acceptable, XrCondition("Fresh", "True", "InputsUnchanged")]


def seconds_of(ttl: str) -> float:
    """`7d`, `12h`, `30m` or `45s`."""
    return float(ttl[:-1]) * _UNITS[ttl[-1]]


def _served(catalogue: Catalogue) -> list[list[str]]:
    return [
        [function, version.id, version.digest]
        for function in catalogue.functions
        for version in catalogue.versions(function)
        if version.active
    ]


def _complete_shards(reports: Iterable[Object]) -> set[int]:
    """The shards of which all parts are there."""
    found: dict[int, set[int]] = {}
    wanted: dict[int, int] = {}
    for report in reports:
        spec = read_report(report)
        found.setdefault(spec.shard, set()).add(spec.part)
        wanted[spec.shard] = max(wanted.get(spec.shard, 0), spec.parts)
    return {shard for shard, parts in found.items() if wanted[shard] and len(parts) >= wanted[shard]}


def _failed(error: PlanformError) -> list[XrCondition]:
    return [XrCondition("Complete", "False", error.reason, str(error))]


def _spec(preview: Object) -> PreviewSpec:
    try:
        return msgspec.convert(preview["spec"], PreviewSpec)
    except msgspec.ValidationError as error:
        raise PreviewUnreadable(f"the Preview's spec cannot be read: {error}") from error


class PreviewUnreadable(PlanformError):
    """A Preview that says something its schema should have refused."""

    reason = "InvalidPreview"


def _phase(preview: Mapping[str, Any]) -> str:
    return str((preview.get("status") or {}).get("phase") or "")


def _ttl(preview: Mapping[str, Any]) -> str:
    return str(preview["spec"].get("ttl") or "7d")


def _to_preview(change: InformerEvent) -> Iterable[ObjectKey]:
    owners = change.object["metadata"].get("ownerReferences") or ()
    return [ObjectKey("", each["name"]) for each in owners if each.get("kind") == PREVIEW.kind]


def _is_owned(report: Mapping[str, Any], preview: Mapping[str, Any]) -> bool:
    owners = report["metadata"].get("ownerReferences") or ()
    return any(each.get("uid") == preview["metadata"]["uid"] for each in owners)
