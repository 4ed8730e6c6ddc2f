"""The control plane itself: queues, watches, the loop, the journal, packages, and what doctor finds."""

from __future__ import annotations

from typing import Final

import orjson

from planform.errors import PlanformError
from planform.web import rows
from planform.web.answers import ControlPlane, Figure, FindingRow, PackageRow, QueueRow
from planform.web.context import Looker
from planform.web.metrics import Metrics, read_metrics
from planform.web.overview_views import problems

_EXAMINE_SECONDS: Final = 30.0
_TOPICS: Final = ("providers", "functions", "configurations")


async def control_plane(looker: Looker) -> ControlPlane:
    metrics = await read_metrics(looker)
    return ControlPlane(
        server=looker.upstream.server,
        engine=await engine_of(looker),
        version=await version_of(looker),
        figures=tuple(_figures(metrics)) if metrics else (),
        queues=tuple(_queues(metrics)),
        watches={labels.get("kind", ""): int(value) for labels, value in metrics.all("planform_watches")},
        objects={labels.get("resource", ""): int(value) for labels, value in metrics.all("planform_store_objects")},
        findings=await _findings(looker),
        packages=tuple(_packages(looker)),
        problems=problems(looker.mirror),
    )


async def version_of(looker: Looker) -> str:
    known = looker.remembered.get("version")
    if known is not None:
        return str(known[1])
    try:
        found = rows.text(rows.mapping(orjson.loads(await looker.upstream.raw("/version"))).get("gitVersion"))
    except (PlanformError, orjson.JSONDecodeError):
        return ""
    looker.remembered["version"] = (0.0, found)
    return found


async def engine_of(looker: Looker) -> str:
    return "embedded" if "+planform" in await version_of(looker) else "kubernetes"


def _figures(metrics: Metrics) -> list[Figure]:
    lag = metrics.quantile("planform_event_loop_lag_seconds", 0.99) * 1000
    commit = metrics.mean("planform_store_commit_seconds") * 1000
    dropped = int(metrics.total("planform_journal_dropped_runs_total"))
    watches = metrics.total("planform_store_watches") or metrics.total("planform_watches")
    found = (
        ("Event loop lag, p99", lag, "ms", "how late timers wake"),
        ("Commit, mean", commit, "ms", "from the queue to its publication"),
        ("Objects", metrics.total("planform_store_objects"), "", "current objects in the store"),
        ("Writes", metrics.total("planform_store_writes_total"), "", "changes committed since the start"),
        ("Watches", watches, "", "live now"),
        ("Resource version", metrics.total("planform_store_revision"), "", "committed"),
        ("Journal", metrics.total("planform_journal_bytes") / 1_000_000, "MB", "of runs and their parts"),
        ("Runs recorded", metrics.total("planform_journal_runs_total"), "", f"{dropped} dropped"),
    )
    return [Figure(name=name, value=value, unit=unit, note=note) for name, value, unit, note in found]


def _queues(metrics: Metrics) -> list[QueueRow]:
    names = {labels.get("controller", "") for labels, _ in metrics.all("planform_queue_keys")}
    names |= {labels.get("controller", "") for labels, _ in metrics.all("planform_reconcile_total")}
    found = []
    for name in sorted(names):
        states = {
            labels.get("state", ""): int(value) for labels, value in metrics.all("planform_queue_keys", controller=name)
        }
        outcomes = {
            labels.get("outcome", ""): int(value)
            for labels, value in metrics.all("planform_reconcile_total", controller=name)
        }
        found.append(
            QueueRow(
                controller=name,
                waiting=sum(count for state, count in states.items() if state in ("ready", "waiting", "queued")),
                delayed=states.get("delayed", 0) + states.get("backoff", 0),
                active=states.get("active", 0) + states.get("processing", 0) + states.get("in_hand", 0),
                oldest=metrics.total("planform_queue_oldest_seconds", controller=name),
                total=sum(outcomes.values()),
                failed=sum(
                    count for outcome, count in outcomes.items() if outcome not in ("success", "conflict", "done")
                ),
                milliseconds=metrics.mean("planform_reconcile_seconds", controller=name) * 1000,
            )
        )
    return found


async def _findings(looker: Looker) -> tuple[FindingRow, ...]:
    """What `planform doctor` says, asked at most twice a minute: it reads a good part of the control plane."""
    if looker.examine is None:
        return ()
    now = looker.mirror.now().timestamp()
    known = looker.remembered.get("findings")
    if known is not None and now - known[0] < _EXAMINE_SECONDS:
        found: tuple[FindingRow, ...] = known[1]
        return found
    try:
        findings = tuple(await looker.examine(looker.upstream))
    except PlanformError as error:
        return (FindingRow(level="unknown", subject="doctor", message=error.message, hint=error.hint or ""),)
    looker.remembered["findings"] = (now, findings)
    return findings


def _packages(looker: Looker) -> list[PackageRow]:
    found = []
    for topic in _TOPICS:
        for name, obj in sorted(looker.mirror.objects[topic].items()):
            installed, healthy = rows.condition_of(obj, "Installed"), rows.condition_of(obj, "Healthy")
            wrong = next((each for each in (installed, healthy) if each is not None and each.status != "True"), None)
            found.append(
                PackageRow(
                    kind=rows.text(obj.get("kind")),
                    name=name,
                    package=rows.text(rows.mapping(obj.get("spec")).get("package")),
                    installed=installed.status if installed is not None else "",
                    healthy=healthy.status if healthy is not None else "",
                    message=wrong.message if wrong is not None else "",
                )
            )
    return found
