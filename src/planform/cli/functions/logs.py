"""`planform function logs`: what a function that runs on this machine says, from the files its control plane keeps."""

from __future__ import annotations

import time
from pathlib import Path

import click
import orjson

from planform.api.metadata import name_of
from planform.api.names import FUNCTION_REVISION, PACKAGE_LABEL
from planform.cli import completing
from planform.cli.connection import Connected, connection_options, run
from planform.cli.functions.activation import choose
from planform.cli.output import output_option, write_data
from planform.cli.paths import default_data_directory, find_kubeconfig
from planform.errors import UsageError
from planform.packages.runtimes.logs import Follower, last_lines, log_file, logs_directory

_LOOK_EVERY = 0.2


@click.command()
@click.argument("name", shell_complete=completing.names_of("functions"))
@click.option("--revision", default="", metavar="NAME|NUMBER", help="Which one.  [default: the newest]")
@click.option("--tail", type=click.IntRange(min=0), default=200, show_default=True, help="How many lines; 0 for all.")
@click.option("--follow", "-f", is_flag=True, help="Go on until Ctrl-C.")
@click.option(
    "--data",
    type=click.Path(file_okay=False, path_type=Path),
    default=None,
    envvar="PLANFORM_DATA",
    help="The data directory of the control plane.  [default: where its kubeconfig is, else ~/.local/share/planform]",
)
@output_option("text", "json", "yaml", default="text")
@connection_options
def logs(
    name: str,
    revision: str,
    tail: int,
    follow: bool,
    data: Path | None,
    output: str,
    kubeconfig: Path | None,
    context: str,
) -> None:
    """Show the log of a revision of the function NAME, which must run on this machine.

    As JSON, every line is an object of its own; as YAML, an item of one list.
    """

    async def find(connected: Connected) -> str:
        found = (await connected.client.list(FUNCTION_REVISION, labels=f"{PACKAGE_LABEL}={name}")).items
        return name_of(choose(name, found, revision))

    chosen = run(kubeconfig, context, find)
    path = log_file(logs_directory(data or data_directory(kubeconfig)), chosen)
    if not path.exists() and not follow:
        raise UsageError(
            f'there is no log of revision "{chosen}" in {path.parent}',
            hint="only functions that the control plane runs itself have one; say where its data is: --data DIR",
        )
    follower = Follower(path)
    for line in last_lines(path, tail):
        _show(chosen, line, output)
    try:
        while follow:
            for line in follower.read():
                _show(chosen, line, output)
            time.sleep(_LOOK_EVERY)
    except KeyboardInterrupt:
        pass
    finally:
        follower.close()


def data_directory(kubeconfig: Path | None) -> Path:
    """Where the control plane that answers keeps its data: beside the kubeconfig that it wrote."""
    beside = find_kubeconfig(kubeconfig).absolute().parent
    return beside if logs_directory(beside).is_dir() else default_data_directory()


def _show(revision: str, line: str, output: str) -> None:
    if output == "text":
        click.echo(line)
    elif output == "json":
        click.echo(orjson.dumps({"revision": revision, "line": line}))
    else:
        write_data([{"revision": revision, "line": line}], output)
