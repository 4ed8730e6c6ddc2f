"""Functions and scripts that try to get out, or to use more than they may: in every way of confinement there is.

The attempts themselves are in `escapes.py`. Each way is run once, with all of them, and each is a test of its own.
"""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from planform.packages.runtimes.container_calls import can_filter_calls
from planform.sandbox import Isolation, available_isolation
from tests.faults.escapes import ATTEMPTS
from tests.harness.programs import container_runtime, programs

ROOT = Path(__file__).parents[2]
NOBODY = 65534
IS_ROOT = os.geteuid() == 0

WAYS = {
    "namespaces": ("namespaces", True, False),
    "namespaces-without-cgroups": ("namespaces", False, False),
    "bubblewrap": ("bubblewrap", True, False),
    "root-namespaces": ("root-namespaces", False, False),
    "landlock": ("landlock", False, False),
    "container": ("container", True, False),
    "namespaces-as-nobody": ("namespaces", False, True),
    "landlock-as-nobody": ("landlock", False, True),
}
LONG = {"namespaces-without-cgroups", "root-namespaces", "landlock", "namespaces-as-nobody"}
"""What the others show in part already."""
UNFILTERED = {
    "new_namespaces": "a namespace within the container's own user namespace; it sees no more",
    "clone_into_namespaces": "the same",
    "read_keys": "the keyring of its own session",
    "keep_system_v_memory": "of its own namespace, and counted by its cgroup",
}
"""What containers can do where runc was built without seccomp."""


class World:
    """What must not be reached: files, sockets, and a process."""

    def __init__(self, directory: Path, *, as_nobody: bool) -> None:
        directory.chmod(0o755)
        self._open = []
        abstract = f"planform-escape-{os.getpid()}-{directory.name}"
        for name in ("kubeconfig", "key"):
            (directory / name).write_text("secret")
        secret = ctypes.create_string_buffer(b"a secret in memory")
        self._kept = secret
        for address in (str(directory / "socket"), "\0" + abstract):
            self._open.append(_listening(socket.AF_UNIX, address))
        datagrams = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        datagrams.bind(f"\0{abstract}-datagrams")
        self._open.append(datagrams)
        tcp = socket.create_server(("127.0.0.1", 0))
        self._open.append(tcp)
        (directory / "socket").chmod(0o777)
        self.victim = subprocess.Popen(["sleep", "600"], user=NOBODY if as_nobody else None)
        home = Path.home()
        self.given = {
            "kubeconfig": str(directory / "kubeconfig"),
            "key": str(directory / "key"),
            "marker": directory.parts[2],
            "socket": str(directory / "socket"),
            "abstract": abstract,
            "port": tcp.getsockname()[1],
            "pid": self.victim.pid,
            "address": ctypes.addressof(secret),
            "home": str(home),
            "interpreter": [each.relative_to(home).parts[0] for each in prefixes() if each.is_relative_to(home)],
            "in_home": str(next((each for each in home.glob(".*") if each.is_file()), home / ".profile")),
            "has_network": False,
            "attempts": list(ATTEMPTS),
        }

    def close(self) -> None:
        self.victim.kill()
        self.victim.wait()
        for each in self._open:
            each.close()


def _listening(family: int, address: str) -> socket.socket:
    made = socket.socket(family, socket.SOCK_STREAM)
    made.bind(address)
    made.listen()
    return made


Outcomes = dict[str, str]


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], Outcomes]]:
    worlds: list[World] = []

    @cache
    def run(name: str) -> Outcomes:
        way, cgroups, as_nobody = WAYS[name]
        _skip_if_missing(way, as_nobody=as_nobody)
        world = World(tmp_path_factory.mktemp("world"), as_nobody=as_nobody)
        worlds.append(world)
        given = world.given | ({"runc": f"{container_runtime()}/runc"} if way == "container" else {})
        extra = str(programs("bwrap")) if way == "bubblewrap" else ""
        done = attempted({"way": way, "cgroups": cgroups, "given": given}, as_nobody=as_nobody, path=extra)
        found: Outcomes = json.loads(done.stdout or b"{}")
        assert found, done.stderr
        found["the victim lives"] = "held" if world.victim.poll() is None else "escaped: it was ended"
        found["nothing stays behind"] = "escaped: a process" if _runs("sleep", "86399") else "held"
        return found

    yield run
    for world in worlds:
        world.close()


