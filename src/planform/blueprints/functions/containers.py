"""Containers on a machine without Kubernetes: Podman, where it is installed.

Podman needs no daemon and no privileges, and speaks the language of `docker run`. The command's environment is passed
by name, so that no value of it stands on a command line that others can read.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import uuid
from asyncio.subprocess import DEVNULL, PIPE, STDOUT
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from planform.blueprints.contract import ContainerTask
from planform.blueprints.errors import PhaseFailed
from planform.blueprints.functions.processes import Exit
from planform.sandbox.child import Child, start_child
from planform.sandbox.isolation import trusted

MAX_PROCESSES: Final = 256
_CHUNK: Final = 64 << 10
_TAIL: Final = 1024
_KILL_SECONDS: Final = 20.0
_PODMAN_FAILED: Final = frozenset({125, 126, 127})
"""Exit codes by which Podman says that it is not the command that failed: an image that cannot be had, say."""


def find_containers() -> Podman | None:
    """What runs containers here; None if nothing does."""
    program = shutil.which("podman")
    return None if program is None else Podman(program)


@dataclass(frozen=True)
class Podman:
    """Runs each task in a container of its own, which is gone when `run` returns or is cancelled."""

    program: str

    async def run(self, task: ContainerTask, output: Callable[[bytes], None], /) -> int:
        """The exit code of the command. Raises PhaseFailed if there is no container, or it takes too long."""
        name = f"planform-{uuid.uuid4().hex}"
        # A container does not end with the client that started it.
        kill = [self.program, "rm", "--force", "--time=0", name]
        ended = await attend(self.command(task, name), task, output, environment=task.environment, kill=kill)
        if ended.code in _PODMAN_FAILED:
            raise PhaseFailed(f"no container of {task.image}: {ended.stderr_tail}")
        return ended.code

    def command(self, task: ContainerTask, name: str) -> list[str]:
        """The command line. The task's command replaces the image's own, as in a pod."""
        first, *rest = task.command
        return [
            self.program,
            "run",
            "--rm",
            f"--name={name}",
            f"--memory={task.memory}b",
            f"--pids-limit={MAX_PROCESSES}",
            "--security-opt=no-new-privileges",
            "--log-driver=none",
            *(f"--env={key}" for key in sorted(task.environment)),
            *(f"--volume={source}:{target}" for source, target in task.mounts.items()),
            f"--entrypoint={json.dumps([first])}",
            task.image,
            *rest,
        ]


async def attend(
    command: Sequence[str],
    task: ContainerTask,
    output: Callable[[bytes], None],
    *,
    environment: Mapping[str, str],
    kill: Sequence[str],
) -> Exit:
    """Run the client of a container runtime to its end, and pass on what it prints.

    Raises PhaseFailed if that takes longer than the task may. Then, and if this is cancelled, `kill` is run as well.
    """
    tail = bytearray()

    def heard(chunk: bytes) -> None:
        tail.extend(chunk)
        del tail[:-_TAIL]
        output(chunk)

    child: Child | None = None
    ended = False
    try:
        child = await start_child(trusted(command, environment), stdin=DEVNULL, stdout=PIPE, stderr=STDOUT)
        async with asyncio.timeout(task.seconds):
            await _listen(child, heard)
            await child.exited.wait()
        ended = True
    except TimeoutError as error:
        raise PhaseFailed(f"the container of {task.image} took longer than {task.seconds:g} s") from error
    finally:
        if child is not None:
            if not ended:
                await _quietly(kill)
            await child.end()
    return Exit(child.code, " ".join(tail.decode(errors="replace").strip().splitlines()[-3:]))


async def _quietly(command: Sequence[str]) -> None:
    """Run a command that nobody listens to, for a while."""
    child = await start_child(trusted(command, {}), stdin=DEVNULL, stdout=DEVNULL, stderr=DEVNULL)
    with suppress(TimeoutError):
        async with asyncio.timeout(_KILL_SECONDS):
            await child.exited.wait()
    await child.end()


async def _listen(child: Child, heard: Callable[[bytes], None]) -> None:
    assert child.stdout is not None
    while chunk := await child.stdout.read(_CHUNK):
        heard(chunk)
