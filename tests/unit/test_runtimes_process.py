"""Functions as processes: real ones, written with the SDK, called over mutual TLS."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import stat
from collections.abc import AsyncIterator
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from planform.builtin.python import InlinePython
from planform.clock import SystemClock
from planform.functions.endpoints import Remote
from planform.functions.errors import FunctionError, FunctionUnavailable
from planform.functions.grpc_transport import CallLimits, GrpcRunner
from planform.functions.runner import FunctionRevision
from planform.functions.values import FunctionRequest
from planform.packages.runtimes.certificates import LIFETIME, RENEW_BEFORE
from planform.packages.runtimes.executables import RuntimeSettings
from planform.packages.runtimes.host import RuntimeStatus
from planform.packages.runtimes.logs import last_lines, log_file
from planform.sandbox import detect_isolation
from tests.harness.contexts import eventually
from tests.harness.hosting import SERVER, Hosting, open_hosting, server_payload


@pytest.fixture
async def hosting(tmp_path: Path) -> AsyncIterator[Hosting]:
    async with open_hosting(tmp_path / "data") as hosting:
        yield hosting


class MovedClock(SystemClock):
    """The real clock, some days off."""

    days = 0

    def now(self) -> Any:
        return super().now() + timedelta(days=self.days)


async def test_a_revision_runs_with_what_functions_rely_on_and_sees_only_its_own_files(
    hosting: Hosting, tmp_path: Path
) -> None:
    payload = server_payload(hosting.data / "packages" / "one")
    other = server_payload(hosting.data / "packages" / "two").root / "main.py"
    hosting.want("fn-1", payload, args=("--own-flag",), environment=(("REGION", "eu"), ("FUNCTION_NAME", "not me")))
    assert not (hosting.host.runtime_status("fn-1") or RuntimeStatus()).failed, "it is on its way"
    runtime_status = await hosting.ready("fn-1")
    assert not runtime_status.failed
    assert runtime_status.endpoint.startswith("ipv4:127.0.0.1:")
    names = ["FUNCTION_NAME", "REVISION_NAME", "REVISION_UID", "REGION", "TLS_SERVER_CERTS_DIR", "PLANFORM_DATA"]
    files = [str(hosting.data / "pki" / "ca.key"), str(other), str(payload.root / "main.py")]
    told = await hosting.call("fn-1", environment=names, files=files)
    certificates = str(hosting.certificates.directory_of("fn-1"))
    assert told["environment"] == {
        "FUNCTION_NAME": "fn",
        "REVISION_NAME": "fn-1",
        "REVISION_UID": "uid-of-fn-1",
        "REGION": "eu",
        "TLS_SERVER_CERTS_DIR": certificates,
        "PLANFORM_DATA": "",
    }
    port = runtime_status.endpoint.rpartition(":")[2]
    assert told["arguments"] == ["--own-flag", f"--address=127.0.0.1:{port}", f"--tls-certs-dir={certificates}"]
    if detect_isolation().has_own_root:  # Landlock hides what is in files, and not that they are there
        assert told["files"] == dict(zip(files, (False, False, True), strict=True))


async def test_only_the_control_plane_is_answered_and_only_the_revision_of_that_name_is_believed(
    hosting: Hosting, tmp_path: Path
) -> None:
    hosting.want("fn-1", server_payload(hosting.data / "packages" / "one"))
    await hosting.ready("fn-1")
    remote = hosting.host.remote("fn-1")
    assert remote is not None
    assert remote.tls is not None
    request, revision = FunctionRequest(tag="t"), FunctionRevision("fn", "fn-1", "fn-1")
    for wrong in (Remote(remote.target), Remote(remote.target, remote.tls, "fn-2")):

        class Elsewhere:
            def endpoint(self, _: FunctionRevision, wrong: Remote = wrong, /) -> Remote:
                return wrong

        async with GrpcRunner(Elsewhere(), limits=CallLimits(connect_timeout=0.2)) as runner:
            with pytest.raises(FunctionError):
                await runner.run(revision, request, timeout=5)
    directory = hosting.certificates.directory_of("fn-1")
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in directory.iterdir() if path.is_file()}
    assert modes == {"tls.crt": 0o600, "tls.key": 0o600, "ca.crt": 0o600, "issued.json": 0o600}


async def test_after_a_kill_the_next_call_succeeds_and_no_other_function_notices(hosting: Hosting) -> None:
    hosting.want("fn-1", server_payload(hosting.data / "packages" / "one"))
    hosting.want("fn-2", server_payload(hosting.data / "packages" / "two"))
    await asyncio.gather(hosting.ready("fn-1"), hosting.ready("fn-2"))
    other = asyncio.create_task(hosting.call("fn-2", seconds=0.5))
    [leader] = hosting.host.pids("fn-1")
    os.killpg(leader, signal.SIGKILL)
    assert (await hosting.call("fn-1"))["version"] == "v1"
    assert hosting.host.pids("fn-1") != [leader]
    assert (await other)["version"] == "v1"
    runtime_status = hosting.host.runtime_status("fn-1")
    assert runtime_status is not None
    assert runtime_status.ready


async def test_a_crash_loop_is_told_with_its_last_words_and_ends_with_a_better_package(hosting: Hosting) -> None:
    broken = server_payload(
        hosting.data / "packages" / "broken", source="print('no such\\ndatabase')\nraise SystemExit(3)"
    )
    wanted = hosting.want("fn-1", broken)

    async def told() -> str:
        runtime_status = hosting.host.runtime_status("fn-1")
        return runtime_status.problem if runtime_status and runtime_status.failed else ""

    assert (
        await eventually(told, "the crash loop")
        == "it ends by itself (exit code 3); stderr ended with: no such | database"
    )
    with pytest.raises(FunctionUnavailable):
        await hosting.call("fn-1")
    hosting.want(wanted.revision, server_payload(hosting.data / "packages" / "good"))
    await hosting.ready("fn-1")
    assert (await hosting.call("fn-1"))["version"] == "v1"


async def test_another_way_to_run_takes_over_without_a_failed_call(hosting: Hosting) -> None:
    old = server_payload(hosting.data / "packages" / "one")
    hosting.want("fn-1", old)
    await hosting.ready("fn-1")
    long = asyncio.create_task(hosting.call("fn-1", seconds=1.5))
    seen: list[str] = []
    over = asyncio.Event()

    async def load() -> None:
        while not over.is_set():
            seen.append((await hosting.call("fn-1", environment=["LEVEL"]))["environment"]["LEVEL"])

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(load())
        [before] = hosting.host.pids("fn-1")
        hosting.want("fn-1", old, environment=(("LEVEL", "debug"),))

        async def moved() -> bool:
            return "debug" in seen

        await eventually(moved, "calls reach the new processes")
        over.set()
    assert seen == sorted(seen)  # first the old ones, then the new ones, never back
    assert (await long)["version"] == "v1"
    await _until_ended(before)


async def test_a_revision_that_is_let_go_ends_its_calls_first(hosting: Hosting) -> None:
    hosting.want("fn-1", server_payload(hosting.data / "packages" / "one"))
    await hosting.ready("fn-1")
    [pid] = hosting.host.pids("fn-1")
    call = asyncio.create_task(hosting.call("fn-1", seconds=1))
    await asyncio.sleep(0)
    heard: list[str] = []
    hosting.host.subscribe(heard.append)
    hosting.host.release("fn-1")
    assert (await call)["version"] == "v1"
    await hosting.gone("fn-1")
    assert heard[-1] == "fn-1"
    await _until_ended(pid)


async def test_a_revision_that_is_wanted_again_before_it_has_ended_goes_on(hosting: Hosting) -> None:
    payload = server_payload(hosting.data / "packages" / "one")
    wanted = hosting.want("fn-1", payload)
    await hosting.ready("fn-1")
    before = hosting.host.pids("fn-1")
    call = asyncio.create_task(hosting.call("fn-1", seconds=0.5))
    await asyncio.sleep(0)
    hosting.host.release("fn-1")
    await asyncio.sleep(0)
    hosting.host.ensure(wanted)
    await call
    assert (await hosting.call("fn-1"))["version"] == "v1"
    assert hosting.host.pids("fn-1") == before


async def test_replicas_take_turns(hosting: Hosting) -> None:
    hosting.want("fn-1", server_payload(hosting.data / "packages" / "one"), replicas=2)
    await hosting.ready("fn-1")

    async def both() -> bool:
        return len({(await hosting.call("fn-1", environment=[]))["arguments"][-2] for _ in range(4)}) == 2

    await eventually(both, "calls reach both replicas")
    assert len(hosting.host.pids("fn-1")) == 2


async def test_a_certificate_is_issued_anew_before_it_ends_without_a_failed_call(tmp_path: Path) -> None:
    clock = MovedClock()
    clock.days = RENEW_BEFORE.days - LIFETIME.days - 1
    async with open_hosting(tmp_path / "data", clock=clock) as hosting:
        hosting.want("fn-1", server_payload(hosting.data / "packages" / "one"))
        await hosting.ready("fn-1")
        issued = hosting.certificates.renewal_of("fn-1")
        assert issued is not None
        failures: list[BaseException] = []
        over = asyncio.Event()

        async def load() -> None:
            while not over.is_set():
                try:
                    await hosting.call("fn-1")
                except FunctionError as error:
                    failures.append(error)

        async with asyncio.TaskGroup() as tasks:
            for _ in range(4):
                tasks.create_task(load())
            before = hosting.host.remote("fn-1")
            clock.days = 0
            hosting.host.look_again()

            async def rotated() -> bool:
                return hosting.host.remote("fn-1") != before

            await eventually(rotated, "the new certificate is shown")
            over.set()
        assert failures == []
        renewal = hosting.certificates.renewal_of("fn-1")
        assert renewal is not None
        assert renewal > issued + timedelta(days=300)


async def test_what_python_compiled_is_kept_for_the_next_start_of_this_revision_alone(hosting: Hosting) -> None:
    payload = server_payload(hosting.data / "packages" / "one")
    (payload.root / "vendored.py").write_text("ANSWER = 42")
    main = payload.root / "main.py"
    main.write_text("import vendored\n" + main.read_text())
    hosting.want("fn-1", payload)
    await hosting.ready("fn-1")
    compiled = [path.name for path in (hosting.data / "runtimes" / "fn-1" / "cache").rglob("*.pyc")]
    assert any(name.startswith("vendored.") for name in compiled)
    assert not list(payload.root.rglob("*.pyc"))


async def test_what_it_says_is_kept_in_a_bounded_file(hosting: Hosting) -> None:
    hosting.want("fn-1", server_payload(hosting.data / "packages" / "one"))
    await hosting.ready("fn-1")
    lines = last_lines(log_file(hosting.data / "logs", "fn-1"), 100)
    assert any(line.endswith(" starting fn-1") for line in lines)
    hosting.host.release("fn-1")
    await hosting.gone("fn-1")
    hosting.host.forget("fn-1")
    assert not log_file(hosting.data / "logs", "fn-1").exists()
    assert not hosting.certificates.directory_of("fn-1").exists()


async def test_a_package_without_the_program_it_names_says_so(hosting: Hosting) -> None:
    payload = server_payload(hosting.data / "packages" / "one")
    hosting.want("fn-1", type(payload)(payload.way, payload.root, ("/bin/nothing",)))

    async def told() -> bool:
        runtime_status = hosting.host.runtime_status("fn-1")
        if runtime_status is None or not runtime_status.failed:
            return False
        return runtime_status.problem == 'the package has no file "/bin/nothing" to run'

    await eventually(told, "what is missing")


async def test_scripts_that_start_while_calls_are_under_way_cost_none_of_them(hosting: Hosting) -> None:
    """Children come from the spawner: nothing forks with gRPC's threads at work."""
    hosting.want("fn-1", server_payload(hosting.data / "packages" / "one"))
    await hosting.ready("fn-1")
    over = asyncio.Event()

    async def load() -> int:
        calls = 0
        while not over.is_set():
            assert (await hosting.call("fn-1"))["version"] == "v1"
            calls += 1
        return calls

    callers = [asyncio.create_task(load()) for _ in range(4)]
    script = {"apiVersion": "python.fn.crossplane.io/v1beta1", "kind": "Script", "script": "def compose(q, r): pass"}
    python = InlinePython()
    answers = await asyncio.gather(*(python.run(FunctionRequest(input=script), timeout=60) for _ in range(12)))
    over.set()
    assert [answer.fatal for answer in answers] == [None] * 12
    assert all(calls > 0 for calls in await asyncio.gather(*callers))
    assert os.environ["GRPC_ENABLE_FORK_SUPPORT"] == "0"


