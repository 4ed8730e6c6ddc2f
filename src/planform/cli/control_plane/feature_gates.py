"""Feature gates on the command line: all of them by name, and some by the flag that Crossplane has for them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import click

from planform.features import FEATURES, FOR_TENANTS, FeatureGates, parse_gates

C = TypeVar("C", bound=Callable[..., Any])


def gate_options(command: C) -> C:
    """`--feature-gates A=true,B=false`, and `--ALIAS` or `--ALIAS=false` for each gate that has one."""
    for feature in reversed(list(FEATURES.values())):
        if feature.alias:
            command = click.option(
                f"--{feature.alias}",
                type=bool,
                is_flag=False,
                flag_value="true",
                default=None,
                metavar="[true|false]",
                help=f"The feature gate {feature.name}, as Crossplane spells it.",
            )(command)
    return click.option("--feature-gates", multiple=True, metavar="A=true,B=false", help="See `planform features`.")(
        command
    )


def gates_of(options: Mapping[str, Any]) -> FeatureGates:
    """What was said of gates; what is said of one by name counts more than a flag, and any word of one more than what
    `--tenants` means for it. Raises UsageError."""
    for_tenants = [f"{name}=true" for name in FOR_TENANTS] if options.get("tenants") else []
    flags = {feature.name: options.get(feature.alias.replace("-", "_")) for feature in FEATURES.values()}
    given = [f"{name}={str(value).lower()}" for name, value in flags.items() if value is not None]
    return parse_gates([*for_tenants, *given, *options["feature_gates"]])
