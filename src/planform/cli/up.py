"""`planform up`: start a control plane, say when it is ready, stop cleanly."""

from __future__ import annotations

import asyncio
import signal
import sys
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from planform.cli.config import config_option
from planform.cli.crossplane_flags import crossplane_flags, note_flags
from planform.cli.durations import duration_option
from planform.cli.gates import gate_options, gates_of
from planform.cli.output import say
from planform.cli.places import default_data_directory
from planform.cli.sandboxing import function_network_of, sandbox_options
from planform.cli.tenancy import composed_kinds_of, tenancy_options
from planform.errors import UsageError

_LEVELS = ("debug", "info", "warning", "error")


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
@gate_options
@tenancy_options
@duration_option("--poll-interval", default="60s", help="How often to look at what no watch covers.")
@click.option(
    "--max-concurrent-reconciles",
    type=click.IntRange(min=1),
    default=100,
    show_default=True,
    metavar="N",
    help="Reconciles under way at once.",
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
    "--otlp-endpoint",
    envvar="OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
    metavar="URL",
    default="",
    help="Send a trace of every reconcile to this OTLP/HTTP collector, as http://127.0.0.1:4318/v1/traces.",
)
@click.option(
    "--phase-function-versions",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="A file that says which versions of phase functions are stable, deprecated or removed here.",
)
@click.option(
    "--builtin-functions",
    type=click.Choice(["always", "matching", "never"]),
    default="always",
    show_default=True,
    help="For which packages a function that ships with planform serves: all, those of the version it behaves like,"
    " or none; the others are pulled and run.",
)
@click.option(
    "--tool-label",
    "tool_labels",
    multiple=True,
    metavar="PATTERN",
    help="A label of Compositions that makes no new revision, beside those of known tools; may end in *.",
)
@click.option(
    "--activation",
    "activations",
    multiple=True,
    metavar="PATTERN",
    default=("*",),
    show_default=True,
    help="Definitions of managed resources that the default activation policy activates; an empty one means none.",
)
@click.option(
    "--unconfined-tasks",
    multiple=True,
    metavar="NAMESPACE",
    help="Where tasks of phases that ask for `runtime: process` see all of this machine's files, as we do.",
)
@click.option("--encrypt-secrets", is_flag=True, help="Encrypt Secrets on disk; the key stays in DATA/pki.")
@sandbox_options
@click.option(
    "--debug-no-shortcuts",
    is_flag=True,
    help="To debug planform itself: reconcile XRs at every event, from what is stored, and ask every function again.",
)
@click.option("--log-level", type=click.Choice(_LEVELS), default="info", show_default=True)
@click.option("--log-format", type=click.Choice(["text", "json"]), default="text", show_default=True)
@crossplane_flags
@click.pass_context
def up(context: click.Context, /, **options: Any) -> None:
    """Start a control plane on this machine.

    It serves the Kubernetes API over HTTPS, keeps everything in one directory, and writes a kubeconfig. Stop it with
    Ctrl-C or SIGTERM. Every option can also stand in a file (--config) or in the environment (PLANFORM_DATA, ...).
    """
    from planform.app import Settings, run_loop
    from planform.composition.revisions import TOOL_LABELS
    from planform.controllers.shipped_functions import BuiltInUse
    from planform.telemetry.logs import set_up_logging

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
        features=gates_of(options),
        poll_interval=options["poll_interval"],
        max_concurrent_reconciles=options["max_concurrent_reconciles"],
        synchronous="FULL" if options["durability"] == "full" else "NORMAL",
        accept_loss=options["accept_loss"],
        audit_log=options["audit_log"],
        encrypt_secrets=options["encrypt_secrets"],
        otlp_endpoint=options["otlp_endpoint"],
        phase_function_versions=options["phase_function_versions"],
        tool_labels=(*TOOL_LABELS, *options["tool_labels"]),
        builtin_functions=BuiltInUse(options["builtin_functions"]),
        composed_kinds=composed_kinds_of(options),
        unconfined_tasks=frozenset(options["unconfined_tasks"]),
        activations=tuple(filter(None, options["activations"])),
        shortcuts=not options["debug_no_shortcuts"],
        allow_unconfined_functions=options["allow_unconfined_functions"],
        function_network=function_network_of(options),
    )
    note_flags(options)
    set_up_logging(
        sys.stderr, level="debug" if options["debug"] else options["log_level"], format=options["log_format"]
    )
    run_loop(_serve(settings))


async def _serve(settings: Any) -> None:
    from planform.app import open_control_plane

    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)
    async with open_control_plane(settings) as plane:
        say(f"planform is ready at {plane.url} after {plane.started_in:.2f} s")
        say(f"  to use it:  export KUBECONFIG={plane.kubeconfig.absolute()}")
        if settings.data is None:
            say("  ephemeral:  nothing is kept when it stops")
        await stopping.wait()
        say("stopping")
    say("stopped; nothing is lost" if settings.data is not None else "stopped")


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
