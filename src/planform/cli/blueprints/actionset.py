"""`planform actionset`: run the actions of Blueprints, watch them, read what they said, end them."""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from planform.api.kinds import Object
from planform.api.metadata import name_of, namespace_of, resource_version_of, uid_of
from planform.api.names import ACTION_SET
from planform.blueprints import LOGS_PATH as PATH
from planform.blueprints.action_status import COMPLETE, OVER
from planform.blueprints.model import CANCEL_ANNOTATION
from planform.cli.blueprints.progress import Changes, picture, problems, state_of, summary
from planform.cli.blueprints.requests import Wanted, action_set, child_action_set, mixed_targets, pairs, targets
from planform.cli.connection import MANAGER, Connected, connection_options, run
from planform.cli.durations import duration_option
from planform.cli.grouping import CommandGroup
from planform.cli.objects.waiting import Goal, WaitTimedOut
from planform.cli.output import output_option, say, write_data
from planform.client.protocol import Patch, PatchType
from planform.errors import Conflict, Forbidden, NotFound, UsageError

FAILED_CODE = 1
_PATIENCE = 30.0
_LOOK_AGAIN = 0.5
_GOAL = Goal("its end", "over", lambda obj: obj is not None and state_of(obj) in OVER)


@click.group(cls=CommandGroup)
def actionset() -> None:
    """Run the actions of Blueprints on objects: backups, restores and whatever else has to be done to them."""


_namespace_option = click.option(
    "-n", "--namespace", default="", help="Namespace of the ActionSet.  [default: the context's]"
)
_wait_option = click.option("--wait", is_flag=True, help="Wait for the end and show what happens until then.")
_timeout_option = duration_option("--timeout", default="10m", help="How long to wait.")


def _many(*flags: str, help: str, metavar: str = "[NAMESPACE/]NAME") -> Callable[[Any], Any]:
    return click.option(*flags, multiple=True, metavar=metavar, help=help)


@actionset.command()
@click.option("-a", "--action", required=True, help="Which action of the Blueprint.")
@click.option("-b", "--blueprint", default="", help="Which Blueprint.")
@click.option("--name", default="", help="What to call the ActionSet.  [default: the action and some letters]")
@click.option("-f", "--from", "parent", default="", metavar="ACTIONSET", help="Go on from a complete ActionSet.")
@_many("--object", "objects", metavar="KIND=[NAMESPACE/]NAME", help="On what to act; a kind as `get` takes it.")
@_many("-d", "--deployment", help="The same as --object deployment=...")
@_many("-s", "--statefulset", help="The same as --object statefulset=...")
@_many("-v", "--pvc", help="The same as --object pvc=...")
@_many("-T", "--namespacetargets", "namespaces", metavar="NAME", help="The same as --object namespace=...")
@click.option("-p", "--profile", default="", metavar="[NAMESPACE/]NAME", help="The Profile with the location.")
@_many("--options", metavar="NAME=VALUE,...", help="Options of the action.")
@_many("--secrets", metavar="ALIAS=[NAMESPACE/]NAME,...", help="Secrets that templates see by alias.")
@_many("-c", "--config-maps", metavar="ALIAS=[NAMESPACE/]NAME,...", help="ConfigMaps that templates see by alias.")
@click.option("--preferred-version", default="", help="Version of functions where the Blueprint pins none.")
@click.option("--dry-run", is_flag=True, help="Print the ActionSet and create nothing.")
@_wait_option
@_timeout_option
@_namespace_option
@output_option("name", "json", "yaml", default="name")
@connection_options
def create(
    action: str,
    blueprint: str,
    name: str,
    parent: str,
    objects: tuple[str, ...],
    deployment: tuple[str, ...],
    statefulset: tuple[str, ...],
    pvc: tuple[str, ...],
    namespaces: tuple[str, ...],
    profile: str,
    options: tuple[str, ...],
    secrets: tuple[str, ...],
    config_maps: tuple[str, ...],
    preferred_version: str,
    dry_run: bool,
    wait: bool,
    timeout: float,
    namespace: str,
    output: str,
    kubeconfig: Path | None,
    context: str,
) -> None:
    """Run an action of a Blueprint: `planform actionset create -a backup -b postgres -d shop/db --wait`.

    With --from, the artifacts and settings of a complete ActionSet are taken over, and what other flags say comes on
    top: `planform actionset create -a restore --from backup-x7k2p`. With --wait, exits with 1 if the ActionSet fails
    and with 3 when the time is over.
    """
    wanted = Wanted(
        action=action,
        blueprint=blueprint,
        name=name,
        namespace=namespace,
        objects=[
            *mixed_targets("--object", objects),
            *targets("--deployment", "deployment", deployment),
            *targets("--statefulset", "statefulset", statefulset),
            *targets("--pvc", "pvc", pvc),
            *targets("--namespacetargets", "namespace", namespaces),
        ],
        profile=profile,
        options=pairs("--options", options),
        secrets=pairs("--secrets", secrets),
        config_maps=pairs("--config-maps", config_maps),
        preferred_version=preferred_version,
    )

    async def act(connected: Connected) -> Object:
        if parent:
            made = await child_action_set(connected, wanted, await _get(connected, parent, namespace))
        else:
            made = await action_set(connected, wanted)
        if dry_run:
            return made
        created = await connected.client.create(made, manager=MANAGER)
        if wait:
            say(f"created actionset/{name_of(created)}")
            return await _followed(connected, created, timeout)
        return created

    done = run(kubeconfig, context, act, timeout=max(_PATIENCE, timeout))
    if dry_run or output != "name":
        write_data(done, "yaml" if output == "name" else output)
    else:
        click.echo(f"actionset/{name_of(done)}")
    if wait and not dry_run:
        _end(done)


