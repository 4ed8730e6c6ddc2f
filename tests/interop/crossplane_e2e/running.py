"""One of Crossplane's end-to-end tests: a fresh control plane, and the test binary of its authors that drives it."""

from __future__ import annotations

import base64
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tests.e2e.control_plane import PLANFORM, ready_url
from tests.harness.processes import dies_with_us, running
from tests.harness.programs import programs
from tests.interop.crossplane_e2e.loopback import Loopback
from tests.interop.crossplane_e2e.packages import CHANGES, HERE, replaced

SUITE: Mapping[str, Mapping[str, Any]] = yaml.safe_load((HERE / "suite.yaml").read_text())
LIMIT_SECONDS = 900
_NO_CLUSTER = ("create-kind-cluster", "destroy-kind-cluster", "preinstall-crossplane", "load-images-kind-cluster")


def prepare(tree: Path, digests: Mapping[str, str], public_key: bytes) -> Path:
    """Put what is ours into the copy of the tree, and the test binary with the same digests beside it; gives that."""
    manifests = tree / "test/e2e/manifests"
    for file in manifests.rglob("*.yaml"):
        text = file.read_text()
        if (ours := replaced(text, digests)) != text:
            file.write_text(ours)
    _put_key(tree / CHANGES["key"]["file"], CHANGES["key"]["field"], public_key)
    binary = tree / "e2e.test"
    shutil.copyfile(programs("crossplane-e2e") / "crossplane-e2e", binary)
    code = binary.read_bytes()
    for theirs, name in CHANGES["digests"].items():
        if name in digests:  # a digest is replaced by one of the same length, so nothing else moves
            ours = digests[name].removeprefix("sha256:")
            code = code.replace(str(theirs).encode(), ours[: len(str(theirs))].encode())
    binary.write_bytes(code)
    binary.chmod(0o755)
    return binary


def _put_key(file: Path, field: str, public_key: bytes) -> None:
    lines = [
        f"  {field}: {base64.b64encode(public_key).decode()}" if line.strip().startswith(f"{field}:") else line
        for line in file.read_text().splitlines()
    ]
    file.write_text("\n".join(lines) + "\n")


@dataclass(frozen=True)
class Outcome:
    """What a test said, and what the control plane said meanwhile."""

    passed: bool
    output: str
    plane_log: Path


def run(name: str, loopback: Loopback, tree: Path, binary: Path, directory: Path, flags: Sequence[str] = ()) -> Outcome:
    """Run one test to its end against a control plane that was started for it with the flags of its environment."""
    directory.mkdir(parents=True, exist_ok=True)
    kubeconfig = directory / "kubeconfig"
    up = [str(PLANFORM), "up", "--ephemeral", "--listen", "127.0.0.1:0", "--kubeconfig", str(kubeconfig), "--debug"]
    up += ["--feature-gates", "BuiltInNopResources=false"]  # tests wait until provider-nop's kinds are gone with it
    log = directory / "up.log"
    with running(loopback.command([*up, *flags], directory), log, name="planform") as child:
        ready_url(child)
        words = [str(binary), "-test.v", f"-test.run=^{name}$", f"-test.timeout={LIMIT_SECONDS}s"]
        words += [f"-{flag}=false" for flag in _NO_CLUSTER]
        command = loopback.command([*words, f"-kubeconfig={kubeconfig}"], tree, KUBECONFIG=str(kubeconfig))
        done = subprocess.run(
            dies_with_us(command), capture_output=True, text=True, check=False, timeout=LIMIT_SECONDS + 30
        )
    output = done.stdout + done.stderr
    (directory / "output.log").write_text(output)
    passed = done.returncode == 0 and f"--- PASS: {name} " in output and "--- SKIP" not in output
    return Outcome(passed, output, log)
