"""Each test belongs to `make test` or to `make test-all`, and what is flaky is named."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from tools.testbins import NAMES, PRODUCTS, READY

from tests.harness import programs as harness
from tests.harness.go_modules import go_module
from tests.harness.kubernetes import real_kubernetes
from tests.harness.programs import SUITE, container_runtime, programs
from tests.suites import SLOW, builds, is_slow, needs_programs, slow_prefixes, split

ROOT = Path(__file__).parents[2]


def asks_for_kubectl() -> None:
    programs("kubectl")


def asks_for_runc() -> None:
    programs("runc")


def asks_by_a_variable(name: str) -> None:
    programs(name)


def asks_further_down() -> None:
    def inner() -> None:
        asks_for_runc()

    inner()


def asks_the_harness() -> None:
    container_runtime()


def asks_a_module() -> None:
    harness.programs("etcd")


def takes_a_module_of_go() -> None:
    go_module("example.org/it", "1.0.0", "")


def starts_a_cluster(directory: Path) -> None:
    with real_kubernetes(directory):
        pass


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (asks_for_kubectl, False),
        (asks_for_runc, True),
        (asks_by_a_variable, True),
        (asks_further_down, True),
        (asks_the_harness, True),
        (asks_a_module, True),
        (takes_a_module_of_go, True),
        (starts_a_cluster, True),
    ],
)
def test_it_is_found_out_whether_a_program_has_to_be_built(function: object, expected: bool) -> None:
    assert builds(function) is expected


@pytest.fixture
def built_program() -> None:
    if not READY:
        programs("runc")


@pytest.mark.usefixtures("built_program")
def test_a_fixture_that_asks_for_a_program_tells_of_its_tests(request: pytest.FixtureRequest) -> None:
    assert needs_programs(request.node)
    assert request.node in split([request.node]).rest


def test_a_test_without_any_of_that_is_for_everybody(request: pytest.FixtureRequest) -> None:
    assert split([request.node]).quick == (request.node,)


def test_nothing_is_built_for_the_quick_suite(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SUITE, "quick")
    with pytest.raises(AssertionError, match="kube-apiserver must be built"):
        programs.__wrapped__("kube-apiserver")


def test_what_is_ready_comes_from_the_package_index_first() -> None:
    assert set(NAMES) >= READY
    for product in PRODUCTS:
        if READY & set(product.names):
            first = product.recipes[0].__qualname__
            assert first.startswith(("from_wheel", "helm_from_layer", "from_unpacked", "from_python")), first


def test_what_is_said_to_be_slow_exists() -> None:
    missing = [each for each in slow_prefixes(SLOW.read_text()) if not (ROOT / each.partition("::")[0]).exists()]
    assert missing == []


@pytest.mark.parametrize(
    ("nodeid", "expected"),
    [
        ("tests/a.py::test_x", True),
        ("tests/ab.py::test_x", False),
        ("tests/b.py::test_y[1]", True),
        ("tests/b.py::test_yes", False),
    ],
)
def test_a_file_or_a_test_can_be_slow(nodeid: str, expected: bool) -> None:
    assert is_slow(nodeid, slow_prefixes("tests/a.py  # why\n\ntests/b.py::test_y\n")) is expected


FLAKY = """
from pathlib import Path
def test_flaky(): pass
def test_broken(): assert False
"""


@pytest.mark.parametrize(
    ("failed", "environment", "code"),
    [
        (["test_flaky"], {}, 0),
        (["test_flaky"], {"PLANFORM_FLAKY": "fail"}, 1),
        (["test_flaky", "test_broken"], {}, 1),
    ],
    ids=["flaky", "flaky in CI", "broken"],
)
def test_what_passes_alone_is_named_and_fails_in_ci(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failed: list[str], environment: dict[str, str], code: int
) -> None:
    monkeypatch.delenv("PLANFORM_FLAKY", raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    (tmp_path / "test_it.py").write_text(FLAKY)
    (tmp_path / "conftest.py").write_text("from tests.conftest import pytest_terminal_summary\n")
    (tmp_path / "failed").write_text("".join(f"test_it.py::{name}\n" for name in failed))
    command = [sys.executable, str(ROOT / "tools" / "rerun.py"), "failed", "-p", "no:cacheprovider"]
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == code, done.stdout + done.stderr
    assert "flaky: test_it.py::test_flaky" in done.stdout.splitlines()
    assert ("broken: test_it.py::test_broken" in done.stdout.splitlines()) is ("test_broken" in failed)
