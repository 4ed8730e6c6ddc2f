"""`planform dev DIR`: the inner loop of a platform team in one command."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import click

from planform.cli.output import is_terminal
from planform.client.protocol import Client
from planform.errors import PlanformError, UsageError


@click.command()
@click.argument("directory", type=click.Path(exists=True, file_okay=False, path_type=Path), default=".")
@click.option("--debug", is_flag=True, help="Run functions in this process, so that breakpoint() opens the debugger.")
@click.option(
    "--kubeconfig",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Work on this control plane, and leave there what was applied.  [default: one that is gone at the end]",
)
@click.option("--context", default="", help="Which context of the kubeconfig to use.")
@click.option("--no-tests", is_flag=True, help="Do not run tests.")
@click.option("--plain", is_flag=True, help="Lines instead of a picture, as in a pipe.")
def dev(directory: Path, debug: bool, kubeconfig: Path | None, context: str, no_tests: bool, plain: bool) -> None:
    """Work on a platform: whatever is saved below DIRECTORY is applied, and what that changes is shown.

    XRDs, Compositions and examples are applied to a control plane that is gone at the end. Functions are served from
    source: one directory each, with `function.py` beside `package/crossplane.yaml`; a changed source is a new revision.
    Tests (*_test.yaml) that a save concerns run again. Ctrl-C ends.
    """
    from planform.app import run_loop
    from planform.telemetry.logs import set_up_logging

    if context and kubeconfig is None:
        raise UsageError("--context chooses from a kubeconfig, and none is given", hint="add --kubeconfig FILE")
    set_up_logging(sys.stderr, level="critical", format="text")
    drawn = is_terminal() and not plain and not debug
    failures: list[PlanformError] = []
    run_loop(_dev(directory.resolve(), failures, debug, kubeconfig, context, tests=not no_tests, drawn=drawn))
    if failures:
        raise failures[0]


async def _dev(
    directory: Path,
    failures: list[PlanformError],
    debug: bool,
    kubeconfig: Path | None,
    context: str,
    *,
    tests: bool,
    drawn: bool,
) -> None:
    from planform.cli.dev.session import Session
    from planform.cli.dev.view import Lines, Picture, Screen

    stopping = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopping.set)
    async with _control_plane(kubeconfig, context) as (client, heading):
        picture = Picture(directory, f"planform dev {directory.name}: {heading}; Ctrl-C ends")
        view = Screen(picture) if drawn else Lines(picture)
        try:
            view.say(picture.heading)
            await Session(client, picture, view, debug=debug, tests=tests).run(stopping)
        except PlanformError as error:  # raised at the end: the task groups of the control plane would wrap it
            failures.append(error)
        finally:
            if isinstance(view, Screen):
                view.close()


@asynccontextmanager
async def _control_plane(kubeconfig: Path | None, context: str) -> AsyncIterator[tuple[Client, str]]:
    """The one that is named, or one that keeps nothing."""
    if kubeconfig is not None:
        from planform.cli.connection import connect

        async with connect(kubeconfig, context=context) as connected:
            yield connected.client, f"on {connected.server}"
        return
    from planform.app import Settings, open_control_plane

    async with open_control_plane(Settings(data=None)) as running:
        yield running.client, f"KUBECONFIG={running.kubeconfig.absolute()}"
