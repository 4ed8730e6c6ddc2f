"""Commands of phases as processes of this machine, and the functions that need nothing."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from planform.blueprints.contract import ContainerTask, PhaseEnvironment
from planform.blueprints.errors import ArgumentInvalid, OutputInvalid, PhaseFailed
from planform.blueprints.functions.markers import MARKER
from planform.clock import VirtualClock
from planform.sandbox import Isolation, detect_isolation
from tests.harness.contexts import eventually
from tests.harness.phases import PhaseRunner

confined = pytest.mark.skipif(detect_isolation() is Isolation.LIMITS_ONLY, reason="this machine cannot cut off files")


def shell(script: str) -> list[str]:
    return ["sh", "-c", script]


async def test_a_task_gives_its_marked_output_and_logs_the_rest() -> None:
    runner = PhaseRunner(params={"Options": {"who": "world"}})
    script = f"""echo working; echo '{MARKER} {{"key":"hello","value":"{{{{ .Options.who }}}}"}}'; echo oops >&2"""
    assert await runner.run("KubeTask", image="alpine", command=shell(script)) == {"hello": "world"}
    assert {"working", "oops"} <= set(runner.log)
    assert any("image alpine is not used" in line for line in runner.log)


async def test_a_task_that_fails_says_how_and_what_it_said_last() -> None:
    with pytest.raises(PhaseFailed, match="ended with exit code 3: no such table") as failure:
        await PhaseRunner().run("KubeTask", image="i", command=shell("echo no such table >&2; exit 3"))
    assert failure.value.details == {"exitCode": 3}


async def test_a_command_that_is_not_there_is_told() -> None:
    with pytest.raises(PhaseFailed, match="cannot run no-such-program"):
        await PhaseRunner().run("KubeTask", image="i", command=["no-such-program"])


async def test_malformed_output_ends_a_task_at_once() -> None:
    with pytest.raises(OutputInvalid, match="is not JSON"):
        await PhaseRunner().run("KubeTask", image="i", command=shell(f"echo '{MARKER} nonsense'; sleep 60"))


async def test_a_task_that_takes_too_long_is_ended() -> None:
    with pytest.raises(PhaseFailed, match=r"took longer than 0\.2 s"):
        await PhaseRunner().run("KubeTask", "v0.1.0", command=["sleep", "60"], timeout="200ms")


async def test_a_task_that_is_cancelled_leaves_no_process() -> None:
    runner = PhaseRunner()
    seconds = 300 + os.getpid()  # nobody else on this machine sleeps for so long
    task = asyncio.create_task(runner.run("KubeTask", image="i", command=shell(f"echo started; sleep {seconds}")))

    async def started() -> bool:
        return "started" in runner.log

    await eventually(started, "the task runs")
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert f"sleep\0{seconds}\0".encode() not in _command_lines()


def _command_lines() -> set[bytes]:
    found = set()
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):  # it has ended meanwhile
            found.add(path.read_bytes())
    return found


async def test_v010_needs_no_image_and_takes_environment_and_input() -> None:
    output = await PhaseRunner().run(
        "KubeTask",
        "v0.1.0",
        command=shell(f"""read line; echo '{MARKER} {{"key":"said","value":"'"$line $NAME"'"}}'"""),
        environment={"NAME": "there"},
        stdin="hello\n",
    )
    assert output == {"said": "hello there"}


async def test_v010_limits_memory() -> None:
    program = "import sys; b = bytearray(400 << 20)"
    with pytest.raises(PhaseFailed, match="MemoryError"):
        await PhaseRunner().run("KubeTask", "v0.1.0", command=["python3", "-c", program], memory="128Mi")
    with pytest.raises(ArgumentInvalid, match="no quantity"):
        await PhaseRunner().run("KubeTask", "v0.1.0", command=["true"], memory="much")


async def test_v010_can_insist_on_a_container() -> None:
    with pytest.raises(PhaseFailed, match="runs no containers"):
        await PhaseRunner().run("KubeTask", "v0.1.0", command=["true"], image="alpine", runtime="container")


class RecordedContainers:
    """A container runtime that does what containers of these tests would do."""

    def __init__(self) -> None:
        self.tasks: list[ContainerTask] = []

    async def run(self, task: ContainerTask, output: Callable[[bytes], None], /) -> int:
        self.tasks.append(task)
        output(f'{MARKER} {{"key":"image","value":"{task.image}"}}\n'.encode())
        return 0


async def test_a_machine_with_containers_runs_the_image() -> None:
    containers = RecordedContainers()
    runner = PhaseRunner(here=PhaseEnvironment(containers=containers))
    assert await runner.run("KubeTask", image="alpine:3", command=["id"]) == {"image": "alpine:3"}
    assert containers.tasks[0].command == ["id"]


@confined
async def test_a_task_sees_nothing_of_the_control_planes_data_and_changes_nothing(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    (data / "secret").write_text("s3cr3t")
    runner = PhaseRunner(here=PhaseEnvironment(data=data))
    output = await runner.run(
        "KubeTask",
        image="i",
        command=shell(
            f"""found=$(ls {data} | wc -l)
            touch {tmp_path}/x 2>/dev/null || echo '{MARKER} {{"key":"wrote","value":"no"}}'
            echo '{MARKER} {{"key":"found","value":"'$found'"}}'"""
        ),
    )
    assert output == {"wrote": "no", "found": "0"}


@confined
async def test_only_where_the_operator_allows_it_a_process_sees_this_machines_files(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("s3cr3t")
    look = shell(
        f"""echo '{MARKER} {{"key":"found","value":"'$(cat {tmp_path}/secret 2>/dev/null || echo nothing)'"}}'"""
    )
    home = PhaseRunner().namespace

    async def found(allowed: str, **more: str) -> str:
        runner = PhaseRunner(here=PhaseEnvironment(unconfined=frozenset({allowed})))
        return str((await runner.run("KubeTask", "v0.1.0", command=look, **more))["found"])

    assert await found(home, runtime="process") == "s3cr3t"
    assert await found(home) == "nothing"
    assert await found("elsewhere", runtime="process") == "nothing"


async def test_two_commands_share_a_directory() -> None:
    output = await PhaseRunner().run(
        "MultiContainerRun",
        initImage="i",
        initCommand=shell('mkfifo "$SHARED_DIR/pipe"'),
        backgroundImage="i",
        backgroundCommand=shell("echo from the background > /shared/pipe"),
        sharedVolumeDir="/shared",
        outputImage="i",
        outputCommand=shell(f"""read line < "$SHARED_DIR/pipe"; echo '{MARKER} {{"key":"got","value":"'"$line"'"}}'"""),
    )
    assert output == {"got": "from the background"}


async def test_one_of_two_commands_that_fails_ends_the_other() -> None:
    with pytest.raises(PhaseFailed, match="backgroundCommand ended with exit code 7"):
        await PhaseRunner().run(
            "MultiContainerRun",
            backgroundImage="i",
            backgroundCommand=shell("exit 7"),
            outputImage="i",
            outputCommand=["sleep", "300"],
        )


async def test_fifty_tasks_at_once_keep_their_outputs_apart() -> None:
    async def one(number: int) -> dict[str, Any]:
        script = f"""echo '{MARKER} {{"key":"n","value":"{number}"}}'"""
        return await PhaseRunner().run("KubeTask", image="i", command=shell(script))

    assert await asyncio.gather(*map(one, range(50))) == [{"n": str(number)} for number in range(50)]


async def test_echo_gives_what_it_is_given() -> None:
    runner = PhaseRunner()
    assert await runner.run("Echo", message="hi", output={"a": "1"}) == {"a": "1", "message": "hi"}
    assert runner.log == ["hi"]


async def test_fail_fails_with_its_message() -> None:
    with pytest.raises(PhaseFailed, match="not today"):
        await PhaseRunner().run("Fail", message="not today")


async def test_sleep_takes_as_long_as_it_says_on_its_clock() -> None:
    clock = VirtualClock()
    task = asyncio.create_task(PhaseRunner(clock=clock).run("Sleep", duration="5m"))
    await asyncio.sleep(0)
    await clock.advance(290)
    assert not task.done()
    await clock.advance(20)
    assert await task == {}


@pytest.mark.parametrize("duration", ["soon", "-5s", "5 parsecs", ""])
async def test_a_duration_that_is_none_is_refused(duration: str) -> None:
    with pytest.raises(ArgumentInvalid, match='argument "duration"'):
        await PhaseRunner().run("Sleep", duration=duration)
