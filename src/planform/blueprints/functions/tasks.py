"""KubeTask, PrepareData and MultiContainerRun: run commands to their end and read their output markers.

On Kubernetes a command runs in a pod. On the embedded engine it runs in a container, where the machine can run some;
otherwise as a process of this machine in the sandbox, and the log says that its image is not used. Either way it has
limits of memory and time, and sees nothing of the control plane's data.

KubeTask v0.0.0 takes an image and a command. v0.1.0 needs no image on the embedded engine, and takes environment
variables, limits, standard input for processes, and whether to insist on a container.
"""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from planform.apimachinery.quantity import QuantityError, parse_quantity
from planform.blueprints.arguments import Arguments
from planform.blueprints.contract import ContainerTask, PhaseContext, phase_function
from planform.blueprints.errors import ArgumentInvalid, PhaseFailed
from planform.blueprints.functions.durations import seconds_of
from planform.blueprints.functions.markers import MarkerReader
from planform.blueprints.functions.pods import CONTAINER, POD_ARGUMENTS, PodTask, mounting, run_pod
from planform.blueprints.functions.processes import Exit, limits_for, run_process

TASK_SECONDS: Final = 3600.0
_SHARED: Final = "shared"


@dataclass(frozen=True, kw_only=True)
class Task:
    """One command, wherever it runs."""

    command: Sequence[str]
    image: str = ""
    environment: Mapping[str, str] = field(default_factory=dict)
    stdin: bytes = b""
    seconds: float = TASK_SECONDS
    memory: int | None = None
    runtime: str = "auto"


@phase_function("KubeTask", stable=True, required=["image", "command"], arguments=["namespace", *POD_ARGUMENTS])
async def kube_task(context: PhaseContext, args: Arguments) -> dict[str, Any]:
    """Runs a command in an image."""
    return await _task(context, args, Task(command=_command(args, "command"), image=args.text("image")))


@phase_function(
    "KubeTask",
    version="v0.1.0",
    required=["command"],
    arguments=["image", "namespace", "environment", "stdin", "timeout", "memory", "runtime", *POD_ARGUMENTS],
)
async def kube_task_v010(context: PhaseContext, args: Arguments) -> dict[str, Any]:
    """Runs a command in an image, or as a process, with limits of the phase's own."""
    environment = {key: str(value) for key, value in args.table("environment", {}).items()}
    runtime = args.text("runtime", "auto")
    if runtime not in ("auto", "process", "container"):
        raise ArgumentInvalid(f'{args.of}: runtime "{runtime}" is not auto, process or container')
    task = Task(
        command=_command(args, "command"),
        image=args.text("image", ""),
        environment=environment,
        stdin=args.text("stdin", "").encode(),
        seconds=seconds_of(args, "timeout", TASK_SECONDS),
        memory=_memory(args),
        runtime=runtime,
    )
    return await _task(context, args, task)


async def _task(context: PhaseContext, args: Arguments, task: Task) -> dict[str, Any]:
    reader = MarkerReader(context.log)
    if context.here.engine == "kubernetes":
        code = await _in_pod(context, args, task, reader)
        Exit(code).check("the command")
    else:
        (await _here(context, args, task, reader)).check("the command")
    return dict(reader.end())


async def _in_pod(context: PhaseContext, args: Arguments, task: Task, reader: MarkerReader) -> int:
    if not task.image:
        raise ArgumentInvalid(f'{args.of}: argument "image" is needed on Kubernetes')
    if task.stdin:
        raise ArgumentInvalid(f'{args.of}: argument "stdin" is for processes; pods have none')
    container: dict[str, Any] = {"name": CONTAINER, "image": task.image, "command": list(task.command)}
    if task.environment:
        container["env"] = [{"name": key, "value": value} for key, value in sorted(task.environment.items())]
    if task.memory is not None:
        container["resources"] = {"limits": {"memory": str(task.memory)}}
    namespace = args.text("namespace", context.namespace or "default")
    pod = PodTask(namespace=namespace, containers=[container], listen=CONTAINER, seconds=task.seconds)
    return await run_pod(context, args, pod, reader.feed)


async def _here(context: PhaseContext, args: Arguments, task: Task, reader: MarkerReader) -> Exit:
    containers = context.here.containers
    if task.runtime != "process" and task.image and containers is not None:
        run = ContainerTask(image=task.image, command=task.command, environment=task.environment, seconds=task.seconds)
        if task.memory is not None:
            run = replace(run, memory=task.memory)
        return Exit(await containers.run(run, reader.feed))
    if task.runtime == "container":
        raise PhaseFailed(f"{args.of}: this machine runs no containers" if task.image else f"{args.of}: no image given")
    if task.image:
        context.log(f"no container runtime: {task.command[0]} runs as a process, image {task.image} is not used")
    return await run_process(
        task.command,
        limits_for(context, seconds=task.seconds, memory=task.memory),
        output=reader.feed,
        log=context.log,
        environment=task.environment,
        stdin=task.stdin,
        confined=task.runtime != "process" or context.namespace not in context.here.unconfined,
    )