REACHING = SERVER.replace(
    'rsp.context["version"] = "VERSION"',
    """rsp.context["version"] = "VERSION"
    import socket
    try:
        socket.create_connection(("127.0.0.1", given.get("port", 1)), 2).close()
        rsp.context["reached"] = "yes"
    except OSError as error:
        rsp.context["reached"] = "no"
    if given.get("fatal"):
        rsp.fatal(ValueError("cannot connect"))""",
)


@pytest.mark.parametrize("replicas", [1, 2])
async def test_a_function_without_network_is_called_by_a_socket_that_we_hold_and_says_that_it_has_none(
    hosting: Hosting, replicas: int
) -> None:
    payload = server_payload(hosting.data / "packages" / "one", source=REACHING)
    hosting.want("fn-1", payload, network="none", replicas=replicas)
    hosting.want("fn-2", server_payload(hosting.data / "packages" / "two", source=REACHING))
    runtime_status = await hosting.ready("fn-1")
    await hosting.ready("fn-2")
    if detect_isolation().has_own_root:
        assert runtime_status.endpoint.startswith("unix:")
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert (await hosting.call("fn-1", port=port))["reached"] == "no"
        assert (await hosting.call("fn-2", port=port))["reached"] == "yes"
    answers = await asyncio.gather(*(hosting.call("fn-1", padding="x" * 500_000) for _ in range(5)))
    assert all(answer["version"] == "v1" for answer in answers)
    response = await hosting.ask("fn-1", FunctionRequest(tag="t", input={"fatal": True}))
    assert "its runtime configuration has the annotation planform.dev/function-network: none" in str(response.results)
    with pytest.raises(FunctionError, match="runs without network"):
        await hosting.call("fn-1", seconds=5, timeout=0.3)


