"""`planform controllers`: run all controllers against a Kubernetes API server, beside other replicas."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from planform.cli.config import config_option
from planform.cli.crossplane_flags import crossplane_flags, note_flags
from planform.cli.durations import duration_option
from planform.cli.gates import gate_options, gates_of
from planform.cli.output import say
from planform.cli.sandboxing import function_network_of, sandbox_options
from planform.cli.tenancy import composed_kinds_of, tenancy_options
from planform.cli.up import parse_listen
from planform.errors import UsageError

_LEVELS = ("debug", "info", "warning", "error")


@click.command(context_settings={"auto_envvar_prefix": "PLANFORM"})
@config_option
@click.option(
    "--kubeconfig",
    type=click.Path(dir_okay=False, path_type=Path),
    default=None,
    help="The cluster to work on.  [default: KUBECONFIG, ~/.kube/config, the pod we are in]",
)
@click.option("--context", "context_name", default="", help="Which context of the kubeconfig to use.")
@click.option("--in-cluster", is_flag=True, help="The cluster whose pod we run in, as its service account.")
@click.option(
    "--namespace",
    default=None,
    metavar="NAME",
    help="Where Leases and the webhook's Secret are.  [default: the pod's own, or planform-system]",
)
@click.option(
    "--identity", default=None, metavar="NAME", help="What this replica is called.  [default: host name and process]"
)
@click.option(
    "--data",
    type=click.Path(file_okay=False, path_type=Path),
    default=None,
    help="Directory for the journal of runs; without it the journal is kept in memory.",
)
@click.option(
    "--listen",
    default="127.0.0.1:8080",
    show_default=True,
    metavar="HOST:PORT",
    help="Where to serve /metrics, /healthz, /readyz and /livez, without TLS.",
)
@click.option(
    "--take-over", is_flag=True, help="Put a Crossplane that works in the cluster to rest, and take its place."
)
@click.option(
    "--prepare", is_flag=True, help="Only bring our kinds and the certificates that replicas share; then end."
)
@click.option("--give-back", is_flag=True, help="Only wake the Crossplane that --take-over put to rest.")
@click.option(
    "--webhook-listen",
    default="",
    metavar="HOST:PORT",
    help="Where to answer admission reviews, over TLS; without it nothing is asked before a write.",
)
@click.option(
    "--webhook-url",
    default="",
    metavar="URL",
    help="Where the API server finds the webhook.  [default: the Service with --in-cluster, else where it listens]",
)
@click.option(
    "--webhook-service",
    default="planform-webhook",
    show_default=True,
    metavar="NAME",
    help="The Service in front of the webhook, with --in-cluster.",
)
@click.option(
    "--shards",
    default="0/1",
    show_default=True,
    metavar="N/M",
    help="Divide the XRs into M shards that replicas share; this one is meant for shard N, from 0.",
)
@duration_option("--lease-duration", default="10s", help="How long a dead leader is waited for.")
@duration_option("--request-timeout", default="10s", help="How long one request to the API server may take.")
@click.option(
    "--requests-per-second",
    type=click.FloatRange(min=0),
    default=500.0,
    show_default=True,
    metavar="N",
    help="Most requests to the API server in the long run, shared fairly by controllers; 0 is no limit.",
)
@click.option(
    "--request-burst",
    type=click.IntRange(min=1),
    default=1000,
    show_default=True,
    metavar="N",
    help="Most requests at once.",
)
@click.option(
    "--function-runtime",
    type=click.Choice(["kubernetes", "process", "external"]),
    default=None,
    help="Who runs functions: the cluster, this machine or somebody else.  [default: the cluster if we are in it]",
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
@duration_option("--grace-period", default="30s", help="How long reconciles in hand may take when it stops.")
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
@sandbox_options
@click.option(
    "--debug-no-shortcuts",
    is_flag=True,
    help="To debug planform itself: reconcile XRs at every event, from what is stored, and ask every function again.",
)
@click.option("--log-level", type=click.Choice(_LEVELS), default="info", show_default=True)
@click.option("--log-format", type=click.Choice(["text", "json"]), default="text", show_default=True)
@crossplane_flags
def controllers(**options: Any) -> None:
    """Run the control plane's controllers on a Kubernetes cluster.

    Start as many replicas as you like: one of them works, the others wait to take over. Stop one with Ctrl-C or
    SIGTERM; another goes on within seconds. Every option can also stand in a file (--config) or in the environment
    (PLANFORM_NAMESPACE, ...).
    """
    from planform.app import run_loop
    from planform.cluster import ClusterSettings
    from planform.composition.revisions import TOOL_LABELS
    from planform.controllers.shipped_functions import BuiltInUse
    from planform.reconcile.shards import parse_share
    from planform.telemetry.logs import set_up_logging

    host, port = parse_listen(options["listen"], ephemeral=False)
    connection = _connection(options["kubeconfig"], options["context_name"], inside=options["in_cluster"])
    namespace = options["namespace"] or (connection.namespace if options["in_cluster"] else "planform-system")
    if options["give_back"]:
        run_loop(_give_back(connection))
        return
    settings = ClusterSettings(
        connection=connection,
        take_over=options["take_over"],
        identity=options["identity"] or f"{socket.gethostname()}-{os.getpid()}-{os.urandom(3).hex()}",
        namespace=namespace,
        data=options["data"],
        host=host,
        port=port,
        features=gates_of(options),
        poll_interval=options["poll_interval"],
        max_concurrent_reconciles=options["max_concurrent_reconciles"],
        lease_seconds=options["lease_duration"],
        request_seconds=options["request_timeout"],
        requests_per_second=options["requests_per_second"],
        request_burst=options["request_burst"],
        grace_seconds=options["grace_period"],
        otlp_endpoint=options["otlp_endpoint"],
        phase_function_versions=options["phase_function_versions"],
        tool_labels=(*TOOL_LABELS, *options["tool_labels"]),
        builtin_functions=BuiltInUse(options["builtin_functions"]),
        composed_kinds=composed_kinds_of(options),
        activations=tuple(filter(None, options["activations"])),
        shortcuts=not options["debug_no_shortcuts"],
        allow_unconfined_functions=options["allow_unconfined_functions"],
        function_network=function_network_of(options),
        webhook=_webhook(options, namespace),
        share=parse_share(options["shards"]),
        function_runtime=options["function_runtime"] or ("kubernetes" if options["in_cluster"] else "process"),
    )
    note_flags(options)
    set_up_logging(
        sys.stderr, level="debug" if options["debug"] else options["log_level"], format=options["log_format"]
    )
    run_loop(_prepare(settings) if options["prepare"] else _work(settings))


def _connection(kubeconfig: Path | None, context: str, *, inside: bool) -> Any:
    from planform.client.kubeconfig import find_connection, in_cluster
    from planform.clock import SystemClock

    if inside and (kubeconfig is not None or context):
        raise UsageError("--in-cluster is the cluster we run in; --kubeconfig names another", hint="give one of them")
    if inside:
        return in_cluster(clock=SystemClock())
    return find_connection(clock=SystemClock(), path=kubeconfig, context=context)


async def _give_back(connection: Any) -> None:
    from random import Random

    from planform.client.kubernetes import KubernetesClient
    from planform.clock import SystemClock
    from planform.controllers.coexistence import give_back

    async with KubernetesClient(connection, clock=SystemClock(), rng=Random()) as client:
        for workload in await give_back(client):
            say(f"{workload['metadata']['name']} has {workload['spec']['replicas']} replicas again")


def _webhook(options: Mapping[str, Any], namespace: str) -> Any:
    from planform.cluster import WebhookSettings

    if not options["webhook_listen"]:
        return None
    host, port = parse_listen(options["webhook_listen"], ephemeral=False)
    service = options["webhook_service"] if options["in_cluster"] and not options["webhook_url"] else ""
    return WebhookSettings(host=host, port=port, namespace=namespace, service=service, url=options["webhook_url"])


async def _prepare(settings: Any) -> None:
    from planform.cluster import prepare

    await prepare(settings, said=say)


async def _work(settings: Any) -> None:
    from planform.app import alone, settle_process
    from planform.cluster import run_controllers

    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)
    settle_process()
    try:
        await run_controllers(settings, stopping=stopping, said=say)
    except BaseExceptionGroup as group:
        raise alone(group) from None
    say("stopped")
