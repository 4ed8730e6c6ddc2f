"""`planform dashboard`: see a control plane in a browser, with the kubeconfig's own identity."""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import signal
import sys
import webbrowser
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import click

from planform.cli.connection import connection_options
from planform.cli.output import say
from planform.cli.paths import default_data_directory, find_kubeconfig
from planform.errors import UsageError

if TYPE_CHECKING:
    from planform.web.answers import FindingRow
    from planform.web.upstream import Upstream

_LOOPBACK: Final = ("127.0.0.1", "localhost", "::1")


@click.command()
@click.option("--listen", default=None, metavar="HOST:PORT", help="Where to serve.  [default: any free loopback port]")
@click.option("--read-only", is_flag=True, help="Turn all actions off.")
@click.option("--no-browser", is_flag=True, help="Open no browser; print the address with its one-time code.")
@click.option("--link", is_flag=True, help="Print a one-time link to the dashboard that `planform up` serves, and end.")
@click.option(
    "--link-out",
    "links",
    multiple=True,
    metavar="LABEL=URL",
    help="A link on each XR's page; {kind}, {namespace}, {name} and {uid} are filled in.",
)
@click.option(
    "-n",
    "--namespace",
    "namespaces",
    multiple=True,
    help="A namespace that you may read, where you may neither read all nor list their names. Repeatable.",
)
@connection_options
def dashboard(
    listen: str | None,
    read_only: bool,
    no_browser: bool,
    link: bool,
    links: Sequence[str],
    namespaces: Sequence[str],
    kubeconfig: Path | None,
    context: str,
) -> None:
    """See the fleet, the why and the change in a browser.

    It serves on this machine only and asks the control plane as you: with the certificate, token or plugin of your
    kubeconfig. It works with an embedded control plane, with planform on Kubernetes, and read-only with any cluster
    that runs Crossplane. The browser gets a code that works once, for a minute; Enter gives another. Ctrl-C stops it.
    """
    if link:
        click.echo(asyncio.run(_mint_link(kubeconfig, context)))
        return
    from planform.cli.control_plane.up import parse_listen

    host, port = ("127.0.0.1", 0) if listen is None else parse_listen(listen, ephemeral=False)
    if host not in _LOOPBACK:
        raise UsageError(
            f"the dashboard has your own rights, and {host} can be reached by others",
            hint="listen on 127.0.0.1; from elsewhere use `ssh -L`, or /ui/ of `planform up`",
        )
    looks = _Looks(read_only, dict(_parse_links(links)), tuple(namespaces))
    asyncio.run(_serve(host, port, kubeconfig, context, looks, browse=not no_browser))


class _Looks(NamedTuple):
    """What the user asked to see, and how."""

    read_only: bool
    links: dict[str, str]
    namespaces: tuple[str, ...]


def _parse_links(links: Sequence[str]) -> list[tuple[str, str]]:
    found = []
    for link in links:
        label, equals, url = link.partition("=")
        if not equals or not url.startswith(("https://", "http://")):
            raise click.BadParameter(f'"{link}" is not LABEL=https://…', param_hint="--link-out")
        found.append((label, url))
    return found


async def _serve(host: str, port: int, kubeconfig: Path | None, context: str, looks: _Looks, *, browse: bool) -> None:
    from planform.apiserver.wire.http import HttpServer, Limits
    from planform.client.kubeconfig import find_connection
    from planform.clock import SystemClock
    from planform.web.identities import SELF, KubeconfigIdentity
    from planform.web.page import Page
    from planform.web.server import Dashboard, refusal

    clock = SystemClock()
    connection = find_connection(clock=clock, path=find_kubeconfig(kubeconfig), context=context)
    identity = KubeconfigIdentity(connection, clock, looks.read_only, examine, looks.links, looks.namespaces)
    page = Page()
    if not page.built:
        raise UsageError(
            "this installation has no built page",
            hint="in the source tree: make ui (needs Node 20.19 or newer, or takes Node from PyPI); or install a wheel",
        )
    bound = 0
    dashboard = Dashboard(
        identity,
        clock=clock,
        page=page,
        hosts=lambda: [f"{name}:{bound}" for name in ("127.0.0.1", "localhost", "[::1]")],
        scheme="http",
        cookie=lambda: f"planform-{bound}",
    )
    limits = Limits(connections=256, body_bytes=64 * 1024, header_bytes=16 * 1024, buffered_bytes=4 * 1024 * 1024)
    server = HttpServer(dashboard.handle, refusal, limits=limits)
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)
    async with dashboard.serving():
        bound = await server.start(host, port)
        name = f"[{host}]" if ":" in host else host
        base = f"http://{name}:{bound}/ui/"

        def give() -> None:
            address = f"{base}#code={dashboard.sessions.mint(SELF)}"
            if browse:
                _open_browser(address)
                say(f"the dashboard is at {base}")
            else:
                click.echo(address)

        give()
        say(f"  control plane:  {connection.server}{'  (read-only)' if looks.read_only else ''}")
        say("  Enter opens it again with a new code; Ctrl-C stops it")
        forget = _on_enter(loop, give)
        try:
            await stopping.wait()
        finally:
            forget()
            await server.stop(grace=0.2)


