"""Scripts in a pod as the chart makes it: no root, no capability, no namespaces, a root that cannot be changed.

A container of runc stands for the pod. Its filter refuses what the default one of container runtimes refuses: new
namespaces and mounts. What is left is Landlock with seccomp, which take no rights.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from planform.packages.runtimes.container_calls import can_filter_calls
from planform.packages.runtimes.containers import bound, container_config, write_bundle
from planform.sandbox.confinement import landlock
from tests.harness.programs import programs

ROOT = Path(__file__).parents[2]
USER = 65532
TOKEN = "/var/run/secrets/kubernetes.io/serviceaccount/token"
KEY = "/var/lib/planform/pki/ca.key"

IN_THE_POD = """
import asyncio, json, os, sys
from pathlib import Path
from planform.builtin.python import InlinePython
from planform.functions.values import FunctionRequest
from planform.sandbox import Limits, best_isolation, run_once

TOKEN, KEY = sys.argv[1:]
Path(KEY).parent.mkdir(parents=True)
Path(KEY).write_text("secret")
ATTEMPT = '''
import json, os, socket, sys
def tried(act):
    try:
        act()
    except OSError as error:
        return "held"
    return "escaped"
own = sys.argv[1]
found = {path: tried(lambda: open(path).read()) for path in sys.argv[2:]}
found["signal"] = tried(lambda: os.kill(int(own), 0))
found["network"] = tried(lambda: socket.socket().connect(("127.0.0.1", 9)))
found["unix"] = tried(lambda: socket.socket(socket.AF_UNIX))
found["scratch"] = tried(lambda: open("mine", "w").write("x"))
print(json.dumps(found))
'''
script = {"apiVersion": "python.fn.crossplane.io/v1beta1", "kind": "Script", "script": "def compose(req, rsp): pass"}

async def main():
    answer = await InlinePython().run(FunctionRequest(input=script), timeout=60)
    paths = [TOKEN, KEY, f"/proc/{os.getpid()}/environ", f"/proc/{os.getpid()}/root{KEY}", f"/proc/{os.getpid()}/mem"]
    command = [sys.executable, "-I", "-S", "-c", ATTEMPT, str(os.getpid()), *paths]
    done = await run_once(command, b"", Limits(seconds=60.0))
    return {
        "user": os.getuid(),
        "isolation": str(best_isolation()),
        "fatal": answer.fatal.message if answer.fatal else "",
        "attempts": json.loads(done.stdout or b"{}"),
        "stderr": done.stderr.decode(),
    }

print(json.dumps(asyncio.run(main())))
"""


def pod(folder: Path) -> dict[str, Any]:
    """The container that the chart's pod would be, with the programs of this machine for its image."""
    root = folder / "root"
    token = folder / "token"
    token.write_text("a token")
    token.chmod(0o644)
    mounts = []
    shown = {Path(path) for path in ("/usr", "/lib", "/lib64", "/bin", "/etc", sys.prefix, sys.base_prefix, str(ROOT))}
    for path in sorted(shown):
        if any(other != path and path.is_relative_to(other) for other in shown) or not path.exists():
            continue
        mounts.append(bound(path.resolve(), str(path)))
        (root / str(path).lstrip("/")).mkdir(parents=True)
    for name in ("proc", "dev", "tmp", "var/lib/planform", "var/run"):
        (root / name).mkdir(parents=True)
    for name in ("tmp", "var/lib/planform"):
        (root / name).chmod(0o1777)  # which some versions of runc take over
        options = ["nosuid", "nodev", "mode=1777", "size=64m"]
        mounts.append({"destination": f"/{name}", "type": "tmpfs", "source": "tmpfs", "options": options})
    secret = root / TOKEN.lstrip("/")
    secret.parent.mkdir(parents=True)
    secret.touch()
    mounts.append(bound(token, TOKEN))
    command = [sys.executable, "-c", IN_THE_POD, TOKEN, KEY]
    surroundings = {"HOME": "/tmp", "PYTHONDONTWRITEBYTECODE": "1"}
    config = container_config(
        root, command, surroundings, mounts, name="pod", directory=str(ROOT), network=True, filtered=True
    )
    config["process"]["user"] = {"uid": USER, "gid": USER}
    linux = config["linux"]
    linux["namespaces"] = [each for each in linux["namespaces"] if each["type"] != "user"]
    del linux["uidMappings"], linux["gidMappings"]
    return config


@pytest.mark.timeout(180)
def test_in_the_charts_pod_scripts_run_and_read_nothing_of_it(tmp_path: Path) -> None:
    runc = f"{programs('runc')}/runc"
    if os.geteuid() != 0:
        pytest.skip("only root makes a container without a user namespace")
    if not landlock.version():
        pytest.skip("the kernel has no Landlock; there, scripts are refused")
    if not can_filter_calls(runc):
        pytest.skip("this runc has no seccomp")
    tmp_path.chmod(0o755)
    bundle = write_bundle(tmp_path / "bundle", pod(tmp_path))
    command = [runc, "--rootless", "true", "--root", str(tmp_path / "runc"), "run", "--bundle", str(bundle)]
    done = subprocess.run([*command, f"pod-{os.getpid()}"], capture_output=True, check=False, timeout=160)
    assert done.returncode == 0, done.stderr.decode()
    found = json.loads(done.stdout)
    assert found["user"] == USER
    assert (found["isolation"], found["fatal"]) == ("landlock", "")
    attempts = found["attempts"]
    assert attempts.pop("scratch") == "escaped", "it has a directory of its own to write to"
    assert attempts, found["stderr"]
    assert set(attempts.values()) == {"held"}, attempts