@actionset.command()
@click.argument("name")
@_wait_option
@_timeout_option
@_namespace_option
@output_option("table", "json", "yaml")
@connection_options
def status(
    name: str, wait: bool, timeout: float, namespace: str, output: str, kubeconfig: Path | None, context: str
) -> None:
    """Show the phases of an ActionSet: how far each is, which version of its function runs, and why that one.

    With --wait, exits with 1 if the ActionSet fails.
    """

    async def act(connected: Connected) -> Object:
        found = await _get(connected, name, namespace)
        return await _followed(connected, found, timeout) if wait else found

    found = run(kubeconfig, context, act, timeout=max(_PATIENCE, timeout))
    if output == "table":
        click.echo("\n".join(summary(found)))
    else:
        write_data(found, output)
    if wait and state_of(found) != COMPLETE:
        raise click.exceptions.Exit(FAILED_CODE)


@actionset.command()
@click.argument("name")
@click.option("--phase", default="", help="Only what this phase said.")
@click.option("--timestamps", is_flag=True, help="Say when.")
@click.option("-f", "--follow", is_flag=True, help="Go on until the ActionSet is over.")
@_namespace_option
@output_option("text", "json", "yaml", default="text")
@connection_options
def logs(
    name: str,
    phase: str,
    timestamps: bool,
    follow: bool,
    namespace: str,
    output: str,
    kubeconfig: Path | None,
    context: str,
) -> None:
    """Show what the phases of an ActionSet said; the last thousand lines are kept."""
    if follow and output != "text":
        raise UsageError("--follow shows text", hint="leave out --output")

    def show(lines: list[Object]) -> None:
        for line in lines:
            when = f"{line['time']} " if timestamps else ""
            if phase in ("", line["phase"]):
                click.echo(f"{when}{line['action']}/{line['phase']}: {line['line']}")

    async def act(connected: Connected) -> list[Object]:
        last: Object | None = None
        while True:
            found = await _get(connected, name, namespace)
            lines = _after(last, await _lines(connected, found))
            if not follow or state_of(found) in OVER:
                return lines
            show(lines)
            last = lines[-1] if lines else last
            await asyncio.sleep(_LOOK_AGAIN)

    lines = run(kubeconfig, context, act)
    if output == "text":
        show(lines)
    else:
        write_data([line for line in lines if phase in ("", line["phase"])], output)


