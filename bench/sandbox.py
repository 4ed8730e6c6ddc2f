"""What the sandbox costs a call: of a function that runs, and of a script that is started for it.

    python -m bench sandbox [--rounds 9] [--calls 60]

Runs alternate between the sandbox that this machine has and none at all, so that what else the machine does meets both.
The peer of a cold start is also how scripts were started before there was a spawner: an interpreter of its own that
applies the limits, and then the script's.
"""

from __future__ import annotations

import argparse
import asyncio
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

import uvloop
from tests.harness.hosting import Hosting, open_hosting, server_payload

from bench.report import Report
from planform.packages.runtimes import launching, starting
from planform.packages.runtimes.launching import Launch, Wanted
from planform.sandbox import Isolation, Limits, best_isolation, run_once
from planform.sandbox.isolation import get_ready, policy

SCRIPT = "from planform_sdk.proto import v1"
WARM, COLD = 1.10, 1.5
REVISIONS = ("confined", "relayed", "bare")


async def warm(hosting: Hosting, revision: str, calls: int) -> float:
    began = time.perf_counter()
    for _ in range(calls):
        await hosting.call(revision)
    return (time.perf_counter() - began) / calls


async def cold(isolation: Isolation) -> float:
    began = time.perf_counter()
    done = await run_once([sys.executable, "-I", "-c", SCRIPT], b"", Limits(), isolation=isolation)
    assert done.ok, done.stderr
    return time.perf_counter() - began


async def cold_before() -> float:
    """Two interpreters, one after the other: the launcher that was, without anything it did, and the script."""
    inner = f"import ctypes, resource, os, sys; os.execv(sys.executable, [sys.executable, '-I', '-c', {SCRIPT!r}])"
    began = time.perf_counter()
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-I", "-S", "-c", inner, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    await process.communicate(b"")
    return time.perf_counter() - began


def unconfined(wanted: Wanted, **how: Any) -> Launch:
    """How a function would be started without a sandbox."""
    return replace(launching.process_launch(wanted, **how), isolation=Isolation.LIMITS_ONLY)


async def warm_calls(report: Report, rounds: int, calls: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        async with open_hosting(Path(folder) / "data", spares=None) as hosting:
            for revision, launch, network in (
                ("confined", launching.process_launch, ""),
                ("relayed", launching.process_launch, "none"),
                ("bare", unconfined, ""),
            ):
                setattr(starting, "process_launch", launch)  # noqa: B010  # the only way to have none
                hosting.want(revision, server_payload(hosting.data / "packages" / revision), network=network)
                await hosting.ready(revision)
                await warm(hosting, revision, calls)
            took = [[await warm(hosting, each, calls) for each in REVISIONS] for _ in range(rounds)]
    confined, relayed, bare = (median(each[at] for each in took) * 1e3 for at in range(3))
    report.note(
        f"a warm call: {confined:.2f} ms in the sandbox, {bare:.2f} ms without; {relayed:.2f} ms without network"
    )
    report.at_most("a warm call in the sandbox, beside one without", confined / bare, WARM)


async def cold_starts(report: Report, rounds: int) -> None:
    best = best_isolation()
    took = [(await cold(best), await cold_before(), await cold(Isolation.LIMITS_ONLY)) for _ in range(rounds)]
    mine, before, bare = (median(each[at] for each in took) * 1e3 for at in range(3))
    report.note(f"a cold start: {mine:.0f} ms; as before {before:.0f} ms; without a sandbox {bare:.0f} ms")
    report.at_most("a cold start of a script, beside how it was before", mine / before, COLD)


async def measure(report: Report, rounds: int, calls: int) -> None:
    policy.use_cgroups = True
    await asyncio.to_thread(get_ready)
    await warm_calls(report, rounds, calls)
    await cold_starts(report, rounds)


def main(arguments: Sequence[str] = ()) -> int:
    parser = argparse.ArgumentParser(prog="bench sandbox")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--calls", type=int, default=60)
    options = parser.parse_args(arguments)
    report = Report("sandbox: what it costs a call")
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as loop:
        loop.run(measure(report, options.rounds, options.calls))
    return 1 if report.failures else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