async def test_a_stopped_function_is_started_again_and_the_call_that_it_cost_says_why(hosting: Hosting) -> None:
    hosting.want("fn-1", server_payload(hosting.data / "packages" / "one"))
    await hosting.ready("fn-1")
    [leader] = hosting.host.pids("fn-1")
    os.killpg(leader, signal.SIGSTOP)
    with pytest.raises(FunctionError, match=r"its process was stopped \(SIGSTOP\)"):
        await hosting.call("fn-1", timeout=0.5)
    assert (await hosting.call("fn-1"))["version"] == "v1"
    assert hosting.host.pids("fn-1") != [leader]


async def test_a_stopped_function_is_noticed_by_a_health_check_while_its_call_waits(hosting: Hosting) -> None:
    hosting.want("fn-1", server_payload(hosting.data / "packages" / "one"))
    await hosting.ready("fn-1")
    [leader] = hosting.host.pids("fn-1")
    os.killpg(leader, signal.SIGSTOP)
    call = asyncio.create_task(hosting.call("fn-1", timeout=60))

    async def restarted() -> bool:
        return hosting.host.pids("fn-1") not in ([], [leader])

    await eventually(restarted, "another process runs while the call waits")
    with suppress(FunctionError):  # a machine that is slow to start it gives the call up
        await call
    await hosting.ready("fn-1")
    assert (await hosting.call("fn-1"))["version"] == "v1"


