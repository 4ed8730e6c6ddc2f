"""Calls never stop, while what answers them is replaced, killed, or given another certificate."""

from __future__ import annotations

import asyncio
import os
import signal
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from planform.clock import SystemClock
from planform.functions.grpc_transport import CallLimits
from planform.packages.runtimes.certificates import LIFETIME, RENEW_BEFORE
from planform.packages.runtimes.executables import Executable, RuntimeSettings, Way
from planform.packages.runtimes.host import Draining
from planform.packages.runtimes.launching import Wanted
from planform.packages.runtimes.logs import last_lines, log_file
from planform.packages.runtimes.servers import Spares
from planform.telemetry.metrics import MetricsRegistry
from tests.harness.contexts import eventually
from tests.harness.hosting import Hosting, open_hosting, server_payload

pytestmark = pytest.mark.timeout(180)

# A quiet moment is short here, and the longest wait longer than any test: what waits for that fails.
DRAINING = Draining(quiet=0.2, max_seconds=3600.0)
AT_ONCE = Spares(after=0.0)


class MovedClock(SystemClock):
    """The real clock, some days off."""

    days = 0

    def now(self) -> datetime:
        return super().now() + timedelta(days=self.days)


@asynccontextmanager
async def calling(hosting: Hosting, revision: str, *, callers: int = 4) -> AsyncIterator[list[str]]:
    """Call a revision without a pause until the block ends; gives the versions that answered. A failure fails it."""
    over = asyncio.Event()
    seen: list[str] = []

    async def caller() -> None:
        while not over.is_set():
            seen.append(str((await hosting.call(revision))["version"]))

    async with asyncio.TaskGroup() as tasks:
        for _ in range(callers):
            tasks.create_task(caller())
        yield seen
        over.set()


async def called_again(seen: list[str], times: int = 20) -> None:
    """Wait until that many more calls have been answered."""
    wanted = len(seen) + times

    async def check() -> bool:
        return len(seen) >= wanted

    await eventually(check, f"{times} more calls are answered")


async def ended(pid: int) -> None:
    async def check() -> bool:
        try:
            os.killpg(pid, 0)
        except ProcessLookupError:
            return True
        return False

    await eventually(check, f"process group {pid} has ended")


def attempts(metrics: MetricsRegistry, revision: str = "fn-1") -> Counter[str]:
    """How calls of a revision have ended, each attempt counted, by gRPC code."""
    found: Counter[str] = Counter()
    for line in metrics.render().splitlines():
        if line.startswith("function_run_function_response_total{") and f'"{revision}"' in line:
            found[line.partition('grpc_code="')[2].partition('"')[0]] += int(float(line.rpartition(" ")[2]))
    return found


async def test_replaced_processes_end_after_their_own_last_call_however_many_the_new_ones_get(tmp_path: Path) -> None:
    metrics = MetricsRegistry()
    async with open_hosting(tmp_path / "data", draining=DRAINING, spares=None, metrics=metrics) as hosting:
        payload = server_payload(hosting.data / "packages" / "one")
        hosting.want("fn-1", payload)
        await hosting.ready("fn-1")
        [before] = hosting.host.pids("fn-1")
        async with calling(hosting, "fn-1") as seen:
            await called_again(seen)
            hosting.want("fn-1", payload, environment=(("LEVEL", "debug"),))
            await ended(before)
            await called_again(seen)
        assert set(attempts(metrics)) == {"OK"}


async def test_what_is_wanted_next_need_not_wait_for_calls_of_what_was_replaced(tmp_path: Path) -> None:
    async with open_hosting(tmp_path / "data", draining=DRAINING, spares=None) as hosting:
        payload = server_payload(hosting.data / "packages" / "one")
        hosting.want("fn-1", payload)
        await hosting.ready("fn-1")
        [first] = hosting.host.pids("fn-1")
        long = asyncio.create_task(hosting.call("fn-1", seconds=30, timeout=60))
        for level in ("debug", "trace"):
            hosting.want("fn-1", payload, environment=(("LEVEL", level),))

            async def moved(level: str = level) -> bool:
                return bool((await hosting.call("fn-1", environment=["LEVEL"]))["environment"]["LEVEL"] == level)

            await eventually(moved, f"calls reach what runs with {level}")
        assert not long.done()
        os.killpg(first, 0)  # it still runs, as it has not answered yet
        long.cancel()


async def test_a_call_that_waits_for_its_turn_goes_on_when_its_function_is_replaced(tmp_path: Path) -> None:
    limits, metrics = CallLimits(calls_per_revision=1), MetricsRegistry()
    async with open_hosting(
        tmp_path / "data", draining=DRAINING, spares=None, limits=limits, metrics=metrics
    ) as hosting:
        payload = server_payload(hosting.data / "packages" / "one")
        hosting.want("fn-1", payload)
        await hosting.ready("fn-1")
        before = hosting.host.remote("fn-1")
        calls = [asyncio.create_task(hosting.call("fn-1", seconds=0.4)) for _ in range(6)]
        await asyncio.sleep(0)
        hosting.want("fn-1", payload, environment=(("LEVEL", "debug"),))

        async def moved() -> bool:
            return hosting.host.remote("fn-1") != before

        await eventually(moved, "the new process serves")
        await hosting.call("fn-1")
        assert len(await asyncio.gather(*calls)) == 6
        assert set(attempts(metrics)) == {"OK"}


