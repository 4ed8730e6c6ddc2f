"""Children within limits: what they may use, what they see, and that nothing of them stays."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from planform.clock import SystemClock, VirtualClock
from planform.sandbox import (
    Ended,
    Finished,
    Isolation,
    Limits,
    Network,
    Supervised,
    available_isolation,
    run_in_sandbox,
    run_once,
)
from planform.sandbox.spawning import spawner
from planform.sandbox.supervised import Backoff, Running, Stopped, Waiting

WAYS = available_isolation()
every_way = pytest.mark.parametrize("way", WAYS)
every_way_that_cuts_off = pytest.mark.parametrize("way", WAYS[:-1])
every_way_with_a_root = pytest.mark.parametrize("way", [way for way in WAYS if way.has_own_root])


async def python(script: str, stdin: bytes = b"", *, way: Isolation, **limits: object) -> Finished:
    return await run_once(
        [sys.executable, "-I", "-S", "-c", script],
        stdin,
        Limits(**limits),  # type: ignore[arg-type]
        isolation=way,
    )


@every_way
async def test_bytes_go_in_and_come_out(way: Isolation) -> None:
    done = await python(
        "import sys; sys.stdout.write(sys.stdin.read()[::-1]); sys.stderr.write('a\\nb'); sys.exit(3)", b"abc", way=way
    )
    assert (done.stdout, done.stderr, done.code, done.why) == (b"cba", b"a\nb", 3, Ended.EXITED)
    assert (done.ok, done.last_lines(1)) == (False, ["b"])


@every_way
async def test_large_input_and_output_pass_without_a_deadlock(way: Isolation) -> None:
    data = os.urandom(1 << 20) * 3
    done = await python("import sys; sys.stdout.buffer.write(sys.stdin.buffer.read())", data, way=way)
    assert done.stdout == data


@every_way
async def test_a_command_that_does_not_read_its_input_is_no_error(way: Isolation) -> None:
    assert (await python("print(1)", b"x" * (1 << 20), way=way)).stdout == b"1\n"


@every_way
async def test_a_child_that_takes_too_long_is_ended_with_all_it_started(way: Isolation, tmp_path: Path) -> None:
    script = f"""
import subprocess, sys, time
child = subprocess.Popen([sys.executable, "-I", "-S", "-c", "import time; time.sleep(600)"])
open({str(tmp_path / "pids")!r}, "w").write(open("/proc/self/stat").read().split()[0])
time.sleep(600)
"""
    before = our_children()
    done = await python(script, way=way, seconds=0.5, writable=(tmp_path,))
    assert done.why is Ended.TIMED_OUT
    assert our_children() == before, "no zombies"


@every_way
async def test_a_grandchild_that_holds_the_pipes_does_not_hold_us(way: Isolation) -> None:
    script = """
