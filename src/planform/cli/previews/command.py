"""`planform preview`: what a change would do to every live XR, before it does it."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import click
import msgspec

import planform
from planform.api.kinds import GroupVersionKind, Object, gvk_of
from planform.api.metadata import name_of, namespace_of
from planform.api.names import PREVIEW
from planform.api.previews import PreviewSpec, release_verdict
from planform.apimachinery.selectors import SelectorError, parse_labels
from planform.cli.connection import Connected, connection_options, run
from planform.cli.objects.manifests import read_manifests
from planform.cli.output import is_terminal, output_option, say, write_data
from planform.cli.previews.answers import Answer, answer_of, broken_rules
from planform.cli.previews.asking import create, followed, read_answer
from planform.cli.previews.forms import html, junit, markdown
from planform.cli.previews.local import preview_here
from planform.cli.previews.text import text_lines
from planform.client.protocol import Client
from planform.errors import NotFound, PlanformError, UsageError
from planform.preview.sessions import Findings

RULE_BROKEN: Final = 1
ERROR: Final = 2
INCOMPLETE: Final = 3
_TIMEOUT: Final = 60.0
_SECRET: Final = GroupVersionKind("", "v1", "Secret")


@click.command()
@click.option("-f", "--filename", "files", multiple=True, metavar="FILE|DIR|-", help="What would be applied.")
@click.option("--base", metavar="DIR", help="What is applied now: what it has and -f has not would be deleted.")
@click.option("--revision", metavar="COMPOSITION/REVISION", help="Instead: a CompositionRevision that is held.")
@click.option("--function-revision", metavar="FUNCTION/REVISION", help="Instead: a FunctionRevision.")
@click.option("--scope", "scopes", multiple=True, metavar="KEY=VALUE|NAMESPACE", help="Only these XRs.  [repeatable]")
@click.option("--sample", type=click.IntRange(min=0), default=0, help="At most so many XRs of each kind.")
@click.option("--include-manual", is_flag=True, help="Look at XRs that are pinned to a revision, too.")
@click.option("--fail-on", multiple=True, metavar="CEL", help="Exit with 1 if this holds, as summary.deletes > 0.")
@click.option("--wait/--no-wait", default=True, help="Follow it to its end, or print the Preview's name at once.")
@click.option("--name", default="", help="What to call the Preview.  [default: generated]")
@click.option("--ttl", default="7d", show_default=True, help="How long the Preview is kept.")
@click.option("--here", is_flag=True, help="Run it in this process, although the control plane could.")
@click.option("--function", "functions", multiple=True, metavar="NAME=WHERE", help="With --here: where a function is.")
@click.option("--dry-run/--no-dry-run", default=True, help="With --here: send changed objects through a dry run.")
@click.option(
    "--snapshot", type=click.Path(exists=True, path_type=Path), help="A file of `planform export --snapshot`."
)
@click.option("--release", is_flag=True, help="Instead: what this release of planform, run here, would change.")
@click.option("--full", is_flag=True, help="Fold nothing.")
@output_option("text", "json", "yaml", "markdown", "junit", "html", default="text")
@connection_options
def preview(**options: Any) -> None:
    """Show what a change would do to every live XR; nothing is applied.

    Both what runs now and the change are run for each XR, and the difference is what the change causes. The same change
    in many XRs is shown once, what deletes or recreates something first.

    A control plane of planform runs it, with the rights of whoever asks. On any other cluster with Crossplane it runs
    here, and needs only rights to read.

    Exit codes: 0 nothing broken, 1 a rule of --fail-on holds, 2 it could not be run, 3 some XRs could not be previewed.
    """
    try:
        answer = _answered(options)
    except PlanformError as error:
        say(f"error: {error}" + (f"\nhint: {error.hint}" if error.hint else ""))
        sys.exit(ERROR)
    if answer is None:
        return
    try:
        broken = broken_rules(answer, options["fail_on"])
    except PlanformError as error:
        say(f"error: {error}" + (f"\nhint: {error.hint}" if error.hint else ""))
        sys.exit(ERROR)
    _print(answer, options["output"], full=options["full"], broken=broken)
    for rule in broken:
        say(f"rule broken: {rule}")
    if broken:
        sys.exit(RULE_BROKEN)
    if not answer.complete:
        say(f"{answer.summary.not_previewed} XRs could not be previewed")
        sys.exit(INCOMPLETE)


def _answered(options: dict[str, Any]) -> Answer | None:
    spec = spec_of(options)
    if options["snapshot"] is not None:
        from planform.cli.previews.snapshots import opened_snapshot

        async def from_snapshot() -> Answer:
            async with opened_snapshot(options["snapshot"]) as client:
                return await _here(client, spec, options, str(options["snapshot"]))

        return asyncio.run(from_snapshot())

    async def act(connected: Connected) -> Answer | None:
        here = options["here"] or options["release"] or options["functions"]
        if not here and not await _is_served(connected.client):
            say("this cluster has no Previews: running it here, with reads and dry runs only")
            here = True
        if here:
            return await _here(connected.client, spec, options, connected.server)
        kept, left_out = without_secrets(spec)
        made = await create(connected.client, kept, options["name"])
        if not options["wait"]:
            click.echo(name_of(made))
            return None
        progress = _Progress()
        found = await followed(connected.client, name_of(made), progress.show)
        progress.end()
        answer = await read_answer(connected.client, found)
        answer.notes += left_out
        return answer

    return run(options["kubeconfig"], options["context"], act, timeout=_TIMEOUT)


async def _here(client: Client, spec: Object, options: dict[str, Any], server: str) -> Answer:
    progress = _Progress()

    def tell(findings: Findings) -> None:
        progress.show(findings.done, findings.total)

    findings, notes = await preview_here(
        client,
        msgspec.convert(spec, PreviewSpec),
        overrides=options["functions"],
        dry_run=options["dry_run"],
        progress=tell,
    )
    progress.end()
    answer = answer_of(findings, server=server)
    if options["release"]:
        answer.verdict = release_verdict(answer.summary)
    answer.notes = notes
    return answer


async def _is_served(client: Client) -> bool:
    try:
        await client.kind(PREVIEW)
    except NotFound:
        return False
    return True


def spec_of(options: dict[str, Any]) -> Object:
    """The spec of the Preview that the options mean. Raises UsageError."""
    change: Object = {}
    if options["files"]:
        change["manifests"] = read_manifests(list(options["files"]))
    if options["base"]:
        change["deleted"] = removed(read_manifests([options["base"]]), change.get("manifests") or [])
    for option, field, names in (
        ("revision", "revision", ("composition", "name")),
        ("function_revision", "functionRevision", ("function", "name")),
    ):
        if options[option]:
            one, slash, other = options[option].partition("/")
            if not slash:
                raise UsageError(f"--{option.replace('_', '-')} {options[option]}: write NAME/REVISION")
            change[field] = {names[0]: one, names[1]: other}
    if options["release"]:
        if change:
            raise UsageError("--release is a change of its own", hint="preview other changes by themselves")
        change["release"] = {"planform": planform.__version__}
    if not change:
        raise UsageError(
            "there is nothing to preview", hint="give files with -f, or --revision, --function-revision or --release"
        )
    scope: Object = {"sample": options["sample"], "includeManual": options["include_manual"]}
    labels: dict[str, str] = {}
    for text in options["scopes"]:
        if "=" in text:
            labels |= _labels(text)
        else:
            scope.setdefault("namespaces", []).append(text)
    if labels:
        scope["xrs"] = {"matchLabels": labels}
    return {"change": change, "scope": scope, "ttl": options["ttl"]}


def without_secrets(spec: Object) -> tuple[Object, list[str]]:
    """The spec as a control plane may keep it, and what was left out: whoever reads Previews would read the values."""
    manifests = spec["change"].get("manifests")
    if manifests is None:
        return spec, []
    kept = [each for each in manifests if gvk_of(each) != _SECRET]
    notes = [
        f"Secret {name_of(each)} is left out, as a Preview would keep its values: preview it with --here"
        for each in manifests
        if gvk_of(each) == _SECRET
    ]
    return {**spec, "change": {**spec["change"], "manifests": kept}}, notes


def removed(before: Sequence[Object], after: Sequence[Object]) -> list[Object]:
    """References to what is in one set of manifests and not in the other."""
    kept = {_which(each) for each in after}
    return [
        {"apiVersion": each["apiVersion"], "kind": each["kind"], "name": name_of(each)}
        | ({"namespace": namespace_of(each)} if namespace_of(each) else {})
        for each in before
        if _which(each) not in kept
    ]


def _which(obj: Object) -> tuple[str, str, str, str]:
    kind = gvk_of(obj)
    return kind.group, kind.kind, namespace_of(obj), name_of(obj)


def _labels(text: str) -> dict[str, str]:
    try:
        parse_labels(text)
    except SelectorError as error:
        raise UsageError(f"--scope {text}: {error}") from error
    return dict(part.split("=", 1) for part in text.replace("==", "=").split(",") if part)


def _print(answer: Answer, form: str, *, full: bool, broken: list[str]) -> None:
    match form:
        case "markdown":
            click.echo(markdown(answer), nl=False)
        case "junit":
            click.echo(junit(answer, broken), nl=False)
        case "html":
            click.echo(html(answer), nl=False)
        case "text":
            for line in text_lines(answer, colour=is_terminal(), full=full):
                click.echo(line)
        case _:
            write_data(msgspec.json.decode(msgspec.json.encode(answer)), form)


class _Progress:
    """One line on a terminal that says how far it is; nothing in a pipe."""

    def __init__(self) -> None:
        self._shown = sys.stderr.isatty()
        self._last = ""

    def show(self, done: int, total: int) -> None:
        text = f"{done} of {total} XRs" if total else "looking for XRs"
        if self._shown and text != self._last:
            self._last = text
            click.echo(f"\r\x1b[K{text}", nl=False, err=True)

    def end(self) -> None:
        if self._shown and self._last:
            click.echo("\r\x1b[K", nl=False, err=True)
