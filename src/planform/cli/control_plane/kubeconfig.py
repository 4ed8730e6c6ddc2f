"""`planform kubeconfig`: who may enter a control plane on this machine."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from planform.cli.durations import parse_duration
from planform.cli.grouping import CommandGroup
from planform.cli.output import output_option, say, table, write_data
from planform.cli.paths import default_data_directory
from planform.clock import SystemClock, timestamp
from planform.errors import UsageError

if TYPE_CHECKING:
    from planform.apiserver.auth.pki import Pki

_data_option = click.option(
    "--data",
    type=click.Path(file_okay=False, path_type=Path),
    default=None,
    help="The control plane's data directory.  [default: ~/.local/share/planform]",
)


@click.group(cls=CommandGroup, invoke_without_command=True)
@click.pass_context
def kubeconfig(context: click.Context) -> None:
    """Give somebody access to a control plane on this machine, or take it back.

    What a user may do is decided by RBAC: bind roles to the user or to its groups.
    """
    if context.invoked_subcommand is None:
        click.echo(context.get_help())


@kubeconfig.command()
@click.option("--user", required=True, help="The name that RBAC knows.")
@click.option("--group", "groups", multiple=True, help="A group of the user; may be given several times.")
@click.option("--expires", default="30d", show_default=True, metavar="DURATION", help="30m, 12h or 90d.")
@click.option("--server", default="", help="Address to write down.  [default: the running control plane's]")
@click.option("--file", type=click.Path(dir_okay=False, path_type=Path), help="Write here instead of stdout.")
@_data_option
def create(user: str, groups: tuple[str, ...], expires: str, server: str, file: Path | None, data: Path | None) -> None:
    """Issue a client certificate and print a kubeconfig that holds it."""
    from planform.apimachinery import yaml_loader
    from planform.apiserver.auth.private_files import write_private

    directory = data or default_data_directory()
    credential = _pki(directory).issue_client(user, groups, parse_duration(expires))
    text = yaml_loader.dump(credential.kubeconfig(server or _server_of(directory)))
    if file is None:
        click.echo(text, nl=False)
    else:
        write_private(file.absolute(), text.encode())
    say(f"{user} may enter until {timestamp(credential.not_after)} (serial number {credential.serial})")


@kubeconfig.command()
@click.option("--user", default="", help="Take back everything issued for this user.")
@click.option("--serial", default="", help="Take back one certificate.")
@_data_option
def revoke(user: str, serial: str, data: Path | None) -> None:
    """Refuse certificates from now on.

    A running control plane notices within a second.
    """
    if bool(user) == bool(serial):
        raise UsageError("revoke needs either --user or --serial", hint="planform kubeconfig list shows both")
    for entry in _pki(data or default_data_directory()).revoke(user=user, serial=serial):
        click.echo(f"{entry.serial} of {entry.user} revoked")


@kubeconfig.command(name="list")
@output_option("table", "json", "yaml")
@_data_option
def list_issued(output: str, data: Path | None) -> None:
    """Show the certificates that were issued and have not expired."""
    pki = _pki(data or default_data_directory())
    rows = [
        {
            "user": entry.user,
            "groups": list(entry.groups),
            "serial": entry.serial,
            "expires": timestamp(entry.not_after),
            "revoked": pki.is_revoked(entry.serial),
        }
        for entry in pki.issued()
    ]
    if output != "table":
        write_data(rows, output)
        return
    if not rows:
        say("none was issued")
        return
    shown = [
        (r["user"], ",".join(r["groups"]), r["expires"], "yes" if r["revoked"] else "no", r["serial"])  # type: ignore[arg-type]  # a list of str
        for r in rows
    ]
    click.echo(table(("USER", "GROUPS", "EXPIRES", "REVOKED", "SERIAL"), shown))


def _pki(directory: Path) -> Pki:
    from planform.apiserver.auth.pki import Pki

    if not (directory / "pki").exists():
        raise UsageError(
            f"{directory} holds no control plane",
            hint="start one with `planform up`, or name its directory with --data",
        )
    return Pki(directory / "pki", clock=SystemClock())


def _server_of(directory: Path) -> str:
    """Where the control plane of this directory serves, or served last."""
    path = directory / "address"
    return path.read_text().strip() if path.exists() else "https://127.0.0.1:6443"
