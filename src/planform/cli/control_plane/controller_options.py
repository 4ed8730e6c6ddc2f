"""Options that `planform up` and `planform controllers` share: both run the same controllers."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import click

from planform.cli.control_plane.crossplane_flags import crossplane_flags, note_flags
from planform.cli.control_plane.feature_gates import gate_options, gates_of
from planform.cli.control_plane.sandbox_options import function_network_of, sandbox_options
from planform.cli.control_plane.tenancy_options import composed_kinds_of, tenancy_options
from planform.cli.durations import duration_option

_OPTIONS = (
    gate_options,
    tenancy_options,
    duration_option("--poll-interval", default="60s", help="How often to look at what no watch covers."),
    click.option(
        "--max-concurrent-reconciles",
        type=click.IntRange(min=1),
        default=100,
        show_default=True,
        metavar="N",
        help="Reconciles under way at once.",
    ),
    click.option(
        "--otlp-endpoint",
        envvar="OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
        metavar="URL",
        default="",
        help="Send a trace of every reconcile to this OTLP/HTTP collector, as http://127.0.0.1:4318/v1/traces.",
    ),
    click.option(
        "--phase-function-versions",
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
        help="A file that says which versions of phase functions are stable, deprecated or removed here.",
    ),
    click.option(
        "--builtin-functions",
        type=click.Choice(["always", "matching", "never"]),
        default="always",
        show_default=True,
        help="For which packages a function that ships with planform serves: all, those of the version it behaves"
        " like, or none; the others are pulled and run.",
    ),
    click.option(
        "--tool-label",
        "tool_labels",
        multiple=True,
        metavar="PATTERN",
        help="A label of Compositions that makes no new revision, beside those of known tools; may end in *.",
    ),
    click.option(
        "--activation",
        "activations",
        multiple=True,
        metavar="PATTERN",
        default=("*",),
        show_default=True,
        help="Definitions of managed resources that the default activation policy activates; an empty one means none.",
    ),
    click.option(
        "--rollout-addresses",
        default="",
        metavar="LIST",
        help="Networks and hosts that gates and notifications of Rollouts may call although they are not public:"
        " 10.0.0.0/8,prometheus.monitoring.svc,localhost:9090.",
    ),
    sandbox_options,
    click.option(
        "--debug-no-shortcuts",
        is_flag=True,
        help="To debug planform itself: reconcile XRs at every event, from what is stored, and ask every function"
        " again.",
    ),
    click.option(
        "--log-level", type=click.Choice(("debug", "info", "warning", "error")), default="info", show_default=True
    ),
    click.option("--log-format", type=click.Choice(["text", "json"]), default="text", show_default=True),
    crossplane_flags,
)


def controller_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """All of them, in the order in which help shows them."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def controller_settings(options: Mapping[str, Any]) -> dict[str, Any]:
    """What the settings of both engines take from these options."""
    from planform.compositions.revisions import TOOL_LABELS
    from planform.features import BuiltInUse
    from planform.rollouts.gates.tools import rollout_reach

    return {
        "features": gates_of(options),
        "poll_interval": options["poll_interval"],
        "max_concurrent_reconciles": options["max_concurrent_reconciles"],
        "otlp_endpoint": options["otlp_endpoint"],
        "phase_function_versions": options["phase_function_versions"],
        "tool_labels": (*TOOL_LABELS, *options["tool_labels"]),
        "builtin_functions": BuiltInUse(options["builtin_functions"]),
        "composed_kinds": composed_kinds_of(options),
        "kcl_modules": options["allow_kcl_modules"],
        "activations": tuple(filter(None, options["activations"])),
        "shortcuts": not options["debug_no_shortcuts"],
        "allow_unconfined_functions": options["allow_unconfined_functions"],
        "rollout_reach": rollout_reach(options["rollout_addresses"]),
        "function_network": function_network_of(options),
    }


def start_logging(options: Mapping[str, Any]) -> None:
    """Log as the options say, and say which of Crossplane's flags mean nothing here."""
    from planform.telemetry.logs import set_up_logging

    note_flags(options)
    level = "debug" if options["debug"] else options["log_level"]
    set_up_logging(sys.stderr, level=level, format=options["log_format"])
