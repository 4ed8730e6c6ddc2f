"""However an XR fails, and whatever it says about that, its calls, writes and events are bounded by the backoff.

All of them fail side by side for a minute on a clock that runs fast, and each says something new each time. The same
for claims, operations, packages and ActionSets.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import grpc
import pytest

from planform.api.kinds import GroupVersionKind, Object, gvk
from planform.api.names import ACTION_SET, EVENT, FUNCTION, OPERATION
from planform.apiserver.auth.pki import Pki
from planform.client.protocol import Client
from planform.clock import Clock
from planform.errors import PlanformError
from planform.reconcile.context import ControllerContext
from planform_sdk.proto import SERVICES, v1
from tests.controllers.composing import CONFIG_MAP, Platform, a_platform, python
from tests.controllers.conftest import ENGINES
from tests.harness.contexts import embedded_context, eventually, kubernetes_context, read
from tests.harness.kubernetes import RealKubernetes

pytestmark = pytest.mark.timeout(180)

SECONDS: Final = 60.0
MAX_CALLS, MAX_WRITES, MAX_EVENTS = 20, 40, 20
FASTER: Final = 15.0


class FastClock:
    """The system's clock, on which time goes faster once there is no need to wait for anything else."""

    def __init__(self) -> None:
        self._start = datetime.now(UTC)
        self._elapsed, self._since, self._rate = 0.0, time.monotonic(), 1.0

    def now(self) -> datetime:
        return self._start + timedelta(seconds=self.monotonic())

    def monotonic(self) -> float:
        return self._elapsed + (time.monotonic() - self._since) * self._rate

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(max(0.0, seconds) / self._rate)

    async def hurry(self, seconds: float) -> None:
        """Let that much time pass quickly."""
        self._elapsed, self._since, self._rate = self.monotonic(), time.monotonic(), FASTER
        await self.sleep(seconds)


@pytest.fixture(params=ENGINES)
async def context(request: pytest.FixtureRequest) -> AsyncIterator[ControllerContext]:
    if request.param == "kubernetes":
        cluster: RealKubernetes = request.getfixturevalue("kubernetes_engine")
        async with kubernetes_context(cluster, clock=FastClock()) as context:
            yield context
    else:
        async with embedded_context(clock=FastClock()) as context:
            yield context


# -- a function that fails in every way, and never says the same twice

_NUMBERS = itertools.count(1)


def _fatal(response: Any) -> None:
    response.results.add(severity=v1.SEVERITY_FATAL, message=f"request {next(_NUMBERS)} failed")


def _chatty(response: Any) -> None:
    for index in range(3):
        response.results.add(severity=v1.SEVERITY_WARNING, message=f"warning {index} of request {next(_NUMBERS)}")
    response.conditions.add(
        type="Tried", status=v1.STATUS_CONDITION_FALSE, reason=f"R{next(_NUMBERS)}", message=f"try {next(_NUMBERS)}"
    )
    _fatal(response)


def _nameless(response: Any) -> None:
    response.desired.resources[f"r{next(_NUMBERS)}"].resource.update({"kind": "Nothing"})


def _restless(response: Any) -> None:
    selector = response.requirements.resources["it"]
    selector.api_version, selector.kind, selector.match_name = "v1", "ConfigMap", f"n{next(_NUMBERS)}"


def _compose(response: Any, key: str, **members: Any) -> None:
    response.desired.resources[key].resource.update({"apiVersion": "v1", "kind": "ConfigMap", **members})


def _refused(response: Any) -> None:
    _compose(response, "good", data={"call": f"{next(_NUMBERS)}"})
    _compose(response, "bad", data={"call": next(_NUMBERS)})


def _renamed(response: Any) -> None:
    _compose(response, "bad", metadata={"name": f"n{next(_NUMBERS)}"}, data={"call": next(_NUMBERS)})


def _conflicting(response: Any) -> None:
    _compose(response, "a", metadata={"resourceVersion": "1"}, data={"call": f"{next(_NUMBERS)}"})


def _shrinking(response: Any) -> None:
    if next(_NUMBERS) and not response.context["calls"] > 1:
        for index in range(6):
            _compose(response, f"r{index}", data={"x": "1"})
    else:
        response.results.add(severity=v1.SEVERITY_WARNING, message=f"nothing in request {next(_NUMBERS)}")


MODES: Final[dict[str, Callable[[Any], None]]] = {
    "fatal": _fatal,
    "chatty": _chatty,
    "nameless": _nameless,
    "restless": _restless,
    "refused": _refused,
    "renamed": _renamed,
    "conflicting": _conflicting,
    "shrinking": _shrinking,
}
BROKEN: Final = ("unavailable", "internal", "garbage")


