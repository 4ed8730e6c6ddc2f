"""`planform function install`: a function from its directory, or its package's file, into a control plane here."""

from __future__ import annotations

import io
import tempfile
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import click

from planform.cli.connection import connection_options
from planform.cli.output import output_option
from planform.cli.packages.building import function_build
from planform.cli.packages.local import tag_option
from planform.cli.packages.xpkg import install_file


@click.command("install")
@click.argument("source", type=click.Path(exists=True, path_type=Path))
@click.argument("name", default="")
@tag_option
@click.option("-l", "--label", "labels", multiple=True, metavar="KEY=VALUE", help="A label of this revision.")
@click.option(
    "--active-revision-limit",
    type=click.IntRange(1),
    default=None,
    help="How many of its revisions may serve at a time.",
)
@click.option("-m", "--manual-activation", is_flag=True, help="Let people activate new revisions.")
@click.option("-w", "--wait", default="60s", show_default=True, metavar="DURATION", help="Wait so long for it.")
@output_option("text", "json", "yaml", default="text")
@connection_options
def install(source: Path, name: str, **flags: Any) -> None:
    """Install the function in the directory SOURCE, or in its package's file, into a control plane on this machine.

    No registry is asked, and none is needed. Installing again is a new revision, with the labels that are given; others
    serve on for as long as --active-revision-limit lets them.
    """
    if source.is_file():
        install_file(source, name, **flags)
        return
    with tempfile.TemporaryDirectory(prefix="planform-install-") as scratch:
        file = Path(scratch, "function.xpkg")
        with redirect_stdout(io.StringIO()):  # the name of a file that is gone in a moment
            function_build.main([str(source), "--package-file", str(file)], standalone_mode=False)
        install_file(file, name, **flags)
