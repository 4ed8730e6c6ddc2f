"""Functions that are run to completion for each call, as programs and as containers."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from planform.functions.errors import (
    FunctionAnswerInvalid,
    FunctionAnswerTooLarge,
    FunctionError,
    FunctionFailed,
    FunctionTimedOut,
)
from planform.functions.refusals import RefusalCountingRunner
from planform.functions.values import FunctionRequest, Resource, State
from planform.packages.runtimes.executables import Executable, Way
from planform.telemetry.metrics import MetricsRegistry
from tests.harness.contexts import eventually
from tests.harness.hosting import SERVER, Hosting, oneshot_payload, open_hosting
from tests.harness.programs import container_runtime

INTERPRETER = Path(sys.executable).resolve()


@pytest.fixture
async def hosting(tmp_path: Path) -> AsyncIterator[Hosting]:
    async with open_hosting(tmp_path / "data") as hosting:
        yield hosting


async def run(hosting: Hosting, script: str, *, timeout: float = 20.0) -> Any:
    hosting.want("fn-1", oneshot_payload(hosting.data / "packages" / "one", script))
    await hosting.ready("fn-1")
    desired = State(resources={"bucket": Resource({"apiVersion": "v1", "kind": "ConfigMap", "data": {"n": "1"}})})
    request = FunctionRequest(tag="t", desired=desired, context={"kept": True}, input={"count": 3, "share": 0.5})
    return await hosting.ask("fn-1", request, timeout=timeout)


async def test_a_request_comes_in_as_json_and_what_is_left_out_of_the_answer_stays(hosting: Hosting) -> None:
    answer = await run(
        hosting,
        "said = json.dumps(request['input'], sort_keys=True)\n"
        "print(json.dumps({'results': [{'severity': 'SEVERITY_NORMAL', 'message': said}]}))",
    )
    assert [each.message for each in answer.results] == ['{"count": 3, "share": 0.5}']
    assert list(answer.desired.resources) == ["bucket"]
    assert answer.context == {"kept": True}
    assert answer.tag == "t"


async def test_an_empty_state_in_the_answer_is_empty(hosting: Hosting) -> None:
    answer = await run(hosting, "print(json.dumps({'desired': {}, 'context': {}}))")
    assert answer.desired.resources == {}
    assert answer.context == {}


async def test_either_spelling_of_a_name_is_read(hosting: Hosting) -> None:
    script = (
        "print(json.dumps({'requirements': {NAME: {'a': {'api_version': 'v1', 'kind': 'Pod', 'matchName': 'p'}}}}))"
    )
    for name in ("extra_resources", "extraResources"):
        answer = await run(hosting, script.replace("NAME", repr(name)))
        assert answer.requirements.extra_resources["a"].match_name == "p"


async def test_members_that_the_protocol_does_not_know_are_ignored(hosting: Hosting) -> None:
    script = "print(json.dumps({**request, 'later': {'a': 1}, 'results': [{'more': 1}]}))"
    answer = await run(hosting, script)
    assert [each.message for each in answer.results] == [""]


@pytest.mark.parametrize(
    ("script", "error", "message"),
    [
        ("print('no', file=sys.stderr); sys.exit(4)", FunctionFailed, "it ended with exit code 4: no"),
        ("os.kill(os.getpid(), 9)", FunctionFailed, "it killed"),
        ("pass", FunctionAnswerInvalid, "it wrote nothing to its standard output"),
        ("print('hello')", FunctionAnswerInvalid, "its answer is no RunFunctionResponse"),
        ("print('{} {}')", FunctionAnswerInvalid, "its answer is no RunFunctionResponse"),
        ("print('[]')", FunctionAnswerInvalid, "something other than an object"),
        (
            "print('x' * ((5 << 20) - 1))",
            FunctionAnswerTooLarge,
            "the answer is 5 MiB, and at most 4 MiB are taken (annotation planform.dev/max-answer-size of the",
        ),
        (
            "while True: print('x' * (1 << 20))",
            FunctionAnswerTooLarge,
            "the answer is more than 64.",
        ),
    ],
    ids=["exit-code", "killed", "nothing", "no-json", "two-values", "a-list", "too-much", "without-end"],
)
async def test_whatever_goes_wrong_is_said(
    hosting: Hosting, script: str, error: type[FunctionError], message: str
) -> None:
    with pytest.raises(error) as raised:
        await run(hosting, script)
    assert message in str(raised.value)


async def test_an_answer_that_is_refused_is_counted(hosting: Hosting) -> None:
    metrics = MetricsRegistry()
    counted = Hosting(
        hosting.host, RefusalCountingRunner(hosting.run, metrics=metrics), hosting.data, hosting.certificates
    )
    with pytest.raises(FunctionAnswerTooLarge, match=r"the answer is 4\.8 MiB"):
        await run(
            counted,
            "many = {str(n): {'resource': {'x': 'y' * 10_000}} for n in range(500)}\n"
            "print(json.dumps({'desired': {'resources': many}}))",
        )
    labels = 'function_name="fn",function_revision="fn-1",reason="FunctionAnswerTooLarge"'
    assert f"function_run_function_refused_answers_total{{{labels}}} 1" in metrics.render()


async def test_a_program_that_takes_too_long_is_ended(hosting: Hosting) -> None:
    with pytest.raises(FunctionTimedOut):
        await run(hosting, "import time; time.sleep(60)", timeout=0.5)


async def test_calls_wait_for_their_turn_and_a_revision_that_is_let_go_ends_them(hosting: Hosting) -> None:
    script = "import time; time.sleep(0.2); print('{}')"
    hosting.want("fn-1", oneshot_payload(hosting.data / "packages" / "one", script))
    await hosting.ready("fn-1")
    calls = [asyncio.create_task(hosting.ask("fn-1", FunctionRequest(tag=str(n)))) for n in range(10)]
    await asyncio.sleep(0)
    hosting.host.release("fn-1")
    assert sorted(answer.tag for answer in await asyncio.gather(*calls)) == sorted(map(str, range(10)))
    await hosting.gone("fn-1")


# -- containers


@pytest.fixture
def runc(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have runc where programs are looked up."""
    monkeypatch.setenv("PATH", f"{container_runtime()}{os.pathsep}{os.environ['PATH']}")