class Failing:
    """The function's server; counts its calls by the way in which they were to fail."""

    def __init__(self) -> None:
        self.calls: Counter[str] = Counter()
        self.target = ""

    async def _run(self, data: bytes, context: Any) -> bytes:
        request = v1.RunFunctionRequest.FromString(data)
        mode = str(request.input["mode"])
        self.calls[mode] += 1
        if mode in ("unavailable", "internal"):
            await context.abort(getattr(grpc.StatusCode, mode.upper()), f"request {next(_NUMBERS)}")
        if mode == "garbage":
            return b"\xff\xfe" + str(next(_NUMBERS)).encode()
        response = v1.RunFunctionResponse(desired=request.desired, context=request.context)
        response.meta.tag = request.meta.tag
        response.context["calls"] = self.calls[mode]
        MODES[mode](response)
        return bytes(response.SerializeToString())

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[None]:
        server = grpc.aio.server()
        handler = grpc.unary_unary_rpc_method_handler(self._run)
        for service in SERVICES.values():
            server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler(service, {"RunFunction": handler})])
        self.target = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
        await server.start()
        try:
            yield
        finally:
            await server.stop(None)


class Refusals:
    """A registry that will not give anything, and says so differently each time."""

    def __init__(self) -> None:
        self.requests = 0
        self.target = ""

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            asked = await reader.readuntil(b"\r\n\r\n")
            self.requests += 1
            body = f'{{"errors": [{{"code": "DENIED", "message": "request {next(_NUMBERS)}"}}]}}'.encode()
            head = f"HTTP/1.1 403 Forbidden\r\ncontent-length: {len(body)}\r\nconnection: close\r\n\r\n"
            writer.write(head.encode() + (b"" if asked.startswith(b"HEAD") else body))
            await writer.drain()
        writer.close()

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[None]:
        server = await asyncio.start_server(self._answer, "127.0.0.1", 0)
        self.target = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        async with server:
            yield