import subprocess, sys
subprocess.Popen([sys.executable, "-I", "-S", "-c", "import time; time.sleep(600)"])
print("done")
"""
    done = await python(script, way=way, seconds=20.0)
    assert (done.stdout, done.why) == (b"done\n", Ended.EXITED)


@every_way
async def test_memory_is_bounded(way: Isolation) -> None:
    done = await python("x = bytearray(400 << 20)", way=way, memory=128 << 20)
    assert (done.code, done.last_lines(1)) == (1, ["MemoryError"])


@every_way
async def test_cpu_time_is_bounded(way: Isolation) -> None:
    done = await python("while True: pass", way=way, cpu_seconds=1)
    assert done.why is Ended.CPU


@every_way
async def test_output_is_bounded_and_of_errors_the_end_is_kept(way: Isolation) -> None:
    done = await python("while True: print('x' * 1000)", way=way, output=10_000)
    assert (done.why, len(done.stdout)) == (Ended.OUTPUT, 10_000)
    done = await python("import sys; sys.stderr.write('y' * 300_000 + 'the end')", way=way)
    assert len(done.stderr) <= 65536
    assert done.stderr.endswith(b"the end")


async def test_what_a_child_wrote_too_much_of_is_let_go_at_once() -> None:
    """Without a search for cycles, which may be long in coming."""
    size = 8 << 20
    gc.collect()
    gc.disable()
    tracemalloc.start()
    try:
        for _ in range(3):
            done = await python("while True: print('x' * 1000)", way=WAYS[0], output=size)
            assert done.why is Ended.OUTPUT
        del done
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
        gc.enable()
    assert held < size


@every_way
async def test_files_it_writes_are_bounded(way: Isolation) -> None:
    done = await python("open('f', 'wb').write(b'x' * 2000000)", way=way, file_size=1 << 20)
    assert done.code != 0


@every_way
async def test_nothing_of_our_environment_and_no_scratch_is_left(
    way: Isolation, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECRET", "hush")
    name = f"left-by-{os.getpid()}-{way}"
    done = await python(
        f"import os; print(os.environ.get('SECRET'), os.getcwd()); open({name!r}, 'w').write('x')", way=way
    )
    said, scratch = done.stdout.decode().split()
    assert (said, done.code) == ("None", 0)
    assert not is_there(f"{scratch}/{name}")
    assert way.has_own_root or not is_there(scratch)


@every_way
async def test_a_command_that_is_not_there_says_so(way: Isolation) -> None:
    done = await run_once(["no-such-program"], isolation=way)
    assert done.why is Ended.NOT_STARTED
    assert "no-such-program" in done.last_lines()[0]


@every_way
async def test_a_signal_is_not_an_exit(way: Isolation) -> None:
    done = await python("import os, signal; os.kill(os.getpid(), signal.SIGTERM)", way=way)
    assert (done.why, done.code) == (Ended.KILLED, -signal.SIGTERM)


@every_way_that_cuts_off
async def test_there_is_no_network_unless_allowed(way: Isolation) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        script = f"import socket; socket.create_connection(('127.0.0.1', {server.getsockname()[1]}), 5); print('in')"
        assert (await python(script, way=way)).code == 1
        assert (await python(script, way=way, network=Network.HOST)).stdout == b"in\n"


@every_way_that_cuts_off
async def test_files_are_read_only_but_for_what_is_said_and_others_are_not_there(
    way: Isolation, tmp_path: Path
) -> None:
    other, mine, secret = tmp_path / "other", tmp_path / "mine", tmp_path / "secret"
    for directory in (other, mine, secret):
        directory.mkdir()
    (secret / "key").write_text("hush")
    (other / "file").write_text("shown")
    script = f"""
for place in ({str(other)!r}, {str(mine)!r}, "."):
    try:
        open(place + "/f", "w").write("x"); print("wrote")
    except OSError as error:
        print("refused")
print(open({str(other / "file")!r}).read())
try:
    print(open({str(secret / "key")!r}).read())
except OSError as error:
    print("hidden")
"""
    done = await python(script, way=way, writable=(mine,), visible=(other,))
    assert done.stdout.decode().splitlines() == ["refused", "wrote", "wrote", "shown", "hidden"], done.stderr
    assert (mine / "f").read_text() == "x"
    assert (secret / "key").read_text() == "hush"


@every_way_with_a_root
async def test_of_its_surroundings_it_sees_only_the_way_to_what_is_named(way: Isolation, tmp_path: Path) -> None:
    data = tmp_path / "data"
    shown = data / "packages" / "mine"
    shown.mkdir(parents=True)
    (data / "kubeconfig").write_text("hush")
    (data / "packages" / "other").mkdir()
    (shown / "file").write_text("mine")
    script = f"""
import os
print(os.listdir({str(data)!r}), os.listdir({str(data / "packages")!r}), open({str(shown / "file")!r}).read())
"""
    done = await python(script, way=way, visible=(shown,))
    assert done.stdout.decode().splitlines() == ["['packages'] ['mine'] mine"], done.stderr


@pytest.fixture
def inside_programs() -> Iterator[Path]:
    """A directory of data in one of programs."""
    with tempfile.TemporaryDirectory(dir=sys.prefix) as directory:
        data = Path(directory)
        (data / "packages").mkdir()
        (data / "key").write_text("hush")
        (data / "packages" / "file").write_text("mine")
        yield data


@every_way_that_cuts_off
async def test_what_is_hidden_stays_so_within_what_is_visible(way: Isolation, inside_programs: Path) -> None:
    shown = inside_programs / "packages"
    script = f"""
