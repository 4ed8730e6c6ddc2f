"""Runs the attempts of `escapes.py` in one way of confinement, and prints what came of them as JSON.

A program of its own, so that it can be run by another user, or where the kernel refuses something.

    python -m tests.faults.escape_run '{"way": "namespaces", "cgroups": true, "given": {...}}'
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

from planform.packages.runtimes.container_calls import can_filter_calls
from planform.packages.runtimes.containers import bound, container_config, runc_command, write_bundle
from planform.sandbox import Ended, Finished, Isolation, Limits, Network, run_once
from planform.sandbox.isolation import get_ready, policy

ESCAPES = Path(__file__).with_name("escapes.py")
DEADLY = {"fill_the_scratch_directory", "fill_memory_files", "fill_shared_memory_files", "take_shared_memory"}
LIMITS = Limits(
    memory=512 << 20, address_space=2 << 30, seconds=120.0, cpu_seconds=60, scratch=64 << 20, file_size=256 << 20
)


def main(options: dict[str, Any]) -> None:
    policy.use_cgroups = options["cgroups"]
    get_ready()
    given = {**options["given"], "parent": os.getpid(), "code": str(ESCAPES.parent)}
    found: dict[str, str] = {}
    for attempts in portions(given["attempts"]):
        done = attempted(options["way"], {**given, "attempts": attempts})
        if set(attempts) <= DEADLY and (done.why in (Ended.SCRATCH, Ended.KILLED) or done.code == 137):
            found |= dict.fromkeys(attempts, f"held: it {done.why}")
        elif done.stdout:
            found |= json.loads(done.stdout)
        else:
            print(done, file=sys.stderr)
    print(json.dumps(found))


def portions(attempts: list[str]) -> list[list[str]]:
    """What may end all that runs in the sandbox has a run of its own."""
    return [[each for each in attempts if each not in DEADLY], *([each] for each in attempts if each in DEADLY)]


def attempted(way: str, given: dict[str, Any]) -> Finished:
    if way == "container":
        with tempfile.TemporaryDirectory() as folder:
            run = containing(Path(folder), given)
            return asyncio.run(run_once(run, b"", LIMITS, isolation=Isolation.LIMITS_ONLY))
    network = Network.HOST if given["has_network"] else Network.NONE
    limits = replace(LIMITS, visible=(ESCAPES,), network=network)
    command = [sys.executable, "-I", "-S", str(ESCAPES), json.dumps(given)]
    return asyncio.run(run_once(command, b"", limits, isolation=Isolation(way)))


def containing(folder: Path, given: dict[str, Any]) -> list[str]:
    """The command that runs a function that is a container image, with the programs of this machine for its image."""
    root = folder / "root"
    mounts = [bound(ESCAPES.parent.resolve(), "/escapes")]
    for name in ("usr", "lib", "lib64", "bin"):
        (root / name).mkdir(parents=True)
        mounts.append(bound(Path("/", name).resolve(), f"/{name}"))
    for name in ("escapes", "proc", "dev", "tmp", "etc"):
        (root / name).mkdir()
    command = [interpreter(), "-I", "-S", "/escapes/escapes.py", json.dumps({**given, "code": "/escapes"})]
    config = container_config(
        root,
        command,
        {"HOME": "/tmp"},
        mounts,
        name="escapes",
        directory="/tmp",
        network=given.get("shares_network", False),
        unix_sockets=not given.get("shares_network"),
        connects=not given.get("shares_network"),
        filtered=can_filter_calls(given["runc"]),
    )
    bundle = write_bundle(folder / "bundle", config)
    return [*runc_command(given["runc"], folder), "run", "--bundle", str(bundle), f"escapes-{os.getpid()}"]


def interpreter() -> str:
    """One that is among the programs of the machine, for the attempts need nothing but Python's own modules."""
    ours = Path(sys.executable).resolve()
    return str(ours if ours.is_relative_to("/usr") else Path("/usr/bin/python3").resolve())


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