@phase_function(
    "PrepareData",
    required=["namespace", "image", "command"],
    arguments=["volumes", "serviceaccount", "failOnError", *POD_ARGUMENTS],
    engines=["kubernetes"],
)
async def prepare_data(context: PhaseContext, args: Arguments) -> dict[str, Any]:
    """Runs a command in a pod that mounts volume claims: those given, or all that the action's workload mounts."""
    claims = {key: str(value) for key, value in args.table("volumes", _claims(context)).items()}
    reader = MarkerReader(context.log)
    pod = mounting(
        args.text("namespace"),
        args.text("image"),
        claims,
        command=_command(args, "command"),
        service_account=args.text("serviceaccount", ""),
    )
    code = await run_pod(context, args, pod, reader.feed)
    if args.flag("failOnError", False):
        Exit(code).check("the command")
    elif code != 0:
        context.log(f"the command ended with exit code {code}, and failOnError is not set")
    return dict(reader.end())


def _claims(context: PhaseContext) -> dict[str, str]:
    """Every claim of the action's target, each below a directory of its own."""
    found: dict[str, str] = {}
    for root in ("StatefulSet", "Deployment", "DeploymentConfig"):
        workload = context.params.get(root)
        by_pod = workload.get("PersistentVolumeClaims") if isinstance(workload, Mapping) else None
        for claims in (by_pod or {}).values():
            found |= {claim: f"/mnt/prepare_data/{claim}" for claim in claims}
    claim = context.params.get("PVC")
    if isinstance(claim, Mapping):
        found[str(claim["Name"])] = f"/mnt/prepare_data/{claim['Name']}"
    return found


@phase_function(
    "MultiContainerRun",
    required=["backgroundImage", "backgroundCommand", "outputImage", "outputCommand"],
    arguments=[
        "initImage",
        "initCommand",
        "namespace",
        "sharedVolumeMedium",
        "sharedVolumeSizeLimit",
        "sharedVolumeDir",
        *POD_ARGUMENTS,
    ],
)
async def multi_container_run(context: PhaseContext, args: Arguments) -> dict[str, Any]:
    """Runs two commands side by side that share a directory; the output is that of the second."""
    reader = MarkerReader(context.log)
    if context.here.engine == "kubernetes":
        Exit(await run_pod(context, args, _shared_pod(context, args), reader.feed)).check("the output command")
    else:
        await _shared_processes(context, args, reader)
    return dict(reader.end())


async def _shared_processes(context: PhaseContext, args: Arguments, reader: MarkerReader) -> None:
    """Both find the directory in the variable `SHARED_DIR`, and where their words say `sharedVolumeDir`.

    If one of them fails, the other is ended.
    """
    named = args.text("sharedVolumeDir", "") or "$(SHARED_DIR)"
    shared = Path(tempfile.mkdtemp(prefix="planform-shared-"))
    limits = replace(limits_for(context), writable=(shared,))
    environment = {"SHARED_DIR": str(shared)}

    async def run(name: str, output: Any) -> None:
        command = [word.replace(named, str(shared)) for word in _command(args, name)]
        ended = await run_process(command, limits, output=output, log=context.log, environment=environment)
        ended.check(name)

    def on_output(chunk: bytes) -> None:
        context.log(chunk.decode(errors="replace").rstrip())

    try:
        if args.get("initCommand"):
            await run("initCommand", on_output)
        both = [
            asyncio.create_task(run("backgroundCommand", on_output)),
            asyncio.create_task(run("outputCommand", reader.feed)),
        ]
        try:
            await asyncio.wait(both, return_when=asyncio.FIRST_EXCEPTION)
        finally:
            for each in both:
                each.cancel()
            results = await asyncio.gather(*both, return_exceptions=True)
        for result in results:
            if isinstance(result, PhaseFailed):
                raise result
    finally:
        await asyncio.to_thread(shutil.rmtree, shared, ignore_errors=True)


def _shared_pod(context: PhaseContext, args: Arguments) -> PodTask:
    directory = args.text("sharedVolumeDir", "/tmp/planform-shared")
    mount = {"volumeMounts": [{"name": _SHARED, "mountPath": directory}]}
    medium, limit = args.text("sharedVolumeMedium", ""), args.text("sharedVolumeSizeLimit", "")
    empty = {**({"medium": medium} if medium else {}), **({"sizeLimit": limit} if limit else {})}

    def container(name: str, what: str) -> dict[str, Any]:
        given = {"name": name, "image": args.text(f"{what}Image"), "command": _command(args, f"{what}Command")}
        return given | mount | {"env": [{"name": "SHARED_DIR", "value": directory}]}

    return PodTask(
        namespace=args.text("namespace", context.namespace or "default"),
        containers=[container("background", "background"), container("output", "output")],
        init_containers=[container("init", "init")] if args.get("initImage") else [],
        listen="output",
        volumes=[{"name": _SHARED, "emptyDir": empty}],
    )


def _command(args: Arguments, name: str) -> list[str]:
    command = args.texts(name)
    if not command or not command[0]:
        raise ArgumentInvalid(f'{args.of}: argument "{name}" is empty')
    return command


def _memory(args: Arguments) -> int | None:
    given = args.text("memory", "")
    if not given:
        return None
    try:
        return parse_quantity(given).value
    except QuantityError as error:
        raise ArgumentInvalid(f'{args.of}: argument "memory" is no quantity such as 512Mi: {given!r}') from error