try:
    print(open({str(inside_programs / "key")!r}).read())
except OSError:
    print("hidden")
print(open({str(shown / "file")!r}).read())
"""
    done = await python(script, way=way, hidden=(inside_programs,), visible=(shown,))
    assert done.stdout.decode().splitlines() == ["hidden", "mine"], done.stderr


@every_way_that_cuts_off
async def test_it_has_no_rights_to_undo_its_confinement(way: Isolation) -> None:
    script = "print([l for l in open('/proc/self/status') if l.startswith(('CapEff', 'CapBnd', 'NoNew'))])"
    done = await python(script, way=way)
    reading = "0000000000000004"  # what it sees, also if that is private to the control plane
    found = [word for word in done.stdout.decode().replace("\\n", " ").replace("\\t", " ").split() if len(word) == 16]
    assert set(found) <= {"0000000000000000", reading} if os.geteuid() == 0 else {"0000000000000000"}
    assert "NoNewPrivs:\\t1" in done.stdout.decode()


@every_way
async def test_a_cancelled_run_leaves_nothing_behind(way: Isolation) -> None:
    before = our_children()
    running = asyncio.create_task(python("import time; time.sleep(600)", way=way, seconds=60.0))
    await until(lambda: len(our_children()) > len(before))
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert our_children() == before


@every_way
async def test_children_die_with_us_even_if_we_are_killed(way: Isolation) -> None:
    marker = f"planform-orphan-{os.getpid()}-{way}"
    script = f"""
import asyncio, sys
from planform.sandbox import Isolation, run_once
command = [sys.executable, "-I", "-S", "-c", "import time; time.sleep(600)", {marker!r}]
asyncio.run(run_once(command, isolation=Isolation({way.value!r})))
"""
    between = start(script)
    try:
        await until(lambda: marker in processes("sleep(600)"))
        between.kill()
        await until(lambda: marker not in processes("sleep(600)"))
    finally:
        between.kill()
        between.wait()


async def test_children_come_from_a_process_without_threads_and_without_our_secrets(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SECRET", "hush")
    spawner.close()
    assert (await python("print(1)", way=WAYS[0])).ok
    process = Path(f"/proc/{spawner.pid}")
    assert len(list((process / "task").iterdir())) == 1
    assert b"hush" not in (process / "environ").read_bytes()
    mapped = (process / "maps").read_text()
    assert "grpc" not in mapped
    assert "ssl" not in mapped


async def test_a_spawner_that_was_killed_is_replaced() -> None:
    assert (await python("print(1)", way=WAYS[0])).ok
    assert spawner.pid is not None
    up = asyncio.Event()
    command = [sys.executable, "-I", "-S", "-c", "import time; print(1, flush=True); time.sleep(600)"]
    running = asyncio.create_task(run_in_sandbox(command, Limits(), output=lambda _: up.set(), isolation=WAYS[0]))
    await asyncio.wait_for(up.wait(), 15)
    os.kill(spawner.pid, signal.SIGKILL)
    assert (await running).why is Ended.KILLED
    assert (await python("print(1)", way=WAYS[0])).ok


# -- servers


SERVER = "import time; print('ready', flush=True); time.sleep(600)"


@every_way
async def test_a_server_runs_until_the_block_ends(way: Isolation) -> None:
    before = our_children()
    command = [sys.executable, "-I", "-S", "-c", SERVER]
    async with asyncio.timeout(20), Supervised(command, clock=SystemClock(), isolation=way) as server:
        await server.wait_until(Running)
        await until(lambda: server.log() == ["ready"])
    assert server.state == Stopped()
    assert our_children() == before


@every_way
async def test_a_server_is_asked_to_end_before_it_is_made_to(way: Isolation, tmp_path: Path) -> None:
    script = f"""
import signal, sys, time
def end(*_):
    open({str(tmp_path / "said")!r}, "w").write("goodbye")
    sys.exit(0)
