"""`planform dev` as an author uses it: files are saved, and what that changes is shown and true."""

from __future__ import annotations

import os
import pty
import re
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.e2e.control_plane import PATIENCE_SECONDS, PLANFORM, clean_env, in_env, planform, running_plane, stop
from tests.harness.processes import Child, running

pytestmark = pytest.mark.xdist_group("e2e-dev")

XRD = """apiVersion: apiextensions.crossplane.io/v2
kind: CompositeResourceDefinition
metadata: {name: greetings.example.org}
spec:
  group: example.org
  names: {kind: Greeting, plural: greetings}
  scope: Namespaced
  versions:
  - name: v1
    served: true
    referenceable: true
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec: {type: object, properties: {name: {type: string}}}
"""
COMPOSITION = """apiVersion: apiextensions.crossplane.io/v1
kind: Composition
metadata: {name: greeting}
spec:
  compositeTypeRef: {apiVersion: example.org/v1, kind: Greeting}
  mode: Pipeline
  pipeline:
  - step: greet
    functionRef: {name: function-greet}
  - step: more
    functionRef: {name: function-patch-and-transform}
    input:
      apiVersion: pt.fn.crossplane.io/v1beta1
      kind: Resources
      resources:
      - name: second
        base: {apiVersion: v1, kind: ConfigMap, data: {value: one}}
        readinessChecks: [{type: None}]
"""
TEST = """apiVersion: test.planform.dev/v1alpha1
kind: CompositionTest
common:
  xr: ../example.yaml
  composition: ../composition.yaml
  function: {function-greet: ../greet/function.py}
cases:
- name: it greets
  expect: {count: 2}
"""
XR = "apiVersion: example.org/v1\nkind: Greeting\nmetadata: {name: ada, namespace: default}\nspec: {name: Ada}\n"


@pytest.fixture
def platform(tmp_path: Path) -> Path:
    directory = tmp_path / "platform"
    (directory / "tests").mkdir(parents=True)
    planform(tmp_path)("function", "init", "function-greet", "--directory", str(directory / "greet"))
    for name, text in (("xrd.yaml", XRD), ("composition.yaml", COMPOSITION), ("example.yaml", XR)):
        (directory / name).write_text(text)
    (directory / "tests" / "greeting_test.yaml").write_text(TEST)
    return directory


@contextmanager
def developing(directory: Path, *flags: str) -> Iterator[Child]:
    command = [str(PLANFORM), "dev", str(directory), *flags]
    with running(in_env(clean_env(directory.parent), command), directory.parent / "dev.log", name="dev") as child:
        until(child, r"^applied in")
        yield child


def until(child: Child, pattern: str, start: int = 0) -> str:
    """What was printed since `start`, once the pattern is in it."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not re.search(pattern, child.output()[start:], re.MULTILINE | re.DOTALL):
        assert not child.has_ended() and time.monotonic() < deadline, f"{pattern}\n{child.output()[start:]}"
        time.sleep(0.02)
    return child.output()[start:]


def processes_below(directory: Path) -> list[str]:
    """The command lines that name the directory."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if str(directory) in words:
            found.append(words)
    return found


def edit(file: Path, change: Callable[[str], str]) -> None:
    """Save as editors do: a new file in place of the old one."""
    new = file.with_name(f".{file.name}.new")
    new.write_text(change(file.read_text()))
    new.replace(file)


def test_a_save_is_applied_served_tested_and_shown(platform: Path) -> None:
    with developing(platform) as dev:
        until(dev, r"ConfigMap/ada.*tests: 1 passed, 0 failed")

        start = len(dev.output())
        edit(platform / "composition.yaml", lambda text: text.replace("value: one", "value: two"))
        until(dev, r"saved composition.yaml.*effect after \d+ ms.*-  value: one\n +\+  value: two.*1 passed", start)

        start = len(dev.output())
        edit(platform / "greet" / "function.py", lambda text: text.replace("Hello,", "Good day,"))
        until(dev, r"-  greeting: Hello, Ada\n +\+  greeting: Good day, Ada.*tests: 1 passed", start)

        start = len(dev.output())
        edit(platform / "greet" / "function.py", lambda text: text.replace("    who =", "    {}['x']\n    who ="))
        until(dev, r"error: greet/function.py:9: .*> +9 \|     \{\}\['x'\].*tests: 0 passed, 1 failed", start)

        start = len(dev.output())
        edit(platform / "greet" / "function.py", lambda text: text.replace("    {}['x']\n", ""))
        until(dev, r"nothing is wrong any more.*tests: 1 passed", start)
        edit(platform / "greet" / "function.py", lambda text: text.replace("Good day,", "Hello,"))
        until(dev, r"\+  greeting: Hello, Ada", start)
        assert stop(dev, signal.SIGINT) == 0
    assert processes_below(platform) == [], "what served before the last save ended, too"


