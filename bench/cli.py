"""Everyday commands as cold processes, beside kubectl asking the same control plane.

python -m bench cli

Wall clock and CPU time of each, median; kubectl has its discovery cached, as it has for whoever used it before.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median

from tests.e2e.control_plane import running_plane

from bench.report import Report

PLANFORM = str(Path(sys.executable).with_name("planform"))
EXAMPLE = Path(__file__).parents[1] / "examples" / "seven-steps"
COMMANDS: dict[str, tuple[tuple[str, ...], float]] = {
    "get namespaces": (("get", "namespaces"), 120),
    "trace namespace default": (("trace", "namespace", "default"), 120),
    "version": (("version",), 120),
    "completion bash": (("completion", "bash"), 120),
    "render, built-ins": (("render", str(EXAMPLE / "xr.yaml"), str(EXAMPLE / "composition.yaml")), 140),
}


def cold(command: Sequence[str], rounds: int, env: dict[str, str]) -> tuple[float, float]:
    """Milliseconds of a whole process, wall clock and CPU, medians."""
    walls, cpus = [], []
    for _ in range(rounds + 1):
        before, started = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
        subprocess.run(command, check=True, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=60)
        walls.append(time.perf_counter() - started)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        cpus.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return median(walls[1:]) * 1000, median(cpus[1:]) * 1000  # the first fills the caches of the system


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15)
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="planform-bench-") as scratch, running_plane(Path(scratch)) as plane:
        env = {**os.environ, **plane.planform.env, "KUBECONFIG": str(plane.kubeconfig)}
        report = Report("commands, each a cold process")
        kubectl, used = cold([*plane.kubectl.command, "get", "namespaces"], options.rounds, env)
        report.note(f"kubectl get namespaces: {kubectl:.0f} ms, {used:.0f} ms of CPU")
        bare, used = cold([sys.executable, "-c", "pass"], options.rounds, env)
        report.note(f"python -c pass: {bare:.0f} ms, {used:.0f} ms of CPU")
        for name, (words, bar) in COMMANDS.items():
            wall, used = cold([PLANFORM, *words], options.rounds, env)
            report.at_most(f"planform {name}", wall, bar, "ms")
            report.note(f"{used:.0f} ms of CPU, {wall / kubectl:.1f} times kubectl get")
    return 1 if report.failures else 0


if __name__ == "__main__":
    sys.exit(main())
