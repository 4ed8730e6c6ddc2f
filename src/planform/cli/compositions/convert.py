"""`planform convert`: a Composition in Resources mode, written as a pipeline."""

from __future__ import annotations

from pathlib import Path

import click

from planform.api.metadata import name_of
from planform.apimachinery import yaml_loader
from planform.cli.compositions.render_inputs import read_documents
from planform.cli.output import say
from planform.errors import UsageError
from planform.pipeline.modes import mode_of, to_pipeline_mode


@click.command()
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--output-file", type=click.Path(dir_okay=False, path_type=Path), help="Write here instead of stdout.")
def convert(file: Path, output_file: Path | None) -> None:
    """Turn Compositions in Resources mode into pipelines; everything else in the file stays as it is.

    The pipeline runs function-patch-and-transform, which is built in, and does the same.
    """
    documents = read_documents(file)
    compositions = [document for document in documents if document["kind"] == "Composition"]
    if not compositions:
        raise UsageError(f"there is no Composition in {file}")
    for composition in compositions:
        name = name_of(composition)
        if mode_of(composition["spec"], name) == "Pipeline":
            say(f'composition "{name}" is a pipeline already')
        else:
            say(f'composition "{name}": {len(composition["spec"]["resources"])} resources became one step')
    text = yaml_loader.dump_all(to_pipeline_mode(one) if one["kind"] == "Composition" else one for one in documents)
    if output_file is None:
        click.echo(text, nl=False)
    else:
        output_file.write_text(text)
