"""KubeTask on a machine without a cluster: its image runs, through runc, and nothing else of this machine is seen."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Iterable
from pathlib import Path

import pytest

from planform.blueprints import image_tasks
from planform.blueprints.actions import PhaseFunctions
from planform.blueprints.contract import ContainerTask, PhaseEnvironment
from planform.blueprints.errors import PhaseFailed
from planform.blueprints.functions.markers import MARKER
from planform.blueprints.image_tasks import ImageTasks
from planform.packages.blobs import BlobStore, store_image
from planform.packages.layers import File, make_layer
from planform.packages.oci import this_platform
from tests.harness.contexts import eventually
from tests.harness.phases import PhaseRunner
from tests.harness.programs import container_runtime

IMAGE = "registry.example.org/acme/tools:1"
PROGRAMS = ("/bin/sh", "/bin/cat", "/bin/ls", "/bin/sleep")

pytestmark = pytest.mark.timeout(90)


@pytest.fixture
def runc(monkeypatch: pytest.MonkeyPatch) -> str:
    """The real program, and no Podman, whatever else is installed."""
    directory = container_runtime()
    monkeypatch.setenv("PATH", f"{directory}:/usr/bin:/bin")
    monkeypatch.setattr("planform.blueprints.functions.containers.find_containers", lambda: None)
    return str(directory / "runc")


@pytest.fixture
def tasks(runc: str, tmp_path: Path) -> ImageTasks:
    publish(tmp_path, IMAGE)
    return ImageTasks(runc, tmp_path)


def publish(directory: Path, name: str, more: str = "") -> None:
    """Have an image here, as if it had been pulled: a shell with what it needs, and a file."""
    blobs = BlobStore(directory / "blobs")
    files = [File(path.lstrip("/"), Path(path).resolve(), executable=True) for path in with_libraries(PROGRAMS)]
    layer = make_layer(blobs, [*files, File("opt/about", f"tools {more}".encode())])
    config = {
        **this_platform().to_json(),
        "config": {"Env": ["COLOUR=blue", "SIZE=1"], "WorkingDir": "/opt", "Entrypoint": ["/no/such"], "User": "1000"},
        "rootfs": {"type": "layers", "diff_ids": [layer.diff_id]},
    }
    blobs.remember(name, store_image(blobs, config, [layer.descriptor]).descriptor)


def with_libraries(paths: Iterable[str]) -> set[str]:
    found = set(paths)
    for path in paths:
        said = subprocess.run(["ldd", path], capture_output=True, text=True, check=True).stdout
        found |= {word for word in said.split() if word.startswith("/")}
    return found


async def run(tasks: ImageTasks, script: str, **more: object) -> tuple[int, str]:
    said = bytearray()
    task = ContainerTask(image=IMAGE, command=["/bin/sh", "-c", script], **more)  # type: ignore[arg-type]
    return await tasks.run(task, said.extend), said.decode()


def left(directory: Path) -> list[str]:
    places = (directory / "runs", directory / "runc")
    return sorted(each.name for place in places if place.is_dir() for each in place.iterdir())


async def test_the_command_runs_in_its_image_with_what_the_image_sets_and_the_task_adds(
    tasks: ImageTasks, tmp_path: Path
) -> None:
    code, said = await run(
        tasks, 'echo "$COLOUR $SIZE $(cat about)"; ls /; echo err >&2; exit 7', environment={"SIZE": "2"}
    )
    first, *rest = said.splitlines()
    assert (code, first) == (7, "blue 2 tools ")
    assert "err" in rest and "opt" in rest
    assert not {"home", "work", "var"} & set(rest)
    assert left(tmp_path) == []


async def test_what_a_container_writes_is_its_own_unless_a_directory_is_shared(
    tasks: ImageTasks, tmp_path: Path
) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    script = "test -e /opt/mark && echo seen; echo x > /opt/mark && echo y >> /shared/file"
    for _ in range(2):
        assert await run(tasks, script, mounts={shared: "/shared"}) == (0, "")
    assert (shared / "file").read_text() == "y\ny\n"


async def test_containers_at_once_share_one_unpacked_image(tasks: ImageTasks, tmp_path: Path) -> None:
    ended = await asyncio.gather(*(run(tasks, f"echo {number}") for number in range(4)))
    assert ended == [(0, f"{number}\n") for number in range(4)]
    assert len(list((tmp_path / "files").iterdir())) == 1


async def test_a_container_ends_with_its_time_and_with_its_task(tasks: ImageTasks, tmp_path: Path) -> None:
    with pytest.raises(PhaseFailed, match="took longer than"):
        await run(tasks, "sleep 60", seconds=0.5)
    assert left(tmp_path) == []
    started = asyncio.Event()
    task = ContainerTask(image=IMAGE, command=["/bin/sh", "-c", "echo on; sleep 60"])
    running = asyncio.create_task(tasks.run(task, lambda chunk: started.set()))
    async with asyncio.timeout(60):
        await started.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert left(tmp_path) == []


async def test_what_a_killed_control_plane_left_is_ended_before_anything_runs(
    runc: str, tasks: ImageTasks, tmp_path: Path
) -> None:
    started = asyncio.Event()
    task = ContainerTask(image=IMAGE, command=["/bin/sh", "-c", "echo on; sleep 300"])
    running = asyncio.create_task(tasks.run(task, lambda chunk: started.set()))
    async with asyncio.timeout(60):
        await started.wait()
    (stale,) = (each.name for each in (tmp_path / "runc").iterdir())
    assert await run(ImageTasks(runc, tmp_path), "echo new") == (0, "new\n")

    async def gone() -> bool:
        return stale not in left(tmp_path)

    await eventually(gone, "the container of the process before is gone")
    assert await running == 137  # what runc tells of a container that was killed


@pytest.mark.parametrize(
    ("image", "command", "told"),
    [
        (IMAGE, ["/no/program"], "/no/program"),
        ("tools", ["/bin/sh"], '"tools" names no registry'),
        ("127.0.0.1:1/acme/tools:1", ["/bin/sh"], "127.0.0.1:1"),
    ],
    ids=["no program", "no registry", "nobody answers"],
)
async def test_a_container_that_cannot_be_made_is_told_with_its_image(
    tasks: ImageTasks, image: str, command: list[str], told: str, tmp_path: Path
) -> None:
    with pytest.raises(PhaseFailed) as failed:
        await tasks.run(ContainerTask(image=image, command=command), lambda chunk: None)
    assert str(failed.value).startswith(f"no container of {image}: ")
    assert told in str(failed.value)
    assert left(tmp_path) == []


async def test_images_that_were_not_used_for_longest_make_room(
    tasks: ImageTasks, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(image_tasks, "MAX_IMAGES", 1)
    other = IMAGE.replace(":1", ":2")
    publish(tmp_path, other, "two")
    for name in (IMAGE, other):
        await tasks.run(ContainerTask(image=name, command=["/bin/ls"]), lambda chunk: None)
    said = bytearray()
    await tasks.run(ContainerTask(image=other, command=["/bin/cat", "/opt/about"]), said.extend)
    assert said == b"tools two"
    assert len(list((tmp_path / "files").iterdir())) == 1
    assert BlobStore(tmp_path / "blobs").recall(IMAGE) is None


async def test_kube_task_runs_its_image_where_runc_is_installed(runc: str, tmp_path: Path) -> None:
    publish(tmp_path / "task-images", IMAGE)
    here = PhaseFunctions(data=tmp_path).here
    runner = PhaseRunner(here=PhaseEnvironment(data=tmp_path, containers=here.containers))
    script = f"""echo '{MARKER} {{"key":"colour","value":"'$COLOUR'"}}'; cat about"""
    for version, more in (("v0.0.0", {}), ("v0.1.0", {"runtime": "container", "memory": "64Mi"})):
        output = await runner.run("KubeTask", version, image=IMAGE, command=["/bin/sh", "-c", script], **more)
        assert output == {"colour": "blue"}
    assert any("tools" in line for line in runner.log)
