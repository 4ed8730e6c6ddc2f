"""A kubelet for tests: a Node of a real cluster whose pods are processes of this machine.

It registers itself, runs the commands of pods that name its node, and answers what the API server asks a kubelet for:
exec over WebSockets (a node says that it can in `status.declaredFeatures`) and logs. A container's files are a
directory of the test's: `paths` says which paths of commands mean it.

Pods of servers work as elsewhere: Secrets are files, probes decide whether a pod is ready, and one that is deleted
serves on for as long as its `preStop` sleeps. A loopback address cannot be an endpoint, so that pods have addresses of
their own; `reach` says where their processes listen: the pod 10.1.2.3 is at 127.1.2.3.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import itertools
import json
import os
import signal
import ssl
from asyncio.subprocess import DEVNULL, PIPE, STDOUT, Process
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import aiohttp
from aiohttp import WSMsgType, web

from planform.api.kinds import GroupVersionKind, Object
from planform.api.names import SECRET
from planform.client.protocol import Client, Patch, PatchType
from planform.errors import ApiError, Conflict, NotFound, PlanformError
from tests.harness.kubernetes import RealKubernetes

NODE: Final = GroupVersionKind("", "v1", "Node")
POD: Final = GroupVersionKind("", "v1", "Pod")
Image = Callable[[str], Awaitable[tuple[Sequence[str], Mapping[str, str]]]]
"""What an image runs, given its name: the command and its variables. It takes `--address` as functions do."""

_HEARTBEAT_SECONDS: Final = 5.0
_ADDRESSES = itertools.count()
_STDIN, _STDOUT, _STDERR, _ERROR, _CLOSE = 0, 1, 2, 3, 255


def reach(address: str) -> str:
    """Where on this machine the pod with that address is."""
    return "127." + address.partition(".")[2]


@dataclass
class Kubelet:
    """A node by name. `logs` holds what containers printed, by pod and container; `volumes` is where Secrets go."""

    client: Client
    node: str
    cluster: RealKubernetes
    paths: dict[str, Path] = field(default_factory=dict)
    logs: dict[tuple[str, str], bytearray] = field(default_factory=dict)
    ended: dict[tuple[str, str], asyncio.Event] = field(default_factory=dict)
    execs: list[tuple[str, str, list[str]]] = field(default_factory=list)
    protocols: list[str] = field(default_factory=list)
    image: Image | None = None
    volumes: Path = Path("/nonexistent")
    broken_logs: int = 0
    """How many log streams are cut off after what was there when they began."""
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)
    _processes: dict[Process, str] = field(default_factory=dict)
    """What runs, and for which pod."""
    _leaving: set[str] = field(default_factory=set)

    def translated(self, words: list[str]) -> list[str]:
        for path, real in self.paths.items():
            words = [word.replace(path, str(real)) for word in words]
        return words

    async def exec(self, request: web.Request) -> web.StreamResponse:
        """Run a command in a container, and answer on the channels of the protocol that was agreed on."""
        words = self.translated(request.query.getall("command"))
        match = request.match_info
        self.execs.append((match["pod"], match["container"], request.query.getall("command")))
        socket = web.WebSocketResponse(protocols=("v5.channel.k8s.io", "v4.channel.k8s.io"), max_msg_size=0)
        await socket.prepare(request)
        self.protocols.append(socket.ws_protocol or "")
        for channel in (_STDOUT, _STDERR):
            await socket.send_bytes(bytes([channel]))  # kubelets open their streams so
        process = await asyncio.create_subprocess_exec(
            *words, stdin=PIPE, stdout=PIPE, stderr=PIPE, start_new_session=True
        )
        self._processes[process] = match["pod"]
        feeding = asyncio.create_task(_feed(socket, process, request.query.get("input") == "1"))
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(_pump(socket, process.stdout, _STDOUT))
                tasks.create_task(_pump(socket, process.stderr, _STDERR))
            await socket.send_bytes(bytes([_ERROR]) + json.dumps(_status(await process.wait())).encode())
        finally:
            feeding.cancel()
            await self._end(process)
        await socket.close()
        return socket

    async def log(self, request: web.Request) -> web.StreamResponse:
        """What a container printed, and what it prints until it ends."""
        key = (request.match_info["pod"], request.match_info["container"])
        response = web.StreamResponse()
        await response.prepare(request)
        done, printed = self.ended[key], self.logs[key]
        sent = 0
        while True:
            over = done.is_set()
            text = bytes(printed[sent:])
            if text:
                await response.write(text)
                sent += len(text)
                if self.broken_logs:
                    self.broken_logs -= 1
                    assert request.transport is not None
                    request.transport.abort()
                    return response
            elif over:
                return response
            else:
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(done.wait(), 0.02)

    async def watch(self) -> None:
        """Run every pod that names this node, once."""
        seen: set[str] = set()
        async with self.client.watch(POD, fields=f"spec.nodeName={self.node}") as events:
            async for event in events:
                pod = event.object
                uid = pod["metadata"]["uid"]
                if pod["metadata"].get("deletionTimestamp") and event.type != "DELETED":
                    if uid not in self._leaving:
                        self._leaving.add(uid)
                        self._begin(self._remove(pod))
                elif event.type == "ADDED" and uid not in seen:
                    seen.add(uid)
                    self._begin(self._run(pod))

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def beat(self) -> None:
        """Say again and again that the node is there; pods of one that is silent are given up."""
        while True:
            now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
            condition = {"type": "Ready", "status": "True", "lastHeartbeatTime": now}
            patch = Patch(PatchType.MERGE, {"status": {"conditions": [condition]}})
            with contextlib.suppress(ApiError):
                await self.client.patch(NODE, self.node, patch, subresource="status")
            await asyncio.sleep(_HEARTBEAT_SECONDS)

    async def _run(self, pod: Object) -> None:
        """Start the containers, tell that they run, and tell how they ended; a pod that is deleted is forgotten."""
        name = pod["metadata"]["name"]
        if self.image is not None and any(_is_server(each) for each in pod["spec"]["containers"]):
            await self._serve(pod)
            return
        for container in pod["spec"]["containers"]:
            self.logs[name, container["name"]] = bytearray()
            self.ended[name, container["name"]] = asyncio.Event()
        running = [{"name": each["name"], "state": {"running": {}}} for each in pod["spec"]["containers"]]
        with contextlib.suppress(NotFound, Conflict):
            await self._report(pod, "Running", running)
            codes = await asyncio.gather(*(self._container(name, each) for each in pod["spec"]["containers"]))
            over = [
                {"name": each["name"], "state": {"terminated": {"exitCode": code}}}
                for each, code in zip(pod["spec"]["containers"], codes, strict=True)
            ]
            await self._report(pod, "Failed" if any(codes) else "Succeeded", over)

    async def _container(self, pod: str, container: Mapping[str, Any]) -> int:
        """Run one container's command; one without a command, as a server's, runs until the end of the test."""
        words = self.translated([*(container.get("command") or ()), *(container.get("args") or ())])
        if not words:
            await asyncio.Event().wait()
        environment = {each["name"]: each.get("value", "") for each in container.get("env") or ()}
        try:
            return await self._process(pod, container["name"], words, environment)
        finally:
            self.ended[pod, container["name"]].set()

    async def _process(self, pod: str, container: str, words: Sequence[str], environment: Mapping[str, str]) -> int:
        process = await asyncio.create_subprocess_exec(
            *words,
            stdin=DEVNULL,
            stdout=PIPE,
            stderr=STDOUT,
            env={"PATH": "/usr/bin:/bin", **environment},
            start_new_session=True,
        )
        self._processes[process] = pod
        log = self.logs[pod, container]
        assert process.stdout is not None
        try:
            while chunk := await process.stdout.read(4096):
                log += chunk
            code = await process.wait()
            return code if code >= 0 else 128 - code
        finally:
            await self._end(process)

    async def _serve(self, pod: Object) -> None:
        """Run a pod whose containers are servers: it has an address, and is ready once its probes succeed."""
        process = os.getpid()  # others may have nodes on this machine too
        address = f"10.{process // 256 % 254 + 1}.{process % 256}.{next(_ADDRESSES) % 254 + 1}"
        metadata, spec = pod["metadata"], pod["spec"]
        mounts = await self._mount(pod)
        names = [each["name"] for each in spec["containers"]]
        running = [{"name": name, "state": {"running": {}}, "ready": False} for name in names]
        with contextlib.suppress(NotFound, Conflict):
            await self._report(pod, "Running", running, **_status_of_server(address, ready=False))
            async with asyncio.TaskGroup() as tasks:
                for each in spec["containers"]:
                    key = metadata["name"], each["name"]
                    self.logs[key], self.ended[key] = bytearray(), asyncio.Event()
                    tasks.create_task(self._server(pod, each, address, mounts))
                for each in spec["containers"]:
                    await _until_open(reach(address), each)
                if metadata["uid"] not in self._leaving:
                    ready = [{**each, "ready": True} for each in running]
                    await self._report(pod, "Running", ready, **_status_of_server(address, ready=True))

    async def _server(
        self, pod: Object, container: Mapping[str, Any], address: str, mounts: Mapping[str, Path]
    ) -> None:
        """Run a server as long as its pod is wanted; one that ends by itself is started again."""
        assert self.image is not None
        places = {each["mountPath"]: mounts[each["name"]] for each in container.get("volumeMounts") or ()}
        try:
            words, variables = await self.image(container["image"])
        except PlanformError:  # there is no such image, and the pod does not come up
            return
        environment = {**variables, **_environment(pod, container, places)}
        words = [*words, *(container.get("args") or ())]
        if port := _port(container):
            words.append(f"--address={reach(address)}:{port}")
        while pod["metadata"]["uid"] not in self._leaving:
            await self._process(pod["metadata"]["name"], container["name"], words, environment)
            await asyncio.sleep(0.05)

    async def _mount(self, pod: Object) -> dict[str, Path]:
        """The volumes of a pod as directories, by name."""
        found = {}
        for volume in pod["spec"].get("volumes") or ():
            directory = self.volumes / pod["metadata"]["uid"] / volume["name"]
            directory.mkdir(parents=True, exist_ok=True)
            found[volume["name"]] = directory
            if "secret" in volume:
                name, namespace = volume["secret"]["secretName"], pod["metadata"]["namespace"]
                secret = await self._until_there(name, namespace)
                for key, value in (secret.get("data") or {}).items():
                    (directory / key).write_bytes(base64.b64decode(value))
        return found

    async def _until_there(self, name: str, namespace: str) -> Object:
        while True:
            try:
                return await self.client.get(SECRET, name, namespace=namespace)
            except NotFound:
                await asyncio.sleep(0.1)

    async def _report(self, pod: Object, phase: str, containers: list[Object], **more: Any) -> None:
        statuses = [
            {"image": "i", "imageID": "i", "ready": phase == "Running", "restartCount": 0, **each}
            for each in containers
        ]
        status = {"phase": phase, "containerStatuses": statuses, **more}
        patch = {"metadata": {"uid": pod["metadata"]["uid"]}, "status": status}
        metadata = pod["metadata"]
        await self.client.patch(
            POD, metadata["name"], Patch(PatchType.MERGE, patch), namespace=metadata["namespace"], subresource="status"
        )

    async def _remove(self, pod: Object) -> None:
        """End a pod that somebody deleted, and say that it is gone: until its node does so, it stays."""
        name, namespace = pod["metadata"]["name"], pod["metadata"]["namespace"]
        await asyncio.sleep(max(map(_seconds_before_stop, pod["spec"]["containers"])))
        for process in [process for process, owner in self._processes.items() if owner == name]:
            await self._end(process)
        trust = ssl.create_default_context(cafile=str(self.cluster.ca_file))
        headers = {"Authorization": f"Bearer {self.cluster.token}"}
        path = f"/api/v1/namespaces/{namespace}/pods/{name}"
        body = {"gracePeriodSeconds": 0, "preconditions": {"uid": pod["metadata"]["uid"]}}
        async with aiohttp.ClientSession() as session:
            await session.delete(self.cluster.url + path, headers=headers, ssl=trust, json=body)

    async def _end(self, process: Process) -> None:
        self._processes.pop(process, None)
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)  # what it started may hold its pipes open
            await process.wait()

    async def stop(self) -> None:
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for process in list(self._processes):
            await self._end(process)


@asynccontextmanager
async def kubelet(cluster: RealKubernetes, client: Client, name: str, **more: Any) -> AsyncIterator[Kubelet]:
    """A node of the cluster for the length of the block."""
    served = Kubelet(client, name, cluster, **more)
    app = web.Application()
    app.router.add_route("*", "/exec/{namespace}/{pod}/{container}", served.exec)
    app.router.add_get("/containerLogs/{namespace}/{pod}/{container}", served.log)
    runner = web.AppRunner(app, shutdown_timeout=0.5)
    await runner.setup()
    trust = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    trust.load_cert_chain(cluster.directory / "pki" / "server.crt", cluster.directory / "pki" / "server.key")
    await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=trust).start()
    status = {
        "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": runner.addresses[0][1]}},
        "declaredFeatures": ["ExtendWebSocketsToKubelet"],
        "conditions": [{"type": "Ready", "status": "True"}],
    }
    await client.create({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}})
    await client.patch(NODE, name, Patch(PatchType.MERGE, {"status": status}), subresource="status")
    working = [asyncio.create_task(work, name=f"kubelet {name}") for work in (served.watch(), served.beat())]
    try:
        yield served
    finally:
        for task in working:
            task.cancel()
        await served.stop()
        await asyncio.gather(*working, return_exceptions=True)
        await runner.cleanup()
        with contextlib.suppress(ApiError):
            await client.delete(NODE, name)


def _is_server(container: Mapping[str, Any]) -> bool:
    return not container.get("command")


def _status_of_server(address: str, *, ready: bool) -> Object:
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    said = {"PodScheduled": True, "Initialized": True, "ContainersReady": ready, "Ready": ready}
    conditions = [{"type": type_, "status": str(status), "lastTransitionTime": now} for type_, status in said.items()]
    return {"podIP": address, "podIPs": [{"ip": address}], "startTime": now, "conditions": conditions}


def _environment(pod: Object, container: Mapping[str, Any], places: Mapping[str, Path]) -> dict[str, str]:
    """The variables of a container; values that name a mounted directory name the one that it really is."""
    found = {}
    for each in container.get("env") or ():
        field = ((each.get("valueFrom") or {}).get("fieldRef") or {}).get("fieldPath", "")
        value = str(each.get("value") or "")
        if field.startswith("metadata.labels["):
            value = pod["metadata"]["labels"][field[len("metadata.labels['") : -2]]
        elif field == "metadata.namespace":
            value = pod["metadata"]["namespace"]
        found[each["name"]] = str(places.get(value, value))
    return found


def _port(container: Mapping[str, Any]) -> int:
    """Where a function serves, or a provider its webhooks; 0 for what does neither."""
    named = ("grpc", "webhook")
    return next((int(each["containerPort"]) for each in container["ports"] if each.get("name") in named), 0)


async def _until_open(address: str, container: Mapping[str, Any]) -> None:
    """Probe a container until it takes connections; one without a probe is ready at once."""
    probe = container.get("startupProbe") or container.get("readinessProbe")
    if probe is None:
        return
    assert probe["tcpSocket"] == {"port": "grpc"}, probe
    while True:
        try:
            _, writer = await asyncio.open_connection(address, _port(container))
        except OSError:
            await asyncio.sleep(0.05)
        else:
            writer.close()
            return


def _seconds_before_stop(container: Mapping[str, Any]) -> float:
    before = (container.get("lifecycle") or {}).get("preStop") or {}
    return float((before.get("sleep") or {}).get("seconds") or 0)


def _status(code: int) -> Object:
    if code == 0:
        return {"metadata": {}, "status": "Success"}
    return {
        "metadata": {},
        "status": "Failure",
        "message": f"command terminated with non-zero exit code: exit status {code}",
        "reason": "NonZeroExitCode",
        "details": {"causes": [{"reason": "ExitCode", "message": str(code)}]},
    }


async def _pump(socket: web.WebSocketResponse, stream: asyncio.StreamReader | None, channel: int) -> None:
    assert stream is not None
    while chunk := await stream.read(32 << 10):
        await socket.send_bytes(bytes([channel]) + chunk)


async def _feed(socket: web.WebSocketResponse, process: Process, wanted: bool) -> None:
    assert process.stdin is not None
    with contextlib.suppress(ConnectionError):
        if wanted:
            async for message in socket:
                if message.type is not WSMsgType.BINARY:
                    continue
                if message.data[:2] == bytes([_CLOSE, _STDIN]):
                    break
                if message.data[0] == _STDIN:
                    process.stdin.write(message.data[1:])
                    await process.stdin.drain()
        process.stdin.close()
        if not wanted:
            async for _ in socket:
                pass
        if process.returncode is None and socket.closed:
            os.killpg(process.pid, signal.SIGKILL)
