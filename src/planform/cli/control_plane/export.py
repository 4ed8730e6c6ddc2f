"""`planform export`: a whole control plane as an archive, to be imported into another engine."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

import click

from planform.cli.connection import Connected, connection_options, hush_warnings, run
from planform.cli.output import say
from planform.errors import UsageError

if TYPE_CHECKING:
    from planform.moving.contents import Contents

passphrase_option = click.option(
    "--passphrase-file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Secrets are sealed under what this file holds.",
)
data_option = click.option(
    "--data",
    type=click.Path(file_okay=False, path_type=Path),
    default=None,
    help="The data directory of a control plane that is stopped, instead of a connection.",
)


@click.command()
@click.argument("archive", type=click.Path(path_type=Path))
@data_option
@click.option("--without-secrets", is_flag=True, help="Leave Secrets behind.")
@click.option("--snapshot", is_flag=True, help="For `planform preview --snapshot`: one file, and no Secrets.")
@click.option("--force", is_flag=True, help="Go on although Rollouts are under way.")
@passphrase_option
@click.option("--include", multiple=True, metavar="KIND", help="From a cluster, all objects of this kind too.")
@connection_options
def export(
    archive: Path,
    data: Path | None,
    without_secrets: bool,
    snapshot: bool,
    force: bool,
    passphrase_file: Path | None,
    include: tuple[str, ...],
    kubeconfig: Path | None,
    context: str,
) -> None:
    """Write a whole control plane into ARCHIVE: a directory, or a file if its name ends in .tar.gz.

    Of an embedded control plane that is everything it holds. Of a cluster: all objects of planform's kinds, all XRs and
    claims, what they are composed of, the Secrets and ConfigMaps they name, and the definitions of these kinds. Stop
    the controllers first, so that nothing changes meanwhile. Refuses while a Rollout is under way, which Crossplane
    would not go on with, unless forced; a snapshot moves nothing, and is never refused.
    """
    from planform.clock import SystemClock, timestamp
    from planform.moving.archive import write_archive

    without_secrets = without_secrets or snapshot
    if without_secrets and passphrase_file:
        raise UsageError("--without-secrets leaves nothing to seal", hint="give one of them")
    if archive.exists():
        raise UsageError(f"{archive} exists already", hint="choose a new name for each export")
    if data is not None:
        contents = asyncio.run(_at_rest(data, secrets=not without_secrets, force=force or snapshot))
    else:
        hush_warnings()
        contents = run(
            kubeconfig,
            context,
            lambda connected: _connected(connected, include, secrets=not without_secrets, force=force or snapshot),
        )
    write_archive(archive, contents, made=timestamp(SystemClock().now()), passphrase=read_passphrase(passphrase_file))
    _report(archive, contents, sealed=passphrase_file is not None)


def read_passphrase(file: Path | None) -> bytes:
    """What the file holds, without the line break at its end."""
    if file is None:
        return b""
    passphrase = file.read_bytes().rstrip(b"\r\n")
    if not passphrase:
        raise UsageError(f"{file} is empty")
    return passphrase


async def is_embedded(connected: Connected) -> bool:
    """Whether it is a control plane of ours that answers, and not a cluster."""
    return "planform" in str((await connected.raw("/version")).get("gitVersion") or "")


async def _at_rest(data: Path, *, secrets: bool, force: bool) -> Contents:
    from planform.app import open_at_rest
    from planform.moving.exporting import export_everything
    from planform.rollouts.under_way import refuse_active

    if not (data / "store").is_dir():
        raise UsageError(f"{data} holds no control plane", hint="name its directory with --data")
    async with open_at_rest(data) as control_plane:
        if not force:
            await refuse_active(control_plane.client)
        return await export_everything(control_plane.client, control_plane.kinds(), secrets=secrets)


async def _connected(connected: Connected, include: tuple[str, ...], *, secrets: bool, force: bool) -> Contents:
    from planform.moving.exporting import export_everything, export_reachable
    from planform.rollouts.under_way import refuse_active

    if not force:
        await refuse_active(connected.client)
    if await is_embedded(connected):
        say("this control plane runs: what changes while it is read may be in the archive or not")
        return await export_everything(connected.client, list(await connected.client.kinds()), secrets=secrets)
    more = [await connected.find_kind(word) for word in include]
    return await export_reachable(connected.client, secrets=secrets, more=more)


def _report(archive: Path, contents: Contents, *, sealed: bool) -> None:
    secrets = sum(obj["kind"] == "Secret" for obj in contents.objects)
    for left in contents.left_out:
        say(f"left out: {left.identity}: {left.why}")
    if secrets and not sealed:
        say(f"{archive} holds {secrets} Secrets that whoever reads it can read; --passphrase-file seals them")
    say(f"exported {len(contents.objects)} objects to {archive}")
