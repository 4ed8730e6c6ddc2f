"""`planform up`: start a control plane, say when it is ready, stop cleanly."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from planform.cli.config import config_option
from planform.cli.control_plane.controller_options import controller_options, controller_settings, start_logging
from planform.cli.output import say
from planform.cli.paths import default_data_directory
from planform.errors import UsageError

if TYPE_CHECKING:
    from planform.web.page import Page


@click.command(context_settings={"auto_envvar_prefix": "PLANFORM"})
@config_option
@click.option(
    "--data",
    type=click.Path(file_okay=False, path_type=Path),
    default=None,
    help="Directory for everything that lasts.  [default: ~/.local/share/planform]",
)
@click.option("--ephemeral", is_flag=True, help="Keep nothing: a fresh control plane that is gone when it stops.")
@click.option(
    "--listen",
    default=None,
    metavar="HOST:PORT",
    help="Where to serve.  [default: 127.0.0.1:6443, or any free port with --ephemeral]",
)
@click.option(
    "--kubeconfig",
    envvar="PLANFORM_WRITE_KUBECONFIG",
    type=click.Path(dir_okay=False, path_type=Path),
    default=None,
    help="Where to write the administrator's kubeconfig.  [default: DATA/kubeconfig]",
)
@click.option("--tls-name", "tls_names", multiple=True, metavar="NAME", help="Another name or address of this server.")
@click.option(
    "--token-file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="CSV of static bearer tokens: token,user,uid,groups.",
)
@click.option(
    "--durability",
    type=click.Choice(["full", "normal"]),
    default="full",
    show_default=True,
    help="Whether a power cut may lose the last moments.",
)
@click.option(
    "--accept-loss", is_flag=True, help="Start although acknowledged writes are lost, as StoreIncomplete says."
)
@click.option("--audit-log", type=click.Path(dir_okay=False, path_type=Path), help="Write a line for every request.")
@click.option(
    "--unconfined-tasks",
    multiple=True,
    metavar="NAMESPACE",
    help="Where tasks of phases that ask for `runtime: process` see all of this machine's files, as we do.",
)
@click.option("--encrypt-secrets", is_flag=True, help="Encrypt Secrets on disk; the key stays in DATA/pki.")
@controller_options
@click.pass_context
def up(context: click.Context, /, **options: Any) -> None:
    """Start a control plane on this machine.

    It serves the Kubernetes API over HTTPS, keeps everything in one directory, and writes a kubeconfig. Stop it with
    Ctrl-C or SIGTERM. Every option can also stand in a file (--config) or in the environment (PLANFORM_DATA, ...).
    """
    from planform.app import Settings, run_loop

    if options["ephemeral"] and context.get_parameter_source("data") is ParameterSource.COMMANDLINE:
        raise UsageError("--ephemeral keeps nothing, and --data says where to keep it", hint="give one of them")
    host, port = parse_listen(options["listen"], ephemeral=options["ephemeral"])
    data = None if options["ephemeral"] else (options["data"] or default_data_directory())
    settings = Settings(
        data=data,
        host=host,
        port=port,
        kubeconfig=options["kubeconfig"],
        tls_names=tuple(options["tls_names"]),
        token_file=options["token_file"],
        synchronous="FULL" if options["durability"] == "full" else "NORMAL",
        accept_loss=options["accept_loss"],
        audit_log=options["audit_log"],
        encrypt_secrets=options["encrypt_secrets"],
        unconfined_tasks=frozenset(options["unconfined_tasks"]),
        **controller_settings(options),
    )
    start_logging(options)
    run_loop(_serve(settings))


async def _serve(settings: Any) -> None:
    from planform.app import open_control_plane

    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)
    async with open_control_plane(settings) as control_plane:
        say(f"planform is ready at {control_plane.url} after {control_plane.started_in:.2f} s")
        say(f"  to use it:  export KUBECONFIG={control_plane.kubeconfig.absolute()}")
        if settings.data is None:
            say("  ephemeral:  nothing is kept when it stops")
        async with serving_dashboard(control_plane, settings):
            await stopping.wait()
        say("stopping")
    say("stopped; nothing is lost" if settings.data is not None else "stopped")


@asynccontextmanager
async def serving_dashboard(control_plane: Any, settings: Any, page: Page | None = None) -> AsyncIterator[None]:
    """The dashboard below /ui/, in front of the API's own handler; without a built page there is none."""
    from planform.apiserver.wire.http import HttpRequest, HttpResponse
    from planform.cli.control_plane.dashboard import examine
    from planform.client.kubeconfig import find_connection
    from planform.clock import SystemClock
    from planform.web.identities import ServedIdentities
    from planform.web.page import Page
    from planform.web.server import Dashboard

    page = page or Page()
    if not page.built:
        yield
        return
    clock, handle_api = SystemClock(), control_plane.server.handler
    connection = find_connection(clock=clock, path=control_plane.kubeconfig, context="")
    port = control_plane.url.rpartition(":")[2]
    names = dict.fromkeys((settings.host, "127.0.0.1", "localhost", "[::1]", *settings.tls_names))
    dashboard = Dashboard(
        ServedIdentities(connection, clock, handle_api, control_plane.authenticator, examine),
        clock=clock,
        page=page,
        hosts=lambda: [f"{name}:{port}" for name in names],
        scheme="https",
        cookie=lambda: f"planform-{port}",
    )

    async def handle(request: HttpRequest) -> HttpResponse:
        if request.target == b"/ui" or request.target.startswith(b"/ui/"):
            return await dashboard.handle(request)
        answered: HttpResponse = await handle_api(request)
        return answered

    async with dashboard.serving():
        control_plane.server.handler = handle
        try:
            yield
        finally:
            control_plane.server.handler = handle_api


def parse_listen(text: str | None, *, ephemeral: bool) -> tuple[str, int]:
    """HOST:PORT, HOST, PORT or :PORT; raises a usage error that says which."""
    if text is None:
        return "127.0.0.1", 0 if ephemeral else 6443
    host, colon, port = text.rpartition(":")
    if not colon and not text.isdigit():
        host, port = text, "6443"
    host = host.strip("[]") or "127.0.0.1"
    if not port.isdigit() or int(port) > 65535:
        raise click.BadParameter(f'"{text}" is not HOST:PORT', param_hint="--listen")
    return host, int(port)
