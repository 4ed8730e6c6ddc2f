"""`planform import`: put what was exported into another engine, before any controller runs there."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Awaitable, Callable
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import click

from planform.api.metadata import name_of
from planform.cli.cluster.install import NAMESPACE
from planform.cli.connection import Connected, connection_options, run
from planform.cli.control_plane.export import data_option, is_embedded, passphrase_option, read_passphrase
from planform.cli.output import output_option, say, write_data
from planform.errors import NotFound, PlanformError, UsageError

if TYPE_CHECKING:
    from planform.moving.contents import Contents
    from planform.moving.importing import Imported, Step

_PATIENCE = 30.0
SHARDS = "planform-shard-"


class ControllersRun(PlanformError):
    """Controllers work on the cluster, and would act before everything is there."""

    reason = "ControllersRun"

    def __init__(self, holder: str) -> None:
        super().__init__(f'"{holder}" reconciles on this cluster, and would act before everything is imported')
        self.hint = "stop the controllers first: planform uninstall --leave-objects; install them again afterwards"


@click.command("import")
@click.argument("archive", type=click.Path(exists=True, path_type=Path))
@data_option
@passphrase_option
@click.option("--overwrite", is_flag=True, help="Change objects of the same names that say something else.")
@click.option("--dry-run", is_flag=True, help="Only list what would be done to each object.")
@click.option(
    "-n", "--namespace", default=NAMESPACE, show_default=True, help="On a cluster, where the controllers run."
)
@output_option("text", "json", "yaml", default="text")
@connection_options
def import_(
    archive: Path,
    data: Path | None,
    passphrase_file: Path | None,
    overwrite: bool,
    dry_run: bool,
    namespace: str,
    output: str,
    kubeconfig: Path | None,
    context: str,
) -> None:
    """Put what ARCHIVE holds into a data directory (--data) or a cluster.

    Objects keep their names, numbers, owners and status; uids are new, and all that refers to one follows. No
    controller runs meanwhile: a directory's control plane must be stopped, and on a cluster the controllers' Lease is
    held. Doing it again completes what was interrupted.
    """
    from planform.moving.archive import read_archive

    contents = read_archive(archive, passphrase=read_passphrase(passphrase_file))
    for left in contents.left_out:
        say(f"not in the archive: {left.identity}: {left.why}")
    if data is not None:
        imported = asyncio.run(_into_directory(data, contents, dry_run, overwrite))
    else:

        async def act(connected: Connected) -> Imported:
            if await is_embedded(connected):
                raise UsageError(
                    "this control plane runs, and would act before everything is imported",
                    hint="stop it, and name its directory with --data",
                )

            def work() -> Awaitable[Imported]:
                return _import(connected.client, contents, dry_run, overwrite)

            return await (work() if dry_run else _held(connected, namespace, work))

        imported = run(kubeconfig, context, act)
    _report(imported.steps, output, dry_run)


async def _into_directory(data: Path, contents: Contents, dry_run: bool, overwrite: bool) -> Imported:
    from planform.app import open_at_rest

    if dry_run and not (data / "store").is_dir():
        from tempfile import TemporaryDirectory

        with TemporaryDirectory() as empty:  # it does not exist, and a dry run does not make it
            return await _into_directory(Path(empty) / "data", contents, False, False)
    async with open_at_rest(data) as control_plane:
        return await _import(control_plane.client, contents, dry_run, overwrite)


async def _import(client: Any, contents: Contents, dry_run: bool, overwrite: bool) -> Imported:
    from planform.clock import SystemClock
    from planform.moving.importing import import_contents

    return await import_contents(client, contents, clock=SystemClock(), dry_run=dry_run, overwrite=overwrite)


async def _held(connected: Connected, namespace: str, work: Callable[[], Awaitable[Imported]]) -> Imported:
    """Do the work while no controller can begin to: its Lease is ours. Raises ControllersRun if one has it."""
    from planform.api.kinds import GroupVersionKind
    from planform.clock import SystemClock
    from planform.cluster.running import LEASE_NAME
    from planform.cluster.takeover import is_held
    from planform.reconcile.election import LEASE, Election

    try:
        await connected.client.get(GroupVersionKind("", "v1", "Namespace"), namespace)
    except NotFound:
        return await work()  # where the controllers would run there is nothing yet
    for lease in (await connected.client.list(LEASE, namespace=namespace)).items:
        if name_of(lease).startswith(SHARDS) and is_held(lease, SystemClock().now()):
            raise ControllersRun(lease["spec"]["holderIdentity"])
    done: list[Imported] = []
    elected = asyncio.Event()

    async def working() -> None:
        elected.set()
        done.append(await work())

    election = Election(
        connected.client,
        name=LEASE_NAME,
        namespace=namespace,
        identity=f"import on {socket.gethostname()} {os.urandom(3).hex()}",
        clock=SystemClock(),
        rng=Random(),
    )
    leading = asyncio.create_task(election.lead(working), name="import")
    waiting = asyncio.create_task(elected.wait(), name="elected")
    try:
        await asyncio.wait({leading, waiting}, timeout=_PATIENCE, return_when=asyncio.FIRST_COMPLETED)
        if not elected.is_set() and not leading.done():
            raise ControllersRun(election.leader)
        await leading
    finally:
        for task in (leading, waiting):
            task.cancel()
        await asyncio.wait({leading, waiting})
    return done[0]


def _report(steps: list[Step], output: str, dry_run: bool) -> None:
    if output != "text":
        rows = [
            {**step.identity._asdict(), "outcome": step.outcome, "differing": list(step.differing)} for step in steps
        ]
        write_data({"dryRun": dry_run, "objects": rows}, output)
    counts: dict[str, int] = {}
    for step in steps:
        counts[step.outcome] = counts.get(step.outcome, 0) + 1
        if output == "text" and step.outcome != "unchanged":
            click.echo(str(step))
    counted = ", ".join(f"{count} {outcome}" for outcome, count in sorted(counts.items())) or "no objects"
    say(f"{'dry run: ' if dry_run else ''}{counted}")
