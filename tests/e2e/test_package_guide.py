"""The guide on building and pushing functions does what it says, with a real registry.

Its `sh` blocks run in order, as one script. The only thing that a reader has and this test does not is an index with
our SDK: a wheel made of the source here stands for it.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

from tests.e2e.python_functions import sdk_wheel
from tests.e2e.registries import PASSWORD, USER, serving_registry

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "how-to" / "build-and-push-a-function.md"


def test_guide_does_what_it_says(tmp_path: Path) -> None:
    sdk_wheel(tmp_path / "wheels")
    blocks = re.findall(r"^```sh\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    assert len(blocks) >= 5
    (tmp_path / "work").mkdir()
    with serving_registry(tmp_path / "registry", with_login=True) as address:
        (tmp_path / "auth.json").write_text(json.dumps({"auths": {address: {"username": USER, "password": PASSWORD}}}))
        done = subprocess.run(
            ["bash", "-eu", "-o", "pipefail", "-c", "".join(blocks)],
            cwd=tmp_path / "work",
            env={
                "HOME": str(tmp_path),
                "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)]),
                "LANG": "C.UTF-8",
                "REGISTRY": address,
                "REGISTRY_AUTH_FILE": str(tmp_path / "auth.json"),
                "PIP_NO_INDEX": "1",
                "PIP_FIND_LINKS": str(tmp_path / "wheels"),
            },
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=120,
            check=False,
        )
    assert done.returncode == 0, done.stdout
    assert "greeting: Hello, Ada" in done.stdout
    assert re.search(rf"{address}/team/function-greet:v0.1.0@sha256:[0-9a-f]{{64}}", done.stdout)
    assert '"reference": "' in done.stdout