def root_file_system(root: Path) -> Path:
    """A small root file system: this interpreter with what the SDK needs, and a shell."""
    for directory in ("proc", "dev", "tmp", "tls/server", "etc", "bin"):
        (root / directory).mkdir(parents=True, exist_ok=True)
    for file in ("resolv.conf", "hosts"):
        (root / "etc" / file).touch()
    prefix = Path(sys.base_prefix)
    libraries = Path(sysconfig.get_path("stdlib"))
    skipped = shutil.ignore_patterns("test", "idlelib", "tkinter", "ensurepip", "site-packages", "__pycache__", "*.a")
    _copy_tree(libraries, root / libraries.relative_to("/"), skipped)
    site = root / "site"
    for name in ("grpc", "google", "msgspec"):
        _copy_tree(Path(sysconfig.get_path("purelib")) / name, site / name, shutil.ignore_patterns("__pycache__"))
    import typing_extensions

    import planform_sdk

    shutil.copy(typing_extensions.__file__, site)
    sdk = Path(planform_sdk.__file__).parent
    _copy_tree(sdk, site / "planform_sdk", shutil.ignore_patterns("__pycache__"))
    shutil.copytree(prefix / "lib", root / prefix.relative_to("/") / "lib", dirs_exist_ok=True, ignore=_only_libraries)
    _copy_program(INTERPRETER, root)
    _copy_program(Path("/bin/sh"), root)
    _copy_program(Path("/bin/cat"), root)
    for extension in [*(libraries / "lib-dynload").glob("*.so"), *site.rglob("*.so")]:
        _copy_libraries(extension, root)
    return root


def _only_libraries(directory: str, names: list[str]) -> list[str]:
    return [name for name in names if not name.startswith("libpython") or (Path(directory) / name).is_dir()]


def _copy_tree(source: Path, target: Path, ignore: Any) -> None:
    def link(one: str, other: str) -> None:
        try:
            os.link(one, other)
        except OSError:
            shutil.copy2(one, other)

    shutil.copytree(source, target, ignore=ignore, copy_function=link, dirs_exist_ok=True)


def _copy_program(program: Path, root: Path) -> None:
    target = root / program.relative_to("/")
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy2(program, target)
    _copy_libraries(program, root)


def _copy_libraries(program: Path, root: Path) -> None:
    said = subprocess.run(["ldd", str(program)], capture_output=True, text=True, check=False).stdout
    for word in said.split():
        library = Path(word)
        target = root / word.lstrip("/")
        if word.startswith("/") and library.is_file() and not target.exists():
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(library, target)


@pytest.mark.usefixtures("runc")
async def test_a_container_is_run_for_each_call_without_network_or_other_files(hosting: Hosting) -> None:
    root = hosting.data / "packages" / "image"
    for directory in ("proc", "dev", "tmp", "bin"):
        (root / directory).mkdir(parents=True)
    for program in ("/bin/sh", "/bin/cat", "/bin/ls"):
        _copy_program(Path(program), root)
    (root / "run.sh").write_text(
        "cat >/dev/null; there=$(ls / | while read -r name; do printf '%s ' $name; done)\n"
        "touch /file 2>/dev/null && there=writable\n"
        'printf \'{"context": {"there": "%s"}}\' "$there"\n'
    )
    hosting.want("fn-1", Executable(Way.CONTAINER_ONESHOT, root, ("/bin/sh", "/run.sh")))
    await hosting.ready("fn-1")
    for _ in range(2):
        there = str((await hosting.ask("fn-1", FunctionRequest(tag="t"))).context["there"]).split()
        assert {"bin", "proc", "run.sh"} <= set(there)
        assert not {"root", "home", "work"} & set(there)


@pytest.mark.usefixtures("runc")
async def test_an_image_serves_in_a_container_and_ends_with_its_revision(hosting: Hosting) -> None:
    root = root_file_system(hosting.data / "packages" / "image")
    (root / "main.py").write_text(SERVER.replace("VERSION", "v1"))
    payload = Executable(
        Way.CONTAINER,
        root,
        (str(INTERPRETER), "/main.py"),
        {"PYTHONPATH": "/site", "PYTHONDONTWRITEBYTECODE": "1", "PYTHONHOME": sys.base_prefix},
    )
    hosting.want("fn-1", payload, environment=(("REGION", "eu"),))
    await hosting.ready("fn-1", seconds=60)
    told = await hosting.call("fn-1", environment=["REGION", "TLS_SERVER_CERTS_DIR"], files=["/work", "/main.py"])
    assert told["environment"] == {"REGION": "eu", "TLS_SERVER_CERTS_DIR": "/tls/server"}
    assert told["files"] == {"/work": False, "/main.py": True}
    assert told["pid"] < 10  # a process namespace of its own
    hosting.host.release("fn-1")
    await hosting.gone("fn-1")

    async def ended() -> bool:
        state = hosting.data / "runtimes" / "fn-1" / "runc"
        return not list(state.iterdir())

    await eventually(ended, "the container is gone")
