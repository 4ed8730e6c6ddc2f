"""The flags by which `crossplane core start` switches features, so that what starts it can start planform.

A flag of a feature that is a gate here sets the gate. Most others are about what planform always does: they are
understood, and somebody who switches such a feature off is told that it stays on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

import click

from planform.cli.output import say
from planform.features import FEATURES

F = TypeVar("F", bound=Callable[..., Any])

ALWAYS_ON: Final = (
    "enable-operations",
    "enable-signature-verification",
    "enable-function-response-cache",
    "enable-pipeline-inspector",
    "enable-deployment-runtime-configs",
    "enable-usages",
    "enable-ssa-claims",
    "enable-realtime-compositions",
    "enable-custom-to-managed-resource-conversion",
    "enable-webhooks",
)


def crossplane_flags(command: F) -> F:
    """Add `--debug` and the flags of features; each takes an optional true or false. They are not in the help."""
    for flag in (*ALWAYS_ON, *_gates()):
        command = click.option(f"--{flag}", is_flag=False, flag_value="true", type=bool, default=None, hidden=True)(
            command
        )
    return click.option("--debug", is_flag=True, hidden=True)(command)


def gates_from(options: Mapping[str, Any]) -> list[str]:
    """What the flags say about gates, as `--feature-gates` takes it; says what cannot be switched off."""
    for flag in ALWAYS_ON:
        if options.get(flag.replace("-", "_")) is False:
            say(f"--{flag}=false changes nothing: planform always does it")
    given = {name: options.get(flag.replace("-", "_")) for flag, name in _gates().items()}
    return [f"{name}={str(value).lower()}" for name, value in given.items() if value is not None]


def _gates() -> dict[str, str]:
    """The gate of each flag."""
    return {feature.alias: feature.name for feature in FEATURES.values() if feature.alias}
