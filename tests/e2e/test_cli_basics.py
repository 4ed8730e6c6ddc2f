"""The command line before any control plane runs: help, speed, errors with hints, exit codes, completion."""

from __future__ import annotations

import json
import os
import re
import resource
import signal
import subprocess
import sys
import termios
import time
from pathlib import Path

import pytest
import yaml

from planform.cli.main import root
from tests.e2e.control_plane import PLANFORM, Program, clean_env, planform
from tests.harness.processes import dies_with_us

COMMANDS = root.list_commands(root.make_context("planform", [], resilient_parsing=True))
GROUPS = ["function", "actionset", "blueprint", "phase-functions", "xpkg", "models", "kubeconfig"]
OF_OBJECTS = {"apply", "get", "describe", "delete", "events", "wait"}
PROMISED = {"up", "demo", "status", "kubeconfig", "backup", "restore", "features", "version", "completion"} | OF_OBJECTS


@pytest.fixture
def cli(tmp_path: Path) -> Program:
    return planform(tmp_path)


def test_help_lists_every_command_with_a_summary(cli: Program) -> None:
    shown = cli("--help").out
    listed = re.findall(r"^  ([a-z][a-z-]*) {2,}[A-Z]", shown, re.MULTILINE)
    assert listed == COMMANDS
    assert set(listed) >= PROMISED
    assert "planform --help" in cli().out, "no arguments: three things to do, and where the rest is"


@pytest.mark.parametrize("command", [*COMMANDS, "kubeconfig create", "kubeconfig list", "kubeconfig revoke"])
def test_every_command_explains_itself(cli: Program, command: str) -> None:
    shown = cli(*command.split(), "--help").out
    assert shown.startswith(f"Usage: planform {command} ")
    assert shown == cli(*command.split(), "-h").out
    summary = shown.split("\n\n")[1].strip()
    assert summary.endswith((".", "`."))


@pytest.mark.parametrize("group", GROUPS)
def test_help_of_a_group_cuts_no_summary_short(cli: Program, group: str) -> None:
    listed = cli(group, "--help").out.partition("Commands:\n")[2]
    assert listed
    assert "..." not in listed


@pytest.mark.parametrize("arguments", [["--help"], ["--version"], ["version", "--client"]], ids=" ".join)
def test_what_needs_no_server_answers_at_once(cli: Program, arguments: list[str]) -> None:
    cli(*arguments)  # the first run may have to compile
    before = children_seconds()
    cli(*arguments)
    assert children_seconds() - before < 0.25


def test_help_of_no_command_loads_what_only_its_work_needs() -> None:
    look = """
import sys
from planform.cli.main import root
context = root.make_context("planform", [], resilient_parsing=True)
for name in root.list_commands(context):
    root.get_command(context, name)
print(*sorted({"aiohttp", "grpc", "cryptography", "planform.app"} & set(sys.modules)))
"""
    assert subprocess.run([sys.executable, "-c", look], capture_output=True, text=True, check=True).stdout == "\n"


