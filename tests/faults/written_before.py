"""Writes the data of a control plane as users have it: a data directory with its journal, and an export.

    python -m tests.faults.written_before tests/golden/before_one_house [PLANFORM]

It speaks only through the program PLANFORM, so that it can be pointed at that of any commit. The folder holds what the
control plane is given, `platform.yaml` and `instances.yaml`. Written are `data.tar.xz`, `export.tar.gz`, and
`about.yaml` with the time at which it was stopped and the versions of built-in functions. What was written once is
kept: it stands for the directories that users have.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import yaml

PATIENCE_SECONDS = 240
REST_SECONDS = 5.0
"""For which nothing may have been written before it is stopped: longer than the journal and events wait."""

WAITS = (
    ("app/shop", "condition=Ready"),
    ("app/blog", "condition=Ready"),
    ("bucket/photos", "condition=Ready"),
    ("usage/shop-is-kept", "condition=Ready"),
    ("operation/announce", "condition=Succeeded"),
    ("actionset/told", "jsonpath={.status.state}=complete"),
)


def main(folder: Path, program: Path) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        data, export = Path(scratch) / "data", Path(scratch) / "export.tar.gz"
        with running(program, data):
            fill(Planform(program, data), folder)
            stopped = datetime.now(UTC)
        subprocess.run([program, "export", export, "--data", data], check=True, timeout=PATIENCE_SECONDS)
        with tarfile.open(folder / "data.tar.xz", "w:xz") as archive:
            archive.add(data, "data", filter=_anonymous)
        shutil.copyfile(export, folder / "export.tar.gz")
        names = yaml.load((folder.parent / "public_names.yaml").read_text(), Loader=yaml.CSafeLoader)
        about = {"stopped": stopped.isoformat(timespec="seconds"), "functions": names["built-in functions"]}
        (folder / "about.yaml").write_text(yaml.safe_dump(about))


class Planform:
    """The command line, as the administrator of one data directory."""

    def __init__(self, program: Path, data: Path) -> None:
        self.program = program
        self.env = {**os.environ, "KUBECONFIG": str(data / "kubeconfig")}

    def __call__(self, *arguments: str | Path) -> str:
        command = [self.program, *arguments]
        done = subprocess.run(command, env=self.env, capture_output=True, text=True, timeout=PATIENCE_SECONDS)
        if done.returncode:
            raise SystemExit(f"{command}\n{done.stdout}{done.stderr}")
        return done.stdout


@contextmanager
def running(program: Path, data: Path) -> Iterator[None]:
    log = data.with_name("up.log")
    with log.open("wb") as output:
        child = subprocess.Popen(
            [program, "up", "--data", data, "--listen", "127.0.0.1:0"], stdout=output, stderr=output
        )
    try:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not re.search("is ready at", log.read_text()):
            if child.poll() is not None or time.monotonic() > deadline:
                raise SystemExit(log.read_text())
            time.sleep(0.1)
        yield
    finally:
        child.send_signal(signal.SIGTERM)
        child.wait(PATIENCE_SECONDS)


def fill(planform: Planform, folder: Path) -> None:
    """Give it everything, then change a Composition, so that there are two revisions and an XR on each."""
    planform("apply", "-f", folder / "platform.yaml")
    planform("wait", "compositeresourcedefinition/apps.before.example.org", "--for", "condition=Established")
    planform("wait", "compositeresourcedefinition/xbuckets.before.example.org", "--for", "condition=Offered")
    planform("apply", "-f", folder / "instances.yaml")
    wait(planform)
    documents = yaml.safe_load_all((folder / "platform.yaml").read_text())
    (composition,) = (each for each in documents if (each["kind"], each["metadata"]["name"]) == ("Composition", "apps"))
    composition["metadata"]["labels"]["channel"] = "second"
    changed = Path(planform.env["KUBECONFIG"]).with_name("changed.yaml")
    changed.write_text(yaml.safe_dump(composition))
    planform("apply", "-f", changed)
    changed.unlink()
    until_rest(planform)
    wait(planform)


def wait(planform: Planform) -> None:
    for what, how in WAITS:
        planform("wait", what, "--for", how, "--timeout", "120s")


def until_rest(planform: Planform) -> None:
    """Nothing has been written for a while."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    before: Any = None
    while time.monotonic() < deadline:
        objects = json.loads(planform("get", "configmaps,apps,compositionrevisions,events", "-A", "-o", "json"))
        if objects == before:
            return
        before = objects
        time.sleep(REST_SECONDS)
    raise SystemExit("it does not come to rest")


def _anonymous(member: tarfile.TarInfo) -> tarfile.TarInfo:
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    return member


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]) if sys.argv[2:] else Path(sys.executable).with_name("planform"))