def _on_enter(loop: asyncio.AbstractEventLoop, act: Any) -> Any:
    if not sys.stdin.isatty():
        return lambda: None

    def read() -> None:
        if sys.stdin.readline():
            act()
        else:
            loop.remove_reader(sys.stdin)

    loop.add_reader(sys.stdin, read)
    return lambda: loop.remove_reader(sys.stdin)


def _open_browser(address: str) -> None:
    """Hand the code over in a file that only this user can read: other users of the machine see every command line."""
    from planform.apiserver.auth.private_files import make_private_directory, write_private

    runtime = os.environ.get("XDG_RUNTIME_DIR")
    directory = (Path(runtime) if runtime else default_data_directory()) / "planform-dashboard"
    make_private_directory(directory)
    for old in directory.glob("open-*.html"):
        with contextlib.suppress(OSError):
            old.unlink()
    file = directory / f"open-{secrets.token_hex(8)}.html"
    page = (
        '<!doctype html><meta charset="utf-8"><title>planform</title>'
        f'<meta http-equiv="refresh" content="0;url={address}"><a href="{address}">planform</a>\n'
    )
    write_private(file, page.encode())
    if not webbrowser.open(file.absolute().as_uri()):
        click.echo(address)


async def _mint_link(kubeconfig: Path | None, context: str) -> str:
    from planform.cli.connection import connect
    from planform.errors import NotFound

    async with connect(kubeconfig, context=context) as connected:
        try:
            answer = await connected.transport.request("POST", "/ui/api/v1/links", body=b"{}")
        except NotFound as error:
            raise UsageError(
                f"{connected.server} serves no dashboard",
                hint="`planform up` serves one; for any other control plane: planform dashboard",
            ) from error
        code = answer.json()["code"]
        return f"{connected.server.rstrip('/')}/ui/#code={code}"


async def examine(upstream: Upstream) -> list[FindingRow]:
    """What `planform doctor` finds, but for what lies in Secrets, which this process never reads."""
    from planform.api.extensions import crds
    from planform.api.kinds import GroupVersionKind
    from planform.api.names import CRD, XRD
    from planform.cli.diagnosis import findings
    from planform.client.informer import list_pages
    from planform.clock import SystemClock
    from planform.definitions.crds import claim_kind, xr_kind
    from planform.errors import Forbidden, NotFound
    from planform.web.answers import FindingRow

    objects: list[Any] = []

    async def take(kind: GroupVersionKind) -> None:
        try:
            async for page in list_pages(upstream.client, kind):
                objects.extend(page.items)
        except (NotFound, Forbidden):
            return

    kinds = [CRD]
    for crd in crds():
        version = next(each["name"] for each in crd["spec"]["versions"] if each["storage"])
        kinds.append(GroupVersionKind(crd["spec"]["group"], version, crd["spec"]["names"]["kind"]))
    for kind in kinds:
        await take(kind)
    for xrd in [each for each in objects if each["kind"] == XRD.kind]:
        for found in (xr_kind(xrd), claim_kind(xrd)):
            if found is not None:
                await take(found)
    found_here = await asyncio.to_thread(findings.examine, findings.Patient(objects, SystemClock().now()))
    return [
        FindingRow(level=each.level, subject=each.about, message=each.message, hint=each.hint)
        for each in found_here
        if each.level != "works"
    ]
