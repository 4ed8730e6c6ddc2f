"""`planform render`: what a composition makes of an XR, on an author's machine, in milliseconds."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import click

from planform.api.annotations import annotations_of
from planform.api.kinds import Object
from planform.api.metadata import name_of
from planform.api.xr import RESOURCE_NAME_ANNOTATION, Style
from planform.apimachinery import yaml_loader
from planform.cli.compositions.render_inputs import (
    FileCredentials,
    FileReader,
    Inputs,
    read_context,
    read_documents,
    read_inputs,
    read_schemas,
)
from planform.cli.functions.local import functions_from, running, used_by
from planform.cli.functions.local_resolver import local_resolver, unlabelled_notes
from planform.cli.output import say, table
from planform.clock import SystemClock
from planform.errors import PlanformError, UsageError
from planform.pipeline.render import RenderContext, Rendered, render_until_stable, with_identity
from planform.pipeline.render import render as render_once

PIPELINE_FAILED: Final = 3
_NESTED_DEPTH: Final = 10


@dataclass(frozen=True)
class Options:
    """Everything that was asked for."""

    files: tuple[Path, ...]
    observed: Path | None
    required: tuple[Path, ...]
    schemas: Path | None
    context_files: tuple[str, ...]
    context_values: tuple[str, ...]
    credentials: Path | None
    functions: tuple[str, ...]
    annotations: tuple[str, ...]
    xrd: Path | None
    full_xr: bool
    results: bool
    context: bool
    deleted: bool
    pipeline: bool
    until_stable: int
    recursive: bool
    output: str
    timeout: float


@click.command()
@click.argument("files", nargs=-1, required=True, type=click.Path(exists=True, path_type=Path))
@click.option(
    "-o",
    "--observed-resources",
    metavar="PATH",
    default=None,
    help="Composed resources that exist already. `-o json` and `-o yaml` choose the output instead.",
)
@click.option("--output", type=click.Choice(["yaml", "json"]), default="yaml", show_default=True, help="How to print.")
@click.option(
    "-e",
    "--required-resources",
    multiple=True,
    type=click.Path(exists=True, path_type=Path),
    help="What functions may ask for.",
)
@click.option(
    "--extra-resources", multiple=True, type=click.Path(exists=True, path_type=Path), help="The older name of the same."
)
@click.option(
    "-s",
    "--required-schemas",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="OpenAPI v3 documents.",
)
@click.option("--context-files", multiple=True, metavar="KEY=FILE", help="Context that the pipeline starts with.")
@click.option("--context-values", multiple=True, metavar="KEY=JSON", help="The same, on the command line.")
@click.option("--function-credentials", type=click.Path(exists=True, path_type=Path), help="Secrets for functions.")
@click.option(
    "--function",
    "functions",
    multiple=True,
    metavar="NAME=WHERE",
    help="FILE.py, executable, FILE.xpkg, a package's name, HOST:PORT, unix:PATH or a built-in's name.",
)
@click.option("-a", "--function-annotations", multiple=True, metavar="K=V", help="Set an annotation on every function.")
@click.option("--xrd", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="Apply this XRD's defaults.")
@click.option("-x", "--include-full-xr", is_flag=True, help="Show the whole XR, with what was given.")
@click.option("-r", "--include-function-results", is_flag=True, help="Show the functions' results.")
@click.option("-c", "--include-context", is_flag=True, help="Show the context at the end.")
@click.option("--show-deleted", is_flag=True, help="Show documents of what would be deleted.")
@click.option("--show-pipeline", is_flag=True, help="Show a table of the steps on stderr.")
@click.option(
    "--until-stable",
    is_flag=False,
    flag_value=10,
    default=0,
    type=int,
    metavar="N",
    help="Simulate readiness and run again, N times at most (10).",
)
@click.option(
    "--recursive", is_flag=True, help="Also render composed resources that are XRs of the given compositions."
)
@click.option("-w", "--watch", "watching", is_flag=True, help="Render again whenever a file changes.")
@click.option("--timeout", default=60.0, show_default=True, metavar="SECONDS")
def render(files: tuple[Path, ...], observed_resources: str | None, watching: bool, **flags: Any) -> None:
    """Show what a composition makes of an XR: `planform render XR COMPOSITION FUNCTIONS`.

    Files are recognised by kind, so their order does not matter. Functions are built in, run from a Python file, an
    executable or a package (as the control plane runs it: a process, or a container where runc is installed), or are
    called at an address. Exits with 3 if a step of the pipeline failed, after printing how far it came.
    """
    if observed_resources in ("json", "yaml"):
        flags["output"], observed_resources = observed_resources, None
    options = Options(
        files=files,
        observed=_existing(observed_resources),
        required=(*flags["required_resources"], *flags["extra_resources"]),
        schemas=flags["required_schemas"],
        context_files=flags["context_files"],
        context_values=flags["context_values"],
        credentials=flags["function_credentials"],
        functions=flags["functions"],
        annotations=flags["function_annotations"],
        xrd=flags["xrd"],
        full_xr=flags["include_full_xr"],
        results=flags["include_function_results"],
        context=flags["include_context"],
        deleted=flags["show_deleted"],
        pipeline=flags["show_pipeline"],
        until_stable=flags["until_stable"],
        recursive=flags["recursive"],
        output=flags["output"],
        timeout=flags["timeout"],
    )
    if watching:
        _watch(options)
        return
    if not asyncio.run(_render(options)):
        raise click.exceptions.Exit(PIPELINE_FAILED)


async def _render(options: Options) -> bool:
    """Render every XR and print it; False if a pipeline failed."""
    inputs = read_inputs(options.files)
    functions = functions_from(inputs.functions, options.functions, options.annotations)
    compositions = _rendered_compositions(inputs, recursive=options.recursive)
    used = used_by(compositions, functions)
    for note in unlabelled_notes(compositions, used):
        say(f"note: {note}")
    for function in used if options.pipeline else ():
        if function.note:
            say(f'note: function "{function.name}": {function.note}')
    clock = SystemClock()
    reader = FileReader(
        [obj for path in options.required for obj in read_documents(path)], read_schemas(options.schemas)
    )
    credentials = FileCredentials(read_documents(options.credentials)) if options.credentials else None
    xrds = [*inputs.xrds, *(read_documents(options.xrd) if options.xrd else [])]
    observed = read_documents(options.observed) if options.observed else []
    documents: list[Object] = []
    fine = True
    try:
        async with asyncio.timeout(options.timeout), running(used) as runner:
            around = RenderContext(
                resolver=local_resolver([*functions, *used]),
                runner=runner,
                reader=reader,
                clock=clock,
                credentials=credentials,
                context=read_context(options.context_files, options.context_values),
            )
            for xr in inputs.xrs:
                composition = inputs.composition_for(xr) or inputs.compositions[0]
                rendered = await _one(xr, composition, observed, around, options, xrds)
                documents += _documents(xr, rendered, options)
                fine = fine and rendered.outcome.failure is None
                if options.recursive and rendered.outcome.failure is None:
                    fine = await _nested(rendered, inputs, around, options, xrds, documents, 1) and fine
    except TimeoutError as error:
        raise RenderTimedOut(options.timeout) from error
    _print(documents, options.output)
    return fine


class RenderTimedOut(PlanformError):
    """The functions took longer than the user wanted to wait."""

    reason = "TimedOut"

    def __init__(self, seconds: float) -> None:
        super().__init__(f"rendering took longer than {seconds:g} s")
        self.hint = "--timeout gives it more; --show-pipeline shows where the time goes"


async def _one(
    xr: Object,
    composition: Object,
    observed: Sequence[Object],
    around: RenderContext,
    options: Options,
    xrds: Sequence[Object],
) -> Rendered:
    xr, style = with_defaults(xr, xrds)
    if options.until_stable:
        renders = await render_until_stable(
            xr, composition, observed, around, style=style, max_iterations=options.until_stable
        )
        last = renders[-1]
        repeats = len(renders) > 1 and renders[-2].xr == last.xr and renders[-2].composed == last.composed
        say(f"{'stable' if repeats else 'not yet stable'} after {len(renders)} iterations")
        rendered = last
    else:
        rendered = await render_once(xr, composition, observed, around, style=style)
    failure = rendered.outcome.failure
    if options.pipeline or failure is not None:
        say(_pipeline_table(rendered))
    if failure is not None:
        say(click.style("error: ", fg="red", bold=True) + str(failure))
        for line in rendered.outcome.traceback:
            say(f"  {line}")
        if failure.hint:
            say(click.style("hint: ", fg="cyan") + failure.hint)
    for gone in rendered.deleted:
        key = annotations_of(gone)[RESOURCE_NAME_ANNOTATION]
        say(f"would delete {gone['kind']}/{name_of(gone)} ({key})")
    for trace in rendered.outcome.steps:
        for warning in trace.warnings:
            say(f'warning: step "{trace.step}": {warning}')
    return rendered


async def _nested(
    rendered: Rendered,
    inputs: Inputs,
    around: RenderContext,
    options: Options,
    xrds: Sequence[Object],
    documents: list[Object],
    depth: int,
) -> bool:
    fine = True
    for child in rendered.composed:
        composition = inputs.composition_for(child)
        if composition is None:
            continue
        if depth > _NESTED_DEPTH:
            raise UsageError(f"XRs are nested deeper than {_NESTED_DEPTH}: {child['kind']}/{name_of(child)}")
        nested = await _one(child, composition, [], around, options, xrds)
        documents += _documents(child, nested, options)
        fine = fine and nested.outcome.failure is None
        if nested.outcome.failure is None:
            fine = await _nested(nested, inputs, around, options, xrds, documents, depth + 1) and fine
    return fine


def _rendered_compositions(inputs: Inputs, *, recursive: bool) -> list[Object]:
    """Those that an XR among the inputs is composed by; all of them where XRs may be nested."""
    chosen = [c for c in inputs.compositions if recursive or any(inputs.composition_for(x) is c for x in inputs.xrs)]
    return chosen or inputs.compositions[:1]


def with_defaults(xr: Object, xrds: Sequence[Object]) -> tuple[Object, Style | None]:
    """The XR as the API server would store it, and its shape, if its XRD is known."""
    group, _, version = xr["apiVersion"].rpartition("/")
    for xrd in xrds:
        spec = xrd.get("spec") or {}
        if spec.get("group") != group or (spec.get("names") or {}).get("kind") != xr["kind"]:
            continue
        scope = spec.get("scope") or ("LegacyCluster" if xrd["apiVersion"].endswith("/v1") else "Namespaced")
        style: Style = "legacy" if scope == "LegacyCluster" else "modern"
        for each in spec.get("versions") or ():
            schema = (each.get("schema") or {}).get("openAPIV3Schema")
            if each.get("name") == version and schema:
                from planform.apimachinery.schema import compile_schema

                xr = {**xr, "spec": dict(xr.get("spec") or {})}
                compile_schema(schema, root=True).default(xr)
        return xr, style
    return xr, None


def _documents(xr: Object, rendered: Rendered, options: Options) -> list[Object]:
    shown = _merged(with_identity(xr) | {"metadata": xr["metadata"]}, rendered.xr) if options.full_xr else rendered.xr
    documents = [shown, *rendered.composed]
    if options.deleted:
        for gone in rendered.deleted:
            reference = {field: gone[field] for field in ("apiVersion", "kind")}
            documents.append(
                {
                    "apiVersion": "render.crossplane.io/v1beta1",
                    "kind": "Deleted",
                    "resource": {**reference, "name": name_of(gone)},
                    "name": annotations_of(gone)[RESOURCE_NAME_ANNOTATION],
                }
            )
    if options.results:
        documents += rendered.results
    if options.context:
        documents.append({"apiVersion": "render.crossplane.io/v1beta1", "kind": "Context", "fields": rendered.context})
    return documents


def _merged(below: Any, above: Any) -> Any:
    """Objects merge, everything else is replaced."""
    if isinstance(below, dict) and isinstance(above, dict):
        return {**below, **{key: _merged(below.get(key), value) for key, value in above.items()}}
    return above


def _print(documents: Sequence[Object], output: str) -> None:
    if output == "json":
        import orjson

        body = {"apiVersion": "v1", "kind": "List", "items": list(documents)}
        click.echo(orjson.dumps(body, option=orjson.OPT_INDENT_2 | orjson.OPT_SORT_KEYS).decode())
        return
    for document in documents:
        click.echo("---")
        click.echo(yaml_loader.dump(_sorted(document)), nl=False)


def _sorted(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _sorted(value[key]) for key in sorted(value)}
    if isinstance(value, list):
        return [_sorted(item) for item in value]
    return value


def _pipeline_table(rendered: Rendered) -> str:
    rows = []
    for trace in rendered.outcome.steps:
        changes = trace.changes
        delta = " ".join(
            f"{sign}{len(names)}"
            for sign, names in (("+", changes.added), ("~", changes.changed), ("-", changes.removed))
            if names
        )
        state = "failed" if trace.error is not None else "ok"
        rows.append(
            (
                trace.step,
                trace.function,
                state,
                f"{trace.seconds * 1000:.1f} ms",
                trace.iterations,
                delta,
                trace.revision.name if trace.revision else "",
            )
        )
    return table(("STEP", "FUNCTION", "STATE", "TIME", "CALLS", "CHANGED", "REVISION"), rows)


def _existing(path: str | None) -> Path | None:
    if path is None:
        return None
    if not Path(path).exists():
        raise UsageError(f"--observed-resources: {path} does not exist")
    return Path(path)


def _watch(options: Options) -> None:
    """Render now and after every change of an input file, until Ctrl-C."""
    from planform.cli.main import explain

    seen: dict[Path, float] = {}
    while True:
        now = {path: path.stat().st_mtime for path in _watched_files(options) if path.exists()}
        if now != seen:
            seen = now
            if sys.stdout.isatty():
                click.clear()
            started = time.perf_counter()
            try:
                asyncio.run(_render(options))
            except PlanformError as error:
                explain(error)
            sys.stdout.flush()
            say(f"rendered in {(time.perf_counter() - started) * 1000:.0f} ms; waiting for a change (Ctrl-C ends)")
        time.sleep(0.1)


def _watched_files(options: Options) -> list[Path]:
    roots = [*options.files, *options.required]
    roots += [path for path in (options.observed, options.credentials, options.xrd, options.schemas) if path]
    roots += [Path(word.partition("=")[2].partition(":")[0]) for word in options.functions]
    roots += [Path(word.partition("=")[2]) for word in options.context_files]
    return [file for root in roots for file in (root.rglob("*") if root.is_dir() else [root]) if file.is_file()]
