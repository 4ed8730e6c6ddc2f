"""`planform render` of a seven-step pipeline of built-in functions: a cold process, and warm in one process.

python -m bench render
"""

from __future__ import annotations

import argparse
import asyncio
import subprocess
import sys
import time
from pathlib import Path
from statistics import median

from bench.report import Report
from planform.cli.compositions.render_inputs import FileReader, read_inputs
from planform.cli.functions.local import catalogue_of, functions_from, running
from planform.clock import SystemClock
from planform.pipeline.modes import pipeline_of
from planform.pipeline.pipeline import resolver_for
from planform.pipeline.render import RenderContext, render

EXAMPLE = Path(__file__).parents[1] / "examples" / "seven-steps"
FILES = (EXAMPLE / "xr.yaml", EXAMPLE / "composition.yaml")


def cold(rounds: int) -> float:
    """Seconds of a whole process, median."""
    command = [sys.executable, "-m", "planform", "render", *map(str, FILES)]
    times = []
    for _ in range(rounds):
        started = time.perf_counter()
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=60)
        times.append(time.perf_counter() - started)
    return median(times)


async def warm(rounds: int) -> float:
    """Milliseconds of one render in a process that has rendered before, median."""
    inputs = read_inputs(FILES)
    xr, composition = inputs.xrs[0], inputs.compositions[0]
    names = {step["functionRef"]["name"] for step in pipeline_of(composition["spec"])}
    functions = functions_from([], [f"{name}={name}" for name in sorted(names)])
    times = []
    async with running(functions) as runner:
        around = RenderContext(resolver_for(catalogue_of(functions)), runner, FileReader([], {}), SystemClock())
        for _ in range(rounds):
            started = time.perf_counter()
            rendered = await render(xr, composition, [], around)
            times.append(time.perf_counter() - started)
            if rendered.outcome.failure is not None:
                raise RuntimeError(str(rendered.outcome.failure))
    return median(times) * 1000


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=9)
    options = parser.parse_args(arguments)
    report = Report("render, seven steps of built-in functions")
    bare = [sys.executable, "-c", "pass"]
    started = time.perf_counter()
    subprocess.run(bare, check=True, timeout=60)
    report.note(f"an empty Python process takes {time.perf_counter() - started:.2f} s here")
    report.at_most("cold process", cold(options.rounds), 0.7, "s")
    report.at_most("warm, median", asyncio.run(warm(options.rounds * 50)), 5, "ms")
    return 1 if report.failures else 0


if __name__ == "__main__":
    sys.exit(main())