def children_seconds() -> float:
    """Processor time of the programs that ended: unlike time on the clock, it does not depend on who else runs."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def test_version_tells_client_and_server_apart(cli: Program) -> None:
    assert cli("version", "-o", "json").json() == {"client": cli("--version").out.split()[1], "server": None}
    assert cli("version").lines[1] == "Server Version: none is running"
    assert list(yaml.safe_load(cli("version", "--client", "-o", "yaml").out)) == ["client"]


def test_version_says_why_a_control_plane_cannot_be_asked(cli: Program, tmp_path: Path) -> None:
    broken = tmp_path / "kubeconfig"
    broken.write_text("not one")
    told = cli("version", "--kubeconfig", str(broken), code=2)
    assert told.lines == [f"Client Version: {cli('--version').out.split()[1]}"]
    assert f"error: {broken} is no kubeconfig" in told.err
    assert cli("version", "--kubeconfig", str(broken), "-o", "json", code=2).json()["server"] is None


def test_features_are_listed_for_people_and_programs(cli: Program) -> None:
    gates = cli("features", "-o", "json").json()
    assert {"FunctionRevisionSelectors", "ConfineNamespacedReads"} <= {gate["name"] for gate in gates}
    assert yaml.safe_load(cli("features", "-o", "yaml").out) == gates
    assert cli("features").lines[0].split() == ["NAME", "DEFAULT", "SET", "STAGE", "WHAT", "IT", "DOES"]
    assert {gate["set"] for gate in gates} == {None}, "no control plane runs"


@pytest.mark.parametrize(
    ("spelling", "command"),
    [
        ("beta render", "render"),
        ("alpha render", "render"),
        ("composition render", "render"),
        ("beta validate", "validate"),
        ("resource validate", "validate"),
        ("beta convert", "convert"),
        ("beta convert pipeline-composition", "convert"),
        ("beta trace", "trace"),
        ("init function", "function init"),
        ("build function", "function build"),
        ("push function", "function push"),
        ("build configuration", "xpkg build"),
        ("alpha xpkg build", "xpkg build"),
        ("completions", "completion"),
    ],
)
def test_spellings_of_the_designs_and_of_other_tools_are_understood(cli: Program, spelling: str, command: str) -> None:
    assert cli(*spelling.split(), "--help").out == cli(*command.split(), "--help").out


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts_complete(cli: Program, shell: str) -> None:
    script = cli("completion", shell).out
    assert "_PLANFORM_COMPLETE" in script
    asked = cli(env={"_PLANFORM_COMPLETE": "bash_complete", "COMP_WORDS": "planform kub", "COMP_CWORD": "1"})
    assert asked.out == "plain,kubeconfig\n"
    asked = cli(env={"_PLANFORM_COMPLETE": "bash_complete", "COMP_WORDS": "planform up --eph", "COMP_CWORD": "2"})
    assert asked.out == "plain,--ephemeral\n"


@pytest.mark.parametrize(
    ("arguments", "code", "error", "hint"),
    [
        pytest.param(["aplly"], 2, 'there is no command "aplly"', 'did you mean "apply"?', id="misspelt command"),
        pytest.param(["get", "--bogus"], 2, "no such option '--bogus'", "planform get --help", id="unknown option"),
        pytest.param(["get"], 2, "which kind?", "planform get --kinds", id="no kind"),
        pytest.param(["apply"], 2, "missing option '-f'", "planform apply --help", id="no file"),
        pytest.param(["apply", "-f", "nope.yaml"], 2, "nope.yaml does not exist", "", id="absent file"),
        pytest.param(["status"], 2, "no control plane is known here", "start one with `planform up`", id="no plane"),
        pytest.param(["status", "--kubeconfig", "nope"], 2, "kubeconfig nope does not exist", "", id="no kubeconfig"),
        pytest.param(["delete"], 2, "nothing to delete", "planform delete KIND NAME", id="delete nothing"),
        pytest.param(["delete", "cm"], 2, "delete needs names", "planform delete cm --all", id="delete all"),
        pytest.param(["wait", "cm/a", "--for", "x"], 2, 'cannot wait for "x"', "condition=TYPE", id="bad goal"),
        pytest.param(["wait", "a/b", "--for", "jsonpath={.x"], 2, "'{.x'", "--for jsonpath='{.status", id="bad path"),
        pytest.param(["events", "--for", "cm"], 2, '"cm" is not KIND/NAME', "--for KIND/NAME", id="bad target"),
        pytest.param(["apply", "-f", "http://a/b"], 2, "http://a/b is no file", "curl -fsSL http://a/b", id="address"),
        pytest.param(["completion"], 2, "missing argument 'SHELL'", "planform completion --help", id="no shell"),
        pytest.param(["up", "--data", "/dev/null/x"], 1, "/dev/null/x: Not a directory", "", id="bad directory"),
        pytest.param(["up", "--listen", "a:b"], 2, '"a:b" is not HOST:PORT', "planform up --help", id="bad address"),
        pytest.param(["up", "--feature-gates", "X=true"], 2, 'no feature gate "X"', "planform features", id="bad gate"),
        pytest.param(["up", "--poll-interval", "soon"], 2, '"soon" is not a duration', "30s", id="bad duration"),
        pytest.param(["up", "--ephemeral", "--data", "d"], 2, "--ephemeral keeps nothing", "one of them", id="both"),
        pytest.param(["up", "--token-file", "nope"], 2, "'nope' does not exist", "planform up --help", id="no tokens"),
        pytest.param(["kubeconfig", "list"], 2, "holds no control plane", "planform up", id="no data"),
        pytest.param(["kubeconfig", "revoke"], 2, "either --user or --serial", "planform kubeconfig list", id="revoke"),
        pytest.param(["backup", "b.tar"], 2, "holds no control plane", "--data", id="backup of nothing"),
        pytest.param(["restore", "nope.tar"], 2, "'nope.tar' does not exist", "planform restore --help", id="restore"),
    ],
)
def test_wrong_usage_is_explained(cli: Program, arguments: list[str], code: int, error: str, hint: str) -> None:
    done = cli(*arguments, code=code)
    assert done.out == "", "words go to stderr"
    lines = done.err.splitlines()
    assert lines[0].startswith("error: ")
    assert error in lines[0]
    if hint:
        assert lines[1].startswith("hint: ")
        assert hint in lines[1]
    assert len(lines) == 1 + bool(hint)


def test_a_plane_that_is_not_there_is_said_to_be_unreachable(cli: Program, tmp_path: Path) -> None:
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "c", "cluster": {"server": "https://127.0.0.1:9"}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": ""}}],
        "current-context": "c",
    }
    (tmp_path / "kc").write_text(json.dumps(config))
    done = cli("get", "cm", "--kubeconfig", "kc", code=1)
    assert "error: cannot reach https://127.0.0.1:9: Connection refused\n" in done.err
    assert "hint: is it running? `planform up` starts one" in done.err


@pytest.mark.parametrize(
    ("text", "error"),
    [
        pytest.param("a: [1\n", "line 2, column 1", id="broken YAML"),
        pytest.param("- 1\n", "document 1: not an object", id="no mapping"),
        pytest.param("kind: X\n", "document 1: apiVersion is missing", id="no version"),
        pytest.param("apiVersion: v1\nkind: X\n", "document 1: X has no metadata.name", id="no name"),
        pytest.param("{apiVersion: v1, kind: X, metadata: {name: no}}", "YAML reads it as false", id="name is no text"),
        pytest.param("metadata:\n  name: a\n  name: b\n", "f.yaml: line 3", id="field given twice"),
        pytest.param("---\n", "no objects in f.yaml", id="empty"),
    ],
)
def test_files_that_hold_no_objects_are_refused_by_name(cli: Program, tmp_path: Path, text: str, error: str) -> None:
    (tmp_path / "f.yaml").write_text(text)
    assert error in cli("apply", "-f", "f.yaml", code=2).err


def test_the_demo_composes_rolls_out_a_revision_and_leaves_nothing_behind(cli: Program, tmp_path: Path) -> None:
    begun = time.monotonic()
    shown = cli("demo", env={"TMPDIR": str(tmp_path)}).out
    assert time.monotonic() - begun < 90, "it hangs"
    assert shown.count("is ready") == 5 + 10 + 4 + 4, "XRs, what they are made of; again those that got a cache"
    assert shown.index("NopResource/shop-database is ready") < shown.index("App/shop is ready")
    rows = [line.split()[:5] for line in shown.splitlines() if line.startswith("  App/")]
    adopted = [[f"App/{name}", "Automatic", "1", "->", "2"] for name in ("blog", "mail", "search", "shop")]
    assert rows == [*adopted, ["App/wiki", "Manual", "1", "->", "1"]]
    assert "NopResource/wiki-cache" not in shown
    assert "\x1b" not in shown, "no control sequences in a pipe"
    assert list(tmp_path.iterdir()) == []


def test_the_demo_draws_in_place_on_a_terminal(tmp_path: Path) -> None:
    shown = _on_a_terminal(tmp_path, until=b"To go on", then=None)
    assert b"\x1b[16F" in shown, "it goes back over the lines it drew"
    assert b"unchanged, as asked for" in shown
    assert shown.rindex(b"\x1b[?25h\x1b[?7h") > shown.rindex(b"\x1b[?25l\x1b[?7l"), "the terminal is as it was"


def test_an_interrupted_demo_leaves_nothing_behind(tmp_path: Path) -> None:
    shown = _on_a_terminal(tmp_path, until=b"NopResource/", then=signal.SIGINT)
    assert b"Traceback" not in shown
    assert b"\x1b[?25h\x1b[?7h" in shown, "the cursor is back"
    assert list(tmp_path.iterdir()) == []


def _on_a_terminal(home: Path, *, until: bytes, then: signal.Signals | None) -> bytes:
    """What the demo prints on a terminal of 24 lines; it may be sent a signal once it has printed something."""
    ours, theirs = os.openpty()
    termios.tcsetwinsize(theirs, (24, 80))
    process = subprocess.Popen(
        dies_with_us([str(PLANFORM), "demo"]),
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env=clean_env(home, TMPDIR=str(home), NO_COLOR=""),
    )
    os.close(theirs)
    shown = b""
    try:
        while True:
            try:
                part = os.read(ours, 65536)
            except OSError:  # the other end is closed
                break
            shown += part
            if then is not None and until in shown:
                process.send_signal(then)
                then = None
        assert process.wait(30) == (130 if b"To go on" not in shown else 0)
    finally:
        process.kill()
        process.wait()
        os.close(ours)
    assert until in shown
    return shown


def test_output_that_nobody_reads_is_no_traceback(tmp_path: Path) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        [PLANFORM, "--help"], stdout=writer, stderr=subprocess.PIPE, timeout=30, check=False, env=clean_env(tmp_path)
    )
    os.close(writer)
    assert b"Traceback" not in done.stderr