def attempted(
    options: dict[str, Any], *, as_nobody: bool = False, path: str = ""
) -> subprocess.CompletedProcess[bytes]:
    """Run the attempts. `path` is looked through for programs before the machine's own."""
    python = interpreter_of_nobody() if as_nobody else Interpreter(sys.executable, dict(os.environ))
    assert python is not None
    return subprocess.run(
        [python.path, "-m", "tests.faults.escape_run", json.dumps(options)],
        cwd=ROOT,
        env=python.environment | {"PATH": os.pathsep.join(filter(None, (path, os.environ["PATH"])))},
        capture_output=True,
        timeout=170,
        check=False,
        user=NOBODY if as_nobody else None,
        group=NOBODY if as_nobody else None,
        extra_groups=[] if as_nobody else None,
    )


class Interpreter(NamedTuple):
    path: str
    environment: dict[str, str]


def prefixes() -> set[Path]:
    return {Path(each).resolve() for each in (sys.prefix, sys.exec_prefix, sys.base_prefix, sys.base_exec_prefix)}


@cache
def interpreter_of_nobody() -> Interpreter | None:
    """One that everybody may run, with planform: ours, or the system's where ours stands in a private home."""
    systems = f"/usr/bin/python3.{sys.version_info.minor}"
    with_our_packages = dict(os.environ) | {"PYTHONPATH": os.pathsep.join(each for each in sys.path if each)}
    for python in (Interpreter(sys.executable, dict(os.environ)), Interpreter(systems, with_our_packages)):
        try:
            command = [python.path, "-c", "import planform.sandbox"]
            subprocess.run(command, user=NOBODY, cwd="/", env=python.environment, check=True)
        except (OSError, subprocess.CalledProcessError):
            continue
        return python
    return None


def _skip_if_missing(way: str, *, as_nobody: bool) -> None:
    if as_nobody and not IS_ROOT:
        pytest.skip("only root can be somebody else")
    if as_nobody and interpreter_of_nobody() is None:
        pytest.skip("the checkout, or every interpreter, is private to its owner")
    if way == "bubblewrap" and Isolation.NAMESPACES not in available_isolation():
        pytest.skip("bubblewrap takes user namespaces, which this machine refuses")
    if way not in ("container", "bubblewrap") and Isolation(way) not in available_isolation() and not as_nobody:
        pytest.skip(f"this machine has no {way}")


def _runs(*command: str) -> bool:
    wanted = b"\0".join(word.encode() for word in command) + b"\0"
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if path.read_bytes() == wanted:
                return True
        except OSError:
            continue
    return False


@pytest.mark.timeout(200)
@pytest.mark.parametrize("attempt", [*ATTEMPTS, "the victim lives", "nothing stays behind"])
@pytest.mark.parametrize("way", [pytest.param(way, marks=[pytest.mark.long] if way in LONG else []) for way in WAYS])
def test_nobody_gets_out_and_nobody_takes_more(way: str, attempt: str, outcomes: Callable[[str], Outcomes]) -> None:
    if way == "container" and attempt in UNFILTERED and not can_filter_calls(f"{container_runtime()}/runc"):
        pytest.skip(f"this runc has no seccomp: {UNFILTERED[attempt]}")
    assert outcomes(way)[attempt].startswith("held")


def test_with_the_network_of_the_machine_its_unix_sockets_stay_out_of_reach(tmp_path: Path) -> None:
    world = World(tmp_path, as_nobody=False)
    names = [
        "connect_to_an_abstract_socket",
        "send_to_an_abstract_socket",
        "connect_to_a_unix_socket",
        "signal_another",
    ]
    try:
        given = world.given | {"has_network": True, "attempts": names}
        done = attempted({"way": str(available_isolation()[0]), "cgroups": False, "given": given})
        assert {name: said.partition(":")[0] for name, said in json.loads(done.stdout).items()} == dict.fromkeys(
            names, "held"
        )
    finally:
        world.close()


