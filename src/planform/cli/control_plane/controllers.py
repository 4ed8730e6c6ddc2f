"""`planform controllers`: run all controllers against a Kubernetes API server, beside other replicas."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from planform.api.metadata import name_of
from planform.cli.config import config_option
from planform.cli.control_plane.controller_options import controller_options, controller_settings, start_logging
from planform.cli.control_plane.up import parse_listen
from planform.cli.durations import duration_option
from planform.cli.output import say
from planform.errors import UsageError


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
@click.option("--force", is_flag=True, help="With --give-back: although Rollouts are under way or revisions are held.")
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
    "--peer-address",
    default="",
    metavar="HOST",
    help="By what other replicas reach this one, to read its journal.  [default: the host of --webhook-listen]",
)
@click.option(
    "--shards",
    default="0/1",
    show_default=True,
    metavar="N/M",
    help="Divide the XRs into M shards that replicas share; this one is meant for shard N, from 0.",
)
@duration_option("--lease-duration", default="15s", help="How long a dead leader is waited for.")
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
@duration_option("--grace-period", default="30s", help="How long reconciles in hand may take when it stops.")
@controller_options
def controllers(**options: Any) -> None:
    """Run the control plane's controllers on a Kubernetes cluster.

    Start as many replicas as you like: one of them works, the others wait to take over. Stop one with Ctrl-C or
    SIGTERM; another goes on within seconds. Every option can also stand in a file (--config) or in the environment
    (PLANFORM_NAMESPACE, ...).
    """
    from planform.app import run_loop
    from planform.cluster import ClusterSettings
    from planform.reconcile.shards import parse_share

    host, port = parse_listen(options["listen"], ephemeral=False)
    connection = _connection(options["kubeconfig"], options["context_name"], inside=options["in_cluster"])
    namespace = options["namespace"] or (connection.namespace if options["in_cluster"] else "planform-system")
    if options["give_back"]:
        run_loop(_give_back(connection, force=options["force"]))
        return
    settings = ClusterSettings(
        connection=connection,
        take_over=options["take_over"],
        identity=options["identity"] or f"{socket.gethostname()}-{os.getpid()}-{os.urandom(3).hex()}",
        namespace=namespace,
        data=options["data"],
        host=host,
        port=port,
        lease_seconds=options["lease_duration"],
        request_seconds=options["request_timeout"],
        requests_per_second=options["requests_per_second"],
        request_burst=options["request_burst"],
        grace_seconds=options["grace_period"],
        webhook=_webhook(options, namespace),
        share=parse_share(options["shards"]),
        function_runtime=options["function_runtime"] or ("kubernetes" if options["in_cluster"] else "process"),
        **controller_settings(options),
    )
    start_logging(options)
    run_loop(_prepare(settings) if options["prepare"] else _work(settings))


def _connection(kubeconfig: Path | None, context: str, *, inside: bool) -> Any:
    from planform.client.kubeconfig import find_connection, in_cluster
    from planform.clock import SystemClock

    if inside and (kubeconfig is not None or context):
        raise UsageError("--in-cluster is the cluster we run in; --kubeconfig names another", hint="give one of them")
    if inside:
        return in_cluster(clock=SystemClock())
    return find_connection(clock=SystemClock(), path=kubeconfig, context=context)


async def _give_back(connection: Any, *, force: bool) -> None:
    from random import Random

    from planform.client.kubernetes import KubernetesClient
    from planform.clock import SystemClock
    from planform.cluster.takeover import give_back
    from planform.rollouts.under_way import refuse_unreleased

    async with KubernetesClient(connection, clock=SystemClock(), rng=Random()) as client:
        if not force:
            await refuse_unreleased(client)
        for workload in await give_back(client):
            say(f"{name_of(workload)} has {workload['spec']['replicas']} replicas again")


def _webhook(options: Mapping[str, Any], namespace: str) -> Any:
    from planform.cluster import WebhookSettings

    if not options["webhook_listen"]:
        return None
    host, port = parse_listen(options["webhook_listen"], ephemeral=False)
    service = options["webhook_service"] if options["in_cluster"] and not options["webhook_url"] else ""
    return WebhookSettings(
        host=host,
        port=port,
        namespace=namespace,
        service=service,
        url=options["webhook_url"],
        peer_host=options["peer_address"],
    )


async def _prepare(settings: Any) -> None:
    from planform.cluster import prepare

    await prepare(settings, report=say)


async def _work(settings: Any) -> None:
    from planform.app import alone, settle_process
    from planform.cluster import run_controllers

    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)
    settle_process()
    try:
        await run_controllers(settings, stopping=stopping, report=say)
    except BaseExceptionGroup as group:
        raise alone(group) from None
    say("stopped")