def test_of_a_runtime_configuration_what_applies_is_taken_and_the_rest_is_named() -> None:
    runtime = {
        "name": "package-runtime",
        "args": ["--debug"],
        "env": [{"name": "A", "value": "1"}, {"name": "B", "valueFrom": {"fieldRef": {}}}],
        "resources": {"limits": {"memory": "256Mi", "cpu": "1"}},
        "image": "other",
    }
    pod = {"containers": [{"name": "sidecar"}, runtime], "nodeSelector": {"disk": "fast"}, "volumes": []}
    deployment = {"replicas": 2, "selector": {"matchLabels": {"a": "b"}}, "strategy": {"type": "Recreate"}}
    config = {
        "spec": {
            "deploymentTemplate": {"spec": {**deployment, "template": {"spec": pod}}},
            "serviceTemplate": {"metadata": {"name": "mine"}},
        }
    }
    settings = RuntimeSettings.of(config)
    assert settings == RuntimeSettings(
        replicas=2, args=("--debug",), environment=(("A", "1"),), memory=256 << 20, cpus=1.0
    )
    assert settings.ignored == (
        "image",
        "env.valueFrom",
        "containers beside package-runtime",
        "nodeSelector of the pod",
        "strategy of the deployment",
        "serviceTemplate",
    )
    remark = settings.remark(shares_cpu=True)
    assert remark.startswith("of its DeploymentRuntimeConfig, this does not apply on this machine: image, env")
    assert "resources.limits.cpu" not in remark
    assert "resources.limits.cpu (no cgroup is ours to divide" in settings.remark(shares_cpu=False)
    assert not RuntimeSettings.of({"spec": {"deploymentTemplate": {"spec": {"replicas": 2}}}}).remark(shares_cpu=False)
    assert RuntimeSettings.of(None) == RuntimeSettings()


async def _until_ended(pid: int) -> None:
    async def ended() -> bool:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
        return False

    await eventually(ended, f"process {pid} has ended")