def test_a_container_that_shall_have_no_network_opens_no_connection_in_the_one_it_shares(tmp_path: Path) -> None:
    runc = f"{container_runtime()}/runc"
    if not can_filter_calls(runc):
        pytest.skip("this runc has no seccomp")
    world = World(tmp_path, as_nobody=False)
    names = [
        "connect_to_the_loopback",
        "open_while_sending",
        "send_a_datagram",
        "connect_to_an_abstract_socket",
        "send_to_an_abstract_socket",
    ]
    try:
        given = world.given | {"runc": runc, "shares_network": True, "attempts": names}
        done = attempted({"way": "container", "cgroups": False, "given": given})
        assert {name: said.partition(":")[0] for name, said in json.loads(done.stdout).items()} == dict.fromkeys(
            names, "held"
        )
    finally:
        world.close()


# -- where there is nothing to hide files with


REFUSED = """
import asyncio, json, sys
from planform.builtin.python import InlinePython
from planform.functions.values import FunctionRequest
from planform.sandbox import best_isolation
from planform.sandbox.isolation import policy
policy.allow_unconfined = sys.argv[1:] == ["--allow"]
script = {"apiVersion": "python.fn.crossplane.io/v1beta1", "kind": "Script", "script": "def compose(req, rsp): pass"}
answer = asyncio.run(InlinePython().run(FunctionRequest(input=script), timeout=20))
print(json.dumps([str(best_isolation()), answer.fatal.message if answer.fatal else ""]))
"""


def ran(*words: str, without: tuple[str, ...] = ()) -> list[str]:
    command = [sys.executable, "-m", "tests.harness.without", *without, sys.executable, "-c", REFUSED, *words]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    found: list[str] = json.loads(done.stdout)
    return found


def test_where_nothing_hides_files_a_script_is_refused_and_says_what_to_do() -> None:
    isolation, fatal = ran(without=("--landlock",))
    assert isolation == "limits-only"
    assert "scripts are refused: this machine cannot hide its files from a function" in fatal
    assert "--allow-unconfined-functions" in fatal


def test_where_nothing_hides_files_the_operator_can_allow_it() -> None:
    assert ran("--allow", without=("--landlock",)) == ["limits-only", ""]


def test_without_namespaces_landlock_hides_files() -> None:
    assert ran() == ["landlock", ""]


SUITES = (
    "unit/test_functions_python.py",
    "unit/test_phase_functions_tasks.py",
    "unit/test_render_command.py",
    "unit/test_runtimes_handover.py",
    "unit/test_runtimes_oneshot.py",
    "unit/test_runtimes_process.py",
    "unit/test_sandbox.py",
    "unit/test_sandbox_limits.py",
    "unit/test_sandbox_ports.py",
    "controllers/test_containers.py",
    "controllers/test_image_tasks.py",
)
"""Of `make test`, what starts functions, scripts and tasks."""


@pytest.mark.long
@pytest.mark.timeout(900)
def test_what_starts_functions_passes_its_tests_without_namespaces() -> None:
    """As in a container, or with user namespaces switched off; the same holds for `make test` as a whole."""
    pytest_command = [sys.executable, "-m", "pytest", "-p", "no:xdist", "-q", *(f"tests/{each}" for each in SUITES)]
    command = [sys.executable, "-m", "tests.harness.without", *pytest_command]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=880)
    assert done.returncode == 0, done.stdout[-4000:]


@pytest.mark.timeout(120)
def test_the_demo_passes_without_namespaces() -> None:
    """As in a container, or with user namespaces switched off."""
    planform = shutil.which("planform", path=str(Path(sys.executable).parent))
    if planform is None:
        pytest.skip("planform is not installed as a program")
    command = [sys.executable, "-m", "tests.harness.without", "--landlock", planform, "demo"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, check=False, timeout=110)
    assert done.returncode == 0, done.stderr[-2000:]
