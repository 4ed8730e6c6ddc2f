"""`planform compat`: command lines that were written for other tools, as they are.

`planform compat crossplane WORDS` never gets here: `spellings.respelled` turns it into the command that it means, as it
does for every command line. What is left is to say which spellings are understood.
"""

from __future__ import annotations

import click

from planform.cli.grouping import CommandGroup
from planform.cli.output import output_option, table, write_data
from planform.cli.spellings import ALIASES


@click.group(cls=CommandGroup)
def compat() -> None:
    """Run command lines that were written for other tools."""


@compat.command()
@output_option("table", "json", "yaml")
def crossplane(output: str) -> None:
    """Run a command line of the `crossplane` tool: `planform compat crossplane beta render xr.yaml composition.yaml`.

    Without one, list the spellings that differ from planform's own. A link named `crossplane` or `kubectl-crossplane`
    that leads to planform does the same for scripts that cannot be changed:
    `ln -s "$(command -v planform)" ~/bin/crossplane`.
    """
    if output != "table":
        write_data(
            [{"crossplane": " ".join(theirs), "planform": " ".join(ours)} for theirs, ours in ALIASES.items()], output
        )
        return
    click.echo(
        table(("CROSSPLANE", "PLANFORM"), [(" ".join(theirs), " ".join(ours)) for theirs, ours in ALIASES.items()])
    )