async def test_while_it_is_called_a_certificate_is_issued_anew_and_every_attempt_succeeds(tmp_path: Path) -> None:
    clock, metrics = MovedClock(), MetricsRegistry()
    clock.days = RENEW_BEFORE.days - LIFETIME.days - 1
    async with open_hosting(
        tmp_path / "data", clock=clock, draining=DRAINING, spares=AT_ONCE, metrics=metrics
    ) as hosting:
        hosting.want("fn-1", server_payload(hosting.data / "packages" / "one"))
        await hosting.ready("fn-1")
        [before] = hosting.host.pids("fn-1")
        first = (hosting.certificates.directory_of("fn-1") / "tls.crt").read_bytes()
        async with calling(hosting, "fn-1") as seen:
            await called_again(seen)
            clock.days = 0
            hosting.host.look_again()
            await ended(before)
            await called_again(seen)
        assert (hosting.certificates.directory_of("fn-1") / "tls.crt").read_bytes() != first
        assert set(attempts(metrics)) == {"OK"}


async def test_a_function_that_is_killed_while_it_is_called_fails_no_caller_and_no_other_function_notices(
    tmp_path: Path,
) -> None:
    metrics = MetricsRegistry()
    async with open_hosting(tmp_path / "data", draining=DRAINING, spares=AT_ONCE, metrics=metrics) as hosting:
        for revision in ("fn-1", "fn-2"):
            hosting.want(revision, server_payload(hosting.data / "packages" / revision))
            await hosting.ready(revision)
        unharmed = hosting.host.pids("fn-2")
        async with calling(hosting, "fn-1") as seen, calling(hosting, "fn-2") as beside:
            await called_again(seen)
            spare = await hosting.spare("fn-1")
            [leader] = hosting.host.pids("fn-1")
            os.killpg(leader, signal.SIGKILL)
            await called_again(seen)
            await ended(leader)
            # The next one meets a function without a spare: callers wait until it is back.
            for victim in (spare, *hosting.host.pids("fn-1")):
                os.killpg(victim, signal.SIGKILL)
            await called_again(seen)
            await hosting.spare("fn-1")
            await called_again(beside)
        assert set(attempts(metrics, "fn-2")) == {"OK"}
        assert hosting.host.pids("fn-2") == unharmed
        runtime_status = hosting.host.runtime_status("fn-1")
        assert runtime_status is not None
        assert runtime_status.ready


async def test_a_function_that_nobody_calls_has_no_spare_process(tmp_path: Path) -> None:
    async with open_hosting(tmp_path / "data", spares=Spares(after=0.0, idle=0.5)) as hosting:
        hosting.want("fn-1", server_payload(hosting.data / "packages" / "one"))
        await hosting.ready("fn-1")
        assert hosting.host.spare_pid("fn-1") is None
        async with calling(hosting, "fn-1", callers=1):
            spare = await hosting.spare("fn-1")

        async def let_go() -> bool:
            return hosting.host.spare_pid("fn-1") is None

        await eventually(let_go, "the spare process is let go")
        await ended(spare)
        assert (await hosting.call("fn-1"))["version"] == "v1"


async def test_of_two_processes_one_answers_while_the_other_comes_back(tmp_path: Path) -> None:
    async with open_hosting(tmp_path / "data", draining=DRAINING) as hosting:
        hosting.want("fn-1", server_payload(hosting.data / "packages" / "one"), replicas=2)
        await hosting.ready("fn-1")

        async def both() -> bool:
            return len(hosting.host.pids("fn-1")) == 2

        async with calling(hosting, "fn-1") as seen:
            await eventually(both, "both run")
            victim = hosting.host.pids("fn-1")[0]
            os.killpg(victim, signal.SIGKILL)
            await called_again(seen)
            await ended(victim)
            await eventually(both, "both run again")
        assert hosting.host.spare_pid("fn-1") is None


async def test_a_provider_ends_before_it_is_started_another_way(tmp_path: Path) -> None:
    source = (
        "import os, signal, time\n"
        "def end(*_):\n    print('ended', flush=True)\n    os._exit(0)\n"
        "signal.signal(signal.SIGTERM, end)\n"
        "print('started', os.environ.get('LEVEL', 'first'), flush=True)\n"
        "time.sleep(600)\n"
    )
    async with open_hosting(tmp_path / "data") as hosting:
        root = hosting.data / "packages" / "provider"
        root.mkdir(parents=True)
        (root / "main.py").write_text(source)
        account = hosting.data / "account" / "kubeconfig"
        account.parent.mkdir()
        account.touch()
        program = Executable(Way.PROCESS, root, ("python", str(root / "main.py")))

        def said() -> list[str]:
            lines = last_lines(log_file(hosting.data / "logs", "p-1"), 0)
            return [line.partition(" ")[2] for line in lines]

        for level in ("one", "two"):
            settings = RuntimeSettings(environment=(("LEVEL", level),))
            hosting.host.ensure(Wanted("p", "p-1", "uid", program, settings, kubeconfig=account))

            async def started(level: str = level) -> bool:
                return f"started {level}" in said()

            await eventually(started, f"the provider runs with {level}")
        assert said() == ["started one", "ended", "started two"]
