"""`planform function activate|deactivate`: which revisions of a function serve, where that is left to people."""

from __future__ import annotations

from pathlib import Path

import click

from planform.api.extensions.packages import FunctionSpec
from planform.api.kinds import Object
from planform.api.metadata import name_of
from planform.api.names import FUNCTION, FUNCTION_REVISION, PACKAGE_LABEL
from planform.api.objects import spec_of
from planform.cli import completing
from planform.cli.connection import MANAGER, Connected, connection_options, run
from planform.cli.output import output_option, write_data
from planform.client.protocol import Patch, PatchType
from planform.errors import NotFound, UsageError
from planform.packages.revisions import how_to_activate


@click.command()
@click.argument("name", shell_complete=completing.names_of("functions"))
@click.option("--revision", default="", metavar="NAME|NUMBER", help="Which one.  [default: the newest]")
@output_option("text", "json", "yaml", "name", default="text")
@connection_options
def activate(name: str, revision: str, output: str, kubeconfig: Path | None, context: str) -> None:
    """Have a revision of the function NAME serve, beside those that do already."""
    _switch(name, revision, "Active", output, kubeconfig, context)


@click.command()
@click.argument("name", shell_complete=completing.names_of("functions"))
@click.option("--revision", required=True, metavar="NAME|NUMBER", help="Which one.")
@output_option("text", "json", "yaml", "name", default="text")
@connection_options
def deactivate(name: str, revision: str, output: str, kubeconfig: Path | None, context: str) -> None:
    """Have a revision of the function NAME serve no longer. Pipelines that ask for it fail from then on."""
    _switch(name, revision, "Inactive", output, kubeconfig, context)


def _switch(name: str, revision: str, state: str, output: str, kubeconfig: Path | None, context: str) -> None:
    async def act(connected: Connected) -> tuple[str, bool]:
        found = (await connected.client.list(FUNCTION_REVISION, labels=f"{PACKAGE_LABEL}={name}")).items
        chosen = choose(name, found, revision)
        number = int(chosen["spec"].get("revision") or 0)
        rank = sum(int(each["spec"].get("revision") or 0) >= number for each in found)
        await _check_policy(connected, name, state, rank)
        if chosen["spec"].get("desiredState") == state:
            return name_of(chosen), False
        patch = Patch(PatchType.MERGE, {"spec": {"desiredState": state}})
        await connected.client.patch(FUNCTION_REVISION, name_of(chosen), patch, manager=MANAGER)
        return name_of(chosen), True

    chosen, changed = run(kubeconfig, context, act)
    if output == "name":
        click.echo(chosen)
    elif output == "text":
        click.echo(f"{chosen} is {'now' if changed else 'already'} {state.lower()}")
    else:
        write_data({"name": chosen, "state": state, "changed": changed}, output)


async def _check_policy(connected: Connected, name: str, state: str, rank: int) -> None:
    """Under the policy Automatic the control plane decides, and would undo at once what is done here."""
    try:
        function = await connected.client.get(FUNCTION, name)
    except NotFound:
        return  # its revisions may have been made by hand
    spec = spec_of(function, FunctionSpec)
    if spec.is_automatic:
        history, deactivates = spec.history_limit, spec.in_use_policy == "Deactivate"
        if state == "Active":
            hint = how_to_activate(name, rank, history=history, deactivates=deactivates)
        else:
            hint = f'set activeRevisionLimit: {max(1, rank - 1)} in the spec of Function "{name}"'
        raise UsageError(
            f'function "{name}" activates its newest revisions by itself (revisionActivationPolicy: Automatic)',
            hint=f"{hint}; or set revisionActivationPolicy: Manual and do it by hand",
        )


def choose(name: str, revisions: list[Object], wanted: str) -> Object:
    """The revision of that name or number; without one, the newest. Raises UsageError."""
    ordered = sorted(revisions, key=lambda each: int(each["spec"].get("revision") or 0), reverse=True)
    for each in ordered:
        if not wanted or wanted in (name_of(each), str(each["spec"].get("revision"))):
            return each
    if not ordered:
        raise UsageError(f'function "{name}" has no revisions', hint="to see all: planform function list")
    there = ", ".join(f"{name_of(each)} ({each['spec'].get('revision')})" for each in ordered)
    raise UsageError(f'function "{name}" has no revision "{wanted}"', hint=f"there are: {there}")
