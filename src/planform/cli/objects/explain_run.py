"""`planform explain-run`: what each step of a pipeline run did, with which function revision, and why."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import click
import msgspec

from planform.api.kinds import Object
from planform.api.metadata import name_of, namespace_of, uid_of
from planform.cli import completing
from planform.cli.connection import Connected, connection_options, run
from planform.cli.objects.problems import problems_of
from planform.cli.output import output_option, say, table, write_data
from planform.clock import SystemClock, timestamp
from planform.errors import Forbidden, NotFound, PlanformError, UsageError
from planform.functions.tracebacks import TRACEBACK, traceback_lines
from planform.journal.explaining import (
    XR,
    ResourceChange,
    changes_by_step,
    explanation,
    find_key,
    history_of,
    keys_of,
    planned_for,
    ready_by_step,
)
from planform.journal.files import open_read_only
from planform.journal.records import Read, Run, RunSummary, StepRun, read_run, read_summaries
from planform.journal.serving import MAX, PATH
from planform.journal.tables import run_of, runs_named, runs_of

_SIGNS = {"added": "+", "changed": "~", "removed": "-"}


class RunNotFound(PlanformError):
    """The journal holds no such run."""

    reason = "RunNotFound"

    def __init__(self, what: str, hint: str) -> None:
        super().__init__(f"the journal holds no run of {what}")
        self.hint = hint


@click.command(name="explain-run")
@click.argument("kind", shell_complete=completing.objects)
@click.argument("name", default="", shell_complete=completing.objects)
@click.option(
    "-n", "--namespace", default="", help="Namespace.  [default: the context's]", shell_complete=completing.namespaces
)
@click.option("--run", "number", type=int, default=0, metavar="ID", help="Which run.  [default: the latest]")
@click.option("--list", "listing", is_flag=True, help="List the runs that are kept, the newest first.")
@click.option("--resource", default="", metavar="KEY", help="Only this resource: why it exists and looks as it does.")
@click.option(
    "--journal",
    type=click.Path(dir_okay=False, path_type=Path),
    default=None,
    help="Read this file instead of asking the control plane.",
)
@output_option("text", "json", "yaml", default="text")
@connection_options
def explain_run(
    kind: str,
    name: str,
    namespace: str,
    number: int,
    listing: bool,
    resource: str,
    journal: Path | None,
    output: str,
    kubeconfig: Path | None,
    context: str,
) -> None:
    """Show what each step of a run added, changed or removed: `planform explain-run xbucket logs`.

    Tells which revision of each function ran and why that one, what it read, how long it took, and with --resource
    which steps made a composed resource what it is. Secret values are not in the journal.
    """
    word, slash, after = kind.partition("/")
    name = after if slash else name
    if not name:
        raise UsageError("which object?", hint="planform explain-run KIND NAME")
    if listing and (number or resource):
        raise UsageError("--list lists all runs", hint="leave out --run and --resource")

    now: list[str] = []

    async def act(connected: Connected) -> Run | list[RunSummary]:
        obj = await _object(connected, word, namespace, name)
        now.extend(problems_of(obj, SystemClock().now()))
        uid = uid_of(obj)
        if listing:
            return read_summaries(await _get(connected, obj, f"{PATH}/{uid}", limit=str(MAX)))
        try:
            return read_run(await _get(connected, obj, f"{PATH}/{uid}/{number or 'latest'}"))
        except RunNotFound:
            for each in now:  # its first run has not ended, or never began: this is why
                say(each)
            raise

    if journal is not None:
        found = _from_file(journal, word, namespace, name, number, listing=listing)
    else:
        found = run(kubeconfig, context, act)
    if isinstance(found, list):
        _show_list(found, output)
        return
    key = _key(found, resource) if resource else ""
    if output != "text":
        told = {"problems": now} if now else {}
        write_data({**(_only(explanation(found), key) if key else explanation(found)), **told}, output)
    else:
        click.echo("\n".join(_resource_lines(found, key) if key else [*_lines(found), *_now_lines(now)]))


async def _object(connected: Connected, word: str, namespace: str, name: str) -> Object:
    kind = await connected.find_kind(word)
    place = (namespace or connected.namespace) if kind.namespaced else ""
    return await connected.client.get(kind.gvk, name, namespace=place)


async def _get(connected: Connected, obj: Object, path: str, **query: str) -> bytes:
    name, namespace = name_of(obj), namespace_of(obj)
    try:
        return await connected.ask_control_plane(path, namespace=namespace, **query)
    except NotFound as error:
        if "holds no run" in error.message:
            raise RunNotFound(name, "has its pipeline run? --list shows the runs that are kept") from error
        raise UsageError(
            f"{connected.server} serves no journal",
            hint="planform's controllers do, with --webhook-listen; or name its file with --journal FILE",
        ) from error
    except Forbidden as error:
        error.hint = f"runs show what functions were sent; let a ClusterRole `get` the nonResourceURL {PATH}/*"
        raise


def _from_file(
    path: Path, word: str, namespace: str, name: str, number: int, *, listing: bool
) -> Run | list[RunSummary]:
    database = open_read_only(path)
    try:
        latest = [each for each in runs_named(database, namespace, name) if _is_meant(each.kind, word)]
        if not latest:
            raise RunNotFound(f"{word}/{name}", "a namespaced object needs -n NAMESPACE")
        if listing:
            return runs_of(database, latest[0].uid, MAX)
        found = run_of(database, number or latest[0].id)
    finally:
        database.close()
    if found is None or found.uid not in {each.uid for each in latest}:
        raise RunNotFound(f"{word}/{name} with the id {number}", "--list shows the runs that are kept")
    return found


def _show_list(runs: Sequence[RunSummary], output: str) -> None:
    if output != "text":
        write_data([msgspec.to_builtins(each) for each in runs], output)
        return
    rows = [
        (
            each.id,
            timestamp(each.started),
            _time(each.seconds),
            each.composition_revision,
            each.trigger,
            each.failure or "ok",
        )
        for each in runs
    ]
    click.echo(table(("RUN", "STARTED", "TOOK", "REVISION", "BECAUSE", "OUTCOME"), rows))


def _is_meant(kind: str, word: str) -> bool:
    """Whether `xbucket`, `xbuckets` or `XBucket.example.org` means `XBucket.example.org`."""
    name, _, group = kind.lower().partition(".")
    wanted, _, wanted_group = word.lower().partition(".")
    return wanted in (name, f"{name}s", f"{name}es") and wanted_group in ("", group)


def _key(run: Run, word: str) -> str:
    key = find_key(run, word)
    if key is None:
        known = ", ".join(keys_of(run)) or "none"
        raise UsageError(f'the run knew no resource "{word}"', hint=f"it knew: {known}")
    return key


def _only(explained: Object, key: str) -> Object:
    """The explanation of one resource."""
    steps = [
        {**step, "resources": {key: step["resources"][key]} if key in step["resources"] else {}}
        for step in explained["steps"]
        if key in step["resources"] or key in step["ready"]
    ]
    return {**explained, "steps": steps, "plan": [each for each in explained["plan"] if each["resource"] == key]}


# -- words for people


def _lines(run: Run) -> Iterator[str]:
    yield from _head(run)
    explained = [
        (step, changes, ready) for (step, changes), ready in zip(changes_by_step(run), ready_by_step(run), strict=True)
    ]
    yield ""
    yield table(
        ("STEP", "FUNCTION", "REVISION", "BY RULE", "CALLS", "CACHE", "TIME", "CHANGES"),
        [_step_row(step, changes, ready) for step, changes, ready in explained],
    )
    for step, changes, ready in explained:
        details = list(_step_lines(step, changes, ready))
        if details:
            yield ""
            yield click.style(step.step, bold=True)
            yield from (f"  {line}" for line in details)
    if run.plan is not None:
        yield ""
        yield click.style("plan", bold=True)
        yield from (f"  {line}" for line in _plan_lines(run)) if run.plan else ["  nothing"]
    for warning in run.warnings:
        yield f"warning: {warning}"


def _head(run: Run) -> Iterator[str]:
    place = f" ({run.namespace})" if run.namespace else ""
    yield f"{run.kind}/{run.name}{place}  run {run.id}"
    yield f"  started    {timestamp(run.started)}, took {_time(run.seconds)}"
    if run.trigger:
        yield f"  because    {run.trigger}"
    if run.composition_revision:
        yield f"  revision   {run.composition_revision}"
    yield f"  outcome    {run.failure or 'ok'}"


def _step_row(step: StepRun, changes: Sequence[ResourceChange], ready: Mapping[str, bool]) -> tuple[object, ...]:
    short = [f"{_SIGNS[change.action]}{change.key or 'XR'}" for change in changes]
    short += [f"{'ready' if is_ready else 'unready'} {key}" for key, is_ready in ready.items()]
    short += [f"~context {key}" for key in step.changed_context]
    shown = (
        "failed" if step.error else ", ".join(short[:4]) + (f", and {len(short) - 4} more" if len(short) > 4 else "")
    )
    cache = step.cache
    return step.step, step.function, step.revision, step.rule, step.iterations, cache, _time(step.seconds), shown


def _step_lines(step: StepRun, changes: Sequence[ResourceChange], ready: Mapping[str, bool]) -> Iterator[str]:
    if step.error:
        yield f"error: {step.error}"
    for each in step.rejected:
        yield f"not {each.id}: {each.why}"
    for name, read in step.reads.items():
        yield f'read "{name}": {_read(read)}'
    for change in changes:
        yield from _change_lines(change)
    for key, is_ready in ready.items():
        yield f"{key} is {'ready' if is_ready else 'not ready'}"
    yield from traceback_lines(step.results)
    for result in step.results:
        if result.reason == TRACEBACK:
            continue
        yield f"{result.severity.lower()}: {result.message}" + (f" ({result.reason})" if result.reason else "")
    for condition in step.conditions:
        yield f"condition {condition.type}={condition.status} {condition.reason} {condition.message}".rstrip()
    for warning in step.warnings:
        yield f"warning: {warning}"


def _change_lines(change: ResourceChange) -> Iterator[str]:
    what = "XR" if change.key == XR else f"{change.key}  {change.kind}"
    yield f"{_SIGNS[change.action]} {what}"
    for field in change.fields:
        yield f"    {field}"


def _plan_lines(run: Run) -> Iterator[str]:
    for planned in run.plan or ():
        place = f" in {planned.namespace}" if planned.namespace else ""
        ready = "" if planned.action == "delete" else ", ready" if planned.ready else ", not ready"
        yield f"{planned.action} {planned.resource}: {planned.kind}/{planned.name}{place}{ready}"
        if planned.error:
            yield f"  failed: {planned.error}"


def _now_lines(now: Sequence[str]) -> Iterator[str]:
    """What the object says of itself at this moment, which may be newer than the run."""
    if now:
        yield ""
        yield click.style("now", bold=True)
        yield from (f"  {each}" for each in now)


def _resource_lines(run: Run, key: str) -> Iterator[str]:
    yield from _head(run)
    yield ""
    yield click.style(key, bold=True)
    history = history_of(run, key)
    if not history:
        yield "  no step of this run asked for it"
    for step, change in history:
        revision = f", revision {step.revision} by rule {step.rule}" if step.revision else ""
        yield f'  {change.action} by step "{step.step}" (function {step.function}{revision})'
        yield from (f"      {field}" for field in change.fields)
    for step, ready in zip(run.steps, ready_by_step(run), strict=True):
        if key in ready:
            yield f'  {"ready" if ready[key] else "not ready"}, says step "{step.step}"'
    for planned in planned_for(run, key):
        yield f"  plan: {planned.action} {planned.kind}/{planned.name}"
        if planned.error:
            yield f"  failed: {planned.error}"
    if not planned_for(run, key) and run.plan is not None:
        yield "  plan: nothing to do"


def _read(read: Read) -> str:
    wanted = read.name or ("all" if read.labels is None else ",".join(f"{k}={v}" for k, v in read.labels.items()))
    place = f" in {read.namespace}" if read.namespace else ""
    return f"{read.kind} ({read.api_version}) {wanted}{place}, {len(read.found)} found"


def _time(seconds: float) -> str:
    return f"{seconds * 1000:.1f} ms" if seconds < 1 else f"{seconds:.2f} s"