signal.signal(signal.SIGTERM, end)
print("ready", flush=True)
time.sleep(600)
"""
    command = [sys.executable, "-I", "-S", "-c", script]
    limits = Limits(writable=(tmp_path,))
    async with asyncio.timeout(20), Supervised(command, limits, clock=SystemClock(), isolation=way) as server:
        await until(lambda: server.log() == ["ready"])
    assert (tmp_path / "said").read_text() == "goodbye"


async def test_a_server_that_ends_is_started_again_later_and_later() -> None:
    clock = VirtualClock()
    command = [sys.executable, "-I", "-S", "-c", "print('oh no'); raise SystemExit(4)"]
    delays: list[float] = []
    async with (
        asyncio.timeout(30),
        Supervised(
            command, clock=clock, isolation=Isolation.LIMITS_ONLY, backoff=Backoff(0.5, 3.0, 60), log_lines=3
        ) as server,
    ):
        for starts in range(1, 6):
            state = await server.wait_until(Waiting)
            assert isinstance(state, Waiting)
            assert (state.code, server.starts) == (4, starts)
            delays.append(state.delay)
            await clock.advance(state.delay)
            await server.wait_until(Running)
        await server.wait_until(Waiting)
    assert delays == [0.5, 1.0, 2.0, 3.0, 3.0]
    assert server.log() == ["oh no"] * 3


async def test_a_run_that_lasted_makes_the_next_failure_a_first_one(tmp_path: Path) -> None:
    clock = VirtualClock()
    command = [sys.executable, "-I", "-S", "-c", "import time; time.sleep(600)"]
    async with (
        asyncio.timeout(30),
        Supervised(command, clock=clock, isolation=Isolation.LIMITS_ONLY, backoff=Backoff(1.0, 30.0, 60)) as server,
    ):
        for passed, delay in ((0.0, 1.0), (0.0, 2.0), (61.0, 1.0)):
            state = await server.wait_until(Running)
            assert isinstance(state, Running)
            await clock.advance(passed)
            os.killpg(state.pid, signal.SIGKILL)
            assert await server.wait_until(Waiting) == Waiting(-9, delay)
            await clock.advance(delay)


async def test_a_server_that_never_ends_a_line_costs_no_memory() -> None:
    script = "import sys, time; sys.stdout.write('x' * 1000000); sys.stdout.flush(); time.sleep(600)"
    command = [sys.executable, "-I", "-S", "-c", script]
    async with (
        asyncio.timeout(20),
        Supervised(command, clock=SystemClock(), isolation=Isolation.LIMITS_ONLY, log_lines=5) as server,
    ):
        await until(lambda: len(server.log()) == 5)
        assert all(len(line) <= 8192 for line in server.log())


def is_there(path: str) -> bool:
    return Path(path).exists()


def start(script: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", script])


def our_children() -> set[str]:
    """Pids of the children that come from us, zombies included."""
    try:
        return set(Path(f"/proc/{spawner.pid}/task/{spawner.pid}/children").read_text().split())
    except OSError:  # nothing was started yet
        return set()


def processes(pattern: str) -> str:
    """The command lines of all running processes that hold the pattern and are no launchers."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                line = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            except OSError:
                continue
            if pattern in line and "confinement" not in line and "asyncio" not in line:
                found.append(line)
    return "\n".join(found)


async def until(holds: Callable[[], bool]) -> None:
    patience = time.monotonic() + 15
    while not holds():
        assert time.monotonic() < patience, "it did not come to that"
        await asyncio.sleep(0.01)


@pytest.mark.parametrize("stdin", [b"", bytes(1 << 20)], ids=["nothing to read", "more than is read"])
def test_the_end_of_many_short_children_is_heard_on_the_loop_that_control_planes_run_on(stdin: bytes) -> None:
    """uvloop tells nobody of a socket or pipe in error, as one is that is closed with something unread in it."""
    uvloop = pytest.importorskip("uvloop")

    async def many() -> list[Finished]:
        done: list[Finished] = []
        for _ in range(12):
            runs = (run_once(["/bin/sh", "-c", "true"], stdin, Limits(seconds=60)) for _ in range(8))
            done += await asyncio.gather(*runs)
        return done

    done = uvloop.run(many())
    assert {each.why for each in done} == {Ended.EXITED}
