"""Says which sandbox this machine has: in the log when a control plane starts, and in its metrics.

`planform doctor` reads the metric.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import Final

from planform.sandbox.isolation import (
    Isolation,
    SandboxUnavailable,
    best_isolation,
    get_ready,
    limits_that_hold,
    policy,
)
from planform.sandbox.limits import Network
from planform.telemetry.metrics import MetricsRegistry

METRIC: Final = "planform_sandbox_info"
LABELS: Final = ("isolation", "unconfined", "pids", "memory", "cpu", "function_network")

log = logging.getLogger(__name__)


def configure(*, allow_unconfined: bool, function_network: str) -> None:
    """What the operator has decided, for all that this process starts from now on."""
    policy.allow_unconfined = allow_unconfined
    policy.function_network = Network(function_network)
    policy.use_cgroups = True


class SandboxReport:
    """The metric, and the words in the log."""

    def __init__(self, metrics: MetricsRegistry) -> None:
        self._info = metrics.gauge(
            "planform_sandbox_info",
            "How functions and scripts are cut off, whether they run where nothing hides files (allowed or refused), "
            "what bounds their processes, memory and CPU, and what network functions have; always 1.",
            ["isolation", "unconfined", "pids", "memory", "cpu", "function_network"],
        )

    async def run(self) -> None:
        """Look, which takes some tens of milliseconds of another thread, and tell."""
        await asyncio.to_thread(get_ready)
        found = facts()
        self._info.labels(*(found[label] for label in LABELS)).set(1.0)
        if warning := warning_of(found):
            log.warning("%s", warning)
        else:
            log.info("functions and scripts run in a sandbox: %s", found["isolation"])


def facts() -> dict[str, str]:
    """The labels of the metric; of a machine that was looked at."""
    return {
        "isolation": str(best_isolation()),
        "unconfined": "allowed" if policy.allow_unconfined else "refused",
        "function_network": str(policy.function_network),
        **limits_that_hold(),
    }


def warning_of(found: Mapping[str, str]) -> str:
    """What an operator should know of such facts; empty if all is well."""
    if found.get("isolation") != Isolation.LIMITS_ONLY:
        return ""
    refusal = SandboxUnavailable()
    if found.get("unconfined") == "allowed":
        return f"functions and scripts run unconfined and can read what the control plane can: {refusal}"
    return f"functions of packages and scripts are refused: {refusal}. To run them: {refusal.hint}"
