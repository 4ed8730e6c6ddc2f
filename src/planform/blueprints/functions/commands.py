"""KubeExec and KubeExecAll: run a command in containers that are there already, and read its output markers.

v0.0.0 of KubeExec is Kanister's. v0.1.0 may leave the container out, feed standard input and bound the time.
"""

from __future__ import annotations

import asyncio
import io
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import IO, Any, Final

from planform.api.annotations import annotations_of
from planform.api.kinds import Object
from planform.api.metadata import name_of
from planform.blueprints.arguments import Arguments
from planform.blueprints.contract import PhaseContext, phase_function
from planform.blueprints.errors import ArgumentInvalid, PhaseFailed
from planform.blueprints.functions.cluster import Cluster, open_cluster
from planform.blueprints.functions.durations import seconds_of
from planform.blueprints.functions.markers import MarkerReader
from planform.blueprints.functions.pods import POD
from planform.blueprints.functions.processes import Exit

DEFAULT_CONTAINER: Final = "kubectl.kubernetes.io/default-container"
_WORDS_KEPT: Final = 4096


@phase_function(
    "KubeExec", stable=True, required=["namespace", "pod", "command"], arguments=["container"], engines=["kubernetes"]
)
async def kube_exec(context: PhaseContext, args: Arguments) -> dict[str, Any]:
    """Runs a command in a container of a pod."""
    async with open_cluster(context) as cluster:
        return await _run(context, args, cluster, args.text("pod"), args.text("container", ""))


@phase_function(
    "KubeExec",
    version="v0.1.0",
    required=["namespace", "pod", "command"],
    arguments=["container", "stdin", "timeout"],
    engines=["kubernetes"],
)
async def kube_exec_v010(context: PhaseContext, args: Arguments) -> dict[str, Any]:
    """Runs a command in a container of a pod, with standard input and a limit of time."""
    stdin = io.BytesIO(args.text("stdin").encode()) if args.get("stdin") is not None else None
    seconds = seconds_of(args, "timeout", 0.0)
    bounded: AbstractAsyncContextManager[Any] = asyncio.timeout(seconds) if seconds else nullcontext()
    try:
        async with bounded, open_cluster(context) as cluster:
            return await _run(context, args, cluster, args.text("pod"), args.text("container", ""), stdin=stdin)
    except TimeoutError as error:
        raise PhaseFailed(f"the command took longer than {seconds:g} s") from error


@phase_function(
    "KubeExecAll",
    required=["namespace", "pods", "containers", "command"],
    engines=["kubernetes"],
)
async def kube_exec_all(context: PhaseContext, args: Arguments) -> dict[str, Any]:
    """Runs a command in each of several containers of several pods, at once; where outputs collide, the later wins."""
    pods, containers = args.text("pods").split(), args.text("containers").split()
    if not pods or not containers:
        raise ArgumentInvalid(f"{args.of}: pods and containers must each name one at least")
    async with open_cluster(context) as cluster:
        runs = [_run(context, args, cluster, pod, container) for pod in pods for container in containers]
        results = await asyncio.gather(*runs, return_exceptions=True)
    failures = [each for each in results if isinstance(each, BaseException)]
    for failure in failures:
        if not isinstance(failure, PhaseFailed):
            raise failure
    if failures:
        raise PhaseFailed(f"{len(failures)} of {len(results)} commands failed: {'; '.join(map(str, failures))}")
    return {key: value for each in results if isinstance(each, dict) for key, value in each.items()}


async def _run(
    context: PhaseContext,
    args: Arguments,
    cluster: Cluster,
    pod: str,
    container: str,
    *,
    stdin: IO[bytes] | None = None,
) -> dict[str, Any]:
    reader = MarkerReader(context.log)
    ended = await exec_command(
        context, cluster, args.text("namespace"), pod, container, args.texts("command"), reader.feed, stdin=stdin
    )
    ended.check(f'the command in pod "{args.text("namespace")}/{pod}"')
    return dict(reader.end())


async def exec_command(
    context: PhaseContext,
    cluster: Cluster,
    namespace: str,
    pod: str,
    container: str,
    command: list[str],
    output: Callable[[bytes], None],
    *,
    stdin: IO[bytes] | None = None,
) -> Exit:
    """Run it in a container of a pod that exists; without a name in the one that kubectl would take."""
    found = await context.client.get(POD, pod, namespace=namespace)
    chosen = _container(found, container)
    words = bytearray()

    def heard(chunk: bytes) -> None:
        words.extend(chunk)
        del words[:-_WORDS_KEPT]
        for line in chunk.decode(errors="replace").splitlines():
            context.log(line)

    code = await cluster.exec(namespace, pod, chosen, command, stdout=output, stderr=heard, stdin=stdin)
    return Exit(code, " ".join(words.decode(errors="replace").strip().splitlines()[-3:]))


def _container(pod: Object, wanted: str) -> str:
    names = [str(each["name"]) for each in pod["spec"]["containers"]]
    others = [str(each["name"]) for each in pod["spec"].get("ephemeralContainers") or ()]
    others += [str(each["name"]) for each in pod["spec"].get("initContainers") or ()]
    if not wanted:
        default = annotations_of(pod).get(DEFAULT_CONTAINER)
        return default if default in names else names[0]
    if wanted not in (*names, *others):
        raise PhaseFailed(f'pod "{name_of(pod)}" has no container "{wanted}" (it has: {", ".join(names)})')
    return wanted
