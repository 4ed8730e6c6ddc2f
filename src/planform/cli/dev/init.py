"""`planform init`: a whole platform, tested and ready for `planform dev`."""

from __future__ import annotations

from pathlib import Path

import click

from planform.api.metadata import name_of
from planform.cli.compositions.render_inputs import read_documents
from planform.cli.dev.platform import example_of, platform
from planform.cli.output import say
from planform.errors import UsageError


@click.command()
@click.argument("directory", type=click.Path(file_okay=False, path_type=Path))
@click.option("--kind", default="App", show_default=True, help="The kind that the platform offers.")
@click.option("--group", default="platform.example.org", show_default=True, help="The group of its API.")
@click.option(
    "--example",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="An XR as users will write it; the XRD is drafted from it.",
)
def init(directory: Path, kind: str, group: str, example: Path | None) -> None:
    """Start a platform: XRD, Composition of two steps, a function, tests, an example, a CI recipe and a README.

    `planform init function NAME` starts a function alone.
    """
    if directory.exists() and any(directory.iterdir()):
        raise UsageError(f"{directory} is not empty", hint="choose another directory")
    if example is not None:
        found = read_documents(example)
        if len(found) != 1 or not name_of(found[0]):
            raise UsageError(f"{example} must hold one XR with a name", hint="the XRD is drafted from it")
        [xr] = found
    else:
        xr = example_of(kind, group)
    files = platform(directory.resolve().name, xr)
    for path, text in files.items():
        file = directory / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    say(f"{directory} is ready:")
    say(f"  cd {directory}")
    say("  planform test     # its tests pass")
    say("  planform dev .    # change something, save it, and see what that does")
