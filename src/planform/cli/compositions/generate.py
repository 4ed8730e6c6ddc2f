"""`planform xrd generate` and `planform composition generate`: drafts to go on from."""

from __future__ import annotations

from pathlib import Path

import click

from planform.apimachinery import yaml_loader
from planform.cli.compositions.inference import composition_for, xrd_from
from planform.cli.compositions.render_inputs import read_documents
from planform.cli.grouping import CommandGroup
from planform.cli.output import output_option, say, write_data
from planform.errors import UsageError

_FILE = click.Path(exists=True, path_type=Path)
_TARGET = click.Path(dir_okay=False, path_type=Path)


@click.group(cls=CommandGroup)
def xrd() -> None:
    """Draft XRDs."""


@click.group(cls=CommandGroup)
def composition() -> None:
    """Draft Compositions."""


@xrd.command("generate")
@click.argument("examples", nargs=-1, required=True, type=_FILE)
@click.option("--plural", default="", help="The plural of the kind.  [default: as English has it]")
@click.option(
    "--scope",
    type=click.Choice(["Namespaced", "Cluster"]),
    default=None,
    help="Where its objects are.  [default: Namespaced, if an example has a namespace]",
)
@click.option("-f", "--file", type=_TARGET, help="Write it here instead of printing it.")
@output_option("yaml", "json", default="yaml")
def generate_xrd(examples: tuple[Path, ...], plural: str, scope: str | None, file: Path | None, output: str) -> None:
    """Draft the XRD of which EXAMPLES are XRs. With several of them, what all have is required."""
    objects = [obj for path in examples for obj in read_documents(path)]
    _write(xrd_from(objects, plural=plural, scope=scope or ""), file, output)


@composition.command("generate")
@click.argument("xrd_file", metavar="XRD", type=_FILE)
@click.option("--function", "functions", multiple=True, metavar="NAME", help="A step that calls this function.")
@click.option("--name", default="", help="What to call it.  [default: after the kind]")
@click.option("-f", "--file", type=_TARGET, help="Write it here instead of printing it.")
@output_option("yaml", "json", default="yaml")
def generate_composition(xrd_file: Path, functions: tuple[str, ...], name: str, file: Path | None, output: str) -> None:
    """Draft a Composition for an XRD: the functions that are named, or a ConfigMap of what XRs say, and readiness."""
    found = [obj for obj in read_documents(xrd_file) if obj["kind"] == "CompositeResourceDefinition"]
    if len(found) != 1:
        raise UsageError(f"{xrd_file} holds {len(found)} XRDs, and one is needed")
    _write(composition_for(found[0], functions=functions, name=name), file, output)


def _write(made: dict[str, object], file: Path | None, output: str) -> None:
    if file is None:
        write_data(made, output)
        return
    if file.exists():
        raise UsageError(f"{file} exists already", hint="remove it first, or write to another file")
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(yaml_loader.dump(made))
    say(f"{file} is written")