def _after(last: Object | None, lines: list[Object]) -> list[Object]:
    """The lines that came after one; all of them if it made room for others."""
    for place in range(len(lines) - 1, -1, -1):
        if lines[place] == last:
            return lines[place + 1 :]
    return lines


async def _lines(connected: Connected, obj: Object) -> list[Object]:
    try:
        return list((await connected.raw(f"{PATH}/{uid_of(obj)}/logs"))["lines"])
    except NotFound as error:
        raise UsageError(f"{connected.server} keeps no logs of phases", hint="they are kept by planform") from error
    except Forbidden as error:
        error.hint = f"let a ClusterRole `get` the nonResourceURL {PATH}/*"
        raise


@actionset.command()
@click.argument("name")
@_wait_option
@_timeout_option
@_namespace_option
@connection_options
def cancel(name: str, wait: bool, timeout: float, namespace: str, kubeconfig: Path | None, context: str) -> None:
    """End an ActionSet: the phase that runs is stopped, the deferPhase still runs, the rest does not start."""

    async def act(connected: Connected) -> Object:
        found = await _get(connected, name, namespace)
        if state_of(found) in OVER:
            raise Conflict(f'ActionSet "{name}" is {state_of(found)}: there is nothing to cancel')
        patch = Patch(PatchType.MERGE, {"metadata": {"annotations": {CANCEL_ANNOTATION: "true"}}})
        place = namespace_of(found)
        changed = await connected.client.patch(ACTION_SET, name, patch, namespace=place, manager=MANAGER)
        return await _followed(connected, changed, timeout) if wait else changed

    run(kubeconfig, context, act, timeout=max(_PATIENCE, timeout))
    click.echo(f"actionset/{name} {'cancelled' if wait else 'is being cancelled'}")


async def _get(connected: Connected, name: str, namespace: str) -> Object:
    return await connected.client.get(ACTION_SET, name, namespace=namespace or connected.namespace)


async def _followed(connected: Connected, obj: Object, timeout: float) -> Object:
    """Show what becomes of an ActionSet until it is over. Raises WaitTimedOut, or NotFound once it is deleted."""
    show = _drawing() if sys.stderr.isatty() else _telling()
    name, namespace = name_of(obj), namespace_of(obj)
    try:
        async with asyncio.timeout(timeout):
            while True:
                obj = await connected.client.get(ACTION_SET, name, namespace=namespace)
                show(obj)
                if state_of(obj) in OVER:
                    return obj
                at = resource_version_of(obj)
                watch = connected.client.watch(
                    ACTION_SET, namespace=namespace, fields=f"metadata.name={name}", resource_version=at
                )
                async with watch as changes:
                    async for change in changes:
                        if change.type == "DELETED":
                            break
                        obj = change.object
                        show(obj)
                        if state_of(obj) in OVER:
                            return obj
    except TimeoutError as error:
        late = WaitTimedOut(f"actionset/{name}", _GOAL, obj, timeout)
        late.hint = f"it goes on: planform actionset status {name} -n {namespace}"
        raise late from error


def _telling() -> Callable[[Object], None]:
    """A line for each change, for logs and pipes."""
    changes = Changes()

    def show(obj: Object) -> None:
        for line in changes.since(obj):
            say(line)

    return show


def _drawing() -> Callable[[Object], None]:
    """All phases, drawn over what was drawn before."""
    drawn = 0

    def show(obj: Object) -> None:
        nonlocal drawn
        size = shutil.get_terminal_size()
        lines = picture(obj, width=size.columns, height=size.lines)
        up = f"\x1b[{drawn}A\x1b[J" if drawn else ""
        text = "\n".join(lines)
        click.echo(up + (click.unstyle(text) if os.environ.get("NO_COLOR") else text), err=True, color=True)
        drawn = len(lines)

    return show


def _end(obj: Object) -> None:
    for line in problems(obj):
        say(line)
    if state_of(obj) != COMPLETE:
        raise click.exceptions.Exit(FAILED_CODE)
