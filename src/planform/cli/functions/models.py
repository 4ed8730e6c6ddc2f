"""`planform models`: typed Python models of the objects a function works with."""

from __future__ import annotations

from pathlib import Path

import click

from planform.apimachinery import yaml_loader
from planform.cli.grouping import CommandGroup
from planform.cli.output import say
from planform.errors import UsageError


@click.group(cls=CommandGroup)
def models() -> None:
    """Typed Python models for functions."""


@models.command()
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--version", default=None, metavar="NAME", help="Which version.  [default: the stored one]")
@click.option("--name", default=None, help="What to call the outermost type.  [default: the kind]")
@click.option("--defaults", is_flag=True, help="Give fields the schema's defaults, as inputs of functions need it.")
@click.option("--output-file", type=click.Path(dir_okay=False, path_type=Path), help="Write here instead of stdout.")
def generate(file: Path, version: str | None, name: str | None, defaults: bool, output_file: Path | None) -> None:
    """Write models of an XRD, a CRD or a bare schema: msgspec Structs, one for each object in it."""
    from planform_sdk.models import ModelError
    from planform_sdk.models import generate as generate_models

    try:
        documents = [one for one in yaml_loader.load_all(file.read_bytes()) if isinstance(one, dict)]
    except ValueError as error:
        raise UsageError(f"{file}: {error}") from error
    if len(documents) != 1:
        raise UsageError(f"{file} holds {len(documents)} documents; models are made from one")
    try:
        source = generate_models(documents[0], version=version, name=name, defaults=defaults)
    except ModelError as error:
        raise UsageError(f"{file}: {error}") from error
    if output_file is None:
        click.echo(source, nl=False)
    else:
        output_file.write_text(source)
        say(f"wrote {output_file}")
