"""The author's loop: from saving a file to its effect on a live XR, and the commands that authors wait for.

python -m bench authoring

`planform dev` runs on a platform that `planform init` made; a watch on its control plane says when the composed object
has what was saved. Beside it, the same commands as a cold process.
"""

from __future__ import annotations

import argparse
import asyncio
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

from bench.report import Report
from planform.api.kinds import GroupVersionKind
from planform.cli.connection import connect
from planform.client.kubernetes import KubernetesClient

CONFIG_MAP = GroupVersionKind("", "v1", "ConfigMap")
PLANFORM = (sys.executable, "-m", "planform")
PATCHES = """
  - step: more
    functionRef: {name: function-patch-and-transform}
    input:
      apiVersion: pt.fn.crossplane.io/v1beta1
      kind: Resources
      resources:
      - name: second
        base: {apiVersion: v1, kind: ConfigMap, data: {value: "0"}}
        readinessChecks: [{type: None}]
"""


async def _heading(process: asyncio.subprocess.Process) -> Path:
    """The kubeconfig that the first line names."""
    assert process.stdout is not None
    while line := (await process.stdout.readline()).decode():
        if found := re.search(r"KUBECONFIG=(\S+);", line):
            return Path(found[1])
    raise RuntimeError("planform dev said nothing")


async def _drain(process: asyncio.subprocess.Process) -> None:
    assert process.stdout is not None
    while await process.stdout.read(1 << 16):
        pass


async def _until(client: KubernetesClient, field: str, wanted: str) -> None:
    """Until some ConfigMap has this value in this field."""
    async with asyncio.timeout(30), client.watch(CONFIG_MAP, namespace="default", send_initial_events=True) as changes:
        async for change in changes:
            if (change.object.get("data") or {}).get(field) == wanted:
                return


async def _saves(
    client: KubernetesClient, file: Path, field: str, change: Callable[[str, int], str], rounds: int
) -> list[float]:
    """Milliseconds from each save to its effect."""
    times, original = [], _read(file)
    for number in range(1, rounds + 1):
        waiting = asyncio.create_task(_until(client, field, str(number)))
        await asyncio.sleep(0.5)  # the watch stands, and what the last save set off has ended
        started = time.perf_counter()
        _save(file, change(original, number))
        await waiting
        times.append((time.perf_counter() - started) * 1000)
    return times


def _read(file: Path) -> str:
    return file.read_text()


def _save(file: Path, text: str) -> None:
    file.write_text(text)


def platform(directory: Path) -> tuple[Path, Path]:
    """A platform whose Composition and function each have a number to change."""
    subprocess.run([*PLANFORM, "init", str(directory)], check=True, stderr=subprocess.DEVNULL, timeout=60)
    composition = directory / "apis" / "composition.yaml"
    composition.write_text(composition.read_text().rstrip("\n") + PATCHES)
    function = directory / "functions" / "compose-app" / "function.py"
    function.write_text(function.read_text().replace('"data": {name:', '"data": {"number": "0"} | {name:'))
    return composition, function


async def loop(directory: Path, rounds: int) -> tuple[list[float], list[float], float]:
    """How long saves of a Composition and of a Python function take to show, and a cold `planform get` meanwhile."""
    composition, function = platform(directory)
    process = await asyncio.create_subprocess_exec(
        *PLANFORM, "dev", str(directory), "--no-tests", stdout=asyncio.subprocess.PIPE
    )
    try:
        async with asyncio.timeout(60):
            kubeconfig = await _heading(process)
        draining = asyncio.create_task(_drain(process))
        async with connect(kubeconfig) as connected:
            await _until(connected.client, "value", "0")
            built_in = await _saves(
                connected.client,
                composition,
                "value",
                lambda text, n: text.replace('value: "0"', f'value: "{n}"'),
                rounds,
            )
            python = await _saves(
                connected.client,
                function,
                "number",
                lambda text, n: text.replace('"number": "0"', f'"number": "{n}"'),
                rounds,
            )
        getting = ("get", "configmaps", "--kubeconfig", str(kubeconfig))
        return built_in, python, await asyncio.to_thread(cold, directory, rounds, *getting)
    finally:
        process.terminate()
        await process.wait()
        await draining


def cold(directory: Path, rounds: int, *words: str) -> float:
    """Milliseconds of a whole process, median."""
    times = []
    for _ in range(rounds):
        started = time.perf_counter()
        subprocess.run([*PLANFORM, *words], check=True, cwd=directory, capture_output=True, timeout=60)
        times.append((time.perf_counter() - started) * 1000)
    return median(times)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="planform-bench-") as scratch:
        directory = Path(scratch, "platform")
        built_in, python, getting = asyncio.run(loop(directory, options.rounds))
        report = Report("the author's loop")
        report.at_most("save to effect, built-in functions, median", median(built_in), 500, "ms")
        report.at_most("save to effect, a Python function, median", median(python), 1000, "ms")
        directory = Path(scratch, "unchanged")
        subprocess.run([*PLANFORM, "init", str(directory)], check=True, stderr=subprocess.DEVNULL, timeout=60)
        bare = cold(directory, options.rounds, "version", "--client")
        report.note(f"planform get, a cold process: {getting:.0f} ms, {getting / bare:.1f} times an empty command")
        for name, words in {
            "planform render, built-ins": (
                "render",
                str(Path(__file__).parents[1] / "examples" / "seven-steps" / "xr.yaml"),
                str(Path(__file__).parents[1] / "examples" / "seven-steps" / "composition.yaml"),
            ),
            "planform test, two cases of a Python function": ("test",),
        }.items():
            took = cold(directory, options.rounds, *words)
            report.note(f"{name}, a cold process: {took:.0f} ms, {took / bare:.1f} times an empty command")
    return 1 if report.failures else 0


if __name__ == "__main__":
    sys.exit(main())
