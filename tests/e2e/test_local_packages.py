"""`function test` and `render` run packages that are images, as the control plane runs them."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest
import yaml

from tests.controllers.test_containers import root_of_shell, save_image
from tests.e2e.control_plane import Program, planform
from tests.harness.programs import container_runtime, programs

META = """apiVersion: meta.pkg.crossplane.io/v1
kind: Function
metadata: {name: fn}
spec: {capabilities: [composition]}
"""


@pytest.fixture
def cli(tmp_path: Path) -> Program:
    return planform(tmp_path, PATH=f"{container_runtime()}{os.pathsep}{os.environ['PATH']}")


def build(cli: Program, tarball: Path, flag: str) -> Path:
    package = tarball.parent / "package"
    package.mkdir()
    (package / "crossplane.yaml").write_text(META)
    made = tarball.with_suffix(".xpkg")
    cli("function", "build", str(package.parent), flag, str(tarball), "--package-file", str(made))
    return made


def test_an_image_that_others_published_answers(cli: Program, tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    shutil.copy2(programs("function-auto-ready") / "function-auto-ready", root / "function")
    made = build(
        cli, save_image(root, tmp_path / "image.tar", Entrypoint=["/function"]), "--embed-runtime-image-tarball"
    )
    resource = {"apiVersion": "v1", "kind": "Thing", "metadata": {"name": "a"}}
    ready = {**resource, "status": {"conditions": [{"type": "Ready", "status": "True"}]}}
    request = {
        "observed": {"resources": {"a": {"resource": ready}}},
        "desired": {"resources": {"a": {"resource": resource}}},
    }
    (tmp_path / "request.json").write_text(json.dumps(request))
    answer = cli("function", "test", str(made), "request.json").json()
    assert answer["desired"]["resources"]["a"]["ready"] == "READY_TRUE"


def test_an_image_that_is_run_for_each_call_renders(cli: Program, tmp_path: Path) -> None:
    root = root_of_shell(tmp_path / "root", "/bin/sh", "/bin/cat")
    body = {"apiVersion": "v1", "kind": "ConfigMap", "data": {"made": "here"}}
    answer = {"desired": {"resources": {"one": {"resource": body}}}}
    (root / "run.sh").write_text(f"cat >/dev/null\nprintf '%s' '{json.dumps(answer)}'\n")
    tarball = save_image(root, tmp_path / "image.tar", Entrypoint=["/bin/sh", "/run.sh"])
    made = build(cli, tarball, "--from-oci-tarball")
    xr = {"apiVersion": "example.org/v1", "kind": "XThing", "metadata": {"name": "x"}}
    composition = {
        "apiVersion": "apiextensions.crossplane.io/v1",
        "kind": "Composition",
        "metadata": {"name": "c"},
        "spec": {
            "compositeTypeRef": {"apiVersion": "example.org/v1", "kind": "XThing"},
            "pipeline": [{"step": "s", "functionRef": {"name": "fn"}}],
        },
    }
    (tmp_path / "all.yaml").write_text(yaml.safe_dump_all([xr, composition]))
    shown = list(yaml.safe_load_all(cli("render", "all.yaml", "--function", f"fn={made}").out))
    assert [one["data"] for one in shown if one["kind"] == "ConfigMap"] == [{"made": "here"}]
