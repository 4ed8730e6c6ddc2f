"""Calls of one tree of planform, for `bench sandbox`: runs in an environment of that tree, told by lines what to do.

    warm 300    call a function that runs, so often
    cold 10     have a script started, so often

Answers each with a line of JSON: seconds of the clock and of the processor for one call. Keeps to what both sides know.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import uvloop
from tests.harness.hosting import Hosting, open_hosting, server_payload

from planform.builtin.python import InlinePython
from planform.functions.values import FunctionRequest

SCRIPT = {
    "apiVersion": "python.fn.crossplane.io/v1beta1",
    "kind": "Script",
    "script": "def compose(req, rsp):\n  rsp.desired.resources['a'].resource['x'] = 'y'\n",
}
_TICKS = os.sysconf("SC_CLK_TCK")


def processor_seconds() -> float:
    """Used by this process, by all that came of it and run, and by those of them that ended."""
    parents: dict[int, tuple[int, int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        parents[int(stat.parent.name)] = int(fields[1]), sum(map(int, fields[11:15]))
    ours = {os.getpid()}
    while more := {pid for pid, (parent, _) in parents.items() if parent in ours} - ours:
        ours |= more
    return sum(parents[pid][1] for pid in ours if pid in parents) / _TICKS


async def timed(call: Callable[[], Awaitable[object]], times: int) -> dict[str, float]:
    used, began = processor_seconds(), time.perf_counter()
    for _ in range(times):
        await call()
    wall = time.perf_counter() - began
    return {"wall": wall / times, "cpu": (processor_seconds() - used) / times}


async def serve(hosting: Hosting) -> None:
    scripts = InlinePython()

    async def warm() -> None:
        await hosting.call("fn-1")

    async def cold() -> None:
        answer = await scripts.run(FunctionRequest(input=SCRIPT, tag="t"), timeout=60)
        assert answer.fatal is None, answer.fatal

    hosting.want("fn-1", server_payload(hosting.data / "packages" / "one"))
    await hosting.ready("fn-1")
    for call in (warm, cold):
        await timed(call, 3)
    print("ready", flush=True)
    while line := await asyncio.to_thread(sys.stdin.readline):
        what, times = line.split()
        print(json.dumps(await timed({"warm": warm, "cold": cold}[what], int(times))), flush=True)


async def main() -> None:
    try:  # as a control plane of today does at its start; before, there was nothing to do
        from planform.sandbox.isolation import get_ready, policy
    except ImportError:
        pass
    else:
        policy.use_cgroups = True
        await asyncio.to_thread(get_ready)
    with tempfile.TemporaryDirectory() as folder:
        async with open_hosting(Path(folder) / "data", spares=None) as hosting:
            await serve(hosting)


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main())
