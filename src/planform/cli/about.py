"""`planform version`, `planform features`, `planform completion`."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Final

import click

from planform import __version__
from planform.cli.output import output_option, table, write_data
from planform.errors import PlanformError, ServiceUnavailable
from planform.features import FEATURES

_GATE: Final = re.compile(r'^planform_feature_enabled\{name="(\w+)"\} (\S+)$', re.MULTILINE)


@click.command()
@click.option("--client", is_flag=True, help="Do not ask the control plane.")
@click.option("--kubeconfig", type=click.Path(dir_okay=False, path_type=Path), help="Which control plane to ask.")
@output_option("table", "json", "yaml")
def features(client: bool, kubeconfig: Path | None, output: str) -> None:
    """List the feature gates, and how the running control plane has them set.

    Set one with `planform up --feature-gates NAME=true`. The column SET shows `-` where no control plane answers.
    """
    running = {} if client else _running_gates(kubeconfig)
    if output != "table":
        fields = ("name", "default", "stage", "summary", "alias")
        write_data(
            [
                {f: getattr(feature, f) for f in fields} | {"set": running.get(feature.name)}
                for feature in FEATURES.values()
            ],
            output,
        )
        return
    rows = [(f.name, _on_off(f.default), _on_off(running.get(f.name)), f.stage, f.summary) for f in FEATURES.values()]
    click.echo(table(("NAME", "DEFAULT", "SET", "STAGE", "WHAT IT DOES"), rows))


def _on_off(value: bool | None) -> str:
    return "-" if value is None else "on" if value else "off"


def _running_gates(kubeconfig: Path | None) -> dict[str, bool]:
    """How a control plane has its gates set, by its metrics; empty where none answers, or does not let us see."""
    import asyncio

    from planform.cli.connection import connect
    from planform.cli.paths import NoControlPlane

    async def ask() -> str:
        async with connect(kubeconfig, timeout=3.0) as connection:
            return (await connection.transport.request("GET", "/metrics")).body.decode()

    try:
        text = asyncio.run(ask())
    except NoControlPlane:
        return {}
    except PlanformError:
        if kubeconfig is not None:
            raise
        return {}
    return {name: float(value) == 1.0 for name, value in _GATE.findall(text)}


@click.command()
@click.option("--client", is_flag=True, help="Do not ask the control plane.")
@click.option("--kubeconfig", type=click.Path(dir_okay=False, path_type=Path), help="Which control plane to ask.")
@output_option("table", "json", "yaml")
def version(client: bool, kubeconfig: Path | None, output: str) -> None:
    """Show the versions of planform and of a running control plane."""
    found: dict[str, Any] = {"client": __version__}
    failure: PlanformError | None = None
    if not client:
        try:
            found["server"] = _server_version(kubeconfig)
        except PlanformError as error:
            found["server"], failure = None, error
    if output != "table":
        write_data(found, output)
    else:
        click.echo(f"Client Version: {__version__}")
        if not client and failure is None:
            click.echo(f"Server Version: {found['server'] or 'none is running'}")
    if failure is not None:
        raise failure


def _server_version(kubeconfig: Path | None) -> str | None:
    import asyncio

    from planform.cli.connection import connect
    from planform.cli.paths import NoControlPlane

    async def ask() -> str:
        async with connect(kubeconfig, timeout=3.0) as connection:
            return str((await connection.raw("/version"))["gitVersion"])

    try:
        return asyncio.run(ask())
    except (ServiceUnavailable, NoControlPlane):
        return None


@click.command()
@click.argument("shell", metavar="SHELL", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print the completion script for SHELL: bash, zsh or fish.

    For bash: `source <(planform completion bash)`. Beside commands and options it offers the kinds, names and
    namespaces of the control plane that the command would ask.
    """
    from click.shell_completion import get_completion_class

    from planform.cli.main import root

    kind = get_completion_class(shell)
    assert kind is not None
    click.echo(kind(root, {}, "planform", "_PLANFORM_COMPLETE").source())
