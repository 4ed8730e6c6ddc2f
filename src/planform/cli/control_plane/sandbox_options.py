"""Options that say how functions and scripts are confined."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import click


def sandbox_options(command: Callable[..., Any]) -> Callable[..., Any]:
    network = click.option(
        "--function-network",
        type=click.Choice(["host", "none"]),
        default=None,
        help="The network that functions of packages have, unless their runtime configuration says otherwise."
        "  [default: host; none with --tenants]",
    )
    unconfined = click.option(
        "--allow-unconfined-functions",
        is_flag=True,
        help="Run functions and scripts also where nothing hides the files of this machine from them.",
    )
    modules = click.option(
        "--allow-kcl-modules",
        multiple=True,
        metavar="REGISTRY/PREFIX",
        help="Let KCL programs have modules from here, pinned by their digests; may be given several times."
        "  [default: none]",
    )
    return network(unconfined(modules(command)))


def function_network_of(options: Mapping[str, Any]) -> str:
    """What was said of the network, else what `--tenants` means for it."""
    return options["function_network"] or ("none" if options["tenants"] else "host")
