"""Functions and their revisions on both engines, up to a call of a function in a process of its own."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from planform.api.kinds import Object
from planform.api.names import FUNCTION, FUNCTION_REVISION, PACKAGE_LABEL, PAUSED_ANNOTATION, SECRET
from planform.client.informer import ObjectKey
from planform.client.protocol import Client, Patch, PatchType
from planform.errors import NotFound
from planform.features import FeatureGates
from planform.functions.endpoints import InProcess
from planform.functions.errors import FunctionNotFound, FunctionUnavailable, VersionInactive, VersionNotReady
from planform.functions.resolution import Request, resolve
from planform.functions.values import FunctionRequest
from planform.packages.endpoints import TLS_SECRET_ANNOTATION, TLS_SERVER_NAME_ANNOTATION
from planform.packages.function_catalogue import LiveFunctions, runner
from planform.packages.function_controller import NAME, FunctionController
from planform.packages.revisions import NUMBER_LABEL, VERSION_LABEL
from planform.reconcile.context import ControllerContext
from tests.harness.contexts import condition_of, eventually, read, until_condition
from tests.harness.function_server import function_server
from tests.unit.test_functions_grpc import certificates

ENDPOINT = "planform.dev/endpoint"
PACKAGE = "example.org/crossplane-contrib/function-auto-ready"


@pytest.fixture
async def live(context: ControllerContext) -> AsyncIterator[LiveFunctions]:
    async with LiveFunctions(context) as live:
        await live.synced()
        yield live


class Functions:
    """What a user does with Functions, and what becomes of it."""

    def __init__(self, context: ControllerContext, live: LiveFunctions, name: str) -> None:
        self.context = context
        self.client = context.client
        self.live = live
        self.name = name

    async def install(
        self,
        package: str,
        *,
        labels: dict[str, str] | None = None,
        annotations: dict[str, str] | None = None,
        **spec: Any,
    ) -> Object:
        """Say all of what the Function is from now on."""
        metadata = {"name": self.name, "labels": labels or {}, "annotations": annotations or {}}
        wanted = {
            "apiVersion": FUNCTION.api_version,
            "kind": "Function",
            "metadata": metadata,
            "spec": {"package": package, **spec},
        }
        return await self.client.apply(wanted, manager="user", force=True)

    async def revisions(self) -> list[Object]:
        found = await self.client.list(FUNCTION_REVISION, labels=f"{PACKAGE_LABEL}={self.name}")
        return sorted(found.items, key=lambda each: int(each["spec"]["revision"]))

    async def states(self) -> dict[int, str]:
        return {each["spec"]["revision"]: each["spec"]["desiredState"] for each in await self.revisions()}

    async def until_states(self, **wanted: str) -> list[Object]:
        """Wait until there are exactly these revisions, `r1="Active"` and so on, and all is told and known of them."""
        expected = {int(key[1:]): value for key, value in wanted.items()}

        async def check() -> bool:
            if await self.states() != expected:
                return False
            known = {each.number: "Active" if each.active else "Inactive" for each in self.versions}
            return known == expected and all([await self.is_told(each) for each in await self.revisions()])

        await eventually(check, f"revisions {expected} of {self.name}")
        return await self.revisions()

    async def is_told(self, revision: Object) -> bool:
        condition = condition_of(revision, "RuntimeHealthy")
        return condition is not None and condition["observedGeneration"] == revision["metadata"]["generation"]

    async def activate(self, revision: Object, state: str = "Active") -> None:
        change = Patch(PatchType.MERGE, {"spec": {"desiredState": state}})
        await self.client.patch(FUNCTION_REVISION, revision["metadata"]["name"], change)

    async def until_condition(self, type_: str, status: str, **more: str) -> Object:
        function = {"apiVersion": FUNCTION.api_version, "kind": "Function", "metadata": {"name": self.name}}
        return await until_condition(self.client, function, type_, status, **more)

    async def until_known(self, check: Callable[[], object], what: str) -> None:
        async def answer() -> bool:
            return bool(check())

        await eventually(answer, what)

    async def until_version(self, version: str) -> None:
        def known() -> bool:
            return any(each.labels.get(VERSION_LABEL) == version for each in self.versions)

        await self.until_known(known, f"version {version} of {self.name}")

    @property
    def versions(self) -> list[Any]:
        return list(self.live.catalogue.versions(self.name))

    def resolve(self, **request: Any) -> Any:
        return resolve(self.live.catalogue, Request(self.name, **request))


@pytest.fixture
async def functions(context: ControllerContext, live: LiveFunctions, unique: str) -> AsyncIterator[Functions]:
    FunctionController(context, live).start()
    yield Functions(context, live, unique)
    with suppress(NotFound):
        await context.client.delete(FUNCTION, unique)


def asking(mode: str) -> FunctionRequest:
    return FunctionRequest(tag="t", input={"mode": mode})


# -- revisions


async def test_a_function_of_ours_is_installed_healthy_and_callable(functions: Functions) -> None:
    await functions.install(f"{PACKAGE}:v0.5.0", labels={"release-channel": "stable"}, commonLabels={"team": "a"})
    [revision] = await functions.until_states(r1="Active")
    function = await functions.until_condition("Healthy", "True", reason="HealthyPackageRevision")
    assert condition_of(function, "Installed")["reason"] == "ActivePackageRevision"  # type: ignore[index]
    assert function["status"]["currentRevision"] == revision["metadata"]["name"]
    assert function["status"]["currentIdentifier"] == f"{PACKAGE}:v0.5.0"
    assert revision["metadata"]["name"].startswith(f"{functions.name}-")
    assert revision["metadata"]["labels"] == {
        PACKAGE_LABEL: functions.name,
        VERSION_LABEL: "v0.5.0",
        NUMBER_LABEL: "1",
        "release-channel": "stable",
        "team": "a",
    }
    [owner] = revision["metadata"]["ownerReferences"]
    assert (owner["uid"], owner["controller"]) == (function["metadata"]["uid"], True)
    assert revision["status"]["endpoint"] == "builtin:auto-ready"
    assert revision["status"]["capabilities"] == ["composition", "operation", "deterministic"]
    assert condition_of(revision, "RevisionHealthy")["status"] == "True"  # type: ignore[index]

    chosen = functions.resolve(capability="composition").revision
    assert chosen.name == revision["metadata"]["name"]
    assert chosen.deterministic
    assert functions.live.endpoint(chosen) == InProcess("auto-ready")
    async with runner(functions.live) as run:
        assert (await run.run(chosen, FunctionRequest(tag="t"), timeout=5)).tag == "t"


async def test_two_revisions_serve_at_once_and_labels_choose_between_them(functions: Functions) -> None:
    limits: dict[str, Any] = {"revisionHistoryLimit": 4, "activeRevisionLimit": 2}
    await functions.install(f"{PACKAGE}:v1.0.0", labels={"release-channel": "stable"}, **limits)
    await functions.until_states(r1="Active")
    await functions.install(f"{PACKAGE}:v2.0.0", labels={"release-channel": "alpha"}, **limits)
    first, second = await functions.until_states(r1="Active", r2="Active")
    assert first["metadata"]["labels"]["release-channel"] == "stable"  # it keeps what it was made with
    assert second["metadata"]["labels"]["release-channel"] == "alpha"
    assert functions.resolve().version.number == 2
    assert functions.resolve(selector={"release-channel": "stable"}).version.number == 1
    assert functions.resolve(selector={VERSION_LABEL: "v1.0.0"}).version.number == 1
    assert functions.resolve(ref=first["metadata"]["name"]).version.number == 1

    await functions.install(f"{PACKAGE}:v3.0.0", **limits)
    await functions.until_states(r1="Inactive", r2="Active", r3="Active")
    with pytest.raises(VersionInactive):
        functions.resolve(selector={"release-channel": "stable"})
    await functions.install(f"{PACKAGE}:v3.0.0", revisionHistoryLimit=4, activeRevisionLimit=1)
    await functions.until_states(r1="Inactive", r2="Inactive", r3="Active")


async def test_going_back_to_a_package_goes_back_to_its_revision(functions: Functions) -> None:
    await functions.install(f"{PACKAGE}:v1")
    [first] = await functions.until_states(r1="Active")
    await functions.install(f"{PACKAGE}:v2")
    await functions.until_states(r1="Inactive", r2="Active")
    await functions.install(f"{PACKAGE}:v1")
    _, again = await functions.until_states(r2="Inactive", r3="Active")
    assert again["metadata"]["uid"] == first["metadata"]["uid"]


async def test_old_revisions_go_once_there_are_more_than_the_history_allows(functions: Functions) -> None:
    for version in ("v1", "v2", "v3"):
        await functions.install(f"{PACKAGE}:{version}")
        await functions.until_condition("Installed", "True")
        await functions.until_version(version)
    await functions.until_states(r2="Inactive", r3="Active")
    await functions.install(f"{PACKAGE}:v4", revisionHistoryLimit=0)
    await functions.until_states(r2="Inactive", r3="Inactive", r4="Active")


async def test_under_manual_users_decide_and_nothing_is_deactivated(functions: Functions) -> None:
    manual: dict[str, Any] = {"revisionActivationPolicy": "Manual"}
    await functions.install(f"{PACKAGE}:v1", **manual)
    [first] = await functions.until_states(r1="Inactive")
    await functions.until_condition("Installed", "False", reason="InactivePackageRevision")
    with pytest.raises(VersionInactive):
        functions.resolve()
    await functions.activate(first)
    await functions.until_condition("Installed", "True")
    await functions.install(f"{PACKAGE}:v2", **manual)
    _, second = await functions.until_states(r1="Active", r2="Inactive")
    await functions.activate(second)
    await functions.until_states(r1="Active", r2="Active")
    await functions.install(f"{PACKAGE}:v3", **manual)
    await functions.until_states(r1="Active", r2="Active", r3="Inactive")  # three, as active ones are never deleted
    await functions.install(f"{PACKAGE}:v3")
    await functions.until_states(r2="Inactive", r3="Active")


async def test_without_the_feature_one_revision_is_active_whatever_the_limit(
    context: ControllerContext, live: LiveFunctions, unique: str
) -> None:
    off = replace(context, features=FeatureGates({"FunctionRevisionSelectors": False}))
    functions = Functions(off, live, unique)
    FunctionController(off, live).start()
    for version in ("v1", "v2"):
        await functions.install(f"{PACKAGE}:{version}", revisionHistoryLimit=2, activeRevisionLimit=2)
        await functions.until_version(version)
    await functions.until_states(r1="Inactive", r2="Active")
    await context.client.delete(FUNCTION, unique)


async def test_the_current_revision_follows_the_labels_of_its_function(functions: Functions) -> None:
    await functions.install(f"{PACKAGE}:v1", labels={"a": "1", "b": "1", PACKAGE_LABEL: "another"})
    [revision] = await functions.until_states(r1="Active")
    assert revision["metadata"]["labels"][PACKAGE_LABEL] == functions.name
    own = Patch(PatchType.MERGE, {"metadata": {"labels": {"planform.dev/stable": "true"}}})
    await functions.client.patch(FUNCTION_REVISION, revision["metadata"]["name"], own)
    await functions.install(f"{PACKAGE}:v1", labels={"b": "2"})
    await functions.until_known(lambda: functions.versions[0].labels.get("b") == "2", "the changed label")
    [revision] = await functions.until_states(r1="Active")
    assert revision["metadata"]["labels"] == {
        PACKAGE_LABEL: functions.name,
        VERSION_LABEL: "v1",
        NUMBER_LABEL: "1",
        "b": "2",
        "planform.dev/stable": "true",
    }


async def test_a_package_that_cannot_be_had_says_what_to_do(functions: Functions) -> None:
    await functions.install("example.org/acme/function-shout:v1")
    function = await functions.until_condition("Installed", "False", reason="UnpackingPackage")
    message = condition_of(function, "Installed")["message"]  # type: ignore[index]
    assert '"example.org/acme/function-shout:v1" is not a built-in function' in message
    assert "planform.dev/endpoint: HOST:PORT" in message
    assert condition_of(function, "Healthy")["status"] == "False"  # type: ignore[index]
    assert await functions.revisions() == []
    await functions.install(f"{PACKAGE}:v1")
    await functions.until_condition("Installed", "True")
    await functions.install("example.org/acme/function-shout:v1")
    await functions.until_condition("Installed", "False")
    assert await functions.states() == {1: "Active"}  # what is there goes on serving


async def test_a_paused_function_is_left_alone(functions: Functions) -> None:
    await functions.install(f"{PACKAGE}:v1", annotations={PAUSED_ANNOTATION: "true"})
    await functions.until_condition("Synced", "False", reason="ReconcilePaused")
    assert await functions.revisions() == []
    await functions.install(f"{PACKAGE}:v1")
    function = await functions.until_condition("Installed", "True")
    assert condition_of(function, "Synced") is None


async def test_a_restart_writes_nothing(functions: Functions, live: LiveFunctions) -> None:
    await functions.install(f"{PACKAGE}:v1", labels={"a": "1"}, revisionHistoryLimit=2, activeRevisionLimit=2)
    await functions.until_states(r1="Active")
    await functions.install(
        "example.org/acme/fn:v1",
        annotations={ENDPOINT: "localhost:1"},
        revisionHistoryLimit=2,
        activeRevisionLimit=2,
    )
    await functions.until_states(r1="Active", r2="Active")
    await functions.until_condition("Healthy", "True")

    async def versions() -> list[str]:
        objects = [await functions.client.get(FUNCTION, functions.name), *await functions.revisions()]
        return [each["metadata"]["resourceVersion"] for each in objects]

    await functions.context.manager.stop(NAME)
    before = await versions()
    async with LiveFunctions(functions.context) as again:
        await again.synced()
        assert again.catalogue.versions(functions.name) == live.catalogue.versions(functions.name)
        await FunctionController(functions.context, again).reconcile(ObjectKey("", functions.name))
    assert await versions() == before


class Crash(Exception):
    """The process ended here."""


class Crashing:
    """A client whose process ends right after its n-th write."""

    def __init__(self, client: Client, writes: int) -> None:
        self._client = client
        self.left = writes

    def __getattr__(self, verb: str) -> Any:
        method = getattr(self._client, verb)
        if verb not in ("create", "patch", "delete"):
            return method

        async def write(*arguments: Any, **options: Any) -> Any:
            done = await method(*arguments, **options)
            self.left -= 1
            if self.left == 0:
                raise Crash
            return done

        return write


async def test_a_crash_after_any_write_leaves_nothing_behind(
    context: ControllerContext, live: LiveFunctions, unique: str
) -> None:
    """An upgrade beyond both limits makes, activates, deactivates and deletes; it is cut off after each write."""
    for writes in range(1, 20):
        functions = Functions(context, live, f"{unique}-{writes}")
        key = ObjectKey("", functions.name)
        whole = FunctionController(context, live)
        for version in ("v1", "v2"):
            await functions.install(f"{PACKAGE}:{version}")
            await whole.reconcile(key)
        await functions.install(f"{PACKAGE}:v3")
        client = Crashing(context.client, writes)
        try:
            await FunctionController(replace(context, client=client), live).reconcile(key)
        except Crash:
            assert "Active" in (await functions.states()).values()
        await whole.reconcile(key)
        assert await functions.states() == {2: "Inactive", 3: "Active"}
        await context.client.delete(FUNCTION, functions.name)
        if client.left > 0:
            break
    assert writes > 5


# -- functions that somebody else runs


async def test_two_revisions_are_called_at_two_endpoints(functions: Functions, tmp_path: Path) -> None:
    limits: dict[str, Any] = {"revisionHistoryLimit": 2, "activeRevisionLimit": 2}
    with ExitStack() as stack:
        one = stack.enter_context(function_server(tmp_path, "one"))
        two = stack.enter_context(function_server(tmp_path, "two"))
        async with runner(functions.live) as run:
            await functions.install("example.org/acme/fn:v1", annotations={ENDPOINT: one.target}, **limits)
            await functions.until_states(r1="Active")
            await functions.install("example.org/acme/fn:v2", annotations={ENDPOINT: two.target}, **limits)
            first, _ = await functions.until_states(r1="Active", r2="Active")
            assert first["status"]["endpoint"] == one.target
            for version, server in (("v1", one), ("v2", two)):
                chosen = functions.resolve(selector={VERSION_LABEL: version}).revision
                answer = await run.run(chosen, asking("who"), timeout=10)
                assert answer.context["pid"] == server.child.pid


class Relay:
    """Passes connections on to a server, and knows how many are open."""

    def __init__(self, target: str) -> None:
        self.host, _, port = target.rpartition(":")
        self.port = int(port)
        self.open = 0

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.open += 1
        there, back = await asyncio.open_connection(self.host, self.port)
        try:
            async with asyncio.TaskGroup() as tasks:
                for source, drain in ((reader, back), (there, writer)):
                    tasks.create_task(self._pass_on(source, drain))
        finally:
            self.open -= 1

    async def _pass_on(self, source: asyncio.StreamReader, drain: asyncio.StreamWriter) -> None:
        while data := await source.read(65536):
            drain.write(data)
        drain.close()


async def test_a_revision_that_is_gone_is_not_called_any_more(functions: Functions, tmp_path: Path) -> None:
    with function_server(tmp_path, "fn") as server:
        relay = Relay(server.target)
        async with (
            await asyncio.start_server(relay, "127.0.0.1", 0) as listener,
            runner(functions.live) as run,
        ):
            host, port = listener.sockets[0].getsockname()
            await functions.install("example.org/acme/fn:v1", annotations={ENDPOINT: f"{host}:{port}"})
            await functions.until_states(r1="Active")
            chosen = functions.resolve().revision
            await run.run(chosen, asking("echo"), timeout=10)
            assert relay.open == 1
            await functions.client.delete(FUNCTION, functions.name)
            with suppress(NotFound):  # if it has not gone with its function
                await functions.client.delete(FUNCTION_REVISION, chosen.name)
            await functions.until_known(lambda: relay.open == 0, "its connection is closed")
            with pytest.raises(FunctionUnavailable):
                await run.run(chosen, asking("echo"), timeout=10)


async def test_calls_to_elsewhere_need_certificates_and_the_old_revision_stays_until_they_are_there(
    functions: Functions, tmp_path: Path
) -> None:
    files, ours = certificates(tmp_path / "tls")
    await functions.install(f"{PACKAGE}:v1")
    await functions.until_states(r1="Active")
    await functions.install("example.org/acme/fn:v2", annotations={ENDPOINT: "fn.example.org:9443"})
    function = await functions.until_condition("Healthy", "False", reason="UnhealthyPackageRevision")
    assert "is therefore called only with TLS" in condition_of(function, "Healthy")["message"]  # type: ignore[index]
    await functions.until_states(r1="Active", r2="Active")
    assert functions.resolve().version.number == 1
    with pytest.raises(VersionNotReady):
        functions.resolve(selector={VERSION_LABEL: "v2"})

    with function_server(tmp_path, "tls", "--tls", str(files)) as server:
        annotations = {
            ENDPOINT: server.target,
            TLS_SECRET_ANNOTATION: f"default/{functions.name}",
            TLS_SERVER_NAME_ANNOTATION: "fn-1",
        }
        await functions.install("example.org/acme/fn:v3", annotations=annotations)
        _, revision = await functions.until_states(r1="Active", r3="Active")
        assert "does not exist" in condition_of(revision, "RuntimeHealthy")["message"]  # type: ignore[index]
        secret = {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": functions.name, "namespace": "default"},
            "data": {
                key: base64.b64encode(value).decode()
                for key, value in {"ca.crt": ours.authority, "tls.crt": ours.certificate, "tls.key": ours.key}.items()
            },
        }
        await functions.client.create(secret)
        await functions.until_states(r1="Inactive", r3="Active")
        async with runner(functions.live) as run:
            answer = await run.run(functions.resolve().revision, asking("who"), timeout=10)
            assert "control-plane" in answer.context["peer"]
        await functions.client.delete(SECRET, functions.name, namespace="default")
        await functions.until_condition("Healthy", "False")
        with pytest.raises(VersionNotReady):
            functions.resolve()


async def test_somebody_may_write_where_a_revision_serves(functions: Functions, tmp_path: Path) -> None:
    await functions.install("example.org/acme/fn:v1", annotations={"planform.dev/runtime": "External"})
    [revision] = await functions.until_states(r1="Active")
    await functions.until_condition("Healthy", "False")
    with pytest.raises(VersionNotReady):
        functions.resolve()
    with function_server(tmp_path, "fn") as server:
        status = Patch(PatchType.MERGE, {"status": {"endpoint": server.target, "capabilities": ["deterministic"]}})
        await functions.client.patch(FUNCTION_REVISION, revision["metadata"]["name"], status, subresource="status")
        await functions.until_condition("Healthy", "True")
        chosen = functions.resolve().revision
        assert chosen.deterministic
        async with runner(functions.live) as run:
            assert (await run.run(chosen, asking("echo"), timeout=10)).tag == "t"
    assert await read(functions.client, FUNCTION_REVISION, chosen.name) is not None


async def test_a_control_plane_may_leave_all_functions_to_somebody_else(
    context: ControllerContext, live: LiveFunctions, unique: str, tmp_path: Path
) -> None:
    FunctionController(context, live, external=True).start()
    functions = Functions(context, live, unique)
    await functions.install("example.org/acme/fn:v1")
    [revision] = await functions.until_states(r1="Active")
    with function_server(tmp_path, "fn") as server:
        status = Patch(PatchType.MERGE, {"status": {"endpoint": server.target}})
        await functions.client.patch(FUNCTION_REVISION, revision["metadata"]["name"], status, subresource="status")
        await functions.until_condition("Healthy", "True")
        async with runner(live) as run:
            assert (await run.run(functions.resolve().revision, asking("echo"), timeout=10)).tag == "t"
    await functions.install(f"{PACKAGE}:v1")
    await functions.until_states(r1="Inactive", r2="Active")
    assert functions.resolve().revision.name.startswith(unique), "what ships with planform is there all the same"
    await context.client.delete(FUNCTION, unique)


async def test_an_unknown_runtime_is_refused_by_name(functions: Functions) -> None:
    await functions.install(f"{PACKAGE}:v1", annotations={"planform.dev/runtime": "Teleport"})
    function = await functions.until_condition("Installed", "False")
    assert 'may be one of External, Package, BuiltIn, not "Teleport"' in condition_of(function, "Installed")["message"]  # type: ignore[index]


# -- last, as a cluster's garbage collector takes its time to learn of new kinds


async def test_revisions_go_with_their_function(functions: Functions) -> None:
    await functions.install(f"{PACKAGE}:v1")
    await functions.until_states(r1="Active")
    await functions.client.delete(FUNCTION, functions.name)

    async def gone() -> bool:
        return not await functions.revisions() and not functions.versions

    await eventually(gone, "the revision is gone", seconds=60)
    with pytest.raises(FunctionNotFound):
        functions.resolve()


async def test_the_largest_answer_of_a_function_is_said_on_the_function(functions: Functions) -> None:
    setting = "planform.dev/max-answer-size"
    await functions.install(f"{PACKAGE}:v1.0.0", annotations={setting: "16Mi"})
    await functions.until_states(r1="Active")
    assert functions.resolve().revision.max_answer_size == 16 << 20
    await functions.install(f"{PACKAGE}:v1.0.0", annotations={setting: "32Mi"})
    await functions.until_known(lambda: functions.resolve().revision.max_answer_size == 32 << 20, "the new limit")
    await functions.install(f"{PACKAGE}:v1.0.0", annotations={setting: "much"})
    told = await functions.until_condition("Installed", "False")
    condition = condition_of(told, "Installed")
    assert condition is not None and 'such as 16Mi, not "much"' in condition["message"]