def test_a_file_that_is_half_written_deletes_nothing_and_one_that_goes_does(platform: Path) -> None:
    extra = platform / "second.yaml"
    extra.write_text(XR.replace("name: ada", "name: bob").replace("Ada", "Bob"))
    with developing(platform, "--no-tests") as dev:
        until(dev, r"\+ Greeting/bob")
        start = len(dev.output())
        edit(extra, lambda text: text + "  more: [\n")
        until(dev, r"error: second.yaml:\d+: .*applied in", start)
        start = len(dev.output())
        edit(extra, lambda text: text.replace("  more: [\n", "").replace("Bob", "Robert"))
        shown = until(dev, r"\+  greeting: Hello, Robert", start)
        assert "- Greeting/bob" not in shown, "it was there all the time"
        kubeconfig = re.search(r"KUBECONFIG=(\S+);", dev.output())
        assert kubeconfig is not None
        extra.unlink()
        planform(platform.parent)(
            "wait", "greeting/bob", "--for", "delete", "--kubeconfig", kubeconfig[1], "--timeout", "30s"
        )


def test_a_function_that_cannot_be_imported_leaves_the_old_one_serving(platform: Path) -> None:
    with developing(platform, "--no-tests") as dev:
        until(dev, r"\+ ConfigMap/ada")
        start = len(dev.output())
        edit(platform / "greet" / "function.py", lambda text: f"import nothing_like_it\n{text}")
        until(dev, r"error: greet/function.py:1: .*nothing_like_it.*> +1 \| import nothing_like_it", start)
        start = len(dev.output())
        edit(platform / "composition.yaml", lambda text: text.replace("value: one", "value: two"))
        until(dev, r"\+  value: two", start)


def test_it_works_on_a_control_plane_that_exists(platform: Path, tmp_path: Path) -> None:
    with running_plane(tmp_path / "plane") as plane:
        with developing(platform, "--no-tests", "--kubeconfig", str(plane.kubeconfig)) as dev:
            until(dev, r"\+ ConfigMap/ada")
            start = len(dev.output())
            edit(platform / "greet" / "function.py", lambda text: text.replace("Hello,", "Good day,"))
            until(dev, r"\+  greeting: Good day, Ada", start)
            assert stop(dev, signal.SIGTERM) == 0
        left = planform(tmp_path)("get", "greeting", "ada", "--kubeconfig", str(plane.kubeconfig))
        assert "ada" in left.out


def test_a_breakpoint_opens_the_debugger_on_the_terminal(platform: Path) -> None:
    edit(platform / "greet" / "function.py", lambda text: text.replace("    who =", "    breakpoint()\n    who ="))
    ours, theirs = pty.openpty()
    command = in_env(clean_env(platform.parent), [str(PLANFORM), "dev", str(platform), "--debug", "--no-tests"])
    process = subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True)
    os.close(theirs)
    try:
        _read_until(ours, b"(Pdb)")
        os.write(ours, b"p 'it is ' + req.xr.get('spec.name')\n")
        _read_until(ours, b"'it is Ada'")
    finally:
        process.kill()
        process.wait(PATIENCE_SECONDS)
        os.close(ours)


def _read_until(terminal: int, text: bytes) -> None:
    seen, deadline = b"", time.monotonic() + PATIENCE_SECONDS
    while text not in seen:
        assert time.monotonic() < deadline, seen.decode(errors="replace")
        seen += os.read(terminal, 4096)
