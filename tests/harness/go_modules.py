"""The sources of published Go modules, for facts and examples that nobody here wrote; nothing of them is built.

A module is named with its exact version and the checksum of its content, which `go` prints and `go.sum` files hold.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from functools import cache
from pathlib import Path

from tests.harness.programs import ProgramMissing

_PATIENCE_SECONDS = 120


@cache
def go_module(path: str, version: str, checksum: str) -> Path:
    """The directory of a module, fetched if need be. Raises ProgramMissing without Go, or where it cannot be had."""
    go = shutil.which("go")
    if go is None:
        raise ProgramMissing(f"{path}: needs Go to fetch it")
    # The checksum is compared here, so that a mirror without the public checksum database serves as well.
    environment = {**os.environ, "GONOSUMDB": path, "GONOSUMCHECK": path, "GOSUMDB": "off", "GOWORK": "off"}
    command = [go, "mod", "download", "-json", f"{path}@v{version}"]
    done = subprocess.run(
        command, capture_output=True, text=True, env=environment, timeout=_PATIENCE_SECONDS, check=False, cwd="/"
    )
    said = json.loads(done.stdout or "{}")
    if "Dir" not in said:
        raise ProgramMissing(f"{path}@v{version}: {said.get('Error') or done.stderr.strip() or 'cannot be fetched'}")
    assert said["Sum"] == checksum, f"{path}@v{version} is {said['Sum']}, expected {checksum}"
    return Path(said["Dir"])
