"""What a function that is killed costs its callers, and what it costs the others.

    python -m bench function_restart [--kills 5] [--callers 8]

Two functions written with the SDK run as processes in the sandbox and are called over mutual TLS without a pause. One
of them is killed with SIGKILL; measured is the time until the first call that begins after the kill is answered: by the
spare process that a function has while it is called, and without it, by the process that is started anew.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

import uvloop
from tests.harness.hosting import Hosting, open_hosting, server_payload

from bench.report import Report
from planform.functions.errors import FunctionError

SECONDS_TO_BE_BACK = 1.0


class Callers:
    """Calls of one function without a pause, how long the longest took and how many failed."""

    def __init__(self, hosting: Hosting, revision: str) -> None:
        self._hosting = hosting
        self._revision = revision
        self.calls = 0
        self.failed = 0
        self.longest = 0.0

    async def keep_calling(self) -> None:
        while True:
            began = time.perf_counter()
            try:
                await self._hosting.call(self._revision)
            except FunctionError:
                self.failed += 1
            self.calls += 1
            self.longest = max(self.longest, time.perf_counter() - began)
            await asyncio.sleep(0.01)


async def measure(kills: int, callers: int, *, spare: bool) -> tuple[list[float], Callers, Callers]:
    """Seconds from each kill to the answer of the next call, and what callers of both functions met."""
    with tempfile.TemporaryDirectory() as folder:
        async with open_hosting(Path(folder) / "data") as hosting:
            host = hosting.host
            for revision in ("killed", "other"):
                hosting.want(revision, server_payload(hosting.data / "packages" / revision))
                await hosting.ready(revision)
            both = Callers(hosting, "killed"), Callers(hosting, "other")
            tasks = [asyncio.create_task(each.keep_calling()) for each in both for _ in range(callers)]
            took = []
            for _ in range(kills):
                await hosting.spare("killed")
                await asyncio.sleep(1.0)  # so that each kill meets a function at rest, as accidents do
                victims = [*host.pids("killed"), *([] if spare else [host.spare_pid("killed")])]
                for victim in victims:
                    if victim is not None:
                        os.killpg(victim, signal.SIGKILL)
                killed = time.perf_counter()
                await hosting.call("killed")
                took.append(time.perf_counter() - killed)
            for task in tasks:
                task.cancel()
            for task in tasks:
                with suppress(asyncio.CancelledError):
                    await task
    return took, *both


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench function_restart", description=__doc__)
    parser.add_argument("--kills", type=int, default=5)
    parser.add_argument("--callers", type=int, default=8)
    options = parser.parse_args(arguments)
    report = Report("function_restart")
    for spare, what in ((True, "its spare takes over"), (False, "its spare was killed as well")):
        took, killed, other = uvloop.run(measure(options.kills, options.callers, spare=spare))
        report.note(
            f"{what}: answers again after {', '.join(f'{each * 1000:.0f}' for each in took)} ms;"
            f" {killed.calls} calls beside, {killed.failed} failed, the longest {killed.longest * 1000:.0f} ms;"
            f" of the other function {other.calls} calls, {other.failed} failed,"
            f" the longest {other.longest * 1000:.0f} ms"
        )
        report.at_most(f"until the next call is answered: {what}", max(took), SECONDS_TO_BE_BACK, "s")
        report.at_most(f"failed calls of another function: {what}", other.failed, 0, "")
    return 1 if report.failures else 0


if __name__ == "__main__":
    sys.exit(main())
