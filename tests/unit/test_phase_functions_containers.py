"""Tasks in containers, with a program in Podman's place that takes its arguments and runs the command as a process."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

import pytest

from planform.blueprints.contract import ContainerTask, PhaseEnvironment
from planform.blueprints.errors import PhaseFailed
from planform.blueprints.functions.containers import Podman, find_containers
from planform.blueprints.functions.markers import MARKER
from tests.harness.contexts import eventually
from tests.harness.phases import PhaseRunner

PROGRAM = """#!{python}
import json, os, sys
with open({calls!r}, "a") as calls:
    calls.write(json.dumps(sys.argv[1:]) + "\\n")
if sys.argv[1] == "rm":
    sys.exit(0)
options = [word for word in sys.argv[2:] if word.startswith("--")]
image, *rest = [word for word in sys.argv[2:] if not word.startswith("--")]
if image == "no/such":
    print("Error: no such image", file=sys.stderr)
    sys.exit(125)
(entry,) = [json.loads(word.split("=", 1)[1]) for word in options if word.startswith("--entrypoint=")]
os.execvp(entry[0], [*entry, *rest])
"""


@pytest.fixture
def podman(tmp_path: Path) -> Podman:
    program = tmp_path / "podman"
    program.write_text(PROGRAM.format(python=sys.executable, calls=str(tmp_path / "calls")))
    program.chmod(0o755)
    return Podman(str(program))


def calls(podman: Podman) -> list[list[str]]:
    return [json.loads(line) for line in Path(podman.program).with_name("calls").read_text().splitlines()]


async def test_a_task_runs_in_its_image_with_limits_and_secrets_stay_off_the_command_line(podman: Podman) -> None:
    runner = PhaseRunner(here=PhaseEnvironment(containers=podman))
    output = await runner.run(
        "KubeTask",
        "v0.1.0",
        image="alpine:3",
        command=["sh", "-c", f"""echo '{MARKER} {{"key":"got","value":"'$TOKEN'"}}'"""],
        environment={"TOKEN": "hush"},
        memory="64Mi",
    )
    assert output == {"got": "hush"}
    (call,) = calls(podman)
    assert {"--rm", "--memory=67108864b", "--env=TOKEN", '--entrypoint=["sh"]', "alpine:3"} <= set(call)
    assert not any("hush" in word for word in call)


async def test_an_image_that_cannot_be_had_is_told(podman: Podman) -> None:
    runner = PhaseRunner(here=PhaseEnvironment(containers=podman))
    with pytest.raises(PhaseFailed, match="no container of no/such: Error: no such image"):
        await runner.run("KubeTask", image="no/such", command=["true"])


async def test_exit_codes_come_through(podman: Podman) -> None:
    assert await podman.run(ContainerTask(image="i", command=["sh", "-c", "exit 6"]), lambda _: None) == 6


async def test_a_container_is_removed_when_its_time_is_up_or_the_task_is_cancelled(podman: Podman) -> None:
    with pytest.raises(PhaseFailed, match=r"took longer than 0\.3 s"):
        await podman.run(ContainerTask(image="i", command=["sleep", "60"], seconds=0.3), lambda _: None)
    heard: list[bytes] = []
    task = asyncio.create_task(
        podman.run(ContainerTask(image="i", command=["sh", "-c", "echo up; sleep 60"]), heard.append)
    )

    async def up() -> bool:
        return bool(heard)

    await eventually(up, "the container runs")
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    runs = [call for call in calls(podman) if call[0] == "run"]
    removed = [call[-1] for call in calls(podman) if call[0] == "rm"]
    assert removed == [next(word[7:] for word in call if word.startswith("--name=")) for call in runs]


def test_podman_is_found_where_it_is_installed(podman: Podman, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert find_containers() == podman
    monkeypatch.setenv("PATH", "/nowhere")
    assert find_containers() is None
