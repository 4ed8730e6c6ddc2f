"""Packages that are container images, installed and called: one that serves, and one that is run for each call.

Their root file systems are made here; runc runs them, without a daemon. The one that serves is a function of others,
as they publish it.
"""

from __future__ import annotations

import asyncio
import io
import json
import os
import shutil
import signal
import subprocess
import tarfile
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from planform.functions.resolution import Request, resolve
from planform.functions.values import FunctionRequest, FunctionResponse, Ready, Resource, State
from planform.packages.building import Program, Source, assemble
from planform.packages.oci import this_platform
from planform.packages.payloads import Payload, RuntimeKind
from planform.packages.runtimes.containers import container_launch
from planform.packages.runtimes.executables import Executable, Way
from planform.packages.runtimes.launching import Wanted
from planform.packages.tarballs import read_image
from planform.packages.xpkg import package_of
from planform.reconcile.context import ControllerContext
from planform.sandbox import Network
from planform.sandbox.isolation import policy
from tests.harness.contexts import embedded_context, eventually
from tests.harness.hosting import open_hosting
from tests.harness.packaging import REPOSITORY, Installation, installing, meta
from tests.harness.programs import container_runtime, programs

pytestmark = pytest.mark.timeout(180)


@pytest.fixture(autouse=True)
def runc(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have runc where programs are looked up."""
    monkeypatch.setenv("PATH", f"{container_runtime()}{os.pathsep}{os.environ['PATH']}")


@pytest.fixture
async def context() -> AsyncIterator[ControllerContext]:
    async with embedded_context() as context:
        yield context


@pytest.fixture
async def installation(context: ControllerContext, tmp_path: Path) -> AsyncIterator[Installation]:
    (tmp_path / "data").mkdir()
    async with installing(context, tmp_path / "data") as installation:
        yield installation


def root_of_shell(root: Path, *programs: str) -> Path:
    """A root file system of a few programs of this system and the libraries they need."""
    for program in programs:
        said = subprocess.run(["ldd", program], capture_output=True, text=True, check=False).stdout
        for path in (program, *(word for word in said.split() if word.startswith("/"))):
            target = root / path.lstrip("/")
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(path, target)
    return root


def save_image(root: Path, tarball: Path, **settings: Any) -> Path:
    """Write an image of one layer as `docker save` does."""
    layer = io.BytesIO()
    with tarfile.open(fileobj=layer, mode="w") as archive:
        archive.add(root, "")
    platform = this_platform()
    config = {
        "os": platform.os,
        "architecture": platform.architecture,
        "config": settings,
        "rootfs": {"type": "layers", "diff_ids": []},
    }
    files = {"config.json": json.dumps(config).encode(), "layer.tar": layer.getvalue()}
    files["manifest.json"] = json.dumps([{"Config": "config.json", "Layers": ["layer.tar"]}]).encode()
    with tarfile.open(tarball, "w") as archive:
        for name, content in files.items():
            header = tarfile.TarInfo(name)
            header.size = len(content)
            archive.addfile(header, io.BytesIO(content))
    return tarball


def publish(installation: Installation, tarball: Path, program: Program | None) -> None:
    blobs = installation.source.published
    package = package_of([("meta", meta("Function", "fn", capabilities=["composition"]))])
    image = assemble(blobs, Source(package), program, base=read_image(tarball, blobs))
    blobs.remember(f"{REPOSITORY}:v1", image.descriptor)


def is_there(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


async def ask(installation: Installation, request: FunctionRequest) -> FunctionResponse:
    revision = resolve(installation.live.catalogue, Request("fn")).revision
    return await installation.run.run(revision, request, timeout=30)


@pytest.mark.parametrize("network", [Network.HOST, Network.NONE])
async def test_an_image_that_others_published_serves_in_a_container(
    installation: Installation, tmp_path: Path, network: Network, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(policy, "function_network", network)
    root = tmp_path / "root"
    root.mkdir()
    shutil.copy2(programs("function-auto-ready") / "function-auto-ready", root / "function")
    publish(installation, save_image(root, tmp_path / "image.tar", Entrypoint=["/function"]), None)
    await installation.install("v1")
    await installation.until("Healthy", "True")
    [revision] = await installation.revisions()
    assert revision["status"]["endpoint"].startswith("ipv4:127.0.0.1:")
    made = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}}
    ready = made | {"status": {"conditions": [{"type": "Ready", "status": "True"}]}}
    answer = await ask(
        installation,
        FunctionRequest(
            observed=State(resources={"a": Resource(ready)}), desired=State(resources={"a": Resource(made)}), tag="t"
        ),
    )
    assert answer.desired.resources["a"].ready is Ready.TRUE


async def test_an_image_runs_to_completion_for_each_call(installation: Installation, tmp_path: Path) -> None:
    root = root_of_shell(tmp_path / "root", "/bin/sh", "/bin/cat")
    (root / "run.sh").write_text(
        "request=$(cat)\n"
        'case "$request" in *\'"from": "here"\'* | *\'"from":"here"\'*) heard=yes ;; *) heard=no ;; esac\n'
        'printf \'{"context": {"heard": "%s", "region": "%s"}}\' "$heard" "$REGION"\n'
    )
    tarball = save_image(root, tmp_path / "image.tar", Entrypoint=["/bin/sh", "/run.sh"], Env=["REGION=eu"])
    publish(installation, tarball, Program(Payload(RuntimeKind.ONESHOT)))
    await installation.install("v1")
    await installation.until("Healthy", "True")
    [revision] = await installation.revisions()
    assert revision["status"]["endpoint"] == "oneshot:"
    for _ in range(2):
        answer = await ask(installation, FunctionRequest(tag="t", input={"from": "here"}))
        assert answer.context == {"heard": "yes", "region": "eu"}


async def test_containers_of_a_control_plane_that_was_killed_are_ended_by_the_next_one(tmp_path: Path) -> None:
    data = tmp_path / "data"
    root = root_of_shell(tmp_path / "root", "/bin/sh", "/bin/sleep")
    async with open_hosting(data):
        pass  # which makes the directories
    directory = data / "runtimes" / "fn-1"
    directory.mkdir(parents=True)
    program = Executable(Way.CONTAINER, root, ("/bin/sh", "-c", "while :; do sleep 1; done"))
    launch = container_launch(
        Wanted("fn", "fn-1", "uid", program), port=1, certificates=tmp_path, directory=directory, replica=1
    )
    child = await asyncio.create_subprocess_exec(*launch.command, start_new_session=True)

    def container() -> Mapping[str, Any]:
        listed = [*launch.command[4:-4], "list", "--format", "json"]
        found = json.loads(subprocess.run(listed, capture_output=True, check=True).stdout) or [{}]
        return dict(found[0])

    async def runs() -> int:
        return int(container().get("pid") or 0) if container().get("status") == "running" else 0

    pid = await eventually(runs, "the container runs")
    os.killpg(child.pid, signal.SIGKILL)  # as it ends with its control plane
    await child.wait()
    assert is_there(pid)  # but the container does not
    async with open_hosting(data):

        async def ended() -> bool:
            return not is_there(pid)

        await eventually(ended, "the container has ended")
        assert container() == {}