class Writes:
    """Counts what is written of each object, as watches tell it; events by the object they are about."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self.of: Counter[str] = Counter()
        self.events: Counter[str] = Counter()

    @asynccontextmanager
    async def counting(self, *kinds: GroupVersionKind) -> AsyncIterator[None]:
        async with asyncio.TaskGroup() as tasks:
            begun = [asyncio.Event() for _ in kinds]
            watching = [
                tasks.create_task(self._watch(kind, started)) for kind, started in zip(kinds, begun, strict=True)
            ]
            for started in begun:
                await started.wait()
            yield
            for task in watching:
                task.cancel()

    async def _watch(self, kind: GroupVersionKind, begun: asyncio.Event) -> None:
        version = (await self._client.list(kind, limit=1)).resource_version
        async with self._client.watch(kind, resource_version=version) as changes:
            begun.set()
            async for _, obj in changes:
                self._count(kind, obj)

    def _count(self, kind: GroupVersionKind, obj: Object) -> None:
        metadata = obj["metadata"]
        if kind == EVENT:
            self.events[obj["involvedObject"]["name"]] += 1
            self.of[obj["involvedObject"]["name"]] += 1
        else:
            self.of[(metadata.get("labels") or {}).get("crossplane.io/composite") or metadata["name"]] += 1


async def install(client: Client, name: str, package: str, **annotations: str) -> None:
    metadata = {"name": name, "annotations": annotations}
    wanted = {
        "apiVersion": FUNCTION.api_version,
        "kind": "Function",
        "metadata": metadata,
        "spec": {"package": package},
    }
    await client.apply(wanted, manager="user", force=True)


async def all_xrs(platform: Platform, function: str) -> dict[str, Object]:
    """One XR for each kind of failure, by what it is called there."""

    def step(mode: str, name: str = function) -> Object:
        given = {"apiVersion": "test.example.org/v1", "kind": "Input", "mode": mode}
        return {"step": "ask", "functionRef": {"name": name}, "input": given}

    xrs = {}
    steps = {mode: step(mode) for mode in (*MODES, *BROKEN)} | {"missing-function": step("fatal", "nobody")}
    for mode, wanted in steps.items():
        await platform.compose(wanted, name=f"{platform.unique}-{mode}")
    await eventually(lambda: _is_served(platform, function), "the function is served")
    for mode in steps:
        xrs[mode] = await platform.create(mode, compositionRef={"name": f"{platform.unique}-{mode}"})
    xrs["missing-composition"] = await platform.create("lost", compositionRef={"name": "nowhere"})
    xrs["missing-revision"] = await platform.create(
        "stale",
        compositionRef={"name": f"{platform.unique}-fatal"},
        compositionRevisionRef={"name": "nowhere"},
        compositionUpdatePolicy="Manual",
    )
    return xrs


async def _is_served(platform: Platform, function: str) -> bool:
    assert platform.controllers is not None
    return any(each.function == function for each in platform.controllers.functions.remote)


async def until_a_minute_after(began: float, clock: Clock) -> None:
    assert isinstance(clock, FastClock)
    await clock.hurry(SECONDS - (clock.monotonic() - began))


async def test_whatever_an_xr_says_about_its_failure_it_fails_at_the_rate_of_the_backoff(
    context: ControllerContext, unique: str, tmp_path: Path
) -> None:
    function, failing, writes = f"function-{unique}", Failing(), Writes(context.client)
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(failing.serving())
        platform = await stack.enter_async_context(a_platform(context, unique))
        await install(context.client, function, "example.org/acme/fn:v1", **{"planform.dev/endpoint": failing.target})
        await stack.enter_async_context(writes.counting(platform.kind, CONFIG_MAP, EVENT))
        began = context.clock.monotonic()
        xrs = await all_xrs(platform, function)
        await until_a_minute_after(began, context.clock)
        for mode, xr in xrs.items():
            assert await _says_why(platform, xr), mode
        counted = {
            mode: (failing.calls[mode], writes.of[name], writes.events[name])
            for mode, xr in xrs.items()
            if (name := xr["metadata"]["name"])
        }
    maximum = (MAX_CALLS, MAX_WRITES, MAX_EVENTS)
    too_often = {
        mode: found for mode, found in counted.items() if any(a > b for a, b in zip(found, maximum, strict=True))
    }
    assert not too_often, counted
    assert all(failing.calls[mode] >= 3 for mode in ("fatal", "unavailable", "refused")), "and it is tried again"


async def _says_why(platform: Platform, xr: Object) -> bool:
    conditions = ((await platform.get(xr)).get("status") or {}).get("conditions") or ()
    synced = [each for each in conditions if each["type"] == "Synced"]
    return not synced or synced[0]["status"] == "False"


async def test_claims_operations_packages_and_actionsets_fail_at_that_rate_too(
    context: ControllerContext, unique: str, tmp_path: Path
) -> None:
    function, failing, registry, writes = f"function-{unique}", Failing(), Refusals(), Writes(context.client)
    claim_kind = gvk(f"{unique}.example.org/v1", "Claimed")
    xrd = {"claimNames": {"kind": "Claimed", "plural": "claimeds"}}
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(failing.serving())
        await stack.enter_async_context(registry.serving())
        authority = Pki(tmp_path / "pki", clock=context.clock, names=("127.0.0.1",))
        platform = await stack.enter_async_context(
            a_platform(context, unique, scope="LegacyCluster", xrd=xrd, data=tmp_path, authority=authority)
        )
        await install(context.client, function, "example.org/acme/fn:v1", **{"planform.dev/endpoint": failing.target})
        await eventually(lambda: _is_served(platform, function), "the function is served")
        kinds = (platform.kind, claim_kind, OPERATION, FUNCTION, ACTION_SET, EVENT)
        await eventually(lambda: _serves(context.client, claim_kind), "claims are served")
        await stack.enter_async_context(writes.counting(*kinds))
        given = {"apiVersion": "test.example.org/v1", "kind": "Input", "mode": "chatty"}
        step: Object = {"step": "ask", "functionRef": {"name": function}, "input": given}
        await platform.compose(step)
        began = context.clock.monotonic()
        names = {each: f"{each}-{unique}" for each in ("claim", "operation", "package", "actionset")}
        await context.client.create(_claim(claim_kind, names["claim"]))
        await context.client.create(
            {
                "apiVersion": OPERATION.api_version,
                "kind": OPERATION.kind,
                "metadata": {"name": names["operation"]},
                "spec": {
                    "mode": "Pipeline",
                    "retryLimit": 1000,
                    "pipeline": [python(FAILS_OTHERWISE)],
                },
            }
        )
        await install(context.client, names["package"], f"{registry.target}/acme/fn:v1")
        action = {"name": "backup", "blueprint": "nowhere", "object": {"kind": "Namespace", "name": "default"}}
        await context.client.create(
            {
                "apiVersion": ACTION_SET.api_version,
                "kind": ACTION_SET.kind,
                "metadata": {"name": names["actionset"], "namespace": "default"},
                "spec": {"actions": [action]},
            }
        )
        await until_a_minute_after(began, context.clock)
        operation = await read(context.client, OPERATION, names["operation"])
    assert operation is not None
    calls = {"claim": failing.calls["chatty"], "operation": operation["status"].get("failures", 0)}
    calls["package"] = registry.requests
    counted = {each: (calls.get(each, 0), writes.of[name], writes.events[name]) for each, name in names.items()}
    maximum = (MAX_CALLS, MAX_WRITES, MAX_EVENTS)
    too_often = {
        who: found for who, found in counted.items() if any(a > b for a, b in zip(found, maximum, strict=True))
    }
    assert not too_often, counted
    assert all(calls.values()) and all(writes.of[name] for name in names.values()), counted


FAILS_OTHERWISE: Final = (
    "import os\ndef operate(req, rsp):\n    rsp.results.add(severity=1, message='request ' + os.urandom(8).hex())\n"
)


def _claim(kind: GroupVersionKind, name: str) -> Object:
    return {
        "apiVersion": kind.api_version,
        "kind": kind.kind,
        "metadata": {"name": name, "namespace": "default"},
        "spec": {},
    }


async def _serves(client: Client, kind: GroupVersionKind) -> bool:
    try:
        await client.list(kind, limit=1)
    except PlanformError:
        return False
    return True
