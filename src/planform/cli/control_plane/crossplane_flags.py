"""The flags by which `crossplane core start` switches features, so that what starts it can start planform.

Those of features that are gates here are options of their own (`gates`). Most others are about what planform always
does: they are understood, and somebody who switches such a feature off is told that it stays on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

import click

from planform.cli.output import say

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
    """Add `--debug` and the flags of what is always on; each takes an optional true or false. The help has none."""
    for flag in ALWAYS_ON:
        option = click.option(f"--{flag}", is_flag=False, flag_value="true", type=bool, default=None, hidden=True)
        command = option(command)
    return click.option("--debug", is_flag=True, hidden=True)(command)


def note_flags(options: Mapping[str, Any]) -> None:
    """Say what cannot be switched off."""
    for flag in ALWAYS_ON:
        if options.get(flag.replace("-", "_")) is False:
            say(f"--{flag}=false changes nothing: planform always does it")
