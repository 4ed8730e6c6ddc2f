"""The example blueprints of Kanister, read from its Go module, and data over which their templates render.

The module comes through Go's module proxy, as every other module that tests build from. Where that refuses it, tests
that need it are skipped with its words; PLANFORM_KANISTER may name a directory that holds another release instead.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Final

from tools.testbins import Go, Unavailable, Workshop, cache_directory

from planform.api.kinds import Object
from planform.apimachinery import yaml_loader
from tests.harness.programs import ProgramMissing

MODULE: Final = "github.com/kanisterio/kanister@v0.0.0-20211202074347-0b02f242b0e1"
"""The code that followed release 0.70. Kanister's tags have no v, so that Go knows its releases by time and commit
only; a proxy that keeps copies answers to no other name. Later releases, up to 0.117, ship much the same examples."""

_PATIENCE_SECONDS: Final = 120
_ACTION: Final = re.compile(r"\{\{.*?\}\}", re.DOTALL)
_QUOTED: Final = re.compile(r'"(?:[^"\\]|\\.)*"|`[^`]*`')
_CHAIN: Final = re.compile(r"(?<![\w$)\]])(?:\.[A-Za-z_]\w*)+")
_INDEXED: Final = re.compile(r'index\s+((?:\.\w+)+)((?:\s+(?:"[^"]*"|\d+))+)\s*(?:\)((?:\.\w+)+))?')
_STEP: Final = re.compile(r'"([^"]*)"|(\d+)')


@cache
def module_directory() -> Path:
    """Where the module is. Raises ProgramMissing, which skips the test, if it cannot be had."""
    if chosen := os.environ.get("PLANFORM_KANISTER"):
        return Path(chosen)
    where = cache_directory()
    log = where / "logs" / "kanister.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    try:
        go = Go.find(Workshop(where, log.parent, log))
        done = subprocess.run(
            [go.program, "mod", "download", "-json", MODULE],
            capture_output=True,
            env=dict(go.env),
            cwd=log.parent,
            timeout=_PATIENCE_SECONDS,
            check=False,
        )
        said = json.loads(done.stdout or "{}")
    except (Unavailable, OSError, ValueError, subprocess.TimeoutExpired) as error:
        raise ProgramMissing(f"{MODULE}: {error}") from error
    if not said.get("Dir"):
        why = " ".join(str(said.get("Error") or "no answer").split())
        raise ProgramMissing(f"{MODULE}: {why}; let PLANFORM_KANISTER name a directory that holds the module")
    return Path(said["Dir"])


def example_blueprints() -> dict[str, Object]:
    """Every Blueprint below `examples`, by its path; files that are templates of a Helm chart are none."""
    root = module_directory() / "examples"
    found: dict[str, Object] = {}
    for file in sorted(root.rglob("*.yaml")):
        if "templates" in file.parts:
            continue
        for number, document in enumerate(yaml_loader.load_all(file.read_bytes())):
            if isinstance(document, dict) and document.get("kind") == "Blueprint":
                suffix = f"#{number}" if number else ""
                found[f"{file.relative_to(root)}{suffix}"] = document
    return found


def templates_of(value: Any) -> Iterator[str]:
    """All texts of a value that hold a template, keys of maps too."""
    if isinstance(value, str):
        if "{{" in value:
            yield value
    elif isinstance(value, Mapping):
        for key, each in value.items():
            yield from templates_of(key)
            yield from templates_of(each)
    elif isinstance(value, list):
        for each in value:
            yield from templates_of(each)


def data_for(texts: Sequence[str]) -> Object:
    """Parameters in which everything is found that the templates look for."""
    data = _parameters()
    for text in texts:
        for action in _ACTION.findall(text):
            for found in _INDEXED.finditer(action):
                steps = [word if number == "" else int(number) for word, number in _STEP.findall(found[2])]
                _put(data, [*_names(found[1]), *steps, *_names(found[3] or "")])
            for chain in _CHAIN.findall(_QUOTED.sub('""', action)):
                _put(data, _names(chain))
    return data


def _names(chain: str) -> list[str]:
    return chain.split(".")[1:]


def _put(data: Any, path: Sequence[str | int]) -> None:
    """Make a text stand at the path, unless something stands there already."""
    here = data
    for place, step in enumerate(path):
        last = place == len(path) - 1
        following: Any = f"value of {path[-1]}" if last else [] if isinstance(path[place + 1], int) else {}
        if isinstance(step, int):
            if not isinstance(here, list):
                return
            while len(here) <= step:
                here.append(None)
            if here[step] is None or (isinstance(here[step], str) and not last):
                here[step] = following
        else:
            if not isinstance(here, dict):
                return
            if step not in here or (isinstance(here[step], str) and not last):
                here[step] = following
        here = here[step]


def _parameters() -> Object:
    """What Kanister gives every template, with all kinds of workloads at once so that no branch is left out."""
    workload = {
        "Name": "db",
        "Namespace": "shop",
        "Pods": ["db-0", "db-1"],
        "Containers": [["db", "sidecar"], ["db", "sidecar"]],
        "PersistentVolumeClaims": {"db-0": {"data-db-0": "/data"}, "db-1": {"data-db-1": "/data"}},
    }
    return {
        **{name: json.loads(json.dumps(workload)) for name in ("Deployment", "StatefulSet", "DeploymentConfig")},
        "PVC": {"Name": "data", "Namespace": "shop"},
        "Namespace": {"Name": "shop", "Namespace": "shop"},
        "Object": {"metadata": {"name": "db", "namespace": "shop", "labels": {}, "annotations": {}}, "spec": {}},
        "ArtifactsIn": {},
        "ConfigMaps": {},
        "Secrets": {},
        "Options": {},
        "Phases": {},
        "Time": "2026-03-01T12:30:45.123456789Z",
        "Profile": {
            "Location": {
                "Type": "s3Compliant",
                "Bucket": "backups",
                "Endpoint": "https://s3.example.org",
                "Prefix": "team",
                "Region": "eu-west-1",
            },
            "Credential": {"Type": "keyPair", "KeyPair": {"ID": "id", "Secret": "<secret & more>"}},
            "SkipSSLVerify": False,
        },
    }
